"""[core] Rules on the topic tree: effective rules of a subject, their origin, and permitted overrides.

::

    policies.yaml ─ load ─▶ nodes ─ trail of the topic, ancestors first ─▶ fold ─▶ Effective ─ check(schema) ─▶ violations

A node sets rules; a topic has those of its own node and of all nodes above it (``label_patterns`` defines
which and in what order). A node's rules apply below it, and a child may only be stricter, unless the node
sets ``override: any`` (its value may be replaced) or ``none`` (the rule may not be set again). Loading
refuses a child that loosens an ancestor's rule. Two wildcard nodes can meet on a topic without one being
above the other: there the stricter of both applies, and nothing is refused.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hub.errors import ConfigError
from hub.schema_registry.describe import SchemaView
from hub.schema_registry.model.subjects import split
from hub.schema_registry.policy.label_patterns import (
    Labels,
    ancestors_first,
    fits,
    is_ancestor,
    labels_of,
    trail,
)
from hub.schema_registry.policy.policy_checks import CheckContext, PolicyViolation, violations
from hub.schema_registry.policy.policy_rules import (
    NodeModel,
    Override,
    OverrideAll,
    PolicyFile,
    Value,
    as_strict,
    joined,
    rule_of,
    text_of,
)
from hub.yaml import kept_to, load_model, places

POLICIES_FILE = "policies.yaml"
DEFAULT_LEVEL = "BACKWARD"  # the registry's default when no level is set
BY_DEFAULT = "(default)"
BY_SUBJECT = "(subject)"


@dataclass(frozen=True, slots=True)
class PolicyNode:
    """Node of the tree: its values by key, and per rule the override that nodes below have (default:
    stricter).
    """

    name: str
    declared: Mapping[str, Value]
    overrides: Mapping[str, Override]
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> Labels:
        return labels_of(self.name)

    def lets(self, key: str) -> Override:
        return self.overrides.get(_governed_by(key), "stricter")

    def place(self, key: str) -> str | None:
        """Return ``file:line:column`` of the node's value, if it is from a file."""
        return self.places.get(key) or self.places.get("")


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """Effect of one node's value on the way down the tree."""

    node: str
    declared: Value
    result: Value
    note: str = ""


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """An effective value, the node that set it, and the steps that led to it.

    Two nodes set it when the stricter of both applies.
    """

    key: str
    value: Value
    set_by: str
    place: str | None
    steps: tuple[PolicyStep, ...]
    floors: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return f"{self.key}: {text_of(self.key, self.value)} (set by {self.set_by})"

    @property
    def trail(self) -> str:
        """Steps for display: ``retail BACKWARD > retail.orders FULL``."""
        return " > ".join(
            f"{step.node} {text_of(self.key, step.declared)}{f' ({step.note})' if step.note else ''}"
            for step in self.steps
        )


