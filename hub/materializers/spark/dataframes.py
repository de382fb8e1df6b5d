"""[edge] pyspark: execution of an EntityPlan on DataFrames. The same functions serve streams, batches and
tests.

``events`` are rows as Spark's Kafka source gives them (key, value, topic, partition, offset, timestamp). They
go through four steps: ``decode`` (each event by its own writer schema), ``fold`` (the one aggregation),
``rows`` (the view's columns), ``records`` (the input of the Kafka sink).

An event that cannot be decoded must neither stop the view nor be lost, and a streaming query has one sink. So
it goes through the same aggregation as a group of its own, keyed by its coordinates after a NUL, and leaves
as a record for ``<topic>.dlq``, exactly as durable as the view itself. Its bytes stay in the state.

An event whose schema id was unknown when the query was planned is different: the id may be seconds old and
valid. The query then fails before the batch is committed (``UNKNOWN_SCHEMA`` in the message), is planned
again with what the registry knows by now, and reads the same offsets again. Only events that
``SchemaAnswers`` covers are refused. A producer registers a schema before it writes, so an event that was in
the log before the registry was asked cannot have a valid id that the registry did not know.

A replayed dead-letter record names the place of its original (``hub.replay.of``). Ranks compare ``_at``,
twice the offset, so that a replay comes directly after its original and before all later events.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.materializers.definition.entity_plan import ORIGIN, EntityPlan, SourcePlan, steps
from hub.materializers.spark.formats.decode import BAD, DLQ_SUFFIX, KEY, NO_HEADERS, WriterSchema
from hub.materializers.types.avro_types import AvroType, changelog_schema
from hub.materializers.types.spark_text import first_of, literal, quoted, struct

VERSION_HEADER = "hub.version"
SOURCES_HEADER = "hub.sources"

# Columns of a row besides the view's own.
ROW_META = ("_version", "_sources")


def fold(union: DataFrame, shape: EntityPlan, partitions: int | None = None) -> DataFrame:
    """Aggregate the union: one row of state per key. ``partitions``: those of the state, for large reads.

    By default, Spark folds a key's events in each task, sends the result and merges it. If a list of
    identities is kept, that makes nothing smaller, so with ``partitions`` events are first sent to the
    partition of their key and folded once.
    """
    if partitions is not None and any(source.unique is not None for source in shape.sources):
        union = union.repartition(partitions, KEY)
    return union.groupBy(KEY).agg(
        F.expr("count(1)").alias("_version"),
        F.first(BAD, ignorenulls=True).alias(BAD),
        *(F.expr(sql).alias(name) for name, sql in shape.aggregates),
    )


def rows(folded: DataFrame, shape: EntityPlan) -> DataFrame:
    """Return the view's rows: key, the declared columns in order, _version, _sources, _row_deleted, and _bad
    events."""
    ready = folded.selectExpr("*", *(f"{sql} AS {name}" for name, sql in shape.uniques))
    for group in steps(shape.outputs):
        ready = ready.withColumns({name: F.expr(sql) for name, sql in group.items()})
    origins = [
        f"IF({source.latest} IS NULL, NULL, {struct(_origin(source, shape))}) AS {quoted(source.name)}"
        for source in shape.sources
    ]
    gone = "FALSE" if shape.delete_when is None else f"coalesce(CAST({shape.delete_when} AS BOOLEAN), FALSE)"
    if shape.absent is not None:
        gone = f"{gone} OR ({shape.absent})"
    if shape.expired is not None:
        gone = f"{gone} OR ({shape.expired})"
    return ready.selectExpr(
        f"{KEY} AS _key",
        *(quoted(name) for name, _ in shape.outputs),
        "_version",
        f"STRUCT({', '.join(origins)}) AS _sources",
        f"{gone} AS _row_deleted",
        BAD,
    )


def _origin(source: SourcePlan, shape: EntityPlan) -> Iterator[tuple[str, str]]:
    """Yield the fields of a row's origin.

    An expired row has no timestamp: no event of a source deleted it, and the time of the last event must not
    be used to measure how long the deletion took.
    """
    for name in ORIGIN:
        found = f"{source.latest}.{name}"
        if shape.expired and name == "_timestamp":
            found = f"IF({shape.expired}, NULL, {found})"
        yield name.removeprefix("_"), found


def row_schema(view: str, row_frame: DataFrame) -> AvroType:
    """Return the changelog's Avro schema of ``rows``."""
    fields = row_frame.drop("_key", "_row_deleted", BAD).schema.jsonValue()["fields"]
    return changelog_schema(view, fields, required=ROW_META)


def records(
    row_frame: DataFrame,
    view: str,
    schema: AvroType,
    schema_id: int,
    generation: int,
    changelog: str | None = None,
) -> DataFrame:
    """Return records for the Kafka sink: rows to the changelog, undecodable events to their topic's
    dead-letter queue.

    ``changelog``: default is that of the view's own name.

    ``hub.version`` is generation · 2⁴⁰ + events folded. It grows with every event, and rows of a
    recomputation replace those of the generation before.
    """
    columns = ", ".join(quoted(field["name"]) for field in schema["fields"])
    body = to_avro(F.expr(f"STRUCT({columns})"), orjson.dumps(schema).decode())
    value = F.concat(F.lit(WriterSchema(schema_id, None).head), body)
    dead = [_header("hub.dlq.reason", f"{BAD}.reason"), _header("hub.dlq.view", literal(view))]
    dead += [_header(f"hub.dlq.{name}", f"{BAD}._{name}") for name in ("topic", "partition", "offset")]
    dead.append(_header("hub.dlq.timestamp", f"unix_millis({BAD}._timestamp)"))
    version = _header(VERSION_HEADER, f"_version + {generation << GENERATION_SHIFT}L")
    # A deleted row has no columns to show which events deleted it. Readers that wait for that write read this
    # header.
    origins = _header(SOURCES_HEADER, "to_json(_sources)")
    headers = first_of(
        [
            (
                f"{BAD} IS NOT NULL",
                f"concat(coalesce({BAD}._headers, {NO_HEADERS}), array({', '.join(dead)}))",
            ),
            ("_row_deleted", f"array({version}, {origins})"),
        ],
        f"array({version})",
    )
    topic = literal(changelog or CHANGELOG_PREFIX + view)
    return row_frame.select(
        F.expr(f"IF({BAD} IS NULL, {topic}, concat({BAD}._topic, '{DLQ_SUFFIX}')) AS topic"),
        F.expr(f"IF({BAD} IS NULL, CAST(_key AS BINARY), {BAD}.key) AS key"),
        F.when(F.expr(f"{BAD} IS NOT NULL"), F.expr(f"{BAD}.value"))
        .when(F.expr("NOT _row_deleted"), value)
        .alias("value"),
        F.expr(f"{headers} AS headers"),
    )


def _header(name: str, of: str) -> str:
    return f"STRUCT({literal(name)} AS key, CAST(CAST({of} AS STRING) AS BINARY) AS value)"


def with_headers(own: Column, *more: Column) -> Column:
    """Return an event's own headers followed by ``more``."""
    return F.concat(F.coalesce(own, F.expr(NO_HEADERS)), F.array(*more))


GENERATION_SHIFT = 40
