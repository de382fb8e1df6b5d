"""[core] Confluent's record format of ``_schemas``: JSON text in key and value, byte for byte as its own nodes write.

The order of the fields is part of the key: the broker compacts by bytes. Unknown fields of a value are kept apart
and ignored; a record that is no fact at all is an ``Unreadable`` fact, which changes nothing and stays visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.record import NewRecord, Record

SCHEMAS_TOPIC = "_schemas"


@dataclass(frozen=True, slots=True)
class Reference:
    """A named type that a schema takes from another subject's version."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaStored:
    """A schema under (subject, version); ``deleted`` is a soft delete."""

    subject: str
    version: int
    schema_id: int
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SchemaErased:
    """A hard delete of (subject, version)."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """A soft delete of every version up to ``version``."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class LevelSet:
    """A compatibility level; ``subject`` None is the global one; ``level`` None takes it back."""

    subject: str | None
    level: str | None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModeSet:
    """READWRITE, READONLY, IMPORT…; ``mode`` None takes it back."""

    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """NOOP: a leader of Confluent's catching up. Also facts of its enterprise edition that we do not need."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is no fact we know: it changes nothing and is reported with its place."""

    offset: int
    reason: str


Fact = SchemaStored | SchemaErased | SubjectDeleted | LevelSet | ModeSet | Nothing | Unreadable


def fact_of(record: Record) -> Fact:
    """The fact that a record of ``_schemas`` states. Never raises."""
    try:
        key: dict[str, Any] = orjson.loads(record.key or b"")
        value: dict[str, Any] | None = orjson.loads(record.value) if record.value is not None else None
        return _read(key, value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(record.offset, f"{type(error).__name__}: {error}")


def _read(key: dict[str, Any], value: dict[str, Any] | None) -> Fact:
    kind = key["keytype"]
    if kind == "SCHEMA":
        if value is None:
            return SchemaErased(key["subject"], key["version"])
        return SchemaStored(
            value["subject"],
            value["version"],
            value["id"],
            value["schema"],
            value.get("schemaType") or "AVRO",
            tuple(
                Reference(each["name"], each["subject"], each["version"])
                for each in value.get("references") or ()
            ),
            bool(value.get("deleted", False)),
            value.get("metadata"),
            value.get("ruleSet"),
        )
    if kind == "CONFIG":
        if value is None:
            return LevelSet(key.get("subject"), None)
        more = {name: each for name, each in value.items() if name not in ("subject", "compatibilityLevel")}
        return LevelSet(key.get("subject"), value.get("compatibilityLevel"), more)
    if kind == "MODE":
        return ModeSet(key.get("subject"), value["mode"] if value is not None else None)
    if kind == "DELETE_SUBJECT":
        return SubjectDeleted(value["subject"], value["version"]) if value is not None else Nothing()
    if kind in ("NOOP", "CLEAR_SUBJECT", "CONTEXT"):
        return Nothing()
    raise KeyError(f"unknown keytype {kind}")


def record_of(fact: Fact) -> NewRecord:
    """The record that states a fact, with the bytes that Confluent's registry would write."""
    match fact:
        case SchemaStored():
            value: dict[str, Any] = {"subject": fact.subject, "version": fact.version, "id": fact.schema_id}
            if fact.schema_type != "AVRO":
                value["schemaType"] = fact.schema_type
            if fact.references:
                value["references"] = [each.as_json() for each in fact.references]
            if fact.metadata is not None:
                value["metadata"] = fact.metadata
            if fact.rule_set is not None:
                value["ruleSet"] = fact.rule_set
            value |= {"schema": fact.schema, "deleted": fact.deleted}
            return _record(_schema_key(fact.subject, fact.version), value)
        case SchemaErased():
            return _record(_schema_key(fact.subject, fact.version), None)
        case SubjectDeleted():
            key = {"keytype": "DELETE_SUBJECT", "subject": fact.subject, "magic": 0}
            return _record(key, {"subject": fact.subject, "version": fact.version})
        case LevelSet():
            key = {"keytype": "CONFIG", "subject": fact.subject, "magic": 0}
            if fact.level is None and not fact.more:
                return _record(key, None)
            level = {"compatibilityLevel": fact.level} if fact.level is not None else {}
            return _record(key, {"subject": fact.subject, **level, **fact.more})
        case ModeSet():
            key = {"keytype": "MODE", "subject": fact.subject, "magic": 0}
            return _record(key, None if fact.mode is None else {"subject": fact.subject, "mode": fact.mode})
        case Nothing() | Unreadable():
            return _record({"keytype": "NOOP", "magic": 0}, None)


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def _record(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> NewRecord:
    return NewRecord(
        SCHEMAS_TOPIC, orjson.dumps(key), None if value is None else orjson.dumps(value), partition=0
    )
