"""The bench's view by Kafka Streams, on the same log: fetched, compiled and run when there is a ``javac``.

The peer has what the product has: Avro in and out, exactly once, two threads, RocksDB, one changelog of rows. It
serves nothing: its rows end in a topic, so its figures stop where the product's go on to a store and a subscriber.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer

from hub.config import Settings
from hub.embedded.jars import ivy_descriptor, pyspark_home, run_ivy
from hub.embedded.java import find_java
from hub.kafka import KafkaCluster
from hub.record import Positions

VERSION = "4.3.1"
OUT = "peer.bench"


def javac() -> Path | None:
    found = shutil.which("javac")
    return Path(found) if found else None


def classpath(settings: Settings) -> str:
    """Kafka Streams with what it depends on, fetched once; Avro and Jackson from PySpark's jars."""
    folder = settings.cache.expanduser() / "bench" / f"kafka-streams-{VERSION}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="hub-bench-ivy-") as name:
            staging = Path(name)
            (staging / "ivy.xml").write_text(
                ivy_descriptor([("org.apache.kafka", "kafka-streams", VERSION, True)])
            )
            run_ivy(
                find_java(settings), staging / "ivy.xml", staging / "cache", staging / "out", lambda: None
            )
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(staging / "out", folder)
    spark = pyspark_home() / "jars"
    beside = [next(spark.glob(f"{name}-[0-9]*.jar")) for name in ("avro", "jackson-core", "jackson-databind")]
    beside += [next(spark.glob("jackson-annotations-*.jar"))]
    streams = [path for path in sorted(folder.glob("*.jar")) if not path.name.startswith("jackson")]
    return ":".join(map(str, [*streams, *beside]))


class KafkaStreamsView:
    """The running peer."""

    def __init__(
        self, settings: Settings, cluster: KafkaCluster, folder: Path, schemas: Mapping[str, Any]
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.group = f"peer-{time.time_ns()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = classpath(settings)
        source = Path(__file__).with_name("CustomerView.java")
        compiler = javac()
        assert compiler is not None
        subprocess.run(
            [str(compiler), "-nowarn", "-cp", path, "-d", str(folder / "classes"), str(source)], check=True
        )
        files = []
        for topic, schema in schemas.items():
            file = folder / f"{topic}.avsc"
            file.write_text(json.dumps(schema))
            files.append(f"{topic}={file}")
        cluster.create_topic(OUT, partitions=2, config={"cleanup.policy": "compact"}, replication_factor=1)
        command = [
            str(find_java(settings).path), f"-Xmx{settings.spark_heap_mb}m", "-cp", f"{folder / 'classes'}:{path}",
            "CustomerView", settings.bootstrap, str(folder / "state"), self.group, *files,
        ]  # fmt: skip
        self.log = (folder / "peer.log").open("w")
        self.began_at = time.monotonic()
        self.process = psutil.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def caught_up(self, end: Positions) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the peer ended: {Path(self.log.name).read_text()[-2000:]}")
        return self.cluster.group_positions(self.group).covers(end)

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory_mb(self) -> int:
        return int(self.process.memory_info().rss >> 20)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except psutil.TimeoutExpired:
            self.process.kill()
        self.log.close()


def listen(bootstrap: str, done: threading.Event, heard: Callable[[str, float], None]) -> None:
    """Call ``heard(key, monotonic time)`` for each row that arrives at a reader of committed rows."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"peer-reader-{time.time_ns()}",
            "auto.offset.reset": "latest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([OUT])
    while not done.is_set():
        for message in consumer.consume(500, 0.05):
            if message.error() is None:
                heard(message.key().decode(), time.monotonic())
    consumer.close()
