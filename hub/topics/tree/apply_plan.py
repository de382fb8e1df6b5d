"""[shell] Read the inputs of a plan from the cluster and the registry, and apply a plan step by step.

Before a plan is shown, the brokers validate it, so that what they would refuse is refused before anything
changes. Every step is idempotent: the next apply completes one that was interrupted. Topics are created and
altered in batches: a thousand of them take ten requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hub.errors import CallerError, ConfigError, Conflict, HubError, NotFound
from hub.files import read_text
from hub.kafka import KafkaCluster
from hub.log import Cluster, NewTopic, TopicDescription
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.compat.compatibility import check
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.topics.tree import saved_plan
from hub.topics.tree.plan import Actual, Allowed, TreePlan, plan
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
    Step,
    TreeRefusal,
)
from hub.topics.tree.tree import TopicTree

_MOST_DEFAULTS = 20
# Limits per request. A controller accepts 10,000 records at once; each topic, partition and setting is one
# record.
_MOST_TOPICS = 100
_MOST_PARTITIONS = 1_000


class RegisteredSchemas:
    """Registry reads for a plan. Each subject is read once and cached."""

    def __init__(self, registry: RegistryClient) -> None:
        self.registry = registry
        self._versions: dict[str, Sequence[str]] = {}
        self._levels: dict[str, str] = {}

    def versions(self, subject: str) -> Sequence[str]:
        if subject not in self._versions:
            self._versions[subject] = self._fetch_versions(subject)
        return self._versions[subject]

    def _fetch_versions(self, subject: str) -> Sequence[str]:
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
        # The registry checks against its current level, but this level is not set yet.
        earlier = [(n, avro.parse(text)) for n, text in enumerate(self.versions(subject), 1)]
        return [str(each) for each in check(avro.parse(schema), earlier, level)]

    def _of_a_first(self, subject: str, schema: str) -> Sequence[str]:
        """Check a first version. No compatibility level applies to it; the rules of the topic tree do."""
        try:
            return self.registry.incompatibilities(subject, schema)
        except NotFound:  # other registries only answer for existing subjects
            return ()


def read_schemas(tree: TopicTree) -> dict[str, str]:
    """Return the contents of the schema files by topic. Raises ConfigError naming the topic and the file."""
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
                code="HUB-1115",
            ) from None
        except InvalidSchema as error:
            raise ConfigError(
                f'topic "{topic.name}": {error.message}', where=str(topic.schema), code="HUB-1115"
            ) from None
    return texts


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan before validation by the brokers, with digests of its inputs (for
    ``saved_plan.check_unchanged``).
    """

    plan: TreePlan
    facts: saved_plan.Facts


def compare(
    tree: TopicTree,
    cluster: KafkaCluster,
    registry: RegistryClient,
    allowed: Allowed = Allowed(),
) -> PreparedPlan:
    """Compare the tree with the cluster and the registry. Each is read once, so the plan and its digests are
    consistent.
    """
    texts = read_schemas(tree)
    schemas = RegisteredSchemas(registry)
    names = sorted({*(topic.name for topic in tree.topics), *allowed.destroy})
    topics = read_topics(cluster, names)
    defaults = cluster.default_config(sorted(topics)[:_MOST_DEFAULTS])
    made = plan(tree, Actual(topics, defaults), texts, schemas, allowed)
    subjects = [topic.subject for topic in tree.topics if topic.name in texts or topic.compatibility]
    return PreparedPlan(made, saved_plan.facts(cluster.cluster_id(), names, topics, subjects, schemas))


def read_topics(cluster: Cluster, names: Sequence[str] | None = None) -> dict[str, TopicDescription]:
    """Return all topics of the cluster. ``names`` limits which of them have their non-default settings; None:
    all.
    """
    tries = 3
    while True:
        topics = cluster.topics()
        there = [name for name in (topics if names is None else names) if name in topics]
        tries -= 1
        try:
            configs = cluster.topic_config(there)
        except NotFound:  # topics were deleted while they were read
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
    """Return the current plan, including refusals by the brokers. Changes nothing."""
    return rehearsed(compare(tree, cluster, registry, allowed).plan, cluster)


def check_unchanged(plan_file: saved_plan.SavedPlan, cluster: KafkaCluster, registry: RegistryClient) -> None:
    """Raise Conflict if the inputs of the saved plan have changed."""
    names, subjects = saved_plan.names_in(plan_file.facts)
    topics = read_topics(cluster, names)
    now = saved_plan.facts(cluster.cluster_id(), names, topics, subjects, RegisteredSchemas(registry))
    saved_plan.check_unchanged(plan_file.facts, now)


def rehearsed(made: TreePlan, cluster: KafkaCluster) -> TreePlan:
    """Let the brokers validate the plan, and add their refusals to it. Changes nothing."""
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
            return cluster.alter_configs(_new_values(steps), rehearse=True)
        case AddPartitions(topic, _):
            try:
                cluster.add_partitions(topic.name, topic.partitions, rehearse=True)
            except HubError as error:
                return {topic.name: error}
            return {}
        case SetCompatibility() | RegisterSchema() | DeleteTopic():
            return {}  # the plan has already checked with the registry
        case _:
            assert_never(batch)


# ---- apply


@dataclass(frozen=True, slots=True)
class CreateBatch:
    steps: tuple[CreateTopic, ...]


@dataclass(frozen=True, slots=True)
class AlterBatch:
    steps: tuple[AlterConfig, ...]


Batch = CreateBatch | AlterBatch | AddPartitions | SetCompatibility | RegisterSchema | DeleteTopic


def batches(steps: Sequence[Step]) -> Iterator[Batch]:
    """Group the steps into batches, in order. Adjacent creates, and adjacent alters, are merged up to the
    size limits.
    """
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
    registry: RegistryClient,
    say: Callable[[Step], None] = lambda _step: None,
) -> None:
    """Apply exactly the steps of a plan, and stop at the first that fails. ``say`` is called after each step.

    Raises Conflict if the plan has refusals (nothing is changed then), else the error of the failed step. If
    a batch fails in part, the topics that the brokers accepted are changed.
    """
    if made.refusals:
        raise Conflict("\n".join(map(str, made.refusals)), hint="nothing was changed")
    counts = _partition_counts(made.steps, cluster)
    for batch in batches(made.steps):
        match batch:
            case CreateBatch(steps):
                refused = cluster.create_topics([_new(step) for step in steps])
                # Another process may have created it; the next plan compares the topic's settings.
                refused = {name: error for name, error in refused.items() if not isinstance(error, Conflict)}
                _settle(steps, refused, say)
            case AlterBatch(steps):
                _settle(steps, cluster.alter_configs(_new_values(steps)), say)
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
    registry: RegistryClient,
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
    """Return the current partition counts: an interrupted apply may already have added some."""
    if not any(isinstance(step, AddPartitions) for step in steps):
        return {}
    return {name: topic.partitions for name, topic in cluster.topics().items()}


def _new(step: CreateTopic) -> NewTopic:
    topic = step.topic
    return NewTopic(topic.name, topic.partitions, topic.replication_factor, topic.config)


def _new_values(steps: Sequence[AlterConfig]) -> dict[str, dict[str, str | None]]:
    return {step.topic.name: {key: new for key, (_, new) in step.changes.items()} for step in steps}
