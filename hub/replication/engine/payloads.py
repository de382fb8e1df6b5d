"""[core] Staged pieces as batches of the engine's producer: unchanged but for the header, or rewritten."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from hub.kafka.protocol.broker_client import Producer
from hub.kafka.protocol.record_batch import BatchPiece, CorruptBatch, RecordBatch, next_sequence, patch
from hub.kafka.protocol.unpacked_size import unread_reason
from hub.replication.engine.cursor import named
from hub.replication.engine.shard_state import PartitionState, ShardState
from hub.replication.maps.checkpoint import Gap
from hub.replication.maps.offset_map import Run
from hub.replication.rewriting.link_compression import compressed
from hub.replication.rewriting.record_filter import RecordRewriter, RulesNotApplicable, stretches
from hub.replication.rewriting.reencode import NewBatch, RecordTooLarge, Reencoder, patched

log = logging.getLogger(__name__)


class SentBatch(NamedTuple):
    """Content of an acknowledged batch: ``runs`` count offsets of the target from its first."""

    runs: tuple[Run, ...]
    records: int


class Payload(NamedTuple):
    """One batch to produce."""

    bytes: memoryview
    sent: SentBatch


class Payloads:
    """Makes the batches of one shard.
    ``rewriters``: by topic; other pieces to rewrite go to ``reencoder``."""

    def __init__(
        self, shard: ShardState, reencoder: Reencoder, rewriters: Mapping[str, RecordRewriter]
    ) -> None:
        self._shard, self._reencoder, self._rewriters = shard, reencoder, rewriters

    def take(self, each: PartitionState, count: int, producer: Producer, now_ms: int) -> deque[Payload]:
        """Take the first ``count`` staged pieces as batches of the producer, in order. A piece that cannot be
        written stops the partition.
        """
        payloads: deque[Payload] = deque()
        done = each.uncommitted
        for _ in range(count):
            piece, floor, after, leader_epoch, timestamp_ms, _ = each.staged[0]
            if piece.rewrite:
                made = self._rewritten(each, piece, floor, now_ms)
                if made is None:
                    return payloads
                for new in made:
                    payloads.append(_payload(each, patched(new.payload), producer, new.runs))
                done.counts.rewritten += len(piece.batches)
            else:
                batch = piece.batches[0]
                run = Run(batch.base_offset, 0, batch.count)
                smaller = self._compressed(each, batch)
                if smaller is None:
                    return payloads
                payloads.append(_payload(each, smaller, producer, (run,)))
                done.counts.passed += 1
            done.carried, done.leader_epoch, done.timestamp_ms = after, leader_epoch, timestamp_ms
            each.staged.popleft()
        return payloads

    def _compressed(self, each: PartitionState, batch: RecordBatch) -> RecordBatch | None:
        """Return the batch as it crosses the link; None when it cannot, and the partition stops."""
        try:
            return compressed(batch, self._shard.settings.compression) or batch
        except CorruptBatch as error:
            each.stop(CorruptBatch(f"{named(each.tp)} in the source, {error.message}", hint=error.hint))
            each.staged.clear()
            return None

    def _rewritten(
        self, each: PartitionState, piece: BatchPiece, floor: int, now_ms: int
    ) -> list[NewBatch] | None:
        rewriter = self._rewriters.get(each.tp.topic)
        batches = self._without_unread(each, piece.batches, now_ms)
        if not batches:
            return []
        try:
            made = (rewriter or self._reencoder).reencode(batches, floor, each.largest, each.left_out)
        except (CorruptBatch, RecordTooLarge, RulesNotApplicable) as error:
            each.stop(type(error)(f"{named(each.tp)} in the source, {error.message}", hint=error.hint))
            each.staged.clear()
            return None
        for first, end in stretches(rewriter.unreadable if rewriter is not None else ()):
            self._skip(each, first, end, now_ms)
        return made

    def _without_unread(
        self, each: PartitionState, batches: list[RecordBatch], now_ms: int
    ) -> list[RecordBatch]:
        """Return the batches that may be unpacked. The others cannot be filtered or rewritten: they are left
        out and recorded as gaps.
        """
        kept: list[RecordBatch] = []
        for batch in batches:
            why = unread_reason(batch, self._shard.settings.bounds)
            if why is None:
                kept.append(batch)
                continue
            first, end = batch.base_offset, batch.next_offset
            log.error("%s: offsets [%d, %d) are left out: %s", named(each.tp), first, end, why)
            self._skip(each, first, end, now_ms)
        return kept

    def _skip(self, each: PartitionState, first: int, end: int, now_ms: int) -> None:
        gap = Gap(self._shard.shard.link, *each.tp, each.topic_id, first, end, "skipped", now_ms)
        each.uncommitted.gaps.append(gap)


def _payload(each: PartitionState, batch: RecordBatch, producer: Producer, runs: tuple[Run, ...]) -> Payload:
    done = each.uncommitted
    view = patch(batch, *producer, done.sequence)
    done.sequence = next_sequence(done.sequence, batch.count)
    done.counts.records += batch.count
    done.counts.bytes += len(view)
    return Payload(view, SentBatch(runs, batch.count))
