"""[core] JSON as Confluent's clients send and read it: requests to commands, versions to answers.

Newer clients send more fields than we know: those are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hub.schema_registry.facts import HIGHEST_ID, Reference, SchemaStored
from hub.schema_registry.policy_checks import Violation
from hub.schema_registry.registry import Refused, RegisterSchema, guid_of
from hub.schema_registry.rules import InvalidMetadata, InvalidRules, check_metadata, check_rule_set


def command_of(subject: str, body: Mapping[str, Any], *, normalize: bool = False) -> RegisterSchema:
    """What a request to register, look up or check a schema says. Raises Refused 422, 42210."""
    metadata, rule_set = body.get("metadata"), body.get("ruleSet")
    if metadata is not None:
        try:
            check_metadata(metadata)
        except InvalidMetadata as error:
            raise Refused(422, 422, error.message) from None
    if rule_set is not None:
        try:
            check_rule_set(rule_set)  # before anything merges it with the settings'
        except InvalidRules as error:
            raise Refused(422, 42210, f"Invalid rule set: {error.message}") from None
    schema_id = _number(body, "id", -1)
    return RegisterSchema(
        subject,
        _text(body, "schema"),
        _text(body, "schemaType") or "AVRO",
        _references(body.get("references")),
        metadata,
        rule_set,
        normalize,
        schema_id if schema_id >= 0 else None,
        _number(body, "version", 0),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise Refused(422, 422, f"{name}: has to be text")
    return found


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found <= HIGHEST_ID:
        raise Refused(422, 422, f"{name}: has to be a number up to {HIGHEST_ID}")
    return found


def _references(found: Any) -> tuple[Reference, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refused(422, 422, "references: has to be a list of objects")
    references = []
    for each in found:
        name, subject, version = _text(each, "name"), _text(each, "subject"), _number(each, "version", -1)
        if not name or not subject or version == 0:
            raise Refused(422, 422, "references: each has a name, a subject and a version (-1: the latest)")
        references.append(Reference(name, subject, version))
    return tuple(references)


def registered(stored: SchemaStored) -> dict[str, Any]:
    """The answer to a registration."""
    return {
        "id": stored.schema_id,
        "version": stored.version,
        "guid": guid_of(stored),
        **_schema(stored, stored.schema),
    }


def described(stored: SchemaStored) -> dict[str, Any]:
    """A version of a subject."""
    body: dict[str, Any] = {
        "subject": stored.subject,
        "version": stored.version,
        "id": stored.schema_id,
        "guid": guid_of(stored),
        **_schema(stored, stored.schema),
    }
    if stored.deleted:
        body["deleted"] = True
    return body


def schema(
    stored: SchemaStored, *, text: str | None = None, with_place: bool = False, max_id: int | None = None
) -> dict[str, Any]:
    """The schema of an id, with the use of it that was meant where one was."""
    body: dict[str, Any] = {}
    if with_place:
        body = {"subject": stored.subject, "version": stored.version}
    body |= {"guid": guid_of(stored), **_schema(stored, stored.schema if text is None else text)}
    if max_id is not None:
        body["maxId"] = max_id
    return body


def _schema(stored: SchemaStored, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if stored.schema_type != "AVRO":
        body["schemaType"] = stored.schema_type
    if stored.references:
        body["references"] = [each.as_json() for each in stored.references]
    if stored.metadata is not None:
        body["metadata"] = stored.metadata
    if stored.rule_set is not None:
        body["ruleSet"] = stored.rule_set
    return {**body, "schema": text}


_MOST_WARNINGS = 10
_MOST_WARNING = 240  # characters; proxies take some KiB of headers


def warnings_header(violations: Sequence[Violation]) -> list[tuple[bytes, bytes]]:
    """The header ``Hub-Warnings`` of a registration: a JSON list of sentences, in ASCII; [] when nothing warns."""
    said = [str(each) for each in violations if each.severity == "warn"]
    if not said:
        return []
    shown = [each if len(each) <= _MOST_WARNING else f"{each[: _MOST_WARNING - 3]}..." for each in said]
    if len(shown) > _MOST_WARNINGS:
        shown[_MOST_WARNINGS:] = [f"and {len(said) - _MOST_WARNINGS} more"]
    return [(b"hub-warnings", json.dumps(shown).encode())]
