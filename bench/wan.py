"""Mirrors over a long link: one partition through a delay line, with the source or the target far away.

Run: ``./run bench wan`` (``--delays 0,50,100,200``: round trips in ms; ``--cap MB``: MB/s of each connection;
``--only source`` or ``target``; ``--seconds N`` of each lag; ``--no-plain``; ``--mirror-maker``). Prints
MB/s, CPU, memory and lag of the hub's engine beside a plain librdkafka consumer and producer in the same run.
Asserts no times; a record that does not arrive ends it. bench/README.md says what each figure means.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one, also in the processes that copy.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]
os.environ["PYTHONPATH"] = str(ROOT)

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from delay_line import FarNode
from link_proxy import LinkedNode
from mirror import begin, peak_memory_mb, two_clusters
from mirror_maker import MirrorMaker, properties
from peers.mirror_maker import JAVA, tuned

from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.record import TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_thread import settings_of

SIZE = 1_000
LAG_RATE = 1_000
BULK, LAG = "nyc.wan.bulk", "nyc.wan.lag"
AT_MOST_S = 240.0


def make_anew(node: LinkedNode, *topics: str) -> None:
    cluster = KafkaCluster(node.bootstrap)
    for topic in topics:
        if topic in cluster.topics():
            cluster.delete_topic(topic)
        cluster.create_topic(
            topic, partitions=1, config={"compression.type": "producer"}, replication_factor=1
        )


def fill(node: LinkedNode, records: int) -> None:
    make_anew(node, BULK)
    values = [random.Random(number).randbytes(SIZE // 2).hex().encode() for number in range(1_000)]
    options = {"bootstrap.servers": node.bootstrap, "batch.size": 131_072, "linger.ms": 50, "log_level": 0}
    producer = Producer(options | {"enable.idempotence": True})
    for number in range(records):
        while True:
            try:
                producer.produce(BULK, values[number % 1_000], partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the source could not be filled")


# ---- processes that copy: each prints its figures, and continues until a line arrives on its input


def used_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Ended:
    """True once a line arrives on standard input."""

    def __init__(self) -> None:
        self.set = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        sys.stdin.readline()
        self.set = True


def report(began_s: float, cpu_s: float, records: int) -> None:
    wall_s = time.monotonic() - began_s
    figures = {
        "mb_per_s": records * SIZE / wall_s / 1e6,
        "cpu_s": used_cpu_s() - cpu_s,
        "memory_mb": peak_memory_mb(os.getpid()),
    }
    print(json.dumps(figures), flush=True)


def copy_by_hub(given: Mapping[str, Any]) -> None:
    mirror = Mirror.model_validate(
        {"source": "source", "target": "target", "topics": ["**"], **given["mirror"]}
    )
    engine = BatchEngine(
        KafkaConnection(ClusterAccess(bootstrap=given["source"]), "source"),
        KafkaConnection(ClusterAccess(bootstrap=given["target"]), "target"),
        link=given["link"],
        shard=0,
        partitions=[TopicPartition(BULK, 0), TopicPartition(LAG, 0)],
        settings=settings_of(mirror, 1, 1),
    )
    begin(engine)
    ended, began_s, cpu_s, done = Ended(), time.monotonic(), used_cpu_s(), 0
    while not ended.set:
        before = done
        done += engine.step()
        if engine.error is not None:
            raise engine.error
        if before < given["records"] <= done:
            report(began_s, cpu_s, given["records"])
    print(json.dumps({"memory_mb": peak_memory_mb(os.getpid())}), flush=True)
    engine.close()


def copy_plainly(given: Mapping[str, Any]) -> None:
    """librdkafka's consumer and idempotent producer with their defaults, at least once."""
    consumer = Consumer(
        {
            "bootstrap.servers": given["source"],
            "group.id": given["link"],
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([KafkaTopicPartition(topic, 0, 0) for topic in (BULK, LAG)])
    producer = Producer({"bootstrap.servers": given["target"], "enable.idempotence": True})
    ended, began_s, cpu_s, arrived, read = Ended(), time.monotonic(), used_cpu_s(), 0, 0

    def delivered(_error: object, message: Any) -> None:
        nonlocal arrived
        arrived += message.topic() == BULK

    reported = False
    while not ended.set:
        for message in consumer.consume(1_000, 0.005):
            if message.error() is not None:
                continue
            read += 1
            while True:
                try:
                    producer.produce(message.topic(), message.value(), partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
        if not reported and arrived >= given["records"]:
            reported = True
            report(began_s, cpu_s, given["records"])
    producer.flush(30)
    print(json.dumps({"memory_mb": peak_memory_mb(os.getpid())}), flush=True)


# ---- one measurement


def lag_of(source: LinkedNode, target: LinkedNode, seconds: float) -> tuple[float, float]:
    """Return p50 and p99 in ms from ``produce`` beside the source to a reader of committed records beside the
    target, at ``LAG_RATE`` records a second; the first fifth is left out.
    """
    reader = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": f"lag-{time.time_ns()}",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    reader.assign([KafkaTopicPartition(LAG, 0, 0)])
    waits: list[float] = []
    sent = threading.Event()
    count = int(seconds * LAG_RATE)

    def send() -> None:
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 2, "log_level": 0})
        began_s, number = time.monotonic(), 0
        filler = b" " * (SIZE - 20)
        while number < count:
            for _ in range(min(count, int((time.monotonic() - began_s) * LAG_RATE)) - number):
                producer.produce(LAG, b"%020.6f" % time.monotonic() + filler, partition=0)
                number += 1
            producer.poll(0)
            time.sleep(0.005)
        producer.flush(30)
        sent.set()

    threading.Thread(target=send, daemon=True).start()
    until_s, arrived = time.monotonic() + seconds + AT_MOST_S, 0
    while arrived < count and time.monotonic() < until_s:
        for message in reader.consume(1_000, 0.01):
            if message.error() is None:
                arrived += 1
                if arrived > count // 5:
                    waits.append((time.monotonic() - float(message.value()[:20])) * 1e3)
    reader.close()
    if arrived < count:
        raise RuntimeError(f"{arrived} of {count} records arrived at the target")
    waits.sort()
    return waits[len(waits) // 2], waits[int(len(waits) * 0.99)]


def measured(
    how: str, source: LinkedNode, target: LinkedNode, given: Mapping[str, Any], seconds: float
) -> dict[str, float]:
    make_anew(target, BULK, LAG)
    make_anew(source, LAG)
    words = [sys.executable, "-W", "ignore", __file__, f"--{how}", json.dumps(given)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        watchdog = threading.Timer(2 * AT_MOST_S, child.kill)
        watchdog.start()
        try:
            found: dict[str, float] = json.loads(child.stdout.readline() or "null")
            if found is None:
                raise RuntimeError(f"{how}: the process ended before all was copied")
            if seconds:
                found["lag_p50_ms"], found["lag_p99_ms"] = lag_of(source, target, seconds)
            print(file=child.stdin)
            found |= json.loads(child.stdout.readline() or "{}")
        except BaseException:
            child.kill()
            raise
        finally:
            watchdog.cancel()
    (_, end), *_ = KafkaCluster(target.bootstrap).end_offsets([BULK], committed=False)
    if end < given["records"]:
        raise RuntimeError(f"{how}: {end} of {given['records']} records arrived")
    return found


def by_mirror_maker(
    source: LinkedNode, target: LinkedNode, folder: Path, given: Mapping[str, Any]
) -> dict[str, float]:
    """MirrorMaker 2, at least once, tuned as in ``bench mirror``; measured from the first copied record, so
    that its start does not count.
    """
    make_anew(target, BULK)
    text = properties(
        given["source"], given["target"], BULK.replace(".", "[.]"), tuned("none", 1, False, 100)
    )
    peer = MirrorMaker(source.settings, folder / given["link"], text, JAVA)
    try:
        cluster, first, end = KafkaCluster(target.bootstrap), 0, 0
        began_s = last_s = time.monotonic()
        while end < given["records"]:
            peer.alive()
            ((_, now),) = cluster.end_offsets([BULK], committed=False)
            if now and not first:
                first, began_s = now, time.monotonic()
            if now != end:
                end, last_s = now, time.monotonic()
            if time.monotonic() - last_s > AT_MOST_S:
                raise RuntimeError(f"MirrorMaker stands: {peer.log.read_text()[-2000:]}")
            time.sleep(0.05)
        times = peer.process.cpu_times()
        wall_s = max(0.05, last_s - began_s)
        return {
            "mb_per_s": (end - first) * SIZE / wall_s / 1e6,
            "cpu_s": times.user + times.system,
            "memory_mb": peak_memory_mb(peer.process.pid),
        }
    finally:
        peer.stop()


# ---- what is printed


def say(*cells: str) -> None:
    widths = (18, 16, 8, 8, 9, 10, 10)
    print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def row(where: str, who: str, found: Mapping[str, float]) -> None:
    def lag(key: str) -> str:
        return f"{found[key]:,.0f} ms" if key in found else "-"

    say(
        where,
        who,
        f"{found['mb_per_s']:.1f}",
        f"{found['cpu_s']:.2f}",
        f"{found['memory_mb']:,.0f} MB",
        lag("lag_p50_ms"),
        lag("lag_p99_ms"),
    )


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--delays", default="0,50,100,200", help="round trips in ms")
    arguments.add_argument(
        "--only", choices=("source", "target"), help="which side is far away; default: each"
    )
    arguments.add_argument("--megabytes", type=int, default=120, help="of records, for the hub")
    arguments.add_argument("--plain-megabytes", type=int, default=30, help="of records, for the others")
    arguments.add_argument(
        "--cap", type=float, default=0.0, metavar="MB", help="MB/s of each connection; 0: none"
    )
    arguments.add_argument(
        "--seconds", type=float, default=5.0, help="of each measurement of lag; 0 for none"
    )
    arguments.add_argument("--no-plain", action="store_true", help="without the plain consumer and producer")
    arguments.add_argument(
        "--mirror-maker", action="store_true", help="with MirrorMaker 2: half a minute each"
    )
    arguments.add_argument(
        "--mirror", default="{}", metavar="JSON", help="keys of the mirror, as in mirrors.yaml"
    )
    arguments.add_argument("--hub", help=argparse.SUPPRESS)
    arguments.add_argument("--plain", help=argparse.SUPPRESS)
    given = arguments.parse_args(words)
    if given.hub:
        copy_by_hub(json.loads(given.hub))
        return
    if given.plain:
        copy_plainly(json.loads(given.plain))
        return
    os.environ.pop("JAVA_TOOL_OPTIONS", None)
    delays = [int(each) for each in given.delays.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
    print(f"hub: {ROOT}   cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}")
    with two_clusters(folder, FarNode) as (source, target):
        say("far away, by", "who", "MB/s", "CPU-s", "peak RSS", "lag p50", "lag p99")
        sizes = {"hub": given.megabytes, "plain": given.plain_megabytes}
        for who in (
            "hub",
            *(() if given.no_plain else ("plain",)),
            *(("mm2",) if given.mirror_maker else ()),
        ):
            records = sizes.get(who, given.plain_megabytes) * 1_000_000 // SIZE
            fill(source, records)
            for side, delay in ((s, d) for s in ("target", "source") for d in delays):
                if (given.only or side) != side or (delay == 0 and side == "source" and not given.only):
                    continue
                for node, name in ((source, "source"), (target, "target")):
                    node.link.delay_s = delay / 2_000 if name == side else 0.0
                    node.link.bytes_per_s = given.cap * 1e6 if name == side else 0.0
                asked = {
                    "records": records,
                    "source": source.through if side == "source" else source.bootstrap,
                    "target": target.through if side == "target" else target.bootstrap,
                    "link": f"wan-{time.time_ns()}",
                    "mirror": json.loads(given.mirror),
                }
                if who == "mm2":
                    found = by_mirror_maker(source, target, folder, asked)
                else:
                    found = measured(who, source, target, asked, given.seconds)
                row(f"{side}, {delay} ms", who, found)


if __name__ == "__main__":
    main()
