"""[core] JSON of Confluent's clients: requests to commands, versions to answers.

Unknown fields, which newer clients send, are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hub.schema_registry.describe import Warned
from hub.schema_registry.formats.inline_tags import KINDS, Tagged
from hub.schema_registry.model.data_contract import (
    InvalidMetadata,
    InvalidRules,
    check_metadata,
    check_rule_set,
    merged_rules,
    without_rules,
    without_version,
)
from hub.schema_registry.model.facts import HIGHEST_ID, Reference, SchemaStored
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.registry.errors import RequestRefused
from hub.schema_registry.registry.state import guid_of


def command_of(subject: str, body: Mapping[str, Any], *, normalize: bool = False) -> RegisterSchema:
    """Parse a request to register, look up or check a schema. Raises RequestRefused 422, 42210."""
    metadata, rule_set = body.get("metadata"), body.get("ruleSet")
    if metadata is not None:
        try:
            check_metadata(metadata)
        except InvalidMetadata as error:
            raise RequestRefused(422, 422, error.message) from None
    if rule_set is not None:
        try:
            check_rule_set(rule_set)  # before it is merged with that of the settings
        except InvalidRules as error:
            raise RequestRefused(422, 42210, f"Invalid rule set: {error.message}") from None
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


def tagged(body: Mapping[str, Any], name: str) -> tuple[Tagged, ...]:
    """Return the tagged entities in one field of a request. Raises RequestRefused 422."""
    found = body.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RequestRefused(422, 422, f"{name}: has to be a list of objects")
    return tuple(_tagged(each, name) for each in found)


def _tagged(each: Mapping[str, Any], name: str) -> Tagged:
    entity, tags = each.get("schemaEntity"), each.get("tags")
    if (
        not isinstance(entity, dict)
        or not isinstance(tags, list)
        or not all(isinstance(t, str) for t in tags)
    ):
        raise RequestRefused(422, 422, f"{name}: each has a schemaEntity and a list of tags")
    path, kind = _text(entity, "entityPath"), _text(entity, "entityType").lower()
    if not path or kind not in KINDS:
        raise RequestRefused(
            422, 422, f"{name}: a schemaEntity has an entityPath, and {' or '.join(KINDS)} as entityType"
        )
    return Tagged(path, kind, tuple(tags))


def command_of_tags(of: SchemaStored, body: Mapping[str, Any]) -> RegisterSchema:
    """Parse a request to change tags and rules: a version like ``of`` with the same text.

    ``rulesToMerge`` and ``rulesToRemove`` change the version's rules; ``ruleSet`` and ``metadata`` replace
    them. Raises RequestRefused 422, 42210.
    """
    version = _number(body, "newVersion", 0)
    command = command_of(of.subject, {"metadata": body.get("metadata"), "ruleSet": body.get("ruleSet")})
    merged, removed = body.get("rulesToMerge"), body.get("rulesToRemove")
    rules = command.rule_set
    if merged is not None or removed is not None:
        added = command_of(of.subject, {"ruleSet": merged}).rule_set
        if removed is not None and not (
            isinstance(removed, list) and all(isinstance(t, str) for t in removed)
        ):
            raise RequestRefused(422, 422, "rulesToRemove: has to be a list of names")
        rules = without_rules(merged_rules(of.rule_set, added), removed or ())
    metadata = of.metadata if command.metadata is None else command.metadata
    return replace(
        command,
        schema=of.schema,
        schema_type=of.schema_type,
        references=of.references,
        metadata=without_version(metadata),
        rule_set=rules,
        version=version or -1,
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise RequestRefused(422, 422, f"{name}: has to be text")
    return found


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found <= HIGHEST_ID:
        raise RequestRefused(422, 422, f"{name}: has to be a number up to {HIGHEST_ID}")
    return found


def _references(found: Any) -> tuple[Reference, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RequestRefused(422, 422, "references: has to be a list of objects")
    references = []
    for each in found:
        name, subject, version = _text(each, "name"), _text(each, "subject"), _number(each, "version", -1)
        if not name or not subject or version == 0:
            raise RequestRefused(
                422, 422, "references: each has a name, a subject and a version (-1: the latest)"
            )
        references.append(Reference(name, subject, version))
    return tuple(references)


def registered(stored: SchemaStored, text: str | None = None) -> dict[str, Any]:
    """Return the answer to a registration; ``text`` replaces the schema's own text."""
    return {
        "id": stored.schema_id,
        "version": stored.version,
        "guid": guid_of(stored),
        **_schema(stored, stored.schema if text is None else text),
    }


def described(stored: SchemaStored, text: str | None = None, aliases: Sequence[str] = ()) -> dict[str, Any]:
    """Return the answer for a version of a subject; parameters as in ``registered``."""
    body: dict[str, Any] = {
        "subject": stored.subject,
        "version": stored.version,
        "id": stored.schema_id,
        "guid": guid_of(stored),
        **_schema(stored, stored.schema if text is None else text),
    }
    if stored.deleted:
        body["deleted"] = True
    if aliases:
        body["aliases"] = list(aliases)
    return body


def schema(
    stored: SchemaStored, *, text: str | None = None, with_place: bool = False, max_id: int | None = None
) -> dict[str, Any]:
    """Return the answer for the schema of an id; ``with_place`` adds subject and version."""
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


def warnings_header(violations: Sequence[PolicyViolation | Warned]) -> list[tuple[bytes, bytes]]:
    """Return the header ``Hub-Warnings``: a JSON list of sentences in ASCII; [] when there are no
    warnings.
    """
    warnings = [str(each) for each in violations if each.severity == "warn"]
    if not warnings:
        return []
    shown = [each if len(each) <= _MOST_WARNING else f"{each[: _MOST_WARNING - 3]}..." for each in warnings]
    if len(shown) > _MOST_WARNINGS:
        shown[_MOST_WARNINGS:] = [f"and {len(warnings) - _MOST_WARNINGS} more"]
    return [(b"hub-warnings", json.dumps(shown).encode())]
