"""[core] A view's SQL with its names resolved: which relation and which source's column each name is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType, exp

from hub.errors import ConfigError
from hub.materializers.definition.sql_text import from_token, in_text_order, start_of, wrong
from hub.materializers.definition.sql_view import SqlView


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source, passed through unchanged."""

    source: str
    column: str


@dataclass(frozen=True)
class FromRelation:
    """A named relation in a FROM: a source (``source``) or a query. ``columns`` None: the columns are
    unknown."""

    alias: str
    columns: Mapping[str, SourceColumn | None] | None
    source: str | None = None
    query: exp.Query | None = None


@dataclass
class Scope:
    """One SELECT: the relations that it reads, and the names that it creates itself (``LATERAL VIEW … AS
    item``)."""

    select: exp.Select
    relations: list[FromRelation] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    outer: Scope | None = None


@dataclass
class Query:
    """A view's SQL, parsed.

    ``used``: by source, the event columns that are read. ``columns_read``: by source, the columns that the
    SQL itself reads, including META. ``micros``: columns with times finer than milliseconds, for sources
    whose schema is known.
    """

    view: SqlView
    text: str
    tokens: list[Token]
    tree: exp.Query
    columns: tuple[str, ...] = ()
    used: dict[str, dict[str, None]] = field(default_factory=dict)
    columns_read: dict[str, dict[str, None]] = field(default_factory=dict)
    scopes: dict[int, Scope] = field(default_factory=dict)
    ctes: dict[int, exp.Query] = field(default_factory=dict)
    micros: frozenset[SourceColumn] = frozenset()

    def scope(self, select: exp.Expr) -> Scope:
        return self.scopes[id(select)]

    def column(self, scope: Scope, node: exp.Expr | None) -> tuple[FromRelation, str] | None:
        """Return (relation, column) if an expression is nothing but a column of FROM, else None."""
        if isinstance(node, exp.Alias | exp.Paren):
            return self.column(scope, node.this)
        if not isinstance(node, exp.Column):
            return None
        found = resolved(scope, [part.name for part in node.parts])
        if found is None or found[2]:
            return None
        return found[0], found[1]

    def path(self, scope: Scope, column: exp.Column) -> tuple[str, ...]:
        """Resolve a column's name to (alias, column, fields within it). Return it as written if nothing in
        FROM has it."""
        parts = [part.name for part in column.parts]
        found = resolved(scope, parts)
        return tuple(parts) if found is None else (found[0].alias, found[1], *found[2])

    def origin(self, scope: Scope, node: exp.Expr | None) -> SourceColumn | None:
        """Return the source's column if an expression is nothing but that column, else None."""
        found = self.column(scope, node)
        if found is None:
            return None
        relation, column = found
        if relation.source is not None:
            return SourceColumn(relation.source, column)
        return (relation.columns or {}).get(column)

    def error(self, what: str, hint: str, node: exp.Expr | Token | None, code: str) -> ConfigError:
        return wrong(self.view, what, hint, start_of(node), code)


def resolved(scope: Scope, parts: Sequence[str]) -> tuple[FromRelation, str, Sequence[str]] | None:
    """Resolve a dotted name to (relation, column, path within it); None if no relation has it."""
    if len(parts) > 1:
        for relation in scope.relations:
            if relation.alias.lower() == parts[0].lower() and relation.alias:
                return relation, parts[1], parts[2:]
    for relation in scope.relations:
        if relation.columns is not None and parts[0] in relation.columns:
            return relation, parts[0], parts[1:]
    unknown = [relation for relation in scope.relations if relation.columns is None]
    if unknown and parts[0] not in scope.made:
        return unknown[0], parts[0], parts[1:]
    return None


def with_columns(query: Query, columns: Mapping[int, str]) -> str:
    """Return the author's text with one more expression at the end of the SELECT lists in ``columns`` (by
    ``id``)."""
    heads = [n for n, token in enumerate(query.tokens) if token.token_type == TokenType.SELECT]
    cuts: list[tuple[int, str]] = []
    for n, select in zip(heads, in_text_order(query.tree), strict=True):
        if id(select) in columns:
            cuts.append((from_token(query.tokens, n).start, columns[id(select)]))
    text = query.text
    for at, column in sorted(cuts, reverse=True):
        # a new line, because the one before may end in a -- comment
        text = f"{text[:at].rstrip()}\n, {column}\n{text[at:]}"
    return text
