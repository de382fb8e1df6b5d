"""[core] Language of text queries: words, "phrases", -exclusions, prefix* and OR.

::

    query        alternative ("OR" alternative)*          one alternative must match
    alternative  (["-"] term)+                            every term must match, none with "-" may
    term         word | word"*" | '"' words '"' ["*"]

``OR`` is written in capitals. A word with signs in it, such as ``e-mail``, is a phrase of its parts. Terms
may be in different fields; a phrase is within one. Signs alone are ignored. Everything else is an error
with the way out: no query means something else than it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hub.errors import CallerError
from hub.materializers.search.words import Language, words_of

LONGEST_QUERY = 1_000
MOST_TERMS = 32
_TOKEN = re.compile(r'\s*(-?)(?:"([^"]*)"(\*?)|([^\s"]+))')
_SYNTAX = (
    'words, "a phrase", -without, prefix*, one OR another; quotes search for signs and words as they are'
)


class TextQueryError(CallerError):
    """The text of a search is not a query."""

    code = "HUB-1481"


@dataclass(frozen=True, slots=True)
class Term:
    """Words that must follow each other in one field. ``prefix``: the last one is the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """Rows that have every one of ``wanted`` and none of ``unwanted``. ``wanted`` is not empty."""

    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class TextQuery:
    """Rows that match one of the alternatives."""

    alternatives: tuple[Alternative, ...]

    @property
    def wanted(self) -> tuple[Term, ...]:
        """The terms to highlight and to rank by."""
        return tuple(dict.fromkeys(term for each in self.alternatives for term in each.wanted))


def parse_query(text: str, language: Language = "simple") -> TextQuery:
    """Return the query that a text means. Raises TextQueryError (HUB-1481)."""
    if len(text) > LONGEST_QUERY:
        raise TextQueryError(
            f"the search text has {len(text):,} characters, more than {LONGEST_QUERY:,}",
            hint="search for fewer words",
        )
    alternatives: list[Alternative] = []
    terms = 0
    for tokens in _split_at_or(list(_tokens(text))):
        signed = list(_terms(tokens, language))
        wanted = [term for excluded, term in signed if not excluded]
        unwanted = [term for excluded, term in signed if excluded]
        if not wanted:
            raise _nothing_wanted(text, bool(unwanted))
        terms += len(wanted) + len(unwanted)
        alternatives.append(Alternative(tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted))))
    if terms > MOST_TERMS:
        raise TextQueryError(
            f"the search has {terms} terms, more than {MOST_TERMS}", hint="search for fewer words"
        )
    return TextQuery(tuple(alternatives))


@dataclass(frozen=True, slots=True)
class _Token:
    negated: bool
    text: str
    quoted: bool
    prefix: bool


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            place = text.index('"', place)
            raise TextQueryError(
                f"the quote at character {place + 1} of the search has no end", hint=f"write {_SYNTAX}"
            )
        place = match.end()
        sign, phrase, after, word = match.groups()
        if phrase is not None:
            yield _Token(bool(sign), phrase, True, bool(after))
        else:
            yield _plain(sign, word)


def _plain(sign: str, word: str) -> _Token:
    if "(" in word or ")" in word:
        raise TextQueryError(
            f'"{word[:40]}": a search has no parentheses',
            hint='repeat the word in each alternative: red shoes OR red boots; or quote it: "f(x)"',
        )
    if not sign and word in ("AND", "NOT"):
        hint = "leave it out: all words must match" if word == "AND" else "write -word"
        raise TextQueryError(
            f'"{word}" is not an operator of a search', hint=f'{hint}; or quote it: "{word}"'
        )
    body = word.removesuffix("*")
    if "*" in body and words_of(body.replace("*", "")):
        raise TextQueryError(
            f'"{word[:40]}": * is at the end of a word only',
            hint="search for the beginning of the word: shi*",
        )
    return _Token(bool(sign), body, False, body != word)


def _split_at_or(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Yield the tokens of each alternative."""
    alternative: list[_Token] = []
    for token in tokens:
        if token == _OR:
            yield alternative
            alternative = []
        else:
            alternative.append(token)
    yield alternative


_OR = _Token(False, "OR", False, False)


def _terms(tokens: Sequence[_Token], language: Language) -> Iterator[tuple[bool, Term]]:
    """Yield (whether it is excluded, term) of the tokens that have a word."""
    for token in tokens:
        words = tuple(words_of(token.text, language))
        if words:
            yield token.negated, Term(words, token.prefix)


def _nothing_wanted(text: str, only_excludes: bool) -> TextQueryError:
    if only_excludes:
        return TextQueryError(
            f'the search "{text[:40]}" only excludes words', hint="add a word that rows must have: shoes -red"
        )
    return TextQueryError(
        f'the search "{text[:40]}" has no word' + (" on one side of OR" if "OR" in text.split() else ""),
        hint=f"write {_SYNTAX}",
    )
