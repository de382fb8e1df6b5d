"""[core] Check policies (policies.yaml) for a folder of schemas, before the registry checks them.

The rule ``registrars`` is left to the registry, because only it knows who registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.describe import describe
from hub.schema_registry.folder.files import Folder, SchemaFile
from hub.schema_registry.folder.plan import SchemaRequirements, reason_at
from hub.schema_registry.policy.policy import Effective
from hub.schema_registry.policy.policy_checks import CheckContext, PolicyViolation
from hub.schema_registry.registry.rulebook import Rulebook
from hub.schema_registry.registry.snapshot import ParsedSchema, RegistryState, SubjectState

_WHO = "registrars"


def rules_of(book: Rulebook) -> SchemaRequirements:
    """Return the rules in the form that a plan uses: blocking ones and warnings."""

    def of(
        severity: str, file: SchemaFile, new: ParsedSchema, subject: SubjectState
    ) -> Iterator[Incompatibility]:
        stored = replace(file, metadata=subject.metadata_of(file.metadata))
        for each in violations_of(book, stored, new):
            if each.severity == severity and each.rule != _WHO:
                yield _reason(each)

    def loose(file: SchemaFile, _new: ParsedSchema, _subject: SubjectState) -> Iterator[Incompatibility]:
        return map(_reason, _loose(book.effective(file.subject), file))

    return SchemaRequirements(
        (lambda file, new, subject: of("block", file, new, subject),),
        (lambda file, new, subject: of("warn", file, new, subject),),
        (loose,),
    )


def _reason(broken: PolicyViolation) -> Incompatibility:
    by = f" (set by {broken.set_by})" if broken.set_by else ""
    return reason_at(broken.path, broken.rule, f"{broken.what}{by}", broken.fix)


def with_levels(state: RegistryState, folder: Folder, book: Rulebook) -> RegistryState:
    """Complete a state that is not from a registry with the levels that the rules give the folder's
    subjects.
    """
    subjects = dict(state.subjects)
    for file in folder.files:
        subject = state.resolve_alias(file.subject)
        subject_state = subjects.get(subject)
        # this state cannot distinguish a subject's own level from the default; a default yields to a rule
        own = (
            subject_state.level
            if subject_state is not None and subject_state.level != state.default_level
            else None
        )
        level = book.level(subject, own, state.default_level)
        subjects[subject] = replace(subject_state or SubjectState(), level=level)
    return replace(state, subjects=subjects)


def violations_of(
    book: Rulebook, file: SchemaFile, new: ParsedSchema, *, is_new: bool = True
) -> Iterator[PolicyViolation]:
    """Yield every rule that a file's schema breaks, warnings included.

    ``new`` is the parsed text, ``is_new`` False when it is registered already.
    """
    effective = book.effective(file.subject)
    if not effective.settings:
        return
    yield from _loose(effective, file)
    metadata: Mapping[str, Any] = file.metadata or {}
    owner = (metadata.get("properties") or {}).get("owner") or book.owners.get(effective.topic, "")
    context = CheckContext("", frozenset(), str(owner), metadata.get("tags") or {}, is_new)
    yield from effective.check(file.schema_type, describe(file.schema_type, new.schema, new.named), context)


def _loose(effective: Effective, file: SchemaFile) -> Iterator[PolicyViolation]:
    """Yield a violation when the file's level is not allowed."""
    refused = effective.level_violation(file.compatibility) if file.compatibility is not None else None
    if refused is not None:
        yield refused
