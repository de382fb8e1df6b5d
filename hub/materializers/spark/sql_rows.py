"""[edge] pyspark: rows of a SQL view's sources, typed and judged,
and the records of events that are not accepted."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hub.materializers.definition.declared import META
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.planning.classified import LateRule
from hub.materializers.spark.dataframes import with_headers
from hub.materializers.spark.formats.decode import DLQ_SUFFIX, Input, SchemaAnswers, judged
from hub.materializers.types import cdc

EVENTS = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
WHY, BYTES = "_why", ("_hub_key", "_hub_value", "_hub_headers")
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_ISO_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def typed(events: DataFrame, given: Input, source: SqlSource, answered: SchemaAnswers) -> DataFrame:
    """Return each event with ``_why`` it is refused (null: it is accepted), the source's columns, META, its
    bytes and headers."""
    known = judged(events, [given], answered, filtered=True)
    event = F.col(given.source.event)
    columns = [event[name].alias(name) for name in given.source.columns]
    why = F.col("_why")
    if source.event_time is not None:
        time = F.col("_timestamp") if source.event_time == "_timestamp" else event[source.event_time]
        latest = F.col("_timestamp") + F.expr(f"INTERVAL {source.max_ahead_ms} MILLISECONDS")
        ahead = F.concat(
            F.lit("its event time "),
            F.date_format(time, _ISO),
            F.lit(f" is more than {source.max_ahead} ahead of the record's own"),
        )
        untimely = F.when(time.isNull(), F.lit(f"its event time {source.event_time} is null")).when(
            time > latest, ahead
        )
        why = F.coalesce(why, F.when(~F.col("_deleted"), untimely))
    return known.select(
        why.alias(WHY),
        *columns,
        *META,
        F.col("key").alias(BYTES[0]),
        F.col("value").alias(BYTES[1]),
        F.col("_headers").alias(BYTES[2]),
    )


def taken(events: DataFrame) -> DataFrame:
    """Return the rows that the SQL sees, without tombstones: they mean a deletion, and a stream does not
    retract rows."""
    return events.where(F.col(WHY).isNull() & ~F.col("_deleted")).drop(WHY, *BYTES)


def latest_rows(events: DataFrame, given: Input, source: SqlSource, answered: SchemaAnswers) -> DataFrame:
    """Return the current table of a topic: the latest event of each record key, without deleted ones."""
    rows = typed(events, given, source, answered).where(F.col(WHY).isNull())
    own = F.coalesce("_key", F.concat_ws("-", "_topic", "_partition", "_offset"))
    kept = [*given.source.columns, *META]
    changed = [F.coalesce(F.col(cdc.LSN), F.lit(0))] if source.cdc is not None else []
    order = F.struct(*changed, "_timestamp", "_topic", "_offset")
    latest = rows.groupBy(own.alias("_of")).agg(F.max_by(F.struct(*kept), order).alias("_row"))
    return latest.select("_row.*").where(~F.col("_deleted"))


def key_text(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return a row's key as text: for one column, its text; for several, a JSON array of their texts and
    nulls.

    A single column that is null, or whose text begins with ``[``, becomes an array of one, so that no two
    keys have the same text. A time that is not a whole millisecond is written with six digits.
    """
    types = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    parts = [_time_text(name) if types[name] == "timestamp" else F.col(name).cast("string") for name in key]
    # to_json omits nulls in structs, but not in arrays.
    array = F.to_json(F.array(*parts))
    if len(parts) > 1:
        return array
    return F.when(parts[0].isNull() | parts[0].startswith("["), array).otherwise(parts[0])


def _time_text(name: str) -> Column:
    whole = F.unix_micros(name) % 1_000 == 0
    return F.when(whole, F.date_format(name, _ISO)).otherwise(F.date_format(name, _ISO_MICROS))


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def taken_with_bytes(events: DataFrame) -> DataFrame:
    return events.where(F.col(WHY).isNull() & ~F.col("_deleted"))


def dead_records(events: DataFrame, view: SqlView) -> DataFrame:
    return events.where(F.col(WHY).isNotNull()).select(
        F.concat("_topic", F.lit(DLQ_SUFFIX)).alias("topic"),
        F.col(BYTES[0]).alias("key"),
        F.col(BYTES[1]).alias("value"),
        with_headers(
            F.col(BYTES[2]),
            header("hub.dlq.reason", F.col(WHY)),
            header("hub.dlq.view", F.lit(view.name)),
            header("hub.dlq.topic", F.col("_topic")),
            header("hub.dlq.partition", F.col("_partition")),
            header("hub.dlq.offset", F.col("_offset")),
            header("hub.dlq.timestamp", F.unix_millis("_timestamp")),
        ).alias("headers"),
    )


def too_late(rows: DataFrame, late: LateRule, view: SqlView, watermark_ms: int) -> DataFrame:
    """Return the events that arrived too late, once each, as records of the late topic."""
    watermark = F.timestamp_millis(F.lit(watermark_ms))
    time = F.col(late.time)
    if late.windows is None:
        behind = rows.where(time <= watermark)
    else:
        # window() makes one row per window of an event. The event is late if one of them was closed.
        inside = rows.withColumn("_window", F.expr(late.windows))
        behind = inside.where(F.col("_window.end") <= watermark).dropDuplicates(
            ["_topic", "_partition", "_offset"]
        )
    return behind.select(
        F.lit(view.late_topic).alias("topic"),
        F.col(BYTES[0]).alias("key"),
        F.col(BYTES[1]).alias("value"),
        with_headers(
            F.col(BYTES[2]),
            header("hub.late.topic", F.col("_topic")),
            header("hub.late.partition", F.col("_partition")),
            header("hub.late.offset", F.col("_offset")),
            header("hub.late.timestamp", F.unix_millis("_timestamp")),
            header("hub.late.event_time", F.date_format(time, _ISO)),
            header("hub.late.watermark", F.date_format(watermark, _ISO)),
        ).alias("headers"),
    )
