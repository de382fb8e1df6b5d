"""[edge] DuckDB: catalogs in memory, one for callers who see the same.

A catalog's database is read-only for its callers by what is let through (rewrite.py); it has no files and no
network, 64 MB and one thread. Queries end with their time limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hub.caller import CALLER, reads_view, sees_topic, sees_view
from hub.errors import HubError
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import ParsedStatement, parse
from hub.materializers.queries.relations import Value
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.saved_queries import load_queries, readable
from hub.pgwire.catalog import layout, macros
from hub.pgwire.catalog.rewrite import CatalogSession, catalog_sql
from hub.pgwire.catalog.rows import catalog_rows
from hub.pgwire.catalog.snapshot import (
    QUERIES,
    TOPICS,
    VIEWS,
    CatalogColumn,
    CatalogQuery,
    CatalogSnapshot,
    CatalogTable,
)
from hub.pgwire.protocol.backend import Field
from hub.pgwire.protocol.frontend import format_of
from hub.pgwire.results import ResultSpool
from hub.pgwire.sqlstates import PgError
from hub.pgwire.values import types as t
from hub.pgwire.values.decode import Items

_MOST_CATALOGS, _MOST_TOPICS = 8, 500
# A topic's columns are read from the registry again after this long.
_TOPICS_S = 30.0
_FETCH = 500
_OIDS = {
    "BOOLEAN": t.BOOL,
    "TINYINT": t.INT2,
    "SMALLINT": t.INT2,
    "INTEGER": t.INT4,
    "BIGINT": t.INT8,
    "HUGEINT": t.NUMERIC,
    "UBIGINT": t.NUMERIC,
    "UINTEGER": t.OID,
    "FLOAT": t.FLOAT4,
    "DOUBLE": t.FLOAT8,
    "DATE": t.DATE,
    "TIMESTAMP": t.TIMESTAMPTZ,  # all of them are in UTC
    "BLOB": t.BYTEA,
    "UUID": t.UUID,
}


@dataclass(slots=True)
class Catalogs:
    """Catalogs of a server, made of the tables that the query service can read. Thread-safe."""

    service: QueryService
    _made: dict[CatalogSnapshot, Any] = field(default_factory=dict)
    _topics: dict[str, tuple[float, tuple[CatalogColumn, ...]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        statement: ParsedStatement,
        values: Sequence[Value | Items],
        session: CatalogSession,
        running: RunningQuery,
        spool: ResultSpool,
    ) -> None:
        """Write the rows of a query over catalogs. Blocks. Raises PgError, SqlError, HubError."""
        sql = catalog_sql(statement, values, session)
        cursor = self._database().cursor()
        timer = threading.Timer(max(0.01, running.deadline - time.monotonic()), cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            with running.interruptible(cursor.interrupt):
                result = _executed(cursor, sql, running)
                fields = _fields(result.description, spool.formats)
                spool.write(_rows(result), fields, running)
        finally:
            timer.cancel()
            cursor.close()

    def describe(
        self, statement: ParsedStatement, samples: Sequence[Value | Items], session: CatalogSession
    ) -> list[Field]:
        """Return the columns of a query over catalogs. Blocks."""
        sql = catalog_sql(statement, samples, session)
        cursor = self._database().cursor()
        try:
            running = RunningQuery(time.monotonic() + 5.0)
            result = _executed(cursor, f"SELECT * FROM ({sql}) AS described LIMIT 0", running)
            return _fields(result.description, ())
        finally:
            cursor.close()

    def _database(self) -> Any:
        snapshot = self.snapshot()
        with self._lock:
            found = self._made.pop(snapshot, None)
            if found is None:
                found = _built(snapshot)
            self._made[snapshot] = found
            while len(self._made) > _MOST_CATALOGS:
                # Its cursors keep a database open until their queries end.
                del self._made[next(iter(self._made))]
            return found

    def snapshot(self) -> CatalogSnapshot:
        """Return what the current caller sees. Blocks."""
        views = [
            CatalogTable(
                VIEWS,
                relation.name,
                "v",
                _columns({**relation.columns, **relation.hidden}),
                "a view of the hub",
            )
            for relation, _ in self.service.queries.views()
            if sees_view(relation.name) and reads_view(relation.name)
        ]
        saved = self._saved()
        queries = [
            CatalogTable(QUERIES, each.name, "v", (), each.doc) for each in saved if not each.parameters
        ]
        return CatalogSnapshot((*views, *self._topic_tables(), *queries), tuple(saved))

    def _saved(self) -> list[CatalogQuery]:
        names = self.service.queries.view_names()
        found = []
        try:
            for each in load_queries(self.service.project):
                if readable(names, each.sql):
                    parameters = tuple(placeholders(parse(each.sql)))
                    found.append(CatalogQuery(each.name, each.doc, each.sql, parameters))
        except HubError:  # a file that cannot be read: the tables are there without it
            return found
        return found

    def _topic_tables(self) -> list[CatalogTable]:
        try:
            names = [each for each in self.service.topics.names() if sees_topic(each)][:_MOST_TOPICS]
        except HubError:  # Kafka is away: views are there without it
            return []
        return [CatalogTable(TOPICS, name, "r", self._columns_of(name), "a topic") for name in sorted(names)]

    def _columns_of(self, topic: str) -> tuple[CatalogColumn, ...]:
        now = time.monotonic()
        caller = CALLER.get()
        is_masked = caller is not None and caller.is_masked
        known = None if is_masked else self._topics.get(topic)
        if known is not None and known[0] > now:
            return known[1]
        try:
            table = self.service.topics.table(topic)
        except HubError:
            return ()
        columns = () if table is None else _columns({**table.columns, **table.hidden})
        if not is_masked:
            self._topics[topic] = (now + _TOPICS_S, columns)
        return columns


def _columns(kinds: dict[str, str]) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(name, t.OID_OF_KIND[kind]) for name, kind in kinds.items())


def _built(snapshot: CatalogSnapshot) -> Any:
    """Return a database with the rows of a snapshot, which cannot reach anything outside."""
    import duckdb

    database = duckdb.connect(":memory:", config={"threads": "1", "memory_limit": "64MB"})
    for sql in layout.definitions():
        database.execute(sql)
    database.execute("CREATE TABLE type_names (oid UINTEGER, spelled VARCHAR)")
    spelled = [(each.oid, t.spelled(each.oid)) for each in t.TYPES]
    spelled += [(each.array, t.spelled(each.array)) for each in t.TYPES if each.array]
    _insert(database, "type_names", [{"oid": oid, "spelled": name} for oid, name in spelled])
    for (schema, table), rows in catalog_rows(snapshot).items():
        _insert(database, layout.stored_name(schema, table), [dict(row) for row in rows])
    for sql in macros.definitions():
        database.execute(sql)
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        database.execute(f"SET {setting}")
    return database


def _insert(made: Any, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        made.register("given", pa.Table.from_pylist(rows))
        made.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        made.unregister("given")


def _executed(cursor: Any, sql: str, running: RunningQuery) -> Any:
    import duckdb

    try:
        return cursor.execute(sql)
    except duckdb.InterruptException:
        raise running.ended() from None
    except duckdb.Error as error:
        if running.over:
            raise running.ended() from None
        raise _refused(str(error)) from None


def _refused(message: str) -> PgError:
    kind, _, text = message.split("\n")[0].partition(": ")
    state = {"Binder Error": "42703", "Catalog Error": "42883", "Conversion Error": "22P02"}.get(
        kind, "0A000"
    )
    return PgError(
        "42601" if kind == "Parser Error" else state,
        f"the catalog cannot answer this: {text[:300] or kind[:300]}",
        "docs/reference/sql-tools.md says which catalogs there are",
    )


def _rows(result: Any) -> Any:
    while block := result.fetchmany(_FETCH):
        yield from block


def _fields(description: Sequence[Any], formats: Sequence[int]) -> list[Field]:
    found = []
    for number, (name, kind, *_) in enumerate(description):
        oid = _oid_of(str(kind))
        found.append(Field(str(name), oid, t.size_of(oid), format_of(formats, number)))
    return found


def _oid_of(kind: str) -> int:
    if kind.endswith("[]"):
        element = _oid_of(kind[:-2])
        pg_type = t.BY_OID.get(element)
        return t.TEXT if pg_type is None else pg_type.array
    if kind.startswith("DECIMAL"):
        return t.NUMERIC
    return _OIDS.get(kind, t.TEXT)
