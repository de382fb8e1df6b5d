"""[shell] Reads what a plan needs from the cluster and the registry, and carries a plan out, step by step.

Before it is shown, a plan is rehearsed by the brokers themselves, so that what they would refuse is refused before
anything is changed. Every step is idempotent: an apply that was cut off is finished by the next one. Topics are made and
changed in batches: a thousand of them are ten requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from hub.errors import CallerError, ConfigError, Conflict, HubError, NotFound
from hub.files import read_text
from hub.kafka import KafkaCluster
from hub.log import Cluster, NewTopic, TopicDescription
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.compat.compatibility import check
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.topics.tree import saved_plan
from hub.topics.tree.plan import (
    Actual,
    AddPartitions,
    Allowed,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
    Step,
    TreePlan,
    TreeRefusal,
    plan,
)
from hub.topics.tree.tree import TopicTree

_ASKED_FOR_DEFAULTS = 20
# Of one request. A controller takes 10,000 records at once: each topic, partition and setting is one.
_MOST_TOPICS = 100
_MOST_PARTITIONS = 1_000


class PlanSchemaWriter(Protocol):
    """What apply asks of the registry."""

    def register(self, subject: str, schema: str) -> int: ...

    def set_compatibility(self, subject: str, level: str) -> None: ...


class RegisteredSchemas:
    """The registry as a plan sees it: each subject is asked for once, and is so until the plan is made."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry
        self._versions: dict[str, Sequence[str]] = {}
        self._levels: dict[str, str] = {}

    def versions(self, subject: str) -> Sequence[str]:
        if subject not in self._versions:
            self._versions[subject] = self._asked(subject)
        return self._versions[subject]

    def _asked(self, subject: str) -> Sequence[str]:
        try:
            latest = self.registry.latest(subject)
        except NotFound:
            return []
        earlier = [each for each in self.registry.versions(subject) if each.version < latest.version]
        return [each.schema for each in (*earlier, latest)]

    def compatibility(self, subject: str) -> str:
        if subject not in self._levels:
            self._levels[subject] = self.registry.compatibility(subject)
        return self._levels[subject]

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        if not self.versions(subject):
            return self._of_a_first(subject, schema)
        if level == self.compatibility(subject):
            return self.registry.incompatibilities(subject, schema)
        # The registry judges by the level it has, and this one is only about to be set.
        earlier = [(n, avro.parse(text)) for n, text in enumerate(self.versions(subject), 1)]
        return [str(each) for each in check(avro.parse(schema), earlier, level)]

    def _of_a_first(self, subject: str, schema: str) -> Sequence[str]:
        """No level looks at it; the rules of the tree do."""
        try:
            return self.registry.incompatibilities(subject, schema)
        except NotFound:  # another registry, which answers of subjects that it has only
            return ()


