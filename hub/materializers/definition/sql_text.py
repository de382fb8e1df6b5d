"""[core] The text of a SQL view: parsed, never generated, because a generator may lose an argument that it
does not know.

Spark gets the author's own text. Errors name line and column of the SQL and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser

from hub.errors import ConfigError
from hub.materializers.dataframes.declared_build import PythonBuild, line_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS, deep_node, deep_token
from hub.materializers.sql_rules.unsupported import unsupported

_WIDEST = 160  # most characters of a line that an error shows
SPARK = Dialect.get_or_raise("spark")


def wrong(view: SqlView, what: str, hint: str, at: int | None, code: str) -> ConfigError:
    """Return an error about the SQL, with line, column and the line of text at offset ``at``; the place is
    also in its ``details``."""
    if at is None and view.python is not None:
        first = line_of(view.python)
        where = f"{view.python.file}:{first}" if first else view.python.file
        return ConfigError(f'view "{view.name}": {what}', where=where, hint=hint, code=code)
    if at is None:
        return ConfigError(f'view "{view.name}": {what}', hint=hint, code=code)
    before = view.sql[:at]
    if view.python is not None:
        return _wrong_python(view, view.python, what, hint, code, before.count("\n"))
    line, column = before.count("\n") + 1, at - before.rfind("\n")
    text = view.sql.splitlines()[line - 1]
    cut = max(0, column - 1 - _WIDEST // 2) if len(text) > _WIDEST else 0
    text = ("…" if cut else "") + text[cut : cut + _WIDEST]
    caret = " " * (column - 1 - cut + bool(cut)) + "^"
    error = ConfigError(
        f'view "{view.name}": SQL line {line}, column {column}: {what}\n    {text}\n    {caret}',
        hint=hint,
        code=code,
    )
    error.details = {"line": str(line), "column": str(column)}
    return error


def _wrong_python(
    view: SqlView, build: PythonBuild, what: str, hint: str, code: str, sql_line: int
) -> ConfigError:
    """Return an error about a PySpark view, with the line of Python that made the line of SQL."""
    line = build.lines[sql_line] if sql_line < len(build.lines) else 0
    texts = build.text.splitlines()
    shown = f"\n    {texts[line - 1].strip()[:_WIDEST]}" if 0 < line <= len(texts) else ""
    where = f"{build.file}:{line}" if line else build.file
    error = ConfigError(f'view "{view.name}": {what}{shown}', where=where, hint=hint, code=code)
    error.details = {"file": build.file, "line": str(line)}
    return error


def start_of(node: exp.Expr | Token | None) -> int | None:
    """Return the offset of a node in the text, which is that of its first name; None if it has none."""
    if node is None:
        return None
    if isinstance(node, Token):
        return int(node.start)
    starts = [each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta]
    return min(starts, default=None)


def trees_of(sql: str, parser: Parser | None = None) -> list[exp.Expr]:
    """Parse the statements of a text in Spark SQL, with a parser of the caller's if given. Raises
    SqlglotError.
    """
    return _trees(SPARK.tokenize(sql), sql, parser)


def _trees(tokens: list[Token], sql: str, parser: Parser | None = None) -> list[exp.Expr]:
    """Parse the statements of a text that has these tokens. Raises SqlglotError.

    All parsing goes through here: sqlglot by itself takes ``GROUP BY window(…)`` for the clause ``WINDOW w AS
    (…)``.
    """
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR
    return [tree for tree in (parser or SPARK.parser()).parse(tokens, sql) if tree is not None]


def parsed_select(view: SqlView) -> tuple[list[Token], exp.Query]:
    try:
        tokens = SPARK.tokenize(view.sql)
    except SqlglotError as error:
        raise wrong(
            view, f"this is not SQL: {str(error).splitlines()[0]}", "is a quote not closed?", None, "HUB-2110"
        ) from None
    deep = deep_token(tokens)
    if deep is not None:
        raise _too_deep(view, MOST_BRACKETS, deep.start)
    other = unsupported(tokens, view=True)
    if other is not None:
        raise wrong(view, other.what, other.hint, other.start, "HUB-2112")
    try:
        trees = _trees(tokens, view.sql)
    except RecursionError:
        raise _too_deep(view, MOST_BRACKETS, None) from None
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        at = _offset(view.sql, first.get("line"), first.get("col"), first.get("highlight") or "")
        message = re.sub(r" ?(for )?<class '[^']*'>", "", str(first.get("description", "no SQL"))).rstrip(".")
        raise wrong(view, message, "a view's SQL is one SELECT in Spark SQL", at, "HUB-2110") from None
    except SqlglotError as error:
        raise wrong(view, f"no SQL: {error}"[:200], "a view's SQL is one SELECT", None, "HUB-2110") from None
    if len(trees) != 1:
        raise wrong(
            view,
            f"{len(trees)} statements",
            "a view is one SELECT; make two views of two",
            None,
            "HUB-2111",
        )
    return tokens, _one_select(view, tokens, trees[0])


def _one_select(view: SqlView, tokens: Sequence[Token], tree: exp.Expr) -> exp.Query:
    """Return the statement as a query that views can be. Raises ConfigError."""
    node = deep_node(tree)
    if node is not None:
        raise _too_deep(view, MOST_LEVELS, start_of(node))
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise wrong(
            view,
            "not a SELECT",
            "a view's SQL only reads: SELECT … FROM a source",
            tokens[0].start,
            "HUB-2111",
        )
    for node in tree.walk():
        for place_, (message, hint) in _NEVER.items():
            if isinstance(node, place_):
                raise wrong(view, message, hint, start_of(node) or start_of(node.parent), "HUB-2112")
    selects = [token for token in tokens if token.token_type == TokenType.SELECT]
    if len(selects) != len(list(tree.find_all(exp.Select))):
        raise wrong(
            view, "not in a form that the hub reads", "write SELECT … FROM … WHERE …", None, "HUB-2111"
        )
    if any(token.text == "|>" or token.token_type == TokenType.PIPE_GT for token in tokens):
        raise wrong(view, "pipe syntax is not read here", "write SELECT … FROM … WHERE …", None, "HUB-2111")
    return tree


def _too_deep(view: SqlView, most: int, start: int | None) -> ConfigError:
    return wrong(
        view,
        f"nested deeper than {most}",
        "is a bracket wrong? WITH gives parts names; a long chain of OR is shorter as IN (…)",
        start,
        "HUB-2110",
    )


def _offset(sql: str, line: int | None, col: int | None, highlight: str) -> int | None:
    """Convert sqlglot's (line, column of the last character) to the offset of the first character."""
    if line is None or col is None:
        return None
    starts = [0]
    for text in sql.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    return max(0, min(len(sql) - 1, starts[min(line, len(starts)) - 1] + col - max(1, len(highlight))))


