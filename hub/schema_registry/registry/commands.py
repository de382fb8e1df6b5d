"""[core] Commands that change the registry, and the result of deciding on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hub.schema_registry.model.facts import Fact, Reference
from hub.schema_registry.registry.rulebook import NOBODY, PolicyCaller


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """Register a schema.

    ``schema`` "" means the latest version's; ``schema_id`` is only for an import; ``version`` 0 is the next
    one.
    """

    subject: str
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    normalize: bool = False
    schema_id: int | None = None
    version: int = 0
    caller: PolicyCaller = NOBODY


@dataclass(frozen=True, slots=True)
class DeleteVersion:
    subject: str
    version: int | str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    subject: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class SetLevel:
    """Change settings, by Confluent's names; None removes one. ``changes`` None removes all of them."""

    subject: str | None
    changes: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set a mode. ``recursive`` removes the modes of subjects below, so that this one applies to them too."""

    subject: str | None
    mode: str | None
    force: bool
    recursive: bool


@dataclass(frozen=True, slots=True)
class DeleteContext:
    context: str


Command = RegisterSchema | DeleteVersion | DeleteSubject | SetLevel | SetMode | DeleteContext


class CommandDecision(NamedTuple):
    """Facts to append ([] when nothing changes), and the answer to give once they are in the log."""

    facts: Sequence[Fact]
    answer: Any
