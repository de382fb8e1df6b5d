"""Rolling restart of a hub without a single point: three brokers, two servers, two materializers, an applier
and Postgres, under writers and readers that never pause.

``RollingHub`` runs the processes, ``Load`` writes and reads, ``restarts`` yields one restart after the other.
``longest_gap_s`` computes from the times of answers how long nobody was answered.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx2
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from fault_suite.brokers import Broker, Brokers
from patience import patient
from pipeline import Pipeline, wait_until
from ports import free_ports
from postgres import Postgres
from processes import HubProcess, Server

from hub.client.errors import MAY_HAVE_WRITTEN
from hub.config import Settings
from hub.embedded import ensure_jars
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.supervisor import end

TOPIC, VIEW, KEYS, BROKERS = "shop.events", "counted", 20, 3
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "string"}, {"name": "customer", "type": "string"}],
}
VIEW_FILE = f"""view: {VIEW}
sources:
  e: {{topic: {TOPIC}, key: customer}}
fields:
  events: count(e.id)
"""
READS, GATEWAY, KAFKA, ROWS = "reads by key", "gateway writes", "Kafka writes", "new rows"
WELL_S = 180.0


def longest_gap_s(times: Iterable[float], began_at: float, ended_at: float) -> float:
    """Return the longest time in seconds without one of ``times``, between ``began_at`` and ``ended_at``."""
    within = sorted(each for each in times if began_at < each < ended_at)
    return max(later - earlier for earlier, later in itertools.pairwise((began_at, *within, ended_at)))


@dataclass(frozen=True, slots=True)
class Restart:
    """One finished restart; times of ``time.monotonic()``."""

    name: str
    began_at: float
    ended_at: float


@dataclass
class Journal:
    """Results of the load, shared by its threads. ``wrong`` has what must never happen."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def answered(self, kind: str) -> None:
        self.times[kind].append(time.monotonic())

    def last_at(self, kind: str) -> float:
        return self.times[kind][-1] if self.times[kind] else 0.0

    def gaps_s(self, restart: Restart) -> dict[str, float]:
        """Return the longest gap of each kind of answer, from the restart's begin to its end."""
        return {
            kind: longest_gap_s(list(self.times[kind]), restart.began_at, restart.ended_at)
            for kind in (READS, GATEWAY, KAFKA, ROWS)
        }


class RoundRobin:
    """HTTP client of several servers. It asks the next server each time, and another one if that is away."""

    def __init__(self, urls: list[str], journal: Journal, tries: int, timeout_s: float = 10.0) -> None:
        self.urls, self.journal, self.tries = itertools.cycle(urls), journal, tries
        self.client = httpx2.Client(timeout=patient(timeout_s))
        self.pause = threading.Event()  # never set
        self.may_have_written = False
        """Whether the last failed try of a write may be in the log."""

    def request(self, method: str, path: str, **more: object) -> httpx2.Response | None:
        """Return the first answer that is not 5xx or 429; None if no try had one."""
        for _ in range(self.tries):
            url = next(self.urls)
            try:
                answer = self.client.request(method, f"{url}{path}", **more)  # type: ignore[arg-type]
            except httpx2.HTTPError as error:
                self.journal.refused[f"{method}: {type(error).__name__}"] += 1
                self.may_have_written = not isinstance(error, httpx2.ConnectError)
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    return answer
                self.journal.refused[f"{method}: {answer.status_code}"] += 1
                self.may_have_written = answer.json().get("code") in MAY_HAVE_WRITTEN
            self.pause.wait(0.02)
        return None


