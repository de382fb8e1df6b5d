"""Schemas by words: what is found, in which order, and the filters."""

from __future__ import annotations

import json

import pytest

from hub.schema_registry.search import search
from hub.schema_registry.state import Version

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "doc": "An order of a customer.",
        "fields": [
            {"name": "customerId", "type": "string"},
            {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["PLACED"]}},
            {"name": "mail", "type": "string", "confluent:tags": ["PII"]},
        ],
    }
)
LATEST = [
    ("crm.customer-value", Version(3, '"string"', metadata={"properties": {"owner": "crm-team", "tags": "a,b"}})),
    ("shop.orders-value", Version(1, ORDER, metadata={"tags": {"**": ["gold"]}, "properties": {"owner": "shop"}})),
    ("web", Version(2, '{"title": "Visit", "properties": {"customer": {"description": "who"}}}', "JSON")),
    ("proto", Version(1, 'message Payment { repeated string customer = 1; map<string, int32> m = 2; }', "PROTOBUF")),
    ("broken", Version(1, "{", "AVRO")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "filters", "found"),
    [
        ("customer", {}, ["crm.customer-value", "proto", "web", "shop.orders-value"]),
        ("CUSTOMER", {}, ["crm.customer-value", "proto", "web", "shop.orders-value"]),
        ("order", {}, ["shop.orders-value"]),
        ("order placed", {}, ["shop.orders-value"]),
        ("order visit", {}, []),
        ("payment", {}, ["proto"]),
        ("visit", {}, ["web"]),
        ("", {"owner": "Shop"}, ["shop.orders-value"]),
        ("", {"tag": "pii"}, ["shop.orders-value"]),
        ("", {"tag": "gold"}, ["shop.orders-value"]),
        ("", {"tag": "b"}, ["crm.customer-value"]),
        ("", {"field": "customerid"}, ["shop.orders-value"]),
        ("", {"field": "customer"}, ["proto", "web"]),
        ("", {"field": "m"}, ["proto"]),
        ("customer", {"owner": "nobody"}, []),
        ("crm-team", {}, ["crm.customer-value"]),
        ("", {}, ["broken", "crm.customer-value", "proto", "shop.orders-value", "web"]),
    ],
)
def test_what_is_found_in_which_order(words: str, filters: dict[str, str], found: list[str]) -> None:
    assert [each.subject for each in search(LATEST, words, **filters)] == found


def test_a_match_tells_where() -> None:
    (match,) = search(LATEST, "customer shop")
    assert (match.subject, match.version, match.owner, match.tags) == (
        "shop.orders-value",
        1,
        "shop",
        ("PII", "gold"),
    )
    assert match.where == (
        "subject shop.orders-value",
        "owner shop",
        "field customerId",
        "doc An order of a customer.",
    )
