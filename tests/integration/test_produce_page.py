"""The form that produces a message, on a real server and Kafka: the gateway's rules hold, and a message is
sent again."""

from __future__ import annotations

import html
import re
import uuid

import httpx2
import orjson
import pytest
from patience import patient
from pipeline import wait_until

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.schema_registry.client.registry_client import RegistryClient

PAGE = {"accept": "text/html", "sec-fetch-site": "same-origin"}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip
FORM = {
    "field.id": "o-1", "field.cents": "9007199254740993", "field.state": "PAID", "field.price": "12.50",
    "field.at": "2026-01-31T12:00:00Z", "field.lines": '[{"sku": "é"}]', "key": "o-1", "partition": "1",
    "headers": "source: console", "once": "n",
}  # fmt: skip


@pytest.fixture
def topic(settings: Settings, hub_server: str) -> str:
    name = f"form.{uuid.uuid4().hex[:8]}"
    KafkaCluster(settings.bootstrap, 10.0).create_topic(name, partitions=2, config={}, replication_factor=1)
    RegistryClient(hub_server).register(f"{name}-value", orjson.dumps(SCHEMA).decode())
    return name


def opened(http: httpx2.Client, url: str) -> httpx2.Response:
    """The page, once the server knows the topic: it lists them every second."""
    wait_until(lambda: http.get(url, headers=PAGE).status_code == 200, patient(60.0))
    return http.get(url, headers=PAGE)


def test_a_message_is_written_once_by_the_rules_and_sent_again(hub_server: str, topic: str) -> None:
    url = f"/topics/{topic}/produce"
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        form = opened(http, url).text
        assert 'name="field.cents"' in form and "<option>PAID</option>" in form
        wrong = http.post(url, data={**FORM, "field.price": "12.345"}, headers=PAGE)
        assert wrong.status_code == 400 and "price" in html.unescape(wrong.text) and "HUB-1" in wrong.text
        unknown = http.post(url, data={**FORM, "field.state": "LOST"}, headers=PAGE)
        assert unknown.status_code == 400 and "state" in unknown.text
        done = [http.post(url, data=FORM, headers=PAGE) for _ in range(3)]
        (place,) = {each.headers["location"] for each in done}
        assert place.startswith(f"{url}?sent=1:0")
        assert "offset 0" in http.get(place, headers=PAGE).text
        (message,) = http.get(f"/api/topics/{topic}/messages").json()["messages"]
        assert orjson.loads(message["value"]["text"]) == {
            "id": "o-1", "cents": 9007199254740993, "state": "PAID", "note": None, "price": "12.50",
            "at": 1_769_860_800_000, "lines": [{"sku": "é"}],
        }  # fmt: skip
        assert message["key"]["text"] == "o-1" and message["headers"][0][0] == "source"
        again = http.get(url, params={"partition": "1", "offset": "0"}, headers=PAGE).text
        value = html.unescape(re.findall(r'<textarea id="value"[^>]*>(.*?)</textarea>', again, re.DOTALL)[0])
        assert orjson.loads(value)["cents"] == 9007199254740993
        sent = {"mode": "json", "value": value, "key": "o-1", "partition": "1", "once": "m"}
        assert http.post(url, data=sent, headers=PAGE).headers["location"].startswith(f"{url}?sent=1:1")
        first, second = http.get(f"/api/topics/{topic}/messages").json()["messages"]
        assert first["value"]["text"] == second["value"]["text"]


def test_a_tombstone_and_a_topic_without_a_schema(settings: Settings, hub_server: str) -> None:
    topic = f"form.{uuid.uuid4().hex[:8]}"
    KafkaCluster(settings.bootstrap, 10.0).create_topic(topic, partitions=1, config={}, replication_factor=1)
    url = f"/topics/{topic}/produce"
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        assert "no schema" in opened(http, url).text
        for number, form in enumerate((
            {"value": '{"a": 1}', "type": "JSON", "key": "k"},
            {"value": "plain é", "type": "STRING", "key": "k"},
            {"tombstone": "1", "key": "k"},
        )):  # fmt: skip
            done = http.post(url, data=form, headers=PAGE)
            assert done.headers["location"].startswith(f"{url}?sent=0:{number}"), done.text
        found = http.get(f"/api/topics/{topic}/messages").json()["messages"]
        assert sorted(each["value"]["form"] for each in found) == ["json", "null", "text"]
