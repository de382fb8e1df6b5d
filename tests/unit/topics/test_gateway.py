"""How much may be under way in the gateway, and what is said over that. Needs no Kafka."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hub.errors import NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.log import TopicDescription
from hub.record import NewRecord, TopicPartition
from hub.schema_registry.avro_json import JsonEncoder
from hub.schema_registry.client import RegistryClient
from hub.topics.gateway import MOST_REQUESTS, Gateway, Request
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


class Acknowledged:
    """A Kafka that takes all, of a topic without a schema."""

    timeout_s = 0.5

    def __init__(self) -> None:
        self.sent: list[tuple[NewRecord, Callable[..., None]]] = []
        self.count = 0

    def topics(self) -> dict[str, TopicDescription]:
        return {"t": TopicDescription("t", "id", 1, 1, {})}

    def cluster_id(self) -> str:
        return "c"

    def sender(self, **_: object) -> Acknowledged:
        return self

    def send(self, new: NewRecord, acknowledged: Callable[..., None]) -> None:
        self.sent.append((new, acknowledged))

    def poll(self, wait_s: float) -> None:
        time.sleep(min(wait_s, 0.02))
        while self.sent:
            new, acknowledged = self.sent.pop(0)
            acknowledged(TopicPartition(new.topic, 0), self.count, None)
            self.count += 1

    def flush(self, wait_s: float) -> None:
        self.poll(wait_s)

    def close(self, *_: object) -> None: ...

    def down(self, what: str, why: str) -> PeerError:
        return PeerError(f"{what}: {why}")


class NoSchemas:
    def latest(self, subject: str) -> None:
        raise NotFound(subject)


def test_a_record_that_is_nested_too_deep_is_refused_and_the_next_are_acknowledged() -> None:
    """JSON is read deeper than it is written: a small record passes the one and not the other."""
    gateway = Gateway(cast(Any, Acknowledged()), cast(Any, NoSchemas()))
    gateway.start()

    def produced(data: bytes) -> Any:
        body = b'{"value": {"type": "JSON", "data": %s}}' % data
        return gateway.submit(Request("t", body), gateway.admit(len(body))).result(5.0).lines[0]

    deep = b"[" * 300 + b"]" * 300
    assert [produced(each)["error_code"] for each in (b"1", deep, b"2")] == [200, 422, 200]
    assert not gateway._batches
    gateway._batches.add(cast(Any, None))  # whatever goes wrong there, acknowledgements go on
    time.sleep(0.1)
    gateway._batches.clear()
    assert produced(b"3")["error_code"] == 200 and gateway._poller.is_alive()
    gateway.stop()
