"""Source transactions as domain events on real parts: Postgres, Debezium in Kafka Connect, Kafka, registry.

Orders with their lines are compared with SQL on the source, while the sink's worker, Connect and Postgres are
killed with -9. The project is the example ``domain-events``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from patience import patient
from pipeline import records_of, wait_until
from ports import free_ports
from postgres import BINARIES, Postgres
from processes import HubProcess, call_hub

from hub.config import Settings
from hub.connectors.worker import ConnectWorker
from hub.kafka import own_cluster
from hub.outbox.database import plain_url
from hub.record import NewRecord, Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.values import decoder_of
from hub.schema_registry.codecs.wire_format import unframe
from hub.supervisor import Child, Supervisor

EXAMPLE = Path(__file__).parents[2] / "examples/domain-events"
SECRET = "s3cret-of-the-database"
PLACED, BOUNDARIES = "shop.orders.placed", "shop.transaction"
OWN = (PLACED, BOUNDARIES, "shop.public.")  # beginnings of its topics; other tests have shop.*, too
TABLES = (
    """CREATE TABLE orders (
        id int PRIMARY KEY, customer_id int, placed_at timestamptz, total numeric(12,2), secret text)""",
    """CREATE TABLE order_lines (
        id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id int, sku text, quantity int,
        price numeric(12,2))""",
    # What SQL says of each order when its transaction commits. The connector does not capture it.
    "CREATE TABLE expected (at int PRIMARY KEY, order_id int, total numeric(12,2), lines jsonb)",
    "INSERT INTO orders VALUES (-1, 1, now(), 1, 'of the snapshot')",
)
AS_LEFT = (
    "INSERT INTO expected SELECT {at}, id, total, (SELECT coalesce(jsonb_agg(jsonb_build_array(sku, quantity,"
    " price::text) ORDER BY l.id), '[]') FROM order_lines l WHERE l.order_id = orders.id)"
    " FROM orders WHERE id = {id}"
)


@dataclass
class Shop:
    """The example's project, a worker of Connect, a database, and the worker of the sink."""

    settings: Settings
    supervisor: Supervisor
    postgres: Postgres
    worker: HubProcess
    url: str = ""
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    placed: int = 0

    def __post_init__(self) -> None:
        self.cluster, self.registry = own_cluster(self.settings), RegistryClient(self.settings.registry)

    def hub(self, *arguments: str, code: int = 0) -> Any:
        done = call_hub(self.settings, *arguments)
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}\n{self.report()}"
        return done

    def sink(self) -> dict[str, Any]:
        done = call_hub(self.settings, "sink", "show", "orders-placed", "-o", "json")
        return dict(json.loads(done.stdout))

    def sql(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        with psycopg.connect(self.url) as connection:
            for each in statements:
                cursor = connection.execute(each.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def place(self, count: int) -> None:
        """Place orders: most in a transaction of their own, some in pairs, some rolled back, changed or
        deleted later."""
        for _ in range(count):
            statements = self.order()
            if self.chance.random() < 0.2:
                statements += self.order()
            if self.chance.random() > 0.9:
                statements.append("SELECT 1 / 0")
            with contextlib.suppress(psycopg.errors.DivisionByZero):
                self.sql(*statements)
            earlier = self.chance.randrange(self.placed)
            if self.chance.random() < 0.3:
                self.sql(f"UPDATE orders SET total = 0 WHERE id = {earlier}")
            if self.chance.random() < 0.1:
                self.sql(f"DELETE FROM order_lines WHERE order_id = {earlier}")

    def order(self) -> list[str]:
        """Return the statements that place one order, and note what SQL then says of it."""
        id, self.placed = self.placed, self.placed + 1
        lines = [f"({id}, 'sku-{n}', {n + 1}, {n}.50)" for n in range(self.chance.randrange(5))]
        statements = [f"INSERT INTO orders VALUES ({id}, {id % 7}, '2024-02-29 12:30:00+01', 12.50, 'x')"]
        if lines:
            statements.append(
                f"INSERT INTO order_lines (order_id, sku, quantity, price) VALUES {', '.join(lines)}"
            )
        if self.chance.random() < 0.3:
            statements.append(f"UPDATE orders SET total = 99.90 WHERE id = {id}")
        if len(lines) > 2:
            statements.append(f"DELETE FROM order_lines WHERE order_id = {id} AND sku = 'sku-1'")
        return [*statements, AS_LEFT.format(at=id, id=id)]

    def expected(self) -> list[tuple[Any, ...]]:
        rows = self.sql("SELECT order_id, total::text, lines FROM expected ORDER BY at")
        return [(id, total, [tuple(line) for line in lines]) for id, total, lines in rows]

    def events(self) -> list[tuple[Any, ...]]:
        """Return the events as ``expected()`` has them, in the order of the log."""
        return [self.event(each) for each in self.captured(PLACED)]

    def captured(self, topic: str) -> list[Record]:
        return records_of(self.cluster, topic) if topic in self.cluster.topics() else []

    def event(self, record: Record) -> tuple[Any, ...]:
        value = record.value or b""
        body = decoder_of(self.registry.source(unframe(value)[0]))(value, 5)
        assert record.key == str(body["id"]).encode() and body["_op"] == "created"
        assert body["placed_at"] == 1_709_206_200_000 and body["customer_id"] == body["id"] % 7
        assert body["_committed_at"] > 1_700_000_000_000 and "secret" not in body
        assert all(line["_op"] == "created" and line["order_id"] == body["id"] for line in body["lines"])
        lines = [(line["sku"], line["quantity"], f"{line['price']}") for line in body["lines"]]
        return body["id"], f"{body['total']}", lines

    def until(self, done: Callable[[], bool], timeout_s: float) -> None:
        def stepped() -> bool:
            self.supervisor.step()
            return done()

        wait_until(stepped, timeout_s, self.report)

    def report(self) -> str:
        log = self.supervisor.log_of("connect")
        text = log.read_text(errors="replace")[-3_000:] if log.exists() else ""
        return f"{text}\n{self.worker.last_words() if self.worker.log.exists() else ''}"


@pytest.fixture
def shop(settings: Settings, hub_server: str, tmp_path: Path) -> Iterator[Shop]:
    if not BINARIES:
        pytest.skip("no postgresql on this machine: ./run test installs it where it may")
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": project,
            "embedded_connect": True,
            "connect_port": free_ports(1)[0],
        }
    )
    postgres = Postgres()
    postgres.options = {"wal_level": "logical"}
    file = project / "connectors.yaml"
    text = file.read_text().replace(
        "database.dbname", f"database.port: {postgres.port}\n      database.dbname"
    )
    file.write_text(text)
    supervisor = Supervisor(own.home)
    made = Shop(own, supervisor, postgres, HubProcess(own, "sink", "run"))
    # One partition: the order of the events is then that of the commits.
    made.cluster.create_topic(PLACED, partitions=1, config={}, replication_factor=1)
    try:
        postgres.start()
        made.url = plain_url(postgres.database("shop"))
        made.sql(*TABLES)
        worker = ConnectWorker(own)
        child = Child(
            "connect",
            worker.prepare,
            worker.ready,
            {"SHOP_PASSWORD": SECRET},
            ready_timeout_s=patient(60.0),
        )
        assert supervisor.start(child), made.report()
        yield made
    finally:
        made.worker.stop()
        supervisor.stop()
        postgres.stop()
        for topic in [each for each in made.cluster.topics() if each.startswith(OWN)]:
            made.cluster.delete_topic(topic)
        made.registry.close()


