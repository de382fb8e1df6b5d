"""[core] Paths of tags in a schema's text: kinds of entities, and errors that name a path."""

from __future__ import annotations

from collections.abc import Iterable

from hub.schema_registry.formats import InvalidSchema

RECORD, FIELD = "sr_record", "sr_field"


def changed(before: Iterable[str], more: Iterable[str], less: Iterable[str]) -> list[str]:
    """Return tags with some added and then some removed, each once, in their original order."""
    gone = set(less)
    return [each for each in dict.fromkeys([*before, *more]) if each not in gone]


def nowhere(path: str) -> InvalidSchema:
    return InvalidSchema(f"No matching path '{path[:200]}' found in the schema")
