"""Groups continue at their positions, never skip unread records, and are left alone where they are active."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.record import Record, TopicPartition
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.ownership.group_offsets import (
    CarriedPosition,
    GroupMark,
    GroupSides,
    carry,
    mark_of,
    marks_for,
)

P = TopicPartition("nyc.chat", 0)
TABLE = OffsetMap.of([Run(10, 0, 5), Run(17, 6, 3)], source_next=22, target_next=9)


def mark(target: int, found: int | None = None) -> GroupMark:
    return GroupMark("nyc-lon", "app|1", "nyc.chat", 0, target, found, 0)


def one(
    source: int,
    target: int | None = None,
    *,
    wrote: GroupMark | None = None,
    active: bool = False,
    force: bool = False,
) -> CarriedPosition:
    seen = GroupSides("app|1", {P: source}, {} if target is None else {P: target}, active)
    (found,) = carry(seen, {P: TABLE}, {} if wrote is None else {P: wrote}, force=force)
    return found


@pytest.mark.parametrize(
    ("source", "state", "commit", "distance"),
    [
        (12, "exact", 2, 0),
        (15, "exact", 6, 0),
        (20, "exact", 9, 0),
        (22, "exact", 9, 0),
        (30, "pending", 9, 8),
        (4, "clamped", 0, 6),
    ],
)
def test_where_a_group_goes_on(source: int, state: str, commit: int, distance: int) -> None:
    found = one(source)
    assert (found.state, found.commit, found.distance) == (state, commit, distance)


def test_a_group_that_is_where_it_belongs_is_not_written_again() -> None:
    found = one(12, 2, wrote=mark(2))
    assert (found.state, found.commit, found.position) == ("exact", None, 2)


def test_a_group_with_members_at_the_target_is_left_alone_even_by_force() -> None:
    assert (one(12, active=True).state, one(12, active=True, force=True).commit) == ("active", None)


def test_a_group_that_went_on_at_the_target_is_left_alone() -> None:
    found = one(12, 4, wrote=mark(2))
    assert (found.state, found.commit, found.distance) == ("moved", None, 2)
    assert one(12, 4).state == "moved"


def test_a_group_that_was_set_back_at_the_source_follows_only_by_force() -> None:
    assert (one(11, 4, wrote=mark(4)).state, one(11, 4, wrote=mark(4)).commit) == ("behind", None)
    assert one(11, 4, wrote=mark(4), force=True).commit == 1


def test_a_crash_between_mark_and_commit_is_no_progress_of_the_group() -> None:
    left = mark(6, found=4)  # about to write 6, found 4, died
    assert one(11, 4, wrote=left).state == "behind"
    assert one(19, 4, wrote=left).commit == 8
    assert left.wrote(4) and not left.wrote(5)


def test_marks_are_written_before_commits_and_read_as_written() -> None:
    seen = GroupSides("app|1", {P: 12}, {P: 1})
    (written,) = marks_for("nyc-lon", carry(seen, {P: TABLE}, {}), seen)
    assert written == GroupMark("nyc-lon", "app|1", "nyc.chat", 0, 2, 1, 12)
    new = written.record()
    assert mark_of(Record(new.topic, 0, 0, 0, new.key, new.value)) == written
    assert marks_for("nyc-lon", carry(GroupSides("app|1", {P: 12}, {P: 2}), {P: TABLE}, {}), seen) == ()


def test_a_partition_without_a_map_waits() -> None:
    (found,) = carry(GroupSides("g", {P: 12}, {}), {}, {})
    assert (found.state, found.commit) == ("unmapped", None)


@given(st.integers(0, 30), st.none() | st.integers(0, 12), st.none() | st.integers(0, 12), st.booleans())
def test_never_past_an_unread_record_and_never_back(
    source: int, target: int | None, wrote: int | None, active: bool
) -> None:
    found = one(source, target, wrote=None if wrote is None else mark(wrote), active=active)
    unread = [run.target + at for run in TABLE for at in range(run.count) if run.source + at >= source]
    if found.commit is not None:
        assert found.commit <= min(unread, default=9)
        assert target is None or found.commit > target


def test_nothing_is_forced_by_default() -> None:
    seen = GroupSides("app|1", {P: 12}, {P: 4})
    assert carry(seen, {P: TABLE}, {P: mark(2)}) == (one(12, 4, wrote=mark(2)),)
