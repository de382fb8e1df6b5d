"""Data rules of schemas through the hub, with Confluent's own serializers as the oracle:
the same bytes, or refused by both."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
from confluent_kafka.schema_registry.rules.cel.cel_field_executor import CelFieldExecutor
from confluent_kafka.schema_registry.rules.jsonata.jsonata_executor import JsonataExecutor
from confluent_kafka.schema_registry.serde import RuleError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from patience import patient
from pipeline import records_of

from hub.errors import CallerError
from hub.kafka import KafkaCluster
from hub.record import Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.codecs.values import encoder_of as plain_encoder_of
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.formats.protobuf import schema as protobuf
from hub.topics.conformance.rules import copy_of, judge
from hub.topics.conformance.schema_ids import SchemaIdCache
from hub.topics.dead_letters.event_builder import Repair, sets
from hub.topics.dead_letters.model import RecordPlace
from hub.topics.dead_letters.queue import DeadLetters
from hub.topics.gateway.producer import Publisher

AVRO = {
    "type": "record",
    "name": "Person",
    "namespace": "crm",
    "fields": [
        {"name": "name", "type": "string", "confluent:tags": ["PII"]},
        {"name": "age", "type": "int"},
        {"name": "note", "type": ["null", "string"], "confluent:tags": ["PII"]},
        {"name": "active", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "confluent:tags": ["PII"]},
        {
            "name": "home",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [
                    {"name": "city", "type": "string", "confluent:tags": ["PII"]},
                    {"name": "zip", "type": "int"},
                ],
            },
        },
        {
            "name": "pet",
            "type": [
                "null",
                {"type": "record", "name": "Cat", "fields": [{"name": "call", "type": "string"}]},
                {"type": "record", "name": "Dog", "fields": [{"name": "call", "type": "string"}]},
            ],
        },
    ],
}
TEXT = {"type": "string"}
JSON = {
    "type": "object",
    "properties": {
        "name": {**TEXT, "confluent:tags": ["PII"]},
        "age": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, TEXT], "confluent:tags": ["PII"]},
        "active": {"type": "boolean"},
        "at": TEXT,
        "tags": {"type": "array", "items": TEXT, "confluent:tags": ["PII"]},
        "home": {"$ref": "#/definitions/Address"},
    },
    "required": ["name", "age"],
    "definitions": {
        "Address": {
            "type": "object",
            "properties": {"city": {**TEXT, "confluent:tags": ["PII"]}, "zip": {"type": "integer"}},
        }
    },
}
PROTO = """syntax = "proto3";
package crm;
import "confluent/meta.proto";
import "google/protobuf/timestamp.proto";
message Person {
  string name = 1 [(confluent.field_meta).tags = "PII"];
  int32 age = 2;
  optional string note = 3 [(confluent.field_meta).tags = "PII"];
  bool active = 4;
  google.protobuf.Timestamp at = 5;
  repeated string tags = 6 [(confluent.field_meta).tags = "PII"];
  Address home = 7;
}
message Address {
  string city = 1 [(confluent.field_meta).tags = "PII"];
  int32 zip = 2;
}
"""
SCHEMAS = {"AVRO": json.dumps(AVRO), "JSON": json.dumps(JSON), "PROTOBUF": PROTO}
AT_MS = 1_760_000_000_123


def person(age: int = 30, **more: Any) -> dict[str, Any]:
    made = {
        "name": "Ann",
        "age": age,
        "note": "calls",
        "active": True,
        "at": AT_MS,
        "tags": ["a", "b"],
        "home": {"city": "Rome", "zip": 7},
    }
    return {**made, **more}


def rule(
    name: str, expr: str | None, kind: str = "CONDITION", type: str = "CEL", mode: str = "WRITE", **more: Any
) -> dict[str, Any]:
    return {"name": name, "kind": kind, "type": type, "mode": mode, "expr": expr, **more}


def mask(name: str = "mask", expr: str = "'***'", **more: Any) -> dict[str, Any]:
    return rule(name, expr, "TRANSFORM", "CEL_FIELD", **more)


ADULT = rule("adult", "message.age >= 18", doc="grown-ups only")
PII = {"tags": ["PII"]}


@dataclass(frozen=True)
class Case:
    """A rule set, for each of the formats, and the ages that it is tried with."""

    rules: list[dict[str, Any]]
    formats: tuple[str, ...] = ("AVRO", "JSON", "PROTOBUF")
    ages: tuple[int, ...] = (3, 30)
    metadata: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


CASES = {
    "a condition": Case([ADULT]),
    "two conditions": Case([ADULT, rule("old", "message.age < 90")], ages=(3, 30, 95)),
    "a guard": Case([rule("adult", "message.active ; message.age >= 18")]),
    "a guard that is false": Case([rule("adult", "!message.active ; message.age >= 18")]),
    "functions and nested fields": Case(
        [
            rule(
                "city",
                "message.home.city.startsWith('R') && size(message.tags) == 2 && "
                "message.name.matches('^A.*')",
            )
        ]
    ),
    "an error in the expression": Case([rule("missing", "message.nothing > 3")]),
    "a failure that passes": Case([rule("adult", ADULT["expr"], onFailure="NONE")]),
    "an error that passes": Case([rule("missing", "message.nothing > 3", onFailure="NONE"), ADULT]),
    "a pair of actions": Case([rule("adult", ADULT["expr"], mode="WRITEREAD", onFailure="NONE,ERROR")]),
    "another pair of actions": Case([rule("adult", ADULT["expr"], mode="WRITEREAD", onFailure="ERROR,NONE")]),
    "a success that refuses": Case([rule("adult", ADULT["expr"], onSuccess="ERROR", onFailure="NONE")]),
    "an action that nobody knows": Case([rule("adult", ADULT["expr"], onFailure="SHOUT")]),
    "a success action that nobody knows": Case(
        [rule("adult", ADULT["expr"], onSuccess="SHOUT", onFailure="NONE")]
    ),
    "a disabled rule": Case([rule("adult", ADULT["expr"], disabled=True)]),
    "a rule for readers": Case([rule("adult", ADULT["expr"], mode="READ")]),
    "a rule for migrations": Case([rule("adult", ADULT["expr"], mode="UPGRADE")]),
    "rules of gateways elsewhere": Case([ADULT], more={"enableAt": "SERVER"}),
    "a mask by tags": Case([mask(**PII)]),
    "a mask of all texts": Case([mask(expr="typeName == 'STRING' ; value + '!'")]),
    "a mask by name": Case(
        [mask(expr="name == 'city' ; fullName + value")], formats=("AVRO", "JSON", "PROTOBUF")
    ),
    "a mask by metadata": Case(
        [mask(tags=["SECRET"])],
        metadata={"tags": {"**.city": ["SECRET"], "crm.Person.name": ["SECRET"], "$.name": ["SECRET"]}},
    ),
    "a field condition": Case([rule("short", "size(value) < 4", "CONDITION", "CEL_FIELD", **PII)]),
    "a field condition that holds": Case([rule("short", "size(value) < 9", "CONDITION", "CEL_FIELD", **PII)]),
    "masks of the same tags count once": Case([mask(**PII), mask("again", "value + '?'", **PII)]),
    "a mask, then a condition": Case([mask(**PII), rule("masked", "message.name == '***'")]),
    "a condition, then a mask": Case([rule("plain", "message.name == 'Ann'"), mask(**PII)]),
    "a message made anew": Case(
        [rule("anew", "{'name': message.name, 'age': message.age + 1, 'tags': ['x']}", "TRANSFORM")],
        formats=("JSON",),
    ),
    "a transformation that does not fit": Case(
        [rule("anew", "{'age': 'x'}", "TRANSFORM")], formats=("AVRO", "JSON")
    ),
    "jsonata": Case(
        [rule("double", "$merge([$, {'age': age * 2}])", "TRANSFORM", "JSONATA"), ADULT], formats=("JSON",)
    ),
    "jsonata with an error": Case([rule("odd", "$sum('x', 3)", "TRANSFORM", "JSONATA")], formats=("JSON",)),
}


class Topic:
    def __init__(self, url: str, bootstrap: str, name: str) -> None:
        self.url, self.name = url, f"rules.{name}.{uuid.uuid4().hex[:6]}"
        self.cluster = KafkaCluster(bootstrap, patient(15.0))
        self.registry = RegistryClient(url, patient(15.0))
        self.cluster.create_topic(self.name, partitions=1, config={}, replication_factor=1)

    def register(
        self, form: str, rules: Any, metadata: Any = None, text: str | None = None, **more: Any
    ) -> int:
        rule_set = {"domainRules": rules, **more}
        return self.registry.register(
            f"{self.name}-value", text or SCHEMAS[form], form, metadata=metadata, rule_set=rule_set
        )

    def post(self, data: Any, **more: Any) -> Any:
        path = f"/v3/clusters/-/topics/{self.name}/records"
        body = {"value": {"data": data}, **more}
        return httpx2.post(f"{self.url}{path}", json=body, timeout=patient(60.0))

    def values(self) -> list[bytes]:
        return [bytes(each.value or b"") for each in records_of(self.cluster, self.name)]


@pytest.fixture
def topic(hub_server: str, kafka: str, request: pytest.FixtureRequest) -> Iterator[Topic]:
    made = Topic(hub_server, kafka, request.node.originalname[5:40])
    yield made
    made.registry.close()


PET: dict[str, dict[str, Any]] = {"AVRO": {"pet": {"crm.Dog": {"call": "Rex"}}}, "JSON": {}, "PROTOBUF": {}}


def native(form: str, value: dict[str, Any], *, as_published: bool = False) -> dict[str, Any]:
    """The value as a producer in Python gives it; a copy, for rules change it."""
    made: dict[str, Any] = json.loads(json.dumps(value))
    if form != "AVRO":
        return made
    made["pet"] = ("crm.Dog", {"call": "Rex"})
    if not as_published:
        made["at"] = datetime.fromtimestamp(value["at"] / 1000, UTC)
    return made


def oracle(url: str, form: str) -> Any:
    """Encode a JSON value for a topic, as a producer of Confluent's does."""
    rules = RuleRegistry()
    for executor in (CelExecutor(), CelFieldExecutor(), JsonataExecutor()):
        rules.register_executor(executor)
    client = SchemaRegistryClient({"url": url})
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    if form == "AVRO":
        return AvroSerializer(client, SCHEMAS[form], conf=settings, rule_registry=rules)
    if form == "JSON":
        return JSONSerializer(SCHEMAS[form], client, conf=settings, rule_registry=rules)
    pool = DescriptorPool()
    _init_pool(pool)
    file = pool.AddSerializedFile(protobuf.parse(PROTO).file.SerializeToString())
    made = message_factory.GetMessageClass(file.message_types_by_name["Person"])
    serializer = ProtobufSerializer(
        made, client, conf={**settings, "use.deprecated.format": False}, rule_registry=rules
    )
    return lambda value, context: serializer(
        json_format.ParseDict(value, made(), descriptor_pool=pool), context
    )


