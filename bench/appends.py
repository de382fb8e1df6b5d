"""Appends on expected versions, compared with plain ones and with librdkafka's own transactions.

Run: ``./run bench appends [--seconds N]`` (a minute). A server over a real Kafka of one broker. Each thread
writes one event a request: without a version; with the version of a key of its own; with the version of one
key that all threads share, where the loser of a race reads the version and tries again. The peer commits a
transaction for each record, without a check. Prints figures, asserts only that no event was lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from confluent_kafka import Producer
from kafka_nodes import own_node
from ports import free_ports
from processes import Server
from registry import quantile

from hub.client import Hub, VersionConflict
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.log import whole
from hub.schema_registry.client.registry_client import RegistryClient

TOPIC, PEER = "bench.orders", "bench.peer"
# Returns the number of conflicts of one append.
Append = Callable[[], int]


def measure(title: str, makers: list[Callable[[], Append]], seconds: float, process: psutil.Process) -> int:
    """Append in a thread for each maker for some seconds, print the figures, and return the number."""
    latencies: list[float] = []
    conflicts = 0
    lock = threading.Lock()
    until = time.monotonic() + seconds

    def work(append: Append) -> None:
        nonlocal conflicts
        own: list[float] = []
        lost = 0
        while time.monotonic() < until:
            began = time.perf_counter()
            lost += append()
            own.append(time.perf_counter() - began)
        with lock:
            latencies.extend(own)
            conflicts += lost

    appends = [make() for make in makers]
    before = process.cpu_times()
    threads = [threading.Thread(target=work, args=(each,)) for each in appends]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    after = process.cpu_times()
    cpu_ms = (after.user + after.system - before.user - before.system) / len(latencies) * 1000
    print(
        f"{title:<36}{len(threads):>2} threads{len(latencies) / seconds:8.0f} events/s"
        f"{quantile(latencies, 0.5) * 1000:8.1f} ms p50{quantile(latencies, 0.99) * 1000:8.1f} ms p99"
        f"{cpu_ms:7.2f} CPU-ms{process.memory_info().rss / 2**20:7.0f} MB"
        f"{f', {conflicts} conflicts' if conflicts else ''}",
        flush=True,
    )
    return len(latencies)


def plain(url: str) -> Append:
    hub, key = Hub(url), uuid.uuid4().hex

    def append() -> int:
        hub.produce(TOPIC, {"n": 1}, key=key)
        return 0

    return append


def expected(url: str, key: str) -> Append:
    """Return appends on the version of a key; after a conflict the version is read again."""
    hub = Hub(url)
    version = hub.version(TOPIC, key)

    def append() -> int:
        nonlocal version
        conflicts = 0
        while True:
            try:
                version = str(hub.produce(TOPIC, {"n": 1}, key=key, expected_version=version))
                return conflicts
            except VersionConflict:
                conflicts += 1
                version = hub.version(TOPIC, key)

    return append


def transactions(bootstrap: str) -> Append:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    )
    producer.init_transactions(30.0)

    def append() -> int:
        producer.begin_transaction()
        producer.produce(PEER, b'{"n":1}', b"key")
        producer.commit_transaction(30.0)
        return 0

    return append


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each line")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, own_node(Path(name) / "kafka") as node:
        project = Path(name) / "project"
        (project / "home").mkdir(parents=True)
        settings = Settings(
            project=project,
            home=project / "home",
            bootstrap=node.bootstrap,
            embedded_kafka=False,
            http_port=free_ports(1)[0],
        )
        cluster = KafkaCluster(node.bootstrap)
        for topic in (TOPIC, PEER):
            cluster.create_topic(topic, partitions=4, config={}, replication_factor=1)
        running = Server(settings)
        try:
            running.start()
            RegistryClient(settings.url).register(f"{TOPIC}-value", '{"type": "object"}', "JSON")
            server, url = psutil.Process(running.process.pid), settings.url
            shared = uuid.uuid4().hex
            measure("(warm)", [lambda: plain(url), lambda: expected(url, "warm")], 3.0, server)
            for count in (1, 4):
                measure("plain", [lambda: plain(url)] * count, seconds, server)
                own = [lambda: expected(url, uuid.uuid4().hex)] * count
                measure("expected version, a key each", own, seconds, server)
                own_process = psutil.Process()
                peers = [lambda: transactions(node.bootstrap)] * count
                measure("librdkafka, a transaction each", peers, seconds, own_process)
            written = measure(
                "expected version, one key", [lambda: expected(url, shared)] * 4, seconds, server
            )
            found = count_of(cluster, shared)
            assert found == written, f"{written} appends of the shared key, {found} events"
            print(f"the shared key has {found} events, one for each append")
        finally:
            running.stop(10.0)


def count_of(cluster: KafkaCluster, key: str) -> int:
    """Return the number of committed events of a key."""
    return sum(record.key == key.encode() for record in whole(cluster, TOPIC))


if __name__ == "__main__":
    main()
