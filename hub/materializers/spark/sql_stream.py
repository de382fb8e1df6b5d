"""[edge] pyspark: native execution of a SQL view. Sources become typed streaming temp views; the author's SQL
reads them.

::

    topic ─ decode (each event by its own writer schema) ─ judge ─ observe(bad) ─ watermark ─▶ temp view ─┐
    topic ─ …                                                                                             ├─ SQL ─▶ changelog
    static topic ─ latest of each key, read anew in each batch ───────────────────────────────▶ temp view ─┘

A query's main plan is the author's, and nothing is inserted into it. Events that cannot be accepted and
events behind the watermark are *swept* after each batch (``sweep``). Spark reports how many there were. If
there were any, the batch's offsets are read once more, judged the same way, and written to ``<topic>.dlq``
and ``views.<view>.late``. A batch without such events costs nothing. Which events were late is exact: Spark's
offset log has the watermark that the batch ran with. In real-time mode a batch is what lies between two
checkpoints: rows are written as events arrive, and refused events at the checkpoint, before the position is
reported.

Temp views and settings belong to a Spark session of the query's own, so two views may use the same names for
their sources.
"""  # noqa: E501

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.streaming.query import StreamingQuery

from hub.config import Settings
from hub.errors import CallerError, ConfigError
from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.definition.sql_query import Query
from hub.materializers.definition.sql_view import FROM, ORIGIN, VERSION, SqlSource, SqlView
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import DeltaPlan
from hub.materializers.progress.records import Mode
from hub.materializers.spark import kafka_source
from hub.materializers.spark.checkpoints.committed_batches import logged_offsets
from hub.materializers.spark.dataframes import GENERATION_SHIFT, SOURCES_HEADER, VERSION_HEADER
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, WriterSchema, taken_by
from hub.materializers.spark.python_udfs import register
from hub.materializers.spark.session import executed, refusal
from hub.materializers.spark.session_settings import code_settings, in_real_time
from hub.materializers.spark.sql_rows import (
    EVENTS,
    WHY,
    dead_records,
    header,
    key_text,
    latest_rows,
    taken,
    taken_with_bytes,
    too_late,
    typed,
)
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import AvroType, changelog_schema
from hub.record import Positions, lag_records

log = logging.getLogger(__name__)
_STREAMING = "spark.sql.streaming"
# More batches of Spark's log are kept than for entity views: after a crash, a sweep reads them.
_KEPT_BATCHES = 100
_SWEPT = "hub_swept.json"
# A sweep of fewer events finishes sooner when its expressions are interpreted, not compiled.
_COMPILE_FROM = 50_000


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A SQL view that is ready to run: natively, or by the incremental engine if ``delta`` is set
    (``delta_stream.py``)."""

    view: SqlView
    classified: Classified
    inputs: tuple[Input, ...]
    answered: SchemaAnswers
    row_schema: AvroType
    row_schema_id: int
    generation: int
    checkpoint: Path
    partitions: int
    delta: DeltaPlan | None = None

    @property
    def sql(self) -> str:
        """The SQL that Spark runs.

        A stateless view with ``mode: realtime`` traces in each row which event made it, in every mode,
        because its positions are reported only at checkpoints.
        """
        return (self.view.mode == "realtime" and self.classified.traced) or self.classified.sql

    @property
    def topics(self) -> list[str]:
        """Topics whose offsets make up the view's position."""
        streams = [each for each in self.inputs if self.delta or self.source(each).read_as == "stream"]
        return sorted({topic for each in streams for topic in each.topics})

    def source(self, given: Input) -> SqlSource:
        return self.view.sources[given.source.name]


def inputs_of(
    query: Query, found: Mapping[str, tuple[tuple[str, ...], tuple[WriterSchema, ...], AvroType]]
) -> tuple[Input, ...]:
    """Return the sources of a SQL view as inputs. ``found``: by source, its topics, writer schemas and newest
    schema."""
    inputs = []
    for name, source in query.view.sources.items():
        used = tuple(sorted(query.used[name]))
        plan = SourcePlan(name, source.topic, used, "", None, False, None, None)
        # A table has no earlier value to keep.
        whole = cdc.may_be_unavailable(found[name][2]) & query.used[name].keys()
        inputs.append(Input(replace(plan, whole=tuple(sorted(whole))), *found[name]))
    return tuple(inputs)


def row_schema(
    session: SparkSession, view: SqlView, classified: Classified, inputs: Sequence[Input]
) -> AvroType:
    """Return the Avro schema of the view's rows, from the types that Spark infers. Runs nothing.

    Raises ConfigError (HUB-2105) with Spark's message when the SQL does not type.
    """
    own = register(session.newSession(), view)
    empty = own.createDataFrame([], EVENTS)
    for given in inputs:
        taken(typed(empty, given, view.sources[given.source.name], SchemaAnswers())).createOrReplaceTempView(
            given.source.name
        )
    try:
        frame = own.sql(classified.sql)
        fields = frame.withColumnRenamed(VERSION, "_version").schema.jsonValue()["fields"]
    except PySparkException as error:
        raise refused(view, error) from None
    return changelog_schema(view.name, fields, required=("_version",))


