"""Connectors on real parts: Postgres, Debezium in the hub's own Kafka Connect, Kafka.
Declared, planned, operated, killed, removed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from patience import patient
from pipeline import records_of, wait_until
from ports import free_ports
from postgres import BINARIES, Postgres
from processes import call_hub
from sqlalchemy import create_engine, text

from hub.config import Settings
from hub.connectors.worker import ConnectWorker
from hub.kafka import KafkaCluster
from hub.supervisor import Child, Supervisor
from hub.topics.dead_letters.record_format import dead_letter_of

SECRET = "s3cret-of-the-database"
TOPIC = "crmdb.public.customers"
TREE = """\
topics:
  crmdb:
    owner: crm-team
    partitions: 2
    retention: 30d
    topics:
      public: {topics: {customers: {partitions: 3, config: {cleanup.policy: compact}}}}
"""
CONNECTORS = """\
connectors:
  crmdb:
    kind: postgres-cdc
    owner: crm-team
    topics: [crmdb.**]
    config:
      database.hostname: 127.0.0.1
      database.port: {port}
      database.dbname: {database}
      database.user: hub
      database.password: ${{CRM_TEST_PASSWORD}}
      table.include.list: public.customers,public.notes
  archive:
    kind: file
    topics: [crmdb.public.customers]
    config: {{file: {file}}}
"""


@dataclass
class Estate:
    """A project with a worker of Connect, supervised as ``hub up`` supervises it, and a database."""

    settings: Settings
    supervisor: Supervisor
    postgres: Postgres
    url: str
    cluster: KafkaCluster

    def hub(self, *arguments: str, code: int = 0) -> Any:
        done = call_hub(self.settings, "connector", *arguments)
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}\n{self.log()}"
        assert SECRET not in done.stdout + done.stderr
        return done

    def declare(self, port: int, database: str = "crm") -> Path:
        file = self.settings.project / "connectors.yaml"
        archive = self.settings.project / "archive.txt"
        file.write_text(CONNECTORS.format(port=port, database=database, file=archive))
        return file

    def sql(self, *statements: str) -> None:
        engine = create_engine(self.url)
        with engine.begin() as connection:
            for each in statements:
                connection.execute(text(each))
        engine.dispose()

    def until(self, done: Callable[[], bool], timeout_s: float = 90.0) -> None:
        def stepped() -> bool:
            self.supervisor.step()
            return done()

        wait_until(stepped, timeout_s, self.log)

    def events(self, op: str = "cru") -> Counter[int]:
        """Return how many times each customer's row was written."""
        if TOPIC not in self.cluster.topics():
            return Counter()
        values = [json.loads(each.value) for each in records_of(self.cluster, TOPIC) if each.value]
        return Counter(each["after"]["id"] for each in values if each["op"] in op and each["after"])

    def log(self) -> str:
        log = self.supervisor.log_of("connect")
        return log.read_text(errors="replace")[-5_000:] if log.exists() else ""


