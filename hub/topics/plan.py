"""[core] From the tree and the cluster to a plan: typed steps, and refusals that say who decided and what to do.

The plan that is shown is the plan that is carried out. Topics that no file names are reported and left alone, unless
the tree marks their place ``prune: true`` and the caller asks for it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import nearest
from hub.log import TopicDescription
from hub.schema_registry.formats import avro
from hub.topics.tree import TopicSpec, TopicTree

# Made by the hub itself, beside those that the tree names.
_OWN_PREFIXES = ("_", "views.")
_OWN_SUFFIXES = (".dlq",)


@dataclass(frozen=True, slots=True)
class CreateTopic:
    topic: TopicSpec

    def __str__(self) -> str:
        settings = "".join(f", {key}={value}" for key, value in self.topic.config.items())
        return f"+ topic {self.topic.name}  partitions={self.topic.partitions}{settings}"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: TopicSpec
    now: int

    def __str__(self) -> str:
        moved = "keys move: events of one key are in order before and after, not across"
        return f"~ topic {self.topic.name}  partitions {self.now} -> {self.topic.partitions} ({moved})"


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """``changes``: key to (as it is, as it shall be); None is the cluster's default."""

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


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Its events are gone with it; its subject stays."""

    name: str

    def __str__(self) -> str:
        return f"- topic {self.name}  with all its events"


Step = CreateTopic | AddPartitions | AlterConfig | SetCompatibility | RegisterSchema | DeleteTopic


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
    """What would change. Nothing is carried out while there are refusals. ``prunable`` are those of ``unmanaged``
    that ``--prune`` would delete."""

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    unmanaged: tuple[str, ...]
    prunable: tuple[str, ...] = ()


class Schemas(Protocol):
    """What the plan asks of the registry. Schemas are texts."""

    def versions(self, subject: str) -> Sequence[str]:
        """What was registered, oldest first; the last one is what producers take now; [] when there is none now."""

    def compatibility(self, subject: str) -> str:
        """The subject's effective level."""

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        """Why the schema may not follow the subject's versions at that level: which field, which rule."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the caller takes upon himself. ``prune``: delete unmanaged topics where the tree marks their place.
    ``lower_durability``: settings by which the log may lose what it would keep now."""

    prune: bool = False
    lower_durability: bool = False


@dataclass(frozen=True, slots=True)
class Actual:
    """The cluster as it is: topics with their own settings, and the ``defaults`` of those they leave unsaid (with
    every setting that a topic can have, None where its default is not known; {} when nothing is known)."""

    topics: Mapping[str, TopicDescription]
    defaults: Mapping[str, str | None] = field(default_factory=dict)


def plan(
    tree: TopicTree,
    actual: Actual,
    texts: Mapping[str, str],
    schemas: Schemas,
    allowed: Allowed = Allowed(),
) -> Plan:
    """The steps from ``actual`` to ``tree``. ``texts`` are the schema files' contents by topic."""
    steps: list[Step] = []
    refusals: list[Refusal] = []
    for topic in tree.topics:
        refusals += _unknown_settings(topic, actual.defaults)
        found = actual.topics.get(topic.name)
        if found is None:
            steps.append(CreateTopic(topic))
        else:
            made = list(_changes(topic, found))
            steps += made
            refusals += _refused(topic, found)
            if not allowed.lower_durability:
                refusals += _lowered(made, actual.defaults)
        if topic.name in texts:
            steps += _schema_steps(topic, texts[topic.name], schemas, refusals)
    unmanaged = _unmanaged(tree, actual.topics)
    prunable = [name for name in unmanaged if tree.may_prune(name)]
    if allowed.prune:
        steps += [DeleteTopic(name) for name in prunable]
    return Plan(tuple(steps), tuple(refusals), tuple(unmanaged), tuple(prunable))


def _unmanaged(tree: TopicTree, actual: Mapping[str, TopicDescription]) -> list[str]:
    named = {topic.name for topic in tree.topics}
    return sorted(
        name
        for name in actual
        if name not in named and not name.startswith(_OWN_PREFIXES) and not name.endswith(_OWN_SUFFIXES)
    )


def _changes(topic: TopicSpec, found: TopicDescription) -> Iterator[AddPartitions | AlterConfig]:
    if topic.partitions > found.partitions:
        yield AddPartitions(topic, found.partitions)
    changes = {
        key: (found.config.get(key), topic.config.get(key))
        for key in sorted({*found.config, *topic.config})
        if found.config.get(key) != topic.config.get(key)
    }
    if changes:
        yield AlterConfig(topic, changes)


