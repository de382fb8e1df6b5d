"""[shell] Consumer groups on both sides of a link: read, mark and commit their positions.
ownership/group_offsets.py decides.

A group without members may commit at the target at any moment, and Kafka has no compare-and-set for
positions. So positions are written in a transaction, with the marks: first they are in the groups' log, then
the groups are checked for changes, and only the transaction's end makes them valid, except where a group
committed after them (hub.log.GroupWriter).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

from hub.log import GroupsLeftAlone, GroupWriter
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.status_records import GroupPlace, GroupStatus
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.ownership.group_offsets import CarriedPosition, GroupMark, GroupSides, carry, marks_for
from hub.replication.ownership.links import Link, opposite
from hub.replication.ownership.loss_report import MirroredPartition, assess

log = logging.getLogger(__name__)

Found = tuple[GroupSides, tuple[CarriedPosition, ...]]  # a group, and the decision for each partition
_AT_ONCE = 50  # a reader of committed positions waits for the transaction


class GroupCarrier:
    """The groups of a link as they are on both sides, and the decision for each."""

    def __init__(self, file: MirrorsFile, link: Link, source: ClusterHandle, target: ClusterHandle) -> None:
        self.file, self.link, self.source, self.target = file, link, source, target

    def table(
        self, tp: TopicPartition, progress: WrittenState, other: WrittenState | None
    ) -> OffsetMap | TwoWayOffsetMap | None:
        """Return the map of one partition, joined with the other direction's if there is one."""
        forward = progress.table(self.link.name, tp)
        if forward is None or other is None:
            return forward
        back = opposite(self.file, self.link, tp.topic)
        if back is None or (mark := other.checkpoints.get((back, *tp))) is None:
            return forward
        if not mark.goes_back(progress.checkpoints[self.link.name, *tp]):
            return forward
        backward = other.table(back, tp)
        return None if backward is None else TwoWayOffsetMap(forward, backward)

    def group_sides(self, topics: Iterable[str]) -> list[GroupSides]:
        """Return every group to carry, with its positions in these topics on both sides."""
        wanted = set(topics)
        here = [group for group in self.source.kafka.groups() if self.link.mirror.selects_group(group)]
        positions = self.source.kafka.positions_of_groups(here)
        mine = {g: of for g, p in positions.items() if (of := p.of_topics(wanted).offsets)}
        theirs = self.target.kafka.positions_of_groups(list(mine))
        there = [group for group in self.target.kafka.groups() if group in mine]
        members = self.target.kafka.group_members(there)
        return [
            GroupSides(
                group,
                offsets,
                theirs[group].of_topics(wanted).offsets if group in theirs else {},
                bool(members.get(group)),
            )
            for group, offsets in sorted(mine.items())
        ]

    def untouched(
        self, groups: Iterable[GroupSides], known: Container[TopicPartition]
    ) -> dict[TopicPartition, OffsetMap]:
        """Return maps of partitions that are not mirrored yet (not in ``known``) and empty at the target.
        Their readers continue there at the first record, whenever it comes: without a position, and with
        `latest`, they would skip it.
        """
        places = {tp for sides in groups for tp in sides.source if tp not in known}
        there = self.target.kafka.topics().keys() if places else ()
        topics = sorted({tp.topic for tp in places if tp.topic in there})
        begins = self.source.kafka.beginning_offsets(topics)
        ends = self.target.kafka.end_offsets(topics, committed=False)
        return {tp: OffsetMap(begins.get(tp)) for tp in places if ends.get(tp, -1) == 0}

    def look(
        self,
        topics: Iterable[str],
        table: Callable[[TopicPartition], OffsetMap | TwoWayOffsetMap | None],
        marks: Mapping[str, Mapping[TopicPartition, GroupMark]],
        known: Container[TopicPartition],
    ) -> list[Found]:
        """Return each group with the decision for each partition. ``known``: partitions with a checkpoint."""
        found = []
        groups = self.group_sides(topics)
        untouched = self.untouched(groups, known)
        for sides in groups:
            tables = untouched | {tp: made for tp in sides.source if (made := table(tp)) is not None}
            carried = carry(sides, tables, marks.get(sides.group, {}), force=self.link.mirror.groups.force)
            found.append((sides, carried))
        return found

    def status(
        self,
        found: Sequence[Found],
        progress: WrittenState,
        marks: Mapping[str, Mapping[TopicPartition, GroupMark]],
        now_ms: int,
        other: WrittenState | None = None,
    ) -> tuple[GroupStatus, ...]:
        """Return the status of each group, with the cost of a failover now."""
        places = sorted({tp for sides, _ in found for tp in sides.source})
        ends = self.source.kafka.end_offsets(sorted({tp.topic for tp in places})) if places else Positions()
        partitions = {}
        for tp in places:
            table, both = progress.table(self.link.name, tp), self.table(tp, progress, other)
            if table is not None:
                end = ends.get(tp, table.source_next)
                joint = both if isinstance(both, TwoWayOffsetMap) else None
                partitions[tp] = MirroredPartition(table, table.target_next, end, joint=joint)
        made = []
        for sides, carried in found:
            effects = {each.place: each for each in assess(partitions, [sides], marks, place=True).effects}
            rows = []
            for each in carried:
                effect = effects.get(each.place)
                rows.append(
                    GroupPlace(
                        *each.place,
                        each.state,
                        each.reason,
                        each.source_offset,
                        each.position,
                        effect.unread_lost if effect else 0,
                        effect.redelivered if effect else 0,
                    )
                )
            made.append(GroupStatus(self.link.name, sides.group, tuple(rows), now_ms))
        return tuple(made)