class Load:
    """Two writers and two readers, each a thread. Use it as a context manager."""

    def __init__(self, urls: list[str], bootstrap: str, schema_id: int) -> None:
        self.journal = Journal()
        self.urls, self.schema_id, self.schema = urls, schema_id, parsed(SCHEMA)
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 600_000,
                "linger.ms": 5,
            }
        )
        self.newest: tuple[str, int, str] | None = None
        """Key, count and position of the newest event that the gateway acknowledged."""
        self._stop = threading.Event()
        works = (self._write_to_kafka, self._write_to_gateway, self._read, self._read_own_writes)
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(patient(60.0))
            if each.is_alive():
                self.journal.wrong.append("a thread of the load did not end")
        if left := self.producer.flush(patient(60.0)):
            self.journal.wrong.append(f"Kafka acknowledged {left} events neither way")

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (the test fails by it)
            self.journal.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _write_to_kafka(self) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            key = message.key()
            if error is not None or key is None:
                self.journal.wrong.append(f"Kafka refused an event: {error}")
                return
            self.journal.acknowledged[bytes(key).decode()] += 1
            self.journal.answered(KAFKA)

        for number in itertools.count():
            if self._stop.wait(0.02):
                return
            key = f"kafka-{number % KEYS}"
            value = encode(self.schema_id, self.schema, {"id": f"k{number}", "customer": key})
            self.producer.produce(TOPIC, value, key.encode(), on_delivery=delivered)
            self.producer.poll(0)

    def _write_to_gateway(self) -> None:
        client = RoundRobin(self.urls, self.journal, tries=1)  # each retry says that it is one
        for number in itertools.count():
            if self._stop.wait(0.04):
                return
            key, event_id = f"http-{number % KEYS}", f"h{number}"
            body = {
                "key": {"type": "STRING", "data": key},
                "value": {"data": {"id": event_id, "customer": key}, "schema_id": self.schema_id},
            }
            answer = self._written(client, event_id, body)
            if answer.status_code != 200:
                raise ValueError(f"the gateway refused event {event_id}: {answer.status_code} {answer.text}")
            self.journal.acknowledged[key] += 1
            self.journal.answered(GATEWAY)
            self.newest = key, self.journal.acknowledged[key], answer.headers["Hub-Position"]

    def _written(self, client: RoundRobin, event_id: str, body: object) -> httpx2.Response:
        """Write an event, with retries at either server. Raises TimeoutError."""
        path, headers = f"/v3/clusters/-/topics/{TOPIC}/records", {"Idempotency-Key": event_id}
        began_at = time.monotonic()
        while (answer := client.request("POST", path, json=body, headers=headers)) is None:
            passed_s = time.monotonic() - began_at
            if passed_s > patient(WELL_S):
                raise TimeoutError(f"no server took event {event_id}")
            if client.may_have_written or "Idempotency-Retry" in headers:
                headers["Idempotency-Retry"] = str(round(1_000 * passed_s))
        return answer

    def _read(self) -> None:
        """Read rows with the newest position that any answer had. A count never falls."""
        client, counts, position = RoundRobin(self.urls, self.journal, tries=4), Counter[str](), ""
        for number in itertools.count():
            if self._stop.wait(0.03):
                return
            key = f"kafka-{number % KEYS}"
            after = {"after": position} if position else {}
            answer = client.request("GET", f"/views/{VIEW}/{key}", params=after)
            if answer is None:
                self.journal.wrong.append(f"no server answered a read of {key}")
                continue
            if answer.status_code == 404 and not counts[key]:
                continue
            count = int(answer.raise_for_status().json()["events"])
            if count < counts[key]:
                self.journal.wrong.append(f"{key} had {counts[key]} events, then {count}")
            # A row can be read a moment before the positions of the view's first batch.
            counts[key], position = count, answer.headers.get("Hub-Position", position)
            self.journal.answered(READS)

    def _read_own_writes(self) -> None:
        """Read the newest event of the gateway by its position. The row has at least its events."""
        client = RoundRobin(self.urls, self.journal, tries=4)
        while not self._stop.wait(0.1):
            if self.newest is None:
                continue
            key, count, position = self.newest
            parameters = {"after": position, "timeout_ms": "500"}
            while not self._stop.is_set():
                answer = client.request("GET", f"/views/{VIEW}/{key}", params=parameters)
                if answer is None:
                    continue
                found = int(answer.raise_for_status().json()["events"])
                if found < count:
                    self.journal.wrong.append(f"{key} has {found} events at {position}, {count} were written")
                self.journal.answered(ROWS)
                break


