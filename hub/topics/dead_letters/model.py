"""[core] Dead-letter records: origin, reason, and the action taken.

Three kinds of topics hold rejected events, with their bytes unchanged: ``<topic>.dlq`` (rejected by a view),
``<topic>.quarantine`` (copied by the conformance check) and ``views.<view>.late`` (behind the watermark of a
SQL view). A dead-letter record is identified by its own topic, partition and offset. The action taken is the
last record with that key in the compacted topic ``_hub.dlq``; without one, the record is open. Dead-letter
records are never changed in place, so the original bytes are kept. A view that is recomputed writes its
dead-letter records again; ``listing.merge_repeated`` merges the duplicates.

A replayed event is a new record in the original topic and partition, with the original key and timestamp, and
these headers::

    hub.replay.of      topic:partition:offset of the original event; a view folds the replay at that place
    hub.replay.letter  topic:partition:offset of the dead-letter record
    hub.replay.for     views that the replay is for; absent: all views
"""

from __future__ import annotations

import base64
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson

from hub.errors import CallerError
from hub.record import Headers, NewRecord, Record, TopicPartition
from hub.topics.conformance.rules import PRODUCER_HEADER, UNKNOWN

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

# Reasons where the bytes themselves are invalid: no view can have accepted the event.
EVERYWHERE = frozenset({TOO_LARGE, "framing", "undecodable", "unknown_schema"})
MOST_CODE = 100  # characters of a reason code in a header, which anybody can write
COUNT = re.compile(r"\d{1,19}", re.ASCII)


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
        if not topic or not COUNT.fullmatch(partition) or not COUNT.fullmatch(rest):
            raise CallerError(f'"{text[:120]}" is not a place', hint="topic:partition:offset")
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
        return (found or b"").decode(errors="replace")[:MOST_CODE] or UNKNOWN

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


@dataclass(frozen=True, slots=True)
class TrackedDeadLetter:
    """A dead-letter record with the action taken on it. ``first_at`` is the position of the first dead-letter
    record for the same event and view, None if this record is the first (``listing.merge_repeated``).
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
    def is_closed(self) -> bool:
        return self.state in ("replayed", "dismissed")

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


def with_action(letter: DeadLetter, topic_id: str, ledger: Ledger) -> TrackedDeadLetter:
    """Attach the recorded action to a dead-letter record. Actions for another ``topic_id`` are ignored."""
    entry = ledger.get(letter.at)
    return TrackedDeadLetter(letter, entry if entry is not None and entry.topic_id == topic_id else None)


def dead_letter(record: Record, reason: str, reader: str) -> NewRecord:
    """Return the record for ``<topic>.dlq``, with the event's own bytes and headers.
    ``reader``: what cannot use the event, in the header that views have their names in.
    """
    about = {
        "reason": reason,
        "view": reader,
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp_ms),
    }
    headers = tuple((f"hub.dlq.{name}", text.encode()) for name, text in about.items())
    return NewRecord(record.topic + DLQ_SUFFIX, record.key, record.value, (*record.headers, *headers))
