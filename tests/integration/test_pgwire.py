"""SQL tools connect to a real server by Postgres' protocol:
psql, psycopg, asyncpg, SQLAlchemy, pandas, JDBC, and bad input."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import asyncpg
import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa
from certificates import certificate
from java_classes import JavaClasses
from patience import patient
from ports import free_ports
from processes import running_server
from sql_cases import fill
from tool_queries import CATALOG, ROWS

from hub.access.secrets import hash_of_password, hash_of_token
from hub.config import Settings
from hub.embedded.jars import ensure_jars
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord

TOPIC, HIDDEN = "pgwire.orders", "pgwire.secret"
TOKEN = "hubt_pgwire"
ADA = {"user": "ada", "password": "a:b c"}
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PLANT_0 = (
    *(
        "Oslo",
        -3.0,
        0,
        True,
        NEW_YEAR,
        dt.date(2026, 1, 1),
        ["a", {"b": True, "c": [1, 2.5, None], "d.e": "x"}, "t0"],
    ),
    *(Decimal("0.50"), "a%b", b"\0\xff"),
)
COLUMNS = "city, celsius, n, big, seen, day, tags, price, note, raw"


@pytest.fixture(scope="module")
def served(settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A server on the run's Kafka with a store of two views, access.yaml and TLS."""
    home = tmp_path_factory.mktemp("pgwire")
    project = home / "project"
    project.mkdir()
    certificate(project, "server")
    rules = {
        "users": {
            "ada": {
                "password": hash_of_password(ADA["password"], b"s" * 16),
                "grants": [{"role": "read", "topics": [TOPIC], "views": ["*"]}],
            },
            "bob": {
                "password": hash_of_password("bob", b"t" * 16),
                "grants": [{"role": "read", "views": ["customer"]}],
            },
        },
        "tokens": {"tool": {"token": hash_of_token(TOKEN), "grants": [{"role": "read", "views": ["*"]}]}},
    }
    (project / "access.yaml").write_text(json.dumps(rules))
    (project / "queries").mkdir()
    (project / "queries" / "warm.sql").write_text(
        "-- Warm plants\nSELECT city, n FROM plant WHERE celsius > 3"
    )
    http, port = free_ports(2)
    own = settings.model_copy(
        update={
            "home": home / "home",
            "project": project,
            "http_port": http,
            "pgwire_port": port,
            "pgwire_certificate": "server.pem",
            "pgwire_key": "server.key",
            "pgwire_connections": 230,
            "pgwire_connections_per_caller": 220,
            "queries_per_caller": 300,
            "query_timeout_ms": 60_000,
        }
    )
    own.home.mkdir()
    store = Store(own.store)
    fill(store)
    store.close()
    cluster = KafkaCluster(kafka)
    for topic in (TOPIC, HIDDEN):
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
        cluster.writer().append([NewRecord(topic, b"k%d" % n, b'{"n": %d}' % n) for n in range(5)])
    with running_server(own):
        yield own


@pytest.fixture(scope="module")
def dsn(served: Settings) -> str:
    return f"host=127.0.0.1 port={served.pgwire_port} dbname=hub"


def connected(dsn: str, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, **{"autocommit": True, **ADA, **more})


def psql(dsn: str, *commands: str) -> str:
    arguments = [each for command in commands for each in ("-c", command)]
    answer = subprocess.run(
        ["psql", "-X", "-A", "-t", f"{dsn} user=ada", *arguments],
        env={**os.environ, "PGPASSWORD": ADA["password"]},
        capture_output=True,
        text=True,
        timeout=patient(60.0),
        check=False,
    )
    assert not answer.stderr, answer.stderr
    return answer.stdout


def test_psql_shows_tables_and_rows(dsn: str) -> None:
    assert psql(dsn, "SELECT city, n, seen FROM plant WHERE n = 0") == "Oslo|0|2026-01-01 00:00:00+00\n"
    listed = psql(dsn, r"\d")
    assert "public|plant|view|hub\n" in listed and f"topics|{TOPIC}|table|hub\n" in listed
    assert HIDDEN not in listed
    tables = psql(dsn, r"\dt")
    assert f"topics|{TOPIC}|table" in tables and "|plant|" not in tables and HIDDEN not in tables
    described = psql(dsn, r"\d plant")
    assert "seen|timestamp with time zone|||\n" in described and "price|numeric|||\n" in described
    for command in (
        r"\d+ plant",
        r"\dn+",
        r"\l+",
        r"\du",
        r"\df",
        r"\dv+",
        r"\dp",
        rf'\d topics."{TOPIC}"',
    ):
        psql(dsn, command)


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_every_type(dsn: str, binary: bool) -> None:
    with connected(dsn) as connection:
        cursor = connection.cursor(binary=binary)
        asked = f"SELECT {COLUMNS} FROM plant WHERE n = %s AND city = %s AND seen < %s AND day = %s"
        given = (0, "Oslo", NEW_YEAR + dt.timedelta(1), dt.date(2026, 1, 1))
        assert cursor.execute(asked, given).fetchone() == PLANT_0
        assert cursor.execute(
            "SELECT count(*) FROM plant WHERE city = ANY(%s)", (["Oslo", "Rome"],)
        ).fetchone() == (7,)
        assert cursor.execute("SELECT count(*) FROM plant WHERE city = ANY(%s)", ([],)).fetchone() == (0,)
        assert cursor.execute(f'SELECT count(*) FROM "{TOPIC}"').fetchone() == (5,)
        assert cursor.execute("SELECT max(n) FROM queries.warm").fetchone() == (9,)


