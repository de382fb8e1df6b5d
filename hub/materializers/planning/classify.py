"""[core] Classify a SQL view: choose the cheapest engine that can maintain it, and give the reason.

Spark's streams never retract a row. So a query runs natively when each row it writes either stays (append) or
is replaced by a later state of the same key (update):

===========  ===========  ==============================================================================
kind         mode         queries
===========  ===========  ==============================================================================
stateless    append       filter, projection, explode, UNION ALL
aggregate    update       one aggregation by key or window; SELECT DISTINCT
session      append       a session, written when the watermark has closed it
join         append       two streams joined within an interval; a stream enriched by a static table;
                          a window over an inner interval join
incremental  none         all that must retract rows: joins of tables, aggregates over views and tables,
                          HAVING, count(DISTINCT), OVER (…), chained aggregates. The incremental engine
                          recomputes affected keys
===========  ===========  ==============================================================================

Queries that no engine can maintain are refused, with the nearest form that works. The rules follow the
behavior of Spark 4.3 (the shapes that its append and update modes accept); the reason is part of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlglot import Token, TokenType, exp

from hub.materializers.definition.sql_query import FromRelation, Query, SourceColumn, with_columns
from hub.materializers.definition.sql_view import FROM, ORIGIN, VERSION
from hub.materializers.planning import real_time
from hub.materializers.planning.classified import Classified, QueryShape
from hub.materializers.planning.query_shapes import QueryClassifier
from hub.materializers.planning.row_keys import row_key
from hub.materializers.planning.select_parts import group_of, join_kind, projected, row_select, unnamed


def classify(query: Query) -> Classified:
    """Classify a view's SQL. Raises ConfigError: HUB-2114 if no engine maintains it, HUB-2108 if ``mode:
    realtime`` cannot.
    """
    shape = QueryClassifier(query).of(query.tree)
    if query.view.mode == "realtime":
        real_time.check(query, shape.name, shape.reason, shape.nearest)
    key, key_from = row_key(query, shape)
    shape = _with_note(query, shape)
    versions = version_columns(query) if shape.name != "incremental" else {}
    sql = with_columns(query, versions) if versions else ""
    traced = with_columns(query, origin_columns(query, versions)) if shape.name == "stateless" else ""
    anew = [_UNDROPPED] if _was_dropped(query, shape) else []
    if any(_is_fine(query, query.tree, query.columns.index(name)) for name in key):
        anew.append(_FINER)
    return Classified(
        _computed_anew(query, anew),
        shape.name,
        shape.reason,
        shape.nearest,
        None if shape.name == "incremental" else "update" if shape.name == "aggregate" else "append",
        key,
        key_from,
        sql,
        shape.late,
        traced,
    )


# Comments that are added to the SQL text: a view with such a comment gets another fingerprint
# (engine/plans/fingerprints.py hashes it) and is rebuilt in parallel. The view keeps the comment for good;
# other views keep their fingerprint and continue after an upgrade.
_UNDROPPED = "-- late events of no window are rows"
_FINER = "-- a key's text has microseconds"


def _computed_anew(query: Query, why: Iterable[str]) -> Query:
    """Add comments to a query of whose text Spark now makes other rows than in earlier releases."""
    return replace(query, tokens=[*query.tokens, *(Token(TokenType.VAR, each) for each in why)])


def _was_dropped(query: Query, shape: QueryShape) -> bool:
    """Return whether Spark may have dropped events by a watermark without a window.

    True when an event time, or a column of a subquery that may be one, is in the groups.
    """
    times = _event_times(query)
    if shape.name != "aggregate" or shape.late or not times:
        return False
    assert isinstance(query.tree, exp.Select)
    select = row_select(query, query.tree)
    scope = query.scope(select)
    groups = [projected(select, each) for each in group_of(select)] or select.expressions
    for column in (column for each in groups for column in each.find_all(exp.Column)):
        found, origin = query.column(scope, column), query.origin(scope, column)
        if origin in times or (origin is None and found is not None and found[0].query is not None):
            return True
    return False


_GIVES_ONE_OF = (exp.Coalesce, exp.If, exp.Case, exp.Max, exp.Min, exp.Greatest, exp.Least)


def _is_fine(query: Query, node: exp.Expr, n: int) -> bool:
    """Return whether a query's n-th column may be an event's time finer than milliseconds, passed through."""
    if isinstance(node, exp.Subquery):
        return _is_fine(query, node.this, n)
    if isinstance(node, exp.SetOperation):
        return _is_fine(query, node.this, n) or _is_fine(query, node.expression, n)
    if not isinstance(node, exp.Select) or n >= len(node.expressions):
        return False
    made = unnamed(node.expressions[n])
    passed = [made] if isinstance(made, exp.Column) else []
    if isinstance(made, _GIVES_ONE_OF):
        passed = list(made.find_all(exp.Column))
    for relation, name in filter(None, (query.column(query.scope(node), each) for each in passed)):
        if relation.source is not None and SourceColumn(relation.source, name) in query.micros:
            return True
        below = list(relation.columns or ())
        if (
            relation.query is not None
            and name in below
            and _is_fine(query, relation.query, below.index(name))
        ):
            return True
    return False


def _event_times(query: Query) -> set[SourceColumn]:
    sources = query.view.sources.items()
    return {
        SourceColumn(name, source.event_time) for name, source in sources if source.event_time is not None
    }


def _with_note(query: Query, shape: QueryShape) -> QueryShape:
    """Add a note to a native view about the watermarks that have no effect on it."""
    late_sources = {late.source for late in shape.late}
    idle = [
        name for name, source in query.view.sources.items() if source.watermark and name not in late_sources
    ]
    if shape.name == "incremental" or shape.nearest or not idle:
        return shape
    return replace(
        shape,
        nearest=f"the watermark of {', '.join(idle)} closes nothing here: no event is "
        "late, none is forgotten",
    )


def version_columns(query: Query) -> dict[int, str]:
    """Return the expression of ``_hub_version`` by SELECT: it grows with every state of a key, equal on every
    replay.

    For an aggregate: the number of rows that are folded in. For other rows: one plus the offsets of their
    input events, so that of two rows with one key the later event's row wins, in any order of arrival.
    """
    made: dict[int, str] = {}

    def of(node: exp.Expr) -> None:
        if isinstance(node, exp.Subquery):
            of(node.this)
        elif isinstance(node, exp.SetOperation):
            of(node.this)
            of(node.expression)
        elif isinstance(node, exp.Select) and id(node) not in made:
            made[id(node)] = f"{version(node)} AS {VERSION}"

    def version(select: exp.Select) -> str:
        if group_of(select):
            return "count(1)"
        if select.args.get("distinct"):
            return "CAST(1 AS BIGINT)"
        terms = ["CAST(1 AS BIGINT)"]
        aggregated = False
        for relation in _read(query, select):
            if relation.query is not None:
                of(relation.query)
                terms.append(f"coalesce({_qualified(relation, VERSION)}, 0)")
                aggregated = aggregated or is_aggregated(query, relation.query)
            elif relation.source and query.view.sources[relation.source].read_as == "stream":
                terms.append(f"coalesce({_qualified(relation, '_offset')}, 0)")
        return " + ".join(terms[1:] if aggregated else terms)

    of(query.tree)
    return made


def origin_columns(query: Query, versions: Mapping[int, str]) -> dict[int, str]:
    """Return version and ``_hub_from`` expressions by SELECT of a stateless query: each row is made of one
    event.
    """
    made: dict[int, str] = {}
    for select in query.tree.find_all(exp.Select):
        if id(select) not in versions:
            continue
        (relation,) = _read(query, select)
        if relation.source is None:
            origin = _qualified(relation, FROM)
        else:
            named = ", ".join(f"'{name}', {_qualified(relation, f'_{name}')}" for name in ORIGIN)
            origin = f"named_struct('source', '{relation.source}', {named})"
        made[id(select)] = f"{versions[id(select)]}, {origin} AS {FROM}"
    return made


def _read(query: Query, select: exp.Select) -> Iterable[FromRelation]:
    """Yield the relations whose columns a row has: not the right side of a semi join."""
    hidden = {
        join.this.alias_or_name
        for join in select.args.get("joins") or ()
        if join_kind(join) in ("left semi", "left anti")
    }
    return [each for each in query.scope(select).relations if each.alias not in hidden]


def is_aggregated(query: Query, node: exp.Expr) -> bool:
    return isinstance(node, exp.Select) and bool(group_of(row_select(query, node)))


def _qualified(relation: FromRelation, column: str) -> str:
    return f"`{relation.alias}`.{column}" if relation.alias else column
