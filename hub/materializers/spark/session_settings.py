"""[edge] pyspark: settings of a session, and of one whose executors run in a cluster."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from hub.config import Settings
from hub.errors import PeerError
from hub.materializers.progress.records import Mode

_STREAMING = "spark.sql.streaming"
# The reasons are in docs/explanation/notes-on-cost.md.
SESSION: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # stages of real-time mode never end
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    # Otherwise each call on a column sends the JVM the calling line of Python in four more calls, which takes
    # three quarters of a view's planning time. Error messages name the expression instead.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A live batch is planned each time: skip validation after each rule, and the full description for the
    # disabled UI.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    # One event must not stop a view: x / 0 and a bad cast give null, not an error.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # With more keys than this, a task's fold sorts its events off-heap and makes a buffer for each. Spark's
    # default of 128 is fewer than a live batch has. Data that is folded unsorted stays on the heap, each
    # key with
    # its lists: with tens of thousands of keys, garbage collection doubled the cost of a catch-up.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2000",
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    f"{_STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}.stateStore.rocksdb.boundedMemoryUsage": "true",
    f"{_STREAMING}.stateStore.rocksdb.maxMemoryUsageMB": "256",
    # Counting the rows of a state costs one more lookup per written row, and the number is not used.
    f"{_STREAMING}.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STREAMING}.stateStore.checkpointFormatVersion": "2",
    f"{_STREAMING}.minBatchesToRetain": "10",
    f"{_STREAMING}.noDataMicroBatches.enabled": "false",
    f"{_STREAMING}.numRecentProgressUpdates": "10",
    f"{_STREAMING}.pollingDelay": "5ms",
    # Slots for real-time tasks are reserved before they start (slots.py), whatever live views have queued.
    "spark.scheduler.pipelinedGroup.slotCheck.enabled": "false",
    # A reader keeps the last fetched data of a partition until the query's next batch, in a catch-up tens of
    # thousands of events. With Spark's default of 5 minutes, a view of fourteen partitions keeps 90 MB, and a
    # few views that catch up one after the other exhaust the heap.
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    # Otherwise stateless queries log their offsets after the batch, but progress and sweeps are based on
    # these offsets.
    f"{_STREAMING}.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
}
# Spark can generate code for every task. That pays off in a bulk batch, and in real-time mode, which does so
# once per checkpoint interval: an eighth less work per event, for a pause that is half as long again. A small
# live batch finishes sooner when its expressions are interpreted, and the JVM's compilers get no new classes.
_GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
CODE: Mapping[Mode, Mapping[str, str]] = {
    "bulk": _GENERATED,
    "live": _INTERPRETED,
    "realtime": _GENERATED,
}
# A live batch is planned each time, and these rules search all its expressions and find nothing to do.
_CATALYST, _DATASOURCES = (
    "org.apache.spark.sql.catalyst.optimizer",
    "org.apache.spark.sql.execution.datasources",
)
IDLE_RULES = ",".join(
    (
        f"{_CATALYST}.FoldablePropagation",
        f"{_CATALYST}.GenerateOptimization",
        f"{_CATALYST}.InferFiltersFromConstraints",
        f"{_CATALYST}.OptimizeCsvJsonExprs",
        f"{_CATALYST}.OptimizeOneRowRelationSubquery",
        f"{_CATALYST}.OptimizeUpdateFields",
        f"{_CATALYST}.PushFoldableIntoBranches",
        f"{_CATALYST}.RemoveRedundantAliases",
        f"{_CATALYST}.ReorderAssociativeOperator",
        f"{_CATALYST}.ReplaceNullWithFalseInPredicate",
        f"{_CATALYST}.RewriteCorrelatedScalarSubquery",
        f"{_CATALYST}.SimplifyBinaryComparison",
        f"{_CATALYST}.UnwrapCastInBinaryComparison",
        f"{_DATASOURCES}.PruneFileSourcePartitions",
        f"{_DATASOURCES}.PushVariantIntoScan",
        f"{_DATASOURCES}.SchemaPruning",
    )
)
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"


def cluster_settings(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Return the settings for executors that are separate processes: they connect to the driver by name and
    fetch its jars."""
    host = settings.spark_driver_host or socket.getfqdn()
    return {
        "spark.master": settings.spark_master,
        "spark.driver.host": host,
        # The name may be known only to other machines: then listen on every address.
        "spark.driver.bindAddress": host if _is_address(host) else "0.0.0.0",
        "spark.jars": ",".join(map(str, jars)),
    }


def await_executor(session: SparkSession, settings: Settings) -> None:
    """Wait for the first executor. Raise PeerError (HUB-3058) after ``spark_executors_wait_s``; Spark would
    wait forever."""
    context = session.sparkContext._jsc.sc()
    deadline = time.monotonic() + settings.spark_executors_wait_s
    while context.getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            raise PeerError(
                f"{settings.spark_master} gave no executor within {settings.spark_executors_wait_s:g} s",
                hint="it needs free cores and memory for one (spark_conf: spark.executor.memory), and its "
                "executors must reach"
                f" {session.sparkContext.getConf().get('spark.driver.host')} (spark_driver_host)",
                code="HUB-3058",
            )
        time.sleep(0.2)


def java_message(error: Py4JError) -> str:
    """Return Java's own message. The first line of the error only names the call."""
    lines = str(error).splitlines()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def _is_address(host: str) -> bool:
    """Return True if ``host`` is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def code_settings(mode: Mode) -> Mapping[str, str]:
    """Return the settings that decide if queries of a mode compile their expressions."""
    return CODE[mode]


def in_real_time(writing: DataStreamWriter, settings: Settings) -> DataStreamWriter:
    """Set the trigger of real-time mode, with its checkpoint interval. pyspark has it, its type
    stubs do not."""
    triggered: DataStreamWriter = writing.trigger(
        realTime=f"{round(settings.realtime_checkpoint_s * 1000)} milliseconds"  # type: ignore[call-overload]
    )
    return triggered
