"""[edge] SQLAlchemy, sqlite3 and psycopg: run a query over the store's views and over recent events.

Each query is one read transaction, so view definitions, rows and covered positions are of one moment. SQLite
uses a read-only connection with restricted functions (sqlite_functions.py), interrupted from its progress
handler. Postgres uses a read-only transaction with a statement timeout. Both return rows one at a time.
Events are rows of a temporary SQLite database that lives as long as the query; the store is attached to it
(SQLite), or the views that the query needs are copied into it (Postgres, within a limit).

Limits: rows and bytes of an answer, time, and concurrent queries (which the caller of ``run`` enforces).
Postgres limits its own memory; it refuses a row larger than an answer may be before that row is sent.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from hub.caller import reads_all, sees_view
from hub.errors import NotFound, PeerError
from hub.materializers.queries.compiler import (
    MOST_ROWS,
    Compiled,
    OutputColumn,
    QueryRelation,
    Value,
    compile_query,
    tables_of,
)
from hub.materializers.queries.parser import ParsedStatement, SqlError
from hub.materializers.queries.sqlite_functions import LONGEST, fence, prepare, unfence
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.columns import from_sql, plain_type
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql_store import Store
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

MOST_BYTES = 16_000_000
# Rows of a view that a query over events copies where the store is not SQLite.
MOST_COPIED = 100_000
_STEPS = 2_000
_FETCH = 200

NO_CUT = CommonSnapshot(None, why="no view is read")
# Events are read up to the present.
EVENTS = CommonSnapshot(None, why="events of topics are at no cut of views")

KINDS: Mapping[str, str] = {
    "int": "long",
    "float": "double",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
}
_SHOWN: Mapping[str, Callable[[Any], Any] | None] = {
    "timestamp": from_sql({"type": "long", "logicalType": "timestamp-millis"}),
    "date": from_sql({"type": "int", "logicalType": "date"}),
    "bytes": lambda value: bytes(value).hex(),
    "json": lambda value: orjson.loads(value) if isinstance(value, str | bytes) else value,
    "boolean": bool,
    "long": lambda value: _whole(value),
    "double": float,
    "decimal": str,
}


def kind_of(avro_type: AvroType) -> str:
    """Return the kind (functions.Piece) of a column of this type."""
    name = plain_type(avro_type)
    return KINDS.get(name, name)


@dataclass(frozen=True, slots=True)
class EventTable:
    """Recent events of a topic as a table. ``columns`` and ``hidden`` map name to kind; rows have both.

    ``read_as``: id of the topic's newest schema, which gives column names and defaults; None without a
    schema.
    """

    name: str
    columns: Mapping[str, str]
    hidden: Mapping[str, str]
    rows: Iterable[Sequence[Any]] = ()
    read_as: int | None = None


@dataclass(frozen=True, slots=True)
class CoveredPositions:
    """Positions that the views of a query cover, and their common snapshot if they are at one."""

    positions: Positions
    cut: CommonSnapshot


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """Rows of an answer. ``more``: there are more than the limit, or than an answer may have bytes."""

    columns: tuple[OutputColumn, ...]
    rows: list[list[Any]]
    more: bool
    views: tuple[str, ...]
    positions: Positions
    cut: CommonSnapshot = NO_CUT


@dataclass(slots=True)
class RunningQuery:
    """A running query: its time limit, and a way to stop it from another thread."""

    deadline: float
    cancelled: bool = False
    interrupt: Callable[[], None] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self.interrupt is not None:
                self.interrupt()

    @property
    def over(self) -> bool:
        return self.cancelled or time.monotonic() > self.deadline

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self.interrupt = interrupt
        try:
            if self.over:
                raise self.ended()
            yield
        finally:
            with self._lock:
                self.interrupt = None

    def ended(self) -> SqlError:
        if self.cancelled:
            return SqlError("the query was cancelled", code="HUB-1449")
        return SqlError(
            "the query took too long and was stopped",
            hint="ask for less (WHERE on a declared index, LIMIT), or allow more with timeout_ms",
            code="HUB-1448",
        )


class _Tables:
    """Catalog of one query: the store's views as of its transaction, and the events that were read."""

    def __init__(self, store: Store, connection: Connection, events: Sequence[EventTable]) -> None:
        self.used: dict[str, ViewTable] = {}
        self._store = store
        self._connection = connection
        self.events = {each.name: (number, each) for number, each in enumerate(events)}

    def relation(self, name: str) -> QueryRelation | None:
        if name in self.events:
            number, events = self.events[name]
            return QueryRelation(name, "topic", f'"events_{number}"', events.columns, events.hidden)
        if name not in self.used:
            try:
                self.used[name] = self._store.catalog.definition(self._connection, name)
            except NotFound:
                return None
            reads_all(views=[name])
        return view_relation(self.used[name])

    def names(self) -> Iterable[str]:
        return [*filter(sees_view, self._store.catalog.view_names(self._connection)), *self.events]


