"""[core] ``CREATE TABLE`` of Flink: a relation, its topic and its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.importing.column_types import ColumnType, avro_schema, read_type
from hub.importing.flink.windows import duration_of
from hub.importing.relations import AHEAD, EVENT_TIME, Declaration, ImportedColumn, Relation, RelationCatalog
from hub.importing.report import NotTranslated, StatementTranslation
from hub.importing.statements import StatementReader, Token, sql_of

_METADATA = {"timestamp": "_timestamp", "partition": "_partition", "offset": "_offset", "topic": "_topic"}
_SINKS: Mapping[str, str] = {
    "print": "`hub watch NAME` shows the changes of a view",
    "blackhole": "a view needs no sink",
    "jdbc": "a store in hub.yaml (docs/how-to/choose-stores.md) or a sink (docs/how-to/send-events-out.md)",
    "filesystem": "a sink: docs/how-to/send-events-out.md, or `lake: true` at the topic",
    "elasticsearch-7": "a connector: docs/how-to/manage-connectors.md",
    "datagen": "publish sample events: `hub topic publish`",
}


@dataclass
class _TableColumns:
    physical: dict[str, ColumnType] = field(default_factory=dict)
    computed: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    key: list[str] = field(default_factory=list)
    time: str = ""
    delay: str = ""


def read_declaration(
    reader: StatementReader, name: str, catalog: RelationCatalog, translation: StatementTranslation
) -> Declaration:
    """Read what follows the name of a CREATE TABLE. Raises NotTranslated."""
    columns = _columns(reader, catalog)
    if reader.take("COMMENT"):
        reader.next()
    if reader.take("PARTITIONED BY"):
        list(reader.lists())
        translation.note("PARTITIONED BY: Kafka partitions by the record's key")
    reader.need("WITH")
    options = reader.options()
    if reader.take("LIKE"):
        raise NotTranslated("LIKE copies another table", "write its columns out")
    connector = options.get("connector", "")
    if connector not in ("kafka", "upsert-kafka"):
        raise NotTranslated(
            f"the connector {connector or '(none)'} is not a topic",
            _SINKS.get(connector, "a connector of Kafka Connect: docs/how-to/manage-connectors.md"),
        )
    topic = options.get("topic", "")
    if not topic or ";" in topic:
        raise NotTranslated("it has not one topic", "name one: 'topic' = 'shop.orders'")
    for each in ("scan.startup.mode",):
        if options.get(each, "earliest-offset") not in ("earliest-offset", "group-offsets"):
            translation.differ(
                f"{each} = {options[each]}: a view reads from the start; restrict the events in WHERE"
            )
    source, schema, is_table = _format(name, topic, options, columns, translation)
    relation = _relation(name, connector, source, columns, is_table, translation)
    node: dict[str, Any] = {"config": {"cleanup.policy": "compact"}} if connector == "upsert-kafka" else {}
    translation.note("`hub topic plan` compares the topic of today with topics.yaml")
    return Declaration(relation, topic, node, schema)


def _columns(reader: StatementReader, catalog: RelationCatalog) -> _TableColumns:
    columns = _TableColumns()
    for part in reader.lists(angles=True):
        _column(StatementReader(reader.text, part), columns, catalog)
    return columns


def _column(reader: StatementReader, columns: _TableColumns, catalog: RelationCatalog) -> None:
    if reader.take("WATERMARK FOR"):
        columns.time = reader.next().text
        reader.need("AS")
        columns.delay = _delay(reader.until("\0"), columns.time)
        return
    if reader.take("CONSTRAINT"):
        reader.next()
    if reader.take("PRIMARY KEY"):
        columns.key = [part[0].text for part in reader.lists()]
        return
    name = reader.next().text
    if reader.take("AS"):
        columns.computed[name] = sql_of(reader.until("COMMENT"), reader.text)
        return
    type_ = read_type(reader, catalog.types)
    if reader.take("METADATA"):
        source = reader.next().text if reader.take("FROM") else name
        columns.metadata[name] = source.removeprefix("value.")
    elif reader.take("PRIMARY KEY"):
        columns.key = [name]
        columns.physical[name] = type_
    else:
        columns.physical[name] = type_


def _delay(tokens: Sequence[Token], time: str) -> str:
    if len(tokens) == 1:
        return "0 seconds"
    if len(tokens) > 3 and tokens[0].text == time and tokens[1].text == "-":
        return duration_of(tokens[2:])
    raise NotTranslated("a WATERMARK of this form", "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")


def _format(
    name: str,
    topic: str,
    options: Mapping[str, str],
    columns: _TableColumns,
    translation: StatementTranslation,
) -> tuple[dict[str, Any], tuple[str, str] | None, bool]:
    """Return (keys of the source, schema, whether the events are changes of a table's rows)."""
    form = options.get("value.format") or options.get("format") or ""
    kinds = {each: of.ddl for each, of in columns.physical.items()}
    source: dict[str, Any] = {"topic": topic}
    if form == "json":
        return {**source, "format": "json", "schema": kinds}, None, False
    if form == "csv":
        own = options.get("csv.field-delimiter") or options.get("value.csv.field-delimiter")
        return (
            {**source, "format": "csv", **({"csv": {"separator": own}} if own else {}), "schema": kinds},
            None,
            False,
        )
    if form == "avro-confluent":
        translation.differ("the schema is made of the columns; keep the registry's if there is one")
        record = "".join(part.title() for part in name.split("_"))
        return source, ("avsc", avro_schema(record, columns.physical)), False
    if form == "debezium-json":
        return {**source, "format": "json", "schema": kinds, "cdc": "debezium"}, None, True
    if form == "debezium-avro-confluent":
        return {**source, "cdc": "debezium"}, None, True
    raise NotTranslated(
        f"the format {form or '(none)'} is not read by views", "json, csv, avro-confluent or debezium-json"
    )


def _relation(
    name: str,
    connector: str,
    source: dict[str, Any],
    columns: _TableColumns,
    is_table: bool,
    translation: StatementTranslation,
) -> Relation:
    read = {each: ImportedColumn(each, of) for each, of in columns.physical.items()}
    read |= {each: ImportedColumn(text) for each, text in columns.computed.items()}
    unreadable: dict[str, str] = {}
    for each, of in columns.metadata.items():
        if of not in _METADATA:
            unreadable[each] = f"the SQL of a view does not see the {of} of a record"
            translation.differ(f"the column {each} of the {of} is left out")
        else:
            read[each] = ImportedColumn(_METADATA[of])
    if (is_table or connector == "upsert-kafka") and not columns.key:
        raise NotTranslated("a table of changes has no PRIMARY KEY", "PRIMARY KEY (id) NOT ENFORCED")
    time, event_time = _time(columns, read)
    if is_table or connector == "upsert-kafka":
        rows = {**source, "table": {"key": columns.key}} if is_table else source
        return Relation(name, "table", rows, read, tuple(columns.key), time="", event_time=None)
    if event_time is not None and columns.time:
        source = {**source, "event_time": event_time, "watermark": columns.delay}
        if event_time != EVENT_TIME:
            translation.differ(AHEAD)
    return Relation(
        name,
        "stream",
        source,
        read,
        tuple(columns.key),
        time=time,
        event_time=event_time,
        unreadable=unreadable,
    )


def _time(columns: _TableColumns, read: Mapping[str, ImportedColumn]) -> tuple[str, str | None]:
    """Return (expression of the event's time, column that can have a watermark)."""
    if not columns.time:
        return "_timestamp", None
    if columns.time in columns.computed:
        return columns.time, None
    column = read.get(columns.time)
    return (column.expression, column.expression) if column is not None else (columns.time, None)
