"""[core] Schema impact: the views that a new schema would break, from the columns that they read of a topic.

A view reads a column when one of its expressions names it, as ``source.column`` or, in ``key``, ``order``,
``unique_by`` and ``where``, by its name alone. The view's reader schema matches columns by name, so a renamed
column is missing for it, even with an alias. A change of type within a kind (int to long) breaks nothing; a
change of kind (long to string) changes the meaning of the view's SQL.

``ColumnBreak`` judges one column of any format. The saved queries (``queries/saved_queries.py``) use it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_view import EntitySource, View
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import kind
from hub.schema_registry.describe import SchemaField, SchemaView, describe
from hub.schema_registry.folder.avro_diff import type_text
from hub.schema_registry.folder.diff import avro_root
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import AvroNode
from hub.schema_registry.registry.snapshot import ParsedSchema
from hub.topics.tree.tree import matches

_MOST_NESTED = 64  # nesting of types; deeper levels are not checked


@dataclass(frozen=True, slots=True)
class ColumnImpact:
    """One column that a view reads and that a schema version removes or changes."""

    view: str
    column: str  # as the view's file has it: source.column
    what: str

    def __str__(self) -> str:
        return f"view {self.view} reads {self.column}, which {self.what}"


def columns_read(view: View | SqlView) -> dict[str, set[tuple[str, ...]]]:
    """Return the paths of the columns that the view reads, by source, without Kafka's own (``_offset``, …).

    Expressions that cannot be parsed are skipped: they run nowhere.
    """
    if isinstance(view, SqlView):
        used = query_of(view).used
        return {
            name: {(column,) for column in columns if column not in META} for name, columns in used.items()
        }
    found: dict[str, set[tuple[str, ...]]] = {name: set() for name in view.sources}
    for name, source in view.sources.items():
        for path in _paths(_event_expressions(source)):
            own = path[1:] if len(path) > 1 and path[0] == name else path
            found[name].add(own)
    computed = [*view.fields.values(), *view.computed.values(), view.delete_when]
    for path in _paths(computed):
        if len(path) > 1 and path[0] in found:
            found[path[0]].add(path[1:])
    return {name: {path for path in paths if path[0] not in META} for name, paths in found.items()}


def impacts(
    views: Iterable[View | SqlView], topic: str, old: ParsedSchema, new: ParsedSchema, version: int
) -> list[ColumnImpact]:
    """Return the columns of the views that break when ``new`` becomes ``version`` of the topic's values.

    Always [] for formats other than Avro.
    """
    if (old.schema_type, new.schema_type) != ("AVRO", "AVRO"):
        return []
    breaks = ColumnBreak(old, new)
    found: dict[ColumnImpact, None] = {}
    for view in views:
        read = columns_read(view)
        for name, source in view.sources.items():
            if not matches(source.topic, topic):
                continue
            for path in sorted(read[name]):
                for inner, what in breaks.of(path if source.cdc is None else cdc.in_envelope(path)):
                    column = ".".join((name, *inner))
                    found[ColumnImpact(view.name, column, f"version {version} {what}")] = None
    return list(found)


def columns_by_field(view: View) -> dict[str, dict[str, set[tuple[str, ...]]]]:
    """Return for each column of the view the paths of the columns that it is made of, by source, through
    fields that it names.

    The column "" has the columns of ``key``, ``order``, ``unique_by``, ``where`` and ``delete_when``, which
    decide over whole rows.
    """
    made: dict[str, dict[str, set[tuple[str, ...]]]] = {}
    for name, text in (*view.fields.items(), *view.computed.items()):
        made[name] = _made_of(view, text, made)
    rows = _made_of(view, view.delete_when, made)
    for name, source in view.sources.items():
        for path in _paths(_event_expressions(source)):
            rows.setdefault(name, set()).add(path[1:] if len(path) > 1 and path[0] == name else path)
    made[""] = rows
    return {
        column: {
            source: {path for path in paths if path[0] not in META} for source, paths in by_source.items()
        }
        for column, by_source in made.items()
    }


def _made_of(
    view: View, text: str | None, made: dict[str, dict[str, set[tuple[str, ...]]]]
) -> dict[str, set[tuple[str, ...]]]:
    found: dict[str, set[tuple[str, ...]]] = {}
    for path in _paths([text]):
        if len(path) > 1 and path[0] in view.sources:
            found.setdefault(path[0], set()).add(path[1:])
        else:  # an earlier field, or a part of it
            for source, paths in made.get(path[0], {}).items():
                found.setdefault(source, set()).update(paths)
    return found


def _event_expressions(source: EntitySource) -> Sequence[str | None]:
    return (source.key, source.order, source.unique_by, source.where)


def _paths(expressions: Iterable[str | None]) -> Iterator[tuple[str, ...]]:
    for text in expressions:
        if text is None:
            continue
        try:
            tree = sqlglot.parse_one(text, dialect="spark")
        except (SqlglotError, RecursionError):
            continue
        for column in tree.find_all(exp.Column):
            yield tuple(part.name for part in column.parts)


class ColumnBreak:
    """Changes of a column when one schema follows another. Reports nothing for schemas of two formats."""

    def __init__(self, old: ParsedSchema, new: ParsedSchema) -> None:
        self._avro: tuple[AvroNode, AvroNode] | None = None
        self._views: tuple[SchemaView, SchemaView] | None = None
        if old.schema_type != new.schema_type:
            return
        if old.schema_type == "AVRO":
            self._avro = avro_root(old), avro_root(new)
            return
        try:
            before, after = (describe(each.schema_type, each.schema, each.named) for each in (old, new))
        except InvalidSchema:
            return
        self._views = before, after

    def of(self, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield (path, change: "removes" or "changes from … to …") along the path and below it."""
        if self._avro is not None:
            return _broken(*self._avro, path)
        return iter(()) if self._views is None else _broken_field(*self._views, path)


