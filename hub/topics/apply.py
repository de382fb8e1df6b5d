"""[shell] Reads what a plan needs from the cluster and the registry, and carries a plan out, step by step.

Before it is shown, a plan is rehearsed by the brokers themselves, so that what they would refuse is refused before
anything is changed. Every step is idempotent: an apply that was cut off is finished by the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, assert_never

from hub.errors import CallerError, ConfigError, Conflict, NotFound
from hub.kafka import KafkaCluster
from hub.log import Cluster
from hub.schema_registry.client import RegistryClient
from hub.schema_registry.compatibility import check
from hub.schema_registry.formats import InvalidSchema, avro
from hub.topics.plan import (
    Actual,
    AddPartitions,
    Allowed,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    Plan,
    Refusal,
    RegisterSchema,
    SetCompatibility,
    Step,
    plan,
)
from hub.topics.tree import TopicTree

_ASKED_FOR_DEFAULTS = 20


class SchemaWriter(Protocol):
    """What apply asks of the registry."""

    def register(self, subject: str, schema: str) -> int: ...

    def set_compatibility(self, subject: str, level: str) -> None: ...


class RegisteredSchemas:
    """The registry as a plan sees it."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry

    def versions(self, subject: str) -> Sequence[str]:
        try:
            latest = self.registry.latest(subject)
        except NotFound:
            return []
        earlier = [each for each in self.registry.versions(subject) if each.version < latest.version]
        return [each.schema for each in (*earlier, latest)]

    def compatibility(self, subject: str) -> str:
        return self.registry.compatibility(subject)

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        if level == self.registry.compatibility(subject):
            return self.registry.incompatibilities(subject, schema)
        # The registry judges by the level it has, and this one is only about to be set.
        earlier = [(n, avro.parse(text)) for n, text in enumerate(self.versions(subject), 1)]
        return [str(each) for each in check(avro.parse(schema), earlier, level)]


def read_schemas(tree: TopicTree) -> dict[str, str]:
    """The schema files' contents by topic. Raises ConfigError naming the topic and the file."""
    texts = {}
    for topic in tree.topics:
        if topic.schema is None:
            continue
        try:
            texts[topic.name] = topic.schema.read_text(encoding="utf-8")
            avro.parse(texts[topic.name])
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(
                f'topic "{topic.name}": its schema file "{topic.schema}" cannot be read ({why})',
                where=tree.place(topic.name, "schema"),
                hint="the path is taken from the folder of topics.yaml",
                code="HUB-1105",
            ) from None
        except InvalidSchema as error:
            raise ConfigError(
                f'topic "{topic.name}": {error.message}', where=str(topic.schema), code="HUB-1105"
            ) from None
    return texts


def make_plan(
    tree: TopicTree,
    cluster: KafkaCluster,
    registry: RegistryClient,
    allowed: Allowed = Allowed(),
) -> Plan:
    """What would change now; what the brokers would refuse is among the refusals. Changes nothing."""
    texts = read_schemas(tree)
    topics = cluster.topics()
    named = [topic.name for topic in tree.topics if topic.name in topics]
    configs: Mapping[str, Mapping[str, str]] = cluster.topic_config(named)
    described = {name: replace(topic, config=configs.get(name, {})) for name, topic in topics.items()}
    defaults = cluster.default_config(sorted(topics)[:_ASKED_FOR_DEFAULTS])
    made = plan(tree, Actual(described, defaults), texts, RegisteredSchemas(registry), allowed)
    if made.refusals:
        return made
    return replace(made, refusals=tuple(_rehearsed(made.steps, cluster)))


def _rehearsed(steps: Sequence[Step], cluster: KafkaCluster) -> Iterator[Refusal]:
    for step in steps:
        try:
            match step:
                case CreateTopic(topic):
                    cluster.create_topic(
                        topic.name,
                        partitions=topic.partitions,
                        config=topic.config,
                        replication_factor=topic.replication_factor,
                        rehearse=True,
                    )
                case AddPartitions(topic, _):
                    cluster.add_partitions(topic.name, topic.partitions, rehearse=True)
                case AlterConfig(topic, changes):
                    cluster.alter_config(topic.name, _wanted(changes), rehearse=True)
                case SetCompatibility() | RegisterSchema() | DeleteTopic():
                    pass  # the plan has asked the registry itself
                case _:
                    assert_never(step)
        except CallerError as error:
            yield Refusal(
                topic.name, error.message.partition(": ")[2] or error.message, "nothing was changed"
            )


def apply(
    made: Plan,
    cluster: Cluster,
    registry: SchemaWriter,
    say: Callable[[Step], None] = lambda _step: None,
) -> None:
    """Carry out exactly the steps of a plan; ``say`` hears each that is done. Raises Conflict when the plan has
    refusals; nothing is done then."""
    if made.refusals:
        raise Conflict("\n".join(map(str, made.refusals)), hint="nothing was changed")
    for step in made.steps:
        _carry_out(step, cluster, registry)
        say(step)


def _carry_out(step: Step, cluster: Cluster, registry: SchemaWriter) -> None:
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
            if cluster.topics()[topic.name].partitions < topic.partitions:
                cluster.add_partitions(topic.name, topic.partitions)
        case AlterConfig(topic, changes):
            cluster.alter_config(topic.name, _wanted(changes))
        case SetCompatibility(topic, level, _):
            registry.set_compatibility(topic.subject, level)
        case RegisterSchema(topic, schema, _):
            registry.register(topic.subject, schema)
        case DeleteTopic(name):
            with contextlib.suppress(NotFound):
                cluster.delete_topic(name)
        case _:
            assert_never(step)


def _wanted(changes: Mapping[str, tuple[str | None, str | None]]) -> dict[str, str | None]:
    return {key: new for key, (_, new) in changes.items()}
