"""[core] Functions of texts and nested values, LIKE, and the SQL of each for both databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from hub.materializers.queries.functions.kinds import character_count, string
from hub.materializers.queries.writer import Handler, Piece, SqlWriter, made


def _like(*, ignore_case: bool) -> Handler:
    def handle(w: SqlWriter, node: exp.Binary) -> Piece:
        w.only(node, "this", "expression", "negate")
        return _matched(w, node, ignore_case, None)

    return handle


def _escaped(w: SqlWriter, node: exp.Escape) -> Piece:
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
        raise w.fail("ESCAPE follows LIKE, with one character", node)
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
        one, other = (
            changed_case(w, "lower", each.text) if ignore_case else each.text for each in (text, pattern)
        )
        condition = f"{one} LIKE {other}"
        condition += f" ESCAPE {w.bound(escape)}" if escape is not None else ""
    else:  # SQLite's LIKE takes exponential time in the wildcards and cannot be interrupted
        name = "hub_ilike" if ignore_case else "hub_like"
        mark = w.bound("\\" if escape is None else escape)
        condition = f"{name}({pattern.text}, {text.text}, {mark})"
    return made(
        f"(NOT ({condition}))" if node.args.get("negate") else f"({condition})", "boolean", text, pattern
    )


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


def _texts(name: str, *, kind: str = "string") -> Handler:
    """Return the handler of a function of one text that has the same name in both databases."""

    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this")
        piece = string(w, node.this)
        return made(f"{name}({piece.text})", kind, piece)

    return handle


def changed_case(w: SqlWriter, name: str, text: str) -> str:
    """Return SQL for ``lower`` or ``upper`` of all of Unicode's letters: SQLite's own handle ASCII only, as
    Postgres' do in the collation of a store's columns.
    """
    return f'({name}({text} COLLATE "und-x-icu") COLLATE "C")' if w.postgres else f"hub_{name}({text})"


def _changed_case(name: str) -> Handler:
    def handle(w: SqlWriter, node: exp.Func) -> Piece:
        w.only(node, "this")
        piece = string(w, node.this)
        return made(changed_case(w, name, piece.text), "string", piece)

    return handle


def _substring(w: SqlWriter, node: exp.Substring) -> Piece:
    w.only(node, "this", "start", "length")
    piece = string(w, node.this)
    start, length = node.args.get("start"), node.args.get("length")
    if start is None:
        raise w.fail("substring takes a start", node)
    parts = [character_count(w, start)]
    if length is not None:
        parts.append(character_count(w, length, 0))
    # SQLite's own counts a start below 1 from the end.
    name = "substr" if w.postgres or isinstance(start, exp.Literal) else "hub_substr"
    return made(f"{name}({', '.join(each.text for each in (piece, *parts))})", "string", piece, *parts)


def _left(w: SqlWriter, node: exp.Left) -> Piece:
    w.only(node, "this", "expression")
    piece, count = string(w, node.this), character_count(w, node.expression)
    if w.postgres or not isinstance(node.expression, exp.Literal):
        return made(
            f"{'left' if w.postgres else 'hub_left'}({piece.text}, {count.text})", "string", piece, count
        )
    return made(f"substr({piece.text}, 1, {count.text})", "string", piece, count)


def _right(w: SqlWriter, node: exp.Right) -> Piece:
    w.only(node, "this", "expression")
    piece, count = string(w, node.this), character_count(w, node.expression)
    return made(
        f"{'right' if w.postgres else 'hub_right'}({piece.text}, {count.text})", "string", piece, count
    )


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
    name = "replace" if w.postgres else "hub_replace"
    return made(f"{name}({', '.join(each.text for each in pieces)})", "string", *pieces)


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


def array_length(w: SqlWriter, node: exp.Anonymous) -> Piece:
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


TEXTS: Mapping[type, Handler] = {
    exp.Like: _like(ignore_case=False),
    exp.ILike: _like(ignore_case=True),
    exp.Escape: _escaped,
    exp.DPipe: _joined_texts,
    exp.JSONExtract: _json,
    exp.JSONExtractScalar: _json,
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
}
