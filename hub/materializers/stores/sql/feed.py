"""[edge] SQLAlchemy: what subscribers of a view read:
a snapshot, the changes after it, and a sign of changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from sqlalchemy import Connection, Engine, PoolProxiedConnection, func, select
from sqlalchemy.exc import SQLAlchemyError

from hub.errors import HubError
from hub.materializers.stores.sql.catalog import Catalog
from hub.materializers.stores.sql.connection import connect_without_waiting
from hub.materializers.stores.sql.queries import ChangedRows, Filter, RowQueries, first_changes
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.store import RowVersion
from hub.record import Positions


class BuiltAnew(HubError):
    """The view's rows are of another incarnation than the requested one: read it from its start."""

    code = "HUB-1431"


class ViewFeed:
    """Snapshots and changes of a store's views. ``reading`` opens a transaction that sees one moment."""

    def __init__(
        self, engine: Engine, catalog: Catalog, reading: Callable[[], AbstractContextManager[Connection]]
    ) -> None:
        self._engine, self._catalog, self._reading = engine, catalog, reading
        self._postgres = engine.dialect.name == "postgresql"
        self._peephole: PoolProxiedConnection | None = None

    def close(self) -> None:
        if self._peephole is not None:
            self._peephole.close()

    def stamp(self) -> int:
        """Return a number that changes with every apply of any process. Cheap to poll."""
        offsets = self._catalog.tables.positions.c.next_offset
        with self._reading() as connection:
            return int(connection.execute(select(func.sum(offsets))).scalar() or 0)

    def glance(self) -> int | None:
        """Return a number that changes with each commit of any process, for two system calls: SQLite's
        ``data_version``.

        None where that needs a query, or the file is busy; use ``stamp`` then. For one thread.
        """
        if self._postgres:
            return None
        try:
            if self._peephole is None:
                # Not from the pool: data_version does not change for the connection's own writes.
                self._peephole = connect_without_waiting(self._engine)
            cursor = self._peephole.cursor().execute("PRAGMA data_version")
            return int(cursor.fetchone()[0])
        except (sqlite3.Error, SQLAlchemyError):
            return None

    def snapshot(
        self,
        view: str,
        after: str | None,
        limit: int,
        conditions: Iterable[Filter] = (),
        incarnation: str | None = None,
    ) -> tuple[list[RowVersion], Positions]:
        """Return live rows with keys past ``after`` and the changelog positions they are read at, of one
        moment.

        Raises BuiltAnew when the view is no longer of this incarnation.
        """
        with self._reading() as connection:
            view_table = self._of_incarnation(connection, view, incarnation)
            positions = self._applied(connection, view)
            query = RowQueries(view_table, self._postgres).live(conditions, limit, after)
            return [view_table.read(found) for found in connection.execute(query).mappings()], positions

    def changes(
        self,
        view: str,
        since: Positions,
        limit: int,
        conditions: Iterable[Filter] = (),
        incarnation: str | None = None,
    ) -> ChangedRows:
        """Return rows made by the changelog from ``since`` on, deletes included, coalesced per key, and the
        next positions.

        At most ``limit`` rows, in (partition, offset) order; if there are more, the positions are those after
        the last returned row, so that the next call skips nothing. A row that does not meet the conditions is
        returned as a deleted one, because it may have met them before. Rows with keys that the conditions
        exclude are left out.

        Raises BuiltAnew when the view is no longer of this incarnation: ``since`` is then meaningless.
        """
        with self._reading() as connection:
            view_table = self._of_incarnation(connection, view, incarnation)
            reached, sources = self._applied(connection, view), self._catalog.covered(connection, view)
            query = RowQueries(view_table, self._postgres).changed(since, reached, limit + 1, conditions)
            if query is None:
                return ChangedRows([], reached, sources)
            rows = [
                view_table.read(row) if row["_meets"] else view_table.read(row)._replace(values=None)
                for row in connection.execute(query).mappings()
            ]
        return first_changes(rows, limit, since, reached, sources)

    def _applied(self, connection: Connection, view: str) -> Positions:
        """Return the changelog positions of the served rows."""
        return self._catalog.positions(connection, self._catalog.served(connection, view), "changelog")

    def _of_incarnation(self, connection: Connection, view: str, incarnation: str | None) -> ViewTable:
        view_table = self._catalog.definition(connection, view)
        if incarnation is not None and view_table.incarnation != incarnation:
            raise BuiltAnew(f'view "{view}" was rebuilt', hint="read it from its start")
        return view_table
