"""Speed and cost of the schema registry, over HTTP on a real Kafka, compared with Apicurio Registry.

Run: ``./run bench registry`` (about a quarter of an hour; ``--quick`` leaves out the 100,000 schemas). Prints
figures, asserts none on time. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import psutil
from confluent_kafka import Producer
from load import Job, Load, request, run
from peers import apicurio
from ports import free_pair, free_ports
from served import Served, ask, cost_of

from hub.cli.platform.up import children
from hub.config import Settings
from hub.embedded import KafkaNode
from hub.embedded.java import find_java
from hub.errors import HubError
from hub.kafka import KafkaCluster

CONNECTIONS = 8
SUBJECTS = 10_000
SIZES = (1_000, 10_000, 100_000)
# Over this many ms a write, the peer is not filled beyond the first size: it would take the bench's time.
FAST_MS = 5.0

# Confluent's own server 8.1.1 does not resolve from the package registries: known figures, not of this run.
EARLIER = {
    "id_rate": "1,317 /s (8 threads)",
    "id_steady": "p50 1.5 ms",
    "register_new": "p50 10.7 ms",
    "memory": "302 MB",
    "gap": "11.3 s",
}

Figures = dict[str, str]


# ---- what is registered


def schema(name: str, change: int = 0) -> str:
    """A record of ten fields, as Confluent's registry would spell it. Any two changes may follow each other
    at BACKWARD: they differ in one field that has a default."""
    customer = {
        "type": "record",
        "name": "Customer",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "city", "type": ["null", "string"], "default": None},
        ],
    }
    kinds: list[tuple[str, object]] = [
        ("event_id", "string"),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("customer", customer),
        ("status", {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID", "SHIPPED", "CLOSED"]}),
        ("cents", "long"),
        ("currency", "string"),
        ("quantity", "int"),
        ("labels", {"type": "map", "values": "string"}),
        ("lines", {"type": "array", "items": "string"}),
    ]
    fields = [{"name": field, "type": kind} for field, kind in kinds]
    fields.append({"name": f"note_{change}", "type": ["null", "string"], "default": None})
    record = {"type": "record", "name": name, "namespace": "bench", "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def posted(server: Served, path: str, text: str) -> bytes:
    return request("POST", path, json.dumps({"schema": text}).encode())


def registration(server: Served, subject: str, text: str) -> bytes:
    return posted(server, server.path("subjects", subject, "versions"), text)


# ---- the two sides


@dataclass
class Side:
    """A Kafka in a folder of its own, and how one more node of a registry is started on it."""

    folder: Path
    settings: Settings
    kafka: KafkaNode
    start: Callable[[Side], Served]
    servers: list[Served] = field(default_factory=list)
    """Every node that was started, also those that were stopped or killed since."""

    def serve(self, ready: str = "subjects") -> tuple[Served, float]:
        """One more node, and the seconds from its process's start until it answers a GET of ``ready``."""
        server = self.start(self)
        self.servers.append(server)
        return server, server.wait(f"{server.prefix}/{ready}")

    def kafka_process(self) -> psutil.Process:
        assert self.kafka.process is not None
        return psutil.Process(self.kafka.process.pid)


def hub_server(side: Side) -> Served:
    """``hub serve`` as the supervisor starts it, with a home of its own."""
    number = len(side.servers)
    update = {"http_port": free_ports(1)[0], "home": side.folder / f"home-{number}"}
    settings = side.settings.model_copy(update=update)
    settings.home.mkdir()
    child = children(settings)[1]
    environment = {**os.environ, **child.environment, "PYTHONPATH": str(ROOT)}
    log = side.folder / f"server-{number}.log"
    return Served(child.command(), environment, ROOT, log, settings.http_port, "")


def apicurio_server(side: Side) -> Served:
    java = apicurio.java_for(side.settings)
    assert java is not None
    return apicurio.start(side.settings, java, side.folder / "apicurio")


