"""Records in over HTTP, on a real server and a real Kafka; and the auditor on what others wrote."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from patience import patient, wait_until
from pipeline import records_of
from processes import HubProcess

from hub.config import Settings
from hub.errors import NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions, Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import decode, frame, parsed
from hub.topics.conformance.auditor import ConformanceChecker
from hub.topics.conformance.rules import AUDIT_TOPIC
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.produce_batch import ProduceRequest

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


SALE = {"type": "object", "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}}}


class Topic:
    """A topic of one test's own, with a schema, and the way to it."""

    def __init__(
        self, url: str, bootstrap: str, name: str, partitions: int = 1, *, schema: bool = True
    ) -> None:
        self.url, self.name = url, name
        self.cluster = KafkaCluster(bootstrap, 15.0)
        self.registry = RegistryClient(url)
        self.cluster.create_topic(name, partitions=partitions, config={}, replication_factor=1)
        self.schema_id = self.registry.register(f"{name}-value", json.dumps(ORDER)) if schema else 0

    def post(self, body: Any, path: str | None = None, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        path = path or f"/v3/clusters/-/topics/{self.name}/records"
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.post(f"{self.url}{path}", content=content, headers=names, timeout=60.0)

    def records(self, topic: str | None = None) -> list[Record]:
        return records_of(self.cluster, topic or self.name)

    def values(self) -> list[Any]:
        return [decode(record.value or b"", lambda _: parsed(ORDER))[1] for record in self.records()]


@pytest.fixture
def topic(hub_server: str, kafka: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Topic]]:
    made: list[Topic] = []

    def make(**options: Any) -> Topic:
        name = f"gw.{request.node.name[5:60].replace('[', '-').replace(']', '')}.{len(made)}"
        made.append(Topic(hub_server, kafka, name, **options))
        return made[-1]

    yield make
    for each in made:
        each.registry.close()


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"value": {"data": {"order_id": f"o-{number}", "cents": number, **more}}}


