"""What mirroring costs: the batch engine between two real Kafkas on this machine, dense and tiny batches.

Run: ``.venv/bin/python bench/mirror.py`` (under a minute; ``--records N`` for more). Prints figures, asserts none on time;
a record that did not arrive ends it. bench/README.md says what each figure means.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The hub beside this file is measured, not one that is installed.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from confluent_kafka import Producer
from ports import free_pair
from served import cost_of

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.record import TopicPartition
from hub.replication.batch_engine import BatchEngine, EngineSettings
from hub.replication.batches import Limits
from hub.replication.checkpoint import CHECKPOINTS_CONFIG, CHECKPOINTS_TOPIC, MAP_CONFIG, MAP_TOPIC
from hub.replication.wire import ClusterAccess

PARTITIONS = 6
NEVER_MERGED = Limits(tiny_records=0, tiny_bytes=0)


@dataclass(frozen=True, slots=True)
class Case:
    """``per_batch``: records a batch at most; ``merge`` False passes tiny batches one by one."""

    name: str
    records: int
    size: int
    codec: str
    per_batch: int
    merge: bool = True

    @property
    def topic(self) -> str:
        return f"bench.{self.name.replace(' ', '-').replace(',', '')}"


@contextmanager
def two_clusters() -> Iterator[tuple[KafkaNode, KafkaNode]]:
    folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
    nodes = []
    for name in ("source", "target"):
        port = free_pair()
        home = folder / name
        nodes.append(
            KafkaNode(
                Settings(home=home, project=home / "project", kafka_port=port, bootstrap=f"127.0.0.1:{port}")
            )
        )
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready()
        cluster = KafkaCluster(nodes[1].bootstrap)
        for name, config in ((CHECKPOINTS_TOPIC, CHECKPOINTS_CONFIG), (MAP_TOPIC, MAP_CONFIG)):
            cluster.create_topic(name, partitions=1, config=config, replication_factor=1)
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def fill(bootstrap: str, case: Case) -> None:
    """Text that compresses about as well as JSON does."""
    words = [random.Random(number).randbytes(6).hex() for number in range(4_000)]
    chance = random.Random(1)
    values = [
        " ".join(chance.choices(words, k=case.size // 13 + 1))[: case.size].encode() for _ in range(5_000)
    ]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": case.codec,
            "linger.ms": 50 if case.per_batch > 100 else 0,
            "batch.num.messages": case.per_batch,
            "batch.size": 131_072,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for number in range(case.records):
        while True:
            try:
                producer.produce(
                    case.topic, values[number % 5_000], f"key-{number % 9_973}", partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 5_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the source could not be filled")


def copy(source: str, target: str, case: Case) -> None:
    """What the child process does; prints its figures as JSON."""
    settings = EngineSettings() if case.merge else EngineSettings(limits=NEVER_MERGED)
    engine = BatchEngine(
        ClusterAccess(bootstrap=source),
        ClusterAccess(bootstrap=target),
        link=f"bench-{case.topic}",
        shard=0,
        partitions=[TopicPartition(case.topic, number) for number in range(PARTITIONS)],
        settings=settings,
    )
    engine.start()
    used = resource.getrusage(resource.RUSAGE_SELF)
    began, cpu, done, transactions = time.monotonic(), used.ru_utime + used.ru_stime, 0, 0
    while done < case.records:
        records = engine.step()
        done += records
        transactions += records > 0
        if engine.error is not None:
            raise engine.error
    wall_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    progress = engine.progress()
    engine.close()
    figures = {
        "records": done,
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime - cpu,
        "memory_mb": peak_memory_mb(),
        "bytes": sum(each.bytes for each in progress),
        "passed": sum(each.batches_passed for each in progress),
        "rewritten": sum(each.batches_rewritten for each in progress),
        "transactions": transactions,
    }
    print(json.dumps(figures))


def peak_memory_mb() -> float:
    """Of this program alone: getrusage's figure is, after a fork, at least the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def measure(source: KafkaNode, target: KafkaNode, case: Case) -> None:
    for node in (source, target):
        KafkaCluster(node.bootstrap).create_topic(
            case.topic, partitions=PARTITIONS, config={"compression.type": "producer"}, replication_factor=1
        )
    fill(source.bootstrap, case)
    assert target.process is not None
    before = cost_of_node(target)
    child = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            "--copy",
            source.bootstrap,
            target.bootstrap,
            json.dumps(fields(case)),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(child.stdout)
    if found["records"] != case.records:
        raise RuntimeError(f"{found['records']} of {case.records} records arrived")
    broker_s = cost_of_node(target) - before
    records = found["records"]
    batches = found["passed"] + found["rewritten"]
    say(
        case.name,
        f"{records / found['wall_s']:,.0f} /s",
        f"{found['cpu_s'] / records * 1e6:.2f} us",
        f"{broker_s / records * 1e6:.2f} us",
        f"{found['memory_mb']:,.0f} MB",
        f"{records / batches:,.0f}",
        f"{found['bytes'] / 1e6 / found['wall_s']:,.0f} MB/s",
        f"{found['passed']:,} / {found['rewritten']:,}",
        f"{found['transactions']:,}",
    )


def cost_of_node(node: KafkaNode) -> float:
    import psutil

    assert node.process is not None
    return cost_of(psutil.Process(node.process.pid)).cpu_s


def fields(case: Case) -> dict[str, object]:
    return {name: getattr(case, name) for name in Case.__dataclass_fields__}


def say(*cells: str) -> None:
    widths = (30, 13, 10, 10, 8, 8, 11, 17, 6)
    print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--records", type=int, default=400_000, help="of the dense topic; the tiny ones have a tenth"
    )
    arguments.add_argument("--copy", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args(words)
    if given.copy:
        source, target, case = given.copy
        copy(source, target, Case(**json.loads(case)))
        return
    print(f"hub: {ROOT}   cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}")
    tiny = given.records // 10
    cases = [
        Case("dense, lz4", given.records, 600, "lz4", 1_000),
        Case("5 a batch, merged", tiny, 200, "lz4", 5),
        Case("5 a batch, passed", tiny, 200, "lz4", 5, merge=False),
        Case("1 a batch, merged", tiny // 4, 200, "none", 1),
        Case("1 a batch, passed", tiny // 4, 200, "none", 1, merge=False),
    ]
    with two_clusters() as (source, target):
        say(
            "case",
            "records",
            "CPU each",
            "broker's",
            "memory",
            "a batch",
            "as carried",
            "passed / anew",
            "txns",
        )
        for case in cases:
            measure(source, target, case)


if __name__ == "__main__":
    main()
