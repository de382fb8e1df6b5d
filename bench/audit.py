"""Cost of the access log: latency, CPU and memory of a server with and without it.

Run: ``./run bench audit [--seconds N] [--rounds N]`` (about two minutes). One Kafka, two servers with the
same access.yaml and store, one of them with ``access_log: false``. Rounds alternate between them, so that
noise of the machine hits both; figures are medians over rounds. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from kafka_nodes import running_node
from ports import free_ports
from processes import Server, own_settings
from sql_cases import FACTS_SQL, store_facts

from hub.access.secrets import hash_of_token
from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord

TOKEN = "hubt_" + "b" * 40
ROWS = 2_000


@dataclass
class Figures:
    """Latencies in ms and CPU in ms a request, a value for each round."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def silence(_number: int) -> tuple[str, str, Any]:
    body = {"matchers": {"topic": "shop.**"}, "reason": "bench", "for": "1m"}
    return "POST", "/api/alerts/silences", body


REQUESTS = {
    "row by key": lambda n: ("GET", f"/views/facts/k{n % ROWS}", None),
    "list of topics": lambda _n: ("GET", "/api/topics", None),
    "messages of a topic": lambda _n: ("GET", "/api/topics/shop.orders/messages?limit=20", None),
    "SQL over a view": lambda n: ("POST", "/query", {"sql": f"{FACTS_SQL} WHERE n = {n % ROWS}"}),
    "change (a silence)": silence,
}


def round_of(server: Server, connection: http.client.HTTPConnection, what: str, seconds: float) -> Figures:
    """Ask one request after another for some seconds."""
    process, found = psutil.Process(server.process.pid), list[float]()
    began_cpu, end = sum(process.cpu_times()[:2]), time.perf_counter() + seconds
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    number = 0
    while time.perf_counter() < end or number < 30:
        method, path, body = REQUESTS[what](number)
        began = time.perf_counter()
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        found.append((time.perf_counter() - began) * 1e3)
        assert answer.status in (200, 201), (what, answer.status, text[:300])
        number += 1
    cpu_ms = (sum(process.cpu_times()[:2]) - began_cpu) / number * 1e3
    cuts = statistics.quantiles(found, n=100)
    return Figures([cuts[49]], [cuts[98]], [cpu_ms])


def prepared(settings: Settings) -> None:
    everything = '{role: admin, topics: ["**"], views: ["**"], hub: true}'
    (settings.project / "access.yaml").write_text(
        f'tokens: {{bench: {{token: "{hash_of_token(TOKEN)}", grants: [{everything}]}}}}\n'
    )
    settings.home.mkdir(parents=True, exist_ok=True)
    store = Store(settings.store)
    store_facts(store, ROWS)
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        first = own_settings(folder / "with", folder / "with", embedded_kafka=False)
        first.project.mkdir(parents=True)
        opened.enter_context(running_node(KafkaNode(first)))
        cluster = KafkaCluster(first.bootstrap)
        cluster.create_topic("shop.orders", partitions=1, config={}, replication_factor=1)
        cluster.writer().append([NewRecord("shop.orders", b"k", b'{"id": 1}') for _ in range(100)])
        other = {"home": folder / "without", "project": folder / "without", "access_log": False}
        servers = {
            "with": first,
            "without": first.model_copy(update={**other, "http_port": free_ports(1)[0]}),
        }
        running: dict[str, tuple[Server, http.client.HTTPConnection]] = {}
        for name, settings in servers.items():
            settings.project.mkdir(exist_ok=True)
            prepared(settings)
            server = Server(settings)
            opened.callback(server.stop, 10.0)
            server.start()
            connection = http.client.HTTPConnection("127.0.0.1", settings.http_port, timeout=60)
            running[name] = server, connection
        measure(running, options.rounds, options.seconds)
        for name, (server, _) in running.items():
            memory = psutil.Process(server.process.pid).memory_info().rss / 1e6
            print(f"memory {name} the log: {memory:.0f} MB")


def measure(
    running: dict[str, tuple[Server, http.client.HTTPConnection]], rounds: int, seconds: float
) -> None:
    print(f"{'request':22} {'log':8} {'p50 ms':>8} {'p99 ms':>8} {'CPU ms':>8}")
    for what in REQUESTS:
        figures = {name: Figures() for name in running}
        for number in range(rounds + 1):
            for name, (server, connection) in running.items():
                found = round_of(server, connection, what, seconds)
                if number:  # the first one warms up
                    for part in ("p50", "p99", "cpu_ms"):
                        getattr(figures[name], part).extend(getattr(found, part))
        middle = {
            name: [statistics.median(getattr(each, part)) for part in ("p50", "p99", "cpu_ms")]
            for name, each in figures.items()
        }
        for name, (p50, p99, cpu) in middle.items():
            print(f"{what:22} {name:8} {p50:8.3f} {p99:8.3f} {cpu:8.3f}")
        ratios = [with_ / without - 1 for with_, without in zip(*middle.values(), strict=True)]
        print(f"{what:22} {'more':8} " + " ".join(f"{each:+8.1%}" for each in ratios), flush=True)


if __name__ == "__main__":
    main()
