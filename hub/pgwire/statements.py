"""[core] A client's text as statements: queries, settings, transactions, cursors, COPY; writes are refused.

Only their first words are read here. A query's own text is parsed where it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from hub.materializers.queries.statements.grammar import begins_statement
from hub.pgwire.sqlstates import PgError

_MOST_STATEMENTS = 100
_MOST_TEXT = 200_000
_SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_WORD = re.compile(rf"{_SPACE}[\s(]*([A-Za-z_]+)", re.DOTALL)
_NAME = r"(\"(?:[^\"]|\"\")+\"|[A-Za-z_][\w.$]*)"


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A query. ``offset``: characters of the client's text before it."""

    sql: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """``verb``: begin, commit, rollback, savepoint, release or rollback to."""

    verb: str
    tag: str


@dataclass(frozen=True, slots=True)
class SetTo:
    """A setting and its new value; None: its default. ``name`` None: all settings."""

    name: str | None
    value: str | None
    tag: str = "SET"


@dataclass(frozen=True, slots=True)
class Show:
    name: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement that has no effect here, and its tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget prepared statements (``name`` None: all), and everything else if ``everything``."""

    name: str | None
    tag: str
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Declare:
    cursor: str
    query: SelectStatement
    hold: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """``rows`` None: all that are left. ``move``: they are skipped."""

    cursor: str
    rows: int | None
    move: bool = False


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """``cursor`` None: all."""

    cursor: str | None


@dataclass(frozen=True, slots=True)
class CopyForm:
    """Options of a COPY: ``csv`` or Postgres' text format."""

    csv: bool = False
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


@dataclass(frozen=True, slots=True)
class CopyOut:
    query: SelectStatement
    form: CopyForm


@dataclass(frozen=True, slots=True)
class RefusedStatement:
    """A statement that raises this error when it is its turn."""

    error: PgError


Statement = (
    SelectStatement
    | Transaction
    | SetTo
    | Show
    | Nothing
    | Discard
    | Declare
    | Fetch
    | CloseCursor
    | CopyOut
    | RefusedStatement
)


def statements_of(sql: str) -> list[Statement]:
    """Return the statements of a text, [] for none. Raises PgError."""
    if len(sql) > _MOST_TEXT:
        raise PgError("54000", f"{len(sql)} characters of SQL; {_MOST_TEXT} are allowed")
    found = [_statement(text, offset) for offset, text in _split(sql)]
    if len(found) > _MOST_STATEMENTS:
        raise PgError("54000", f"{len(found)} statements at once; {_MOST_STATEMENTS} are allowed")
    return found


_ALIAS = re.compile(
    r"\b(as\s+)(select|table|update|delete|insert|user|order|group)(?=\s*(?:,|\)|from\b|$))", re.IGNORECASE
)


def quoted_aliases(sql: str) -> str:
    """Return the text with reserved words that are names of columns in quotes, as Postgres reads them.

    >>> quoted_aliases("SELECT 1 AS select FROM t")
    'SELECT 1 AS "select" FROM t'
    """
    if not _ALIAS.search(sql) or ("'" in sql and _ALIAS.search(re.sub(r"'[^']*'", "", sql)) is None):
        return sql
    return _ALIAS.sub(lambda found: f'{found[1]}"{found[2].lower()}"', sql)


def _split(sql: str) -> list[tuple[int, str]]:
    """Split at the semicolons outside texts, names and comments."""
    if ";" not in sql:
        return [(0, sql)] if _WORD.match(sql) or _has_content(sql) else []
    found, start = [], 0
    for token in _tokens(sql):
        if token.token_type == TokenType.SEMICOLON:
            found.append((start, sql[start : token.start]))
            start = token.end + 1
    found.append((start, sql[start:]))
    return [(offset, text) for offset, text in found if _has_content(text)]


def _has_content(text: str) -> bool:
    return re.fullmatch(_SPACE, text, re.DOTALL) is None


def _tokens(sql: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(sql, dialect="postgres"))
    except (SqlglotError, RecursionError, ValueError, IndexError):
        raise PgError(
            "42601",
            "a quotation mark or a comment is not closed",
            "texts stand in 'single', names in \"double\" quotation marks",
        ) from None


