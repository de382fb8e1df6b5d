"""A database in, views out: ``hub up`` with its own Kafka Connect, Debezium on a real Postgres, and views
over its topics.

The rows of the views are compared with SQL on the source, after inserts, updates, deletions, new keys,
unchanged TOAST values, decimals and a new column, while Postgres, Connect and the whole hub are killed with
-9.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from pipeline import Pipeline, plain, records_of, wait_until
from ports import free_ports
from postgres import BINARIES, Postgres
from processes import HubProcess, call_hub, own_settings

from hub.outbox.database import plain_url
from hub.supervisor import running_hub

TREE = """\
topics:
  crm:
    owner: crm-team
    partitions: 2
    retention: forever
    topics:
      public: {topics: {customers: {}, orders: {}, notes: {}}}
"""
CONNECTORS = """\
connectors:
  crm:
    kind: postgres-cdc
    owner: crm-team
    topics: [crm.**]
    config:
      database.hostname: 127.0.0.1
      database.port: {port}
      database.dbname: crm
      database.user: hub
      database.password: ${{CRM_TEST_PASSWORD}}
      table.include.list: public.customers,public.orders,public.notes
      errors.max.retries: -1
"""
ROW = 'id: bigint, name: string, bio: string, balance: "decimal(12,2)", born: date, seen: timestamp'
VIEWS = {
    "customers": f"""\
view: customers
sources:
  c: {{topic: crm.public.customers, cdc: debezium, format: json, schema: {{{ROW}}}, key: id}}
fields: {{name: c.name, bio: c.bio, balance: c.balance, born: c.born, seen: c.seen}}
""",
    "totals": """\
view: totals
sources:
  o:
    topic: crm.public.orders
    cdc: debezium
    format: json
    schema: {id: bigint, customer_id: bigint, status: string, amount: "decimal(12,2)"}
    key: customer_id
    unique_by: id
    where: status <> 'draft'
fields: {orders: count(o.id), amount: sum(o.amount)}
delete_when: orders = 0
""",
    "names": """\
view: names
sources:
  c:
    topic: crm.public.customers
    cdc: debezium
    format: json
    schema: {id: bigint, name: string}
    table: {key: id}
