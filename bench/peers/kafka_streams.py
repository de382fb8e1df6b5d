"""The bench's views by Kafka Streams, on the same log: fetched, compiled and run when there is a ``javac``.

``CustomerView.java`` is the view of four topics in bench/views.py, ``SevenSystems.java`` that of seven in
bench/customer_360.py, as a cogroup or as a join of tables.

The peer has what the product has: Avro in and out, exactly once, two threads, RocksDB, one changelog of rows.
Its rows end in a topic, so its figures stop where the product's go on to a store and a subscriber; for
bench/pulls.py it answers by key.
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
from hub.runtime import die_with_parent

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
    """The running peer. ``way``, ``rows``: of the view of seven topics, "cogroup" or "join", and its rows'
    schema. ``port``: where the view of four answers rows by key, from its own store."""

    def __init__(
        self,
        settings: Settings,
        cluster: KafkaCluster,
        folder: Path,
        schemas: Mapping[str, Any],
        way: str = "",
        rows: Mapping[str, Any] | None = None,
        port: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.group = f"peer-{time.time_ns()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = classpath(settings)
        program = "SevenSystems" if way else "CustomerView"
        sources = [str(Path(__file__).with_name(f"{name}.java")) for name in ("Peer", program)]
        compiler = javac()
        assert compiler is not None
        subprocess.run(
            [str(compiler), "-nowarn", "-cp", path, "-d", str(folder / "classes"), *sources], check=True
        )
        files = []
        for topic, schema in schemas.items():
            file = folder / f"{topic}.avsc"
            file.write_text(json.dumps(schema))
            files.append(f"{topic}={file}")
        cluster.create_topic(OUT, partitions=2, config={"cleanup.policy": "compact"}, replication_factor=1)
        (folder / "rows.avsc").write_text(json.dumps(rows))
        shape = [OUT, str(folder / "rows.avsc")] if way else []
        command = [
            str(find_java(settings).path), f"-Xmx{settings.spark_heap_mb}m",
            *(["-Dsun.net.httpserver.nodelay=true", f"-Dserve={port}"] if port else []),
            "-cp", f"{folder / 'classes'}:{path}",
            program, *([way] if way else []), settings.bootstrap, str(folder / "state"), self.group, *shape,
            *files,
        ]  # fmt: skip
        self.log = (folder / "peer.log").open("w")
        self.began_at = time.monotonic()
        self.process = psutil.Popen(
            die_with_parent(command), stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )

    def positions(self) -> Positions:
        """What it has committed. Raises with its last words when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the peer ended: {Path(self.log.name).read_text()[-2000:]}")
        return self.cluster.group_positions(self.group)

    def caught_up(self, end: Positions) -> bool:
        return self.positions().covers(end)

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory_mb(self) -> int:
        return int(self.process.memory_info().rss >> 20)

    def peak_memory_mb(self) -> int:
        return peak_memory_mb(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except psutil.TimeoutExpired:
            self.process.kill()
        self.log.close()


def peak_memory_mb(pid: int) -> int:
    """The highest resident size that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


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
