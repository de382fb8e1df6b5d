"""[core] Literals and operators of query expressions: their kinds, and their SQL for each database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from hub.materializers.queries.functions.kinds import (
    DAY_MS,
    alike,
    boolean,
    comparable,
    floating,
    number,
    numeric,
    ordered,
    whole,
)
from hub.materializers.queries.writer import Handler, Piece, SqlWriter, made


def _literal(w: SqlWriter, node: exp.Literal) -> Piece:
    value = str(node.this)
    if node.is_string:
        return Piece(w.bound(value), "string", value)
    try:
        if value.isdecimal():
            return Piece(whole(w, int(value)), "long")
        return Piece(floating(w, float(value)), "double")
    except (ValueError, OverflowError):
        raise w.fail(f"{value[:40]} is not a number that fits 64 bits", node) from None


def _arithmetic(sign: str) -> Handler:
    def handle(w: SqlWriter, node: exp.Binary) -> Piece:
        left, right = w.expr(node.this), w.expr(node.expression)
        moved = _time_arithmetic(w, sign, left, right)
        if moved is not None:
            return moved
        left, right = numeric(w, left, node.this), numeric(w, right, node.expression)
        kind = "double" if "double" in (left.kind, right.kind) else "long"
        return made(f"({left.text} {sign} {right.text})", kind, left, right)

    return handle


def _time_arithmetic(w: SqlWriter, sign: str, left: Piece, right: Piece) -> Piece | None:
    """Add and subtract times. Intervals shift times, days dates; a difference is milliseconds or days."""
    kinds = (left.kind, right.kind)
    text = f"({left.text} {sign} {right.text})"
    if sign == "-" and kinds in (("timestamp", "timestamp"), ("date", "date")):
        return made(text, "long", left, right)
    if sign in "+-" and kinds in (("timestamp", "interval"), ("interval", "interval")):
        return made(text, kinds[0], left, right)
    if sign == "+" and kinds == ("interval", "timestamp"):
        return made(text, "timestamp", left, right)
    if sign in "+-" and kinds == ("date", "long"):
        return made(text, "date", left, right)
    if sign in "+-" and kinds == ("date", "interval"):
        return made(f"({left.text} * {DAY_MS} {sign} {right.text})", "timestamp", left, right)
    return None


def _division(w: SqlWriter, node: exp.Div) -> Piece:
    left, right = number(w, node.this), number(w, node.expression)
    kind = "double" if "double" in (left.kind, right.kind) else "long"
    # In SQLite a value of a mixed CASE or UNION stays whole, and would be divided as such.
    above = f"CAST({left.text} AS REAL)" if kind == "double" and not w.postgres else left.text
    return made(f"({above} / NULLIF({right.text}, 0))", kind, left, right)


def _modulo(w: SqlWriter, node: exp.Mod) -> Piece:
    left, right = number(w, node.this), number(w, node.expression)
    if "double" in (left.kind, right.kind):
        raise w.fail("% takes whole numbers", node)
    if w.postgres:  # the driver interprets a bare %
        return made(f"MOD({left.text}, NULLIF({right.text}, 0))", "long", left, right)
    return made(f"({left.text} % NULLIF({right.text}, 0))", "long", left, right)


def _negative(w: SqlWriter, node: exp.Neg) -> Piece:
    piece = w.expr(node.this)
    if piece.kind == "interval":
        return made(f"(- {piece.text})", "interval", piece)
    piece = numeric(w, piece, node.this)
    return made(f"(- {piece.text})", piece.kind, piece)


def _connective(word: str) -> Handler:
    def handle(w: SqlWriter, node: exp.Connector) -> Piece:
        parts: list[Any] = []
        left: Any = node
        while type(left) is type(node):  # a chain is left-associative
            parts.append(left.expression)
            left = left.this
        found = [boolean(w, each) for each in (left, *reversed(parts))]
        return made(f"({f' {word} '.join(each.text for each in found)})", "boolean", *found)

    return handle


def _not(w: SqlWriter, node: exp.Not) -> Piece:
    piece = boolean(w, node.this)
    return made(f"(NOT {piece.text})", "boolean", piece)


def _paren(w: SqlWriter, node: exp.Paren) -> Piece:
    w.only(node, "this")
    return w.expr(node.this)


def _comparison(sign: str) -> Handler:
    order = sign not in ("=", "<>")

    def handle(w: SqlWriter, node: exp.Binary) -> Piece:
        w.only(node, "this", "expression")
        return compared(w, sign, node.this, node.expression, order=order)

    return handle


def compared(w: SqlWriter, sign: str, left: Any, right: Any, *, order: bool) -> Piece:
    one, other = equated(w, [left, right])
    if order:
        return made(f"({ordered(w, one)} {sign} {ordered(w, other)})", "boolean", one, other)
    return made(f"({one.text} {sign} {other.text})", "boolean", one, other)


def equated(w: SqlWriter, nodes: Sequence[Any]) -> list[Piece]:
    """Return the operands of an equality as values of one kind. Raises SqlError."""
    kind, pieces = alike(w, [w.expr(each) for each in nodes], nodes)
    comparable(w, pieces[0], nodes[0])
    if kind == "interval":
        raise w.fail("intervals are added to times, not compared", nodes[0])
    return pieces


def _distinct_from(same: bool) -> Handler:
    def handle(w: SqlWriter, node: exp.Binary) -> Piece:
        operator = "IS NOT DISTINCT FROM" if same else "IS DISTINCT FROM"
        if not w.postgres:
            operator = "IS" if same else "IS NOT"
        return compared(w, operator, node.this, node.expression, order=False)

    return handle


def _is(w: SqlWriter, node: exp.Is) -> Piece:
    w.only(node, "this", "expression", "negate")
    right, word = node.expression, "IS NOT" if node.args.get("negate") else "IS"
    if isinstance(right, exp.Null):
        piece = w.expr(node.this)
        return made(f"({piece.text} {word} NULL)", "boolean", piece)
    if isinstance(right, exp.Boolean):
        piece = boolean(w, node.this)
        return made(f"({piece.text} {word} {'TRUE' if right.this else 'FALSE'})", "boolean", piece)
    raise w.fail("IS takes NULL, TRUE or FALSE", node, "IS NOT DISTINCT FROM compares values")


def _between(w: SqlWriter, node: exp.Between) -> Piece:
    w.only(node, "this", "low", "high")
    nodes = [node.this, node.args["low"], node.args["high"]]
    _, pieces = alike(w, [w.expr(each) for each in nodes], nodes)
    comparable(w, pieces[0], node.this)
    value, low, high = (ordered(w, each) for each in pieces)
    return made(f"({value} BETWEEN {low} AND {high})", "boolean", *pieces)


def _case(w: SqlWriter, node: exp.Case) -> Piece:
    w.only(node, "this", "ifs", "default")
    ifs, default = node.args["ifs"], node.args.get("default")
    subject: list[Piece] = []
    if node.this is None:
        tests = [boolean(w, each.this) for each in ifs]
    else:  # written once, because it may be a subquery
        first, *tests = equated(w, [node.this, *(each.this for each in ifs)])
        subject = [first]
    values = [each.args["true"] for each in ifs]
    if default is not None:
        values.append(default)
    kind, results = alike(w, [w.expr(each) for each in values], values)
    branches = [f"WHEN {test.text} THEN {value.text}" for test, value in zip(tests, results, strict=False)]
    if default is not None:
        branches.append(f"ELSE {results[-1].text}")
    branches[:0] = [each.text for each in subject]
    return made(f"(CASE {' '.join(branches)} END)", kind, *subject, *tests, *results)


OPERATORS: Mapping[type, Handler] = {
    exp.Literal: _literal,
    exp.Null: lambda _w, _node: Piece("NULL", "null"),
    exp.Boolean: lambda _w, node: Piece("TRUE" if node.this else "FALSE", "boolean"),
    exp.Paren: _paren,
    exp.Neg: _negative,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _division,
    exp.Mod: _modulo,
    exp.And: _connective("AND"),
    exp.Or: _connective("OR"),
    exp.Not: _not,
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _distinct_from(True),
    exp.NullSafeNEQ: _distinct_from(False),
    exp.Is: _is,
    exp.Between: _between,
    exp.Case: _case,
}
