"""Push queries and statements about views by Postgres' protocol: psycopg against a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pg_server import PgHub, served_pg

from hub.record import NewRecord


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[PgHub]:
    with served_pg(tmp_path) as served:
        yield served


def connected(hub: PgHub, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1", port=hub.port, dbname="hub", **{"user": "ada", "autocommit": True, **more}
    )


EVENTS = (
    "SELECT _value->>'n' AS n FROM topics.\"shop.orders\" WHERE _offset >= %s EMIT CHANGES FROM BEGINNING"
)


def test_a_select_ends_at_its_limit(hub: PgHub) -> None:
    with connected(hub) as connection:
        assert connection.execute(f"{EVENTS} LIMIT 2", (2,)).fetchall() == [("2",), ("3",)]
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_copy_streams_events_as_they_are_written_until_it_is_cancelled(hub: PgHub) -> None:
    copied: list[tuple[Any, ...]] = []

    def copy_all(connection: psycopg.Connection[Any]) -> None:
        with connection.cursor().copy(f"COPY ({EVENTS % 3}) TO STDOUT") as copy:  # type: ignore[arg-type]
            for row in copy.rows():
                copied.append(row)
                if len(copied) == 2:
                    hub.cluster.writer().append([NewRecord("shop.orders", b"k", b'{"n": 5}')])
                if len(copied) == 3:
                    # As Ctrl-C in psql. cancel() would stop the server too, which is in this process.
                    connection.cancel_safe()

    with connected(hub) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled):
            copy_all(connection)
        assert copied == [("3",), ("4",), ("5",)]
        assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)


def test_rows_of_a_view_have_their_change_and_key(hub: PgHub) -> None:
    asked = "SELECT city, n FROM public.plant WHERE n < 2 EMIT CHANGES FROM BEGINNING LIMIT 2"
    with connected(hub) as connection:
        cursor = connection.execute(asked)
        assert cursor.description is not None
        assert [each.name for each in cursor.description] == ["_change", "_key", "city", "n"]
        assert sorted(cursor.fetchall()) == [("upsert", "p0", "Oslo", 0), ("upsert", "p1", "Rome", 1)]


def test_a_cursor_returns_the_rows_that_are_there(hub: PgHub) -> None:
    with connected(hub, autocommit=False) as connection:
        connection.execute("DECLARE changes CURSOR FOR SUBSCRIBE TO plant")
        first = connection.execute("FETCH 4 FROM changes").fetchall()
        rest = connection.execute("FETCH FORWARD 100 FROM changes").fetchall()
        assert (len(first), len(rest)) == (4, 6)
        assert {row[0] for row in (*first, *rest)} == {"upsert"}
        assert connection.execute("FETCH 100 FROM changes").fetchall() == []
        connection.execute("CLOSE changes")
        assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)


def test_statements_about_views_answer_rows(hub: PgHub) -> None:
    with connected(hub) as connection:
        assert [row[0] for row in connection.execute("SHOW VIEWS LIKE 'pl%'").fetchall()] == ["plant"]
        assert ("city", "string", "") in connection.execute("DESCRIBE plant").fetchall()
        assert ("reads view", "plant") in connection.execute("EXPLAIN SELECT n FROM plant").fetchall()
        create = 'CREATE MATERIALIZED VIEW own KEY (id) AS SELECT id FROM "shop.orders"'
        assert ("done", "created") in connection.execute(create).fetchall()
        assert (hub.folder / "views" / "own.yaml").exists()
        assert ("done", "dropped") in connection.execute("DROP MATERIALIZED VIEW own").fetchall()


@pytest.mark.parametrize(
    ("sql", "state", "place"),
    [
        ("SELECT count(*) FROM plant EMIT CHANGES", None, True),
        ("SELECT nope FROM plant EMIT CHANGES", "42703", True),
        ("CREATE MATERIALIZED VIEW x AS SELECT a FROM nowhere", "42P01", False),
        ("CREATE TABLE x (a int)", "25006", False),
    ],
)
def test_errors_have_their_place_and_the_connection_goes_on(
    hub: PgHub, sql: str, state: str | None, place: bool
) -> None:
    with connected(hub) as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(sql)  # type: ignore[arg-type]
        assert (refused.value.diag.statement_position is not None) == place
        assert state is None or refused.value.sqlstate == state
        assert connection.execute("SELECT 1").fetchone() == (1,)
