"""[core] A *SQL view*: one SELECT in Spark SQL over topics and other views, in one YAML file, checked before
it runs.

The tables of its SQL are the view's sources. Spark gets the author's own text. The hub parses it only to find
which columns it reads, what they are called, and if it is a function of its events. No SQL is generated from
the parse tree, because a generator may lose an argument that it does not know. What the hub must add is
inserted into the author's text (``with_columns``).

Errors name line and column of the SQL and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import orjson
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hub.errors import ConfigError, did_you_mean
from hub.materializers.dataframes.declared_build import WRONG
from hub.materializers.definition.compiling.checks import Checks
from hub.materializers.definition.declared import META
from hub.materializers.definition.python_functions import misused
from hub.materializers.definition.sql_columns import ColumnResolver
from hub.materializers.definition.sql_query import Query, SourceColumn
from hub.materializers.definition.sql_text import SPARK, parsed_select, start_of, wrong
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.search.declared_indexes import fields_in
from hub.materializers.sql_rules.checks import kinds, problem_in
from hub.materializers.sql_rules.determinism import refused
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, deep_node, deep_token, shortened
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import AvroType, field_types, has_micros, kind
from hub.yaml import place


def readable(path: Path, view: SqlView) -> None:
    """Raise ConfigError with file, line and column when the view's SQL cannot be parsed."""
    try:
        query_of(view)
    except ConfigError as error:
        at = place(path, "sql").rsplit(":", 1)[0]
        raise ConfigError(error.message, hint=error.hint, code=error.code, where=at) from None


def query_of(view: SqlView) -> Query:
    """Parse and resolve the view's SQL, as far as possible without schemas. Raises ConfigError."""
    key = (view.model_dump_json(by_alias=True), ())
    return _cached(*key)


def checked(view: SqlView, schemas: Mapping[str, AvroType]) -> Query:
    """Parse the view's SQL and check it against the schemas of its sources' events, given by source name.

    Raises ConfigError when a column does not exist or an event time is not a timestamp.
    """
    known = tuple(sorted((name, orjson.dumps(schema).decode()) for name, schema in schemas.items()))
    return _cached(view.model_dump_json(by_alias=True), known)


@lru_cache(maxsize=256)
def _cached(view: str, schemas: tuple[tuple[str, str], ...]) -> Query:
    return _read(SqlView.model_validate_json(view), {name: orjson.loads(text) for name, text in schemas})


def _read(view: SqlView, schemas: Mapping[str, AvroType]) -> Query:
    if view.python is not None and not view.sql:
        raise wrong(
            view,
            f"{view.python.function} has not run",
            "it runs when each of its sources has a schema: docs/reference/yaml-files.md",
            None,
            WRONG,
        )
    types = {name: field_types(schema) for name, schema in schemas.items()}
    for name, source in view.sources.items():
        Checks(view, types).check_transform(name)
        check_event_time(view, name, source, types.get(name))
        check_table(view, name, source, types.get(name))
    tokens, tree = parsed_select(view)
    query = Query(view, view.sql, tokens, tree)
    query.used = {name: {} for name in view.sources}
    query.columns_read = {name: {} for name in view.sources}
    query.micros = frozenset(
        SourceColumn(name, column)
        for name, of in types.items()
        for column, each in of.items()
        if has_micros(each)
    )
    misuse = misused(tree, view.functions)
    if misuse is not None:
        raise wrong(view, *misuse, None, "HUB-2151")
    _check_repeatable(query)
    problem = problem_in(tree, [each.name for each in view.functions], kinds(types))
    if problem is not None:
        raise wrong(view, problem.what, problem.hint, start_of(problem.node), "HUB-2105")
    columns = ColumnResolver(query, types).outputs(tree, {}, None)
    query.columns = tuple(columns)
    _check_columns(query)
    for name, source in view.sources.items():
        # Also if the SQL reads only META, as in count(*).
        if source.event_time is not None and source.event_time not in META and name in _tables(tree):
            query.used[name][source.event_time] = None
        if source.table is not None:
            also = [*source.table.key, *delete_columns(name, source)]
            query.used[name] |= {each: None for each in also if each not in META}
            if source.cdc is not None:  # the order of changes
                query.used[name][cdc.LSN] = None
    unread = [name for name, used in query.used.items() if not used and name not in _tables(tree)]
    if unread:
        raise wrong(
            view, f'source "{unread[0]}" is not read by the SQL', "remove it, or FROM it", None, "HUB-2110"
        )
    return query


def _check_repeatable(query: Query) -> None:
    found = refused(query.tokens, query.tree)
    if found is not None:
        raise query.error(found.what, found.hint, found.at, "HUB-2112")


