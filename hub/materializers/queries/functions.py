"""[core] Operators and functions of query expressions: their types, and their SQL for each database.

No text of a caller is copied: a handler writes its own SQL around that of its operands, names are quoted,
texts are bound. Anything not listed here cannot reach a database. Both databases give the same answer: times
are whole milliseconds and dates whole days, as the stores keep them (stores/columns.py). A division by zero
and a failed cast give null, as in views. Texts compare by code point. NULL sorts as the greatest value, as in
Postgres.

Where SQLite lacks a function, the handler uses a ``hub_*`` function that sqlite_functions.py registers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlglot import exp

from hub.materializers.queries.parser import SqlError

Node = exp.Expr

NUMBERS = ("long", "double", "decimal")
_DAY_MS = 86_400_000
_UNITS_MS: Mapping[str, int] = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": _DAY_MS,
    "week": 7 * _DAY_MS,
}
_INTERVAL = re.compile(r"(-?\d+)\s*([a-z]+)")
# 1970-01-05 was a Monday.
_MONDAY_MS = 4 * _DAY_MS
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the compiled statement, and the kind of its value.

    ``kind``: long double decimal string boolean timestamp date bytes json, null (a bare NULL), interval
    (milliseconds). ``value``: content of a literal or parameter, so that next to a time it is read as a time.
    ``bare``: a column in it outside any aggregate. A decimal stays text until an operation computes with it.
    ``inlined``: how much longer the text gets when a database replaces a subquery's columns with their
    expressions, as both do: a chain of subqueries that each select a || a would double at every step.
    """

    text: str
    kind: str
    value: Any = None
    bare: Node | None = None
    aggregate: bool = False
    window: bool = False
    inlined: int = 0


class SqlWriter(Protocol):
    """Interface of the compiler for handlers."""

    postgres: bool
    now_ms: int

    def expr(self, node: Any) -> Piece: ...

    def bound(self, value: str) -> str:
        """Bind a text as a parameter."""

    def only(self, node: Node, *names: str) -> None:
        """Refuse the node when it has arguments other than these."""

    def fail(self, message: str, node: Any, hint: str | None = None) -> SqlError: ...


Handler = Callable[[SqlWriter, Any], Piece]


def made(text: str, kind: str, *parts: Piece) -> Piece:
    """Return a piece made of parts, with their bare columns, aggregates, windows and sizes combined."""
    bare = next((each.bare for each in parts if each.bare is not None), None)
    return Piece(
        text,
        kind,
        None,
        bare,
        any(each.aggregate for each in parts),
        any(each.window for each in parts),
        sum(each.inlined * max(1, text.count(each.text)) for each in parts if each.inlined),
    )


# ---- kinds


