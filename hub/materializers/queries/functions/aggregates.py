"""[core] Aggregate and window functions of queries, and their SQL for both databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hub.materializers.queries.functions.kinds import alike, boolean, comparable, number, ordered, string
from hub.materializers.queries.writer import Piece, SqlWriter, made


def call(w: SqlWriter, node: Any, tail: str = "", over: bool = False, *extra: Piece) -> Piece:
    """Compile an aggregate, or with ``over`` a window function. ``tail``: the FILTER (…) and OVER (…) that
    follow.
    """
    found = AGGREGATES.get(type(node))
    if found is not None:
        piece = found(w, node, tail)
        if piece.aggregate and not over:
            raise w.fail("an aggregate within an aggregate", node, "take the inner one in a subquery")
        if piece.window:
            raise w.fail("a window function within an aggregate", node, "take the inner one in a subquery")
    elif over and type(node) in _WINDOWS:
        piece = _WINDOWS[type(node)](w, node, tail)
    else:
        raise w.fail("this is not a window function", node)
    parts = (piece, *extra)
    if over:
        whole = made(piece.text, piece.kind, *parts)
        return replace(whole, window=True)
    return replace(made(piece.text, piece.kind, *parts), bare=None, aggregate=True)


def _operand(w: SqlWriter, node: Any, check: Callable[[SqlWriter, Any], Piece]) -> tuple[str, Piece]:
    """Return ``DISTINCT`` or an empty text, and the one operand."""
    inner = node.this
    if isinstance(inner, exp.Distinct):
        w.only(inner, "expressions")
        if len(inner.expressions) != 1:
            raise w.fail("DISTINCT takes one value here", node)
        piece = check(w, inner.expressions[0])
        return "DISTINCT ", comparable(w, piece, inner.expressions[0])
    if inner is None:
        raise w.fail("it takes one value", node)
    return "", check(w, inner)


def _plain(w: SqlWriter, node: Any) -> Piece:
    return w.expr(node)


def _aggregate_count(w: SqlWriter, node: exp.Count, tail: str) -> Piece:
    w.only(node, "this", "big_int")
    if isinstance(node.this, exp.Star):
        w.only(node.this)
        return Piece(f"COUNT(*){tail}", "long")
    distinct, piece = _operand(w, node, _plain)
    return made(f"COUNT({distinct}{piece.text}){tail}", "long", piece)


def _aggregate_count_if(w: SqlWriter, node: exp.CountIf, tail: str) -> Piece:
    w.only(node, "this")
    piece = boolean(w, node.this)
    return made(f"COUNT(CASE WHEN {piece.text} THEN 1 END){tail}", "long", piece)


def _aggregate_sum(w: SqlWriter, node: exp.Sum, tail: str) -> Piece:
    w.only(node, "this")
    distinct, piece = _operand(w, node, number)
    text = f"SUM({distinct}{piece.text}){tail}"
    kind = "double" if piece.kind == "double" else "long"
    return made(f"CAST({text} AS BIGINT)" if w.postgres and kind == "long" else text, kind, piece)


def _aggregate_avg(w: SqlWriter, node: exp.Avg, tail: str) -> Piece:
    w.only(node, "this")
    distinct, piece = _operand(w, node, number)
    text = f"AVG({distinct}{piece.text}){tail}"
    return made(f"CAST({text} AS DOUBLE PRECISION)" if w.postgres else text, "double", piece)


def _aggregate_extreme(name: str) -> Callable[[SqlWriter, Any, str], Piece]:
    def handle(w: SqlWriter, node: Any, tail: str) -> Piece:
        w.only(node, "this")
        _, piece = _operand(w, node, _plain)
        comparable(w, piece, node)
        if w.postgres and piece.kind == "boolean":
            name_ = "bool_or" if name == "MAX" else "bool_and"
            return made(f"{name_}({piece.text}){tail}", "boolean", piece)
        kind = "double" if piece.kind == "decimal" else piece.kind
        return made(f"{name}({ordered(w, piece)}){tail}", kind, piece)

    return handle


def _aggregate_logical(name: str) -> Callable[[SqlWriter, Any, str], Piece]:
    def handle(w: SqlWriter, node: Any, tail: str) -> Piece:
        w.only(node, "this")
        piece = boolean(w, node.this)
        if w.postgres:
            return made(f"{name}({piece.text}){tail}", "boolean", piece)
        return made(f"{'MAX' if name == 'bool_or' else 'MIN'}({piece.text}){tail}", "boolean", piece)

    return handle


def _aggregate_texts(w: SqlWriter, node: exp.GroupConcat, tail: str) -> Piece:
    w.only(node, "this", "separator")
    if isinstance(node.this, exp.Order | exp.Distinct):
        raise w.fail("string_agg takes no ORDER BY and no DISTINCT here", node)
    piece = string(w, node.this)
    separator = node.args.get("separator")
    between = string(w, separator) if separator is not None else Piece(w.bound(","), "string")
    name = "string_agg" if w.postgres else "group_concat"
    return made(f"{name}({piece.text}, {between.text}){tail}", "string", piece, between)


def _numbering(name: str) -> Callable[[SqlWriter, Any, str], Piece]:
    def handle(w: SqlWriter, node: Any, tail: str) -> Piece:
        w.only(node)
        return Piece(f"{name}(){tail}", "long")

    return handle


def _neighbour(name: str) -> Callable[[SqlWriter, Any, str], Piece]:
    def handle(w: SqlWriter, node: Any, tail: str) -> Piece:
        w.only(node, "this", "offset", "default")
        offset, default = node.args.get("offset"), node.args.get("default")
        pieces = [w.expr(node.this)]
        if default is not None:
            _, pieces = alike(w, [pieces[0], w.expr(default)], [node.this, default])
        arguments = [pieces[0].text]
        if offset is not None:
            if not isinstance(offset, exp.Literal) or not str(offset.this).isdecimal():
                raise w.fail(f"{name.lower()} takes how many rows as a number", node)
            arguments.append(str(min(int(offset.this), 1_000_000)))
        arguments += [each.text for each in pieces[1:]]
        return made(f"{name}({', '.join(arguments)}){tail}", pieces[0].kind, *pieces)

    return handle


AGGREGATES: Mapping[type, Callable[[SqlWriter, Any, str], Piece]] = {
    exp.Count: _aggregate_count,
    exp.CountIf: _aggregate_count_if,
    exp.Sum: _aggregate_sum,
    exp.Avg: _aggregate_avg,
    exp.Min: _aggregate_extreme("MIN"),
    exp.Max: _aggregate_extreme("MAX"),
    exp.AnyValue: _aggregate_extreme("MIN"),  # deterministic in every database
    exp.LogicalOr: _aggregate_logical("bool_or"),
    exp.LogicalAnd: _aggregate_logical("bool_and"),
    exp.GroupConcat: _aggregate_texts,
}
_WINDOWS: Mapping[type, Callable[[SqlWriter, Any, str], Piece]] = {
    exp.RowNumber: _numbering("ROW_NUMBER"),
    exp.Rank: _numbering("RANK"),
    exp.DenseRank: _numbering("DENSE_RANK"),
    exp.Lag: _neighbour("LAG"),
    exp.Lead: _neighbour("LEAD"),
    exp.FirstValue: _neighbour("FIRST_VALUE"),
    exp.LastValue: _neighbour("LAST_VALUE"),
}
