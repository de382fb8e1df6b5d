"""Speed and cost of the outbox's relay on a real Postgres and a real Kafka.

Run: ``./run bench outbox [--events N] [--rate N] [--seconds N]`` (about two minutes). Prints figures, asserts
none on time. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import psutil
import psycopg
from interpolated import middle_and_tail
from kafka_nodes import own_node
from postgres import Postgres
from processes import HubProcess, call_hub

from hub.config import Settings
from hub.kafka import KafkaCluster, own_cluster
from hub.outbox.database import plain_url

TOPIC, BODY = "bench.orders", b"\0\0\0\0\1" + b"x" * 195
INSERT = (
    "INSERT INTO hub_outbox (id, aggregatetype, aggregateid, type, payload) "
    "SELECT gen_random_uuid(), %s, 'k' || (n %% 100), 'Placed', %s FROM generate_series(1, %s) n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="of the backlog")
    parser.add_argument("--rate", type=int, default=500, help="events a second, one a transaction")
    parser.add_argument("--seconds", type=int, default=30)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hub-bench-outbox-")))
        postgres = Postgres()
        stack.callback(postgres.stop)
        with (postgres.folder / "data" / "postgresql.conf").open("a") as file:
            file.write("\nwal_level = logical\n")
        postgres.start()
        node = stack.enter_context(own_node(home / "kafka"))
        settings = Settings(
            home=home / "hub",
            project=home,
            bootstrap=node.bootstrap,
            embedded_kafka=False,
            outbox_database=postgres.database("shop"),
        )
        settings.home.mkdir(parents=True)
        cluster = own_cluster(settings)
        cluster.create_topic(TOPIC, partitions=4, config={}, replication_factor=1)
        assert call_hub(settings, "outbox", "init").returncode == 0
        relay = HubProcess(settings, "outbox", "relay")
        stack.callback(relay.stop)
        backlog(settings, relay, cluster, given.events)
        steady(settings, relay, cluster, given.rate, given.seconds)


def backlog(settings: Settings, relay: HubProcess, cluster: KafkaCluster, events: int) -> None:
    """Relay events that were committed before the relay starts, 100 a transaction."""
    with psycopg.connect(plain_url(settings.outbox_database or ""), autocommit=True) as connection:
        for _ in range(events // 100):
            connection.execute(INSERT, (TOPIC, BODY, 100))
    reader = cluster.follower()
    reader.assign(cluster.beginning_offsets([TOPIC]))
    relay.start()
    seen, first_s = 0, 0.0
    while seen < events // 100 * 100:
        records = reader.poll(10_000, 1.0)
        if records and not first_s:
            first_s = time.monotonic()
        seen += len(records)
    took_s = time.monotonic() - first_s
    reader.close()
    process = psutil.Process(relay.process.pid)
    cpu = process.cpu_times()
    print(f"backlog of {seen:,} events of {len(BODY)} bytes: {seen / took_s:,.0f} events/s", end="; ")
    print(f"the relay's CPU {cpu.user + cpu.system:.1f} s with its start, memory {_mb(process)} MB")


def steady(settings: Settings, relay: HubProcess, cluster: KafkaCluster, rate: int, seconds: int) -> None:
    """Measure from just after each commit to the record's arrival at a reader."""
    committed: dict[str, float] = {}
    arrived: dict[str, float] = {}
    total = rate * seconds
    reader = cluster.follower()
    reader.assign(cluster.end_offsets([TOPIC]))

    def read() -> None:
        deadline = time.monotonic() + seconds + 60
        while len(arrived) < total and time.monotonic() < deadline:
            for record in reader.poll(5_000, 0.5):
                arrived[(record.header("id") or b"").decode()] = time.monotonic()

    reading = threading.Thread(target=read)
    reading.start()
    process = psutil.Process(relay.process.pid)
    before = process.cpu_times()
    row = "INSERT INTO hub_outbox (id, aggregatetype, aggregateid, payload) VALUES (%s, %s, %s, %s)"
    began_s = time.monotonic()
    with psycopg.connect(plain_url(settings.outbox_database or ""), autocommit=True) as connection:
        for number in range(total):
            time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            event = str(uuid.uuid4())
            connection.execute(row, (event, TOPIC, f"k{number % 100}", BODY))
            committed[event] = time.monotonic()
    took_s = time.monotonic() - began_s
    reading.join()
    reader.close()
    after = process.cpu_times()
    # A record may arrive before the writer's clock is read.
    waits = [max(0.0, (arrived[each] - at) * 1000) for each, at in committed.items() if each in arrived]
    cpu = after.user + after.system - before.user - before.system
    print(
        f"{total / took_s:,.0f} events/s committed: commit to reader p50/p99 {middle_and_tail(waits)} ms",
        end="; ",
    )
    print(
        f"missing {total - len(waits)}; the relay's CPU {cpu:.2f} s in {took_s:.0f} s, "
        f"memory {_mb(process)} MB"
    )


def _mb(process: psutil.Process) -> int:
    return int(process.memory_info().rss / 1e6)


if __name__ == "__main__":
    main()
