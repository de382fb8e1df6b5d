"""[edge] DuckDB: views as tables of one columnar file, for analysis next to the store that serves by key.

DuckDB lets one process write a file OR several read it, so the file is open only during an apply: in between
any process may open it read-only, and the next apply waits until that process has closed it. A reader that
stays blocks this store and no other; the store's state names its process.

Users get a view of the live rows under the view's own name; the hub's own tables are in the schema ``_hub``.
Nested values are of the type JSON: see arrow.py.

A newer row replaces the old one by delete and insert in one transaction: on 200,000 rows of 20 columns a
MERGE that updates 50,000 took 10 to 40 seconds, delete and insert half a second. There is no index: a delete
finds its rows by a hash join that reads the key column only. A kill leaves a log next to the file, which the
next open replays.

Limitation: an apply costs some ten milliseconds for any size, so rows are collected for half a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import orjson

from hub.errors import HubError, NotFound, PeerError
from hub.materializers.stores.arrow import DoesNotFit, schema_of, stored_rows, table_of
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.store import (
    KeptRow,
    Meanwhile,
    Rhythm,
    RowKind,
    StoreRefused,
    StoreSnapshot,
    ViewBatch,
)
from hub.materializers.stores.stored_row import RowShaper, columns_of, must_refill, newest_rows
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions
from hub.times import epoch_ms

_LOCK_WAIT_S, _LOCK_PAUSE_S = 10.0, 0.05
_MEMORY = "1GB"
_READ_ROWS = 10_000
_KINDS: Mapping[str, str] = {
    "int": "BIGINT",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "bytes": "BLOB",
    "timestamp-millis": "TIMESTAMP_MS",
    "timestamp-micros": "TIMESTAMP_MS",
    "local-timestamp-millis": "TIMESTAMP_MS",
    "date": "DATE",
    "json": "JSON",
}
_OWN = """
CREATE SCHEMA IF NOT EXISTS _hub;
CREATE TABLE IF NOT EXISTS _hub.positions (view VARCHAR, kind VARCHAR, topic VARCHAR, "partition" INTEGER, next_offset BIGINT);
CREATE TABLE IF NOT EXISTS _hub.progress (key VARCHAR, value VARCHAR);
CREATE TABLE IF NOT EXISTS _hub.views (view VARCHAR, topic_id VARCHAR, schema VARCHAR, indexes VARCHAR);
"""  # noqa: E501
_META_COLUMNS = (
    "_version BIGINT, _partition INTEGER, _offset BIGINT, _sources JSON, _deleted BOOLEAN, "
    "_applied_at_ms BIGINT"
)
Connection = duckdb.DuckDBPyConnection


class DuckStore:
    """Implements ViewStore. Thread-safe: one call at a time. ``wait_s``: how long a call waits for another
    process.
    """

    rhythm = Rhythm(100_000, few=100_000, pause_s=0.5)

    def __init__(self, path: Path, *, read_only: bool = False, wait_s: float = _LOCK_WAIT_S) -> None:
        self.path = path
        self.wait_s = wait_s
        self._lock = threading.RLock()
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._writing() as connection:
                connection.execute(_OWN)

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    # ---- tables

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        types = columns_of(name, schema)
        with self._writing() as connection:
            known = self._definition(connection, name)
            fresh = must_refill(known, topic_id, types)
            if known is not None and not fresh and (known[1], known[2]) == (types, list(indexes)):
                return False
            table = _table(name)
            if fresh:
                columns = ", ".join(f"{_quote(each)} {_type(kind)}" for each, kind in types.items())
                connection.execute(f"DROP TABLE IF EXISTS {table}")
                connection.execute("DELETE FROM _hub.positions WHERE view = ?", [name])
                connection.execute(
                    f"CREATE TABLE {table} (key VARCHAR{', ' if columns else ''}{columns}, {_META_COLUMNS})"
                )
            elif known is not None:
                for gone in known[1].keys() - types.keys():
                    connection.execute(f"ALTER TABLE {table} DROP COLUMN {_quote(gone)}")
                for new in [each for each in types if each not in known[1]]:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {_quote(new)} {_type(types[new])}")
            shown = ", ".join(_quote(each) for each in ("key", *types, "_version", "_sources"))
            connection.execute(
                f"CREATE OR REPLACE VIEW main.{_quote(name)} AS SELECT {shown} FROM "
                f"{table} WHERE NOT _deleted"
            )
            connection.execute("DELETE FROM _hub.views WHERE view = ?", [name])
            texts = [orjson.dumps(each).decode() for each in (types, list(indexes))]
            connection.execute("INSERT INTO _hub.views VALUES (?, ?, ?, ?)", [name, topic_id, *texts])
        return fresh

    def drop_view(self, name: str) -> None:
        with self._writing() as connection:
            self._known(connection, name)
            connection.execute(f"DROP VIEW IF EXISTS main.{_quote(name)}")
            connection.execute(f"DROP TABLE IF EXISTS {_table(name)}")
            for table in ("positions", "views"):
                connection.execute(f"DELETE FROM _hub.{table} WHERE view = ?", [name])
            connection.execute("DELETE FROM _hub.progress WHERE split_part(key, ':', 2) = ?", [name])

    def views(self) -> list[str]:
        with self._reading() as connection:
            return [name for (name,) in _all(connection, "SELECT view FROM _hub.views ORDER BY view")]

    def _definition(
        self, connection: Connection, name: str
    ) -> tuple[str, dict[str, AvroType], list[str]] | None:
        found = _all(connection, "SELECT topic_id, schema, indexes FROM _hub.views WHERE view = ?", [name])
        if not found:
            return None
        topic_id, schema, indexes = found[0]
        return topic_id, orjson.loads(schema), orjson.loads(indexes)

    def _known(self, connection: Connection, name: str) -> tuple[str, dict[str, AvroType]]:
        found = self._definition(connection, name)
        if found is None:
            raise NotFound(
                f'view "{name}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        return found[0], found[1]

    # ---- write

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        with self._writing() as connection:
            for batch in batches:
                _, types = self._known(connection, batch.view)
                if batch.changes:
                    self._take(connection, batch, types)
                if batch.expire_below:
                    self._expire(connection, batch)
                for kind, positions in (("changelog", batch.changelog), ("source", batch.sources)):
                    self._move(connection, batch.view, kind, positions)
            for key, value in (progress or {}).items():
                connection.execute("DELETE FROM _hub.progress WHERE key = ?", [key])
                if value is not None:
                    text = orjson.dumps(value).decode()
                    connection.execute("INSERT INTO _hub.progress VALUES (?, ?)", [key, text])

    def _take(self, connection: Connection, batch: ViewBatch, types: Mapping[str, AvroType]) -> None:
        schema = schema_of(types)
        stage = table_of(schema, newest_rows(RowShaper(types, far=False), batch.changes))
        columns = ", ".join(_quote(each) for each in schema.names)
        table = _table(batch.view)
        connection.register("hub_batch", stage)
        connection.execute(
            f"CREATE TEMPORARY TABLE hub_stage AS SELECT b.* FROM hub_batch b LEFT JOIN "
            f"{table} t ON t.key = b.key "
            "WHERE t.key IS NULL OR b._version > t._version"
        )
        connection.execute(f"DELETE FROM {table} USING hub_stage s WHERE {table}.key = s.key")
        connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM hub_stage")
        connection.execute("DROP TABLE hub_stage")
        connection.unregister("hub_batch")

    def _expire(self, connection: Connection, batch: ViewBatch) -> None:
        table = _table(batch.view)
        gone = f"FROM {table} WHERE _version < ? AND NOT _deleted"
        if _all(connection, f"SELECT 1 {gone} LIMIT 1", [batch.expire_below]):
            connection.execute(
                f"UPDATE {table} SET _deleted = TRUE, _applied_at_ms = ? WHERE _version < ? AND NOT _deleted",
                [epoch_ms(), batch.expire_below],
            )
            self._move(connection, batch.view, "swept", Positions.of([("", 0, batch.expire_below)]))

    def _move(self, connection: Connection, view: str, kind: str, positions: Positions) -> None:
        for tp, offset in positions:
            where = [view, kind, tp.topic, tp.partition]
            connection.execute(
                'DELETE FROM _hub.positions WHERE view = ? AND kind = ? AND topic = ? AND "partition" = ?',
                where,
            )
            connection.execute("INSERT INTO _hub.positions VALUES (?, ?, ?, ?, ?)", [*where, offset])

    # ---- read

    def positions(self, view: str, kind: RowKind) -> Positions:
        with self._reading() as connection:
            return self._positions(connection, view, kind)

    def _positions(self, connection: Connection, view: str, kind: str) -> Positions:
        query = 'SELECT topic, "partition", next_offset FROM _hub.positions WHERE view = ? AND kind = ?'
        return Positions.of(_all(connection, query, [view, kind]))

    def newest_version(self, view: str) -> int:
        with self._reading() as connection:
            self._known(connection, view)
            ((newest,),) = _all(connection, f"SELECT max(_version) FROM {_table(view)}")
            return int(newest or 0)

    def progress(self) -> dict[str, Any]:
        with self._reading() as connection:
            found = _all(connection, "SELECT key, value FROM _hub.progress")
            return {key: orjson.loads(value) for key, value in found}

    @contextmanager
    def cut(self, view: str) -> Iterator[StoreSnapshot]:
        """Implements ViewStore. The file is held open for reading meanwhile, and nothing is applied."""
        with self._reading() as connection:
            topic_id, types = self._known(connection, view)
            swept = self._positions(connection, view, "swept")
            columns = ", ".join(_quote(each) for each in ("key", "_version", *types, "_sources"))

            def rows() -> Iterator[KeptRow]:
                query = f"SELECT {columns} FROM {_table(view)} WHERE NOT _deleted"
                return stored_rows(connection.sql(query).to_arrow_reader(_READ_ROWS))

            mark = max((offset for _, offset in swept), default=0)
            yield StoreSnapshot(topic_id, types, self._positions(connection, view, "changelog"), mark, rows)

    # ---- the file

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._lock, self._errors(), self._opened(read_only=True) as connection:
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._lock, self._errors(), self._opened(read_only=False) as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")  # without it, closing rolls back

    @contextmanager
    def _opened(self, *, read_only: bool) -> Iterator[Connection]:
        deadline = time.monotonic() + self.wait_s
        while True:
            try:
                connection = duckdb.connect(
                    str(self.path), read_only=read_only, config={"threads": 2, "memory_limit": _MEMORY}
                )
                break
            except duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(_LOCK_PAUSE_S)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HubError:
            raise
        except DoesNotFit as error:
            raise StoreRefused(
                f'store "{self.path}" refuses: {error}', hint="the message is Arrow's own"
            ) from error
        except duckdb.Error as error:
            message = str(error).split("\n")[0]
            if isinstance(error, duckdb.DataError | duckdb.IntegrityError | duckdb.ProgrammingError):
                raise StoreRefused(
                    f'store "{self.path}" refuses: {message}', hint="the message is DuckDB's own"
                ) from error
            held = "lock" in message
            raise PeerError(
                f'store "{self.path}": {message}',
                hint="close the process that it names: DuckDB lets one process write or several read"
                if held
                else "is the file there, and room on its disk?",
                code="HUB-3040",
            ) from error


def _all(connection: Connection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = connection.execute(query, list(values)).fetchall()
    return found


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(view: str) -> str:
    return f"_hub.{_quote(f'rows_{view}')}"


def _type(avro_type: AvroType) -> str:
    return _KINDS.get(plain_type(avro_type), "VARCHAR")
