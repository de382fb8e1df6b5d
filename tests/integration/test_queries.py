"""SQL over views on a real Postgres, word for word as on SQLite;
and ``hub sql`` against a real server and Kafka."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from mask_facts import KnownFacts, caller_of, rules_of
from patience import patient
from postgres import Postgres
from processes import run_hub
from sql_cases import FRIENDLY, HOSTILE, NOW_MS, PLANT, ask, fill, schema
from sqlalchemy import create_engine, text

from hub.access.masking.facts import ViewColumns
from hub.caller import CALLER
from hub.cli.context import environment_of
from hub.config import Settings
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.running import MOST_BYTES, RunningQuery
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import NewRecord, Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed


@pytest.fixture(scope="module")
def store(postgres: Postgres) -> Iterator[Store]:
    made = Store(postgres.database("queries"))
    fill(made)
    yield made
    made.close()


@pytest.fixture(scope="module")
def queries(store: Store) -> QueryExecutor:
    return QueryExecutor(store)


@pytest.mark.parametrize(("sql", "rows"), FRIENDLY, ids=[sql[:60] for sql, _ in FRIENDLY])
def test_postgres_answers_as_sqlite_does(queries: QueryExecutor, sql: str, rows: list[list[Any]]) -> None:
    assert ask(queries, sql).rows == rows


MASKED = [
    "SELECT key, city, n, celsius, big, tags, seen, day, price, raw FROM plant ORDER BY key",
    "SELECT city, count(*) FROM plant GROUP BY city ORDER BY count(*), city",
    "SELECT count(*) FROM plant WHERE city = 'Oslo' OR note IS NULL",
    "SELECT p.key, c.key FROM plant p JOIN customer c ON c.plant = p.key ORDER BY 1, 2",
    "SELECT name, plant FROM customer ORDER BY key",
    "SELECT count(*) FROM customer WHERE 1 / (CASE WHEN plant = 'p2' THEN 0 ELSE 1 END) > 0",
    "SELECT count(*) FROM customer WHERE CAST(CASE WHEN plant = 'p2' THEN 'x' ELSE '1' END AS bigint) > 0",
    # Cheaper than the filter of rows: Postgres would run it first, on rows that the caller does not see.
    "SELECT count(*) FROM customer WHERE 9223372036854775801 + _version > 0",
]


@pytest.mark.parametrize("sql", MASKED)
def test_postgres_masks_as_sqlite_does(
    queries: QueryExecutor, tmp_path_factory: pytest.TempPathFactory, sql: str
) -> None:
    """Hashes are equal in both, and no expression of the caller meets a row that is filtered."""
    plant = ViewColumns(dict.fromkeys(PLANT, ()))
    facts = KnownFacts(views={"plant": plant, "customer": ViewColumns({"name": (), "plant": ()})})
    masks = [
        {"fields": ["city", "n"], "views": ["plant"], "as": "hashed"},
        {"fields": ["note"], "views": ["plant"], "as": "partial(2)"},
        {"fields": ["celsius", "tags", "seen", "raw", "big"], "views": ["plant"], "as": "nulled"},
        {"fields": ["name"], "views": ["customer"], "as": "hashed"},
        {"rows": "plant = user.plant", "views": ["customer"]},
    ]
    rules = rules_of(facts, masks, ana={"claims": {"plant": ["p1", "it's 100%", *map(str, range(6))]}})
    beside = Store(f"sqlite:///{tmp_path_factory.mktemp('masked') / 'store.db'}")
    fill(beside)
    sqlite = QueryExecutor(beside)
    before = CALLER.set(caller_of(rules, "ana"))
    try:
        rows = ask(queries, sql).rows
        assert rows == ask(sqlite, sql).rows and rows
        assert "Oslo" not in str(rows) and "Nönä" not in str(rows)
    finally:
        CALLER.reset(before)
        sqlite.close()
        beside.close()


def test_postgres_refuses_as_sqlite_does(queries: QueryExecutor) -> None:
    for sql, _ in HOSTILE:
        with pytest.raises(SqlError) as refusal:
            ask(queries, sql)
        assert refusal.value.code != "HUB-1450", sql


def test_time_and_a_caller_who_left_stop_a_query(queries: QueryExecutor) -> None:
    endless = f"SELECT count(*) FROM {', '.join(f'plant t{n}' for n in range(12))}"
    with pytest.raises(SqlError, match="took too long"):
        ask(queries, endless, seconds=0.5)
    running = RunningQuery(time.monotonic() + 60)
    threading.Timer(0.5, running.cancel).start()
    with pytest.raises(SqlError, match="cancelled"):
        queries.run(parse(endless), {}, running, limit=1, now_ms=NOW_MS)
    assert ask(queries, "SELECT 1").rows == [[1]]


def test_what_only_the_data_shows_is_an_error_in_words(queries: QueryExecutor) -> None:
    with pytest.raises(SqlError, match="the database refuses: .*out of range"):
        ask(queries, "SELECT (n + 9223372036854775800) * 5 FROM plant")


def test_a_row_that_no_answer_could_carry_stays_where_it_is(store: Store, queries: QueryExecutor) -> None:
    store.ensure_view("big", schema(t="string"), [], "t6")
    store.apply([ViewBatch("big", [RowVersion("k", 1, 0, 0, {"t": "x" * 1_000_000})], Positions())])
    doubled = "SELECT t FROM big"
    for _ in range(5):
        doubled = f"SELECT t || t AS t FROM ({doubled}) x"
    with pytest.raises(SqlError, match="larger than"):
        ask(queries, doubled)


def test_nested_values_are_weighed_too_and_what_is_not_shown_does_not_come(
    store: Store, queries: QueryExecutor
) -> None:
    store.ensure_view("nested", schema(t={"type": "array", "items": "string"}), [], "t11")
    rows = [RowVersion(f"k{n}", 1, 0, n, {"t": ["x" * 1_000_000]}) for n in range(100)]
    store.apply([ViewBatch("nested", rows, Positions())])
    tracemalloc.start()
    try:
        answer = ask(queries, "SELECT t FROM nested", limit=1_000)
        assert answer.more and 10 < len(answer.rows) < 20
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_BYTES
    finally:
        tracemalloc.stop()
    assert ask(queries, "SELECT count(*) FROM nested").rows == [[100]]  # the connection is as good as before


def test_a_transaction_can_only_read(store: Store) -> None:
    """The second fence: whatever statement came through, the transaction is read-only."""
    reader = store.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with reader.connect() as connection, pytest.raises(Exception, match="read-only"):
        connection.execute(text("DELETE FROM view_plant"))


def test_order_survives_many_rows_and_the_answer_is_cut(store: Store, queries: QueryExecutor) -> None:
    store.ensure_view("many", schema(n="long", t="string"), ["n"], "t7")
    rows = [RowVersion(f"k{n:06}", 1, 0, n, {"n": n * 7919 % 20_011, "t": "x" * 50}) for n in range(20_000)]
    store.apply([ViewBatch("many", rows, Positions.of([("views.many", 0, 20_000)]))])
    answer = ask(queries, "SELECT n FROM many ORDER BY n DESC", limit=9_000)
    found = [row[0] for row in answer.rows]
    assert answer.more and found == sorted(found, reverse=True) and len(found) == 9_000
    assert ask(queries, "SELECT DISTINCT n % 10 AS d FROM many ORDER BY d LIMIT 3").rows == [[0], [1], [2]]


def test_one_moment_for_all_views_of_a_query(store: Store, queries: QueryExecutor) -> None:
    """Rows of two views that always change together are never seen apart."""
    for name in ("left_half", "right_half"):
        store.ensure_view(name, schema(n="long"), [], f"t-{name}")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            batches = [
                ViewBatch(name, [RowVersion("k", number, 0, number, {"n": number})], Positions())
                for name in ("left_half", "right_half")
            ]
            store.apply(batches)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(0.2)
        seen = set()
        for _ in range(60):
            ((left, right),) = ask(
                queries, "SELECT l.n, (SELECT max(r.n) FROM right_half r) FROM left_half l"
            ).rows
            assert left == right
            seen.add(left)
        assert len(seen) > 1
    finally:
        stop.set()
        writer.join()


def test_events_beside_views_of_postgres(
    store: Store, queries: QueryExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = EventTable("a.b", {"plant": "string", "delay": "long"}, {}, [("p1", 5), ("p1", 6), ("p3", 7)])
    statement = parse(
        "SELECT p.city, p.big, p.tags->>0 AS t, max(p.seen) AS s, sum(e.delay) AS d FROM "
        '"a.b" e JOIN plant p '
        "ON p.key = e.plant GROUP BY 1, 2, 3 ORDER BY 1"
    )
    answer = queries.run(
        statement, {}, RunningQuery(time.monotonic() + 20), limit=10, now_ms=NOW_MS, events=[events]
    )
    assert answer.rows == [
        ["Oslo", False, "a", "2026-01-01T03:00:00.000Z", 7],
        ["Rome", False, "a", "2026-01-01T01:00:00.000Z", 11],
    ]
    assert str(answer.positions) == "in:0:7"
    monkeypatch.setattr("hub.materializers.queries.databases.MOST_COPIED", 5)
    with pytest.raises(SqlError, match="too many to copy"):
        queries.run(
            statement, {}, RunningQuery(time.monotonic() + 20), limit=10, now_ms=NOW_MS, events=[events]
        )


@pytest.mark.parametrize(
    "order", [[("city", True), ("n", False), ("key", False)], [("note", False), ("key", False)]]
)
def test_pages_in_order_are_the_whole_once(store: Store, order: list[tuple[str, bool]]) -> None:
    whole = [row.key for row, _ in store.ordered("plant", [], 100, order, None)]
    assert len(whole) == 10
    found: list[str] = []
    place = None
    while page := store.ordered("plant", [], 3, order, place):
        found += [row.key for row, _ in page]
        place = page[-1][1]
    assert found == whole


def test_a_store_that_is_away_is_a_peers_error(postgres: Postgres) -> None:
    made = Store(postgres.database("gone"))
    engine = create_engine(postgres.url("postgres"), isolation_level="AUTOCOMMIT")
    asking = QueryExecutor(made)
    made.engine.dispose()
    with engine.connect() as connection:
        connection.execute(text('DROP DATABASE "gone" WITH (FORCE)'))
    engine.dispose()
    with pytest.raises(PeerError, match="store"):
        ask(asking, "SELECT 1")
    made.close()


# ---- the whole way

# Ctrl-C reaches who has the terminal for its own.
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "hub.cli", "sql"])
"""