def read_schemas(tree: TopicTree) -> dict[str, str]:
    """The schema files' contents by topic. Raises ConfigError naming the topic and the file."""
    texts = {}
    for topic in tree.topics:
        if topic.schema is None:
            continue
        try:
            texts[topic.name] = read_text(topic.schema)
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


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan, not rehearsed yet, and digests of all that it was made from (for ``saved.check_unchanged``)."""

    plan: TreePlan
    facts: saved_plan.Facts


def compare(
    tree: TopicTree,
    cluster: KafkaCluster,
    registry: RegistryClient,
    allowed: Allowed = Allowed(),
) -> PreparedPlan:
    """What differs now between the tree, the cluster and the registry. Each is asked once, so that the plan and the
    digests are of the same moment."""
    texts = read_schemas(tree)
    schemas = RegisteredSchemas(registry)
    names = sorted({*(topic.name for topic in tree.topics), *allowed.destroy})
    topics = read_topics(cluster, names)
    defaults = cluster.default_config(sorted(topics)[:_ASKED_FOR_DEFAULTS])
    made = plan(tree, Actual(topics, defaults), texts, schemas, allowed)
    subjects = [topic.subject for topic in tree.topics if topic.name in texts or topic.compatibility]
    return PreparedPlan(made, saved_plan.facts(cluster.cluster_id(), names, topics, subjects, schemas))


def read_topics(cluster: Cluster, names: Sequence[str] | None = None) -> dict[str, TopicDescription]:
    """Every topic of the cluster; those that are named (None: all) with the settings that differ from the defaults."""
    tries = 3
    while True:
        topics = cluster.topics()
        there = [name for name in (topics if names is None else names) if name in topics]
        tries -= 1
        try:
            configs = cluster.topic_config(there)
        except NotFound:  # somebody deletes topics while they are read
            if not tries:
                raise
            continue
        return {name: replace(topic, config=configs.get(name, {})) for name, topic in topics.items()}


def make_plan(
    tree: TopicTree,
    cluster: KafkaCluster,
    registry: RegistryClient,
    allowed: Allowed = Allowed(),
) -> TreePlan:
    """What would change now; what the brokers would refuse is among the refusals. Changes nothing."""
    return rehearsed(compare(tree, cluster, registry, allowed).plan, cluster)


def check_unchanged(plan_file: saved_plan.SavedPlan, cluster: KafkaCluster, registry: RegistryClient) -> None:
    """Raises Conflict when what the plan was made from is not so any more."""
    names, subjects = saved_plan.names_in(plan_file.facts)
    topics = read_topics(cluster, names)
    now = saved_plan.facts(cluster.cluster_id(), names, topics, subjects, RegisteredSchemas(registry))
    saved_plan.check_unchanged(plan_file.facts, now)


def rehearsed(made: TreePlan, cluster: KafkaCluster) -> TreePlan:
    """The plan, with what the brokers would refuse among its refusals. Changes nothing."""
    if made.refusals:
        return made
    refusals: list[TreeRefusal] = []
    for batch in batches(made.steps):
        for name, error in _rehearse(batch, cluster).items():
            if not isinstance(error, CallerError):
                raise error
            why = error.message.partition(": ")[2] or error.message
            refusals.append(TreeRefusal(name, why, "nothing was changed", "topic"))
    return replace(made, refusals=tuple(refusals))


def _rehearse(batch: Batch, cluster: KafkaCluster) -> Mapping[str, HubError]:
    match batch:
        case CreateBatch(steps):
            return cluster.create_topics([_new(step) for step in steps], rehearse=True)
        case AlterBatch(steps):
            return cluster.alter_configs(_wanted(steps), rehearse=True)
        case AddPartitions(topic, _):
            try:
                cluster.add_partitions(topic.name, topic.partitions, rehearse=True)
            except HubError as error:
                return {topic.name: error}
            return {}
        case SetCompatibility() | RegisterSchema() | DeleteTopic():
            return {}  # the plan has asked the registry itself
        case _:
            assert_never(batch)


# ---- carrying out


@dataclass(frozen=True, slots=True)
class CreateBatch:
    steps: tuple[CreateTopic, ...]


@dataclass(frozen=True, slots=True)
class AlterBatch:
    steps: tuple[AlterConfig, ...]


Batch = CreateBatch | AlterBatch | AddPartitions | SetCompatibility | RegisterSchema | DeleteTopic


def batches(steps: Sequence[Step]) -> Iterator[Batch]:
    """The steps in their order; neighbours that create, or alter settings, together in one request of bounded size."""
    held: list[CreateTopic | AlterConfig] = []
    for step in steps:
        if held and not _joins(step, held):
            yield _batch(held)
            held = []
        if isinstance(step, CreateTopic | AlterConfig):
            held.append(step)
        else:
            yield step
    if held:
        yield _batch(held)


def _joins(step: Step, held: Sequence[CreateTopic | AlterConfig]) -> bool:
    if type(step) is not type(held[0]) or len(held) >= _MOST_TOPICS:
        return False
    if isinstance(step, CreateTopic):
        so_far = sum(each.topic.partitions for each in held)
        return so_far + step.topic.partitions <= _MOST_PARTITIONS
    return True


def _batch(held: Sequence[CreateTopic | AlterConfig]) -> Batch:
    creates = tuple(step for step in held if isinstance(step, CreateTopic))
    return (
        CreateBatch(creates) if creates else AlterBatch(tuple(s for s in held if isinstance(s, AlterConfig)))
    )


def apply(
    made: TreePlan,
    cluster: Cluster,
    registry: PlanSchemaWriter,
    say: Callable[[Step], None] = lambda _step: None,
) -> None:
    """Carry out exactly the steps of a plan, until the first that fails; ``say`` hears each that is done.

    Raises Conflict when the plan has refusals (nothing is done then), and what stopped it. Of a batch, those that the
    brokers took are done although another failed.
    """
    if made.refusals:
        raise Conflict("\n".join(map(str, made.refusals)), hint="nothing was changed")
    counts = _partition_counts(made.steps, cluster)
    for batch in batches(made.steps):
        match batch:
            case CreateBatch(steps):
                refused = cluster.create_topics([_new(step) for step in steps])
                # Someone may have been quicker; the next plan compares the topic's settings.
                refused = {name: error for name, error in refused.items() if not isinstance(error, Conflict)}
                _settle(steps, refused, say)
            case AlterBatch(steps):
                _settle(steps, cluster.alter_configs(_wanted(steps)), say)
            case _:
                _carry_out(batch, cluster, registry, counts)
                say(batch)


def _settle(
    steps: Sequence[CreateTopic | AlterConfig], refused: Mapping[str, HubError], say: Callable[[Step], None]
) -> None:
    for step in steps:
        if step.topic.name not in refused:
            say(step)
    for error in refused.values():
        raise error


def _carry_out(
    step: AddPartitions | SetCompatibility | RegisterSchema | DeleteTopic,
    cluster: Cluster,
    registry: PlanSchemaWriter,
    counts: Mapping[str, int],
) -> None:
    match step:
        case AddPartitions(topic, now):
            if counts.get(topic.name, now) < topic.partitions:
                cluster.add_partitions(topic.name, topic.partitions)
        case SetCompatibility(topic, level, _):
            registry.set_compatibility(topic.subject, level)
        case RegisterSchema(topic, schema, _):
            registry.register(topic.subject, schema)
        case DeleteTopic(name):
            with contextlib.suppress(NotFound):
                cluster.delete_topic(name)
        case _:
            assert_never(step)


def _partition_counts(steps: Sequence[Step], cluster: Cluster) -> Mapping[str, int]:
    """As they are now: an apply that goes on after it was cut off has added some already."""
    if not any(isinstance(step, AddPartitions) for step in steps):
        return {}
    return {name: topic.partitions for name, topic in cluster.topics().items()}


def _new(step: CreateTopic) -> NewTopic:
    topic = step.topic
    return NewTopic(topic.name, topic.partitions, topic.replication_factor, topic.config)


def _wanted(steps: Sequence[AlterConfig]) -> dict[str, dict[str, str | None]]:
    return {step.topic.name: {key: new for key, (_, new) in step.changes.items()} for step in steps}
