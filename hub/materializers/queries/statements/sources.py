"""[core] Tables of a CREATE's SELECT as sources of a view.

A view's SQL names its sources, and a source names a topic or a view. So ``FROM "shop.orders"`` becomes a
source ``orders`` of that topic, and the name is replaced in the text. Names in double quotes, as SQL has
them, become names in backticks, as Spark has them; all else stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import TokenType, exp

from hub.errors import nearest
from hub.materializers.definition.drafted import source_name
from hub.materializers.definition.sql_text import SPARK, parsed_select
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.queries.parser import SqlError


@dataclass(frozen=True, slots=True)
class SourcedSelect:
    """The SELECT over sources. ``sources``: by name, ``{"topic": …}`` or ``{"view": …}``."""

    sql: str
    sources: Mapping[str, dict[str, Any]]

    @property
    def topics(self) -> list[str]:
        return [each["topic"] for each in self.sources.values() if "topic" in each]

    @property
    def views(self) -> list[str]:
        return [each["view"] for each in self.sources.values() if "view" in each]


def sourced(
    name: str, sql: str, views: Collection[str], topics: Callable[[], Collection[str]]
) -> SourcedSelect:
    """Return the SELECT of the view ``name`` with its sources.

    ``views``: that exist; ``topics`` returns the topics that the caller sees. Raises ConfigError for text
    that is not one SELECT, SqlError (HUB-1444) for an unknown table.
    """
    text = spark_names(sql)
    _, tree = parsed_select(SqlView(view=name, sources={"any": {"topic": "any"}}, sql=text))
    ctes = {each.alias for each in tree.find_all(exp.CTE)}
    sources: dict[str, dict[str, Any]] = {}
    aliases: dict[str, str] = {}
    spans: list[tuple[int, int, str]] = []
    for table in tree.find_all(exp.Table):
        whole = ".".join(part.name for part in table.parts)
        if whole in ctes or not isinstance(table.this, exp.Identifier):
            continue
        if whole not in aliases:
            alias, source = _source(whole, views, topics, sources)
            aliases[whole], sources[alias] = alias, source
        spans.append((*_span(table.parts), aliases[whole]))
    for column in tree.find_all(exp.Column):
        parts = column.parts[:-1]
        whole = ".".join(part.name for part in parts)
        if parts and whole in aliases and aliases[whole] != whole:
            spans.append((*_span(parts), aliases[whole]))
    for start, end, alias in sorted(set(spans), reverse=True):
        text = text[:start] + alias + text[end:]
    return SourcedSelect(text, sources)


def _source(
    whole: str, views: Collection[str], topics: Callable[[], Collection[str]], taken: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    if whole in views:
        return whole, {"view": whole}
    known = topics()
    if whole in known or "*" in whole:
        return source_name(whole, taken), {"topic": whole}
    guess = nearest(whole, [*views, *known])
    raise SqlError(
        f'no view and no topic "{whole}"' + (f': did you mean "{guess}"?' if guess else ""),
        hint=None if guess else "SHOW VIEWS and SHOW TOPICS list them",
        code="HUB-1444",
    )


def _span(parts: Any) -> tuple[int, int]:
    """Return the place of a name's parts in the text, with their quotes."""
    return min(part.meta["start"] for part in parts), max(part.meta["end"] for part in parts) + 1


def spark_names(sql: str) -> str:
    """Return the text with names in backticks instead of double quotes.

    >>> spark_names('SELECT "a b" FROM "shop.orders" WHERE c = \\'"d"\\'')
    'SELECT `a b` FROM `shop.orders` WHERE c = \\'"d"\\''
    """
    quoted = [
        each
        for each in SPARK.tokenize(sql)
        if each.token_type == TokenType.STRING and sql[each.start : each.start + 1] == '"'
    ]
    for token in reversed(quoted):
        sql = f"{sql[: token.start]}`{token.text}`{sql[token.end + 1 :]}"
    return sql
