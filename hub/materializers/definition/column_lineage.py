"""[core] Column lineage: the topic columns that a view's columns are made of, read from its expressions or
its SQL.

The column "" stands for what decides over whole rows: keys, orders, conditions, groups. A column that only
counts rows is made of no column.
"""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage

from hub.errors import ConfigError
from hub.materializers.definition.declared import META, changelog_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import view_of
from hub.materializers.definition.schema_impact import columns_by_field
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_text import trees_of
from hub.materializers.definition.sql_view import SqlView

MadeOf = dict[str, tuple[tuple[str, str], ...]]


@lru_cache(maxsize=256)
def made_of(body: str) -> MadeOf:
    """Return for each column of a view the sorted (topic, path of the column) pairs that it is made of.

    ``body``: the view as stored in the log. A column that cannot be traced is left out.
    """
    view = view_of(body)
    return _of_sql(view) if isinstance(view, SqlView) else _of_fields(view)


def _of_fields(view: View) -> MadeOf:
    topics = {name: source.topic for name, source in view.sources.items()}
    return {
        column: tuple(
            sorted((topics[source], ".".join(path)) for source, paths in by_source.items() for path in paths)
        )
        for column, by_source in columns_by_field(view).items()
    }


def _of_sql(view: SqlView) -> MadeOf:
    try:
        query = query_of(view)
    except ConfigError:
        return {}
    topics = {
        name: changelog_of(source.view) if source.view is not None else source.topic
        for name, source in view.sources.items()
    }
    schema = {name: dict.fromkeys(columns, "string") for name, columns in query.columns_read.items()}
    found: MadeOf = {}
    named: set[tuple[str, str]] = set()
    (tree,) = trees_of(view.sql)  # ``query_of`` accepts only one statement
    for column in query.columns:
        try:
            root = lineage(column, tree.copy(), schema=schema, dialect="spark")
        except (SqlglotError, RecursionError, ValueError):
            continue
        leaves = {
            (node.source.name, node.name.rpartition(".")[2])
            for node in root.walk()
            if isinstance(node.source, exp.Table) and not node.downstream
        }
        named |= leaves
        found[column] = tuple(
            sorted((topics[source], name) for source, name in leaves if source in topics and name not in META)
        )
    found[""] = tuple(
        sorted(
            (topics[source], name)
            for source, columns in query.used.items()
            for name in columns
            if (source, name) not in named and name not in META
        )
    )
    return found