def epoch_ms(text: str) -> int:
    """Return the epoch milliseconds of an ISO 8601 time; UTC without a zone. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * _DAY_MS + since.seconds * 1_000 + since.microseconds // 1_000


def fitted(w: SqlWriter, piece: Piece, kind: str, node: Any) -> Piece:
    """Return the piece as a value of this kind. Raises SqlError when that needs a CAST."""
    if piece.kind == kind or piece.kind == "null":
        return as_number(w, piece) if kind == "decimal" else piece
    if piece.kind == "string" and isinstance(piece.value, str):
        return _read(w, piece.value, kind, node)
    if kind in ("double", "decimal") and piece.kind in NUMBERS:
        return as_number(w, piece)
    if (piece.kind, kind) == ("date", "timestamp"):
        return made(f"({piece.text} * {_DAY_MS})", "timestamp", piece)
    raise w.fail(
        f"a {piece.kind} where a {kind} is needed",
        node,
        "nested values: field ->> 'name' is its text" if piece.kind == "json" else "CAST(… AS …) makes one",
    )


def _read(w: SqlWriter, value: str, kind: str, node: Any) -> Piece:
    """Read a literal or parameter as the other operand's kind. Raises SqlError."""
    try:
        if kind == "timestamp":
            return Piece(_whole(w, epoch_ms(value)), kind)
        if kind == "date":
            return Piece(_whole(w, epoch_ms(value) // _DAY_MS), kind)
        if kind == "long":
            return Piece(_whole(w, int(value)), kind)
        if kind in ("double", "decimal"):
            return Piece(_floating(w, float(value)), "double")
        if kind == "boolean":
            return Piece({"true": "TRUE", "false": "FALSE"}[value.strip().lower()], kind)
    except (ValueError, KeyError, OverflowError):
        raise w.fail(
            f"'{value[:60]}' is no {kind}",
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
    if piece.kind == "null":
        return piece
    if piece.kind == "string" and isinstance(piece.value, str):
        return _read(w, piece.value, "double", node)
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
    text, kind = piece.text, piece.kind
    if kind in ("string", "null"):
        return piece
    if kind == "decimal":
        return replace(piece, kind="string")
    if kind == "boolean":
        return made(f"(CASE WHEN {text} THEN 'true' WHEN NOT {text} THEN 'false' END)", "string", piece)
    if kind == "timestamp":
        if w.postgres:
            spelled = f'to_char({_clock(text)}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\')'
        else:
            spelled = f"hub_iso({text})"
        return made(spelled, "string", piece)
    if kind == "date":
        if w.postgres:
            return made(
                f"to_char(DATE '1970-01-01' + CAST({text} AS INTEGER), 'YYYY-MM-DD')", "string", piece
            )
        return made(f"hub_iso_date({text})", "string", piece)
    if kind in ("long", "double", "json"):
        return made(f"CAST({text} AS TEXT)", "string", piece)
    raise w.fail(f"a {kind} has no text", node)


def _double(w: SqlWriter) -> str:
    return "DOUBLE PRECISION" if w.postgres else "REAL"


def _whole(w: SqlWriter, value: int) -> str:
    if not -_LARGEST <= value < _LARGEST:
        raise OverflowError
    # Postgres would type a small literal as 32 bits and overflow in products of two.
    text = str(value) if value >= 0 else f"({value})"
    return f"CAST({text} AS BIGINT)" if w.postgres else text


def _floating(w: SqlWriter, value: float) -> str:
    if not math.isfinite(value):
        raise OverflowError
    return f"CAST({value!r} AS DOUBLE PRECISION)" if w.postgres else f"CAST({value!r} AS REAL)"


def _clock(milliseconds: str) -> str:
    """Return a time as a UTC timestamp of Postgres."""
    return f"(to_timestamp({milliseconds} / 1000.0) AT TIME ZONE 'UTC')"


# ---- literals


def _literal(w: SqlWriter, node: exp.Literal) -> Piece:
    value = str(node.this)
    if node.is_string:
        return Piece(w.bound(value), "string", value)
    try:
        if value.isdecimal():
            return Piece(_whole(w, int(value)), "long")
        return Piece(_floating(w, float(value)), "double")
    except (ValueError, OverflowError):
        raise w.fail(f"{value[:40]} is no number that fits 64 bits", node) from None


def given(w: SqlWriter, value: Any, node: Any) -> Piece:
    """Return the value of a parameter as a piece."""
    if value is None:
        return Piece("NULL", "null")
    if isinstance(value, bool):
        return Piece("TRUE" if value else "FALSE", "boolean")
    try:
        if isinstance(value, int):
            return Piece(_whole(w, value), "long")
        if isinstance(value, float):
            return Piece(_floating(w, value), "double")
    except OverflowError:
        raise w.fail(f"{str(value)[:40]} does not fit 64 bits", node) from None
    return Piece(w.bound(str(value)), "string", str(value))


def _interval(w: SqlWriter, node: exp.Interval) -> Piece:
    w.only(node, "this", "unit")
    total = interval_ms(node)
    if total is None:
        raise w.fail(
            "this is no interval of one length",
            node,
            f"a text such as INTERVAL '90 minutes'; units: {', '.join(_UNITS_MS)}",
        )
    return Piece(_whole(w, total), "interval")


def interval_ms(node: exp.Interval) -> int | None:
    """Return the milliseconds of ``INTERVAL '1 day 2 hours'``; None without a fixed length (months) or a
    literal.
    """
    said, unit = node.this, node.args.get("unit")
    if not isinstance(said, exp.Literal) or len(str(said.this)) > 100:
        return None
    text = f"{said.this} {unit.name if unit is not None else ''}".strip().lower()
    total = end = 0
    for found in _INTERVAL.finditer(text):
        name = found[2].removesuffix("s")
        if text[end : found.start()].strip(" ,") or name not in _UNITS_MS:
            return None
        total, end = total + int(found[1]) * _UNITS_MS[name], found.end()
    return total if end and end == len(text) else None


# ---- operators


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
        return made(f"({left.text} * {_DAY_MS} {sign} {right.text})", "timestamp", left, right)
    return None


def _division(w: SqlWriter, node: exp.Div) -> Piece:
    left, right = number(w, node.this), number(w, node.expression)
    kind = "double" if "double" in (left.kind, right.kind) else "long"
    return made(f"({left.text} / NULLIF({right.text}, 0))", kind, left, right)


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
        words = "IS NOT DISTINCT FROM" if same else "IS DISTINCT FROM"
        if not w.postgres:
            words = "IS" if same else "IS NOT"
        return compared(w, words, node.this, node.expression, order=False)

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


def _like(*, ignore_case: bool) -> Handler:
    def handle(w: SqlWriter, node: exp.Binary) -> Piece:
        w.only(node, "this", "expression", "negate")
        return _matched(w, node, ignore_case, None)

    return handle


def _escaped(w: SqlWriter, node: exp.Escape) -> Piece:
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
        raise w.fail("ESCAPE stands behind LIKE, with one character", node)
    w.only(inner, "this", "expression", "negate")
    if len(str(node.expression.this)) != 1:
        raise w.fail("ESCAPE takes one character", node)
    return _matched(w, inner, isinstance(inner, exp.ILike), str(node.expression.this))


def _matched(w: SqlWriter, node: exp.Binary, ignore_case: bool, escape: str | None) -> Piece:
    text, pattern = w.expr(node.this), w.expr(node.expression)
    for piece, part in ((text, node.this), (pattern, node.expression)):
        if piece.kind not in ("string", "null"):
            raise w.fail(f"LIKE takes texts, this is a {piece.kind}", part)
    if w.postgres:
        # Postgres' ILIKE folds fewer characters than its lower().
        one, other = (f"lower({each.text})" if ignore_case else each.text for each in (text, pattern))
        words = f"{one} LIKE {other}"
        words += f" ESCAPE {w.bound(escape)}" if escape is not None else ""
    else:  # SQLite's LIKE takes exponential time in the wildcards and cannot be interrupted
        name = "hub_ilike" if ignore_case else "hub_like"
        mark = w.bound("\\" if escape is None else escape)
        words = f"{name}({pattern.text}, {text.text}, {mark})"
    return made(f"(NOT ({words}))" if node.args.get("negate") else f"({words})", "boolean", text, pattern)


def _joined_texts(w: SqlWriter, node: exp.DPipe) -> Piece:
    left, right = string(w, node.this), string(w, node.expression)
    return made(f"({left.text} || {right.text})", "string", left, right)


def _json(w: SqlWriter, node: exp.Binary) -> Piece:
    """Compile ``->`` and ``->>`` with a name or an index."""
    w.only(node, "this", "expression", "only_json_types")
    piece, path = w.expr(node.this), node.expression
    if piece.kind not in ("json", "null"):
        raise w.fail(f"-> looks into nested values, this is a {piece.kind}", node.this)
    if not isinstance(path, exp.JSONPath):
        raise w.fail("-> takes a name in 'quotes' or a number from 0", node)
    text = piece.text
    steps = [each for each in path.expressions if not isinstance(each, exp.JSONPathRoot)]
    if not steps:
        raise w.fail("-> takes a name in 'quotes' or a number from 0", node)
    scalar = isinstance(node, exp.JSONExtractScalar)
    for number_, step in enumerate(steps):
        last = scalar and number_ == len(steps) - 1
        text = _json_step(w, text, step, node, as_text=last)
    return made(text, "string" if scalar else "json", piece)


def _json_step(w: SqlWriter, text: str, step: Any, node: Any, *, as_text: bool) -> str:
    if isinstance(step, exp.JSONPathKey) and isinstance(step.this, str):
        if '"' in step.this or "\\" in step.this:
            raise w.fail("a name with a quotation mark or a backslash in it", node)
        postgres, sqlite = w.bound(step.this) if w.postgres else "", f'$."{step.this}"'
    elif isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, int) and step.this >= 0:
        postgres, sqlite = str(step.this), f"$[{step.this}]"
    else:
        raise w.fail("-> takes a name in 'quotes' or a number from 0", node)
    if w.postgres:
        return f"({text} {'->>' if as_text else '->'} {postgres})"
    path = w.bound(sqlite)
    if not as_text:
        return f"({text} -> {path})"
    # SQLite has no booleans: without this, true would be 1.
    kind = f"json_type({text}, {path})"
    return (
        f"(CASE {kind} WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' "
        f"ELSE CAST({text} ->> {path} AS TEXT) END)"
    )


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
    words = [f"WHEN {test.text} THEN {value.text}" for test, value in zip(tests, results, strict=False)]
    if default is not None:
        words.append(f"ELSE {results[-1].text}")
    words[:0] = [each.text for each in subject]
    return made(f"(CASE {' '.join(words)} END)", kind, *subject, *tests, *results)


# ---- casts

_CASTS: Mapping[str, str] = {
    **dict.fromkeys(("text", "varchar", "char", "nvarchar", "bpchar"), "string"),
    **dict.fromkeys(("int", "bigint", "smallint", "tinyint"), "long"),
    **dict.fromkeys(("double", "float", "decimal", "real"), "double"),
    "boolean": "boolean",
    **dict.fromkeys(("timestamp", "timestamptz", "timestampntz", "datetime"), "timestamp"),
    "date": "date",
}
_NUMERAL = r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?\s*$"
_INTEGER = r"^\s*[+-]?\d{1,18}\s*$"
_ISO = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?$"


def _cast(w: SqlWriter, node: exp.Cast) -> Piece:
    w.only(node, "this", "to")
    to = node.args["to"]
    name = getattr(to.this, "value", str(to.this)).lower() if isinstance(to, exp.DataType) else ""
    kind = _CASTS.get(name)
    if kind is None or to.args.get("nested"):
        raise w.fail(
            f"no cast to {name[:40] or 'that'}",
            node,
            "casts: text, bigint, double precision, boolean, timestamp, date",
        )
    piece = w.expr(node.this)
    return cast(w, piece, kind, node)


def cast(w: SqlWriter, piece: Piece, kind: str, node: Any) -> Piece:
    """Cast a value to another kind; null where the cast fails."""
    if piece.kind in (kind, "null"):
        return piece
    if kind == "string":
        return as_text(w, piece, node)
    if piece.kind == "string" and isinstance(piece.value, str):
        return _read(w, piece.value, kind, node)
    found = _CONVERSIONS.get((piece.kind, kind))
    if found is None:
        raise w.fail(f"a {piece.kind} cannot be made a {kind}", node)
    text = found[0 if w.postgres else 1].replace("{}", piece.text)
    return made(text, kind, piece)


def _of_text(postgres: str, pattern: str) -> str:
    return f"(CASE WHEN {{}} ~ '{pattern}' THEN {postgres} END)"


# (from, to) -> the expression in Postgres, in SQLite
_CONVERSIONS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("string", "long"): (_of_text("CAST({} AS BIGINT)", _INTEGER), "hub_whole({})"),
    ("string", "double"): (_of_text("CAST({} AS DOUBLE PRECISION)", _NUMERAL), "hub_floating({})"),
    ("string", "boolean"): (
        "(CASE lower({}) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END)",
        "(CASE lower({}) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END)",
    ),
    ("string", "timestamp"): (
        _of_text("CAST(floor(EXTRACT(EPOCH FROM CAST({} AS TIMESTAMPTZ)) * 1000) AS BIGINT)", _ISO),
        "hub_epoch_ms({})",
    ),
    ("string", "date"): (
        _of_text("CAST(floor(EXTRACT(EPOCH FROM CAST({} AS TIMESTAMPTZ)) / 86400) AS BIGINT)", _ISO),
        "hub_epoch_day({})",
    ),
    ("long", "double"): ("CAST({} AS DOUBLE PRECISION)", "CAST({} AS REAL)"),
    ("long", "boolean"): ("({} <> 0)", "({} <> 0)"),
    ("long", "timestamp"): ("{}", "{}"),
    ("boolean", "long"): ("CAST(CAST({} AS INTEGER) AS BIGINT)", "CAST({} AS INTEGER)"),
    ("double", "long"): ("CAST(trunc({}) AS BIGINT)", "CAST({} AS INTEGER)"),
    ("decimal", "double"): ("CAST({} AS DOUBLE PRECISION)", "CAST({} AS REAL)"),
    ("decimal", "long"): ("CAST(trunc(CAST({} AS NUMERIC)) AS BIGINT)", "CAST({} AS INTEGER)"),
    ("timestamp", "date"): (
        "CAST(floor({} / 86400000.0) AS BIGINT)",
        "(({} - ((({}) % 86400000) + 86400000) % 86400000) / 86400000)",
    ),
    ("timestamp", "long"): ("{}", "{}"),
    ("date", "timestamp"): ("({} * 86400000)", "({} * 86400000)"),
    ("date", "long"): ("{}", "{}"),
}


# ---- scalar functions


def _texts(name: str, *, kind: str = "string") -> Handler:
    """Return the handler of a function of one text that has the same name in both databases."""

    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this")
        piece = string(w, node.this)
        return made(f"{name}({piece.text})", kind, piece)

    return handle


def _changed_case(name: str) -> Handler:
    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this")
        piece = string(w, node.this)
        # SQLite's own functions handle ASCII only.
        return made(f"{name if w.postgres else f'hub_{name}'}({piece.text})", "string", piece)

    return handle


def _substring(w: SqlWriter, node: exp.Substring) -> Piece:
    w.only(node, "this", "start", "length")
    piece = string(w, node.this)
    start, length = node.args.get("start"), node.args.get("length")
    parts = [_count(w, each) for each in (start, length) if each is not None]
    if not parts:
        raise w.fail("substring takes a start", node)
    inner = ", ".join([piece.text, *(each.text for each in parts)])
    return made(f"substr({inner})", "string", piece, *parts)


def _count(w: SqlWriter, node: Any, least: int = 1) -> Piece:
    """Return a number of characters, at least ``least``. Databases differ on positions before the first."""
    piece = w.expr(node)
    if piece.kind != "long":
        raise w.fail(f"a whole number is needed, this is a {piece.kind}", node)
    if w.postgres:
        return made(f"CAST(greatest(least({piece.text}, 1000000), 0) AS INTEGER)", "long", piece)
    return made(f"max(min({piece.text}, 1000000), 0)", "long", piece)


def _left(w: SqlWriter, node: exp.Left) -> Piece:
    w.only(node, "this", "expression")
    piece, count = string(w, node.this), _count(w, node.expression)
    return made(f"substr({piece.text}, 1, {count.text})", "string", piece, count)


def _right(w: SqlWriter, node: exp.Right) -> Piece:
    w.only(node, "this", "expression")
    piece, count = string(w, node.this), _count(w, node.expression)
    if w.postgres:
        return made(f"right({piece.text}, {count.text})", "string", piece, count)
    skipped = f"max(length({piece.text}) - {count.text}, 0) + 1"
    return made(f"substr({piece.text}, {skipped})", "string", piece, count)


def _trim(w: SqlWriter, node: exp.Trim) -> Piece:
    w.only(node, "this", "position", "expression")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "")
    name = name or ("btrim" if w.postgres else "trim")
    pieces = [string(w, node.this)]
    if node.args.get("expression") is not None:
        pieces.append(_sought(w, node.expression))
        # SQLite's own trim compares each character with each of these.
        name = name if w.postgres else f"hub_{name}"
    return made(f"{name}({', '.join(each.text for each in pieces)})", "string", *pieces)