def _statement(text: str, offset: int) -> Statement:
    match = _WORD.match(text)
    verb = match[1].lower() if match is not None else ""
    try:
        if verb in ("select", "with", "values", "table", "subscribe") or begins_statement(text):
            return SelectStatement(text, offset)
        if verb in _WRITES:
            return RefusedStatement(_read_only(verb))
        handler = _HANDLERS.get(verb)
        if handler is not None:
            body = re.sub(rf"^{_SPACE}", "", text, flags=re.DOTALL).strip()
            return handler(body, offset + len(text) - len(text.lstrip()))
    except PgError as error:
        return RefusedStatement(error)
    if not verb:
        return RefusedStatement(PgError("42601", "this is no statement", "begin with SELECT"))
    if verb not in _UNSUPPORTED:
        return RefusedStatement(
            PgError(
                "42601", f'syntax error at or near "{match[1][:40] if match else verb}"', "begin with SELECT"
            )
        )
    return RefusedStatement(
        PgError("0A000", f"{verb.upper()} is not supported here", "SELECT, SHOW, SET, DECLARE and COPY are")
    )


_UNSUPPORTED = frozenset(("listen", "notify", "prepare", "execute", "load", "reassign"))
_WRITES = frozenset(
    (
        *("insert", "update", "delete", "merge", "truncate", "create", "alter", "drop", "comment", "grant"),
        *("revoke", "refresh", "reindex", "vacuum", "analyze", "cluster", "import", "call", "do", "security"),
    )
)


def _read_only(verb: str) -> PgError:
    return PgError(
        "25006",
        f"cannot execute {verb.upper()}: the hub is read-only here",
        "events change views: write them over HTTP, with the Python client or any Kafka client",
    )


def unquoted(name: str) -> str:
    """Return the name that an identifier means.

    >>> unquoted('"A""b"'), unquoted("Plant")
    ('A"b', 'plant')
    """
    if name.startswith('"') and name.endswith('"') and len(name) > 1:
        return name[1:-1].replace('""', '"')
    return name.lower()


def _value(text: str) -> str | None:
    """Return a value of SET: a text, a word, a number, a list of them; None for DEFAULT."""
    text = text.strip()
    if text.lower() == "default":
        return None
    items = re.findall(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"|([^\s,]+)", text)
    if not items:
        raise PgError("22023", "SET without a value", "SET name = 'value'")
    return ", ".join((one or two or three).replace("''", "'") for one, two, three in items)


def _set(text: str, _offset: int) -> Statement:
    time_zone = re.match(
        r"set\s+(?:session\s+|local\s+)?time\s+zone\s+(.*)$", text, re.IGNORECASE | re.DOTALL
    )
    if time_zone:
        value = _value(time_zone[1])
        return SetTo("timezone", None if value in (None, "local", "LOCAL") else value)
    if re.match(
        r"set\s+(session\s+characteristics|transaction|constraints|role|session\s+authorization)\b",
        text,
        re.IGNORECASE,
    ):
        return Nothing("SET")
    if names := re.match(r"set\s+(?:session\s+|local\s+)?names\s+(.*)$", text, re.IGNORECASE | re.DOTALL):
        return SetTo("client_encoding", _value(names[1]))
    match = re.match(
        rf"set\s+(?:session\s+|local\s+)?{_NAME}\s*(?:=|\bto\b)\s*(.*)$", text, re.IGNORECASE | re.DOTALL
    )
    if match is None:
        raise PgError("42601", "SET is not understood", "SET name = 'value'")
    return SetTo(unquoted(match[1]), _value(match[2]))


def _reset(text: str, _offset: int) -> Statement:
    name = text.split(None, 1)[1].strip().lower() if " " in text else "all"
    return SetTo(None if name == "all" else unquoted(name), None, "RESET")


def _show(text: str, _offset: int) -> Statement:
    name = " ".join(text.split()[1:]).lower() or "all"
    aliases = {"time zone": "timezone", "transaction isolation level": "transaction_isolation"}
    return Show(aliases.get(name, unquoted(name)))


def _begin(text: str, _offset: int) -> Statement:
    if re.search(r"\bread\s+write\b", text, re.IGNORECASE):
        raise PgError("25006", "a transaction that writes: the hub is read-only here", "BEGIN READ ONLY")
    return Transaction("begin", "START TRANSACTION" if text.lower().startswith("start") else "BEGIN")


def _rollback(text: str, _offset: int) -> Statement:
    if re.search(r"\bto\b", text, re.IGNORECASE):
        return Transaction("rollback to", "ROLLBACK")
    return Transaction("rollback", "ROLLBACK")


def _discard(text: str, _offset: int) -> Statement:
    target = text.split()[1].upper() if len(text.split()) > 1 else ""
    if target == "ALL":
        return Discard(None, "DISCARD ALL", everything=True)
    return Nothing(f"DISCARD {target}".strip())


def _deallocate(text: str, _offset: int) -> Statement:
    name = re.sub(r"^deallocate\s+(prepare\s+)?", "", text, flags=re.IGNORECASE).strip()
    everything = name.lower() == "all"
    return Discard(None if everything else unquoted(name), "DEALLOCATE ALL" if everything else "DEALLOCATE")


