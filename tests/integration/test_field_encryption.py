"""Field encryption with Confluent's own serializers and executors over the hub's DEK registry."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import (
    DekAlgorithm,
    DekRegistryClient,
)
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import (
    EncryptionExecutor,
    FieldEncryptionExecutor,
)
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from confluent_kafka.serialization import MessageField, SerializationContext
from encryption_rules import encrypt_rule
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from patience import patient
from pipeline import Pipeline, records_of
from ports import free_ports
from processes import call_hub, running_server

from hub.config import Settings
from hub.config.kms import KmsKey
from hub.kafka import KafkaCluster
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.formats.protobuf import schema as protobuf

CANARY = "ann@canary.example"
SECRET = "a local secret"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "email", "type": "string", "confluent:tags": ["PII"]},
        ],
    }
)
JSON = json.dumps(
    {
        "type": "object",
        "title": "Person",
        "properties": {
            "id": {"type": "string"},
            "email": {"type": "string", "confluent:tags": ["PII"]},
        },
    }
)
PROTO = """syntax = "proto3";
import "confluent/meta.proto";
message Person {
  string id = 1;
  string email = 2 [(confluent.field_meta).tags = "PII"];
}
"""
SCHEMAS = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTO}
PERSON = {"id": "C-1", "email": CANARY}


class Clock:
    """Clock of a client that may be ahead, to let keys expire."""

    ahead_days = 0

    def now(self) -> int:
        return int(time.time() * 1000) + self.ahead_days * 86_400_000


@dataclass
class Client:
    """A producer and a consumer of Confluent's, with executors and caches of their own."""

    url: str
    form: str
    clock: Clock

    def __post_init__(self) -> None:
        self.rules = RuleRegistry()
        for executor in (FieldEncryptionExecutor(self.clock), EncryptionExecutor(self.clock)):
            self.rules.register_executor(executor)
        self.registry = SchemaRegistryClient({"url": self.url})
        if self.form == "PROTOBUF":
            pool = DescriptorPool()
            _init_pool(pool)
            file = pool.AddSerializedFile(protobuf.parse(PROTO).file.SerializeToString())
            self.made = message_factory.GetMessageClass(file.message_types_by_name["Person"])
            self.pool = pool

    def written(self, topic: str, value: Mapping[str, Any]) -> bytes:
        conf = {"auto.register.schemas": False, "use.latest.version": True}
        context, more = SerializationContext(topic, MessageField.VALUE), self.more
        if self.form == "AVRO":
            return AvroSerializer(self.registry, AVRO, conf=conf, **more)(dict(value), context)
        if self.form == "JSON":
            return JSONSerializer(JSON, self.registry, conf=conf, **more)(dict(value), context)
        conf["use.deprecated.format"] = False
        message = json_format.ParseDict(value, self.made(), descriptor_pool=self.pool)
        return ProtobufSerializer(self.made, self.registry, conf=conf, **more)(message, context)

    def read(self, topic: str, data: bytes, *, rules: bool = True) -> dict[str, Any]:
        context = SerializationContext(topic, MessageField.VALUE)
        more = self.more if rules else {"rule_registry": RuleRegistry()}
        conf = {"use.latest.version": False}
        if self.form == "AVRO":
            return dict(AvroDeserializer(self.registry, conf=conf, **more)(data, context))
        if self.form == "JSON":
            return dict(
                JSONDeserializer(None, schema_registry_client=self.registry, conf=conf, **more)(data, context)
            )
        conf["use.deprecated.format"] = False
        found = ProtobufDeserializer(self.made, conf, self.registry, **more)(data, context)
        return {"id": found.id, "email": found.email}

    @property
    def more(self) -> dict[str, Any]:
        return {"rule_conf": {"secret": SECRET}, "rule_registry": self.rules}


