"""[edge] Make the class archive: ``python -m hub.embedded.class_archive_training PATH
JAR…`` runs a small stream."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hub.config import Settings
from hub.embedded.class_archive import MAKE_TIMEOUT_S
from hub.embedded.java import find_java

# Typical expressions of views: a key with a choice, the latest event, a list that is folded.
_KEY = (
    "CASE WHEN value IS NULL THEN 'none' WHEN value < 5 THEN CAST(value % 3 AS STRING) ELSE "
    "concat_ws('-', value, 'a') END"
)


_FOLDED = (
    "count(1) AS n",
    "max(if(value IS NULL, NULL, struct(timestamp, value))) AS latest",
    "collect_list(struct(timestamp AS at, CAST(value AS STRING) AS id, value)) AS entries",
)


_SET = "map_values(map_from_entries(transform(array_sort(entries), _e -> struct(_e.id AS key, _e AS value))))"


_ROWS = (
    "latest.value AS value",
    (
        f"coalesce(aggregate(filter({_SET}, _e -> _e.value > 1), CAST(0 AS BIGINT), (_a, _e) -> _a + "
        "_e.value), 0) AS total"
    ),
    "size(entries) AS many",
)


# Classes of Kafka's client that readers and writers use. They cannot run here without a broker.
_KAFKA = re.compile(
    r"org/apache/(kafka/(clients/(consumer/|producer/|[^/]+$)|common/)(?!.*JsonConverter)|spark/sql/kafka010/)"
)


def _kafka_classes(jars: Sequence[Path]) -> Iterator[str]:
    for jar in jars:
        with zipfile.ZipFile(jar) as opened:
            for name in opened.namelist():
                if name.endswith(".class") and _KAFKA.match(name):
                    yield name.removesuffix(".class").replace("/", ".")


def _load(jvm: Any, names: Iterable[str]) -> None:
    """Load classes without running any of their code.
    Those that need a jar that is not there are passed over."""
    from py4j.protocol import Py4JError

    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in names:
        with suppress(Py4JError):
            jvm.java.lang.Class.forName(name, False, loader)


def main(arguments: list[str]) -> None:
    """Run a small stream, so that a view's classes are loaded; its JVM writes the file on its way out."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro, to_avro

    from hub.embedded.spark_gateway import start_spark_gateway

    path, jars = Path(arguments[0]), [Path(name) for name in arguments[1:]]
    settings = Settings()
    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    with tempfile.TemporaryDirectory(prefix="hub-classes-") as folder:
        part = Path(folder) / "part"
        conf = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
            "spark.sql.streaming.stateStore.providerClass": state,
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        }
        gateway = start_spark_gateway(settings, find_java(settings), jars, conf, write_archive=part)
        gateway.install()
        session = SparkSession.builder.getOrCreate()
        numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        decoded = numbers.select(from_avro(to_avro("value"), '"long"').alias("value"), "timestamp")
        keyed = decoded.withColumn("key", F.expr(_KEY)).repartition(1, "key")
        folded = keyed.groupBy("key").agg(*(F.expr(sql) for sql in _FOLDED))
        rows = folded.select("key", *(F.expr(sql) for sql in _ROWS))
        query = (
            rows.select(F.concat(F.lit(b"0"), to_avro(F.struct("*"))).alias("value"))
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        _load(session.sparkContext._jvm, _kafka_classes(jars))
        session.stop()
        gateway.stop(MAKE_TIMEOUT_S)
        # The folder may be on another disk: copy into the target's folder under a name that no other process
        # uses, then rename, so that nobody reads an incomplete file.
        beside = path.with_suffix(f".{os.getpid()}.part")
        beside.write_bytes(part.read_bytes())
        beside.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
