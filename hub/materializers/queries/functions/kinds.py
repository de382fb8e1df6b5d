"""[core] Kinds of values in a query: conversion to a kind that an operand needs, and literals of a kind.

Times are whole milliseconds and dates whole days, as the stores keep them (stores/columns.py). Texts compare
by code point. A decimal stays text until an operation computes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hub.materializers.queries.writer import Piece, SqlWriter, made
from hub.times import parse_iso

NUMBERS = ("long", "double", "decimal")
DAY_MS = 86_400_000
_LARGEST = 2**63


def fitted(w: SqlWriter, piece: Piece, kind: str, node: Any) -> Piece:
    """Return the piece as a value of this kind. Raises SqlError when that needs a CAST."""
    w.wants(node, kind)
    if piece.kind == kind or piece.kind == "null":
        return as_number(w, piece) if kind == "decimal" else piece
    if piece.kind == "string" and isinstance(piece.value, str):
        return read_literal(w, piece.value, kind, node)
    if kind in ("double", "decimal") and piece.kind in NUMBERS:
        return as_number(w, piece)
    if (piece.kind, kind) == ("date", "timestamp"):
        return made(f"({piece.text} * {DAY_MS})", "timestamp", piece)
    raise w.fail(
        f"a {piece.kind} where a {kind} is needed",
        node,
        "nested values: field ->> 'name' is its text" if piece.kind == "json" else "CAST(… AS …) makes one",
    )


def read_literal(w: SqlWriter, value: str, kind: str, node: Any) -> Piece:
    """Read a literal or parameter as the other operand's kind. Raises SqlError."""
    try:
        if kind == "timestamp":
            return Piece(whole(w, parse_iso(value)), kind)
        if kind == "date":
            return Piece(whole(w, parse_iso(value) // DAY_MS), kind)
        if kind == "long":
            return Piece(whole(w, int(value)), kind)
        if kind in ("double", "decimal"):
            return Piece(floating(w, float(value)), "double")
        if kind == "boolean":
            return Piece({"true": "TRUE", "false": "FALSE"}[value.strip().lower()], kind)
    except (ValueError, KeyError, OverflowError):
        raise w.fail(
            f"'{value[:60]}' is not a valid {kind}",
            node,
            "times are ISO 8601, such as '2026-01-31T12:00:00Z'" if kind in ("timestamp", "date") else None,
        ) from None
    raise w.fail(f"a text where a {kind} is needed", node)


def alike(w: SqlWriter, pieces: Sequence[Piece], nodes: Sequence[Any]) -> tuple[str, list[Piece]]:
    """Convert pieces (operands of a comparison, branches of a CASE) to one kind; return kind and pieces."""
    kinds = list(dict.fromkeys(each.kind for each in pieces if each.kind != "null" and each.value is None))
    kinds = kinds or list(dict.fromkeys(each.kind for each in pieces if each.kind != "null"))
    if not kinds:
        return "null", list(pieces)
    kind = kinds[0]
    if len(kinds) > 1:
        if all(each in NUMBERS for each in kinds):
            kind = "double"
        elif set(kinds) == {"date", "timestamp"}:
            kind = "timestamp"
        else:
            other = next(number for number, each in enumerate(pieces) if each.kind == kinds[1])
            raise w.fail(
                f"a {kinds[0]} and a {kinds[1]} do not go together",
                nodes[other],
                "CAST(… AS …) makes one the other",
            )
    found = [fitted(w, each, kind, node) for each, node in zip(pieces, nodes, strict=True)]
    return ("double" if kind == "decimal" else kind), found


def is_exact(piece: Piece, node: Any) -> bool:
    """Return whether Postgres has the value as a decimal, which rounds a half away from zero; it rounds a
    half of a double to the even number. Both are computed in floating point here.
    """
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.this
    return piece.kind == "decimal" or (piece.kind == "double" and isinstance(node, exp.Literal))


def as_number(w: SqlWriter, piece: Piece) -> Piece:
    """Return the piece for arithmetic: a decimal (stored as text) becomes floating point."""
    if piece.kind == "decimal":
        return made(f"CAST({piece.text} AS {_double(w)})", "double", piece)
    return piece


def number(w: SqlWriter, node: Any) -> Piece:
    """Return the operand as a number. Raises SqlError."""
    return numeric(w, w.expr(node), node)


def numeric(w: SqlWriter, piece: Piece, node: Any) -> Piece:
    """Return the piece as a number; see ``number``."""
    w.wants(node, "double")
    if piece.kind == "null":
        return piece
    if piece.kind == "string" and isinstance(piece.value, str):
        return read_literal(w, piece.value, "double", node)
    if piece.kind not in NUMBERS:
        raise w.fail(f"a number is needed, this is a {piece.kind}", node)
    return as_number(w, piece)


def string(w: SqlWriter, node: Any) -> Piece:
    """Return the operand as text; numbers, times and booleans are converted."""
    return as_text(w, w.expr(node), node)


def boolean(w: SqlWriter, node: Any) -> Piece:
    """Return a condition. Raises SqlError."""
    piece = w.expr(node)
    if piece.kind not in ("boolean", "null"):
        raise w.fail(f"a condition is needed, this is a {piece.kind}", node)
    return piece


def comparable(w: SqlWriter, piece: Piece, node: Any) -> Piece:
    """Raise SqlError for nested values, which have no order and no equality."""
    if piece.kind == "json":
        raise w.fail(
            "nested values cannot be compared, grouped or sorted", node, "field ->> 'name' is a text of them"
        )
    return piece


def ordered(w: SqlWriter, piece: Piece) -> str:
    """Return the piece's text for ordering: texts sort by code point in every database."""
    if piece.kind == "decimal":
        return as_number(w, piece).text
    return f'({piece.text} COLLATE "C")' if w.postgres and piece.kind == "string" else piece.text


def as_text(w: SqlWriter, piece: Piece, node: Any) -> Piece:
    """Return the piece as text; see ``string``."""
    w.wants(node, "string")
    text, kind = piece.text, piece.kind
    if kind in ("string", "null"):
        return piece
    if kind == "decimal":
        return replace(piece, kind="string")
    if kind == "boolean":
        return made(f"(CASE WHEN {text} THEN 'true' WHEN NOT {text} THEN 'false' END)", "string", piece)
    if kind == "timestamp":
        if w.postgres:
            spelled = f'to_char({postgres_clock(text)}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\')'
        else:
            spelled = f"hub_iso({text})"
        return made(spelled, "string", piece)
    if kind == "date":
        if w.postgres:
            return made(
                f"to_char(DATE '1970-01-01' + CAST({text} AS INTEGER), 'YYYY-MM-DD')", "string", piece
            )
        return made(f"hub_iso_date({text})", "string", piece)
    if kind == "double" and not w.postgres:
        return made(f"hub_float_text({text})", "string", piece)
    if kind in ("long", "double", "json"):
        return made(f"CAST({text} AS TEXT)", "string", piece)
    raise w.fail(f"a {kind} has no text", node)


def _double(w: SqlWriter) -> str:
    return "DOUBLE PRECISION" if w.postgres else "REAL"


def whole(w: SqlWriter, value: int) -> str:
    if not -_LARGEST <= value < _LARGEST:
        raise OverflowError
    # Postgres would type a small literal as 32 bits and overflow in products of two.
    text = str(value) if value >= 0 else f"({value})"
    return f"CAST({text} AS BIGINT)" if w.postgres else text


def floating(w: SqlWriter, value: float) -> str:
    if not math.isfinite(value):
        raise OverflowError
    return f"CAST({value!r} AS DOUBLE PRECISION)" if w.postgres else f"CAST({value!r} AS REAL)"


def postgres_clock(milliseconds: str) -> str:
    """Return a time as a UTC timestamp of Postgres."""
    return f"(to_timestamp({milliseconds} / 1000.0) AT TIME ZONE 'UTC')"


def given(w: SqlWriter, value: Any, node: Any) -> Piece:
    """Return the value of a parameter as a piece."""
    if value is None:
        return Piece("NULL", "null")
    if isinstance(value, bool):
        return Piece("TRUE" if value else "FALSE", "boolean")
    try:
        if isinstance(value, int):
            return Piece(whole(w, value), "long")
        if isinstance(value, float):
            return Piece(floating(w, value), "double")
    except OverflowError:
        raise w.fail(f"{str(value)[:40]} does not fit 64 bits", node) from None
    return Piece(w.bound(str(value)), "string", str(value))


def character_count(w: SqlWriter, node: Any, least: int = -1_000_000) -> Piece:
    """Return a number of characters or a position, brought to the range from ``least`` to a million."""
    piece = w.expr(node)
    if piece.kind not in ("long", "null"):
        raise w.fail(f"a whole number is needed, this is a {piece.kind}", node)
    if w.postgres:  # its greatest() and least() leave out null, so null is added again
        bounded = f"greatest(least({piece.text}, 1000000), {least}) + 0 * {piece.text}"
        return made(f"CAST({bounded} AS INTEGER)", "long", piece)
    return made(f"max(min({piece.text}, 1000000), {least})", "long", piece)
