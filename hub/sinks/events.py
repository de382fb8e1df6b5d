"""[core] Records as events of a sink: their JSON text, their ids, lanes of keys, and positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import orjson

from hub.record import NewRecord, Positions, Record
from hub.times import iso

_LATEST_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class SinkEvent:
    """A record that a sink takes. ``row``: its selected fields in display form; None: the key is deleted.

    ``left``: a row of a view that does not meet ``where`` (any more): targets with rows delete the key,
    others leave it out.
    """

    record: Record
    row: Mapping[str, Any] | None
    left: bool = False

    @property
    def id(self) -> str:
        """Return ``topic-partition-offset``: the same whenever the record is sent."""
        return f"{self.record.topic}-{self.record.partition}-{self.record.offset}"

    @property
    def key(self) -> str | None:
        key = self.record.key
        return None if key is None else key.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that is not delivered, and why: for its dead-letter record."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Events of one page of records, in their order. Positions are next-to-read: ``before`` and ``after``
    the page.
    """

    events: Sequence[SinkEvent]
    before: Positions
    after: Positions


@dataclass(frozen=True, slots=True)
class Delivered:
    """Result of a delivery. ``positions``: everything before is delivered or refused. ``records``: to be
    appended in the transaction that commits them. ``events``: how many were delivered.
    """

    positions: Positions
    events: int = 0
    refused: Sequence[RefusedRecord] = ()
    records: Sequence[NewRecord] = field(default=())


def group_of(sink: str) -> str:
    """Return the consumer group that has a sink's positions, and the name of its transactions."""
    return f"hub.sink.{sink}"


def event_text(event: SinkEvent) -> bytes:
    """Return an event as JSON: type, timestamp, key, position, data; ``deleted`` for a deleted key."""
    record = event.record
    body: dict[str, Any] = {
        "type": record.topic,
        "timestamp": iso(min(max(0, record.timestamp_ms), _LATEST_MS)),
        "key": event.key,
        "partition": record.partition,
        "offset": record.offset,
        "data": event.row,
    }
    if event.row is None:
        body["deleted"] = True
    return orjson.dumps(body, default=str)


def lanes_of(events: Iterable[SinkEvent], count: int) -> list[list[SinkEvent]]:
    """Divide events into at most ``count`` lanes: those of one key in one lane, in their order.

    Events without a key follow each other within their partition.
    """
    lanes: list[list[SinkEvent]] = [[] for _ in range(count)]
    for event in events:
        key = event.record.key
        sought = b"%d" % event.record.partition if key is None else key
        lanes[crc32(sought) % count].append(event)
    return [lane for lane in lanes if lane]


def positions_before(batch: SinkBatch, waiting: Iterable[SinkEvent]) -> Positions:
    """Return the positions of a batch of which these events are not delivered yet."""
    offsets = dict(batch.after.offsets)
    for event in waiting:
        place = event.record.topic_partition
        offsets[place] = min(event.record.offset, offsets.get(place, event.record.offset))
    return Positions(offsets)


def halves(batch: SinkBatch) -> tuple[SinkBatch, SinkBatch]:
    """Divide a batch of two or more events: the second half begins where the first one ends."""
    middle = len(batch.events) // 2
    first, second = batch.events[:middle], batch.events[middle:]
    between = dict(batch.before.offsets)
    for event in first:
        between[event.record.topic_partition] = event.record.offset + 1
    at = Positions(between)
    return SinkBatch(first, batch.before, at), SinkBatch(second, at, batch.after)
