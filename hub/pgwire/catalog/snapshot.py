"""[core] The objects that one caller may see, as tables of a catalog, with stable numbers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

VIEWS, TOPICS, QUERIES, SYSTEM = "public", "topics", "queries", "hub"
# OIDs below are Postgres' own; those of tables in the search path are below _HIDDEN.
_FIRST, _HIDDEN = 16_384, 1 << 30
SCHEMAS: dict[str, int] = {
    "pg_catalog": 11,
    "public": 2200,
    "information_schema": 13_000,
    TOPICS: 13_001,
    QUERIES: 13_002,
    SYSTEM: 13_003,
}


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    name: str
    oid: int


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of a schema. ``relkind``: v (a view, a saved query) or r (a topic, a system table)."""

    schema: str
    name: str
    relkind: str
    columns: tuple[CatalogColumn, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A saved query; ``parameters`` are the names of its parameters."""

    name: str
    doc: str
    sql: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Everything that one caller sees. Two callers with the same snapshot share one catalog."""

    tables: tuple[CatalogTable, ...]
    queries: tuple[CatalogQuery, ...] = ()


@dataclass(slots=True)
class TableNumbers:
    """OIDs of tables by schema and name: from a hash, so that they stay the same while others come and go."""

    _taken: set[int] = field(default_factory=set)

    def of(self, schema: str, name: str) -> int:
        room = _HIDDEN - 2 * _FIRST
        number = _FIRST + zlib.crc32(f"{schema}.{name}".encode()) % room
        if schema not in (VIEWS, TOPICS, "pg_catalog"):
            number += _HIDDEN
        while number in self._taken:
            number += 1
        self._taken.add(number)
        return number


def numbered(tables: Iterable[CatalogTable]) -> list[tuple[int, CatalogTable]]:
    """Return tables with their OIDs, in order of schema and name."""
    numbers = TableNumbers()
    ordered = sorted(tables, key=lambda each: (each.schema, each.name))
    return [(numbers.of(each.schema, each.name), each) for each in ordered]
