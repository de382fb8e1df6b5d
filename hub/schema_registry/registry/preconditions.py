"""[core] Preconditions of decisions: the mode permits a write, and nothing references a schema to delete."""

from __future__ import annotations

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.errors import RequestRefused, not_permitted
from hub.schema_registry.registry.queries import RegistryQueries


def writable(registry: RegistryQueries, subject: str | None) -> None:
    """Raise RequestRefused 42205 in a read-only mode."""
    if registry.mode_of(subject) in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(f"{in_context(subject)} is in read-only mode")


def in_context(subject: str | None) -> str:
    """Return the name of a subject, or of the registry, in messages."""
    place = f"Subject {subject}" if subject is not None else "Registry"
    return f"{place} in context {names.context_of(subject)}"


def unreferenced(registry: RegistryQueries, stored: SchemaStored) -> None:
    """Raise RequestRefused 42206 when another schema that is not deleted references this one."""
    if registry.referenced_by(stored.subject, stored.version):
        raise RequestRefused(
            422,
            42206,
            f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={stored.subject},"
            f"version={stored.version}}}.",
        )
