"""[shell] Bring one side up to the other: wait for the workers, fence their transactional ids,
or declare a tail lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hub.errors import PeerError
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.clusters.clusters import topics_of
from hub.replication.clusters.readers import WrittenStateReader, read_progress
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_partition
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard, shard_of
from hub.times import epoch_ms

_LOOK_EVERY_S = 0.5
_QUIET_S = 1.0
_SAY_EVERY_S = 5.0


def catch_up(
    world: MirroredClusters,
    source: str,
    target: str,
    home: str,
    *,
    wait_s: float,
    say: Callable[[str], None],
    but_for: int = 0,
    quiet: bool = False,
) -> None:
    """Wait until workers have carried all offsets but ``but_for``. ``quiet``: and the source's ends have
    not moved for ``_QUIET_S``.
    """
    deadline, say_at_s = time.monotonic() + wait_s, time.monotonic() + _SAY_EVERY_S
    reader = WrittenStateReader(world.clusters[target], maps=False)
    quiet_since, before = time.monotonic(), Positions()
    try:
        while True:
            topics, ends = behind(world, reader.refresh(), source, target, home)
            missing = sum(topics.values())
            if ends != before:
                quiet_since, before = time.monotonic(), ends
            still = not quiet or time.monotonic() - quiet_since >= _QUIET_S
            if missing <= but_for and still:
                return
            why = (
                f"{missing} offsets are not mirrored yet, most of topic {max(topics, key=topics.__getitem__)}"
                if missing > but_for
                else "somebody still writes"
            )
            if time.monotonic() > say_at_s:
                say(f"  {why}")
                say_at_s = time.monotonic() + _SAY_EVERY_S
            if time.monotonic() > deadline:
                raise PeerError(
                    f"from {source} to {target}: {why}, after {wait_s:g} s",
                    hint="check that a worker runs (hub mirror status) and that the writers are stopped, "
                    "then continue: hub mirror resume",
                    code="HUB-3615",
                )
            time.sleep(_LOOK_EVERY_S)
    finally:
        reader.close()


def behind(
    world: MirroredClusters, progress: WrittenState, source: str, target: str, home: str
) -> tuple[dict[str, int], Positions]:
    """Return by topic the number of offsets still to carry (topics without any are left out), and the
    source's ends.
    """
    positions: dict[TopicPartition, int] = {}
    carried, there = world.carried(home, source, target), topics_of(world.clusters[source])
    for link in world.ways(home, source, target):
        for tp, mark in progress.of(link.name).items():
            if tp.topic in there and mark.topic_id not in ("", there[tp.topic].topic_id):
                continue  # recreated: the checkpoint's offsets are of another log
            positions[tp] = max(mark.source_next, positions.get(tp, 0))
    ends = world.clusters[source].kafka.end_offsets(sorted(carried), committed=False)
    begins = world.clusters[source].kafka.beginning_offsets(sorted(carried))
    missing: dict[str, int] = {}
    for tp, end in ends:
        if (more := end - max(positions.get(tp, 0), begins.get(tp))) > 0:
            missing[tp.topic] = missing.get(tp.topic, 0) + more
    return missing, ends


def take_over(world: MirroredClusters, source: str, target: str, home: str) -> None:
    """Open every transactional id that carries what moves in one direction: open transactions are aborted,
    and no late write can follow.
    """
    for link in world.ways(home, source, target):
        for number in world.shards(link):
            world.clusters[target].kafka.writer(Shard(link.name, number).transactional_id).close()


def tails(
    world: MirroredClusters, home_side: str, away: str, home: str
) -> list[tuple[Link, Checkpoint, int]]:
    """Return home's records that were not mirrored: link, checkpoint and end of each such partition."""
    source, target = world.clusters[home_side], world.clusters[away]
    found: list[tuple[Link, Checkpoint, int]] = []
    for link in world.ways(home, home_side, away):
        there = topics_of(source)
        # A deleted topic has no tail, a recreated one has a different log: the file decides how that is
        # mirrored.
        known = {
            tp: mark
            for tp, mark in read_progress(target, maps=False).of(link.name).items()
            if tp.topic in there
            and world.moves(home, tp.topic)
            and mark.topic_id in ("", there[tp.topic].topic_id)
        }
        ends = source.kafka.end_offsets(sorted({tp.topic for tp in known}), committed=False)
        found += [(link, mark, ends.get(tp)) for tp, mark in known.items() if ends.get(tp) > mark.source_next]
    return found


def discard(world: MirroredClusters, away: str, lost: Sequence[tuple[Link, Checkpoint, int]]) -> None:
    """Declare tails lost: write a gap, and a checkpoint after it, in one transaction per shard."""
    target = world.clusters[away]
    by_shard: dict[Shard, list[tuple[Checkpoint, int]]] = {}
    for link, mark, end in lost:
        shard = Shard(link.name, shard_of(*mark.place, link.mirror.shards))
        by_shard.setdefault(shard, []).append((mark, end))
    for shard, tail in by_shard.items():
        places = target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
        place = checkpoint_partition(shard.link, shard.number, places)
        writer = target.kafka.writer(shard.transactional_id)
        try:
            writer.append(_discarded(shard.link, shard.number, tail, place))
        finally:
            writer.close()


def _discarded(link: str, number: int, lost: Sequence[tuple[Checkpoint, int]], place: int) -> list[NewRecord]:
    now_ms = epoch_ms()
    made = []
    for mark, end in lost:
        gap = Gap(link, mark.topic, mark.partition, mark.topic_id, mark.source_next, end, "skipped", now_ms)
        after = Checkpoint(
            link,
            number,
            mark.topic,
            mark.partition,
            mark.topic_id,
            end,
            -1,
            mark.target_next,
            target_topic_id=mark.target_topic_id,
            generation=mark.generation,
            source_start=mark.source_start,
            target_start=mark.target_start,
            source_timestamp_ms=mark.source_timestamp_ms,
            committed_at_ms=now_ms,
        )
        made += [gap.record(place), after.record(place)]
    return made
