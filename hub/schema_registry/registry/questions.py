"""[core] Checks before a registration: compatibility with earlier versions, and policies.

A question is a value. Its answer needs no state, so that it can be computed before the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.schema_registry.compat.compatibility import Incompatibility, Question
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import properties_of
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.registry.errors import refused_schema, version_not_found, version_number
from hub.schema_registry.registry.queries import RegistryQueries


def violations(
    registry: RegistryQueries, command: RegisterSchema, *, is_new: bool | None = None
) -> list[PolicyViolation]:
    """Return the policies that a registration would violate, warnings included.

    Raises RequestRefused 42201.

    ``is_new``: a version is made, even of a known schema (``"version": -1``); None: if the schema is not
    known.
    """
    subject = names.normal(command.subject)
    try:
        is_new = registry.lookup(command) is None if is_new is None else is_new
        return registry.rulebook.violations(
            subject, registry.source(command), command.metadata, command.caller, is_new=is_new
        )
    except InvalidSchema as error:
        raise refused_schema(error) from None


def latest_and_new(
    registry: RegistryQueries, command: RegisterSchema
) -> tuple[SchemaSource, SchemaSource] | None:
    """Return (the latest version, the command's schema), or None when they are not comparable.

    That is the case without a latest version of the same format, or when the schema is registered
    already. Raises RequestRefused 42201.
    """
    latest = registry.live(names.normal(command.subject))[-1:]
    if not latest or latest[0].schema_type != command.schema_type or registry.lookup(command) is not None:
        return None
    return registry.source_of(latest[0]), registry.source(command)


def compatibility_question(
    registry: RegistryQueries, command: RegisterSchema, version: int | str | None = None
) -> Question:
    """Return the compatibility question with one version, or (version None) with those that the level
    checks.

    Raises RequestRefused 40402, 42201, 42202.
    """
    subject = names.normal(command.subject)
    level = registry.level_of(subject)
    versions = registry.live(subject)
    if version is not None:
        number = version_number(version)
        stored = registry.at(subject, number, deleted=False)
        if stored is None and number != -1:
            raise version_not_found(number)
        versions = [stored] if stored is not None else []
    latest = versions[-1] if versions else None
    reserved = reserved_before = frozenset[str]()
    if registry.setting(subject, "validateFields") is True:
        reserved = _reserved(command.metadata)
        reserved_before = _reserved(latest.metadata) if latest is not None else reserved_before
    group = registry.setting(subject, "compatibilityGroup")
    if group is not None:
        group_value = _property(command.metadata, group)
        versions = [each for each in versions if _property(each.metadata, group) == group_value]
    if level == "NONE":
        versions = []
    elif not level.endswith("_TRANSITIVE"):
        versions = versions[-1:]
    return Question(
        registry.source(command),
        tuple((each.version, registry.source_of(each)) for each in versions),
        level,
        str(registry.setting(subject, "compatibilityPolicy") or "").upper() == "LENIENT",
        reserved,
        reserved_before,
    )


def answered(question: Question) -> tuple[Incompatibility, ...]:
    """Answer a question. Raises RequestRefused for a schema that cannot be parsed."""
    try:
        return question.answer()
    except InvalidSchema as error:
        raise refused_schema(error) from None


def question_beforehand(registry: RegistryQueries, command: RegisterSchema) -> Question | None:
    """Return the question that a registration will answer, so that it can be answered beforehand."""
    subject = names.normal(command.subject)
    if registry.mode_of(subject) != "READWRITE" or not command.schema.strip():
        return None
    return compatibility_question(registry, registry.completed(command))


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return properties_of(metadata).get(name)


def _reserved(metadata: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the reserved fields of metadata, in Confluent's form: names separated by commas."""
    names_ = str(_property(metadata, "confluent:reserved") or "")
    return frozenset(filter(None, (each.strip() for each in names_.split(","))))
