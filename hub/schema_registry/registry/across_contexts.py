"""[core] Reads over all contexts and subjects: a client need not know where a subject was registered."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import properties_of, rule_types
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.errors import RequestRefused, schema_not_found, subject_not_found
from hub.schema_registry.registry.queries import RegistryQueries
from hub.schema_registry.registry.settings import is_subject
from hub.schema_registry.registry.state import guid_of


def same_name(registry: RegistryQueries, subject: str) -> list[str]:
    """Return the subject, then those of the same name in other contexts."""
    if names.context_of(subject) != names.DEFAULT_CONTEXT or len(registry.contexts) == 1:
        return [subject]
    others = (names.joined(context, subject) for context in sorted(registry.contexts))
    return [subject, *(each for each in others if each != subject and each in registry.subjects)]


def version_anywhere(
    registry: RegistryQueries, subject: str, version: int | str, *, deleted: bool = False
) -> SchemaStored:
    """Return a version of a subject, or of one with the same name in another context.

    Raises RequestRefused 40401, 40402, 42202.
    """
    try:
        return registry.version(subject, version, deleted=deleted)
    except RequestRefused as refused:
        if refused.error_code in (40401, 40402):
            for each in same_name(registry, subject)[1:]:
                try:
                    return registry.version(each, version, deleted=deleted)
                except RequestRefused:
                    continue
        raise


def aliases_of(registry: RegistryQueries) -> dict[str, list[str]]:
    """Return the aliases of each subject that has any, sorted."""
    found: dict[str, list[str]] = {}
    for place in sorted(each for each in registry.levels if is_subject(each)):
        subject = registry.target(place)
        if subject != place:
            found.setdefault(subject, []).append(place)
    return found


def listed_versions(
    registry: RegistryQueries,
    wanted: Callable[[str], bool],
    *,
    deleted: bool = False,
    latest: bool = False,
    rule_type: str = "",
    aliases: bool = False,
) -> list[tuple[SchemaStored, list[str]]]:
    """Return versions of the subjects that ``wanted`` accepts, with their aliases, sorted.

    ``latest``: only the newest of each. ``rule_type``: only those with a rule of this type. ``aliases``:
    include the subjects that wanted aliases stand for.
    """
    named = {
        subject: found
        for subject, every in (aliases_of(registry) if aliases else {}).items()
        if (found := [each for each in every if wanted(each)])
    }
    subjects = {each for each in registry.subjects if wanted(each)} | (set(named) & set(registry.subjects))
    versions: list[tuple[SchemaStored, list[str]]] = []
    for subject in sorted(subjects):
        numbers = registry.numbers(subject, deleted=deleted)
        for number in numbers[-1:] if latest else numbers:
            stored = registry.subjects[subject][number]
            if not rule_type or rule_type in rule_types(stored.rule_set):
                versions.append((stored, named.get(subject, [])))
    return versions


def ids_of_guid(registry: RegistryQueries, guid: str) -> list[tuple[str, int]]:
    """Return (context, id) of the schemas with this GUID. Raises RequestRefused 40403."""
    try:
        written = uuid.UUID(guid)
    except ValueError:
        raise schema_not_found(guid) from None
    found = [
        (context, schema_id)
        for context, space in sorted(registry.contexts.items())
        for schema_id in sorted(
            {**space.by_identity.get(written.bytes, {}), **space.by_guid.get(str(written), {})}
        )
        if guid_of(space.ids[schema_id]) == str(written)
    ]
    if not found:
        raise schema_not_found(guid)
    return found


def context_names(registry: RegistryQueries) -> list[str]:
    """Return the default context, then the others, sorted."""
    used = {name for name, space in registry.contexts.items() if space.uses}
    others = (used | set(registry.named_contexts)) - {names.DEFAULT_CONTEXT}
    return [names.DEFAULT_CONTEXT, *sorted(others)]


def with_metadata(
    registry: RegistryQueries, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
) -> SchemaStored:
    """Return the newest version whose metadata has these properties.

    Raises RequestRefused 40401, 40403.
    """
    numbers = registry.numbers(subject, deleted=deleted)
    if not numbers:
        raise subject_not_found(subject)
    for number in reversed(numbers):
        each = registry.subjects[subject][number]
        if wanted.items() <= properties_of(each.metadata).items():
            return each
    raise schema_not_found()