@pytest.fixture(scope="module")
def encrypting(
    settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a running server with access to the local KMS."""
    folder = tmp_path_factory.mktemp("encrypting")
    (folder / "kms.secret").write_text(SECRET)
    own = settings.model_copy(
        update={
            "project": folder,
            "home": folder / "home",
            "http_port": free_ports(1)[0],
            "kms": [KmsKey(key="local-kms://people", secrets={"secret": "kms.secret"})],
        }
    )
    with running_server(own):
        yield own


@pytest.fixture(scope="module", autouse=True)
def local_kms() -> None:
    LocalKmsDriver.register()


@pytest.fixture
def registry(hub_server: str) -> Iterator[RegistryClient]:
    client = RegistryClient(hub_server, patient(15.0))
    yield client
    client.close()


@pytest.fixture
def registered(registry: RegistryClient) -> Callable[..., str]:
    """Register the schema of a form with rules under a new topic; return the topic."""

    def make(form: str, *rules: Mapping[str, Any], part: str = "domainRules") -> str:
        topic = f"csfle.{uuid.uuid4().hex[:8]}"
        registry.register(f"{topic}-value", SCHEMAS[form], form, rule_set={part: list(rules)})
        return topic

    return make


@pytest.mark.parametrize("form", list(SCHEMAS))
def test_confluents_serializers_encrypt_and_decrypt_with_keys_of_the_hub(
    hub_server: str, registered: Callable[..., str], form: str
) -> None:
    keys = DekRegistryClient({"url": hub_server})
    for algorithm in DekAlgorithm:
        kek = f"kek-{uuid.uuid4().hex[:8]}"
        topic = registered(form, encrypt_rule(kek, **{"encrypt.dek.algorithm": algorithm.value}))
        written = Client(hub_server, form, Clock()).written(topic, PERSON)
        assert CANARY.encode() not in written
        # Another client, which knows nothing yet.
        assert Client(hub_server, form, Clock()).read(topic, written) == PERSON
        assert Client(hub_server, form, Clock()).read(topic, written, rules=False)["email"] != CANARY
        dek = keys.get_dek(kek, f"{topic}-value", algorithm)
        assert (dek.version, dek.key_material) == (1, None) and dek.ts
        same = Client(hub_server, form, Clock()).written(topic, PERSON) == written
        assert same is (algorithm is DekAlgorithm.AES256_SIV)  # deterministic


def test_keys_that_expire_are_rotated_and_earlier_ones_still_decrypt(
    hub_server: str, registered: Callable[..., str]
) -> None:
    kek, clock = f"kek-{uuid.uuid4().hex[:8]}", Clock()
    topic = registered("AVRO", encrypt_rule(kek, **{"encrypt.dek.expiry.days": "1"}))
    first = Client(hub_server, "AVRO", clock).written(topic, PERSON)
    clock.ahead_days = 2
    second = Client(hub_server, "AVRO", clock).written(topic, PERSON)
    keys = DekRegistryClient({"url": hub_server})
    assert keys.get_dek(kek, f"{topic}-value", version=-1).version == 2
    for written in (first, second):
        assert Client(hub_server, "AVRO", Clock()).read(topic, written) == PERSON


def test_a_whole_payload_is_encrypted(hub_server: str, registered: Callable[..., str]) -> None:
    rule = {**encrypt_rule(f"kek-{uuid.uuid4().hex[:8]}"), "type": "ENCRYPT_PAYLOAD", "tags": []}
    topic = registered("JSON", rule, part="encodingRules")
    written = Client(hub_server, "JSON", Clock()).written(topic, PERSON)
    assert b"C-1" not in written
    assert Client(hub_server, "JSON", Clock()).read(topic, written) == PERSON


def test_two_clients_that_create_a_key_at_once_agree(hub_server: str) -> None:
    first, second = (DekRegistryClient({"url": hub_server}) for _ in range(2))
    kek = f"kek-{uuid.uuid4().hex[:8]}"
    first.register_kek(kek, "local-kms", "people")
    with pytest.raises(SchemaRegistryError) as refused:
        second.register_kek(kek, "local-kms", "people")
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40971)
    with pytest.raises(SchemaRegistryError) as missing:
        second.get_dek(kek, "s-value")
    assert (missing.value.http_status_code, missing.value.error_code) == (404, 40470)
    made = first.register_dek(kek, "s-value", "d3JhcHBlZA==")
    assert second.get_dek(kek, "s-value") == made


# ---- the hub encrypts


def topic_of(cluster: KafkaCluster, registry: RegistryClient, form: str, *rules: Mapping[str, Any]) -> str:
    topic = f"csfle.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    registry.register(f"{topic}-value", SCHEMAS[form], form, rule_set={"domainRules": list(rules)})
    return topic


def test_what_the_gateway_and_the_command_line_encrypt_confluents_clients_read(
    encrypting: Settings, kafka: str
) -> None:
    """And neither log, nor answers, nor files of the hub have clear text or a key."""
    cluster, registry = KafkaCluster(kafka, patient(15.0)), RegistryClient(encrypting.url, patient(15.0))
    kek = f"kek-{uuid.uuid4().hex[:8]}"
    created = call_hub(encrypting, "kek", "create", kek, "--kms", "local-kms://people")
    assert created.returncode == 0, created.stderr
    texts, topics = [created.stdout, created.stderr], []
    for form in SCHEMAS:
        for algorithm in DekAlgorithm:
            rule = encrypt_rule(kek, **{"encrypt.dek.algorithm": algorithm.value})
            topic = topic_of(cluster, registry, form, rule)
            answer = httpx2.post(
                f"{encrypting.url}/v3/clusters/-/topics/{topic}/records",
                json={"value": {"data": PERSON}},
                timeout=patient(60.0),
            )
            assert answer.status_code == 200 and answer.json()["error_code"] == 200, answer.text
            texts.append(answer.text)
            topics.append((form, topic))
    form, topic = topics[0]
    published = call_hub(encrypting, "topic", "publish", topic, "-k", "C-1", "-j", json.dumps(PERSON))
    assert published.returncode == 0, published.stdout + published.stderr
    for form, topic in topics:
        records = [bytes(each.value or b"") for each in records_of(cluster, topic)]
        assert len(records) == (2 if topic == topics[0][1] else 1)
        for written in records:
            assert CANARY.encode() not in written
            assert Client(encrypting.url, form, Clock()).read(topic, written) == PERSON
    shown = call_hub(encrypting, "kek", "show", kek)
    assert all(f"{topic}-value" in shown.stdout for _, topic in topics)
    subject = f"{topics[0][1]}-value"
    rotated = call_hub(encrypting, "kek", "rotate", kek, subject, "--algorithm", "AES128_GCM")
    assert "has version 2 of its data key" in rotated.stderr, rotated.stderr
    assert kek in call_hub(encrypting, "kek", "ls").stdout
    kept = call_hub(encrypting, "kek", "delete", kek)
    assert kept.returncode == 1 and "One or more references exist" in kept.stderr
    described = call_hub(encrypting, "schema", "show", f"{topics[0][1]}-value")
    assert f'Encrypted: email, by rule "encrypt-pii" with KEK "{kek}"' in described.stderr
    page = httpx2.get(f"{encrypting.url}/api/topics/{topics[0][1]}/messages", timeout=patient(60.0))
    metrics = httpx2.get(f"{encrypting.url}/metrics", timeout=patient(60.0))
    keys = records_of(cluster, "_dek_registry_keys")
    texts += [published.stdout, published.stderr, shown.stdout, page.text, metrics.text]
    texts += [str((each.key, each.value)) for each in keys]
    texts += [path.read_text(errors="replace") for path in encrypting.home.rglob("*") if path.is_file()]
    for secret in (CANARY, base64.b64encode(CANARY.encode()).decode(), SECRET):
        assert not any(secret in text for text in texts)


def test_clear_text_is_neither_written_nor_copied_while_the_kms_is_away(
    encrypting: Settings, kafka: str
) -> None:
    cluster, registry = KafkaCluster(kafka, patient(15.0)), RegistryClient(encrypting.url, patient(15.0))
    kek, dead = f"kek-{uuid.uuid4().hex[:8]}", f"csfle.dead.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(dead, partitions=1, config={}, replication_factor=1)
    assert call_hub(encrypting, "kek", "create", kek, "--kms", "local-kms://people").returncode == 0
    rule = {**encrypt_rule(kek, **{"dlq.topic": dead}), "onFailure": "DLQ"}
    topic = topic_of(cluster, registry, "AVRO", rule)
    secret = encrypting.project / "kms.secret"
    secret.rename(secret.with_suffix(".away"))
    try:
        answer = httpx2.post(
            f"{encrypting.url}/v3/clusters/-/topics/{topic}/records",
            json={"value": {"data": PERSON}},
            timeout=patient(60.0),
        )
    finally:
        secret.with_suffix(".away").rename(secret)
    assert answer.status_code == 422 and answer.json()["code"] == "HUB-1217", answer.text
    assert 'rule "encrypt-pii"' in answer.json()["message"] and CANARY not in answer.text
    assert records_of(cluster, topic) == records_of(cluster, dead) == []


def test_a_view_decrypts_only_where_it_says_so(encrypting: Settings, kafka: str) -> None:
    """Dead-letter records of events that cannot be decrypted keep the ciphertext, and the reason."""
    cluster, registry = KafkaCluster(kafka, patient(15.0)), RegistryClient(encrypting.url, patient(15.0))
    kek, name = f"kek-{uuid.uuid4().hex[:8]}", f"people_{uuid.uuid4().hex[:8]}"
    assert call_hub(encrypting, "kek", "create", kek, "--kms", "local-kms://people").returncode == 0
    topic = topic_of(cluster, registry, "AVRO", encrypt_rule(kek))
    writer = Client(encrypting.url, "AVRO", Clock())
    good = writer.written(topic, PERSON)
    other = topic_of(cluster, registry, "AVRO", encrypt_rule(f"{kek}-other"))
    call_hub(encrypting, "kek", "create", f"{kek}-other", "--kms", "local-kms://people")
    foreign = writer.written(other, {**PERSON, "id": "C-2"})  # with a key of another subject
    values = (good, good[:5] + foreign[5:])
    with contextlib.closing(cluster.writer()) as records:
        records.append([NewRecord(topic, f"C-{n}".encode(), each) for n, each in enumerate(values, 1)])
    with contextlib.closing(Pipeline(encrypting, encrypting.url)) as running:
        running.views.mkdir(parents=True, exist_ok=True)
        for view, decrypt in ((name, "true"), (f"{name}_sealed", "false")):
            text = f"""view: {view}
sources: {{p: {{topic: {topic}, key: id, decrypt: {decrypt}}}}}
fields: {{email: p.email}}
"""
            (running.views / f"{view}.yaml").write_text(text)
        running.start("materialize")
        running.start("apply-changelogs")
        for view in (name, f"{name}_sealed"):
            running.covers(view, [topic])
        assert {key: row["email"] for key, row in running.rows(name).items()} == {"C-1": CANARY}
        sealed = running.rows(f"{name}_sealed")
        assert sealed.keys() == {"C-1", "C-2"}
        assert not any(CANARY in row["email"] for row in sealed.values())
        (dead,) = records_of(cluster, f"{topic}.dlq")
        assert dead.value == values[1]
        assert b"cannot be decrypted" in str(dead.headers).encode()
        assert CANARY not in str(dead)
