"""[core] Expressions that hold queries or read many rows: IN, EXISTS, subqueries, aggregates and windows."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from hub.materializers.queries.clauses.ordering import order_by
from hub.materializers.queries.functions.aggregates import call
from hub.materializers.queries.functions.kinds import alike, boolean, comparable
from hub.materializers.queries.relations import CompiledQuery
from hub.materializers.queries.writer import Node, Piece, SqlWriter, made


def in_list(w: SqlWriter, node: exp.In) -> Piece:
    w.only(node, "this", "expressions", "query")
    query = node.args.get("query")
    if query is not None:
        tree = query.this if isinstance(query, exp.Subquery) else query
        inner = _nested(w, tree, node)
        kind = _single(w, inner, node)
        value = w.expr(node.this)
        _, (value, _) = alike(w, [value, Piece("", kind)], [node.this, node])
        comparable(w, value, node)
        return made(f"({value.text} IN ({inner.text}))", "boolean", value)
    nodes = [node.this, *node.expressions]
    if len(nodes) < 2:
        raise w.fail("IN takes at least one value", node)
    _, pieces = alike(w, [w.expr(each) for each in nodes], nodes)
    comparable(w, pieces[0], node.this)
    values = ", ".join(each.text for each in pieces[1:])
    return made(f"({pieces[0].text} IN ({values}))", "boolean", *pieces)


def exists(w: SqlWriter, node: exp.Exists) -> Piece:
    w.only(node, "this")
    tree = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    return Piece(f"(EXISTS ({_nested(w, tree, node).text}))", "boolean")


def scalar_subquery(w: SqlWriter, node: exp.Subquery) -> Piece:
    w.only(node, "this")
    inner = _nested(w, node.this, node)
    return Piece(f"({inner.text})", _single(w, inner, node), inlined=inner.sizes[0])


def _nested(w: SqlWriter, tree: Any, node: Node) -> CompiledQuery:
    scope = w.scope
    inner = w.query(tree, scope, scope.ctes)
    scope.weight += inner.weight
    return inner


def _single(w: SqlWriter, inner: CompiledQuery, node: Node) -> str:
    if len(inner.columns) != 1:
        raise w.fail(f"a subquery of {len(inner.columns)} columns where one value is needed", node)
    return next(iter(inner.columns.values()))


def aggregate(w: SqlWriter, node: exp.Filter) -> Piece:
    return _many_rows(w, node, None)


def windowed(w: SqlWriter, node: exp.Window) -> Piece:
    w.only(node, "this", "partition_by", "order", "spec", "over")
    if w.scope.place not in ("the select list", "ORDER BY"):
        raise w.fail(f"a window function is not allowed in {w.scope.place}", node, "take it in a subquery")
    clauses, pieces = [], []
    if node.args.get("partition_by"):
        parts = [comparable(w, w.expr(each), each) for each in node.args["partition_by"]]
        clauses.append(f"PARTITION BY {', '.join(each.text for each in parts)}")
        pieces += parts
    if node.args.get("order") is not None:
        text, parts = order_by(w, node.args["order"], w.expr)
        clauses.append(text)
        pieces += parts
    if node.args.get("spec") is not None:
        clauses.append(_frame(w, node.args["spec"]))
    if any(each.window for each in pieces):
        raise w.fail("a window function within another", node)
    return _many_rows(w, node, f" OVER ({' '.join(clauses)})", *pieces)


def _frame(w: SqlWriter, spec: exp.WindowSpec) -> str:
    w.only(spec, "kind", "start", "start_side", "end", "end_side")
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE"):
        raise w.fail("frames are ROWS or RANGE", spec)
    start = _edge(w, spec, "start")
    if spec.args.get("end") is None:
        return f"{kind} {start}"
    return f"{kind} BETWEEN {start} AND {_edge(w, spec, 'end')}"


def _edge(w: SqlWriter, spec: exp.WindowSpec, which: str) -> str:
    value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if side not in ("PRECEDING", "FOLLOWING"):
        raise w.fail("a frame goes from … PRECEDING to … FOLLOWING", spec)
    if value == "UNBOUNDED":
        return f"UNBOUNDED {side}"
    if (
        isinstance(value, exp.Literal)
        and str(value.this).isdecimal()
        and str(spec.args["kind"]).upper() == "ROWS"
    ):
        return f"{min(int(value.this), 1_000_000)} {side}"
    raise w.fail("a frame counts rows: ROWS 3 PRECEDING", spec)


def _many_rows(w: SqlWriter, node: Any, over: str | None, *extra: Piece) -> Piece:
    inner = node.this if over is not None else node
    if over is None and w.scope.place not in ("the select list", "ORDER BY", "HAVING"):
        raise w.fail(f"an aggregate is not allowed in {w.scope.place}", node, "HAVING takes them")
    tail = ""
    if isinstance(inner, exp.Filter):
        w.only(inner, "this", "expression")
        condition = boolean(w, inner.expression.this)
        if condition.aggregate or condition.window:
            raise w.fail("an aggregate within FILTER", inner)
        tail, inner = f" FILTER (WHERE {condition.text})", inner.this
    return call(w, inner, tail + (over or ""), over is not None, *extra)
