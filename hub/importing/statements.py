"""[core] A text as statements, and a statement as tokens: the heads of statements are read from these.

Tokens outside of quotes keep their case here. Strings are in single quotes, with ``''`` for one; names may be
in backticks or double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hub.importing.report import NotTranslated

TokenKind = Literal["word", "quoted", "string", "number", "symbol"]
_PARTS = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_@$][\w@$]*)
    |(?P<symbol>->|=>|:=|<>|!=|<=|>=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement. ``text``: of strings and quoted names without quotes; ``start`` and ``end`` are
    offsets in the statement's text."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return "" if self.kind in ("string", "quoted") else self.text.upper()


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. ``line``: where its first token is in the file, from 1."""

    text: str
    line: int
    tokens: tuple[Token, ...]


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, without comments."""
    tokens = []
    for match in _PARTS.finditer(text):
        kind, content = match.lastgroup, match.group()
        if kind == "space" or kind is None:
            continue
        if kind in ("string", "quoted"):
            content = content[1:-1].replace(content[0] * 2, content[0])
        tokens.append(Token(kind, content, match.start(), match.end()))  # type: ignore[arg-type]
    return tokens


def statements_of(text: str) -> list[Statement]:
    """Split a text at its semicolons; a text without one at its end is a statement, too."""
    found: list[Statement] = []
    held: list[Token] = []
    for token in [*tokenize(text), Token("symbol", ";", len(text), len(text))]:
        if token.kind == "symbol" and token.text == ";":
            if held:
                start, end = held[0].start, held[-1].end
                line = text.count("\n", 0, start) + 1
                part = text[start:end]
                found.append(Statement(part, line, tuple(tokenize(part))))
            held = []
        else:
            held.append(token)
    return found


def substituted(statement: Statement, variables: dict[str, str]) -> Statement:
    """Replace ``${name}`` by the values of DEFINE. Raises NotTranslated for an unknown name."""
    unknown = [name for name in _VARIABLE.findall(statement.text) if name.lower() not in variables]
    if unknown and not re.match(r"CREATE\s+(SOURCE|SINK)\s+CONNECTOR", statement.text, re.IGNORECASE):
        raise NotTranslated(
            f"the variable ${{{unknown[0]}}} is not defined", f"DEFINE {unknown[0]} = '…' before it"
        )
    text = _VARIABLE.sub(lambda found: variables.get(found[1].lower(), found[0]), statement.text)
    return Statement(text, statement.line, tuple(tokenize(text)))


class StatementReader:
    """A cursor over the tokens of a statement."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        """Return a token in upper case; "" for texts, quoted names and the end."""
        at = self.at + ahead
        return self.tokens[at].upper if at < len(self.tokens) else ""

    def take(self, *texts: str) -> bool:
        """Pass the next tokens if they are one of these phrases; return whether they were."""
        for text in texts:
            parts = text.split()
            if all(self.peek(n) == part for n, part in enumerate(parts)):
                self.at += len(parts)
                return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise NotTranslated(f'"{self.shown()}" where {text} is expected', f"write {text} there")

    def shown(self) -> str:
        return "the end" if self.ended else self.tokens[self.at].text[:40]

    def next(self) -> Token:
        if self.ended:
            raise NotTranslated("the statement ends too early", "complete it")
        self.at += 1
        return self.tokens[self.at - 1]

    def name(self) -> str:
        """Return a name: in lower case, except in quotes."""
        token = self.next()
        if token.kind not in ("word", "quoted"):
            raise NotTranslated(f'"{token.text[:40]}" where a name is expected', "write a name there")
        return token.text.lower() if token.kind == "word" else token.text

    def until(self, *stops: str, angles: bool = False) -> list[Token]:
        """Return the tokens up to one of these phrases outside of brackets, or up to the end.

        ``angles``: < and > are brackets, too.
        """
        opens, closes = ("([<", ")]>") if angles else ("([", ")]")
        found: list[Token] = []
        depth = cases = 0
        while not self.ended:
            token = self.tokens[self.at]
            if depth == 0 and cases == 0 and self._stands_at(stops):
                break
            if token.kind == "symbol":
                depth += (token.text in opens) - (token.text in closes)
                if depth < 0:
                    break
            cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
            found.append(token)
            self.at += 1
        return found

    def _stands_at(self, stops: Sequence[str]) -> bool:
        here = self.at
        found = self.take(*stops)
        self.at = here
        return found

    def lists(self, *, angles: bool = False) -> Iterator[list[Token]]:
        """Yield the parts between the commas of ``( … )``, and pass the brackets."""
        self.need("(")
        while not self.take(")"):
            yield self.until(",", angles=angles)
            if not self.take(","):
                self.need(")")
                return

    def options(self) -> dict[str, str]:
        """Return ``( name = 'value', … )``, names in lower case."""
        found = {}
        for part in self.lists():
            at = next(
                (n for n, token in enumerate(part) if token.text == "=" and token.kind == "symbol"), None
            )
            if at is None:
                raise NotTranslated("an option of WITH has no value", "write NAME = 'value'")
            name = "".join(token.text for token in part[:at])
            found[name.lower()] = "".join(token.text for token in part[at + 1 :])
        return found


def split_tokens(tokens: Sequence[Token], separator: str = ",") -> list[list[Token]]:
    """Split tokens at a symbol outside of brackets."""
    reader = StatementReader("", tokens)
    found = []
    while not reader.ended:
        found.append(reader.until(separator))
        if not reader.take(separator) and not reader.ended:
            raise NotTranslated(f'the bracket before "{reader.shown()}" is not opened', "open it")
    return found


def sql_of(tokens: Sequence[Token], text: str) -> str:
    """Return the text that tokens stand for."""
    return text[tokens[0].start : tokens[-1].end] if tokens else ""
