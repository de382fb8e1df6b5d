"""[core] Confluent's record format of ``_schemas``: JSON text in key and value, byte for byte as Confluent
writes.

The order of the fields is part of the key, because the broker compacts by bytes. A record whose key is
spelled differently (by older registries) is read all the same. Its fact keeps the key's bytes, so that later
records use the same bytes and compaction removes it. Unknown fields of a value are kept. A record that is not
a valid fact becomes an ``UnreadableFact``, which changes nothing and stays visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.record import NewRecord, Record
from hub.schema_registry.model.data_contract import is_writable
from hub.schema_registry.model.levels import LEVELS

SCHEMAS_TOPIC = "_schemas"
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
HIGHEST_ID = 2**31 - 1
# Not Confluent's: keeps ids from being reused once compaction has removed all traces of a hard-deleted
# schema. Confluent's own nodes log an unknown key and continue.
_IDS_SPENT = "HUB_IDS_SPENT"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to another subject's version."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaStored:
    """A schema under (subject, version); ``deleted`` is a soft delete. ``more`` holds unknown fields."""

    subject: str
    version: int
    schema_id: int
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    key: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SchemaErased:
    """A hard delete of (subject, version)."""

    subject: str
    version: int
    key: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """A soft delete of every version up to ``version``."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """Removal of all soft-deleted versions of a subject, of a context, or (None) of the registry."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class LevelSet:
    """The settings of a subject or context; ``subject`` None is the default context.

    ``level`` None with empty ``more`` removes them.
    """

    subject: str | None
    level: str | None
    more: Mapping[str, Any] = field(default_factory=dict)
    key: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ModeSet:
    """The mode, one of MODES; ``mode`` None removes it."""

    subject: str | None
    mode: str | None
    key: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ContextStored:
    """A context other than the default one was created or (``exists`` False) removed."""

    context: str
    exists: bool = True
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class IdsSpent:
    """Ids up to this one were assigned in a context, even if no record of them is left."""

    context: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class Noop:
    """NOOP record that a leader of Confluent's registry writes while catching up."""


@dataclass(frozen=True, slots=True)
class UnreadableFact:
    """A record that is not a known fact; it changes nothing and is reported with its offset."""

    offset: int
    reason: str


Fact = (
    SchemaStored
    | SchemaErased
    | SubjectDeleted
    | SubjectCleared
    | LevelSet
    | ModeSet
    | ContextStored
    | IdsSpent
    | Noop
    | UnreadableFact
)

# Magic bytes by kind; Confluent's first schemas had 0.
_MAGIC: Mapping[str, tuple[int, ...]] = {
    "SCHEMA": (0, 1),
    "CONFIG": (0,),
    "MODE": (0,),
    "DELETE_SUBJECT": (0,),
    "CLEAR_SUBJECT": (0,),
    "CONTEXT": (0,),
    "NOOP": (0,),
    _IDS_SPENT: (0,),
}
_SCHEMA_FIELDS = frozenset(
    {
        "subject",
        "version",
        "id",
        "schema",
        "schemaType",
        "references",
        "deleted",
        "metadata",
        "ruleSet",
    }
)


def fact_of(record: Record) -> Fact:
    """Return the fact in a record of ``_schemas``. Never raises."""
    try:
        key = orjson.loads(record.key or b"")
        value = orjson.loads(record.value) if record.value is not None else None
        if not isinstance(key, dict) or not (value is None or isinstance(value, dict)):
            raise TypeError("key and value are not JSON objects")
        kind, magic = key["keytype"], key.get("magic")
        if not isinstance(kind, str) or kind not in _MAGIC:
            raise KeyError(f"unknown keytype {str(kind)[:80]}")
        if isinstance(magic, bool) or magic not in _MAGIC[kind]:
            raise ValueError(f"unknown magic {str(magic)[:80]} of keytype {kind}")
        return _read(kind, key, value, record.key or b"")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return UnreadableFact(record.offset, f"{type(error).__name__}: {error}")


def _read(kind: str, key: dict[str, Any], value: dict[str, Any] | None, written: bytes) -> Fact:
    if kind == "SCHEMA":
        version = _number(key["version"], "version")
        return _read_schema(_text(key["subject"], "subject"), version, value, written)
    if kind == "DELETE_SUBJECT":
        subject = _text(key["subject"], "subject")
        return Noop() if value is None else SubjectDeleted(subject, _number(value["version"], "version"))
    place = _text(key["subject"], "subject") if key.get("subject") is not None else None
    if kind == "CONFIG":
        spelled = _spelled(written, _place_key(kind, place))
        if value is None:
            return LevelSet(place, None, {}, spelled)
        level = value.get("compatibilityLevel")
        if level is not None and level not in LEVELS:
            raise ValueError(f"unknown compatibility level {str(level)[:80]}")
        more = {
            name: each
            for name, each in value.items()
            if name not in ("subject", "compatibilityLevel") and each is not None
        }
        return LevelSet(place, level, more, spelled)
    if kind == "MODE":
        mode = None if value is None else value["mode"]
        if mode is not None and mode not in MODES:
            raise ValueError(f"unknown mode {str(mode)[:80]}")
        return ModeSet(place, mode, _spelled(written, _place_key(kind, place)))
    if kind == "CLEAR_SUBJECT":
        return Noop() if value is None else SubjectCleared(place)
    if kind == "CONTEXT":
        tenant = key.get("tenant") or "default"
        return ContextStored(_text(key["context"], "context"), value is not None, _text(tenant, "tenant"))
    if kind == _IDS_SPENT and value is not None:
        return IdsSpent(_text(key["context"], "context"), _number(value["id"], "id"))
    return Noop()


