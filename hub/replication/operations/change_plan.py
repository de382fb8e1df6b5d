"""[shell] Plan of a change of ownership: its topics, steps, access rules and effects. Reads both clusters and
writes nothing; the command line, the server and a drill show the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hub.replication.operations import write_access
from hub.replication.operations.by_topic import check_all, states_of
from hub.replication.operations.divergence.tail_plan import TailPlan, plan_tail
from hub.replication.operations.effects import loss_report, not_mirrored
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.operator import Operator
from hub.replication.ownership.failover import begin
from hub.replication.ownership.links import Link
from hub.replication.ownership.loss_report import LossReport
from hub.replication.ownership.operation_steps import Kind, OwnershipChange, Tail
from hub.replication.ownership.topic_state import TopicState
from hub.times import epoch_ms


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A change of ownership before it begins, as of ``at_ms``.

    ``topics``: those that move by themselves; empty: all of the home. ``not_mirrored``: topics that workers
    cannot carry, with the reason; every kind but a failover is refused for them. ``masked``: topics whose
    records written at the target never return. ``rights``: lines on the access rules that change. ``tail``:
    of a failback, what happens to the records that only the home has.
    """

    operation: OwnershipChange
    topics: tuple[TopicState, ...]
    report: LossReport
    not_mirrored: dict[str, str]
    masked: tuple[str, ...]
    rights: tuple[str, ...]
    at_ms: int
    tail: TailPlan | None = None

    @property
    def steps(self) -> list[dict[str, str]]:
        return [
            {"step": each.name, "does": each.does, "at": ", ".join(each.at)} for each in self.operation.steps
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as ``hub mirror drill -o json`` prints it."""
        change = self.operation
        return {
            "kind": change.kind,
            "topics": [each.topic for each in self.topics],
            "old": change.old,
            "new": change.new,
            "steps": self.steps,
            **effects_as_json(self.report, self.at_ms),
            "not_mirrored": self.not_mirrored,
            "masked": list(self.masked),
            "rights": list(self.rights),
            **(self.tail.as_json() if self.tail is not None else {}),
        }


def chosen_topics(
    clusters: MirroredClusters, link: Link, kind: Kind, patterns: Sequence[str]
) -> tuple[TopicState, ...]:
    """Return the topics that a change of single topics moves; () without patterns: all of the home.

    Raises NotFound for a pattern that fits no topic, Conflict (HUB-1973) if one does not accept the change.
    """
    if not patterns:
        return ()
    states = states_of(clusters, link, patterns)
    check_all(states, "failover" if kind == "drill" else kind)
    return tuple(states)


def plan_change(
    clusters: MirroredClusters, link: Link, kind: Kind, topics: Sequence[TopicState], tail: Tail = "replay"
) -> ChangePlan:
    """Return the plan. ``topics``: of ``chosen_topics``. Raises Conflict when the change cannot begin."""
    names, at_ms = [each.topic for each in topics], epoch_ms()
    sides = MirroredClusters(clusters.file, clusters.clusters, frozenset(names))
    control, home = sides.control(), link.source
    old = control.owner(control.scope(home, names[0]) if names else home).acting
    new = home if kind == "failback" else link.target
    sides.check_reach(kind, old, new)
    operation = begin(
        control,
        kind,
        id="drill",
        mirror=link.name,
        home=home,
        new=new,
        now_ms=at_ms,
        old_is_up=sides.is_up(old),
        tail=tail,
        topics=names,
    )
    Operator(sides).check_way(home, old, new)
    return ChangePlan(
        operation,
        tuple(topics),
        loss_report(sides, home, old, new),
        not_mirrored(sides, home, old, new),
        tuple(sides.masked(home, old, new)),
        tuple(line for change in write_access.rights(sides, operation) for line in change.lines()),
        at_ms,
        plan_tail(sides, home, old, tail) if kind == "failback" else None,
    )


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """A change of ownership that is complete. ``loss``: effects of a failover; None: no other kind loses."""

    operation: OwnershipChange
    loss: LossReport | None
    at_ms: int

    def as_json(self) -> dict[str, Any]:
        done = self.operation
        body = {"kind": done.kind, "id": done.id, "epoch": done.epoch, "old": done.old, "new": done.new}
        effects = effects_as_json(self.loss, self.at_ms) if self.loss else {}
        if done.export:
            effects["export"] = done.export
        return {**body, "topics": list(done.topics), "steps": list(done.done), **effects}


def carry_out(operator: Operator, operation: OwnershipChange) -> ChangeOutcome:
    """Do every step that is not done. Raises the error of a step; then resume or abort."""
    before = loss_report(operator.world, operation.home, operation.old, operation.new)
    at_ms = epoch_ms()
    done = operator.carry_on(operation)
    return ChangeOutcome(done, before if operation.kind == "failover" else None, at_ms)


def effects_as_json(report: LossReport, now_ms: int) -> dict[str, Any]:
    """Return the report for `-o json`. An unknown number is null; its bounds and the age of the source's last
    answer are given too.
    """
    heard = report.heard_at_ms
    return {
        "exact": report.is_exact,
        "lost": report.lost,
        "lost_at_least": report.lost_at_least,
        "redelivered": report.redelivered,
        "redelivered_at_least": report.redelivered_at_least,
        "redelivered_at_most": report.redelivered_at_most,
        "source_heard_at_ms": heard,
        "source_heard_s": None if heard is None else round(max(0, now_ms - heard) / 1000, 1),
        "losses": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "first": each.first,
                "end": each.end,
                "count": each.count,
                "known": each.known,
                "heard_at_ms": each.heard_at_ms,
            }
            for each in report.losses
            if each.count or not each.known
        ],
        "groups": [
            {
                "group": each.group,
                "topic": each.place.topic,
                "partition": each.place.partition,
                "state": each.state,
                "reason": each.reason,
                "position": each.position,
                "known": each.known,
                "redelivered": each.redelivered,
                "redelivered_at_most": each.redelivered if each.known else each.redelivered_at_most,
                "unread_lost": each.unread_lost,
                "read_only_here": each.read_only_here,
            }
            for each in report.effects
        ],
    }
