"""[core] Names in expressions: columns by scope, and parameters."""

from __future__ import annotations

from sqlglot import exp

from hub.errors import did_you_mean, nearest
from hub.materializers.queries.functions.kinds import given
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import FromTable, QueryScope, ResolvedColumn, is_named
from hub.materializers.queries.writer import Node, Piece, SqlWriter


def column(w: SqlWriter, node: exp.Column) -> Piece:
    w.only(node, "this", "table")
    if not isinstance(node.this, exp.Identifier):
        raise w.fail("* must be alone in a select list", node)
    name, quoted, table = node.name, bool(node.this.args.get("quoted")), node.args.get("table")
    scope: QueryScope | None = w.scope
    outer = False
    while scope is not None:
        found = _in_scope(w, scope, node, name, quoted, table)
        if found is not None:
            source, (column, kind) = found
            require_readable(w, source, column, node)
            text = f'"{source.alias}".{w.quoted(column)}'
            return Piece(text, kind, bare=None if outer else node, inlined=source.sizes.get(column, 0))
        scope, outer = scope.parent, True
    raise no_column(w, node, name, table)


def _in_scope(
    w: SqlWriter, scope: QueryScope, node: Node, name: str, quoted: bool, table: exp.Identifier | None
) -> tuple[FromTable, tuple[str, str]] | None:
    sources = scope.sources
    if table is not None:
        sources = [each for each in sources if is_named(each.name, table)]
        if not sources:
            return None
    found = []
    for source in sources:
        column = source.column(name, quoted)
        if column is not None and (table is not None or (source.alias, column[0]) not in scope.joined):
            found.append((source, column))
    if len(found) > 1:
        raise w.fail(
            f'"{name}" is a column of {found[0][0].name} and of {found[1][0].name}',
            node,
            f"say which: {found[0][0].name}.{name}",
        )
    if not found and table is not None:
        raise no_column(w, node, name, table)
    return found[0] if found else None


def no_column(w: SqlWriter, node: Node, name: str, table: exp.Identifier | None) -> SqlError:
    sources: list[FromTable] = []
    scope: QueryScope | None = w.scope
    while scope is not None:
        sources += scope.sources
        scope = scope.parent
    if table is not None:
        named = [each for each in sources if is_named(each.name, table)]
        if not named:
            guess = nearest(table.name, [each.name for each in sources])
            return w.unknown(f'no table "{table.name}" in this FROM', table, guess, "HUB-1444")
        sources = named
    if not sources:
        return w.unknown(f'no column "{name}": the query has no FROM', node, None)
    known = [column for each in sources for column in (*each.columns, *each.hidden)]
    guess = nearest(name.lower(), known)
    where = ", ".join(dict.fromkeys(f"{each.noun} {each.name}" for each in sources[:4]))
    return w.unknown(f'no column "{name}" in {where}', node, guess)


def require_readable(w: SqlWriter, source: FromTable, column: str, node: Node) -> None:
    """Raise SqlError for a column that masks refuse to the caller, also where ``*`` stands for it."""
    if column in source.refused:
        readable = [each for each in source.columns if each not in source.refused]
        raise w.statement.error(
            f'field "{column}" of {source.noun} {source.name} is refused to you',
            None if isinstance(node, ResolvedColumn) else node,
            hint=f"name the columns that you may read: {', '.join(readable)}"[:500],
            code="HUB-1722",
        )


def resolved_column(w: SqlWriter, node: ResolvedColumn) -> Piece:
    """Compile a column that a ``*`` stands for."""
    require_readable(w, node.source, node.column, node)
    text = f'"{node.source.alias}".{w.quoted(node.column)}'
    size = node.source.sizes.get(node.column, 0)
    return Piece(text, node.source.columns[node.column], bare=exp.column(node.column), inlined=size)


def placeholder(w: SqlWriter, node: exp.Placeholder) -> Piece:
    name = node.this
    if not isinstance(name, str) or not name:
        raise w.fail("parameters have names: write :name", node)
    if name not in w.parameters:
        raise w.statement.parameter_error(
            name,
            f'parameter "{name}" was not given',
            hint=did_you_mean(name, w.parameters, f'give it: {{"parameters": {{"{name}": …}}}}'),
            code="HUB-1447",
        )
    w.used.add(name)
    return given(w, w.parameters[name], node)