def _check_columns(query: Query) -> None:
    view = query.view
    for name in query.columns:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name):
            raise query.error(
                f'the column "{name}" cannot be a field of a row',
                "give it a name of lower-case letters, digits and _, such as … AS delay",
                next((each for each in query.tree.find_all(exp.Identifier) if each.name == name), None),
                "HUB-2113",
            )
    twice = [name for n, name in enumerate(query.columns) if name in query.columns[:n]]
    if twice:
        raise query.error(f'two columns are called "{twice[0]}"', "rename one: … AS name", None, "HUB-2113")
    for what, names in (("key", view.key), ("index", fields_in(view.indexes))):
        for name in names:
            if name not in query.columns:
                raise wrong(
                    view,
                    f'{what} "{name}" is not a column of the SELECT',
                    did_you_mean(name, query.columns, f"it has {', '.join(query.columns)}"),
                    None,
                    "HUB-2113",
                )


def _tables(tree: exp.Expr) -> set[str]:
    return {table.name for table in tree.find_all(exp.Table)}


def _no_column(
    view: SqlView, name: str, what: str, column: str, types: Mapping[str, AvroType]
) -> ConfigError:
    return ConfigError(
        f'view "{view.name}": source "{name}": {what}: topic "{view.sources[name].topic}" '
        f'has no column "{column}"',
        hint=did_you_mean(column, types, f"it has {', '.join(sorted(types))}"),
        code="HUB-2101",
    )


def check_event_time(
    view: SqlView, name: str, source: SqlSource, types: Mapping[str, AvroType] | None
) -> None:
    column = source.event_time
    if column is None or column == "_timestamp" or types is None:
        return
    if column not in types:
        raise _no_column(view, name, "event_time", column, types)
    if kind(types[column]) != "timestamp":
        raise ConfigError(
            f'view "{view.name}": source "{name}": event_time: column "{column}" is not a timestamp',
            hint="name a column with logicalType timestamp-millis or timestamp-micros, or "
            "_timestamp, the broker's time",
            code="HUB-2101",
        )


def check_table(view: SqlView, name: str, source: SqlSource, types: Mapping[str, AvroType] | None) -> None:
    """Check that the columns of ``table:`` exist and that its key identifies rows. Raises ConfigError."""
    table = source.table
    if table is None:
        return
    for what, columns in (("key", table.key), ("delete_when", delete_columns(name, source, view))):
        for column in columns:
            if types is None or column in META:
                continue
            if column not in types:
                raise _no_column(view, name, f"table {what}", column, types)
            if what == "key" and kind(types[column]) in ("floating", "other"):
                raise ConfigError(
                    f'view "{view.name}": source "{name}": table key: column "{column}" cannot identify rows',
                    hint="a key is text, a whole or decimal number, a boolean, a date or a time; or leave "
                    "`key` out: the record's own key",
                    code="HUB-2101",
                )
    if table.key and set(table.key) & set(META):
        raise ConfigError(
            f'view "{view.name}": source "{name}": table key: '
            f"{', '.join(sorted(set(table.key) & set(META)))} is of the "
            "record, not of the event",
            hint="leave `key` out to have the record's own key",
            code="HUB-2101",
        )


def delete_columns(name: str, source: SqlSource, view: SqlView | None = None) -> list[str]:
    """Return the event columns in ``delete_when``. Raises ConfigError unless it is an expression over one
    event."""
    text = source.table.delete_when if source.table is not None else None
    if text is None:
        return []
    where = f'view "{view.name if view else ""}": source "{name}": delete_when'
    try:
        tokens = SPARK.tokenize(text)
        if deep_token(tokens) is not None:
            raise RecursionError
        tree = SPARK.parser().parse(tokens, text)
        if any(each is not None and deep_node(each) is not None for each in tree):
            raise RecursionError
    except RecursionError:
        raise ConfigError(
            f"{where}: `{shortened(text)}` is nested deeper than {MOST_BRACKETS}",
            hint="an expression over the event's columns, such as status = 'deleted'",
            code="HUB-2110",
        ) from None
    except SqlglotError as error:
        raise ConfigError(
            f"{where}: this is not SQL: {str(error).splitlines()[0]}",
            hint="an expression over the event's columns, such as status = 'deleted'",
            code="HUB-2110",
        ) from None
    whole = tree[0] if len(tree) == 1 else None
    never = None if whole is None else whole.find(exp.Query, exp.AggFunc, exp.Window, exp.Star)
    if whole is None or never is not None or isinstance(whole, exp.Alias) or refused(tokens, whole):
        raise ConfigError(
            f"{where}: `{text[:60]}` is not an expression over one event",
            hint="compare the event's own columns, such as status = 'deleted'",
            code="HUB-2112",
        )
    found: dict[str, None] = {}
    for column in whole.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        found[parts[1] if len(parts) > 1 and parts[0] == name else parts[0]] = None
    return list(found)
