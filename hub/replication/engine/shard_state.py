"""[core] State of one shard while it is copied: its settings, its partitions, and what the open transaction
has of each.

A partition has three places. ``committed`` is in the target, with a checkpoint; ``uncommitted`` is in the
open transaction; ``staged`` was fetched and is not written yet, up to the cursor's position. ``step_back``
returns to the first of them: whatever is uncertain about the target, the checkpoints are read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

from hub.errors import HubError, PeerError
from hub.kafka.protocol.compression import NONE
from hub.kafka.protocol.record_batch import DEFAULT_LIMITS, BatchLimits, BatchPiece
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds
from hub.record import TopicPartition
from hub.replication.engine.atomic_release import Txn
from hub.replication.engine.cursor import SourceCursor
from hub.replication.maps.checkpoint import Checkpoint, Gap
from hub.replication.maps.offset_map import Run
from hub.replication.ownership.shards import Shard
from hub.replication.rewriting.filter_history import FilterPeriod


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Limits of one engine. A transaction is committed when any of the three ``commit_`` limits is reached.
    ``fetch_most_bytes`` and ``in_flight_bytes``: over a long link fetches and unacknowledged batches grow up
    to these (long_link.py). ``compression``: codec of batches that the source has uncompressed.
    ``on_gap``: what to do when the source has deleted records before they were mirrored.
    ``transaction_timeout_s``: the longest time a hung worker can hold back the target's readers.

    ``hold_``: a source transaction becomes visible in all partitions of the shard at once, unless that would
    hold back records longer than ``hold_s`` or more than ``hold_bytes``, or a partition is more than
    ``hold_lag`` offsets behind: then the mirror catches up first.
    """

    commit_interval_s: float = 0.1
    commit_bytes: int = 32 * 1024 * 1024
    commit_records: int = 200_000
    fetch_bytes: int = 8 * 1024 * 1024
    fetch_partition_bytes: int = 1024 * 1024
    fetch_most_bytes: int = 16 * 1024 * 1024
    fetch_wait_ms: int = 250
    requests_in_flight: int = 8
    in_flight_bytes: int = 32 * 1024 * 1024
    compression: int = NONE
    transaction_timeout_s: float = 20.0
    start_timeout_s: float = 60.0
    on_gap: Literal["stop", "continue"] = "stop"
    hold_s: float = 5.0
    hold_bytes: int = 32 * 1024 * 1024
    hold_lag: int = 10_000
    limits: BatchLimits = DEFAULT_LIMITS
    bounds: UnpackedBounds = DEFAULT_BOUNDS


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Progress of one partition; positions are next-to-read. ``source_next`` is committed at the target;
    ``lag_records`` counts offsets up to the source's end offset (-1 until that is known). Counters cover this
    engine's committed transactions. ``error``: why the partition is stopped. ``source_heard_at_ms``: when the
    source last reported its end, epoch milliseconds; 0: not yet.
    """

    topic: str
    partition: int
    source_next: int
    source_end: int
    source_stable_end: int
    target_next: int
    records: int
    bytes: int
    batches_passed: int
    batches_rewritten: int
    batches_left_out: int
    source_timestamp_ms: int
    committed_at_ms: int
    error: HubError | None
    source_heard_at_ms: int = 0

    @property
    def lag_records(self) -> int:
        return max(0, self.source_end - self.source_next) if self.source_end >= 0 else -1

    @classmethod
    def unknown(cls, tp: TopicPartition) -> PartitionProgress:
        """Return the progress of a partition that no engine has started yet."""
        return cls(*tp, -1, -1, -1, -1, 0, 0, 0, 0, 0, -1, 0, None)


class NotYet(PeerError):
    """Temporary condition; the same call will succeed later."""

    code = "HUB-3612"


class StagedPiece(NamedTuple):
    """A piece between fetch and commit, unchanged or rewritten. ``after``: the source position once it is in
    the target.
    """

    piece: BatchPiece
    floor: int
    after: int
    leader_epoch: int
    timestamp_ms: int
    transactions: frozenset[Txn]


@dataclass(slots=True)
class CopyCounts:
    """Records and bytes copied, and batches by how they were copied."""

    records: int = 0
    bytes: int = 0
    passed: int = 0
    rewritten: int = 0
    left_out: int = 0

    def add(self, other: CopyCounts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class Uncommitted:
    """Content of the open transaction for one partition. ``carried``: source position after it;
    ``target_next``:
    target position after it; ``sequence``: next sequence number of the producer.
    """

    carried: int = 0
    leader_epoch: int = -1
    timestamp_ms: int = -1
    target_next: int = 0
    sequence: int = 0
    runs: list[Run] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    counts: CopyCounts = field(default_factory=CopyCounts)

    def mapped(self, run: Run) -> None:
        if self.runs:
            last = self.runs[-1]
            if last.source_end == run.source and last.target_end == run.target:
                self.runs[-1] = Run(last.source, last.target, last.count + run.count)
                return
        self.runs.append(run)


@dataclass(slots=True)
class PartitionState:
    """One partition; see the module. ``failed``: why it is stopped. ``period``: rules that the first records
    of this start are made under, to be written with them. ``left_out``: ascending ranges of source offsets
    that are not carried.
    """

    tp: TopicPartition
    cursor: SourceCursor
    topic_id: str = ""
    target_topic_id: str = ""
    failed: HubError | None = None
    staged: deque[StagedPiece] = field(default_factory=deque)
    uncommitted: Uncommitted = field(default_factory=Uncommitted)
    committed: Checkpoint | None = None
    generation: int = 0
    source_start: int = 0
    target_start: int = 0
    largest: int = DEFAULT_LIMITS.largest_bytes
    period: FilterPeriod | None = None
    left_out: Sequence[tuple[int, int]] = ()
    # Target offset of the next batch if nobody else writes to the partition, -1: unknown; number of batches
    # in flight whose offset was not known; and whether somebody else does write, so that offsets are not
    # known before.
    next_base: int = -1
    unknown_bases: int = 0
    foreign_writer: bool = False
    source_end: int = -1
    stable_end: int = -1
    heard_at_ms: int = 0
    # end of the inspected range of batches that are not readable yet; ``peeked``: their transactions
    peeked_to: int = 0
    peeked: dict[Txn, int] = field(default_factory=dict)
    counts: CopyCounts = field(default_factory=CopyCounts)

    def step_back(self) -> None:
        """Reset to the committed state. A failed partition is not restarted with the others, and the records
        it had sent were aborted: if it kept its position, the next transaction's checkpoint would skip
        records that are nowhere.
        """
        mark = self.committed
        position = self.source_start if mark is None else mark.source_next
        epoch = -1 if mark is None else mark.source_leader_epoch
        self.cursor = self.cursor.restarted(position, epoch)
        self.uncommitted = Uncommitted(
            carried=position,
            leader_epoch=epoch,
            timestamp_ms=-1 if mark is None else mark.source_timestamp_ms,
            target_next=self.target_start if mark is None else mark.target_next,
        )
        self.next_base, self.unknown_bases = -1, 0
        self.staged.clear()
        self.peeked.clear()
        self.peeked_to = 0

    def written(self, runs: Iterable[Run], records: int, base: int) -> None:
        """Map a batch whose first record has the target offset ``base``."""
        for run in runs:
            self.uncommitted.mapped(Run(run.source, base + run.target, run.count))
        self.uncommitted.target_next = base + records
        if not self.unknown_bases and not self.foreign_writer:
            self.next_base = base + records

    def stop(self, error: HubError) -> None:
        self.failed = error

    def pass_over(self) -> None:
        """Count batches that were left out at the end as carried: nothing is staged before the position."""
        if not self.staged and self.failed is None:
            self.uncommitted.carried = self.cursor.position
            self.uncommitted.leader_epoch = self.cursor.position_epoch

    @property
    def has_moved(self) -> bool:
        """True when the open transaction needs a checkpoint of this partition."""
        before = self.source_start if self.committed is None else self.committed.source_next
        return self.uncommitted.carried != before

    def commit(self, checkpoint: Checkpoint) -> int:
        """Make the open transaction's part the committed state; return its records."""
        done = self.uncommitted
        self.committed, self.period = checkpoint, None
        self.counts.add(done.counts)
        self.uncommitted = replace(done, runs=[], gaps=[], counts=CopyCounts())
        return done.counts.records

    def progress(self) -> PartitionProgress:
        mark, counts = self.committed, self.counts
        return PartitionProgress(
            self.tp.topic,
            self.tp.partition,
            self.source_start if mark is None else mark.source_next,
            self.source_end,
            self.stable_end,
            self.target_start if mark is None else mark.target_next,
            counts.records,
            counts.bytes,
            counts.passed,
            counts.rewritten,
            counts.left_out,
            -1 if mark is None else mark.source_timestamp_ms,
            0 if mark is None else mark.committed_at_ms,
            self.failed,
            self.heard_at_ms,
        )


class ShardState:
    """The partitions of one shard. ``error``: last error of a cluster, None while both answer. ``dirty``:
    a position has moved since the last commit.
    """

    def __init__(self, shard: Shard, settings: EngineSettings, partitions: Iterable[TopicPartition]) -> None:
        self.shard, self.settings = shard, settings
        self.partitions = {tp: PartitionState(tp, SourceCursor(tp)) for tp in sorted(set(partitions))}
        self.error: HubError | None = None
        self.dirty = False

    def is_behind(self) -> bool:
        """Return whether the source has more readable records than were fetched."""
        return any(
            each.stable_end > each.cursor.position for each in self.partitions.values() if not each.failed
        )

    def live(self) -> list[PartitionState]:
        return [each for each in self.partitions.values() if each.failed is None]

    def step_back(self) -> None:
        self.dirty = False
        for each in self.partitions.values():
            each.step_back()

    def clear_failures(self) -> None:
        """Let stopped partitions try again."""
        for each in self.partitions.values():
            each.failed = None
            each.cursor = replace(each.cursor, corrupt_at=-1)
