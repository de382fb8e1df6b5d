"""[core] The rules of the tree (policies.yaml) for a folder of schemas: what the registry would say at its door, said before.

Who registers is known only there, so the rule ``registrars`` is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hub.schema_registry.compatibility import Incompatibility
from hub.schema_registry.describe import describe
from hub.schema_registry.folder import Folder, Rules, SchemaFile, reason_at
from hub.schema_registry.policy_checks import Context, Violation
from hub.schema_registry.rulebook import Rulebook
from hub.schema_registry.state import Parsed, RegistryState, SubjectState

_WHO = "registrars"


def rules_of(book: Rulebook) -> Rules:
    """The rules as a plan asks them: those that block, and those that only warn."""

    def of(severity: str, file: SchemaFile, new: Parsed) -> Iterator[Incompatibility]:
        for each in violations_of(book, file, new):
            if each.severity == severity and each.rule != _WHO:
                by = f" (set by {each.set_by})" if each.set_by else ""
                yield reason_at(each.path, each.rule, f"{each.what}{by}", each.fix)

    return Rules(
        (lambda file, new, _: of("block", file, new),),
        (lambda file, new, _: of("warn", file, new),),
    )


def with_levels(state: RegistryState, folder: Folder, book: Rulebook) -> RegistryState:
    """A state that no registry gave, with the levels that the rules give the folder's subjects."""
    subjects = dict(state.subjects)
    for file in folder.files:
        known = subjects.get(file.subject)
        # such a state does not tell a level of the subject's own from the default; a default gives way to a rule
        own = known.level if known is not None and known.level != state.default_level else None
        level = book.level(file.subject, own, state.default_level)
        subjects[file.subject] = replace(known or SubjectState(), level=level)
    return replace(state, subjects=subjects)


def violations_of(book: Rulebook, file: SchemaFile, new: Parsed) -> Iterator[Violation]:
    """Every rule that a file's schema breaks, those that only warn too; ``new`` is what its text says."""
    effective = book.effective(file.subject)
    if not effective.settings:
        return
    if (
        file.compatibility is not None
        and (refused := effective.level_violation(file.compatibility)) is not None
    ):
        yield refused
    metadata: Mapping[str, Any] = file.metadata or {}
    owner = (metadata.get("properties") or {}).get("owner") or book.owners.get(effective.topic, "")
    context = Context("", frozenset(), str(owner), metadata.get("tags") or {}, True)
    yield from effective.check(file.schema_type, describe(file.schema_type, new.schema, new.named), context)
