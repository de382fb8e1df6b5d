"""[shell] Pause, resume and drop a mirror or some of its topics, by records in its target's control topic.

Workers follow the records; the way back of a mirror obeys them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hub.errors import Conflict, NotFound, PeerError
from hub.record import NewRecord
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics
from hub.replication.clusters.control_state import pause_record, retry_record
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.operations.by_topic import check_all, states_of
from hub.replication.operations.forget import forget_both
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link
from hub.replication.ownership.operation_steps import OwnershipChange
from hub.replication.ownership.topic_state import Action, check_accepts, pause_key
from hub.times import epoch_ms
from hub.topics.tree.tree import matches


@dataclass(frozen=True, slots=True)
class DropPlan:
    """Topics whose checkpoints, maps and gaps a drop deletes. ``whole``: the mirror, not topics of it."""

    link: Link
    topics: tuple[str, ...]
    whole: bool


def append(cluster: ClusterHandle, records: Sequence[NewRecord]) -> None:
    """Write records into the mirrors' own topics of a cluster; create the topics first where they lack."""
    make_own([(cluster.name, step) for step in own_topics(cluster)], {cluster.name: cluster})
    writer = cluster.kafka.writer()
    try:
        writer.append(list(records))
    finally:
        writer.close()


def accepting(
    clusters: MirroredClusters, link: Link, patterns: Sequence[str], action: Action
) -> tuple[str, ...]:
    """Return the topics that fit the patterns; () without patterns: the mirror. Raises Conflict (HUB-1973) if
    one does not accept the command.
    """
    return tuple(check_all(states_of(clusters, link, patterns), action)) if patterns else ()


def set_paused(
    clusters: MirroredClusters, link: Link, topics: Sequence[str], by: str, *, paused: bool
) -> None:
    """Pause or resume the topics alone, or without topics the mirror. ``by``: the person, for the status."""
    now_ms = epoch_ms()
    keys = [pause_key(link.name, topic) for topic in topics] or [link.name]
    records = [pause_record(key, by, now_ms, paused=paused) for key in keys]
    if not paused:
        records.append(retry_record(link.name, now_ms))
    append(clusters.clusters[link.target], records)


def interrupted(
    control: Control, home: str, patterns: Sequence[str] = (), *, abort: bool = False
) -> list[OwnershipChange]:
    """Return the running changes of ownership to continue or to abort: of the whole home, and of topics.
    ``patterns``: only changes of topics that fit one.
    """
    whole = control.running(home)
    every = [*([whole] if whole is not None else []), *control.moving(home, furthest=abort)]
    if not patterns:
        return every
    return [each for each in every if any(matches(want, one) for want in patterns for one in each.topics)]


def plan_drop(clusters: MirroredClusters, link: Link, patterns: Sequence[str]) -> DropPlan:
    """Return what a drop would forget. Raises Conflict while the mirror works, or while its records are
    needed for a failback.
    """
    target = clusters.clusters[link.target]
    _require_droppable(clusters, link, target, patterns)
    known = {tp.topic for tp in read_progress(target, maps=False).of(link.name)}
    meant = sorted(each for each in known if not patterns or any(matches(want, each) for want in patterns))
    return DropPlan(link, tuple(meant), not patterns)


def drop(clusters: MirroredClusters, plan: DropPlan) -> int:
    """Carry out a plan; the copies stay. Returns the number of partitions that were forgotten."""
    if not plan.topics and not plan.whole:
        return 0  # no topic would mean the whole mirror
    topics = () if plan.whole else plan.topics
    return forget_both(clusters.file, plan.link, clusters.clusters, topics)


def delete_copies(clusters: MirroredClusters, plan: DropPlan) -> list[str]:
    """Delete the topics of a plan at the target. Returns those that did not exist any more."""
    gone = []
    for topic in plan.topics:
        try:
            clusters.clusters[plan.link.target].kafka.delete_topic(topic)
        except NotFound:
            gone.append(topic)
    return gone


def _require_droppable(
    clusters: MirroredClusters, link: Link, target: ClusterHandle, patterns: Sequence[str]
) -> None:
    if not clusters.is_up(link.target):
        raise PeerError(
            f"{link.target} does not answer", hint="a mirror's state is at its target", code="HUB-3613"
        )
    held = link.name in read_control_state(target).paused or link.mirror.paused
    control = clusters.control()
    meant = patterns or sorted(control.apart(link.source))
    states = states_of(clusters, link, meant) if meant else []
    if not held and not (patterns and all(each.state == "paused" for each in states)):
        raise Conflict(
            f'mirror "{link.name}" is not paused',
            hint=f"first: hub mirror pause {link.name}" + (", or with the same --topic" if patterns else ""),
            code="HUB-1967",
        )
    for each in states:
        if each.state not in ("mirroring", "promoted" if not patterns else ""):
            check_accepts(each, "drop")
    acting = control.owner(link.source).acting
    if acting != link.source:
        raise Conflict(
            f"{acting} serves the topics of {link.source}: the failback needs the records "
            "that would be deleted",
            hint=f"give it back first (hub mirror failback {link.name}); when it shall stay so, take the "
            "mirror out of the file",
            code="HUB-1969",
        )
