"""[edge] SQLAlchemy, sqlite3 and psycopg: the databases that a query runs in, and their limits."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson
from sqlalchemy import Connection, Engine, FromClause, create_engine, event, select
from sqlalchemy.pool import NullPool, QueuePool

from hub.masking.shape import OPEN, Visibility
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import Compiled
from hub.materializers.queries.running import MOST_BYTES, RunningQuery
from hub.materializers.queries.sqlite_functions import prepare
from hub.materializers.stores.sql.tables import ViewTable

# Rows of a view that a query over events copies where the store is not SQLite.
MOST_COPIED = 100_000
_FETCH = 200


@dataclass(frozen=True, slots=True)
class EventTable:
    """Recent events of a topic as a table. ``columns`` and ``hidden`` map name to kind; rows have both.

    ``read_as``: id of the topic's newest schema, which gives column names and defaults; None without a
    schema. ``shape``, ``refused`` and ``blank``: see masked_relations.masked_events.
    ``whole``: the whole topic is read. ``placed``: a row begins with the number of its place.
    """

    name: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str]
    rows: Iterable[Sequence[Any]] = ()
    read_as: int | None = None
    shape: Visibility = OPEN
    refused: frozenset[str] = frozenset()
    blank: frozenset[str] = frozenset()
    whole: bool = False
    placed: bool = False


def set_time_limit(connection: Connection, running: RunningQuery) -> None:
    left_ms = max(1, int((running.deadline - time.monotonic()) * 1000))
    for setting, value in (
        ("statement_timeout", str(left_ms)),
        ("lock_timeout", str(left_ms)),
        ("max_parallel_workers_per_gather", "0"),
        ("timezone", "'UTC'"),
    ):
        connection.exec_driver_sql(f"SET LOCAL {setting} = {value}")


def guarded(ready: Compiled, limit: int) -> str:
    """Limit the statement to ``limit + 1`` rows in the same order, nested values as text.

    Postgres fails on a row larger than ``MOST_BYTES`` before it sends that row.
    """
    names = [f'"c{number}"' for number in range(len(ready.columns))]
    shown = [
        f"CAST({name} AS TEXT)" if column.kind == "json" else name
        for name, column in zip(names, ready.columns, strict=True)
    ]
    size = 'octet_length(CAST("hub_row" AS TEXT))'
    return (
        f'SELECT {", ".join(shown)} FROM ({ready.sql}) AS "hub_row" ({", ".join(names)}) '
        f"WHERE CASE WHEN {size} > {MOST_BYTES} THEN CAST('a row of ' || {size} AS INTEGER) = 0 ELSE TRUE "
        f"END LIMIT {limit + 1}"
    )


def copy_view(
    connection: Connection, scratch: Connection, view: ViewTable, rows: FromClause, running: RunningQuery
) -> None:
    """Copy a view's live rows into its table in the temporary database: those of now, or as of a time.

    Rows of several times are one table; a version that two of them have is there once.
    """
    names = list(rows.columns.keys())
    query = select(rows).where(rows.c._deleted.is_(False)).limit(MOST_COPIED + 1)
    raw: Any = scratch.connection.driver_connection
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    unique = 'UNIQUE ("key", "_version")'
    raw.execute(f'CREATE TABLE IF NOT EXISTS "{view.table.name}" ({listed}, {unique})')
    marks = ", ".join("?" * len(names))
    count = 0
    streamed = connection.execution_options(stream_results=True, max_row_buffer=_FETCH)
    with streamed.execute(query) as result:
        while page := result.fetchmany(_FETCH):
            if running.over:
                raise running.ended()
            count += len(page)
            if count > MOST_COPIED:
                raise SqlError(
                    f'view "{view.name}" has more than {MOST_COPIED} rows: too many to copy '
                    "for a query with events",
                    hint="ask the topic first, then the view with the keys that came out",
                    code="HUB-1451",
                )
            plain = [[_stored_value(value) for value in row] for row in page]
            raw.executemany(f'INSERT OR IGNORE INTO "{view.table.name}" VALUES ({marks})', plain)


def _stored_value(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


def sqlite_reader(path: str) -> Engine:
    """Return an engine whose connections can only read the file."""
    uri = f"file:{quote(path)}?mode=ro"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=30, check_same_thread=False, isolation_level=None)
        prepare(connection)
        connection.execute("PRAGMA query_only=ON")
        return connection

    return _begins(
        create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=4, max_overflow=4)
    )


def scratch_engine(beside: str | None) -> Engine:
    """Return an engine with a temporary database per connection, and the store attached read-only."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect("", uri=True, check_same_thread=False, isolation_level=None)
        prepare(connection)
        connection.execute("PRAGMA journal_mode=OFF")
        if beside is not None:
            connection.execute("ATTACH ? AS store", (f"file:{quote(beside)}?mode=ro",))
        return connection

    return _begins(create_engine("sqlite://", creator=connect, poolclass=NullPool))


def _begins(engine: Engine) -> Engine:
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def load_events(scratch: Connection, events: Sequence[EventTable], running: RunningQuery) -> None:
    """Load events into the tables events_0, events_1, … of the temporary database."""
    raw: Any = scratch.connection.driver_connection
    for number, table in enumerate(events):
        names = [*table.columns, *table.hidden]
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        raw.execute(f'CREATE TABLE "events_{number}" ({listed})')
        marks = ", ".join("?" * (len(names) + table.placed))
        if table.placed:
            listed = f"{_rowid(names)}, {listed}"
        raw.executemany(f'INSERT OR IGNORE INTO "events_{number}" ({listed}) VALUES ({marks})', table.rows)
        if running.over:
            raise running.ended()


def _rowid(names: Sequence[str]) -> str:
    """Return a name of SQLite's row number that no column has."""
    taken = {each.lower() for each in names}
    return next(each for each in ("rowid", "_rowid_", "oid") if each not in taken)
