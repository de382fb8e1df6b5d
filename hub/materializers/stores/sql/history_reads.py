"""[edge] SQLAlchemy: rows as of a time, and the versions of one row, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, FromClause, Table, exists, func, select, text
from sqlalchemy.exc import OperationalError

from hub.errors import CallerError
from hub.materializers.history.causes import BatchRange
from hub.materializers.history.periods import HistoryPeriod, answerable, period_at, require_history
from hub.materializers.history.timeline import (
    Cursor,
    StoredVersion,
    TimelineChange,
    change_at_begin,
    changes_within,
)
from hub.materializers.stores.sql.catalog import Catalog
from hub.materializers.stores.sql.history_tables import HistoryWriter, history_table
from hub.materializers.stores.sql.queries import Filter, RowQueries
from hub.materializers.stores.sql.tables import ViewTable, make_view_table
from hub.materializers.stores.store import RowVersion
from hub.record import Positions

Transaction = Callable[[], AbstractContextManager[Connection]]


# Tables of versions whose statements are kept.
_MOST_TABLES = 64
# Versions of a row that are read to be one page.
_MORE = 2


@dataclass(frozen=True, slots=True)
class HistorySize:
    """Versions that a view's histories have, and their bytes; None if they are unknown."""

    view: str
    versions: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a timeline: a period, the one before it, the last time that is read, and the cursor in it."""

    period: HistoryPeriod
    before: HistoryPeriod | None
    to_ms: int
    after: Cursor | None


def as_of(versions: Table, at_ms: int) -> FromClause:
    """Return the newest version of each row by a time, deletes included, as a subquery."""
    later = versions.alias("later")
    newer = (later.c.key == versions.c.key, later.c._version > versions.c._version, later.c._at_ms <= at_ms)
    return select(versions).where(versions.c._at_ms <= at_ms, ~exists().where(*newer)).subquery("as_of")


class RowHistory:
    """Histories of a store's views. ``reading`` opens a transaction that sees one moment, ``writing``
    one of the writer."""

    def __init__(self, catalog: Catalog, reading: Transaction, writing: Transaction) -> None:
        self._catalog, self._reading, self._writing = catalog, reading, writing
        self._postgres = catalog.postgres
        self.writer = HistoryWriter(catalog.tables, postgres=self._postgres)
        # Kept, because SQLAlchemy compiles a statement once for each table object: nine tenths of a read.
        self._tables: dict[tuple[Any, ...], ViewTable] = {}

    def prune(self, now_ms: int, limit: int) -> int:
        """Remove up to ``limit`` versions of each history that are older than it keeps. Returns their
        number."""
        with self._writing() as connection:
            return self.writer.prune(connection, now_ms, limit)

    def erase(self, view: str, keep: Sequence[str] = ()) -> list[str]:
        """Remove the histories of a view except those of the tables ``keep``. Returns the removed tables."""
        with self._writing() as connection:
            return self.writer.erase(connection, view, keep)

    # ---- periods

    def periods(self, view: str) -> list[HistoryPeriod]:
        """Return the periods of a view, the earliest first; [] without a history."""
        with self._reading() as connection:
            return self.periods_in(connection, view)

    def periods_in(self, connection: Connection, view: str) -> list[HistoryPeriod]:
        own = self._catalog.tables
        periods, histories = own.history_periods, own.histories
        query = (
            select(periods, histories)
            .join_from(periods, histories, periods.c.stored == histories.c.stored)
            .where(periods.c.view == view)
            .order_by(periods.c.from_ms)
        )
        return [
            HistoryPeriod(
                found[histories.c.stored],
                found[histories.c.name],
                found[histories.c.types],
                found[periods.c.from_ms],
                found[periods.c.until_ms],
                found[histories.c.keep_ms],
                found[histories.c.pruned_ms],
            )
            for found in connection.execute(query).mappings()
        ]

    # ---- as of a time

    def table_at(self, connection: Connection, view: str, at_ms: int, now_ms: int) -> ViewTable:
        """Return the table of versions that answers for a time, as the view's. Raises CallerError, Gone,
        NotFound."""
        self._catalog.definition(connection, view)
        period = period_at(view, self.periods_in(connection, view), at_ms, now_ms)
        return self._table(connection, view, period)

    def row_at(self, view: str, key: str, at_ms: int, now_ms: int) -> RowVersion | None:
        """Return a row as of a time, deleted or not; None if it had never existed. Raises as ``table_at``."""
        with self._reading() as connection:
            view_table = self.table_at(connection, view, at_ms, now_ms)
            found = connection.execute(self._as_of(view_table, at_ms).by_key(key)).mappings().first()
            return None if found is None else view_table.read(found)

    def select_at(
        self,
        view: str,
        at_ms: int,
        now_ms: int,
        conditions: Iterable[Filter],
        limit: int,
        after: str | None,
    ) -> list[RowVersion]:
        """``Store.select`` as of a time. Raises as ``table_at``."""
        with self._reading() as connection:
            view_table = self.table_at(connection, view, at_ms, now_ms)
            query = self._as_of(view_table, at_ms).live(conditions, limit, after)
            return [view_table.read(found) for found in connection.execute(query).mappings()]

    def ordered_at(
        self,
        view: str,
        at_ms: int,
        now_ms: int,
        conditions: Iterable[Filter],
        limit: int,
        order: Sequence[tuple[str, bool]],
        after: Sequence[Any] | None,
    ) -> list[tuple[RowVersion, tuple[Any, ...]]]:
        """``Store.ordered`` as of a time. Raises as ``table_at``."""
        with self._reading() as connection:
            view_table = self.table_at(connection, view, at_ms, now_ms)
            missing = [name for name, _ in order if name not in view_table.table.c]
            if missing:
                raise CallerError(f'view "{view}" had no field "{missing[0]}" then', code="HUB-1422")
            query = self._as_of(view_table, at_ms).ordered(conditions, limit, order, after)
            return [
                (view_table.read(found), tuple(found[name] for name, _ in order))
                for found in connection.execute(query).mappings()
            ]

    def _as_of(self, view_table: ViewTable, at_ms: int) -> RowQueries:
        return RowQueries(view_table, self._postgres, as_of(view_table.table, at_ms))

    def _table(self, connection: Connection, view: str, period: HistoryPeriod) -> ViewTable:
        """Return a period's table of versions as the table of a view. A dropped version has no indexes
        noted: those of today's table are taken, as far as it has the columns."""
        today = self._catalog.definition(connection, view)
        fields = [each for each in today.indexes if each in period.types]
        place = (view, period.stored, repr(period.types), today.topic_id, today.incarnation, tuple(fields))
        found = self._tables.get(place)
        if found is None:
            view_table = make_view_table(
                connection, view, today.topic_id, today.incarnation, period.types, fields
            )
            found = replace(view_table, table=history_table(period.stored, period.types))
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            self._tables[place] = found
        return found

    # ---- versions of a row

    def timeline(
        self, view: str, key: str, to_ms: int, now_ms: int, after: Cursor | None, limit: int
    ) -> list[TimelineChange]:
        """Return up to ``limit`` changes of a row until ``to_ms``, the newest first, past the cursor. Raises
        CallerError for a view without a history, NotFound."""
        row_changes: list[TimelineChange] = []
        with self._reading() as connection:
            self._catalog.definition(connection, view)
            periods = self.periods_in(connection, view)
            require_history(view, periods)
            history_periods = answerable(periods, now_ms)
            for place, period in enumerate(history_periods):
                if len(row_changes) >= limit or (after is not None and period.from_ms > after.period_ms):
                    continue
                before = history_periods[place + 1] if place + 1 < len(history_periods) else None
                mine = after if after is not None and after.period_ms == period.from_ms else None
                part = _Part(period, before, min(to_ms, (period.until_ms or now_ms + 1) - 1), mine)
                row_changes += self._changes(connection, view, key, part, now_ms, limit - len(row_changes))
        return row_changes[:limit]

    def _changes(
        self, connection: Connection, view: str, key: str, part: _Part, now_ms: int, limit: int
    ) -> list[TimelineChange]:
        """Return changes of a row within a period, and the one at its begin if they are fewer than
        ``limit``."""
        period, after = part.period, part.after
        if after is not None and after.is_edge:
            return []
        begins_ms = period.begins_ms(now_ms)
        bound = None if after is None else after.version
        versions = self._versions(connection, view, key, period, part.to_ms, bound, limit + _MORE)
        is_whole = len(versions) < limit + _MORE
        row_changes, base = changes_within(period, versions, begins_ms, is_whole=is_whole)
        if len(row_changes) >= limit or not (is_whole or base is not None) or part.to_ms < begins_ms:
            return row_changes
        is_known = part.before is not None and begins_ms == period.from_ms
        was: Sequence[StoredVersion] = ()
        if is_known and part.before is not None:
            was = self._versions(connection, view, key, part.before, begins_ms - 1, None, 1)
        edge = change_at_begin(period, base, was[0] if was else None, is_known=is_known)
        return row_changes if edge is None else [*row_changes, edge]

    def _versions(
        self,
        connection: Connection,
        view: str,
        key: str,
        period: HistoryPeriod,
        to_ms: int,
        below: int | None,
        limit: int,
    ) -> list[StoredVersion]:
        """Return the versions of a row in a period's table until ``to_ms``, the newest first."""
        view_table = self._table(connection, view, period)
        table = view_table.table
        where = [table.c.key == RowQueries(view_table, self._postgres).key(key), table.c._at_ms <= to_ms]
        if below is not None:
            where.append(table.c._version < below)
        query = select(table).where(*where).order_by(table.c._version.desc()).limit(limit)
        return [
            StoredVersion(
                view_table.read(found),
                found["_at_ms"],
                found["_applied_at_ms"],
                self._batch(connection, period.stored, found["_partition"], found["_offset"]),
            )
            for found in connection.execute(query).mappings().all()
        ]

    def _batch(self, connection: Connection, stored: str, partition: int, offset: int) -> BatchRange:
        """Return the source positions around the batches that published a changelog record."""
        marks = self._catalog.tables.history_marks
        of_partition = (marks.c.stored == stored, marks.c.partition == partition)
        begin = (
            select(marks.c.last_sources)
            .where(*of_partition, marks.c.next_offset <= offset)
            .order_by(marks.c.next_offset.desc())
            .limit(1)
        )
        end = (
            select(marks.c.sources)
            .where(*of_partition, marks.c.next_offset > offset)
            .order_by(marks.c.next_offset)
            .limit(1)
        )
        texts = [connection.execute(each).scalar() for each in (begin, end)]
        return BatchRange(*(None if each is None else Positions.parse(each) for each in texts))

    def sizes(self) -> list[HistorySize]:
        """Return the size of each view's histories. Counts the versions of each."""
        histories = self._catalog.tables.histories
        with self._reading() as connection:
            totals: dict[str, tuple[int, int | None]] = {}
            for view, stored in connection.execute(select(histories.c.view, histories.c.stored)):
                table = history_table(stored, {})
                count = int(connection.execute(select(func.count()).select_from(table)).scalar_one())
                size = self._bytes(connection, stored)
                known_count, known_size = totals.get(view, (0, 0))
                both = None if size is None or known_size is None else size + known_size
                totals[view] = (known_count + count, both)
        return [HistorySize(view, count, size) for view, (count, size) in sorted(totals.items())]

    def _bytes(self, connection: Connection, stored: str) -> int | None:
        query = "SELECT sum(pgsize) FROM dbstat WHERE name = :name"
        if self._postgres:
            query = "SELECT pg_total_relation_size(quote_ident(:name))"
        try:
            found = connection.execute(text(query), {"name": stored}).scalar()
        except OperationalError:  # this SQLite has no dbstat
            return None
        return None if found is None else int(found)
