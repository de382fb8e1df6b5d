"""Random rows of two tables, in a store of the hub and in tables of Postgres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg

from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YEAR_MS = 1_767_225_600_000
AVRO = {
    "text": "string",
    "int": "long",
    "float": "double",
    "bool": "boolean",
    "time": {"type": "long", "logicalType": "timestamp-millis"},
    "date": {"type": "int", "logicalType": "date"},
}
POSTGRES = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "time": "timestamptz",
    "date": "date",
}
TABLES: Mapping[str, Mapping[str, str]] = {
    "plant": {"city": "text", "note": "text", "n": "int", "m": "int", "x": "float", "big": "bool"}
    | {"seen": "time", "day": "date"},
    "visit": {"plant": "text", "page": "text", "n": "int", "ms": "int", "score": "float", "ok": "bool"}
    | {"at": "time"},
}
TEXTS = (
    "Oslo",
    "oslo",
    "Rome",
    "",
    "a%b",
    "a_b",
    "it's",
    "x\ny",
    "äöü",
    "straße",
    " pad ",
    "12",
    "-3",
    "1.5",
)


def random_rows(chance: Random, table: str, count: int) -> dict[str, dict[str, Any]]:
    """Rows by key. Times are milliseconds since 1970, dates days since 1970."""
    kinds = TABLES[table]
    return {
        f"{table[0]}{number}": {name: _value(chance, kind) for name, kind in kinds.items()}
        for number in range(count)
    }


def _value(chance: Random, kind: str) -> Any:
    if chance.random() < 0.2:
        return None
    if kind == "text":
        return chance.choice((*TEXTS, f"p{chance.randrange(6)}"))
    if kind == "int":
        return chance.choice((0, 1, -1, 2, 3, 7, 10, -12, 1_000_000_007))
    if kind == "float":  # multiples of 1/4: sums are exact in any order
        return chance.choice((0.0, 0.25, 0.5, -0.5, 1.5, -2.5, 2.5, 3.75, 1e6))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "time":
        return NEW_YEAR_MS + chance.choice((0, 1, 59_999, 3_600_000, 86_400_000, -1, 86_399_999 * 40))
    return 20_454 + chance.choice((0, 1, -1, 31, 365, -365))


def fill_store(store: Store, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    for table, found in rows.items():
        fields = [
            {"name": name, "type": ["null", AVRO[kind]], "default": None}
            for name, kind in TABLES[table].items()
        ]
        indexes = [next(iter(TABLES[table]))]
        store.ensure_view(table, {"type": "record", "name": "v", "fields": fields}, indexes, f"t-{table}")
        batch = [RowVersion(key, n + 1, 0, n, dict(row)) for n, (key, row) in enumerate(found.items())]
        store.apply([ViewBatch(table, batch, Positions.of([(f"views.{table}", 0, len(batch))]))])


def fill_postgres(
    connection: psycopg.Connection[Any], rows: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> None:
    for table, found in rows.items():
        columns = ", ".join(f'"{name}" {POSTGRES[kind]}' for name, kind in TABLES[table].items())
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')  # type: ignore[arg-type]
        connection.execute(f'CREATE TABLE "{table}" (key text PRIMARY KEY, {columns})')  # type: ignore[arg-type]
        marks = ", ".join("%s" for _ in range(len(TABLES[table]) + 1))
        for key, row in found.items():
            connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', [key, *_native(table, row)])  # type: ignore[arg-type]


def _native(table: str, row: Mapping[str, Any]) -> Sequence[Any]:
    return [_of_postgres(row[name], kind) for name, kind in TABLES[table].items()]


def _of_postgres(value: Any, kind: str) -> Any:
    if value is None or kind not in ("time", "date"):
        return value
    if kind == "time":
        return EPOCH + timedelta(milliseconds=value)
    return (EPOCH + timedelta(days=value)).date()
