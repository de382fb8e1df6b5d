"""Events in an application's own transaction: table, relay and inbox on real Postgres and Kafka."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from patience import patient
from pipeline import records_of, wait_until
from postgres import Postgres
from processes import HubProcess, call_hub
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from hub.client.outbox import AsyncInbox, AsyncOutbox, Inbox, Outbox
from hub.config import Settings
from hub.config.kms import KmsKey
from hub.errors import CallerError, NotFound
from hub.kafka import own_cluster
from hub.outbox.database import opened, plain_url
from hub.outbox.note import read_note
from hub.record import Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import decode, parsed

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order_id", "type": "string"}, {"name": "n", "type": "long"}],
}


@dataclass
class Shop:
    """An application with a database, and the hub."""

    settings: Settings
    postgres: Postgres
    url: str
    topic: str
    relays: list[HubProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = own_cluster(self.settings)
        self.engine = create_engine(self.url, pool_pre_ping=True)
        self.outbox = Outbox(self.settings.url)

    def relay(self, home: Path) -> HubProcess:
        settings = self.settings.model_copy(update={"home": home})
        made = HubProcess(settings, "outbox", "relay")
        made.start()
        self.relays.append(made)
        return made

    def arrived(self) -> list[Record]:
        return records_of(self.cluster, self.topic)

    def ids(self) -> list[str]:
        return [(record.header("id") or b"").decode() for record in self.arrived()]

    def rows(self) -> set[str]:
        with self.engine.connect() as connection:
            return set(connection.scalars(text("SELECT id::text FROM hub_outbox")))

    def publish(self, number: int, commit: bool = True) -> str:
        with Session(self.engine) as session:
            event = self.outbox.publish(session, self.topic, f"k{number % 3}", {"order_id": "o", "n": number})
            if commit:
                session.commit()
        return event


@pytest.fixture(scope="module")
def ready(postgres: Postgres, settings: Settings, hub_server: str) -> Settings:
    """Settings with a database whose server has logical decoding, by the fix that ``init`` prints."""
    url = postgres.database("shop")
    told = settings.model_copy(update={"outbox_database": url})
    refused = call_hub(told, "outbox", "init")
    assert refused.returncode == 1
    assert "wal_level is replica\n  ALTER SYSTEM SET wal_level = 'logical';" in refused.stderr
    with psycopg.connect(plain_url(postgres.url("postgres")), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_level = 'logical'")
    postgres.kill()
    postgres.start()
    made = call_hub(told, "outbox", "init")
    assert made.returncode == 0, made.stderr
    assert "done: CREATE TABLE" in made.stderr
    again = call_hub(told, "outbox", "init")
    assert again.returncode == 0
    assert "done:" not in again.stderr
    return told


@pytest.fixture
def shop(ready: Settings, postgres: Postgres) -> Iterator[Shop]:
    topic = f"outbox.{uuid.uuid4().hex[:8]}"
    made = Shop(ready, postgres, ready.outbox_database or "", topic)
    made.cluster.create_topic(topic, partitions=3, config={}, replication_factor=1)
    RegistryClient(ready.url).register(f"{topic}-value", json.dumps(ORDER))
    yield made
    for relay in made.relays:
        relay.stop()
    made.engine.dispose()


def test_events_of_every_kind_of_session_arrive_once_committed(shop: Shop, tmp_path: Path) -> None:
    shop.relay(tmp_path / "home")
    wanted = [shop.publish(1)]
    shop.publish(2, commit=False)
    wanted += asyncio.run(_async_events(shop))
    with psycopg.connect(plain_url(shop.url)) as connection:
        event = {"order_id": "o", "n": 5}
        wanted.append(
            shop.outbox.publish(connection, shop.topic, "k", event, type="Placed", headers={"a": "b"})
        )
        wanted.append(shop.outbox.publish(connection.cursor(), shop.topic, "k", None))
    with (
        psycopg.connect(plain_url(shop.url), autocommit=True) as connection,
        pytest.raises(CallerError, match="no transaction is open"),
    ):
        shop.outbox.publish(connection, shop.topic, "k", event)
    with Session(shop.engine) as session:
        with pytest.raises(CallerError, match='has no field "cents"'):
            shop.outbox.publish(session, shop.topic, "k", {"order_id": "o", "cents": 1})
        with pytest.raises(CallerError, match="not in its format"):
            shop.outbox.publish(session, shop.topic, "k", b'{"order_id": "o"}')
        with pytest.raises(NotFound, match="no schema"):
            shop.outbox.publish(session, "no.such", "k", {})
        with pytest.raises(CallerError, match="pass a AsyncSession"):
            asyncio.run(AsyncOutbox(shop.settings.url).publish(session, shop.topic, "k", None))
    wait_until(lambda: len(shop.ids()) >= len(wanted), 60)
    records = {(record.header("id") or b"").decode(): record for record in shop.arrived()}
    assert sorted(records) == sorted(wanted)
    placed = records[wanted[-2]]
    assert (placed.key, placed.header("eventType"), placed.header("a")) == (b"k", b"Placed", b"b")
    assert (placed.value or b"")[:1] == b"\0"
    assert records[wanted[-1]].value is None
    wait_until(lambda: read_note(tmp_path / "home", time.time_ns() // 10**6) is not None, 20)
    status = call_hub(shop.settings, "outbox", "status", "-o", "json")
    assert (status.returncode, json.loads(status.stdout)["relay"]) == (0, "active")


async def _async_events(shop: Shop) -> list[str]:
    outbox, event = AsyncOutbox(shop.settings.url), {"order_id": "o", "n": 3}
    engine = create_async_engine(shop.url)
    async with AsyncSession(engine) as session, session.begin():
        first = await outbox.publish(session, shop.topic, "k", event)
    await engine.dispose()
    async with await psycopg.AsyncConnection.connect(plain_url(shop.url)) as connection:
        second = await outbox.publish(connection, shop.topic, "k", event)
    return [first, second]


def test_nothing_is_lost_or_twice_while_everything_dies(shop: Shop, tmp_path: Path) -> None:
    stop, committed = threading.Event(), list[str]()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                event = shop.publish(number, commit=number % 4 != 0)
            except OperationalError:
                stop.wait(0.2)  # the database is away: the outcome is in the table
                continue
            if number % 4 != 0:
                committed.append(event)
            stop.wait(0.005)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        first = shop.relay(tmp_path / "first")
        second: HubProcess | None = None
        for turn in range(4):
            seen = len(shop.ids())
            wait_until(lambda seen=seen: len(shop.ids()) > seen + 20, 90)  # type: ignore[misc]
            if turn == 1:
                shop.postgres.kill()
                shop.postgres.start()
            elif turn == 2:
                # Two at once: the second waits, and takes over when the first is gone.
                second = shop.relay(tmp_path / "second")
                wait_until(lambda: _state(tmp_path / "second") == "STANDBY", 60)
                first.kill()
            else:
                (second or first).kill()
                (second or first).start()
    finally:
        stop.set()
        worker.join(patient(30))
    with Session(shop.engine) as session:
        wanted = set(
            session.scalars(
                text("SELECT id::text FROM hub_outbox WHERE aggregatetype = :t"), {"t": shop.topic}
            )
        )
    assert set(committed) <= wanted
    wait_until(lambda: len(shop.ids()) >= len(wanted), 90)
    ids = shop.ids()
    assert len(ids) == len(set(ids))
    assert set(ids) == wanted
    for partition in range(3):
        numbers = [_number(each) for each in shop.arrived() if each.partition == partition]
        by_key: dict[bytes, list[int]] = {}
        for key, number in numbers:
            by_key.setdefault(key, []).append(number)
        assert all(each == sorted(each) for each in by_key.values())


def _number(record: Record) -> tuple[bytes, int]:
    _, found = decode(record.value or b"", lambda _id: parsed(ORDER))
    return record.key or b"", int(found["n"])


def _state(home: Path) -> str | None:
    note = read_note(home, time.time_ns() // 1_000_000)
    return None if note is None else note.state


def test_an_event_that_kafka_refuses_stays_and_harms_no_other(shop: Shop, tmp_path: Path) -> None:
    missing = f"{shop.topic}.later"
    RegistryClient(shop.settings.url).register(f"{missing}-value", json.dumps(ORDER))
    deleting = shop.settings.model_copy(update={"outbox_delete": True, "home": tmp_path / "home"})
    relay = HubProcess(deleting, "outbox", "relay")
    relay.start()
    shop.relays.append(relay)
    with Session(shop.engine) as session, session.begin():
        before = shop.outbox.publish(session, shop.topic, "k", {"order_id": "o", "n": 1})
        bad = shop.outbox.publish(session, missing, "k", {"order_id": "o", "n": 2})
        after = shop.outbox.publish(session, shop.topic, "k", {"order_id": "o", "n": 3})
    wait_until(lambda: shop.ids() == [before, after], 90)
    wait_until(lambda: bad in _status(shop)["refused"], 30)
    assert "does not exist" in _status(shop)["refused"][bad]
    wait_until(lambda: shop.rows() == {bad}, 30)  # what is in Kafka is deleted here
    shop.cluster.create_topic(missing, partitions=1, config={}, replication_factor=1)
    assert call_hub(shop.settings, "outbox", "retry", bad).returncode == 0
    wait_until(lambda: len(records_of(shop.cluster, missing)) == 1, 60)
    wait_until(lambda: _status(shop)["refused"] == {}, 30)
    wait_until(lambda: shop.rows() == set(), 30, lambda: str(shop.rows()))
    assert call_hub(shop.settings, "outbox", "retry", bad).returncode == 1


def test_the_relay_encrypts_personal_fields_and_refuses_an_event_of_nobody(
    shop: Shop, tmp_path: Path
) -> None:
    canary, label = "ann@canary.example", shop.topic.partition(".")[2]
    fields = [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]
    RegistryClient(shop.settings.url).register(f"{shop.topic}-value", json.dumps({**ORDER, "fields": fields}))
    project = tmp_path / "project"
    project.mkdir()
    (project / "kms.secret").write_text("a local secret")
    (project / "topics.yaml").write_text(
        f"topics: {{outbox: {{topics: {{{label}: {{erasable_by: order_id, erasable_fields: [note]}}}}}}}}\n"
    )
    own = {
        "home": tmp_path / "home",
        "project": project,
        "kms": [KmsKey(key="local-kms://people", secrets={"secret": "kms.secret"})],
        "erase_kek": f"kek-{label}",
    }
    settings = shop.settings.model_copy(update=own)
    assert call_hub(settings, "kek", "create", f"kek-{label}", "--kms", "local-kms://people").returncode == 0
    relay = HubProcess(settings, "outbox", "relay")
    relay.start()
    shop.relays.append(relay)
    with Session(shop.engine) as session, session.begin():
        nobody = shop.outbox.publish(session, shop.topic, "k", {"order_id": "", "n": 1, "note": canary})
        good = shop.outbox.publish(session, shop.topic, "k", {"order_id": "o", "n": 2, "note": canary})
    wait_until(lambda: shop.ids() == [good], 90, relay.last_words)
    assert canary not in str(shop.arrived()) and b"hub:erasable:1:" in (shop.arrived()[0].value or b"")
    wait_until(lambda: 'erasable by "order_id"' in _status(shop)["refused"].get(nobody, ""), 30)


def _status(shop: Shop) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        call_hub(shop.settings, "outbox", "status", "-o", "json").stdout
    )
    return found


def test_a_second_table_joins_the_publication(shop: Shop) -> None:
    second = shop.settings.model_copy(update={"outbox_table": "public.second_outbox"})
    made = call_hub(second, "outbox", "init")
    assert made.returncode == 0, made.stderr
    assert 'done: ALTER PUBLICATION "hub_outbox" ADD TABLE "public"."second_outbox"' in made.stderr
    assert "done:" not in call_hub(second, "outbox", "init").stderr
    with psycopg.connect(plain_url(shop.url)) as connection:
        connection.execute("DROP TABLE second_outbox")


def test_an_event_and_its_effect_are_one_commit(shop: Shop) -> None:
    inbox = Inbox(f"billing-{shop.topic}")
    with Session(shop.engine) as session, session.begin():
        inbox.create(session)

    def take(offset: int, commit: bool = True) -> bool:
        with Session(shop.engine) as session:
            first = inbox.first(session, topic=shop.topic, partition=0, offset=offset)
            if commit:
                session.commit()
        return first

    assert [take(0), take(0), take(1, commit=False), take(1), take(0)] == [True, False, True, True, False]
    with psycopg.connect(plain_url(shop.url)) as connection:
        assert [position for _, position in inbox.positions(connection)] == [2]
        ids = [inbox.first(connection, event_id=each) for each in ("a", "b", "a")]
        assert ids == [True, True, False]
        with pytest.raises(CallerError, match="by event_id alone"):
            inbox.first(connection, topic="t", event_id="a")
    assert asyncio.run(_async_inbox(shop, f"billing-{shop.topic}")) == [False, True, [3]]


async def _async_inbox(shop: Shop, consumer: str) -> list[object]:
    inbox = AsyncInbox(consumer)
    async with await psycopg.AsyncConnection.connect(plain_url(shop.url)) as connection:
        await inbox.create(connection)
        found: list[object] = [
            await inbox.first(connection, topic=shop.topic, partition=0, offset=offset) for offset in (1, 2)
        ]
        return [*found, [position for _, position in await inbox.positions(connection)]]


def test_a_lost_slot_loses_no_row(shop: Shop, tmp_path: Path) -> None:
    """The relay of ``hub up`` tries all the time: it is there the moment the slot is made again."""
    deleting = shop.settings.model_copy(update={"outbox_delete": True, "home": tmp_path / "home"})
    relay = HubProcess(deleting, "outbox", "relay")
    relay.start()
    shop.relays.append(relay)
    first = shop.publish(1)
    wait_until(lambda: shop.ids() == [first], 60)
    wait_until(lambda: first not in shop.rows(), 30)
    relay.stop()
    with opened(shop.url) as database, psycopg.connect(plain_url(shop.url), autocommit=True) as connection:
        connection.execute("DELETE FROM hub_outbox")
        connection.execute("SELECT pg_drop_replication_slot(%s)", (database.slot,))
    second = shop.publish(2)
    relay.start()
    wait_until(lambda: _state(tmp_path / "home") == "FAILING", 60)
    assert "A lost slot" in relay.log.read_text()
    status = call_hub(shop.settings, "outbox", "status")
    assert (status.returncode, "no slot: hub outbox init" in status.stdout) == (1, True)
    assert call_hub(shop.settings, "outbox", "init").returncode == 0
    wait_until(lambda: "it was created again" in relay.log.read_text(), 60)
    assert shop.rows() == {second}
    assert call_hub(shop.settings, "outbox", "retry", "--all").returncode == 0
    third = shop.publish(3)
    wait_until(lambda: call_hub(shop.settings, "outbox", "forget").returncode == 0, 60)
    wait_until(lambda: sorted(shop.ids()) == sorted([first, second, third]), 60)
    wait_until(lambda: shop.rows() == set(), 30)


def test_a_table_that_is_not_published_any_more_is_noticed(shop: Shop, tmp_path: Path) -> None:
    deleting = shop.settings.model_copy(update={"outbox_delete": True, "home": tmp_path / "home"})
    relay = HubProcess(deleting, "outbox", "relay")
    relay.start()
    shop.relays.append(relay)
    first = shop.publish(1)
    wait_until(lambda: first not in shop.rows() and shop.ids() == [first], 60)
    with psycopg.connect(plain_url(shop.url), autocommit=True) as connection:
        connection.execute("ALTER PUBLICATION hub_outbox DROP TABLE hub_outbox")
    second = shop.publish(2)
    wait_until(lambda: _state(tmp_path / "home") == "FAILING", 60)
    assert "does not publish table" in relay.log.read_text()
    assert call_hub(shop.settings, "outbox", "init").returncode == 0
    wait_until(lambda: _state(tmp_path / "home") == "RELAYING", 60)
    third = shop.publish(3)
    wait_until(lambda: set(shop.ids()) == {first, third} and shop.rows() == {second}, 60)
    assert call_hub(shop.settings, "outbox", "retry", second).returncode == 0
    wait_until(lambda: sorted(shop.ids()) == sorted([first, second, third]), 60)


def test_a_database_may_have_another_encoding(shop: Shop, tmp_path: Path) -> None:
    """Keys are UTF-8 in Kafka. Names that are no topic of Kafka's are refused alone."""
    with psycopg.connect(plain_url(shop.url), autocommit=True) as connection:
        name = f"latin_{uuid.uuid4().hex[:8]}"
        options = "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(f"CREATE DATABASE {name} {options}".encode())
    url = shop.url.rpartition("/")[0] + f"/{name}"
    latin = shop.settings.model_copy(update={"outbox_database": url, "home": tmp_path / "home"})
    assert call_hub(latin, "outbox", "init").returncode == 0
    relay = HubProcess(latin, "outbox", "relay")
    relay.start()
    shop.relays.append(relay)
    row = (
        "INSERT INTO hub_outbox (id, aggregatetype, aggregateid, headers) VALUES "
        "(gen_random_uuid(), %s, %s, %s) RETURNING id::text"
    )
    wanted = ["", "no topic", ".", "ø", "x" * 300, shop.topic]
    with psycopg.connect(plain_url(url), client_encoding="UTF8") as connection:
        connection.execute("ALTER TABLE hub_outbox DROP CONSTRAINT hub_outbox_headers_check")
        bad = connection.execute(row, (shop.topic, "k", "[1]")).fetchall()[0][0]
        ids = [str(connection.execute(row, (each, "kø", '{"h": "ø"}')).fetchall()[0][0]) for each in wanted]
    wait_until(lambda: len(shop.arrived()) == 1, 60, relay.log.read_text)
    (record,) = shop.arrived()
    assert (record.key, record.header("h")) == ("kø".encode(), "ø".encode())
    status = json.loads(call_hub(latin, "outbox", "status", "-o", "json").stdout)
    assert set(status["refused"]) == {bad, *ids[:-1]}
