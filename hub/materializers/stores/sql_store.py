"""[edge] SQLAlchemy Core: a view as a table, in SQLite (embedded) or Postgres (production), by the same code.

A row is replaced only by a row with a higher ``_version``; a deleted row stays as a tombstone with its
version, so that late replays cannot restore it and subscribers get the delete. Rows, changelog positions and
source positions are written in one transaction; a reader sees all of a batch or nothing.

Every read looks up the view's definition in its own transaction, so it never meets a table that another
process has changed meanwhile. ``incarnation`` identifies the meaning of changelog positions for a subscriber:
it changes with the changelog topic, and when rows were removed without a record of their own
(``ViewBatch.expire_below``).

A view may have several tables, one per version (``customer_360@2``). The applier and ``cut`` name the table;
reads name the view and get the table that ``serve`` set last, looked up in the reading transaction.

Durability: SQLite runs in WAL mode with ``synchronous=NORMAL``. A power cut may lose the last transactions,
positions and rows together, and the changelog still has them; a killed process loses nothing. Readers never
wait for the writer.

Limitations: one applier per store (a second one is harmless, by the version rule, and useless); ``count``
reads the whole table; Postgres cannot store NUL in a text, which becomes U+FFFD there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, and_, func, select
from sqlalchemy.exc import OperationalError

from hub.formats.stamps import Stamp
from hub.formats.table import STORE
from hub.formats.verdicts import require_readable
from hub.materializers.definition.declared import table_of
from hub.materializers.search.text_index import text_index_of
from hub.materializers.stores.sql.catalog import Catalog, as_read
from hub.materializers.stores.sql.connection import open_engine, translated_errors
from hub.materializers.stores.sql.feed import ViewFeed
from hub.materializers.stores.sql.history_reads import RowHistory
from hub.materializers.stores.sql.postgres_copy import copy_and_merge
from hub.materializers.stores.sql.queries import Filter, RowQueries
from hub.materializers.stores.sql.scans import live_rows
from hub.materializers.stores.sql.tables import ViewTable, make_view_table, reshape
from hub.materializers.stores.sql.text_search import TextSearch
from hub.materializers.stores.sql.text_tables import drop_text_tables
from hub.materializers.stores.store import Meanwhile, Rhythm, RowKind, RowVersion, StoreSnapshot, ViewBatch
from hub.materializers.stores.stored_row import columns_of, must_refill, newest_by_key
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions
from hub.times import epoch_ms

# Rows per statement; bounds memory and the time that the write lock is held between steps.
_CHUNK = 10_000
# Postgres takes this many rows or more by COPY; for fewer, the temporary table costs more than it saves.
_COPY_FROM = 200
# When two processes open a new SQLite file at once, one waits for the other's switch to WAL.
_OPEN_TRIES, _OPEN_PAUSE_S = 100, 0.05
# Number of the advisory lock in Postgres under which the store's own tables are created.
_CREATE_LOCK = int.from_bytes(sha256(b"hub_positions").digest()[:7], "big")


class Store:
    """A store in SQLite or Postgres. Thread-safe. One writer at a time; readers never wait for it."""

    rhythm = Rhythm(10_000, few=1_000, pause_s=0.025)

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = open_engine(url)
        self.catalog = Catalog(self.engine)
        self._postgres = self.engine.dialect.name == "postgresql"
        self._writer = self.engine.execution_options(hub_writes=True)
        # Several statements of a read see one moment; SQLite's transactions always do.
        self._reader = (
            self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            if self._postgres
            else self.engine
        )
        self.feed = ViewFeed(self.engine, self.catalog, self.reading)
        self.text = TextSearch(self.catalog, self.reading)
        self.history = RowHistory(self.catalog, self.reading, self._writing)
        with translated_errors(self.engine):
            self._open()

    def _open(self) -> None:
        for attempt in range(_OPEN_TRIES):
            try:
                with self._writer.begin() as connection:
                    if self._postgres:  # IF NOT EXISTS alone races in the catalog
                        connection.execute(select(func.pg_advisory_xact_lock(_CREATE_LOCK)))
                    if (noted := self.catalog.noted_version(connection)) is not None:
                        require_readable(STORE, noted, self.catalog.place)
                    self.catalog.tables.metadata.create_all(connection)
                return
            except OperationalError as error:
                if "locked" not in str(error) or attempt == _OPEN_TRIES - 1:
                    raise
                time.sleep(_OPEN_PAUSE_S)

    def close(self) -> None:
        self.feed.close()
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one moment. Raises PeerError, StoreRefused."""
        with translated_errors(self.engine), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with translated_errors(self.engine), self._writer.begin() as connection:
            yield connection

    def _rows_of(self, view_table: ViewTable) -> RowQueries:
        return RowQueries(view_table, self._postgres)

    # ---- tables and served versions

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        """Make the view's table fit a changelog schema. Returns True when it was recreated and must be filled
        from the start.

        It is recreated for another topic or a changed column type. Columns and indexes are added and removed
        without that. Raises CallerError when a field has a name that the table reserves.
        """
        types = columns_of(name, schema)
        with self._writing() as connection:
            stored = self.catalog.stored_definition(connection, name)
            made = make_view_table(connection, name, topic_id, topic_id, types, indexes)
            fresh = must_refill(stored, topic_id, types)
            if fresh:
                made.table.drop(connection, checkfirst=True)
                self.catalog.forget_positions(connection, name)
                made.table.create(connection)
                drop_text_tables(connection, made.table.name)
                if made.text is not None:
                    made.text.create(connection)
            elif stored is not None and stored[1:] != (types, list(indexes)):
                reshape(connection, made.table)
                self._fit_text(connection, made, stored[2])
            served = self.catalog.served(connection, made.view) == name
            self.history.writer.fit(connection, made, epoch_ms(), fresh=fresh, served=served)
            self.catalog.define(connection, made)
        return fresh

    def _fit_text(self, connection: Connection, made: ViewTable, before: Sequence[str]) -> None:
        """Build the text index of a table that has rows, if it differs from that of the indexes
        ``before``."""
        wanted = None if made.text is None else made.text.index
        if wanted == text_index_of(before):
            return
        if made.text is not None:
            made.text.build(connection)
        else:
            drop_text_tables(connection, made.table.name)

    def drop_view(self, name: str) -> None:
        """Remove a view: its rows, positions and progress."""
        with self._writing() as connection:
            table = self.catalog.table(connection, name).table
            self.history.writer.release(connection, name, epoch_ms())
            table.drop(connection, checkfirst=True)
            drop_text_tables(connection, table.name)
            self.catalog.forget(connection, name)

    def views(self) -> list[str]:
        """Return the names of the tables: a view's own, and those of its versions."""
        with self.reading() as connection:
            return self.catalog.table_names(connection)

    def names(self) -> list[str]:
        """Return the names of the views that can be read."""
        with self.reading() as connection:
            return self.catalog.view_names(connection)

    def view(self, name: str) -> ViewTable:
        """Return the view's current table. Raises NotFound."""
        with self.reading() as connection:
            return self.catalog.definition(connection, name)

    def serve(self, view: str, number: int | None) -> None:
        """Serve this version of ``view`` to readers from now on (None: the table of its own name)."""
        with self._writing() as connection:
            self.catalog.tables.mark(connection, f"{view}@", "served", number or 0)
            self.history.writer.serve(connection, view, table_of(view, number), epoch_ms())

    def served(self, view: str) -> str:
        """Return the name of the table that readers of ``view`` get."""
        with self.reading() as connection:
            return self.catalog.served(connection, view)

    def served_tables(self) -> dict[str, str]:
        """Return the served table of every view whose served table has another name than the view."""
        with self.reading() as connection:
            return self.catalog.served_tables(connection)

    # ---- write

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Write rows, positions and progress records (None: removed) of several views in one transaction.
        Raises StoreRefused when the database refuses a row, PeerError when it does not answer, NotFound.
        """
        now_ms = epoch_ms()
        with self._writing() as connection:
            for batch in batches:
                view_table = self.catalog.table(connection, batch.view)
                key_of = self._rows_of(view_table).key
                self.history.writer.record(connection, view_table, batch, key_of, now_ms)
                if self._take(connection, view_table, batch.changes, now_ms, meanwhile):
                    meanwhile = None
                if batch.expire_below:
                    self._expire(connection, view_table, batch.expire_below, now_ms)
                reached: Mapping[RowKind, Positions] = {"changelog": batch.changelog, "source": batch.sources}
                self.catalog.put_positions(connection, batch.view, reached)
            if progress:
                self.catalog.put_progress(connection, progress)

    def _take(
        self,
        connection: Connection,
        view_table: ViewTable,
        changes: Sequence[RowVersion],
        now_ms: int,
        meanwhile: Meanwhile | None,
    ) -> bool:
        """Write rows by the driver's bulk functions: SQLAlchemy's handling of values costs more than the
        database.

        Returns whether ``meanwhile`` was called.
        """
        newest = newest_by_key(changes, self._rows_of(view_table).key)
        if view_table.text is not None:
            words = [view_table.words(key, change) for key, change in newest.items()]
            view_table.text.write(connection, words)
        rows = [view_table.values(key, change, now_ms) for key, change in newest.items()]
        if self._postgres and len(rows) >= _COPY_FROM:
            copy_and_merge(connection, view_table.table, rows, meanwhile)
            return True
        for start in range(0, len(rows), _CHUNK):
            connection.exec_driver_sql(view_table.upsert, rows[start : start + _CHUNK])
        return False

    def _expire(self, connection: Connection, view_table: ViewTable, below: int, now_ms: int) -> None:
        """Delete rows of versions below ``below``. Changes the incarnation, so that subscribers start over.

        No record and so no position shows these deletes.
        """
        self.history.writer.expire(connection, view_table, below, now_ms)
        table = view_table.table
        gone = and_(table.c._version < below, table.c._deleted.is_(False))
        expired = connection.execute(table.update().where(gone).values(_deleted=True, _applied_at_ms=now_ms))
        if view_table.text is not None:
            view_table.text.expire(connection, below)
        if expired.rowcount:
            self.catalog.tables.mark(connection, view_table.name, "swept", below)

    # ---- read

    def get(self, view: str, key: str) -> RowVersion | None:
        """Return one row, deleted or not; None when the key never existed."""
        return self.read(view, key)[0]

    def read(self, view: str, key: str) -> tuple[RowVersion | None, Positions]:
        """Return one row and the source positions that the view covers, of one moment."""
        with self.reading() as connection:
            view_table = self.catalog.definition(connection, view)
            found = connection.execute(self._rows_of(view_table).by_key(key)).mappings().first()
            covered = self.catalog.covered(connection, view)
        return (view_table.read(found) if found is not None else None), covered

    def select(
        self, view: str, conditions: Iterable[Filter], limit: int, after: str | None
    ) -> list[RowVersion]:
        """Return live rows in key order that meet every (column, operator, value); operators: eq gt gte lt
        lte.
        """
        with self.reading() as connection:
            view_table = self.catalog.definition(connection, view)
            query = self._rows_of(view_table).live(conditions, limit, after)
            return [view_table.read(found) for found in connection.execute(query).mappings()]

    def ordered(
        self,
        view: str,
        conditions: Iterable[Filter],
        limit: int,
        order: Sequence[tuple[str, bool]],
        after: Sequence[Any] | None,
    ) -> list[tuple[RowVersion, tuple[Any, ...]]]:
        """Return live rows by (column, descending), each with its place: the stored values of those columns.

        ``after`` takes a place. The last column must be the key, or contain it, so that no two rows have one
        place.
        """
        with self.reading() as connection:
            view_table = self.catalog.definition(connection, view)
            query = self._rows_of(view_table).ordered(conditions, limit, order, after)
            return [
                (view_table.read(found), tuple(found[name] for name, _ in order))
                for found in connection.execute(query).mappings()
            ]

    def positions(self, view: str, kind: RowKind) -> Positions:
        """Return the changelog positions applied to a version, or the source positions that the served rows
        cover.
        """
        with self.reading() as connection:
            if kind == "source":
                return self.catalog.covered(connection, view)
            return self.catalog.positions(connection, view, kind)

    def progress(self) -> dict[str, Any]:
        """Return the latest progress and state records by key.

        Keys with a view's own name are those of its served version; those of its other versions are
        ``version.<kind>:<view>@<number>``.
        """
        with self.reading() as connection:
            return as_read(self.catalog.progress(connection), self.catalog.served_tables(connection))

    def count(self, view: str) -> int:
        """Return the number of live rows of the view. Reads the whole table."""
        with self.reading() as connection:
            table = self.catalog.definition(connection, view).table
            query = select(func.count()).select_from(table).where(table.c._deleted.is_(False))
            return int(connection.execute(query).scalar_one())

    def newest_version(self, view: str) -> int:
        """Return the highest version of any row, deleted or not; 0 without rows. Reads the whole table."""
        with self.reading() as connection:
            table = self.catalog.table(connection, view).table
            return int(connection.execute(select(func.max(table.c._version))).scalar() or 0)

    def due(self, view: str, column: str, until_ms: int, limit: int) -> list[tuple[str, int]]:
        """Return (key, time) of live rows whose time in the indexed ``column`` is at most ``until_ms``,
        earliest first.

        [] for a table without that column. Raises NotFound.
        """
        with self.reading() as connection:
            view_table = self.catalog.table(connection, view)
            if column not in view_table.types:
                return []
            query = self._rows_of(view_table).due(column, until_ms, limit)
            return [(key, int(at)) for key, at in connection.execute(query)]

    @contextmanager
    def cut(self, view: str) -> Iterator[StoreSnapshot]:
        """Implements ViewStore. The rows are read in the transaction that read the positions."""
        with self.reading() as connection:
            view_table = self.catalog.table(connection, view)
            swept = self.catalog.swept(connection, view)
            positions = self.catalog.positions(connection, view, "changelog")
            rows = live_rows(connection, view_table)
            yield StoreSnapshot(view_table.topic_id, view_table.types, positions, swept, rows)


def noted_in_database(url: str) -> Stamp | None:
    """Return the version of the store's format in a database; None without a store. Changes nothing. Raises
    PeerError, ConfigError (HUB-1151).
    """
    engine = open_engine(url)
    try:
        with translated_errors(engine), engine.connect() as connection:
            return Catalog(engine).noted_version(connection)
    finally:
        engine.dispose()
