"""[core] The fields that rules of a schema encrypt, and with which keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.rules import ContractRule, Mode, RulePlan, plan_of
from hub.schema_registry.dek_registry.records import DEFAULT_ALGORITHM
from hub.schema_registry.model.data_contract import properties_of
from hub.schema_registry.policy.policy_checks import tags_beside
from hub.schema_registry.registry.rulebook import view_of

WHOLE = "the whole value"


@dataclass(frozen=True, slots=True)
class EncryptedField:
    """A field by its path from the root (or its type), the rule and the key that encrypt it."""

    field: str
    rule: str
    kek: str
    algorithm: str


def encrypted_fields(source: SchemaSource) -> list[EncryptedField]:
    """Return the encrypted fields of a schema, in the rules' order. Raises InvalidSchema, RuleRefused."""
    found = [
        _of(source, rule, field)
        for rule, tags in _rules(plan_of(source.rule_set, Mode.WRITE), "ENCRYPT")
        for field in _fields(source, tags)
    ]
    whole = plan_of(source.rule_set, Mode.WRITE, "encodingRules")
    return found + [_of(source, rule, WHOLE) for rule, _ in _rules(whole, "ENCRYPT_PAYLOAD")]


def _rules(plan: RulePlan, kind: str) -> Iterator[tuple[ContractRule, frozenset[str]]]:
    """Yield the active rules of a type with their tags."""
    for index in plan.active:
        if plan.every[index].type == kind:
            yield plan.every[index], frozenset(plan.source[index].get("tags") or ())


def _of(source: SchemaSource, rule: ContractRule, field: str) -> EncryptedField:
    params = {**properties_of(source.metadata), **rule.params}
    algorithm = params.get("encrypt.dek.algorithm") or DEFAULT_ALGORITHM
    return EncryptedField(field, rule.name, str(params.get("encrypt.kek.name") or ""), str(algorithm))


def _fields(source: SchemaSource, wanted: frozenset[str]) -> Iterator[str]:
    """Yield the fields that have a wanted tag; without tags a rule is about all fields of text and bytes."""
    view = view_of(source)
    beside = (source.metadata or {}).get("tags") or {}
    for record in view.types.values():
        for field in record.fields:
            tags = field.tags | tags_beside(beside, record, field)
            if tags & wanted or (not wanted and field.type in ("string", "bytes")):
                yield field.path or f"{record.name}.{field.name}"