@pytest.fixture(scope="module")
def estate(settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    if not BINARIES:
        pytest.skip("no postgresql on this machine: ./run test installs it where it may")
    folder = tmp_path_factory.mktemp("connectors")
    own = settings.model_copy(
        update={
            "home": folder / "home",
            "project": folder / "project",
            "bootstrap": kafka,
            "embedded_kafka": False,
            "embedded_connect": True,
            "connect_port": free_ports(1)[0],
        }
    )
    own.project.mkdir()
    (own.project / "topics.yaml").write_text(TREE)
    postgres = Postgres()
    postgres.options = {"wal_level": "logical"}
    supervisor = Supervisor(own.home)
    try:
        postgres.start()
        worker = ConnectWorker(own)
        child = Child(
            "connect",
            worker.prepare,
            worker.ready,
            {"CRM_TEST_PASSWORD": SECRET},
            ready_timeout_s=patient(60.0),
        )
        made = Estate(own, supervisor, postgres, postgres.database("crm"), KafkaCluster(kafka))
        made.sql(
            "CREATE TABLE customers (id int PRIMARY KEY, name text)",
            "CREATE TABLE notes (id int PRIMARY KEY, body text)",
            "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob'), (3, 'Cy')",
        )
        assert supervisor.start(child), made.log()
        yield made
    finally:
        supervisor.stop()
        postgres.stop()


@pytest.mark.timeout(900)
def test_a_connector_is_declared_planned_and_operated(estate: Estate, settings: Settings) -> None:
    closed = free_ports(1)[0]
    file = estate.declare(closed)
    # Debezium signs in during validation: its error refers to the line of the setting.
    refused = estate.hub("validate", "crmdb", code=1)
    assert f"{file}:7:" in refused.stdout and "database.hostname" in refused.stdout, refused.stdout
    assert "refused" in estate.hub("apply", code=1).stderr
    assert json.loads(estate.hub("ls", "-o", "json").stdout)[0]["state"] == "not applied"
    file.write_text(file.read_text().replace("database.user", "databse.user"))
    assert f"{file}:10:" in estate.hub("validate", "crmdb", code=1).stdout

    estate.declare(estate.postgres.port)
    planned = estate.hub("plan", code=2).stdout
    assert "+ connector crmdb: io.debezium.connector.postgresql.PostgresConnector" in planned
    estate.hub("apply")
    estate.until(lambda: estate.events() == {1: 1, 2: 1, 3: 1})
    assert estate.cluster.topics()[TOPIC].partitions == 3
    config = estate.cluster.topic_config([TOPIC])[TOPIC]
    assert config["cleanup.policy"] == "compact" and config["retention.ms"] == str(30 * 86_400_000)

    estate.hub("drift")
    estate.hub("plan")
    actual = httpx2.get(f"{settings_url(estate)}/connectors/crmdb/config", timeout=30).json()
    httpx2.put(
        f"{settings_url(estate)}/connectors/crmdb/config",
        json={**actual, "max.batch.size": "999", "database.password": "by-hand"},
        timeout=60,
    ).raise_for_status()
    (batch, secret) = sorted(
        json.loads(estate.hub("drift", "-o", "json", code=2).stdout), key=lambda row: str(row["setting"])
    )[::-1]
    assert (batch["setting"], batch["file"], batch["cluster"]) == ("max.batch.size", None, '"999"')
    assert (secret["file"], secret["cluster"]) == ('"${env:CRM_TEST_PASSWORD}"', "(hidden)")
    estate.hub("apply")
    estate.hub("drift")

    # The configs of Connect have the reference, never the secret.
    told = b"".join(each.value or b"" for each in records_of(estate.cluster, "_hub.connect-configs"))
    assert b"${env:CRM_TEST_PASSWORD}" in told and SECRET.encode() not in told

    estate.hub("pause", "crmdb")
    estate.sql("INSERT INTO customers VALUES (4, 'Di')")
    assert json.loads(estate.hub("ls", "-o", "json").stdout)[1]["tasks"] == "0 PAUSED"
    estate.hub("plan")  # a pause by an operator does not count as a difference
    estate.hub("resume", "crmdb")
    estate.until(lambda: estate.events()[4] == 1)
    estate.hub("restart", "crmdb")
    assert "Nothing of crmdb failed" in estate.hub("restart", "crmdb", "--failed").stderr
    classes = {each["class"] for each in json.loads(estate.hub("plugins", "-o", "json").stdout)}
    assert "io.debezium.connector.postgresql.PostgresConnector" in classes

    killed_worker_loses_nothing(estate)
    dead_letters_of_a_sink(estate)
    offsets_are_reset(estate)

    (estate.settings.project / "connectors.yaml").write_text("connectors: {}\n")
    kept = estate.hub("plan").stderr
    assert "hub connector apply --destroy crmdb" in kept
    estate.hub("apply", "--destroy", "crmdb", "--destroy", "archive")
    estate.until(lambda: json.loads(estate.hub("ls", "-o", "json").stdout) == [])


def settings_url(estate: Estate) -> str:
    return estate.settings.connect_workers[0]


def test_a_database_is_checked_and_its_files_are_written(estate: Estate, tmp_path: Path) -> None:
    """On the real catalog: a role that may nothing gets the SQL for each lack, and that SQL resolves it."""
    own = estate.settings.model_copy(update={"project": tmp_path})
    estate.postgres.database("shop")
    url = estate.url.replace("/crm", "/shop")
    shop = Estate(own, estate.supervisor, estate.postgres, url, estate.cluster)
    shop.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE visits (at timestamptz)",
        "CREATE ROLE reader LOGIN",
    )
    address = f"postgresql://reader:{SECRET}@127.0.0.1:{estate.postgres.port}/shop"
    init = ("init", "postgres-cdc", "--from", address, "--owner", "shop-team")
    rows = json.loads(shop.hub(*init, "--check", "-o", "json", code=2).stdout)
    lacks = {row["check"]: row["fix"] for row in rows if not row["ok"]}
    assert lacks.keys() == {"role", "read", "publication", "replica identity"}
    assert not (tmp_path / "connectors.yaml").exists()
    statements = [each for fix in lacks.values() for each in fix.partition("--")[0].split(";")]
    shop.sql(*filter(str.strip, statements))
    told = shop.hub(*init).stderr
    assert "Set SHOP_PASSWORD=" in told and "2 topics below shop" in told
    text = (tmp_path / "connectors.yaml").read_text() + (tmp_path / "topics.yaml").read_text()
    assert SECRET not in text and "${SHOP_PASSWORD}" in text
    assert "in" in shop.hub(*init, code=1).stderr
    # The running worker does not have the variable: this is reported before anything changes.
    refused = shop.hub("plan", code=1).stdout
    assert "the worker has no variable SHOP_PASSWORD" in refused and "connectors.yaml:" in refused


