"""Fairness: p50 and p99 of a quiet tenant alone, beside a noisy tenant without quotas, and beside it with
quotas.

Run: ``./run bench quotas [--seconds N] [--rounds N] [--connections N]`` (two minutes). A server over a real
Kafka; the load comes from processes of its own (load.py). The quiet tenant reads rows by key, asks SQL and
writes events at fixed rates; the noisy one sends large lists, heavy SQL, batches of events and reads by key
on many connections as fast as it is answered. Prints figures, asserts none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import orjson
import psutil
from kafka_nodes import own_node
from load import Job, Load, run
from ports import free_ports
from processes import Server
from registry import quantile
from sql_cases import fill, store_facts

from hub.access.secrets import hash_of_token
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.schema_registry.client.registry_client import RegistryClient

QUIET, NOISY = "hubt_quiet", "hubt_noisy"
ALL = '[{role: admin, topics: ["**"], views: ["**"], hub: true}]'
FILE = f"""\
tokens:
  quiet: {{token: "{hash_of_token(QUIET)}", grants: {ALL}}}
  noisy: {{token: "{hash_of_token(NOISY)}", grants: {ALL}}}
"""
QUOTAS = """\
quotas:
  tenants:
    noisy: {views: [facts], queries_per_s: 20, events_in_per_s: 500, sql_seconds_per_min: 6}
  tokens:
    noisy: {queries_per_s: 20, events_in_per_s: 500, sql_seconds_per_min: 6, connections: 4}
"""
ROWS = 100_000
HEAVY = "SELECT count(*) AS n, avg(price) AS average, max(name) AS last, min(seen) AS first FROM facts"


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests of the quiet tenant: ``rate`` a second, over ``connections``."""

    name: str
    requests: Sequence[bytes]
    rate: float
    connections: int


@dataclass(slots=True)
class Phase:
    """Figures of one phase, over all rounds. ``statuses``: of the noisy tenant's answers."""

    title: str
    connections: int
    quotas: str = ""
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    failed: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    noisy_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0

    def p99_ms(self, name: str) -> float:
        return quantile(self.latencies_s[name], 0.99) * 1000


def request(token: str, method: str, path: str, body: object = None) -> bytes:
    """Return the bytes of an authenticated request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    content = b"" if body is None else orjson.dumps(body)
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def of_the_quiet() -> list[Rate]:
    keys = [request(QUIET, "GET", f"/views/plant/p{number}") for number in range(10)]
    sql = [request(QUIET, "POST", "/query", {"sql": "SELECT city, n FROM plant WHERE n < 5"})]
    events = [request(QUIET, "POST", "/topics/quiet.orders/events", {"a": number}) for number in range(50)]
    return [Rate("by key", keys, 50.0, 4), Rate("SQL", sql, 5.0, 2), Rate("events", events, 20.0, 4)]


def of_the_noisy() -> list[bytes]:
    batch = [{"a": number, "text": "x" * 200} for number in range(500)]
    return [
        request(NOISY, "GET", "/views/facts?limit=1000"),
        request(NOISY, "POST", "/query", {"sql": HEAVY}),
        request(NOISY, "POST", "/topics/noisy.orders/events", batch),
        *(request(NOISY, "GET", f"/views/plant/p{number}") for number in range(5)),
    ]


def measure(
    found: Phase, pool: ProcessPoolExecutor, settings: Settings, server: psutil.Process, seconds: float
) -> None:
    """Add one round: the quiet tenant, beside the connections of the noisy one."""
    write(settings, FILE + found.quotas)
    port = settings.http_port
    noisy: Future[Load] | None = None
    if found.connections:
        # It begins before the quiet tenant is measured and ends after it.
        noisy = pool.submit(run, Job(port, of_the_noisy(), found.connections, seconds + 3.0))
        time.sleep(2.0)
    before = server.cpu_times()
    futures = {
        each.name: pool.submit(run, Job(port, each.requests, each.connections, seconds, each.rate))
        for each in of_the_quiet()
    }
    for name, future in futures.items():
        load = future.result()
        found.latencies_s.setdefault(name, []).extend(load.latencies_s)
        found.failed += load.refused
    after = server.cpu_times()
    found.cpu_s += after.user + after.system - before.user - before.system
    found.memory_mb = server.memory_info().rss / 2**20
    if noisy is not None:
        found.statuses.update(noisy.result().statuses)
        found.noisy_s += noisy.result().wall_s


def show(found: Phase, alone: Phase) -> None:
    for name, latencies in found.latencies_s.items():
        p50, p99 = quantile(latencies, 0.5) * 1000, found.p99_ms(name)
        factor = "" if found is alone else f"{p99 / alone.p99_ms(name):8.1f} times"
        print(f"{found.title:<26}{name:<8}{p50:9.1f} ms p50{p99:9.1f} ms p99{factor}")
    if found.failed:
        print(f"{'':<26}{found.failed} requests of the quiet tenant were not answered with 200")
    if found.connections:
        shown = ", ".join(f"{status}: {number:,}" for status, number in sorted(found.statuses.items()))
        rate = found.statuses.total() / found.noisy_s
        print(f"{'':<26}the noisy tenant: {rate:,.0f} answers a second ({shown})")
    print(f"{'':<26}server: {found.cpu_s:.1f} CPU-seconds, {found.memory_mb:,.0f} MB\n", flush=True)


def write(settings: Settings, text: str) -> None:
    path = settings.project / "access.yaml"
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
    time.sleep(2.5)  # the server reads it within a second


def prepared(settings: Settings) -> None:
    """Fill the store and create the topics with their schemas."""
    store = Store(settings.store)
    fill(store)
    store_facts(store, ROWS)
    store.close()
    cluster = KafkaCluster(settings.bootstrap)
    for topic in ("quiet.orders", "noisy.orders"):
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each phase in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=24, help="connections of the noisy tenant")
    asked = parser.parse_args()
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
        prepared(settings)
        write(settings, FILE)
        running = Server(settings)
        try:
            running.start()
            registry = RegistryClient(settings.url.replace("//", f"//quiet:{QUIET}@"))
            for topic in ("quiet.orders", "noisy.orders"):
                registry.register(f"{topic}-value", '{"type": "object"}', "JSON")
            server = psutil.Process(running.process.pid)
            phases = [
                Phase("alone", 0),
                Phase("beside, without quotas", asked.connections),
                Phase("beside, with quotas", asked.connections, QUOTAS),
            ]
            with ProcessPoolExecutor(4) as pool:
                measure(Phase("warm", 0), pool, settings, server, 5.0)
                for _ in range(asked.rounds):  # in turn, so that another load of the machine hurts each
                    for each in phases:
                        measure(each, pool, settings, server, asked.seconds)
            for each in phases:
                show(each, phases[0])
        finally:
            running.stop(10.0)


if __name__ == "__main__":
    main()
