"""[core] The key of a view's rows: declared, or the expressions that make a row unique."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from hub.materializers.definition.sql_query import Query
from hub.materializers.definition.sql_text import wrong
from hub.materializers.planning.classified import QueryShape
from hub.materializers.planning.select_parts import group_of, projected, row_select, unnamed, window_call


def row_key(query: Query, shape: QueryShape) -> tuple[tuple[str, ...], str]:
    """Return (the row's key, where it comes from): declared, or the expressions that make a row unique."""
    declared = tuple(query.view.key)
    tree = query.tree
    natural: tuple[str, ...] | None = None
    of = ""
    if isinstance(tree, exp.Select):
        inner = row_select(query, tree)
        if shape.name != "incremental":
            _check_totals(query, inner)
        if group_of(inner) and inner is tree:
            parts = _parts(tree)
            names = [_names_of(query, tree, each)[:1] for each in parts]
            natural = tuple(name for name in query.columns if [name] in names) if [] not in names else None
            of = "GROUP BY"
            if natural is None and not declared:
                missing = parts[names.index([])]
                raise query.error(
                    f"`{missing.sql('spark')[:60]}` of GROUP BY is not in the SELECT list, so rows "
                    "cannot be distinguished",
                    "select it with a name, or say `key:`",
                    missing,
                    "HUB-2113",
                )
        elif tree.args.get("distinct"):
            natural, of = query.columns, "DISTINCT"
    if declared:
        if isinstance(tree, exp.Select) and shape.name != "incremental":
            _check_declared(query, inner, natural, declared)
        return declared, "declared"
    if natural is None:
        raise wrong(
            query.view,
            "its rows have no key of their own",
            "declare the columns that identify a row, such as key: [flight_id]; rows with the same "
            "key replace each other",
            None,
            "HUB-2113",
        )
    return natural, of


def _check_declared(
    query: Query, inner: exp.Select, natural: tuple[str, ...] | None, key: tuple[str, ...]
) -> None:
    """Check that the declared key has every expression that makes a row unique. Raises ConfigError
    (HUB-2113).

    Each is in the key by name, or, where it has no name, within an expression of a key column. The check does
    not look at what that expression computes.
    """
    read = _read_of(query, inner, key)
    made = [each for each in inner.expressions if each.alias_or_name in read]
    expressions = {node for each in made for node in _spelled(query, inner, each).walk()}
    lost = []
    of = "GROUP BY" if group_of(inner) else "DISTINCT"
    for each in _parts(inner) if group_of(inner) else map(unnamed, inner.expressions if natural else ()):
        names = _names_of(query, inner, each)
        is_held = bool(read.intersection(names)) if names else _spelled(query, inner, each) in expressions
        if not is_held and each.find(exp.Column, exp.GroupingId) is not None:
            lost.append(names[0] if names else each.sql("spark", normalize_functions=False)[:60])
    if lost:
        raise wrong(
            query.view,
            f"key [{', '.join(key)}]: several rows have it, for {of} makes one of each "
            f"{', '.join(sorted(lost))} as well",
            f"key: [{', '.join(natural)}], or leave it out"
            if natural is not None
            else f"select {lost[0]} with a name that is part of the key, or leave it out of GROUP BY",
            None,
            "HUB-2113",
        )


def _check_totals(query: Query, select: exp.Select) -> None:
    """Refuse totals without a ``grouping_id()``: a total and a row with a null have the same key."""
    if _has_totals(select) and not any(
        isinstance(unnamed(each), exp.GroupingId) for each in select.expressions
    ):
        raise query.error(
            "ROLLUP, CUBE and GROUPING SETS give a total and a row whose own value is null the same key",
            "distinguish them: select grouping_id() AS level, and add it to the key",
            select.args["group"],
            "HUB-2113",
        )


def _has_totals(select: exp.Select) -> bool:
    group = select.args.get("group")
    return group is not None and (
        any(group.args.get(arg) for arg in ("rollup", "cube", "grouping_sets"))
        or any(isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets) for each in group.expressions)
    )


def _parts(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions that distinguish the rows of a GROUP BY, including the grouping id of totals."""
    levels = [unnamed(each) for each in select.expressions if _has_totals(select)]
    return [
        *(projected(select, each) for each in group_of(select)),
        *(each for each in levels if isinstance(each, exp.GroupingId)),
    ]


def _read_of(query: Query, inner: exp.Select, names: Iterable[str]) -> set[str]:
    """Return the columns of the row-making SELECT from which these columns of the view are made."""
    select, read = query.tree, set(names)
    while select is not inner:
        scope = query.scope(select)
        (relation,) = scope.relations
        assert isinstance(relation.query, exp.Select)
        below = dict(zip(relation.columns or (), relation.query.expressions, strict=False))
        made = [each for each in select.expressions if each.alias_or_name in read]
        columns = {query.path(scope, column)[1:2] for each in made for column in each.find_all(exp.Column)}
        read = {below[name].alias_or_name for one in columns for name in one if name in below}
        select = relation.query
    return read


def _spelled(query: Query, select: exp.Select, of: exp.Expr) -> exp.Expr:
    """Return an expression with qualified columns (``e.id`` is ``id``) and ``window.end`` as the call's."""
    scope = query.scope(select)
    calls = {name: each for each in group_of(select) if (name := window_call(each)) is not None}

    def whole(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table in calls:
            return exp.Dot(this=_spelled(query, select, calls[node.table]), expression=node.this)
        return exp.column(".".join(query.path(scope, node)))

    return of.copy().transform(whole)


def _names_of(query: Query, select: exp.Select, part: exp.Expr) -> list[str]:
    """Return the SELECT list's names of a part of GROUP BY; for a window, of its start, its end or itself."""
    wanted = _spelled(query, select, part)
    found = []
    for projection in select.expressions:
        made = _spelled(query, select, unnamed(projection))
        if window_call(part) and isinstance(made, exp.Dot) and made.expression.name in ("start", "end"):
            made = made.this
        if made == wanted:
            found.append(str(projection.alias_or_name))
    return found
