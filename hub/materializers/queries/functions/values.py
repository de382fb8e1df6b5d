"""[core] Functions of numbers, of values of any kind, and of times, and their SQL for both databases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from hub.materializers.queries.functions.kinds import (
    DAY_MS,
    alike,
    character_count,
    comparable,
    fitted,
    floating,
    is_exact,
    number,
    numeric,
    ordered,
    postgres_clock,
    whole,
)
from hub.materializers.queries.writer import Handler, Piece, SqlWriter, made

_UNITS_MS: Mapping[str, int] = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
}
_INTERVAL = re.compile(r"(-?\d+)\s*([a-z]+)")
# 1970-01-05 was a Monday.
_MONDAY_MS = 4 * DAY_MS


def _interval(w: SqlWriter, node: exp.Interval) -> Piece:
    w.only(node, "this", "unit")
    total = interval_ms(node)
    if total is None:
        raise w.fail(
            "the interval has no fixed length",
            node,
            f"a text such as INTERVAL '90 minutes'; units: {', '.join(_UNITS_MS)}",
        )
    return Piece(whole(w, total), "interval")


def interval_ms(node: exp.Interval) -> int | None:
    """Return the milliseconds of ``INTERVAL '1 day 2 hours'``; None without a fixed length (months) or a
    literal.
    """
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or len(str(amount.this)) > 100:
        return None
    text = f"{amount.this} {unit.name if unit is not None else ''}".strip().lower()
    total = end = 0
    for found in _INTERVAL.finditer(text):
        name = found[2].removesuffix("s")
        if text[end : found.start()].strip(" ,") or name not in _UNITS_MS:
            return None
        total, end = total + int(found[1]) * _UNITS_MS[name], found.end()
    return total if end and end == len(text) else None


def _coalesce(w: SqlWriter, node: exp.Coalesce) -> Piece:
    w.only(node, "this", "expressions")
    nodes = [node.this, *node.expressions]
    kind, pieces = alike(w, [w.expr(each) for each in nodes], nodes)
    if len(pieces) == 1:
        return pieces[0]
    return made(f"coalesce({', '.join(each.text for each in pieces)})", kind, *pieces)


def _nullif(w: SqlWriter, node: exp.Nullif) -> Piece:
    w.only(node, "this", "expression")
    kind, pieces = alike(w, [w.expr(node.this), w.expr(node.expression)], [node.this, node.expression])
    comparable(w, pieces[0], node.this)
    return made(f"nullif({pieces[0].text}, {pieces[1].text})", kind, *pieces)


def _extreme(name: str, sqlite: str) -> Handler:
    """Return the handler for the greatest or least non-null value of a row."""

    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this", "expressions", "ignore_nulls")
        nodes = [node.this, *node.expressions]
        kind, pieces = alike(w, [w.expr(each) for each in nodes], nodes)
        comparable(w, pieces[0], nodes[0])
        if len(pieces) == 1:
            return pieces[0]
        if w.postgres:
            return made(f"{name}({', '.join(ordered(w, each) for each in pieces)})", kind, *pieces)
        if len(pieces) > 8:
            raise w.fail(f"{name} of more than 8 values", node)
        rotated = [
            f"coalesce({', '.join(each.text for each in (*pieces[number:], *pieces[:number]))})"
            for number in range(len(pieces))
        ]
        return made(f"{sqlite}({', '.join(rotated)})", kind, *pieces)

    return handle


def _abs(w: SqlWriter, node: exp.Abs) -> Piece:
    w.only(node, "this")
    piece = number(w, node.this)
    return made(f"abs({piece.text})", piece.kind, piece)


def _round(w: SqlWriter, node: exp.Round) -> Piece:
    w.only(node, "this", "decimals")
    piece, places = w.expr(node.this), node.args.get("decimals")
    exact = is_exact(piece, node.this)
    piece = numeric(w, piece, node.this)
    if places is None and not exact:
        text = f"round(CAST({piece.text} AS DOUBLE PRECISION))" if w.postgres else f"hub_round({piece.text})"
        return made(text, "double", piece)
    to = Piece("0", "long") if places is None else character_count(w, places)
    if w.postgres:
        text = f"CAST(round(CAST({piece.text} AS NUMERIC), {to.text}) AS DOUBLE PRECISION)"
        return made(text, "double", piece, to)
    return made(f"hub_round_to({piece.text}, {to.text})", "double", piece, to)


def _floor(name: str) -> Handler:
    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this")
        piece = number(w, node.this)
        if piece.kind == "long":
            return piece
        return made(f"{name if w.postgres else f'hub_{name}'}({piece.text})", "double", piece)

    return handle


def _sign(w: SqlWriter, node: exp.Sign) -> Piece:
    w.only(node, "this")
    piece = number(w, node.this)
    if w.postgres:
        return made(f"CAST(sign({piece.text}) AS BIGINT)", "long", piece)
    return made(f"hub_sign({piece.text})", "long", piece)


def _now(w: SqlWriter, node: exp.Func) -> Piece:
    w.only(node)
    return Piece(whole(w, w.now_ms), "timestamp")


def _today(w: SqlWriter, node: exp.Func) -> Piece:
    w.only(node)
    return Piece(whole(w, w.now_ms // DAY_MS), "date")


def _moment(w: SqlWriter, node: Any) -> Piece:
    """Return an operand that is a time, in milliseconds."""
    piece = w.expr(node)
    return fitted(w, piece, "timestamp", node)


def _truncated(w: SqlWriter, node: exp.TimestampTrunc) -> Piece:
    w.only(node, "this", "unit")
    piece = _moment(w, node.this)
    unit = node.args["unit"].name.lower()
    text = piece.text
    if unit in _UNITS_MS:
        size, from_ = _UNITS_MS[unit], _MONDAY_MS if unit == "week" else 0
        if w.postgres:
            passed = f"MOD(MOD({text} - {from_}, {size}) + {size}, {size})"
        else:
            passed = f"((({text} - {from_}) % {size} + {size}) % {size})"
        return made(f"({text} - {passed})", "timestamp", piece)
    if unit not in ("month", "quarter", "year"):
        known = ", ".join((*_UNITS_MS, "month", "quarter", "year"))
        raise w.fail(f'date_trunc: no unit "{unit[:30]}"', node, f"units: {known}")
    if w.postgres:
        clock = f"date_trunc('{unit}', {postgres_clock(text)})"
        return made(f"CAST(EXTRACT(EPOCH FROM {clock}) * 1000 AS BIGINT)", "timestamp", piece)
    return made(f"hub_trunc('{unit}', {text})", "timestamp", piece)


_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second", "dow", "doy", "isodow", "week")


def _extract(w: SqlWriter, node: exp.Extract) -> Piece:
    w.only(node, "this", "expression")
    part, piece = node.this.name.lower(), _moment(w, node.expression)
    if part == "epoch":
        return made(f"({piece.text} / {floating(w, 1000.0)})", "double", piece)
    if part not in _PARTS:
        raise w.fail(f'extract: no part "{part[:30]}"', node, f"parts: epoch, {', '.join(_PARTS)}")
    if w.postgres:
        return made(
            f"CAST(floor(EXTRACT({part} FROM {postgres_clock(piece.text)})) AS BIGINT)", "long", piece
        )
    return made(f"hub_part('{part}', {piece.text})", "long", piece)


def _to_timestamp(w: SqlWriter, node: exp.UnixToTime) -> Piece:
    """Convert epoch seconds to a time."""
    w.only(node, "this")
    piece = number(w, node.this)
    return made(f"CAST(({piece.text} * 1000) AS BIGINT)", "timestamp", piece)


VALUES: Mapping[type, Handler] = {
    exp.Interval: _interval,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme("greatest", "max"),
    exp.Least: _extreme("least", "min"),
    exp.Abs: _abs,
    exp.Round: _round,
    exp.Floor: _floor("floor"),
    exp.Ceil: _floor("ceil"),
    exp.Sign: _sign,
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _today,
    exp.TimestampTrunc: _truncated,
    exp.Extract: _extract,
    exp.UnixToTime: _to_timestamp,
}
