"""[edge] Reads what a plan needs from the cluster and the registry, and carries a plan out, step by step.

Every step is idempotent, so an apply that was cut off is finished by the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from hub.errors import ConfigError, Conflict
from hub.kafka import KafkaCluster
from hub.log import TopicDescription
from hub.schema_registry.client import RegistryClient
from hub.schema_registry.formats import avro
from hub.topics.plan import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    Plan,
    RegisterSchema,
    SetCompatibility,
    Step,
    plan,
)
from hub.topics.tree import TopicTree


class _Registered:
    """The registry as a plan sees it: schemas compared by their canonical text."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry

    def has(self, subject: str, schema: str) -> bool:
        wanted = avro.canonical(avro.parse(schema))
        return any(
            avro.canonical(avro.parse(version.schema)) == wanted
            for version in self.registry.versions(subject)
        )

    def exists(self, subject: str) -> bool:
        return bool(self.registry.versions(subject))

    def incompatibilities(self, subject: str, schema: str) -> Sequence[str]:
        return self.registry.incompatibilities(subject, schema)

    def compatibility(self, subject: str) -> str:
        return self.registry.compatibility(subject)


def read_schemas(tree: TopicTree) -> dict[str, str]:
    """The schema files' contents by topic. Raises ConfigError naming the topic and the file."""
    texts = {}
    for topic in tree.topics:
        if topic.schema is None:
            continue
        try:
            texts[topic.name] = topic.schema.read_text(encoding="utf-8")
            avro.parse(texts[topic.name])
        except OSError as error:
            raise ConfigError(
                f'topic "{topic.name}": its schema file cannot be read ({error.strerror})',
                where=str(topic.schema),
                hint="the path is taken from the folder of topics.yaml",
            ) from None
        except avro.InvalidSchema as error:
            raise ConfigError(f'topic "{topic.name}": {error.message}', where=str(topic.schema)) from None
    return texts


def make_plan(tree: TopicTree, cluster: KafkaCluster, registry: RegistryClient) -> Plan:
    """What would change now."""
    actual = cluster.topics()
    named = [topic.name for topic in tree.topics if topic.name in actual]
    configs: Mapping[str, Mapping[str, str]] = cluster.topic_config(named)
    described: dict[str, TopicDescription] = {
        name: replace(topic, config=configs.get(name, {})) for name, topic in actual.items()
    }
    return plan(tree, described, read_schemas(tree), _Registered(registry))


def apply(
    steps: Plan,
    cluster: KafkaCluster,
    registry: RegistryClient,
    say: Callable[[Step], None] = lambda _step: None,
) -> None:
    """Carry out exactly the steps of a plan. Raises Conflict when the plan has refusals; nothing is done then."""
    if steps.refusals:
        raise Conflict("\n".join(map(str, steps.refusals)), hint="nothing was changed")
    for step in steps.steps:
        _carry_out(step, cluster, registry)
        say(step)


def _carry_out(step: Step, cluster: KafkaCluster, registry: RegistryClient) -> None:
    match step:
        case CreateTopic(topic):
            # Someone may be quicker; the next plan compares the topic's settings.
            with contextlib.suppress(Conflict):
                cluster.create_topic(
                    topic.name,
                    partitions=topic.partitions,
                    config=topic.config,
                    replication_factor=topic.replication_factor,
                )
        case AddPartitions(topic, _):
            cluster.add_partitions(topic.name, topic.partitions)
        case AlterConfig(topic, changes):
            cluster.alter_config(topic.name, {key: new for key, (_, new) in changes.items()})
        case SetCompatibility(topic, level, _):
            registry.set_compatibility(topic.subject, level)
        case RegisterSchema(topic, schema, _):
            registry.register(topic.subject, schema)
        case _:
            assert_never(step)
