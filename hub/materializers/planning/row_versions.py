"""[core] Expressions of a row's version and origin, which the hub adds to the author's text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from hub.materializers.definition.sql_query import FromRelation, Query
from hub.materializers.definition.sql_view import FROM, ORIGIN, VERSION
from hub.materializers.planning.select_parts import group_of, join_kind, row_select


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
