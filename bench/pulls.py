"""Cost and latency of a read by key: the hub's server, and a Kafka Streams program that answers from its own
store.

Run: ``./run bench pulls [--store sqlite|postgresql …] [--keys N] [--rate N] [--seconds N] [--no-peer]``
(about three minutes). Requests are prepared bytes from a process of its own (load.py). Prints figures,
asserts none on time; an answer that is not 200, or not the row of its key, ends the bench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from load import Job, Load, request, run
from peers import kafka_streams
from ports import free_ports
from postgres import BINARIES, Postgres
from registry import quantile, spread
from views import TOPICS, Hub, bulk, hub, peer

from hub.cli.platform.up import fetch_jars
from hub.config import Settings

CONNECTIONS = 8
STORES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Server:
    """A server to read from: requests go to ``path`` followed by the key; ``process`` is the one whose CPU
    counts.
    """

    title: str
    port: int
    path: str
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests to a server: the keys in a seeded order, the duration, and the rate."""

    keys: Sequence[str]
    seconds: float
    rate: float
    pool: ProcessPoolExecutor

    def of(self, server: Server, query: str = "", **more: float) -> Load:
        requests = [request("GET", f"{server.path}{key}{query}") for key in self.keys]
        job = Job(server.port, requests, CONNECTIONS, self.seconds, keep_bodies=True, **more)
        load = self.pool.submit(run, job).result()
        if load.refused:
            raise SystemExit(f"{server.title}: {load.refused} of {len(load.statuses)} requests were refused")
        for number in range(0, len(load.bodies), 97):
            key = self.keys[number % len(self.keys)]
            if json.loads(load.bodies[number])["key"] != key:
                raise SystemExit(f"{server.title}: the answer to {key} is {load.bodies[number]!r}")
        return load


def measure(server: Server, asked: Asked, query: str = "") -> None:
    """Prints a server's line."""
    asked.of(server, query)  # warm
    before = server.cpu_s()
    most = asked.of(server, query)
    cpu_us = (server.cpu_s() - before) * 1e6 / len(most.statuses)
    steady = asked.of(server, query, rate=asked.rate)
    generator = f"{most.cpu_s / most.wall_s:.0%}, {quantile(steady.late_s, 0.99) * 1000:.1f} ms"
    print(
        f"{server.title:<52}{len(most.statuses) / most.wall_s:>9,.0f} /s{cpu_us:>10,.0f} us"
        f"{spread(steady.latencies_s):>18}{server.process.memory_info().rss >> 20:>9,} MB{generator:>14}",
        flush=True,
    )


def of_hub(running: Hub, title: str) -> Server:
    process = psutil.Process(running.supervisor.pids()["server"])
    return Server(title, running.settings.http_port, "/views/bench/", process)


@contextlib.contextmanager
def of_peer(running: Hub, events: int) -> Iterator[Server]:
    """The cogroup of bench/views.py with Java's own HTTP server before its store,
    when it has read everything."""
    port = free_ports(1)[0]
    with peer(running, events, port) as (view, _):
        yield Server(f"Kafka Streams {kafka_streams.VERSION}, its own store", port, "/", view.process)


@contextlib.contextmanager
def store_of(kind: str) -> Iterator[Callable[[Settings], Settings]]:
    """Settings with that kind of store."""
    if kind == "sqlite":
        yield lambda settings: settings
        return
    postgres = Postgres()
    try:
        postgres.start()
        url = postgres.database("pulls")
        yield lambda settings: settings.model_copy(update={"store_url": url})
    finally:
        postgres.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--store", choices=STORES, action="append", help="default: both")
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--rate", type=int, default=500, help="requests a second of the steady part")
    arguments.add_argument("--seconds", type=float, default=10.0, help="of each part")
    arguments.add_argument("--no-peer", action="store_true")
    given = arguments.parse_args()
    fetch_jars(Settings())
    stores = [each for each in given.store or STORES if each == "sqlite" or BINARIES]
    events = given.keys * 2
    print(f"{given.keys:,} keys; {CONNECTIONS} connections; steady: {given.rate} requests/s, p50 / p99")
    print(f"{'':<52}{'most':>12}{'CPU':>13}{'steady':>18}{'memory':>12}{'generator':>14}")
    with ProcessPoolExecutor(1) as pool:
        asked: Asked | None = None
        for kind in stores:
            with store_of(kind) as fitted, hub(fit=fitted) as running:
                running.load(events, given.keys)
                bulk(running)
                if asked is None:
                    asked = Asked(keys_of(given.keys, events), given.seconds, given.rate, pool)
                measure(of_hub(running, f"the hub, {kind}"), asked)
                token = ",".join(f"{topic}:{partition}:1" for topic in TOPICS for partition in (0, 1))
                measure(of_hub(running, f"the hub, {kind}, with a token"), asked, f"?after={token}")
        if asked is None or given.no_peer:
            return
        if kafka_streams.javac() is None:
            print("No javac: without the peer.", file=sys.stderr)
            return
        with hub() as running:
            running.load(events, given.keys)
            with of_peer(running, events) as server:
                measure(server, asked)


def keys_of(keys: int, events: int) -> list[str]:
    """Keys that have events, by the bench's own seed; at most 20,000, in an order of chance."""
    chance = random.Random(1)
    seen = sorted({f"C-{chance.randrange(keys):07d}" for _ in range(events)})
    random.Random(2).shuffle(seen)
    return seen[:20_000]


if __name__ == "__main__":
    main()
