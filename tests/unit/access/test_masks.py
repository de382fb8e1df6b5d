"""Masks: rules and facts in, the shape that a principal sees out; and values, events and rows as seen."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from mask_facts import SECRET, KnownFacts, caller_of, rules_of
from pydantic import ValidationError

from hub.access.access_yaml import AccessFile
from hub.access.decide import Principal
from hub.access.kafka_grants import desired_rules
from hub.access.masking.explain import explained
from hub.access.masking.facts import ColumnOrigin, TopicFields, ViewColumns
from hub.access.masking.nodes import MaskNode
from hub.api.masking.schema_fields import tagged_fields
from hub.api.masking.view_origins import combined, origins_of
from hub.caller import Kind, Resource
from hub.errors import CallerError, PeerError
from hub.masking.shape import KEY, MaskRefused, Visibility
from hub.masking.values import pads_of, treated
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of
from hub.record import Record
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.browse.rendered import contains_words, message

PII = frozenset({"PII"})
ORDERS = TopicFields({("email",): PII, ("customer", "phone"): PII, ("total",): frozenset()}, "id")
CUSTOMERS = ViewColumns(
    {
        "mail": (ColumnOrigin("shop.orders", ("email",)),),
        "total": (ColumnOrigin("shop.orders", ("total",)),),
        "both": (ColumnOrigin("shop.orders", ("total",)), ColumnOrigin("shop.orders", ("email",))),
        "who": (ColumnOrigin("shop.orders", ("customer",)),),
        "blind": None,
    },
    ("shop.orders",),
    (ColumnOrigin("shop.orders", ("id",)),),
)
ON_TOP = ViewColumns(
    {"m": (ColumnOrigin("views.customers", ("mail",)),), "t": (ColumnOrigin("views.customers", ("total",)),)},
    ("views.customers",),
    (),
    ("t",),
)
FACTS = KnownFacts({"shop.orders": ORDERS}, {"customers": CUSTOMERS, "top": ON_TOP})
TAGGED = {"tags": ["PII"], "topics": ["shop.**"], "as": "hashed"}


def shape(
    masks: list[dict[str, Any]], name: str = "ana", *, of: str = "customers", **node: Any
) -> Visibility:
    caller = caller_of(rules_of(FACTS, masks, **{name: node}), name)
    kind = Kind.topic if "." in of else Kind.view
    return caller.shape(Resource(kind, of))


def seen(found: Visibility) -> dict[str, str]:
    return {each.name: str(each.treatment) for each in found.fields}


def test_a_tag_on_a_topics_field_follows_into_views_and_views_on_views() -> None:
    assert seen(shape([TAGGED], of="shop.orders")) == {"email": "hashed", "customer.phone": "hashed"}
    # "both" is made of a tagged field and another, "who" holds one, and "blind" may hold anything.
    assert seen(shape([TAGGED])) == dict.fromkeys(("mail", "both", "who", "blind"), "hashed")
    assert seen(shape([TAGGED], of="top")) == {"m": "hashed"}
    assert shape([TAGGED]).of_column("a column of a later version").form == "hashed"


def test_a_named_field_is_masked_in_views_too_whatever_they_call_it() -> None:
    found = shape([{"fields": ["email"], "topics": ["shop.orders"], "as": "nulled"}])
    assert seen(found) == dict.fromkeys(("mail", "both", "blind"), "nulled")
    assert seen(shape([{"fields": ["total"], "views": ["customers"], "as": "nulled"}])) == {"total": "nulled"}
    nested = shape([{"fields": ["phone"], "topics": ["shop.orders"], "as": "nulled"}])
    assert nested.of_column("who").form == "nulled"


@pytest.mark.parametrize(
    ("groups", "said"),
    [([], "hashed"), (["support"], "partial(4)"), (["support", "privacy"], "shown"), (["privacy"], "shown")],
)
def test_of_a_rule_the_most_open_entry_of_a_principal_holds(groups: list[str], said: str) -> None:
    rule = {**TAGGED, "groups": {"support": "partial(4)", "privacy": "shown"}}
    assert str(shape([rule], of="shop.orders", groups=groups).of_column("email")) == said
    # An entry of the user itself wins, and of several rules the strictest.
    assert (
        shape([{**rule, "users": {"ana": "refused"}}], of="shop.orders", groups=groups)
        .fields[0]
        .treatment.form
        == "refused"
    )
    strict = [rule, {"fields": ["email"], "topics": ["shop.orders"], "as": "nulled"}]
    assert shape(strict, of="shop.orders", groups=groups).of_column("email").form == "nulled"


def test_a_role_over_the_object_is_a_way_to_name_principals() -> None:
    rule = {**TAGGED, "roles": {"admin": "shown"}}
    grants = [{"role": "admin", "topics": ["shop.**"], "views": ["customers"]}]
    assert shape([rule], grants=grants).is_open and shape([rule], of="shop.orders", grants=grants).is_open
    assert not shape([rule]).is_open
    assert not shape([rule], grants=[{"role": "read", "views": ["customers"]}]).is_open


def test_keys_are_masked_with_the_field_that_they_are_made_of() -> None:
    by_id = {"fields": ["id"], "topics": ["shop.orders"], "as": "hashed"}
    assert shape([by_id]).key.form == "hashed" and shape([by_id], of="shop.orders").key.form == "hashed"
    assert shape([TAGGED]).key.form == "shown" == shape([TAGGED], of="shop.orders").key.form
    keyed = TopicFields({("_key", "email"): PII, ("total",): frozenset()}, "total")
    by_schema = caller_of(rules_of(KnownFacts({"shop.a": keyed}), [TAGGED], ana={}), "ana")
    assert by_schema.shape(Resource(Kind.topic, "shop.a")).key.form == "hashed"
    # Of a SQL view the key follows from its columns.
    assert shape([{"fields": ["t"], "views": ["top"], "as": "nulled"}], of="top").key.form == "nulled"
    # Without a declared key nobody knows what is in it.
    facts = KnownFacts({"shop.orders": TopicFields({("email",): PII})})
    caller = caller_of(rules_of(facts, [TAGGED], ana={}), "ana")
    assert caller.shape(Resource(Kind.topic, "shop.orders")).key.form == "hashed"


def test_rows_are_filtered_by_claims_and_a_missing_claim_sees_nothing() -> None:
    rule = {
        "rows": "region = user.region and kind = 'shop'",
        "views": ["customers"],
        "groups": {"privacy": "shown"},
    }
    found = shape([rule], claims={"region": ["north", "west"]})
    assert found.admits({"region": "north", "kind": "shop"}) and not found.admits(
        {"region": "east", "kind": "shop"}
    )
    assert not found.admits({"kind": "shop"}) and not found.admits(None)
    assert not shape([rule]).admits({"region": "", "kind": "shop"})
    assert shape([rule], groups=["privacy"]).is_open
    assert found.conditions({"region": "string", "kind": "string"})[0] == ("region", "in", ["north", "west"])
    with pytest.raises(CallerError, match="it is double"):
        found.conditions({"region": "double"})


def test_a_view_on_filtered_rows_is_closed_until_a_rule_says_which_of_its_rows_that_means() -> None:
    rule = {"rows": "total = user.total", "topics": ["shop.orders"]}
    with pytest.raises(MaskRefused, match="rows of its source topic"):
        shape([rule]).require("SQL")
    assert shape([rule, {"rows": "all", "views": ["customers"]}]).is_open


def test_records_beside_a_masked_topic_and_changelogs_of_masked_views_are_closed() -> None:
    for topic in ("shop.orders.dlq", "shop.orders.quarantine", "views.customers", "views.customers.dlq"):
        with pytest.raises(MaskRefused, match="SQL cannot show it"):
            shape([TAGGED], of=topic).require("SQL")
        assert shape([{**TAGGED, "users": {"ana": "shown"}}], of=topic).is_open


def test_the_hub_itself_sees_everything_and_nobody_else_before_the_facts_are_known() -> None:
    rules = rules_of(FACTS, [TAGGED], ana={})
    rules.mask_sources.facts = None
    with pytest.raises(PeerError, match="not known yet"):
        caller_of(rules, "ana").shape(Resource(Kind.view, "customers"))
    assert not rules.caller(Principal("_hub", "own")).is_masked


def test_views_that_read_one_another_are_closed() -> None:
    one = ViewColumns({"a": (ColumnOrigin("views.two", ("a",)),)}, ("views.two",))
    two = ViewColumns({"a": (ColumnOrigin("views.one", ("a",)),)}, ("views.one",))
    caller = caller_of(rules_of(KnownFacts(views={"one": one, "two": two}), [TAGGED], ana={}), "ana")
    assert caller.shape(Resource(Kind.view, "one")).of_column("a").form == "refused"


def test_events_are_masked_at_every_depth_however_their_format_wraps_them() -> None:
    found = shape([TAGGED], of="shop.orders")
    hidden = treated("+47", found.fields[0].treatment, SECRET)
    event = {
        "EMAIL": "x",
        "total": 1,
        "customer": {"com.Customer": {"phone": "+47", "name": "A"}},
        "after": {"email": ["a", 7, 1.5]},
        "phone": "stays: it is in no customer",
    }
    made = found.event(event)
    assert made["customer"] == {"com.Customer": {"phone": hidden, "name": "A"}} and made["total"] == 1
    assert made["EMAIL"] != "x" and made["phone"] == event["phone"] and made["after"]["email"][2] is None
    assert found.event("a text has no names") is None


def test_a_refused_field_is_refused_on_ways_without_columns() -> None:
    found = shape([{**TAGGED, "as": "refused"}], of="shop.orders")
    with pytest.raises(MaskRefused, match=r"the list of messages cannot leave it out"):
        found.require_readable("the list of messages")
    with pytest.raises(MaskRefused, match='field "email" is refused'):
        found.event({"email": "x"})
    assert found.event({"email": "x", "total": 2}, refuse=False) == {"email": None, "total": 2}


def test_hashes_are_hmac_and_the_same_for_texts_and_whole_numbers() -> None:
    how = shape([TAGGED], of="shop.orders").fields[0].treatment
    assert treated("C-1", how, SECRET) == hmac.new(SECRET, b"C-1", hashlib.sha256).hexdigest()[:32]
    assert treated(7, how, SECRET) == treated("7", how, SECRET)
    assert [treated(each, how, SECRET) for each in (True, 1.5, b"x", {"a": 1}, None)] == [None] * 5
    inner, outer = pads_of(SECRET)
    made = hashlib.sha256(outer + hashlib.sha256(inner + b"C-1").digest()).hexdigest()[:32]
    assert made == treated("C-1", how, SECRET)


def test_an_explanation_names_the_rule_of_each_field_and_what_has_none() -> None:
    rule = {**TAGGED, "groups": {"support": "partial(4)"}}
    rows = explained(shape([rule], of="shop.orders", groups=["support"]), ORDERS.fields)
    assert {each["what"]: (each["seen"], each["why"]) for each in rows} == {
        "email": ("partial(4)", "masks 1: partial(4) for group support"),
        "customer.phone": ("partial(4)", "masks 1: partial(4) for group support"),
        "total": ("shown", "no rule of masks is about it"),
        KEY: ("shown", "no rule of masks is about it"),
        "rows": ("all", "no rule of masks is about it"),
    }


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"fields": ["a"], "as": "hashed"}, "needs a scope"),
        ({"topics": ["a"], "as": "hashed"}, "needs fields, tags or rows"),
        ({"topics": ["a"], "fields": ["b"]}, "say how everybody else sees"),
        ({"topics": ["a"], "fields": ["b"], "as": "blurred"}, '"blurred" is none of'),
        ({"topics": ["a"], "fields": ["b"], "as": "partial(0)"}, "is none of"),
        ({"topics": ["a"], "fields": ["b c"], "as": "hashed"}, "must be a name"),
        ({"topics": ["a"], "rows": "x > user.y"}, "must be `FIELD = user.CLAIM`"),
        ({"topics": ["a"], "rows": "x = user.y or 1 = 1"}, "must be `FIELD = user.CLAIM`"),
        ({"topics": ["a"], "rows": "x = user.y", "as": "hashed"}, "rows stands alone"),
        ({"topics": ["a"], "rows": "x = user.y", "users": {"b": "hashed"}}, "can only be: shown"),
        ({"topics": ["a"], "fields": ["b"], "as": "hashed", "deny": 1}, "Extra inputs"),
    ],
)
def test_a_mask_that_says_nothing_clear_is_refused(node: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        MaskNode.model_validate(node)


ENTITY = {
    "view": "v",
    "sources": {"s": {"topic": "shop.*", "key": "_key"}},
    "fields": {"mail": "max(s.email)", "n": "count(*)", "whole": "last(s)", "who": "s._key", "odd": "s.a ->"},
}


def test_what_lineage_does_not_see_counts_as_everything() -> None:
    made = origins_of(body_of(View.model_validate({**ENTITY, "fields": {**ENTITY["fields"]}})))
    assert made.columns["mail"] == (ColumnOrigin("shop.*", ("email",)),) and made.columns["n"] == ()
    assert made.columns["whole"] is None and made.columns["odd"] is None
    assert made.columns["who"] == (ColumnOrigin("shop.*", ("_key",)),) == made.key
    both = combined([made, made], lambda topic: ["shop.a", "shop.b"] if "*" in topic else [topic])
    assert both.sources == ("shop.a", "shop.b") and both.columns["whole"] is None
    assert {each.topic for each in both.columns["mail"] or ()} == {"shop.a", "shop.b"}


def test_tags_are_read_from_every_format_and_from_metadata() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "note", "type": "string"}]}
    avro = {
        "type": "record", "name": "Order", "namespace": "shop",
        "fields": [
            {"name": "mail", "type": ["null", "string"], "confluent:tags": ["PII"]},
            {"name": "lines", "type": {"type": "array", "items": line}, "confluent:tags": ["FREE"]},
        ],
    }  # fmt: skip
    beside = replace(
        SchemaSource.of("AVRO", json.dumps(avro)), metadata={"tags": {"shop.Line.note": ["SECRET"]}}
    )
    assert tagged_fields(beside) == {
        ("mail",): {"PII"}, ("lines",): {"FREE"}, ("lines", "note"): {"FREE", "SECRET"},
    }  # fmt: skip
    tagged = {"type": "string", "confluent:tags": ["PII"]}
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"mail": tagged}}}}
    assert tagged_fields(SchemaSource.of("JSON", json.dumps(schema)))[("a", "mail")] == {"PII"}
    proto = (
        'syntax = "proto3"; import "confluent/meta.proto"; message A { B b = 1; } '
        'message B { string mail = 1 [(confluent.field_meta).tags = "PII"]; }'
    )
    assert tagged_fields(SchemaSource.of("PROTOBUF", proto))[("b", "mail")] == {"PII"}


def test_a_masked_reader_gets_no_read_in_kafka_beside_the_hub() -> None:
    file = AccessFile.model_validate(
        {
            "users": {name: {"grants": [{"role": "read", "topics": ["shop.**"]}]} for name in ("ana", "bob")},
            "masks": [{**TAGGED, "topics": ["shop.orders"], "users": {"bob": "shown"}}],
        }
    )
    people = [Principal(name, "user") for name in file.users]
    topics = ("shop.orders", "shop.orders.dlq", "shop.public")
    rules = desired_rules(file.policy(0), people, topics, file.mask_policy())
    read = {
        (each.principal, each.name) for each in rules if each.operation == "READ" and each.resource == "TOPIC"
    }
    assert read == {("User:ana", "shop.public"), *(("User:bob", topic) for topic in topics)}
    assert {each.pattern for each in rules if each.operation == "DESCRIBE"} == {"LITERAL", "PREFIXED"}


@pytest.mark.parametrize("user", ["ana", "bob"])
def test_messages_are_masked_before_they_are_searched(user: str) -> None:
    record = Record("shop.orders", 0, 0, 0, b"7", b'{"email": "a@x", "total": 5}', (("h", b"a@x"),))
    rules = rules_of(FACTS, [{**TAGGED, "users": {"bob": "shown"}}], ana={}, bob={})
    found = message(record, lambda _id: None, shape=caller_of(rules, user).shape(TOPIC))
    assert found is not None and contains_words(found, ["total"])
    assert contains_words(found, ["a@x"]) == (user == "bob")
    broken = message(
        record._replace(value=b"a@x"), lambda _id: None, shape=caller_of(rules, user).shape(TOPIC)
    )
    assert broken is not None and contains_words(broken, ["a@x"]) == (user == "bob")


TOPIC = Resource(Kind.topic, "shop.orders")
