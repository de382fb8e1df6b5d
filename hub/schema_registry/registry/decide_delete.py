"""[core] Delete versions, subjects and contexts: first softly, then permanently, never referenced ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import (
    Fact,
    IdsSpent,
    LevelSet,
    ModeSet,
    SchemaErased,
    SchemaStored,
    SubjectDeleted,
)
from hub.schema_registry.registry.commands import CommandDecision, DeleteContext, DeleteSubject, DeleteVersion
from hub.schema_registry.registry.errors import (
    RequestRefused,
    subject_not_found,
    version_not_found,
    version_number,
)
from hub.schema_registry.registry.preconditions import unreferenced, writable
from hub.schema_registry.registry.queries import RegistryQueries


def delete_version(registry: RegistryQueries, command: DeleteVersion) -> CommandDecision:
    """Soft-delete a version, or hard-delete one that is soft-deleted. Raises RequestRefused."""
    subject = names.normal(command.subject)
    number = version_number(command.version)
    stored = registry.at(subject, number, deleted=True)
    if stored is None and subject not in registry.subjects:
        raise subject_not_found(subject)
    if stored is None:
        raise version_not_found(number)
    if stored.deleted and not command.permanent:
        raise RequestRefused(
            404,
            40406,
            f"Subject '{stored.subject}' Version {stored.version} was soft deleted. "
            "Set permanent=true to delete permanently",
        )
    writable(registry, subject)
    unreferenced(registry, stored)
    if not command.permanent:
        return CommandDecision([replace(stored, deleted=True)], stored.version)
    if not stored.deleted:
        raise RequestRefused(
            404,
            40407,
            f"Subject '{stored.subject}' Version {stored.version} was not deleted first before being "
            "permanently deleted",
        )
    facts = list(erasures(registry, [stored]))
    if len(registry.subjects[subject]) == 1:
        facts += _settings_of_gone(registry, subject)
    return CommandDecision(facts, stored.version)


def delete_subject(registry: RegistryQueries, command: DeleteSubject) -> CommandDecision:
    """``delete_version`` for all versions of a subject."""
    subject = names.normal(command.subject)
    every = registry.subjects.get(subject)
    if not every:
        raise subject_not_found(subject)
    live = registry.live(subject)
    if not command.permanent and not live:
        raise RequestRefused(
            404,
            40404,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    writable(registry, subject)
    stored = [every[number] for number in registry.numbers(subject, deleted=True)]
    for each in stored if command.permanent else live:
        unreferenced(registry, each)
    if not command.permanent:
        numbers = [each.version for each in live]
        return CommandDecision([SubjectDeleted(subject, numbers[-1])], numbers)
    if live:
        raise RequestRefused(
            404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
        )
    facts = [*erasures(registry, stored), *_settings_of_gone(registry, subject)]
    return CommandDecision(facts, [each.version for each in stored])


def delete_context(registry: RegistryQueries, command: DeleteContext) -> CommandDecision:
    """Remove the name of a context without subjects. Raises RequestRefused 42211."""
    context = command.context
    if any(names.context_of(each) == context for each in registry.subjects):
        raise RequestRefused(422, 42211, f"The specified context '{context}' is not empty.")
    stored_context = registry.named_contexts.get(context)
    return CommandDecision([] if stored_context is None else [replace(stored_context, exists=False)], None)


def erasures(registry: RegistryQueries, stored: Iterable[SchemaStored]) -> Iterator[Fact]:
    """Yield hard deletes, and the highest id when the deletes would remove its record."""
    spent: dict[str, int] = {}
    for each in stored:
        yield from erasure(registry, each)
        context = names.context_of(each.subject)
        if each.schema_id == registry.space_of(context).highest_id:
            spent[context] = each.schema_id
    for context, schema_id in spent.items():
        yield IdsSpent(context, schema_id)


def erasure(registry: RegistryQueries, stored: SchemaStored) -> Iterator[SchemaErased]:
    """Yield a tombstone for each key that the version was written under."""
    for key in registry.keys_of(stored):
        yield SchemaErased(stored.subject, stored.version, key)


def _settings_of_gone(registry: RegistryQueries, subject: str) -> Iterator[Fact]:
    """Remove the settings of a hard-deleted subject."""
    if subject in registry.modes:
        yield ModeSet(subject, None, registry.modes[subject].key)
    if subject in registry.levels:
        yield LevelSet(subject, None, {}, registry.levels[subject].key)
