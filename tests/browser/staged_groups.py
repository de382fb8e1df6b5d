"""Consumer groups of a cluster in memory, and a gateway that keeps its records: ports of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.errors import PeerError
from hub.kafka import GroupMember
from hub.log import MemoryCluster
from hub.record import Positions
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceRequest


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


@dataclass
class StagedGateway:
    """``written``: topics and records, one for each idempotency key. ``refuses``: the line of the answer."""

    written: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    refuses: dict[str, Any] | None = None
    _known: dict[str | None, int] = field(default_factory=dict)

    def write(self, request: ProduceRequest) -> GatewayAnswer:
        if self.refuses is not None:
            return GatewayAnswer(self.refuses["error_code"], (self.refuses,))
        if request.idempotency_key not in self._known:
            self._known[request.idempotency_key] = len(self.written)
            self.written.append((request.topic, orjson.loads(request.body)))
        offset = self._known[request.idempotency_key]
        return GatewayAnswer(200, ({"error_code": 200, "partition_id": 0, "offset": offset},))
