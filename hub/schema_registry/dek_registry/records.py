"""[core] Keys as records of ``_dek_registry_keys``, in Confluent's JSON for key and value.

The topic is compacted: the newest record of a key's id is its state, a tombstone removes it. A record that
is not understood changes nothing and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from hub.record import NewRecord, Record

KEYS_TOPIC: Final = "_dek_registry_keys"
ALGORITHMS: Final = ("AES128_GCM", "AES256_GCM", "AES256_SIV")
DEFAULT_ALGORITHM: Final = "AES256_GCM"
_TENANT: Final = "default"


@dataclass(frozen=True, slots=True)
class KekId:
    """Name of a KEK; in a context other than the default one as ``:.context:name``."""

    name: str


@dataclass(frozen=True, slots=True)
class DekId:
    """A DEK: of one subject, by algorithm and version."""

    kek: str
    subject: str
    algorithm: str
    version: int


@dataclass(frozen=True, slots=True)
class Kek:
    """A key encryption key. ``shared``: the hub unwraps its DEKs for clients. ``ts``: epoch ms, 0 before it
    is stored.
    """

    id: KekId
    kms_type: str
    kms_key_id: str
    kms_props: Mapping[str, str] = field(default_factory=dict)
    doc: str | None = None
    shared: bool = False
    deleted: bool = False
    ts: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Dek:
    """A data encryption key. ``wrapped``: base64 of the key as the KMS encrypted it."""

    id: DekId
    wrapped: str
    deleted: bool = False
    ts: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class KeyRemoved:
    """A key was deleted permanently."""

    id: KekId | DekId


KeyFact = Kek | Dek | KeyRemoved


def record_of(fact: KeyFact) -> NewRecord:
    """Return the record that stores a fact."""
    value: dict[str, Any] | None
    match fact:
        case Kek():
            value = {
                "type": "KEK",
                "name": fact.id.name,
                "kmsType": fact.kms_type,
                "kmsKeyId": fact.kms_key_id,
                "kmsProps": dict(sorted(fact.kms_props.items())),
                **({} if fact.doc is None else {"doc": fact.doc}),
                "shared": fact.shared,
                "deleted": fact.deleted,
            }
        case Dek():
            value = {**_key(fact.id), "encryptedKeyMaterial": fact.wrapped, "deleted": fact.deleted}
            del value["tenant"]
        case KeyRemoved():
            value = None
    written = None if value is None else orjson.dumps(value)
    return NewRecord(KEYS_TOPIC, orjson.dumps(_key(fact.id)), written, partition=0)


def fact_of(record: Record) -> KeyFact | None:
    """Return the fact of a record; None if it is not understood."""
    try:
        key = orjson.loads(record.key or b"")
        value = None if record.value is None else orjson.loads(record.value)
        key_id = _id(key)
        if value is None:
            return KeyRemoved(key_id)
        deleted = value.get("deleted") is True
        if isinstance(key_id, KekId):
            return Kek(
                key_id,
                str(value["kmsType"]),
                str(value["kmsKeyId"]),
                {str(name): str(each) for name, each in (value.get("kmsProps") or {}).items()},
                value.get("doc"),
                value.get("shared") is True,
                deleted,
                record.timestamp_ms,
            )
        return Dek(key_id, str(value["encryptedKeyMaterial"]), deleted, record.timestamp_ms)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _key(key_id: KekId | DekId) -> dict[str, Any]:
    if isinstance(key_id, KekId):
        return {"tenant": _TENANT, "type": "KEK", "name": key_id.name}
    return {
        "tenant": _TENANT,
        "type": "DEK",
        "kekName": key_id.kek,
        "subject": key_id.subject,
        "algorithm": key_id.algorithm,
        "version": key_id.version,
    }


def _id(key: Mapping[str, Any]) -> KekId | DekId:
    """Read the id in a record's key. Raises KeyError, ValueError."""
    if key["type"] == "KEK":
        return KekId(str(key["name"]))
    if key["type"] != "DEK" or key["algorithm"] not in ALGORITHMS:
        raise ValueError("unknown type of key")
    return DekId(str(key["kekName"]), str(key["subject"]), str(key["algorithm"]), int(key["version"]))
