"""[core] Parse a caller's statement within limits; errors point at the place in its text.

sqlglot only reads. ``compiler.py`` checks the tree and writes every word that a database gets. The parser
recurses in Python, so nesting is limited before it runs (brackets) and after it (the tree); a chain that
recurses in another way (``NOT NOT NOT …``) ends as RecursionError, which becomes a refusal. The parser also
backtracks: ``t JOIN t JOIN t …`` takes a time that doubles with each word, so its steps are counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from hub.errors import CallerError
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, deep_token
from hub.materializers.sql_rules.unsupported import unsupported

MOST_CHARACTERS = 20_000
MOST_TOKENS = 4_000
MOST_TREE_DEPTH = 100
MOST_NODES = 8_000

_DIALECT = "postgres"
_WIDEST = 160


# A plain statement takes about two steps per word.
_STEPS_A_WORD, _MORE_STEPS = 30, 3_000


class _OutOfSteps(Exception):
    """The parser exceeded its limit of steps."""


class _Parser(PostgresParser):
    # In f(a -> 1) the arrow is JSON access, not a lambda.
    LAMBDAS: ClassVar[dict[Any, Any]] = {}
    steps = 0
    most_steps = _MORE_STEPS

    def _advance(self, times: int = 1) -> None:
        self.steps += 1
        if self.steps > self.most_steps:
            raise _OutOfSteps
        super()._advance(times)


class SqlError(CallerError):
    """Error of a statement. ``line`` and ``column`` count from 1; ``caret`` shows the place."""

    code = "HUB-1440"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        line: int | None = None,
        column: int | None = None,
        caret: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.line = line
        self.column = column
        self.caret = caret


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One SELECT (or a UNION of them), its source text, and the tokens of the text where they are known."""

    text: str
    tree: exp.Query
    tokens: Sequence[Token] = field(default=(), repr=False, compare=False)

    def error(
        self,
        message: str,
        node: exp.Expr | None = None,
        *,
        hint: str | None = None,
        code: str | None = None,
    ) -> SqlError:
        """Return an error about a part of the statement."""
        start, end = place_of(node) if node is not None else (None, None)
        return error_at(self.text, message, start, end, hint=hint, code=code)

    def parameter_error(self, name: str, message: str, *, hint: str, code: str) -> SqlError:
        """Return an error about a parameter, located by name: the parser does not keep its place."""
        tokens = tokens_of(self.text)
        for colon, word in pairwise(tokens):
            if colon.token_type == TokenType.COLON and word.text == name:
                return error_at(self.text, message, colon.start, word.end, hint=hint, code=code)
        return error_at(self.text, message, None, hint=hint, code=code)


