"""[edge] SQL in the caller's session and transaction: SQLAlchemy or psycopg, sync or async."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hub.errors import CallerError

_PLACE = re.compile(r"(?<!:):([a-z_]+)")


def execute(session: Any, statement: str, values: Mapping[str, Any]) -> Any:
    """Run a statement with places ``:name`` and return its cursor or result.

    ``session``: SQLAlchemy's Session or Connection, psycopg's Connection or Cursor.
    """
    wanted = _statement(session, statement, is_async=False)
    return session.execute(wanted, dict(values))


async def execute_async(session: Any, statement: str, values: Mapping[str, Any]) -> Any:
    """``execute()`` for AsyncSession, AsyncConnection and psycopg's AsyncConnection and AsyncCursor."""
    wanted = _statement(session, statement, is_async=True)
    return await session.execute(wanted, dict(values))


async def rows_async(result: Any) -> list[Any]:
    """Return the rows of a result of ``execute_async``: psycopg awaits them, SQLAlchemy has them."""
    rows = result.fetchall()
    return list(await rows if hasattr(rows, "__await__") else rows)


def _statement(session: Any, statement: str, *, is_async: bool) -> Any:
    library = _library_of(type(session))
    if library is None or library[1] != is_async:
        wanted = (
            "AsyncSession, AsyncConnection or psycopg's AsyncConnection"
            if is_async
            else "Session, Connection or psycopg's Connection"
        )
        other = "AsyncOutbox, AsyncInbox" if not is_async else "Outbox, Inbox"
        raise CallerError(
            f"{type(session).__name__} is not a session that this class can use",
            hint=f"pass a {wanted}; other kinds go with {other}",
        )
    if library[0] == "psycopg":
        _check_in_transaction(session)
        return _PLACE.sub(r"%(\1)s", statement)
    from sqlalchemy import text

    return text(statement)


def _library_of(kind: type) -> tuple[str, bool] | None:
    """Return (library, whether it is async) of a class of sessions; None: it is not one of the known."""
    for each in kind.__mro__:
        library = each.__module__.partition(".")[0]
        if library in ("psycopg", "sqlalchemy"):
            return library, "Async" in each.__name__ or "async" in each.__name__
    return None


def _check_in_transaction(session: Any) -> None:
    connection = getattr(session, "connection", session)
    if connection.autocommit and connection.info.transaction_status.name == "IDLE":
        raise CallerError(
            "the connection commits each statement by itself: no transaction is open",
            hint="open one: with connection.transaction(): …",
        )
