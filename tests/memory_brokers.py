"""A cluster in memory: one broker with real record batches and transactions.

It keeps a broker's rules as far as the engine depends on them: a transactional id has one producer at a time
(a new one aborts the open transaction of the former and fences it), a batch of a producer follows its last
sequence number, a reader of committed records stops at the first open transaction and learns which were
aborted, a new leader has another epoch, a topic that was made again has another id.
"""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from awscrt.checksums import crc32c

from hub.kafka.protocol.broker_client import (
    MESSAGE_TOO_LARGE,
    NOBODY,
    OFFSET_OUT_OF_RANGE,
    READ_COMMITTED,
    UNKNOWN_TOPIC,
    Fetched,
    FetchFrom,
    Produced,
    Producer,
    raise_for,
    topic_id_text,
)
from hub.kafka.protocol.record_batch import (
    ABORT,
    COMMIT,
    CONTROL,
    DEFAULT_LIMITS,
    TRANSACTIONAL,
    AbortedTransactions,
    batches_in,
    next_sequence,
    patch,
)
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.engine.connection.port import EngineClock
from hub.replication.rewriting.reencode import (
    RawRecord,
    batch_of,
    batch_of_new,
    fields_of,
    patched,
    records_in,
    rest_of,
)

_FENCED, _OUT_OF_ORDER, _NO_TRANSACTION, _OLD_EPOCH = 90, 45, 48, 74


