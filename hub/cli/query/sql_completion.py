"""[edge] prompt_toolkit: completion in the shell of ``hub sql``: tables, columns, functions, keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hub.cli.query.sql_session import SqlSession
from hub.errors import HubError

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

_KEYWORD_TEXT = """SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET JOIN LEFT RIGHT FULL CROSS INNER ON USING AS WITH UNION
ALL EXCEPT INTERSECT DISTINCT AND OR NOT IN IS NULL LIKE ILIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST INTERVAL
TIMESTAMP DATE ASC DESC NULLS FIRST LAST OVER PARTITION ROWS FILTER TRUE FALSE EMIT CHANGES BEGINNING SUBSCRIBE CREATE
REPLACE MATERIALIZED VIEW DROP SHOW VIEWS TOPICS DESCRIBE EXPLAIN"""  # noqa: E501
_KEYWORDS = tuple(_KEYWORD_TEXT.split())
_BEFORE_TABLES = ("from", "join")
_COMMANDS = (
    r"\d",
    r"\dt",
    r"\dq",
    r"\watch",
    r"\set",
    r"\unset",
    r"\x",
    r"\timing",
    r"\o",
    r"\i",
    r"\q",
    r"\?",
)


def completer(session: SqlSession) -> Completer:
    """Completes commands, tables behind FROM and JOIN, columns of the statement's tables, functions,
    keywords."""
    from prompt_toolkit.completion import Completer, Completion

    class SqlCompleter(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:
            before = document.text_before_cursor
            try:
                found = proposals(session, before, document.text)
            except HubError:
                return  # no server, no names
            for word, start, meta in found:
                yield Completion(word, start_position=-start, display_meta=meta)

    return SqlCompleter()


def proposals(session: SqlSession, before: str, whole: str) -> list[tuple[str, int, str]]:
    """Return completions as (text, number of characters before the cursor to replace, kind), for a cursor
    after ``before``.
    """
    if before.lstrip().startswith("\\"):
        return _of_command(session, before.lstrip())
    word = re.search(r'("[^"]*|[\w.]*)$', before)
    typed = word.group(0) if word else ""
    tables = {
        each["view"]: [column["name"] for column in each["columns"]] for each in session.tables()["views"]
    }
    earlier = re.findall(r"\w+", before[: len(before) - len(typed)])
    if earlier and earlier[-1].lower() in _BEFORE_TABLES:
        names = [(name, "view") for name in tables]
        names += [(f'"{each["topic"]}"', "topic") for each in session.topics()]
        return _matching(names, typed, loose=True)
    named = _tables_named(whole)
    if "." in typed and not typed.startswith('"'):
        alias, _, part = typed.rpartition(".")
        table = named.get(alias, alias)
        return _matching([(each, "column") for each in _columns(session, tables, table)], part)
    columns = [(each, "column") for table in named.values() for each in _columns(session, tables, table)]
    functions = [(f"{each}(", "function") for each in session.tables()["functions"]]
    keywords = [(each, "") for each in _KEYWORDS]
    return _matching([*dict(columns).items(), *functions, *keywords], typed)


def _of_command(session: SqlSession, text: str) -> list[tuple[str, int, str]]:
    name, blank, rest = text.partition(" ")
    if not blank:
        return [(each, len(name), "") for each in _COMMANDS if each.startswith(name)]
    if name == "\\d":
        names = [(each["view"], "view") for each in session.tables()["views"]]
        names += [(each["topic"], "topic") for each in session.topics()]
        return _matching(names, rest)
    return []


def _tables_named(text: str) -> dict[str, str]:
    """Tables of a statement that may not be finished, by alias and by name."""
    found = {}
    for table, alias in re.findall(
        r'\b(?:from|join|,)\s+("[^"]+"|\w+)(?:\s+(?:as\s+)?(\w+))?', text, re.IGNORECASE
    ):
        name = table.strip('"')
        found[name] = name
        if alias and alias.upper() not in _KEYWORDS:
            found[alias] = name
    return found


def _columns(session: SqlSession, views: Mapping[str, list[str]], table: str) -> list[str]:
    if table in views:
        return list(views[table])
    if table in {each["topic"] for each in session.topics()}:
        return [each["name"] for each in session.topic(table)["columns"]]
    return []


def _matching(
    names: Iterable[tuple[str, str]], typed: str, *, loose: bool = False
) -> list[tuple[str, int, str]]:
    part = typed.lstrip('"').lower()
    return [
        (name, len(typed), meta)
        for name, meta in names
        if name.strip('"').lower().startswith(part) or (loose and part and part in name.lower())
    ]