def lines(answer: httpx2.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_one_record_is_in_the_log_with_key_headers_and_time(topic: Callable[..., Topic]) -> None:
    mine = topic(partitions=2)
    body = {
        "partition_id": 1,
        "key": {"type": "STRING", "data": "k"},
        "headers": [{"name": "trace", "value": base64.b64encode(b"\x00\xff").decode()}],
        "timestamp": "2024-02-29T12:30:00.125Z",
        **order(7),
    }
    answer = mine.post(body, Hub_Producer="till 3")
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["error_code"] == 200 and said["topic_name"] == mine.name
    assert (said["partition_id"], said["offset"], said["timestamp"]) == (1, 0, "2024-02-29T12:30:00.125Z")
    assert said["value"]["schema_id"] == mine.schema_id
    assert answer.headers["Hub-Position"] == f"{mine.name}:1:1"
    (record,) = mine.records()
    assert (record.key, record.partition, record.timestamp_ms) == (b"k", 1, 1_709_209_800_125)
    assert record.headers == (("trace", b"\x00\xff"), ("hub.producer", b"till 3"))
    assert mine.values() == [{"order_id": "o-7", "cents": 7, "note": None}]


def test_a_batch_with_one_bad_record_writes_the_others(topic: Callable[..., Topic]) -> None:
    mine = topic()
    bodies = [order(0), {"value": {"data": {"order_id": "o-1", "cent": 1}}}, order(2, note="x")]
    concatenated = b"".join(json.dumps(each, indent=1).encode() for each in bodies)
    answer = mine.post(concatenated)
    assert answer.status_code == 200
    said = lines(answer)
    assert [line["error_code"] for line in said] == [200, 422, 200]
    assert said[1]["message"] == 'value: record "Order" has no field "cent"'
    assert said[1]["hint"] == 'did you mean "cents"?'
    assert answer.headers["Hub-Position"] == f"{mine.name}:0:2"
    assert [value["cents"] for value in mine.values()] == [0, 2]
    broken = mine.post(
        b'{"value": {"data": {"order_id": "a", "cents": 3}}}\nnonsense\n' + json.dumps(order(4)).encode(),
        Content_Type="application/x-ndjson",
    )
    assert [line["error_code"] for line in lines(broken)] == [200, 400, 200]
    assert [value["cents"] for value in mine.values()] == [0, 2, 3, 4]


def test_refusals_say_what_to_do(topic: Callable[..., Topic], hub_server: str) -> None:
    mine, bare = topic(), topic(schema=False)
    cases: list[tuple[Topic, Any, int, str]] = [
        (mine, {"value": {"type": "PROTOBUF", "data": {}}}, 422, "is AVRO"),
        (mine, {"value": {"type": "JSON", "data": {}}}, 422, "has a schema"),
        (mine, {"value": {"schema_id": 999_999, "data": {}}}, 422, "is not of subject"),
        (mine, {"value": {"schema_version": 9, "data": {}}}, 422, "not found"),
        (mine, {"partition_id": 5, **order(1)}, 404, "partition 5 does not exist"),
        (mine, {"valu": {}}, 422, 'field "valu" is not known'),
        (mine, b"{nonsense", 400, "is not JSON"),
        (mine, b"", 400, "no record"),
        (mine, b"[" * 100_000, 400, "not JSON"),
        (mine, json.dumps({"value": {"type": "STRING", "data": "x" * (1 << 20)}}).encode(), 413, "allowed"),
        (mine, b" " * ((16 << 20) + 1), 413, "allowed"),
        (bare, order(1), 422, f'subject "{bare.name}-value"'),
    ]
    for where, body, status, message in cases:
        answer = where.post(body)
        assert (answer.status_code, answer.json()["error_code"]) == (status, status), answer.text
        assert message in answer.json()["message"]
    near = mine.post(order(1), f"/v3/clusters/-/topics/{mine.name}x/records")
    assert near.status_code == 404 and near.json()["hint"] == f'did you mean "{mine.name}"?'
    assert mine.post(order(1), f"/v3/clusters/other/topics/{mine.name}/records").status_code == 404
    assert mine.records() == [] and bare.records() == []


def test_types_that_need_no_schema(topic: Callable[..., Topic]) -> None:
    bare = topic(schema=False)
    encoded = base64.b64encode(b"\x01\x02").decode()
    bodies = [
        {"value": {"type": "JSON", "data": {"a": [1, None]}}},
        {"value": {"type": "STRING", "data": "Grüße"}, "key": {"type": "BINARY", "data": encoded}},
        {"value": {"type": "BINARY", "data": encoded}, "key": {"data": "text"}},
        {"key": {"data": "gone"}},
    ]
    answer = bare.post("\n".join(map(json.dumps, bodies)).encode())
    assert [line["error_code"] for line in lines(answer)] == [200] * 4, answer.text
    assert [(record.key, record.value) for record in bare.records()] == [
        (None, b'{"a":[1,null]}'),
        (b"\x01\x02", "Grüße".encode()),
        (b"text", b"\x01\x02"),
        (b"gone", None),
    ]


def test_a_schema_may_be_chosen_by_id_or_version(topic: Callable[..., Topic]) -> None:
    mine = topic()
    fields = [*ORDER["fields"], {"name": "tax", "type": "long", "default": 0}]  # type: ignore[misc]
    newer = mine.registry.register(f"{mine.name}-value", json.dumps({**ORDER, "fields": fields}))
    body = order(1)["value"]
    answers = [
        mine.post({"value": {**body, **chosen}}).json()["value"]["schema_id"]
        for chosen in ({"schema_id": mine.schema_id}, {"schema_version": 2}, {"type": "AVRO"})
    ]
    assert answers == [mine.schema_id, newer, newer]
    ready = base64.b64encode(frame(mine.schema_id, b"\x02a\x02\x00")).decode()
    assert mine.post({"value": {"type": "BINARY", "data": ready}}).status_code == 200


def test_a_version_is_used_the_moment_it_is_registered(topic: Callable[..., Topic]) -> None:
    """Regression: the gateway and the server's publisher kept a subject's latest version for 30 s, so a new
    field was refused (422), and a topic's first schema was not known for 2 s.
    """
    mine, plain = topic(), topic(schema=False)
    value = order(1)["value"]["data"]
    publish, as_json = f"/topics/{mine.name}/records", {"Content_Type": "application/json"}
    assert mine.post(order(1)).status_code == 200
    assert mine.post({"key": "k", "value": {**value, "note": None}}, publish, **as_json).status_code == 200
    assert plain.post({"value": {"type": "JSON", "data": {}}}).status_code == 200
    assert plain.post(order(1)).status_code == 422
    fields = [*ORDER["fields"], {"name": "currency", "type": "string", "default": ""}]  # type: ignore[misc]
    newer = mine.registry.register(f"{mine.name}-value", json.dumps({**ORDER, "fields": fields}))
    answer = mine.post(order(2, currency="EUR"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["value"]["schema_id"] == newer
    published = mine.post(
        {"key": "k", "value": {**value, "note": None, "currency": "EUR"}}, publish, **as_json
    )
    assert published.status_code == 200, published.text
    first = plain.registry.register(f"{plain.name}-value", json.dumps(ORDER))
    answer = plain.post(order(1))
    assert answer.status_code == 200, answer.text
    assert answer.json()["value"]["schema_id"] == first
    assert mine.registry.delete(f"{mine.name}-value") == [1, 2]
    mine.registry.delete(f"{mine.name}-value", permanent=True)
    again = mine.registry.register(f"{mine.name}-value", json.dumps(ORDER))
    chosen = {"value": {**order(3)["value"], "schema_version": 1}}
    assert mine.post(chosen).json()["value"]["schema_id"] == again


def test_json_schema_and_protobuf_are_written_as_their_own_deserializers_read_them(
    topic: Callable[..., Topic], hub_server: str
) -> None:
    sale, paid = topic(schema=False), topic(schema=False)
    proto = 'syntax = "proto3"; message Paid { string id = 1; repeated int64 cents = 2; }'
    sale.registry.register(f"{sale.name}-value", json.dumps(SALE), "JSON")
    paid.registry.register(f"{paid.name}-value", proto, "PROTOBUF")
    assert sale.post({"value": {"data": {"id": "s1", "cents": 5}}}).status_code == 200
    assert (
        paid.post({"value": {"type": "PROTOBUF", "data": {"id": "p1", "cents": [1, "2"]}}}).status_code == 200
    )
    for where, body, words in (
        (sale, {"data": {"cents": "five"}}, "value.cents"),
        (sale, {"type": "AVRO", "data": {"cents": 5}}, "is JSON"),
        (paid, {"data": {"cent": 5}}, "cent"),
        (paid, {"type": "BINARY", "data": base64.b64encode(b"junk!").decode()}, "not in its format"),
    ):
        answer = where.post({"value": body})
        assert answer.status_code == 422 and words in answer.text
    context = SerializationContext(sale.name, MessageField.VALUE)
    with SchemaRegistryClient({"url": hub_server}) as client:
        (record,) = sale.records()
        assert JSONDeserializer(None, schema_registry_client=client)(record.value, context) == {
            "id": "s1",
            "cents": 5,
        }
    (record,) = paid.records()
    assert record.value is not None
    assert record.value[5:] == b"\x00\x0a\x02p1\x12\x02\x01\x02"  # first message; id; packed cents


def test_events_in_their_short_form(topic: Callable[..., Topic]) -> None:
    mine = topic()
    events = [order(number)["value"]["data"] for number in range(4)]
    path = f"/topics/{mine.name}/events?key=order_id"
    assert mine.post(events[0], path).json()["offset"] == 0
    assert [line["offset"] for line in lines(mine.post(events[1:3], path))] == [1, 2]
    assert mine.post(events[3], f"/topics/{mine.name}/events").status_code == 200
    missing = mine.post({"cents": 1}, path)
    assert missing.status_code == 422 and 'key "order_id"' in missing.json()["message"]
    assert [record.key for record in mine.records()] == [b"o-0", b"o-1", b"o-2", None]


def test_the_tree_may_name_the_key_of_short_events(topic: Callable[..., Topic], settings: Settings) -> None:
    mine = topic()
    labels = mine.name.split(".")
    node: Any = {"key": "order_id"}
    for label in reversed(labels):
        node = {"topics": {label: node}}
    file = settings.project / "topics.yaml"
    before = file.read_bytes() if file.exists() else None
    file.write_text(json.dumps(node))
    try:
        path = f"/topics/{mine.name}/events"
        first, second = (order(number)["value"]["data"] for number in range(2))
        assert mine.post(first, path).status_code == 200
        assert mine.post(second, f"{path}?key=cents").status_code == 200
        missing = mine.post({"cents": 1}, path)
        assert missing.status_code == 422 and 'key "order_id"' in missing.json()["message"]
    finally:
        file.unlink() if before is None else file.write_bytes(before)
    assert [record.key for record in mine.records()] == [b"o-0", str(second["cents"]).encode()]


def test_clusters_and_topics_are_listed(topic: Callable[..., Topic]) -> None:
    mine = topic(partitions=3)
    (cluster,) = httpx2.get(f"{mine.url}/v3/clusters", timeout=60).json()["data"]
    assert cluster["cluster_id"] == mine.cluster.cluster_id()
    for name in ("-", cluster["cluster_id"]):
        assert httpx2.get(f"{mine.url}/v3/clusters/{name}", timeout=60).json()["kind"] == "KafkaCluster"
        listed = httpx2.get(f"{mine.url}/v3/clusters/{name}/topics", timeout=60).json()["data"]
        assert {each["topic_name"]: each["partitions_count"] for each in listed}[mine.name] == 3


def test_a_request_that_comes_twice_is_written_once(topic: Callable[..., Topic], kafka: str) -> None:
    mine = topic(partitions=2)
    first = mine.post(order(1), Idempotency_Key="a")
    again = mine.post(order(1), Idempotency_Key="a")
    assert (first.status_code, first.json()) == (200, again.json())
    assert first.headers["Hub-Position"] == again.headers["Hub-Position"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert mine.post({"value": {"data": {}}}, Idempotency_Key="mended").status_code == 422
    assert mine.post(order(1), "/topics/nothing/events", Idempotency_Key="mended").status_code == 404
    other = mine.post(order(2), Idempotency_Key="a")
    assert other.status_code == 409 and other.json()["code"] == "HUB-1930"
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: mine.post(order(3), Idempotency_Key="b").text, range(6)))
    assert len(set(answers)) == 1
    assert sorted(value["cents"] for value in mine.values()) == [1, 3]
    # Another process, that remembers nothing, finds the marks in the log.
    body = json.dumps(order(1)).encode()
    forgetful = Gateway(KafkaCluster(kafka, 15.0), mine.registry)
    forgetful.start()
    try:
        found = forgetful.write(ProduceRequest(mine.name, body, idempotency_key="a"))
        assert found.repeated and found.lines[0] == first.json()
        refused = forgetful.write(ProduceRequest(mine.name, body + b" ", idempotency_key="a"))
        assert refused.status == 409
        assert len(mine.records()) == 2
    finally:
        forgetful.stop()


def test_what_of_a_batch_is_missing_is_written(topic: Callable[..., Topic], kafka: str) -> None:
    """Half of a batch in the log, as after a crash: the same request completes it."""
    mine = topic()
    batch = "\n".join(json.dumps(order(number)) for number in range(4)).encode()
    asked = ProduceRequest(mine.name, batch, idempotency_key="half")
    for _ in range(2):
        gateway = Gateway(KafkaCluster(kafka, 15.0), mine.registry)
        gateway.start()
        try:
            if not mine.records():
                gateway.write(asked)
                kept = [record for record in mine.records() if record.offset in (0, 2)]
                mine.cluster.delete_topic(mine.name)
                mine.cluster.create_topic(mine.name, partitions=1, config={}, replication_factor=1)
                again = [NewRecord(mine.name, each.key, each.value, each.headers) for each in kept]
                mine.cluster.writer().append(again)
            else:
                answer = gateway.write(asked)
        finally:
            gateway.stop()
    assert [line["offset"] for line in answer.lines] == [0, 2, 1, 3]
    assert sorted(value["cents"] for value in mine.values()) == [0, 1, 2, 3]


def test_kafka_away_is_said_at_once_and_nothing_waits(hub_server: str) -> None:
    registry = RegistryClient(hub_server)
    gateway = Gateway(KafkaCluster("127.0.0.1:1", 1.0), registry)
    gateway.start()
    try:
        answer = gateway.write(ProduceRequest("any", b"{}"))
        assert answer.status == 503 and answer.lines[0]["code"] == "HUB-3010"
        with pytest.raises(PeerError, match="a moment ago"):
            gateway.admit(1)
    finally:
        gateway.stop()
        registry.close()


# ---- the auditor


def strangers(mine: Topic) -> list[NewRecord]:
    """Write valid and invalid records like another producer."""
    good = frame(mine.schema_id, b"\x02a\x02\x00")
    foreign = mine.registry.register("gw.another-value", '{"type": "int"}')
    values = [
        good,
        b'{"order_id": "a"}',
        good,
        frame(987_654, b""),
        frame(foreign, b"\x02"),
        good[:-1],
        good + b"\x00",
        None,
        good,
    ]
    return [
        NewRecord(mine.name, b"k%d" % n, value, (("hub.producer", b"till"), ("x", b"\x00")), 1_000 + n, n % 2)
        for n, value in enumerate(values)
    ]


WRONG = {1: "framing", 3: "unknown_schema", 4: "foreign_schema", 5: "undecodable", 6: "rest"}


def test_violations_are_copied_to_quarantine_once_whatever_dies(
    topic: Callable[..., Topic], settings: Settings, tmp_path: Path
) -> None:
    mine = topic(partitions=2)
    written = strangers(mine)
    root, label = mine.name.rsplit(".", 1)[0].split(".")
    tree = {"topics": {root: {"audit": "quarantine", "topics": {label: {"topics": {"0": {}}}}}}}
    (tmp_path / "topics.yaml").write_text(json.dumps(tree))
    settings = settings.model_copy(update={"project": tmp_path})
    source = mine.cluster.writer()
    source.append(written[:5])
    auditor = HubProcess(settings, "check-conformance")
    auditor.start()
    try:
        wait_for(lambda: copies(mine) == 3)
        auditor.kill()
        source.append(written[5:])
        auditor.start()
        wait_for(lambda: copies(mine) == 5)
        row = wait_for(lambda: audited(mine, len(written)))
    finally:
        auditor.kill()
    assert row["by_producer"] == {"till": 5} and row["quarantined"] == 5 and row["audit"] == "quarantine"
    assert row["by_reason"] == dict.fromkeys(WRONG.values(), 1)
    found = mine.records(f"{mine.name}.quarantine")
    assert [(copy.partition, copy.key) for copy in sorted(found, key=lambda each: (each.partition,
        each.offset))] == [
        (0, b"k4"), (0, b"k6"), (1, b"k1"), (1, b"k3"), (1, b"k5"),
    ]  # fmt: skip
    for copy in found:
        number = int((copy.key or b"")[1:])
        original = written[number]
        assert copy.value == original.value and copy.timestamp_ms >= original.timestamp_ms
        assert copy.headers[:2] == original.headers
        said = dict(copy.headers)
        assert said["hub.quarantine.reason"] == WRONG[number].encode()
        assert said["hub.quarantine.topic"] == mine.name.encode()
        assert said["hub.quarantine.timestamp"] == str(original.timestamp_ms).encode()
        assert (int(said["hub.quarantine.partition"]), int(said["hub.quarantine.offset"])) == (
            number % 2,
            number // 2,
        )
    assert len(mine.records()) == len(written)
    metrics = httpx2.get(f"{mine.url}/metrics", timeout=60).text
    assert f'hub_audit_violations_total{{producer="till",reason="rest",topic="{mine.name}"}} 1.0' in metrics


def copies(mine: Topic) -> int:
    try:
        return len(mine.records(f"{mine.name}.quarantine"))
    except NotFound:
        return -1


def audited(mine: Topic, checked: int) -> Any:
    answer = httpx2.get(f"{mine.url}/audit", params={"topic": mine.name}, timeout=60)
    rows = answer.json().get("topics") or [{}]
    return rows[0] if rows[0].get("checked") == checked else None


def wait_for(found: Callable[[], Any], timeout_s: float = 90.0) -> Any:
    return wait_until(found, timeout_s, pause_s=0.2)


def test_a_report_copies_nothing_and_large_records_are_counted(topic: Callable[..., Topic]) -> None:
    mine, large = topic(partitions=2), topic()
    mine.cluster.writer().append(strangers(mine))
    large.cluster.create_topic(
        f"{large.name}.quarantine", partitions=1, config={"max.message.bytes": "1000"}, replication_factor=1
    )
    large.cluster.writer().append([NewRecord(large.name, None, b"x" * n) for n in (10, 5_000, 20)])
    auditor = ConformanceChecker(
        mine.cluster, mine.registry, lambda name: "quarantine" if name == large.name else "report"
    )
    try:
        deadline = time.monotonic() + patient(60)
        wanted = mine.cluster.end_offsets([mine.name, large.name])
        while not Positions({p: t.position for p, t in auditor.tallies.items()}).covers(wanted):
            assert time.monotonic() < deadline
            auditor.step()
        auditor.flush()
        (tally,) = [each for each in auditor.tallies.values() if each.topic == large.name]
        assert (tally.quarantined, tally.uncopied, sum(tally.violations.values())) == (2, 1, 3)
        assert AUDIT_TOPIC in mine.cluster.topics()
        assert f"{mine.name}.quarantine" not in mine.cluster.topics()
        assert len(large.records(f"{large.name}.quarantine")) == 2
    finally:
        auditor.close()
