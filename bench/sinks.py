"""Speed, lag and cost of sinks, each kind of target alone, beside a plain consumer loop.

Run: ``./run bench sinks [--events N] [--requests N] [--rate N] [--seconds N]`` (about three minutes). Prints
figures, asserts none on time. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import httpx2
import psutil
import psycopg
from confluent_kafka import Consumer
from interpolated import middle_and_tail
from kafka_nodes import own_node
from lake_world import framed
from ports import free_ports
from postgres import Postgres
from processes import HubProcess, running_server

from hub.config import Settings
from hub.kafka import own_cluster
from hub.outbox.database import plain_url
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient

SCHEMA = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": "long"},
        {"name": "note", "type": "string"},
    ],
}
SECRET = "whsec_c2VjcmV0LW9mLWFsZXJ0cw=="
KINDS = ("topic", "database", "files", "webhook")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000, help="of the backlog")
    parser.add_argument("--requests", type=int, default=5_000, help="of the backlog of webhooks")
    parser.add_argument("--rate", type=int, default=200, help="events a second, one a write")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--plain", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        plain(*given.plain)
        return
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hub-bench-sinks-")))
        postgres = Postgres()
        stack.callback(postgres.stop)
        postgres.start()
        node = stack.enter_context(own_node(home / "kafka"))
        settings = Settings(
            home=home / "hub",
            project=home / "project",
            bootstrap=node.bootstrap,
            embedded_kafka=False,
            http_port=free_ports(1)[0],
        )
        stack.enter_context(running_server(settings))
        url, received = stack.enter_context(receiver())
        bench = Bench(settings, postgres, url, received)
        for kind in KINDS:
            events = given.requests if kind == "webhook" else given.events
            bench.sink(kind, events, given.rate, given.seconds)
            if kind in ("database", "webhook"):
                bench.plain(kind, events)


@contextmanager
def receiver() -> Iterator[tuple[str, list[int]]]:
    """Yield the address of a receiver, and a list with one entry a request."""
    received: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            received.append(1)
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", received
    finally:
        server.shutdown()
        server.server_close()


class Bench:
    """A hub, a Postgres and a receiver."""

    def __init__(self, settings: Settings, postgres: Postgres, url: str, received: list[int]) -> None:
        self.settings, self.postgres, self.url, self.received = settings, postgres, url, received
        self.cluster = own_cluster(settings)
        self.registry = RegistryClient(settings.registry)

    def write(self, topic: str, first: int, count: int, writer: object = None) -> None:
        schema_id = self.registry.register(f"{topic}-value", json.dumps(SCHEMA))
        made = writer or self.cluster.writer()
        records = [
            NewRecord(
                topic,
                b"P-%d" % n,
                framed(
                    schema_id,
                    SCHEMA,
                    {"id": f"P-{n}", "customer": f"C-{n % 99}", "amount": n / 3, "at": n, "note": "x" * 120},
                ),
            )
            for n in range(first, first + count)
        ]
        for at in range(0, count, 2_000):
            made.append(records[at : at + 2_000])  # type: ignore[attr-defined]
        if writer is None:
            made.close()  # type: ignore[attr-defined]

    def sink(self, kind: str, events: int, rate: int, seconds: int) -> None:
        topic, copy = f"bench.{kind}", f"bench.{kind}-copy"
        for name in (topic, copy) if kind == "topic" else (topic,):
            self.cluster.create_topic(name, partitions=4, config={}, replication_factor=1)
        target, arrived = self.target(kind, copy)
        self.settings.project.mkdir(exist_ok=True)
        (self.settings.project / "sinks.yaml").write_text(
            f"sinks:\n  {kind}: {{from: {topic}, where: amount >= 0, {kind}: {target}}}\n"
        )
        self.write(topic, 0, events)
        environment = {"BENCH_SECRET": SECRET}
        worker = HubProcess(self.settings, "sink", "run", log=f"{kind}.log", environment=environment)
        worker.start()
        try:
            process = psutil.Process(worker.process.pid)
            self.report(f"sink to {kind}", events, arrived, process)
            self.lag(kind, topic, events, rate, seconds, arrived, process)
        finally:
            worker.stop()

    def target(self, kind: str, copy: str) -> tuple[str, Callable[[], int]]:
        """Return the target in YAML, and how many events have arrived there."""
        if kind == "topic":
            reader = self.cluster.follower()
            reader.assign(self.cluster.beginning_offsets([copy]))
            seen = [0]

            def read() -> int:
                seen[0] += len(reader.poll(10_000, 0.001))
                return seen[0]

            return f"{{name: {copy}}}", read
        if kind == "database":
            url = self.postgres.database("bench")
            connection = psycopg.connect(plain_url(url), autocommit=True)

            def count() -> int:
                found = connection.execute("SELECT to_regclass('payments')").fetchone()
                if found is None or found[0] is None:
                    return 0
                row = connection.execute("SELECT count(*) FROM payments").fetchone()
                return 0 if row is None else int(row[0])

            return f'{{url: "{url}", table: payments}}', count
        if kind == "files":
            folder = self.settings.project / "out"

            def lines() -> int:
                names = [each.name.split(".")[0].split("-") for each in folder.rglob("[0-9]*.ndjson.gz")]
                return sum(int(after) - int(first) for first, after in names)

            return "{to: out, roll_every: 1s}", lines
        self.received.clear()
        return f'{{url: "{self.url}", secrets: ["${{BENCH_SECRET}}"]}}', lambda: len(self.received)

    def plain(self, kind: str, events: int) -> None:
        """Measure a consumer loop without the hub: no position in the target, no retries, no conditions."""
        url = self.url if kind == "webhook" else plain_url(self.postgres.url("bench"))
        self.received.clear()
        if kind == "database":
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("CREATE TABLE plain (id text PRIMARY KEY, body text)")
        line = [sys.executable, __file__, "--plain", kind, self.settings.bootstrap, f"bench.{kind}", url]
        process = subprocess.Popen([*line, str(events)], stdout=subprocess.PIPE, text=True, env=os.environ)
        told, _ = process.communicate(timeout=600)
        print(told.strip(), flush=True)

    def report(self, what: str, events: int, arrived: Callable[[], int], process: psutil.Process) -> None:
        while (first := arrived()) == 0:
            time.sleep(0.005)
        began_s = time.monotonic()
        while (seen := arrived()) < events:
            time.sleep(0.005)
        took_s = time.monotonic() - began_s
        cpu = process.cpu_times()
        print(
            f"{what}: backlog of {events:,}: {(seen - first) / max(took_s, 0.001):,.0f} events/s; "
            f"CPU {cpu.user + cpu.system:.1f} s with its start, memory {_mb(process)} MB",
            flush=True,
        )

    def lag(
        self,
        kind: str,
        topic: str,
        before: int,
        rate: int,
        seconds: int,
        arrived: Callable[[], int],
        process: psutil.Process,
    ) -> None:
        """Measure from the acknowledged write of an event to its arrival, in the order of arrival."""
        total, written, seen_at = rate * seconds, list[float](), list[float]()

        def watch() -> None:
            deadline = time.monotonic() + seconds + 60
            while len(seen_at) < total and time.monotonic() < deadline:
                seen_at.extend([time.monotonic()] * (arrived() - before - len(seen_at)))
                time.sleep(0.002)

        watching = threading.Thread(target=watch)
        cpu, began_s = process.cpu_times(), time.monotonic()
        watching.start()
        writer = self.cluster.writer()
        for number in range(0, total, 10):
            time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            self.write(topic, before + number, 10, writer)
            written.extend([time.monotonic()] * 10)
        writer.close()
        watching.join()
        after = process.cpu_times()
        waits = [max(0.0, (seen - wrote) * 1000) for wrote, seen in zip(written, seen_at, strict=False)]
        used = after.user + after.system - cpu.user - cpu.system
        print(
            f"  {rate} events/s for {seconds} s: write to {kind} p50/p99 {middle_and_tail(waits)} ms; "
            f"missing {total - len(seen_at)}; CPU {used:.1f} s, memory {_mb(process)} MB",
            flush=True,
        )


def plain(kind: str, bootstrap: str, topic: str, url: str, events: str) -> None:
    """Consume, and write each poll; print events per second and cost."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "plain", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    client = httpx2.Client() if kind == "webhook" else None
    connection = psycopg.connect(url) if kind == "database" else None
    seen, began_s, total = 0, 0.0, int(events)
    while seen < total:
        messages = consumer.consume(2_000, 0.5)
        began_s = began_s or (time.monotonic() if messages else 0.0)
        if client is not None:
            for message in messages:
                client.post(url, content=message.value()).raise_for_status()
        if connection is not None and messages:
            rows = [(message.key().decode(), message.value().hex()) for message in messages]
            statement = (
                "INSERT INTO plain VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
            )
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)
            connection.commit()
        seen += len(messages)
    took_s = time.monotonic() - began_s
    consumer.close()
    process = psutil.Process()
    cpu = process.cpu_times()
    print(
        f"plain loop to {kind}: {seen / took_s:,.0f} events/s; CPU {cpu.user + cpu.system:.1f} s with its "
        f"start, memory {_mb(process)} MB"
    )


def _mb(process: psutil.Process) -> int:
    return int(process.memory_info().rss / 1e6)


if __name__ == "__main__":
    main()
