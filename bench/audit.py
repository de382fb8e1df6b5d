"""Cost of the access log: latency, CPU and memory of a server with and without it.

Run: ``./run bench audit [--seconds N]`` (about two minutes). One Kafka, two servers with the same grants and
rows, one of them with ``access_log: false``. Each request goes to both, one after the other, so that noise of
the machine hits both. No figure is asserted.
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
from pathlib import Path

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
WARM_UP, LEAST = 50, 100  # requests of a kind
CHANGE = "a change (waits for Kafka)"


REQUESTS = {
    "row by key": lambda n: ("GET", f"/views/facts/k{n % ROWS}", None),
    "list of topics": lambda _n: ("GET", "/api/topics", None),
    "messages of a topic": lambda _n: ("GET", "/api/topics/shop.orders/messages?limit=20", None),
    "SQL over a view": lambda n: ("POST", "/query", {"sql": f"{FACTS_SQL} WHERE n = {n % ROWS}"}),
    # There is no such token, so the log is all that it costs.
    CHANGE: lambda _n: ("DELETE", "/api/access/tokens/none", None),
}


def ask(connection: http.client.HTTPConnection, what: str, number: int) -> float:
    """Send one request; return its time in ms."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    method, path, body = REQUESTS[what](number)
    began = time.perf_counter()
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    took = (time.perf_counter() - began) * 1e3
    assert answer.status == (404 if what == CHANGE else 200), (what, answer.status, text[:300])
    return took


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
    parser.add_argument("--seconds", type=float, default=15.0, help="for each kind of request")
    options = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        first = own_settings(folder / "with", folder / "with", embedded_kafka=False, alerts=False)
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
        measure(running, options.seconds)
        for name, (server, _) in running.items():
            memory = psutil.Process(server.process.pid).memory_info().rss / 1e6
            print(f"memory {name} the log: {memory:.0f} MB")


def measure(running: dict[str, tuple[Server, http.client.HTTPConnection]], seconds: float) -> None:
    print(f"{'request':26} {'log':8} {'p50 ms':>8} {'p99 ms':>8} {'CPU ms':>8}")
    processes = {name: psutil.Process(server.process.pid) for name, (server, _) in running.items()}
    for what in REQUESTS:
        for number in range(WARM_UP):
            for _, connection in running.values():
                ask(connection, what, number)
        began = {name: sum(each.cpu_times()[:2]) for name, each in processes.items()}
        found: dict[str, list[float]] = {name: [] for name in running}
        end, number = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or number < LEAST:
            number += 1
            for name, (_, connection) in running.items():
                found[name].append(ask(connection, what, number))
        rows = []
        for name, each in processes.items():
            cuts = statistics.quantiles(found[name], n=100)
            cpu_ms = (sum(each.cpu_times()[:2]) - began[name]) / number * 1e3
            rows.append((cuts[49], cuts[98], cpu_ms))
            print(f"{what:26} {name:8} {cuts[49]:8.3f} {cuts[98]:8.3f} {cpu_ms:8.3f}")
        more = [with_ / without - 1 for with_, without in zip(*rows, strict=True)]
        print(f"{what:26} {'more':8} " + " ".join(f"{each:+8.1%}" for each in more), flush=True)


if __name__ == "__main__":
    main()
