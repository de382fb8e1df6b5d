"""Schemas by words: what is found, in which order, and the filters."""

from __future__ import annotations

import json

import pytest
from effort import costs_at_most

from hub.schema_registry.folder.search import entry_of, search
from hub.schema_registry.registry.snapshot import SubjectVersion

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
    ("crm.customer-value", SubjectVersion(3, '"string"', metadata={"properties": {"owner": "crm-team",
    "tags": "a,b"}})),
    ("shop.orders-value", SubjectVersion(1, ORDER, metadata={"tags": {"**": ["gold"]},
    "properties": {"owner": "shop"}})),
    ("web", SubjectVersion(2, '{"title": "Visit", "properties": {"customer": {"description": "who"}}}',
    "JSON")),
    ("proto", SubjectVersion(1, 'message Payment { repeated string customer = 1; map<string, int32> m = 2; }',
    "PROTOBUF")),
    ("broken", SubjectVersion(1, "{", "AVRO")),
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


def texts(text: str, schema_type: str) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in entry_of("s", SubjectVersion(1, text, schema_type)).texts[1:]]


def test_data_is_no_schema_and_a_property_may_have_any_name() -> None:
    vip = {"name": "Bob", "type": "vip"}
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "map", "values": "int"}, "default": vip}],
    }
    assert texts(json.dumps(avro), "AVRO") == [("name", "R"), ("field", "a")]
    named = {"properties": {"type": "object", "description": "d"}, "default": {"description": "e"}}
    schema = {
        "properties": named,
        "default": {"properties": {"no": 1}},
        "definitions": {"Address": {"enum": ["X"]}},
    }
    assert texts(json.dumps(schema), "JSON") == [
        ("field", "properties"),
        ("field", "default"),
        ("name", "Address"),
        ("doc", "d"),
        ("doc", "e"),
        ("symbol", "X"),
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["tags", "confluent:tags"])
def test_tags_in_the_schema_are_found_as_rules_see_them(key: str) -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", key: ["PII"]}]}
    assert ("tag", "PII") in texts(json.dumps(avro), "AVRO")
    assert ("tag", "PII") in texts(json.dumps({"properties": {"a": {key: ["PII"]}}}), "JSON")


def test_protobuf_has_symbols_docs_and_tags_and_texts_are_no_code() -> None:
    text = """
    // message Gone {} /*
    message A {
      string u = 1 [default = "http://x /* y"]; string b = 2 [default = "int32 no = 3;", (confluent.field_meta).tags = "GOLD"];
      int32 c = 4 [(confluent.field_meta) = { doc: "its c" tags: "PII" tags: "X" }]; /* int32 gone = 5; */
      int32 d = 6 [(confluent.field_meta) = {tags: ["K", "L"]}, (mine).tags = "other"];
    }
    enum E { option allow_alias = true; NONE = 0; OLD = -1 [deprecated = true]; HEX = 0x2; }
    """  # noqa: E501
    found = texts(text, "PROTOBUF")
    assert [each for kind, each in found if kind == "field"] == ["u", "b", "c", "d"]
    assert [each for kind, each in found if kind == "name"] == ["A", "E"]
    assert [each for kind, each in found if kind == "symbol"] == ["NONE", "OLD", "HEX"]
    assert [each for kind, each in found if kind in ("tag", "doc")] == ["GOLD", "its c", "PII", "X", "K", "L"]


@pytest.mark.parametrize(
    "part", ["/* ", "enum a {", "(confluent.a_meta) = {", "message ", "a\t= 1 ", "tags: [", "' "]
)
def test_no_text_takes_long(part: str) -> None:
    """Each beginning of a comment once was looked through to the end of the text."""
    long = f'option java_package = "{part * (300_000 // len(part))}";'
    with costs_at_most(100):
        texts(f"{long}\n{long[22:-2]}", "PROTOBUF")
