"""[edge] SQLAlchemy: engines of SQLite and Postgres, and a database's errors as errors of the hub."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError, StatementError

from hub.errors import HubError, PeerError
from hub.materializers.stores.columns import json_text
from hub.materializers.stores.sql.postgres_copy import driver_refused, is_driver_error
from hub.materializers.stores.store import StoreRefused


def open_engine(url: str) -> Engine:
    """Return the engine of a URL. In SQLite, transactions with the option ``hub_writes`` take the write lock
    at once.
    """
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=8, json_serializer=json_text)
    engine = create_engine(
        url,
        connect_args={"timeout": 30, "check_same_thread": False},
        pool_size=8,
        json_serializer=json_text,
        json_deserializer=orjson.loads,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "temp_store=MEMORY", "cache_size=-32768"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer that reads first would be refused its lock after another's write: it takes the lock at
        # once.
        writes = connection.get_execution_options().get("hub_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def connect_without_waiting(engine: Engine) -> PoolProxiedConnection:
    """Open a connection to SQLite outside the pool that fails at once when the file is busy."""
    connection = engine.raw_connection()
    connection.detach()
    connection.cursor().execute("PRAGMA busy_timeout=0")
    return connection


@contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Raise StoreRefused for an error of the statement or its values,
    PeerError for any other of the database."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        if not (isinstance(error, SQLAlchemyError | OverflowError) or is_driver_error(error)):
            raise
        cause = getattr(error, "orig", None) or error
        message = str(cause).split("\n")[0]
        store = engine.url.render_as_string(hide_password=True)
        if _refused(error, cause):
            raise StoreRefused(
                f'store "{store}" refuses: {message}', hint="the message is the database's own"
            ) from error
        raise PeerError(
            f'store "{store}": {message}',
            hint="is the database there and is there room on its disk?",
            code="HUB-3040",
        ) from error


def _refused(error: Exception, cause: BaseException) -> bool:
    return (
        isinstance(error, DataError | IntegrityError | ProgrammingError | OverflowError)
        or type(error) is StatementError
        or driver_refused(cause)
        or _sqlite_refused(cause)
    )


def _sqlite_refused(error: BaseException) -> bool:
    """Return whether SQLite refused a statement (too many columns, a name in use), which it reports as
    operational.

    A missing object means that somebody removed the file, and is not a refusal.
    """
    wrong = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return wrong and not str(error).startswith("no such")
