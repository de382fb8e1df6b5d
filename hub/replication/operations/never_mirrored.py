"""[shell] Partitions of which a mirror has carried nothing, recorded before another cluster owns their
topics.

Applications soon write at the new owner. From then on the records there do not tell whether the mirror copied
them, and only a checkpoint does: one that begins at the source's first record and behind the target's last
one says that nothing was mirrored. With it a failback treats home's records as it does in every other
partition: it carries them over, or declares them lost.

A partition whose target has records and no checkpoint gets none: they may be copies of a mirror that was
dropped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hub.log import WriterFenced
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import partitions_with_records, read_progress
from hub.replication.clusters.status_records import CarriedTopic
from hub.replication.engine.shard_start import ShardAssignment, ShardStart
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard, shard_of

_ATTEMPTS = 3


def never_mirrored(
    topics: Mapping[str, CarriedTopic],
    topic_partitions: Collection[TopicPartition],
    with_records: Collection[TopicPartition],
) -> list[TopicPartition]:
    """Return the partitions to record: those of ``topics`` without a checkpoint (``topic_partitions``) and
    without a record at the target.
    """
    every = (
        TopicPartition(name, number) for name, each in topics.items() for number in range(each.partitions)
    )
    return sorted(tp for tp in every if tp not in topic_partitions and tp not in with_records)


def first_offsets(
    board: ControlState, link: Link, places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where the mirror would begin in a source that does not answer, as a worker read its offsets
    last. Without a report it would begin at 0; a mirror that does not start at the earliest record is left
    out.
    """
    ends = board.ends.get(link.name)
    reported = ends.places if ends is not None else {}
    if link.mirror.start == "earliest":
        return {tp: reported.get(tp, (0, 0))[0] for tp in places}
    return {tp: reported[tp][1] for tp in places if tp in reported}


@dataclass(frozen=True, slots=True)
class NeverMirrored:
    """Partitions that a link has never carried. ``source_is_up`` False: the source's offsets are those of the
    last report.
    """

    link: Link
    source: ClusterHandle
    target: ClusterHandle
    source_is_up: bool

    def record(self, topics: Mapping[str, CarriedTopic], board: ControlState) -> int:
        """Write the checkpoints, under the fence of each shard; return their number. ``board``: the target's.
        Idempotent. Raises WriterFenced if workers fence it again and again.
        """
        checkpoints = read_progress(self.target, maps=False).of(self.link.name)
        unmarked = {tp.topic for tp in never_mirrored(topics, checkpoints.keys(), ())}
        some = partitions_with_records(self.target, unmarked & topics_of(self.target).keys())
        every = never_mirrored(topics, checkpoints.keys(), some)
        firsts = None if self.source_is_up else first_offsets(board, self.link, every)
        if firsts is not None:
            every = [tp for tp in every if tp in firsts]
        shards = self.link.mirror.shards
        for number in sorted({shard_of(*tp, shards) for tp in every}):
            mine = tuple(tp for tp in every if shard_of(*tp, shards) == number)
            start = ShardStart(Shard(self.link.name, number), self.link, self.source, self.target)
            assignment = ShardAssignment(mine, topics)
            records = start.seeds(assignment, mine, {}, dict.fromkeys(mine, 0), firsts)
            self._write(start.shard, records)
        return len(every)

    def _write(self, shard: Shard, records: Sequence[NewRecord]) -> None:
        for attempt in range(_ATTEMPTS):
            writer = self.target.kafka.writer(shard.transactional_id)
            try:
                writer.append(records)
                return
            except WriterFenced:
                # A worker opened the shard meanwhile. It sees the change of ownership next, and leaves.
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.5)
            finally:
                writer.close()
