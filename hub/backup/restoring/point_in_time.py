"""[core] Restore up to a time: a prefix of each partition.

A run knows only that its records were appended before it asked for the ends (``taken_at_ms``). Segments of
runs before the time are whole. In the first run after it, each partition is cut at its first record with a
later timestamp. So a producer's wrong clock can misplace the cut within one run, never beyond it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hub.backup.storage.manifest import Manifest, SavedPartition, SavedSegment
from hub.errors import NotFound
from hub.kafka.protocol.record_batch import RecordBatch
from hub.replication.rewriting.reencode import records_in


def base_run(runs: Sequence[Manifest], until_ms: int | None) -> Manifest:
    """Return the run to restore from: the first one after the time, or the newest. ``runs`` are ascending.

    Raises NotFound (HUB-1805) when there is no run.
    """
    if not runs:
        raise NotFound("the backup has no complete run", hint="make one: hub backup run", code="HUB-1805")
    if until_ms is None:
        return runs[-1]
    return next((each for each in runs if each.taken_at_ms >= until_ms), runs[-1])


def groups_run(runs: Sequence[Manifest], base: Manifest, until_ms: int | None) -> Manifest:
    """Return the run whose group positions belong to the time: the last one before it, else ``base``."""
    if until_ms is None:
        return base
    earlier = [each for each in runs if each.taken_at_ms <= until_ms]
    return earlier[-1] if earlier else base


def cut_at(saved: SavedPartition, until_ms: int | None) -> tuple[int, SavedSegment | None]:
    """Return the position after the last segment that is certainly whole, and the segment that has to be
    searched for the first record after the time; None: there is no such segment.
    """
    if until_ms is None:
        return saved.end, None
    end = saved.start
    for segment in saved.segments:
        if segment.taken_at_ms > until_ms and not 0 <= segment.newest_ms <= until_ms:
            return end, segment
        end = segment.next
    return end, None


def cut_within(batches: Iterable[RecordBatch], until_ms: int, start: int) -> int:
    """Return the position after the last record before the first one that is later than the time; ``start``
    when the first record is.
    """
    position = start
    for batch in batches:
        if not 0 <= batch.max_timestamp <= until_ms:
            for record in records_in(batch):
                if record.timestamp_ms > until_ms:
                    return position
                position = max(position, record.offset + 1)
        position = max(position, batch.next_offset)
    return position
