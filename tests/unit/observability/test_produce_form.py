"""The form that produces a message: from the fields of a schema to a request of the gateway, and again from a
message."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from browser.staged_estate import ORDERS, StagedEstate
from fastapi.testclient import TestClient

from hub.caller import CALLER, AccessDecision, Caller
from hub.errors import CallerError
from hub.masking.shape import MaskedField, Visibility
from hub.masking.values import Treatment
from hub.observability.web.pages.explore import produce
from hub.observability.web.pages.explore.produce import ProducePage, TopicSchemas
from hub.record import NewRecord, Record
from hub.schema_registry.describe import describe
from hub.topics.browse.rendered import RenderedBytes, Schema, message

OWN = {"accept": "text/html", "sec-fetch-site": "same-origin"}
URL = f"/topics/{ORDERS}/produce"
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "string", "doc": "Its <b>id</b>."},
        {"name": "count", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "paid", "type": "boolean", "default": False},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "old", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def page_of(values: dict[str, str], mode: str = "fields", **more: Any) -> ProducePage:
    view = describe("AVRO", AVRO) if more.get("value") is None else None
    schemas = replace(TopicSchemas("t-value", "", "AVRO"), **more)
    return ProducePage("t", 3, "id", schemas, mode, produce.form_fields(view), values)


FILLED = {
    "field.id": "o-1", "field.count": "9007199254740993", "field.kind": "B", "field.tags": '["x"]',
    "field.at": "2026-01-31T12:00:00Z",
}  # fmt: skip


def test_fields_have_the_inputs_of_their_types() -> None:
    found = {each.name: each for each in page_of({}).fields}
    assert {name: each.form for name, each in found.items()} == {
        "id": "text", "count": "number", "kind": "choice", "paid": "choice", "note": "text", "old": "number",
        "tags": "json", "at": "text",
    }  # fmt: skip
    assert found["kind"].options == ("A", "B") and found["paid"].options == ("true", "false")
    assert (found["paid"].empty, found["note"].empty, found["old"].empty) == (
        "default false",
        "default null",
        "null",
    )
    assert [name for name, each in found.items() if each.required] == ["count", "kind", "tags", "at"]


def test_a_form_becomes_a_record_of_the_gateway() -> None:
    record = produce.record_of(page_of({**FILLED, "partition": "2", "headers": "a: 1\nb:x:y"}))
    assert record == {
        "value": {"data": {
            "id": "o-1", "count": 9007199254740993, "kind": "B", "tags": ["x"], "old": None,
            "at": "2026-01-31T12:00:00Z",
        }},
        "key": {"type": "STRING", "data": "o-1"},  # the field that topics.yaml names
        "partition_id": 2,
        "headers": [{"name": "a", "value": "MQ=="}, {"name": "b", "value": "eDp5"}],
    }  # fmt: skip


def test_a_key_is_typed_and_a_tombstone_has_no_value() -> None:
    assert produce.record_of(page_of({"tombstone": "1", "key": "k"})) == {
        "key": {"type": "STRING", "data": "k"}
    }
    keyed = page_of({"tombstone": "1", "key": '{"a": 1}'}, mode="json", key="t-key")
    assert produce.record_of(keyed) == {"value": None, "key": {"data": {"a": 1}}}
    plain = page_of({"value": "QUJD", "type": "BINARY"}, mode="json", value="")
    assert produce.record_of(plain)["value"] == {"type": "BINARY", "data": "QUJD"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"field.count": "many"}, 'field "count": not JSON'),
        ({"field.tags": "[1,"}, 'field "tags": not JSON'),
        ({"partition": "3"}, 'is not a partition'),
        ({"headers": "no colon"}, "a colon is missing"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_named(values: dict[str, str], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        produce.record_of(page_of({**FILLED, **values}))


def test_the_equal_command() -> None:
    record = produce.record_of(page_of({"value": '{"id": "it\'s"}', "key": "k"}, mode="json"))
    words = shlex.split(produce.command_of("t", record, "http://hub"))
    assert words == ["hub", "topic", "publish", "t", "-k", "k", "-j", '{"id": "it\'s"}']
    placed = shlex.split(produce.command_of("t", {**record, "partition_id": 1}, "http://hub"))
    assert placed[0] == "curl" and "http://hub/v3/clusters/-/topics/t/records" in placed
    assert json.loads(placed[-1])["partition_id"] == 1


def shown(value: bytes | None, *headers: tuple[str, bytes | None]) -> Any:
    return message(Record("t", 1, 7, 0, b"k", value, headers), lambda _id: None)


def test_a_message_is_sent_again_with_its_parts() -> None:
    values, notes = produce.again(
        shown(b'{"a": 1}', ("source", b"x"), ("hub.producer", b"y"), ("raw", b"\xff\x00"))
    )
    assert json.loads(values["value"]) == {"a": 1} and values["key"] == "k" and values["partition"] == "1"
    assert values["headers"] == "source: x" and len(notes) == 2
    assert produce.again(shown(None))[0]["tombstone"] == "1"


def test_a_message_that_the_form_cannot_hold_is_refused() -> None:
    good = shown(b'{"a": 1}')
    encrypted = Schema(1, "AVRO", encrypted=("ssn",))
    for value in (
        replace(good.value, cut="900 characters"),
        replace(good.value, problem="no schema 9"),
        replace(good.value, schema=encrypted),
        RenderedBytes("hex", "ff", "ff", 1),
    ):
        with pytest.raises(CallerError, match="cannot be sent again"):
            produce.again(replace(good, value=value))


FORM = {
    "field.order_id": "o-9",
    "field.customer_id": "C-1",
    "field.amount_cents": "100",
    "key": "o-9",
    "once": "n1",
}


def test_the_form_is_json_for_programs(client: TestClient) -> None:
    told = client.get(f"/api{URL}").json()
    assert [each["name"] for each in told["fields"]][:2] == ["order_id", "customer_id"]
    assert told["mode"] == "fields" and told["schemas"]["value"] == f"{ORDERS}-value"


def test_the_page_writes_once(hub: StagedEstate, client: TestClient) -> None:
    page = client.get(URL, headers=OWN).text
    assert 'name="field.amount_cents"' in page and 'name="once"' in page and "Whose it is." in page
    assert client.post(URL, data=FORM, headers={**OWN, "sec-fetch-site": "cross-site"}).status_code == 400
    command = client.post(URL, data={**FORM, "do": "command"}, headers=OWN)
    assert "hub topic publish shop.orders -k o-9" in command.text and hub.gateway.written == []
    done = [client.post(URL, data=FORM, headers=OWN) for _ in range(2)]
    assert {each.headers["location"] for each in done} == {f"{URL}?sent=0:0&mode=fields"}
    ((topic, record),) = hub.gateway.written
    assert topic == ORDERS and record["value"]["data"]["amount_cents"] == 100
    assert "offset 0" in client.get(done[0].headers["location"], headers=OWN).text
    client.post(URL, data={**FORM, "key": "other"}, headers=OWN)  # corrected: another message
    assert len(hub.gateway.written) == 2


def test_a_refused_message_stays_in_the_form(hub: StagedEstate, client: TestClient) -> None:
    hub.gateway.refuses = {
        "error_code": 422,
        "message": 'rule "<b>" refuses it',
        "hint": "fix",
        "code": "HUB-1214",
    }
    page = client.post(URL, data=FORM, headers=OWN)
    assert page.status_code == 400 and "HUB-1214" in page.text and 'value="o-9"' in page.text
    assert "&lt;b&gt;" in page.text
    wrong = client.post(URL, data={**FORM, "field.amount_cents": "ten"}, headers=OWN)
    assert wrong.status_code == 400 and "amount_cents" in wrong.text and 'value="ten"' in wrong.text


def test_a_masked_caller_gets_no_prefilled_values(hub: StagedEstate, client: TestClient) -> None:
    hub.cluster.writer().append([NewRecord("crm.customers", b"k", b'{"email": "a@b.c"}', partition=0)])
    last = len(hub.cluster.logs["crm.customers"][0]) - 1
    again = f"/topics/crm.customers/produce?partition=0&offset={last}"
    assert "a@b.c" in client.get(again, headers=OWN).text
    masked = Visibility("crm.customers", (MaskedField(("phone",), Treatment("hashed")),), secret=b"s")
    caller = Caller(
        "ana", frozenset(), lambda *_: AccessDecision(True, ""), shape=lambda _what: masked, is_masked=True
    )
    before = CALLER.set(caller)
    try:
        refused = client.get(again, headers=OWN)
        assert (
            refused.status_code in (400, 403) and "a@b.c" not in refused.text and "HUB-1722" in refused.text
        )
    finally:
        CALLER.reset(before)
