"""[core] Actions on dead-letter records: which are allowed, and the records that they write.

The shell writes the records of one call in one transaction (``queue.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hub.errors import CallerError, Conflict
from hub.record import NewRecord, Record
from hub.topics.dead_letters.listing import text_of
from hub.topics.dead_letters.model import (
    REPLAY_FOR,
    REPLAY_LETTER,
    REPLAY_OF,
    TOO_LARGE,
    DeadLetter,
    DeadLetterAction,
    RecordPlace,
    State,
    TrackedDeadLetter,
)


def stands_for(done: TrackedDeadLetter, dead_letter: TrackedDeadLetter) -> bool:
    """Return True if the replay of ``done`` also covers ``dead_letter``: same event, and either the same
    view or an event that no view can have accepted.
    """
    one, other = done.letter, dead_letter.letter
    if done.state != "replayed" or one.event != other.event:
        return False
    return (one.everywhere and other.everywhere) or (one.kind, one.by) == (other.kind, other.by)


def repair(
    dead_letter: TrackedDeadLetter,
    topic_id: str,
    key: bytes | None,
    value: bytes | None,
    by: str,
    at_ms: int,
    why: str | None = None,
) -> DeadLetterAction:
    """Build the action for a repaired event. Raises Conflict if the record is closed."""
    _check_open(dead_letter, "repaired")
    return DeadLetterAction(dead_letter.letter.at, topic_id, "repaired", by, at_ms, why, True, value, key)


def dismiss(
    dead_letter: TrackedDeadLetter, topic_id: str, by: str, at_ms: int, why: str | None
) -> DeadLetterAction:
    """Build the action that closes the record without a replay. The record stays in its topic. Raises
    Conflict if it was replayed.
    """
    if dead_letter.state == "replayed":
        raise Conflict(f"dead-letter record {dead_letter.letter.at} was replayed already", code="HUB-1918")
    entry = dead_letter.entry
    if entry is None:
        return DeadLetterAction(dead_letter.letter.at, topic_id, "dismissed", by, at_ms, why)
    return replace(entry, state="dismissed", by=by, at_ms=at_ms, why=why)


def reopen(dead_letter: TrackedDeadLetter, by: str, at_ms: int) -> DeadLetterAction:
    """Build the action that undoes a dismissal. Raises Conflict if the record is not dismissed."""
    if dead_letter.state != "dismissed" or dead_letter.entry is None:
        raise Conflict(
            f"dead-letter record {dead_letter.letter.at} is {dead_letter.state}, not dismissed",
            code="HUB-1918",
        )
    state: State = "repaired" if dead_letter.entry.has_value else "open"
    return replace(dead_letter.entry, state=state, by=by, at_ms=at_ms, why=None)


def replay(
    tracked: TrackedDeadLetter,
    same: Sequence[TrackedDeadLetter],
    topic_ids: Mapping[str, str],
    end_offset: int,
    timestamp_ms: int | None,
    by: str,
    at_ms: int,
) -> tuple[NewRecord, list[DeadLetterAction]]:
    """Return the event to append and the actions that close its dead-letter records.

    ``same`` holds all unclosed dead-letter records of the same event, including ``tracked``. ``timestamp_ms``
    is the event's own timestamp. Raises Conflict if the record is closed; CallerError if its original
    position is unknown or it has no value to replay.
    """
    event = _replayed_event(tracked, same, timestamp_ms)
    assert event.partition is not None
    went = RecordPlace(event.topic, event.partition, end_offset)
    entries = [
        DeadLetterAction(
            each.letter.at,
            topic_ids[each.letter.at.topic],
            "replayed",
            by,
            at_ms,
            None if each is tracked else f"replayed with {tracked.letter.at}",
            tracked.is_repaired,
            tracked.value if tracked.is_repaired else None,
            tracked.key if tracked.is_repaired else None,
            went,
        )
        for each in same
    ]
    return event, entries


def _replayed_event(
    tracked: TrackedDeadLetter, same: Sequence[TrackedDeadLetter], timestamp_ms: int | None
) -> NewRecord:
    letter = tracked.letter
    _check_open(tracked, "replayed")
    if letter.of is None or letter.first is None:
        raise no_origin(letter)
    if letter.reason == TOO_LARGE and not tracked.is_repaired:
        raise CallerError(
            f"dead-letter record {letter.at} has no value to replay: its event was not unpacked",
            hint="publish the event yourself in smaller records, and dismiss the dead-letter record; or "
            "raise largest_batch_mb and largest_record_mb in hub.yaml, and rebuild the view",
        )
    headers = [each for each in letter.headers if not each[0].startswith("hub.replay.")]
    headers += [(REPLAY_OF, str(letter.first).encode()), (REPLAY_LETTER, str(letter.at).encode())]
    if not any(each.letter.everywhere for each in same):
        views = sorted({each.letter.by for each in same if each.letter.kind == "view"})
        headers.append((REPLAY_FOR, ",".join(views).encode()))
    return NewRecord(
        letter.of.topic, tracked.key, tracked.value, tuple(headers), timestamp_ms, letter.of.partition
    )


def no_origin(letter: DeadLetter) -> CallerError:
    return CallerError(
        f"dead-letter record {letter.at} does not name its origin",
        hint="publish its event yourself, and dismiss it",
    )


def with_replay(dead_letter: TrackedDeadLetter, topic_id: str, done: TrackedDeadLetter) -> DeadLetterAction:
    """Build the action for a record whose event was already replayed through another one (``stands_for``)."""
    assert done.entry is not None
    return replace(
        done.entry, at=dead_letter.letter.at, topic_id=topic_id, why=f"replayed with {done.letter.at}"
    )


def views_of(event: NewRecord) -> list[str] | None:
    """Return the views that a replayed event is for; None: all views."""
    header = next((value for name, value in event.headers if name == REPLAY_FOR), None)
    return None if header is None else [name for name in header.decode().split(",") if name]


def _check_open(dead_letter: TrackedDeadLetter, doing: str) -> None:
    if dead_letter.state in ("replayed", "dismissed"):
        at = dead_letter.letter.at
        raise Conflict(
            f"dead-letter record {at} is {dead_letter.state} already, it cannot be {doing}",
            hint="hub dlq show has its author and time"
            + (f"; hub dlq dismiss --undo {at.named}" if dead_letter.state == "dismissed" else ""),
            code="HUB-1918",
        )


# ---- many replays


def check_replayable(
    dead_letter: TrackedDeadLetter, as_is: bool, original: Callable[[RecordPlace], Record | None]
) -> None:
    """Check that a replay helps: raises CallerError for a late event, and for one that its view would reject
    or count again. ``original`` reads the event at a position, None if it is gone.
    """
    letter = dead_letter.letter
    if letter.kind == "late":
        raise CallerError(
            f"{letter.at} is a late event: it is still in its topic, and would be late again for the view",
            hint=f"hub view replay-late {letter.by} shows a solution",
            code="HUB-1331",
        )
    if letter.kind != "view" or letter.everywhere or dead_letter.is_repaired:
        return
    if not as_is:
        raise CallerError(
            f'dead-letter record {letter.at} would be rejected again by view "{letter.by}": {letter.detail}',
            hint="repair it first; a view that was changed has read it again from its topic, while it is "
            "there: dismiss it then",
            code="HUB-1331",
        )
    there = None if letter.of is None else original(letter.of)
    # After the topic was recreated, another event may be at this position.
    if there is not None and letter.of is not None and (there.key, there.value) == (letter.key, letter.value):
        raise CallerError(
            f'dead-letter record {letter.at}: its event is in topic "{letter.of.topic}" still, '
            f'where view "{letter.by}", '
            "when its file was changed, has read it again: a replay would count it twice",
            hint="dismiss it; --as-is is for events that retention has taken since",
            code="HUB-1331",
        )


@dataclass
class ReplayPlan:
    """Records and rows of a replay of many dead-letter records.

    ``groups`` are the dead-letter records by event: one replay closes all unclosed ones of its event.
    ``topic_ids`` by dead-letter topic. Each element of ``steps`` is atomic. With ``dry_run`` nobody writes
    them, and rows have the present state.
    """

    groups: dict[Hashable, list[TrackedDeadLetter]]
    topic_ids: Mapping[str, str]
    by: str
    at_ms: int
    dry_run: bool = False
    steps: list[list[NewRecord]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    _closed: set[RecordPlace] = field(default_factory=set)

    def is_done(self, dead_letter: TrackedDeadLetter) -> bool:
        """Return True if the event was replayed already, by this plan or before; add its row then."""
        place = dead_letter.letter.at
        done = dead_letter if dead_letter.state == "replayed" or place in self._closed else None
        done = done or next(
            (each for each in self._group(dead_letter) if stands_for(each, dead_letter)), None
        )
        if done is None:
            return False
        self.rows.append({"letter": str(place), "state": "replayed", "done": "before"})
        if done is not dead_letter and done.entry is not None:
            # A recomputed view wrote the record again after the replay.
            self.steps.append([with_replay(dead_letter, self.topic_ids[place.topic], done).record()])
        return True

    def add(self, tracked: TrackedDeadLetter, end_offset: int, timestamp_ms: int | None) -> dict[str, Any]:
        """Add the replay of an event; return its row. Raises as ``replay``."""
        place, group = tracked.letter.at, self._group(tracked)
        same = [tracked, *(each for each in group if not each.is_closed and each.letter.at != place)]
        event, entries = replay(tracked, same, self.topic_ids, end_offset, timestamp_ms, self.by, self.at_ms)
        self.steps.append([event, *(entry.record() for entry in entries)])
        actions = {entry.at: entry for entry in entries}
        self._closed |= actions.keys()
        group[:] = [replace(each, entry=actions.get(each.letter.at, each.entry)) for each in group]
        if all(each.letter.at != place for each in group):
            group.append(replace(tracked, entry=actions[place]))
        views = views_of(event)
        self.rows.append(
            {
                "letter": str(place),
                "state": tracked.state if self.dry_run else "replayed",
                "to": f"{event.topic}:{event.partition}",
                "key": text_of(event.key),
                "timestamp_ms": timestamp_ms,
                "for": "all" if views is None else views,
                "repaired": tracked.is_repaired,
            }
        )
        return self.rows[-1]

    def _group(self, dead_letter: TrackedDeadLetter) -> list[TrackedDeadLetter]:
        return self.groups.setdefault(dead_letter.letter.event, [])
