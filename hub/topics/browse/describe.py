"""[shell] Describe one topic: replicas, sizes, settings and their origin, schemas, ownership, consumer
groups.

The parts come from several peers, which are asked concurrently within one timeout. A part that times out or
fails is left out and named in ``missing``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hub.caller import sees_topic
from hub.errors import HubError, NotFound, did_you_mean
from hub.kafka import KafkaCluster
from hub.kafka.log_dirs import log_sizes
from hub.log import ConfigValue, PartitionReplicas, same_setting
from hub.record import Positions, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.topics.tree.tree import TopicSpec

T = TypeVar("T")

_MOST_GROUPS = 500


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """One partition. ``begin`` and ``end`` are its first and next offset; ``bytes_by_broker`` is the size of
    each replica. None: unknown.
    """

    replicas: PartitionReplicas
    begin: int | None
    end: int | None
    bytes_by_broker: Mapping[int, int] | None

    @property
    def under_replicated(self) -> bool:
        return len(self.replicas.in_sync) < len(self.replicas.replicas)


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting. ``origin`` is "tree: NODE", "set by hand", "broker" (its configuration) or "default"
    (Kafka's).
    """

    key: str
    value: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """Latest schema of the topic's keys or values."""

    subject: str
    version: int
    schema_id: int
    compatibility: str


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group with positions in the topic. ``partitions`` is the number of partitions that it has a
    position in; ``lag_records`` is its lag over them, None if the end offsets are unknown.
    """

    group: str
    partitions: int
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """Description of a topic. ``spec`` is its declaration in the tree, None if it has none. ``missing`` lists
    the missing parts with reasons.
    """

    name: str
    spec: TopicSpec | None
    partitions: tuple[DescribedPartition, ...]
    settings: tuple[TopicSetting, ...]
    schemas: tuple[SubjectFacts, ...]
    groups: tuple[GroupFacts, ...]
    missing: tuple[str, ...]


def describe(
    name: str, spec: TopicSpec | None, cluster: KafkaCluster, registry: SchemaRegistry, wait_s: float
) -> DescribedTopic:
    """Describe the topic within about ``wait_s`` (the clients' own timeouts should not be longer).

    Raises NotFound with the nearest name, PeerError if the cluster does not answer at all.
    """
    deadline = time.monotonic() + wait_s
    replicas = _replicas(name, cluster)
    numbers = [each.partition for each in replicas]
    missing: list[str] = []
    executor = ThreadPoolExecutor(6, thread_name_prefix="describe")
    try:
        config = executor.submit(cluster.config_sources, name)
        begin = executor.submit(cluster.beginning_offsets, [name])
        end = executor.submit(cluster.end_offsets, [name])
        sizes = executor.submit(
            lambda: log_sizes(cluster.brokers(), name, numbers, wait_s, cluster.socket_to)
        )
        schemas = executor.submit(_subjects, registry, name)
        groups = executor.submit(_groups, cluster, name, deadline - wait_s / 4)

        took = partial(_answer, wait_s, deadline, missing)
        settings = took(config, "settings") or {}
        begins = took(begin, "first offsets") or Positions()
        ends = took(end, "end offsets") or Positions()
        bytes_of = took(sizes, "sizes")
        subjects = took(schemas, "schemas") or ()
        readers, unread_groups = took(groups, "consumer groups") or ({}, None)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    if unread_groups:
        missing.append(unread_groups)
    return DescribedTopic(
        name,
        spec,
        tuple(_partition(each, name, begins, ends, bytes_of) for each in replicas),
        tuple(
            TopicSetting(key, each.value, origin(key, each, spec)) for key, each in sorted(settings.items())
        ),
        subjects,
        tuple(_group(group, positions, ends) for group, positions in sorted(readers.items())),
        tuple(missing),
    )


def origin(key: str, found: ConfigValue, spec: TopicSpec | None) -> str:
    """Return the origin of a setting: the tree's node if the topic has the tree's value, else "set by hand"
    or the brokers.
    """
    if found.source != "topic":
        return found.source
    wanted = spec.config.get(key) if spec is not None else None
    if spec is None or wanted is None:
        return "set by hand"
    by = spec.set_by[f"config.{key}"]
    return (
        f"tree: {by}" if same_setting(wanted, found.value) else f"set manually (tree: {by} declares {wanted})"
    )


def _answer(wait_s: float, deadline: float, missing: list[str], future: Future[T], what: str) -> T | None:
    """Return the answer, or None without one until the deadline; the reason goes to ``missing``."""
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        missing.append(f"{what}: no answer within {wait_s:g} s")
    except HubError as error:
        missing.append(f"{what}: {error.message}")
    return None


def _replicas(name: str, cluster: KafkaCluster) -> Sequence[PartitionReplicas]:
    """Return the topic's partitions. Raises NotFound with the nearest name that the caller may see."""
    try:
        return cluster.replicas(name)
    except NotFound:
        raise NotFound(
            f'topic "{name}" does not exist',
            hint=did_you_mean(name, filter(sees_topic, cluster.topics()), "hub topic ls"),
        ) from None


def _partition(
    replicas: PartitionReplicas,
    name: str,
    begins: Positions,
    ends: Positions,
    bytes_of: Mapping[int, Mapping[int, int]] | None,
) -> DescribedPartition:
    tp = TopicPartition(name, replicas.partition)
    sizes = None if bytes_of is None else bytes_of.get(replicas.partition)
    return DescribedPartition(replicas, begins.offsets.get(tp), ends.offsets.get(tp), sizes)


def _subjects(registry: SchemaRegistry, name: str) -> tuple[SubjectFacts, ...]:
    found = []
    for subject in (f"{name}-key", f"{name}-value"):
        try:
            latest = registry.latest(subject)
        except NotFound:
            continue
        found.append(SubjectFacts(subject, latest.version, latest.id, registry.compatibility(subject)))
    return tuple(found)


def _groups(cluster: KafkaCluster, name: str, deadline: float) -> tuple[Mapping[str, Positions], str | None]:
    """Read the groups one by one until the deadline. Returns (positions by group, note about groups not read
    or None).
    """
    groups = cluster.groups()
    positions_of: dict[str, Positions] = {}
    for number, group in enumerate(groups):
        if time.monotonic() > deadline or number >= _MOST_GROUPS:
            return positions_of, f"consumer groups: {number} of {len(groups)} asked"
        positions = Positions(
            {tp: offset for tp, offset in cluster.group_positions(group) if tp.topic == name}
        )
        if positions:
            positions_of[group] = positions
    return positions_of, None


def _group(group: str, positions: Positions, ends: Positions) -> GroupFacts:
    known = [(offset, ends.offsets[tp]) for tp, offset in positions if tp in ends.offsets]
    lag = sum(max(0, end - offset) for offset, end in known) if known else None
    return GroupFacts(group, len(positions), lag)


def as_json(facts: DescribedTopic) -> dict[str, object]:
    """Return the output of ``hub topic describe -o json``; unknown values are null."""
    spec = facts.spec
    return {
        "topic": facts.name,
        "managed": spec is not None,
        "owner": spec.owner if spec else None,
        "doc": spec.doc if spec else None,
        "tags": list(spec.tags) if spec else [],
        "slo": {
            "latency_ms": spec.slo.latency_ms if spec else None,
            "freshness_ms": spec.slo.freshness_ms if spec else None,
            "lag_ms": spec.slo.lag_ms if spec else None,
            "completeness": spec.slo.completeness if spec else None,
        },
        "partitions": [
            {
                "partition": each.replicas.partition,
                "leader": each.replicas.leader,
                "replicas": list(each.replicas.replicas),
                "in_sync": list(each.replicas.in_sync),
                "begin": each.begin,
                "end": each.end,
                "bytes": None
                if each.bytes_by_broker is None
                else {str(broker): size for broker, size in each.bytes_by_broker.items()},
            }
            for each in facts.partitions
        ],
        "config": [{"key": each.key, "value": each.value, "origin": each.origin} for each in facts.settings],
        "schemas": [
            {
                "subject": each.subject,
                "version": each.version,
                "id": each.schema_id,
                "compatibility": each.compatibility,
            }
            for each in facts.schemas
        ],
        "groups": [
            {"group": each.group, "partitions": each.partitions, "lag_records": each.lag_records}
            for each in facts.groups
        ],
        "missing": list(facts.missing),
    }
