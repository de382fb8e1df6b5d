"""[shell] A backup as the source of the mirrors' engine (hub/replication/engine/connection/port.py).

One fetch answers with whole segments, which the next ones are loaded for in the meantime. A partition ends at
a given position, in the middle of a batch too: its records before it become batches of their own.
"""

from __future__ import annotations

import struct
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from hub.backup.storage.manifest import SavedPartition, SavedSegment
from hub.backup.storage.vault import Vault
from hub.errors import HubError, HubFault
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    EpochEnd,
    Fetched,
    FetchFrom,
    Leader,
    Produced,
    TopicMetadata,
)
from hub.kafka.protocol.record_batch import RecordBatch, batches_in
from hub.record import TopicPartition
from hub.replication.engine.connection.port import FetchAnswer, FetchLimits, TransactionCoordinator
from hub.replication.rewriting.reencode import RawRecord, batch_of, records_in

_NODE = 0
_IDLE_S = 0.05
_READ_AHEAD = 4
_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class PartitionToRestore:
    """A partition to restore: what is saved, under which topic id, and up to which position."""

    topic_id: str
    saved: SavedPartition
    end: int

    def segment_at(self, position: int) -> SavedSegment | None:
        """Return the segment with the first record from a position on; None at the end."""
        if position >= self.end:
            return None
        found = bisect_right(self.saved.segments, position, key=lambda each: each.next)
        return self.saved.segments[found] if found < len(self.saved.segments) else None


def before(batches: Iterable[RecordBatch], end: int) -> bytearray:
    """Return the batches with the records before ``end``. A batch with ``end`` inside is encoded again, one
    batch for each run of offsets without a hole, because a new batch has none.
    """
    made = bytearray()
    for batch in batches:
        if batch.next_offset <= end:
            made += batch.view
            continue
        run: list[RawRecord] = []
        for record in [*(each for each in records_in(batch) if each.offset < end), None]:
            if run and (record is None or record.offset != run[-1].offset + 1):
                new = batch_of(run, batch.codec).payload
                _OFFSET.pack_into(new, 0, run[0].offset)  # not covered by the checksum
                made += new
                run = []
            if record is not None:
                run.append(record)
    return made


class SavedLog:
    """``EngineConnection`` over a backup, for reading. ``partitions``: by their names at the target."""

    def __init__(self, vault: Vault, partitions: Mapping[TopicPartition, PartitionToRestore]) -> None:
        self.name = "backup"
        self.topics: dict[str, TopicMetadata] = {}
        self._vault, self._partitions = vault, partitions
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="restore")
        self._loading: dict[str, Future[bytearray]] = {}
        self._fetch: tuple[Sequence[FetchFrom], FetchLimits] | None = None

    def close(self) -> None:
        self._fetch = None
        for each in self._loading.values():
            each.cancel()
        self._loading.clear()

    def end(self) -> None:
        """End the threads. The connection cannot be used any more."""
        self.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def interrupt(self) -> None:
        self._fetch = None

    # ---- metadata

    def refresh(self, topics: Iterable[str]) -> dict[str, HubError]:
        places: dict[str, dict[int, Leader]] = {}
        for tp in self._partitions:
            places.setdefault(tp.topic, {})[tp.partition] = Leader(_NODE, -1)
        ids = {tp.topic: each.topic_id for tp, each in self._partitions.items()}
        for name in set(topics) & places.keys():
            self.topics[name] = TopicMetadata(ids[name], uuid.UUID(int=0), places[name])
        return {}

    def leader(self, tp: TopicPartition) -> Leader:
        return Leader(_NODE, -1)

    def offsets(
        self, wanted: Iterable[TopicPartition], at: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        restored_partitions = {tp: self._partitions[tp] for tp in wanted}
        return {
            tp: each.saved.start if at == EARLIEST else each.end for tp, each in restored_partitions.items()
        }

    def epoch_ends(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | HubError]:
        return {}  # no leader epoch, so nothing to compare

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]:
        return {}

    # ---- reading

    @property
    def fetching(self) -> Collection[int]:
        return () if self._fetch is None else (_NODE,)

    def send_fetch(self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits) -> None:
        self._fetch = wanted, limits
        for each in wanted[:_READ_AHEAD]:
            if (segment := self._partitions[each.tp].segment_at(each.position)) is not None:
                self._load(segment)

    def receive_fetches(self, wait_s: float) -> Sequence[FetchAnswer]:
        if self._fetch is None:
            time.sleep(min(wait_s, _IDLE_S))
            return ()
        wanted, limits = self._fetch
        self._fetch = None
        try:
            parts = self.fetch(_NODE, wanted, limits)
        except HubError as error:
            return [FetchAnswer(_NODE, (), error)]
        if not any(part.end for part in parts):
            time.sleep(min(wait_s, _IDLE_S))
        return [FetchAnswer(_NODE, parts)]

    def fetch(
        self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int = READ_COMMITTED
    ) -> Sequence[Fetched]:
        parts: list[Fetched] = []
        size = 0
        for each in wanted:
            partition = self._partitions[each.tp]
            segment = partition.segment_at(each.position) if size < limits.max_bytes else None
            buffer = bytearray()
            if segment is not None:
                buffer = self._load(segment).result()
                self._loading.pop(segment.name, None)
                if segment.next > partition.end:
                    buffer = before(batches_in(buffer), partition.end)
                elif (following := partition.segment_at(segment.next)) is not None:
                    self._load(following)
            size += len(buffer)
            parts.append(
                Fetched(
                    each.tp,
                    0,
                    partition.end,
                    partition.end,
                    partition.saved.start,
                    (),
                    buffer,
                    0,
                    len(buffer),
                )
            )
        return parts

    def _load(self, segment: SavedSegment) -> Future[bytearray]:
        """Load a segment in a thread. Segments that were loaded ahead and not used are dropped."""
        if segment.name not in self._loading:
            while len(self._loading) >= 2 * _READ_AHEAD:
                self._loading.pop(next(iter(self._loading))).cancel()
            self._loading[segment.name] = self._pool.submit(self._vault.segment, segment)
        return self._loading[segment.name]

    def recycle(self, *, reusable: bool) -> None:
        pass

    @property
    def round_trip_s(self) -> float:
        return 0.0

    # ---- writing

    def coordinator_of(self, transactional_id: str, transaction_timeout_s: float) -> TransactionCoordinator:
        raise HubFault("a backup is not the target of a restore")

    def send_produce(
        self,
        node: int,
        transactional_id: str,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        timeout_s: float,
        *,
        implicit: bool = False,
    ) -> Callable[[], Sequence[Produced]]:
        raise HubFault("a backup is not the target of a restore")
