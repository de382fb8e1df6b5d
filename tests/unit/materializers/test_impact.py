"""Views that a new schema breaks: the columns that they read, and changes that break nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.definition.schema_impact import columns_read, impacts
from hub.schema_registry.registry.snapshot import ParsedSchema, parse

ROOT = Path(__file__).parents[3]


def view(**more: Any) -> View:
    sources = {
        "orders": {"topic": "shop.*", "key": "customer_id", "order": "orders.updated_at", "where": "ok"}
    }
    fields = {
        "spent": "sum(orders.total)",
        "last": "orders.to.city",
        "n": "orders._offset",
        "items": "orders.items",
    }
    return View.model_validate({"view": "v", "sources": sources, "fields": fields, **more})


def test_the_columns_that_a_view_reads() -> None:
    made = view(computed={"double": "spent * 2 + orders.rate"}, delete_when="orders.gone or orders._deleted")
    paths = {
        ("customer_id",),
        ("updated_at",),
        ("ok",),
        ("total",),
        ("to", "city"),
        ("items",),
        ("rate",),
        ("gone",),
    }
    assert columns_read(made) == {"orders": paths}
    example = load_view(ROOT / "examples/customer-360/views/customer_360.yaml")
    assert columns_read(example)["orders"] == {
        ("customer_id",), ("updated_at",), ("order_id",), ("status",), ("amount_cents",)
    }  # fmt: skip


def order(**changes: Any) -> ParsedSchema:
    """The events' schema; a change of None takes the field away."""
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    item = {"type": "record", "name": "Item", "fields": [{"name": "qty", "type": "int"}]}
    types: dict[str, Any] = {
        "customer_id": "string",
        "updated_at": {"type": "long", "logicalType": "timestamp-millis"},
        "ok": "boolean",
        "total": "int",
        "to": ["null", address],
        "items": {"type": "array", "items": item},
        "unread": "int",
        "_deleted": "boolean",
    }
    fields = [{"name": name, "type": each} for name, each in (types | changes).items() if each is not None]
    return parse(
        "AVRO", json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
    )


def named(name: str, *fields: str) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": "long"} for each in fields]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"unread": None}, []),
        ({"unread": "string", "added": "int"}, []),
        ({"total": "long"}, []),
        ({"total": ["null", "int"]}, []),
        ({"updated_at": {"type": "long", "logicalType": "timestamp-micros"}}, []),
        ({"total": None}, ["view v reads orders.total, which version 4 removes"]),
        ({"total": "string"}, ["view v reads orders.total, which version 4 changes from int to string"]),
        ({"total": "double"}, ["view v reads orders.total, which version 4 changes from int to double"]),
        ({"updated_at": "long"},
         ["view v reads orders.updated_at, which version 4 changes from timestamp-millis (long) to long"]),
        ({"to": None}, ["view v reads orders.to, which version 4 removes"]),
        ({"to": ["null", named("Address", "zip")]}, ["view v reads orders.to.city, which version 4 removes"]),
        ({"to": ["null", named("Address", "city")]},
         ["view v reads orders.to.city, which version 4 changes from string to long"]),
        ({"items": {"type": "array", "items": named("Item", "qty", "price")}}, []),
        ({"items": {"type": "array", "items": named("Item", "price")}},
         ["view v reads orders.items.qty, which version 4 removes"]),
        ({"items": "string"}, [("view v reads orders.items, which version 4 changes from array of record "
        "`shop.Item` to string")]),
    ],
)  # fmt: skip
def test_what_breaks(changes: dict[str, Any], expected: list[str]) -> None:
    assert [str(each) for each in impacts([view()], "shop.orders", order(), order(**changes), 4)] == expected


def test_other_topics_other_formats_and_types_within_themselves_break_nothing() -> None:
    assert impacts([view()], "crm.customers", order(), order(total=None), 2) == []
    assert impacts([view()], "shop.orders", parse("JSON", "{}"), parse("JSON", "true"), 2) == []
    tree = {"type": "record", "name": "T", "fields": [{"name": "sub", "type": ["null", "T"]}]}
    assert impacts([view()], "shop.orders", order(items=tree), order(items=tree), 2) == []


def test_a_renamed_column_is_gone_and_no_sql_is_left_out() -> None:
    renamed = json.loads(json.dumps(order().schema))
    field = next(each for each in renamed["fields"] if each["name"] == "total")
    field |= {"name": "sum", "aliases": ["total"]}
    broken = view(computed={"x": "((("})
    (impact,) = impacts([broken], "shop.orders", order(), parse("AVRO", json.dumps(renamed)), 2)
    assert impact.column == "orders.total"
