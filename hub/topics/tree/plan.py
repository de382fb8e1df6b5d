"""[core] Compare the tree with the cluster: typed steps, and refusals that name the deciding node and the
fix.

The plan that is shown is the plan that is applied. Topics that the tree does not name are kept and listed; a
topic is deleted only if the caller names it explicitly. Similar steps are adjacent, so that apply can batch
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hub.errors import did_you_mean
from hub.log import TopicDescription, same_setting
from hub.schema_registry.formats import InvalidSchema
from hub.topics.tree.key_fields import key_problem
from hub.topics.tree.schema_steps import PlanSchemas, level_step, schema_steps
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    Caution,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
    Step,
    TreeRefusal,
)
from hub.topics.tree.tree import TopicSpec, TopicTree, collisions

# Topics that the hub or Kafka creates; they are never in the tree.
_OWN_PREFIXES = ("_", "views.")
_OWN_SUFFIXES = (".dlq",)


# Order of application; within one rank, the order of the tree.
_RANK: Mapping[type[Step], int] = {
    CreateTopic: 0,
    AddPartitions: 1,
    AlterConfig: 2,
    SetCompatibility: 3,
    RegisterSchema: 3,
    DeleteTopic: 4,
}


@dataclass(frozen=True, slots=True)
class TreePlan:
    """Planned changes. Nothing is applied while there are refusals. ``kept`` lists topics of the cluster that
    the tree does not name; they are not changed.
    """

    steps: tuple[Step, ...]
    refusals: tuple[TreeRefusal, ...] = ()
    kept: tuple[str, ...] = ()
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Risks that the caller accepts. ``destroy``: names of topics to delete with their events.
    ``lower_durability``: allow settings by which the log may lose data that it would keep now.
    """

    destroy: frozenset[str] = frozenset()
    lower_durability: bool = False


@dataclass(frozen=True, slots=True)
class Actual:
    """Current state of the cluster: topics with their own settings, and the ``defaults`` of all topic
    settings (None where a default is unknown; {} if all are unknown).
    """

    topics: Mapping[str, TopicDescription]
    defaults: Mapping[str, str | None] = field(default_factory=dict)


def plan(
    tree: TopicTree,
    actual: Actual,
    texts: Mapping[str, str],
    schemas: PlanSchemas | None,
    allowed: Allowed = Allowed(),
) -> TreePlan:
    """Return the steps from ``actual`` to ``tree``. ``texts`` holds the schema files' contents by topic;
    ``schemas`` may be None if there are none.
    """
    steps: list[Step] = []
    refusals: list[TreeRefusal] = []
    cautions: list[Caution] = []
    for topic in tree.topics:
        refusals += _unknown_settings(topic, actual.defaults)
        current = actual.topics.get(topic.name)
        if current is None:
            steps.append(CreateTopic(topic))
        else:
            changes = list(_changes(topic, current))
            steps += changes
            cautions += _moved_keys(changes)
            refusals += _refused(topic, current)
            if not allowed.lower_durability:
                refusals += _lowered(changes, actual.defaults)
        _check_key(topic, texts.get(topic.name), schemas, refusals, cautions)
        if schemas is not None:
            steps += level_step(topic, schemas)
            if topic.name in texts:
                steps += schema_steps(topic, texts[topic.name], schemas, refusals)
    _check_collisions(tree, actual, refusals, cautions)
    for name in sorted(allowed.destroy):
        steps += _destroyed(name, tree, actual, refusals, cautions)
    kept = [name for name in _unnamed(tree, actual.topics) if name not in allowed.destroy]
    steps.sort(key=lambda step: _RANK[type(step)])
    return TreePlan(tuple(steps), tuple(refusals), tuple(kept), tuple(cautions))


def is_own(name: str) -> bool:
    """Return True for topics that Kafka or the hub creates; they are never in the tree."""
    return name.startswith(_OWN_PREFIXES) or name.endswith(_OWN_SUFFIXES)


