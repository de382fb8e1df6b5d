"""[edge] psycopg: rows by key from Postgres, queried in the event loop, many keys per query.

Threads that compete for the interpreter cost a read more than the database does; a connection watched by the
event loop needs none. The planner is the other cost: by default it plans each query again, which takes three
times as long as the answer. So one plan is kept, and since it is made once for a table of any size, it may
only be a scan of the key's index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from hub.errors import HubError
from hub.materializers.stores.prepared import Found, PreparedStatements, Row, StoreStatement
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.stored_row import without_nul

# Connections for reads by key, in addition to the store's own.
MOST_CONNECTIONS = 8
# Time limit of an answer, including connecting and waiting for a connection.
_ANSWER_S = 5.0
_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

_Cursor = psycopg.AsyncCursor[Row]


class PostgresReads:
    """Reads of one store in one event loop. A hundred keys cost little more than one."""

    def __init__(self, store: Store) -> None:
        self._store, self._statements = store, PreparedStatements(store)
        self._free: list[_Cursor] = []
        self._turns = asyncio.Semaphore(MOST_CONNECTIONS)
        # Preparing a statement may wait for the database as long as the store does, so it has a thread of its
        # own.
        self._maker = ThreadPoolExecutor(1, "prepared-reads")

    async def find(self, view: str, keys: Sequence[str]) -> list[Found] | None:
        """Return each key's row (None: never existed) and the coverage, of one moment. None: no answer, use
        the store.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                for _ in range(2):
                    statement = self._statements.get(view)
                    if statement is None:
                        loop = asyncio.get_running_loop()
                        statement = await loop.run_in_executor(self._maker, self._statements.make, view)
                    async with self._turns:
                        rows = await self._ask(statement, keys)
                    found = self._statements.answers(view, statement, rows)
                    if found is not None:
                        return found
        except (HubError, SQLAlchemyError, psycopg.Error, TimeoutError):
            self._statements.forget(view)
        return None

    async def close(self) -> None:
        self._maker.shutdown(wait=False, cancel_futures=True)
        free, self._free = self._free, []
        for cursor in free:
            await cursor.connection.close()

    async def _ask(self, statement: StoreStatement, keys: Sequence[str]) -> list[Row]:
        """Run the statement. A connection that fails, or whose query was cancelled, is not used again."""
        cursor = self._free.pop() if self._free else await self._connect()
        try:
            await cursor.execute(statement.sql, statement.given([without_nul(key) for key in keys]))
            rows = await cursor.fetchall()
        except BaseException:
            with suppress(psycopg.Error):
                await cursor.connection.close()
            raise
        self._free.append(cursor)
        return rows

    async def _connect(self) -> _Cursor:
        """Open a connection in autocommit mode, without a liveness check."""
        dialect = self._store.engine.dialect
        given, named = dialect.create_connect_args(self._store.engine.url)
        made: dict[str, Any] = {**named, "autocommit": True}
        connection = await psycopg.AsyncConnection.connect(*given, **made)
        cursor = connection.cursor()
        try:
            for setting in _SETTINGS.items():
                await cursor.execute("SELECT set_config(%s, %s, false)", setting)
        except BaseException:
            await connection.close()
            raise
        return cursor
