"""Speed and cost of the writer of Iceberg tables on a real Kafka and registry.

Run: ``./run bench lake [--events N] [--commit-s N]`` (about two minutes). Prints figures, asserts none on
time. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import psutil
from kafka_nodes import own_node
from lake_world import framed
from ports import free_ports
from processes import HubProcess, Server, call_hub

from hub.config import Settings
from hub.kafka import KafkaCluster, own_cluster
from hub.lake.note import read_note
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient

TOPIC, PARTITIONS = "bench.flights", 4
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "origin", "type": "string"},
        {"name": "gate", "type": ["null", "string"], "default": None},
        {"name": "delay_min", "type": ["null", "double"], "default": None},
        {"name": "at", "type": "long"},
        {"name": "cancelled", "type": "boolean"},
        {"name": "remark", "type": "string"},
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--commit-s", type=float, default=5.0)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hub-bench-lake-")))
        node = stack.enter_context(own_node(home / "kafka"))
        (home / "topics.yaml").write_text("topics: {bench: {lake: true, topics: {flights: {}}}}\n")
        settings = Settings(
            home=home / "hub",
            project=home,
            bootstrap=node.bootstrap,
            embedded_kafka=False,
            http_port=free_ports(1)[0],
            lake_commit_s=given.commit_s,
        )
        settings.home.mkdir(parents=True)
        server = Server(settings)
        stack.callback(server.stop)
        server.start()
        cluster = own_cluster(settings)
        cluster.create_topic(TOPIC, partitions=PARTITIONS, config={}, replication_factor=1)
        size = fill(settings, cluster, given.events)
        writer = HubProcess(settings, "lake", "run")
        stack.callback(writer.stop)
        measure(settings, writer, given.events, size)
        writer.stop()
        for command in ("verify", "maintain"):
            began_s = time.monotonic()
            done = call_hub(settings, "lake", command, "-o", "json")
            assert done.returncode == 0, done.stderr
            print(f"{command:<10} {time.monotonic() - began_s:6.1f} s   {json.loads(done.stdout)[0]}")


def fill(settings: Settings, cluster: KafkaCluster, events: int) -> int:
    """Write the backlog; returns its size in bytes, keys and values."""
    schema_id = RegistryClient(settings.registry).register(f"{TOPIC}-value", json.dumps(FLIGHT))
    writer = cluster.writer()
    size = 0
    for first in range(0, events, 10_000):
        records = []
        for n in range(first, min(first + 10_000, events)):
            value = {
                "number": n,
                "carrier": ("UA", "DL", "B6")[n % 3],
                "origin": "JFK",
                "gate": f"B{n % 40}",
                "delay_min": n % 90 / 2,
                "at": 1_700_000_000_000 + n,
                "cancelled": n % 50 == 0,
                "remark": f"flight {n} " + "x" * 100,
            }
            key, body = b"k%d" % (n % 1_000), framed(schema_id, FLIGHT, value)
            size += len(key) + len(body)
            records.append(NewRecord(TOPIC, key, body, (), 1_700_000_000_000 + n, n % PARTITIONS))
        writer.append(records)
    writer.close()
    return size


def measure(settings: Settings, writer: HubProcess, events: int, size: int) -> None:
    """Start the writer, and wait until the table has the backlog."""
    began_s = time.monotonic()
    writer.start()
    process = psutil.Process(writer.process.pid)
    peak = 0
    while True:
        time.sleep(0.2)
        assert writer.process.poll() is None, writer.last_words()
        peak = max(peak, process.memory_info().rss)
        note = read_note(settings.home, time.time_ns() // 1_000_000)
        if note is not None and (found := note.topics.get(TOPIC)) and found.rows == events:
            break
    took_s = time.monotonic() - began_s
    times = process.cpu_times()
    files = list((settings.home / "lake").rglob("*.parquet"))
    stored_mb = sum(each.stat().st_size for each in files) / 1e6
    mb = size / 1e6
    print(f"backlog    {events:,} events, {mb:.0f} MB of keys and values")
    print(
        f"written    {took_s:6.1f} s with the start, {events / took_s:,.0f} events/s, {mb / took_s:.1f} MB/s"
    )
    print(f"cost       {times.user + times.system:6.1f} CPU-s, {peak / 1e6:.0f} MB of memory at most")
    print(f"files      {len(files)} with {stored_mb:.1f} MB")


if __name__ == "__main__":
    main()
