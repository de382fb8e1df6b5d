"""[shell] ``failback --merge``: find the records of compacted topics that are superseded, and declare them.

All keys of the tails of one topic are in memory while the records are read that were written away since:
about 100 bytes a key. Each stretch of superseded offsets is one record of the checkpoints topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hub.errors import Conflict
from hub.log import between
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Gap, checkpoint_partition
from hub.replication.operations.catch_up import wait_until_quiet
from hub.replication.operations.divergence.diverged import DivergedTopic, diverged_topics
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.divergence import DivergedPartition, superseded
from hub.replication.ownership.links import masked
from hub.replication.ownership.operation_steps import OwnershipChange
from hub.replication.ownership.shards import Shard, shard_of
from hub.replication.rewriting.record_filter import stretches
from hub.times import epoch_ms

SILENT_S = 30.0
_EFFECTIVE = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Merge:
    """Decision of a merge. ``superseded``: home's offsets that are left out away, by partition."""

    topics: tuple[DivergedTopic, ...]
    superseded: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)

    def reason(self, record: Record, away: str) -> str:
        """Return the reason of one record of a tail, for the exported files."""
        if record.offset in self.superseded.get(record.topic_partition, ()):
            return f"superseded: {away} has newer records of this key"
        return f"not mirrored: appended behind the records of {away}"


def plan_merge(world: MirroredClusters, home: str, away: str) -> Merge:
    """Return what a merge would leave out now. Reads the tails, and the records written away since, of
    compacted topics. Raises PeerError when a side does not answer.
    """
    topics = diverged_topics(world, home, away)
    names = [each.topic for each in topics]
    config = world.clusters[away].kafka.effective_config(names) if names else {}
    found: dict[TopicPartition, frozenset[int]] = {}
    for each in topics:
        compacted = "compact" in (config.get(each.topic, {}).get(_EFFECTIVE) or "")
        if compacted and not masked(world.file, each.topic, home, away):
            found |= _superseded(world.clusters[home], world.clusters[away], each.partitions)
    return Merge(tuple(topics), found)


def _superseded(
    home: ClusterHandle, away: ClusterHandle, partitions: tuple[DivergedPartition, ...]
) -> dict[TopicPartition, frozenset[int]]:
    def tail() -> Iterator[Record]:
        return _records(home, {each.place: (each.common, each.home_end) for each in partitions})

    keys = {record.key for record in tail() if record.key is not None}
    since = {each.place: (each.away_common, each.away_end) for each in partitions}
    newer = {record.key for record in _records(away, since) if record.key in keys} if keys else set()
    return superseded(tail(), newer) if newer else {}


def _records(side: ClusterHandle, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[Record]:
    wanted = {place: (first, end) for place, (first, end) in ranges.items() if end > first}
    if not wanted:
        return iter(())
    starts = Positions({place: first for place, (first, _) in wanted.items()})
    ends = Positions({place: end for place, (_, end) in wanted.items()})
    return between(starts, ends, side.kafka.reader(queue_kb=1_024), SILENT_S)


def declare_merge(
    world: MirroredClusters, operation: OwnershipChange, wait_s: float, say: Callable[[str], None]
) -> Merge:
    """Decide what a merge leaves out, once nobody writes away any more, and record it for the workers.
    Idempotent. Raises Conflict (HUB-1966) if somebody wrote meanwhile.
    """
    home, away = operation.home, operation.old
    before = wait_until_quiet(world, away, home, wait_s=wait_s, say=say)
    merge = plan_merge(world, home, away)
    ends = world.clusters[away].kafka.end_offsets(
        sorted({place.topic for place, _ in before}), committed=False
    )
    if ends != before:
        raise Conflict(
            f"somebody wrote at {away} while the merge was decided",
            hint="stop that writer, then continue: hub mirror resume",
            code="HUB-1966",
        )
    _write(world.clusters[away], merge)
    for topic in merge.topics:
        for each in topic.partitions:
            left = len(merge.superseded.get(each.place, ()))
            if each.only_home:
                say(f"  {each.text(home, away)}; {left:,} superseded")
    return merge


def _write(away: ClusterHandle, merge: Merge) -> None:
    """Write a gap for each stretch of superseded offsets, in one transaction per shard."""
    by_shard: dict[Shard, list[Gap]] = {}
    now_ms = epoch_ms()
    for topic in merge.topics:
        link = topic.link
        for place, mark in topic.marks.items():
            shard = Shard(link.name, shard_of(*place, link.mirror.shards))
            gaps = by_shard.setdefault(shard, [])
            for first, end in stretches(sorted(merge.superseded.get(place, ()))):
                gaps.append(Gap(link.name, *place, mark.topic_id, first, end, "superseded", now_ms))
    places = away.kafka.topics()[CHECKPOINTS_TOPIC].partitions
    for shard, gaps in by_shard.items():
        if not gaps:
            continue
        place_of_shard = checkpoint_partition(shard.link, shard.number, places)
        writer = away.kafka.writer(shard.transactional_id)
        try:
            writer.append([gap.record(place_of_shard) for gap in gaps])
        finally:
            writer.close()