def test_cursors_pipelines_and_copy_of_psycopg(dsn: str) -> None:
    with connected(dsn, autocommit=False) as connection:
        with connection.cursor("named") as cursor:
            cursor.itersize = 3
            cursor.execute("SELECT n FROM plant ORDER BY n")
            assert [row[0] for row in cursor] == list(range(10))
        with connection.pipeline():
            one = connection.execute("SELECT n FROM plant WHERE n = %s", (1,))
            two = connection.execute("SELECT n FROM plant WHERE n = %s", (2,))
        assert (one.fetchall(), two.fetchall()) == ([(1,)], [(2,)])
        with connection.cursor().copy("COPY (SELECT n, note, city FROM plant ORDER BY n) TO STDOUT") as copy:
            rows = list(copy.rows())
        assert rows[2] == ("2", "äöü", None) and rows[4] == ("4", "x\ny", "Rome")
        with connection.cursor().copy(
            "COPY (SELECT n, note FROM plant WHERE n IN (4, 5)) TO STDOUT CSV HEADER"
        ) as copy:
            assert b"".join(copy) == b'n,note\n4,"x\ny"\n5,""\n'


def test_errors_have_a_state_a_place_and_a_hint(dsn: str) -> None:
    refused = {
        "SELECT celsious FROM plant": ("42703", "8"),
        "SELECT * FROM nope": ("42501", None),
        "SELECT * FROM other.nope": ("42501", None),
        "SELECT * FROM plant WHERE": ("42601", "21"),
        "INSERT INTO plant VALUES (1)": ("25006", None),
        "CREATE TABLE x (a int)": ("25006", None),
        "COPY plant FROM STDIN": ("25006", None),
        "LISTEN news": ("0A000", None),
        "SELEC 1": ("42601", None),
        "SELECT median(n) FROM plant": ("42883", "8"),
        "SET consistency_token = 'x'": ("22023", None),
        "SHOW nothing": ("42704", None),
        "SELECT * FROM plant, pg_class": ("0A000", None),
        "SELECT pg_sleep(100)": ("42883", None),
        "SELECT * FROM read_csv('/etc/passwd')": ("42883", None),
    }
    with connected(dsn) as connection:
        for sql, (state, place) in refused.items():
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(sql)
            assert (caught.value.sqlstate, caught.value.diag.statement_position) == (state, place), sql
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("BEGIN; SELECT nope FROM plant; SELECT 1")
        assert caught.value.diag.statement_position == "15"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_settings_mean_what_http_has(dsn: str) -> None:
    with connected(dsn) as connection:
        connection.execute("SET consistency_token = 'in:0:7'")
        assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)
        connection.execute("SET consistency_token = 'in:0:99'; SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT count(*) FROM plant")
        assert caught.value.sqlstate == "57P03" and caught.value.diag.message_detail == "HUB-3050"
        connection.execute("RESET consistency_token; SET consistent_with = 'required'")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT count(*) FROM plant, customer")
        assert caught.value.diag.message_detail == "HUB-1455"


