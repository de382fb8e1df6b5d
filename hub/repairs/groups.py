"""[shell] Positions of consumer groups: noted while the topic is held, moved when it is filled.

Kafka deletes the positions of a topic with the topic, and refuses new ones for a group that has members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.errors import Conflict
from hub.kafka import GroupMember
from hub.record import Positions
from hub.repairs.model import FilledPartition, GenerationChange, PartitionOffsets
from hub.topics.browse.readers import OWN_GROUPS

_AT_ONCE = 100


class RepairGroupCluster(Protocol):
    """Cluster calls that this module needs."""

    def groups(self) -> list[str]: ...

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]: ...

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]: ...


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """Groups with a position in a topic, by name and partition. ``active``: those that have members."""

    positions: Mapping[str, PartitionOffsets]
    active: tuple[str, ...]


def groups_of(cluster: RepairGroupCluster, topic: str) -> TopicGroups:
    """Return the groups that read a topic, without those of views: a view reads the new topic from its
    beginning by itself. Raises PeerError.
    """
    names = sorted(each for each in cluster.groups() if not each.startswith(OWN_GROUPS))
    positions: dict[str, PartitionOffsets] = {}
    active: list[str] = []
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        for group, held in cluster.positions_of_groups(some).items():
            here = {str(tp.partition): at for tp, at in held if tp.topic == topic}
            if here:
                positions[group] = here
        for group, members in cluster.group_members(some).items():
            if any(topic in member.topics for member in members) or (members and group in positions):
                active.append(group)
    return TopicGroups(positions, tuple(sorted(active)))


def require_inactive(topic: str, groups: TopicGroups) -> None:
    """Raise Conflict (HUB-1940) if a group that reads the topic has members."""
    if groups.active:
        shown = ", ".join(groups.active[:5]) + (", …" if len(groups.active) > 5 else "")
        raise Conflict(
            f'topic "{topic}": consumer groups have members now: {shown}',
            hint="stop their consumers, or leave their positions as they are: --leave-active",
            code="HUB-1940",
        )


def wanted_positions(change: GenerationChange, archived: PartitionOffsets) -> dict[int, list[int]]:
    """Return the noted positions by partition, ascending. Without those of an older generation, which
    ``begins_again`` names.
    """
    wanted: dict[int, set[int]] = {}
    for held in change.groups.values():
        for partition, at in held.items():
            if not begins_again(change, archived, partition, at):
                wanted.setdefault(int(partition), set()).add(at)
    return {partition: sorted(found) for partition, found in wanted.items()}


def begins_again(change: GenerationChange, archived: PartitionOffsets, partition: str, at: int) -> bool:
    """Return whether a group begins again at the start of a partition: it is among the events that an undo
    replaces by those of the earlier generation.
    """
    return change.base is not None and at < archived.get(partition, 0)


def moved_positions(
    topic: str,
    change: GenerationChange,
    archived: PartitionOffsets,
    filled: Mapping[int, FilledPartition],
) -> dict[str, Positions]:
    """Return the new positions by group. A position without a mark in ``filled`` was at the end."""
    moved: dict[str, Positions] = {}
    for group, held in change.groups.items():
        if group in change.left_groups:
            continue
        found = []
        for place, at in held.items():
            partition = filled.get(int(place), FilledPartition())
            again = begins_again(change, archived, place, at)
            found.append((topic, int(place), 0 if again else partition.marks.get(str(at), partition.end)))
        moved[group] = Positions.of(found)
    return moved
