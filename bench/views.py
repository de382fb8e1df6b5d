"""Cost and latency of a view, measured on the product's own path: real Kafka, Spark, store and HTTP.

Run: ``./run bench views`` (about fifteen minutes; ``--quick`` leaves out the last part). Prints figures,
asserts none. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import fastavro
import httpx2
import psutil
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from peers import kafka_streams
from ports import free_pair, free_ports

from hub.cli.platform.up import children, fetch_jars
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.definition.declared import changelog_of
from hub.materializers.progress.records import PROGRESS_TOPIC, progress_of
from hub.record import Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.supervisor import Supervisor

MS = {"type": "long", "logicalType": "timestamp-millis"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "crm.customers": {
        "customer_id": "string",
        "name": "string",
        "city": "string",
        "segment": "string",
        "at": MS,
    },
    "web.visits": {"event_id": "string", "customer_id": "string", "page": "string", "at": MS},
    "shop.orders": {
        "order_id": "string",
        "customer_id": "string",
        "status": "string",
        "cents": "long",
        "at": MS,
    },
    "shop.payments": {
        "event_id": "string",
        "customer_id": "string",
        "kind": "string",
        "cents": "long",
        "at": MS,
    },
}
TOPICS = list(SCHEMAS)
VIEW = """view: bench
sources:
  crm:    {topic: crm.customers, key: customer_id, order: at}
  web:    {topic: web.visits, key: customer_id, order: at}
  orders: {topic: shop.orders, key: customer_id, order: at, unique_by: order_id}
  pay:    {topic: shop.payments, key: customer_id, order: at, unique_by: event_id}
fields:
  name: crm.name
  city: crm.city
  segment: crm.segment
  page: web.page
  last_seen: max(web.at)
  visits: count(web.event_id)
  orders: count(orders.order_id)
  open_orders: count_if(orders.status = 'open')
  ordered: coalesce(sum(orders.cents), 0)
  paid: coalesce(sum(if(pay.kind = 'captured', pay.cents, 0)), 0)
computed:
  owes: ordered - paid
