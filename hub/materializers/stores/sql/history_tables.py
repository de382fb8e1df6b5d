"""[edge] SQLAlchemy: versions of rows in tables of their own, written in the transaction of the rows.

::

    hub_histories        one row per table of versions: view, table of the rows, columns, kept time
    hub_history_periods  when readers of a view got which of them
    hub_history_marks    source positions that were read when a partition of the changelog had an end
    history_NAME.TIME    the versions: the columns of the rows, with the time of the changelog record

A table of versions belongs to one table of rows and ends with it: a table that is filled again begins another
one. It outlives its rows as long as a period of it is kept, so that a swap and a rebuild lose no history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    MetaData,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from hub.materializers.history.changes import new_versions
from hub.materializers.stores.sql.names import stored_name
from hub.materializers.stores.sql.postgres_copy import copy_new
from hub.materializers.stores.sql.tables import OwnTables, ViewTable, reshape, row_columns, row_meta
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.materializers.types.avro_types import AvroType

# Keys per lookup, rows per statement, and as for rows the number from which Postgres takes COPY.
_KEYS, _CHUNK, _COPY_FROM = 500, 10_000, 200
# Place of a version without a changelog record: a row that a later generation does not have.
NO_PLACE = -1


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """Versions of the rows of one table. ``types``: of the columns, in order."""

    stored: str
    view: str
    name: str
    types: Mapping[str, AvroType]
    keep_ms: int
    pruned_ms: int
    table: Table


def history_table(stored: str, types: Mapping[str, AvroType]) -> Table:
    """Return the table of versions with these columns."""
    key, *columns = row_columns(types)
    versions = Table(
        stored,
        MetaData(),
        key,
        *columns,
        *row_meta(version_is_key=True),
        Column("_at_ms", BigInteger, nullable=False),
    )
    Index(stored_name(f"ix_{stored}_times", "_at_ms"), versions.c._at_ms)
    return versions


class HistoryWriter:
    """Writes versions, periods and marks, each method in the caller's transaction."""

    def __init__(self, own: OwnTables, *, postgres: bool) -> None:
        self._own, self._postgres = own, postgres

    # ---- tables and periods

    def fit(
        self,
        connection: Connection,
        made: ViewTable,
        now_ms: int,
        *,
        fresh: bool,
        served: bool,
    ) -> None:
        """Make the history fit a table of rows. ``fresh``: the table was created again. ``served``: it is the
        served one. A view without ``history`` in its file loses its history.
        """
        active, view = self.active(connection, made.name), made.view
        if made.history_ms is None:
            if active is not None:
                self.erase(connection, view)
            return
        if active is not None and not fresh:
            if active.types != made.types or list(active.types) != list(made.types):
                reshape(connection, history_table(active.stored, made.types))
            values = {"types": dict(made.types), "keep_ms": made.history_ms}
            self._set(connection, active.stored, **values)
            return
        if active is not None:
            self.release(connection, made.name, now_ms)
        stored = self._unused_name(connection, made.name, now_ms)
        history_table(stored, made.types).create(connection)
        connection.execute(
            insert(self._own.histories).values(
                stored=stored,
                view=view,
                name=made.name,
                types=dict(made.types),
                keep_ms=made.history_ms,
                pruned_ms=0,
                active=True,
            )
        )
        if not fresh:
            self._seed(connection, stored, made)
        if served:
            self._open_period(connection, view, stored, now_ms)

    def _unused_name(self, connection: Connection, name: str, now_ms: int) -> str:
        """Return an unused name: a table of rows may be created again within a millisecond."""
        histories = self._own.histories
        while True:
            stored = stored_name(f"history_{name}.{now_ms}")
            taken = select(histories.c.stored).where(histories.c.stored == stored)
            if connection.execute(taken).first() is None:
                return stored
            now_ms += 1

    def _seed(self, connection: Connection, stored: str, made: ViewTable) -> None:
        """Begin with the rows that there are: they were applied before the period begins."""
        versions, rows = history_table(stored, made.types), made.table
        names = [column.name for column in versions.columns if column.name != "_at_ms"]
        query = select(*(rows.c[name] for name in names), rows.c._applied_at_ms).where(
            rows.c._deleted.is_(False)
        )
        connection.execute(insert(versions).from_select([*names, "_at_ms"], query))

    def serve(self, connection: Connection, view: str, name: str, now_ms: int) -> None:
        """Note that readers get the table ``name`` from now on."""
        self._close_period(connection, view, now_ms)
        active = self.active(connection, name)
        if active is not None:
            self._open_period(connection, view, active.stored, now_ms)

    def release(self, connection: Connection, name: str, now_ms: int) -> None:
        """End the history of a table of rows that is removed; what readers got of it is kept for its time."""
        active = self.active(connection, name)
        if active is None:
            return
        periods = self._own.history_periods
        connection.execute(
            update(periods)
            .where(periods.c.stored == active.stored, periods.c.until_ms.is_(None))
            .values(until_ms=now_ms)
        )
        self._set(connection, active.stored, active=False)
        if self._is_over(connection, active):
            self._remove(connection, active.stored)

    def erase(self, connection: Connection, view: str, keep: Sequence[str] = ()) -> list[str]:
        """Remove the histories of a view, except those of the tables of rows ``keep``. Returns the removed
        tables."""
        histories = self._own.histories
        query = select(histories.c.stored).where(histories.c.view == view, histories.c.name.not_in(keep))
        removed = list(connection.execute(query).scalars())
        for stored in removed:
            self._remove(connection, stored)
        return removed

    def _remove(self, connection: Connection, stored: str) -> None:
        Table(stored, MetaData()).drop(connection, checkfirst=True)
        for table in (self._own.history_periods, self._own.history_marks, self._own.histories):
            connection.execute(delete(table).where(table.c.stored == stored))

    def active(self, connection: Connection, name: str) -> HistoryTable | None:
        """Return the history that a table of rows adds to; None without one."""
        histories = self._own.histories
        query = select(histories).where(histories.c.name == name, histories.c.active.is_(True))
        found = connection.execute(query).mappings().first()
        return None if found is None else _read(found)

    def _set(self, connection: Connection, stored: str, **values: Any) -> None:
        histories = self._own.histories
        connection.execute(update(histories).where(histories.c.stored == stored).values(**values))

    def _open_period(self, connection: Connection, view: str, stored: str, now_ms: int) -> None:
        periods = self._own.history_periods
        last = select(func.max(periods.c.from_ms)).where(periods.c.view == view)
        # Two swaps within a millisecond, or a clock that was set back, do not make one period of two.
        from_ms = max(now_ms, int(connection.execute(last).scalar() or 0) + 1)
        connection.execute(insert(periods).values(view=view, from_ms=from_ms, stored=stored, until_ms=None))

    def _close_period(self, connection: Connection, view: str, now_ms: int) -> None:
        periods = self._own.history_periods
        latest = func.greatest if self._postgres else func.max
        connection.execute(
            update(periods)
            .where(periods.c.view == view, periods.c.until_ms.is_(None))
            .values(until_ms=latest(now_ms, periods.c.from_ms))
        )

    # ---- versions

    def record(
        self,
        connection: Connection,
        view_table: ViewTable,
        batch: ViewBatch,
        stored_key: Callable[[str], str],
        now_ms: int,
    ) -> None:
        """Add the versions and marks of a batch. Call before its rows are written: it compares with them."""
        active = None if view_table.history_ms is None else self.active(connection, view_table.name)
        if active is None:
            return
        keys = [stored_key(each.key) for each in batch.changes]
        current = self._current(connection, view_table.table, list(dict.fromkeys(keys)))
        fresh = new_versions(batch.changes, current, keys)
        self._insert(connection, active, [_values(view_table, key, each, now_ms) for key, each in fresh])
        self._mark(connection, active, batch)

    def expire(self, connection: Connection, view_table: ViewTable, below: int, now_ms: int) -> None:
        """Add the deletes of rows that a later generation does not have. Call before they are deleted."""
        active = None if view_table.history_ms is None else self.active(connection, view_table.name)
        if active is None:
            return
        rows = view_table.table
        query = select(rows.c.key).where(rows.c._version < below, rows.c._deleted.is_(False))
        gone = [
            RowVersion(key, below, NO_PLACE, NO_PLACE, None, at_ms=now_ms)
            for key in connection.execute(query).scalars()
        ]
        self._insert(connection, active, [_values(view_table, each.key, each, now_ms) for each in gone])

    def _current(self, connection: Connection, rows: Table, keys: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(keys), _KEYS):
            wanted = rows.c.key.in_(keys[start : start + _KEYS])
            found.update(
                (key, version)
                for key, version in connection.execute(select(rows.c.key, rows.c._version).where(wanted))
            )
        return found

    def _insert(self, connection: Connection, active: HistoryTable, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._postgres and len(rows) >= _COPY_FROM:
            copy_new(connection, active.table, rows)
            return
        quote = connection.dialect.identifier_preparer.quote_identifier
        place = "%s" if self._postgres else "?"
        names = [quote(column.name) for column in active.table.columns]
        statement = (
            f"INSERT INTO {quote(active.stored)} ({', '.join(names)}) "
            f"VALUES ({', '.join([place] * len(names))}) ON CONFLICT DO NOTHING"
        )
        for start in range(0, len(rows), _CHUNK):
            connection.exec_driver_sql(statement, list(rows[start : start + _CHUNK]))

    def _mark(self, connection: Connection, active: HistoryTable, batch: ViewBatch) -> None:
        """Note the source positions of each batch at its ends of the changelog: of an end that several
        batches have, the first and the last ones."""
        marks = self._own.history_marks
        dialect: Any = postgresql if self._postgres else sqlite
        statement = dialect.insert(marks)
        last = {"last_sources": statement.excluded.last_sources, "at_ms": statement.excluded.at_ms}
        key = [column.name for column in marks.primary_key]
        rows = [
            {
                "stored": active.stored,
                "partition": place.partition,
                "next_offset": offset,
                "at_ms": each.at_ms,
                "sources": str(each.sources),
                "last_sources": str(each.sources),
            }
            for each in batch.marks
            for place, offset in each.changelog
        ]
        if rows:
            connection.execute(statement.on_conflict_do_update(index_elements=key, set_=last), rows)

    # ---- bounds

    def prune(self, connection: Connection, now_ms: int, limit: int) -> int:
        """Remove up to ``limit`` versions of each history that ended before its kept time, and histories
        whose last period did. Returns the number of removed versions."""
        removed = 0
        for found in connection.execute(select(self._own.histories)).mappings().all():
            history = _read(found)
            cutoff_ms = now_ms - history.keep_ms
            self._end_periods(connection, history, cutoff_ms)
            if not found["active"] and self._is_over(connection, history):
                self._remove(connection, history.stored)
                continue
            removed += self._prune(connection, history, cutoff_ms, limit)
        return removed

    def _end_periods(self, connection: Connection, history: HistoryTable, cutoff_ms: int) -> None:
        periods = self._own.history_periods
        over = and_(periods.c.stored == history.stored, periods.c.until_ms <= cutoff_ms)
        connection.execute(delete(periods).where(over))

    def _is_over(self, connection: Connection, history: HistoryTable) -> bool:
        periods = self._own.history_periods
        left = select(periods.c.view).where(periods.c.stored == history.stored).limit(1)
        return connection.execute(left).first() is None

    def _prune(self, connection: Connection, history: HistoryTable, cutoff_ms: int, limit: int) -> int:
        """Remove versions that no time after ``cutoff_ms`` reads: those with a later one by then, and deletes
        with no earlier one."""
        versions = history.table
        other = versions.alias()
        same = other.c.key == versions.c.key
        later = exists().where(same, other.c._version > versions.c._version, other.c._at_ms <= cutoff_ms)
        earlier = exists().where(same, other.c._version < versions.c._version)
        places = tuple_(versions.c.key, versions.c._version)
        removed = 0
        for over in (later, and_(versions.c._deleted.is_(True), ~earlier)):
            query = (
                select(versions.c.key, versions.c._version)
                .where(versions.c._at_ms <= cutoff_ms, over)
                .limit(limit)
            )
            found = [tuple(each) for each in connection.execute(query)]
            if found:
                self._raise_floor(connection, history, cutoff_ms)
            for start in range(0, len(found), _KEYS):
                wanted = places.in_(found[start : start + _KEYS])
                connection.execute(delete(versions).where(wanted))
            removed += len(found)
        marks = self._own.history_marks
        connection.execute(delete(marks).where(marks.c.stored == history.stored, marks.c.at_ms < cutoff_ms))
        return removed

    def _raise_floor(self, connection: Connection, history: HistoryTable, cutoff_ms: int) -> None:
        histories = self._own.histories
        lower = and_(histories.c.stored == history.stored, histories.c.pruned_ms < cutoff_ms)
        connection.execute(update(histories).where(lower).values(pruned_ms=cutoff_ms))


def _values(view_table: ViewTable, key: str, change: RowVersion, now_ms: int) -> tuple[Any, ...]:
    """Return values in the order of a history table's columns."""
    at_ms = now_ms if change.at_ms is None else change.at_ms
    return (*view_table.values(key, change, now_ms), at_ms)


def _read(found: Mapping[Any, Any]) -> HistoryTable:
    stored, types = found["stored"], found["types"]
    return HistoryTable(
        stored,
        found["view"],
        found["name"],
        types,
        int(found["keep_ms"]),
        int(found["pruned_ms"]),
        history_table(stored, types),
    )
