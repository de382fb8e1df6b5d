"""Consumer groups of a cluster in memory, for the port of hub.topics.groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hub.errors import PeerError
from hub.kafka import GroupMember
from hub.log import MemoryCluster
from hub.record import Positions


@dataclass
class StagedGroups:
    """``members``: client ids by group. As in Kafka, a group that has members refuses positions."""

    cluster: MemoryCluster
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def group_positions(self, group: str) -> Positions:
        return Positions(dict(self.cluster.committed.get(group, {})))

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        return {
            group: [GroupMember(each, frozenset()) for each in self.members.get(group, ())]
            for group in groups
        }

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]:
        return self.cluster.partition_counts(topics)

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        return self.cluster.beginning_offsets(topics)

    def end_offsets(self, topics: Sequence[str]) -> Positions:
        return self.cluster.end_offsets(topics)

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions:
        return self.cluster.offsets_at(topics, timestamp_ms)

    def publish_group(self, group: str, positions: Positions) -> None:
        if self.members.get(group):
            raise PeerError(f'group "{group}": it has members', code="HUB-3012")
        self.cluster.committed.setdefault(group, {}).update(dict(positions))
