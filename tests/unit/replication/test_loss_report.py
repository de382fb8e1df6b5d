"""Reports of a failover: exact if the source answers, else bounds and an age, never 0 for unknown."""

from __future__ import annotations

import orjson
import pytest

from hub.record import TopicPartition
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.ownership.group_offsets import GroupMark, GroupSides
from hub.replication.ownership.loss_report import (
    Loss,
    MirroredPartition,
    ReportedEnd,
    assess,
    declared,
    declared_of,
)

P = TopicPartition("nyc.chat", 0)
TABLE = OffsetMap.of([Run(0, 0, 10), Run(12, 11, 10)])  # up to 22 → 21


def test_a_report_counts_what_is_lost_and_read_again() -> None:
    partitions = {P: MirroredPartition(TABLE, 22, 30)}
    groups = [
        GroupSides("behind", {P: 15}, {P: 8}),
        GroupSides("ahead", {P: 26}, {P: 21}),
        GroupSides("fresh", {P: 5}, {}),
        GroupSides("there", {P: 5}, {P: 9}, active=True),
    ]
    report = assess(partitions, groups, {})
    assert (report.lost, report.is_exact, report.redelivered) == (8, True, 0)
    counts = {e.group: (e.position, e.redelivered, e.unread_lost, e.read_only_here) for e in report.effects}
    assert counts == {
        "behind": (14, 0, 8, 0),
        "ahead": (21, 0, 4, 4),
        "fresh": (5, 0, 8, 0),
        "there": (9, 0, 8, 0),
    }
    unplaced = assess(
        partitions, groups, {"behind": {P: GroupMark("l", "behind", *P, 8, None, 8)}}, place=False
    )
    assert {e.group: e.redelivered for e in unplaced.effects} == {
        "behind": 5,
        "ahead": 0,
        "fresh": 5,
        "there": 0,
    }


def test_where_the_sides_differ_in_order_a_report_counts_what_is_read_again() -> None:
    """Home has h0 h1 h2 h3 t0 t1, away has h0 h1 h2 t0 t1 h3:
    t0 and t1 were born away, h3 was carried over after them."""
    forward = OffsetMap.of([Run(0, 0, 3), Run(3, 5, 1)], source_next=6)
    both = TwoWayOffsetMap(forward, OffsetMap.of([Run(3, 4, 2)]))
    report = assess({P: MirroredPartition(forward, 6, 6, joint=both)}, [GroupSides("g", {P: 4}, {})], {})
    (effect,) = report.effects
    assert (effect.state, effect.position, effect.redelivered) == (
        "bounded",
        3,
        1,
    )  # h3, and t0 is not passed by
    unplaced = assess(
        {P: MirroredPartition(forward, 6, 6, joint=both)}, [GroupSides("g", {P: 4}, {P: 1})], {}, place=False
    )
    assert unplaced.redelivered == 3  # h1, h2, h3


def test_what_was_never_mirrored_is_lost_too() -> None:
    fresh, remade = TopicPartition("nyc.new", 0), P
    report = assess(
        {P: MirroredPartition(TABLE, 22, 22)},
        [GroupSides("g", {P: 15, fresh: 2}, {P: 8})],
        {},
        left={fresh: (3, 9), remade: (0, 4)},
    )
    assert [(loss.place, loss.first, loss.end) for loss in report.losses if loss.count] == [
        (remade, 0, 4),
        (fresh, 3, 9),
    ]
    assert (report.lost, report.is_exact) == (10, True)
    assert {e.place: e.unread_lost for e in report.effects}[P] == 0


def test_a_source_that_does_not_answer_gives_a_bound() -> None:
    report = assess(
        {P: MirroredPartition(TABLE, 22, None, ReportedEnd(25, 9_000))},
        [GroupSides("g", {P: 15}, {P: 8})],
        {},
        place=False,
        source_answers=False,
    )
    assert (report.lost, report.lost_at_least, report.is_exact) == (None, 3, False)
    assert (report.redelivered, report.redelivered_at_least, report.redelivered_at_most) == (None, 5, 12)
    assert report.heard_at_ms == 9_000
    assert report.words("nyc", 69_000) == (
        "Lost: unknown, at least 3 offsets. nyc does not answer; its last report was 60 s ago (1970-01-01 "
        "00:00:09 UTC). Records written there since cannot be counted.\n"
        "Read again: unknown, from 5 to 12 records."
    )


@pytest.mark.parametrize("partitions", [{}, {P: MirroredPartition(TABLE, 22, None)}])
def test_of_a_source_that_was_never_heard_nothing_is_zero(
    partitions: dict[TopicPartition, MirroredPartition],
) -> None:
    """No partition with a checkpoint, or one of which no worker told an end,
    is not a proof that nothing is lost."""
    report = assess(partitions, [], {}, source_answers=False)
    assert (report.lost, report.redelivered, report.is_exact, report.heard_at_ms) == (None, None, False, None)
    assert "Lost: unknown" in report.words("nyc", 0) and "never reported" in report.words("nyc", 0)


def test_what_was_heard_of_partitions_that_were_never_mirrored_counts() -> None:
    report = assess(
        {P: MirroredPartition(TABLE, 22, None, ReportedEnd(22, 9_000))},
        [],
        {},
        left_heard={TopicPartition("nyc.new", 0): (3, ReportedEnd(9, 5_000))},
        source_answers=False,
    )
    assert (report.lost_at_least, report.heard_at_ms) == (6, 5_000)


def test_the_audit_record_tells_a_bound_from_a_number() -> None:
    report = assess(
        {P: MirroredPartition(TABLE, 22, None, ReportedEnd(22, 9_000))}, [], {}, source_answers=False
    )
    said = declared("nyc", 3, report, 10_000)
    record = said.record()
    back = declared_of("nyc|3", orjson.loads(record.value or b""))
    assert (back.exact, back.heard_at_ms, back.losses) == (False, 9_000, (Loss(P, 22, 22, False),))
    older = {"losses": [["nyc.chat", 0, 3, 9, True]], "redelivered": 2, "at_ms": 5}
    assert declared_of("nyc|3", older).exact
