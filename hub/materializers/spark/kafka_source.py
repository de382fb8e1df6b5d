"""[edge] pyspark: how the hub's queries read from Kafka and write to it, with the address, TLS and SASL of the settings.

What is said here goes to the executors with each task, as Spark's connector has it. It is in no checkpoint; where Spark prints
a query's options, in plans and errors, ``REDACTED`` keeps secrets out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from hub.config import Settings
from hub.kafka import own_connection, own_proxy
from hub.kafka.java_client import ALLOWED_URLS, allowed_urls, java_client
from hub.materializers.progress.records import Mode

_SINK = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "lz4",
    "kafka.batch.size": "131072",
    # The topic decides how large a record may be: a dead event is written as large as it came.
    "kafka.max.request.size": "33554432",
    "kafka.delivery.timeout.ms": "30000",
    "kafka.request.timeout.ms": "10000",
    "kafka.max.block.ms": "15000",
}
# So many bytes of a partition are not waited with.
_GATHERED = 65_536
# By default in Kafka 4 only: when none of the brokers that it knows answers, the servers named here are asked again.
_RECOVERY = {"metadata.recovery.strategy": "rebootstrap"}
_SECRETS = "(?i)secret|password|token|access[.]?key|jaas|keystore|private key"
REDACTED: Mapping[str, str] = {
    "spark.redaction.regex": _SECRETS,
    "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
}


def reading(settings: Settings, mode: Mode = "live") -> Mapping[str, str]:
    """How the hub's queries read from Kafka.

    Spark asks a consumer for a partition's first and last offset after each poll, and the broker answers a connection in
    order: behind the consumer's read-ahead, which waits there for events that this batch does not want. So it may not
    wait, but in real-time mode, where events are what it waits for (``realtime_gather_ms``). And one poll takes all that one
    fetch brought, not the first 500 records of it: fewer such questions.
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
    """How the hub's queries write to Kafka. A live batch says itself when it is done."""
    linger_ms = {"bulk": 20, "live": 0, "realtime": settings.realtime_gather_ms // 4}[mode]
    return {**_reaching(settings), **_SINK, "kafka.linger.ms": str(linger_ms)}


def _is_here(settings: Settings) -> bool:
    """Whether Spark's tasks run on this machine. Those of a cluster cannot reach the proxy, and read from the brokers."""
    return settings.spark_master.startswith("local")


def _through_proxy(settings: Settings) -> dict[str, str]:
    """No batch reaches Spark that unpacks to more than its heap holds: its own client has no bound."""
    return {f"kafka.{name}": value for name, value in {**own_proxy(settings).java(), **_RECOVERY}.items()}


def _reaching(settings: Settings) -> dict[str, str]:
    connection = own_connection(settings)
    security = java_client(connection, here=_is_here(settings))
    said = {"bootstrap.servers": ",".join(connection.bootstrap), **_RECOVERY, **security}
    return {f"kafka.{name}": value for name, value in said.items()}


def stream(
    session: SparkSession, settings: Settings, topics: Sequence[str], mode: Mode = "live"
) -> DataStreamReader:
    """The events of these topics from their beginnings on; one that is gone unread is an error."""
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
    """A query's stream of events. ``share``: it is one of so many that share a batch's limit; None: there is no limit.

    In real time a task a partition: it has a slot of its own and waits there for its events. In batches not: a task has a cost of
    its own, which a small batch feels, and in a large one each task has a partial row of almost every key, so that fewer tasks
    leave fewer rows to sort, send and merge.
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
        source = source.option("maxOffsetsPerTrigger", str(max(1, per_batch // share)))
    return source.load().coalesce(tasks)


def of_executors(settings: Settings) -> Mapping[str, str]:
    """What the JVMs of a cluster's executors are to be told beside all that; with what the settings say to them already."""
    urls = allowed_urls(own_connection(settings))
    if urls is None:
        return {}
    options = "spark.executor.extraJavaOptions"
    return {options: f"{settings.spark_conf.get(options, '')} -D{ALLOWED_URLS}={urls}".strip()}


def let_ask_for_tokens(session: SparkSession, settings: Settings) -> None:
    """The same for this process's JVM. Nothing where no tokens are asked for."""
    urls = allowed_urls(own_connection(settings))
    if urls is not None:
        session._jvm.java.lang.System.setProperty(ALLOWED_URLS, urls)  # type: ignore[union-attr]
