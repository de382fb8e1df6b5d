"""Replays of dead-letter records as values: appended, closed and refused ones.
Needs no log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub.errors import CallerError
from hub.record import NewRecord, Record
from hub.topics.dead_letters.actions import ReplayPlan, check_replayable
from hub.topics.dead_letters.listing import later_row
from hub.topics.dead_letters.model import (
    ACTIONS_TOPIC,
    REPLAY_FOR,
    DeadLetter,
    DeadLetterAction,
    RecordPlace,
    TrackedDeadLetter,
)

ORIGIN = RecordPlace("t", 0, 7)


def dead(offset: int, *, by: str = "v", of: RecordPlace | None = ORIGIN, **more: Any) -> TrackedDeadLetter:
    """Return an open dead-letter record of t.dlq; ``everywhere`` bytes are invalid for every view."""
    reason = "undecodable" if more.pop("everywhere", False) else "null_key"
    letter = DeadLetter(
        RecordPlace("t.dlq", 0, offset), "view", by, reason, "", of, of, b"k", b"v", 5, 9_000, (), b"digest"
    )
    return TrackedDeadLetter(replace(letter, **more))


def plan_of(*known: TrackedDeadLetter, dry_run: bool = False) -> ReplayPlan:
    groups = {known[0].letter.event: list(known)} if known else {}
    return ReplayPlan(groups, {"t.dlq": "id"}, "ann", 10_000, dry_run)


def event_of(step: list[NewRecord]) -> NewRecord:
    (event,) = [each for each in step if each.topic != ACTIONS_TOPIC]
    return event


def test_one_replay_closes_all_records_of_its_event() -> None:
    one, two = dead(0, by="v", everywhere=True), dead(1, by="w", everywhere=True)
    plan = plan_of(one, two)
    assert not plan.is_done(one)
    row = plan.add(one, 42, 5)
    assert (row["to"], row["for"], row["state"]) == ("t:0", "all", "replayed")
    assert plan.is_done(two) and plan.rows[-1] == {
        "letter": "t.dlq:0:1",
        "state": "replayed",
        "done": "before",
    }
    (step,) = plan.steps  # the event and both actions are one transaction
    assert [each.topic for each in step] == ["t", ACTIONS_TOPIC, ACTIONS_TOPIC]


def test_a_replay_is_for_the_views_that_rejected_the_event() -> None:
    plan = plan_of(dead(0, by="v"), dead(1, by="w"))
    row = plan.add(dead(0, by="v"), 42, 5)
    assert row["for"] == ["v", "w"]
    assert dict(event_of(plan.steps[0]).headers)[REPLAY_FOR] == b"v,w"


def test_a_record_that_was_written_again_takes_over_the_earlier_replay() -> None:
    done = DeadLetterAction(
        RecordPlace("t.dlq", 0, 0), "id", "replayed", "bob", 1, went=RecordPlace("t", 0, 9)
    )
    first, again = replace(dead(0), entry=done), dead(5)
    plan = plan_of(first)
    assert plan.is_done(again)
    ((action,),) = plan.steps
    assert action.topic == ACTIONS_TOPIC and b'"offset":5' in (action.key or b"")
    assert plan.is_done(first) and len(plan.steps) == 1  # nothing to write for the replayed one itself


def test_a_dry_run_has_the_present_states() -> None:
    plan = plan_of(dead(0), dry_run=True)
    assert plan.add(dead(0), 42, 5)["state"] == "open"


def test_an_event_that_is_in_no_group_is_replayed_once() -> None:
    plan = plan_of()
    plan.add(dead(3), 42, 5)
    assert plan.is_done(dead(3))


@pytest.mark.parametrize(
    ("found", "as_is", "refusal"),
    [
        (dead(0, kind="late"), True, "is a late event"),
        (dead(0), False, "would be rejected again"),
        (dead(0), True, "would count it twice"),
        (dead(0, everywhere=True), False, None),
        (dead(0, kind="audit"), False, None),
        (dead(0, key=b"another"), True, None),  # the topic was recreated: another event is at this place
        (dead(0, of=None), True, None),
    ],
)
def test_a_replay_that_would_not_help_is_refused(
    found: TrackedDeadLetter, as_is: bool, refusal: str | None
) -> None:
    def original(place: RecordPlace) -> Record:
        return Record(place.topic, place.partition, place.offset, 0, b"k", b"v")

    if refusal is None:
        check_replayable(found, as_is, original)
    else:
        with pytest.raises(CallerError, match=refusal):
            check_replayable(found, as_is, original)


def test_a_repaired_event_may_be_replayed_to_its_view() -> None:
    action = DeadLetterAction(
        RecordPlace("t.dlq", 0, 0), "id", "repaired", "bob", 1, has_value=True, value=b"x"
    )
    check_replayable(replace(dead(0), entry=action), False, lambda _: None)


def test_later_events_are_those_with_the_same_key_behind_the_original() -> None:
    records = [(6, b"k"), (7, b"k"), (8, b"other"), (9, b"k"), (11, b"k")]
    row = later_row(dead(0).letter, records, False)
    assert row == {"events": 2, "first_offset": 9, "scanned": 3, "complete": False}