def test_time_and_cancel_end_a_query(dsn: str) -> None:
    endless = f"SELECT count(*) FROM {', '.join(f'plant t{n}' for n in range(12))}"
    with connected(dsn) as connection:
        connection.execute("SET statement_timeout = 500")
        with pytest.raises(psycopg.errors.QueryCanceled, match="took too long"):
            connection.execute(endless)
        connection.execute("RESET statement_timeout")
        threading.Timer(1.0, connection.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="cancelled"):
            connection.execute(endless)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_asyncpg_describes_then_binds_in_binary(dsn: str, served: Settings) -> None:
    async def go() -> None:
        one = await asyncpg.connect(host="127.0.0.1", port=served.pgwire_port, database="hub", **ADA)
        asked = f"SELECT {COLUMNS} FROM plant WHERE n < $1 AND city = $2 AND seen >= $3 ORDER BY n LIMIT $4"
        rows = await one.fetch(asked, 5, "Oslo", NEW_YEAR, 1)
        assert [json.loads(each) if name == "tags" else each for name, each in rows[0].items()] == list(
            PLANT_0
        )
        assert [
            each["n"] for each in await one.fetch("SELECT n FROM plant WHERE n = ANY($1) ORDER BY n", [1, 3])
        ] == [1, 3]
        async with one.transaction():
            assert [
                each["n"] async for each in one.cursor("SELECT n FROM plant ORDER BY n", prefetch=3)
            ] == list(range(10))
        found = await one.fetchrow("SELECT relkind FROM pg_class WHERE relname = $1", "plant")
        assert found is not None and found["relkind"] == "v"
        await one.reset()
        await one.close()

    asyncio.run(go())


def test_sqlalchemy_reflects_and_pandas_reads(served: Settings) -> None:
    url = sa.URL.create(
        "postgresql+psycopg", ADA["user"], ADA["password"], "127.0.0.1", served.pgwire_port, "hub"
    )
    engine = sa.create_engine(url)
    inspected = sa.inspect(engine)
    assert inspected.get_view_names() == ["customer", "plant"]
    topics = inspected.get_table_names(schema="topics")  # those of other tests are there, too
    assert TOPIC in topics and HIDDEN not in topics
    known = sa.MetaData()
    known.reflect(engine, views=True)
    plant = known.tables["plant"]
    types = {each.name: type(each.type).__name__ for each in plant.columns}
    assert (types["n"], types["seen"], types["price"], types["tags"]) == (
        "BIGINT",
        "TIMESTAMP",
        "NUMERIC",
        "JSON",
    )
    with engine.connect() as connection:
        by_city = (
            sa.select(plant.c.city, sa.func.count()).where(plant.c.n.in_([1, 2, 3])).group_by(plant.c.city)
        )
        assert connection.execute(by_city.order_by(plant.c.city)).fetchall() == [
            ("Oslo", 1),
            ("Rome", 1),
            (None, 1),
        ]
    frame = pd.read_sql("SELECT city, n, seen FROM plant ORDER BY n", engine)
    assert str(frame.dtypes["seen"]).startswith("datetime64[ns, UTC") and frame["n"].sum() == 45
    assert pd.read_sql_table("customer", engine).shape == (8, 5)
    engine.dispose()


def test_what_tools_ask_about_tables_and_of_rows(dsn: str) -> None:
    with connected(dsn) as connection:
        for tool, questions in CATALOG.items():
            for sql in questions:
                assert connection.execute(sql).description is not None, (tool, sql)
        for sql, rows in ROWS:
            shown = [tuple(_plain(each) for each in row) for row in connection.execute(sql).fetchall()]
            assert shown == rows, sql


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S+00")
    return value.isoformat() if isinstance(value, dt.date) else value


def test_jdbc_reads_metadata_pages_and_types(served: Settings) -> None:
    jars = ensure_jars(served, ("postgres-client",))["postgres-client"]
    with JavaClasses(served, jars) as java:
        given = java["java.util.Properties"]()
        for name, value in (*ADA.items(), ("sslmode", "require"), ("prepareThreshold", "1")):
            given.setProperty(name, value)
        url = f"jdbc:postgresql://127.0.0.1:{served.pgwire_port}/hub"
        connection = java["org.postgresql.Driver"]().connect(url, given)
        about = connection.getMetaData()
        tables = _column(about.getTables(None, "public", "%", None), "TABLE_NAME")
        assert tables == ["customer", "plant"]
        columns = about.getColumns(None, "public", "plant", "%")
        types = {}
        while columns.next():
            types[columns.getString("COLUMN_NAME")] = columns.getString("TYPE_NAME")
        assert (types["n"], types["seen"], types["tags"], types["raw"]) == (
            "int8",
            "timestamptz",
            "json",
            "bytea",
        )
        assert _column(about.getPrimaryKeys(None, "public", "plant"), "COLUMN_NAME") == []
        assert _column(about.getIndexInfo(None, "public", "plant", False, False), "INDEX_NAME") == []
        assert "public" in _column(about.getSchemas(), "TABLE_SCHEM")
        connection.setAutoCommit(False)
        statement = connection.prepareStatement(
            "SELECT n, celsius, seen, price FROM plant WHERE n < ? ORDER BY n"
        )
        statement.setFetchSize(2)
        for most in (9, 3, 5):  # prepared on the server from the second time on, and in binary
            statement.setInt(1, most)
            rows = statement.executeQuery()
            assert [int(each) for each in _column(rows, "n")] == list(range(most))
        rows = statement.executeQuery()
        assert rows.next() and rows.getDouble("celsius") == -3.0
        assert rows.getTimestamp("seen").getTime() == 1_767_225_600_000
        assert rows.getBigDecimal("price") == Decimal("0.50")
        connection.close()