def killed_worker_loses_nothing(estate: Estate) -> None:
    """kill -9 in the middle of changes: the supervisor starts the next worker, and each row is there once."""
    first = estate.supervisor.pids()["connect"]
    for number in range(100, 400, 3):
        rows = ", ".join(f"({id}, 'n')" for id in range(number, number + 3))
        estate.sql(f"INSERT INTO customers VALUES {rows}")
        if number == 250:
            estate.until(lambda: estate.events()[100] == 1)
            estate.supervisor.step()
            os.kill(estate.supervisor.pids()["connect"], signal.SIGKILL)
    expected = Counter(dict.fromkeys([1, 2, 3, 4, *range(100, 400)], 1))
    estate.until(lambda: len(estate.events()) == len(expected), 180.0)
    assert estate.events() == expected
    assert estate.supervisor.pids()["connect"] != first


def dead_letters_of_a_sink(estate: Estate) -> None:
    """Records that a sink cannot convert go to the hub's dead-letter topic, with position and reason."""
    producer = Producer({"bootstrap.servers": estate.cluster.bootstrap})
    producer.produce(TOPIC, b"no JSON", key=b"7", partition=0)
    producer.flush(30)
    queue = f"{TOPIC}.dlq"
    estate.until(lambda: queue in estate.cluster.topics() and bool(records_of(estate.cluster, queue)))
    (letter,) = (dead_letter_of(each) for each in records_of(estate.cluster, queue))
    assert letter.by == "archive" and letter.of is not None
    assert letter.of.topic == TOPIC and letter.value == b"no JSON" and "Converting" in letter.detail
    estate.until(lambda: "Ada" in (estate.settings.project / "archive.txt").read_text())


def offsets_are_reset(estate: Estate) -> None:
    """Without its offsets, Debezium takes a new snapshot."""
    assert "lsn" in estate.hub("offsets", "show", "crmdb", "-o", "json").stdout
    refused = estate.hub("offsets", "reset", "crmdb", code=1)
    assert "offsets reset crmdb --yes" in refused.stderr
    before = records_of(estate.cluster, TOPIC)
    estate.hub("offsets", "reset", "crmdb", "--yes")
    estate.until(lambda: len(records_of(estate.cluster, TOPIC)) > len(before))
    assert "[crmdb|" in estate.hub("logs", "crmdb").stdout