def error_at(
    text: str,
    message: str,
    start: int | None,
    end: int | None = None,
    *,
    hint: str | None = None,
    code: str | None = None,
) -> SqlError:
    """Return an error about the characters ``start`` to ``end`` (inclusive) of the text.

    >>> error_at("SELECT nmae", 'no column "nmae"', 7, 10).caret
    'SELECT nmae\\n       ^^^^'
    """
    if start is None or not 0 <= start <= len(text):
        return SqlError(message, hint=hint, code=code)
    begin = text.rfind("\n", 0, start) + 1
    line, column = text.count("\n", 0, start) + 1, start - begin + 1
    stop = text.find("\n", start)
    shown = text[begin : stop if stop >= 0 else len(text)].replace("\t", " ").rstrip("\r")
    length = max(1, min((end if end is not None else start) + 1, begin + len(shown)) - start)
    cut = max(0, column - 1 - _WIDEST // 2)
    shown = ("…" if cut else "") + shown[cut : cut + _WIDEST]
    pointer = " " * (column - 1 - cut + bool(cut)) + "^" * min(length, _WIDEST // 2)
    return SqlError(
        f"line {line}, column {column}: {message}",
        hint=hint,
        code=code,
        line=line,
        column=column,
        caret=f"{shown}\n{pointer}",
    )


def place_of(node: exp.Expr) -> tuple[int | None, int | None]:
    """Return the first and last character of a node, or of its parts if it has no place of its own."""
    if "start" in node.meta:
        return int(node.meta["start"]), int(node.meta["end"])
    spans = [(each.meta["start"], each.meta["end"]) for each in node.walk() if "start" in each.meta]
    return (min(spans)[0], max(end for _, end in spans)) if spans else (None, None)


def parse(text: str) -> ParsedStatement:
    """Parse the one query in a text. Raises SqlError: too long, too deep, no query, several, or a syntax
    error.
    """
    if len(text) > MOST_CHARACTERS:
        raise SqlError(
            f"the statement has {len(text)} characters, {MOST_CHARACTERS} are allowed",
            hint="pass long values as parameters",
            code="HUB-1441",
        )
    if "\0" in text:
        raise error_at(text, "a NUL character", text.index("\0"), code="HUB-1442")
    tokens = tokens_of(text)
    _check(text, tokens)
    parser = _Parser(dialect=_DIALECT)
    parser.most_steps = _STEPS_A_WORD * len(tokens) + _MORE_STEPS
    try:
        expressions = parser.parse(tokens, text)
    except _OutOfSteps:
        raise SqlError(
            "the statement is too tangled to be read",
            hint="give each JOIN its ON or USING; use WITH instead of nested brackets",
            code="HUB-1441",
        ) from None
    except ParseError as error:
        raise _not_understood(text, error) from None
    except RecursionError:
        raise _too_deep(text, None) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise SqlError(f"the statement is not understood: {str(error)[:200]}", code="HUB-1442") from None
    trees = [each for each in expressions if each is not None and not isinstance(each, exp.Semicolon)]
    if len(trees) != 1:
        raise SqlError("one statement at a time", code="HUB-1443")
    tree = trees[0]
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        raise error_at(text, "only SELECT is answered here", 0, code="HUB-1443")
    _within_limits(text, tree)
    return ParsedStatement(text, tree, tokens)


def placeholders_in(tree: exp.Expr) -> list[str]:
    """Return the names of the parameters in the tree, each once."""
    found = [str(each.this) for each in tree.find_all(exp.Placeholder) if each.this]
    return list(dict.fromkeys(found))


def is_complete(text: str) -> bool:
    """Return whether the text ends with a semicolon outside literals, names and comments."""
    try:
        tokens = sqlglot.tokenize(text[: MOST_CHARACTERS + 1], dialect=_DIALECT)
    except SqlglotError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON


def statements(text: str) -> list[str]:
    """Split a script at its semicolons. Raises SqlError for an unterminated text."""
    found, start = [], 0
    for token in tokens_of(text):
        if token.token_type == TokenType.SEMICOLON:
            found.append(text[start : token.start])
            start = token.end + 1
    return [each.strip() for each in (*found, text[start:]) if _has_tokens(each)]


def _has_tokens(text: str) -> bool:
    return bool(text.strip()) and bool(sqlglot.tokenize(text, dialect=_DIALECT))


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text. Raises SqlError for an unterminated text, name or comment."""
    try:
        return list(sqlglot.tokenize(text, dialect=_DIALECT))
    except (SqlglotError, RecursionError, ValueError, IndexError):
        raise SqlError(
            "the statement is not understood: a quotation mark or a comment is not closed",
            hint="texts are in 'single', names in \"double\" quotation marks",
            code="HUB-1442",
        ) from None


_NAME_SHOWN = re.compile(r"[\w.$-]{1,249}")
_LITERALS = frozenset(each for each in TokenType if each.name.endswith(("STRING", "NUMBER")))


def without_literals(text: str, tokens: Sequence[Token] = ()) -> str:
    """Return a statement with ``?`` for each literal, and without comments, for logs. A quoted name with
    characters that names rarely have becomes ``?`` too: values are at times written in the wrong quotes.
    ``tokens``: of the text, if they are known.

    >>> without_literals("SELECT email FROM v WHERE id = 'C-1' AND n > 5 -- of Ann")
    'SELECT email FROM v WHERE id = ? AND n > ?'
    """
    try:
        tokens = tokens or tokens_of(text[:MOST_CHARACTERS])
    except SqlError:
        return "?"
    pieces = []
    for token in tokens:
        quoted = token.token_type == TokenType.IDENTIFIER
        hidden = token.token_type in _LITERALS or (quoted and not _NAME_SHOWN.fullmatch(token.text))
        pieces.append("?" if hidden else text[token.start : token.end + 1])
    return " ".join(pieces)


def _check(text: str, tokens: list[Token]) -> None:
    """Check size, depth, kind and number of statements before the parser recurses."""
    if not tokens:
        raise SqlError("the statement is empty", code="HUB-1443")
    if len(tokens) > MOST_TOKENS:
        raise SqlError(f"the statement has {len(tokens)} tokens, {MOST_TOKENS} are allowed", code="HUB-1441")
    _refuse_push(text, tokens)
    first = next((each for each in tokens if each.token_type != TokenType.L_PAREN), tokens[0])
    if first.token_type not in (TokenType.SELECT, TokenType.WITH):
        raise error_at(
            text,
            f'a query begins with SELECT or WITH, not with "{first.text[:40]}"',
            first.start,
            first.end,
            hint="views are read-only here: events change them",
            code="HUB-1443",
        )
    deep = deep_token(tokens)
    if deep is not None:
        raise _too_deep(text, deep.start)
    other = unsupported(tokens, view=False)
    if other is not None:
        raise error_at(text, other.what, other.start, other.end, hint=other.hint, code="HUB-1470")
    for number, token in enumerate(tokens):
        if token.token_type == TokenType.SEMICOLON and any(
            each.token_type != TokenType.SEMICOLON for each in tokens[number:]
        ):
            raise error_at(
                text, "one statement at a time", token.start, hint="end at the semicolon", code="HUB-1443"
            )


def _refuse_push(text: str, tokens: list[Token]) -> None:
    """Raise SqlError for a query that is answered without end, and name where it is."""
    emits = next(
        (one for one, two in pairwise(tokens) if (one.text.upper(), two.text.upper()) == ("EMIT", "CHANGES")),
        tokens[0] if tokens[0].text.upper() == "SUBSCRIBE" else None,
    )
    if emits is not None and emits.token_type == TokenType.VAR:
        raise error_at(
            text,
            f"{emits.text[:10].upper()} makes this a push query, which is answered without end",
            emits.start,
            emits.end,
            hint="GET /query/changes?sql=…, `hub sql`, or COPY (…) TO STDOUT by Postgres' protocol",
            code="HUB-1465",
        )


def _too_deep(text: str, start: int | None) -> SqlError:
    return error_at(
        text,
        "the statement nests too deep",
        start,
        hint=f"{MOST_BRACKETS} levels of brackets; say long chains of OR as IN (…), or use WITH",
        code="HUB-1441",
    )


def _within_limits(text: str, tree: exp.Expr) -> None:
    """Check depth and size of the tree, without recursion."""
    waiting, nodes = [(tree, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > MOST_TREE_DEPTH or nodes > MOST_NODES:
            raise _too_deep(text, node.meta.get("start"))
        waiting.extend((each, depth + 1) for each in node.iter_expressions())


def _not_understood(text: str, error: ParseError) -> SqlError:
    details = error.errors[0] if error.errors else {}
    message = str(details.get("description") or error).split(" for <class")[0].split("\n")[0][:200]
    word = str(details.get("highlight") or "")
    message = message.replace("Invalid expression / Unexpected token", "this is not expected here")
    line, column = details.get("line"), details.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return SqlError(f"the statement is not understood: {message}", code="HUB-1442")
    begin = 0
    for _ in range(line - 1):
        begin = text.find("\n", begin) + 1
    end = begin + column - 1  # the parser's column is the end of the word
    shown = f'"{word}": {message}' if word else message
    return error_at(text, shown, max(begin, end - len(word) + 1), end, code="HUB-1442")
