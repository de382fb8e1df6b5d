"""[core] Constructs of other streaming dialects that the hub does not have, and what to write instead.

They are found in the tokens, before a parser: it would stop at an unrelated bracket. ``MATCH_RECOGNIZE``,
Flink's window functions, ``ASOF JOIN`` and ``FOR SYSTEM_TIME AS OF``.
tests/unit/materializers/test_unsupported.py runs what each hint says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType


@dataclass(frozen=True, slots=True)
class UnsupportedConstruct:
    """A construct, its place (characters from ``start`` to ``end``), and what to write instead."""

    what: str
    hint: str
    start: int
    end: int


_NEIGHBORS = "compare neighbors: lag(x) OVER (PARTITION BY k ORDER BY t) in a subquery, and WHERE around it"
_WINDOWS = {
    "TUMBLE": "GROUP BY window(t, '10 minutes'), with event_time and watermark at the source",
    "HOP": "GROUP BY window(t, '10 minutes', '5 minutes'), with event_time and watermark at the source",
    "SESSION": "GROUP BY session_window(t, '5 minutes'), with event_time and watermark at the source",
    "CUMULATE": "it has no other form; GROUP BY window(t, '5 minutes') gives each step",
}
_AS_TABLE = "read that side as a table (table: {key: k}) and JOIN on k: its rows are as they are now"
_NEWEST = "take the newest: row_number() OVER (PARTITION BY k ORDER BY t DESC) AS n in a subquery, n = 1"
# By construct: the hint in a view, and in a query.
_HINTS = {
    "MATCH_RECOGNIZE": (_NEIGHBORS, _NEIGHBORS),
    "ASOF JOIN": (_AS_TABLE, _NEWEST),
    "FOR SYSTEM_TIME AS OF": (_AS_TABLE, ""),  # queries have it
}


def unsupported(tokens: Sequence[Token], *, view: bool) -> UnsupportedConstruct | None:
    """Return the first construct that the hub does not have, None without one. ``view``: in a view's SQL."""
    return next(_found(tokens, view), None)


def _found(tokens: Sequence[Token], view: bool) -> Iterator[UnsupportedConstruct]:
    keywords = [
        "" if each.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else each.text.upper()
        for each in tokens
    ]
    keywords += ["", ""]
    for at, token in enumerate(tokens):
        word, second, third = keywords[at : at + 3]
        if word == "MATCH_RECOGNIZE" and second == "(":
            yield _construct(word, token, view)
        elif word == "ASOF" and (second == "JOIN" or third == "JOIN"):
            yield _construct("ASOF JOIN", token, view)
        elif view and (word.startswith("FOR SYSTEM_TIME") or (word, second) == ("FOR", "SYSTEM_TIME")):
            yield _construct("FOR SYSTEM_TIME AS OF", token, view)
        elif word in _WINDOWS and second == "(" and (third == "TABLE" or word != "SESSION"):
            shown = f"{word}(TABLE …)" if third == "TABLE" else f"{word}(…)"
            hint = _WINDOWS[word]
            if not view:
                hint = "GROUP BY date_trunc('hour', t)" if word == "TUMBLE" else f"a view can: {hint}"
            yield UnsupportedConstruct(f"{shown} is not supported", hint, token.start, token.end)


def _construct(name: str, token: Token, view: bool) -> UnsupportedConstruct:
    return UnsupportedConstruct(f"{name} is not supported", _HINTS[name][not view], token.start, token.end)