indexes: [city]
"""


class Hub:
    """A hub in a folder of its own, on free ports, with these topics and a view."""

    def __init__(
        self,
        topics: dict[str, dict[str, Any]] = SCHEMAS,
        view: str = VIEW,
        fit: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        self.topics, self.view = topics, view
        self.folder = Path(tempfile.mkdtemp(prefix="hub-bench-"))
        port = free_pair()
        self.settings = fit(
            Settings(
                home=self.folder / "home",
                project=self.folder / "project",
                kafka_port=port,
                bootstrap=f"127.0.0.1:{port}",
                http_port=free_ports(1)[0],
            )
        )
        (self.settings.project / "views").mkdir(parents=True)
        (self.settings.project / "views" / "bench.yaml").write_text(view)
        self.url = self.settings.url
        # Keep one client: creating one takes longer than a request.
        self.client = httpx2.Client(base_url=self.url, timeout=10)
        self.supervisor = Supervisor(self.settings.home)
        self.cluster = KafkaCluster(self.settings.bootstrap)
        self.encoders: dict[str, tuple[bytes, Any]] = {}
        self.schemas: dict[str, Any] = {}

    def start_log(self) -> None:
        """Kafka and the server; topics and schemas."""
        for child in children(self.settings)[:2]:
            self.supervisor.start(child)
        registry = RegistryClient(self.url)
        for topic, fields in self.topics.items():
            self.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
            listed = [{"name": name, "type": kind} for name, kind in fields.items()]
            schema = {"type": "record", "name": topic.title().replace(".", ""), "fields": listed}
            self.schemas[topic] = schema
            schema_id = registry.register(f"{topic}-value", json.dumps(schema))
            self.encoders[topic] = b"\x00" + schema_id.to_bytes(4, "big"), fastavro.parse_schema(schema)

    def start_view(self) -> None:
        for child in children(self.settings)[2:]:
            self.supervisor.start(child)

    def event(self, number: int, key: str) -> tuple[str, bytes]:
        """(topic, value) of the n-th event, for a customer."""
        topic = TOPICS[number % 4]
        at = 1_767_225_600_000 + number
        value: dict[str, Any] = {"customer_id": key, "at": at, "cents": number % 1_000}
        value |= {"name": f"Name {key}", "city": "Oslo", "segment": "consumer", "page": "/sale"}
        value |= {
            "event_id": f"e{number}",
            "order_id": f"o{number // 8}",
            "status": "open",
            "kind": "captured",
        }
        return topic, self.encoded(topic, value)

    def encoded(self, topic: str, value: dict[str, Any]) -> bytes:
        """With what the topic's schema has of it."""
        head, schema = self.encoders[topic]
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, value)
        return head + body.getvalue()

    def load(self, events: int, keys: int) -> None:
        chance = random.Random(1)
        self.append(self._numbered(number, f"C-{chance.randrange(keys):07d}") for number in range(events))

    def _numbered(self, number: int, key: str) -> tuple[str, str, bytes]:
        topic, value = self.event(number, key)
        return topic, key, value

    def append(self, events: Iterable[tuple[str, str, bytes]]) -> None:
        """All of them, (topic, key, value), acknowledged when it returns."""
        producer = Producer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "linger.ms": 50,
                "compression.type": "lz4",
                "batch.size": 262_144,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for number, (topic, key, value) in enumerate(events):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1_000 == 0:
                producer.poll(0)
        if producer.flush(60):
            raise TimeoutError("the broker did not take all events within a minute")

    def progress(self, name: str = "bench") -> dict[str, Any]:
        try:
            views = self.client.get("/views").json()["views"]
        except (httpx2.HTTPError, ValueError, KeyError):
            return {}
        return next((view for view in views if view["view"] == name), {})

    def processes(self) -> dict[str, psutil.Process]:
        found = {name: psutil.Process(pid) for name, pid in self.supervisor.pids().items()}
        if "materializer" in found:
            for child in found["materializer"].children(recursive=True):
                if "java" in child.name():
                    found["spark"] = child
        return found

    def cpu_s(self) -> float:
        """CPU seconds of the view's computation: Spark and its driver."""
        total = 0.0
        for name, process in self.processes().items():
            if name in ("materializer", "spark"):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def stop(self) -> None:
        self.client.close()
        self.supervisor.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def hub(
    topics: dict[str, dict[str, Any]] = SCHEMAS,
    view: str = VIEW,
    fit: Callable[[Settings], Settings] = lambda settings: settings,
) -> Iterator[Hub]:
    """``fit``: what is to be set otherwise."""
    running = Hub(topics, view, fit)
    try:
        running.start_log()
        yield running
    finally:
        running.stop()


def wait(done: Callable[[], bool], timeout_s: float = 600.0) -> float:
    """Wait until ``done`` and return the monotonic time. Asks four times a second: more often would influence
    the figures.
    """
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("it takes too long")
        time.sleep(0.25)
    return time.monotonic()


def bulk(running: Hub) -> dict[str, float]:
    """From the log full and no view, to all rows served."""
    return _caught_up(running, "bench", running.start_view, 0.0)


def bulk_again(running: Hub) -> dict[str, float]:
    """Measure the same view under another name, from the same log, on the running Spark, as when a view is
    added or rebuilt. Removes the view afterwards.
    """
    file = running.settings.project / "views" / "again.yaml"
    try:
        return _caught_up(
            running,
            "again",
            lambda: file.write_text(running.view.replace("view: bench", "view: again")),
            running.cpu_s(),
        )
    finally:
        file.unlink()


def _caught_up(running: Hub, view: str, begin: Callable[[], object], cpu_before_s: float) -> dict[str, float]:
    end = running.cluster.end_offsets(list(running.topics))
    events = sum(offset for _, offset in end)
    begin()
    with Told(running, view) as told:
        began_at = wait(lambda: told.state == "bulk")
        computed_at = wait(lambda: told.read.covers(end))
    wait(lambda: Positions.parse(running.progress(view).get("positions", "")).covers(end))
    served_at = time.monotonic()
    return {
        "computed": events / (computed_at - began_at),
        "served": events / (served_at - began_at),
        "cpu_us": (running.cpu_s() - cpu_before_s) * 1e6 / events,
    }


