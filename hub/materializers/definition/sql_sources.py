"""[core] Check `event_time:` and `table:` of a SQL view's sources against the schemas of their events."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError

from hub.errors import ConfigError, did_you_mean
from hub.materializers.definition.declared import META
from hub.materializers.definition.sql_text import SPARK
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.sql_rules.determinism import refused
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, deep_node, deep_token, shortened
from hub.materializers.types.avro_types import AvroType, kind


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