_NEVER: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Into: ("SELECT INTO writes", "a view's rows are its topic; leave INTO out"),
    exp.TableSample: (
        "a sample gives other rows on every replay",
        "choose by value: WHERE pmod(hash(id), 100) < 10",
    ),
    exp.Pivot: ("PIVOT is not maintained", "name the columns: sum(IF(kind = 'a', amount, 0)) AS a"),
    exp.Placeholder: ("a view has no parameters", "write the value, or filter when you read the view"),
    exp.Parameter: ("a view has no parameters", "write the value, or filter when you read the view"),
    exp.Command: ("not a SELECT", "a view's SQL only reads"),
}


def with_of(node: exp.Expr) -> exp.Expr | None:
    """Return the WITH of a query."""
    expression: exp.Expr | None = node.args.get("with_")
    return expression


def in_text_order(node: exp.Expr) -> Iterator[exp.Select]:
    """Yield every SELECT in the order of the text."""
    if isinstance(node, exp.Select | exp.SetOperation):
        with_ = with_of(node)
        if with_ is not None:
            for cte in with_.expressions:
                yield from in_text_order(cte.this)
    if isinstance(node, exp.Select):
        yield node
    if isinstance(node, exp.SetOperation):
        yield from in_text_order(node.this)
        yield from in_text_order(node.expression)
        return
    first = ("expressions", "from_", "joins", "laterals", "where", "group", "having")
    children: Iterable[exp.Expr] = node.iter_expressions()
    if isinstance(node, exp.Select):
        named = [child for arg in first for child in _listed(node.args.get(arg))]
        rest = [
            child
            for child in children
            if child is not with_of(node) and not any(child is one for one in named)
        ]
        children = [*named, *rest]
    for child in children:
        yield from in_text_order(child)


def _listed(argument: Any) -> list[exp.Expr]:
    if argument is None:
        return []
    return list(argument) if isinstance(argument, list) else [argument]


def from_token(tokens: Sequence[Token], select: int) -> Token:
    """Return the FROM token of a SELECT: the first at its depth that does not belong to IS DISTINCT FROM."""
    depth = 0
    for before, token in zip(tokens[select:], tokens[select + 1 :], strict=False):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.FROM and before.token_type != TokenType.DISTINCT:
            return token
    raise AssertionError("a SELECT that was parsed with a FROM has one")
