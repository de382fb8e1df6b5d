"""[shell] Batches into segments, compressed and stored by two threads while the next batches are read.

At most ``_UNDER_WAY`` segments are under way; then reading waits. A partition's segments become part of the
state in the order of their offsets, so that the state has no hole at any time.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from hub.backup.storage.manifest import SavedPartition, SavedSegment
from hub.backup.storage.vault import Vault
from hub.kafka.protocol.record_batch import RecordBatch
from hub.record import TopicPartition
from hub.replication.rewriting.reencode import records_in

SEGMENT_BYTES = 16 << 20
_THREADS, _UNDER_WAY = 2, 4


def records_from(batch: RecordBatch, first: int) -> int:
    """Return the number of records of a batch from an offset on: a log may begin within a batch."""
    if batch.magic < 2 or batch.base_offset >= first:
        return batch.count
    return sum(record.offset >= first for record in records_in(batch))


@dataclass(slots=True)
class OpenSegment:
    """The segment of a partition that is being filled. ``next``: position after everything read so far."""

    saved: SavedPartition
    next: int
    buffer: bytearray = field(default_factory=bytearray)
    first: int = -1
    last: int = -1
    records: int = 0
    newest_ms: int = -1
    storing: deque[Future[SavedSegment]] = field(default_factory=deque)
    read_at_ms: int | None = None
    """Set at the end of the range, when the partition counts as read."""


class SegmentWriter:
    """Segments of one run. Use from one thread; close it. ``begun``: what is saved of each partition."""

    def __init__(
        self, vault: Vault, number: int, taken_at_ms: int, begun: Mapping[TopicPartition, SavedPartition]
    ) -> None:
        self._vault, self._taken_at_ms = vault, taken_at_ms
        self._folder = f"segments/{number:06d}"
        # Two runs at once, which S3 does not prevent, may have the same number: no object is of both.
        self._token = secrets.token_hex(4)
        self._open = {tp: OpenSegment(saved, saved.next) for tp, saved in begun.items()}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="backup")
        self.raw_bytes = self.stored_bytes = self.records = 0

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, tp: TopicPartition, batches: Sequence[RecordBatch], after: int) -> None:
        """Append batches of a partition; ``after``: position after them."""
        part = self._open[tp]
        for batch in batches:
            if not part.buffer:
                part.first = max(batch.base_offset, part.next) if batch.magic == 2 else part.next
            part.buffer += batch.view
            part.last = batch.next_offset
            part.records += records_from(batch, part.first)
            part.newest_ms = max(part.newest_ms, batch.max_timestamp)
            if len(part.buffer) >= SEGMENT_BYTES:
                part.next = batch.next_offset
                self._store(tp, part)
        part.next = max(part.next, after)

    def gap(self, tp: TopicPartition, gap: tuple[int, int]) -> None:
        """Record offsets that the cluster deleted before they were read."""
        self._flush(tp)
        part = self._open[tp]
        part.saved = replace(part.saved, gaps=(*part.saved.gaps, gap))

    def end(self, tp: TopicPartition, *, read: bool) -> None:
        """End a partition's range. ``read`` False: it was not read to its end."""
        self._flush(tp)
        if read:
            self._open[tp].read_at_ms = self._taken_at_ms

    def state(self, *, wait: bool = False) -> dict[TopicPartition, SavedPartition]:
        """Return what is stored of each partition. ``wait``: until everything added is. Raises the errors of
        the storage.
        """
        found = {}
        for tp, part in self._open.items():
            while part.storing and (wait or part.storing[0].done()):
                self._stored(part, part.storing.popleft().result())
            if not part.storing and not part.buffer:
                at_ms = part.saved.read_at_ms if part.read_at_ms is None else part.read_at_ms
                part.saved = replace(part.saved, next=part.next, read_at_ms=at_ms)
            found[tp] = part.saved
        return found

    def _flush(self, tp: TopicPartition) -> None:
        part = self._open[tp]
        if part.buffer:
            self._store(tp, part)

    def _store(self, tp: TopicPartition, part: OpenSegment) -> None:
        content, part.buffer = part.buffer, bytearray()
        name = f"{self._folder}/{tp.topic}/{tp.partition}/{part.first:020d}-{self._token}"
        segment = SavedSegment(
            name, part.first, part.last, part.records, len(content), 0, "", part.newest_ms, self._taken_at_ms
        )
        part.first, part.records, part.newest_ms = -1, 0, -1
        self._wait_for_room()
        part.storing.append(self._pool.submit(self._put, segment, content))

    def _put(self, segment: SavedSegment, content: bytearray) -> SavedSegment:
        size, digest = self._vault.put(segment.name, content)
        return replace(segment, stored_bytes=size, digest=digest)

    def _stored(self, part: OpenSegment, segment: SavedSegment) -> None:
        part.saved = replace(part.saved, segments=(*part.saved.segments, segment), next=segment.next)
        self.raw_bytes += segment.raw_bytes
        self.stored_bytes += segment.stored_bytes
        self.records += segment.records

    def _wait_for_room(self) -> None:
        """Wait while too many segments are under way, for the oldest of any partition."""
        under_way = [one for part in self._open.values() for one in part.storing if not one.done()]
        if len(under_way) >= _UNDER_WAY:
            under_way[0].result()