sql: SELECT id, name FROM c
key: id
""",
}
TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text, bio text, balance numeric(12,2), born date)",
    "ALTER TABLE customers ADD COLUMN seen timestamptz",
    "ALTER TABLE customers ALTER COLUMN bio SET STORAGE EXTERNAL",
    "CREATE TABLE orders (id int PRIMARY KEY, customer_id int, status text, amount numeric(12,2))",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "CREATE TABLE notes (id int PRIMARY KEY, body text)",
)


class Company:
    """A project, its hub, and the database that the hub follows."""

    def __init__(self, folder: Path) -> None:
        self.settings = own_settings(folder / "home", folder / "project", connect_port=free_ports(1)[0])
        views = self.settings.project / "views"
        views.mkdir(parents=True)
        for name, text in VIEWS.items():
            (views / f"{name}.yaml").write_text(text)
        (self.settings.project / "topics.yaml").write_text(TREE)
        self.postgres = Postgres()
        self.postgres.options = {"wal_level": "logical"}
        file = self.settings.project / "connectors.yaml"
        file.write_text(CONNECTORS.format(port=self.postgres.port))
        self.hub = HubProcess(self.settings, "up", environment={"CRM_TEST_PASSWORD": "s3cret"})
        self.pipeline = Pipeline(self.settings, self.settings.url)
        self.random = random.Random(7)
        self.url = ""

    def start(self) -> None:
        self.postgres.start()
        self.url = plain_url(self.postgres.database("crm"))
        self.sql(*TABLES)
        self.change(range(40))
        self.hub.start()
        wait_until(lambda: self.answers(), 300, self.hub.last_words)
        self.cli("topic", "apply")
        wait_until(lambda: "connect" in self.pids(), 120, self.hub.last_words)
        wait_until(lambda: self.tried("connector", "apply"), 120, self.hub.last_words)

    def answers(self) -> bool:
        return bool(httpx2.get(f"{self.settings.url}/health", timeout=5).is_success)

    def tried(self, *arguments: str) -> bool:
        return call_hub(self.settings, *arguments).returncode == 0

    def cli(self, *arguments: str) -> str:
        done = call_hub(self.settings, *arguments)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}\n{self.hub.last_words()}"
        return done.stdout

    def pids(self) -> dict[str, int]:
        hub = running_hub(self.settings.home)
        return {} if hub is None else {name: each.pid for name, each in hub.processes.items()}

    def sql(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        with psycopg.connect(self.url) as connection:
            for each in statements:
                cursor = connection.execute(each.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def change(self, ids: range) -> None:
        """Insert a customer and an order for each id, and change some of the earlier ones in every way."""
        for id_ in ids:
            bio = "".join(self.random.choices("abcdefghij", k=6_000 if id_ % 3 == 0 else 5))
            amount = Decimal(self.random.randrange(10**6)) / 100
            earlier = self.random.randrange(id_ + 1)
            other = self.random.randrange(id_ + 1)
            self.sql(
                "INSERT INTO customers (id, name, bio, balance, born, seen) VALUES"
                f" ({id_}, 'n{id_}', '{bio}', {amount}, '2024-02-29', '2024-02-29 12:30:00.5+01')",
                f"INSERT INTO orders VALUES ({id_}, {earlier}, 'open', {amount})",
                f"INSERT INTO notes VALUES ({id_}, 'a note')",
                f"UPDATE customers SET name = name || 'x', balance = balance + 0.01 WHERE id = {earlier}",
                f"UPDATE orders SET customer_id = {other} WHERE id = {earlier}",
            )
            if id_ % 5 == 1:
                short = "length(bio) < 100"  # a TOAST value would not be in the event of the new key
                self.sql(f"UPDATE customers SET id = id + 10000 WHERE id = {other} AND {short}")
            if id_ % 7 == 2:
                self.sql(
                    f"DELETE FROM customers WHERE id = {earlier}", f"DELETE FROM orders WHERE id = {other}"
                )
            if id_ % 4 == 3:
                self.sql(f"UPDATE orders SET status = 'draft' WHERE id = {earlier}")

    def compare(self) -> None:
        """Wait until each view has the rows that SQL on the source has."""
        wanted = {name: {str(row[0]): row[1:] for row in self.sql(text)} for name, text in SOURCES.items()}
        found: dict[str, Any] = {}

        def equal() -> bool:
            found.update({name: shown(self.pipeline.rows(name), COLUMNS[name]) for name in wanted})
            return found == wanted

        def differences() -> str:
            lines = [self.hub.last_words()]
            for name, rows in wanted.items():
                there = found.get(name, {})
                keys = [key for key in rows.keys() | there.keys() if rows.get(key) != there.get(key)]
                lines += [
                    f"{name} {key}: source {rows.get(key)} view {there.get(key)}"[:300] for key in keys[:5]
                ]
            return "\n".join(lines)

        wait_until(equal, 240, differences)


SOURCES = {
    "customers": "SELECT id, name, bio, balance::text, born::text, (extract(epoch FROM seen) * 1000)::bigint"
    " FROM customers",
    "totals": "SELECT customer_id, count(*), sum(amount)::text FROM orders"
    " WHERE status <> 'draft' GROUP BY 1",
    "names": "SELECT id, name FROM customers",
}
COLUMNS = {
    "customers": ("name", "bio", "balance", "born", "seen"),
    "totals": ("orders", "amount"),
    "names": ("name",),
}


def shown(rows: dict[str, dict[str, Any]], columns: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    """Return served rows as psycopg returns those of the source."""
    return {key: tuple(_value(name, plain(row)[name]) for name in columns) for key, row in rows.items()}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("balance", "amount"):
        return f"{Decimal(str(value)):.2f}"
    return {"2024-02-29T11:30:00.500Z": 1_709_206_200_500}.get(value, value) if name == "seen" else value


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    if not BINARIES:
        pytest.skip("no postgresql on this machine: ./run test installs it where it may")
    made = Company(tmp_path_factory.mktemp("cdc"))
    try:
        made.start()
        yield made
    finally:
        made.pipeline.close()
        made.hub.stop(60.0)
        made.postgres.stop()


@pytest.mark.timeout(900)
def test_views_equal_the_source_while_everything_dies(company: Company) -> None:
    company.compare()
    company.change(range(40, 60))
    company.postgres.kill()
    company.postgres.start()
    company.change(range(60, 70))
    os.kill(company.pids()["connect"], signal.SIGKILL)
    company.sql("ALTER TABLE customers ADD COLUMN city text DEFAULT 'Oslo'")
    company.change(range(70, 90))
    company.hub.kill()
    company.change(range(90, 110))
    company.hub.start()
    company.change(range(110, 120))
    company.compare()
    slot_is_measured(company)
    new_key_without_a_value_is_refused(company)
    truncation_is_not_passed_over(company)


def slot_is_measured(company: Company) -> None:
    """The slot's figures are those of the database."""

    def value(name: str) -> float | None:
        text = httpx2.get(f"{company.settings.url}/metrics", timeout=30).text
        found = [
            line for line in text.splitlines() if line.startswith(f'{name}{{connector="crm",slot="hub_crm"}}')
        ]
        return float(found[0].rpartition(" ")[2]) if found else None

    wait_until(lambda: value("hub_postgres_slot_known") == 1.0, 60)
    read = "SELECT (pg_current_wal_lsn() - restart_lsn)::bigint FROM pg_replication_slots"
    (retained,) = company.sql(f"{read} WHERE slot_name = 'hub_crm'")[0]
    measured = value("hub_postgres_slot_retained_bytes")
    assert measured is not None and 0 < measured < retained + 64 * 2**20


def new_key_without_a_value_is_refused(company: Company) -> None:
    """A TOAST value that did not change is not in the event of the new key: null would be wrong."""
    longest = "SELECT max(id) FROM customers WHERE length(bio) > 1000"
    company.sql(f"UPDATE customers SET id = id + 20000 WHERE id = ({longest})")
    queue = "crm.public.customers.dlq"
    wait_until(lambda: queue in company.pipeline.cluster.topics(), 120, lambda: "nothing is refused")
    wait_until(lambda: bool(records_of(company.pipeline.cluster, queue)), 60)
    (reason,) = {each.header("hub.dlq.reason") for each in records_of(company.pipeline.cluster, queue)}
    assert b"its bio is a TOAST value" in (reason or b"")


def truncation_is_not_passed_over(company: Company) -> None:
    """Debezium leaves truncations out by default: the rows would stay, and nobody would know."""
    company.sql("TRUNCATE customers", "INSERT INTO customers (id, name) VALUES (7, 'after')")
    topic = "crm.public.customers"
    wait_until(lambda: company.pipeline.rows("names").get("7", {}).get("name") == "after", 120)
    assert len(company.pipeline.rows("names")) > 1
    told = json.loads(company.cli("connector", "truncated", topic, "-o", "json"))
    assert told["truncations"] == 1 and told["deletions"] > 50
    refused = {each.header("hub.dlq.reason") for each in records_of(company.pipeline.cluster, f"{topic}.dlq")}
    assert any(b"was truncated" in (each or b"") for each in refused)
    company.compare()
    assert json.loads(company.cli("connector", "truncated", topic, "-o", "json"))["deletions"] == 0
