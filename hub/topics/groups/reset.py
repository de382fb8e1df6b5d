"""[shell] Read the positions of a consumer group, plan a reset, carry it out.

The caller needs ``describe`` on a topic to see a group's positions in it, and ``operate`` to reset them.
Topics without are left out, or refused where they are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.caller import Action, Forbidden, Kind, Resource, may, require, sees_topic
from hub.errors import CallerError, NotFound
from hub.kafka import GroupMember
from hub.record import Positions, TopicPartition
from hub.topics.browse.readers import OWN_GROUPS
from hub.topics.groups.reset_plan import LogOffsets, ResetPlan, ResetRequest, check_plan, plan_reset


class ResetCluster(Protocol):
    """Cluster calls that this module needs."""

    def group_positions(self, group: str) -> Positions: ...

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]: ...

    def partition_counts(self, topics: Sequence[str]) -> Mapping[str, int]: ...

    def beginning_offsets(self, topics: Sequence[str]) -> Positions: ...

    def end_offsets(self, topics: Sequence[str]) -> Positions: ...

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Positions: ...

    def publish_group(self, group: str, positions: Positions) -> None:
        """Commit positions of a group. Raises PeerError where it has members."""


@dataclass(frozen=True)
class GroupPositions:
    """Consumer groups of one cluster."""

    cluster: ResetCluster

    def plan(self, request: ResetRequest) -> ResetPlan:
        """Return the plan of a reset as of now; without a target the positions alone. Raises NotFound,
        CallerError, Forbidden, PeerError."""
        if request.target is not None and request.group.startswith(OWN_GROUPS):
            raise CallerError(
                f'group "{request.group}": the hub publishes the positions of a view here, and reads none',
                hint="to read events again, rebuild the view: docs/how-to/recover-a-view.md",
            )
        positions = self.cluster.group_positions(request.group)
        members = self.cluster.group_members([request.group]).get(request.group, ())
        read = {tp.topic for tp, _ in positions} | {topic for member in members for topic in member.topics}
        topics, notes = self._topics(request, read)
        log = self._offsets(request, topics)
        clients = sorted(each.client_id for each in members)
        return plan_reset(request, positions, log, clients, notes)

    def reset(self, request: ResetRequest, digest: str | None = None) -> ResetPlan:
        """Carry out a reset, and return its plan. ``digest``: of the plan that the caller saw. Raises the
        errors of ``plan``, and Conflict; PeerError where a member joined meanwhile."""
        plan = self.plan(request)
        check_plan(plan, digest)
        if plan.changes:
            self.cluster.publish_group(request.group, plan.positions)
        return plan

    def _topics(self, request: ResetRequest, read: set[str]) -> tuple[list[str], list[str]]:
        """Return the topics of a request, and notes on those that are left out."""
        action = Action.describe if request.target is None else Action.operate
        named = request.partitions()
        counts = self.cluster.partition_counts(sorted(named or read))
        for topic, numbers in named.items():
            require(action, Resource(Kind.topic, topic))
            if topic not in counts:
                raise NotFound(f'topic "{topic}" does not exist', hint="all that there are: hub topic ls")
            if numbers and max(numbers) >= counts[topic]:
                raise NotFound(
                    f'topic "{topic}" has no partition {max(numbers)}',
                    hint=f"it has 0 to {counts[topic] - 1}",
                )
        if named:
            return sorted(named), []
        visible = {topic for topic in read if sees_topic(topic)}
        if not visible:
            raise NotFound(
                f'group "{request.group}" has no position in any topic',
                hint="all groups: hub lag; to give it positions, name a topic",
            )
        there = visible & counts.keys()
        allowed = {topic for topic in there if may(action, Resource(Kind.topic, topic))}
        if there and not allowed:
            raise Forbidden(
                f'group "{request.group}": you may not {action} the topics that it reads',
                hint="the grant operate on its topics: hub access check",
            )
        gone = sorted(visible - counts.keys())
        notes = [f"Topic {topic} does not exist any more." for topic in gone[:10]]
        left = len(read) - len(gone) - len(allowed)
        if left:
            notes.append(f"{left} other topic{'s' * (left > 1)} of this group: you may not {action} them.")
        return sorted(allowed), notes

    def _offsets(self, request: ResetRequest, topics: Sequence[str]) -> LogOffsets:
        if not topics:
            return LogOffsets(Positions(), Positions())
        named = request.partitions()
        target = request.target
        at = Positions()
        if target is not None and target.form == "time":
            at = self.cluster.offsets_at(topics, target.number)
        begins = self.cluster.beginning_offsets(topics)
        ends = self.cluster.end_offsets(topics)

        def is_selected(tp: TopicPartition) -> bool:
            return not named.get(tp.topic) or tp.partition in named[tp.topic]

        return LogOffsets(begins, Positions({tp: end for tp, end in ends if is_selected(tp)}), at)
