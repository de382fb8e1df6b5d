"""[core] JSON of Confluent's clients for keys. Unknown fields, which newer clients send, are ignored."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from hub.schema_registry.dek_registry.records import ALGORITHMS, DEFAULT_ALGORITHM, Dek, DekId, Kek, KekId
from hub.schema_registry.dek_registry.state import invalid_key
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import HIGHEST_ID

LONGEST_NAME: Final = 64
_KMS_TYPES: Final = ("aws-kms", "azure-kms", "gcp-kms")


def checked_name(name: object) -> str:
    """Return a KEK's name: letters, digits, ``_`` and ``-``. Raises RequestRefused 42271."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= LONGEST_NAME
        or not (name[0].isalpha() or name[0] == "_")
        or not all(each.isalnum() or each in "_-" for each in name)
    ):
        raise invalid_key("name")
    return name


def checked_subject(subject: object) -> str:
    """Return a subject, normalized. Raises RequestRefused 42271."""
    if not isinstance(subject, str):
        raise invalid_key("subject")
    try:
        names.check(subject)
    except names.InvalidSubject:
        raise invalid_key("subject") from None
    return names.normal(subject)


def checked_algorithm(algorithm: object) -> str:
    """Return an algorithm; None is the default. Raises RequestRefused 42271."""
    if algorithm is None:
        return DEFAULT_ALGORITHM
    if algorithm not in ALGORITHMS:
        raise invalid_key("algorithm")
    return str(algorithm)


def in_context(name: str, context: str) -> str:
    """Return the name under which a context's KEK is stored.

    >>> in_context("pii", "."), in_context("pii", ".eu")
    ('pii', ':.eu:pii')
    """
    return names.joined(context, name)


def kek_of(body: Mapping[str, Any], context: str) -> Kek:
    """Parse a request to create a KEK. Raises RequestRefused 42271."""
    name = checked_name(body.get("name"))
    key_id, kms_type = body.get("kmsKeyId"), body.get("kmsType")
    if not isinstance(key_id, str) or not key_id:
        raise invalid_key("kmsKeyId")
    if not isinstance(kms_type, str) or not kms_type:
        raise invalid_key("kmsType")
    return Kek(
        KekId(in_context(name, context)),
        _kms_type(kms_type),
        key_id,
        _props(body.get("kmsProps")),
        _doc(body.get("doc")),
        _flag(body, "shared"),
        _flag(body, "deleted"),
    )


def kek_changes(body: Mapping[str, Any]) -> dict[str, object]:
    """Parse a request to change a KEK. Returns the named fields of ``Kek``. Raises RequestRefused."""
    found: dict[str, object] = {}
    if "kmsProps" in body:
        found["kms_props"] = _props(body["kmsProps"])
    if "doc" in body:
        found["doc"] = _doc(body["doc"])
    if body.get("shared") is not None:
        found["shared"] = _flag(body, "shared")
    return found


def dek_id_of(kek: str, subject: str, body: Mapping[str, Any]) -> DekId:
    """Return the id of the DEK that a request creates. Raises RequestRefused 42271."""
    version = 1 if body.get("version") is None else body["version"]
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= HIGHEST_ID:
        raise invalid_key("version")
    return DekId(kek, subject, checked_algorithm(body.get("algorithm")), version)


def wrapped_of(body: Mapping[str, Any]) -> str | None:
    """Return a request's wrapped key, base64; None without one. Raises RequestRefused 42271."""
    found = body.get("encryptedKeyMaterial")
    if found is None or found == "":
        return None
    try:
        base64.b64decode(str(found), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_key("encryptedKeyMaterial") from None
    return str(found)


def kek_json(kek: Kek) -> dict[str, Any]:
    """Return a KEK as clients read it."""
    return {
        "name": names.split(kek.id.name)[1],
        "kmsType": kek.kms_type,
        "kmsKeyId": kek.kms_key_id,
        "kmsProps": dict(sorted(kek.kms_props.items())),
        **({} if kek.doc is None else {"doc": kek.doc}),
        "shared": kek.shared,
        "ts": kek.ts,
        **({"deleted": True} if kek.deleted else {}),
    }


def dek_json(dek: Dek, raw: str | None = None) -> dict[str, Any]:
    """Return a DEK as clients read it; ``raw``: the key itself, base64, of a shared KEK."""
    return {
        "kekName": names.split(dek.id.kek)[1],
        "subject": dek.id.subject,
        "version": dek.id.version,
        "algorithm": dek.id.algorithm,
        "encryptedKeyMaterial": dek.wrapped,
        **({} if raw is None else {"keyMaterial": raw}),
        "ts": dek.ts,
        **({"deleted": True} if dek.deleted else {}),
    }


def _kms_type(kms_type: str) -> str:
    """Return Confluent's name of a cloud's KMS for any spelling that begins with the cloud's."""
    lowered = kms_type.lower()
    return next((each for each in _KMS_TYPES if lowered.startswith(each.removesuffix("-kms"))), kms_type)


def _props(props: object) -> dict[str, str]:
    if props is None:
        return {}
    if not isinstance(props, dict) or not all(isinstance(each, str) for each in props.values()):
        raise invalid_key("kmsProps")
    return dict(props)


def _doc(doc: object) -> str | None:
    if doc is not None and not isinstance(doc, str):
        raise invalid_key("doc")
    return doc


def _flag(body: Mapping[str, Any], name: str) -> bool:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise invalid_key(name)
    return bool(found)
