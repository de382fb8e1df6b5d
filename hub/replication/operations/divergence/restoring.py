"""[shell] ``failback --restore``: bring a topic of home to exactly the log that the other side has.

Kafka cannot cut the end off a log. So the topic is made again with its settings, and the mirror back fills
it from the first record on, with a map of its own::

    record the topic (restored|…) ─▶ export what only home has ─▶ delete and create the topic
        ─▶ checkpoints of both directions begin at the first offsets ─▶ record the new id

Each step is repeated after a crash, and does nothing where it was done. Home's topic is deleted only while it
is the one that was recorded, and after its files are complete on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hub.errors import Conflict, PeerError
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.config.topology import route
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_partition
from hub.replication.operations.divergence.diverged import DivergedTopic, diverged_topics
from hub.replication.operations.forget import forget
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.divergence import RestoredPartition, RestoredTopic, fresh_checkpoint, tail_gaps
from hub.replication.ownership.links import Link, links, opposite
from hub.replication.ownership.operation_steps import OwnershipChange
from hub.replication.ownership.shards import Shard, shard_of
from hub.replication.rewriting.rules_of_schema import shape_of
from hub.replication.verification.comparable import complete_tables
from hub.times import epoch_ms

_LOOK_EVERY_S = 0.2

Publish = Callable[[NewRecord], None]


def restore_refusals(world: MirroredClusters, home: str, away: str) -> dict[str, str]:
    """Return the diverged topics that cannot be restored, with the reason: the other side does not have all
    of their records, or a third cluster has a copy that would stop.
    """
    found = {}
    for each in diverged_topics(world, home, away):
        if (why := _refusal(world, each, away)) is not None:
            found[each.topic] = why
    return found


def _refusal(world: MirroredClusters, each: DivergedTopic, away: str) -> str | None:
    link = each.link
    rules = shape_of(link.mirror, each.topic)
    if rules is not None and (rules.only or rules.masks):
        return f"the copy at {away} is filtered or masked, so it does not have all records"
    others = [
        name
        for name in route(world.file, each.topic).mirrors
        if name != link.name and world.file.mirrors[name].source == link.source
    ]
    if others:
        return (
            f"mirror {others[0]} copies it to another cluster, and would stop at a topic that is made again"
        )
    if not topics_of(world.clusters[link.source])[each.topic].topic_id:
        return f"the brokers of {link.source} give topics no ids (Kafka before 2.8)"
    return None


def check_restorable(world: MirroredClusters, home: str, away: str) -> None:
    """Raise Conflict (HUB-1986) if a diverged topic cannot be restored."""
    refused = restore_refusals(world, home, away)
    if refused:
        topic, why = min(refused.items())
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise Conflict(
            f'topic "{topic}"{more} cannot be restored: {why}',
            hint="use --merge, --replay or --discard, or name the other topics with --topic",
            code="HUB-1986",
        )


def recorded(world: MirroredClusters, operation: OwnershipChange) -> dict[str, RestoredTopic]:
    """Return the topics that this failback restores, as recorded at home."""
    known = read_control_state(world.clusters[operation.new], status=False).restored
    return {topic: each for topic, each in known.items() if each.operation == operation.id}


def record_topics(
    world: MirroredClusters, operation: OwnershipChange, publish: Publish, say: Callable[[str], None]
) -> dict[str, RestoredTopic]:
    """Record every diverged topic before the first one is deleted, and return all of this failback."""
    home, away = operation.home, operation.old
    known = recorded(world, operation)
    diverged = [each for each in diverged_topics(world, home, away) if each.topic not in known]
    names = [each.topic for each in diverged]
    kafka, there = world.clusters[home].kafka, topics_of(world.clusters[home])
    config = kafka.topic_config(names) if names else {}
    for each in diverged:
        topic = there[each.topic]
        made = RestoredTopic(
            home,
            each.topic,
            operation.id,
            topic.topic_id,
            topic.partitions,
            topic.replication_factor,
            config[each.topic],
            each.partitions,
            world.by,
        )
        publish(made.record())
        known[each.topic] = made
        for partition in each.partitions:
            if partition.only_home or partition.before:
                say(f"  {partition.text(home, away)}")
    return known


def restore(
    world: MirroredClusters,
    operation: OwnershipChange,
    topics: Mapping[str, RestoredTopic],
    wait_s: float,
    publish: Publish,
    say: Callable[[str], None],
) -> None:
    """Make the topics again, so that the mirror back fills them. Their records are exported."""
    home = world.clusters[operation.home]
    for name, each in sorted(topics.items()):
        new_id = _made_again(home, each)
        _forget_positions(home, name, wait_s)
        begin_anew(world, operation, each, new_id)
        if each.topic_id != new_id:
            publish(replace(each, topic_id=new_id).record())
        say(f"  {name}: made again at {operation.home}; it is filled from {operation.old} next")


def _made_again(home: ClusterHandle, each: RestoredTopic) -> str:
    """Delete the recorded topic and create it; return the new id. Raises Conflict (HUB-1986) for a topic of
    the name that somebody else made meanwhile.
    """
    now = topics_of(home).get(each.topic)
    if now is not None and now.topic_id == each.former_id:
        home.kafka.delete_topic(each.topic)
        now = None
    if now is None:
        home.kafka.create_topic(
            each.topic,
            partitions=each.partitions,
            config=each.config,
            replication_factor=each.replicas,
        )
        now = topics_of(home)[each.topic]
    ends = home.kafka.end_offsets([each.topic], committed=False)
    if now.partitions != each.partitions or any(end for _, end in ends):
        raise Conflict(
            f'topic "{each.topic}" was made at {home.name} by somebody else while it was restored',
            hint="keep its records elsewhere, delete it, then continue: hub mirror resume",
            code="HUB-1986",
        )
    return now.topic_id


def _forget_positions(home: ClusterHandle, topic: str, wait_s: float) -> None:
    """Wait until Kafka has deleted the groups' positions in the former topic. Raises Conflict (HUB-1986) if a
    group still commits them after ``wait_s``.
    """
    deadline = time.monotonic() + wait_s
    while True:
        positions = home.kafka.positions_of_groups(home.kafka.groups())
        groups = [name for name, found in positions.items() if found.of_topics([topic]).offsets]
        if not groups:
            return
        if time.monotonic() > deadline:
            raise Conflict(
                f'group "{min(groups)}" commits positions in the former topic "{topic}" of {home.name}',
                hint="stop its members there, then continue: hub mirror resume",
                code="HUB-1986",
            )
        time.sleep(_LOOK_EVERY_S)


def begin_anew(world: MirroredClusters, operation: OwnershipChange, each: RestoredTopic, new_id: str) -> None:
    """Write checkpoints of both directions that begin at the first offsets: the link back fills the new
    topic, and the link from home knows that nothing in it has to go away again.
    """
    home, away = world.clusters[operation.home], world.clusters[operation.old]
    away_id = topics_of(away)[each.topic].topic_id
    forward = _link_from_home(world, operation, each.topic)
    back = links(world.file)[opposite(world.file, forward, each.topic) or ""]
    places = [part.place for part in each.before]
    gaps = tail_gaps(forward.name, each.before, each.former_id, epoch_ms())
    _write(forward, away, [_empty(forward, tp, (new_id, away_id), 0) for tp in places], gaps)
    # Its map is kept under the id of away's topic, which stays: runs of the former topic must go.
    known = read_progress(home, maps=False).of(back.name)
    if any(tp in known and not known[tp].is_of(away_id, new_id) for tp in places):
        forget(back, home, [each.topic])
    firsts = away.kafka.beginning_offsets([each.topic])
    _write(back, home, [_empty(back, tp, (away_id, new_id), firsts.get(tp)) for tp in places])


def _empty(link: Link, tp: TopicPartition, ids: tuple[str, str], source: int) -> Checkpoint:
    """Return a checkpoint that begins at a source offset and at the target's first one."""
    return Checkpoint(
        link.name,
        shard_of(*tp, link.mirror.shards),
        *tp,
        ids[0],
        source,
        -1,
        0,
        target_topic_id=ids[1],
        source_start=source,
    )


