"""Sinks on real Kafka, registry, Postgres and receivers: the example, with its worker killed in the middle; a
receiver that refuses and falls silent; a view's rows; the commands.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import served
from lake_world import framed
from pipeline import records_of, wait_until
from postgres import Postgres
from processes import HubProcess, call_hub
from search_cluster import search_cluster
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from hub.cli.context import environment_of
from hub.config import Settings
from hub.kafka import own_cluster
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.webhooks.signatures import SignedRequest, Verification, refusal

EXAMPLE = Path(__file__).parents[2] / "examples/fan-out"
SECRET = "whsec_c2VjcmV0LW9mLWFsZXJ0cw=="
PAYMENT = json.loads((EXAMPLE / "schemas/payments.avsc").read_text())
BARE = {
    **PAYMENT,
    "fields": [*PAYMENT["fields"][:4], {"name": "at", "type": "long"}],
}
SOURCE, LARGE = "fanout.payments", "fanout.large"


@dataclass
class Receiver:
    """A webhook's receiver. ``answer``: status for an event. ``seen``: (id, event) of requests with 200."""

    answer: Callable[[Mapping[str, Any], int], int] = field(default=lambda _event, _tries: 200)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unsigned: list[str] = field(default_factory=list)
    retry_after: str = ""
    url: str = ""

    @property
    def ids(self) -> set[str]:
        return {id for id, _ in self.seen}