def _unnamed(tree: TopicTree, actual: Mapping[str, TopicDescription]) -> list[str]:
    named = {topic.name for topic in tree.topics}
    return sorted(name for name in actual if name not in named and not is_own(name))


def _destroyed(
    name: str, tree: TopicTree, actual: Actual, refusals: list[TreeRefusal], cautions: list[Caution]
) -> Iterator[DeleteTopic]:
    """Yield the deletion of a topic. A topic that is already gone is a warning, not an error, so the command
    can be repeated.
    """
    if tree.find(name) is not None:
        hint = "take it out of the tree first, or leave out --destroy"
        refusals.append(TreeRefusal(name, "is in the tree, so it is not destroyed", hint, "topic"))
    elif name.startswith(_OWN_PREFIXES):
        hint = "Kafka's own tools can delete it, when it is meant"
        refusals.append(TreeRefusal(name, "belongs to Kafka or the hub itself, so it is not destroyed", hint))
    elif name not in actual.topics:
        hint = did_you_mean(
            name, _unnamed(tree, actual.topics), "it may be gone already; hub topic ls shows what there is"
        )
        cautions.append(Caution(name, "is not in the cluster: nothing to destroy", hint))
    else:
        yield DeleteTopic(name)


def _check_collisions(
    tree: TopicTree, actual: Actual, refusals: list[TreeRefusal], cautions: list[Caution]
) -> None:
    """Refuse new names that differ from another only in "." and "_", as Kafka does; warn about existing
    pairs.
    """
    for group in collisions([*(topic.name for topic in tree.topics), *actual.topics]):
        hint = "Kafka's metrics have _ for . in a topic's name: use one of the two in names, not both"
        for name in group:
            others = ", ".join(f'"{other}"' for other in group if other != name)
            if tree.find(name) is None:
                continue
            if name in actual.topics:
                cautions.append(Caution(name, f"its metrics are mixed up with those of {others}", hint))
            else:
                refusals.append(
                    TreeRefusal(
                        name, f"its name collides with {others}, and Kafka refuses that", hint, "topic"
                    )
                )


def _moved_keys(steps: Sequence[Step]) -> Iterator[Caution]:
    for step in steps:
        if isinstance(step, AddPartitions):
            yield Caution(
                step.topic.name,
                f"adding partitions ({step.now} -> {step.topic.partitions}) moves keys: the "
                "events of a key are in"
                " order before and after, not across",
                f"where order matters, create a new topic with {step.topic.partitions} "
                "partitions, mirror this one"
                " into it, and move producers and consumers over",
            )


def _changes(topic: TopicSpec, found: TopicDescription) -> Iterator[AddPartitions | AlterConfig]:
    if topic.partitions > found.partitions:
        yield AddPartitions(topic, found.partitions)
    changes = {
        key: (found.config.get(key), topic.config.get(key))
        for key in sorted({*found.config, *topic.config})
        if not same_setting(found.config.get(key), topic.config.get(key))
    }
    if changes:
        yield AlterConfig(topic, changes)


def _refused(topic: TopicSpec, current: TopicDescription) -> Iterator[TreeRefusal]:
    if topic.partitions < current.partitions:
        yield TreeRefusal(
            topic.name,
            f"partitions cannot shrink from {current.partitions} to {topic.partitions}"
            f" (set by {topic.set_by['partitions']})",
            f"write {current.partitions} in the tree, or create a new topic with "
            f"{topic.partitions} and mirror this one"
            " into it",
            "partitions",
            str(topic.partitions),
            str(current.partitions),
            "cluster",
        )
    is_declared = topic.set_by["replication_factor"] != "(default)"
    if is_declared and topic.replication_factor != current.replication_factor:
        yield TreeRefusal(
            topic.name,
            f"replication factor is {current.replication_factor}, the tree declares "
            f"{topic.replication_factor} (set by {topic.set_by['replication_factor']})",
            f"write {current.replication_factor} in the tree, or move replicas with "
            "kafka-reassign-partitions and apply"
            " again",
            "replication_factor",
            str(topic.replication_factor),
            str(current.replication_factor),
        )