@dataclass(frozen=True, slots=True)
class Effective:
    """Effective rules of one subject, by key.

    ``topic`` is "" for a subject without a topic; ``trail`` lists the nodes that apply, ancestors first.
    """

    subject: str
    topic: str
    is_key: bool
    settings: Mapping[str, PolicySetting]
    trail: tuple[str, ...]

    def level(self, own: str | None, default: str = DEFAULT_LEVEL) -> tuple[str, str]:
        """Return (the effective compatibility level, who set it).

        ``own`` is the subject's level; it is kept when it is strict enough. Otherwise the result is the least
        strict level that is as strict as both: FORWARD under BACKWARD gives FULL. Without ``own`` the rules'
        level applies, and ``default`` only when no rule sets one.
        """
        current, by = (own, BY_SUBJECT) if own is not None else (default, BY_DEFAULT)
        floor = self.settings.get("compatibility")
        if floor is None or (own is not None and as_strict("compatibility", own, floor.value)):
            return current, by
        if own is None:
            # A default is not a choice: it yields to a rule, even to a less strict one.
            return str(floor.value), floor.set_by
        level = str(joined("compatibility", current, floor.value))
        return level, floor.set_by if level == floor.value else f"{floor.set_by} + {by}"

    def level_violation(self, own: str) -> PolicyViolation | None:
        """Return why a subject may not have this level of its own; None when it may."""
        floor = self.settings.get("compatibility")
        if floor is None or as_strict("compatibility", own, floor.value):
            return None
        return PolicyViolation(
            "compatibility",
            floor.set_by,
            "",
            f'level {own} is looser than {floor.value}, which holds for "{self.subject}"',
            f"set {self.level(own)[0]} or a stricter level",
        )

    def check(
        self, schema_type: str, view: SchemaView | None, context: CheckContext | None = None
    ) -> list[PolicyViolation]:
        """Return every rule that the schema breaks. ``view`` None checks only rules that need no schema."""
        values = {key: (each.value, each.set_by) for key, each in self.settings.items()}
        return violations(values, self.subject, self.is_key, schema_type, view, context or CheckContext())


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One rule of a subject, for display."""

    rule: str
    value: str
    set_by: str
    severity: str
    trail: str
    place: str | None


class Policies:
    """The nodes of one file. ``topics`` are the known topics, which determine the topic of a subject.

    Raises ConfigError when a node loosens a rule of a node above it.
    """

    def __init__(self, nodes: Iterable[PolicyNode] = (), topics: Iterable[str] = ()) -> None:
        by_labels = {node.labels: node for node in nodes}
        self._nodes: dict[Labels, PolicyNode] = {}
        for labels in ancestors_first(by_labels):
            above = [self._nodes[each] for each in self._nodes if is_ancestor(each, labels)]
            node = _with_severities(by_labels[labels], above)
            _refuse_loosening(node, above)
            self._nodes[labels] = node
        self._wild = [labels for labels in self._nodes if {"*", "**"} & {*labels}]
        self._topics = frozenset(topics)

    @classmethod
    def of(cls, policies: Mapping[str, Any], topics: Iterable[str] = ()) -> Policies:
        """Create policies from the file's values by pattern.

        Raises pydantic's ValidationError, ConfigError.
        """
        return cls(_nodes(PolicyFile.model_validate({"policies": policies}), {}), topics)

    @property
    def nodes(self) -> list[PolicyNode]:
        """Every node, after those above it."""
        return list(self._nodes.values())

    def effective(self, subject_or_topic: str) -> Effective:
        """Return the rules of a subject, or of a topic's values for the name of a topic."""
        subject = split(subject_or_topic, self._topics, self._is_written_out, self._has_node_for)
        topic = labels_of(subject.topic)
        written_out = [topic[:n] for n in range(1, len(topic) + 1) if topic[:n] in self._nodes]
        found = trail([*dict.fromkeys([*self._wild, *written_out])], topic)
        settings = _folded([self._nodes[labels] for labels in found])
        return Effective(
            subject_or_topic,
            subject.topic,
            subject.is_key,
            {key: settings[key] for key in sorted(settings)},
            tuple(self._nodes[labels].name for labels in found),
        )

    def _is_written_out(self, topic: str) -> bool:
        return labels_of(topic) in self._nodes

    def _has_node_for(self, topic: str) -> bool:
        labels = labels_of(topic)
        return any(fits(each, labels) for each in self._nodes if each != ("**",))


def load_policies(path: Path, topics: Iterable[str] = ()) -> Policies:
    """Load the rules in a file.

    Raises ConfigError with ``file:line:column``, and suggests the nearest known name.
    """
    with kept_to(path):
        return Policies(_nodes(load_model(path, PolicyFile), places(path)), topics)


def explain(policies: Policies, subject: str, own_level: str | None = None) -> list[PolicyRow]:
    """Return every rule of a subject, the level first, each with its origin and steps.

    ``own_level`` is the level of the subject (or topic) itself, if it has one.
    """
    effective = policies.effective(subject)
    settings = dict(effective.settings)
    severities = {
        key.partition(".")[2]: settings.pop(key) for key in sorted(settings) if key.startswith("severity.")
    }
    floor = settings.pop("compatibility", None)
    level, by = effective.level(own_level)
    story = [floor.trail] if floor is not None else []
    story += [f"{BY_SUBJECT} {own_level}"] if own_level is not None else []
    rows = [PolicyRow("compatibility", level, by, "block", " > ".join(story), floor.place if floor else None)]
    for key, each in settings.items():
        weight = severities[rule_of(key).name]
        rows.append(
            PolicyRow(key, text_of(key, each.value), each.set_by, str(weight.value), each.trail, each.place)
        )
    return rows


# ---- from the file


def _nodes(file: PolicyFile, where: Mapping[tuple[str, ...], str]) -> list[PolicyNode]:
    return [_node(name, model, where) for name, model in file.policies.items()]