def _write(link: Link, target: ClusterHandle, marks: Sequence[Checkpoint], gaps: Sequence[Gap] = ()) -> None:
    """Write checkpoints that are not there yet, and their gaps, in one transaction for each shard."""
    known = read_progress(target, maps=False).of(link.name)
    partitions = target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
    for number in sorted({mark.shard for mark in marks}):
        place = checkpoint_partition(link.name, number, partitions)
        records = []
        for mark in (mark for mark in marks if mark.shard == number):
            made = fresh_checkpoint(known.get(mark.place), mark, place, epoch_ms())
            records += made
            records += [gap.record(place) for gap in gaps if made and gap.partition == mark.partition]
        if records:
            writer = target.kafka.writer(Shard(link.name, number).transactional_id)
            try:
                writer.append(records)
            finally:
                writer.close()


def _link_from_home(world: MirroredClusters, operation: OwnershipChange, topic: str) -> Link:
    for link in world.ways(operation.home, operation.home, operation.old):
        if topic in world.topics_of_link(link, operation.home) or link.mirror.selects(topic):
            return link
    raise PeerError(f'topic "{topic}": no mirror of the file leads from {operation.home} to {operation.old}')


def conclude(
    world: MirroredClusters, operation: OwnershipChange, publish: Publish, say: Callable[[str], None]
) -> dict[str, RestoredTopic]:
    """Count the restored topics when the mirror back has filled them and is fenced; record and show it."""
    topics = recorded(world, operation)
    if not topics:
        return {}
    home = world.clusters[operation.home].kafka
    names = sorted(topics)
    begins, ends = home.beginning_offsets(names), home.end_offsets(names)
    found = {}
    for name, each in sorted(topics.items()):
        forward = _link_from_home(world, operation, name)
        back = opposite(world.file, forward, name) or ""
        _, tables = complete_tables(world.clusters[operation.home], back, [name])
        after = tuple(
            RestoredPartition(tp.partition, begins.get(tp), end, sum(run.count for run in tables[tp]))
            for tp, end in ends
            if tp.topic == name and tp in tables
        )
        found[name] = replace(each, after=after)
        publish(found[name].record())
        count = sum(row.records for row in after)
        say(f"  {name}: {count:,} records at {operation.home}, all from {operation.old}")
    return found