def of_form(form: str, value: dict[str, Any]) -> dict[str, Any]:
    """The value as the JSON of a format."""
    at = datetime.fromtimestamp(AT_MS / 1000, UTC).isoformat().replace("+00:00", "Z")
    return value if form == "AVRO" else {**value, "at": at}


@pytest.mark.parametrize("form", ["AVRO", "JSON", "PROTOBUF"])
def test_rules_accept_refuse_and_write_what_confluents_serializers_do(form: str, hub_server: str) -> None:
    """Both read the rules from the same registry; the encoder is the one that the gateway has."""
    registry, serializer = RegistryClient(hub_server, patient(15.0)), oracle(hub_server, form)
    differences = []
    for name, case in CASES.items():
        if form not in case.formats:
            continue
        topic = f"rules.{uuid.uuid4().hex[:8]}"
        rules = {"domainRules": case.rules, **case.more}
        schema_id = registry.register(
            f"{topic}-value", SCHEMAS[form], form, metadata=case.metadata, rule_set=rules
        )
        encoder = RUNNER.encoder_of(registry.source(schema_id), f"{topic}-value")
        for age in case.ages:
            value = of_form(form, person(age))
            theirs: bytes | str
            try:
                theirs = serializer(native(form, value), SerializationContext(topic, MessageField.VALUE))
            except (SerializationError, RuleError, ValueError, TypeError) as error:
                theirs = "refused: " + repr(error)
            ours: bytes | str
            try:
                ours = frame(schema_id, encoder.body({**value, **PET[form]}))
            except (RuleRefused, Unfit) as error:
                ours = "refused: " + str(error)
            if ours != theirs and not (str(ours).startswith("refused") and str(theirs).startswith("refused")):
                differences.append(f"{name}, {age}: {ours!r}, and Confluent's: {theirs!r}")
    registry.close()
    assert not differences, "\n".join(differences)


