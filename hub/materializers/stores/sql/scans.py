"""[edge] SQLAlchemy: all live rows of a table, streamed in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from hub.materializers.stores.sql.catalog import Catalog
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.store import KeptRow
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

# Rows that the driver fetches at once.
_CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One of two compared tables: column types, the source positions that its rows cover, and live rows."""

    types: Mapping[str, AvroType]
    sources: Positions
    rows: Callable[[], Iterator[KeptRow]]


def compared_table(connection: Connection, catalog: Catalog, name: str) -> ComparedTable:
    """Return a table with its rows in the order of their keys. Raises NotFound."""
    view_table = catalog.table(connection, name)
    sources = catalog.positions(connection, name, "source")
    return ComparedTable(view_table.types, sources, live_rows(connection, view_table, by_key=True))


def live_rows(
    connection: Connection, view_table: ViewTable, *, by_key: bool = False
) -> Callable[[], Iterator[KeptRow]]:
    """Return the function that streams the live rows of a table while the transaction is open."""
    table = view_table.table

    def rows() -> Iterator[KeptRow]:
        query = select(*view_table.stored_columns()).where(table.c._deleted.is_(False))
        if by_key:
            query = query.order_by(table.c.key)
        streamed = connection.execution_options(yield_per=_CHUNK).execute(query)
        for key, version, *values in streamed:
            yield key, version, values

    return rows
