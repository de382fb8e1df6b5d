"""[core] The topic tree: labels joined by dots, inherited settings, and patterns over labels.

Each setting is inherited on its own: from the nearest node above that sets it, else from the file's
``defaults``. A topic can reset an inherited setting to the brokers' default: ``retention: default``, or null
under ``config``. A node without ``topics`` is a topic; a node with ``topics`` is one only with ``topic:
true``. Each effective setting remembers the node that set it, for plans and refusals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.schema_registry.encryption.erasable import ErasableFields
from hub.schema_registry.folder.files import DeclaredSchema
from hub.schema_registry.model.levels import Level
from hub.topics.tree.tree_file import LATENCY_SHARE, LONGEST_NAME, AuditMode, TopicNode, TreeFile
from hub.yaml import is_there, kept_to, load_model, place

_ROOT = "(default)"
FILE_DEFAULTS = "defaults of the file"
_RESERVED = (
    ("__", "Kafka", "remove it here: Kafka makes and configures it itself"),
    (
        "_schemas",
        "the schema registry",
        "remove it here: the registry makes it, and its settings are not to be changed",
    ),
    (
        "_dek_registry_keys",
        "the DEK registry",
        "remove it here: the registry makes it, and its settings are not to be changed",
    ),
    (
        "_hub.",
        "the hub",
        "remove it here: the hub makes it when it needs it (`replication_factor` in hub.yaml)",
    ),
    ("views.", "a view", "remove it here and describe the view in views/NAME.yaml: it makes its topic"),
)


@dataclass(frozen=True, slots=True)
class Slo:
    """Service-level objectives of a topic. ``latency_ms``: from an event's time until it is readable.
    ``freshness_ms``: the longest time without a new event. ``lag_ms``: the age of the oldest event that a
    reader has not read. ``completeness``: the share of records that every tier must have. None: no objective.
    ``latency_share``: the share of events that must meet ``latency_ms``.
    """

    latency_ms: int | None = None
    freshness_ms: int | None = None
    lag_ms: int | None = None
    completeness: float | None = None
    latency_share: float = LATENCY_SHARE


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic with its effective settings. ``set_by`` names the node that set (or reset) each setting."""

    name: str
    owner: str
    doc: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    compatibility: Level | None
    schema: Path | None
    tags: tuple[str, ...]
    set_by: Mapping[str, str]
    slo: Slo = Slo()
    audit: AuditMode = "report"
    key: str | None = None
    lake: bool = False
    erasable: ErasableFields | None = None
    legal_hold: str | None = None
    purpose: str = ""

    @property
    def subject(self) -> str:
        """The registry subject of the topic's values (TopicNameStrategy)."""
        return f"{self.name}-value"


@dataclass(frozen=True, slots=True)
class TopicTree:
    """All topics of the file, sorted by name."""

    topics: tuple[TopicSpec, ...]
    path: Path | None = None

    def find(self, name: str) -> TopicSpec | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    def place(self, name: str, *keys: str) -> str | None:
        """Return ``file:line:column`` of a topic or of one of its keys; None for a tree without a file."""
        if self.path is None:
            return None
        steps = [step for label in name.split(".") for step in ("topics", label)]
        return place(self.path, *steps, *keys)


