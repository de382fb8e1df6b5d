"""[core] Policies in the form that the registry uses: the effective level of a subject, and violations.

Configuration, not state: the log records decisions, the rulebook determines new ones. Two nodes with
different files decide differently on new commands, but agree on everything in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.describe import SchemaView, describe
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.model.data_contract import properties_of
from hub.schema_registry.model.lru_cache import LruCache
from hub.schema_registry.policy.policy import Effective, Policies
from hub.schema_registry.policy.policy_checks import CheckContext, PolicyViolation

_MOST_REMEMBERED = 20_000  # subjects


@dataclass(frozen=True, slots=True)
class PolicyCaller:
    """Caller of a request, as identified by the proxy in front of the hub; empty without one."""

    principal: str = ""
    teams: frozenset[str] = frozenset()


NOBODY = PolicyCaller()


@dataclass(frozen=True)
class Rulebook:
    """Policies with ``owners``: topic owners by topic, for schemas whose metadata names none."""

    policies: Policies = field(default_factory=Policies)
    owners: Mapping[str, str] = field(default_factory=dict)
    _known: LruCache[str, Effective] = field(
        default_factory=lambda: LruCache(_MOST_REMEMBERED), repr=False, compare=False
    )

    def effective(self, subject: str) -> Effective:
        known = self._known.get(subject)
        if known is None:
            known = self.policies.effective(subject)
            self._known.put(subject, known)
        return known

    def level(self, subject: str, own: str | None, default: str) -> str:
        """Return the effective level. ``own`` is the subject's level, ``default`` the one set above it."""
        return self.effective(subject).level(own, default)[0]

    def refused_level(self, subject: str, level: str) -> PolicyViolation | None:
        """Return why a subject may not have this level of its own; None when it may."""
        return self.effective(subject).level_violation(level)

    def warns(self, subject: str) -> bool:
        """Return True if any rule of the subject only warns."""
        settings = self.effective(subject).settings
        return any(key.startswith("severity.") and each.value == "warn" for key, each in settings.items())

    def violations(
        self,
        subject: str,
        source: SchemaSource,
        metadata: Mapping[str, Any] | None,
        caller: PolicyCaller,
        *,
        is_new: bool = True,
    ) -> list[PolicyViolation]:
        """Return every rule that a registration would break, warnings included. Raises InvalidSchema."""
        effective = self.effective(subject)
        if not effective.settings:
            return []
        context = CheckContext(
            caller.principal,
            caller.teams,
            str(properties_of(metadata).get("owner") or self.owners.get(effective.topic, "")),
            (metadata or {}).get("tags") or {},
            is_new,
        )
        return effective.check(source.schema_type, view_of(source), context)


def view_of(source: SchemaSource) -> SchemaView:
    """Return the view of a schema with all its references, for rules. Raises InvalidSchema."""
    parsed = source.parsed()
    if isinstance(parsed, AvroSchema):
        named = {str(number): each for number, each in enumerate(parsed.types)}
        return describe(source.schema_type, parsed.value, named)
    return describe(source.schema_type, parsed)