def start(
    session: SparkSession,
    plan: SqlPlan,
    settings: Settings,
    mode: Mode,
    *,
    whole: bool = False,
) -> StreamingQuery:
    """Start the view's query. ``bulk`` reads what exists and ends by itself; ``live`` and ``realtime``
    continue.

    ``whole``: read everything in one batch.

    Raises ConfigError when Spark does not support the query's shape (HUB-2105), or its real-time mode does
    not (HUB-2108).
    """
    own = register(session.newSession(), plan.view)
    for key, value in {
        **code_settings(mode),
        "spark.sql.shuffle.partitions": str(plan.partitions),
        f"{_STREAMING}.minBatchesToRetain": str(_KEPT_BATCHES),
        # Windows, sessions and rows without a join partner are written when the watermark has advanced
        # without an event.
        f"{_STREAMING}.noDataMicroBatches.enabled": str(plan.classified.has_state).lower(),
    }.items():
        own.conf.set(key, value)
    _register_sources(own, plan, settings, mode, whole=whole)
    try:
        out = _records(own.sql(plan.sql), plan)
        writing = (
            out.writeStream.queryName(plan.view.table)
            .format("kafka")
            .options(**kafka_source.writing(settings, mode))
            .option("checkpointLocation", str(plan.checkpoint))
        )
        if mode == "realtime":  # it supports no other output mode; a stateless row is new in every mode
            return in_real_time(writing.outputMode("update"), settings).start()
        writing = writing.outputMode(plan.classified.mode or "append")
        if mode == "bulk":
            return writing.trigger(availableNow=True).start()
        return writing.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()
    except PySparkException as error:
        if (not_taken := refusal(plan.view.name, error)) is not None:
            raise not_taken from None
        if isinstance(error, AnalysisException):
            raise refused(plan.view, error) from None
        raise


def _register_sources(
    session: SparkSession, plan: SqlPlan, settings: Settings, mode: Mode, *, whole: bool
) -> None:
    """Create the temp views that the SQL reads. ``whole``: a stream reads everything in one batch."""
    streams = [each for each in plan.inputs if plan.source(each).read_as == "stream"]
    for given in plan.inputs:
        source = plan.source(given)
        if source.read_as == "static":
            latest_rows(
                kafka_source.whole_topics(session, settings, given.topics), given, source, plan.answered
            ).createOrReplaceTempView(given.source.name)
            continue
        share = None if whole else len(streams)
        events = taken_by(kafka_source.events(session, settings, given.topics, mode, share), plan.view.name)
        events_ = typed(events, given, source, plan.answered)
        observed = events_.observe(_metric(given), F.count(WHY).alias("bad"))
        rows = taken(observed)
        if (watermark := plan.classified.watermark(given.source.name)) is not None:
            rows = rows.withWatermark(*watermark)
        rows.createOrReplaceTempView(given.source.name)


def refused(view: SqlView, error: PySparkException) -> ConfigError:
    message = str(error).strip().split("\n")[0]
    return ConfigError(
        f'view "{view.name}": Spark refuses the SQL: {message[:500]}',
        hint="it is Spark SQL over the sources' columns; `hub view explain` shows its interpretation",
        code="HUB-2105",
    )


def _metric(given: Input) -> str:
    return f"hub_{given.source.name}"


def _records(frame: DataFrame, plan: SqlPlan) -> DataFrame:
    """Return the changelog's records for the Kafka sink."""
    rows = frame.withColumnRenamed(VERSION, "_version")
    columns = [field["name"] for field in plan.row_schema["fields"]]
    body = to_avro(F.struct(*columns), orjson.dumps(plan.row_schema).decode())
    version = F.col("_version") + F.lit(plan.generation << GENERATION_SHIFT)
    headers = [header(VERSION_HEADER, version)]
    if FROM in rows.columns:
        headers.append(header(SOURCES_HEADER, _origin(F.col(FROM))))
    return rows.select(
        F.lit(plan.view.changelog).alias("topic"),
        key_text(rows, plan.classified.key).cast("binary").alias("key"),
        F.concat(F.lit(WriterSchema(plan.row_schema_id, None).head), body).alias("value"),
        F.array(*headers).alias("headers"),
    )


def _origin(event: Column) -> Column:
    """Return an event's origin as JSON by the source's name, like ``_sources`` of an entity view's row."""
    return F.to_json(F.create_map(event["source"], F.struct(*(event[name] for name in ORIGIN))))


@dataclass(frozen=True, slots=True)
class Swept:
    """Progress of the sweep of a checkpoint's batches, and the dead and late events since the view's
    generation began."""

    batch_id: int = -1
    reached: Positions = Positions()
    dead: int = 0
    late: int = 0


