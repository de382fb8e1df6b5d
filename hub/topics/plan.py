"""[core] From the tree and the cluster to a plan: typed steps, and refusals that say who decided and what to do.

The plan that is shown is the plan that is carried out. Topics that no file names are reported and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.log import TopicDescription
from hub.topics.tree import TopicSpec, TopicTree

# Made by the hub itself, beside those that the tree names.
_OWN_PREFIXES = ("_", "views.")
_OWN_SUFFIXES = (".dlq",)


@dataclass(frozen=True, slots=True)
class CreateTopic:
    topic: TopicSpec

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value}" for key, value in self.topic.config.items())
        return f"+ topic {self.topic.name}  {self.topic.partitions} partitions{', ' if settings else ''}{settings}"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: TopicSpec
    now: int

    def __str__(self) -> str:
        return f"~ topic {self.topic.name}  partitions {self.now} -> {self.topic.partitions}"


@dataclass(frozen=True, slots=True)
class AlterConfig:
    topic: TopicSpec
    changes: Mapping[str, tuple[str | None, str | None]]

    def __str__(self) -> str:
        said = ", ".join(
            f"{key} {old or 'default'} -> {new or 'default'}" for key, (old, new) in self.changes.items()
        )
        return f"~ topic {self.topic.name}  {said}"


@dataclass(frozen=True, slots=True)
class SetCompatibility:
    topic: TopicSpec
    level: str
    now: str

    def __str__(self) -> str:
        return f"~ subject {self.topic.subject}  compatibility {self.now} -> {self.level}"


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    topic: TopicSpec
    schema: str
    new: bool

    def __str__(self) -> str:
        return f"{'+' if self.new else '~'} subject {self.topic.subject}  {'first' if self.new else 'next'} version"


Step = CreateTopic | AddPartitions | AlterConfig | SetCompatibility | RegisterSchema


@dataclass(frozen=True, slots=True)
class Refusal:
    """A wish that is not carried out, and the way out."""

    topic: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f'✗ topic "{self.topic}": {self.reason}\n  Hint: {self.hint}'


@dataclass(frozen=True, slots=True)
class Plan:
    """What would change. Nothing is carried out while there are refusals."""

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    unmanaged: tuple[str, ...]


class Schemas(Protocol):
    """What the plan asks of the registry."""

    def has(self, subject: str, schema: str) -> bool:
        """True when a live version of the subject is this very schema."""

    def exists(self, subject: str) -> bool: ...

    def incompatibilities(self, subject: str, schema: str) -> Sequence[str]: ...

    def compatibility(self, subject: str) -> str: ...


def plan(
    tree: TopicTree,
    actual: Mapping[str, TopicDescription],
    texts: Mapping[str, str],
    schemas: Schemas,
) -> Plan:
    """The steps from ``actual`` (with configurations) to ``tree``. ``texts`` are the schema files' contents by topic."""
    steps: list[Step] = []
    refusals: list[Refusal] = []
    for topic in tree.topics:
        found = actual.get(topic.name)
        steps += [CreateTopic(topic)] if found is None else _changes(topic, found, refusals)
        if topic.name in texts:
            steps += _schema_steps(topic, texts[topic.name], schemas, refusals)
    named = {topic.name for topic in tree.topics}
    unmanaged = sorted(
        name
        for name in actual
        if name not in named and not name.startswith(_OWN_PREFIXES) and not name.endswith(_OWN_SUFFIXES)
    )
    return Plan(tuple(steps), tuple(refusals), tuple(unmanaged))


def _changes(topic: TopicSpec, found: TopicDescription, refusals: list[Refusal]) -> list[Step]:
    steps: list[Step] = []
    if topic.partitions > found.partitions:
        steps.append(AddPartitions(topic, found.partitions))
    if topic.partitions < found.partitions:
        reason = f"partitions cannot shrink from {found.partitions} to {topic.partitions}"
        refusals.append(
            Refusal(
                topic.name,
                f"{reason} (set by {topic.set_by['partitions']})",
                f"write {found.partitions}, or create a new topic",
            )
        )
    if (
        topic.replication_factor != found.replication_factor
        and topic.set_by["replication_factor"] != "(default)"
    ):
        refusals.append(
            Refusal(
                topic.name,
                f"replication factor is {found.replication_factor}, the tree says {topic.replication_factor}",
                "move replicas with kafka-reassign-partitions, then apply again",
            )
        )
    changes = {
        key: (found.config.get(key), topic.config.get(key))
        for key in sorted({*found.config, *topic.config})
        if found.config.get(key) != topic.config.get(key)
    }
    if changes:
        steps.append(AlterConfig(topic, changes))
    return steps


def _schema_steps(topic: TopicSpec, text: str, schemas: Schemas, refusals: list[Refusal]) -> list[Step]:
    steps: list[Step] = []
    level = schemas.compatibility(topic.subject)
    if topic.compatibility is not None and topic.compatibility != level:
        steps.append(SetCompatibility(topic, topic.compatibility, level))
    if schemas.has(topic.subject, text):
        return steps
    if not schemas.exists(topic.subject):
        return [*steps, RegisterSchema(topic, text, True)]
    if topic.compatibility != "NONE":
        for reason in schemas.incompatibilities(topic.subject, text):
            refusals.append(
                Refusal(
                    topic.name,
                    f"its schema breaks {topic.compatibility or level}: {reason}",
                    "change the schema so that it follows the registered one, or the level in topics.yaml",
                )
            )
    return [*steps, RegisterSchema(topic, text, False)]
