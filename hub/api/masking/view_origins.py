"""[core] Origins of each column of a view and of its key; None where they cannot be traced.

Beside the lineage that pages show (``column_lineage.made_of``) this knows what that leaves out:
expressions that cannot be parsed, whole events, and the record key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hub.access.masking.facts import ColumnOrigin, ViewColumns
from hub.errors import ConfigError
from hub.materializers.definition.column_lineage import made_of
from hub.materializers.definition.declared import META, changelog_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of, view_of
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_view import SqlView
from hub.topics.tree.tree import matches

_RECORD_KEY = "_key"
_Origins = tuple[ColumnOrigin, ...] | None


@lru_cache(maxsize=256)
def origins_of(body: str) -> ViewColumns:
    """Return the facts of one version of a view. ``body``: as it is stored in the log.

    Topics may be patterns; columns are those that the view declares.
    """
    view, lineage = view_of(body), made_of(body)
    traced = {
        column: tuple(ColumnOrigin(topic, tuple(path.split("."))) for topic, path in each)
        for column, each in lineage.items()
    }
    if isinstance(view, SqlView):
        return _of_sql(view, traced)
    return _of_fields(view, traced)


def _of_sql(view: SqlView, traced: Mapping[str, tuple[ColumnOrigin, ...]]) -> ViewColumns:
    topics = tuple(
        changelog_of(each.view) if each.view is not None else each.topic for each in view.sources.values()
    )
    text = view.sql.lower()
    columns: dict[str, _Origins] = {name: each for name, each in traced.items() if name}
    if _RECORD_KEY in text:
        keys = tuple(ColumnOrigin(topic, (_RECORD_KEY,)) for topic in topics)
        columns = {name: None if each is None else (*each, *keys) for name, each in columns.items()}
    # Without a declared key the engine takes columns of the SELECT: any of them.
    return ViewColumns(columns, topics, None, tuple(view.key) or tuple(columns))


def _of_fields(view: View, traced: Mapping[str, tuple[ColumnOrigin, ...]]) -> ViewColumns:
    topics = {name: each.topic for name, each in view.sources.items()}
    columns: dict[str, _Origins] = {}
    for name, text in (*view.fields.items(), *view.computed.items()):
        columns[name] = _whole(text, traced.get(name, ()), topics, columns)
    return ViewColumns(columns, tuple(topics.values()), _key_of(view))


def _key_of(view: View) -> _Origins:
    origins: list[ColumnOrigin] = []
    for name, source in view.sources.items():
        read = _read(source.key)
        if read is None:
            return None
        for path in read:
            origins.append(
                ColumnOrigin(source.topic, path[1:] if len(path) > 1 and path[0] == name else path)
            )
    return tuple(origins)


def _whole(
    text: str, traced: tuple[ColumnOrigin, ...], topics: Mapping[str, str], earlier: Mapping[str, _Origins]
) -> _Origins:
    """Return the origins of one expression: those that are traced, and what lineage does not see."""
    found = _read(text)
    if found is None:
        return None
    made = list(traced)
    for path in found:
        if path[0] in topics:
            if len(path) == 1:  # a whole event
                return None
            if path[1] == _RECORD_KEY:
                made.append(ColumnOrigin(topics[path[0]], (_RECORD_KEY,)))
        elif path[0] in earlier:
            inner = earlier[path[0]]
            if inner is None:
                return None
            made += inner
        elif path[0] not in META:
            return None
    return tuple(dict.fromkeys(made))


def _read(text: str) -> list[tuple[str, ...]] | None:
    """Return the paths of the columns in an expression; None if it cannot be read, or names all columns."""
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return None
    stars = [each for each in tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    if stars:
        return None
    return [tuple(part.name for part in each.parts) for each in tree.find_all(exp.Column)]


def combined(versions: Iterable[ViewColumns], concrete: Callable[[str], Iterable[str]]) -> ViewColumns:
    """Return the facts of all versions of a view together: while one replaces another, both hold.

    ``concrete``: the topics that a source's topic or pattern stands for.
    """
    columns: dict[str, _Origins] = {}
    key: _Origins = ()
    sources: dict[str, None] = {}
    key_columns: dict[str, None] = {}

    def spelled(origins: _Origins) -> _Origins:
        if origins is None:
            return None
        return tuple(ColumnOrigin(topic, each.path) for each in origins for topic in concrete(each.topic))

    for each in versions:
        sources.update(dict.fromkeys(topic for source in each.sources for topic in concrete(source)))
        for name, origins in each.columns.items():
            known, more = columns.get(name, ()), spelled(origins)
            columns[name] = None if known is None or more is None else (*known, *more)
        more = spelled(each.key)
        key = None if key is None or more is None else (*key, *more)
        key_columns.update(dict.fromkeys(each.key_columns))
    return ViewColumns(columns, tuple(sources), key, tuple(key_columns))


def declared_facts(view: View | SqlView, topics: Collection[str]) -> ViewColumns:
    """Return the facts of a view's file, whether it runs or not. ``topics``: all that its patterns may stand
    for. A column whose origin cannot be traced is None; "*" stands for columns that are not known.
    """
    made = combined([origins_of(body_of(view))], lambda topic: _concrete(topic, topics))
    if not isinstance(view, SqlView):
        return made
    try:
        names: Collection[str] = query_of(view).columns
    except ConfigError:
        names = ["*"]
    missing = {name: None for name in names if name not in made.columns}
    return replace(made, columns={**made.columns, **missing})


def _concrete(topic: str, topics: Collection[str]) -> list[str]:
    if "*" not in topic:
        return [topic]
    return [topic, *(each for each in topics if matches(topic, each))]
