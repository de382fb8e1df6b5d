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
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.schema_registry.model.levels import Level
from hub.yaml import kept_to, load_model, place

AuditMode = Literal["off", "report", "quarantine"]

_LABEL = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST_NAME = 249  # Kafka's limit
MOST_PARTITIONS = 10_000  # limit of one controller request
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ROOT = "(default)"
# Share of events that must meet a latency objective, if the file does not set one.
LATENCY_SHARE = 0.99
FILE_DEFAULTS = "defaults of the file"
BROKER_DEFAULT = "default"
_RESERVED = (
    ("__", "Kafka", "remove it here: Kafka makes and configures it itself"),
    (
        "_schemas",
        "the schema registry",
        "remove it here: the registry makes it, and its settings are not to be changed",
    ),
    (
        "_hub.",
        "the hub",
        "remove it here: the hub makes it when it needs it (`replication_factor` in hub.yaml)",
    ),
    ("views.", "a view", "remove it here and describe the view in views/NAME.yaml: it makes its topic"),
)
_SUGAR = (("retention", "retention.ms"), ("max_size", "retention.bytes"))


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(
            f'label "{text}" may have letters, digits, "_" and "-" only, and at least one (dots join labels)'
        )
    return text


class LatencyNode(BaseModel):
    """Objectives that a view can have, too: ``latency: 2s``, or with its share ``2s for 99.5%``; ``freshness:
    1m``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency: str | None = None
    freshness: str | None = None

    @field_validator("latency")
    @classmethod
    def _share(cls, value: str | None) -> str | None:
        if value is not None:
            _latency(value)
        return value

    @field_validator("freshness")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        return value if value is None else _objective(value)

    @field_validator("*", mode="before")
    @classmethod
    def _unit(cls, value: object) -> object:
        # no unit: the next validator reports it
        return str(value) if isinstance(value, int | float) else value

    @property
    def latency_ms(self) -> int | None:
        return None if self.latency is None else _latency(self.latency)[0]

    @property
    def latency_share(self) -> float:
        """The share of events that meet the latency; 0.99 by default."""
        return LATENCY_SHARE if self.latency is None else _latency(self.latency)[1]

    @property
    def freshness_ms(self) -> int | None:
        return None if self.freshness is None else duration_ms(self.freshness)


class SloNode(LatencyNode):
    """``slo`` in topics.yaml: durations with their unit, shares with their %."""

    lag: str | None = None
    completeness: str | None = None

    @field_validator("lag")
    @classmethod
    def _lag(cls, value: str | None) -> str | None:
        return value if value is None else _objective(value)

    @field_validator("completeness")
    @classmethod
    def _percent(cls, value: str | None) -> str | None:
        if value is not None:
            share_of(value)
        return value


class Inherited(BaseModel):
    """Settings of a node for itself and everything below; the file's ``defaults`` set them for every topic.

    ``audit`` sets how records that violate their schema are handled (hub/topics/conformance/auditor.py).
    ``lake`` sets whether the topic has an Iceberg table (docs/how-to/topics-as-iceberg-tables.md).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: str | None = None
    doc: str | None = None
    slo: SloNode = SloNode()
    tags: list[str] | None = None
    partitions: int | None = Field(None, ge=1, le=MOST_PARTITIONS)
    replication_factor: int | None = Field(None, ge=1, le=32)
    retention: str | None = None
    max_size: str | None = None
    config: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    compatibility: Level | None = None
    audit: AuditMode | None = None
    lake: bool | None = None

    @field_validator("retention")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        if value != BROKER_DEFAULT:
            _amount(value, _DURATION_MS, "a duration such as 12h, 7d or forever")
        return value

    @field_validator("max_size")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        if value != BROKER_DEFAULT:
            _amount(value, _SIZE_BYTES, "a size such as 500MiB, 1GiB or forever")
        return value

    @field_validator("retention", "max_size", mode="before")
    @classmethod
    def _unit(cls, value: object) -> object:
        # no unit: the next validator reports it
        return str(value) if isinstance(value, int | float) else value

    @field_validator("audit", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML parses off as false

    @field_validator("config")
    @classmethod
    def _spelled_out(
        cls, config: dict[str, str | int | float | bool | None]
    ) -> dict[str, str | int | float | bool | None]:
        return {key: None if value is None else _config_value(key, value) for key, value in config.items()}

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        for name, key in _SUGAR:
            if getattr(self, name) is not None and key in self.config:
                raise ValueError(f"{name} and config.{key} are the same setting: keep one")
        return self

    def own_settings(self) -> dict[str, object]:
        """Return the settings of this node itself, by Kafka's keys; None resets a setting to the brokers'
        default.
        """
        said: dict[str, object] = {
            name: value
            for name in (
                "owner",
                "doc",
                "tags",
                "partitions",
                "replication_factor",
                "compatibility",
                "audit",
                "lake",
            )
            if (value := getattr(self, name)) is not None
        }
        slo = self.slo
        if slo.latency is not None:
            said["slo.latency"] = _latency(slo.latency)
        if slo.completeness is not None:
            said["slo.completeness"] = share_of(slo.completeness)
        for name, text in (("freshness", slo.freshness), ("lag", slo.lag)):
            if text is not None:
                said[f"slo.{name}"] = duration_ms(text)
        for name, key in _SUGAR:
            if (value := getattr(self, name)) is not None:
                said[f"config.{key}"] = None if value == BROKER_DEFAULT else _config_value(key, value)
        said.update(
            {f"config.{key}": None if value is None else str(value) for key, value in self.config.items()}
        )
        return said


class TopicNode(Inherited):
    """One node of topics.yaml. Everything but ``schema``, ``key``, ``topic`` and ``topics`` is inherited.

    ``key`` is the path of the field that is an event's key if an HTTP producer names none.

    ``topic`` sets whether the node itself is a topic; by default, it is one if it has no ``topics``.
    """

    schema_file: Path | None = Field(None, alias="schema")
    key: str | None = Field(None, max_length=_LONGEST_NAME)
    topic: bool | None = None
    topics: dict[Annotated[str, AfterValidator(_label)], TopicNode] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _schema_of_a_topic(self) -> Self:
        if self.schema_file is not None and not self.is_topic:
            raise ValueError("a schema belongs to a topic: add `topic: true`, or move it down")
        if self.key is not None and not self.is_topic:
            raise ValueError("a key belongs to a topic: add `topic: true`, or move it down")
        return self

    @field_validator("key")
    @classmethod
    def _path(cls, value: str | None) -> str | None:
        if value is not None and not all(value.split(".")):
            raise ValueError(f'key "{value}" is not a path of fields, such as order_id or customer.id')
        return value

    @property
    def is_topic(self) -> bool:
        return not self.topics if self.topic is None else self.topic


class TreeFile(BaseModel):
    """Content of topics.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: Inherited = Inherited()
    topics: dict[Annotated[str, AfterValidator(_label)], TopicNode]


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


def _load(path: Path, replication_factor: int) -> TopicTree:
    file = load_model(path, TreeFile)
    defaults: dict[str, tuple[object, str]] = {
        "partitions": (1, _ROOT),
        "replication_factor": (replication_factor, _ROOT),
        **{key: (value, FILE_DEFAULTS) for key, value in file.defaults.own_settings().items()},
    }
    found = [
        spec for label, node in file.topics.items() for spec in _topics(label, node, defaults, path.parent)
    ]
    tree = TopicTree(tuple(sorted(found, key=lambda spec: spec.name)), path)
    for spec in found:
        if (owner := reserved_for(spec.name)) is not None:
            raise ConfigError(
                f'topic "{spec.name}" belongs to {owner[0]}',
                hint=owner[1],
                where=tree.place(spec.name),
                code="HUB-1104",
            )
        if len(spec.name) > _LONGEST_NAME:
            raise ConfigError(
                f'topic "{spec.name[:60]}…": {len(spec.name)} characters',
                hint=f"Kafka allows {_LONGEST_NAME}",
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
    nodes, name = file.topics, ""
    for label in pattern.split("."):
        if (node := nodes.get(label)) is None:
            break
        name = f"{name}.{label}" if name else label
        settings |= {key: (value, name) for key, value in node.own_settings().items()}
        nodes = node.topics
    return _spec(pattern, TopicNode(), settings, Path())


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
    )


def _config_value(key: str, value: str | float | bool) -> str:
    """Format a setting for Kafka. Keys ending in ``.ms`` or ``.bytes`` accept units, as in ``retention:
    7d``.
    """
    units = _DURATION_MS if key.endswith(".ms") else _SIZE_BYTES if key.endswith(".bytes") else None
    if isinstance(value, str) and units is not None and not re.fullmatch(r"-?\d+", value):
        return str(_amount(value, units, f"a number for {key}, plain or with its unit ({', '.join(units)})"))
    return str(value).lower() if isinstance(value, bool) else str(value)


def duration_ms(text: str) -> int:
    """Parse ``500ms``, ``2s``, ``1m``, ``4h``, ``7d`` into milliseconds. Raises ValueError."""
    found = _amount(text, _DURATION_MS, "a duration such as 500ms, 2s or 1m")
    if found is None or found < 0:
        raise ValueError(f'"{text}" is not a duration such as 500ms, 2s or 1m')
    return found


def share_of(text: str) -> float:
    """Parse ``99.9%`` into 0.999. Raises ValueError.

    >>> share_of("100%"), share_of("99.5 %")
    (1.0, 0.995)
    """
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", text)
    if found is None or not 0 < float(found.group(1)) <= 100:
        raise ValueError(f'"{text}" is not a share such as 100% or 99.9%')
    return round(float(found.group(1)) / 100, 8)


def _objective(text: str) -> str:
    if text == "forever":
        raise ValueError('an objective is a duration such as 500ms, 2s or 1m, not "forever"')
    duration_ms(text)
    return text


def _latency(text: str) -> tuple[int, float]:
    """Parse ``2s for 99%`` into (milliseconds, share)."""
    span, said, share = (part.strip() for part in text.partition(" for "))
    return duration_ms(_objective(span)), share_of(share) if said else LATENCY_SHARE


def _amount(value: str | None, units: Mapping[str, int], expected: str) -> int | None:
    """Parse an amount into the smallest unit; "forever" is Kafka's -1. Raises ValueError."""
    if value is None:
        return None
    if value == "forever":
        return -1
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]+)", value)
    if found is None or found.group(2) not in units:
        raise ValueError(f'"{value}" is not {expected}')
    return int(found.group(1)) * units[found.group(2)]


def matches(pattern: str, topic: str) -> bool:
    """Return True if a topic matches a pattern of labels: ``*`` is exactly one label, ``**`` any number,
    including none.

    >>> matches("nyc.*.departures", "nyc.jfk.departures"), matches("**.chat", "chat"), matches("nyc.*",
    ... "nyc.a.b")
    (True, True, False)
    """
    return _compiled(pattern).fullmatch(f"{topic}.") is not None


# Bounded: silences have patterns, too, and their number is unbounded.
@lru_cache(maxsize=4_096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Every label includes its dot, so that "**" can match none; no backtracking across labels.
    labels = {"*": r"[^.]+\.", "**": r"(?:[^.]+\.)*"}
    return re.compile("".join(labels.get(label, re.escape(label) + r"\.") for label in pattern.split(".")))
