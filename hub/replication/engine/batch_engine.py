"""[shell] One shard of a mirror: copies batches of a fixed set of partitions from the source to the target,
exactly once.

A *shard* has one transactional id, ``hub.mirror.<link>.<shard>``. ``start`` fences the previous owner and
only then reads its checkpoints; ``step`` carries one transaction: records, the map of their offsets and the
checkpoint::

    start ─▶ initialize (fences) ─▶ checkpoints up to the end offset asked for after that ─▶ positions
    step  ─▶ fetch (read_committed) ─▶ pieces ─▶ cut ─▶ patch ─▶ produce ─▶ map + checkpoint ─▶ commit
      any uncertainty about the target: abort, discard all state, start again from the checkpoints
      any uncertainty about the source: reconnect, continue at the position

All durable state is in the target, so a kill at any moment costs time only. A partition that cannot continue
(its log was truncated, is corrupt, was recreated, or refuses writes) reports that in ``progress``; the others
continue. ``WriterFenced`` ends the engine: another worker has the shard, and a restart would take it back.

Limits: every fetch names all partitions of its broker (no fetch sessions), so a shard is for hundreds of
partitions, not many thousands; and one shard is one thread.
"""

from __future__ import annotations

import contextlib
import logging
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerConnection, ClusterAccess, Fetched, FetchFrom, Producer
from hub.kafka.protocol.record_batch import (
    DEFAULT_LIMITS,
    AbortedTransactions,
    BatchLimits,
    BatchPiece,
    CorruptBatch,
    RecordBatch,
    answer_of,
    batches_in,
    is_intact,
    next_sequence,
    patch,
)
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds, may_unpack_to_more, unread_reason
from hub.log import WriterFenced
from hub.record import Record, TopicPartition
from hub.replication.clusters.schemas_first import SCHEMAS_LOG
from hub.replication.engine.atomic_release import ReleaseState, Txn, releasable, transactions_of
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_TOPIC,
    MAP_TOPIC,
    Checkpoint,
    Gap,
    MapRecord,
    checkpoint_of,
    checkpoint_partition,
    newest,
)
from hub.replication.maps.offset_map import Run
from hub.replication.rewriting.filter_history import (
    AS_THEY_ARE,
    FilterPeriod,
    FilterVersion,
    in_force,
    is_ruled,
    ruled_of,
)
from hub.replication.rewriting.record_filter import RecordRewriter, RulesNotApplicable, stretches
from hub.replication.rewriting.reencode import (
    NewBatch,
    RecordTooLarge,
    Reencode,
    Reencoder,
    batch_of_new,
    fields_of,
    patched,
    records_in,
)

log = logging.getLogger(__name__)

_MOVED_CODES = {5, 6, 9, 13, 74, 75}  # the leader has changed, or will
_RECREATED_CODES = {broker_client.UNKNOWN_TOPIC, broker_client.UNKNOWN_TOPIC_ID, 103}
_REQUEST_BYTES = 16 * 1024 * 1024
_LOOK_EVERY_S = 0.02
_PEEKS = 4
_RETRY_FIRST_S, _RETRY_MOST_S = 0.05, 5.0
_UNASKED = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Limits of one engine. A transaction is committed when any of the three ``commit_`` limits is reached.
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
    fetch_wait_ms: int = 250
    requests_in_flight: int = 8
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


class _StagedPiece(NamedTuple):
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
class _Partition:
    tp: TopicPartition
    topic_id: str = ""
    target_topic_id: str = ""
    failed: HubError | None = None
    position: int = 0  # next to fetch
    position_epoch: int = -1  # leader epoch of the batch before the position; -1: unknown
    # leader epoch under which the source's log is known to match the mirrored records
    same_to: int = _UNASKED
    staged: deque[_StagedPiece] = field(default_factory=deque)
    carried: int = 0  # source position after what the open transaction has of this partition
    committed: Checkpoint | None = None
    generation: int = 0
    source_start: int = 0
    target_start: int = 0
    target_next: int = 0
    sequence: int = 0
    largest: int = DEFAULT_LIMITS.largest_bytes
    runs: list[Run] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    ruled: FilterPeriod | None = None  # written with the first records that these rules produce
    leader_epoch: int = -1
    timestamp_ms: int = -1
    source_end: int = -1
    heard_at_ms: int = 0
    stable_end: int = -1
    corrupt_at: int = -1
    # end of the inspected range of batches that are not readable yet; ``peeked``: their transactions
    peeked_to: int = 0
    peeked: dict[Txn, int] = field(default_factory=dict)
    # Counters of the open transaction (``new_``), then of all committed transactions.
    new_records: int = 0
    new_bytes: int = 0
    new_passed: int = 0
    new_rewritten: int = 0
    new_left_out: int = 0
    records: int = 0
    bytes: int = 0
    passed: int = 0
    rewritten: int = 0
    left_out: int = 0

    def mapped(self, run: Run) -> None:
        if self.runs:
            last = self.runs[-1]
            if last.source_end == run.source and last.target_end == run.target:
                self.runs[-1] = Run(last.source, last.target, last.count + run.count)
                return
        self.runs.append(run)


class NotYet(PeerError):
    """Temporary condition; the same call will succeed later."""

    code = "HUB-3612"


class _BatchesRefused(Exception):
    """The target refused batches of some partitions: these stop, and the transaction of the others is
    retried.
    """

    def __init__(self, partitions: Sequence[_Partition], error: broker_client.BrokerRefused) -> None:
        super().__init__(error.message)
        self.partitions = partitions
        self.error = error


@dataclass(slots=True)
class _SentBatch:
    """One batch of a produce request, and what its acknowledgement confirms."""

    partition: _Partition | None
    runs: tuple[Run, ...]
    count: int


class _FetchRequest(NamedTuple):
    """A fetch in flight: by partition the offset and leader epoch it was sent with, and its deadline."""

    connection: BrokerConnection
    version: int
    places: dict[TopicPartition, tuple[int, int]]
    until: float


@dataclass(slots=True)
class _Transaction:
    begun_at: float
    added: set[TopicPartition] = field(default_factory=set)
    records: int = 0
    bytes: int = 0