def _broken_field(
    before: SchemaView, after: SchemaView, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Compare described schemas by plain kinds of values, as far as the types are unambiguous."""
    for depth in range(1, len(path) + 1):
        was, now = _field(before, path[:depth]), _field(after, path[:depth])
        if was is None and depth > 1:  # the path goes into a value that is not a record
            yield from _broken_field(before, after, path[: depth - 1])
            return
        if was is None:
            return
        if now is None:
            yield path[:depth], "removes"
            return
        if depth == len(path) or _plain(was) != _plain(now):
            yield from _changed_field(before, after, was, now, path[:depth], frozenset())
            return


def _field(view: SchemaView, path: tuple[str, ...]) -> SchemaField | None:
    return view.find(view.roots[0], ".".join(path)) if view.roots else None


def _changed_field(
    before: SchemaView,
    after: SchemaView,
    was: SchemaField,
    now: SchemaField,
    path: tuple[str, ...],
    within: frozenset[str],
) -> Iterator[tuple[tuple[str, ...], str]]:
    if _plain(was) != _plain(now):
        yield path, f"changes from {_field_text(was)} to {_field_text(now)}"
        return
    if len(was.shape.of) != 1 or len(now.shape.of) != 1 or was.shape.of[0] in within:
        return
    inside = [view.types.get(each.shape.of[0]) for view, each in ((before, was), (after, now))]
    if inside[0] is None or inside[1] is None:
        return
    names = {each.name: each for each in inside[1].fields}
    for field in inside[0].fields:
        here = (*path, field.name)
        if field.name not in names:
            yield here, "removes"
        else:
            deeper = within | {inside[0].name}
            yield from _changed_field(before, after, field, names[field.name], here, deeper)


_PLAIN = {"int": "integer", "long": "integer", "float": "double", "enum": "string", "uuid": "string"}


def _plain(field: SchemaField) -> str:
    return _PLAIN.get(field.type, field.type)


def _field_text(field: SchemaField) -> str:
    return f"{field.shape.logical} ({field.type})" if field.shape.logical else field.type


def _broken(was: AvroNode, now: AvroNode, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, change) along the path and below it, for Avro."""
    for depth, name in enumerate(path, 1):
        inner = _avro_field(was, name), _avro_field(now, name)
        if inner[0] is None:  # no such column, or the path goes into a value that is not a record
            path = path[: depth - 1]
            break
        if inner[1] is None:
            if depth > 1 and _kind(_value(was)) != _kind(_value(now)):
                path = path[: depth - 1]
                break
            yield path[:depth], "removes"
            return
        was, now = inner[0], inner[1]
    if path:
        yield from _changed(was, now, path, ())


def _changed(
    was: AvroNode, now: AvroNode, path: tuple[str, ...], within: tuple[AvroNode, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    a, b = _value(was), _value(now)
    if a in within or len(within) > _MOST_NESTED:  # a type within itself
        return
    if _kind(a) != _kind(b):
        yield path, f"changes from {type_text(was)} to {type_text(now)}"
        return
    within = (*within, a)
    if a.kind == b.kind and a.kind in ("array", "map"):
        yield from _changed(a.item, b.item, path, within)
    for field in a.fields:
        inner, here = _avro_field(b, field.name), (*path, field.name)
        if inner is None:
            yield here, "removes"
        else:
            yield from _changed(field.type, inner, here, within)


def _avro_field(node: AvroNode, name: str) -> AvroNode | None:
    """Return the type of a record's field, through a union with null; None if the field does not exist."""
    return next((each.type for each in _value(node).fields if each.name == name), None)


def _value(node: AvroNode) -> AvroNode:
    """Return the type besides null."""
    branches = [each for each in node.branches if each.kind != "null"]
    return branches[0] if len(branches) == 1 else node


def _kind(node: AvroNode) -> str:
    """Return the kind of values that the view's SQL sees; for other types, the type itself."""
    if node.kind == "union":
        return f"union of {len(node.inner)}"
    found = kind(node.spec or node.kind)
    return found if found != "other" else node.kind
