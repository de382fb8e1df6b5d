"""[core] The changes of a transaction as domain events: net changes of rows, parts joined to their root.

An event has the root's columns, ``_op`` (created, updated or deleted), ``_transaction``, ``_committed_at``,
and a list for each part: its rows of the same transaction that belong to the root row, each with its ``_op``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hub.materializers.source_transactions.changes import RowChange
from hub.materializers.types.avro_types import AvroType, kind
from hub.materializers.types.cdc import UNAVAILABLE
from hub.materializers.types.ddl import optional_field
from hub.sinks.assembling.entry import Assemble, Change, Table

OP, TRANSACTION, COMMITTED_AT = "_op", "_transaction", "_committed_at"


class Unassembled(ValueError):
    """Rows of a transaction cannot be put together."""


@dataclass(frozen=True, slots=True)
class NetChange:
    """Effect of a transaction on a row. ``row``: the values after it; of a deletion, before it."""

    op: Change
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """An event of a root row: its key, and its value in JSON."""

    key: bytes
    value: Mapping[str, Any]


def event_schema(topic: str, assemble: Assemble) -> Mapping[str, Any]:
    """Return the Avro schema of the events for a topic.

    >>> root = {"topic": "a.b.orders", "key": "id", "schema": {"id": "int"}}
    >>> event_schema("shop.orders.placed", Assemble.model_validate({"root": root}))["name"]
    'placed'
    """
    *space, name = (_word(each) for each in topic.split("."))
    own = [
        {"name": OP, "type": "string"},
        {"name": TRANSACTION, "type": "string"},
        {"name": COMMITTED_AT, "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    parts = [
        {
            "name": part,
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": f"{name}_{part}",
                    "fields": [*_columns(table), {"name": OP, "type": "string"}],
                },
            },
            "default": [],
        }
        for part, table in assemble.parts.items()
    ]
    schema = {"type": "record", "name": name, "fields": [*_columns(assemble.root), *parts, *own]}
    return {**schema, "namespace": ".".join(space)} if space else schema


def events_of(
    assemble: Assemble, id: str, committed_at_ms: int, changes: Sequence[RowChange]
) -> list[DomainEvent]:
    """Return the events of one transaction, in the order of the roots' first changes. ``changes``: in their
    order. Raises Unassembled for a row without a value that the event needs.
    """
    by_topic: dict[str, list[RowChange]] = {}
    for change in changes:
        by_topic.setdefault(change.record.topic, []).append(change)
    net = {name: net_changes(by_topic.get(table.topic, ())) for name, table in assemble.tables.items()}
    joined = {name: _by_root(part.on, net[name]) for name, part in assemble.parts.items()}
    events = []
    for root in net[""]:
        if root.op not in assemble.when:
            continue
        value = {
            **_values("root", assemble.root, root, assemble.times),
            TRANSACTION: id,
            COMMITTED_AT: committed_at_ms,
        }
        for name, part in assemble.parts.items():
            sought = _sought(root.row.get(column) for column in part.on.values())
            found = joined[name].get(sought, ()) if sought is not None else ()
            value[name] = [_values(name, part, each, assemble.times) for each in found]
        key = value[assemble.root.key]
        if key is None:
            raise Unassembled(f"the root row has no {assemble.root.key}")
        events.append(DomainEvent(str(key).encode(), value))
    return events


def net_changes(changes: Iterable[RowChange]) -> list[NetChange]:
    """Return the effect of changes on each row of one table, in the order of their first changes.

    Rows are told apart by the records' keys, the primary key; without one each change is a row of its own. A
    row that was created and deleted again is left out.
    """
    rows: dict[object, list[RowChange]] = {}
    for change in changes:
        if change.op in ("c", "u", "d"):
            key = change.record.key
            rows.setdefault(change.order if key is None else key, []).append(change)
    found = [_net(each) for each in rows.values()]
    return [each for each in found if each is not None]


def _net(changes: Sequence[RowChange]) -> NetChange | None:
    first, last = changes[0], changes[-1]
    if last.op == "d":
        return None if first.op == "c" else NetChange("deleted", last.row)
    row: dict[str, Any] = {}
    for change in changes:  # an unchanged TOAST value is in an earlier image, if anywhere
        for name, value in change.row.items():
            if value == UNAVAILABLE:
                value = row.get(name, change.before.get(name, value))
            row[name] = value
    return NetChange("created" if first.op == "c" else "updated", row)


def _by_root(on: Mapping[str, str], changes: Iterable[NetChange]) -> dict[tuple[Any, ...], list[NetChange]]:
    joined: dict[tuple[Any, ...], list[NetChange]] = {}
    for change in changes:
        sought = _sought(change.row.get(column) for column in on)
        if sought is not None:
            joined.setdefault(sought, []).append(change)
    return joined


def _sought(values: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return values to join by; None if one is null, which equals nothing."""
    found = tuple(values)
    return None if any(each is None for each in found) else found


def _values(name: str, table: Table, change: NetChange, times: str) -> dict[str, Any]:
    values: dict[str, Any] = {OP: change.op}
    for column, avro_type in table.types.items():
        value = change.row.get(column)
        if value == UNAVAILABLE:
            raise Unassembled(
                f"{column} of {name} is a TOAST value that did not change and is not in the event: "
                "ALTER TABLE … REPLICA IDENTITY FULL"
            )
        values[column] = _value(avro_type, value, times)
    return values


def _value(avro_type: AvroType, value: Any, times: str) -> Any:
    """Return a value of Debezium as the encoder takes it: numbers of times in micros, decimals as text."""
    found = kind(avro_type)
    if found == "timestamp" and type(value) is int:
        return value * 1_000 if times == "millis" else value
    if found == "decimal" and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(value)
    if found == "floating" and type(value) is str:
        return float(value) if re.fullmatch(r"-?[0-9.eE+-]+", value) else value
    return value


def _columns(table: Table) -> list[dict[str, Any]]:
    return [optional_field(name, avro_type) for name, avro_type in table.types.items()]


def _word(text: str) -> str:
    """Return a label of a topic as a name in Avro."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return word if re.match(r"[A-Za-z_]", word) else f"_{word}"