class LiveTree:
    """The tree in a file that may change or be absent; reloaded on change. An invalid file keeps the previous
    tree, and ``error`` is the reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: ConfigError | None = None
        self._topics: dict[str, TopicSpec] = {}
        self._read: Stamp | None = None

    def find(self, name: str) -> TopicSpec | None:
        return self.topics().get(name)

    def topics(self) -> Mapping[str, TopicSpec]:
        """Return the current topics of the file by name."""
        stamp = stamp_if_there(self.path)
        if stamp is not None and stamp != self._read:
            self._read = stamp
            try:
                self._topics = {topic.name: topic for topic in load(self.path).topics}
                self.error = None
            except ConfigError as error:
                self.error = error
        return self._topics


def load(path: Path, replication_factor: int = 1) -> TopicTree:
    """Load the tree from a file; schema paths are relative to its folder. Raises ConfigError with line and
    column.

    ``replication_factor`` applies to topics for which no node sets one.
    """
    with kept_to(path):
        return _load(path, replication_factor)


def declared_schemas(project: Path) -> dict[Path, list[DeclaredSchema]]:
    """Return the subjects and levels that topics.yaml declares for schema files, by resolved path; {} without
    the file. Raises ConfigError."""
    path = project / "topics.yaml"
    declared: dict[Path, list[DeclaredSchema]] = {}
    for topic in load(path).topics if is_there(path) else ():
        if topic.schema is not None:
            one = DeclaredSchema(topic.subject, topic.compatibility)
            declared.setdefault(topic.schema.resolve(), []).append(one)
    return declared


def _load(path: Path, replication_factor: int) -> TopicTree:
    file = load_model(path, TreeFile)
    defaults: dict[str, tuple[object, str]] = {
        "partitions": (1, _ROOT),
        "replication_factor": (replication_factor, _ROOT),
        **{key: (value, FILE_DEFAULTS) for key, value in file.defaults.own_settings().items()},
    }
    topic_specs = [
        spec for label, node in file.topics.items() for spec in _topics(label, node, defaults, path.parent)
    ]
    tree = TopicTree(tuple(sorted(topic_specs, key=lambda spec: spec.name)), path)
    for spec in topic_specs:
        if (owner := reserved_for(spec.name)) is not None:
            raise ConfigError(
                f'topic "{spec.name}" belongs to {owner[0]}',
                hint=owner[1],
                where=tree.place(spec.name),
                code="HUB-1104",
            )
        if len(spec.name) > LONGEST_NAME:
            raise ConfigError(
                f'topic "{spec.name[:60]}…": {len(spec.name)} characters',
                hint=f"Kafka allows {LONGEST_NAME}",
                where=tree.place(spec.name),
                code="HUB-1104",
            )
    return tree


def inherited(path: Path | None, pattern: str, replication_factor: int = 1) -> TopicSpec:
    """Return the settings of a topic below ``pattern`` that the tree does not name: those of the nodes above.

    Nodes are followed as far as the pattern's labels are written out. ``path`` None: there is no tree. Raises
    ConfigError.
    """
    file = TreeFile(topics={}) if path is None else load_model(path, TreeFile)
    settings: dict[str, tuple[object, str]] = {
        "partitions": (1, _ROOT),
        "replication_factor": (replication_factor, _ROOT),
        **{key: (value, FILE_DEFAULTS) for key, value in file.defaults.own_settings().items()},
    }
    for name, node in nodes_above(file, pattern):
        settings |= {key: (value, name) for key, value in node.own_settings().items()}
    return _spec(pattern, TopicNode(), settings, Path())


def nodes_above(file: TreeFile, pattern: str) -> Iterator[tuple[str, TopicNode]]:
    """Yield name and node from the root to a topic or pattern, as far as the file has its labels."""
    nodes, name = file.topics, ""
    for label in pattern.split("."):
        if (node := nodes.get(label)) is None:
            return
        name = f"{name}.{label}" if name else label
        yield name, node
        nodes = node.topics


def reserved_for(name: str) -> tuple[str, str] | None:
    """Return (owner of the topic, hint) for a name that no tree may declare; None for any other.

    >>> reserved_for("__consumer_offsets")[0], reserved_for("views.orders")[0], reserved_for("shop.orders")
    ('Kafka', 'a view', None)
    """
    for prefix, owner, way in _RESERVED:
        if name == prefix or (prefix.endswith((".", "__")) and name.startswith(prefix)):
            return owner, way
    return None


def collisions(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Group names that Kafka's metrics cannot distinguish because they replace ``.`` by ``_``. A broker
    refuses the second of them.

    >>> collisions(["a.b", "a_b", "a-b"])
    (('a.b', 'a_b'),)
    """
    same: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        same.setdefault(name.replace(".", "_"), []).append(name)
    return tuple(tuple(group) for group in same.values() if len(group) > 1)


