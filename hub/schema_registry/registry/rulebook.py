"""[core] The rules of the tree as the registry asks them: which level holds for a subject, and what a schema breaks.

Settings, not state: the log says what was decided, the rulebook what may be decided now. Two nodes with different files
decide differently on what comes, never on what is there.
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
    """Who asks, as the proxy in front of the hub says: nobody is told apart without one."""

    principal: str = ""
    teams: frozenset[str] = frozenset()


NOBODY = PolicyCaller()


@dataclass(frozen=True)
class Rulebook:
    """``owners`` are the topics' owners by name, for schemas whose metadata names none."""

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
        """The level that holds. ``own`` is what was set for the subject, ``default`` what is set above it."""
        return self.effective(subject).level(own, default)[0]

    def refused_level(self, subject: str, level: str) -> PolicyViolation | None:
        """Why a subject may not have this level of its own."""
        return self.effective(subject).level_violation(level)

    def warns(self, subject: str) -> bool:
        """Whether any rule of the subject only warns."""
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
        """Every rule that registering the schema would break, those that only warn too. Raises InvalidSchema."""
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
    """A schema, with all that it references, as rules see it. Raises InvalidSchema."""
    parsed = source.parsed()
    if isinstance(parsed, AvroSchema):
        named = {str(number): each for number, each in enumerate(parsed.types)}
        return describe(source.schema_type, parsed.value, named)
    return describe(source.schema_type, parsed)