TOPIC = f"queries.{uuid.uuid4().hex[:8]}.departures"
DEPARTURE = {
    "type": "record",
    "name": "Departure",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "long"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.fixture(scope="module")
def departures(settings: Settings, hub_server: str) -> str:
    cluster, registry = KafkaCluster(settings.bootstrap), RegistryClient(hub_server)
    schema_id = registry.register(f"{TOPIC}-value", json.dumps(DEPARTURE))
    cluster.create_topic(TOPIC, partitions=2, config={}, replication_factor=1)
    writer = cluster.writer("queries-test")  # transactional: control records take offsets and are not events
    for start in (0, 10):
        writer.append(
            [
                NewRecord(
                    TOPIC,
                    f"k{n}".encode(),
                    encode(
                        schema_id, parsed(DEPARTURE), {"carrier": "AB"[n % 2], "delay": n, "at": NOW_MS + n}
                    ),
                    timestamp_ms=NOW_MS + n * 60_000,
                    partition=n % 2,
                )
                for n in range(start, start + 10)
            ]
        )
    writer.close()
    cluster.writer("queries-test").close()  # waits until committed records can be read
    registry.close()
    return TOPIC


def test_recent_events_over_http(hub_server: str, departures: str) -> None:
    def asked(sql: str, **more: Any) -> Any:
        answer = httpx2.post(
            f"{hub_server}/query", json={"sql": sql, "timeout_ms": 30_000, **more}, timeout=60
        )
        assert answer.is_success, answer.text
        return answer.json()

    body = asked(f'SELECT carrier, count(*) AS n, max("at") AS at FROM "{departures}" GROUP BY 1 ORDER BY 1')
    assert body["rows"] == [
        {"carrier": "A", "n": 10, "at": "2026-01-01T20:00:00.018Z"},
        {"carrier": "B", "n": 10, "at": "2026-01-01T20:00:00.019Z"},
    ]
    assert [each["events"] for each in body["scanned"]] == [10, 10]
    assert body["scanned"][0]["to"] > 10  # past the control records
    later = asked(f"SELECT min(delay) AS n FROM \"{departures}\" WHERE _timestamp >= '2026-01-01T20:15:00Z'")
    assert later["rows"] == [{"n": 15}] and sum(each["events"] for each in later["scanned"]) == 5
    few = asked(f'SELECT count(*) AS n FROM "{departures}"', events=3)
    assert few["rows"][0]["n"] <= 6 and few["scanned"][0]["earlier_left_out"]


def test_a_caller_who_hangs_up_stops_the_query(hub_server: str, departures: str) -> None:
    """More of them than run at once: each would keep its place for a minute."""
    tables = ", ".join(f'"{departures}" t{n}' for n in range(10))
    endless = {"sql": f"SELECT count(*) FROM {tables}", "timeout_ms": 60_000}

    def hang_up(_: int) -> None:
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{hub_server}/query", json=endless, timeout=httpx2.Timeout(60.0, read=1.5))

    with ThreadPoolExecutor(6) as callers:
        list(callers.map(hang_up, range(6)))
    body = {"sql": "SELECT 1 AS one", "timeout_ms": 40_000}
    assert httpx2.post(f"{hub_server}/query", json=body, timeout=60).json()["rows"] == [{"one": 1}]


def test_hub_sql_in_a_pipe(settings: Settings, hub_server: str, departures: str) -> None:
    def hub_sql(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return run_hub(settings, "sql", *arguments, given=given)

    done = hub_sql("-o", "csv", "-c", f'SELECT carrier, delay FROM "{departures}" WHERE delay < 2 ORDER BY 2')
    assert (done.returncode, done.stdout) == (0, "carrier,delay\nA,0\nB,1\n"), done.stderr
    assert "Scanned" in done.stderr
    done = hub_sql("-o", "json", given="SELECT 1 AS a;\nSELECT 'ü' AS b;")
    assert done.stdout == '[\n  {"a": 1}\n]\n[\n  {"b": "ü"}\n]\n'
    done = hub_sql("-c", f'SELECT dely FROM "{departures}"')
    assert done.returncode == 1 and "^^^^" in done.stderr and 'did you mean "delay"?' in done.stderr
    assert done.stdout == ""


def test_hub_sql_at_a_terminal(settings: Settings, hub_server: str, departures: str) -> None:
    """A real terminal: a topic is described, a query answered, Ctrl-C stops one, \\q leaves."""
    main, far = pty.openpty()
    environment = {
        **os.environ,
        **environment_of(settings),
        "TERM": "xterm",
        "XDG_STATE_HOME": str(settings.home),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL],
        stdin=far,
        stdout=far,
        stderr=far,
        env=environment,
        start_new_session=True,
    )
    os.close(far)
    shown = ""

    def until(wanted: str, seconds: float = 60.0) -> None:
        nonlocal shown
        deadline = time.monotonic() + patient(seconds)
        while wanted not in shown and time.monotonic() < deadline:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    shown += os.read(main, 65_536).decode("utf-8", "replace")
                except OSError:
                    break
        assert wanted in shown, shown[-3_000:]
        shown = shown.split(wanted, 1)[1]

    try:
        until("hub=>")
        os.write(main, f"\\d {departures}\r".encode())
        until("_timestamp")
        os.write(main, b"SELECT 40 +\r 2 AS answer;\r")
        until("(1 row)")
        os.write(main, b"SELECT 1; \\watch 1\r")
        until("every 1 s")
        until("(1 row)")
        os.write(main, b"\x03")
        until("Stopped.")
        os.write(main, b"\\q\r")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)