@contextmanager
def log_of_its_own(start: Callable[[Side], Served]) -> Iterator[Side]:
    """A running Kafka and no registry yet; all of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
    port = free_pair()
    settings = Settings(
        home=folder / "home", project=folder / "project", kafka_port=port, bootstrap=f"127.0.0.1:{port}"
    )
    (settings.project / "views").mkdir(parents=True)
    side = Side(folder, settings, KafkaNode(settings), start)
    try:
        side.kafka.start()
        side.kafka.wait_ready()
        yield side
    finally:
        for server in side.servers:
            server.stop()
        side.kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)


# ---- measuring


@dataclass
class Bench:
    """Shared state of the parts: the generator's process, and how long to measure."""

    pool: ProcessPoolExecutor
    seconds: float
    warm_up_s: float
    rate: int
    writes: int

    def load(self, server: Served, requests: Sequence[bytes], **more: object) -> Load:
        job = replace(Job(server.port, requests), **more)  # type: ignore[arg-type]
        return self.pool.submit(run, job).result()

    def checked(self, server: Served, requests: Sequence[bytes], **more: object) -> Load:
        """Run ``load``; raise RuntimeError if a request is not answered with 200, because the figures would
        be meaningless.
        """
        load = self.load(server, requests, **more)
        if load.refused:
            raise RuntimeError(f"{load.refused} of {len(load.statuses)} refused: {Counter(load.statuses)}")
        return load


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def spread(latencies_s: Sequence[float], digits: int = 1) -> str:
    """``p50 / p99 ms``"""
    middle, late = quantile(latencies_s, 0.5) * 1000, quantile(latencies_s, 0.99) * 1000
    return f"{middle:.{digits}f} / {late:.{digits}f} ms"


def reads_and_writes(bench: Bench, start: Callable[[Side], Served]) -> Figures:
    """Everything that is measured of one node on a log with few schemas."""
    with log_of_its_own(start) as side:
        server, started_s = side.serve()
        server.ask("PUT", server.path("config"), {"compatibility": "BACKWARD"})
        found = {"started": f"{started_s:.1f} s", "memory_idle": f"{server.cost().memory_mb:,.0f} MB"}
        subjects = [f"bench.topic-{number}-value" for number in range(1_000)]
        texts = [schema(f"Read{number}") for number in range(1_000)]
        filling = [registration(server, *each) for each in zip(subjects, texts, strict=True)]
        filled = bench.checked(server, filling, connections=CONNECTIONS, keep_bodies=True)
        ids = [json.loads(body)["id"] for body in filled.bodies]
        random.Random(1).shuffle(ids)
        random.Random(2).shuffle(subjects)
        reads = {
            "id": [request("GET", server.path("schemas", "ids", each)) for each in ids],
            "latest": [
                request("GET", server.path("subjects", each, "versions", "latest")) for each in subjects
            ],
        }
        for name, requests in reads.items():
            found |= _reads(bench, server, name, requests)
        found |= _writes(bench, side, server, subjects)
        cost = server.cost()
        found |= {"cpu": f"{cost.cpu_s:.1f} s", "memory": f"{cost.memory_mb:,.0f} MB"}
        return found


def _reads(bench: Bench, server: Served, name: str, requests: Sequence[bytes]) -> Figures:
    bench.checked(server, requests, connections=CONNECTIONS, seconds=bench.warm_up_s)
    before = server.cost().cpu_s
    most = bench.checked(server, requests, connections=CONNECTIONS, seconds=bench.seconds)
    cpu_us = (server.cost().cpu_s - before) * 1e6 / len(most.statuses)
    steady = bench.checked(
        server, requests, connections=CONNECTIONS, seconds=bench.seconds, rate=float(bench.rate)
    )
    return {
        f"{name}_rate": f"{len(most.statuses) / most.wall_s:,.0f} /s",
        f"{name}_busy": spread(most.latencies_s),
        f"{name}_cpu": f"{cpu_us:,.0f} us",
        f"{name}_generator": f"{most.cpu_s / most.wall_s:.0%} / "
        f"{quantile(steady.late_s, 0.99) * 1000:.2f} ms",
        f"{name}_steady": spread(steady.latencies_s, 2),
    }


