"""[edge] pyspark: the Spark session, and one streaming query per view.

Sets everything that Spark fixes for the life of a checkpoint: RocksDB with changelog checkpoints, format
version 2, the number of state partitions. The other settings avoid problems that were measured: a local file
system that forks a process per file operation, adaptive plans that streams cannot use, batches that are kept
forever.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hub.config import Settings
from hub.embedded import SparkGateway, ensure_jars, find_java, start_spark_gateway
from hub.errors import ConfigError, PeerError
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_plan import EntityPlan
from hub.materializers.progress.records import Mode
from hub.materializers.spark import dataframes, kafka_source
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, decode, taken_by
from hub.materializers.spark.functions.policy import policy_conf
from hub.materializers.spark.session_settings import (
    CODE,
    EXCLUDED_RULES,
    IDLE_RULES,
    SESSION,
    await_executor,
    cluster_settings,
    in_real_time,
    java_message,
)
from hub.materializers.spark.slots import Slots
from hub.materializers.types.avro_types import AvroType

_DEEPEST = 20  # longest chain of causes
_REFUSED = re.compile(r"\[(?:INVALID_)?STREAMING_REAL_TIME_MODE[\w.]*\]([^\n]*)")
# Guards the session settings above and the number of state partitions, which a query copies when it starts.
_starting = threading.Lock()


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """An entity view that is ready to run: compiled, with its topics and writer schemas, and its changelog
    registered."""

    shape: EntityPlan
    inputs: tuple[Input, ...]
    answered: SchemaAnswers
    row_schema: AvroType
    row_schema_id: int
    generation: int
    checkpoint: Path
    partitions: int
    # Name of the version. Empty: the view's own name.
    version: str = ""

    @property
    def table(self) -> str:
        return self.version or self.shape.view

    @property
    def topics(self) -> list[str]:
        return sorted({topic for each in self.inputs for topic in each.topics})


_SLOW_BATCHES = "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"


def open_session(
    settings: Settings, slots: Slots, log: Path | None = None
) -> tuple[SparkSession, SparkGateway]:
    """Start Spark's JVM and connect to it. The JVM ends with this process.

    Counts the task slots of a cluster. ``log``: file for the JVM's output; None: standard error.

    Raises PeerError (HUB-3058) when the cluster refuses the application or provides no executor.
    """
    jars = ensure_jars(settings, ("spark",))["spark"]
    conf = {**SESSION, **kafka_source.REDACTED}
    if slots.most is None:
        conf |= cluster_settings(settings, jars)
    else:
        conf["spark.master"] = f"local[{slots.capacity}]"
        # Sort buffers on the heap filled it: a catch-up took half as long again in a session that had run.
        if settings.spark_off_heap_mb:
            conf |= {
                "spark.memory.offHeap.enabled": "true",
                "spark.memory.offHeap.size": f"{settings.spark_off_heap_mb}m",
            }
    if settings.python_memory_mb:
        conf["spark.executor.pyspark.memory"] = f"{settings.python_memory_mb}m"
    # Shuffled rows of views with `decrypt` are in clear text, and stay on disk after a kill.
    conf["spark.io.encryption.enabled"] = str(bool(settings.kms)).lower()
    scratch = settings.home.absolute() / "spark"
    conf |= {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    # In real time, a buffer between two stages is sent after this time even if it is not full. Spark's
    # default is 50.
    conf["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] = str(max(5, settings.realtime_gather_ms // 2))
    conf |= {**settings.spark_conf, **kafka_source.of_executors(settings), **policy_conf(settings)}
    gateway = start_spark_gateway(
        settings, find_java(settings), jars, conf, settings.start_timeout_s, log=log
    )
    gateway.install()
    try:
        session = SparkSession.builder.appName("hub").getOrCreate()
    except Py4JError as error:
        raise PeerError(
            f"{settings.spark_master} did not take the materializer: {java_message(error)}",
            hint="the reason is in its log; the cluster needs the same version of Spark as the "
            "hub, and workers that run",
            code="HUB-3058",
        ) from error
    _log_warnings(session)
    kafka_source.let_ask_for_tokens(session, settings)
    if slots.most is None:
        await_executor(session, settings)
        count_slots(session, slots, settings)
    return session, gateway


def count_slots(session: SparkSession, slots: Slots, settings: Settings) -> None:
    """Set ``slots`` to the cluster's current capacity. Executors start one after the other, and any may stop.

    Raises PeerError (HUB-3058) when the cluster has ended the application.
    """
    try:
        slots.capacity = session.sparkContext.defaultParallelism
    except Py4JError as error:
        raise PeerError(
            f"{settings.spark_master} has ended the materializer's application: {java_message(error)}",
            hint="the materializer starts again; the reason is in the master's log",
            code="HUB-3058",
        ) from error
    slots.shared = min(settings.live_tasks, slots.capacity)


def wider_session(session: SparkSession, slots: Slots) -> SparkSession:
    """Open the next session of the same JVM with ``slots.wanted`` slots. No query may be running."""
    session.stop()
    wider: SparkSession = SparkSession.builder.appName("hub").master(f"local[{slots.widen()}]").getOrCreate()
    _log_warnings(wider)
    return wider


def refusal(view: str, failure: PySparkException) -> ConfigError | None:
    """Return the error for a view that real-time mode does not support; None for any other failure."""
    found = _REFUSED.search(str(failure))
    if found is None:
        return None
    return ConfigError(
        f'view "{view}": real-time mode does not take it: {found.group(1).strip()}',
        hint="write `mode: live`: the same view in micro-batches, from the same state",
        code="HUB-2108",
    )


def row_schema(session: SparkSession, shape: EntityPlan, inputs: Sequence[Input]) -> AvroType:
    """Return the Avro schema of the view's rows, from the types that Spark infers. Runs nothing.

    Raises ConfigError (HUB-2105) with Spark's message when an expression does not type.
    """
    empty = session.createDataFrame(
        [],
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary",
    )
    try:
        return dataframes.row_schema(shape.view, _rows(empty, shape, inputs, SchemaAnswers()))
    except PySparkException as error:
        reason = str(error).split(";")[0].split("\n")[0]
        raise ConfigError(
            f'view "{shape.view}": Spark refuses an expression: {reason}',
            hint="its expressions are Spark SQL; docs/reference/view-files.md has examples",
            code="HUB-2105",
        ) from None


def start(session: SparkSession, plan: ViewPlan, settings: Settings, mode: Mode) -> StreamingQuery:
    """Start the view's query. ``bulk`` reads what exists and ends by itself; ``live`` and ``realtime``
    continue.

    Raises ConfigError (HUB-2108) when Spark's real-time mode does not support the view.
    """
    events = kafka_source.events(session, settings, plan.topics, mode)
    events = taken_by(events, plan.shape.view)
    out = dataframes.records(
        _rows(events, plan.shape, plan.inputs, plan.answered, plan.partitions if mode == "bulk" else None),
        plan.shape.view,
        plan.row_schema,
        plan.row_schema_id,
        plan.generation,
        changelog_of(plan.table),
    )
    writing = (
        out.writeStream.queryName(plan.table)
        .format("kafka")
        .options(**kafka_source.writing(settings, mode))
        .option("checkpointLocation", str(plan.checkpoint))
        .outputMode("update")
    )
    if mode == "bulk":
        writing = writing.trigger(availableNow=True)
    elif mode == "live":
        writing = writing.trigger(processingTime=f"{settings.trigger_ms} milliseconds")
    else:
        writing = in_real_time(writing, settings)
    with _starting:
        session.conf.set("spark.sql.shuffle.partitions", str(plan.partitions))
        for key, value in CODE[mode].items():
            session.conf.set(key, value)
        if mode != "bulk":
            session.conf.set(EXCLUDED_RULES, IDLE_RULES)
        try:
            return writing.start()
        except PySparkException as error:
            raise refusal(plan.shape.view, error) or error from None
        finally:
            session.conf.unset(EXCLUDED_RULES)


def _rows(
    events: DataFrame,
    shape: EntityPlan,
    inputs: Sequence[Input],
    answered: SchemaAnswers,
    partitions: int | None = None,
) -> DataFrame:
    union = decode(events, inputs, answered)
    return dataframes.rows(dataframes.fold(union, shape, partitions), shape)


def causes(query: StreamingQuery) -> str:
    """Return the causes of a query's failure, one per line. pyspark passes on the message of only one of
    them."""
    failure = query._jsq.exception()
    found: list[str] = []
    below = failure.get() if failure.isDefined() else None
    while below is not None and len(found) < _DEEPEST:
        found.append(str(below.toString()))
        below = below.getCause()
    return "\n".join(found)


def life(session: SparkSession, query: StreamingQuery) -> tuple[int, ...]:
    """Return numbers that change while a query's batch runs, () while none of its stages runs.

    For each stage: its id, completed tasks, and records read, written and shuffled. Executors report these
    every few seconds.
    """
    stages = session.sparkContext._jsc.sc().statusStore().activeStages()
    found: list[int] = []
    for number in range(stages.size()):
        stage = stages.apply(number)
        description = stage.description()
        if description.isDefined() and str(query.runId) in description.get():
            found += [stage.stageId(), stage.numCompleteTasks(), stage.inputRecords(), stage.outputRecords()]
            found += [stage.shuffleReadRecords(), stage.shuffleWriteRecords()]
    return tuple(found)


def executed(duration_ms: Container[str]) -> bool:
    """Return True if a progress report is of a batch that was run, judged by its durations.

    After ten idle seconds Spark reports the next batch as if it had taken no time. Once that batch has run,
    it is reported again.
    """
    return "addBatch" in duration_ms or "commitOffsets" in duration_ms


def is_gone(error: BaseException) -> bool:
    """Return True if an error means that Spark's JVM does not answer any more. Exceptions thrown in Java do
    not count."""
    return isinstance(error, ConnectionError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )


def is_stopped(session: SparkSession) -> bool:
    """Return True if the session's context has ended by itself. Nothing runs in it any more, and no query
    reports that."""
    return bool(session.sparkContext._jsc.sc().isStopped())


def _log_warnings(session: SparkSession) -> None:
    """Have Spark log warnings, but not that a batch took longer than ``trigger_ms``: the next one begins at
    once then, and the hub measures lag itself.
    """
    session.sparkContext.setLogLevel("WARN")
    log4j: Any = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_SLOW_BATCHES, log4j.Level.ERROR)
    # PySpark would log each refused SQL with a stack of two hundred lines. Its error has the first.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