class Told:
    """Progress that a view's engine writes to the log. A store shows progress only after it has taken all
    earlier rows; the peer is also measured by what it has committed.
    """

    def __init__(self, running: Hub, view: str) -> None:
        self.view, self.state, self.read = view, "", Positions()
        wait(lambda: bool(running.cluster.partition_counts([PROGRESS_TOPIC])))
        self.reader = running.cluster.follower()
        self.reader.assign(running.cluster.beginning_offsets([PROGRESS_TOPIC]))
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.done = threading.Event()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join(10.0)
        self.reader.close()

    def _listen(self) -> None:
        while not self.done.is_set():
            for record in self.reader.poll(5_000, 0.2):
                if record.key == f"state:{self.view}".encode() and record.value is not None:
                    self.state = json.loads(record.value)["state"]
                elif (done := progress_of(record, changelog_of(self.view))) and done.view == self.view:
                    self.read = done.sources


def batch_of(progress: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(topic, partition, next offset) that the view's last batch reached."""
    batch = progress.get("last_batch") or {}
    for topic, offsets in batch.get("sources", {}).items():
        for partition, offset in offsets.items():
            yield topic, int(partition), offset


SUBSCRIBE = b"GET /views/bench/changes?snapshot=false HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def key_told(line: bytes) -> str | None:
    """The key in a line of a subscription, if there is one: a piece of its body has whole events."""
    at = line.find(b'"key":"') if line.startswith(b"data: ") else -1
    return None if at < 0 else line[at + 7 :].split(b'"', 1)[0].decode()


def keys_told(running: Hub, done: threading.Event) -> Iterator[str]:
    """Yield the keys of the view's changes as a subscriber receives them, until ``done`` or the hub stops.
    Uses a bare socket, because an HTTP library would use more CPU than the rest of the program.
    """
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", running.settings.http_port)) as line,
    ):
        line.settimeout(60.0)
        line.sendall(SUBSCRIBE)
        with line.makefile("rb") as lines:
            for each in lines:
                if done.is_set():
                    return
                if (key := key_told(each)) is not None:
                    yield key


class Arrivals:
    """Events under way, by key: when each was sent, and how long each took that arrived."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.late: list[tuple[float, float]] = []

    def heard(self, key: str, now: float) -> None:
        if key in self.sent:
            self.late.append((now, now - self.sent.pop(key)))

    def settled(self, since: float) -> list[float]:
        return sorted(latency for at, latency in self.late if at > since)


def read_own_writes(running: Hub, done: threading.Event, own: list[tuple[float, float]]) -> None:
    """Ten times a second: an event, then its row by key with the event's position as the token. Into ``own``:
    when, and the seconds from just before produce to the answer."""
    producer = Producer({"bootstrap.servers": running.settings.bootstrap, "linger.ms": 0})
    where: list[str] = []
    with httpx2.Client(base_url=running.url, timeout=30) as client:
        while not done.wait(0.1):
            key = f"OWN-{len(own)}"
            topic, value = running.event(20_000_000 + len(own), key)
            began_at = time.monotonic()
            producer.produce(
                topic,
                value,
                key,
                on_delivery=lambda _error, sent: where.append(
                    f"{sent.topic()}:{sent.partition()}:{sent.offset() + 1}"
                ),
            )
            producer.flush(10)
            with contextlib.suppress(httpx2.HTTPError):
                client.get(f"/views/bench/{key}", params={"after": where[-1], "timeout_ms": "20000"})
            own.append((time.monotonic(), time.monotonic() - began_at))


def _batch(running: Hub) -> int:
    return int((running.progress().get("last_batch") or {}).get("batch_id", 0))


def produce(
    running: Hub,
    arrivals: Sequence[Arrivals],
    rate: int,
    seconds: float,
    beside: Callable[[int], None] = lambda _: None,
    key_of: Callable[[str], str] = lambda own: own,
) -> float:
    """Produce events at a steady rate, each with a key of its own, or the key that ``key_of`` returns for it;
    return the monotonic time of the start.
    """
    producer = Producer({"bootstrap.servers": running.settings.bootstrap, "linger.ms": 0})
    began_at, number = time.monotonic(), 0
    while (elapsed := time.monotonic() - began_at) < seconds:
        while number < elapsed * rate:
            key = key_of(f"L-{began_at:.0f}-{number}")
            topic, value = running.event(10_000_000 + number, key)
            for each in arrivals:
                each.sent[key] = time.monotonic()
            producer.produce(topic, value, key)
            number += 1
        producer.poll(0)
        beside(number)
        time.sleep(0.002)
    producer.flush(10)
    time.sleep(3)
    return began_at


def switch(running: Hub, mode: str) -> None:
    """Edit the view's file, as a user does, and wait until it runs so."""
    (running.settings.project / "views" / "bench.yaml").write_text(VIEW.replace("\n", f"\nmode: {mode}\n", 1))
    wait(lambda: running.progress().get("state") == mode)


