"""[core] The registry's state as rows of tables, in an order that is independent of the state's history.

Values are valid in both SQLite and Postgres: a NUL in a text becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from hub.schema_registry.describe import SchemaView
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import properties_of
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.policy.policy_checks import tags_beside
from hub.schema_registry.registry.rulebook import view_of
from hub.schema_registry.registry.state_machine import SETTINGS, Registry, RequestRefused, guid_of

SCHEMAS, VERSIONS = "registry_schemas", "registry_versions"
SETTINGS_, FIELDS = "registry_settings", "registry_fields"


class SqlRow(NamedTuple):
    """A row of one of the tables above; ``values`` by column."""

    table: str
    values: Mapping[str, Any]


def rows(registry: Registry) -> Iterator[SqlRow]:
    """Yield every row, table by table, but each version directly before its fields."""
    for context, space in sorted(registry.contexts.items()):
        for schema_id, bound in sorted(space.ids.items()):
            yield SqlRow(SCHEMAS, _schema(context, schema_id, bound))
    for subject, versions in sorted(registry.subjects.items()):
        for _, stored in sorted(versions.items()):
            yield from _version(subject, stored, _view(registry, stored))
    yield from _settings(registry)


def _schema(context: str, schema_id: int, bound: SchemaStored) -> dict[str, Any]:
    return {
        "context": _text(context),
        "id": schema_id,
        "guid": _text(guid_of(bound)),
        "type": _text(bound.schema_type),
        "text": _text(bound.schema),
    }


def _version(subject: str, stored: SchemaStored, view: SchemaView | None) -> Iterator[SqlRow]:
    beside = _tags(stored.metadata)
    tags = {tag for field_tags in beside.values() for tag in field_tags}
    fields: list[dict[str, Any]] = []
    for record, field in view.fields() if view is not None else ():
        own = field.tags | tags_beside(beside, record, field)
        tags |= own
        fields.append(
            {
                "subject": _text(subject),
                "version": stored.version,
                "place": len(fields) + 1,
                "path": _text(field.path),
                "record": _text(record.name),
                "type": field.type,
                "logical": _text(field.shape.logical) or None,
                "optional": field.shape.optional,
                "doc": _text(field.doc) or None,
                "tags": _texts(own),
            }
        )
    for each in view.own_types if view is not None else ():
        tags |= each.tags
    yield SqlRow(
        VERSIONS,
        {
            "subject": _text(subject),
            "version": stored.version,
            "context": _text(names.context_of(subject)),
            "id": stored.schema_id,
            "deleted": stored.deleted,
            "owner": _owner(stored.metadata),
            "tags": _texts(tags),
            "described": view is not None,
        },
    )
    yield from (SqlRow(FIELDS, each) for each in fields)


def _view(registry: Registry, stored: SchemaStored) -> SchemaView | None:
    """Return the schema's view; None for a schema of another registry that cannot be read: its row has no
    fields.
    """
    try:
        return view_of(registry.source_of(stored))
    except (InvalidSchema, RequestRefused):
        return None


def _settings(registry: Registry) -> Iterator[SqlRow]:
    """Yield settings; ``place`` is a subject, a context (``:.ctx:``), ``:.__GLOBAL:``, or "" (default
    context).
    """
    found: dict[tuple[str, str], Any] = {}
    for place, settings in registry.levels.items():
        values = {"compatibilityLevel": settings.level, **settings.more}
        found |= {(place or "", name): values.get(name) for name in ("compatibilityLevel", *SETTINGS)}
    found |= {(place or "", "mode"): mode.mode for place, mode in registry.modes.items()}
    for (place, name), value in sorted(found.items()):
        if value is not None:
            shown = value if isinstance(value, str) else orjson.dumps(value).decode()
            yield SqlRow(SETTINGS_, {"place": _text(place), "name": name, "value": _text(shown)})


def _owner(metadata: Mapping[str, Any] | None) -> str | None:
    owner = properties_of(metadata).get("owner")
    return _text(owner) if isinstance(owner, str) and owner else None


def _tags(metadata: Mapping[str, Any] | None) -> dict[str, Sequence[str]]:
    """Return valid tags by field name: records of other registries are not validated."""
    tags = (metadata or {}).get("tags")
    if not isinstance(tags, dict):
        return {}
    return {
        name: [each for each in values if isinstance(each, str)]
        for name, values in tags.items()
        if isinstance(values, list)
    }


def _texts(values: set[str] | frozenset[str]) -> list[str]:
    return sorted(map(_text, values))


def _text(value: Any) -> str:
    return str(value).replace("\0", "\ufffd")
