"""[core] Drift: the differences between tree and cluster, and which side is right.

Drift is derived from the plan, so the two never disagree. For a step, the tree is right, because ``apply``
changes the cluster. For a refusal, the cluster is right if Kafka cannot make the change; otherwise a person
has to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from hub.topics.tree.plan import TreePlan
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    Right,
    SetCompatibility,
    Step,
    TreeRefusal,
)

_APPLY = "hub topic apply"
_BY_HAND = "set by hand"


@dataclass(frozen=True, slots=True)
class SettingDrift:
    """One setting of one topic. ``tree`` and ``cluster`` are its values (None: not set, the broker's default
    applies); ``set_by`` is the node that sets it in the tree; ``right`` is the side that is right; ``way``
    describes how to resolve the difference.
    """

    topic: str
    setting: str
    tree: str | None
    cluster: str | None
    set_by: str
    right: Right
    way: str


def drift(made: TreePlan) -> tuple[SettingDrift, ...]:
    """Return all differences in the plan, sorted by topic and setting."""
    lines = {(line.topic, line.setting): line for step in made.steps for line in _of_step(step)}
    for refusal in made.refusals:
        place = (refusal.topic, refusal.setting)
        setting_drift = lines.get(place)
        lines[place] = _of_refusal(refusal, setting_drift)
    for name in made.kept:
        way = f"hub topic import shows it as a tree; hub topic apply --destroy {name} ends it"
        lines[name, "topic"] = SettingDrift(name, "topic", None, "exists", "not in the tree", "decide", way)
    return tuple(lines[place] for place in sorted(lines))


def _of_step(step: Step) -> Iterator[SettingDrift]:
    match step:
        case CreateTopic(topic):
            yield SettingDrift(topic.name, "topic", "exists", None, topic.name, "tree", _APPLY)
        case AddPartitions(topic, now):
            by = topic.set_by.get("partitions", "")
            way = f"{_APPLY} (moves keys)"
            yield SettingDrift(topic.name, "partitions", str(topic.partitions), str(now), by, "tree", way)
        case AlterConfig(topic, changes):
            for key, (old, new) in changes.items():
                by = topic.set_by.get(f"config.{key}", _BY_HAND)
                yield SettingDrift(topic.name, key, new, old, by, "tree", _APPLY)
        case SetCompatibility(topic, level, now):
            by = topic.set_by.get("compatibility", "")
            yield SettingDrift(topic.name, "compatibility", level, now, by, "tree", _APPLY)
        case RegisterSchema(topic, _, new):
            there = None if new else "an older version"
            yield SettingDrift(topic.name, "schema", "a new version", there, topic.name, "tree", _APPLY)
        case DeleteTopic(name):
            yield SettingDrift(name, "topic", None, "exists", "--destroy", "tree", _APPLY)
        case _:
            assert_never(step)


def _of_refusal(refusal: TreeRefusal, setting_drift: SettingDrift | None) -> SettingDrift:
    way = f"{refusal.reason}; {refusal.hint}"
    if setting_drift is not None:
        return replace(setting_drift, right=refusal.right, way=way)
    setting = refusal.setting or "topic"
    return SettingDrift(refusal.topic, setting, refusal.wanted, refusal.found, "", refusal.right, way)