def _refused(topic: TopicSpec, found: TopicDescription) -> Iterator[Refusal]:
    if topic.partitions < found.partitions:
        yield Refusal(
            topic.name,
            f"partitions cannot shrink from {found.partitions} to {topic.partitions}"
            f" (set by {topic.set_by['partitions']})",
            f"write {found.partitions}, or create a new topic",
        )
    asked = topic.set_by["replication_factor"] != "(default)"
    if asked and topic.replication_factor != found.replication_factor:
        yield Refusal(
            topic.name,
            f"replication factor is {found.replication_factor}, the tree says {topic.replication_factor}"
            f" (set by {topic.set_by['replication_factor']})",
            "move replicas with kafka-reassign-partitions, then apply again",
        )


def _unknown_settings(topic: TopicSpec, defaults: Mapping[str, str | None]) -> Iterator[Refusal]:
    for key in topic.config if defaults else ():
        if key not in defaults:
            guess = nearest(key, defaults)
            yield Refusal(
                topic.name,
                f'Kafka knows no setting "{key}" of a topic (set by {topic.set_by[f"config.{key}"]})',
                f'did you mean "{guess}"?' if guess else "kafka.apache.org lists the topic configs",
            )


# ---- durability: a change by which the log may lose what it would keep now


def _lowered(steps: Sequence[Step], defaults: Mapping[str, str | None]) -> Iterator[Refusal]:
    for step in steps:
        if not isinstance(step, AlterConfig):
            continue
        for key, (old, new) in step.changes.items():
            lowers, usual = _DURABILITY.get(key, (None, ""))
            default = defaults.get(key) or usual
            was, shall = default if old is None else old, default if new is None else new
            if lowers is not None and lowers(was, shall):
                by = step.topic.set_by.get(f"config.{key}", "its absence from the tree")
                yield Refusal(
                    step.topic.name,
                    f"{key} {was} -> {shall} lowers what the log keeps safe (set by {by})",
                    "when it is meant: --allow-lower-durability",
                )


def _less_kept(old: str, new: str) -> bool:
    """For times and sizes, of which any negative one is "for ever"."""
    return _whole(new) >= 0 and (_whole(old) < 0 or _whole(new) < _whole(old))


def _more_cleaning(old: str, new: str) -> bool:
    """``delete`` drops what is old, ``compact`` what a later record of the key replaces."""
    return bool(set(filter(None, new.split(","))) - set(old.split(",")))


def _whole(text: str) -> int:
    """0 for what is no number: the brokers refuse it with their own words."""
    return int(text) if text.removeprefix("-").isdecimal() else 0


# The check, and Kafka's own default for when the cluster's is not known.
_DURABILITY: Mapping[str, tuple[Callable[[str, str], bool], str]] = {
    "retention.ms": (_less_kept, "604800000"),
    "retention.bytes": (_less_kept, "-1"),
    "delete.retention.ms": (_less_kept, "86400000"),
    "min.insync.replicas": (lambda old, new: _whole(new) < _whole(old), "1"),
    "cleanup.policy": (_more_cleaning, "delete"),
    "unclean.leader.election.enable": (lambda old, new: old == "false" and new == "true", "false"),
}


# ---- schemas


def _schema_steps(topic: TopicSpec, text: str, schemas: Schemas, refusals: list[Refusal]) -> list[Step]:
    steps: list[Step] = []
    now = schemas.compatibility(topic.subject)
    level = topic.compatibility or now
    if level != now:
        steps.append(SetCompatibility(topic, level, now))
    versions = [_canonical(version) for version in schemas.versions(topic.subject)]
    wanted = _canonical(text)
    if versions and versions[-1] == wanted:
        return steps
    if wanted in versions:
        # The registry answers an old schema with its old version: producers would go on with the latest.
        refusals.append(
            Refusal(
                topic.name,
                f"its schema is version {versions.index(wanted) + 1} of {len(versions)}, and later ones stand",
                "versions go forward only: make the next one, or delete the later ones from the registry",
            )
        )
        return steps
    # The level of the tree decides, for it is set before the schema is registered.
    for reason in schemas.incompatibilities(topic.subject, text, level) if versions else ():
        refusals.append(
            Refusal(
                topic.name,
                f"its schema breaks {level}: {reason}",
                "change the schema so that it follows the registered one, or the level in topics.yaml",
            )
        )
    return [*steps, RegisterSchema(topic, text, not versions)]


def _canonical(text: str) -> str:
    return avro.canonical(avro.parse(text))
