"""Cost of backup and restore, beside a plain consumer that writes what it reads into a file, in the same run.

Run: ``./run bench backup`` (``--mb N``; ``--quick``; ``--to DIR``). Two real Kafkas on this machine, a topic
of six partitions, records of 1 KB in batches as producers send them (lz4). Each step is a process of its own,
whose CPU and peak memory are measured; the disk's own speed is printed for comparison. Asserts nothing on
time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = str(ROOT)

from confluent_kafka import Producer
from kafka_nodes import own_node

from hub.kafka import KafkaCluster

TOPIC, PARTITIONS, RECORD_BYTES = "bench.events", 6, 1_000
GOAL_MB_S = 50.0
DUMP = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, partitions, path = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "dump", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "enable.partition.eof": True})
consumer.assign([TopicPartition(topic, n, 0) for n in range(int(partitions))])
left = int(partitions)
with open(path, "wb", 1 << 20) as out:
    while left:
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                left -= 1
                continue
            out.write(message.key() or b"null"); out.write(b"\\t"); out.write(message.value()); out.write(b"\\n")
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Figures:
    seconds: float
    cpu_s: float
    memory_mb: float


def measured(command: Sequence[str], environment: dict[str, str]) -> Figures:
    """Run a process to its end; return its cost. Ends the measurement if it fails."""
    begun_s = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command[:4])} ended with {status}")
    seconds = time.monotonic() - begun_s
    return Figures(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def fill(bootstrap: str, records: int) -> None:
    KafkaCluster(bootstrap).create_topic(TOPIC, partitions=PARTITIONS, config={}, replication_factor=1)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    chance = random.Random(3)
    words = [chance.randbytes(8).hex() for _ in range(4_000)]
    for number in range(records):
        value = " ".join(chance.choices(words, k=RECORD_BYTES // 17)).encode()
        while True:
            try:
                producer.produce(TOPIC, value, b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.5)
        producer.poll(0)
    producer.flush(120)


def disk_mb_s(folder: Path, mb: int = 256) -> float:
    """Return how fast the disk takes a file in blocks of 16 MiB with fsync."""
    block, path = os.urandom(16 << 20), folder / "disk"
    begun_s = time.monotonic()
    with path.open("wb") as opened:
        for _ in range(max(1, mb // 16)):
            opened.write(block)
            opened.flush()
            os.fsync(opened.fileno())
    seconds = time.monotonic() - begun_s
    path.unlink()
    return mb * 1.048576 / seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mb", type=int, default=1_000, help="of records, before compression")
    arguments.add_argument("--quick", action="store_true", help="200 MB")
    arguments.add_argument("--to", help="folder of the backup. Default: a temporary one")
    given = arguments.parse_args()
    os.environ.pop("JAVA_TOOL_OPTIONS", None)
    mb = 200 if given.quick else given.mb
    folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
    place = Path(given.to) if given.to else folder / "backup"
    hub = [sys.executable, "-m", "hub.cli"]
    print(f"hub: {ROOT}   cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}")
    try:
        with own_node(folder / "source") as source, own_node(folder / "target") as target:
            fill(source.bootstrap, mb * 1_000_000 // RECORD_BYTES)
            log = sum(each.stat().st_size for each in (folder / "source").glob(f"kafka/data/{TOPIC}-*/*.log"))
            print(f"records: {mb} MB, in the log {log / 1e6:.0f} MB; disk: {disk_mb_s(folder):.0f} MB/s\n")
            print(f"{'step':34}{'MB/s':>8}{'log MB/s':>10}{'seconds':>9}{'CPU-s':>8}{'peak MB':>9}")

            def row(name: str, found: Figures, of_mb: float = mb) -> None:
                rate = of_mb / found.seconds
                print(
                    f"{name:34}{rate:8.0f}{rate * log / mb / 1e6:10.0f}{found.seconds:9.1f}"
                    f"{found.cpu_s:8.1f}{found.memory_mb:9.0f}",
                    flush=True,
                )

            told = {"HUB_EMBEDDED_KAFKA": "false", "HUB_HOME": str(folder), "HUB_PROJECT": str(folder)}
            here, there = (
                {**told, "HUB_BOOTSTRAP": source.bootstrap},
                {**told, "HUB_BOOTSTRAP": target.bootstrap},
            )
            file = str(folder / "dump")
            dump = [sys.executable, "-c", DUMP, source.bootstrap, TOPIC, str(PARTITIONS), file]
            measured(dump, told)  # warms the broker
            row("dump by a consumer (no offsets)", measured(dump, told))
            row("hub backup run", measured([*hub, "backup", "run", "--to", str(place), "--no-schemas"], here))
            row(
                "hub backup run, nothing new",
                measured([*hub, "backup", "run", "--to", str(place), "--no-schemas"], here),
                0,
            )
            row("hub backup verify", measured([*hub, "backup", "verify", "--from", str(place)], here))
            row("hub restore", measured([*hub, "restore", "--from", str(place), "--no-schemas"], there))
            size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
            print(f"\nbackup: {size / 1e6:.0f} MB, dump: {Path(file).stat().st_size / 1e6:.0f} MB")
            print(f"goal: {GOAL_MB_S:.0f} MB/s of records, or the disk's limit")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
