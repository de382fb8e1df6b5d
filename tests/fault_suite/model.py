"""Topics, schemas and views of a trial, and the plain fold that gives the expected rows of each view."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hub.record import Record
from hub.schema_registry.codecs.wire_format import Undecodable, decode, encode, parsed

ORDERS, PEOPLE, PROBES = "home.orders", "home.people", "home.probes"
PARTITIONS = {ORDERS: 4, PEOPLE: 2, PROBES: 1}
CUSTOMERS = 300
VISITORS = 0.1
"""Share of the orders whose customer orders once. Their rows are written once, so a missed change shows."""
CITIES = ("Oslo", "Lyon", "Graz", "Gent", "Bern", "Cork")

ORDER_V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "seq", "type": "long"},
    ],
}
ORDER_V2: dict[str, Any] = {
    **ORDER_V1,
    "fields": [*ORDER_V1["fields"], {"name": "channel", "type": "string", "default": "web"}],
}
PERSON: dict[str, Any] = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "name", "type": "string"},
    ],
}
PROBE: dict[str, Any] = {
    "type": "record",
    "name": "Probe",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}],
}
SCHEMAS = {ORDERS: ORDER_V1, PEOPLE: PERSON, PROBES: PROBE}

CUSTOMER_TOTALS = """\
view: customer_totals
stores: [serving, warehouse]
sources:
  orders: {topic: home.orders, key: customer, order: seq}
  people: {topic: home.people, key: customer}
delete_when: people._deleted
fields:
  name: people.name
  orders: count(orders.id)
  cents: coalesce(sum(orders.cents), 0)
  last_order: orders.id
indexes: [name]
"""
DISTINCT_ORDERS = """\
view: distinct_orders
stores: [serving, warehouse]
sources:
  orders: {topic: home.orders, key: customer, order: seq, unique_by: id}
fields:
  orders: count(orders.id)
  cents: coalesce(sum(orders.cents), 0)
"""
CITY_TOTALS = """\
view: city_totals
stores: [serving, warehouse]
sources:
  o: {topic: home.orders}
sql: SELECT city, count(*) AS orders, sum(cents) AS cents FROM o GROUP BY city
"""
LAST_PROBE = """\
view: last_probe
sources:
  p: {topic: home.probes, key: id}
fields:
  n: p.n
"""
RECENT_CUSTOMERS = """\
view: recent_customers
stores: [serving, warehouse]
ttl: 1d
sources:
  orders: {topic: home.orders, key: customer}
fields:
  orders: count(orders.id)
  cents: coalesce(sum(orders.cents), 0)
"""
TTL_MS, OLD_MS = 86_400_000, 2 * 86_400_000
"""Age at which its rows are deleted, and that of old events. No clock of a trial is wrong by so much."""
OLD_CUSTOMERS = frozenset(f"c{number}" for number in range(0, CUSTOMERS, 10))
"""Customers whose orders are old, but for a few."""
VIEWS = {
    "recent_customers": RECENT_CUSTOMERS,
    "customer_totals": CUSTOMER_TOTALS,
    "distinct_orders": DISTINCT_ORDERS,
    "city_totals": CITY_TOTALS,
    "last_probe": LAST_PROBE,
}
CHECKED = ("customer_totals", "distinct_orders", "city_totals", "recent_customers")
"""Views that are compared as a whole; ``last_probe`` belongs to the probes."""

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Codec:
    """Schema ids as the registry gave them, and the schemas of ids."""

    ids: Mapping[str, int]
    by_id: dict[int, Any]

    def encode(self, topic: str, event: Mapping[str, Any], schema_id: int | None = None) -> bytes:
        used = schema_id or self.ids[topic]
        names = [each["name"] for each in self.by_id[used]["fields"]]
        return encode(used, parsed(self.by_id[used]), {name: event[name] for name in names if name in event})

    def decode(self, value: bytes) -> dict[str, Any]:
        """The event; raises hub.schema_registry.codecs.wire_format.Undecodable."""
        event: dict[str, Any] = decode(value, self._schema)[1]
        return event

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self.by_id:
            raise Undecodable(f"nobody registered schema id {schema_id}")
        return parsed(self.by_id[schema_id])


def readable(codec: Codec, records: Iterable[Record]) -> list[tuple[Record, dict[str, Any] | None]]:
    """Records with their events, None for a tombstone;
    what no schema can read is left out, as views leave it out."""
    found: list[tuple[Record, dict[str, Any] | None]] = []
    for record in records:
        if record.value is None:
            found.append((record, None))
            continue
        try:
            found.append((record, codec.decode(record.value)))
        except Undecodable:
            continue
    return found


def fold(codec: Codec, orders: Iterable[Record], people: Iterable[Record]) -> dict[str, Rows]:
    """The rows of every checked view, from the records in the log, in plain Python.
    Records come in log order."""
    placed = [(record, event) for record, event in readable(codec, orders) if event is not None]
    totals = _customer_totals(placed, readable(codec, people))
    distinct: Rows = {}
    latest: dict[str, dict[str, Any]] = {}
    for _, event in sorted(placed, key=lambda pair: (pair[1]["seq"], pair[0].offset)):
        latest[event["id"]] = event
    cities: Rows = {}
    for event in latest.values():
        row = distinct.setdefault(event["customer"], {"orders": 0, "cents": 0})
        row["orders"] += 1
        row["cents"] += event["cents"]
    for _, event in placed:
        row = cities.setdefault(event["city"], {"city": event["city"], "orders": 0, "cents": 0})
        row["orders"] += 1
        row["cents"] += event["cents"]
    return {
        "customer_totals": totals,
        "distinct_orders": distinct,
        "city_totals": cities,
        "recent_customers": _recent(placed, time.time() * 1000 - TTL_MS),
    }


def _recent(orders: list[tuple[Record, dict[str, Any]]], cutoff_ms: float) -> Rows:
    rows: Rows = {}
    newest: dict[str, int] = {}
    for record, event in orders:
        key = event["customer"]
        row = rows.setdefault(key, {"orders": 0, "cents": 0})
        row["orders"] += 1
        row["cents"] += event["cents"]
        newest[key] = max(record.timestamp_ms, newest.get(key, 0))
    return {key: row for key, row in rows.items() if newest[key] >= cutoff_ms}


def _customer_totals(
    orders: list[tuple[Record, dict[str, Any]]], people: list[tuple[Record, dict[str, Any] | None]]
) -> Rows:
    names: dict[str, str | None] = {}
    for record, event in people:
        key = (record.key or b"").decode()
        names[key] = None if event is None else event["name"]
    rows: Rows = {}
    newest: dict[str, tuple[int, int]] = {}
    for record, event in orders:
        key = event["customer"]
        row = rows.setdefault(key, {"name": None, "orders": 0, "cents": 0, "last_order": None})
        row["orders"] += 1
        row["cents"] += event["cents"]
        place = event["seq"], record.offset
        if place >= newest.get(key, (-1, -1)):
            newest[key] = place
            row["last_order"] = event["id"]
    for key, name in names.items():
        if name is None:
            rows.pop(key, None)
        else:
            empty = {"name": None, "orders": 0, "cents": 0, "last_order": None}
            rows.setdefault(key, empty)["name"] = name
    return rows


def schema_text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema)
