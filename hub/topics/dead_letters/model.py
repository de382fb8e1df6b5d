"""[core] Dead letters as values: where each is from, why, and what became of it.

Three kinds of topics hold events that somebody could not take, as they were written: ``<topic>.dlq`` (a view could not),
``<topic>.quarantine`` (the auditor's copies), ``views.<view>.late`` (behind a SQL view's watermark). A letter's address is its
own topic, partition and offset there. What was done about it is the last record of that address in the compacted topic
``_hub.dlq``; none: it is open. Nothing is ever changed in place, so the bytes that came first are always there. A view that
is computed anew writes its letters again; they are the same letters (``once``).

A replayed event is a new record of the original topic, partition and key with the original's time, and headers::

    hub.replay.of      topic:partition:offset of the event that it stands for: a view folds it at that place
    hub.replay.letter  topic:partition:offset of the dead letter
    hub.replay.for     views that it is for, when others have taken the original; unsaid: for all
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
"""How the reason of a dead-letter record begins whose event nobody unpacked; the batch and its size follow."""

# What a view says of an event -> the word that it is counted under.
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
        # Of JSON, CSV and Protobuf: by the columns that a view reads, so that another view may have taken it.
        (
            r"it does not fit its schema id|no JSON object of its columns|no line of CSV|its .+ is no ",
            "unfitting",
        ),
    )
)
# Of these it is the bytes that are wrong: no view can have taken the event.
EVERYWHERE = frozenset({TOO_LARGE, "framing", "undecodable", "unknown_schema"})
OTHER = "other"
# Headers are anybody's: names are cut where those of Kafka's topics end, and what Kafka counts in has so many digits at most.
_MOST_NAME, _MOST_WORD, _MOST_COUNTED = 249, 100, 50
_COUNT, _TIME = re.compile(r"\d{1,19}", re.ASCII), re.compile(r"-?\d{1,19}", re.ASCII)


class RecordPlace(NamedTuple):
    """Where a record is. Its text is ``topic:partition:offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Raises CallerError."""
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
        """As ``hub dlq`` takes it: an offset alone may be there in several partitions."""
        return f"{self.topic} {self.offset} -p {self.partition}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. ``of`` is the event's own place, None where nothing says it; ``first`` the place that it is ordered
    at: another one when the event was a replay itself. ``timestamp_ms`` is the event's own time, None when not known;
    ``headers`` are the event's own. ``digest`` is the value's, for letters of a list, which are ``without_value``."""

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
        """No view can have taken the event."""
        return self.reason in EVERYWHERE

    @property
    def event(self) -> Hashable:
        """Equal for letters of one event. Its bytes and time tell it from one that was at its place before the topic was
        made anew."""
        return self.at if self.of is None else (self.of, self.key, self.digest, self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class DeadLetterAction:
    """What was done about a letter. ``topic_id`` is that of the letter's topic: made anew, it has other letters.

    ``value`` is the repaired event of a letter that is ``repaired`` or was replayed so (``has_value``: it may be a
    tombstone); ``went`` where it was replayed to: the offset is the partition's end before the replays of that call.
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
        """The entry as a record of the ledger."""
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
    """The entry that a record of the ledger states. Raises HubFault naming the record."""
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
    """The last entry of each letter. A record without value takes what was done back."""
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


# ---- letters


def kind_of(topic: str) -> Kind | None:
    """Whether a topic holds dead letters, and whose."""
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
    """A record of such a topic as a letter. One that the hub did not write has no original, and says so."""
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
        of = None  # anybody who may write here could have it replayed into any topic
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
        timestamp_ms = record.timestamp_ms  # copies of an earlier hub have the original's time
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
    """As lists have it: a hundred thousand letters are read at once, and a value may have megabytes."""
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


# ---- what may be done: decided here, written by the shell in one transaction


@dataclass(frozen=True, slots=True)
class TrackedDeadLetter:
    """A letter with what was done about it. ``first_at``: of an event that its view wrote letters of before, where the first
    of them is (``once``)."""

    letter: DeadLetter
    entry: DeadLetterAction | None = None
    first_at: RecordPlace | None = None

    @property
    def listed_at(self) -> RecordPlace:
        """Its place in a list, the same whatever is done about it and whichever of an event's letters stands for all."""
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
        """The event as it stands: repaired, or as it was written."""
        repaired = self.entry is not None and self.entry.has_value
        return self.entry.value if repaired and self.entry is not None else self.letter.value

    @property
    def is_repaired(self) -> bool:
        return self.entry is not None and self.entry.has_value


def known(letter: DeadLetter, topic_id: str, ledger: Ledger) -> TrackedDeadLetter:
    """What the ledger says of a letter of the topic that has this id now."""
    entry = ledger.get(letter.at)
    return TrackedDeadLetter(letter, entry if entry is not None and entry.topic_id == topic_id else None)


def dead_letter_row(found: TrackedDeadLetter) -> dict[str, Any]:
    """As lists tell a letter and what was done about it, for JSON; ``written_at_ms`` since the epoch."""
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
    """Each event once a view. A view that is computed anew, or that a crash stopped while it wrote, writes its letters
    again: what was done about one of them was done about all, and the last word counts, a replay before any other. In the
    order of the first of each."""
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
    """Whether the replay of one letter was the replay of another too: of the same view's, or of any view's when no view
    can have taken the event."""
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
    """The entry of a repaired event. Raises Conflict for a letter that is closed."""
    _open(found, "repaired")
    return DeadLetterAction(found.letter.at, topic_id, "repaired", by, at_ms, why, True, value, key)


def dismiss(
    found: TrackedDeadLetter, topic_id: str, by: str, at_ms: int, why: str | None
) -> DeadLetterAction:
    """Nothing is to be done about the letter. Its bytes stay where they are."""
    if found.state == "replayed":
        raise Conflict(f"dead letter {found.letter.at} was replayed already", code="HUB-1911")
    entry = found.entry
    if entry is None:
        return DeadLetterAction(found.letter.at, topic_id, "dismissed", by, at_ms, why)
    return replace(entry, state="dismissed", by=by, at_ms=at_ms, why=why)


def reopen(found: TrackedDeadLetter, topic_id: str, by: str, at_ms: int) -> DeadLetterAction:
    """Take a dismissal back."""
    if found.state != "dismissed" or found.entry is None:
        raise Conflict(f"dead letter {found.letter.at} is {found.state}, not dismissed", code="HUB-1911")
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
    """The event to append, and the entries that close its letters. ``same``: all letters of the same original that are
    not closed, ``found`` among them. ``timestamp_ms`` is the event's own time."""
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
    """The entry of a letter whose event was replayed as another letter's (``stands_for``)."""
    assert done.entry is not None
    return replace(done.entry, at=found.letter.at, topic_id=topic_id, why=f"replayed with {done.letter.at}")


def views_of(event: NewRecord) -> list[str] | None:
    """The views that a replayed event is for; None: all."""
    said = next((value for name, value in event.headers if name == REPLAY_FOR), None)
    return None if said is None else [name for name in said.decode().split(",") if name]


def _open(found: TrackedDeadLetter, doing: str) -> None:
    if found.state in ("replayed", "dismissed"):
        at = found.letter.at
        raise Conflict(
            f"dead letter {at} is {found.state} already, it cannot be {doing}",
            hint="hub dlq show tells by whom and when"
            + (f"; hub dlq dismiss --undo {at.named}" if found.state == "dismissed" else ""),
            code="HUB-1911",
        )


# ---- what there is, for people


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Rows of a list of letters, how many ``more`` there are, and the place that these are behind; None: there are none."""

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
    """The first letters behind the place ``after``: ``limit`` at most, of ``most_bytes`` as JSON, but one however large it is.
    ``found`` is in the order of lists. Page by page each letter comes once, whatever is done about others meanwhile."""
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
    """Letters of one topic, counted."""

    topic: str
    kind: Kind
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    producers: Counter[str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def take(self, found: TrackedDeadLetter) -> None:
        """Reasons, producers and ages are those of letters that are not closed."""
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
    """The names that have most, and the others as one: names are anybody's, and may be as many as letters."""
    found = dict(counts.most_common(_MOST_COUNTED))
    left = counts.total() - sum(found.values())
    return {**found, "(others)": left} if left else found
