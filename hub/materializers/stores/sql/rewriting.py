"""[edge] SQLite: rewrite the file of a store, so that no page of a removed table is left in it."""

from __future__ import annotations

from contextlib import closing

from sqlalchemy import Engine

from hub.errors import PeerError
from hub.materializers.stores.sql.connection import translated_errors

WAIT_MS = 30_000


def rewrite_file(engine: Engine, wait_ms: int = WAIT_MS) -> bool:
    """Rewrite the file of SQLite, and empty its write-ahead log. Returns False for Postgres, which frees the
    file of a dropped table by itself. Raises PeerError while readers hold the log; try again.
    """
    if engine.dialect.name != "sqlite":
        return False
    with translated_errors(engine), closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={wait_ms}")
        cursor.execute("VACUUM")
        busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        cursor.close()
    if busy:
        raise PeerError("the store's write-ahead log is in use", hint="try again", code="HUB-3040")
    return True
