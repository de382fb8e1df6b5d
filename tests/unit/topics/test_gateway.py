"""Produce gateway: limits of requests in progress, and refusals above them. Needs no Kafka."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hub.errors import CallerError, NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.log import TopicDescription
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.gateway.admission import MOST_REQUESTS, Admission
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceBatch, ProduceRequest
from hub.topics.gateway.produce_request import (
    MOST_REQUEST_BYTES,
    Busy,
    Data,
    RecordRequest,
    TooLarge,
)
from hub.topics.gateway.producer import Publisher
from hub.topics.gateway.record_encoder import GatewaySchemas, RequestEncoder


@pytest.fixture
def admission() -> Admission:
    kafka = KafkaCluster("127.0.0.1:1", 1.0)
    return Admission(lambda why: kafka.down("append", why))


def test_bytes_under_way_are_bounded_and_given_back(admission: Admission) -> None:
    slots = [admission.admit(MOST_REQUEST_BYTES, 0.0) for _ in range(4)]
    with pytest.raises(Busy, match="4 requests"):
        admission.admit(1, 0.0)
    slots[0].shrink(MOST_REQUEST_BYTES - 10)
    with pytest.raises(Busy):
        admission.admit(11, 0.0)
    small = admission.admit(10, 0.0)
    for slot in (*slots, small):
        slot.release()
        slot.release()
    assert [admission.admit(MOST_REQUEST_BYTES, 0.0) for _ in range(4)]
    with pytest.raises(TooLarge):
        admission.admit(MOST_REQUEST_BYTES + 1, 0.0)


def test_requests_under_way_are_bounded_and_silence_is_kafka_away(admission: Admission) -> None:
    for _ in range(MOST_REQUESTS):
        admission.admit(0, 0.0)
    with pytest.raises(Busy):
        admission.admit(0, 1.0)
    with pytest.raises(PeerError, match="queue is full") as away:
        admission.admit(0, 1.1)
    assert not isinstance(away.value, Busy) and away.value.code == "HUB-3010"
    admission.note_answer(1.05)
    with pytest.raises(Busy):
        admission.admit(0, 1.1)


def test_requests_are_refused_for_a_moment_after_kafka_did_not_answer(admission: Admission) -> None:
    admission.away(10.0)
    with pytest.raises(PeerError, match="a moment ago"):
        admission.admit(1, 10.9)
    admission.admit(1, 11.0)


def test_a_batch_is_answered_once_when_each_record_has_its_line() -> None:
    answered: list[ProduceBatch] = []
    batch = ProduceBatch(3, answered.append, 0.0)
    place = TopicPartition("t", 0)
    batch.settle(1, {"error_code": 200}, (place, 8))
    batch.settle(1, {"error_code": 500})  # the first line of a record stays
    batch.settle(0, {"error_code": 200}, (place, 7))
    assert not answered
    batch.refuse_rest(PeerError("no answer", code="HUB-3013"))
    batch.refuse_rest(PeerError("no answer"))
    assert answered == [batch]
    answer = batch.answer(None)
    assert (answer.status, answer.single, answer.repeated) == (200, False, False)
    assert [line["error_code"] for line in answer.lines] == [200, 200, 503]
    assert answer.position == Positions({place: 8})
    assert batch.unknown and not batch.is_kept


@pytest.mark.parametrize(
    ("error", "kept", "unknown"),
    [(None, True, False), (NotFound("t"), True, False), (PeerError("away"), False, False)],
)
def test_an_answer_is_kept_if_a_retry_would_write_nothing_more(
    error: NotFound | PeerError | None, kept: bool, unknown: bool
) -> None:
    batch = ProduceBatch(2, lambda _: None, 0.0)
    batch.settle(0, {"error_code": 200})
    if error is None:
        batch.settle(1, {"error_code": 200})
    else:
        batch.refuse(1, error)
    assert (batch.is_kept, batch.unknown) == (kept, unknown)


class Versions:
    """Registry double: ``own`` is known here, ``elsewhere`` after the node has caught up with the log."""

    def __init__(self, own: dict[str, int], elsewhere: dict[str, int]) -> None:
        self.own, self.elsewhere, self.caught_up = own, elsewhere, 0

    def known_latest(self, subject: str) -> RegisteredSchema | None:
        found = self.own.get(subject)
        return None if found is None else RegisteredSchema(found, 1, "")

    def catch_up(self) -> None:
        self.caught_up += 1
        self.own |= self.elsewhere

    def source(self, schema_id: int) -> SchemaSource:
        return SchemaSource.of("AVRO", '"long"' if schema_id == 1 else '"string"')


def record(data: Any) -> RecordRequest:
    return RecordRequest(Data(), Data(None, data))


def test_a_version_of_another_node_is_used_before_a_record_is_refused() -> None:
    registry = Versions({"t-value": 1}, {"t-value": 2})
    encoder = RequestEncoder(GatewaySchemas(cast(Any, registry)), "t", 1, 5)
    assert encoder.encoded(record(7))[1] == 1
    new, schema_id = encoder.encoded(record("seven"))
    assert (schema_id, new.value, new.timestamp_ms) == (2, b"\0\0\0\0\2\x0aseven", 5)
    caught_up = registry.caught_up
    for _ in range(3):  # once per request
        with pytest.raises(CallerError):
            encoder.encoded(record(8))
    assert registry.caught_up == caught_up


def test_records_that_never_fit_are_sought_in_the_log_once_a_second() -> None:
    now = [0.0]
    registry = Versions({"t-value": 1}, {})
    schemas = GatewaySchemas(cast(Any, registry), lambda: now[0])

    def refused(requests: int) -> int:
        before = registry.caught_up
        for _ in range(requests):
            with pytest.raises(CallerError):
                RequestEncoder(schemas, "t", 1, 5).encoded(record("seven"))
        return registry.caught_up - before

    refused(1)  # it also asks for the subject of keys, which is bounded by itself
    assert refused(50) == 0
    now[0] = 1.1
    assert refused(50) == 1
    registry.own["t-value"] = 2  # this node reads of a version that fits: it is used at once
    assert RequestEncoder(schemas, "t", 1, 5).encoded(record("seven"))[1] == 2
    with pytest.raises(CallerError):  # a misfit of another version is sought by itself
        RequestEncoder(schemas, "t", 1, 5).encoded(record(7))
    assert registry.caught_up == 3


def test_events_that_never_fit_do_not_ask_the_registry_each_time() -> None:
    class Latest(Versions):
        def latest(self, subject: str) -> RegisteredSchema:
            return RegisteredSchema(self.own[subject], 1, '{"type":"record","name":"R","fields":[]}', "JSON")

        def source(self, schema_id: int) -> SchemaSource:
            kind = "string" if schema_id == 1 else "integer"
            return SchemaSource.of("JSON", json.dumps({"properties": {"n": {"type": kind}}}))

    registry = Latest({"t-value": 1}, {})
    publisher = Publisher(cast(Any, Acknowledged()), cast(Any, registry), schema_age_s=0.0)
    for _ in range(50):
        with pytest.raises(CallerError):
            publisher.publish("t", "k", {"n": 7})
    assert registry.caught_up == 1
    registry.own["t-value"] = 2
    publisher.publish("t", "k", {"n": 7})


def test_a_log_that_cannot_be_read_is_asked_again_for_the_next_record() -> None:
    registry = Versions({"t-value": 1}, {"t-value": 2})
    schemas = GatewaySchemas(cast(Any, registry), lambda: 0.0)
    answers = registry.catch_up

    def silent() -> None:
        raise PeerError("Kafka does not answer")

    registry.catch_up = silent  # type: ignore[method-assign]
    with pytest.raises(PeerError):
        RequestEncoder(schemas, "t", 1, 5).encoded(record("seven"))
    registry.catch_up = answers  # type: ignore[method-assign]
    assert RequestEncoder(schemas, "t", 1, 5).encoded(record("seven"))[1] == 2


def test_the_first_version_of_another_node_is_used() -> None:
    registry = Versions({}, {"t-value": 1})
    encoder = RequestEncoder(GatewaySchemas(cast(Any, registry)), "t", 1, 5)
    assert encoder.encoded(record(7))[1] == 1


def test_a_subject_that_does_not_exist_is_sought_in_the_log_every_two_seconds() -> None:
    now = [0.0]
    registry = Versions({}, {})
    schemas = GatewaySchemas(cast(Any, registry), lambda: now[0])
    assert [schemas.latest_id("t-key") for _ in range(3)] == [None] * 3
    assert registry.caught_up == 1
    registry.own["t-key"] = 1
    assert schemas.latest_id("t-key") == 1  # known to this node: at once
    del registry.own["t-key"]
    now[0] = 2.1
    assert schemas.latest_id("t-key") is None
    assert registry.caught_up == 2


def test_the_examples_of_the_docs_fit_the_sample_schemas() -> None:
    root = Path(__file__).parents[3]
    text = (root / "docs/how-to/write-events-over-http.md").read_text()
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
    """Kafka double that accepts every record, for a topic without a schema."""

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
    def known_latest(self, subject: str) -> None: ...

    def catch_up(self) -> None: ...


class NoKeys(NoSchemas):
    """Registry double that does not answer for the subjects of keys."""

    def known_latest(self, subject: str) -> None:
        if subject.endswith("-key"):
            raise PeerError("the registry does not answer")


def test_a_record_that_is_nested_too_deep_is_refused_and_the_next_are_acknowledged() -> None:
    """The JSON parser accepts deeper nesting than the serializer: a small record can pass one and not the
    other.
    """
    gateway = Gateway(cast(Any, Acknowledged()), cast(Any, NoSchemas()))
    gateway.start()

    def produced(data: bytes) -> Any:
        body = b'{"value": {"type": "JSON", "data": %s}}' % data
        return gateway.submit(ProduceRequest("t", body), gateway.admit(len(body))).result(5.0).lines[0]

    deep = b"[" * 300 + b"]" * 300
    assert [produced(each)["error_code"] for each in (b"1", deep, b"2")] == [200, 422, 200]
    assert not gateway.batches
    gateway.batches.add(cast(Any, None))  # acknowledgements continue after any failure there
    time.sleep(0.1)
    gateway.batches.clear()
    assert produced(b"3")["error_code"] == 200
    gateway.stop()


def test_a_version_that_was_given_again_is_used_at_once() -> None:
    """Regression: the id of version 1 was cached, even after the subject was permanently deleted and
    recreated.
    """

    class Recreated(NoSchemas):
        id = 1

        def version(self, subject: str, version: int) -> RegisteredSchema:
            return RegisteredSchema(self.id, version, '"long"')

        def source(self, schema_id: int) -> SchemaSource:
            return SchemaSource.of("AVRO", '"long"')

    registry = Recreated()
    gateway = Gateway(cast(Any, Acknowledged()), cast(Any, registry))
    gateway.start()

    def schema_id() -> Any:
        body = b'{"value": {"schema_version": 1, "data": 7}}'
        return (
            gateway.submit(ProduceRequest("t", body), gateway.admit(len(body)))
            .result(5.0)
            .lines[0]["value"]["schema_id"]
        )

    assert schema_id() == 1
    registry.id = 9
    assert schema_id() == 9
    gateway.stop()


class Late(Acknowledged):
    """Kafka double that can lose acknowledgements; the records arrive later, when ``land`` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Record] = []
        self.lost: list[NewRecord] = []
        self.loses = False
        self.hidden = 0  # records at the end that an open transaction hides

    def poll(self, wait_s: float) -> None:
        time.sleep(min(wait_s, 0.01))
        while self.sent:
            new, acknowledged = self.sent.pop(0)
            if self.loses:
                self.lost.append(new)
                acknowledged(TopicPartition(new.topic, 0), 0, self.down("append", "no answer"))
            else:
                self._append(new)
                acknowledged(TopicPartition(new.topic, 0), len(self.log) - 1, None)

    def _append(self, new: NewRecord) -> None:
        self.log.append(Record(new.topic, 0, len(self.log), 0, new.key, new.value, tuple(new.headers)))

    def land(self) -> None:
        for new in self.lost:
            self._append(new)
        self.lost.clear()

    def beginning_offsets(self, topics: list[str]) -> Positions:
        return Positions.of([("t", 0, 0)])

    def end_offsets(self, topics: list[str], *, committed: bool = True) -> Positions:
        return Positions.of([("t", 0, len(self.log) - (self.hidden if committed else 0))])

    def reader(self, **_: object) -> Reading:
        return Reading(self)


