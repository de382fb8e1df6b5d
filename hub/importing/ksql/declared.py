"""[core] ``CREATE STREAM`` and ``CREATE TABLE`` with columns: a relation, its topic and its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hub.importing.column_types import ColumnType, avro_schema, json_schema, protobuf_schema, read_type
from hub.importing.relations import EVENT_TIME, Declaration, ImportedColumn, Kind, Relation, RelationCatalog
from hub.importing.report import NotTranslated, StatementTranslation
from hub.importing.statements import StatementReader, Token

_SCHEMAS = {"AVRO": "avsc", "JSON_SR": "json", "PROTOBUF": "proto"}
_KNOWN = {
    "kafka_topic", "value_format", "key_format", "format", "partitions", "replicas", "timestamp",
    "timestamp_format",
    "window_type", "window_size", "value_delimiter", "key_delimiter", "wrap_single_value", "key_schema_id",
    "value_schema_id", "value_schema_full_name", "key_schema_full_name", "value_avro_schema_full_name",
    "retention_ms", "cleanup_policy", "value_protobuf_nullable_representation",
    "key_protobuf_nullable_representation",
}  # fmt: skip
_DELIMITERS = {"SPACE": " ", "TAB": "\t"}


@dataclass
class _Columns:
    """``value``: types by the field of the event. ``names``: fields by the column's name in queries."""

    value: dict[str, ColumnType] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    key: dict[str, ColumnType] = field(default_factory=dict)
    headers: list[str] = field(default_factory=list)


def read_declaration(
    reader: StatementReader,
    kind: Kind,
    name: str,
    catalog: RelationCatalog,
    translation: StatementTranslation,
) -> Declaration:
    """Read what follows the name of a CREATE with columns. Raises NotTranslated."""
    columns = _columns(reader, catalog) if reader.peek() == "(" else _Columns()
    reader.need("WITH")
    options = reader.options()
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        translation.differ(f"the option {unknown[0].upper()} has no meaning in the hub")
    form = (options.get("value_format") or options.get("format") or "").upper()
    if not form:
        form = "JSON"
        translation.differ("no value_format is stated: JSON is assumed")
    topic = options.get("kafka_topic", name.upper())
    source, read, schema = _value(name, topic, form, columns, options, translation)
    keys = _keys(
        columns.key, (options.get("key_format") or options.get("format") or "KAFKA").upper(), translation
    )
    complete = bool(columns.value) or form not in _SCHEMAS
    if not complete:
        translation.differ(
            "the columns are those of the registry's schema: a query must name those that it reads"
        )
    time, event_time = _time(options, read, translation)
    unreadable = dict.fromkeys(columns.headers, "the SQL of a view does not see the headers of a record")
    for each in columns.headers:
        translation.differ(f"the column {each} of the headers is left out")
    windowed = "window_type" in options
    if windowed:
        unreadable |= dict.fromkeys(keys, "the key of a windowed topic has the window's bytes in it")
        translation.differ(
            "the keys of a windowed topic are bytes with the window: they cannot be read as text"
        )
    relation = Relation(
        name, kind, source, {**keys, **read}, tuple(keys), complete, time, event_time, unreadable=unreadable
    )
    node = _node(kind, options, translation)
    return Declaration(replace(relation, partitions=node.get("partitions")), topic, node, schema)


def _columns(reader: StatementReader, catalog: RelationCatalog) -> _Columns:
    columns = _Columns()
    reader.need("(")
    while not reader.take(")"):
        token = reader.next()
        type_ = read_type(reader, catalog.types)
        if reader.take("PRIMARY KEY", "KEY"):
            columns.key[column_name(token)] = type_
        elif reader.take("HEADERS") or reader.take("HEADER"):
            columns.headers.append(column_name(token))
            if reader.peek() == "(":
                list(reader.lists())
        else:
            columns.value[token.text] = type_
            columns.names[column_name(token)] = token.text
        if not reader.take(","):
            reader.need(")")
            break
    return columns


