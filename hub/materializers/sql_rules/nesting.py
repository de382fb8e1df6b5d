"""[core] Limit how deep SQL nests, checked without recursion.

The parser and its tree recurse in Python; Spark's planner and each evaluation of an expression recurse in
Java. SQL that is too deep must give an error for its author, not a stack overflow.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

MOST_BRACKETS = 40
# Most levels of a view's tree. A chain such as a + b + c is as deep as it is long.
MOST_LEVELS = 250

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)


_LONGEST = 60  # most characters of a text that a message shows


def shortened(text: str) -> str:
    """Return an expression for a message, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def deep_token(tokens: Iterable[Token], most: int = MOST_BRACKETS) -> Token | None:
    """Return the first token within more than ``most`` brackets; None if there is none."""
    depth = 0
    for token in tokens:
        if token.token_type in _OPEN:
            depth += 1
        elif token.token_type in _CLOSE:
            depth = max(0, depth - 1)  # END may be a name
        if depth > most:
            return token
    return None


def deep_node(tree: exp.Expr, most: int = MOST_LEVELS) -> exp.Expr | None:
    """Return the first node more than ``most`` levels deep; None if there is none. Does not recurse."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > most:
            return node
        waiting.extend((each, depth + 1) for each in node.iter_expressions())
    return None