def test_the_gateway_refuses_by_rule_and_writes_what_rules_make(topic: Topic) -> None:
    topic.register("AVRO", [ADULT, mask(**PII)])
    refused = topic.post({**person(3), **PET["AVRO"]})
    assert refused.status_code == 422
    assert refused.json()["code"] == "HUB-1214" and refused.json()["rule"] == "adult"
    assert refused.json()["message"] == 'value: rule "adult" (CEL) refuses the value: grown-ups only'
    assert topic.values() == []
    assert topic.post({**person(30), **PET["AVRO"]}).status_code == 200
    (written,) = topic.values()
    assert written.count(b"***") == 5 and b"Rome" not in written and b"Rex" in written
    # Bytes that are encoded already are held to what can still be asked of them.
    raw = base64.b64encode(written).decode()
    assert topic.post(None, value={"type": "BINARY", "data": raw}).status_code == 200


@pytest.mark.parametrize("kind", ["ENCRYPT", "ENCRYPT_PAYLOAD", "SPELLCHECK", ""])
def test_a_rule_that_nobody_here_can_execute_refuses_every_value(kind: str, topic: Topic) -> None:
    """Whatever its onFailure is, and before any other rule runs: clear text is never written."""
    secret = rule("secret", None, "TRANSFORM", kind, "WRITEREAD", onFailure="NONE", tags=["PII"])
    part = "encodingRules" if kind == "ENCRYPT_PAYLOAD" else "domainRules"
    topic.register("JSON", [], **{part: [ADULT, secret] if part == "domainRules" else [secret]})
    for _ in range(2):
        answer = topic.post(of_form("JSON", person()))
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] == "HUB-1215" and answer.json()["rule"] == "secret"
    publisher = Publisher(topic.cluster, topic.registry)
    with pytest.raises(RuleRefused, match="secret"):
        publisher.publish(topic.name, "k", of_form("JSON", person()))
    publisher.close()
    assert topic.values() == []