def _sought(w: SqlWriter, node: Any) -> Piece:
    """Return a text to search for; limited in length on SQLite, whose search is uninterruptible."""
    piece = string(w, node)
    return piece if w.postgres else made(f"hub_sought({piece.text})", "string", piece)


def _replace(w: SqlWriter, node: exp.Replace) -> Piece:
    w.only(node, "this", "expression", "replacement")
    replacement = node.args.get("replacement")
    if replacement is None:
        raise w.fail("replace takes a text, what to replace, and by what", node)
    pieces = [string(w, node.this), _sought(w, node.expression), string(w, replacement)]
    return made(f"replace({', '.join(each.text for each in pieces)})", "string", *pieces)


def _concat(w: SqlWriter, node: exp.Concat) -> Piece:
    w.only(node, "expressions", "safe", "coalesce")
    pieces = [string(w, each) for each in node.expressions]
    shown = [f"coalesce({each.text}, '')" for each in pieces]
    return made(f"({' || '.join(shown)})", "string", *pieces)


def _concat_ws(w: SqlWriter, node: exp.ConcatWs) -> Piece:
    w.only(node, "expressions", "safe", "coalesce")
    pieces = [string(w, each) for each in node.expressions]
    if not 2 <= len(pieces) <= 60:
        raise w.fail("concat_ws takes a separator and 1 to 59 values", node)
    name = "concat_ws" if w.postgres else "hub_concat_ws"
    return made(f"{name}({', '.join(each.text for each in pieces)})", "string", *pieces)