def view_relation(view: ViewTable) -> QueryRelation:
    """Return a view's live rows as a table of a query."""
    table = view.table.name
    source = f'(SELECT *, "_applied_at_ms" AS "_applied_at" FROM "{table}" WHERE NOT "_deleted")'
    columns = {"key": "string", **{name: kind_of(each) for name, each in view.types.items()}}
    return QueryRelation(view.name, "view", source, columns, {"_version": "long", "_applied_at": "timestamp"})


class QueryExecutor:
    """Read-only queries over one store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._postgres = store.engine.dialect.name == "postgresql"
        self._reader: Engine
        if self._postgres:
            self._reader = store.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        else:
            self._reader = _sqlite_reader(store.engine.url.database or "")
        self._scratch = _scratch_engine(None if self._postgres else store.engine.url.database)

    def close(self) -> None:
        if not self._postgres:
            self._reader.dispose()

    def views(self) -> list[tuple[QueryRelation, tuple[str, ...]]]:
        """Return every view as a table, with its declared indexes."""
        with self._errors(None), self._reader.connect() as connection:
            found = [
                self._store.catalog.definition(connection, name)
                for name in self._store.catalog.view_names(connection)
            ]
        return [(view_relation(each), each.indexes) for each in found]

    def run(
        self,
        statement: ParsedStatement,
        parameters: Mapping[str, Value],
        running: RunningQuery,
        *,
        limit: int = MOST_ROWS,
        now_ms: int,
        events: Sequence[EventTable] = (),
        at_a_cut: bool = False,
    ) -> QueryAnswer:
        """Return at most ``limit`` rows of the statement. Blocks; ``running`` stops it.

        ``at_a_cut``: when the views have no common snapshot in the transaction, return no rows and the reason
        in ``cut``.

        Raises SqlError (with the place, or HUB-1448 for the time), PeerError when the store does not answer.
        """

        def compiled(tables: _Tables, postgres: bool) -> Compiled:
            return compile_query(statement, tables, postgres=postgres, parameters=parameters, now_ms=now_ms)

        if not events:
            with self._errors(running), self._reader.connect() as connection:
                tables = _Tables(self._store, connection, ())
                ready = compiled(tables, self._postgres)
                if self._postgres:
                    _timed(connection, running)
                covered = self._covered(connection, tables)
                if at_a_cut and not covered.cut.together:
                    return QueryAnswer(
                        ready.columns, [], False, (*tables.used,), covered.positions, covered.cut
                    )
                if self._postgres:
                    return self._on_postgres(connection, tables, ready, running, limit, covered)
                return self._on_sqlite(connection, tables, ready, running, limit, covered)
        with self._errors(running), self._scratch.connect() as scratch:
            if not self._postgres:
                _load(scratch, events, running)
                tables = _Tables(self._store, scratch, events)
                ready = compiled(tables, False)
                return self._on_sqlite(scratch, tables, ready, running, limit, self._covered(scratch, tables))
            with self._reader.connect() as connection:
                _timed(connection, running)
                tables = _Tables(self._store, connection, events)
                ready = compiled(tables, False)
                covered = self._covered(connection, tables)
                for view in tables.used.values():
                    _copy(connection, scratch, view, running)
            _load(scratch, events, running)
            return self._on_sqlite(scratch, tables, ready, running, limit, covered)

    def check(
        self,
        statement: ParsedStatement,
        parameters: Mapping[str, Value],
        now_ms: int,
        events: Sequence[EventTable],
    ) -> None:
        """Raise SqlError for a statement that ``run`` would refuse, before events are read for it."""
        with self._errors(None), self._reader.connect() as connection:
            tables = _Tables(self._store, connection, events)
            compile_query(statement, tables, postgres=False, parameters=parameters, now_ms=now_ms)

    def view_names(self) -> list[str]:
        with self._errors(None), self._reader.connect() as connection:
            return self._store.catalog.view_names(connection)

    def views_of(self, statement: ParsedStatement) -> list[str]:
        """Return the views among the statement's tables."""
        known = set(self.view_names())
        return [
            name if name in known else name.lower()
            for name in tables_of(statement)
            if name in known or name.lower() in known
        ]

    def _covered(self, connection: Connection, tables: _Tables) -> CoveredPositions:
        """Return the positions that every view of the query covers: the minimum of each partition."""
        least: dict[Any, int] = {}
        for name in tables.used:
            for tp, offset in self._store.catalog.covered(connection, name):
                least[tp] = min(offset, least.get(tp, offset))
        if tables.events:
            return CoveredPositions(Positions(least), EVENTS)
        return CoveredPositions(
            Positions(least), self._store.catalog.common_snapshot(connection, tables.used)
        )

    def _on_sqlite(
        self,
        connection: Connection,
        tables: _Tables,
        ready: Compiled,
        running: RunningQuery,
        limit: int,
        covered: CoveredPositions,
    ) -> QueryAnswer:
        raw: Any = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        used = [each.table.name for each in tables.used.values()]
        fence(raw, frozenset([*used, *(f"events_{number}" for number in range(len(tables.events)))]))
        raw.set_progress_handler(lambda: running.over, _STEPS)
        try:
            with running.interruptible(raw.interrupt), closing(raw.cursor()) as cursor:
                cursor.execute(ready.sql, dict(ready.parameters))
                rows, more = _taken(cursor, ready.columns, running, limit)
        except sqlite3.Error as error:
            raise _refused(running, str(error)) from None
        finally:
            unfence(raw)
        return QueryAnswer(ready.columns, rows, more, tuple(tables.used), covered.positions, covered.cut)

    def _on_postgres(
        self,
        connection: Connection,
        tables: _Tables,
        ready: Compiled,
        running: RunningQuery,
        limit: int,
        covered: CoveredPositions,
    ) -> QueryAnswer:
        raw: Any = connection.connection.driver_connection
        streamed = raw.cursor().stream(_guarded(ready, limit), dict(ready.parameters))
        with running.interruptible(raw.cancel), closing(streamed):
            rows, more = _taken(streamed, ready.columns, running, limit)
        return QueryAnswer(ready.columns, rows, more, tuple(tables.used), covered.positions, covered.cut)

    @contextmanager
    def _errors(self, running: RunningQuery | None) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, psycopg.Error) as error:
            theirs = error.orig if isinstance(error, DBAPIError) else error
            said = str(theirs).split("\n")[0]
            state = str(getattr(theirs, "sqlstate", None) or "")
            if running is not None and (state == "57014" or running.over):
                raise running.ended() from None
            # 22: data, 42: the statement, 53/54: a limit of Postgres
            if running is not None and state[:2] in ("22", "42", "53", "54", "21"):
                raise _refused(running, said) from None
            raise self._away(said) from error
        except SQLAlchemyError as error:
            raise self._away(str(error).split("\n")[0]) from error

    def _away(self, said: str) -> PeerError:
        named = self._store.engine.url.render_as_string(hide_password=True)
        return PeerError(
            f'store "{named}": {said}',
            hint="is the database there and is there room on its disk?",
            code="HUB-3040",
        )