def _writes(bench: Bench, side: Side, server: Served, old_subjects: Sequence[str]) -> Figures:
    """One after the other, on one connection."""
    count = bench.writes

    def new(prefix: str, many: int) -> list[bytes]:
        return [
            registration(server, f"{prefix}.{n}-value", schema(f"{prefix.title()}{n}")) for n in range(many)
        ]

    grown = [registration(server, "grown-value", schema("Grown", change)) for change in range(count)]
    checked = server.path("compatibility", "subjects", old_subjects[0], "versions", "latest")
    number = old_subjects[0].split("-")[1]
    checks = [posted(server, checked, schema(f"Read{number}", 1 + change)) for change in range(count)]
    bench.checked(server, new("warm", count))
    bench.checked(server, checks[: count // 2])
    kafka, before = side.kafka_process(), server.cost().cpu_s
    kafka_before = cost_of(kafka).cpu_s
    fresh = new("fresh", count)
    created = bench.checked(server, fresh, keep_bodies=True)
    cpu = (server.cost().cpu_s - before) * 1000 / count
    kafka_cpu = (cost_of(kafka).cpu_s - kafka_before) * 1000 / count
    versions = bench.checked(server, grown)
    again = bench.checked(server, fresh, keep_bodies=True)
    if [json.loads(body)["id"] for body in created.bodies] != [
        json.loads(body)["id"] for body in again.bodies
    ]:
        raise RuntimeError("registered again, a schema got another id")
    asked = bench.checked(server, checks, keep_bodies=True)
    if not all(json.loads(body)["is_compatible"] for body in asked.bodies):
        raise RuntimeError("a schema that may follow was said not to")
    return {
        "register_new": spread(created.latencies_s),
        "register_cpu": f"{cpu:.1f} + {kafka_cpu:.1f} ms",
        "register_version": spread(versions.latencies_s),
        "register_again": spread(again.latencies_s),
        "check": spread(asked.latencies_s),
        "memory_kafka": f"{cost_of(kafka).memory_mb:,.0f} MB",
    }


# ---- many schemas


def hub_sizes(bench: Bench, size: int) -> Figures:
    """Records straight into the log, then a server on it."""
    with log_of_its_own(hub_server) as side:
        cluster = KafkaCluster(side.settings.bootstrap)
        cluster.create_topic(
            "_schemas", partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1
        )
        _fill_log(side.settings.bootstrap, size)
        return _at_size(bench, side, size, f"schemas/ids/{size}")


def peer_sizes(bench: Bench, size: int) -> Figures:
    """Fill the peer through its API, then start a new node on its journal; ``filled_ms`` is the time of a
    registration while filling.
    """
    with log_of_its_own(apicurio_server) as side:
        server, _ = side.serve()
        server.ask("PUT", server.path("config"), {"compatibility": "BACKWARD"})
        filling = [
            registration(server, subject, schema(name, version))
            for subject, name, version in _population(size)
        ]
        filled = bench.checked(server, filling, keep_bodies=True)  # in order: versions may not overtake
        last = json.loads(filled.bodies[-1])["id"]
        server.stop()
        each_ms = filled.wall_s * 1000 / size
        return {**_at_size(bench, side, size, f"schemas/ids/{last}"), "filled_ms": f"{each_ms:.1f}"}


def _population(size: int) -> Iterator[tuple[str, str, int]]:
    """(subject, record's name, version from 1) of every schema."""
    subjects = min(size, SUBJECTS)
    for number in range(size):
        of = number % subjects
        yield f"bench.topic-{of}-value", f"Event{of}", number // subjects + 1


def _fill_log(bootstrap: str, size: int) -> None:
    """Write the records that Confluent's registry would have written: ids from 1 in the order of the log."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    failed: list[object] = []
    for number, (subject, name, version) in enumerate(_population(size), 1):
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        text = schema(name, version)
        value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False}
        record = [json.dumps(each, separators=(",", ":")).encode() for each in (value, key)]
        producer.produce(
            "_schemas",
            *record,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        if number % 1_000 == 0:
            producer.flush(60)
    if producer.flush(60) or failed:
        raise RuntimeError(f"the log could not be filled: {failed[:1]}")


def _at_size(bench: Bench, side: Side, size: int, last: str) -> Figures:
    server, started_s = side.serve(last)
    started_cpu, resident = server.cost().cpu_s, server.cost().memory_mb
    subjects = min(size, SUBJECTS)
    status, listed = server.ask("GET", server.path("subjects"), timeout_s=60)
    # The peer lists only a part, as its settings allow.
    if status != 200 or (not server.prefix and len(listed) != subjects):
        raise RuntimeError(f"{len(listed)} of {subjects} subjects are listed ({status})")
    count, next_version = bench.writes // 2, size // subjects + 1
    fresh = [registration(server, f"more.{n}-value", schema(f"More{n}")) for n in range(2 * count)]
    grown = [
        registration(server, f"bench.topic-{n}-value", schema(f"Event{n}", next_version))
        for n in range(count)
    ]
    bench.checked(server, fresh[count:])
    mixed = [each for pair in zip(fresh[:count], grown, strict=True) for each in pair]
    written = bench.checked(server, mixed)
    return {
        "started": f"{started_s:.1f} s",
        "cpu": f"{started_cpu:.1f} s",
        "memory": f"{resident:,.0f} MB",
        "register": spread(written.latencies_s),
    }


# ---- a node is killed


@dataclass
class Written:
    """Writes of one writer: the number sent, and the acknowledged ones as (monotonic time, number, id)."""

    name: str
    acknowledged: list[tuple[float, int, int]] = field(default_factory=list)
    sent: int = 0
    failed: int = 0

    def subject(self, number: int) -> str:
        return f"{self.name}.{number}-value"

    def text(self, number: int) -> str:
        return schema(f"{self.name.title().replace('-', '')}N{number}")


def write(server: Served, written: Written, stop: threading.Event) -> None:
    """Register one new schema after another through one node, each until it is acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    while not stop.is_set():
        number = len(written.acknowledged)
        written.sent = number + 1
        path = server.path("subjects", written.subject(number), "versions")
        try:
            status, answer = ask(connection, "POST", path, {"schema": written.text(number)})
        except (OSError, http.client.HTTPException, ValueError):
            connection.close()
            status, answer = 0, None
        if status == 200:
            written.acknowledged.append((time.monotonic(), number, int(answer["id"])))
        else:
            written.failed += 1
            stop.wait(0.02)
    connection.close()


def killed(
    bench: Bench, start: Callable[[Side], Served], kills: int, before_s: float, after_s: float
) -> Figures:
    """Two nodes write, one is killed; several times, each time on nodes of both,
    and then what a new node knows."""
    with log_of_its_own(start) as side:
        every: list[Written] = []
        gaps: list[float] = []
        rates: list[float] = []
        nodes = [side.serve()[0]]
        nodes[0].ask("PUT", nodes[0].path("config"), {"compatibility": "BACKWARD"})
        for turn in range(kills):
            nodes.append(side.serve()[0])
            victim = nodes.pop(turn % 2)  # by turns the elder and the younger
            writers = [Written(f"kill-{turn}-victim"), Written(f"kill-{turn}-survivor")]
            every += writers
            rate, gap = kill_one(victim, nodes[0], writers, before_s, after_s)
            rates.append(rate)
            gaps.append(gap)
        fresh, _ = side.serve()
        return {
            "gap": f"{max(gaps):.2f} s",
            "gap_middle": f"{quantile(gaps, 0.5):.2f} s",
            "both_rate": f"{quantile(rates, 0.5):,.0f} /s",
            **verdict(bench, fresh, every),
        }


def kill_one(
    victim: Served, survivor: Served, writers: Sequence[Written], before_s: float, after_s: float
) -> tuple[float, float]:
    """Write through both servers, kill one, and keep writing. Returns (writes/s while both live, longest gap
    in seconds).
    """
    stops = [threading.Event(), threading.Event()]
    threads = [
        threading.Thread(target=write, args=each, daemon=True)
        for each in zip((victim, survivor), writers, stops, strict=True)
    ]
    for thread in threads:
        thread.start()
    _until(lambda: all(each.acknowledged for each in writers))
    began_at, before = time.monotonic(), sum(len(each.acknowledged) for each in writers)
    time.sleep(before_s)
    written = sum(len(each.acknowledged) for each in writers) - before
    killed_at = time.monotonic()
    victim.kill()
    stops[0].set()
    time.sleep(after_s)
    _until(lambda: writers[1].acknowledged[-1][0] > killed_at)
    stops[1].set()
    for thread in threads:
        thread.join(30)
    return written / (killed_at - began_at), longest_gap(writers[1], killed_at)


def longest_gap(written: Written, killed_at: float) -> float:
    """The longest time between two acknowledged writes of which the later one came after the kill."""
    times = [at for at, _, _ in written.acknowledged]
    return max(late - early for early, late in pairwise(times) if late > killed_at)


def verdict(bench: Bench, server: Served, every: Sequence[Written]) -> Figures:
    """Compare every write, acknowledged or not, with the answers of a node that has just read the log."""
    ids: dict[int, set[str]] = {}
    lost = acknowledged = 0
    for written in every:
        latest = [
            request("GET", server.path("subjects", written.subject(number), "versions", "latest"))
            for number in range(written.sent)
        ]
        answers = bench.load(server, latest, keep_bodies=True)
        known = {}
        for number, (status, body) in enumerate(zip(answers.statuses, answers.bodies, strict=True)):
            if status == 200:
                told = json.loads(body)
                known[number] = int(told["id"]), json.loads(told["schema"])
                ids.setdefault(int(told["id"]), set()).add(written.subject(number))
        by_id = [request("GET", server.path("schemas", "ids", each)) for _, _, each in written.acknowledged]
        texts = bench.load(server, by_id, keep_bodies=True)
        acknowledged += len(written.acknowledged)
        for (_, number, each), status, body in zip(
            written.acknowledged, texts.statuses, texts.bodies, strict=True
        ):
            ids.setdefault(each, set()).add(written.subject(number))
            wanted = json.loads(written.text(number))
            stays = status == 200 and json.loads(json.loads(body)["schema"]) == wanted
            lost += not (stays and known.get(number) == (each, wanted))
    return {
        "failed": f"{sum(each.failed for each in every):,}",
        "acknowledged": f"{acknowledged:,}",
        "twice": f"{sum(len(subjects) > 1 for subjects in ids.values()):,}",
        "lost": f"{lost:,}",
    }


def _until(done: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("no write was acknowledged for two minutes")
        time.sleep(0.05)


# ---- saying it


def say(figure: str, own: str, peer: str = "", goal: str = "", earlier: str = "") -> None:
    print(f"{figure:<60} {own:>18} {peer:>18} {goal:>18} {earlier:>22}", flush=True)


def rows(bench: Bench) -> list[tuple[str, str, str]]:
    """Return (key, title, goal) of each figure of one node."""
    listed = [("started", "start on an empty log, until it answers", ""), ("memory_idle", "memory then", "")]
    for name, path in (("id", "GET /schemas/ids/{id}"), ("latest", "GET /subjects/{s}/versions/latest")):
        listed += [
            (f"{name}_rate", f"{path}, {CONNECTIONS} connections", "4,000 /s"),
            (f"{name}_busy", "  p50 / p99 at that load", ""),
            (f"{name}_cpu", "  CPU of the server a request", ""),
            (f"{name}_steady", f"  p50 / p99 at a steady {bench.rate}/s", "1.5 / 5 ms"),
            (f"{name}_generator", "  generator: share of a core / late by, p99", ""),
        ]
    return [
        *listed,
        ("register_new", "register in new subjects, p50 / p99", "10 / 50 ms"),
        ("register_cpu", "  CPU of server + Kafka a registration", ""),
        ("register_version", "register as new versions of one subject, p50 / p99", "10 / 50 ms"),
        ("register_again", "register again what is registered, p50 / p99", ""),
        ("check", "compatibility check against the latest, p50 / p99", ""),
        ("cpu", "CPU of the server until here", ""),
        ("memory", "memory of the server", ""),
        ("memory_kafka", "memory of Kafka", ""),
    ]


SIZE_ROWS = (
    ("started", "start until it answers with all", "15 s"),
    ("cpu", "CPU of the server until then", ""),
    ("memory", "memory then", "1,024 MB"),
    ("register", "register, half new, half versions, p50 / p99", "- / 50 ms"),
)
KILL_ROWS = (
    ("both_rate", "two nodes write: acknowledged writes, together", ""),
    ("gap", "one is killed: longest without a write, of all kills", "5 s"),
    ("gap_middle", "  the same, median of the kills", ""),
    ("failed", "  writes refused or unanswered, then tried again", ""),
    ("acknowledged", "  acknowledged schemas", ""),
    ("lost", "  acknowledged schemas lost", "0"),
    ("twice", "  ids of more than one schema", "0"),
)


def say_rows(
    listed: Sequence[tuple[str, str, str]], own: Figures, peer: Figures, earlier: Mapping[str, str]
) -> None:
    for key, what, goal in listed:
        say(what, own.get(key, "-"), peer.get(key, "-"), goal, earlier.get(key, ""))


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--seconds", type=float, default=15, help="of each measurement of reads")
    arguments.add_argument("--warm-up", type=float, default=10, help="seconds of reads before measuring")
    arguments.add_argument("--rate", type=int, default=500, help="reads a second at the steady rate")
    arguments.add_argument("--writes", type=int, default=500, help="registrations of each kind")
    arguments.add_argument("--kills", type=int, default=3)
    arguments.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    arguments.add_argument(
        "--only", nargs="*", choices=("node", "sizes", "kill"), default=("node", "sizes", "kill")
    )
    arguments.add_argument("--no-peer", action="store_true")
    arguments.add_argument("--quick", action="store_true", help="without 100,000 schemas")
    given = arguments.parse_args()

    java = None if given.no_peer else apicurio.java_for(Settings())
    if java is None and not given.no_peer:
        needed = f"Java {apicurio.OLDEST_JAVA} or later (set HUB_JAVA)"
        print(
            f"Without the peer: it needs {needed}, here is {find_java(Settings()).version}.", file=sys.stderr
        )
    print(
        f"hub: {ROOT}   cores: {os.cpu_count()}, load before: {os.getloadavg()[0]:.1f}   "
        f"the peer's Java: {java.version if java else '-'}"
    )
    say("figure", "the hub", f"Apicurio {apicurio.VERSION}" if java else "-", "goal", "Confluent 8.1.1 *")
    if java is not None:
        try:
            apicurio.fetch(Settings())
        except (HubError, OSError, RuntimeError) as error:
            print(f"Without the peer: {error}", file=sys.stderr)
            java = None
    # Not forked: a fork would inherit Kafka's client threads' locks.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        bench = Bench(pool, given.seconds, given.warm_up, given.rate, given.writes)
        if "node" in given.only:
            own = reads_and_writes(bench, hub_server)
            peer = beside(java is not None, lambda: reads_and_writes(bench, apicurio_server))
            say_rows(rows(bench), own, peer, EARLIER)
        if "sizes" in given.only:
            say_sizes(
                bench, [each for each in given.sizes if each < 100_000 or not given.quick], java is not None
            )
        if "kill" in given.only:
            own = killed(bench, hub_server, given.kills, 4.0, 12.0)
            peer = beside(java is not None, lambda: killed(bench, apicurio_server, given.kills, 4.0, 12.0))
            say_rows(KILL_ROWS, own, peer, EARLIER)
    print("* measured earlier on a machine of this kind, not in this run")


def beside(with_peer: bool, measure: Callable[[], Figures]) -> Figures:
    """Return the peer's figures; {} with the reason on standard error if the peer fails, because the hub's
    figures are worth printing all the same.
    """
    if not with_peer:
        return {}
    try:
        return measure()
    except (HubError, OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
        print(f"The peer failed: {type(error).__name__}: {error}", file=sys.stderr)
        return {}


def say_sizes(bench: Bench, sizes: Sequence[int], with_peer: bool) -> None:
    """Measure and print each size. The peer is filled through its API, so it takes part in the next size only
    while it is fast.
    """
    for size in sizes:
        own = hub_sizes(bench, size)
        peer = beside(with_peer, lambda size=size: peer_sizes(bench, size))  # type: ignore[misc]
        with_peer = float(peer.get("filled_ms", "inf")) < FAST_MS and size < 10_000
        say_rows([(key, f"{size:,} schemas: {what}", goal) for key, what, goal in SIZE_ROWS], own, peer, {})


if __name__ == "__main__":
    main()
