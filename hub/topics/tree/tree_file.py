"""[edge] Content of topics.yaml as pydantic models; durations, sizes and shares as texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from hub.schema_registry.model.levels import Level

AuditMode = Literal["off", "report", "quarantine"]
_LABEL = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_NAME = 249  # Kafka's limit
MOST_PARTITIONS = 10_000  # limit of one controller request
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Share of events that must meet a latency objective, if the file does not set one.
LATENCY_SHARE = 0.99
BROKER_DEFAULT = "default"
_SUGAR = (("retention", "retention.ms"), ("max_size", "retention.bytes"))


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(
            f'label "{text}" may have letters, digits, "_" and "-" only, and at least one (dots join labels)'
        )
    return text


class LatencyNode(BaseModel, extra="forbid", frozen=True):
    """Objectives that a view can have, too: ``latency: 2s``, or with its share ``2s for 99.5%``; ``freshness:
    1m``.
    """

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


class Inherited(BaseModel, extra="forbid", frozen=True):
    """Settings of a node for itself and everything below; the file's ``defaults`` set them for every topic.

    ``audit`` sets how records that violate their schema are handled (hub/topics/conformance/auditor.py).
    ``lake`` sets whether the topic has an Iceberg table (docs/how-to/topics-as-iceberg-tables.md).
    ``erasable_by`` names the field with the id of the person that an event is about; fields with the tag PII,
    or ``erasable_fields``, are encrypted with a key of that person (docs/how-to/forget-a-person.md).
    ``legal_hold`` is the reason why nothing may be erased. ``purpose`` is why these data are kept and used.
    """

    owner: str | None = None
    purpose: str | None = Field(None, min_length=1, max_length=1_000)
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
    erasable_by: str | None = Field(None, min_length=1, max_length=LONGEST_NAME)
    erasable_fields: list[str] | None = Field(None, min_length=1, max_length=1_000)
    legal_hold: str | None = Field(None, max_length=1_000)

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
    def _require_one_spelling(self) -> Self:
        if self.erasable_by is not None and self.erasable_by.split(".")[-1] in (self.erasable_fields or ()):
            raise ValueError(f'erasable_by "{self.erasable_by}" cannot be one of the erasable_fields')
        for name, key in _SUGAR:
            if getattr(self, name) is not None and key in self.config:
                raise ValueError(f"{name} and config.{key} are the same setting: keep one")
        return self

    def own_settings(self) -> dict[str, object]:
        """Return the settings of this node itself, by Kafka's keys; None resets a setting to the brokers'
        default.
        """
        settings: dict[str, object] = {
            name: value
            for name in (
                "owner",
                "purpose",
                "doc",
                "tags",
                "partitions",
                "replication_factor",
                "compatibility",
                "audit",
                "lake",
                "erasable_by",
                "erasable_fields",
                "legal_hold",
            )
            if (value := getattr(self, name)) is not None
        }
        slo = self.slo
        if slo.latency is not None:
            settings["slo.latency"] = _latency(slo.latency)
        if slo.completeness is not None:
            settings["slo.completeness"] = share_of(slo.completeness)
        for name, text in (("freshness", slo.freshness), ("lag", slo.lag)):
            if text is not None:
                settings[f"slo.{name}"] = duration_ms(text)
        for name, key in _SUGAR:
            if (value := getattr(self, name)) is not None:
                settings[f"config.{key}"] = None if value == BROKER_DEFAULT else _config_value(key, value)
        settings.update(
            {f"config.{key}": None if value is None else str(value) for key, value in self.config.items()}
        )
        return settings


class TopicNode(Inherited):
    """One node of topics.yaml. Everything but ``schema``, ``key``, ``topic`` and ``topics`` is inherited.

    ``key`` is the path of the field that is an event's key if an HTTP producer names none.

    ``topic`` sets whether the node itself is a topic; by default, it is one if it has no ``topics``.
    """

    schema_file: Path | None = Field(None, alias="schema")
    key: str | None = Field(None, max_length=LONGEST_NAME)
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


class TreeFile(BaseModel, extra="forbid", frozen=True):
    """Content of topics.yaml."""

    defaults: Inherited = Inherited()
    topics: dict[Annotated[str, AfterValidator(_label)], TopicNode]


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
    span, separator, share = (part.strip() for part in text.partition(" for "))
    return duration_ms(_objective(span)), share_of(share) if separator else LATENCY_SHARE


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
