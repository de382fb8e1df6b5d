"""How much may be under way in the gateway, and what is said over that. Needs no Kafka."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.schema_registry.avro_json import JsonEncoder
from hub.schema_registry.client import RegistryClient
from hub.topics.gateway import MOST_REQUESTS, Gateway
from hub.topics.produce_request import MOST_REQUEST_BYTES, Busy, TooLarge


@pytest.fixture
def gateway() -> Gateway:
    return Gateway(KafkaCluster("127.0.0.1:1", 1.0), RegistryClient("http://127.0.0.1:1"))


def test_bytes_under_way_are_bounded_and_given_back(gateway: Gateway) -> None:
    slots = [gateway.admit(MOST_REQUEST_BYTES) for _ in range(4)]
    with pytest.raises(Busy, match="4 requests"):
        gateway.admit(1)
    slots[0].shrink(MOST_REQUEST_BYTES - 10)
    with pytest.raises(Busy):
        gateway.admit(11)
    small = gateway.admit(10)
    for slot in (*slots, small):
        slot.release()
        slot.release()
    assert [gateway.admit(MOST_REQUEST_BYTES) for _ in range(4)]
    with pytest.raises(TooLarge):
        gateway.admit(MOST_REQUEST_BYTES + 1)


def test_requests_under_way_are_bounded_and_silence_is_kafka_away(gateway: Gateway) -> None:
    for _ in range(MOST_REQUESTS):
        gateway.admit(0)
    with pytest.raises(Busy):
        gateway.admit(0)
    gateway._heard_at_s = time.monotonic() - 60.0
    with pytest.raises(PeerError, match="queue is full") as away:
        gateway.admit(0)
    assert not isinstance(away.value, Busy) and away.value.code == "HUB-3010"


def test_the_examples_of_the_docs_fit_the_sample_schemas() -> None:
    root = Path(__file__).parents[3]
    text = (root / "docs/gateway.md").read_text()
    found = re.findall(r"/topics/([a-z.]+)/(records|events)[^\n]* -d '(\{.*?\})'\n", text, re.DOTALL)
    assert [(topic, form) for topic, form, _ in found] == [
        ("crm.customers", "records"),
        ("shop.orders", "events"),
    ]
    for topic, form, body in found:
        schema = json.loads((root / f"examples/customer-360/schemas/{topic}.avsc").read_text())
        value = json.loads(body)
        value = value["value"]["data"] if form == "records" else value
        encoded = JsonEncoder(schema).body(value)
        assert f'"value":{{"size":{len(encoded) + 5},' in text or form == "events"
