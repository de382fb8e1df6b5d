"""A view that is drafted from the schemas of its topics: its fields, keys and golden test."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hub.errors import CallerError
from hub.materializers.definition.drafted import DraftSource, ViewDraft, draft

TIME = {"type": "long", "logicalType": "timestamp-millis"}


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": avro_type} for name, avro_type in fields.items()],
    }


MEMBERS = DraftSource("tea.members", record(member_id="string", name="string", at=TIME), "member_id")
ORDERS = DraftSource(
    "tea.orders", record(order_id="string", member_id="string", cents="long", shop_id="long"), "order_id"
)


def view_of(made: ViewDraft) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(made.view)
    return found


def test_the_rows_own_topic_gives_fields_and_others_are_counted_and_added_up() -> None:
    made = draft("v", "member_id", [MEMBERS, ORDERS])
    assert view_of(made) == {
        "view": "v",
        "sources": {
            "members": {"topic": "tea.members", "key": "member_id", "order": "at"},
            "orders": {"topic": "tea.orders", "key": "member_id", "unique_by": "order_id"},
        },
        "fields": {
            "name": "members.name",
            "orders": "count(orders.order_id)",
            "orders_cents": "sum(orders.cents)",
        },
    }
    (case,) = yaml.safe_load(str(made.test))["tests"].values()
    assert case["rows"] == {"a": {"name": "a", "orders": 1, "orders_cents": 1}}


def test_a_topic_without_a_key_in_the_tree_is_counted_by_its_likely_id() -> None:
    made = draft("v", "member_id", [MEMBERS, DraftSource(ORDERS.topic, ORDERS.schema, None)])
    assert view_of(made)["sources"]["orders"]["unique_by"] == "order_id"


def test_names_that_two_topics_have_differ() -> None:
    more = DraftSource("gym.members", record(member_id="string", name="string"), "member_id")
    made = view_of(draft("v", "member_id", [MEMBERS, more]))
    assert made["fields"] == {"name": "members.name", "gym_members_name": "gym_members.name"}


def test_a_topic_without_the_keys_column_is_named_with_its_columns() -> None:
    with pytest.raises(CallerError) as caught:
        draft("v", "name", [MEMBERS, ORDERS])
    assert 'topic "tea.orders" has no column "name"' in caught.value.message
    assert "order_id, member_id" in str(caught.value.hint)


def test_columns_without_a_simple_type_are_no_fields_but_have_a_sample() -> None:
    nested = {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "string"]}]}
    lists = {"type": "array", "items": "string"}
    kinds = {"type": "enum", "name": "K", "symbols": ["x", "y"]}
    schema = record(id="string", kind=kinds, maybe=["null", "double"], nested=nested, lists=lists)
    made = draft("v", "id", [DraftSource("t", schema, None)])
    assert set(view_of(made)["fields"]) == {"kind", "maybe"}
    (case,) = yaml.safe_load(str(made.test))["tests"].values()
    assert case["events"][0]["value"] == {
        "id": "a", "kind": "x", "maybe": 1.5, "nested": {"a": "a"}, "lists": [],
    }  # fmt: skip


def test_no_test_is_drafted_where_no_event_can_be_made_and_no_view_without_a_field() -> None:
    named = record(id="string", name="string", other="elsewhere.Type")
    assert draft("v", "id", [DraftSource("t", named, None)]).test is None
    with pytest.raises(CallerError):
        draft("v", "id", [DraftSource("t", record(id="string", at=TIME), None)])
