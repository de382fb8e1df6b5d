"""[core] FROM: views, topics, subqueries, and their joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.queries.clauses.names import require_readable
from hub.materializers.queries.functions.kinds import alike, boolean, comparable
from hub.materializers.queries.inspection import no_table, system_time_ms
from hub.materializers.queries.parser import placeholders_in
from hub.materializers.queries.relations import CompiledQuery, FromTable, QueryRelation, QueryScope, is_named
from hub.materializers.queries.writer import Piece, SqlWriter


def from_clause(w: SqlWriter, tree: Any, scope: QueryScope) -> str:
    from_ = tree.args.get("from_")
    if from_ is None:
        if tree.args.get("joins"):
            raise w.fail("a JOIN without a FROM", tree)
        return ""
    w.only(from_, "this")
    text = f" FROM {_table(w, from_.this, scope)}"
    for join in [*(from_.this.args.get("joins") or ()), *(tree.args.get("joins") or ())]:
        text += _join(w, join, scope)
    return text


def _join(w: SqlWriter, join: exp.Join, scope: QueryScope) -> str:
    w.only(join, "this", "side", "kind", "on", "using")
    side, kind = (str(join.args.get(each) or "").upper() for each in ("side", "kind"))
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise w.fail(f"{side} {kind} JOIN is not supported".strip(), join)
    if join.this.args.get("joins"):
        raise w.fail("a JOIN within a JOIN", join, "write one after the other, each with its ON")
    before = list(scope.sources)
    table = _table(w, join.this, scope)
    right = scope.sources[-1]
    on, using = join.args.get("on"), join.args.get("using")
    if on is None and not using:
        if side or kind not in ("", "CROSS"):
            raise w.fail("a JOIN needs ON or USING", join.this)
        return f" CROSS JOIN {table}"
    word = f"{side} JOIN" if side else "JOIN"
    if on is not None:
        scope.place = "ON"
        condition = boolean(w, on).text
        scope.place = "the select list"
        return f" {word} {table} ON {condition}"
    if side in ("RIGHT", "FULL"):
        raise w.fail(f"{side} JOIN … USING is not supported", join.this, "write ON a.x = b.x")
    return f" {word} {table} ON {_using(w, join, scope, before, right)}"


def _using(
    w: SqlWriter, join: exp.Join, scope: QueryScope, before: Sequence[FromTable], right: FromTable
) -> str:
    conditions = []
    for name in join.args["using"]:
        if not isinstance(name, exp.Identifier):
            raise w.fail("USING takes columns", join.this)
        quoted = bool(name.args.get("quoted"))
        there = right.column(name.name, quoted)
        mine = [
            (each, found)
            for each in before
            if (found := each.column(name.name, quoted)) is not None
            and (each.alias, found[0]) not in scope.joined
        ]
        if there is None or not mine:
            missing = right if there is None else before[0]
            guess = nearest(name.name, missing.columns)
            raise w.unknown(f'no column "{name.name}" in {missing.noun} {missing.name}', name, guess)
        if len(mine) > 1:
            raise w.fail(f'"{name.name}" is a column of several tables', name, "write ON a.x = b.x")
        left, (column, kind) = mine[0]
        for table, each in ((left, column), (right, there[0])):
            require_readable(w, table, each, name)
        one = Piece(f'"{left.alias}".{w.quoted(column)}', kind)
        other = Piece(f'"{right.alias}".{w.quoted(there[0])}', there[1])
        _, (one, other) = alike(w, [one, other], [name, name])
        comparable(w, one, name)
        conditions.append(f"{one.text} = {other.text}")
        scope.joined.add((right.alias, there[0]))
    return " AND ".join(conditions)


def _table(w: SqlWriter, node: Any, scope: QueryScope) -> str:
    if isinstance(node, exp.Subquery):
        return _subselect(w, node, scope)
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise w.fail("FROM takes views, topics and subqueries", node, "table functions are not supported")
    if node.args.get("db") is not None:
        raise no_table(w.statement, node.name, ())
    w.only(node, "this", "alias", "joins", "version")
    at_ms = system_time_ms(w.statement, node, w.parameters, w.now_ms)
    w.used.update(placeholders_in(node))
    cte = _cte(w, node, scope)
    if cte is not None:
        if at_ms is not None:
            raise w.fail("FOR SYSTEM_TIME AS OF is of a view", node, "write it behind the view's name")
        alias, query = cte
        scope.weight += query.weight
        sizes = dict(zip(query.columns, query.sizes, strict=True))
        return _add(w, scope, node, f'"{alias}"', "result", query.columns, {}, sizes)
    relation = _relation(w, node, at_ms)
    scope.weight += 1
    made = _add(w, scope, node, relation.source, relation.noun, relation.columns, relation.hidden, {})
    scope.sources[-1] = replace(scope.sources[-1], refused=relation.refused)
    w.bound_values.update(relation.bound)
    return made


def _cte(w: SqlWriter, node: exp.Table, scope: QueryScope) -> tuple[str, CompiledQuery] | None:
    name = node.name
    if name in scope.ctes:
        return scope.ctes[name]
    near = [each for each in scope.ctes if is_named(each, node.this)]
    return scope.ctes[near[0]] if len(near) == 1 else None


def _relation(w: SqlWriter, node: exp.Table, at_ms: int | None) -> QueryRelation:
    query_relation = w.catalog.relation(node.name, at_ms)
    if query_relation is None and not node.this.args.get("quoted"):
        query_relation = w.catalog.relation(node.name.lower(), at_ms)
    if query_relation is None:
        raise no_table(w.statement, node.name, [*w.catalog.names(), *w.scope.ctes])
    return query_relation


def _subselect(w: SqlWriter, node: exp.Subquery, scope: QueryScope) -> str:
    w.only(node, "this", "alias", "joins")
    # Not LATERAL: the subquery does not see its sibling tables, only those of the enclosing queries.
    inner = w.query(node.this, scope.parent, scope.ctes)
    w.scope = scope
    alias = node.args.get("alias")
    if alias is not None:
        columns = renamed(w, alias, inner)
        if list(columns) != list(inner.columns):
            name = w.alias("r")
            pairs = ", ".join(
                f'"{name}".{w.quoted(old)} AS {w.quoted(new)}'
                for old, new in zip(inner.columns, columns, strict=True)
            )
            inner = replace(inner, text=f'SELECT {pairs} FROM ({inner.text}) AS "{name}"', columns=columns)
    scope.weight += inner.weight
    sizes = dict(zip(inner.columns, inner.sizes, strict=True))
    return _add(w, scope, node, f"({inner.text})", "result", inner.columns, {}, sizes)


def _add(
    w: SqlWriter,
    scope: QueryScope,
    node: Any,
    source: str,
    noun: str,
    columns: Mapping[str, str],
    hidden: Mapping[str, str],
    sizes: Mapping[str, int],
) -> str:
    named = node.args.get("alias")
    if named is not None and isinstance(node, exp.Table):
        w.only(named, "this")
    name = node.alias or node.name or "subquery"
    if name != "subquery" and any(each.name == name for each in scope.sources):
        raise w.fail(f'two tables are called "{name}"', node, "give one another name: AS …")
    alias = w.alias("t")
    scope.sources.append(FromTable(alias, name, noun, columns, hidden, sizes))
    return f'{source} AS "{alias}"'


def renamed(w: SqlWriter, alias: exp.TableAlias, inner: CompiledQuery) -> dict[str, str]:
    """Return the columns of a subquery under the names that ``AS name (a, b)`` gives them."""
    w.only(alias, "this", "columns")
    names = [each.name for each in alias.args.get("columns") or ()]
    if len(names) > len(inner.columns):
        raise w.fail(f"{len(names)} names for {len(inner.columns)} columns", alias)
    if len(set(names)) != len(names):
        raise w.fail("two columns of one name", alias)
    return dict(zip([*names, *list(inner.columns)[len(names) :]], inner.columns.values(), strict=True))