def _position(w: SqlWriter, node: exp.StrPosition) -> Piece:
    w.only(node, "this", "substr")
    text, part = string(w, node.this), _sought(w, node.args["substr"])
    name = "strpos" if w.postgres else "instr"
    return made(f"CAST({name}({text.text}, {part.text}) AS BIGINT)", "long", text, part)


def _starts_with(w: SqlWriter, node: exp.StartsWith) -> Piece:
    w.only(node, "this", "expression")
    text, part = string(w, node.this), string(w, node.expression)
    if w.postgres:
        return made(f"starts_with({text.text}, {part.text})", "boolean", text, part)
    return made(f"(substr({text.text}, 1, length({part.text})) = {part.text})", "boolean", text, part)


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
    piece, places = number(w, node.this), node.args.get("decimals")
    to = _count(w, places) if places is not None else Piece("0", "long")
    if w.postgres:
        text = f"CAST(round(CAST({piece.text} AS NUMERIC), {to.text}) AS DOUBLE PRECISION)"
        return made(text, "double", piece, to)
    return made(f"round({piece.text}, {to.text})", "double", piece, to)


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
    return Piece(_whole(w, w.now_ms), "timestamp")


def _today(w: SqlWriter, node: exp.Func) -> Piece:
    w.only(node)
    return Piece(_whole(w, w.now_ms // _DAY_MS), "date")


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
        clock = f"date_trunc('{unit}', {_clock(text)})"
        return made(f"CAST(EXTRACT(EPOCH FROM {clock}) * 1000 AS BIGINT)", "timestamp", piece)
    return made(f"hub_trunc('{unit}', {text})", "timestamp", piece)


_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second", "dow", "doy", "isodow", "week")


def _extract(w: SqlWriter, node: exp.Extract) -> Piece:
    w.only(node, "this", "expression")
    part, piece = node.this.name.lower(), _moment(w, node.expression)
    if part == "epoch":
        return made(f"({piece.text} / {_floating(w, 1000.0)})", "double", piece)
    if part not in _PARTS:
        raise w.fail(f'extract: no part "{part[:30]}"', node, f"parts: epoch, {', '.join(_PARTS)}")
    if w.postgres:
        return made(f"CAST(floor(EXTRACT({part} FROM {_clock(piece.text)})) AS BIGINT)", "long", piece)
    return made(f"hub_part('{part}', {piece.text})", "long", piece)


def _to_timestamp(w: SqlWriter, node: exp.UnixToTime) -> Piece:
    """Convert epoch seconds to a time."""
    w.only(node, "this")
    piece = number(w, node.this)
    return made(f"CAST(({piece.text} * 1000) AS BIGINT)", "timestamp", piece)


def _array_length(w: SqlWriter, node: exp.Anonymous) -> Piece:
    if len(node.expressions) != 1:
        raise w.fail("json_array_length takes one value", node)
    piece = w.expr(node.expressions[0])
    if piece.kind not in ("json", "null"):
        raise w.fail(f"json_array_length takes a nested value, this is a {piece.kind}", node)
    if w.postgres:  # Postgres fails for a value other than an array
        kind = f"json_typeof({piece.text}) = 'array'"
        text = f"(CASE WHEN {kind} THEN CAST(json_array_length({piece.text}) AS BIGINT) END)"
    else:
        text = f"(CASE WHEN json_type({piece.text}) = 'array' THEN json_array_length({piece.text}) END)"
    return made(text, "long", piece)


# ---- aggregate and window functions


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
        raise w.fail("this is no window function", node)
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
        words = [pieces[0].text]
        if offset is not None:
            if not isinstance(offset, exp.Literal) or not str(offset.this).isdecimal():
                raise w.fail(f"{name.lower()} takes how many rows as a number", node)
            words.append(str(min(int(offset.this), 1_000_000)))
        words += [each.text for each in pieces[1:]]
        return made(f"{name}({', '.join(words)}){tail}", pieces[0].kind, *pieces)

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


HANDLERS: Mapping[type, Handler] = {
    exp.Literal: _literal,
    exp.Null: lambda _w, _node: Piece("NULL", "null"),
    exp.Boolean: lambda _w, node: Piece("TRUE" if node.this else "FALSE", "boolean"),
    exp.Interval: _interval,
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
    exp.Like: _like(ignore_case=False),
    exp.ILike: _like(ignore_case=True),
    exp.Escape: _escaped,
    exp.DPipe: _joined_texts,
    exp.JSONExtract: _json,
    exp.JSONExtractScalar: _json,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.Lower: _changed_case("lower"),
    exp.Upper: _changed_case("upper"),
    exp.Length: _texts("length", kind="long"),
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Right: _right,
    exp.Trim: _trim,
    exp.Replace: _replace,
    exp.Concat: _concat,
    exp.ConcatWs: _concat_ws,
    exp.StrPosition: _position,
    exp.StartsWith: _starts_with,
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
# Functions for which the parser has no class.
NAMED: Mapping[str, Handler] = {"json_array_length": _array_length}

# For "did you mean" and for completion in the shell.
FUNCTIONS: tuple[str, ...] = (
    *(
        "abs",
        "any_value",
        "avg",
        "bool_and",
        "bool_or",
        "cast",
        "ceil",
        "char_length",
        "coalesce",
        "concat",
        "concat_ws",
    ),
    *("count", "count_if", "current_date", "current_timestamp", "date_part", "date_trunc", "dense_rank"),
    *(
        "extract",
        "first_value",
        "floor",
        "greatest",
        "json_array_length",
        "lag",
        "last_value",
        "lead",
        "least",
    ),
    *(
        "left",
        "length",
        "lower",
        "ltrim",
        "max",
        "min",
        "mod",
        "now",
        "nullif",
        "position",
        "rank",
        "replace",
    ),
    *("right", "round", "row_number", "rtrim", "sign", "starts_with", "string_agg", "strpos", "substr"),
    *("substring", "sum", "to_timestamp", "trim", "upper"),
)
