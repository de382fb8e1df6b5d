"""[core] A SELECT or a UNION with all its clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hub.materializers.queries.clauses.from_clause import from_clause, renamed
from hub.materializers.queries.clauses.names import no_column
from hub.materializers.queries.clauses.ordering import (
    has_order_or_limit,
    limit_and_offset,
    order_by,
    ordinal,
    sorted_outside,
)
from hub.materializers.queries.functions.kinds import boolean, comparable
from hub.materializers.queries.relations import (
    CompiledQuery,
    Ctes,
    QueryScope,
    ResolvedColumn,
    is_named,
    named_column,
)
from hub.materializers.queries.writer import MOST_WRITTEN, Node, Piece, SqlWriter

MOST_COLUMNS = 500
# Table references; each WITH counts as often as it is used, because databases plan every use separately.
MOST_TABLES = 40


def compile_tree(w: SqlWriter, tree: Any, parent: QueryScope | None, ctes: Ctes) -> CompiledQuery:
    head, ctes = _with(w, tree, parent, ctes)
    if isinstance(tree, exp.Select):
        compiled_query = _select(w, tree, parent, ctes)
    elif isinstance(tree, exp.SetOperation):
        compiled_query = _set_operation(w, tree, parent, ctes)
    elif isinstance(tree, exp.Subquery):
        w.only(tree, "this", "with_", "order", "limit", "offset")
        inner = w.query(tree.this, parent, ctes)
        compiled_query = sorted_outside(w, tree, inner) if has_order_or_limit(tree) else inner
    else:
        raise w.fail(f"{type(tree).__name__.upper()} is not supported", tree)
    text = head + compiled_query.text
    if len(text) > MOST_WRITTEN:
        raise w.fail("the statement becomes too long", tree)
    return replace(compiled_query, text=text)


def _with(w: SqlWriter, tree: Any, parent: QueryScope | None, ctes: Ctes) -> tuple[str, Ctes]:
    with_ = tree.args.get("with_")
    if with_ is None:
        return "", ctes
    w.only(with_, "expressions", "recursive")
    if with_.args.get("recursive"):
        raise w.fail("WITH RECURSIVE is not supported", with_)
    known, definitions = dict(ctes), []
    for each in with_.expressions:
        w.only(each, "this", "alias", "materialized")
        name = each.alias
        inner = w.query(each.this, parent, known)
        inner = replace(inner, columns=renamed(w, each.args["alias"], inner))
        alias = w.alias("w")
        listed = ", ".join(map(w.quoted, inner.columns))
        definitions.append(f'"{alias}" ({listed}) AS ({inner.text})')
        known[name] = (alias, inner)
    return f"WITH {', '.join(definitions)} ", known


def _set_operation(w: SqlWriter, tree: Any, parent: QueryScope | None, ctes: Ctes) -> CompiledQuery:
    w.only(tree, "this", "expression", "distinct", "with_", "order", "limit", "offset")
    word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}.get(type(tree))
    distinct = bool(tree.args.get("distinct"))
    if word is None or (word != "UNION" and not distinct):
        raise w.fail("sets are joined by UNION, UNION ALL, EXCEPT and INTERSECT", tree)
    left = w.query(tree.this, parent, ctes)
    right = w.query(tree.expression, parent, ctes)
    if len(left.columns) != len(right.columns):
        raise w.fail(f"{word} of {len(left.columns)} and {len(right.columns)} columns", tree.expression)
    columns: dict[str, str] = {}
    for (name, one), other in zip(left.columns.items(), right.columns.values(), strict=True):
        kind = other if one == "null" else one
        if other not in (kind, "null"):
            if {one, other} != {"long", "double"}:
                raise w.fail(f'{word}: column "{name}" is a {one} and a {other}', tree.expression)
            kind = "double"
        if distinct and kind == "json":
            raise w.fail(f'{word}: nested column "{name}" cannot be compared', tree)
        columns[name] = kind
    operator = word if distinct else f"{word} ALL"
    text = f"{_branch(w, left)} {operator} {_branch(w, right)}"
    sizes = tuple(one + other for one, other in zip(left.sizes, right.sizes, strict=True))
    joined = CompiledQuery(text, columns, left.weight + right.weight, sizes)
    return sorted_outside(w, tree, joined) if has_order_or_limit(tree) else joined


def _branch(w: SqlWriter, query: CompiledQuery) -> str:
    """Wrap a branch in a SELECT: SQLite takes no brackets around one, and an ORDER BY or a WITH needs
    them.
    """
    alias = w.alias("b")
    listed = ", ".join(f'"{alias}".{w.quoted(name)}' for name in query.columns)
    return f'SELECT {listed} FROM ({query.text}) AS "{alias}"'


def _select(w: SqlWriter, tree: Any, parent: QueryScope | None, ctes: Ctes) -> CompiledQuery:
    w.only(
        tree,
        *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"),
        *("distinct", "with_"),
    )
    scope = w.scope = QueryScope(parent, ctes)
    from_ = from_clause(w, tree, scope)
    where, _ = _condition(w, tree, "where", "WHERE")
    items = list(_items(w, tree))
    group, grouping = _group(w, tree, items)
    outputs = _outputs(w, tree, items)
    pieces = [(piece, node) for _, piece, node in outputs]
    having, condition = _condition(w, tree, "having", "HAVING")
    scope.place = "ORDER BY"
    distinct = _distinct(w, tree, pieces)
    order, sorted_by = "", list[Piece]()
    if tree.args.get("order") is not None and not distinct:
        names = [name for name, _, _ in outputs]
        order, sorted_by = order_by(w, tree.args["order"], lambda node: _sort_key(w, node, pieces, names))
    shown = [piece for piece, _ in pieces]
    if grouping or condition is not None or any(piece.aggregate for piece in (*shown, *sorted_by)):
        _check_grouped(w, [*shown, *sorted_by, *([] if condition is None else [condition])])
    listed = ", ".join(f"{piece.text} AS {w.quoted(name)}" for name, piece, _ in outputs)
    text = f"SELECT {'DISTINCT ' if distinct else ''}{listed}{from_}{where}{group}{having}"
    sizes = tuple(len(piece.text) + piece.inlined for piece in shown)
    columns = {name: piece.kind for name, piece, _ in outputs}
    query = CompiledQuery(text, columns, max(1, scope.weight), sizes)
    if query.weight > MOST_TABLES:
        raise w.fail(
            f"the query reads {query.weight} tables, each WITH counted where it is used; "
            f"{MOST_TABLES} are allowed",
            tree.args.get("from_") or tree,
        )
    if distinct:
        return sorted_outside(w, tree, query) if has_order_or_limit(tree) else query
    return replace(query, text=f"{text}{' ' + order if order else ''}{limit_and_offset(w, tree)}")


def _outputs(w: SqlWriter, tree: Any, items: Sequence[tuple[str, Node]]) -> list[tuple[str, Piece, Node]]:
    """Return (unique name, compiled expression, expression) of each item of the select list."""
    found: dict[str, tuple[Piece, Node]] = {}
    for wanted, node in items:
        piece = w.expr(node)
        if piece.kind == "interval":
            raise w.fail("an interval is added to a time, not shown", node)
        found[_unique(wanted, found)] = piece, node
    if not found:
        raise w.fail("the select list is empty", tree)
    return [(name, piece, node) for name, (piece, node) in found.items()]


def _check_grouped(w: SqlWriter, pieces: Iterable[Piece]) -> None:
    """Refuse columns of a grouped query that stand in no aggregate and not in GROUP BY."""
    for piece in pieces:
        if piece.bare is not None:
            raise w.fail(
                f'"{piece.bare.name}" is neither in an aggregate nor in GROUP BY',
                piece.bare,
                f"GROUP BY {piece.bare.name}, or max({piece.bare.name})",
            )


def _distinct(w: SqlWriter, tree: Any, pieces: Sequence[tuple[Piece, Node]]) -> bool:
    distinct = tree.args.get("distinct")
    if distinct is None:
        return False
    if distinct.args.get("on") is not None:
        raise w.fail("DISTINCT ON is not supported", distinct, "row_number() in a subquery")
    w.only(distinct)
    for piece, node in pieces:
        comparable(w, piece, node)
    return True


def _items(w: SqlWriter, tree: Any) -> Iterable[tuple[str, Node]]:
    """Yield (wanted name, expression) of the select list with ``*`` expanded."""
    count = 0
    for node in tree.expressions:
        for name, each in _spelled(w, node):
            count += 1
            if count > MOST_COLUMNS:
                raise w.fail(f"more than {MOST_COLUMNS} columns", node)
            yield name, each


def _spelled(w: SqlWriter, node: Any) -> Iterable[tuple[str, Node]]:
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        w.only(node.this if isinstance(node, exp.Column) else node)
        if isinstance(node, exp.Column):
            w.only(node, "this", "table")
        table = node.args.get("table") if isinstance(node, exp.Column) else None
        sources = [each for each in w.scope.sources if table is None or is_named(each.name, table)]
        if not sources:
            raise (w.fail("* needs a FROM", node) if table is None else no_column(w, node, "*", table))
        for source in sources:
            for column in source.columns:
                if table is None and (source.alias, column) in w.scope.joined:
                    continue
                yield column, ResolvedColumn(source, column)
        return
    if isinstance(node, exp.Alias):
        w.only(node, "this", "alias")
        yield node.alias, node.this
        return
    yield _name_of(node), node


def _condition(w: SqlWriter, tree: Any, name: str, word: str) -> tuple[str, Piece | None]:
    clause = tree.args.get(name)
    if clause is None:
        return "", None
    w.scope.place = word
    piece = boolean(w, clause.this)
    w.scope.place = "the select list"
    return f" {word} {piece.text}", piece


def _group(w: SqlWriter, tree: Any, items: Sequence[tuple[str, Node]]) -> tuple[str, bool]:
    group = tree.args.get("group")
    if group is None:
        return "", False
    w.only(group, "expressions")
    w.scope.place = "GROUP BY"
    texts = []
    for node in group.expressions:
        piece = _group_key(w, node, items)
        if piece.kind == "interval":
            raise w.fail("an interval is added to a time, not grouped", node)
        texts.append(comparable(w, piece, node).text)
    w.scope.place = "the select list"
    w.scope.grouped = set(texts)
    # A bare number would be an ordinal of the select list.
    shown = [f"CAST({text} AS INTEGER)" if text.lstrip("-").isdigit() else text for text in texts]
    return f" GROUP BY {', '.join(shown)}", True


def _group_key(w: SqlWriter, node: Any, items: Sequence[tuple[str, Node]]) -> Piece:
    number = ordinal(node)
    if number is not None:
        if not 1 <= number <= len(items):
            raise w.fail(f"GROUP BY {number}: the select list has {len(items)} columns", node)
        return w.expr(items[number - 1][1])
    if isinstance(node, exp.Column) and node.args.get("table") is None:
        inside = [each for each in w.scope.sources if each.column(node.name, False)]
        named = [each for name, each in items if is_named(name, node.this)]
        if not inside and len(named) == 1:
            return w.expr(named[0])
    return w.expr(node)


def _sort_key(w: SqlWriter, node: Any, pieces: Sequence[tuple[Piece, Node]], names: Sequence[str]) -> Piece:
    number = ordinal(node)
    if number is not None:
        if not 1 <= number <= len(names):
            raise w.fail(f"ORDER BY {number}: the select list has {len(names)} columns", node)
        return pieces[number - 1][0]
    if isinstance(node, exp.Column) and node.args.get("table") is None:
        name = named_column(names, node.this)
        if name is not None:
            return pieces[names.index(name)][0]
    return w.expr(node)


# Names that the parser spells differently from the usual ones.
_CALLED: Mapping[type, str] = {
    exp.TimestampTrunc: "date_trunc",
    exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and",
    exp.GroupConcat: "string_agg",
    exp.StrPosition: "position",
    exp.CurrentTimestamp: "now",
    exp.UnixToTime: "to_timestamp",
    exp.StartsWith: "starts_with",
    exp.ConcatWs: "concat_ws",
}


def _name_of(node: Any) -> str:
    """Return the name of a result column that has no AS."""
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Paren | exp.Cast | exp.Window | exp.Filter):
        return _name_of(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if type(node) in _CALLED:
        return _CALLED[type(node)]
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar) and isinstance(
        node.expression, exp.JSONPath
    ):
        keys = [each for each in node.expression.expressions if isinstance(each, exp.JSONPathKey)]
        return str(keys[-1].this) if keys else "column"
    if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or):
        return node.sql_name().lower()
    return "column"


def _unique(wanted: str, taken: Mapping[str, object]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name