class Reading:
    def __init__(self, kafka: Late) -> None:
        self.kafka, self.at = kafka, 0

    def assign(self, positions: Positions) -> None:
        self.at = positions.get(TopicPartition("t", 0))

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        found = self.kafka.log[self.at : len(self.kafka.log) - self.kafka.hidden][:limit]
        self.at += len(found)
        return found

    def position(self) -> Positions:
        return Positions.of([("t", 0, self.at)])

    def close(self) -> None: ...


@pytest.fixture
def late() -> Iterator[tuple[Late, Callable[..., GatewayAnswer]]]:
    """Kafka double that loses acknowledgements, with a function that produces a record with an idempotency
    key.
    """
    kafka = Late()
    gateway = Gateway(cast(Any, kafka), cast(Any, NoSchemas()))
    gateway.repeated.unknown.settles_s = 0.2
    gateway.start()

    def produced(key: str, body: bytes = b'{"value": {"type": "JSON", "data": 1}}') -> GatewayAnswer:
        slot = gateway.admit(len(body))
        return gateway.submit(ProduceRequest("t", body, idempotency_key=key), slot).result(5.0)

    cast(Any, produced).gateway = gateway
    yield kafka, produced
    gateway.stop()


def test_a_retry_finds_what_came_after_another_request_searched(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    kafka, produced = late
    kafka.loses = True
    assert produced("a").lines[0]["code"] == "HUB-3013"
    kafka.loses = False
    assert produced("b").status == 200  # searches the log, which has no record of a
    kafka.land()
    again = produced("a")
    assert (again.status, again.repeated) == (200, True)
    assert len(kafka.log) == 2


def test_a_retry_is_refused_while_its_record_may_still_come(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    kafka, produced = late
    kafka.loses = True
    produced("a")
    kafka.loses = False
    early = produced("a")
    assert (early.status, early.lines[0]["code"]) == (503, "HUB-3043") and "hint" in early.lines[0]
    assert "on their way" in early.lines[0]["message"] and not kafka.log
    time.sleep(0.25)
    kafka.land()
    assert produced("a").repeated and len(kafka.log) == 1


def test_a_record_that_never_comes_is_written_by_the_retry(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    kafka, produced = late
    kafka.loses = True
    produced("a")
    kafka.loses = False
    assert produced("a").status == 503
    time.sleep(0.25)
    written = produced("a")
    assert (written.status, written.repeated, len(kafka.log)) == (200, False, 1)
    assert produced("a").repeated and len(kafka.log) == 1


def test_a_retry_is_refused_while_a_transaction_hides_the_end_of_the_log(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    kafka, produced = late
    kafka.loses = True
    produced("a")
    kafka.loses = False
    kafka.land()
    kafka.hidden = 1
    for _ in range(2):
        refused = produced("a")
        assert refused.status == 503 and "transaction" in refused.lines[0]["message"]
        time.sleep(0.25)
    assert produced("new").status == 200  # a request that was never tried does not wait
    kafka.hidden = 0
    assert produced("a").repeated and len(kafka.log) == 2


def test_what_an_earlier_process_left_under_way_is_found_when_it_comes(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    """Its records arrive after this process has searched the topic for another request."""
    kafka, produced = late
    kafka.loses = True
    produced("a")
    kafka.loses = False
    gateway = Gateway(cast(Any, kafka), cast(Any, NoSchemas()))
    gateway.start()
    body = b'{"value": {"type": "JSON", "data": 1}}'

    def written(key: str) -> GatewayAnswer:
        slot = gateway.admit(len(body))
        return gateway.submit(ProduceRequest("t", body, idempotency_key=key), slot).result(5.0)

    assert written("b").status == 200
    kafka.land()
    assert written("a").repeated and len(kafka.log) == 2
    gateway.stop()


def test_a_record_that_was_not_sent_leaves_no_outcome_open(
    late: tuple[Late, Callable[..., GatewayAnswer]],
) -> None:
    """If the registry is unavailable, no record was sent, so a retry need not wait."""
    kafka, produced = late
    body = b'{"value": {"type": "JSON", "data": 1}}\n{"key": {"data": "k"}, "value": null}'
    gateway = cast(Any, produced).gateway
    known, gateway.schemas.registry = gateway.schemas.registry, NoKeys()
    first = produced("a", body)
    assert [line["error_code"] for line in first.lines] == [200, 503]
    gateway.schemas.registry = known
    again = produced("a", body)
    assert [line["error_code"] for line in again.lines] == [200, 200]
    assert len(kafka.log) == 2


def test_a_producer_that_cannot_be_opened_refuses_its_record_and_not_those_before_it() -> None:
    class Broken(Late):
        opened = 0

        def sender(self, **_: object) -> Late:
            self.opened += 1
            if self.opened > 1:
                raise PeerError("no producer can be opened")
            return self

        def send(self, new: NewRecord, acknowledged: Callable[..., None]) -> None:
            if new.value == b"2":
                raise PeerError("the producer is broken")
            super().send(new, acknowledged)

        def drop(self) -> None: ...

    kafka = Broken()
    gateway = Gateway(cast(Any, kafka), cast(Any, NoSchemas()))
    gateway.start()
    body = b"".join(b'{"value": {"type": "JSON", "data": %d}}' % number for number in (1, 2, 3))
    answer = gateway.submit(ProduceRequest("t", body, idempotency_key="k"), gateway.admit(len(body))).result(
        5.0
    )
    assert [line["error_code"] for line in answer.lines] == [200, 503, 503]
    assert [record.value for record in kafka.log] == [b"1"] and not gateway.batches
    gateway.stop()
