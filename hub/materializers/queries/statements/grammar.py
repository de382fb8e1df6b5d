"""[core] Parse a statement about views and topics. Everything that is none of these is left to the parser of
queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from hub.materializers.definition.sql_text import SPARK
from hub.materializers.queries.parser import MOST_CHARACTERS, SqlError, error_at

CODE = "HUB-1466"
_FIRST = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)(?:\s+([A-Za-z]+))?", re.DOTALL)
_FIRST_WORDS = frozenset(("create", "drop", "alter", "refresh", "show", "describe", "desc", "explain"))
_VIEW_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
LISTS = ("views", "topics", "queries", "tables")
_FORM = "CREATE [OR REPLACE] MATERIALIZED VIEW name [KEY (columns)] [WITH (option = 'value')] AS SELECT …"


@dataclass(frozen=True, slots=True)
class CreateView:
    """``sql``: the SELECT in Spark SQL. ``options``: of the view, or of a source as ``source.option``."""

    name: str
    sql: str
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowList:
    """``what`` is one of ``LISTS``. ``like``: a pattern of LIKE."""

    what: str
    like: str | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    name: str


@dataclass(frozen=True, slots=True)
class DescribeTable:
    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """``of`` is a change, which is then not made, or the text of a query."""

    of: CreateView | DropView | str


HubStatement = CreateView | DropView | ShowList | ShowCreate | DescribeTable | Explain


_BEGINS = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:create\s+(?:or\s+replace\s+)?materialized|drop\s+(?:materialized\s+)?view"
    r"|describe|desc|explain|show\s+(?:views|topics|queries|tables|materialized|columns|create))\b",
    re.IGNORECASE | re.DOTALL,
)


def begins_statement(text: str) -> bool:
    """Return whether the text begins as a statement about views and topics does, right or wrong.

    >>> begins_statement("show views"), begins_statement("SHOW search_path")
    (True, False)
    """
    return _BEGINS.match(text) is not None


def hub_statement(text: str) -> HubStatement | None:
    """Parse a statement about views and topics; None for any other text. Raises SqlError."""
    match = _FIRST.match(text)
    if match is None or match[1].lower() not in _FIRST_WORDS or len(text) > MOST_CHARACTERS:
        return None
    try:
        # Behind a bracket, because the tokenizer reads what begins with SHOW or EXPLAIN as one text.
        tokens = SPARK.tokenize(f"({text}")[1:]
    except SqlglotError:
        return None  # the parser of queries has the error
    reader = _Reader(text, [each for each in tokens if each.token_type != TokenType.SEMICOLON])
    word = reader.word().lower()
    if word == "explain":
        return _explain(reader)
    return _plain(reader, word)


def _plain(reader: _Reader, word: str) -> HubStatement | None:
    match word:
        case "create":
            return _create(reader)
        case "drop":
            return _drop(reader)
        case "show":
            return _show(reader)
        case "describe" | "desc":
            reader.take("TABLE", "VIEW")
            return DescribeTable(reader.last_name("a view or a topic"))
        case "alter":
            raise reader.refused(
                "ALTER is not supported", "CREATE OR REPLACE MATERIALIZED VIEW changes a view"
            )
        case "refresh":
            raise reader.refused("REFRESH is not needed: views follow their events by themselves", None)
        case _:
            return None


class _Reader:
    """Reads the tokens of a statement from left to right. Places of tokens count the bracket before it."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def word(self) -> str:
        """Return the next token's text, "" at the end."""
        self.at += 1
        return self.tokens[self.at - 1].text if self.at <= len(self.tokens) else ""

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text.upper() if at < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Pass the next token if it is one of the words; return whether it was."""
        found = self.peek() in words
        self.at += found
        return found

    def phrase(self, text: str) -> bool:
        """Pass all of these words, or none."""
        words = text.split()
        found = all(self.peek(n) == each for n, each in enumerate(words))
        self.at += len(words) if found else 0
        return found

    def need(self, word: str, form: str) -> None:
        if not self.take(word):
            raise self.refused(f'"{self.peek()[:40] or "the end"}" where {word} is expected', form)

    def name(self, what: str) -> str:
        """Return a name, which may be quoted, or have dots."""
        parts = [self.word()]
        while self.take("."):
            parts.append(self.word())
        name = ".".join(parts)
        if not name.strip("."):
            raise self.refused(f"the name of {what} is missing", None)
        return name

    def last_name(self, what: str) -> str:
        name = self.name(what)
        self.end()
        return name

    def view_name(self) -> str:
        name = self.name("a view").lower()
        if not _VIEW_NAME.fullmatch(name):
            raise self.refused(
                f'"{name[:80]}" cannot be the name of a view',
                "lower-case letters, digits and _, such as customer_360",
                back=1,
            )
        return name

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.refused(f'"{self.tokens[self.at].text[:40]}" is not expected here', None)

    def refused(self, message: str, hint: str | None, back: int = 0) -> SqlError:
        at = min(max(0, self.at - back), len(self.tokens) - 1)
        token = self.tokens[at]
        return error_at(self.text, message, token.start - 1, token.end - 1, hint=hint, code=CODE)

    def rest(self) -> str:
        """Return the text from the next token to the last one."""
        return self.text[self.tokens[self.at].start - 1 : self.tokens[-1].end]


def _create(reader: _Reader) -> CreateView:
    replace = reader.phrase("OR REPLACE")
    if not reader.phrase("MATERIALIZED VIEW"):
        raise reader.refused(f"CREATE {reader.peek()[:40]} is not supported", _not_created(reader.peek()), 1)
    if_not_exists = reader.phrase("IF NOT EXISTS")
    name, key, options = reader.view_name(), tuple[str, ...](), dict[str, str]()
    while not reader.take("AS"):
        if reader.take("PRIMARY KEY", "KEY"):
            key = _columns(reader)
        elif reader.take("WITH"):
            options |= _options(reader)
        else:
            raise reader.refused(f'"{reader.peek()[:40] or "the end"}" where AS is expected', _FORM)
    if reader.at >= len(reader.tokens):
        raise reader.refused("the SELECT behind AS is missing", _FORM)
    return CreateView(name, reader.rest(), key, options, replace, if_not_exists)


def _not_created(word: str) -> str:
    if word in ("TABLE", "STREAM", "SOURCE", "TOPIC", "SINK"):
        return "topics are declared in topics.yaml: `hub topic apply`; a view is " + _FORM
    if word == "VIEW":
        return f"views are materialized here: {_FORM}"
    return _FORM


def _columns(reader: _Reader) -> tuple[str, ...]:
    if not reader.take("("):
        return (reader.name("a column"),)
    found = [reader.name("a column")]
    while reader.take(","):
        found.append(reader.name("a column"))
    reader.need(")", "KEY (a, b)")
    return tuple(found)


def _options(reader: _Reader) -> dict[str, str]:
    """Return ``(name = 'value', source.name = 'value')``."""
    form = "WITH (orders.watermark = '10 minutes', doc = 'Orders by city')"
    found: dict[str, str] = {}
    reader.need("(", form)
    while True:
        name = reader.name("an option")
        reader.need("=", form)
        found[name] = reader.word()
        if not reader.take(","):
            break
    reader.need(")", form)
    return found


def _drop(reader: _Reader) -> DropView:
    if not (reader.phrase("MATERIALIZED VIEW") or reader.take("VIEW")):
        raise reader.refused(
            f"DROP {reader.peek()[:40]} is not supported", "DROP MATERIALIZED VIEW [IF EXISTS] name", 1
        )
    if_exists = reader.phrase("IF EXISTS")
    name = reader.view_name()
    if reader.take("CASCADE"):
        raise reader.refused("CASCADE is not supported", "drop the views that read it first", back=1)
    reader.take("RESTRICT")
    reader.end()
    return DropView(name, if_exists)


def _show(reader: _Reader) -> HubStatement | None:
    if reader.take("CREATE"):
        reader.take("MATERIALIZED")
        reader.need("VIEW", "SHOW CREATE VIEW name")
        name = reader.view_name()
        reader.end()
        return ShowCreate(name)
    if reader.take("COLUMNS"):
        if not reader.take("FROM", "IN"):
            raise reader.refused("SHOW COLUMNS needs FROM", "SHOW COLUMNS FROM customer_360")
        return DescribeTable(reader.last_name("a view or a topic"))
    reader.take("MATERIALIZED")
    what = reader.word().lower()
    if what not in LISTS:
        return None  # a setting, by Postgres' protocol
    like = reader.word() if reader.take("LIKE") else None
    reader.end()
    return ShowList(what, like)


def _explain(reader: _Reader) -> Explain:
    if reader.take("ANALYZE", "("):
        raise reader.refused("EXPLAIN takes no options", "EXPLAIN SELECT …, EXPLAIN CREATE …", back=1)
    word = reader.peek().lower()
    if word in ("select", "with", "("):
        return Explain(reader.rest())
    reader.at += 1
    found = _plain(reader, word)
    if not isinstance(found, CreateView | DropView):
        raise reader.refused(
            "EXPLAIN is for a SELECT, a CREATE or a DROP", "`hub view explain NAME` explains a view", back=1
        )
    return Explain(found)
