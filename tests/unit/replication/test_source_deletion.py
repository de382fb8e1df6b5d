"""Topics that were deleted at the source: what counts as deleted, and when a copy may be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mirror_statuses import LINK, MARK, PLACE, T, board, status
from pydantic import ValidationError

from hub.log import TopicDescription
from hub.record import NewRecord
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import SourceEnds, VerifiedRange, copy_of
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.deletion_policy import DeletionPolicy
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.imported_copy import ImportedCopy
from hub.replication.planning.source_deletion import (
    CopyFacts,
    SourceAnswer,
    SourceDeletion,
    decide_deletion,
    surplus_deletions,
)
from hub.replication.worker.link_deletions import missing_offsets, not_made_by_mirror

HOUR = 3_600_000
FOLLOW, KEEP = DeletionPolicy(do="follow", after="1h"), DeletionPolicy()
GONE = CopyFacts(T, "s", "t", certain=True, missing=0)
WAITING = SourceDeletion("m", T, "waiting", "s", "t", 1_000, 1_000 + HOUR, HOUR, 0)
DELETING = replace(WAITING, state="deleting")


def decided(
    copy: CopyFacts, known: SourceDeletion | None, now_ms: int = 1_000, policy: DeletionPolicy = FOLLOW
) -> SourceDeletion | None:
    return decide_deletion("m", policy, copy, known, now_ms)


def test_the_file_says_what_becomes_of_copies() -> None:
    def policy(value: Any) -> DeletionPolicy:
        mirror = {"source": "nyc", "target": "lon", "topics": ["nyc.*"], "on_delete": value}
        return Mirror.model_validate(mirror).on_delete

    assert policy("follow") == DeletionPolicy(do="follow", after="1h") and policy("follow").after == HOUR
    assert policy({"do": "follow", "after": "2d"}).after == 48 * HOUR
    assert Mirror(source="nyc", target="lon", topics=["x"]).on_delete == KEEP
    for wrong in ("drop", {"do": "follow", "after": "10ms"}, {"after": "1y"}):
        with pytest.raises(ValidationError):
            policy(wrong)


def test_a_copy_waits_for_its_time_and_is_recorded_before_it_is_deleted() -> None:
    assert decided(GONE, None) == WAITING
    assert decided(GONE, WAITING, 1_000 + HOUR - 1) == WAITING
    assert decided(GONE, WAITING, 1_000 + HOUR) == DELETING
    assert decided(GONE, DELETING, 1_000 + HOUR) == DELETING  # after a kill: the copy is still there
    assert decided(replace(GONE, copy_id=""), DELETING) == DELETING  # its checkpoints are left
    assert decided(replace(GONE, copy_id="other"), DELETING) == DELETING
    done = replace(DELETING, state="deleted", deleted_at_ms=2 * HOUR)
    assert decided(replace(GONE, copy_id=""), done) == done


def test_nothing_becomes_of_a_topic_that_is_not_certainly_gone() -> None:
    unsure = replace(GONE, certain=False)
    assert decided(unsure, None) is None
    for known in (WAITING, DELETING):
        assert decided(unsure, known, 10 * HOUR) == known
    assert decided(unsure, WAITING, 10 * HOUR, KEEP) == WAITING


def test_a_topic_that_is_there_again_ends_it_unless_the_copy_is_gone() -> None:
    back = replace(GONE, current=True, certain=False)
    assert decided(back, WAITING, 10 * HOUR) is None
    assert decided(back, DELETING, 10 * HOUR) is None
    assert decided(replace(back, copy_id=""), DELETING) == DELETING  # or its checkpoints would stay


def test_keep_is_a_state_and_stops_what_waits() -> None:
    kept = decided(GONE, None, policy=KEEP)
    assert kept is not None and (kept.state, kept.due_ms) == ("kept", 0)
    for known in (WAITING, DELETING):
        stopped = decided(GONE, known, 10 * HOUR, KEEP)
        assert stopped is not None and (stopped.state, stopped.due_ms, stopped.since_ms) == ("kept", 0, 1_000)
    again = decided(GONE, kept, 5 * HOUR)  # the whole delay again, or a changed file would delete at once
    assert again is not None and (again.state, again.due_ms) == ("waiting", 6 * HOUR)


def test_a_longer_delay_begins_again() -> None:
    found = decided(GONE, WAITING, 2 * HOUR, DeletionPolicy(do="follow", after="3h"))
    assert found is not None and (found.state, found.due_ms) == ("waiting", 5 * HOUR)


def test_a_copy_that_others_wrote_is_held() -> None:
    held = decided(replace(GONE, shared="it has a foreign record"), WAITING, 10 * HOUR)
    assert held is not None and (held.state, held.due_ms) == ("held", 0)
    assert "kept: it has a foreign record" in str(held)
    freed = decided(GONE, held, 20 * HOUR)
    assert freed is not None and (freed.state, freed.due_ms) == ("waiting", 21 * HOUR)


def test_another_copy_of_the_name_is_a_new_case() -> None:
    found = decided(replace(GONE, copy_id="t2"), WAITING, 10 * HOUR)
    assert found is not None and (found.state, found.copy_id, found.since_ms) == ("waiting", "t2", 10 * HOUR)
    assert decided(replace(GONE, copy_id=""), WAITING, 10 * HOUR) is None  # a person deleted it


LISTED = frozenset({"_hub.mirror.control", "nyc.other"})


@pytest.mark.parametrize(
    ("answer", "recorded", "expected"),
    [
        (SourceAnswer("c1", LISTED, frozenset({T})), "c1", True),
        (SourceAnswer("c1", LISTED | {T}, frozenset({T})), "c1", False),
        (SourceAnswer("c1", LISTED, frozenset()), "c1", False),  # the user may not Describe it
        (SourceAnswer("c1", frozenset({"_hub.mirror.control"}), frozenset({T})), "c1", False),
        (SourceAnswer("c1", frozenset(), frozenset({T})), "c1", False),
        (SourceAnswer("c2", LISTED, frozenset({T})), "c1", False),  # a rebuilt or another cluster
        (SourceAnswer("c1", LISTED, frozenset({T})), None, False),
    ],
)
def test_only_the_recorded_cluster_that_shows_others_denies_a_topic(
    answer: SourceAnswer, recorded: str | None, expected: bool
) -> None:
    assert answer.denies(T, recorded) is expected


def test_a_copy_is_the_mirrors_only_if_its_records_prove_it() -> None:
    mark = replace(MARK, source_start=0, target_start=0)
    copy = TopicDescription(T, "t", 1, 1)

    def why(one: Any = mark, *records: NewRecord, there: TopicDescription = copy) -> str:
        written = WrittenState(checkpoints={("m", *PLACE): one})
        return not_made_by_mirror("m", there, {PLACE: one}, written, board(*records))

    assert why() == ""
    assert "not the topic" in why(there=TopicDescription(T, "t2", 1, 1))
    assert "not the topic" in why(replace(mark, target_topic_id=""))
    assert "before the mirror began" in why(replace(mark, target_start=3))
    assert why(replace(mark, target_start=3, generation=1)) == ""  # the former generation is before it
    differs = VerifiedRange("m", *PLACE, copy_of(mark), 90, 70, 0, 33, "the records differ", 1)
    assert "differs from its source" in why(mark, differs.record())
    assert why(mark, replace(differs, differs_at=None).record()) == ""
    assert not_made_by_mirror("m", copy, {}, WrittenState(), ControlState()) != ""
    imported = ImportedCopy("m", *PLACE, "s", 5)
    taken = WrittenState(checkpoints={("m", *PLACE): mark}, copied={imported.key: imported})
    assert "taken over" in not_made_by_mirror("m", copy, {PLACE: mark}, taken, board())


def test_what_the_copy_lacks_is_counted_or_unknown() -> None:
    ends = SourceEnds("m", {PLACE: (0, 107)}, 5).record()
    assert missing_offsets("m", {PLACE: MARK}, board(ends)) == 7
    assert missing_offsets("m", {PLACE: MARK}, board()) is None
    assert missing_offsets("m", {}, board(ends)) is None
    assert "lacks 7 offsets" in str(replace(WAITING, missing=7))
    assert "is unknown" in str(replace(WAITING, missing=None))


def test_records_are_read_back_and_removed() -> None:
    known = board(WAITING.record())
    assert known.deletions == {("m", T): WAITING}
    assert board(WAITING.record(), WAITING.forgotten()).deletions == {}
    many = [replace(DELETING, topic=f"t{n}", state="deleted", deleted_at_ms=n) for n in range(103)]
    assert [each.topic for each in surplus_deletions([*many, WAITING])] == ["t2", "t1", "t0"]


def test_a_deleted_topic_is_no_trouble_in_the_status() -> None:
    found = status(replace(WAITING, state="kept", due_ms=0).record())
    assert found["state"] != "trouble" and found["mirror"] == LINK.name
    (row,) = found["deletions"]
    assert (row["topic"], row["state"], row["due_ms"]) == (T, "kept", None)
    assert "on_delete: keep" in row["text"]
