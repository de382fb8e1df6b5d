"""[shell] Compute what a change of ownership would lose and deliver again, from the maps, end offsets and
groups of both sides. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import topics_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.operations.group_carrier import GroupCarrier
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.group_offsets import GroupMark, GroupSides
from hub.replication.ownership.links import Link, opposite
from hub.replication.ownership.loss_report import LossReport, MirroredPartition, ReportedEnd, assess
from hub.replication.ownership.operation_steps import scope_of
from hub.replication.verification.comparable import complete_tables
from hub.times import epoch_ms

_STALE_MS = 30_000


def loss_report(world: MirroredClusters, home: str, old: str, new: str) -> LossReport:
    """Compute the effects of a change of ownership from ``old`` to ``new`` now. Writes nothing."""
    partitions: dict[TopicPartition, MirroredPartition] = {}
    groups: dict[str, GroupSides] = {}
    marks: dict[str, dict[TopicPartition, GroupMark]] = {}
    known: dict[TopicPartition, str] = {}
    board = read_control_state(world.clusters[new])
    other = read_progress(world.clusters[old]) if world.is_up(old) else WrittenState()
    brought = _brought(world, home, old, other) if new == home else {}
    for link in world.ways(home, old, new):
        progress, tables = complete_tables(world.clusters[new], link.name)
        marked = progress.of(link.name)
        known |= {tp: mark.topic_id for tp, mark in marked.items()}
        tables = {tp: table for tp, table in tables.items() if world.moves(home, tp.topic)}
        ends = _end_offsets(world, old, {tp.topic for tp in tables})
        for tp, table in tables.items():
            end = ends.get(tp, table.source_next) if ends is not None else None
            back = opposite(world.file, link, tp.topic)
            backward = other.table_back(back, marked[tp]) if back is not None else None
            joint = TwoWayOffsetMap(table, backward) if backward is not None else None
            table.advance(brought.get(tp, 0))
            partitions[tp] = MirroredPartition(
                table, table.target_next, end, board.heard(link.name, tp), joint
            )
        for (name, group), places in board.marks.items():
            if name == link.name:
                marks.setdefault(group, {}).update(places)
        for sides in group_sides(world, link, old, new, tables, marks, board):
            groups[sides.group] = sides.joined(groups.get(sides.group))
    up = world.is_up(old)
    left = _left(world, home, old, new, known, brought) if up else {}
    left_heard = {} if up else _left_heard(world, home, old, new, board, partitions)
    for tp in left.keys() & partitions.keys():  # recreated: its end is not one of the map's offsets
        partitions[tp] = replace(partitions[tp], source_end=partitions[tp].table.source_next)
    return assess(
        partitions,
        groups.values(),
        marks,
        place=up,
        left=left,
        left_heard=left_heard,
        source_answers=up,
    )


def _left_heard(
    world: MirroredClusters,
    home: str,
    old: str,
    new: str,
    board: ControlState,
    mirrored: Container[TopicPartition],
) -> dict[TopicPartition, tuple[int, ReportedEnd]]:
    """``_left`` of a source that does not answer, by the last report of a worker: (first offset, last
    reported end).
    """
    return {
        tp: (begin, ReportedEnd(end, ends.at_ms))
        for link in world.ways(home, old, new)
        if (ends := board.ends.get(link.name)) is not None
        for tp, (begin, end) in ends.places.items()
        if tp not in mirrored and world.moves(home, tp.topic)
    }


def _left(
    world: MirroredClusters,
    home: str,
    old: str,
    new: str,
    known: Mapping[TopicPartition, str],
    brought: Mapping[TopicPartition, int],
) -> dict[TopicPartition, tuple[int, int]]:
    """Return source offsets [first, end) of partitions that should be mirrored and have no mirrored
    records. ``known``: topic ids by partition.
    """
    there, kafka = topics_of(world.clusters[old]), world.clusters[old].kafka
    meant = world.carried(home, old, new)
    ends, begins = kafka.end_offsets(meant), kafka.beginning_offsets(meant)
    firsts = {tp: max(begins.get(tp), brought.get(tp, 0)) for tp, _ in ends}
    return {
        tp: (firsts[tp], end)
        for tp, end in ends
        if end > firsts[tp] and known.get(tp) != there[tp.topic].topic_id
    }


def _brought(world: MirroredClusters, home: str, away: str, there: WrittenState) -> dict[TopicPartition, int]:
    """Return by partition the offset up to which the copy at ``away`` equals home's records, which are
    not sent home. ``there``: what mirrors wrote at ``away``. Empty once a failback has begun: a tail may
    follow the records born there.
    """
    operations = world.control().operations
    last = next(
        (each for topic in world.only or ("",) if (each := operations.get(scope_of(home, topic)))), None
    )
    if last is None or last.kind == "failback":
        return {}
    here, topics = topics_of(world.clusters[home]), topics_of(world.clusters[away])
    return {
        tp: mark.target_next
        for link in world.ways(home, home, away)
        for tp, mark in there.of(link.name).items()
        if tp.topic in here
        and tp.topic in topics
        and world.moves(home, tp.topic)
        and mark.is_of(here[tp.topic].topic_id, topics[tp.topic].topic_id)
    }


def _end_offsets(world: MirroredClusters, name: str, topics: set[str]) -> Positions | None:
    if not world.is_up(name):
        return None
    there = topics & world.clusters[name].kafka.topics().keys()
    return world.clusters[name].kafka.end_offsets(sorted(there))


def group_sides(
    world: MirroredClusters,
    link: Link,
    old: str,
    new: str,
    tables: Mapping[TopicPartition, OffsetMap],
    marks: Mapping[str, Mapping[TopicPartition, GroupMark]],
    board: ControlState,
) -> list[GroupSides]:
    topics = sorted({tp.topic for tp in tables})
    if world.is_up(old):
        return GroupCarrier(world.file, link, world.clusters[old], world.clusters[new]).group_sides(topics)
    # The old side does not answer: its groups are known as they were carried last.
    found = []
    for group, places in sorted(marks.items()):
        theirs = world.clusters[new].kafka.group_positions(group).of_topics(topics).offsets
        source = {tp: mark.source_offset for tp, mark in places.items() if tp in tables}
        for status in (board.groups.get((link.name, group)),):
            for place in status.places if status is not None else ():
                tp = TopicPartition(place.topic, place.partition)
                if tp in tables:
                    source[tp] = max(source.get(tp, 0), place.source_offset)
        if source:
            found.append(GroupSides(group, source, theirs))
    return found


def not_mirrored(world: MirroredClusters, home: str, old: str, new: str) -> dict[str, str]:
    """Return the topics of the change that workers cannot carry, with their last reported reasons."""
    board, now_ms = read_control_state(world.clusters[new]), epoch_ms()
    found: dict[str, str] = {}
    for link in world.ways(home, old, new):
        carries = board.carries.get(link.name)
        reasons = dict(carries.trouble) if carries is not None else {}
        for (name, topic, number), status in sorted(board.partitions.items()):
            fresh = now_ms - status.at_ms < _STALE_MS
            if name == link.name and status.state == "stopped" and fresh:
                reasons.setdefault(topic, f"partition {number}: {status.reason}")
        found |= {
            topic: why
            for topic, why in reasons.items()
            if link.mirror.selects(topic) and world.moves(home, topic)
        }
    return found