def test_a_copy_goes_to_the_topic_that_the_rule_names_and_to_none_of_the_hubs_own(topic: Topic) -> None:
    dead = f"{topic.name}.dead"
    topic.cluster.create_topic(dead, partitions=1, config={}, replication_factor=1)
    topic.register("JSON", [{**ADULT, "onFailure": "DLQ", "params": {"dlq.topic": dead}}])
    value = of_form("JSON", person(3))
    answer = topic.post(value, key={"type": "STRING", "data": "k"})
    assert answer.status_code == 422 and answer.json()["rule"] == "adult"
    assert f'a copy is in topic "{dead}" partition 0 offset 0' in answer.json()["message"]
    (copy,) = records_of(topic.cluster, dead)
    assert json.loads(copy.value or b"") == value and copy.key == b"k"
    headers = {name: (data or b"").decode() for name, data in copy.headers}
    assert headers["__rule.name"] == "adult" and headers["__rule.mode"] == "WRITE"
    assert headers["__rule.subject"] == f"{topic.name}-value" and headers["__rule.topic"] == topic.name
    for wrong in ("_schemas", "nowhere.at.all"):
        other = Topic(topic.url, topic.cluster.bootstrap, "wrong")
        other.register("JSON", [{**ADULT, "onFailure": "DLQ", "params": {"dlq.topic": wrong}}])
        refused = other.post(value)
        assert refused.status_code == 422 and "copy" not in refused.json()["message"]
        other.registry.close()
    assert topic.values() == []


