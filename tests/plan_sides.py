"""Sides of a mirror's plan for one topic, as values."""

from __future__ import annotations

from typing import Any

from hub.log import TopicDescription
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.planning.plan import MirrorPlan, plan
from hub.replication.planning.schema_plan import RegistrySide
from hub.replication.planning.steps import AlterTargetConfig, ClusterSide, SyncedTopic

DEFAULTS: dict[str, str | None] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "min.insync.replicas": "1",
    "cleanup.policy": "delete",
    "unclean.leader.election.enable": "false",
}
T = "nyc.chat"


def topic(
    config: dict[str, str] | None = None, partitions: int = 3, replicas: int = 3, id: str = "s"
) -> TopicDescription:
    return TopicDescription(T, id, partitions, replicas, config or {})


def side(found: TopicDescription | None, **said: Any) -> ClusterSide:
    if "schemas" in said:
        said["registry"] = RegistrySide(said.pop("schemas"))
    return ClusterSide(
        {} if found is None else {T: found}, said.pop("defaults", DEFAULTS), said.pop("brokers", 3), **said
    )


def made(
    source: ClusterSide,
    target: ClusterSide,
    synced: SyncedTopic | None = None,
    marks: tuple[Checkpoint, ...] = (),
    **said: Any,
) -> MirrorPlan:
    mirror = Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.*"], **said})
    return plan("nyc-lon", mirror, [T], source, target, {} if synced is None else {T: synced}, marks)


def mark(**said: Any) -> Checkpoint:
    fixed = {
        "topic_id": "s",
        "source_next": 10,
        "source_leader_epoch": 1,
        "target_next": 12,
        "target_topic_id": "t",
    }
    return Checkpoint("nyc-lon", 0, T, 0, **{**fixed, **said})


def altered(found: MirrorPlan) -> dict[str, tuple[str | None, str | None]]:
    return {
        k: v for step in found.steps if isinstance(step, AlterTargetConfig) for k, v in step.changes.items()
    }