def steady(running: Hub, mode: str, rate: int, seconds: int, warm_up_s: int) -> dict[str, float]:
    """Measure the time from just before produce until the row arrives at a reader of the changelog, at a
    subscriber of changes, and at a reader by key who waits for its own write; in live or realtime mode.
    """
    switch(running, mode)
    time.sleep(3)
    arrivals, published = Arrivals(), Arrivals()
    done = threading.Event()

    def read_changelog() -> None:
        reader = running.cluster.reader()
        reader.assign(running.cluster.end_offsets(["views.bench"]))
        while not done.is_set():
            for record in reader.poll(5_000, 0.05):
                published.heard((record.key or b"").decode(), time.monotonic())
        reader.close()

    threading.Thread(target=read_changelog, daemon=True).start()
    own: list[tuple[float, float]] = []
    threading.Thread(target=read_own_writes, args=(running, done, own), daemon=True).start()

    def listen() -> None:
        for key in keys_told(running, done):
            arrivals.heard(key, time.monotonic())

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(1)
    spark = running.processes()["spark"]
    reads: list[float] = []
    with httpx2.Client(base_url=running.url) as client:

        def read(number: int) -> None:
            if number % 50 == 0:
                at = time.monotonic()
                client.get("/views/bench/C-0000001")
                reads.append(time.monotonic() - at)

        produce(running, (arrivals, published), rate, warm_up_s)
        reads.clear()
        before = _forks(), spark.cpu_times(), running.cpu_s(), _batch(running)
        began_at = produce(running, (arrivals, published), rate, seconds, read)
    forks, reaped = _forks() - before[0], spark.cpu_times()
    cpu = running.cpu_s() - before[2]
    done.set()
    mine = sorted(took for at, took in own if at > began_at)
    return {
        **_quantiles("", arrivals.settled(began_at)),
        **_quantiles("changelog_", published.settled(began_at)),
        **_quantiles("own_", mine),
        "batches": float(_batch(running) - before[3]),
        "lost": float(len(arrivals.sent)),
        "read_p50": _quantile(sorted(reads), 0.5) * 1000,
        "read_p99": _quantile(sorted(reads), 0.99) * 1000,
        "forks": forks / seconds,
        "reaped_s": reaped.children_user
        + reaped.children_system
        - before[1].children_user
        - before[1].children_system,
        "cpu_cores": cpu / seconds,
    }


# Events a second at which a live batch is mostly its events.
BUSY = 20_000

# Prefix of figures that are measured again, after the JVM has compiled most hot code.
LATER = "later_"


@contextmanager
def peer(
    running: Hub, events: int, port: int | None = None
) -> Iterator[tuple[kafka_streams.KafkaStreamsView, dict[str, float]]]:
    """Run the same view with Kafka Streams until it has caught up; yield its process and its figures since
    its start. ``port``: serve rows there.
    """
    end = running.cluster.end_offsets(TOPICS)
    view = kafka_streams.KafkaStreamsView(
        running.settings, running.cluster, running.folder / "peer", running.schemas, port=port
    )
    try:
        caught_up_at = wait(lambda: view.caught_up(end))
        computed, cpu_us = events / (caught_up_at - view.began_at), view.cpu_s() * 1e6 / events
        yield view, {"computed": computed, "cpu_us": cpu_us}
    finally:
        view.stop()


