"""[core] The class of a join: of streams within an interval, or of a stream with static tables."""

from __future__ import annotations

from sqlglot import exp

from hub.errors import ConfigError
from hub.materializers.definition.sql_query import FromRelation, Query, Scope, SourceColumn
from hub.materializers.planning.classified import LateRule, QueryShape
from hub.materializers.planning.select_parts import conjuncts_of, join_kind


def never(query: Query, node: exp.Expr, what: str, hint: str) -> ConfigError:
    return query.error(what, hint, node, "HUB-2114")


def classify_join(query: Query, joins: list[exp.Expr], scope: Scope, shapes: list[QueryShape]) -> QueryShape:
    kinds = [join_kind(join) for join in joins]
    for join, kind in zip(joins, kinds, strict=True):
        if join.args.get("method"):
            raise never(
                query,
                join,
                f"{join.args['method']} JOIN follows the columns' names, which change",
                "name them: JOIN … ON a.id = b.id",
            )
        if kind == "left anti":
            return QueryShape(
                "incremental",
                "LEFT ANTI JOIN: a row leaves when its partner comes",
                "LEFT JOIN within an interval, and WHERE b.id IS NULL when you read the view",
            )
    if any(shape.name in ("aggregate", "session", "join") for shape in shapes):
        return QueryShape(
            "incremental",
            "joins aggregated or joined rows, which change after they were joined",
            "join the events within an interval and aggregate the result",
        )
    streams = [shape for shape in shapes if not shape.static]
    if not streams:
        return QueryShape(
            "incremental", "joins static tables only, whose rows may change", "read one as a stream"
        )
    if len(streams) == 1:
        return _enriched(query, joins, kinds, shapes)
    if len(shapes) > 2:
        return QueryShape(
            "incremental",
            "joins more than two inputs: Spark determines each join's lateness by the watermark of all",
            "join two streams natively in one view, and enrich its changelog in the next",
        )
    return _interval(query, joins[0], kinds[0], scope)


def _enriched(query: Query, joins: list[exp.Expr], kinds: list[str], shapes: list[QueryShape]) -> QueryShape:
    if shapes[0].static:
        return QueryShape(
            "incremental",
            "begins with the static table: its rows without an event would have to go when one comes",
            "begin with the stream: FROM events LEFT JOIN names",
        )
    allowed = ("inner", "left", "left semi")
    for join, kind in zip(joins, kinds, strict=True):
        if kind not in allowed:
            return QueryShape(
                "incremental",
                f"{kind.upper()} JOIN of a stream with a static table: its rows without an "
                "event would have to go",
                "LEFT JOIN the table to the stream",
            )
        if not join.args.get("on") and not join.args.get("using"):
            raise never(
                query, join, "a join without ON pairs every event with every row", "JOIN … ON a.id = b.id"
            )
    return QueryShape(
        "join",
        "each event is enriched by static tables, in their state when its batch is read; later changes of a "
        "table do not change rows that are written",
    )


def _interval(query: Query, join: exp.Expr, kind: str, scope: Scope) -> QueryShape:
    left, right = scope.relations
    times = [_event_time(query, relation) for relation in (left, right)]
    condition = join.args.get("on")
    terms = list(conjuncts_of(condition)) if condition is not None else []
    using = join.args.get("using") or []
    sides = [_sides(scope, term) for term in terms]
    equal = bool(using) or any(
        isinstance(term, exp.EQ) and both == {0, 1} for term, both in zip(terms, sides, strict=True)
    )
    if kind == "cross" or not equal:
        return QueryShape(
            "incremental",
            "joins two streams without an equality: every event with every other",
            "JOIN … ON a.id = b.id AND b.time BETWEEN a.time AND a.time + INTERVAL 1 HOUR",
        )
    if times[0] is None or times[1] is None:
        missing = [relation.alias for relation, time in zip((left, right), times, strict=True) if not time]
        return QueryShape(
            "incremental",
            f'joins two streams without a limit: "{missing[0]}" has no watermark, so none of its '
            "events can be forgotten",
            "declare event_time and watermark on both, and join within an interval of them",
        )
    bounds = _bounds(query, scope, terms, times[0], times[1])
    if len(bounds) < 2:
        return QueryShape(
            "incremental",
            "joins two streams without a limit: no interval between their event times in ON",
            f"AND {right.alias}.{times[1].column} BETWEEN {left.alias}.{times[0].column} AND "
            f"{left.alias}.{times[0].column} + INTERVAL 1 HOUR",
        )
    late = tuple(LateRule(each.source, each.column) for each in (times[0], times[1]))
    waits = (
        ""
        if kind in ("inner", "left semi")
        else "; a row without partner comes when the watermark has passed"
    )
    return QueryShape(
        "join",
        f"{kind} join of two streams within an interval of their event times: append{waits}",
        late=late,
        bounded_join=kind == "inner",
    )


def _event_time(query: Query, relation: FromRelation) -> SourceColumn | None:
    """Return the event time that a relation still has: its source's, passed through by the queries
    between.
    """
    if relation.source is not None:
        column = query.view.sources[relation.source].event_time
        return SourceColumn(relation.source, column) if column else None
    for origin in (relation.columns or {}).values():
        if origin is not None and query.view.sources[origin.source].event_time == origin.column:
            return origin
    return None


def _sides(scope: Scope, term: exp.Expr) -> set[int]:
    """Return which of the two relations a condition refers to."""
    found = set()
    for column in term.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        for n, relation in enumerate(scope.relations):
            named = len(parts) > 1 and relation.alias.lower() == parts[0].lower()
            if named or (len(parts) == 1 and relation.columns is not None and parts[0] in relation.columns):
                found.add(n)
    return found


def _bounds(
    query: Query, scope: Scope, terms: list[exp.Expr], left: SourceColumn, right: SourceColumn
) -> set[str]:
    """Return which bounds of {"from", "to"} ON sets for the right event time against the left one."""
    found: set[str] = set()

    def side(node: exp.Expr) -> set[SourceColumn]:
        return {origin for column in node.find_all(exp.Column) if (origin := query.origin(scope, column))}

    def compare(low: exp.Expr, high: exp.Expr) -> None:
        smaller, greater = side(low), side(high)
        if left in smaller and right in greater:
            found.add("from")
        if right in smaller and left in greater:
            found.add("to")

    for term in terms:
        if isinstance(term, exp.Between):
            compare(term.args["low"], term.this)
            compare(term.this, term.args["high"])
        elif isinstance(term, exp.GT | exp.GTE):
            compare(term.expression, term.this)
        elif isinstance(term, exp.LT | exp.LTE):
            compare(term.this, term.expression)
        elif isinstance(term, exp.EQ) and {left} <= side(term) and {right} <= side(term):
            found |= {"from", "to"}
    return found
