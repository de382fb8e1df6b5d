"""[core] Which views a new schema would break: the columns that a view reads of a topic, against what becomes of them.

A view reads a column when one of its expressions names it, as ``source.column`` or, in ``key``, ``order``, ``unique_by``
and ``where``, by its name alone. Its reader's schema has the columns by name, so a column that is renamed is gone for
it, also with an alias. A type that stays of one kind (int to long) breaks nothing; one that does not (long to string)
changes what the view's SQL means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hub.materializers.avro_shape import kind
from hub.materializers.shape import META
from hub.materializers.sql_view import SqlView, query_of
from hub.materializers.view import Source, View
from hub.schema_registry.state import Parsed
from hub.schema_registry.words import Types, said_type
from hub.topics.tree import matches

_Placed = tuple[Any, str]
_MOST_NESTED = 64  # types; deeper, nothing is told


@dataclass(frozen=True, slots=True)
class Impact:
    """One column that a view reads and that a version takes away or changes."""

    view: str
    column: str  # as the view's file has it: source.column
    what: str

    def __str__(self) -> str:
        return f"view {self.view} reads {self.column}, which {self.what}"


def columns_read(view: View | SqlView) -> dict[str, set[tuple[str, ...]]]:
    """By source, the paths of columns that the view reads; without Kafka's own (``_offset``, …). What is no SQL is
    left out: it runs nowhere."""
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
    views: Iterable[View | SqlView], topic: str, old: Parsed, new: Parsed, version: int
) -> list[Impact]:
    """What in the views breaks when ``new`` becomes that version of the topic's values; [] for other than Avro."""
    if (old.schema_type, new.schema_type) != ("AVRO", "AVRO"):
        return []
    before, after = Types(old), Types(new)
    found: dict[Impact, None] = {}
    for view in views:
        read = columns_read(view)
        for name, source in view.sources.items():
            if not matches(source.topic, topic):
                continue
            for path in sorted(read[name]):
                for inner, what in _broken(before, after, path):
                    column = ".".join((name, *inner))
                    found[Impact(view.name, column, f"version {version} {what}")] = None
    return list(found)


def _event_expressions(source: Source) -> Sequence[str | None]:
    return (source.key, source.order, source.unique_by, source.where)


def _paths(expressions: Iterable[str | None]) -> Iterator[tuple[str, ...]]:
    for text in expressions:
        if text is None:
            continue
        try:
            tree = sqlglot.parse_one(text, dialect="spark")
        except SqlglotError:
            continue
        for column in tree.find_all(exp.Column):
            yield tuple(part.name for part in column.parts)


def _broken(before: Types, after: Types, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path, what becomes of it), along the path and below it."""
    was: _Placed | None = before.root
    now: _Placed | None = after.root
    for depth, name in enumerate(path, 1):
        if was is None or now is None:
            return
        was, now = before.field(*was, name), after.field(*now, name)
        if was is not None and now is None:
            yield path[:depth], "removes"
            return
    if was is not None and now is not None:
        yield from _changed(before, after, was, now, path, ())


def _changed(
    before: Types,
    after: Types,
    was: _Placed,
    now: _Placed,
    path: tuple[str, ...],
    within: tuple[int, ...],
) -> Iterator[tuple[tuple[str, ...], str]]:
    (a, space_a), (b, space_b) = _value(before, was), _value(after, now)
    if id(a) in within or len(within) > _MOST_NESTED:  # a type within itself
        return
    kinds = _kind(a), _kind(b)
    if kinds[0] != kinds[1]:
        yield path, f"changes from {said_type(was[0], was[1])} to {said_type(now[0], now[1])}"
        return
    within = (*within, id(a))
    for part in ("items", "values"):
        if isinstance(a, dict) and isinstance(b, dict) and part in a and part in b:
            yield from _changed(before, after, (a[part], space_a), (b[part], space_b), path, within)
    if kinds[0] == "record":
        for field in a["fields"]:
            inner = before.field(a, space_a, field["name"]), after.field(b, space_b, field["name"])
            here = (*path, field["name"])
            if inner[1] is None:
                yield here, "removes"
            elif inner[0] is not None:
                yield from _changed(before, after, inner[0], inner[1], here, within)


def _value(types: Types, placed: _Placed) -> _Placed:
    """The type beside null, its name resolved."""
    found, space = types.resolved(*placed)
    if isinstance(found, list):
        branches = [each for each in found if each != "null"]
        if len(branches) == 1:
            return types.resolved(branches[0], space)
    return found, space


def _kind(schema: Any) -> str:
    """What the view's SQL sees: kinds of values, and of the rest the type itself."""
    if isinstance(schema, list):
        return f"union of {len(schema)}"
    found = kind(schema)
    if found != "other":
        return found
    return schema if isinstance(schema, str) else str(schema["type"])