def steady_peer(running: Hub, events: int, rate: int, seconds: int, warm_up_s: int) -> dict[str, float]:
    """Caught up, and then live to a reader of its changelog."""
    with peer(running, events) as (view, found):
        arrivals, done = Arrivals(), threading.Event()
        arguments = (running.settings.bootstrap, done, arrivals.heard)
        threading.Thread(target=kafka_streams.listen, args=arguments, daemon=True).start()
        time.sleep(3)
        for when in ("", LATER):
            produce(running, (arrivals,), rate, warm_up_s)
            before = view.cpu_s()
            began_at = produce(running, (arrivals,), rate, seconds)
            found |= _quantiles(when, arrivals.settled(began_at))
            found[f"{when}cpu_cores"] = (view.cpu_s() - before) / seconds
            found[f"{when}lost"] = float(len(arrivals.sent))
        done.set()
        return {**found, "memory_mb": float(view.memory_mb())}


def cost_of(found: dict[str, float]) -> str:
    return f"{found['cpu_us']:.1f} us ({found['computed']:,.0f}/s)"


def _quantiles(prefix: str, ordered: list[float]) -> dict[str, float]:
    """Milliseconds by name."""
    shares = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return {f"{prefix}{name}": _quantile(ordered, share) * 1000 for name, share in shares}


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def _forks() -> int:
    """Processes and threads that this machine started since it booted."""
    lines = Path("/proc/stat").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("processes")).split()[1])


def say(figure: str, value: str, goal: str = "", other: str = "") -> None:
    print(f"{figure:<58} {value:>22} {other:>22}  {goal}", flush=True)


def of_one_size(given: argparse.Namespace, with_peer: bool) -> None:
    """Measure and print bulk, live and realtime mode,
    with ``given.events`` events and ``given.keys`` keys."""
    beside: dict[str, float] = {}
    if with_peer:
        with hub() as running:
            running.load(given.events, given.keys)
            beside = steady_peer(running, given.events, given.rate, given.seconds, given.warm_up)

    def theirs(name: str, form: str) -> str:
        return form.format(beside[name]) if beside else "-"

    with hub() as running:
        running.load(given.events, given.keys)
        found = bulk(running)
        size = f"{given.events:,} events, {given.keys:,} keys"
        rate = f"{found['computed']:,.0f} events/s"
        say(f"bulk, {size}: changelog", rate, "40,000", theirs("computed", "{:,.0f} events/s"))
        say("bulk: until every row is served", f"{found['served']:,.0f} events/s")
        cpu = f"{found['cpu_us']:.1f} us/event"
        say("bulk: CPU of the computation, start included", cpu, "", theirs("cpu_us", "{:.1f} us/event"))
        goals = {
            ("live", ""): ("", "", ""),
            ("live", LATER): ("", "400 p50", ""),
            ("realtime", ""): ("40 p50, 150 p99", "", "250 p99"),
        }
        for (mode, when), (to_changelog, to_subscriber, to_reader) in goals.items():
            late = steady(running, mode, given.rate, given.seconds, given.warm_up)

            def three(prefix: str, found: dict[str, float] = late) -> str:
                return " / ".join(f"{found[prefix + name]:.0f}" for name in ("p50", "p95", "p99")) + " ms"

            name = f"{mode}, later" if when else mode
            at = f"{name}, {given.rate} events/s: event to"
            peers = " / ".join(theirs(f"{when}{share}", "{:.0f}") for share in ("p50", "p95", "p99")) + " ms"
            say(f"{at} changelog, p50 / p95 / p99", three("changelog_"), to_changelog, peers)
            say(f"{at} subscriber", three(""), to_subscriber)
            say(f"{name}: event to the reader who waits for it", three("own_"), to_reader)
            say(f"{name}: batches (realtime: checkpoints)", f"{late['batches']:.0f}")
            lost = theirs(f"{when}lost", "{:.0f}")
            say(f"{name}: events that never arrived", f"{late['lost']:.0f}", "0", lost)
            say(f"{name}: read by key, p50 / p99", f"{late['read_p50']:.1f} / {late['read_p99']:.1f} ms")
            cores = theirs(f"{when}cpu_cores", "{:.2f} cores")
            say(f"{name}: CPU of the computation", f"{late['cpu_cores']:.2f} cores", "", cores)
            say(f"{name}: processes and threads started, whole machine", f"{late['forks']:.1f} /s")
            say(f"{name}: CPU of processes that Spark forked", f"{late['reaped_s']:.2f} s", "0")
        found = bulk_again(running)
        say("bulk, by the Spark that has run: changelog", f"{found['computed']:,.0f} events/s", "40,000")
        say("bulk, by the Spark that has run: CPU", f"{found['cpu_us']:.1f} us/event")
        total = 0
        for name, process in sorted(running.processes().items()):
            resident = process.memory_info().rss >> 20
            total += resident
            say(
                f"memory: {name}",
                f"{resident:,} MB",
                "",
                theirs("memory_mb", "{:,.0f} MB") if name == "spark" else "",
            )
        say("memory: the whole hub", f"{total:,} MB", "4,096")