def _node(name: str, model: NodeModel, where: Mapping[tuple[str, ...], str]) -> PolicyNode:
    values = model.declared_values()
    rules = {rule_of(key).name for key in values}
    overrides: dict[str, Override] = {rule: let for rule, let in model.override if let is not None}
    for rule in overrides:
        if rule not in rules and not isinstance(model.override, OverrideAll):
            raise ConfigError(
                f'"{name}" has an override of {rule}, and does not declare {rule} itself',
                hint=f"an override defines how nodes below may change this node's value: "
                f"declare {rule} here as well",
                where=where.get(("policies", name, "override", rule)),
                code="HUB-1104",
            )
    found = {"": where.get(("policies", name))}
    found |= {key: where.get(("policies", name, *_steps(key))) for key in values}
    return PolicyNode(
        name, values, overrides, {key: place for key, place in found.items() if place is not None}
    )


def _steps(key: str) -> tuple[str, ...]:
    rule, _, rest = key.partition(".")
    return (rule, rest) if rest else (rule,)


def _governed_by(key: str) -> str:
    """Return the rule whose override governs a key: a severity is governed by its rule."""
    rule, _, rest = key.partition(".")
    return rest if rule == "severity" else rule


# ---- permitted values


def _with_severities(node: PolicyNode, above: Sequence[PolicyNode]) -> PolicyNode:
    """Add severity ``block`` to each rule of the node, unless the node or one above sets its severity."""
    rules = {rule_of(key).name for key in node.declared} - {"compatibility", "severity"}
    implied = {
        f"severity.{rule}": "block"
        for rule in sorted(rules)
        if not any(f"severity.{rule}" in each.declared for each in (node, *above))
    }
    return replace(node, declared={**node.declared, **implied})


def _refuse_loosening(node: PolicyNode, above: Sequence[PolicyNode]) -> None:
    for key, value in node.declared.items():
        for ancestor in above:
            let, rule = ancestor.lets(key), _governed_by(key)
            floor = ancestor.declared.get(key)
            closed = let == "none" and any(_governed_by(each) == rule for each in ancestor.declared)
            if value == floor or let == "any" or not (closed or floor is not None):
                continue
            if not closed and floor is not None and as_strict(key, value, floor):
                continue
            raise _refusal(node, ancestor, key, rule, closed)


def _refusal(node: PolicyNode, ancestor: PolicyNode, key: str, rule: str, closed: bool) -> ConfigError:
    floor, value = ancestor.declared.get(key), text_of(key, node.declared[key])
    at = ancestor.place(key)
    by = f'"{ancestor.name}"' + (f" ({at})" if at else "")
    if closed:
        message = f'"{node.name}" declares {key}: {value}, and {by} allows no declaration of {rule} below it'
        hint = f'remove it, or let "{ancestor.name}" say override: {{{rule}: stricter}}'
    else:
        assert floor is not None
        strict = text_of(key, joined(key, floor, node.declared[key]))
        message = (
            f'"{node.name}" declares {key}: {value}, which is not as strict as {text_of(key, floor)} of {by}'
        )
        hint = f'say {strict}, or stricter; or let "{ancestor.name}" say override: {{{rule}: any}}'
    return ConfigError(message, hint=hint, where=node.place(key), code="HUB-1104")


def _folded(nodes: Sequence[PolicyNode]) -> dict[str, PolicySetting]:
    """Combine the values of nodes, ancestors first."""
    settings: dict[str, PolicySetting] = {}
    closed: dict[str, str] = {}  # rule: the node below which it may not be set
    for node in nodes:
        for key, value in node.declared.items():
            by = closed.get(_governed_by(key))
            if by is None:
                settings[key] = _apply_setting(settings.get(key), node, key, value)
            elif key in settings:
                policy_setting = settings[key]
                note = PolicyStep(node.name, value, policy_setting.value, f'ignored: "{by}" declares none')
                settings[key] = replace(policy_setting, steps=(*policy_setting.steps, note))
        for key in node.declared:
            if node.lets(key) == "none":
                closed.setdefault(_governed_by(key), node.name)
    return settings


def _apply_setting(
    policy_setting: PolicySetting | None, node: PolicyNode, key: str, value: Value
) -> PolicySetting:
    """Apply a node's value, made as strict as all earlier values that may only be tightened."""
    floors, steps = (policy_setting.floors, policy_setting.steps) if policy_setting is not None else ((), ())
    result, by, place = value, node.name, node.place(key)
    for name, floor in floors:
        strict = joined(key, result, floor)
        if strict == result:
            continue
        by, result = (name if strict == floor else f"{by} + {name}"), strict
    note = f"with {by}: {text_of(key, result)}" if result != value else ""
    if by != node.name and policy_setting is not None and by == policy_setting.set_by:
        place = policy_setting.place
    kept = floors if node.lets(key) == "any" else (*floors, (node.name, value))
    return PolicySetting(key, result, by, place, (*steps, PolicyStep(node.name, value, result, note)), kept)
