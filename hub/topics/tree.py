"""[core] The tree of topics: labels joined by dots, settings inherited downwards, patterns label by label.

A node without ``topics`` is a topic; a node with them is one only when it says ``topic: true``. Every effective
setting remembers the node that set it, so that a plan and a refusal can say who decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from hub.errors import ConfigError
from hub.yaml import load_model

Level = Literal[
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]

_LABEL = re.compile(r"^[a-zA-Z0-9_-]+$")
_LONGEST_NAME = 249  # Kafka's limit
_DURATION_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ROOT = "(default)"


def _label(text: str) -> str:
    if not _LABEL.match(text):
        raise ValueError(f'label "{text}" may have letters, digits, "_" and "-" only')
    return text


class Node(BaseModel):
    """One node as the file says it. Everything but ``schema``, ``topic`` and ``topics`` is inherited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: str | None = None
    doc: str | None = None
    partitions: int | None = Field(None, ge=1, le=10_000)
    replication_factor: int | None = Field(None, ge=1, le=32)
    retention: str | int | None = None
    max_size: str | int | None = None
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    compatibility: Level | None = None
    tags: list[str] | None = None
    schema_file: Path | None = Field(None, alias="schema")
    topic: bool = False
    topics: dict[Annotated[str, AfterValidator(_label)], Node] = Field(default_factory=dict)

    @field_validator("retention")
    @classmethod
    def _duration(cls, value: str | int | None) -> str | int | None:
        _amount(value, _DURATION_MS, "a duration such as 12h, 7d or forever")
        return value

    @field_validator("max_size")
    @classmethod
    def _size(cls, value: str | int | None) -> str | int | None:
        _amount(value, _SIZE_BYTES, "a size such as 500MiB, 1GiB or forever")
        return value

    def own_settings(self) -> dict[str, object]:
        """What this node itself says, sugar spelled out as Kafka's keys."""
        said: dict[str, object] = {
            name: value
            for name in ("owner", "partitions", "replication_factor", "compatibility", "tags")
            if (value := getattr(self, name)) is not None
        }
        for name, key, units in (
            ("retention", "retention.ms", _DURATION_MS),
            ("max_size", "retention.bytes", _SIZE_BYTES),
        ):
            value = getattr(self, name)
            if value is not None:
                said[f"config.{key}"] = str(_amount(value, units, ""))
        said.update({f"config.{key}": _text(value) for key, value in self.config.items()})
        return said


class TreeFile(BaseModel):
    """topics.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topics: dict[Annotated[str, AfterValidator(_label)], Node]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic with its effective settings; ``set_by`` names the node that set each."""

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

    @property
    def subject(self) -> str:
        """The registry's subject of the topic's values (TopicNameStrategy)."""
        return f"{self.name}-value"


@dataclass(frozen=True, slots=True)
class TopicTree:
    """Every topic of the file, by name."""

    topics: tuple[TopicSpec, ...]

    def find(self, name: str) -> TopicSpec | None:
        return next((topic for topic in self.topics if topic.name == name), None)


def load(path: Path) -> TopicTree:
    """The tree in a file; schema paths are taken from the file's folder. Raises ConfigError with line and column."""
    file = load_model(path, TreeFile)
    inherited: dict[str, tuple[object, str]] = {"partitions": (1, _ROOT), "replication_factor": (1, _ROOT)}
    found = [
        spec for label, node in file.topics.items() for spec in _topics(label, node, inherited, path.parent)
    ]
    for spec in found:
        if len(spec.name) > _LONGEST_NAME:
            raise ConfigError(
                f'topic "{spec.name[:60]}…": {len(spec.name)} characters',
                hint=f"Kafka allows {_LONGEST_NAME}",
                where=str(path),
            )
    return TopicTree(tuple(sorted(found, key=lambda spec: spec.name)))


def _topics(
    name: str, node: Node, inherited: Mapping[str, tuple[object, str]], folder: Path
) -> Iterator[TopicSpec]:
    settings = {**inherited, **{key: (value, name) for key, value in node.own_settings().items()}}
    if node.topic or not node.topics:
        yield _spec(name, node, settings, folder)
    for label, child in node.topics.items():
        yield from _topics(f"{name}.{label}", child, settings, folder)


def _spec(name: str, node: Node, settings: Mapping[str, tuple[object, str]], folder: Path) -> TopicSpec:
    def effective(key: str) -> object:
        return settings[key][0] if key in settings else None

    partitions, replication = effective("partitions"), effective("replication_factor")
    tags, level = effective("tags"), effective("compatibility")
    assert isinstance(partitions, int) and isinstance(replication, int)
    return TopicSpec(
        name=name,
        owner=str(effective("owner") or ""),
        doc=node.doc or "",
        partitions=partitions,
        replication_factor=replication,
        config={
            key.removeprefix("config."): str(value)
            for key, (value, _) in sorted(settings.items())
            if key.startswith("config.")
        },
        compatibility=level,  # type: ignore[arg-type]
        schema=folder / node.schema_file if node.schema_file is not None else None,
        tags=tuple(tags) if isinstance(tags, list) else (),
        set_by={key: node_name for key, (_, node_name) in sorted(settings.items())},
    )


def _amount(value: str | int | None, units: Mapping[str, int], expected: str) -> int | None:
    """The value in the smallest unit; "forever" is Kafka's -1."""
    if value is None or isinstance(value, int):
        return value
    if value == "forever":
        return -1
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]+)", value)
    if found is None or found.group(2) not in units:
        raise ValueError(f'"{value}" is not {expected}')
    return int(found.group(1)) * units[found.group(2)]


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic fits a pattern, label by label: ``*`` is exactly one label, ``**`` any number, also none.

    >>> matches("nyc.*.departures", "nyc.jfk.departures"), matches("**.chat", "chat"), matches("nyc.*", "nyc.a.b")
    (True, True, False)
    """
    return _compiled(pattern).fullmatch(f"{topic}.") is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # Every label ends with its dot, so that "**" may stand for none; no backtracking across labels.
    labels = {"*": r"[^.]+\.", "**": r"(?:[^.]+\.)*"}
    return re.compile("".join(labels.get(label, re.escape(label) + r"\.") for label in pattern.split(".")))
