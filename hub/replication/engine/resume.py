"""[shell] Start of an engine: from the checkpoints at the target to a position for each partition.

The shard must be fenced before: only then no other worker writes, and the checkpoints up to the end offset
that is asked for after that are the last ones. ``decide_resume`` and ``decide_fresh`` are pure; a partition
that must not go on is stopped by them and named in the progress, the others start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    UNKNOWN_TOPIC,
    BrokerBusy,
    BrokerRefused,
    Fetched,
    FetchFrom,
    raise_for,
)
from hub.kafka.protocol.record_batch import AbortedTransactions, CorruptBatch, batches_in, is_intact
from hub.record import Record, TopicPartition
from hub.replication.engine.connection.port import EngineClock, EngineConnection, FetchLimits
from hub.replication.engine.cursor import KEEP_COPY, named
from hub.replication.engine.shard_state import PartitionState, ShardState
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, MAP_TOPIC, Checkpoint, checkpoint_of, newest
from hub.replication.rewriting.filter_history import (
    AS_THEY_ARE,
    FilterPeriod,
    FilterVersion,
    in_force,
    is_ruled,
    ruled_of,
)
from hub.replication.rewriting.reencode import fields_of, records_in

_LIMITS = FetchLimits(100, 16 << 20, 4 << 20)
Ranges = Mapping[TopicPartition, tuple[int, int]]


# ---- decisions


@dataclass(frozen=True, slots=True)
class Resumed:
    """The partition continues from its checkpoint. ``new_rules``: its next records are the first that are
    made
    under today's rules.
    """

    new_rules: bool = False


def decide_resume(
    mark: Checkpoint, topic_id: str, target_topic_id: str, shard: int, now: FilterVersion, then: FilterVersion
) -> Resumed | Conflict:
    """Return whether a partition may continue from its checkpoint, or why not. ``now`` and ``then``: today's
    rules, and those of the newest mirrored records: a copy must not mix two kinds of records.
    """
    what = named(TopicPartition(mark.topic, mark.partition))
    for was, is_now, where in (
        (mark.topic_id, topic_id, "source"),
        (mark.target_topic_id, target_topic_id, "target"),
    ):
        if was and is_now and was != is_now:
            return Conflict(
                f"{what}: the topic was deleted and made again in the {where} cluster "
                f"(id {was} when last mirrored, now {is_now})",
                hint=KEEP_COPY,
                code="HUB-1612",
            )
    if mark.shard != shard:
        # That shard has another transactional id: nothing would fence a worker that still carries the
        # partition there.
        return Conflict(
            f"{what}: it was mirrored in shard {mark.shard} and would now be in shard {shard}: `shards` of "
            f"the mirror was changed",
            hint="put `shards` back as it was; for another number pause the mirror and drop it with "
            "--delete-copies before the file is changed: it is mirrored again",
            code="HUB-1616",
        )
    if now.same_as(then):
        return Resumed()
    if now.goes_on_from(then) or mark.source_next <= mark.source_start:
        return Resumed(new_rules=True)
    return Conflict(
        f"{what}: offsets up to {mark.source_next - 1} were mirrored under other rules ({then}; now: {now})",
        hint="`hub mirror plan` shows how to continue",
        code="HUB-1615",
    )


def decide_fresh(tp: TopicPartition, target_has_records: bool) -> Conflict | None:
    """Return why a partition without a checkpoint must not start; None when it starts at the first record."""
    if not target_has_records:
        return None
    return Conflict(
        f"{named(tp)}: the target has records already, and no checkpoint of this mirror",
        hint="they may exist nowhere else: keep them. If applications wrote them since a failover, the mirror"
        " never read this topic: copy the source's records by hand. Else find their writer and copy them to"
        " another topic, or exclude this topic from the mirror",
        code="HUB-1613",
    )


def decide_target(tp: TopicPartition, written_to: int, end: int) -> PeerError | None:
    """Return why a copy that ends at ``end`` must not be appended to; None when it is whole. Appending would
    soon restore the length and hide the missing records.
    """
    if end >= written_to:
        return None
    return PeerError(
        f"{named(tp)}: {written_to} offsets were written at the target, but it ends at "
        f"{end}: it lost records",
        hint="`hub mirror verify` names the records that both sides have; copy what only the target has"
        " before its copy is dropped and mirrored again",
        code="HUB-3607",
    )


def decide_missing(tp: TopicPartition, cluster: str, refused: HubError | None) -> HubError:
    """Return the error of a partition that a cluster does not show. Raises it if it is temporary."""
    if isinstance(refused, BrokerBusy) and refused.kafka_code != UNKNOWN_TOPIC:
        raise refused
    if isinstance(refused, BrokerRefused):
        return refused
    return NotFound(
        f"{named(tp)} does not exist in the {cluster} cluster",
        hint="`hub mirror plan` shows what is missing",
        code="HUB-1611",
    )


# ---- the start


class Resumption:
    """Start of one shard's partitions. ``rules``: today's, by topic."""

    def __init__(
        self,
        source: EngineConnection,
        target: EngineConnection,
        shard: ShardState,
        source_topics: frozenset[str],
        rules: Mapping[str, FilterVersion],
        clock: EngineClock,
    ) -> None:
        self.source, self.target, self.shard = source, target, shard
        self._source_topics, self._rules, self._clock = source_topics, rules, clock
        self._periods: dict[tuple[str, str, int], list[FilterPeriod]] = {}

    def read_metadata(self) -> None:
        """Read the topics of both sides. Raises NotFound for the mirror's own topics."""
        refused_source = self.source.refresh(self._source_topics)
        topics = {CHECKPOINTS_TOPIC, MAP_TOPIC, *(tp.topic for tp in self.shard.partitions)}
        refused_target = self.target.refresh(topics)
        for name in (CHECKPOINTS_TOPIC, MAP_TOPIC):
            if name not in self.target.topics:
                raise NotFound(
                    f'topic "{name}" is not in the target cluster: {refused_target[name].message}',
                    hint="`hub mirror apply` makes the topics of a mirror",
                    code="HUB-1611",
                )
        for each in self.shard.live():
            for cluster, refused in ((self.source, refused_source), (self.target, refused_target)):
                topic = cluster.topics.get(each.tp.topic)
                if topic is None or each.tp.partition not in topic.leaders:
                    each.stop(decide_missing(each.tp, cluster.name, refused.get(each.tp.topic)))
            if each.failed is None:
                each.topic_id = self.source.topics[each.tp.topic].topic_id
                each.target_topic_id = self.target.topics[each.tp.topic].topic_id

    def resume(self) -> None:
        """Give every partition its position, or the reason why it stops. The shard is fenced."""
        checkpoints = self._read_checkpoints()
        live = self.shard.live()
        fresh = [each for each in live if not self._resume(each, checkpoints.get(each.tp))]
        self._begin_fresh(fresh)
        self._check_target([each for each in live if each.committed is not None and each.failed is None])
        limits = self.target.largest_batches({each.tp.topic for each in self.shard.live()})
        for each in self.shard.live():
            each.largest = limits.get(each.tp.topic, self.shard.settings.limits.largest_bytes)

    def _resume(self, each: PartitionState, checkpoint: Checkpoint | None) -> bool:
        """Restore the partition from its checkpoint; return whether there is one (also when it forbids to
        continue).
        """
        if checkpoint is None:
            return False
        now = self._rules.get(each.tp.topic, AS_THEY_ARE)
        then = in_force(self._periods.get((each.tp.topic, checkpoint.topic_id, each.tp.partition), ()))
        decided = decide_resume(
            checkpoint, each.topic_id, each.target_topic_id, self.shard.shard.number, now, then
        )
        if isinstance(decided, Conflict):
            each.stop(decided)
            return True
        each.committed = checkpoint
        each.generation = checkpoint.generation
        each.source_start, each.target_start = checkpoint.source_start, checkpoint.target_start
        each.step_back()
        each.period = self._period(each, checkpoint.source_next, now) if decided.new_rules else None
        return True

    def _period(self, each: PartitionState, first: int, rules: FilterVersion) -> FilterPeriod:
        now_ms = self._clock.epoch_ms()
        return FilterPeriod(self.shard.shard.link, *each.tp, each.topic_id, first, rules, now_ms)

    def _begin_fresh(self, fresh: Sequence[PartitionState]) -> None:
        """Start partitions without a checkpoint: from the source's first record, into a target partition
        without records.
        """
        tps = [each.tp for each in fresh]
        if not tps:
            return
        first = self.source.offsets(tps, EARLIEST)
        target_first, target_end = self.target.offsets(tps, EARLIEST), self.target.offsets(tps)
        # Aborted records of a failed first transaction do not count as records.
        written = {tp: (target_first[tp], target_end[tp]) for tp in tps if target_end[tp] > target_first[tp]}
        with_records = self._with_records(written)
        for each in fresh:
            if (error := decide_fresh(each.tp, each.tp in with_records)) is not None:
                each.stop(error)
                continue
            each.committed = None
            each.source_start, each.target_start = first[each.tp], target_end[each.tp]
            each.generation = 0
            each.step_back()
            rules = self._rules.get(each.tp.topic)
            each.period = self._period(each, each.source_start, rules) if rules is not None else None

    def _check_target(self, partitions: Sequence[PartitionState]) -> None:
        led = [
            each
            for each in partitions
            if self.target.topics[each.tp.topic].leaders[each.tp.partition].node >= 0
        ]
        ends = self.target.offsets([each.tp for each in led])
        for each in led:
            error = decide_target(each.tp, each.uncommitted.target_next, ends[each.tp])
            if error is not None:
                each.stop(error)

    # ---- reading the target

    def _read_checkpoints(self) -> dict[TopicPartition, Checkpoint]:
        link = self.shard.shard.link
        tps = [
            TopicPartition(CHECKPOINTS_TOPIC, number)
            for number in self.target.topics[CHECKPOINTS_TOPIC].leaders
        ]
        starts, ends = self.target.offsets(tps, EARLIEST), self.target.offsets(tps)
        mine: dict[tuple[int, bytes], Checkpoint] = {}
        periods: dict[tuple[int, bytes], FilterPeriod] = {}
        for record in self._read({tp: (starts[tp], ends[tp]) for tp in tps}):
            if record.key is None:
                continue
            place = record.partition, record.key
            if is_ruled(record):
                period = ruled_of(record)
                if period is None:
                    periods.pop(place, None)
                elif period.link == link:
                    periods[place] = period
            elif record.key.startswith(b"checkpoint|"):
                found = checkpoint_of(record)
                if found is None:  # tombstone, in this partition of the checkpoints topic
                    mine.pop(place, None)
                elif isinstance(found, Checkpoint) and found.link == link:
                    mine[place] = found
        self._periods.clear()
        for each in periods.values():
            self._periods.setdefault((each.topic, each.topic_id, each.partition), []).append(each)
        marks = newest(mine.values())
        return {TopicPartition(topic, number): mark for (_, topic, number), mark in marks.items()}

    def _with_records(self, ranges: Ranges) -> set[TopicPartition]:
        topic_partitions: set[TopicPartition] = set()
        for record in self._read(ranges):
            topic_partitions.add(record.topic_partition)
            if len(topic_partitions) == len(ranges):
                break
        return topic_partitions

    def _read(self, ranges: Ranges) -> Iterator[Record]:
        """Yield the committed records of [start, end) of each partition of the target; waits until the
        transactions that are open there have ended. Raises PeerError after ``start_timeout_s`` without
        progress.
        """
        positions = {tp: start for tp, (start, end) in ranges.items() if start < end}
        timeout_s = self.shard.settings.start_timeout_s
        deadline_s = self._clock.monotonic() + timeout_s
        while positions:
            if self._clock.monotonic() > deadline_s:
                raise _held_back(positions)
            for node, wanted in self._by_node(positions).items():
                for part in self.target.fetch(node, wanted, _LIMITS):
                    before = positions[part.tp]
                    after = yield from _committed(part, before)
                    if after > before:
                        deadline_s = self._clock.monotonic() + timeout_s
                    positions[part.tp] = after
                    if after >= ranges[part.tp][1]:
                        del positions[part.tp]

    def _by_node(self, positions: Mapping[TopicPartition, int]) -> dict[int, list[FetchFrom]]:
        by_node: dict[int, list[FetchFrom]] = {}
        for tp, position in positions.items():
            leader, topic = self.target.leader(tp), self.target.topics[tp.topic]
            by_node.setdefault(leader.node, []).append(FetchFrom(tp, topic.uuid, leader.epoch, position))
        return by_node


def _committed(part: Fetched, position: int) -> Generator[Record, None, int]:
    """Yield the committed records of an answer from the position on; return the position after them."""
    raise_for(part.error, f"{named(part.tp)} in the target: read")
    aborted, after = AbortedTransactions(part.aborted), position
    for batch in batches_in(part.buffer, part.start, part.end):
        is_aborted = aborted.covers(batch)
        if not is_intact(batch):
            raise CorruptBatch(
                f"{named(part.tp)} in the target, offset {batch.base_offset}: its checksum is wrong"
            )
        after = batch.next_offset
        if is_aborted or batch.is_control:
            continue
        for raw in records_in(batch):
            if raw.offset >= position:
                key, value, _ = fields_of(raw.rest)
                yield Record(*part.tp, raw.offset, raw.timestamp_ms, key, value)
    return after


def _held_back(positions: Mapping[TopicPartition, int]) -> PeerError:
    tp = min(positions)
    return PeerError(
        f"{named(tp)} in the target: an open transaction holds back offset {positions[tp]}",
        hint="a writer hangs: it ends when its transaction times out. If it stays, a broker lost its end: "
        "kafka-transactions.sh find-hanging names it (KIP-664)",
        code="HUB-3604",
    )
