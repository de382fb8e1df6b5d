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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from hub.caller import reads_all, reads_view, sees_view, view_visibility
from hub.errors import HubError, NotFound, PeerError
from hub.materializers.queries.compiler import compile_query
from hub.materializers.queries.databases import (
    EventTable,
    copy_view,
    guarded,
    load_events,
    scratch_engine,
    set_time_limit,
    sqlite_reader,
)
from hub.materializers.queries.inspection import tables_of
from hub.materializers.queries.masked_relations import masked_view
from hub.materializers.queries.parser import ParsedStatement
from hub.materializers.queries.relations import Compiled, QueryRelation, Value
from hub.materializers.queries.running import (
    EVENTS,
    MOST_ROWS,
    CoveredPositions,
    QueryAnswer,
    RunningQuery,
    TakeRows,
    refusal,
    take_rows,
)
from hub.materializers.queries.sqlite_functions import fence, unfence
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql.history_reads import as_of
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql_store import Store
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

_STEPS = 2_000
KINDS: Mapping[str, str] = {
    "int": "long",
    "float": "double",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
}


def kind_of(avro_type: AvroType) -> str:
    """Return the kind (functions.Piece) of a column of this type."""
    name = plain_type(avro_type)
    return KINDS.get(name, name)


class _Tables:
    """Catalog of one query: the store's views as of its transaction, and the events that were read."""

    def __init__(
        self,
        store: Store,
        connection: Connection,
        events: Sequence[EventTable],
        now_ms: int,
        *,
        postgres: bool,
    ) -> None:
        self._postgres = postgres
        self._now_ms = now_ms
        self.used: dict[str, ViewTable] = {}
        # Versions of rows that the query reads, by view and time.
        self.as_of: dict[tuple[str, int], ViewTable] = {}
        self._store = store
        self._connection = connection
        self.events = {each.name: (number, each) for number, each in enumerate(events)}

    def relation(self, name: str, at_ms: int | None = None) -> QueryRelation | None:
        if name in self.events:
            number, events = self.events[name]
            source = f'"events_{number}"'
            if at_ms is not None:
                source = f'(SELECT * FROM {source} WHERE "_timestamp" <= {int(at_ms)})'
            return QueryRelation(name, "topic", source, events.columns, events.hidden, events.refused)
        if name not in self.used:
            try:
                self.used[name] = self._store.catalog.definition(self._connection, name)
            except NotFound:
                return None
            reads_all(views=[name])
        if at_ms is None:
            relation = view_relation(self.used[name])
        else:
            if (name, at_ms) not in self.as_of:
                at = (self._connection, name, at_ms, self._now_ms)
                self.as_of[name, at_ms] = self._store.history.table_at(*at)
            relation = relation_as_of(self.as_of[name, at_ms], at_ms)
        return masked_view(relation, view_visibility(name), postgres=self._postgres)

    @property
    def read_tables(self) -> list[str]:
        """Names of the store's tables that the query reads."""
        return [each.table.name for each in (*self.used.values(), *self.as_of.values())]

    def names(self) -> Iterable[str]:
        return [*filter(sees_view, self._store.catalog.view_names(self._connection)), *self.events]


def view_relation(view: ViewTable) -> QueryRelation:
    """Return a view's live rows as a table of a query."""
    table = view.table.name
    source = f'(SELECT *, "_applied_at_ms" AS "_applied_at" FROM "{table}" WHERE NOT "_deleted")'
    columns = {"key": "string", **{name: kind_of(each) for name, each in view.types.items()}}
    return QueryRelation(view.name, "view", source, columns, {"_version": "long", "_applied_at": "timestamp"})


