"""[shell] Bring one side up to the other: wait for the workers, fence their transactional ids,
or declare a tail lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hub.errors import PeerError
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.clusters.clusters import topics_of
from hub.replication.clusters.readers import WrittenStateReader, read_progress
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_partition
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.links import Link, opposite
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


def wait_until_quiet(
    world: MirroredClusters, at: str, home: str, *, wait_s: float, say: Callable[[str], None]
) -> Positions:
    """Wait until the ends of the topics of ``home`` at a cluster have not moved for ``_QUIET_S``; return
    them. Raises PeerError (HUB-3615) after ``wait_s``.
    """
    topics, kafka = sorted(world.topics(home, at)), world.clusters[at].kafka
    deadline, ends = time.monotonic() + wait_s, kafka.end_offsets(topics, committed=False)
    while True:
        time.sleep(_QUIET_S)
        before, ends = ends, kafka.end_offsets(topics, committed=False)
        if ends == before:
            return ends
        say(f"  somebody still writes at {at}")
        if time.monotonic() > deadline:
            raise PeerError(
                f"somebody still writes at {at}, after {wait_s:g} s",
                hint="stop the writers, then continue: hub mirror resume",
                code="HUB-3615",
            )


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


@dataclass(frozen=True, slots=True)
class HomeTail:
    """Home's offsets [first, end) of one partition that were not mirrored. Some of them may be markers."""

    link: Link
    mark: Checkpoint
    first: int
    end: int


def tails(world: MirroredClusters, home_side: str, away: str, home: str) -> list[HomeTail]:
    """Return home's offsets that were not mirrored, of each partition that has any. Records that came from
    ``away`` are not among them.
    """
    source, target = world.clusters[home_side], world.clusters[away]
    back = read_progress(source, maps=False).checkpoints
    found: list[HomeTail] = []
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
        for tp, mark in known.items():
            came = back.get((opposite(world.file, link, tp.topic) or "", *tp))
            first = mark.source_next
            if came is not None and mark.goes_back(came):
                first = max(first, came.target_next)
            if ends.get(tp) > first:
                found.append(HomeTail(link, mark, first, ends.get(tp)))
    return found


def discard(world: MirroredClusters, away: str, lost: Sequence[HomeTail]) -> None:
    """Declare tails lost: write a gap, and a checkpoint after it, in one transaction per shard."""
    target = world.clusters[away]
    by_shard: dict[Shard, list[HomeTail]] = {}
    for each in lost:
        shard = Shard(each.link.name, shard_of(*each.mark.place, each.link.mirror.shards))
        by_shard.setdefault(shard, []).append(each)
    for shard, tail in by_shard.items():
        places = target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
        place = checkpoint_partition(shard.link, shard.number, places)
        writer = target.kafka.writer(shard.transactional_id)
        try:
            writer.append(_discarded(shard.number, tail, place))
        finally:
            writer.close()


def _discarded(number: int, lost: Sequence[HomeTail], place: int) -> list[NewRecord]:
    now_ms = epoch_ms()
    made = []
    for each in lost:
        mark = each.mark
        gap = Gap(mark.link, *mark.place, mark.topic_id, each.first, each.end, "skipped", now_ms)
        after = replace(
            mark, shard=number, source_next=each.end, source_leader_epoch=-1, committed_at_ms=now_ms
        )
        made += [gap.record(place), after.record(place)]
    return made
