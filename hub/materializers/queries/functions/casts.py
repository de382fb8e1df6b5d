"""[core] Casts of query expressions: a failed cast gives null, as in views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from hub.materializers.queries.functions.kinds import as_text, is_exact, read_literal
from hub.materializers.queries.writer import Handler, Piece, SqlWriter, made

_CAST_KINDS: Mapping[str, str] = {
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
    kind = _CAST_KINDS.get(name)
    if kind is None or to.args.get("nested"):
        raise w.fail(
            f"no cast to {name[:40] or 'that'}",
            node,
            "casts: text, bigint, double precision, boolean, timestamp, date",
        )
    w.wants(node.this, kind)
    piece = w.expr(node.this)
    if piece.kind == "null":  # a parameter that is described before it has a value
        return Piece(piece.text, kind)
    return cast(w, piece, kind, node)


def cast(w: SqlWriter, piece: Piece, kind: str, node: Any) -> Piece:
    """Cast a value to another kind; null where the cast fails."""
    if piece.kind in (kind, "null"):
        return piece
    if kind == "string":
        return as_text(w, piece, node)
    if piece.kind == "string" and isinstance(piece.value, str):
        return read_literal(w, piece.value, kind, node)
    found = _CONVERSIONS.get(("decimal" if is_exact(piece, node.this) else piece.kind, kind))
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
    ("double", "long"): (
        "(CASE WHEN {} >= -9.2e18 AND {} <= 9.2e18 THEN CAST({} AS BIGINT) END)",
        "hub_rounded({})",
    ),
    ("decimal", "double"): ("CAST({} AS DOUBLE PRECISION)", "CAST({} AS REAL)"),
    ("decimal", "long"): (
        "(CASE WHEN abs(CAST({} AS NUMERIC)) <= 9.2e18 THEN CAST(CAST({} AS NUMERIC) AS BIGINT) END)",
        "hub_rounded_decimal({})",
    ),
    ("timestamp", "date"): (
        "CAST(floor({} / 86400000.0) AS BIGINT)",
        "(({} - ((({}) % 86400000) + 86400000) % 86400000) / 86400000)",
    ),
    ("timestamp", "long"): ("{}", "{}"),
    ("date", "timestamp"): ("({} * 86400000)", "({} * 86400000)"),
    ("date", "long"): ("{}", "{}"),
}
CASTS: Mapping[type, Handler] = {
    exp.Cast: _cast,
}
