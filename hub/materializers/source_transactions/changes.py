"""[core] Records of Debezium as boundaries of transactions and as changes of rows.

Formats: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-transaction-metadata
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.record import Record

NO_TRANSACTION = (
    "it is a change without a transaction: set provide.transaction.metadata: true in the connector's config"
)


class NotOfDebezium(ValueError):
    """A record is not what Debezium writes to its topic."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Begin or end of a transaction. ``id``: what its rows have, too. ``name``: the id as it is written here.
    ``counts``: rows by table, of an end; None: a begin.
    """

    record: Record
    id: str
    name: str
    counts: Mapping[str, int] | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row within a transaction. ``order``: its place there. ``op``: c, u, d, and others that
    change no row alone. ``row``: the row after the change; of a deletion, before it.
    """

    record: Record
    collection: str
    transaction: str
    order: int
    op: str
    row: Mapping[str, Any]
    before: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A row that a snapshot read, outside of any transaction."""

    record: Record


def boundary_of(record: Record, value: Any) -> Boundary:
    """Return the boundary that a record of the transaction topic is. Raises NotOfDebezium."""
    body = _body(value)
    status, id = body.get("status"), body.get("id")
    if status not in ("BEGIN", "END") or not isinstance(id, str):
        raise NotOfDebezium("the record is not a BEGIN or END of a transaction by Debezium")
    at_ms = body.get("ts_ms")
    counts = None
    if status == "END":
        try:
            listed = [
                (each["data_collection"], each["event_count"]) for each in body["data_collections"] or ()
            ]
            counts = {str(name): int(count) for name, count in listed}
        except (KeyError, TypeError, ValueError):
            raise NotOfDebezium("its END has no data_collections with event_count") from None
    return Boundary(
        record, transaction_id(id), id, counts, at_ms if isinstance(at_ms, int) else record.timestamp_ms
    )


def change_of(record: Record, value: Any) -> RowChange | SnapshotRow:
    """Return the change that a record of a table's topic is. Raises NotOfDebezium."""
    body = _body(value)
    op, source, transaction = body.get("op"), body.get("source"), body.get("transaction")
    if not isinstance(op, str) or not isinstance(source, Mapping):
        raise NotOfDebezium("the record is not a change event of Debezium: it has no op and source")
    if transaction is None:
        if op == "r":
            return SnapshotRow(record)
        raise NotOfDebezium(NO_TRANSACTION)
    try:
        id, order = transaction_id(str(transaction["id"])), int(transaction["total_order"])
    except (KeyError, TypeError, ValueError):
        raise NotOfDebezium("its block `transaction` has no id and total_order") from None
    before, after = (body.get(name) for name in ("before", "after"))
    row = before if op == "d" else after
    return RowChange(
        record,
        _collection(source),
        id,
        order,
        op,
        row if isinstance(row, Mapping) else {},
        before if isinstance(before, Mapping) else {},
    )


def transaction_id(name: str) -> str:
    """Return what all records of a transaction have in common in its id. On Postgres, Debezium writes the
    transaction's number and the LSN of the single record.

    >>> transaction_id("764:26441160"), transaction_id("5.6.641")
    ('764', '5.6.641')
    """
    found = re.fullmatch(r"(\d+):\d+", name)
    return name if found is None else found[1]


def _body(value: Any) -> Mapping[str, Any]:
    """Return the event, which Connect's JSON with a schema has under ``payload``."""
    inner = value.get("payload", value) if isinstance(value, Mapping) else None
    if not isinstance(inner, Mapping):
        raise NotOfDebezium("the value is not a JSON object")
    return inner


def _collection(source: Mapping[str, Any]) -> str:
    """Return the name of the table as Debezium counts it: schema and table, or database and table."""
    schema = source.get("schema") or source.get("db")
    return f"{schema}.{source.get('table')}"