def _value(
    name: str,
    topic: str,
    form: str,
    columns: _Columns,
    options: Mapping[str, str],
    translation: StatementTranslation,
) -> tuple[dict[str, Any], dict[str, ImportedColumn], tuple[str, str] | None]:
    """Return (keys of the source, columns, schema) of a value's format."""
    if form in _SCHEMAS:
        read = {each: ImportedColumn(quoted(of), columns.value[of]) for each, of in columns.names.items()}
        if not read:
            return {"topic": topic}, {}, None
        translation.differ(f"the {form} schema is made of the columns; keep the registry's if there is one")
        full = options.get("value_avro_schema_full_name") or options.get("value_schema_full_name")
        record = full or "".join(part.title() for part in re.split(r"\W+|_", name)) or "Value"
        makers = {"AVRO": avro_schema, "JSON_SR": json_schema, "PROTOBUF": protobuf_schema}
        short = record if form == "AVRO" else record.rpartition(".")[2]
        return {"topic": topic}, read, (_SCHEMAS[form], makers[form](short, columns.value))
    if form not in ("JSON", "DELIMITED"):
        raise NotTranslated(
            f"the value_format {form} is not read by views",
            "write JSON, DELIMITED, AVRO, JSON_SR or PROTOBUF into the topic",
        )
    if not columns.value:
        raise NotTranslated("it has no columns, and no registry has them", "name the columns of the value")
    source: dict[str, Any] = {"topic": topic, "format": "json" if form == "JSON" else "csv"}
    if form == "DELIMITED" and (delimiter := options.get("value_delimiter")):
        source["csv"] = {"separator": _DELIMITERS.get(delimiter.upper(), delimiter)}
    read, kinds = {}, {}
    for each, event_field in columns.names.items():
        type_ = columns.value[event_field]
        as_read = (ImportedColumn(quoted(event_field), type_), type_.ddl)
        read[each], kinds[event_field] = _json_times(*as_read) if form == "JSON" else as_read
    source["schema"] = kinds
    if form == "JSON":
        translation.note(
            "the fields of the events must be spelled as in the statement; ksqlDB ignores their case"
        )
    return source, read, None


def _json_times(column: ImportedColumn, ddl: str) -> tuple[ImportedColumn, str]:
    """Return a column of JSON and the type that is read: times are numbers there."""
    if ddl == "timestamp":
        return ImportedColumn(f"timestamp_millis({column.expression})", column.type), "bigint"
    if ddl == "date":
        return ImportedColumn(f"date_from_unix_date({column.expression})", column.type), "int"
    return column, ddl


def _keys(
    columns: Mapping[str, ColumnType], form: str, translation: StatementTranslation
) -> dict[str, ImportedColumn]:
    """Return the columns of the record's key, which a view reads as text in ``_key``."""
    keys = {}
    for number, (name, type_) in enumerate(columns.items()):
        text = "_key"
        if form == "DELIMITED" and len(columns) > 1:
            text = f"split(_key, ',')[{number}]"
        elif len(columns) > 1:
            text = f"get_json_object(_key, '$.{name.upper()}')"
            translation.differ("the key must be JSON with names in upper case, as ksqlDB writes it")
        elif form in ("JSON", "JSON_SR") and type_.name == "string":
            text = "replace(_key, '\"', '')"
        if form in ("AVRO", "PROTOBUF", "JSON_SR"):
            translation.differ(f"a view reads keys as text: a key in {form} must be written as text")
        elif form == "KAFKA" and type_.name not in ("string", "binary"):
            translation.differ(
                f"a view reads keys as text: the key {name} must be written as text, not as Kafka's bytes"
            )
        keys[name] = ImportedColumn(text if type_.name == "string" else f"CAST({text} AS {type_.ddl})", type_)
    return keys


def _time(
    options: Mapping[str, str], read: Mapping[str, ImportedColumn], translation: StatementTranslation
) -> tuple[str, str | None]:
    """Return (expression of ROWTIME, column that can have a watermark)."""
    name = options.get("timestamp", "").strip("`").lower()
    if not name:
        return EVENT_TIME, EVENT_TIME
    column = read.get(name, ImportedColumn(name))
    if name not in read and read:
        raise NotTranslated(f'timestamp = "{name}" is not a column of the value', "name one of them")
    form = options.get("timestamp_format")
    if form:
        translation.differ("check timestamp_format: Spark has another syntax for some parts")
        text = form.replace("'", "''")
        return f"to_timestamp({column.expression}, '{text}')", None
    if column.type is not None and column.type.name == "bigint":
        return f"timestamp_millis({column.expression})", None
    return column.expression, None if "(" in column.expression else column.expression


def _node(kind: Kind, options: Mapping[str, str], translation: StatementTranslation) -> dict[str, Any]:
    """Return the topic's own keys of topics.yaml."""
    node: dict[str, Any] = {}
    if "partitions" in options:
        node["partitions"] = _number(options, "partitions")
    else:
        translation.note(
            "no partitions are stated: `hub topic plan` compares the topic of today with topics.yaml"
        )
    if "replicas" in options and options["replicas"] != "-1":
        node["replication_factor"] = _number(options, "replicas")
    if "retention_ms" in options:
        node["config"] = {"retention.ms": _number(options, "retention_ms")}
    policy = options.get("cleanup_policy", "compact" if kind == "table" and "partitions" in options else None)
    if policy:
        node.setdefault("config", {})["cleanup.policy"] = policy.lower()
    return node


def column_name(token: Token) -> str:
    """Return the name of a column in queries: in lower case, except in quotes."""
    return token.text.lower() if token.kind == "word" else token.text


def quoted(name: str) -> str:
    """Return a column's name as an expression."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"


def _number(options: Mapping[str, str], name: str) -> int:
    if not options[name].isdigit():
        raise NotTranslated(f'{name} = "{options[name]}" is not a number', "write a number")
    return int(options[name])
