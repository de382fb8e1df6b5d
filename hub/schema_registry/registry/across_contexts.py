"""[core] Versions of a subject in any context: a client need not know where a subject was registered."""

from __future__ import annotations

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.errors import RequestRefused
from hub.schema_registry.registry.state_machine import Registry


def same_name(registry: Registry, subject: str) -> list[str]:
    """Return the subject, then those of the same name in other contexts."""
    if names.context_of(subject) != names.DEFAULT_CONTEXT or len(registry.contexts) == 1:
        return [subject]
    others = (names.joined(context, subject) for context in sorted(registry.contexts))
    return [subject, *(each for each in others if each != subject and each in registry.subjects)]


def version_anywhere(
    registry: Registry, subject: str, version: int | str, *, deleted: bool = False
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
