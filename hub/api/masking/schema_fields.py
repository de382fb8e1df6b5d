"""[core] Every field of a schema by path, with the tags of its text and of its metadata.

Tags of a record hold for all its fields, and tags of a field for everything in it. A type that holds
itself is followed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hub.access.masking.facts import Tags
from hub.masking.shape import FieldPath
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.describe import SchemaView
from hub.schema_registry.policy.policy_checks import tags_beside
from hub.schema_registry.registry.rulebook import view_of

MOST_FIELDS, _MOST_NESTED = 20_000, 32
_NONE: Tags = frozenset()


def tagged_fields(source: SchemaSource) -> dict[FieldPath, Tags]:
    """Return the fields of a registered schema. Raises InvalidSchema for one that cannot be read."""
    view = view_of(source)
    beside: Mapping[str, Sequence[str]] = (source.metadata or {}).get("tags") or {}
    found: dict[FieldPath, Tags] = {}
    for path, tags in _walk(view, view.roots or tuple(view.types), beside, (), _NONE, ()):
        found[path] = found.get(path, _NONE) | tags
        if len(found) >= MOST_FIELDS:
            break
    return found


def _walk(
    view: SchemaView,
    types: Sequence[str],
    beside: Mapping[str, Sequence[str]],
    path: FieldPath,
    around: Tags,
    within: tuple[str, ...],
) -> Iterator[tuple[FieldPath, Tags]]:
    if len(path) > _MOST_NESTED:
        return
    for name in types:
        record: Any = view.types.get(name)
        if record is None or name in within:
            continue
        for each in record.fields:
            tags = around | record.tags | each.tags | tags_beside(beside, record, each)
            here = (*path, each.name)
            yield here, tags
            yield from _walk(view, each.shape.of, beside, here, tags, (*within, name))
