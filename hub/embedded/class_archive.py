"""[edge] Spark's classes as the JVM lays them out in memory, kept in a file: first query after 5 s instead of 9 (2 cores).

Made once per Java and set of jars, by a JVM that runs a small stream and writes what it loaded when it ends:
class data sharing (JEP 350) before Java 25, the ahead-of-time cache (JEP 514) from 25 on. The JVM itself checks that
a file fits and goes on without one that does not, so the file may be missing, old or broken: only time is lost.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hub.config import Settings
from hub.embedded.jars import spark_classpath
from hub.embedded.java import Java, find_java
from hub.runtime import die_with_parent

MAKE_TIMEOUT_S = 300.0  # longer than it takes, for a machine that others use
# Of what ``main`` runs: files of an earlier one are not used any more.
_TRAINING = 3
# The JVM remarks on every class that it cannot keep; none of it is of use to anyone.
_QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]


def archive_path(settings: Settings, java: Java, classpath: str) -> Path:
    """Where the file for this Java and classpath belongs, whether it is there or not."""
    java_stamp = f"{java.path.resolve()} {java.path.stat().st_mtime_ns}"
    name = hashlib.sha256(f"{_TRAINING}\n{java_stamp}\n{classpath}".encode()).hexdigest()[:16]
    return settings.cache.expanduser().absolute() / "classes" / f"spark-{java.version}-{name}"


def reading_flags(java: Java, path: Path) -> list[str]:
    """The flags that use the file; none when there is no file."""
    if not path.exists():
        return []
    return [f"-XX:{'AOTCache' if java.version >= 25 else 'SharedArchiveFile'}={path}", *_QUIET]


def writing_flags(java: Java, path: Path) -> list[str]:
    """The flags that make a JVM write the file when it ends."""
    return [f"-XX:{'AOTCacheOutput' if java.version >= 25 else 'ArchiveClassesAtExit'}={path}", *_QUIET]


def has_archive(settings: Settings, jars: Sequence[Path]) -> bool:
    """True when a start would find the file."""
    return archive_path(settings, find_java(settings), spark_classpath(settings, jars)).exists()


def make_archive(settings: Settings, jars: Sequence[Path]) -> bool:
    """Make the file when it is missing (about 30 s), in a process of its own. False when that did not work."""
    path = archive_path(settings, find_java(settings), spark_classpath(settings, jars))
    if path.exists():
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            die_with_parent([sys.executable, "-m", "hub.embedded.class_archive", str(path), *map(str, jars)]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=MAKE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return path.exists()


# What expressions of views are made of: a key with a choice in it, the latest event, a list that is folded.
_KEY = "CASE WHEN value IS NULL THEN 'none' WHEN value < 5 THEN CAST(value % 3 AS STRING) ELSE concat_ws('-', value, 'a') END"
_FOLDED = (
    "count(1) AS n",
    "max(if(value IS NULL, NULL, struct(timestamp, value))) AS latest",
    "collect_list(struct(timestamp AS at, CAST(value AS STRING) AS id, value)) AS entries",
)
_SET = "map_values(map_from_entries(transform(array_sort(entries), _e -> struct(_e.id AS key, _e AS value))))"
_ROWS = (
    "latest.value AS value",
    f"coalesce(aggregate(filter({_SET}, _e -> _e.value > 1), CAST(0 AS BIGINT), (_a, _e) -> _a + _e.value), 0) AS total",
    "size(entries) AS many",
)

# Of Kafka's client: what readers and writers are made of. Without a broker they cannot be run here.
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
    """Load classes without running any of their code. Those that need a jar that is not there are passed over."""
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
        # The folder may be on another disk: copy beside the target, under a name that no other maker has, then rename,
        # so that nobody reads half a file.
        beside = path.with_suffix(f".{os.getpid()}.part")
        beside.write_bytes(part.read_bytes())
        beside.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