class BatchEngine:
    """Copy engine of one shard; see the module. Use from one thread. ``partitions`` have the same names on
    both sides.

    A partition whose records were mirrored under rules other than those of ``shapers`` stops (HUB-1615).

    ``foreign``: ranges of source offsets that came from the target and are not sent back
    (maps/two_way_offset_map.py). ``shapers``: rewriters by topic; all batches of these topics are rewritten.
    ``schemas_first``: called before records are committed with the end offset that the source's ``_schemas``
    had after they were fetched; it returns once the schemas up to there are at the target, or raises NotYet.
    """

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        *,
        link: str,
        shard: int,
        partitions: Iterable[TopicPartition],
        settings: EngineSettings | None = None,
        reencoder: Reencoder | None = None,
        foreign: Mapping[TopicPartition, Sequence[tuple[int, int]]] | None = None,
        shapers: Mapping[str, RecordRewriter] | None = None,
        schemas_first: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self.shard = shard
        self.settings = settings or EngineSettings()
        self.transactional_id = f"hub.mirror.{link}.{shard}"
        self.source = broker_client.BrokerCluster(source, "source")
        self.target = broker_client.BrokerCluster(target, "target")
        self.error: HubError | None = None
        self.fenced = False
        self._clock = clock
        self._reencoder: Reencoder = reencoder or Reencode()
        self._foreign = foreign or {}
        self._shapers = shapers or {}
        self._schemas_first = schemas_first
        self._rules = {
            topic: FilterVersion.of(each.shape, each.secrets) for topic, each in self._shapers.items()
        }
        self._ruled: dict[tuple[str, str, int], list[FilterPeriod]] = {}
        self._transactions = broker_client.Transactions(
            self.target, self.transactional_id, self.settings.transaction_timeout_s
        )
        self._partitions = {tp: _Partition(tp) for tp in sorted(set(partitions))}
        log_of_schemas = {SCHEMAS_LOG.topic} if schemas_first is not None else set()
        self._of_source = log_of_schemas | {tp.topic for tp in self._partitions}
        self._producer: Producer = broker_client.NOBODY
        self._ready = False
        self._restarts = 0
        self._retry_at = 0.0
        self._source_retry_at: dict[int, float] = {}
        self._source_failures = 0
        self._refresh_at: float | None = None
        self._fetching: dict[int, _FetchRequest] = {}
        self._turn = 0
        self._frames: list[bytearray] = []  # buffers of answers that staged pieces may refer to
        # buffers of answers that are written completely, reused for the next answers
        self._spare: list[bytearray] = []
        self._own_sequences: dict[TopicPartition, int] = {}
        self._acknowledging: deque[tuple[BrokerConnection, int, dict[TopicPartition, _SentBatch]]] = deque()
        self._transaction: _Transaction | None = None
        self._dirty = False
        self._held_at: float | None = None
        self._looked_at = 0.0

    # ---- progress and control

    def progress(self) -> list[PartitionProgress]:
        return [
            PartitionProgress(
                each.tp.topic,
                each.tp.partition,
                each.committed.source_next if each.committed is not None else each.source_start,
                each.source_end,
                each.stable_end,
                each.committed.target_next if each.committed is not None else each.target_start,
                each.records,
                each.bytes,
                each.passed,
                each.rewritten,
                each.left_out,
                each.committed.source_timestamp_ms if each.committed is not None else -1,
                each.committed.committed_at_ms if each.committed is not None else 0,
                each.failed,
                each.heard_at_ms,
            )
            for each in self._partitions.values()
        ]

    def retry(self) -> None:
        """Let stopped partitions try again; the next step starts from the checkpoints."""
        self._abandon()
        self._forget()
        for each in self._partitions.values():
            each.failed, each.corrupt_at = None, -1

    def close(self) -> None:
        """Abort the open transaction, if the target answers, and close all connections."""
        self._abandon()
        self._ready = False
        self.source.close()
        self.target.close()

    # ---- start

    def start(self) -> None:
        """Take over the shard. Raises WriterFenced, NotFound (the mirror's own topics), PeerError when a
        cluster does not answer. Errors of single partitions are in their progress.
        """
        self._forget()
        self._metadata()
        # A second start of this engine must not fence a worker that took the shard in the meantime.
        try:
            self._producer = self._transactions.initialize(self._producer)
        # the coordinator assigned the id to another producer, or expired it
        except broker_client.TransactionLost as lost:
            if self._producer is broker_client.NOBODY:
                raise
            raise WriterFenced(lost.message) from None
        self._own_sequences.clear()
        checkpoints = self._read_checkpoints()
        live = [each for each in self._partitions.values() if each.failed is None]
        fresh = [each for each in live if not self._resume(each, checkpoints.get(each.tp))]
        self._begin_fresh(fresh)
        self._hold_to_target([each for each in live if each.committed is not None and each.failed is None])
        self._read_limits([each for each in live if each.failed is None])
        self._ready = True
        self.error = None

    def _forget(self) -> None:
        self._ready = False
        self._fetching.clear()
        self._frames.clear()
        self._acknowledging.clear()
        self.source.close()
        self.target.close()
        self._transaction = None
        self._dirty = False
        self._refresh_at = None
        for each in self._partitions.values():
            each.staged.clear()
            each.runs.clear()
            each.gaps.clear()
            each.peeked.clear()
            each.peeked_to = each.sequence = 0
            self._step_back(each)
            each.new_records = each.new_bytes = each.new_passed = each.new_rewritten = each.new_left_out = 0

    @staticmethod
    def _step_back(each: _Partition) -> None:
        """Reset a partition to its committed state. A failed partition is not restarted with the others, and
        the records it had sent were aborted: if it kept its position, the next transaction's checkpoint would
        skip records that are nowhere.
        """
        mark = each.committed
        each.same_to = _UNASKED
        if mark is None:
            each.position = each.carried = each.source_start
            each.target_next = each.target_start
            each.position_epoch = each.leader_epoch = each.timestamp_ms = -1
            return
        each.position = each.carried = mark.source_next
        each.target_next = mark.target_next
        each.position_epoch = each.leader_epoch = mark.source_leader_epoch
        each.timestamp_ms = mark.source_timestamp_ms

    def _metadata(self) -> None:
        refused_source = self.source.refresh(self._of_source)
        refused_target = self.target.refresh(
            {CHECKPOINTS_TOPIC, MAP_TOPIC, *(tp.topic for tp in self._partitions)}
        )
        for name in (CHECKPOINTS_TOPIC, MAP_TOPIC):
            if name not in self.target.topics:
                raise NotFound(
                    f'topic "{name}" is not in the target cluster: {refused_target[name].message}',
                    hint="`hub mirror apply` makes the topics of a mirror",
                    code="HUB-1611",
                )
        for each in self._partitions.values():
            if each.failed is not None:
                continue
            for cluster, refused in ((self.source, refused_source), (self.target, refused_target)):
                self._check_partition(each, cluster, refused)
            if each.failed is None:
                each.topic_id = self.source.topics[each.tp.topic].topic_id
                each.target_topic_id = self.target.topics[each.tp.topic].topic_id

    def _check_partition(
        self, each: _Partition, cluster: broker_client.BrokerCluster, refused: Mapping[str, HubError]
    ) -> None:
        topic = cluster.topics.get(each.tp.topic)
        if topic is not None and each.tp.partition in topic.leaders:
            return
        error = refused.get(each.tp.topic)
        if isinstance(error, broker_client.BrokerBusy) and error.kafka_code != broker_client.UNKNOWN_TOPIC:
            raise error
        if isinstance(error, broker_client.BrokerRefused):
            each.failed = error
        else:
            each.failed = NotFound(
                f"{_named(each.tp)} does not exist in the {cluster.name} cluster",
                hint="`hub mirror plan` shows what is missing",
                code="HUB-1611",
            )

    def _resume(self, each: _Partition, found: Checkpoint | None) -> bool:
        """Restore the partition from its checkpoint; return whether there is one (also when it forbids to
        continue).
        """
        if found is None:
            return False
        for was, now, where in (
            (found.topic_id, each.topic_id, "source"),
            (found.target_topic_id, each.target_topic_id, "target"),
        ):
            if was and now and was != now:
                each.failed = Conflict(
                    f"{_named(each.tp)}: the topic was deleted and made again in the {where} cluster "
                    f"(id {was} when last mirrored, now {now})",
                    hint="decide what its mirror shall hold: delete the topic at the target to mirror it anew",
                    code="HUB-1612",
                )
                return True
        if found.shard != self.shard:
            # That shard has another transactional id: nothing would fence a worker that still carries the
            # partition there.
            each.failed = Conflict(
                f"{_named(each.tp)}: it was mirrored in shard {found.shard} and would be in shard {self.shard} now:"
                " `shards` of the mirror was changed",
                hint="put `shards` back as it was; for another number pause the mirror and drop it with --delete-copies"
                " before the file is changed: it is mirrored anew",
                code="HUB-1616",
            )
            return True
        each.committed = found
        each.generation = found.generation
        each.source_start, each.target_start = found.source_start, found.target_start
        self._step_back(each)
        self._hold_to_rules(each, found)
        return True

    def _hold_to_rules(self, each: _Partition, mark: Checkpoint) -> None:
        """Stop the partition if its copy was made under other rules than today's; else the copy would mix two
        kinds.
        """
        now = self._rules.get(each.tp.topic, AS_THEY_ARE)
        then = in_force(self._ruled.get((each.tp.topic, mark.topic_id, each.tp.partition), ()))
        each.ruled = None
        if now.same_as(then):
            return
        if now.goes_on_from(then):
            each.ruled = self._ruled_from(each, mark.source_next, now)
            return
        if mark.source_next > mark.source_start:
            each.failed = Conflict(
                f"{_named(each.tp)}: offsets up to {mark.source_next - 1} were mirrored under other rules ({then}; now: {now})",
                hint="`hub mirror plan` says how to go on",
                code="HUB-1615",
            )
            return
        each.ruled = self._ruled_from(each, mark.source_next, now)

    def _ruled_from(self, each: _Partition, first: int, rules: FilterVersion) -> FilterPeriod:
        return FilterPeriod(self.link, *each.tp, each.topic_id, first, rules, int(time.time() * 1000))

    def _begin_fresh(self, fresh: Sequence[_Partition]) -> None:
        """Start partitions without a checkpoint: from the source's first record, into a target partition
        without records.
        """
        tps = [each.tp for each in fresh]
        if not tps:
            return
        first = self.source.offsets(tps, broker_client.EARLIEST)
        target_first, target_end = self.target.offsets(tps, broker_client.EARLIEST), self.target.offsets(tps)
        # Aborted records of a failed first transaction do not count as records.
        written = {tp for tp in tps if target_end[tp] > target_first[tp]}
        written = self._with_records({tp: (target_first[tp], target_end[tp]) for tp in written})
        for each in fresh:
            if each.tp in written:
                each.failed = Conflict(
                    f"{_named(each.tp)}: the target has records already, and no checkpoint of this mirror",
                    hint="what else writes there? Delete the target's topic to mirror it from the beginning",
                    code="HUB-1613",
                )
                continue
            each.committed = None
            each.source_start, each.target_start = first[each.tp], target_end[each.tp]
            each.generation = 0
            self._step_back(each)
            rules = self._rules.get(each.tp.topic)
            each.ruled = self._ruled_from(each, each.source_start, rules) if rules is not None else None

    def _hold_to_target(self, partitions: Sequence[_Partition]) -> None:
        """Stop partitions whose copy was truncated: appending would soon restore the length and hide the
        missing records.
        """
        led = [
            each
            for each in partitions
            if self.target.topics[each.tp.topic].leaders[each.tp.partition].node >= 0
        ]
        ends = self.target.offsets([each.tp for each in led])
        for each in led:
            if ends[each.tp] < each.target_next:
                each.failed = PeerError(
                    f"{_named(each.tp)}: {each.target_next} offsets were written at the target, but it ends at {ends[each.tp]}: "
                    "it lost records",
                    hint="drop the topic's copies and mirror it anew: `hub mirror drop`",
                    code="HUB-3607",
                )

    def _read_limits(self, partitions: Sequence[_Partition]) -> None:
        limits = self.target.largest_batches({each.tp.topic for each in partitions})
        for each in partitions:
            each.largest = limits.get(each.tp.topic, self.settings.limits.largest_bytes)

    # ---- reading the target

    def _read_checkpoints(self) -> dict[TopicPartition, Checkpoint]:
        tps = [
            TopicPartition(CHECKPOINTS_TOPIC, number)
            for number in self.target.topics[CHECKPOINTS_TOPIC].leaders
        ]
        starts, ends = self.target.offsets(tps, broker_client.EARLIEST), self.target.offsets(tps)
        mine: dict[tuple[int, bytes], Checkpoint] = {}
        rules: dict[tuple[int, bytes], FilterPeriod] = {}
        for record in self._read({tp: (starts[tp], ends[tp]) for tp in tps}):
            if is_ruled(record) and record.key is not None:
                ruled = ruled_of(record)
                if ruled is None:
                    rules.pop((record.partition, record.key), None)
                elif ruled.link == self.link:
                    rules[record.partition, record.key] = ruled
            elif record.key is not None and record.key.startswith(b"checkpoint|"):
                found = checkpoint_of(record)
                if found is None:  # tombstone, in this partition of the checkpoints topic
                    mine.pop((record.partition, record.key), None)
                elif isinstance(found, Checkpoint) and found.link == self.link:
                    mine[record.partition, record.key] = found
        self._ruled.clear()
        for each in rules.values():
            self._ruled.setdefault((each.topic, each.topic_id, each.partition), []).append(each)
        return {
            TopicPartition(topic, partition): found
            for (_, topic, partition), found in newest(mine.values()).items()
        }

    def _with_records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
        found: set[TopicPartition] = set()
        for record in self._read(ranges):
            found.add(record.topic_partition)
            if len(found) == len(ranges):
                break
        return found

    def _read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterable[Record]:
        """Yield the committed records of [start, end) of each partition of the target; waits until the
        transactions that are open there have ended. Raises PeerError after ``start_timeout_s`` without
        progress.
        """
        positions = {tp: start for tp, (start, end) in ranges.items() if start < end}
        deadline = self._clock() + self.settings.start_timeout_s
        while positions:
            if self._clock() > deadline:
                tp = min(positions)
                raise PeerError(
                    f"{_named(tp)} in the target: an open transaction holds back offset {positions[tp]}",
                    hint="a writer hangs: it ends when its transaction times out",
                    code="HUB-3604",
                )
            by_node: dict[int, list[FetchFrom]] = {}
            for tp, position in positions.items():
                leader = self.target.leader(tp)
                topic = self.target.topics[tp.topic]
                by_node.setdefault(leader.node, []).append(FetchFrom(tp, topic.uuid, leader.epoch, position))
            for node, wanted in by_node.items():
                connection = self.target.connection(node, "read")
                version = broker_client.send_fetch(
                    connection, wanted, max_wait_ms=100, max_bytes=16 << 20, partition_bytes=4 << 20
                )
                frame, at = connection.receive()
                code, parts = broker_client.fetched(frame, at, version, self.target.names())
                broker_client.raise_for(code, "read the target")
                for part in parts:
                    broker_client.raise_for(part.error, f"{_named(part.tp)} in the target: read")
                    before = positions[part.tp]
                    books, position = AbortedTransactions(part.aborted), before
                    for batch in batches_in(part.buffer, part.start, part.end):
                        aborted = books.covers(batch)
                        if not is_intact(batch):
                            raise CorruptBatch(
                                f"{_named(part.tp)} in the target, offset {batch.base_offset}: its checksum is wrong"
                            )
                        position = batch.next_offset
                        if aborted or batch.is_control:
                            continue
                        for raw in records_in(batch):
                            if raw.offset >= before:
                                key, value, _ = fields_of(raw.rest)
                                yield Record(*part.tp, raw.offset, raw.timestamp_ms, key, value)
                    if position > before:
                        deadline = self._clock() + self.settings.start_timeout_s
                    positions[part.tp] = position
                    if position >= ranges[part.tp][1]:
                        del positions[part.tp]

    # ---- step

    def step(self) -> int:
        """Carry at most one transaction and return the number of committed records. Waits at most
        ``fetch_wait_ms`` for records.

        Errors of the clusters are kept in ``error`` and the next step starts again, after a pause; only
        WriterFenced (and what ``start`` raises about the mirror's own topics) is raised.
        """
        if self.fenced:
            raise WriterFenced(f'transactional id "{self.transactional_id}": another worker has this shard')
        try:
            if not self._ready:
                self._pause()
                self.start()
            done = self._carry()
            self._restarts = 0
            return done
        except WriterFenced:
            self.fenced = True
            self._forget()
            raise
        except _BatchesRefused as refused:
            for each in refused.partitions:
                each.failed = broker_client.BrokerRefused(
                    f"{_named(each.tp)} in the target: {refused.error.message}",
                    hint=refused.error.hint,
                    kafka_code=refused.error.kafka_code,
                )
            self._start_over(refused.error)
        except (PeerError, broker_client.BrokerRefused) as error:
            self._start_over(error)
        return 0

    def _pause(self) -> None:
        wait = self._retry_at - self._clock()
        if wait > 0:
            time.sleep(min(wait, _RETRY_MOST_S))

    def _start_over(self, error: HubError) -> None:
        level = logging.INFO if isinstance(error, NotYet) else logging.WARNING
        log.log(level, "%s: %s; starting again from the checkpoints", self.transactional_id, error.message)
        self.error = error
        self._abandon()
        self._forget()
        pause = min(_RETRY_MOST_S, _RETRY_FIRST_S * 2 ** min(self._restarts, 10))
        self._restarts += 1
        self._retry_at = self._clock() + pause

    def _abandon(self) -> None:
        """Abort the open transaction immediately, so that the target's readers need not wait for
        its timeout.
        """
        if self._transaction is not None and self._transaction.added:
            with contextlib.suppress(HubError):
                self._transactions.end(self._producer, commit=False)
        self._transaction = None

    def _carry(self) -> int:
        settings = self.settings
        deadline = self._clock() + settings.fetch_wait_ms / 1000
        while True:
            self._send_fetches()
            now = self._clock()
            open_one = self._transaction
            until = deadline if open_one is None else open_one.begun_at + settings.commit_interval_s
            self._receive_fetches(max(0.0, until - now))
            self._release()
            self._recycle()
            open_one = self._transaction
            now = self._clock()
            if open_one is None:
                if now >= deadline:
                    return self._commit() if self._dirty else 0
                continue
            if (
                open_one.records >= settings.commit_records
                or open_one.bytes >= settings.commit_bytes
                or now >= open_one.begun_at + settings.commit_interval_s
            ):
                return self._commit()

    # ---- fetching

    def _send_fetches(self) -> None:
        """Keep one fetch per broker in flight, for all of its partitions that can continue."""
        now = self._clock()
        if self._refresh_at is not None and now >= self._refresh_at:
            self._refresh_at = None
            self._refresh_source()
        due: list[tuple[_Partition, broker_client.Leader]] = []
        for each in self._partitions.values():
            if each.failed is not None:
                continue
            try:
                leader = self.source.leader(each.tp)
            except broker_client.BrokerBusy:
                self._refresh_soon()
                continue
            if leader.node in self._fetching or now < self._source_retry_at.get(leader.node, 0.0):
                continue
            due.append((each, leader))
        if led_anew := [(each, leader) for each, leader in due if each.same_to != leader.epoch]:
            self._compare(led_anew)
        by_node: dict[int, list[FetchFrom]] = {}
        for each, leader in due:
            if each.same_to == leader.epoch:
                identity = self.source.topics[each.tp.topic].uuid
                by_node.setdefault(leader.node, []).append(
                    FetchFrom(each.tp, identity, leader.epoch, each.position)
                )
        self._turn += 1
        for node, wanted in by_node.items():
            # A broker fills its answer in the order of the request (KIP-74). Each request starts with another
            # partition; otherwise a partition with much to catch up takes the whole answer and the others get
            # nothing.
            first = self._turn % len(wanted)
            wanted = wanted[first:] + wanted[:first]
            try:
                connection = self.source.connection(node, "fetch")
                version = broker_client.send_fetch(
                    connection,
                    wanted,
                    max_wait_ms=self.settings.fetch_wait_ms,
                    max_bytes=self.settings.fetch_bytes,
                    partition_bytes=self.settings.fetch_partition_bytes,
                )
            except HubError as error:
                self._source_failed(node, error)
                continue
            until = now + self.settings.fetch_wait_ms / 1000 + self.source.patience.seconds
            places = {each.tp: (each.position, each.leader_epoch) for each in wanted}
            self._fetching[node] = _FetchRequest(connection, version, places, until)

    def _compare(self, led_anew: Sequence[tuple[_Partition, broker_client.Leader]]) -> None:
        """Check that the log of a new leader contains the batch before the position (KIP-320). Offsets alone
        do not prove it: after an unclean election a log may have lost records and have others in their place
        when it is checked.
        """
        by_node: dict[int, list[tuple[_Partition, broker_client.Leader]]] = {}
        for each, leader in led_anew:
            if each.position_epoch < 0 or leader.epoch < 0:
                each.same_to = leader.epoch  # no epoch to compare
            else:
                by_node.setdefault(leader.node, []).append((each, leader))
        for node, those in by_node.items():
            try:
                ends = self.source.epoch_ends(node, {each.tp: each.position_epoch for each, _ in those})
                for each, leader in those:
                    self._compared(each, leader, ends.get(each.tp))
            except HubError as error:
                self._source_failed(node, error)

    def _compared(
        self, each: _Partition, leader: broker_client.Leader, end: broker_client.EpochEnd | HubError | None
    ) -> None:
        if isinstance(end, broker_client.BrokerRefused):
            each.failed = end
        elif end is None or isinstance(end, HubError):  # not the leader any more
            self._refresh_soon()
        elif self._is_ours(each, leader, end):
            each.same_to = leader.epoch
        else:
            each.failed = _lost_records(each, end)

    def _is_ours(self, each: _Partition, leader: broker_client.Leader, end: broker_client.EpochEnd) -> bool:
        if end.offset < each.position or end.epoch == each.position_epoch:
            return end.offset >= each.position
        # Our epoch has no batch there, and an older epoch ends after the position: compaction removed all of
        # our epoch before this replica was filled, or the replica led before that epoch and never had it. The
        # batch before the position decides, if there is one.
        part = self._glance(each, leader, each.position - 1)
        if part.error == broker_client.OFFSET_OUT_OF_RANGE:
            return True  # removed by retention; the fetch finds out whether that was too early
        broker_client.raise_for(part.error, f"{_named(each.tp)} in the source: look back")
        batch = next(batches_in(part.buffer, part.start, part.end), None)
        return (
            batch is None or batch.base_offset >= each.position or batch.leader_epoch == each.position_epoch
        )

    def _glance(self, each: _Partition, leader: broker_client.Leader, at: int) -> Fetched:
        """Fetch from an offset on, uncommitted records included. Raises as ``raise_for`` does, except for
        errors of the partition.
        """
        size = self.settings.fetch_partition_bytes
        connection = self.source.connection(leader.node, "peek")
        version = broker_client.send_fetch(
            connection,
            [FetchFrom(each.tp, self.source.topics[each.tp.topic].uuid, leader.epoch, at)],
            max_wait_ms=0,
            max_bytes=size,
            partition_bytes=size,
            isolation=broker_client.READ_UNCOMMITTED,
        )
        frame, begins = connection.receive()
        code, (part,) = broker_client.fetched(frame, begins, version, self.source.names())
        broker_client.raise_for(code, f"{_named(each.tp)} in the source: look")
        return part

    def _receive_fetches(self, wait_s: float) -> None:
        """Process the answers that have arrived; wait up to ``wait_s`` for the first."""
        self._give_up_fetches()
        if not self._fetching:
            time.sleep(min(wait_s, 0.05))
            return
        poll = select.poll()
        by_file: dict[int, int] = {}
        ready = []
        for node, (connection, *_) in self._fetching.items():
            if connection.buffered():
                ready.append(node)
            by_file[connection.fileno()] = node
            poll.register(connection.fileno(), select.POLLIN)
        if not ready:
            ready = [by_file[file] for file, _ in poll.poll(int(wait_s * 1000))]
        for node in ready:
            connection, version, asked, _ = self._fetching.pop(node)
            try:
                frame, at = connection.receive(spare=self._spare.pop() if self._spare else None)
                self._frames.append(frame)
                code, parts = broker_client.fetched(frame, at, version, self.source.names())
                broker_client.raise_for(code, "fetch")
            except HubError as error:
                connection.close()
                self._source_failed(node, error)
                continue
            self._source_failures = 0
            self.error = None
            # The next request starts after the partitions of this answer: where many have much to catch up,
            # an answer has room for a few.
            self._turn += max(0, sum(part.end > part.start for part in parts) - 1)
            for part in parts:
                each = self._partitions.get(part.tp)
                if each is None or each.failed is not None:
                    continue
                # Under an earlier leader the same position may have preceded other records.
                if asked.get(part.tp) == (each.position, each.same_to):
                    self._take(each, part)
        # Fetch the next batches while these are written.
        self._send_fetches()

    def _give_up_fetches(self) -> None:
        """Drop fetches past their deadline. A half-open connection gives neither an answer nor an error, and
        a mirror that had caught up shows no lag.
        """
        now = self._clock()
        for node, asked in [each for each in self._fetching.items() if now > each[1].until]:
            del self._fetching[node]
            asked.connection.close()
            self.source.patience.exceeded()
            self._source_failed(
                node, broker_client.ConnectionLost(f"broker {asked.connection.where} does not answer")
            )

    def _take(self, each: _Partition, part: Fetched) -> None:
        if part.error:
            self._fetch_failed(each, part)
            return
        each.source_end, each.stable_end = part.high_watermark, part.last_stable
        each.heard_at_ms = int(time.time() * 1000)
        if part.end == part.start:
            return
        floor = each.position
        limits = self.settings.limits
        if limits.largest_bytes != each.largest:
            limits = BatchLimits(limits.tiny_records, limits.tiny_bytes, limits.merged_bytes, each.largest)
        foreign = self._foreign.get(each.tp, ())
        anew = each.tp.topic in self._shapers
        answer = answer_of(
            part.buffer,
            part.start,
            part.end,
            floor,
            part.aborted,
            limits,
            foreign,
            anew,
            lambda batch: may_unpack_to_more(batch, self.settings.bounds.record_bytes),
        )
        for piece in answer.pieces:
            last = piece.batches[-1]
            staged = _StagedPiece(
                piece,
                floor,
                last.next_offset,
                last.leader_epoch,
                last.max_timestamp,
                transactions_of(piece.batches),
            )
            each.staged.append(staged)
        each.new_left_out += answer.left_out
        if answer.next_offset > each.position:
            each.position, each.position_epoch = answer.next_offset, answer.end_leader_epoch
            self._dirty = True
        if answer.corrupt is not None and not answer.pieces:
            if each.corrupt_at == each.position:
                each.failed = CorruptBatch(
                    f"{_named(each.tp)} in the source, {answer.corrupt.message}",
                    hint="the source's disk or memory damaged it; what another replica has may be whole: "
                    "move the leadership, then start the mirror again",
                )
            each.corrupt_at = each.position

    def _fetch_failed(self, each: _Partition, part: Fetched) -> None:
        if part.error == broker_client.OFFSET_OUT_OF_RANGE:
            self._out_of_range(each)
        elif part.error in _RECREATED_CODES or part.error in _MOVED_CODES:
            self._refresh_soon()
        else:
            error = broker_client.translated(part.error, f"{_named(each.tp)} in the source: fetch")
            if isinstance(error, broker_client.BrokerRefused):
                each.failed = error
            else:
                self._refresh_soon()

    def _out_of_range(self, each: _Partition) -> None:
        """Handle a position that the source does not have (any more): report a gap or stop the partition,
        never skip silently.
        """
        try:
            first = self.source.offsets([each.tp], broker_client.EARLIEST)[each.tp]
            end = self.source.offsets([each.tp])[each.tp]
        except HubError:
            self._refresh_soon()
            return
        each.source_end, each.heard_at_ms = end, int(time.time() * 1000)
        if first <= each.position <= end:
            return
        if each.position < first and self.settings.on_gap == "continue":
            now_ms = int(time.time() * 1000)
            each.gaps.append(
                Gap(self.link, *each.tp, each.topic_id, each.position, first, "retention", now_ms)
            )
            log.warning("%s: offsets %d to %d are gone", _named(each.tp), each.position, first - 1)
            each.position, each.position_epoch = first, -1
            self._dirty = True
            return
        if each.position < first:
            each.failed = PeerError(
                f"{_named(each.tp)}: the source has deleted offsets {each.position} to {first - 1} "
                "before they were mirrored",
                hint="to go on without them set `on_gap: continue`; to avoid it keep records longer in the source",
                code="HUB-3605",
            )
        else:
            each.failed = _lost_records(each, broker_client.EpochEnd(-1, end))

    def _refresh_soon(self) -> None:
        if self._refresh_at is None:
            self._refresh_at = self._clock() + 0.1

    def _refresh_source(self) -> None:
        try:
            refused = self.source.refresh(self._of_source)
        except HubError as error:
            self.error = error
            self._refresh_soon()
            return
        for each in self._partitions.values():
            if each.failed is not None:
                continue
            topic = self.source.topics.get(each.tp.topic)
            missing = refused.get(each.tp.topic)
            if (
                topic is None
                and isinstance(missing, broker_client.BrokerBusy)
                and missing.kafka_code == broker_client.UNKNOWN_TOPIC
            ):
                each.failed = NotFound(
                    f"{_named(each.tp)} was deleted in the source cluster", code="HUB-1611"
                )
            elif topic is not None and topic.topic_id != each.topic_id:
                each.failed = Conflict(
                    f"{_named(each.tp)}: the topic was deleted and made again in the source cluster",
                    hint="decide what its mirror shall hold: delete the topic at the target to mirror it anew",
                    code="HUB-1612",
                )

    def _source_failed(self, node: int, error: HubError) -> None:
        """Record a failure of the source and schedule a retry. The target's transaction is kept: fetched
        records can be committed.
        """
        self.error = error
        pause = min(_RETRY_MOST_S, _RETRY_FIRST_S * 2 ** min(self._source_failures, 10))
        self._source_failures += 1
        self._source_retry_at[node] = self._clock() + pause
        self._refresh_soon()

    # ---- producing

    def _release(self) -> None:
        """Write the pieces that may be written now, in rounds of one batch per partition and request."""
        waiting = [each for each in self._partitions.values() if each.staged and each.failed is None]
        if not waiting:
            return
        counts = self._cut(waiting)
        ready = {each.tp: self._payloads(each, counts[each.tp]) for each in waiting}
        ready = {tp: payloads for tp, payloads in ready.items() if payloads}
        if not ready:
            return
        self._add(ready)
        nodes = {tp: self.target.leader(tp).node for tp in ready}
        while ready:
            by_node: dict[int, list[tuple[TopicPartition, memoryview]]] = {}
            sent: dict[int, dict[TopicPartition, _SentBatch]] = {}
            sizes: dict[int, int] = {}
            for tp in list(ready):
                payload, about = ready[tp].popleft()
                if not ready[tp]:
                    del ready[tp]
                node = nodes[tp]
                if sizes.get(node, 0) + len(payload) > _REQUEST_BYTES and node in by_node:
                    self._produce(node, by_node.pop(node), sent.pop(node))
                    sizes[node] = 0
                by_node.setdefault(node, []).append((tp, payload))
                sent.setdefault(node, {})[tp] = about
                sizes[node] = sizes.get(node, 0) + len(payload)
            for node, batches in by_node.items():
                self._produce(node, batches, sent[node])

    def _recycle(self) -> None:
        """Reuse the buffers of answers once no staged piece refers to them. While some pieces are held back,
        their buffers are freed one by one with them.
        """
        if self._frames and not any(each.staged for each in self._partitions.values()):
            self._spare = self._frames
        self._frames = []

    def _cut(self, waiting: Sequence[_Partition]) -> dict[TopicPartition, int]:
        """Count the staged pieces of each partition that may be written now: whole source transactions,
        within the hold limits.
        """
        everything = {each.tp: len(each.staged) for each in waiting}
        if not any(staged.transactions for each in waiting for staged in each.staged):
            self._held_at = None
            return everything
        live = [each for each in self._partitions.values() if each.failed is None]
        behind = any(each.stable_end - each.position > self.settings.hold_lag for each in live)
        size = sum(staged.piece.size for each in waiting for staged in each.staged)
        now = self._clock()
        held_at = now if self._held_at is None else self._held_at
        if (
            len(live) < 2
            or behind
            or size > self.settings.hold_bytes
            or now - held_at >= self.settings.hold_s
        ):
            self._held_at = None
            return everything
        seen = self._look(live) if now - self._looked_at >= _LOOK_EVERY_S else None
        if seen is None:
            counts = {
                tp: _first([bool(staged.transactions) for staged in self._partitions[tp].staged])
                for tp in everything
            }
        else:
            counts = releasable(seen)
        self._held_at = None if all(counts[tp] == count for tp, count in everything.items()) else held_at
        return counts

    def _look(self, live: Sequence[_Partition]) -> dict[TopicPartition, ReleaseState] | None:
        """Read which transactions have batches at the source beyond those that were fetched. None when the
        source does not answer now.
        """
        try:
            ends = self.source.offsets([each.tp for each in live])
            seen = {}
            for each in live:
                whole = self._peek(each, ends[each.tp])
                staged = [one.transactions for one in each.staged]
                seen[each.tp] = ReleaseState(staged, frozenset(each.peeked), whole)
        except HubError as error:
            self.error = error
            self._refresh_soon()
            return None
        finally:
            self._looked_at = self._clock()
        return seen

    def _peek(self, each: _Partition, end: int) -> bool:
        """Inspect batch headers from the position up to ``end``, in at most ``_PEEKS`` fetches; return
        whether all were inspected.
        """
        each.peeked = {txn: last for txn, last in each.peeked.items() if last >= each.position}
        at = max(each.position, each.peeked_to)
        leader = self.source.leader(each.tp)
        for _ in range(_PEEKS):
            if at >= end:
                break
            part = self._glance(each, leader, at)
            broker_client.raise_for(part.error, f"{_named(each.tp)} in the source: look ahead")
            before = at
            for batch in batches_in(part.buffer, part.start, part.end):
                at = batch.next_offset
                if batch.is_transactional and not batch.is_control:
                    each.peeked[batch.producer_id, batch.producer_epoch] = batch.last_offset
            if at == before:
                break
        each.peeked_to = at
        return at >= end

    def _payloads(self, each: _Partition, count: int) -> deque[tuple[memoryview, _SentBatch]]:
        """Take the first ``count`` staged pieces as batches of this producer, in order."""
        payloads: deque[tuple[memoryview, _SentBatch]] = deque()
        producer = self._producer
        for _ in range(count):
            piece, floor, after, leader_epoch, timestamp_ms, _ = each.staged[0]
            if piece.rewrite:
                made = self._rewritten(each, piece, floor)
                if made is None:
                    return payloads
                for new in made:
                    view = patch(patched(new.payload), *producer, each.sequence)
                    each.sequence = next_sequence(each.sequence, new.count)
                    payloads.append((view, _SentBatch(each, new.runs, new.count)))
                    self._count(each, new.count, len(view))
                each.new_rewritten += len(piece.batches)
            else:
                batch = piece.batches[0]
                view = patch(batch, *producer, each.sequence)
                each.sequence = next_sequence(each.sequence, batch.count)
                run = Run(batch.base_offset, 0, batch.count)
                payloads.append((view, _SentBatch(each, (run,), batch.count)))
                self._count(each, batch.count, len(view))
                each.new_passed += 1
            each.carried, each.leader_epoch, each.timestamp_ms = after, leader_epoch, timestamp_ms
            each.staged.popleft()
        return payloads

    def _rewritten(self, each: _Partition, piece: BatchPiece, floor: int) -> list[NewBatch] | None:
        shaper = self._shapers.get(each.tp.topic)
        batches = self._without_unread(each, piece.batches)
        if not batches:
            return []
        try:
            made = (shaper or self._reencoder).reencode(batches, floor, each.largest)
        except (CorruptBatch, RecordTooLarge, RulesNotApplicable) as error:
            each.failed = type(error)(f"{_named(each.tp)} in the source, {error.message}", hint=error.hint)
            each.staged.clear()
            return None
        now_ms = int(time.time() * 1000)
        for first, end in stretches(shaper.unreadable if shaper is not None else ()):
            each.gaps.append(Gap(self.link, *each.tp, each.topic_id, first, end, "skipped", now_ms))
        return made

    def _without_unread(self, each: _Partition, batches: list[RecordBatch]) -> list[RecordBatch]:
        """Return the batches that may be unpacked. The others cannot be filtered or rewritten: they are left
        out and recorded as gaps.
        """
        kept: list[RecordBatch] = []
        for batch in batches:
            why = unread_reason(batch, self.settings.bounds)
            if why is None:
                kept.append(batch)
                continue
            first, end = batch.base_offset, batch.next_offset
            log.error("%s: offsets [%d, %d) are left out: %s", _named(each.tp), first, end, why)
            now_ms = int(time.time() * 1000)
            each.gaps.append(Gap(self.link, *each.tp, each.topic_id, first, end, "skipped", now_ms))
        return kept

    def _count(self, each: _Partition, records: int, size: int) -> None:
        transaction = self._open()
        transaction.records += records
        transaction.bytes += size
        each.new_records += records
        each.new_bytes += size

    def _open(self) -> _Transaction:
        if self._transaction is None:
            self._transaction = _Transaction(self._clock())
        return self._transaction

    def _add(self, tps: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before anything is written; the checkpoint and map partitions
        come with the first.
        """
        transaction = self._open()
        new = {*tps, self._own(CHECKPOINTS_TOPIC), self._own(MAP_TOPIC)} - transaction.added
        if new:
            before = frozenset(transaction.added)
            transaction.added |= new  # before the answer: a partition with an unknown result is aborted, too
            try:
                self._transactions.add(self._producer, sorted(new))
            except broker_client.PartitionsRefused as refused:
                mine = [self._partitions[tp] for tp in refused.places if tp in self._partitions]
                if not mine:  # the mirror's own topics: no record can be carried
                    raise
                transaction.added = set(before)
                raise _BatchesRefused(mine, refused) from None

    def _own(self, topic: str) -> TopicPartition:
        count = len(self.target.topics[topic].leaders)
        return TopicPartition(topic, checkpoint_partition(self.link, self.shard, count))

    def _produce(
        self,
        node: int,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        sent: dict[TopicPartition, _SentBatch],
    ) -> None:
        while len(self._acknowledging) >= self.settings.requests_in_flight:
            self._acknowledge()
        connection = self.target.connection(node, "produce")
        broker_client.send_produce(
            connection, self.transactional_id, batches, self.settings.transaction_timeout_s
        )
        self._acknowledging.append((connection, broker_client.produce_version(connection), sent))

    def _acknowledge(self) -> None:
        connection, version, sent = self._acknowledging.popleft()
        frame, at = connection.receive()
        for tp, code, base_offset, message in broker_client.produced(frame, at, version):
            about = sent.pop(tp)
            error = broker_client.translated(code, "produce", message)
            if isinstance(error, broker_client.BrokerRefused) and about.partition is not None:
                raise _BatchesRefused([about.partition], error)
            if error is not None:
                broker_client.raise_for(code, f"{_named(tp)} in the target: produce", message)
            if about.partition is not None:
                for run in about.runs:
                    about.partition.mapped(Run(run.source, base_offset + run.target, run.count))
                about.partition.target_next = base_offset + about.count
        if sent:
            raise broker_client.TransactionLost(f"{_named(next(iter(sent)))} in the target: no answer for it")

    # ---- committing

    def _commit(self) -> int:
        """Write map and checkpoint of every partition that moved, then end the transaction; return the
        committed records.
        """
        while self._acknowledging:
            self._acknowledge()
        now_ms = int(time.time() * 1000)
        checkpoints: dict[TopicPartition, Checkpoint] = {}
        place, map_place = self._own(CHECKPOINTS_TOPIC), self._own(MAP_TOPIC)
        records, maps = [], []
        for each in self._partitions.values():
            if not each.staged and each.failed is None:
                # Batches left out at the end count as carried.
                each.carried, each.leader_epoch = each.position, each.position_epoch
            before = each.committed.source_next if each.committed is not None else -1
            if each.carried == before or (each.committed is None and each.carried == each.source_start):
                continue
            checkpoint = self._checkpoint(each, now_ms)
            checkpoints[each.tp] = checkpoint
            records.append(checkpoint.record(place.partition))
            records += [gap.record(place.partition) for gap in each.gaps]
            if each.ruled is not None:
                records.append(each.ruled.record(place.partition))
            if each.runs:
                found = MapRecord(
                    self.link, each.tp.topic, each.topic_id, each.tp.partition, tuple(each.runs)
                )
                maps.append(found.record(map_place.partition))
        self._dirty = False
        if not records:
            self._end_empty()
            return 0
        self._add([])
        for tp, own in ((place, records), (map_place, maps)):
            if own:
                made = batch_of_new(own, now_ms)
                sequence = self._own_sequences.get(tp, 0)
                view = patch(patched(made.payload), *self._producer, sequence)
                self._own_sequences[tp] = next_sequence(sequence, made.count)
                self._produce(
                    self.target.leader(tp).node, [(tp, view)], {tp: _SentBatch(None, (), made.count)}
                )
        schemas_to = self._schemas_end()
        while self._acknowledging:
            self._acknowledge()
        if self._schemas_first is not None:
            self._schemas_first(schemas_to)
        self._transactions.end(self._producer, commit=True)
        done = 0
        self._transaction = None
        for each in self._partitions.values():
            if each.tp in checkpoints:
                done += self._committed(each, checkpoints[each.tp])
        return done

    def _schemas_end(self) -> int:
        """Return the end of the source's schema log, or -1. Called while the target writes, after every
        record to commit was fetched.
        """
        if self._schemas_first is None:
            return -1
        return self.source.offsets([SCHEMAS_LOG], isolation=broker_client.READ_COMMITTED)[SCHEMAS_LOG]

    def _end_empty(self) -> None:
        if self._transaction is not None and self._transaction.added:
            self._transactions.end(self._producer, commit=False)
        self._transaction = None

    def _checkpoint(self, each: _Partition, now_ms: int) -> Checkpoint:
        return Checkpoint(
            link=self.link,
            shard=self.shard,
            topic=each.tp.topic,
            partition=each.tp.partition,
            topic_id=each.topic_id,
            source_next=each.carried,
            source_leader_epoch=each.leader_epoch,
            target_next=each.target_next,
            target_topic_id=each.target_topic_id,
            generation=each.generation,
            source_start=each.source_start,
            target_start=each.target_start,
            source_timestamp_ms=each.timestamp_ms,
            committed_at_ms=now_ms,
            engine="record" if each.tp.topic in self._shapers else "batch",
        )

    @staticmethod
    def _committed(each: _Partition, checkpoint: Checkpoint) -> int:
        each.committed = checkpoint
        each.runs.clear()
        each.gaps.clear()
        each.ruled = None
        done = each.new_records
        each.records += done
        each.bytes += each.new_bytes
        each.passed += each.new_passed
        each.rewritten += each.new_rewritten
        each.left_out += each.new_left_out
        each.new_records = each.new_bytes = each.new_passed = each.new_rewritten = each.new_left_out = 0
        return done


def _lost_records(each: _Partition, end: broker_client.EpochEnd) -> PeerError:
    at = each.position
    what = (
        f"but of that the source has only what is before {end.offset}"
        if 0 <= end.offset < at
        else "but the source has another log by now"
    )
    return PeerError(
        f"{_named(each.tp)}: mirrored up to {at}, {what}: it lost records",
        hint="the target has records that the source lost: fail over to it, or mirror the topic anew",
        code="HUB-3606",
    )


def _first(flags: Sequence[bool]) -> int:
    """Return the index of the first true flag, or the number of flags."""
    return flags.index(True) if True in flags else len(flags)


def _named(tp: TopicPartition) -> str:
    return f'topic "{tp.topic}" partition {tp.partition}'