def _topics(
    name: str, node: TopicNode, inherited: Mapping[str, tuple[object, str]], folder: Path
) -> Iterator[TopicSpec]:
    settings = {**inherited, **{key: (value, name) for key, value in node.own_settings().items()}}
    if node.is_topic:
        yield _spec(name, node, settings, folder)
    for label, child in node.topics.items():
        yield from _topics(f"{name}.{label}", child, settings, folder)


def _spec(name: str, node: TopicNode, settings: Mapping[str, tuple[object, str]], folder: Path) -> TopicSpec:
    def effective(key: str) -> object:
        return settings[key][0] if key in settings else None

    partitions, replication = effective("partitions"), effective("replication_factor")
    tags, level = effective("tags"), effective("compatibility")
    latency, completeness = effective("slo.latency"), effective("slo.completeness")
    freshness, lag = effective("slo.freshness"), effective("slo.lag")
    assert isinstance(partitions, int) and isinstance(replication, int)
    return TopicSpec(
        name=name,
        owner=str(effective("owner") or ""),
        doc=str(effective("doc") or ""),
        partitions=partitions,
        replication_factor=replication,
        config={
            key.removeprefix("config."): str(value)
            for key, (value, _) in sorted(settings.items())
            if key.startswith("config.") and value is not None
        },
        compatibility=level,  # type: ignore[arg-type]
        schema=folder / node.schema_file if node.schema_file is not None else None,
        tags=tuple(tags) if isinstance(tags, list) else (),
        set_by={key: node_name for key, (_, node_name) in sorted(settings.items())},
        slo=Slo(
            latency[0] if isinstance(latency, tuple) else None,
            freshness if isinstance(freshness, int) else None,
            lag if isinstance(lag, int) else None,
            completeness if isinstance(completeness, float) else None,
            latency[1] if isinstance(latency, tuple) else LATENCY_SHARE,
        ),
        audit=effective("audit") or "report",  # type: ignore[arg-type]
        key=node.key,
        lake=effective("lake") is True,
        erasable=_erasable(effective("erasable_by"), effective("erasable_fields")),
        legal_hold=str(effective("legal_hold")) if effective("legal_hold") else None,
        purpose=str(effective("purpose") or ""),
    )


def _erasable(by: object, fields: object) -> ErasableFields | None:
    if not by:
        return None
    return ErasableFields(str(by), frozenset(map(str, fields)) if isinstance(fields, list) else frozenset())


def matches(pattern: str, topic: str) -> bool:
    """Return True if a topic matches a pattern of labels: ``*`` is exactly one label, ``**`` any number,
    including none. A ``*`` inside a label is any number of characters of that label: names of topics contain
    no ``*``.

    >>> matches("nyc.*.departures", "nyc.jfk.departures"), matches("**.chat", "chat"), matches("nyc.*",
    ... "nyc.a.b")
    (True, True, False)
    >>> matches("shop.orders-*", "shop.orders-eu"), matches("shop.orders-*", "shop.orders-eu.old")
    (True, False)
    """
    return _compiled(pattern).fullmatch(f"{topic}.") is not None


# Bounded: silences have patterns, too, and their number is unbounded.
@lru_cache(maxsize=4_096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Every label includes its dot, so that "**" can match none; no backtracking across labels.
    labels = {"*": r"[^.]+\.", "**": r"(?:[^.]+\.)*"}
    return re.compile("".join(labels.get(label) or _label_expression(label) for label in pattern.split(".")))


def _label_expression(label: str) -> str:
    first, *others = map(re.escape, label.split("*"))
    if not others:
        return rf"{first}\."
    # Atomic, because the first place of a middle part is as good as a later one: no backtracking.
    middle = "".join(rf"(?>[^.]*?{part})" for part in others[:-1] if part)
    return rf"{first}{middle}[^.]*{others[-1]}\."