def _unknown_settings(topic: TopicSpec, defaults: Mapping[str, str | None]) -> Iterator[TreeRefusal]:
    for key in topic.config if defaults else ():
        if key not in defaults:
            yield TreeRefusal(
                topic.name,
                f'Kafka knows no setting "{key}" of a topic (set by {topic.set_by[f"config.{key}"]})',
                did_you_mean(key, defaults, "kafka.apache.org lists the topic configs"),
                key,
                topic.config[key],
                None,
                "cluster",
            )


def _check_key(
    topic: TopicSpec,
    text: str | None,
    schemas: PlanSchemas | None,
    refusals: list[TreeRefusal],
    cautions: list[Caution],
) -> None:
    """Check the declared key against the tree's schema, or else against the registered one."""
    if topic.key is None:
        return
    if text is None and schemas is not None:
        text = next(iter(reversed(schemas.versions(topic.subject))), None)
    try:
        problem = key_problem(topic.key, text) if text is not None else None
    except InvalidSchema:  # another format, or a schema with references
        text = None
    if text is None:
        hint = "an Avro schema that needs no other can be looked into: schema: schemas/….avsc"
        cautions.append(Caution(topic.name, f'its key "{topic.key}" is not checked', hint))
    elif problem is not None and problem.refuses:
        refusals.append(
            TreeRefusal(topic.name, problem.reason, problem.hint, "key", topic.key, None, "cluster")
        )
    elif problem is not None:
        cautions.append(Caution(topic.name, problem.reason, problem.hint))


# ---- durability: changes by which the log may lose data that it would keep now


def _lowered(steps: Sequence[Step], defaults: Mapping[str, str | None]) -> Iterator[TreeRefusal]:
    for step in steps:
        if not isinstance(step, AlterConfig):
            continue
        for key, (old, new) in step.changes.items():
            lowers, usual = _DURABILITY.get(key, (None, ""))
            default = defaults.get(key) or usual
            was, shall = default if old is None else old, default if new is None else new
            if lowers is not None and lowers(was, shall):
                by = step.topic.set_by.get(f"config.{key}", "its absence from the tree")
                yield TreeRefusal(
                    step.topic.name,
                    f"{key} {was} -> {shall} lowers what the log keeps safe (set by {by})",
                    "when it is meant: --allow-lower-durability",
                    key,
                    new,
                    old,
                )


def _retains_less(old: str, new: str) -> bool:
    """Compare times or sizes; a negative value is "forever"."""
    return _whole(new) >= 0 and (_whole(old) < 0 or _whole(new) < _whole(old))


def _more_cleaning(old: str, new: str) -> bool:
    """Return True if the new policy adds a cleanup: ``delete`` drops old records, ``compact`` replaced
    ones.
    """
    return bool(set(filter(None, new.split(","))) - set(old.split(",")))


def _whole(text: str) -> int:
    """Parse an integer. Returns 0 for anything else, which the brokers refuse with their own message."""
    return int(text) if text.removeprefix("-").isdecimal() else 0


# Setting → (check, Kafka's default, used if the cluster's is unknown).
_DURABILITY: Mapping[str, tuple[Callable[[str, str], bool], str]] = {
    "retention.ms": (_retains_less, "604800000"),
    "retention.bytes": (_retains_less, "-1"),
    "delete.retention.ms": (_retains_less, "86400000"),
    "min.insync.replicas": (lambda old, new: _whole(new) < _whole(old), "1"),
    "cleanup.policy": (_more_cleaning, "delete"),
    "unclean.leader.election.enable": (lambda old, new: old == "false" and new == "true", "false"),
}


# ---- schemas