def _column(rows: Any, name: str) -> list[str]:
    found = []
    while rows.next():
        found.append(rows.getString(name))
    return found


def test_who_may_see_what(served: Settings, dsn: str) -> None:
    with connected(dsn, user="token", password=TOKEN) as tool:
        assert tool.execute("SELECT count(*) FROM plant").fetchone() == (10,)
    with connected(dsn, user="bob", password="bob", sslmode="require") as bob:
        assert bob.execute("SELECT count(*) FROM customer").fetchone() == (8,)
        for sql in ("SELECT 1 FROM plant", "SELECT * FROM queries.warm", f'SELECT * FROM topics."{TOPIC}"'):
            with pytest.raises(psycopg.Error) as caught:
                bob.execute(sql)
            assert caught.value.sqlstate in ("42501", "42P01"), sql
        names = bob.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        own = [each for each in names if each[0] in ("public", "topics", "queries")]
        assert own == [("public", "customer")]
        assert bob.execute("SELECT count(*) FROM hub.queries").fetchone() == (0,)
    for user, password in (("ada", "wrong"), ("nobody", "x"), ("", "x")):
        with pytest.raises(psycopg.OperationalError):
            connected(dsn, user=user or " ", password=password)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connected(dsn.replace("dbname=hub", "dbname=other"))


def test_names_that_look_like_sql_stay_names(dsn: str) -> None:
    evil = "x'; DROP TABLE plant; --"
    with connected(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM plant WHERE city = %s", (evil,)).fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname = %s", (evil,)).fetchone() == (
            0,
        )
        with pytest.raises(psycopg.Error):
            connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(evil)))
        assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)


def _exchange(port: int, *packets: bytes, wait_s: float = 20.0) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=patient(wait_s)) as raw:
        found = b""
        try:
            for packet in packets:
                raw.sendall(packet)
            while data := raw.recv(65_536):
                found += data
        except ConnectionError:
            pass
        return found


def _startup(**parameters: str) -> bytes:
    body = (
        struct.pack("!i", 3 << 16) + b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items()) + b"\0"
    )
    return struct.pack("!i", len(body) + 4) + body


def test_bad_input_ends_its_own_connection_only(served: Settings, dsn: str) -> None:
    port = served.pgwire_port
    assert port is not None
    for packets in (
        (b"GET / HTTP/1.1\r\n\r\n",),
        (struct.pack("!i", 2**31 - 1) + b"x",),
        (struct.pack("!i", -5),),
        (struct.pack("!ii", 8, 7),),
        (struct.pack("!ii", 8, 2 << 16),),
        (_startup(user="ada"), b"Q" + struct.pack("!i", 12) + b"SELECT 1"),
        (_startup(user="ada"), b"p" + struct.pack("!i", 2**31 - 1)),
        (struct.pack("!ii", 8, 80877103) + _startup(user="ada"),),
    ):
        assert b"C08P01" in _exchange(port, *packets), packets
    assert _exchange(port, struct.pack("!iiii", 16, 80877102, 1, 1)) == b""  # a cancel request of nobody
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(b"\0\0")
    with connected(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    half.settimeout(patient(30.0))
    assert half.recv(100) == b""  # it has had its 10 s
    half.close()


def test_tls_is_what_an_outsider_needs(served: Settings) -> None:
    raw = socket.create_connection(("127.0.0.1", served.pgwire_port))
    raw.sendall(struct.pack("!ii", 8, 80877103))
    assert raw.recv(1) == b"S"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(raw) as secure:
        secure.sendall(_startup(user="ada", database="hub"))
        assert secure.recv(1) == b"R"


def _open(dsn: str, count: int, opened: list[psycopg.Connection[Any]]) -> None:
    for _ in range(count):
        opened.append(connected(dsn, sslmode="disable"))


def test_two_hundred_connections_are_answered_and_more_refused(served: Settings, dsn: str) -> None:
    opened: list[psycopg.Connection[Any]] = []
    try:
        _open(dsn, 200, opened)
        for connection in opened[::20]:
            assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)
        with pytest.raises(psycopg.OperationalError, match="are the most|is the most"):
            _open(dsn, 40, opened)
    finally:
        for connection in opened:
            connection.close()
    deadline = time.monotonic() + patient(20.0)
    while True:
        try:
            connected(dsn).close()
            break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