def any_to_commit(found: Iterable[Found]) -> bool:
    return any(each.commit is not None for _, carried in found for each in carried)


def mark_and_commit(writer: GroupWriter, target: ClusterHandle, link: str, found: Sequence[Found]) -> None:
    """Commit the positions to write, and their marks, in transactions of ``_AT_ONCE`` groups each.

    ``writer``: of the link's shard -1, so a worker that was suspended meanwhile commits nothing. A group that
    has got members or has moved since it was read is left alone; so is one that moves during the commit, see
    GroupWriter. Raises WriterFenced when another worker has the shard.
    """
    due = [each for each in found if any_to_commit([each])]
    for first in range(0, len(due), _AT_ONCE):
        _commit(writer, target, link, due[first : first + _AT_ONCE])


def _commit(writer: GroupWriter, target: ClusterHandle, link: str, due: Sequence[Found]) -> None:
    while due:
        marks = [mark.record() for sides, carried in due for mark in marks_for(link, carried, sides)]
        positions = {
            sides.group: Positions({each.place: each.commit for each in carried if each.commit is not None})
            for sides, carried in due
        }
        try:
            writer.append_with_groups(marks, positions, partial(_check_unmoved, target, due))
            return
        except GroupsLeftAlone as left:
            log.info("groups were not moved: %s", left.message)
            rest = [(sides, carried) for sides, carried in due if sides.group not in left.groups]
            if len(rest) == len(due):
                raise
            due = rest


def _check_unmoved(target: ClusterHandle, due: Sequence[Found]) -> None:
    """Raise GroupsLeftAlone when groups have changed since they were read: they have members, or other
    positions.
    """
    groups = [sides.group for sides, _ in due]
    positions, described = target.kafka.positions_of_groups(groups), target.kafka.describe_groups(groups)
    left: dict[str, str] = {}
    for sides, carried in due:
        members = described[sides.group].members if sides.group in described else None
        now = positions.get(sides.group, Positions()).offsets
        moved = [
            each.place
            for each in carried
            if each.commit is not None and now.get(each.place) != sides.target.get(each.place)
        ]
        if members is None or members > 0:
            left[sides.group] = "it has members now" if members else "Kafka does not describe it now"
        elif moved:
            left[sides.group] = f"it moved in {moved[0].topic} partition {moved[0].partition} meanwhile"
    if left:
        first = min(left)
        raise GroupsLeftAlone(f'{len(left)} moved by themselves, first "{first}": {left[first]}', left)
