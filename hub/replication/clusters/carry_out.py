"""[edge] Carry out the steps of a mirror plan, each idempotent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from hub.errors import Conflict, HubError, PeerError
from hub.record import NewRecord
from hub.replication.clusters.clusters import REFUSED, ClusterHandle, rule_of
from hub.replication.clusters.link_plan import LinkPlan
from hub.replication.clusters.registries import carry_schema
from hub.replication.clusters.registry_side import carry_out as carry_out_at_registry
from hub.replication.planning.schema_plan import DeleteSchema, ImportSchema, RegisterTargetSchema, SetSubject
from hub.replication.planning.steps import (
    AddTargetPartitions,
    AlterAcls,
    AlterTargetConfig,
    CreateTargetTopic,
    NewGeneration,
    Remember,
    Step,
)

_SETTLE_S = 10.0


def carry_out(
    steps: Sequence[Step],
    source: ClusterHandle,
    target: ClusterHandle,
    report: Callable[[Step], None] = lambda step: None,
) -> dict[str, HubError]:
    """Carry out the steps in order; return the topics whose step failed, with the error. Later steps of these
    topics are skipped.
    """
    failed: dict[str, HubError] = {}
    for step in steps:
        if step.topic in failed:
            continue
        try:
            _do(step, source, target)
        except HubError as error:
            failed[step.topic] = error
        else:
            report(step)
    return failed


def record_found(made: LinkPlan, target: ClusterHandle) -> None:
    """Record who may write at the source, if that changed: the source may be down when it is needed. Record
    what somebody changed at the copies, before any of it is put back.
    """
    if made.rights is not None:
        _remember(made.rights.record(), target)
    for each in made.drift:
        _remember(each.record(), target)


def protect(made: LinkPlan, target: ClusterHandle) -> list[str]:
    """Change the rules that protect the copies; they are recorded before. Returns what a person has to know:
    an unprotected copy is mirrored all the same.
    """
    due = made.protection
    if due is None:
        return []
    name = made.link.name
    found = [f"{name}: copies at {target.name} are not protected: {note}" for note in due.change.notes]
    if due.is_empty:
        return found
    try:
        _remember(due.before.record(), target)
        target.kafka.add_rules(map(rule_of, due.change.add))
        target.kafka.remove_rules(map(rule_of, due.change.remove))
        _remember(due.after.record(), target)
    except PeerError as error:
        if error.code != REFUSED:
            raise
        found.append(
            f"{name}: copies at {target.name} are not protected: {error.message}; let the mirror's user "
            "Alter the cluster, or set `protect: false`"
        )
    return found


def make_own(own: Iterable[tuple[str, CreateTargetTopic]], clusters: Mapping[str, ClusterHandle]) -> None:
    """Create the mirrors' own topics; a topic that somebody else creates at the same time counts
    as created.
    """
    for where, step in own:
        _create(step, clusters[where])


def _do(step: Step, source: ClusterHandle, target: ClusterHandle) -> None:
    kafka = target.kafka
    match step:
        case ImportSchema() | DeleteSchema():
            assert target.registry is not None
            carry_out_at_registry(step, target.registry)
        case SetSubject():
            assert target.registry is not None
            carry_out_at_registry(step, target.registry)
            _remember(step.synced.record(), target)
        case RegisterTargetSchema():
            carry_schema(source, target, step.schema.id, step.schema.subject)
        case CreateTargetTopic():
            _create(step, target)
        case AddTargetPartitions():
            there = kafka.topics().get(step.topic)
            if there is not None and there.partitions < step.total:
                kafka.add_partitions(step.topic, step.total)
        case AlterTargetConfig():
            kafka.alter_config(step.topic, {key: new for key, (_, new) in step.changes.items()})
        case AlterAcls():
            kafka.add_rules(rule_of(each) for each in step.add)
            kafka.remove_rules(rule_of(each) for each in step.remove)
        case NewGeneration():
            pass  # the worker that holds a shard begins it, under the shard's own fence
        case Remember():
            _remember(step.synced.record(), target)


def _remember(record: NewRecord, target: ClusterHandle) -> None:
    writer = target.kafka.writer()
    try:
        writer.append([record])
    finally:
        writer.close()


def _create(step: CreateTargetTopic, at: ClusterHandle) -> None:
    with contextlib.suppress(Conflict):
        at.kafka.create_topic(
            step.topic,
            partitions=step.partitions,
            config=step.config,
            replication_factor=step.replication_factor,
        )
    # Created, perhaps by another: offsets can be requested once its partitions have leaders.
    deadline = time.monotonic() + _SETTLE_S
    while True:
        try:
            at.kafka.end_offsets([step.topic])
            return
        except HubError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
