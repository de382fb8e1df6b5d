"""[core] Relations of a query: the tables of a FROM, and the scopes in which names are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class QueryRelation:
    """A table that a query may read. ``source`` is the SQL behind FROM: trusted text with exactly these
    columns.

    ``columns`` and ``hidden`` (not in ``*``) map name to kind. ``refused``: columns that the caller may
    not name.
    """

    name: str
    noun: str
    source: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    bound: Mapping[str, str] = field(default_factory=dict)


class TableCatalog(Protocol):
    """Catalog of the tables that a statement may read."""

    def relation(self, name: str, at_ms: int | None = None) -> QueryRelation | None:
        """Return a table, as of a time if one is given; None for an unknown name. Raises CallerError."""

    def names(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the answer."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement for a database: ``:p1`` (SQLite) or ``%(p1)s`` (Postgres) are its parameters."""

    sql: str
    parameters: Mapping[str, str]
    columns: tuple[OutputColumn, ...]
    # Kind that the place of each of the caller's parameters needs, as far as one does.
    parameter_kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A compiled SELECT or UNION: output columns, and the number of tables that a database plans."""

    text: str
    columns: Mapping[str, str]
    weight: int
    sizes: tuple[int, ...]  # of each column's expression, written out


# WITH: from a name to the generated name and the query.
Ctes = Mapping[str, tuple[str, CompiledQuery]]


@dataclass(frozen=True, slots=True)
class FromTable:
    """A table of a FROM under its generated name."""

    alias: str
    name: str
    noun: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str]
    sizes: Mapping[str, int]
    refused: frozenset[str] = frozenset()

    def column(self, name: str, quoted: bool) -> tuple[str, str] | None:
        """Return (name, kind) of a column; an unquoted name matches case-insensitively."""
        for columns in (self.columns, self.hidden):
            if name in columns:
                return name, columns[name]
        if not quoted:
            near = [each for each in (*self.columns, *self.hidden) if each.lower() == name.lower()]
            if len(near) == 1:
                return near[0], self.columns.get(near[0]) or self.hidden[near[0]]
        return None


@dataclass(slots=True)
class QueryScope:
    """Scope of name lookup: the tables of one SELECT, then those of the enclosing ones."""

    parent: QueryScope | None
    ctes: Ctes
    sources: list[FromTable] = field(default_factory=list)
    # (alias, column) that USING made one with another.
    joined: set[tuple[str, str]] = field(default_factory=set)
    grouped: set[str] = field(default_factory=set)
    place: str = "the select list"
    weight: int = 0


class ResolvedColumn(exp.Expression):
    """A column that a ``*`` stands for, already resolved."""

    def __init__(self, source: FromTable, column: str) -> None:
        super().__init__()
        self.source = source
        self.column = column


def is_named(name: str, identifier: Any) -> bool:
    """Return whether the identifier names this; a quoted identifier is case-sensitive."""
    if name == identifier.name:
        return True
    return not identifier.args.get("quoted") and name.lower() == identifier.name.lower()


def named_column(names: Sequence[str], identifier: Any) -> str | None:
    if identifier.name in names:
        return str(identifier.name)
    near = [each for each in names if is_named(each, identifier)]
    return near[0] if len(near) == 1 else None
