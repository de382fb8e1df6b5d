"""[edge] psycopg: bulk load into a Postgres table by COPY and one merge, within the current transaction.

COPY has no conflict handling, so it fills a temporary table (no log, no indexes, dropped with the
transaction), and one statement merges the newer rows. That statement is most of the server's work and needs
nothing from the client, so the caller can do something else meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import psycopg
from sqlalchemy import Connection, Table

from hub.materializers.stores.store import Meanwhile

_STAGE = "hub_stage"
_KEY = itemgetter(0)


def copy_and_merge(
    connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]], meanwhile: Meanwhile | None
) -> None:
    """Take the rows that have a higher ``_version``; each key occurs once.

    ``rows`` have values in the table's column order, the key first. ``meanwhile`` is called while the server
    works. Raises psycopg.Error.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    names = [quote(column.name) for column in table.columns]
    replaced = ", ".join(f"{each} = excluded.{each}" for each in names if each != quote("key"))
    newer = f"excluded._version > {quote(table.name)}._version"
    conflict = f"({quote('key')}) DO UPDATE SET {replaced} WHERE {newer}"
    _copy(connection, table, rows, conflict, meanwhile)


def copy_new(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Take the rows whose primary keys are new, as ``copy_and_merge`` does. Raises psycopg.Error."""
    _copy(connection, table, rows, "DO NOTHING", None)


def _copy(
    connection: Connection,
    table: Table,
    rows: Sequence[tuple[Any, ...]],
    conflict: str,
    meanwhile: Meanwhile | None,
) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    name, columns = quote(table.name), ", ".join(quote(column.name) for column in table.columns)
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {_STAGE} (LIKE {name}) ON COMMIT DROP")
        with cursor.copy(f"COPY {_STAGE} ({columns}) FROM STDIN") as copy:
            # In the order of the key's index: a sixth less work for the server.
            for row in sorted(rows, key=_KEY):
                copy.write_row(row)
        with driver.pipeline():  # statements in a pipeline are sent without waiting
            cursor.execute(
                f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {_STAGE} ON CONFLICT {conflict}"
            )
            if meanwhile is not None:
                meanwhile()
        cursor.execute(f"DROP TABLE {_STAGE}")  # the next view of this transaction makes its own


def is_driver_error(error: Exception) -> bool:
    return isinstance(error, psycopg.Error)


def driver_refused(error: BaseException) -> bool:
    """Return whether the database answered and refused the rows.

    Includes class 54, which the driver classifies as operational: a key too long for an index fails on every
    retry.
    """
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError):
        return True
    return (getattr(error, "sqlstate", None) or "").startswith("54")