def swept(checkpoint: Path) -> Swept:
    """Return the note of the last sweep, or an empty one if it is missing or corrupt: then all that is left
    is swept again."""
    try:
        body = orjson.loads((checkpoint / _SWEPT).read_bytes())
        return Swept(body["batch_id"], Positions.parse(body["reached"]), body["dead"], body["late"])
    except FileNotFoundError:
        return Swept()
    except (ValueError, KeyError, TypeError, CallerError) as error:
        log.error("%s was changed, and is ignored: %s", checkpoint / _SWEPT, error)
        return Swept()


def quiet_batches(query: StreamingQuery) -> set[int]:
    """Return the batches that Spark reports as run with every event accepted."""
    reports = [each for each in query.recentProgress if executed(each["durationMs"])]
    return {each["batchId"] for each in reports} - {
        each["batchId"] for each in reports if not _took_all(each)
    }


def _took_all(progress: Any) -> bool:
    metrics = list((progress["observedMetrics"] or {}).values())
    if progress["numInputRows"] and not metrics:
        return False  # not counted, so it must be swept
    dropped = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
    return not dropped and not any(row["bad"] for row in metrics)


def sweeping(session: SparkSession, plan: SqlPlan) -> SparkSession:
    """Return a session for sweeps, with the functions that a ``transform`` may call.

    The shared one has Spark's 200 partitions until an entity view sets others. There, a sweep's few rows
    would take 400 tasks.
    """
    own = register(session.newSession(), plan.view)
    own.conf.set("spark.sql.shuffle.partitions", "1")
    return own


def sweep(
    session: SparkSession, plan: SqlPlan, settings: Settings, before: Swept, until: int, quiet: set[int]
) -> Swept:
    """Write the events that the batches after ``before`` up to ``until`` did not accept. Note the progress.

    ``session``: from ``sweeping``. The note is in the checkpoint folder. After a crash between the writing
    and the note, the same events are written again; their coordinates identify them.
    """
    after = before
    for batch_id in range(before.batch_id + 1, until + 1):
        if batch_id in quiet:
            after = replace(after, batch_id=batch_id)
            continue
        if not (plan.checkpoint / "offsets" / str(batch_id)).exists():
            continue  # purged: its offsets are read and judged with the next batch's
        start = after.reached.advanced(_logged(plan.checkpoint, after.batch_id)[0])
        reached, _ = _logged(plan.checkpoint, batch_id)
        # Events are judged by the watermark of the batch before.
        _, watermark_ms = _logged(plan.checkpoint, batch_id - 1)
        dead, late = _sweep_range(session, plan, settings, start, reached, watermark_ms)
        after = Swept(batch_id, reached, after.dead + dead, after.late + late)
        _note(plan.checkpoint, after)
    return after


def keep(checkpoint: Path, done: Swept) -> None:
    """Note how far the sweep is, so that a restart does not sweep again."""
    _note(checkpoint, replace(done, reached=done.reached.advanced(_logged(checkpoint, done.batch_id)[0])))


def _note(checkpoint: Path, done: Swept) -> None:
    body = {
        "batch_id": done.batch_id,
        "reached": str(done.reached),
        "dead": done.dead,
        "late": done.late,
    }
    beside = checkpoint / f"{_SWEPT}.tmp"
    beside.write_bytes(orjson.dumps(body))
    beside.replace(checkpoint / _SWEPT)


def _logged(checkpoint: Path, batch_id: int) -> tuple[Positions, int]:
    try:
        return logged_offsets(checkpoint, batch_id)
    except FileNotFoundError:
        return Positions(), 0


def _sweep_range(
    session: SparkSession,
    plan: SqlPlan,
    settings: Settings,
    start: Positions,
    end: Positions,
    watermark_ms: int,
) -> tuple[int, int]:
    """Write the dead and the late events of an offset range. Return the number of each."""
    mode: Mode = "bulk" if lag_records(end, start) >= _COMPILE_FROM else "live"
    for name, value in code_settings(mode).items():
        session.conf.set(name, value)
    found: list[DataFrame] = []
    for given in plan.inputs:
        source = plan.source(given)
        if source.read_as != "stream":
            continue
        unread = start.behind(end.of_topics(given.topics))
        if not len(unread):
            continue
        events = taken_by(kafka_source.event_range(session, settings, start, unread), plan.view.name)
        read = typed(events, given, source, plan.answered)
        found.append(dead_records(read, plan.view))
        for late in plan.classified.late:
            if late.source == given.source.name and watermark_ms > 0:
                found.append(too_late(taken_with_bytes(read), late, plan.view, watermark_ms))
    if not found:
        return 0, 0
    # Not `persist`: Spark compares the plans of all views with what that keeps, in several threads at once,
    # and a `from_avro` expression that two threads evaluate stays broken. No view could then be planned until
    # Spark was restarted.
    out = functools.reduce(DataFrame.unionByName, found).localCheckpoint()
    counts = {row["topic"]: row["count"] for row in out.groupBy("topic").count().collect()}
    late_events = counts.pop(plan.view.late_topic, 0)
    if counts or late_events:
        out.write.format("kafka").options(**kafka_source.writing(settings, "bulk")).save()
    return sum(counts.values()), late_events
