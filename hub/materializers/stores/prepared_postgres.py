"""[edge] psycopg: rows by key from Postgres, asked in the event loop, many keys in one question.

Threads that hand each other the interpreter cost a read more than the database does; a connection that the event loop watches
needs none. What else is slow is the planner: left to itself it plans each question anew, which takes it three times as long as
the answer. So it keeps one plan, and since that is made once, for a table of any size, it may be nothing but a walk down the
keys' index.
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
from hub.materializers.stores.prepared import Found, PreparedStatement, PreparedStatements, Row
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.stored_row import without_nul

# Connections that reads by key take beside the store's own.
MOST_CONNECTIONS = 8
# What is not answered within this, connecting and waiting for a connection counted, is no answer.
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
    """Of one store and one event loop. A hundred keys cost little more than one."""

    def __init__(self, store: Store) -> None:
        self._store, self._statements = store, PreparedStatements(store)
        self._free: list[_Cursor] = []
        self._turns = asyncio.Semaphore(MOST_CONNECTIONS)
        # Who makes statements waits for the database as long as the store does: it keeps nobody else's thread.
        self._maker = ThreadPoolExecutor(1, "prepared-reads")

    async def find(self, view: str, keys: Sequence[str]) -> list[Found] | None:
        """Each key's row (None: it was never there) and what is covered, of one moment. None: no answer, ask the store."""
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

    async def _ask(self, statement: PreparedStatement, keys: Sequence[str]) -> list[Row]:
        """A connection that fails, or whose answer nobody waited for, is not asked again."""
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
        """No transactions, and not asked whether it lives."""
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