@pytest.mark.timeout(900)
def test_orders_with_their_lines_are_one_event_each_while_everything_is_killed(shop: Shop) -> None:
    shop.worker.start()
    shop.until(lambda: shop.sink()["state"] == "FAILING", 60.0)
    assert "does not exist" in shop.sink()["trouble"]  # no topic of the tables yet: it is tried again
    shop.hub("connector", "apply")
    # What commits after the snapshot is streamed, with its transaction.
    shop.until(lambda: bool(shop.captured("shop.public.orders")), 180.0)
    shop.place(30)
    shop.until(lambda: len(shop.events()) > 5, 120.0)
    for kill in (kill_sink, kill_connect, kill_sink, kill_postgres, kill_sink):
        before = len(shop.events())
        shop.place(15)
        kill(shop)
        shop.place(15)
        shop.until(lambda: len(shop.events()) > before, 120.0)  # noqa: B023
    expected = shop.expected()
    shop.until(lambda: len(shop.events()) >= len(expected), 120.0)
    shop.until(lambda: shop.sink()["lag_records"] == 0, 60.0)
    assert shop.events() == expected and len(expected) > 100
    assert not [each for each in shop.cluster.topics() if each.startswith(OWN) and each.endswith(".dlq")]
    (checked,) = json.loads(shop.hub("sink", "validate", "-o", "json").stdout)
    assert checked["result"] == "ok" and "lines, _op, _transaction" in checked["columns"]
    a_missing_end_is_shown_until_the_next_transaction_begins(shop)


def kill_sink(shop: Shop) -> None:
    shop.worker.kill()
    shop.worker.start()


def kill_connect(shop: Shop) -> None:
    shop.supervisor.step()
    os.kill(shop.supervisor.pids()["connect"], signal.SIGKILL)


def kill_postgres(shop: Shop) -> None:
    shop.postgres.kill()
    shop.postgres.start()


def a_missing_end_is_shown_until_the_next_transaction_begins(shop: Shop) -> None:
    """A connector that lost an end: the sink shows what it waits for, and later gives up that transaction."""
    lost = json.dumps({"status": "BEGIN", "id": "lost:1", "ts_ms": 1_700_000_000_000}).encode()
    writer = shop.cluster.writer()
    writer.append([NewRecord(BOUNDARIES, None, lost, partition=0)])
    writer.close()
    shop.until(lambda: shop.sink()["state"] == "WAITING", 60.0)
    shown = shop.sink()
    assert "transaction lost:1" in shown["trouble"] and "has no END, for" in shown["trouble"]
    assert shown["lag_s"] > 0 and shown["lag_records"] > 0
    number = shop.placed
    shop.sql(*shop.order())
    shop.until(lambda: shop.events()[-1][0] == number, 60.0)
    shop.until(lambda: shop.sink()["state"] == "DELIVERING", 60.0)
    (dead,) = records_of(shop.cluster, f"{BOUNDARIES}.dlq")
    assert dead.value == lost and b"has no END, and the next one has begun" in (
        dead.header("hub.dlq.reason") or b""
    )
    assert shop.sink()["refused"] == 1
