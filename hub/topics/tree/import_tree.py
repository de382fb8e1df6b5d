"""[core] Generate the tree that describes a cluster's topics. Settings that siblings share move to their
parent.

The labels are traversed twice, for each setting independently. The first pass goes upward: a node takes the
most frequent value of its children, if at least two have it (or there is only one child) and every child has
the setting. The second pass goes downward: each node states only what differs from what it inherits. The
second pass alone makes the tree correct; the first makes it short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.log import TopicDescription
from hub.topics.tree.plan import is_own
from hub.topics.tree.tree_file import MOST_PARTITIONS

# The YAML loader's depth limit: each label takes two levels.
MOST_LABELS = 20

_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_SUGAR = {"retention.ms": ("retention", _DURATIONS), "retention.bytes": ("max_size", _SIZES)}

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ImportedTree:
    """Result of an import. ``body`` is the content of the file; ``left_out`` maps each topic that is not in
    it to the reason.
    """

    body: Mapping[str, Any]
    topics: tuple[str, ...]
    left_out: Mapping[str, str]


@dataclass(slots=True)
class _ImportedNode:
    """A node under construction.

    ``own`` holds the topic's settings, None if the node is not a topic. ``settings`` holds the settings that
    the node declares for itself and below; ``every`` the settings that each topic at or below it has,
    ``some`` those that any of them has.
    """

    own: Settings | None = None
    children: dict[str, _ImportedNode] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    every: frozenset[str] = frozenset()
    some: frozenset[str] = frozenset()


def imported(topics: Iterable[TopicDescription]) -> ImportedTree:
    """Build the tree of these topics. Leaves out topics of Kafka and of the hub, and names that are not valid
    paths of labels.
    """
    root = _ImportedNode()
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for topic in sorted(topics, key=lambda each: each.name):
        why = _not_in_a_tree(topic)
        if why:
            left_out[topic.name] = why
            continue
        taken.append(topic.name)
        branch = root
        for label in topic.name.split("."):
            branch = branch.children.setdefault(label, _ImportedNode())
        branch.own = {
            "partitions": str(topic.partitions),
            "replication_factor": str(topic.replication_factor),
            **{f"config.{key}": value for key, value in sorted(topic.config.items())},
        }
    _upwards(root)
    body: dict[str, Any] = {}
    if root.settings:
        body["defaults"] = _as_yaml(root.settings)
    body["topics"] = {label: _node(child, root.settings) for label, child in root.children.items()}
    return ImportedTree(body, tuple(taken), left_out)


def _not_in_a_tree(topic: TopicDescription) -> str | None:
    labels = topic.name.split(".")
    if is_own(topic.name):
        return "Kafka's or the hub's own"
    if "" in labels:
        return "its name has an empty label"
    if topic.partitions > MOST_PARTITIONS:
        return f"it has more than {MOST_PARTITIONS} partitions"
    if len(labels) > MOST_LABELS:
        return f"its name has more than {MOST_LABELS} labels"
    return None


def _upwards(branch: _ImportedNode) -> None:
    children = list(branch.children.values())
    for child in children:
        _upwards(child)
    own = [] if branch.own is None else [frozenset(branch.own)]
    every = [child.every for child in children] + own
    branch.every = frozenset.intersection(*every) if every else frozenset()
    branch.some = frozenset().union(*(child.some for child in children), *own)
    if branch.own is not None:  # a topic's own settings are inherited by everything below it
        branch.settings = dict(branch.own)
        return
    for key in sorted(branch.every):
        votes = Counter(child.settings[key] for child in children if key in child.settings)
        value, count = min(votes.items(), key=lambda each: (-each[1], each[0]), default=("", 0))
        if count >= 2 or (count == 1 and len(children) == 1):
            branch.settings[key] = value


def _node(branch: _ImportedNode, inherited: Settings) -> dict[str, Any]:
    """Return the node's own keys: the settings that differ from the inherited ones."""
    settings: dict[str, str | None] = {
        key: value
        for key, value in sorted(branch.settings.items(), key=_order)
        if inherited.get(key) != value
    }
    has = branch.some if branch.own is None else branch.own
    settings.update({key: None for key in sorted(inherited) if key not in has})
    holds = {**inherited, **settings}
    stated = _as_yaml(settings)
    if branch.own is not None and branch.children:
        stated["topic"] = True
    if branch.children:
        below = {key: value for key, value in holds.items() if value is not None}
        stated["topics"] = {label: _node(child, below) for label, child in branch.children.items()}
    return stated


def _order(setting: tuple[str, str]) -> tuple[bool, bool, str]:
    return setting[0].startswith("config."), setting[0] != "partitions", setting[0]


# ---- settings as written in YAML


def _as_yaml(settings: Mapping[str, str | None]) -> dict[str, Any]:
    """Convert settings to the keys of a node: numbers as numbers, retention and size with their unit."""
    stated: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for key, value in settings.items():
        name = key.removeprefix("config.")
        if name == key:
            stated[key] = int(value or 0)
        elif name in _SUGAR and (value is None or int(value) >= -1):
            sugar, units = _SUGAR[name]
            stated[sugar] = _with_unit(value, units)
        else:
            config[name] = _plain(value)
    if config:
        stated["config"] = config
    return stated


def _with_unit(value: str | None, units: Sequence[tuple[str, int]]) -> str:
    if value is None:
        return "default"
    amount = int(value)
    if amount <= 0:
        return "forever" if amount else f"0{units[-1][0]}"
    return next(f"{amount // size}{unit}" for unit, size in units if amount % size == 0)


def _plain(value: str | None) -> str | int | bool | None:
    """Convert a value to a YAML boolean or integer if that reads back as the same text."""
    if value in ("true", "false"):
        return value == "true"
    if value is not None and value.removeprefix("-").isdecimal() and str(int(value)) == value:
        return int(value)
    return value