def _declare(text: str, offset: int) -> Statement:
    match = re.match(
        rf"declare\s+{_NAME}((?:\s+(?:binary|insensitive|asensitive|no\s+scroll|scroll))*)\s+cursor"
        r"(\s+with(?:out)?\s+hold)?\s+for\s+(.*)$",
        *(text, re.IGNORECASE | re.DOTALL),
    )
    if match is None:
        raise PgError("42601", "DECLARE is not understood", "DECLARE name CURSOR FOR SELECT …")
    hold = bool(match[3] and "without" not in match[3].lower())
    query = _statement(match[4], offset + match.start(4))
    if not isinstance(query, SelectStatement):
        raise PgError("42601", "a cursor is for a SELECT")
    return Declare(unquoted(match[1]), query, hold)


def _fetch(text: str, _offset: int) -> Statement:
    match = re.match(
        rf"(fetch|move)\s+(?:(next|all|forward\s+all|forward\s+\d+|forward|\d+)\s+)?(?:from\s+|in\s+)?{_NAME}$",
        *(text, re.IGNORECASE),
    )
    if match is None:
        raise PgError("55000", "a cursor goes forward only", "FETCH FORWARD 100 FROM name")
    count = (match[2] or "1").lower()
    digits = re.search(r"\d+", count)
    rows = None if "all" in count else int(digits[0][:9]) if digits else 1
    return Fetch(unquoted(match[3]), rows, match[1].lower() == "move")


def _close(text: str, _offset: int) -> Statement:
    name = text.split(None, 1)[1].strip() if len(text.split()) > 1 else "all"
    return CloseCursor(None if name.lower() == "all" else unquoted(name))


def _copy(text: str, offset: int) -> Statement:
    match = re.match(r"copy\s*(.+?)\s+to\s+stdout\b(.*)$", text, re.IGNORECASE | re.DOTALL)
    if match is None:
        if re.search(r"\bto\b", text, re.IGNORECASE):
            raise PgError("42501", "COPY goes to the client only", "COPY (SELECT …) TO STDOUT")
        raise _read_only("copy")
    inner = match[1].strip()
    if inner.startswith("(") and inner.endswith(")"):
        query = SelectStatement(inner[1:-1], offset + match.start(1) + 1)
    elif table := re.fullmatch(rf"({_NAME}(?:\.{_NAME})*)\s*(\([^()]*\))?", inner):
        columns = table[table.lastindex or 1][1:-1] if inner.endswith(")") else "*"
        query = SelectStatement(f"SELECT {columns} FROM {table[1]}", offset)
    else:
        raise PgError("42601", "COPY is not understood", "COPY (SELECT …) TO STDOUT")
    return CopyOut(query, _copy_form(match[2]))


def _copy_form(options: str) -> CopyForm:
    if re.search(r"\bbinary\b", options, re.IGNORECASE):
        raise PgError("0A000", "COPY in the binary format is not supported", "text and CSV are")
    csv = re.search(r"\bcsv\b", options, re.IGNORECASE) is not None
    header = re.search(r"\bheader\b(?!\s*(?:false|off|0))", options, re.IGNORECASE) is not None
    matches = {
        name: re.search(rf"\b{name}\s+(?:as\s+)?(E?)'((?:[^']|'')*)'", options, re.IGNORECASE)
        for name in ("delimiter", "null")
    }
    delimiter = matches["delimiter"][2].replace("\\t", "\t") if matches["delimiter"] else "," if csv else "\t"
    if len(delimiter) != 1 or delimiter in "\r\n\\":
        raise PgError("22023", "a delimiter of COPY is one character")
    null = matches["null"][2] if matches["null"] else "" if csv else "\\N"
    return CopyForm(csv, header, delimiter, null)


_HANDLERS: dict[str, Callable[[str, int], Statement]] = {
    "set": _set,
    "reset": _reset,
    "show": _show,
    "begin": _begin,
    "start": _begin,
    "commit": lambda _text, _offset: Transaction("commit", "COMMIT"),
    "end": lambda _text, _offset: Transaction("commit", "COMMIT"),
    "rollback": _rollback,
    "abort": _rollback,
    "savepoint": lambda _text, _offset: Transaction("savepoint", "SAVEPOINT"),
    "release": lambda _text, _offset: Transaction("release", "RELEASE"),
    "discard": _discard,
    "deallocate": _deallocate,
    "unlisten": lambda _text, _offset: Nothing("UNLISTEN"),
    "lock": lambda _text, _offset: Nothing("LOCK TABLE"),
    "checkpoint": lambda _text, _offset: Nothing("CHECKPOINT"),
    "declare": _declare,
    "fetch": _fetch,
    "move": _fetch,
    "close": _close,
    "copy": _copy,
}