def _taken(
    rows: Iterable[Sequence[Any]],
    columns: Sequence[OutputColumn],
    running: RunningQuery,
    limit: int,
) -> tuple[list[list[Any]], bool]:
    """Return rows in display form, and whether there are more. Checks each row before it fetches the next."""
    converts = [_SHOWN.get(column.kind) for column in columns]
    taken: list[list[Any]] = []
    weight = 0
    for row in rows:
        if running.over:
            raise running.ended()
        weight += 16 * len(row) + sum(len(value) for value in row if isinstance(value, str | bytes))
        if weight > MOST_BYTES and not taken:
            raise _too_large("row")
        if len(taken) == limit or weight > MOST_BYTES:
            return taken, True
        taken.append(
            [
                value if value is None or convert is None else convert(value)
                for value, convert in zip(row, converts, strict=True)
            ]
        )
    return taken, False


def _too_large(what: str) -> SqlError:
    return SqlError(
        f"a {what} of the answer is larger than {MOST_BYTES} bytes",
        hint="take part of it: fewer columns, left(…, n)",
        code="HUB-1448",
    )


def _whole(value: Any) -> int:
    if isinstance(value, float):  # SQLite continues in floating point after an overflow
        raise SqlError("a whole number of the answer does not fit 64 bits", code="HUB-1445")
    return int(value)