def _read_schema(subject: str, version: int, value: dict[str, Any] | None, written: bytes) -> Fact:
    spelled = _spelled(written, _schema_key(subject, version))
    if value is None:
        return SchemaErased(subject, version, spelled)
    references = value.get("references") or ()
    return SchemaStored(
        subject,
        version,
        _number(value["id"], "id"),
        _text(value["schema"], "schema"),
        _text(value.get("schemaType") or "AVRO", "schemaType"),
        tuple(
            Reference(
                _text(each["name"], "name"),
                _text(each["subject"], "subject"),
                _reference_version(each["version"]),
            )
            for each in references
        ),
        bool(value.get("deleted", False)),
        _object(value.get("metadata"), "metadata"),
        _object(value.get("ruleSet"), "ruleSet"),
        {name: each for name, each in value.items() if name not in _SCHEMA_FIELDS and each is not None},
        spelled,
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= HIGHEST_ID:
        raise ValueError(f"{name} is not a number from 0 to {HIGHEST_ID}")
    return value


def _reference_version(value: Any) -> int:
    return -1 if value == -1 else _number(value, "version of a reference")


def _object(value: Any, name: str) -> Mapping[str, Any] | None:
    """Return an object without its null fields, which Confluent writes for missing parts."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError(f"{name} is not an object")
    if not is_writable(value):
        raise ValueError(f"{name} is nested too deep")
    return {key: each for key, each in value.items() if each is not None}


def _spelled(written: bytes, usual: Mapping[str, Any]) -> bytes | None:
    """Return the key's own bytes if they differ from those that we would write."""
    return None if written == orjson.dumps(usual) else written


def record_of(fact: Fact) -> NewRecord:
    """Return the record of a fact, with the bytes that Confluent's registry would write."""
    match fact:
        case SchemaStored():
            value: dict[str, Any] = {
                "subject": fact.subject,
                "version": fact.version,
                "id": fact.schema_id,
            }
            if fact.schema_type != "AVRO":
                value["schemaType"] = fact.schema_type
            if fact.references:
                value["references"] = [each.as_json() for each in fact.references]
            if fact.metadata is not None:
                value["metadata"] = fact.metadata
            if fact.rule_set is not None:
                value["ruleSet"] = fact.rule_set
            value |= {"schema": fact.schema, "deleted": fact.deleted, **fact.more}
            return _record(_schema_key(fact.subject, fact.version), value, fact.key)
        case SchemaErased():
            return _record(_schema_key(fact.subject, fact.version), None, fact.key)
        case SubjectDeleted():
            return _record(
                _place_key("DELETE_SUBJECT", fact.subject),
                {"subject": fact.subject, "version": fact.version},
            )
        case SubjectCleared():
            return _record(_place_key("CLEAR_SUBJECT", fact.subject), {"subject": fact.subject})
        case LevelSet():
            key = _place_key("CONFIG", fact.subject)
            if fact.level is None and not fact.more:
                return _record(key, None, fact.key)
            level = {"compatibilityLevel": fact.level} if fact.level is not None else {}
            return _record(key, {"subject": fact.subject, **level, **fact.more}, fact.key)
        case ModeSet():
            mode = None if fact.mode is None else {"subject": fact.subject, "mode": fact.mode}
            return _record(_place_key("MODE", fact.subject), mode, fact.key)
        case ContextStored():
            named = {"tenant": fact.tenant, "context": fact.context}
            return _record({"keytype": "CONTEXT", **named, "magic": 0}, named if fact.exists else None)
        case IdsSpent():
            return _record(
                {"keytype": _IDS_SPENT, "context": fact.context, "magic": 0}, {"id": fact.schema_id}
            )
        case Noop() | UnreadableFact():
            return _record({"keytype": "NOOP", "magic": 0}, None)


def _schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def _place_key(kind: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": kind, "subject": subject, "magic": 0}


def _record(
    key: Mapping[str, Any], value: Mapping[str, Any] | None, spelled: bytes | None = None
) -> NewRecord:
    return NewRecord(
        SCHEMAS_TOPIC,
        orjson.dumps(key) if spelled is None else spelled,
        None if value is None else orjson.dumps(value),
        partition=0,
    )