def test_settings_of_a_subject_put_rules_over_what_is_registered(topic: Topic) -> None:
    put = httpx2.put(
        f"{topic.url}/config/{topic.name}-value",
        json={"overrideRuleSet": {"domainRules": [ADULT]}},
        timeout=60.0,
    )
    assert put.status_code == 200, put.text
    topic.registry.register(f"{topic.name}-value", SCHEMAS["JSON"], "JSON")
    refused = topic.post(of_form("JSON", person(3)))
    assert refused.status_code == 422 and refused.json()["rule"] == "adult"
    assert topic.post(of_form("JSON", person(30))).status_code == 200


@pytest.mark.parametrize("form", ["AVRO", "JSON", "PROTOBUF"])
def test_publishing_auditing_and_repairing_keep_the_rules(form: str, topic: Topic) -> None:
    schema_id = topic.register(form, [mask(**PII), {**ADULT, "mode": "WRITEREAD"}])
    good, bad = ({**of_form(form, person(age)), **PET[form]} for age in (30, 3))
    publisher = Publisher(topic.cluster, topic.registry)
    event = native(form, good, as_published=True)
    publisher.publish(topic.name, "k", event)
    with pytest.raises(RuleRefused, match='"adult"'):
        publisher.publish(topic.name, "k", native(form, bad, as_published=True))
    publisher.close()
    (written,) = topic.values()
    assert b"***" in written and b"Ann" not in written

    plain = RegistryClient(topic.url)
    source = replace(plain.source(schema_id), rule_set=None)
    plain.close()
    minor = frame(
        schema_id, plain_encoder_of(source).body(bad)
    )  # as a producer writes that knows of no rules
    known = SchemaIdCache(topic.registry)
    verdict = judge(Record(topic.name, 0, 1, 0, b"k", minor), known.of(f"{topic.name}-value"))
    assert verdict is not None and verdict.reason == "rule" and '"adult"' in verdict.detail
    assert judge(Record(topic.name, 0, 0, 0, b"k", written), known.of(f"{topic.name}-value")) is None

    letters = DeadLetters(topic.cluster, topic.registry)
    dead = f"{topic.name}.quarantine"
    topic.cluster.create_topic(dead, partitions=1, config={}, replication_factor=1)
    copy = copy_of(Record(topic.name, 0, 0, 1_000, b"k", minor), verdict)
    writer = topic.cluster.writer()
    writer.append([copy])
    writer.close()
    place = [RecordPlace(dead, 0, 0)]
    with pytest.raises(CallerError, match='"adult"'):
        letters.replay(place, "test")
    with pytest.raises(RuleRefused, match='"adult"'):
        letters.repair(place, Repair(sets([("name", "Bob"), ("age", 4)])), "test")
    letters.repair(place, Repair(sets([("name", "Bob"), ("age", 44)])), "test")
    letters.replay(place, "test")
    repaired = topic.values()[-1]
    assert b"***" in repaired and b"Bob" not in repaired
