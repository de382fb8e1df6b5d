"""[core] Parse a push query: one SELECT over one table, followed by ``EMIT CHANGES [FROM …] [LIMIT n]``.

``SUBSCRIBE [TO] name`` and ``SUBSCRIBE [TO] (SELECT …) [WITH (SNAPSHOT = false)]``, Materialize's form, mean
the same. The clause is blanked out of the text and the rest is parsed as every query is, so errors keep their
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from hub.materializers.queries.parser import ParsedStatement, SqlError, error_at, parse, tokens_of
from hub.times import parse_iso

CODE = "HUB-1465"
KEY_COLUMN = "_hub_key"
# "now", "beginning", or a time in epoch milliseconds.
Start = Literal["now", "beginning"] | int
_VIEW_HINT = "CREATE MATERIALIZED VIEW keeps such a result; then SELECT … FROM that view EMIT CHANGES"


@dataclass(frozen=True, slots=True)
class PushStatement:
    """A push query. ``limit``: it ends after this number of rows; None: it does not end."""

    statement: ParsedStatement
    table: str
    start: Start
    limit: int | None


def push_statement(text: str) -> PushStatement | None:
    """Parse a push query; None for any other statement. Raises SqlError for a push query that is refused."""
    tokens = [each for each in tokens_of(text) if each.token_type != TokenType.SEMICOLON]
    words = [each.text.upper() for each in tokens]
    if words[:1] == ["SUBSCRIBE"]:
        return _subscribe(text, tokens, words)
    for at in range(len(words) - 1, 0, -1):
        if words[at - 1] == "EMIT" and words[at] == "CHANGES" and tokens[at - 1].token_type == TokenType.VAR:
            start, limit = _options(text, tokens[at + 1 :])
            return _checked(text, _blanked(text, tokens[at - 1].start, len(text)), start, limit)
        if words[at - 1] == "EMIT" and words[at] == "FINAL" and tokens[at - 1].token_type == TokenType.VAR:
            raise _refused(
                text,
                "EMIT FINAL is not supported here",
                tokens[at - 1],
                "a view with a watermark emits each window once: docs/reference/sql-views.md",
            )
    return None


def _options(text: str, rest: Sequence[Token]) -> tuple[Start, int | None]:
    """Return the start and the limit behind EMIT CHANGES."""
    start: Start = "now"
    limit: int | None = None
    at = 0
    while at < len(rest):
        word = rest[at].text.upper()
        value = rest[at + 1] if at + 1 < len(rest) else None
        if value is None or word not in ("FROM", "LIMIT"):
            raise _refused(
                text,
                f'"{rest[at].text[:40]}" is not expected behind EMIT CHANGES',
                rest[at],
                "EMIT CHANGES [FROM BEGINNING | FROM NOW | FROM '2026-01-31T12:00:00Z'] [LIMIT n]",
            )
        if word == "FROM":
            start = _start(text, value)
        else:
            limit = _limit(text, value)
        at += 2
    return start, limit


def _start(text: str, token: Token) -> Start:
    word = token.text.lower()
    if word in ("beginning", "now") and token.token_type != TokenType.STRING:
        return "beginning" if word == "beginning" else "now"
    try:
        return parse_iso(token.text)
    except ValueError:
        raise _refused(
            text, f'FROM "{token.text[:40]}" is not a time', token, "FROM BEGINNING, FROM NOW, or ISO 8601"
        ) from None


def _limit(text: str, token: Token) -> int:
    if not token.text.isdigit() or not 1 <= len(token.text) <= 9 or int(token.text) == 0:
        raise _refused(text, f'LIMIT "{token.text[:40]}" is not a number of rows', token, "LIMIT 10")
    return int(token.text)


def _subscribe(text: str, tokens: Sequence[Token], words: Sequence[str]) -> PushStatement:
    at = 2 if words[1:2] == ["TO"] else 1
    start: Start = "beginning"
    end = len(tokens)
    if "WITH" in words and (found := len(words) - 1 - words[::-1].index("WITH")) > at:
        option = "".join(words[found + 1 :])
        if option in ("(SNAPSHOT=FALSE)", "(SNAPSHOTFALSE)", "(SNAPSHOT)", "(SNAPSHOT=TRUE)"):
            start, end = ("now" if "FALSE" in option else "beginning"), found
    if at >= end:
        raise _refused(text, "SUBSCRIBE names no table", tokens[0], "SUBSCRIBE TO customer_360")
    first, last = tokens[at], tokens[end - 1]
    if first.token_type == TokenType.L_PAREN and last.token_type == TokenType.R_PAREN:
        inner = _blanked(_blanked(text, last.start, len(text)), 0, first.end + 1)
        return _checked(text, inner, start, None)
    name = text[first.start : last.end + 1]
    return _checked(text, f"SELECT * FROM {name}", start, None)


def _checked(text: str, query: str, start: Start, limit: int | None) -> PushStatement:
    statement = ParsedStatement(text, parse(query).tree)
    tree: Any = statement.tree
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        raise statement.error("a push query is one SELECT, without UNION", tree, hint=_VIEW_HINT, code=CODE)
    statement = ParsedStatement(text, tree)
    for name, what in _STATEFUL.items():
        if clause := tree.args.get(name):
            node = clause[0] if isinstance(clause, list) else clause
            raise statement.error(
                f"{what} in a push query", node, hint=_HINTS.get(name, _VIEW_HINT), code=CODE
            )
    for node in tree.find_all(exp.AggFunc, exp.Window, exp.Query):
        if node is not tree:
            raise statement.error(f"{_named(node)} in a push query", node, hint=_VIEW_HINT, code=CODE)
    from_ = tree.args.get("from_")
    table = from_.this if from_ is not None else None
    if not isinstance(table, exp.Table) or table.args.get("joins"):
        raise statement.error(
            "a push query reads one topic or one view", table or tree, hint=_VIEW_HINT, code=CODE
        )
    return PushStatement(statement, table.name, start, limit)


_STATEFUL = {
    "joins": "JOIN",
    "group": "GROUP BY",
    "having": "HAVING",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "limit": "LIMIT before EMIT CHANGES",
    "offset": "OFFSET",
    "with_": "WITH",
}
_HINTS = {
    "limit": "write it at the end: EMIT CHANGES LIMIT 10",
    "order": "changes arrive in the order of the log: leave ORDER BY out",
}


def _named(node: exp.Expr) -> str:
    if isinstance(node, exp.Query):
        return "a subquery"
    if isinstance(node, exp.Window):
        return "OVER"
    return f"the aggregate {node.key}()"


def with_keys(push: PushStatement, keys: Sequence[str]) -> ParsedStatement:
    """Return the query over these keys of a view only, with each row's key as the last column."""
    tree = push.statement.tree.copy()
    assert isinstance(tree, exp.Select)
    tree = tree.where(exp.column("key").isin(*(exp.Literal.string(key) for key in keys)), copy=False)
    tree = tree.select(exp.alias_(exp.column("key"), KEY_COLUMN, quoted=True), copy=False)
    return ParsedStatement(push.statement.text, tree)


def _blanked(text: str, start: int, end: int) -> str:
    """Return the text with spaces from ``start`` to ``end``, so that other places stay.

    >>> _blanked("a b c", 2, 3)
    'a   c'
    """
    hidden = "".join(each if each == "\n" else " " for each in text[start:end])
    return text[:start] + hidden + text[end:]


def _refused(text: str, message: str, token: Token, hint: str) -> SqlError:
    return error_at(text, message, token.start, token.end, hint=hint, code=CODE)
