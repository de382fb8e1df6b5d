"""[core] Dead-letter records: origin, reason, and the action taken.

Three kinds of topics hold rejected events, with their bytes unchanged: ``<topic>.dlq`` (rejected by a view),
``<topic>.quarantine`` (copied by the conformance check) and ``views.<view>.late`` (behind the watermark of a
SQL view). A dead-letter record is identified by its own topic, partition and offset. The action taken is the
last record with that key in the compacted topic ``_hub.dlq``; without one, the record is open. Dead-letter
records are never changed in place, so the original bytes are kept. A view that is recomputed writes its
dead-letter records again; ``once`` merges the duplicates.

A replayed event is a new record in the original topic and partition, with the original key and timestamp, and
these headers::

    hub.replay.of      topic:partition:offset of the original event; a view folds the replay at that place
    hub.replay.letter  topic:partition:offset of the dead-letter record
    hub.replay.for     views that the replay is for; absent: all views
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from hub.errors import CallerError, Conflict, HubFault
from hub.record import Headers, NewRecord, Record, TopicPartition
from hub.topics.conformance.rules import PRODUCER_HEADER, QUARANTINE_SUFFIX, UNKNOWN

ACTIONS_TOPIC = "_hub.dlq"
DLQ_SUFFIX = ".dlq"
LATE_SUFFIX = ".late"
REPLAY_OF, REPLAY_LETTER, REPLAY_FOR = "hub.replay.of", "hub.replay.letter", "hub.replay.for"

Kind = Literal["view", "audit", "late"]
State = Literal["open", "repaired", "replayed", "dismissed"]
STATES: tuple[State, ...] = ("open", "repaired", "replayed", "dismissed")

TOO_LARGE = "too_large"
UNREAD = "it is not read: "
"""Reason prefix of a dead-letter record whose batch was not unpacked; the batch and its size follow."""

# Pattern of the reason that a view writes → the reason code that the record is counted under.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (UNREAD, TOO_LARGE),
        (r"not in the Confluent wire format", "framing"),
        (r"its bytes do not fit its schema id", "undecodable"),
        (r"its schema id \d+ is no record schema", "unknown_schema"),
        (r"the view's key is null|the table's key .* is null|it has no record key", "null_key"),
        (r"a tombstone", "tombstone"),
        (r"its event time .* is null", "null_event_time"),
        (r"its event time .* ahead of", "event_time_ahead"),
        # The check covers only the schema and the columns that a view reads; another view may accept the
        # event.
        (
            (
                r"it does not fit its schema id|its schema id \d+ does not resolve|no JSON object of its columns"
                r"|no line of CSV|its .+ is no "
            ),
            "unfitting",
        ),
    )
)
# Reasons where the bytes themselves are invalid: no view can have accepted the event.
EVERYWHERE = frozenset({TOO_LARGE, "framing", "undecodable", "unknown_schema"})
OTHER = "other"
# Anybody can write headers, so their contents are bounded: names to the length limit of Kafka topic names,
# words to 100 characters, and numbers to 19 digits.
_MOST_NAME, _MOST_WORD, _MOST_COUNTED = 249, 100, 50
_COUNT, _TIME = re.compile(r"\d{1,19}", re.ASCII), re.compile(r"-?\d{1,19}", re.ASCII)


class RecordPlace(NamedTuple):
    """Position of a record. Its text form is ``topic:partition:offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Parse ``topic:partition:offset``. Raises CallerError."""
        topic, _, rest = text.rpartition(":")
        topic, _, partition = topic.rpartition(":")
        if not topic or not _COUNT.fullmatch(partition) or not _COUNT.fullmatch(rest):
            raise CallerError(f'"{text[:120]}" is no place', hint="topic:partition:offset")
        return cls(topic, int(partition), int(rest))

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def named(self) -> str:
        """Arguments that ``hub dlq`` takes. The partition is included because an offset can exist in
        several.
        """
        return f"{self.topic} {self.offset} -p {self.partition}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead-letter record.

    ``of`` is the position of the original event, None if the record does not name one. ``first`` is the
    position used for ordering; it differs from ``of`` if the event was itself a replay. ``timestamp_ms`` is
    the event's own timestamp, None if unknown; ``headers`` are the event's own. ``digest`` is a hash of the
    value, kept for listed records, which have no value (``without_value``).
    """

    at: RecordPlace
    kind: Kind
    by: str
    reason: str
    detail: str
    of: RecordPlace | None
    first: RecordPlace | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    written_at_ms: int
    headers: Headers = ()
    digest: bytes | None = None

    @property
    def producer(self) -> str:
        found = next((value for name, value in reversed(self.headers) if name == PRODUCER_HEADER), None)
        return (found or b"").decode(errors="replace")[:_MOST_WORD] or UNKNOWN

    @property
    def everywhere(self) -> bool:
        """True if the bytes are invalid, so that no view can have accepted the event."""
        return self.reason in EVERYWHERE

    @property
    def event(self) -> Hashable:
        """Identity of the event: equal for all dead-letter records of one event. Key, digest and timestamp
        distinguish the event from one at the same position before the topic was recreated.
        """
        return self.at if self.of is None else (self.of, self.key, self.digest, self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class DeadLetterAction:
    """Action taken on a dead-letter record. ``topic_id`` is the id of the dead-letter topic; a recreated
    topic has another id, so earlier actions do not apply to it.

    ``value`` is the repaired event if ``has_value`` is True (None: a tombstone), for records in state
    ``repaired`` and for those replayed after a repair. ``went`` is the target of a replay; its offset is the
    end of the partition before the replays of that call.
    """

    at: RecordPlace
    topic_id: str
    state: State
    by: str
    at_ms: int
    why: str | None = None
    has_value: bool = False
    value: bytes | None = None
    key: bytes | None = None
    went: RecordPlace | None = None

    def record(self) -> NewRecord:
        """Serialize the action as a record of the topic ``_hub.dlq``."""
        body = {
            "topic_id": self.topic_id,
            "state": self.state,
            "by": self.by,
            "at_ms": self.at_ms,
            "why": self.why,
            "has_value": self.has_value,
            "value": None if self.value is None else base64.b64encode(self.value).decode(),
            "key": None if self.key is None else base64.b64encode(self.key).decode(),
            "went": None if self.went is None else str(self.went),
        }
        return NewRecord(ACTIONS_TOPIC, orjson.dumps(self.at._asdict()), orjson.dumps(body))


Ledger = Mapping[RecordPlace, DeadLetterAction]


def entry_of(record: Record) -> DeadLetterAction:
    """Parse a record of the topic ``_hub.dlq``. Raises HubFault naming the record."""
    try:
        key, body = orjson.loads(record.key or b""), orjson.loads(record.value or b"")
        if body["state"] not in STATES:
            raise ValueError(f"state {body['state']!r}")
        return DeadLetterAction(
            RecordPlace(key["topic"], key["partition"], key["offset"]),
            body["topic_id"],
            body["state"],
            body["by"],
            body["at_ms"],
            body["why"],
            body["has_value"],
            None if body["value"] is None else base64.b64decode(body["value"]),
            None if body["key"] is None else base64.b64decode(body["key"]),
            None if body["went"] is None else RecordPlace.parse(body["went"]),
        )
    except (ValueError, KeyError, TypeError, CallerError) as error:
        raise HubFault(
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: '
            f"not what was done about a dead letter ({error})",
            hint="a later version of the hub may have written it; the letters themselves are untouched",
        ) from None


def folded(records: Iterable[Record], before: Ledger | None = None) -> dict[RecordPlace, DeadLetterAction]:
    """Return the last action per dead-letter record. A record without a value deletes the action."""
    found = dict(before or {})
    for record in records:
        if record.unread is not None:
            continue
        if record.value is None:
            key = orjson.loads(record.key or b"{}")
            found.pop(RecordPlace(key["topic"], key["partition"], key["offset"]), None)
        else:
            entry = entry_of(record)
            found[entry.at] = entry
    return found


# ---- dead-letter records


def kind_of(topic: str) -> Kind | None:
    """Return the kind of a dead-letter topic, None for any other topic."""
    if topic.startswith("_"):
        return None
    if topic.endswith(DLQ_SUFFIX):
        return "view"
    if topic.endswith(QUARANTINE_SUFFIX):
        return "audit"
    if topic.startswith("views.") and topic.endswith(LATE_SUFFIX):
        return "late"
    return None


def dead_letter_of(record: Record) -> DeadLetter:
    """Parse a record of a dead-letter topic. A record that the hub did not write has no original position,
    and its ``detail`` states that. Raises CallerError for any other topic.
    """
    kind = kind_of(record.topic)
    if kind is None:
        raise CallerError(
            f'topic "{record.topic}" holds no dead letters',
            hint="they are in *.dlq, *.quarantine and views.*.late",
        )
    prefix = {"view": "hub.dlq.", "audit": "hub.quarantine.", "late": "hub.late."}[kind]

    def said(name: str) -> str | None:
        found = record.header(prefix + name)
        return None if found is None else found.decode(errors="replace")

    at = RecordPlace(record.topic, record.partition, record.offset)
    own = tuple(each for each in record.headers if not each[0].startswith(prefix))
    of = _place(said("topic"), said("partition"), said("offset"))
    suffix = {"view": DLQ_SUFFIX, "audit": QUARANTINE_SUFFIX}.get(kind)
    if of is not None and suffix is not None and of.topic + suffix != record.topic:
        of = None  # ignore it: anybody who may write to this topic could otherwise replay into any topic
    detail, by, reason = "", "", OTHER
    if kind == "view":
        by, detail = (
            (said("view") or UNKNOWN)[:_MOST_NAME],
            said("reason") or "nothing says why: the hub did not write this record",
        )
        reason = next((word for pattern, word in _REASONS if pattern.match(detail)), OTHER)
    elif kind == "audit":
        by, reason, detail = "auditor", (said("reason") or OTHER)[:_MOST_WORD], said("detail") or ""
    else:
        by, reason = record.topic.removeprefix("views.").removesuffix(LATE_SUFFIX), "late"
        detail = f"event time {said('event_time')} is behind the watermark {said('watermark')}"
    time = said("timestamp")
    timestamp_ms = int(time) if time is not None and _TIME.fullmatch(time) else None
    if kind == "audit" and time is None and record.timestamp_ms >= 0:
        timestamp_ms = record.timestamp_ms  # copies written by earlier versions have the original's timestamp
    first = of
    before = record.header(REPLAY_OF)
    if before is not None and of is not None:
        try:
            earlier = RecordPlace.parse(before.decode(errors="replace"))
        except CallerError:
            earlier = of
        if earlier.topic_partition == of.topic_partition and earlier.offset < of.offset:
            first = earlier
    return DeadLetter(
        at,
        kind,
        by,
        reason,
        detail,
        of,
        first,
        record.key,
        record.value,
        timestamp_ms,
        record.timestamp_ms,
        own,
        None if record.value is None else blake2b(record.value, digest_size=16).digest(),
    )


def without_value(letter: DeadLetter) -> DeadLetter:
    """Drop the value: a list reads up to 100,000 records, and one value can take megabytes."""
    return replace(letter, value=None)


def _place(topic: str | None, partition: str | None, offset: str | None) -> RecordPlace | None:
    if (
        not topic
        or partition is None
        or offset is None
        or not _COUNT.fullmatch(partition)
        or not _COUNT.fullmatch(offset)
    ):
        return None
    return RecordPlace(topic, int(partition), int(offset))


# ---- allowed actions: decided here, written by the shell in one transaction


@dataclass(frozen=True, slots=True)
class TrackedDeadLetter:
    """A dead-letter record with the action taken on it. ``first_at`` is the position of the first dead-letter
    record for the same event and view, None if this record is the first (``once``).
    """

    letter: DeadLetter
    entry: DeadLetterAction | None = None
    first_at: RecordPlace | None = None

    @property
    def listed_at(self) -> RecordPlace:
        """Sort position in a list. Independent of actions and of which duplicate represents the event."""
        return self.first_at or self.letter.at

    @property
    def state(self) -> State:
        return "open" if self.entry is None else self.entry.state

    @property
    def key(self) -> bytes | None:
        repaired = self.entry is not None and self.entry.has_value
        return self.entry.key if repaired and self.entry is not None else self.letter.key

    @property
    def value(self) -> bytes | None:
        """The event's current value: the repaired one if there is one, else the original."""
        repaired = self.entry is not None and self.entry.has_value
        return self.entry.value if repaired and self.entry is not None else self.letter.value

    @property
    def is_repaired(self) -> bool:
        return self.entry is not None and self.entry.has_value


def known(letter: DeadLetter, topic_id: str, ledger: Ledger) -> TrackedDeadLetter:
    """Attach the recorded action to a dead-letter record. Actions for another ``topic_id`` are ignored."""
    entry = ledger.get(letter.at)
    return TrackedDeadLetter(letter, entry if entry is not None and entry.topic_id == topic_id else None)


def dead_letter_row(found: TrackedDeadLetter) -> dict[str, Any]:
    """Return a list row as a JSON-ready dict; ``written_at_ms`` is epoch milliseconds."""
    letter = found.letter
    return {
        "topic": letter.at.topic,
        "partition": letter.at.partition,
        "offset": letter.at.offset,
        "state": found.state,
        "reason": letter.reason,
        "detail": letter.detail,
        "by": letter.by,
        "from": None if letter.of is None else str(letter.of),
        "key": None if found.key is None else found.key.decode(errors="backslashreplace"),
        "producer": letter.producer,
        "written_at_ms": letter.written_at_ms,
    }


def once(found: Iterable[TrackedDeadLetter]) -> list[TrackedDeadLetter]:
    """Merge the dead-letter records of one event and view, in the order of the first of each.

    A view that is recomputed, or that crashed while writing, writes its dead-letter records again. An action
    on one of them counts for all: a replay wins, otherwise the latest action.
    """
    kept: dict[Hashable, TrackedDeadLetter] = {}
    for each in found:
        letter = each.letter
        same = (letter.kind, letter.by, letter.event)
        before = kept.setdefault(same, each)
        if _word(each) > _word(before):
            kept[same] = replace(each, first_at=before.listed_at)
    return list(kept.values())


def _word(found: TrackedDeadLetter) -> tuple[bool, int]:
    return found.state == "replayed", -1 if found.entry is None else found.entry.at_ms


def stands_for(done: TrackedDeadLetter, found: TrackedDeadLetter) -> bool:
    """Return True if the replay of ``done`` also covers ``found``: same event, and either the same view or an
    event that no view can have accepted.
    """
    one, other = done.letter, found.letter
    if done.state != "replayed" or one.event != other.event:
        return False
    return (one.everywhere and other.everywhere) or (one.kind, one.by) == (other.kind, other.by)


def repair(
    found: TrackedDeadLetter,
    topic_id: str,
    key: bytes | None,
    value: bytes | None,
    by: str,
    at_ms: int,
    why: str | None = None,
) -> DeadLetterAction:
    """Build the action for a repaired event. Raises Conflict if the record is closed."""
    _open(found, "repaired")
    return DeadLetterAction(found.letter.at, topic_id, "repaired", by, at_ms, why, True, value, key)


def dismiss(
    found: TrackedDeadLetter, topic_id: str, by: str, at_ms: int, why: str | None
) -> DeadLetterAction:
    """Build the action that closes the record without a replay. The record stays in its topic. Raises
    Conflict if it was replayed.
    """
    if found.state == "replayed":
        raise Conflict(f"dead letter {found.letter.at} was replayed already", code="HUB-1918")
    entry = found.entry
    if entry is None:
        return DeadLetterAction(found.letter.at, topic_id, "dismissed", by, at_ms, why)
    return replace(entry, state="dismissed", by=by, at_ms=at_ms, why=why)


def reopen(found: TrackedDeadLetter, topic_id: str, by: str, at_ms: int) -> DeadLetterAction:
    """Build the action that undoes a dismissal. Raises Conflict if the record is not dismissed."""
    if found.state != "dismissed" or found.entry is None:
        raise Conflict(f"dead letter {found.letter.at} is {found.state}, not dismissed", code="HUB-1918")
    state: State = "repaired" if found.entry.has_value else "open"
    return replace(found.entry, state=state, by=by, at_ms=at_ms, why=None)


def replay(
    found: TrackedDeadLetter,
    same: Sequence[TrackedDeadLetter],
    topic_ids: Mapping[str, str],
    end_offset: int,
    timestamp_ms: int | None,
    by: str,
    at_ms: int,
) -> tuple[NewRecord, list[DeadLetterAction]]:
    """Return the event to append and the actions that close its dead-letter records.

    ``same`` holds all unclosed dead-letter records of the same event, including ``found``. ``timestamp_ms``
    is the event's own timestamp. Raises Conflict if the record is closed; CallerError if its original
    position is unknown or it has no value to replay.
    """
    letter = found.letter
    _open(found, "replayed")
    if letter.of is None or letter.first is None:
        raise CallerError(
            f"dead letter {letter.at} does not say where it is from",
            hint="publish its event yourself, and dismiss it",
        )
    if letter.reason == TOO_LARGE and not found.is_repaired:
        raise CallerError(
            f"dead letter {letter.at} has no value to replay: nobody unpacked its event",
            hint="publish the event yourself in smaller records, and dismiss the dead letter; or raise largest_batch_mb and "
            "largest_record_mb in hub.yaml, and build the view anew",
        )
    headers = [each for each in letter.headers if not each[0].startswith("hub.replay.")]
    headers += [(REPLAY_OF, str(letter.first).encode()), (REPLAY_LETTER, str(letter.at).encode())]
    if not any(each.letter.everywhere for each in same):
        views = sorted({each.letter.by for each in same if each.letter.kind == "view"})
        headers.append((REPLAY_FOR, ",".join(views).encode()))
    event = NewRecord(
        letter.of.topic, found.key, found.value, tuple(headers), timestamp_ms, letter.of.partition
    )
    went = RecordPlace(letter.of.topic, letter.of.partition, end_offset)
    entries = [
        DeadLetterAction(
            each.letter.at,
            topic_ids[each.letter.at.topic],
            "replayed",
            by,
            at_ms,
            None if each is found else f"replayed with {letter.at}",
            found.is_repaired,
            found.value if found.is_repaired else None,
            found.key if found.is_repaired else None,
            went,
        )
        for each in same
    ]
    return event, entries


def with_replay(found: TrackedDeadLetter, topic_id: str, done: TrackedDeadLetter) -> DeadLetterAction:
    """Build the action for a record whose event was already replayed through another one (``stands_for``)."""
    assert done.entry is not None
    return replace(done.entry, at=found.letter.at, topic_id=topic_id, why=f"replayed with {done.letter.at}")


def views_of(event: NewRecord) -> list[str] | None:
    """Return the views that a replayed event is for; None: all views."""
    said = next((value for name, value in event.headers if name == REPLAY_FOR), None)
    return None if said is None else [name for name in said.decode().split(",") if name]


def _open(found: TrackedDeadLetter, doing: str) -> None:
    if found.state in ("replayed", "dismissed"):
        at = found.letter.at
        raise Conflict(
            f"dead letter {at} is {found.state} already, it cannot be {doing}",
            hint="hub dlq show tells by whom and when"
            + (f"; hub dlq dismiss --undo {at.named}" if found.state == "dismissed" else ""),
            code="HUB-1918",
        )


# ---- lists and counts


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """One page of dead-letter rows. ``more`` counts the rows that follow; ``after`` is the cursor for the
    next page, None on the last one.
    """

    rows: list[dict[str, Any]]
    more: int
    after: RecordPlace | None


def page(
    found: Iterable[TrackedDeadLetter],
    row: Callable[[TrackedDeadLetter], dict[str, Any]],
    limit: int,
    most_bytes: int,
    after: RecordPlace | None = None,
) -> DeadLetterPage:
    """Return the first rows after the cursor ``after``: at most ``limit`` rows and ``most_bytes`` of JSON,
    but at least one row.

    ``found`` must be in list order. Paging returns each record once, even if actions are taken in between.
    """
    behind = [each for each in found if after is None or each.listed_at > after]
    rows: list[dict[str, Any]] = []
    size = 0
    for each in behind[:limit]:
        made = row(each)
        size += len(orjson.dumps(made))
        if rows and size > most_bytes:
            break
        rows.append(made)
    more = len(behind) - len(rows)
    return DeadLetterPage(rows, more, behind[len(rows) - 1].listed_at if more else None)


@dataclass(slots=True)
class TopicDeadLetters:
    """Counts over the dead-letter records of one topic."""

    topic: str
    kind: Kind
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    producers: Counter[str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def take(self, found: TrackedDeadLetter) -> None:
        """Count one record. Reasons, producers, views and ages cover only records that are not closed."""
        self.states[found.state] += 1
        if found.state in ("replayed", "dismissed"):
            return
        letter = found.letter
        self.reasons[letter.reason] += 1
        self.producers[letter.producer] += 1
        self.by[letter.by] += 1
        at_ms = letter.written_at_ms
        self.oldest_ms = at_ms if self.oldest_ms is None else min(self.oldest_ms, at_ms)
        self.newest_ms = at_ms if self.newest_ms is None else max(self.newest_ms, at_ms)

    def row(self, now_ms: int) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "kind": self.kind,
            **{state: self.states[state] for state in STATES},
            "by_reason": _most(self.reasons),
            "by_producer": _most(self.producers),
            "by": _most(self.by),
            "oldest_age_ms": None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms),
            "newest_age_ms": None if self.newest_ms is None else max(0, now_ms - self.newest_ms),
        }


def _most(counts: Counter[str]) -> dict[str, int]:
    """Return the highest counts by name and the sum of the rest as ``(others)``. Names come from anybody, so
    their number is unbounded.
    """
    found = dict(counts.most_common(_MOST_COUNTED))
    left = counts.total() - sum(found.values())
    return {**found, "(others)": left} if left else found
