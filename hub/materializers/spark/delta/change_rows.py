"""[edge] Changed rows of an incremental view as records of its changelog."""

from __future__ import annotations

import functools

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.planning.delta_plan import Table
from hub.materializers.spark.dataframes import VERSION_HEADER
from hub.materializers.spark.delta.inputs import DELETED, ORDER
from hub.materializers.spark.formats.decode import DLQ_SUFFIX
from hub.materializers.spark.sql_rows import BYTES, WHY
from hub.materializers.types import cdc
from hub.record import NewRecord


def as_changes(events: DataFrame, source: SqlSource, table: Table, many_topics: bool = False) -> DataFrame:
    """Return events as changes of a table: its columns, key, ``_deleted``, ``_order``, and ``_why`` an event
    is refused."""
    why = F.col(WHY)
    gone = F.col("_deleted")
    # The deletion of a change event has its key in its columns.
    tombstone = gone if source.cdc is None else F.lit(False)
    if source.table is not None and source.table.delete_when is not None:
        gone = gone | F.coalesce(F.expr(source.table.delete_when).cast("boolean"), F.lit(False))
    keys = {name: F.col(name) for name in table.key}
    order: Column = F.col("_offset")
    if table.kind == "table":
        if table.key != ("_key",):
            parsed = _key_parts(table)
            keys = {name: F.when(tombstone, parsed[name]).otherwise(F.col(name)) for name in table.key}
        none = functools.reduce(Column.__or__, (column.isNull() for column in keys.values()))
        listed = ", ".join(table.key)
        if table.key == ("_key",):
            message = F.lit("it has no record key, which is the table's key")
        else:
            text = F.coalesce(F.substring("_key", 1, 100), F.lit("null"))
            message = F.when(
                tombstone,
                F.concat(F.lit("a tombstone's record key does not fit "), F.lit(f"({listed}): "), text),
            ).otherwise(F.lit(f"the table's key ({listed}) is null in this event"))
        why = F.coalesce(why, F.when(none, message))
        if many_topics:  # several topics have no common order
            order = F.struct("_timestamp", "_topic", "_offset")
    if table.versioned and source.cdc is not None:
        # A database without an LSN: the order of the log, which is one order per key.
        logged = F.unix_micros("_timestamp") if many_topics else F.col("_offset")
        order = F.coalesce(cdc.LSN, logged)
    elif table.versioned:
        header = F.element_at(F.filter(BYTES[2], lambda each: each["key"] == F.lit(VERSION_HEADER)), -1)
        order = header["value"].cast("string").cast("bigint")
        why = F.coalesce(why, F.when(order.isNull(), F.lit(f"it has no header {VERSION_HEADER}")))
    others = [name for name in table.columns if name not in table.key]
    coordinates = ("_topic", "_partition", "_offset", "_timestamp")
    beside = [each for each in coordinates if each not in (*others, *keys)]
    return events.alias(table.name).select(
        why.alias(WHY),
        *(column.alias(name) for name, column in keys.items()),
        *(F.col(name).alias(name) for name in others),
        *beside,
        *BYTES,
        gone.alias(DELETED),
        order.alias(ORDER),
    )


def standing(changes: DataFrame, table: Table) -> DataFrame:
    """Return the table after all its changes, as the operator has it then."""
    taken = changes.where(F.col(WHY).isNull())
    if table.kind == "stream":
        return taken.where(~F.col(DELETED)).select(*stored_value(table))
    row = F.struct(*stored_value(table), DELETED)
    newest = taken.groupBy(*(F.col(name).alias(f"_of_{name}") for name in table.key)).agg(
        F.max_by(row, F.struct(ORDER, "_partition", "_offset")).alias("_row")
    )
    return newest.select("_row.*").where(~F.col(DELETED)).drop(DELETED)


def _key_parts(table: Table) -> dict[str, Column]:
    """Return the key's columns from a tombstone's record key, which is their text as written by
    ``key_text``."""
    parts = F.from_json("_key", "array<string>")
    if len(table.key) > 1:
        return {
            name: F.when(F.size(parts) == len(table.key), parts[n]).cast(table.columns[name])
            for n, name in enumerate(table.key)
        }
    (name,) = table.key
    text = F.when(F.col("_key").startswith("["), F.coalesce(parts[0], F.col("_key"))).otherwise(F.col("_key"))
    return {name: text.cast(table.columns[name])}


def change_records(column: pa.ChunkedArray, view: SqlView) -> list[NewRecord]:
    """Return dead events as records of their topics' dead-letter queues."""
    records = []
    for each in column.drop_null().to_pylist():
        headers = {
            "hub.dlq.reason": each[WHY],
            "hub.dlq.view": view.name,
            "hub.dlq.topic": each["_topic"],
            "hub.dlq.partition": str(each["_partition"]),
            "hub.dlq.offset": str(each["_offset"]),
            "hub.dlq.timestamp": str(each["_at_ms"]),
        }
        records.append(
            NewRecord(
                each["_topic"] + DLQ_SUFFIX,
                each[BYTES[0]],
                each[BYTES[1]],
                (
                    *((own["key"], own["value"]) for own in each[BYTES[2]] or ()),
                    *((name, value.encode()) for name, value in headers.items()),
                ),
            )
        )
    return records


def stored_value(table: Table) -> list[str]:
    return list(dict.fromkeys([*table.columns, *table.key]))
