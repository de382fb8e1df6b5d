"""[core] Refuse SQL that gives another value when it is computed again, that calls out of Spark, or that
stops at one event.

A view is a function of its events: when it is rebuilt, it has the same rows. This list applies to every kind
of view; each kind reports its own error code. Function names are searched in the text, because the parser
renames some functions or takes them for columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

_CLOCK = (
    "a view is a function of its events: use an event's time column (or _timestamp, when the broker took "
    "it); compare with the clock when you read the view"
)
_CHANCE = "a view is a function of its events: derive it from them, such as hash(id)"
_ORDER = "say which one: max_by(x, time), min_by(x, time), min(x) or max(x)"
_TIES = "say which one of several that are as frequent: mode(x, true) is the least"
_CALLS_OUT = "express it in SQL"
_STOPS = "one event must not stop a view: use a condition that gives null, or WHERE"
_WHAT: Mapping[str, str] = {
    _CALLS_OUT: "calls Java, which the hub cannot check",
    _STOPS: "stops the view at one event",
}
# What to use instead, by Spark's name of the function.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "current_timestamp", "now", "current_date", "curdate", "localtimestamp", "localtime",
            "current_time", "getdate",
            "current_timezone", "unix_timestamp",
        ),
        _CLOCK,
    ),
    **dict.fromkeys(
        (
            "rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id",
            "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
            "current_user", "user", "session_user", "current_catalog", "current_database", "current_schema",
            "current_path", "version",
        ),
        _CHANCE,
    ),
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value"), _ORDER),
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), _CALLS_OUT),
    **dict.fromkeys(("raise_error", "assert_true"), _STOPS),
    **dict.fromkeys(
        ("listagg", "string_agg"),
        "sort it: array_join(sort_array(collect_set(x)), ',') in a window",
    ),
}  # fmt: skip
# _BARE: may be called without brackets. _ONLY_EMPTY: refused only without arguments (with arguments they are
# repeatable, or not Spark's).
_BARE = {
    "current_timestamp", "current_date", "localtimestamp", "current_time", "current_user", "user",
    "session_user",
    "current_catalog", "current_database", "current_schema", "current_path",
}  # fmt: skip
_ONLY_EMPTY = {"unix_timestamp", "user", "version"}
# Also possible names of columns, which Spark prefers.
_NAMES = {"user", "version", "current_path"}

# Words that Spark replaces by the current time when it converts a text to a time.
_WORD_OF_CLOCK = re.compile(r"\s*(now|today|yesterday|tomorrow)(?![a-z])", re.IGNORECASE)  # no "Nowak"
_OF_TIME = re.compile("DATE|TIME|DAY|YEAR|MONTH|HOUR|MINUTE|SECOND|QUARTER|WEEK|EXTRACT|TS_OR_DS|UNIX|WINDOW")
_COMPARES = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_IV = 4  # index of iv in aes_encrypt(text, key, mode, padding, iv); without iv it is random


@dataclass(frozen=True, slots=True)
class NondeterministicPart:
    """A refused part of SQL: ``at``, its token or node; ``what``, the problem; ``hint``, what to
    use instead."""

    at: Token | exp.Expr
    what: str
    hint: str


def refused(tokens: Sequence[Token], tree: exp.Expr) -> NondeterministicPart | None:
    """Return the first part of a SQL text (tokens and tree) that a view cannot have; None if there
    is none."""
    return next(_constants(tokens, tree), None) or next(_calls(tree), None)


def _constants(tokens: Sequence[Token], tree: exp.Expr) -> Iterator[NondeterministicPart]:
    for n, token in enumerate(tokens):
        name = token.text.lower()
        if name not in _REFUSED or token.token_type == TokenType.STRING:
            continue
        before = tokens[n - 1].token_type if n else None
        after = [each.token_type for each in tokens[n + 1 : n + 3]]
        call = after[:1] == [TokenType.L_PAREN]
        empty = after == [TokenType.L_PAREN, TokenType.R_PAREN]
        bare = (
            name in _BARE
            and token.token_type != TokenType.IDENTIFIER
            and before not in (TokenType.DOT, TokenType.ALIAS)
            and after[:1] != [TokenType.DOT]
            and not _is_column(token, tree)
        )
        if (empty if name in _ONLY_EMPTY else call) or (bare and not call):
            hint = _REFUSED[name]
            yield NondeterministicPart(token, f"`{token.text}` {_WHAT.get(hint, _ANOTHER)}", hint)


_ANOTHER = "gives another value on every replay"


def _is_column(token: Token, tree: exp.Expr) -> bool:
    """Return True if a word is a column's name (``user``), which Spark prefers to the function."""
    return token.text.lower() in _NAMES and any(
        identifier.meta.get("start") == token.start for identifier in tree.find_all(exp.Identifier)
    )


def _calls(tree: exp.Expr) -> Iterator[NondeterministicPart]:
    """Yield calls that are refused because of their arguments."""
    for node in tree.walk():
        hint = None
        if isinstance(node, exp.Mode) and not isinstance(node.parent, exp.WithinGroup):
            hint = None if node.args.get("deterministic") == exp.true() else _TIES
        elif isinstance(node, exp.Anonymous) and node.name.lower() == "aes_encrypt":
            arguments = node.expressions
            fixed = len(arguments) > _IV or (len(arguments) > 2 and arguments[2].name.upper() == "ECB")
            hint = None if fixed else "say aes_encrypt(text, key, 'ECB'), or name the vector"
        elif isinstance(node, exp.Literal) and node.is_string and _WORD_OF_CLOCK.match(node.name):
            hint = _CLOCK if _becomes_time(node) else None
        if hint is not None:
            yield NondeterministicPart(node, f"`{node.sql('spark')[:60]}` {_ANOTHER}", hint)


def _becomes_time(literal: exp.Expr) -> bool:
    parent = literal.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.is_type(*exp.DataType.TEMPORAL_TYPES)
    if isinstance(parent, exp.Func):
        name = parent.name if isinstance(parent, exp.Anonymous) else parent.sql_name()
        return _OF_TIME.search(name.upper()) is not None
    return isinstance(parent, _COMPARES)
