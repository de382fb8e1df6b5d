"""[core] Parts of a parsed SELECT: its groups, windows, joins and conditions,
and the SELECT that makes its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from hub.materializers.definition.sql_query import Query

_WINDOWS = ("window", "session_window")


def row_select(query: Query, select: exp.Select) -> exp.Select:
    """Return the SELECT that makes the rows, through queries that only rename and compute."""
    scope = query.scope(select)
    if (
        group_of(select)
        or select.args.get("distinct")
        or len(scope.relations) != 1
        or not isinstance(scope.relations[0].query, exp.Select)
    ):
        return select
    return row_select(query, scope.relations[0].query)


def projected(select: exp.Select, each: exp.Expr) -> exp.Expr:
    """Return an expression of GROUP BY, resolved when it is a number or a name of the SELECT list."""
    if isinstance(each, exp.Literal) and not each.is_string and each.name.isdecimal():
        n = int(each.name)
        if 1 <= n <= len(select.expressions):
            expression: exp.Expr = select.expressions[n - 1]
            return unnamed(expression)
    alias = named(select, each)
    return each if alias is None else unnamed(alias)


def named(select: exp.Select, each: exp.Expr) -> exp.Alias | None:
    """Return the SELECT list's alias for a bare name, case-insensitively."""
    if not isinstance(each, exp.Column) or each.table:
        return None
    named = (one for one in select.expressions if isinstance(one, exp.Alias))
    return next((one for one in named if one.alias.lower() == each.name.lower()), None)


def unnamed(projection: exp.Expr) -> exp.Expr:
    made: exp.Expr = projection.this if isinstance(projection, exp.Alias) else projection
    return made


def own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT's own expressions, without those of nested queries and of FROM."""
    for arg in ("expressions", "where", "group", "having", "qualify", "laterals"):
        for part in _list(select.args.get(arg)):
            yield from _nodes(part)
    for join in select.args.get("joins") or ():
        if join.args.get("on") is not None:
            yield from _nodes(join.args["on"])


def _nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    yield node
    if isinstance(node, exp.Select | exp.SetOperation):
        return
    for child in node.iter_expressions():
        yield from _nodes(child)


def _list(argument: object) -> list[exp.Expr]:
    if argument is None:
        return []
    return list(argument) if isinstance(argument, list) else [argument]  # type: ignore[list-item]


def group_of(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions of GROUP BY, including those of ROLLUP, CUBE and GROUPING SETS."""
    group = select.args.get("group")
    if group is None:
        return []
    found: dict[exp.Expr, None] = dict.fromkeys(group.expressions)
    for arg in ("rollup", "cube", "grouping_sets"):
        for part in group.args.get(arg) or ():
            for each in part.expressions if isinstance(part, exp.Expr) else ():
                found |= dict.fromkeys(_spread(each))
    for each in list(found):
        if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube):
            del found[each]
            for inner in each.expressions:
                found |= dict.fromkeys(_spread(inner))
    return list(found)


def _spread(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]


def window_call(node: exp.Expr) -> str | None:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else None
    return name if name in _WINDOWS else None


_JOINS: Mapping[tuple[str, str], str] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "cross",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "left semi",
    ("", "SEMI"): "left semi",
    ("LEFT", "ANTI"): "left anti",
    ("", "ANTI"): "left anti",
}


def join_kind(join: exp.Expr) -> str:
    return _JOINS.get(((join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()), "cross")


def conjuncts_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that all must hold (the operands of AND)."""
    if isinstance(condition, exp.And):
        yield from conjuncts_of(condition.this)
        yield from conjuncts_of(condition.expression)
    elif isinstance(condition, exp.Paren):
        yield from conjuncts_of(condition.this)
    else:
        yield condition


def call_text(call: exp.Expr) -> str:
    """Return a call as SQL. Its arguments are a column and literals, which generate faithfully."""
    return str(call.sql("spark"))


def over_column(text: str, column: str) -> str:
    """Return ``window(d.t, '1 hour')`` as a call over the source's own column."""
    head, _, rest = text.partition("(")
    _, comma, arguments = rest.partition(",")
    return f"{head.lower()}(`{column}`{comma}{arguments}"
