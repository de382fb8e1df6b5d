"""[shell] One transaction at the target after the other: records, the map of their offsets, the checkpoint.

::

    write ─▶ add partitions (checkpoints and map with the first) ─▶ produce, ``requests_in_flight`` at once
    commit ─▶ all acknowledged ─▶ map + checkpoint of every partition that moved ─▶ schemas are there ─▶ end

A partition is added before anything is written to it. Whatever is raised here leaves the transaction's
outcome
unknown: the engine aborts it and starts again from the checkpoints.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.errors import HubError
from hub.kafka.protocol.broker_client import (
    LONG_S,
    NOBODY,
    READ_COMMITTED,
    BrokerRefused,
    PartitionsRefused,
    Produced,
    Producer,
    TransactionLost,
    raise_for,
    translated,
)
from hub.kafka.protocol.record_batch import next_sequence, patch
from hub.log import WriterFenced
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.schemas_first import SCHEMAS_LOG
from hub.replication.engine.connection.port import EngineClock, EngineConnection
from hub.replication.engine.cursor import named
from hub.replication.engine.long_link import LEAST_WINDOW_BYTES, SendWindow, due_at_s
from hub.replication.engine.payloads import Payload, SentBatch
from hub.replication.engine.shard_state import EngineSettings, PartitionState, ShardState
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_TOPIC,
    MAP_TOPIC,
    Checkpoint,
    MapRecord,
    checkpoint_partition,
)
from hub.replication.rewriting.reencode import batch_of_new, patched

_REQUEST_BYTES = 16 * 1024 * 1024
_REQUESTS_MOST = 1_000


class BatchesRefused(Exception):
    """The target refused batches of some partitions: these stop, and the transaction of the others is
    retried.
    """

    def __init__(self, partitions: Sequence[PartitionState], error: BrokerRefused) -> None:
        super().__init__(error.message)
        self.partitions = partitions
        self.error = error


class _Acknowledging(NamedTuple):
    """A produce request in flight; each batch with the offset that it was expected to get, -1: none."""

    answer: Callable[[], Sequence[Produced]]
    sent: dict[TopicPartition, tuple[SentBatch, int]]
    size: int
    in_flight: int
    sent_at_s: float


@dataclass(slots=True)
class OpenTransaction:
    begun_at_s: float
    added: set[TopicPartition] = field(default_factory=set)
    records: int = 0
    bytes: int = 0

    def is_due(self, settings: EngineSettings, now_s: float, due_at_s: float | None = None) -> bool:
        """Return whether a limit of a transaction is reached. ``due_at_s``: by its age, if not by the
        interval alone (long_link.py).
        """
        until_s = self.begun_at_s + settings.commit_interval_s if due_at_s is None else due_at_s
        return (
            self.records >= settings.commit_records or self.bytes >= settings.commit_bytes or now_s >= until_s
        )


def checkpoint_for(
    state: ShardState, each: PartitionState, now_ms: int, rewritten: frozenset[str]
) -> Checkpoint:
    """Return the checkpoint of one partition after the open transaction."""
    done = each.uncommitted
    return Checkpoint(
        link=state.shard.link,
        shard=state.shard.number,
        topic=each.tp.topic,
        partition=each.tp.partition,
        topic_id=each.topic_id,
        source_next=done.carried,
        source_leader_epoch=done.leader_epoch,
        target_next=done.target_next,
        target_topic_id=each.target_topic_id,
        generation=each.generation,
        source_start=each.source_start,
        target_start=each.target_start,
        source_timestamp_ms=done.timestamp_ms,
        committed_at_ms=now_ms,
        engine="record" if each.tp.topic in rewritten else "batch",
    )


class TargetTransaction:
    """Transactions of one shard. ``open``: the open one, None before the first record of the next.
    ``rewritten``: topics whose records are changed. ``schemas_first``: see BatchEngine.
    """

    def __init__(
        self,
        source: EngineConnection,
        target: EngineConnection,
        shard: ShardState,
        rewritten: frozenset[str],
        schemas_first: Callable[[int], None] | None,
        clock: EngineClock,
    ) -> None:
        self.source, self.target, self.shard = source, target, shard
        self.producer: Producer = NOBODY
        self.open: OpenTransaction | None = None
        self._rewritten, self._schemas_first, self._clock = rewritten, schemas_first, clock
        self._id = shard.shard.transactional_id
        self._timeout_s = shard.settings.transaction_timeout_s
        self._coordinator = target.coordinator_of(self._id, self._timeout_s)
        self._own_sequences: dict[TopicPartition, int] = {}
        self._acknowledging: deque[_Acknowledging] = deque()
        self._in_flight_bytes = 0
        self._window = SendWindow(LEAST_WINDOW_BYTES)
        self._last_due_at_s = float("-inf")

    def due_at_s(self) -> float:
        """Return when the open transaction is to be committed, full or not."""
        begun, settings = self._begun(), self.shard.settings
        return due_at_s(
            begun.begun_at_s,
            self._last_due_at_s,
            settings.commit_interval_s,
            self.target.round_trip_s,
            self.source.round_trip_s,
            behind=self.shard.is_behind(),
        )

    def is_due(self, now_s: float) -> bool:
        return self._begun().is_due(self.shard.settings, now_s, self.due_at_s())

    def fence(self) -> None:
        """Fence every other owner of the shard. Raises WriterFenced if another took it since the last time:
        a second start must not fence a worker that took the shard in the meantime.
        """
        try:
            self.producer = self._coordinator.initialize(self.producer)
        # the coordinator assigned the id to another producer, or expired it
        except TransactionLost as lost:
            if self.producer is NOBODY:
                raise
            raise WriterFenced(lost.message) from None
        self._own_sequences.clear()

    def abort(self) -> None:
        """Abort the open transaction, if the target answers."""
        if self.open is not None and self.open.added:
            with contextlib.suppress(HubError):
                self._coordinator.end(self.producer, commit=False)
        self.open = None

    def forget(self) -> None:
        self.target.close()
        self._acknowledging.clear()
        self._in_flight_bytes = 0
        self.open = None

    # ---- writing

    def write(self, ready: dict[TopicPartition, deque[Payload]]) -> None:
        """Write batches, in rounds of one batch per partition and request."""
        transaction = self._begun()
        for payload, sent in (each for payloads in ready.values() for each in payloads):
            transaction.records += sent.records
            transaction.bytes += len(payload)
        self._add(ready)
        nodes = {tp: self.target.leader(tp).node for tp in ready}
        while ready:
            by_node: dict[int, dict[TopicPartition, Payload]] = {}
            sizes: dict[int, int] = {}
            for tp in list(ready):
                found = ready[tp].popleft()
                if not ready[tp]:
                    del ready[tp]
                node, size = nodes[tp], len(found.bytes)
                if sizes.get(node, 0) + size > _REQUEST_BYTES and node in by_node:
                    self._produce(node, by_node.pop(node))
                    sizes[node] = 0
                by_node.setdefault(node, {})[tp] = found
                sizes[node] = sizes.get(node, 0) + size
            for node, batches in by_node.items():
                self._produce(node, batches)

    def _begun(self) -> OpenTransaction:
        if self.open is None:
            self.open = OpenTransaction(self._clock.monotonic())
        return self.open

    def _add(self, tps: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before anything is written; the checkpoint and map partitions
        come with the first.
        """
        transaction = self._begun()
        new = {*tps, self._own(CHECKPOINTS_TOPIC), self._own(MAP_TOPIC)} - transaction.added
        if not new:
            return
        before = frozenset(transaction.added)
        transaction.added |= new  # before the answer: a partition with an unknown result is aborted, too
        try:
            self._coordinator.add(self.producer, sorted(new))
        except PartitionsRefused as refused:
            partitions = self.shard.partitions
            mine = [partitions[tp] for tp in refused.places if tp in partitions]
            if not mine:  # the mirror's own topics: no record can be carried
                raise
            transaction.added = set(before)
            raise BatchesRefused(mine, refused) from None

    def _own(self, topic: str) -> TopicPartition:
        count = len(self.target.topics[topic].leaders)
        return TopicPartition(topic, checkpoint_partition(*self.shard.shard, count))

    def _produce(self, node: int, batches: Mapping[TopicPartition, Payload]) -> None:
        settings, size = self.shard.settings, sum(len(each.bytes) for each in batches.values())
        window = self._window.bytes if self.target.round_trip_s >= LONG_S else 0
        while (count := len(self._acknowledging)) >= settings.requests_in_flight and (
            self._in_flight_bytes + size > window or count >= _REQUESTS_MOST
        ):
            self._acknowledge()
        answer = self.target.send_produce(
            node,
            self._id,
            [(tp, each.bytes) for tp, each in batches.items()],
            self._timeout_s,
            implicit=self._coordinator.implicit,
        )
        sent = {tp: (each.sent, self._expect(tp, each.sent)) for tp, each in batches.items()}
        self._in_flight_bytes += size
        now_s = self._clock.monotonic()
        self._acknowledging.append(_Acknowledging(answer, sent, size, self._in_flight_bytes, now_s))

    def _expect(self, tp: TopicPartition, batch: SentBatch) -> int:
        """Map a batch that was sent to the offset that it gets if nobody else writes to the partition, and
        return that offset: the map need not wait for the answer, which is compared with it. Return -1 if it
        is unknown.
        """
        partition = self.shard.partitions.get(tp)
        if partition is None:
            return -1
        base = partition.next_base
        if base < 0:
            partition.unknown_bases += 1
        else:
            partition.written(batch.runs, batch.records, base)
        return base

    def _acknowledge_all(self) -> None:
        while self._acknowledging:
            self._acknowledge()

    def _acknowledge(self) -> None:
        answer, sent, size, in_flight, sent_at_s = self._acknowledging.popleft()
        self._in_flight_bytes -= size
        results = answer()
        self._window = self._window.acknowledged(
            self.shard.settings.in_flight_bytes,
            in_flight,
            sent_at_s,
            self._clock.monotonic(),
            self.target.round_trip_s,
        )
        for tp, code, base_offset, message in results:
            (batch, expected), partition = sent.pop(tp), self.shard.partitions.get(tp)
            error = translated(code, "produce", message)
            if isinstance(error, BrokerRefused) and partition is not None:
                raise BatchesRefused([partition], error)
            if error is not None:
                raise_for(code, f"{named(tp)} in the target: produce", message)
            if partition is not None and expected < 0:
                partition.unknown_bases -= 1
                partition.written(batch.runs, batch.records, base_offset)
            elif partition is not None and base_offset != expected:
                partition.foreign_writer = True
                raise TransactionLost(
                    f"{named(tp)} in the target: a batch has offset {base_offset}, {expected} was expected:"
                    " another producer writes to this partition"
                )
        if sent:
            raise TransactionLost(f"{named(next(iter(sent)))} in the target: no answer for it")

    # ---- committing

    def commit(self) -> int:
        """Write map and checkpoint of every partition that moved, then end the transaction; return the
        committed records.
        """
        self._last_due_at_s = self._clock.monotonic()
        if any(each.unknown_bases for each in self.shard.partitions.values()):
            self._acknowledge_all()
        now_ms = self._clock.epoch_ms()
        for each in self.shard.partitions.values():
            each.pass_over()
        moved = [each for each in self.shard.partitions.values() if each.has_moved]
        self.shard.dirty = False
        if not moved:
            self._end_empty()
            return 0
        checkpoints = {each.tp: checkpoint_for(self.shard, each, now_ms, self._rewritten) for each in moved}
        self._write_own(moved, checkpoints, now_ms)
        schemas_to = self._schemas_end()
        self._acknowledge_all()
        if self._schemas_first is not None:
            self._schemas_first(schemas_to)
        following = self._coordinator.end(self.producer, commit=True)
        self._ended(following)
        return sum(each.commit(checkpoints[each.tp]) for each in moved)

    def _ended(self, following: Producer) -> None:
        """Expect the marker in every partition of the ended transaction, and use the next producer."""
        for tp in self.open.added if self.open is not None else ():
            partition = self.shard.partitions.get(tp)
            if partition is not None and partition.next_base >= 0:
                partition.next_base += 1
        self.open = None
        if following != self.producer:
            self.producer = following
            self._own_sequences.clear()
            for each in self.shard.partitions.values():
                each.uncommitted.sequence = 0

    def _write_own(
        self,
        moved: Sequence[PartitionState],
        checkpoints: Mapping[TopicPartition, Checkpoint],
        now_ms: int,
    ) -> None:
        """Write the records of the mirror's own topics."""
        self._add([])
        place, map_place = self._own(CHECKPOINTS_TOPIC), self._own(MAP_TOPIC)
        records: list[NewRecord] = []
        maps: list[NewRecord] = []
        for each in moved:
            done = each.uncommitted
            records.append(checkpoints[each.tp].record(place.partition))
            records += [gap.record(place.partition) for gap in done.gaps]
            if each.period is not None:
                records.append(each.period.record(place.partition))
            if done.runs:
                runs = MapRecord(
                    self.shard.shard.link, each.tp.topic, each.topic_id, each.tp.partition, tuple(done.runs)
                )
                maps.append(runs.record(map_place.partition))
        for tp, own in ((place, records), (map_place, maps)):
            if own:
                made = batch_of_new(own, now_ms)
                sequence = self._own_sequences.get(tp, 0)
                view = patch(patched(made.payload), *self.producer, sequence)
                self._own_sequences[tp] = next_sequence(sequence, made.count)
                self._produce(self.target.leader(tp).node, {tp: Payload(view, SentBatch((), made.count))})

    def _schemas_end(self) -> int:
        """Return the end of the source's schema log, or -1. Called while the target writes, after every
        record to commit was fetched.
        """
        if self._schemas_first is None:
            return -1
        return self.source.offsets([SCHEMAS_LOG], isolation=READ_COMMITTED)[SCHEMAS_LOG]

    def _end_empty(self) -> None:
        following = self.producer
        if self.open is not None and self.open.added:
            following = self._coordinator.end(self.producer, commit=False)
        self._ended(following)