@dataclass
class ManualClock:
    """Time that moves only by ``sleep``."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def epoch_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += max(0.0, seconds)


class _Aborted(NamedTuple):
    producer_id: int
    first: int
    end: int


@dataclass(slots=True)
class MemoryLog:
    """Log of one partition: batches with their offsets, and the transactions in it."""

    batches: list[bytearray] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # next offset after each batch
    start: int = 0
    epoch: int = 0
    open: dict[int, int] = field(default_factory=dict)  # producer id → first offset of its transaction
    aborted: list[_Aborted] = field(default_factory=list)
    sequences: dict[Producer, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    @property
    def stable_end(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, payload: bytes | bytearray | memoryview) -> int:
        """Append one batch; return the offset of its first record."""
        base, batch = self.end, bytearray(payload)
        struct.pack_into(">q", batch, 0, base)
        struct.pack_into(">i", batch, 12, self.epoch)
        self.batches.append(batch)
        self.ends.append(base + struct.unpack_from(">i", batch, 23)[0] + 1)
        return base

    def truncate(self, end: int) -> None:
        """Lose the batches from ``end`` on, as an unclean election does."""
        while self.ends and self.ends[-1] > end:
            self.batches.pop()
            self.ends.pop()

    def bytes_from(self, position: int, stop: int, most: int) -> bytearray:
        """Return the batches from the one with ``position`` up to ``stop``,
        ``most`` bytes but at least one."""
        found = bytearray()
        for at in range(bisect_right(self.ends, position), len(self.ends)):
            if self.ends[at] > stop or (found and len(found) + len(self.batches[at]) > most):
                break
            found += self.batches[at]
        return found

    def records(self, first: int = 0) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """Yield the committed records: offset, timestamp in epoch milliseconds, key, value."""
        first = max(first, self.start)
        covered = AbortedTransactions([(each.producer_id, each.first) for each in self._aborted_from(first)])
        buffer = self.bytes_from(first, self.stable_end, 1 << 62)
        for batch in batches_in(buffer):
            if covered.covers(batch) or batch.is_control:
                continue
            for raw in records_in(batch):
                if raw.offset >= first:
                    key, value, _ = fields_of(raw.rest)
                    yield raw.offset, raw.timestamp_ms, key, value

    def _aborted_from(self, position: int) -> list[_Aborted]:
        return [each for each in self.aborted if each.end > position]

    def read(self, tp: TopicPartition, wanted: FetchFrom, most: int, isolation: int) -> Fetched:
        committed = isolation == READ_COMMITTED
        if not self.start <= wanted.position <= self.end:
            return Fetched(tp, OFFSET_OUT_OF_RANGE, -1, -1, -1, (), bytearray(), 0, 0)
        if wanted.leader_epoch not in (-1, self.epoch):
            return Fetched(tp, _OLD_EPOCH, -1, -1, -1, (), bytearray(), 0, 0)
        buffer = self.bytes_from(wanted.position, self.stable_end if committed else self.end, most)
        aborted = self._aborted_from(wanted.position) if committed else []
        return Fetched(
            tp,
            0,
            self.end,
            self.stable_end,
            self.start,
            tuple((each.producer_id, each.first) for each in aborted),
            buffer,
            0,
            len(buffer),
        )


@dataclass(slots=True)
class _OpenTransaction:
    begun_s: float
    timeout_s: float
    partitions: set[TopicPartition] = field(default_factory=set)


class MemoryBrokers:
    """The cluster. ``largest_batch_bytes``: max.message.bytes of every topic. ``up``: False answers nobody.

    ``implicit``: transactions of version 2 (KIP-890): a batch adds its partition to the transaction, and
    every end gives the producer another epoch. ``round_trip_s``: what connections say of their link.

    ``hook(request, moment)`` is called before a request of a connection is executed ("before") and before it
    is answered ("after"): simulations switch to another actor there, or raise ConnectionLost.
    """

    def __init__(
        self,
        clock: EngineClock | None = None,
        hook: Callable[[str, str], None] = lambda *_: None,
        *,
        implicit: bool = False,
        round_trip_s: float = 0.0,
    ) -> None:
        self.implicit, self.round_trip_s = implicit, round_trip_s
        self.clock: EngineClock = clock or ManualClock()
        self.hook = hook
        self.up = True
        self.largest_batch_bytes = DEFAULT_LIMITS.largest_bytes
        self.topics: dict[str, uuid.UUID] = {}
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self._made = 0
        self._producers: dict[str, Producer] = {}
        self._former: dict[str, Producer] = {}  # before the epoch of the last end
        self._open: dict[str, _OpenTransaction] = {}

    # ---- as an administrator and a plain client see it

    def create_topic(self, name: str, partitions: int) -> None:
        self._made += 1
        self.topics[name] = uuid.UUID(int=self._made)
        for partition in range(partitions):
            self.logs[TopicPartition(name, partition)] = MemoryLog()

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        for tp in self.partitions(name):
            del self.logs[tp]

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [tp for tp in self.logs if tp.topic == topic]

    def topic_id(self, topic: str) -> str:
        return topic_id_text(self.topics[topic])

    def append(self, records: Sequence[NewRecord]) -> None:
        """Append records without a transaction, one batch per partition;
        those without one go to the first."""
        for tp, payload in self._batches(records):
            self.logs[tp].append(payload)

    def transaction(
        self, transactional_id: str, records: Sequence[NewRecord], *, commit: bool = True
    ) -> None:
        """Fence the transactional id's producer, write the records and end the transaction."""
        producer = self.initialize(transactional_id)
        batches = list(self._batches(records))
        self._join(transactional_id, [tp for tp, _ in batches], 60.0)
        for tp, payload in batches:
            self.produce(transactional_id, tp, patch(patched(payload), *producer, 0))
        self.end(transactional_id, producer, commit=commit)

    def records(self, tp: TopicPartition, first: int = 0) -> list[Record]:
        """Return the committed records from an offset on, before the first open transaction."""
        return [
            Record(*tp, offset, timestamp_ms, key, value)
            for offset, timestamp_ms, key, value in self.logs[tp].records(first)
        ]

    def _batches(self, records: Sequence[NewRecord]) -> Iterator[tuple[TopicPartition, bytearray]]:
        by_place: dict[TopicPartition, list[NewRecord]] = {}
        for new in records:
            by_place.setdefault(TopicPartition(new.topic, new.partition or 0), []).append(new)
        for tp, parts in by_place.items():
            yield tp, batch_of_new(parts, self.clock.epoch_ms()).payload

    # ---- requests of producers

    def initialize(self, transactional_id: str, former: Producer = NOBODY) -> Producer:
        self._expire()
        known = self._producers.get(transactional_id)
        if known is not None and former is not NOBODY and self._former.get(transactional_id) == former:
            return known  # the answer to its end was lost
        if former is not NOBODY and known != former:
            raise_for(_FENCED, f'transactional id "{transactional_id}": initialize')
        if known is None:
            producer = Producer(len(self._producers) + 1, 0)
        else:
            self._end(transactional_id, known, commit=False)
            producer = Producer(known.producer_id, known.epoch + 1)
        self._producers[transactional_id] = producer
        self._former.pop(transactional_id, None)
        return producer

    def add(
        self, transactional_id: str, producer: Producer, tps: Iterable[TopicPartition], timeout_s: float
    ) -> None:
        assert not self.implicit
        self._check(transactional_id, producer)
        self._join(transactional_id, tps, timeout_s)

    def _join(self, transactional_id: str, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        begun = _OpenTransaction(self.clock.monotonic(), timeout_s)
        self._open.setdefault(transactional_id, begun).partitions.update(tps)

    def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> Producer:
        """End the transaction; return the producer of the next."""
        self._check(transactional_id, producer)
        self._end(transactional_id, producer, commit=commit)
        if self.implicit:
            self._former[transactional_id] = producer
            producer = self._producers[transactional_id] = Producer(producer.producer_id, producer.epoch + 1)
        return producer

    def produce(self, transactional_id: str, tp: TopicPartition, payload: memoryview) -> Produced:
        """Append one batch of a transaction; return its offset or Kafka's error code."""
        batch = patched(bytearray(payload))
        producer = Producer(batch.producer_id, batch.producer_epoch)
        self._expire()
        log, begun = self.logs.get(tp), self._open.get(transactional_id)
        if self._producers.get(transactional_id) != producer:
            return Produced(tp, _FENCED, -1, None)
        if log is None:
            return Produced(tp, UNKNOWN_TOPIC, -1, None)
        if self.implicit:
            self._join(transactional_id, [tp], 20.0)
            begun = self._open[transactional_id]
        if begun is None or tp not in begun.partitions:
            return Produced(tp, _NO_TRANSACTION, -1, None)
        if batch.size > self.largest_batch_bytes:
            return Produced(tp, MESSAGE_TOO_LARGE, -1, None)
        if log.sequences.get(producer, 0) != batch.base_sequence:
            return Produced(tp, _OUT_OF_ORDER, -1, None)
        log.sequences[producer] = next_sequence(batch.base_sequence, batch.count)
        base = log.append(payload)
        log.open.setdefault(producer.producer_id, base)
        return Produced(tp, 0, base, None)

    def _check(self, transactional_id: str, producer: Producer) -> None:
        self._expire()
        if self._producers.get(transactional_id) != producer:
            raise_for(_FENCED, f'transactional id "{transactional_id}"')

    def _expire(self) -> None:
        """Abort what has been open for too long; its producer is fenced, as KIP-360 has it."""
        now_s = self.clock.monotonic()
        for name, begun in list(self._open.items()):
            if now_s - begun.begun_s > begun.timeout_s:
                producer = self._producers[name]
                self._end(name, producer, commit=False)
                self._producers[name] = Producer(producer.producer_id, producer.epoch + 1)

    def _end(self, transactional_id: str, producer: Producer, *, commit: bool) -> None:
        begun = self._open.pop(transactional_id, None)
        for tp in sorted(begun.partitions) if begun is not None else ():
            log = self.logs.get(tp)
            if log is None:
                continue
            first = log.open.pop(producer.producer_id, None)
            marker = log.append(control_batch(producer, COMMIT if commit else ABORT, self.clock.epoch_ms()))
            if first is not None and not commit:
                log.aborted.append(_Aborted(producer.producer_id, first, marker + 1))


def control_batch(producer: Producer, kind: int, timestamp_ms: int) -> bytearray:
    """Return a transaction's end marker, which a broker writes: ABORT or COMMIT."""
    rest = rest_of(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    payload = batch_of([RawRecord(0, timestamp_ms, 0, rest)]).payload
    struct.pack_into(">h", payload, 21, TRANSACTIONAL | CONTROL)
    struct.pack_into(">qh", payload, 43, *producer)
    struct.pack_into(">I", payload, 17, crc32c(memoryview(payload)[21:]))
    return payload
