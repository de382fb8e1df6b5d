"""[edge] SQLAlchemy: rows by key and what their view covers, by one prepared statement over the bare driver.

A read by key is what applications do all day, and five statements in a transaction, each through SQLAlchemy, cost it a
millisecond. One statement is one moment, too. It also reads back what it was prepared for, which version of the view is
served and how that table is made: where this has changed, the answer is thrown away and the statement prepared anew.

Whatever goes wrong here is no answer (None): ``Store.read`` is asked then, which has the words for it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from hub.errors import HubError
from hub.materializers.stores.columns import Convert
from hub.materializers.stores.kept import without_nul
from hub.materializers.stores.postgres_copy import is_driver_error
from hub.materializers.stores.sql import (
    MARKS,
    Store,
    StoredRow,
    ViewTable,
    stored_row,
    that_waits_for_no_lock,
)
from hub.record import Positions

# Connections to Postgres that reads by key take beside the store's own.
MOST_CONNECTIONS = 8
# One that does not come within this is none: the store's own way waits for one longer.
_POOL_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Covered:
    """What a view's rows cover, and how that is written."""

    positions: Positions
    text: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """A view's statement: its text, what is given to the driver for ``wanted``, what an answer to it begins with, and how the
    columns of the row are called and made into values."""

    sql: str
    given: Callable[[str | Sequence[str]], Any]
    known: ViewTable
    names: tuple[str, ...]
    converts: tuple[tuple[str, Convert], ...]
    mark: tuple[Any, ...] = ()


Found = tuple[StoredRow | None, Covered]


class PreparedReads:
    """Of one store. ``at_once``: a read waits for nobody and may be made where nothing may wait, in one thread, for SQLite's
    readers wait for no lock. Otherwise (Postgres) it is for threads, MOST_CONNECTIONS at a time, and a hundred keys cost
    little more than one."""

    def __init__(self, store: Store) -> None:
        self.at_once = store.engine.dialect.name == "sqlite"
        self._store = store
        self._statements: dict[str, _Statement] = {}
        self._covered: dict[str, tuple[str, Covered]] = {}  # with the database's text of it
        self._own: PoolProxiedConnection | None = None
        self._pool: Engine | None = None
        self._lock = threading.Lock()

    def find(self, view: str, keys: Sequence[str]) -> list[Found] | None:
        """Each key's row (None: it was never there) and what is covered, of one moment. None: no answer, ask the store."""
        try:
            for _ in range(2):
                statement = self._statements.get(view) or self._prepare(view)
                found = self._run(statement, keys)
                if all(each[:MARKS] == statement.mark for each in found):
                    return [self._answer(view, statement, each) for each in found]
                self._statements.pop(view, None)
        except HubError:  # no such view, say: that is no fault of the connection's
            self._statements.pop(view, None)
        except Exception as error:
            if not (isinstance(error, SQLAlchemyError | sqlite3.Error) or is_driver_error(error)):
                raise
            self._statements.pop(view, None)
            self._let_go()
        return None

    def close(self) -> None:
        self._let_go()
        if self._pool is not None:
            self._pool.dispose()

    def _answer(self, view: str, statement: _Statement, found: tuple[Any, ...]) -> Found:
        told: str = found[MARKS] or ""
        known = self._covered.get(view)
        if known is None or known[0] != told:
            positions = Positions.parse(told)
            known = self._covered[view] = (told, Covered(positions, str(positions)))
        covered = known[1]
        row = dict(zip(statement.names, found[MARKS + 1 :], strict=True))
        if row["key"] is None:
            return None, covered
        for name, convert in statement.converts:
            row[name] = convert(row[name])
        return stored_row(statement.known, row), covered

    def _prepare(self, view: str) -> _Statement:
        """Raises NotFound, PeerError."""
        with self._store.reading() as connection:
            query, known = self._store.row_query(connection, view)
            dialect = connection.dialect
            compiled = query.compile(dialect=dialect)
            fixed, order = compiled.construct_params({"wanted": ""}), getattr(compiled, "positiontup", None)

            def given(wanted: str | Sequence[str]) -> Any:
                values = {**fixed, "wanted": wanted}
                return values if order is None else tuple(values[name] for name in order)

            kinds = ((each.name, each.type.dialect_impl(dialect)) for each in known.table.columns)
            made = ((name, kind.result_processor(dialect, None)) for name, kind in kinds)
            statement = _Statement(
                compiled.string,
                given,
                known,
                tuple(each.name for each in known.table.columns),
                tuple((name, convert) for name, convert in made if convert is not None),
            )
            mark = _fetch(connection.connection, statement, "" if self.at_once else [""])[0][:MARKS]
        statement = self._statements[view] = replace(statement, mark=mark)
        return statement

    def _run(self, statement: _Statement, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        if self.at_once:
            if self._own is None:
                self._own = that_waits_for_no_lock(self._store.engine)
            own = self._own
            return [row for key in keys for row in _fetch(own, statement, key)]
        connection = self._pooled().raw_connection()
        try:
            return _fetch(connection, statement, [without_nul(key) for key in keys])
        except BaseException:
            connection.invalidate()
            raise
        finally:
            connection.close()

    def _pooled(self) -> Engine:
        """Connections that are asked nothing beside the statement: no transaction, and not whether they live."""
        with self._lock:
            if self._pool is None:
                self._pool = create_engine(
                    self._store.url,
                    isolation_level="AUTOCOMMIT",
                    pool_size=MOST_CONNECTIONS,
                    max_overflow=0,
                    pool_timeout=_POOL_WAIT_S,
                    pool_reset_on_return=None,
                )
            return self._pool

    def _let_go(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            with suppress(sqlite3.Error, SQLAlchemyError):
                own.close()


def _fetch(
    connection: PoolProxiedConnection, statement: _Statement, wanted: str | Sequence[str]
) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    try:
        cursor.execute(statement.sql, statement.given(wanted))
        return [tuple(row) for row in cursor.fetchall()]
    finally:
        cursor.close()
