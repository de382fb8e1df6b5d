"""[core] ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from hub.errors import nearest
from hub.materializers.queries.clauses.names import placeholder
from hub.materializers.queries.functions.kinds import comparable, ordered
from hub.materializers.queries.relations import CompiledQuery, named_column
from hub.materializers.queries.writer import Piece, SqlWriter


def order_by(w: SqlWriter, order: Any, key: Callable[[Any], Piece]) -> tuple[str, list[Piece]]:
    w.only(order, "expressions")
    terms, pieces = [], []
    for each in order.expressions:
        w.only(each, "this", "desc", "nulls_first")
        piece = key(each.this)
        if piece.kind == "interval":
            raise w.fail("an interval is added to a time, not sorted", each)
        comparable(w, piece, each)
        text = ordered(w, piece)
        if piece.kind == "null":
            text = "CAST(NULL AS INTEGER)"
        if not (piece.aggregate or piece.window or '"' in text):
            # A bare number would be an ordinal of the select list, and Postgres takes no other constant.
            text = f"(SELECT {text})"
        nulls = "FIRST" if each.args.get("nulls_first") else "LAST"
        terms.append(f"{text} {'DESC' if each.args.get('desc') else 'ASC'} NULLS {nulls}")
        pieces.append(piece)
    return f"ORDER BY {', '.join(terms)}", pieces


def limit_and_offset(w: SqlWriter, tree: Any) -> str:
    text = ""
    for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = tree.args.get(name)
        if clause is None:
            continue
        if not isinstance(clause, exp.Limit | exp.Offset):
            raise w.fail("say LIMIT and OFFSET", clause)
        w.only(clause, "expression")
        expression = clause.expression
        value = expression.this if isinstance(expression, exp.Literal) and not expression.is_string else None
        w.wants(expression, "long")
        if isinstance(expression, exp.Placeholder):
            placeholder(w, expression)
            value = w.parameters[str(expression.this)]
        if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) >= 2**31:
            raise w.fail(f"{word} takes a whole number", clause)
        text += f" {word} {int(str(value))}"
    if tree.args.get("offset") is not None and tree.args.get("limit") is None and not w.postgres:
        text = f" LIMIT -1{text}"
    return text


def sorted_outside(w: SqlWriter, tree: Any, inner: CompiledQuery) -> CompiledQuery:
    """Apply ORDER BY, LIMIT and OFFSET to a query that exposes output columns only (UNION, DISTINCT,
    brackets).
    """
    alias = w.alias("u")
    listed = ", ".join(f'"{alias}".{w.quoted(name)}' for name in inner.columns)
    text = f'SELECT {listed} FROM ({inner.text}) AS "{alias}"'
    if tree.args.get("order") is not None:
        order, _ = order_by(w, tree.args["order"], lambda node: _output(w, node, inner.columns, alias))
        text += f" {order}"
    return replace(inner, text=text + limit_and_offset(w, tree))


def _output(w: SqlWriter, node: Any, columns: Mapping[str, str], alias: str) -> Piece:
    names = list(columns)
    number = ordinal(node)
    if number is not None and 1 <= number <= len(names):
        name = names[number - 1]
    elif isinstance(node, exp.Column) and node.args.get("table") is None:
        found = named_column(names, node.this)
        if found is None:
            guess = nearest(node.name, names)
            raise w.unknown(f'no column "{node.name}" in the result', node, guess)
        name = found
    else:
        raise w.fail("here ORDER BY takes the result's columns: a name or a number", node)
    return Piece(f'"{alias}".{w.quoted(name)}', columns[name])


def ordinal(node: Any) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(str(node.this)[:9])
    return None


def has_order_or_limit(tree: Any) -> bool:
    return any(tree.args.get(name) is not None for name in ("order", "limit", "offset"))
