"""[edge] SQLAlchemy: rows by key with their view's coverage, by one prepared statement on the bare driver.

Reads by key are an application's most common request, and five statements in a transaction, each through
SQLAlchemy, cost a millisecond. One statement also sees one moment. It reads back the properties that it was
prepared for: the served version of the view and the table's definition. When they have changed, the answer is
discarded and the statement prepared again.

Any failure here gives no answer (None): the caller then uses ``Store.read``, which has the error messages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import PoolProxiedConnection
from sqlalchemy.exc import SQLAlchemyError

from hub.errors import HubError
from hub.materializers.stores.columns import Convert
from hub.materializers.stores.sql.connection import connect_without_waiting
from hub.materializers.stores.sql.queries import MARKS
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions


@dataclass(frozen=True, slots=True)
class ViewCoverage:
    """Source positions that a view's rows cover, and their text."""

    positions: Positions
    text: str


@dataclass(frozen=True, slots=True)
class StoreStatement:
    """Prepared statement of a view.

    ``given``: makes the driver's parameters for ``wanted``. ``names`` and ``converts``: column names of a row
    and conversions of its values. ``mark``: first values of a valid answer.
    """

    sql: str
    given: Callable[[str | Sequence[str]], Any]
    view_table: ViewTable
    names: tuple[str, ...]
    converts: tuple[tuple[str, Convert], ...]
    mark: tuple[Any, ...] = ()


Found = tuple[RowVersion | None, ViewCoverage]
Row = tuple[Any, ...]


class PreparedStatements:
    """Prepared statements of one store by view, made on first use, and the decoding of their answers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[str, StoreStatement] = {}
        self._covered: dict[str, tuple[str, ViewCoverage]] = {}  # with the database's text of it

    def get(self, view: str) -> StoreStatement | None:
        return self._made.get(view)

    def forget(self, view: str) -> None:
        self._made.pop(view, None)

    def make(self, view: str) -> StoreStatement:
        """Prepare the view's statement, over a connection of the store. Raises NotFound, PeerError."""
        with self._store.reading() as connection:
            query, view_table = self._store.catalog.row_query(connection, view)
            dialect = connection.dialect
            compiled = query.compile(dialect=dialect)
            fixed, order = compiled.construct_params({"wanted": ""}), getattr(compiled, "positiontup", None)

            def given(wanted: str | Sequence[str]) -> Any:
                values = {**fixed, "wanted": wanted}
                return values if order is None else tuple(values[name] for name in order)

            kinds = ((each.name, each.type.dialect_impl(dialect)) for each in view_table.table.columns)
            made = ((name, kind.result_processor(dialect, None)) for name, kind in kinds)
            statement = StoreStatement(
                compiled.string,
                given,
                view_table,
                tuple(each.name for each in view_table.table.columns),
                tuple((name, convert) for name, convert in made if convert is not None),
            )
            wanted = "" if dialect.name == "sqlite" else [""]
            mark = fetch(connection.connection, statement, wanted)[0][:MARKS]
        statement = self._made[view] = replace(statement, mark=mark)
        return statement

    def answers(self, view: str, statement: StoreStatement, rows: Sequence[Row]) -> list[Found] | None:
        """Decode the rows of one query; None if the view has changed since the statement was prepared.

        The first row has the mark to compare. A statement with another mark is discarded.
        """
        if rows[0][:MARKS] != statement.mark:
            self.forget(view)
            return None
        marks: str = rows[0][MARKS] or ""
        known = self._covered.get(view)
        if known is None or known[0] != marks:
            positions = Positions.parse(marks)
            known = self._covered[view] = (marks, ViewCoverage(positions, str(positions)))
        return [(_row(statement, each), known[1]) for each in rows]


def _row(statement: StoreStatement, found: Row) -> RowVersion | None:
    row = dict(zip(statement.names, found[MARKS + 1 :], strict=True))
    if row["key"] is None:
        return None
    for name, convert in statement.converts:
        row[name] = convert(row[name])
    return statement.view_table.read(row)


class ReadsAtOnce:
    """Reads from SQLite without waiting for locks, so that they may run in the event loop. For one thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._statements = store, PreparedStatements(store)
        self._connection: PoolProxiedConnection | None = None

    def find(self, view: str, key: str) -> Found | None:
        """Return the key's row (None: never existed) and the coverage, of one moment. None: no answer, use
        the store.
        """
        try:
            for _ in range(2):
                statement = self._statements.get(view) or self._statements.make(view)
                if self._connection is None:
                    self._connection = connect_without_waiting(self._store.engine)
                found = self._statements.answers(view, statement, fetch(self._connection, statement, key))
                if found is not None:
                    return found[0]
        except HubError:  # such as an unknown view: the connection is fine
            self._statements.forget(view)
        except (SQLAlchemyError, sqlite3.Error):
            self._statements.forget(view)
            self.close()
        return None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error, SQLAlchemyError):
                connection.close()


def fetch(
    connection: PoolProxiedConnection, statement: StoreStatement, wanted: str | Sequence[str]
) -> list[Row]:
    cursor = connection.cursor()
    try:
        cursor.execute(statement.sql, statement.given(wanted))
        return [tuple(row) for row in cursor.fetchall()]
    finally:
        cursor.close()