def live_cost(
    running: Hub, cpu_s: Callable[[], float], keys: int, rate: int, given: argparse.Namespace
) -> str:
    """Return the CPU per live event when the view has ``keys`` keys and each event is for one of them."""
    chance, sent = random.Random(2), 0

    def known(_own: str) -> str:
        return f"C-{chance.randrange(keys):07d}"

    def count(number: int) -> None:
        nonlocal sent
        sent = number

    produce(running, (), rate, given.warm_up, key_of=known)
    before = cpu_s()
    produce(running, (), rate, given.seconds, count, known)
    return f"{(cpu_s() - before) * 1e6 / sent:,.1f} us ({sent / given.seconds:,.0f}/s)"


def by_keys(given: argparse.Namespace, with_peer: bool) -> None:
    """The cost of an event, of few keys and of many: of a history, in which few keys have few rows, and live,
    where most events make a row. A small batch costs its plan more than its events; at the higher rate it is
    the events."""
    rates = (given.rate, BUSY)
    for keys in (10_000, 1_000_000):
        with hub() as running:
            running.load(given.events, keys)
            theirs = dict.fromkeys(("bulk", *rates), "-")
            if with_peer:
                with peer(running, given.events) as (view, found):
                    theirs["bulk"] = cost_of(found)
                    theirs |= {rate: live_cost(running, view.cpu_s, keys, rate, given) for rate in rates}
            say(f"bulk, {keys:,} keys: CPU, start included", cost_of(bulk(running)), "", theirs["bulk"])
            say(f"bulk, {keys:,} keys, by the Spark that has run", cost_of(bulk_again(running)))
            switch(running, "live")
            for rate in rates:
                ours = live_cost(running, running.cpu_s, keys, rate, given)
                say(f"live, {keys:,} keys there: CPU, {rate:,} events/s", ours, "", theirs[rate])


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--rate", type=int, default=500)
    arguments.add_argument("--seconds", type=int, default=60)
    arguments.add_argument("--warm-up", type=int, default=30, help="seconds at that rate before measuring")
    parts = arguments.add_mutually_exclusive_group()
    parts.add_argument("--quick", action="store_true", help="without the cost at 10 k and 1 M keys")
    parts.add_argument("--keys-only", action="store_true", help="that alone")
    given = arguments.parse_args()

    fetch_jars(Settings())
    with_peer = kafka_streams.javac() is not None
    if not with_peer:
        print("No javac: without the peer.", file=sys.stderr)
    say("figure", "the hub", "goal", f"Kafka Streams {kafka_streams.VERSION}")
    if not given.keys_only:
        of_one_size(given, with_peer)
    if not given.quick:
        by_keys(given, with_peer)


if __name__ == "__main__":
    main()
