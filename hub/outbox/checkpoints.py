"""[core] Records of the compacted topic ``_hub.outbox``.

Key ``position/<outbox>``: the position of a relay, written in the transaction of the events before it. Key
``refused/<outbox>/<event id>``: an event that Kafka refuses, with the reason; a tombstone when it was relayed
after all. ``<outbox>`` is ``<system id of the database server>/<slot>``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.errors import HubFault
from hub.formats.fields import known_fields
from hub.outbox.events import OutboxEvent, Position
from hub.outbox.pgoutput import lsn_text, parse_lsn
from hub.record import NewRecord, Record

OUTBOX_TOPIC = "_hub.outbox"
OUTBOX_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000"}
_POSITION, _REFUSED = "position/", "refused/"


@dataclass(frozen=True, slots=True)
class RefusedOutboxEvent:
    """An event that Kafka refuses; its row stays in the table."""

    id: str
    topic: str
    reason: str
    refused_at_ms: int


@dataclass
class StoredOutbox:
    """Contents of the topic for one outbox. ``position`` None: no relay has written yet. ``since_ms``: every
    row that was made after this time, by the database's clock, is relayed or will be.
    """

    outbox: str
    position: Position | None = None
    events: int = 0
    since_ms: int = 0
    refused: dict[str, RefusedOutboxEvent] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Apply a record of the topic. Raises HubFault (HUB-5801) for one that no relay writes."""
        key = (record.key or b"").decode(errors="replace")
        try:
            if key == _POSITION + self.outbox and record.value is None:
                self.position = None
            elif key == _POSITION + self.outbox and record.value is not None:
                body: dict[str, Any] = orjson.loads(record.value)
                self.since_ms = int(body["since_ms"])
                forgotten = "lsn" not in body
                self.position = None if forgotten else Position(parse_lsn(body["lsn"]), int(body["done"]))
                self.events = self.events if forgotten else int(body["events"])
            elif key.startswith(f"{_REFUSED}{self.outbox}/"):
                event_id = key.rpartition("/")[2]
                self.refused.pop(event_id, None)
                if record.value is not None:
                    self.refused[event_id] = known_fields(
                        RefusedOutboxEvent, orjson.loads(record.value), id=event_id
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise HubFault(
                f'topic "{OUTBOX_TOPIC}" offset {record.offset}: no relay writes such a record: {error!r}',
                hint="find the writer",
                code="HUB-5801",
            ) from None


def position_record(outbox: str, position: Position, events: int, since_ms: int = 0) -> NewRecord:
    """Return the record of a position. ``events``: number of events relayed so far. ``since_ms``: see
    ``StoredOutbox``.
    """
    body = {"lsn": lsn_text(position.lsn), "done": position.done, "events": events, "since_ms": since_ms}
    return NewRecord(OUTBOX_TOPIC, f"{_POSITION}{outbox}".encode(), orjson.dumps(body), partition=0)


def forget_record(outbox: str, since_ms: int) -> NewRecord:
    """Return the record that forgets a position: the next relay begins where its slot does."""
    body = orjson.dumps({"since_ms": since_ms})
    return NewRecord(OUTBOX_TOPIC, f"{_POSITION}{outbox}".encode(), body, partition=0)


def refused_record(outbox: str, refused: RefusedOutboxEvent) -> NewRecord:
    """Return the record of a refused event."""
    body = {"topic": refused.topic, "reason": refused.reason[:500], "refused_at_ms": refused.refused_at_ms}
    return NewRecord(OUTBOX_TOPIC, _refused_key(outbox, refused.id), orjson.dumps(body), partition=0)


def relayed_records(outbox: str, stored: StoredOutbox, events: Iterable[OutboxEvent]) -> list[NewRecord]:
    """Return tombstones for those of the events that were refused before."""
    if not stored.refused:
        return []
    again = [event.id for event in events if event.id in stored.refused]
    return [NewRecord(OUTBOX_TOPIC, _refused_key(outbox, each), None, partition=0) for each in again]


def _refused_key(outbox: str, event_id: str) -> bytes:
    return f"{_REFUSED}{outbox}/{event_id}".encode()
