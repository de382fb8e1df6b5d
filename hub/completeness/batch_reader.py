"""[edge] Read a log batch by batch over Kafka's protocol: its records, and the reasons for offsets without
one.

Kafka clients hide what they skip. Here each offset of a range is accounted for: a record, a control marker, a
record of an aborted transaction, a compacted record, or none of these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.completeness.counts import EVENT_ID_HEADER, Holes, bucket_of, id_of
from hub.errors import PeerError
from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerCluster, FetchFrom
from hub.kafka.protocol.record_batch import (
    APPEND_TIME,
    AbortedTransactions,
    CorruptBatch,
    RecordBatch,
    batches_in,
    is_intact,
)
from hub.kafka.protocol.unpacked_size import UnpackedBounds
from hub.record import TopicPartition
from hub.replication.rewriting.reencode import fields_of, records_in

_FETCH_BYTES = 4 << 20
_SILENCE_S = 30.0
_HEADER = EVENT_ID_HEADER.encode()


class ReadRecord(NamedTuple):
    """A committed record. ``timed`` is True if its timestamp is the producer's, not the broker's."""

    offset: int
    timestamp_ms: int
    id: int
    size: int
    timed: bool


@dataclass
class OffsetRange:
    """Offset range [first, end) of a partition. Iterate ``records`` once.

    After that, ``holes``, ``spots`` (holes by minute) and ``reached`` are set, also if the iteration ended
    with an error: the yielded records are then complete up to ``reached``.
    """

    cluster: BrokerCluster
    place: TopicPartition
    first: int
    end: int
    compact: bool = False
    holes: Holes = field(default_factory=Holes)
    spots: dict[int, Holes] = field(default_factory=dict)
    reached: int = 0
    _at_ms: int = 0

    def records(self) -> Iterator[ReadRecord]:
        """Yield the records in ascending order. Raises PeerError (unavailable, or no data for 30 s),
        CorruptBatch.
        """
        self.reached = position = self.first
        received_at_s = time.monotonic()
        where = f'cluster "{self.cluster.name}", topic "{self.place.topic}" partition {self.place.partition}'
        while position < self.end:
            part = self._fetch(position, where)
            books, before = AbortedTransactions(part.aborted), position
            for batch in batches_in(part.buffer, part.start, part.end):
                if not is_intact(batch):
                    raise CorruptBatch(f"{where}, offset {batch.base_offset}: its checksum is wrong")
                aborted = books.covers(batch)
                if batch.next_offset <= position:
                    continue
                hidden = batch.is_control or aborted
                records = [] if hidden else _whole(batch, where, self.cluster.access.bounds)
                if not self._at_ms:
                    self._at_ms = batch.max_timestamp
                # for older formats the first offset is unknown until the batch is unpacked
                if batch.magic == 2:
                    self._missing(position, batch.base_offset)
                    position = max(position, batch.base_offset)
                if hidden:
                    self._at_ms = batch.max_timestamp
                    self._skipped(position, batch.next_offset, control=batch.is_control, held=batch.count)
                else:
                    for record in records:
                        if record.offset < position:
                            continue
                        self._missing(position, record.offset, compacted=True)
                        position, self._at_ms = record.offset + 1, record.timestamp_ms
                        if record.offset < self.end:
                            yield record
                    self._missing(position, batch.next_offset, compacted=True)
                position = max(position, batch.next_offset)
                self.reached = min(position, self.end)
                if position >= self.end:
                    break
            if position > before:
                received_at_s = time.monotonic()
            elif 0 <= part.last_stable <= position:
                break  # the rest is not committed
            elif time.monotonic() - received_at_s > _SILENCE_S:
                raise PeerError(f"{where}: nothing more is read at offset {position} in {_SILENCE_S:g} s")

    def _fetch(self, position: int, where: str) -> broker_client.Fetched:
        leader = self.cluster.leader(self.place)
        connection = self.cluster.connection(leader.node, "audit")
        topic = self.cluster.topics[self.place.topic]
        wanted = self.cluster.on_wire([FetchFrom(self.place, topic.uuid, leader.epoch, position)])
        version = broker_client.send_fetch(
            connection, wanted, max_wait_ms=250, max_bytes=_FETCH_BYTES, partition_bytes=_FETCH_BYTES
        )
        frame, at = connection.receive()
        code, (part,) = broker_client.fetched(frame, at, version, self.cluster.names())
        broker_client.raise_for(code or part.error, f"{where}: read")
        return part

    def _missing(self, first: int, end: int, *, compacted: bool = False) -> None:
        """Count offsets without a record. Within a batch only compaction leaves such gaps."""
        count = max(0, min(end, self.end) - first)
        if count:
            by_compaction = compacted or self.compact
            self._hole(Holes(compacted=count) if by_compaction else Holes(unexplained=count))

    def _skipped(self, first: int, end: int, *, control: bool, held: int) -> None:
        count = max(0, min(end, self.end) - first)
        there = count if control else min(count, held)
        if there:
            self._hole(Holes(markers=there) if control else Holes(aborted=there))
        if count > there:
            self._hole(Holes(compacted=count - there))

    def _hole(self, holes: Holes) -> None:
        self.holes = self.holes.plus(holes)
        minute = bucket_of(self._at_ms)
        self.spots[minute] = self.spots.get(minute, Holes()).plus(holes)


def _whole(batch: RecordBatch, where: str, bounds: UnpackedBounds) -> list[ReadRecord]:
    """Return all records of a batch, or raise CorruptBatch if one of them cannot be read."""
    timed = not batch.attributes & APPEND_TIME
    try:
        return [
            _read_record(raw.offset, raw.timestamp_ms, raw.rest, timed) for raw in records_in(batch, bounds)
        ]
    except CorruptBatch as error:
        raise CorruptBatch(f"{where}, offset {batch.base_offset}: {error.message}") from None


def _read_record(offset: int, timestamp_ms: int, rest: bytes, timed: bool) -> ReadRecord:
    key, value, headers = fields_of(rest)
    event_id = next((content for name, content in reversed(headers) if name == _HEADER), None)
    size = len(key or b"") + len(value or b"")
    return ReadRecord(offset, timestamp_ms, id_of(key, timestamp_ms, value, event_id), size, timed)
