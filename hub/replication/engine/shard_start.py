"""[shell] Before an engine starts: which source records came from the target, and checkpoints for partitions
that do not begin where an engine would begin by itself.

``records_from_target`` and ``seed`` are pure; ``ShardStart`` reads what they need and writes the checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.readers import read_progress, read_to_end
from hub.replication.clusters.status_records import CarriedTopic
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import StartConfig
from hub.replication.engine.cursor import named
from hub.replication.engine.shard_state import NotYet
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_partition
from hub.replication.maps.imported_copy import ImportedCopy, born_from, copied_of
from hub.replication.maps.two_way_offset_map import foreign_ranges
from hub.replication.ownership.divergence import left_out_ranges
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard
from hub.times import epoch_ms

log = logging.getLogger(__name__)

ForeignRanges = dict[TopicPartition, list[tuple[int, int]]]
CopiedNotes = Mapping[tuple[str, str, int], ImportedCopy]


@dataclass(frozen=True, slots=True)
class ShardAssignment:
    """Assignment of a shard: its partitions, and the identities of their topics. ``schemas_first``: commit
    records only after the schemas that the source's registry had when they were fetched. A changed assignment
    restarts the engine.
    """

    partitions: tuple[TopicPartition, ...] = ()
    topics: Mapping[str, CarriedTopic] = field(default_factory=dict)
    opposites: Mapping[str, str] = field(default_factory=dict)
    retry_at_ms: int = 0
    schemas_first: bool = False


# ---- decisions


def records_from_target(
    assignment: ShardAssignment,
    partitions: Sequence[TopicPartition],
    opposite: WrittenState,
    copied: CopiedNotes,
    target_ids: Mapping[str, str],
) -> tuple[ForeignRanges, dict[TopicPartition, int]]:
    """Return the ranges of source offsets that came from the target, by the map of the other direction, and
    by partition the offset from which on records were born at the source: copies before it are in no map. If
    either topic was recreated since, the target has nothing of that map's records, and everything is sent.
    Only partitions that the other direction has carried are listed. Raises NotYet while a map is not
    readable.

    ``opposite``: what mirrors wrote at the source; ``copied``: notes of imports there; ``target_ids``: topic
    ids by name.
    """
    found: ForeignRanges = {}
    born: dict[TopicPartition, int] = {}
    for tp in partitions:
        back = assignment.opposites.get(tp.topic)
        if back is None or tp not in opposite.of(back):
            continue
        mark = opposite.of(back)[tp]
        if not mark.is_of(target_ids.get(tp.topic, ""), assignment.topics[tp.topic].topic_id):
            found[tp], born[tp] = [], 0
            continue
        table = opposite.table(back, tp)
        if table is None:
            raise NotYet(f"the map of {back} is not readable yet")
        found[tp] = foreign_ranges(table, 0, table.target_next)
        born[tp] = born_from(mark, copied.get((back, *tp)))
    return found, born


@dataclass(frozen=True, slots=True)
class SeedFacts:
    """State of one partition on both sides. ``known``: its checkpoint; ``first``: where it begins at the
    source without one; ``born``: see ``records_from_target``, None: the other direction never carried it.
    ``target_first`` and ``target_end``: offsets of the target's topic ``target_id``.
    """

    tp: TopicPartition
    topic: CarriedTopic
    known: Checkpoint | None
    first: int
    born: int | None
    target_first: int
    target_end: int
    target_id: str


def needs_seed(known: Checkpoint | None, topic: CarriedTopic, *, elsewhere: bool) -> bool:
    """Return whether a partition does not begin where an engine would begin by itself: its topic was
    recreated, or it has no checkpoint and begins ``elsewhere`` than at its first record.
    """
    if known is None:
        return elsewhere
    return bool(topic.topic_id) and known.topic_id != topic.topic_id and topic.generation > known.generation


def seed(facts: SeedFacts, shard: Shard, place: int | None, now_ms: int) -> list[NewRecord]:
    """Return the checkpoint to begin from, after a gap for the former topic's rest if there was one.
    ``place``: partition of the checkpoints topic. Raises NotYet for a partition whose target has records and
    that neither direction knows: its records would come twice (after a mirror was dropped).
    """
    tp, topic, before = facts.tp, facts.topic, facts.known
    if before is None and facts.born is None and facts.target_end > facts.target_first:
        raise NotYet(f"{named(tp)}: the target has records and no checkpoint of this mirror")
    first, end = facts.first, facts.target_end
    if before is None:
        first = max(first, facts.born or 0)
    else:
        # Where the former copy ended: records after it were born there while that side had the ownership, and
        # must return one day.
        same = before.target_topic_id in ("", facts.target_id)
        end = min(end, before.target_next) if same else facts.target_first
    after = Checkpoint(
        shard.link,
        shard.number,
        *tp,
        topic.topic_id,
        first,
        -1,
        end,
        target_topic_id=facts.target_id,
        generation=topic.generation if before is not None else 0,
        source_start=first,
        target_start=end,
        committed_at_ms=now_ms,
    )
    if before is None:
        return [after.record(place)]
    lost = Gap(shard.link, *tp, before.topic_id, before.source_next, -1, "recreated", now_ms)
    return [lost.record(place), after.record(place)]


# ---- reading and writing


@dataclass(frozen=True, slots=True)
class ShardStart:
    """Start of one shard between two clusters."""

    shard: Shard
    link: Link
    source: ClusterHandle
    target: ClusterHandle

    def foreign(
        self, assignment: ShardAssignment, partitions: Sequence[TopicPartition]
    ) -> tuple[ForeignRanges, dict[TopicPartition, int]]:
        """See ``records_from_target``."""
        if not any(tp.topic in assignment.opposites for tp in partitions):
            return {}, {}
        target_ids = {name: each.topic_id for name, each in topics_of(self.target).items()}
        opposite = read_progress(self.source)
        return records_from_target(assignment, partitions, opposite, self._copied(), target_ids)

    def left_out(self, assignment: ShardAssignment) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return the ranges of source offsets that a merge declared superseded."""
        if not assignment.opposites:
            return {}
        ids = {name: each.topic_id for name, each in assignment.topics.items()}
        gaps = read_progress(self.target, maps=False).gaps.values()
        return left_out_ranges(gaps, self.link.name, ids)

    def seed(
        self,
        assignment: ShardAssignment,
        partitions: Sequence[TopicPartition],
        born: Mapping[TopicPartition, int],
    ) -> None:
        """Write the checkpoints that are needed, under the shard's own fence, so that newer checkpoints of
        another worker are not overwritten.
        """
        if not self._needed(assignment, partitions, self._known(), born):
            return
        writer = self.target.kafka.writer(self.shard.transactional_id)
        try:
            known = self._known()
            needed = self._needed(assignment, partitions, known, born)
            records = self.seeds(assignment, needed, known, born)
            if records:
                writer.append(records)
                log.info("%s.%d: %d partitions begin at the given positions", *self.shard, len(needed))
        finally:
            writer.close()

    def seeds(
        self,
        assignment: ShardAssignment,
        needed: Sequence[TopicPartition],
        known: Mapping[TopicPartition, Checkpoint],
        born: Mapping[TopicPartition, int],
        firsts: Mapping[TopicPartition, int] | None = None,
    ) -> list[NewRecord]:
        """Return the records to write for the partitions that need a seed. ``firsts``: where they begin at
        the source; None: ask it.
        """
        if not needed:
            return []
        if firsts is None:
            firsts = self._firsts(needed, known)
        there = topics_of(self.target)
        topics = sorted({tp.topic for tp in needed if tp.topic in there})
        ends = self.target.kafka.end_offsets(topics, committed=False)
        target_begins = self.target.kafka.beginning_offsets(topics)
        own = self.target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
        place = checkpoint_partition(*self.shard, own)
        now_ms = epoch_ms()
        made: list[NewRecord] = []
        for tp in needed:
            facts = SeedFacts(
                tp,
                assignment.topics[tp.topic],
                known.get(tp),
                firsts[tp],
                born.get(tp),
                target_begins.get(tp),
                ends.get(tp),
                there[tp.topic].topic_id if tp.topic in there else "",
            )
            made += seed(facts, self.shard, place, now_ms)
        return made

    def _firsts(
        self, needed: Sequence[TopicPartition], known: Mapping[TopicPartition, Checkpoint]
    ) -> dict[TopicPartition, int]:
        topics = sorted({tp.topic for tp in needed})
        begins, starts = self.source.kafka.beginning_offsets(topics), self._starts(topics)
        return {
            tp: begins.get(tp) if tp in known else max(begins.get(tp), starts.get(tp, 0)) for tp in needed
        }

    def _needed(
        self,
        assignment: ShardAssignment,
        partitions: Sequence[TopicPartition],
        known: Mapping[TopicPartition, Checkpoint],
        born: Mapping[TopicPartition, int],
    ) -> list[TopicPartition]:
        begins_elsewhere = self.link.mirror.start != "earliest"
        return [
            tp
            for tp in partitions
            if needs_seed(
                known.get(tp), assignment.topics[tp.topic], elsewhere=begins_elsewhere or tp in born
            )
        ]

    def _known(self) -> Mapping[TopicPartition, Checkpoint]:
        return read_progress(self.target, maps=False).of(self.shard.link)

    def _copied(self) -> CopiedNotes:
        """Return the notes that imports left at the source."""
        found: dict[bytes, ImportedCopy | None] = {}

        def take(record: Record) -> None:
            if record.key is not None:
                found[record.key] = copied_of(record)

        read_to_end(self.source, [CHECKPOINTS_TOPIC], take)
        return {(each.link, each.topic, each.partition): each for each in found.values() if each is not None}

    def _starts(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions without a checkpoint, where these do not start at their
        first record.
        """
        start = self.link.mirror.start
        if start == "earliest":
            return {}
        ends = dict(self.source.kafka.end_offsets(topics))
        if isinstance(start, StartConfig):
            at_ms = int(start.timestamp.timestamp() * 1000)
            return ends | dict(self.source.kafka.offsets_at(topics, at_ms))
        return ends