@contextmanager
def receiver() -> Iterator[Receiver]:
    known, lock = Receiver(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            why = refusal(Verification("standard", [SECRET]), SignedRequest(headers, body, time.time()))
            id, event = headers["webhook-id"], json.loads(body)
            with lock:
                known.tries[id] += 1
                status = known.answer(event, known.tries[id])
                if why is not None:
                    known.unsigned.append(why)
                if status == 200:
                    known.seen.append((id, event))
            self.send_response(status)
            if known.retry_after:
                self.send_header("Retry-After", known.retry_after)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None: ...

    with served(Handler) as url:
        known.url = f"{url}/hook"
        yield known


@dataclass
class World:
    """The example's project on the shared Kafka, and the payments written to it."""

    settings: Settings
    receiver: Receiver
    database: str
    environment: Mapping[str, str]
    written: list[dict[str, Any]] = field(default_factory=list)
    workers: list[HubProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = own_cluster(self.settings)
        self.registry = RegistryClient(self.settings.registry)

    def worker(self) -> HubProcess:
        made = HubProcess(self.settings, "sink", "run", environment=self.environment)
        made.start()
        self.workers.append(made)
        return made

    def write(self, count: int) -> None:
        """Write payments, each of a customer of twenty and with a state that changes."""
        schema_id = self.registry.register(f"{SOURCE}-value", json.dumps(PAYMENT))
        begun = len(self.written)
        values = [
            {
                "payment_id": f"P-{n % (count // 2 or 1):05d}",
                "customer": f"C-{n % 20}",
                "country": "NO" if n % 5 == 0 else "NL",
                "amount": float(n % 7 * 400),
                "at": 1_700_000_000_000 + n,
            }
            for n in range(begun, begun + count)
        ]
        writer = self.cluster.writer()
        writer.append(
            [NewRecord(SOURCE, v["payment_id"].encode(), framed(schema_id, BARE, v)) for v in values]
        )
        writer.close()
        self.written += values

    def hub(self, *arguments: str, ok: int = 0) -> Any:
        done = call_hub({**environment_of(self.settings), **self.environment}, *arguments)
        assert done.returncode == ok, done
        return json.loads(done.stdout) if "json" in arguments else done.stdout + done.stderr

    def states(self) -> dict[str, dict[str, Any]]:
        done = call_hub({**environment_of(self.settings), **self.environment}, "sink", "ls", "-o", "json")
        return {row["sink"]: row for row in json.loads(done.stdout)}

    def rows(self, table: str = "payments") -> list[dict[str, Any]]:
        engine = create_engine(self.database)
        try:
            with engine.connect() as connection:
                return [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
        finally:
            engine.dispose()

    def lines(self) -> list[dict[str, Any]]:
        files = sorted((self.settings.project / "exports").rglob("*.ndjson.gz"))
        return [
            json.loads(line) for each in files for line in gzip.decompress(each.read_bytes()).splitlines()
        ]

    def wanted(self) -> list[dict[str, Any]]:
        """The payments that the alert's condition takes."""
        return [each for each in self.written if each["amount"] > 1000 and each["country"] != "NO"]

    def said(self) -> str:
        return f"{self.states()}\n{self.workers[-1].last_words()}"


@pytest.fixture
def world(settings: Settings, hub_server: str, postgres: Postgres, tmp_path: Path) -> Iterator[World]:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    own = settings.model_copy(update={"project": project, "home": tmp_path / "home"})
    database = postgres.database(f"ledger_{tmp_path.name[-1]}_{uuid.uuid4().hex[:6]}")
    with receiver() as known:
        environment = {
            "ALERTS_URL": known.url,
            "ALERTS_SECRET": SECRET,
            "LEDGER_DATABASE": database,
        }
        made = World(own, known, database, environment)
        for topic, partitions in ((SOURCE, 3), (LARGE, 2)):
            made.cluster.create_topic(topic, partitions=partitions, config={}, replication_factor=1)
        try:
            yield made
        finally:
            for worker in made.workers:
                worker.stop()
            for topic in (SOURCE, LARGE):
                made.cluster.delete_topic(topic)
            made.registry.close()


def test_the_example_fans_out_exactly_though_its_worker_is_killed(world: World) -> None:
    sinks = world.settings.project / "sinks.yaml"
    sinks.write_text(sinks.read_text().replace("roll_every: 60s", "roll_every: 2s"))
    world.write(3_000)
    assert all(row["result"] == "ok" for row in world.hub("sink", "validate", "-o", "json"))
    assert {row["state"] for row in world.states().values()} == {"UNKNOWN"}
    chance = random.Random(7)
    for _ in range(3):
        worker = world.worker()
        seen = len(world.receiver.seen) + chance.randrange(20, 200)
        wait_until(lambda: len(world.receiver.seen) > seen, 60.0, world.said)  # noqa: B023
        worker.kill()
        world.write(600)
    world.worker()
    keys = {each["payment_id"]: each for each in world.written}
    large = [each for each in world.written if each["amount"] > 1000]
    wait_until(lambda: len(world.receiver.ids) >= len(world.wanted()), 90.0, world.said)
    wait_until(lambda: len(world.lines()) >= len(world.written), 60.0, world.said)
    wait_until(lambda: len(records_of(world.cluster, LARGE)) >= len(large), 60.0, world.said)
    wait_until(lambda: {each["lag_records"] for each in world.states().values()} == {0}, 60.0, world.said)

    # The database, the files and the topic have each event once; rows are the newest of their key.
    rows = {each["payment_id"]: each for each in world.rows()}
    assert {key: (row["amount"], row["country"]) for key, row in rows.items()} == {
        key: (each["amount"], each["country"]) for key, each in keys.items()
    }
    lines = world.lines()
    places = [(each["partition"], each["offset"]) for each in lines]
    assert len(places) == len(set(places)) == len(world.written)
    copies = records_of(world.cluster, LARGE)
    assert sorted(each.key or b"" for each in copies) == sorted(each["payment_id"].encode() for each in large)
    originals = {each.value for each in records_of(world.cluster, SOURCE)}
    assert all(each.value in originals for each in copies)

    # The receiver has each alert at least once, signed, and those of a key in their order.
    assert world.receiver.unsigned == []
    assert len(world.receiver.ids) == len(world.wanted())
    first_seen: dict[str, dict[str, Any]] = {}
    for id, event in world.receiver.seen:
        first_seen.setdefault(id, event)
    of_key: dict[str, list[int]] = defaultdict(list)
    for event in first_seen.values():
        assert set(event["data"]) == {"payment_id", "customer", "amount"}
        of_key[event["key"]].append(event["offset"])
    assert all(offsets == sorted(offsets) for offsets in of_key.values())
    assert {row["state"] for row in world.states().values()} == {"DELIVERING"}


def test_documents_of_a_search_cluster_are_the_newest_though_the_worker_is_killed(world: World) -> None:
    with search_cluster() as cluster:
        (world.settings.project / "sinks.yaml").write_text(
            f"sinks:\n  found:\n    from: {SOURCE}\n    fields: [payment_id, amount]\n"
            f'    search: {{url: "{cluster.url}", index: articles, authorization: "${{SEARCH_KEY}}"}}\n'
        )
        world.environment = {**world.environment, "SEARCH_KEY": "ApiKey abc"}
        for _ in range(3):
            cluster.answers = [200, 429, 503]
            before = cluster.changes
            world.write(600)
            worker = world.worker()
            wait_until(lambda: cluster.changes > before, 60.0, world.said)  # noqa: B023
            worker.kill()
        world.worker()
        newest = {each["payment_id"]: each["amount"] for each in world.written}
        wait_until(lambda: len(cluster.live()) == len(newest), 60.0, world.said)
        wait_until(lambda: world.states()["found"]["lag_records"] == 0, 60.0, world.said)
        assert {id: body["amount"] for id, body in cluster.live().items()} == newest
        assert cluster.authorization == {"ApiKey abc"}


def test_a_receiver_that_refuses_or_is_down_stops_its_own_sink_alone(world: World) -> None:
    world.write(200)
    poison = world.wanted()[3]["payment_id"]
    down = threading.Event()

    def answer(event: Mapping[str, Any], _tries: int) -> int:
        return 503 if down.is_set() else 422 if event["key"] == poison else 200

    world.receiver.answer = answer
    world.worker()
    refused = [each for each in world.wanted() if each["payment_id"] == poison]
    left = len(world.wanted()) - len(refused)
    wait_until(lambda: len(world.receiver.ids) >= left, 60.0, world.said)

    def dead() -> list[Any]:
        return records_of(world.cluster, f"{SOURCE}.dlq")

    wait_until(lambda: f"{SOURCE}.dlq" in world.cluster.described([f"{SOURCE}.dlq"]), 60.0, world.said)
    wait_until(lambda: len(dead()) >= len(refused), 60.0, world.said)
    assert {each.key for each in dead()} == {poison.encode()} and len(dead()) == len(refused)
    headers = {name: (value or b"").decode() for name, value in dead()[0].headers}
    assert headers["hub.dlq.view"] == "sink alerts" and "HTTP 422" in headers["hub.dlq.reason"]
    assert headers["hub.dlq.topic"] == SOURCE and headers["hub.dlq.offset"].isdecimal()

    down.set()
    world.receiver.retry_after = "2"
    world.write(200)
    wait_until(lambda: world.states()["alerts"]["state"] == "RETRYING", 60.0, world.said)
    assert "HTTP 503" in world.states()["alerts"]["trouble"]
    wait_until(lambda: world.states()["ledger"]["lag_records"] == 0, 60.0, world.said)
    assert world.states()["large"]["state"] == "DELIVERING"
    assert "RETRYING" in world.hub("sink", "show", "alerts", ok=1)
    down.clear()
    left = len([each for each in world.wanted() if each["payment_id"] != poison])
    wait_until(lambda: len(world.receiver.ids) >= left, 60.0, world.said)
    wait_until(lambda: world.states()["alerts"]["state"] == "DELIVERING", 60.0, world.said)

    # Pause, resume, a trial, and an entry that is wrong beside others that work.
    world.hub("sink", "pause", "ledger")
    wait_until(lambda: world.states()["ledger"]["state"] == "PAUSED", 60.0, world.said)
    world.hub("sink", "resume", "ledger")
    wait_until(lambda: world.states()["ledger"]["state"] == "DELIVERING", 60.0, world.said)
    tried = world.hub("sink", "test", "alerts", "-o", "json")
    assert tried["status"] == 200 and any(id.startswith("test-") for id in world.receiver.ids)
    sinks = world.settings.project / "sinks.yaml"
    sinks.write_text(sinks.read_text().replace("amount > 1000\n", "amonut > 1000\n"))
    wait_until(lambda: world.states()["large"]["state"] == "FAILING", 60.0, world.said)
    assert 'did you mean "amount"' in world.states()["large"]["trouble"]
    assert world.states()["ledger"]["state"] == "DELIVERING"
    found = {row["sink"]: row["result"] for row in world.hub("sink", "validate", "-o", "json", ok=1)}
    assert found["alerts"] == "ok" and "amonut" in found["large"]


def test_tombstones_and_rows_that_leave_a_condition_are_deleted(world: World, tmp_path: Path) -> None:
    """A view's changelog is a topic of rows: those that do not meet ``where`` any more leave the table."""
    view = "views.fanout_customers"
    world.cluster.create_topic(view, partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1)
    (world.settings.project / "sinks.yaml").write_text(
        f"""sinks:
  vip:
    from: {view}
    where: (_value ->> 'spent')::bigint > 100
    fields: ["_value ->> 'name' AS name", "(_value ->> 'spent')::bigint AS spent"]
    database: {{url: "sqlite:///{tmp_path / "vip.db"}", table: vip}}
"""
    )
    writer = world.cluster.writer()

    def put(key: str, row: dict[str, Any] | None) -> None:
        writer.append([NewRecord(view, key.encode(), None if row is None else json.dumps(row).encode())])

    put("a", {"name": "Ada", "spent": 500})
    put("b", {"name": "Bob", "spent": 300})
    put("c", {"name": "Cyd", "spent": 50})
    put("d", {"name": "Dan", "spent": 900})
    world.worker()
    engine = create_engine(f"sqlite:///{tmp_path / 'vip.db'}")

    def rows() -> dict[str, Any]:
        try:
            with engine.connect() as connection:
                found = connection.execute(text("SELECT key, name, spent FROM vip")).all()
        except OperationalError:  # the table is not there yet
            return {}
        return {key: (name, spent) for key, name, spent in found}

    try:
        wait_until(
            lambda: rows() == {"a": ("Ada", 500), "b": ("Bob", 300), "d": ("Dan", 900)}, 60.0, world.said
        )
        put("b", {"name": "Bob", "spent": 20})
        put("d", None)
        put("c", {"name": "Cyd", "spent": 101})
        wait_until(lambda: rows() == {"a": ("Ada", 500), "c": ("Cyd", 101)}, 60.0, world.said)
    finally:
        engine.dispose()
        writer.close()
        world.workers[-1].stop()
        world.cluster.delete_topic(view)