class RollingHub:
    """The processes. Start and stop them from one thread: they end with it."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.brokers = Brokers(folder / "kafka", BROKERS, heap_mb=320)
        ports = free_ports(2)
        self.settings = Settings(
            home=folder / "home",
            project=folder / "project",
            http_port=ports[0],
            embedded_kafka=False,
            bootstrap=self.brokers.bootstrap,
            replication_factor=BROKERS,
            store_url=postgres.database("views"),
            spark_heap_mb=640,
        )
        other = self.settings.model_copy(update={"home": folder / "home-2", "http_port": ports[1]})
        self.servers = {"server 1": Server(self.settings), "server 2": Server(other)}
        self.applier = HubProcess(self.settings, "apply-changelogs")
        self.materializers = {
            f"materializer {number}": HubProcess(
                self.settings, "materialize", "--name", f"m{number}", log=f"m{number}.log"
            )
            for number in (1, 2)
        }
        self.ended: list[str] = []
        """Processes that ended by themselves, and were started again."""
        self.started: dict[str, HubProcess] = {}

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers.values()]

    def start(self) -> int:
        """Start everything, with a view that is live. Return the id of the events' schema."""
        ensure_jars(self.settings)
        (self.settings.project / "views").mkdir(parents=True)
        (self.settings.project / "views" / f"{VIEW}.yaml").write_text(VIEW_FILE)
        self.brokers.start()
        for name, server in self.servers.items():
            server.start()
            self.started[name] = server
        self.pipeline = Pipeline(self.settings, self.settings.url)
        self.pipeline.cluster.create_topic(TOPIC, partitions=4, config={}, replication_factor=BROKERS)
        schema_id = self.pipeline.registry.register(f"{TOPIC}-value", json.dumps(SCHEMA))
        for name, process in {"applier": self.applier, **self.materializers}.items():
            self._start(name, process)
        live = lambda: self.pipeline.state(VIEW).get("state") == "live"
        self.wait(live, lambda: f"the view is not live: {self.pipeline.state(VIEW)}")
        for name in self.materializers:
            self.wait(lambda name=name: self.is_open(name), lambda name=name: f"{name} does not stand by")
        return schema_id

    def _start(self, name: str, process: HubProcess) -> None:
        process.log.unlink(missing_ok=True)
        process.start()
        self.started[name] = process

    def stop(self) -> None:
        for process in reversed(self.started.values()):
            process.stop()
        if hasattr(self, "pipeline"):
            self.pipeline.close()
        self.brokers.stop()

    def is_open(self, name: str) -> bool:
        """Return True if a materializer has opened Spark, to compute or to stand by."""
        log = self.materializers[name].log
        text = log.read_text(errors="replace") if log.exists() else ""
        return "computes the views" in text or "Spark is open" in text

    def in_sync(self) -> bool:
        """Return True if every partition has all its replicas in sync."""
        try:
            listed = AdminClient({"bootstrap.servers": self.brokers.bootstrap}).list_topics(timeout=5.0)
        except KafkaException:
            return False
        partitions = [each for topic in listed.topics.values() for each in topic.partitions.values()]
        return len(listed.brokers) == BROKERS and all(len(each.isrs) == BROKERS for each in partitions)

    def wait(self, done: Callable[[], bool], say: Callable[[], str]) -> None:
        """Wait until ``done``; start processes that ended, as a supervisor would."""

        def is_done() -> bool:
            for name, process in self.started.items():
                if process.process.poll() is not None:
                    self.ended.append(name)
                    process.start()
            return done()

        wait_until(is_done, WELL_S, say)

    def restart_broker(self, node: Broker) -> None:
        assert node.process is not None
        end(node.process, patient(60.0))
        node.start()
        node.wait_ready(patient(WELL_S))
        self.wait(self.in_sync, lambda: f"the replicas of broker {node.number} are not in sync")

    def restart_process(self, name: str) -> None:
        process = self.started.pop(name)
        process.stop(patient(30.0))
        if name in self.materializers:
            process.log.unlink()
        process.start()
        self.started[name] = process
        if isinstance(process, Server):
            process.wait_ready()
        elif name in self.materializers:
            self.wait(lambda: self.is_open(name), lambda: f"{name} is not open:\n{process.last_words()}")


def restarts(hub: RollingHub, load: Load) -> Iterator[Restart]:
    """Restart every broker, server, applier and materializer in turn, each after the last one is well again
    and everything that the load does has succeeded since."""
    works: dict[str, Callable[[], None]] = {
        f"broker {node.number}": lambda node=node: hub.restart_broker(node)  # type: ignore[misc]
        for node in hub.brokers.nodes
    }
    for name in (*hub.servers, "applier", *hub.materializers):
        works[name] = lambda name=name: hub.restart_process(name)  # type: ignore[misc]
    for name, work in works.items():
        began_at = time.monotonic()
        work()
        await_success(hub, load)
        yield Restart(name, began_at, time.monotonic())


def await_success(hub: RollingHub, load: Load) -> None:
    """Wait until each kind of request has succeeded after now, or something is wrong."""
    since, kinds = time.monotonic(), (READS, GATEWAY, KAFKA, ROWS)
    hub.wait(
        lambda: bool(load.journal.wrong) or all(load.journal.last_at(kind) > since for kind in kinds),
        lambda: (
            f"no {[kind for kind in kinds if load.journal.last_at(kind) <= since]}: {load.journal.refused}"
        ),
    )