def _refused(running: RunningQuery, said: str) -> SqlError:
    if running.over or "interrupted" in said:
        return running.ended()
    if "too big" in said:
        return _too_large("value")
    if "a row of" in said:
        return _too_large("row")
    if "user-defined function" in said:
        return SqlError("what is looked for in a text is too long", hint=LONGEST, code="HUB-1448")
    return SqlError(
        f"the database refuses: {said[:300]}", hint="the message is the database's own", code="HUB-1450"
    )


# ---- Postgres


def _timed(connection: Connection, running: RunningQuery) -> None:
    left_ms = max(1, int((running.deadline - time.monotonic()) * 1000))
    for setting, value in (
        ("statement_timeout", str(left_ms)),
        ("lock_timeout", str(left_ms)),
        ("max_parallel_workers_per_gather", "0"),
        ("timezone", "'UTC'"),
    ):
        connection.exec_driver_sql(f"SET LOCAL {setting} = {value}")


def _guarded(ready: Compiled, limit: int) -> str:
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
        f"WHERE CASE WHEN {size} > {MOST_BYTES} THEN CAST('a row of ' || {size} AS INTEGER) = 0 ELSE TRUE END "
        f"LIMIT {limit + 1}"
    )


def _copy(connection: Connection, scratch: Connection, view: ViewTable, running: RunningQuery) -> None:
    """Copy a view's live rows into the temporary database."""
    names = list(view.table.columns.keys())
    query = select(view.table).where(view.table.c._deleted.is_(False)).limit(MOST_COPIED + 1)
    raw: Any = scratch.connection.driver_connection
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    raw.execute(f'CREATE TABLE "{view.table.name}" ({listed})')
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
                    f'view "{view.name}" has more than {MOST_COPIED} rows: too many to copy beside events',
                    hint="ask the topic first, then the view with the keys that came out",
                    code="HUB-1451",
                )
            plain = [[_stored_value(value) for value in row] for row in page]
            raw.executemany(f'INSERT INTO "{view.table.name}" VALUES ({marks})', plain)


def _stored_value(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


# ---- SQLite


def _sqlite_reader(path: str) -> Engine:
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


def _scratch_engine(beside: str | None) -> Engine:
    """Return an engine with a temporary database per connection, and ``beside`` attached read-only."""

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


def _load(scratch: Connection, events: Sequence[EventTable], running: RunningQuery) -> None:
    """Load events into the tables events_0, events_1, … of the temporary database."""
    raw: Any = scratch.connection.driver_connection
    for number, table in enumerate(events):
        names = [*table.columns, *table.hidden]
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        raw.execute(f'CREATE TABLE "events_{number}" ({listed})')
        marks = ", ".join("?" * len(names))
        raw.executemany(f'INSERT INTO "events_{number}" VALUES ({marks})', table.rows)
        if running.over:
            raise running.ended()
