"""[edge] pyspark: options for reading from and writing to Kafka, with the address, TLS and SASL of the
settings.

Spark's connector sends these options to the executors with each task. They are in no checkpoint. Spark prints
a query's options in plans and errors; ``REDACTED`` keeps secrets out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from hub.config import Settings
from hub.kafka import own_connection, own_proxy
from hub.kafka.java_client import ALLOWED_URLS, allowed_urls, java_client
from hub.materializers.progress.records import Mode
from hub.record import Positions, TopicPartition

_SINK = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "lz4",
    "kafka.batch.size": "131072",
    # The topic's limit applies: a dead-letter record is as large as its event.
    "kafka.max.request.size": "33554432",
    "kafka.delivery.timeout.ms": "30000",
    "kafka.request.timeout.ms": "10000",
    "kafka.max.block.ms": "15000",
}
# As the most events of a batch: the query reads nothing until its snapshot group lifts the limit.
NO_EVENTS = 0
# This many bytes of a fetch are returned without further waiting.
_GATHERED = 65_536
# Default only since Kafka 4: when none of the known brokers answers, the bootstrap servers are asked again.
_RECOVERY = {"metadata.recovery.strategy": "rebootstrap"}
_SECRETS = "(?i)secret|password|token|access[.]?key|jaas|keystore|private key"
REDACTED: Mapping[str, str] = {
    "spark.redaction.regex": _SECRETS,
    "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
}


def reading(settings: Settings, mode: Mode = "live") -> Mapping[str, str]:
    """Return the options for reading from Kafka.

    After each poll, Spark asks a consumer for a partition's first and last offset. The broker answers a
    connection in order, after the consumer's read-ahead, which waits there for events that this batch does
    not need. So fetches must not wait, except in real-time mode, where a query waits for events anyway
    (``realtime_gather_ms``). One poll takes all records of a fetch, not only the first 500, so that there are
    fewer such requests.
    """
    if mode != "realtime":
        fetching = {"kafka.fetch.max.wait.ms": "0", "kafka.max.poll.records": "50000"}
    elif settings.realtime_gather_ms:
        fetching = {
            "kafka.fetch.max.wait.ms": str(settings.realtime_gather_ms),
            "kafka.fetch.min.bytes": str(_GATHERED),
        }
    else:
        fetching = {"kafka.fetch.max.wait.ms": "50"}
    return {
        **(_through_proxy(settings) if _is_here(settings) else _reaching(settings)),
        "kafka.isolation.level": "read_committed",
        "kafka.request.timeout.ms": "10000",
        "kafka.default.api.timeout.ms": "15000",
        "includeHeaders": "true",
        **fetching,
    }


def writing(settings: Settings, mode: Mode = "live") -> Mapping[str, str]:
    """Return the options for writing to Kafka. Live mode does not linger, because a batch flushes when it is
    done."""
    linger_ms = {"bulk": 20, "live": 0, "realtime": settings.realtime_gather_ms // 4}[mode]
    return {**_reaching(settings), **_SINK, "kafka.linger.ms": str(linger_ms)}


def _is_here(settings: Settings) -> bool:
    """Return True if Spark's tasks run on this machine. Those of a cluster cannot reach the proxy and read
    from the brokers."""
    return settings.spark_master.startswith("local")


def _through_proxy(settings: Settings) -> dict[str, str]:
    """Return the options for reading through the proxy, which refuses batches that would unpack to more than
    the heap holds.

    Spark's own client has no such limit.
    """
    return {f"kafka.{name}": value for name, value in {**own_proxy(settings).java(), **_RECOVERY}.items()}


def _reaching(settings: Settings) -> dict[str, str]:
    connection = own_connection(settings)
    security = java_client(connection, here=_is_here(settings))
    options = {"bootstrap.servers": ",".join(connection.bootstrap), **_RECOVERY, **security}
    return {f"kafka.{name}": value for name, value in options.items()}


def stream(
    session: SparkSession, settings: Settings, topics: Sequence[str], mode: Mode = "live"
) -> DataStreamReader:
    """Return a reader of the topics from their beginnings. Events lost before they were read are an error."""
    return (
        session.readStream.format("kafka")
        .options(**reading(settings, mode))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
    )


def events(
    session: SparkSession, settings: Settings, topics: Sequence[str], mode: Mode, share: int | None = 1
) -> DataFrame:
    """Return a query's stream of events. ``share``: number of streams that share a batch's limit; None: no
    limit.

    In real time, each partition has a task, which occupies a slot and waits for events. In batches, fewer
    tasks are used: each has a fixed cost, which a small batch feels, and in a large batch each has a partial
    row of almost every key, so that fewer tasks leave fewer rows to sort, send and merge.
    """
    source = stream(session, settings, topics, mode)
    if mode == "realtime":
        return source.load()
    per_batch, tasks = (
        (settings.bulk_events_per_batch, settings.bulk_tasks)
        if mode == "bulk"
        else (settings.live_events_per_batch, settings.live_tasks)
    )
    if share is not None:
        most = NO_EVENTS if per_batch == NO_EVENTS else max(1, per_batch // share)
        source = source.option("maxOffsetsPerTrigger", str(most))
    return source.load().coalesce(tasks)


def of_executors(settings: Settings) -> Mapping[str, str]:
    """Return the Java options for a cluster's executors that allow asking for tokens, added to those of the
    settings."""
    urls = allowed_urls(own_connection(settings))
    if urls is None:
        return {}
    options = "spark.executor.extraJavaOptions"
    return {options: f"{settings.spark_conf.get(options, '')} -D{ALLOWED_URLS}={urls}".strip()}


def let_ask_for_tokens(session: SparkSession, settings: Settings) -> None:
    """Allow this process's JVM to ask for tokens, if the settings use tokens."""
    urls = allowed_urls(own_connection(settings))
    if urls is not None:
        session._jvm.java.lang.System.setProperty(ALLOWED_URLS, urls)  # type: ignore[union-attr]


def whole_topics(session: SparkSession, settings: Settings, topics: Sequence[str]) -> DataFrame:
    """Return all events of topics. A static source of a stream is read again in each batch."""
    return (
        session.read.format("kafka")
        .options(**reading(settings))
        .option("subscribe", ",".join(topics))
        .options(startingOffsets="earliest", endingOffsets="latest")
        .load()
    )


def event_range(session: SparkSession, settings: Settings, start: Positions, end: Positions) -> DataFrame:
    """Return the events from ``start`` until ``end`` that the log still has."""

    def by_topic(offsets: Mapping[TopicPartition, int]) -> str:
        nested: dict[str, dict[str, int]] = {}
        for tp, offset in offsets.items():
            nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return orjson.dumps(nested).decode()

    partitions: dict[str, list[int]] = {}
    for tp, _ in end:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    # -2 means earliest: no earlier batch had this partition.
    first = {tp: start.offsets.get(tp, -2) for tp, _ in end}
    return (
        session.read.format("kafka")
        .options(**reading(settings))
        .option("assign", orjson.dumps(partitions).decode())
        .option("startingOffsets", by_topic(first))
        .option("endingOffsets", by_topic(dict(end.offsets)))
        # Events deleted by retention cannot be written any more; the view itself includes them.
        .option("failOnDataLoss", "false")
        .load()
    )