def relation_as_of(view: ViewTable, at_ms: int) -> QueryRelation:
    """Return the rows of a view as of a time as a table of a query. ``view``: its table of versions."""
    table, at = view.table.name, int(at_ms)
    later = (
        f'SELECT 1 FROM "{table}" AS "later" WHERE "later"."key" = "one"."key" '
        f'AND "later"."_version" > "one"."_version" AND "later"."_at_ms" <= {at}'
    )
    source = (
        f'(SELECT "one".*, "_applied_at_ms" AS "_applied_at", "_at_ms" AS "_valid_from" '
        f'FROM "{table}" AS "one" WHERE "_at_ms" <= {at} AND NOT "_deleted" AND NOT EXISTS ({later}))'
    )
    columns = {"key": "string", **{name: kind_of(each) for name, each in view.types.items()}}
    hidden = {"_version": "long", "_applied_at": "timestamp", "_valid_from": "timestamp"}
    return QueryRelation(view.name, "view", source, columns, hidden)


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
            self._reader = sqlite_reader(store.engine.url.database or "")
        self._scratch = scratch_engine(None if self._postgres else store.engine.url.database)

    def close(self) -> None:
        if not self._postgres:
            self._reader.dispose()

    def views(self) -> list[tuple[QueryRelation, tuple[str, ...]]]:
        """Return every view as a table, with its declared indexes."""
        with self._errors(None), self._reader.connect() as connection:
            view_tables = [
                self._store.catalog.definition(connection, name)
                for name in self._store.catalog.view_names(connection)
            ]
        return [(self._visible(view_relation(each)), each.indexes) for each in view_tables]

    def _visible(self, relation: QueryRelation) -> QueryRelation:
        """Return a view's columns as the caller's queries have them; as declared where that is not known."""
        if not reads_view(relation.name):
            return relation
        try:
            return masked_view(relation, view_visibility(relation.name), postgres=self._postgres)
        except HubError:
            return relation

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
        take: TakeRows = take_rows,
    ) -> QueryAnswer:
        """Return at most ``limit`` rows of the statement. Blocks; ``running`` stops it.

        ``take`` gets the rows as the database has them, and returns those of the answer.

        ``at_a_cut``: when the views have no common snapshot in the transaction, return no rows and the reason
        in ``cut``.

        Raises SqlError (with the place, or HUB-1472 for the time), PeerError when the store does not answer.
        """

        def compiled(tables: _Tables, postgres: bool) -> Compiled:
            return compile_query(statement, tables, postgres=postgres, parameters=parameters, now_ms=now_ms)

        if not events:
            with self._errors(running), self._reader.connect() as connection:
                tables = _Tables(self._store, connection, (), now_ms, postgres=self._postgres)
                ready = compiled(tables, self._postgres)
                if self._postgres:
                    set_time_limit(connection, running)
                covered = self._covered(connection, tables)
                if at_a_cut and not covered.cut.together:
                    return QueryAnswer(
                        ready.columns, [], False, (*tables.used,), covered.positions, covered.cut
                    )
                if self._postgres:
                    return self._on_postgres(connection, tables, ready, running, limit, covered, take)
                return self._on_sqlite(connection, tables, ready, running, limit, covered, take)
        return self._with_events(compiled, running, limit, events, now_ms, take)

    def _with_events(
        self,
        compiled: Callable[[_Tables, bool], Compiled],
        running: RunningQuery,
        limit: int,
        events: Sequence[EventTable],
        now_ms: int,
        take: TakeRows,
    ) -> QueryAnswer:
        """``run()`` over events and views, in a temporary database."""
        with self._errors(running), self._scratch.connect() as scratch:
            if not self._postgres:
                load_events(scratch, events, running)
                tables = _Tables(self._store, scratch, events, now_ms, postgres=False)
                ready = compiled(tables, False)
                covered = self._covered(scratch, tables)
                return self._on_sqlite(scratch, tables, ready, running, limit, covered, take)
            with self._reader.connect() as connection:
                set_time_limit(connection, running)
                tables = _Tables(self._store, connection, events, now_ms, postgres=False)
                ready = compiled(tables, False)
                covered = self._covered(connection, tables)
                for view in tables.used.values():
                    copy_view(connection, scratch, view, view.table, running)
                for (_, at_ms), view in tables.as_of.items():
                    copy_view(connection, scratch, view, as_of(view.table, at_ms), running)
            load_events(scratch, events, running)
            return self._on_sqlite(scratch, tables, ready, running, limit, covered, take)

    def check(
        self,
        statement: ParsedStatement,
        parameters: Mapping[str, Value],
        now_ms: int,
        events: Sequence[EventTable],
    ) -> Compiled:
        """Return the compiled statement, which is not run.

        Raises SqlError for a statement that ``run`` would refuse, before events are read for it.
        """
        with self._errors(None), self._reader.connect() as connection:
            tables = _Tables(self._store, connection, events, now_ms, postgres=False)
            return compile_query(statement, tables, postgres=False, parameters=parameters, now_ms=now_ms)

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
        take: TakeRows,
    ) -> QueryAnswer:
        raw: Any = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        events = (f"events_{number}" for number in range(len(tables.events)))
        fence(raw, frozenset([*tables.read_tables, *events]))
        raw.set_progress_handler(lambda: running.over, _STEPS)
        try:
            with running.interruptible(raw.interrupt), closing(raw.cursor()) as cursor:
                cursor.execute(ready.sql, dict(ready.parameters))
                rows, more = take(cursor, ready.columns, running, limit)
        except sqlite3.Error as error:
            raise refusal(running, str(error)) from None
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
        take: TakeRows,
    ) -> QueryAnswer:
        raw: Any = connection.connection.driver_connection
        streamed = raw.cursor().stream(guarded(ready, limit), dict(ready.parameters))
        with running.interruptible(raw.cancel), closing(streamed):
            rows, more = take(streamed, ready.columns, running, limit)
        return QueryAnswer(ready.columns, rows, more, tuple(tables.used), covered.positions, covered.cut)

    @contextmanager
    def _errors(self, running: RunningQuery | None) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, psycopg.Error) as error:
            theirs = error.orig if isinstance(error, DBAPIError) else error
            message = str(theirs).split("\n")[0]
            state = str(getattr(theirs, "sqlstate", None) or "")
            if running is not None and (state == "57014" or running.over):
                raise running.ended() from None
            # 22: data, 42: the statement, 53/54: a limit of Postgres
            if running is not None and state[:2] in ("22", "42", "53", "54", "21"):
                raise refusal(running, message) from None
            raise self._away(message) from error
        except SQLAlchemyError as error:
            raise self._away(str(error).split("\n")[0]) from error

    def _away(self, message: str) -> PeerError:
        named = self._store.engine.url.render_as_string(hide_password=True)
        return PeerError(
            f'store "{named}": {message}',
            hint="is the database there and is there room on its disk?",
            code="HUB-3040",
        )
