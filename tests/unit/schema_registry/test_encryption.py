"""Rules of type ENCRYPT, executed by the hub: real keys, a local KMS, the rule process."""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import Cryptor, DekAlgorithm

from hub.config.kms import KmsKey
from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.log import MemoryCluster
from hub.schema_registry.codecs.values import encoder_of as plain_encoder_of
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.encrypted_fields import WHOLE, encrypted_fields
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.contracts.runner import RuleRunner
from hub.schema_registry.dek_registry.bodies import kek_of
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import KEYS_TOPIC
from hub.schema_registry.dek_registry.state import create_kek
from hub.schema_registry.encryption.key_ring import KeyRing, NodeDeks
from hub.schema_registry.encryption.kms import KeyRefused, KmsClient, KmsFailed
from hub.schema_registry.encryption.opener import Opener

CANARY = "ann@canary.example"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "email", "type": "string", "confluent:tags": ["PII"]},
            {"name": "age", "type": "int", "confluent:tags": ["AGE"], "default": 0},
        ],
    }
)
PERSON = {"id": "C-1", "email": CANARY, "age": 7}
LOCAL = KmsKey(key="local-kms://people", secrets={"secret": "kms.secret"})


def encrypt(tag: str = "PII", kind: str = "ENCRYPT", **params: str) -> dict[str, Any]:
    return {
        "name": "encrypt-pii", "kind": "TRANSFORM", "type": kind, "mode": "WRITEREAD", "tags": [tag],
        "onFailure": "NONE", "params": {"encrypt.kek.name": "pii", **params},
    }  # fmt: skip


class Hub:
    """A DEK registry in memory with a local KMS, and a rule process with its keys."""

    def __init__(self, folder: Path, runner: RuleRunner) -> None:
        self.folder, self.cluster, self.now_ms = folder, MemoryCluster(now_ms=1_000), 1_000
        self.node = DekNode(self.cluster)
        self.runner = runner
        self.subject = f"{uuid.uuid4().hex}-value"  # the rule process keeps keys for a moment
        (folder / "kms.secret").write_text("correct horse battery")
        self.forget()

    def forget(self) -> None:
        """Keep no key in memory."""
        store = NodeDeks(self.node, lambda _subject: None)
        self.ring = KeyRing(store, KmsClient([LOCAL], self.folder), lambda: self.now_ms)
        self.runner.keys = self.ring

    def create_kek(self, name: str = "pii", key: str = "people") -> None:
        new = kek_of({"name": name, "kmsType": "local-kms", "kmsKeyId": key}, ".")
        self.node.submit(lambda state: create_kek(state, new))

    def write(self, *rules: dict[str, Any], **more: Any) -> bytes:
        source = replace(SchemaSource.of("AVRO", AVRO), rule_set={"domainRules": list(rules), **more})
        return self.runner.encoder_of(source, self.subject).body(PERSON)

    def decrypted(self, ciphertext: bytes, algorithm: str, version: int = 1) -> bytes:
        key = self.ring.key(KeyQuestion("pii", self.subject, algorithm, version))
        return Cryptor(DekAlgorithm(algorithm)).decrypt(key.key, ciphertext, b"")


@pytest.fixture(scope="module")
def runner() -> Iterator[RuleRunner]:
    made = RuleRunner(most=1)
    yield made
    made.close()


@pytest.fixture
def hub(tmp_path: Path, runner: RuleRunner) -> Hub:
    return Hub(tmp_path, runner)


def field(body: bytes) -> bytes:
    """The bytes of the email in an encoded person: a length, then base64."""
    at = 1 + len("C-1")
    length, size, shift = 0, 0, 0
    while True:
        byte = body[at + size]
        length |= (byte & 0x7F) << shift
        size, shift = size + 1, shift + 7
        if byte < 0x80:
            break
    length >>= 1
    return base64.b64decode(body[at + size : at + size + length])


@pytest.mark.parametrize("algorithm", ["AES128_GCM", "AES256_GCM", "AES256_SIV"])
def test_a_field_is_encrypted_with_the_subjects_key(hub: Hub, algorithm: str) -> None:
    hub.create_kek()
    rule = encrypt(**{"encrypt.dek.algorithm": algorithm})
    first, second = hub.write(rule), hub.write(rule)
    assert CANARY.encode() not in first and b"C-1" in first
    assert hub.decrypted(field(first), algorithm) == CANARY.encode()
    assert (first == second) is (algorithm == "AES256_SIV")
    stored = [json.loads(each.value or b"") for each in hub.cluster.logs[KEYS_TOPIC][0]]
    assert [each["type"] for each in stored] == ["KEK", "DEK"]
    assert stored[1]["subject"] == hub.subject and stored[1]["algorithm"] == algorithm


def test_a_key_that_expires_is_made_anew_and_named_by_its_version(hub: Hub) -> None:
    hub.create_kek()
    rule = encrypt(**{"encrypt.dek.expiry.days": "1"})
    first = field(hub.write(rule))
    hub.now_ms += 3 * 86_400_000
    hub.cluster.now_ms = hub.now_ms
    hub.forget()
    key = hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM", None, 1))
    assert key.version == 2
    assert (first[0], int.from_bytes(first[1:5], "big")) == (0, 1)
    assert hub.decrypted(first[5:], "AES256_GCM") == CANARY.encode()


def test_a_whole_payload_is_encrypted(hub: Hub) -> None:
    hub.create_kek()
    body = hub.write(encodingRules=[encrypt(kind="ENCRYPT_PAYLOAD")])
    assert b"C-1" not in body
    clear = hub.decrypted(body, "AES256_GCM")
    assert CANARY.encode() in clear


def test_conditions_see_the_clear_text_before_the_rule(hub: Hub) -> None:
    hub.create_kek()
    email = {"name": "email", "kind": "CONDITION", "type": "CEL", "mode": "WRITE"}
    assert CANARY.encode() not in hub.write({**email, "expr": "message.email != ''"}, encrypt())
    dead = {**email, "onFailure": "DLQ", "params": {"dlq.topic": "dead"}, "expr": "message.age > 9"}
    with pytest.raises(RuleRefused) as refused:
        hub.write(dead, encrypt())
    assert refused.value.dlq_topic is None  # a copy would have the clear text


def fails(write: Callable[[], bytes]) -> HubError:
    with pytest.raises(HubError) as error:
        write()
    assert CANARY not in f"{error.value.message}{error.value.hint}"
    return error.value


def test_without_its_key_a_rule_refuses_whatever_it_says(hub: Hub) -> None:
    """Every rule here has ``onFailure: NONE``."""
    missing = fails(lambda: hub.write(encrypt()))
    assert missing.code == "HUB-1217" and 'rule "encrypt-pii" cannot encrypt' in missing.message
    assert "hub kek create pii" in (missing.hint or "")
    hub.create_kek()
    other = fails(lambda: hub.write(encrypt(**{"encrypt.kms.key.id": "another"})))
    assert '"people", and the rule "another"' in other.message
    assert CANARY.encode() not in hub.write(encrypt())
    hub.forget()
    (hub.folder / "kms.secret").unlink()
    siv = encrypt(**{"encrypt.dek.algorithm": "AES256_SIV"})  # a key that nobody keeps
    assert "cannot be read" in fails(lambda: hub.write(siv)).message


def test_a_kms_that_is_away_is_tried_again(hub: Hub) -> None:
    hub.create_kek()
    hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM"))
    hub.forget()
    (hub.folder / "kms.secret").write_text("wrong")
    away = fails(lambda: hub.write(encrypt()))
    assert isinstance(away, PeerError) and away.code == "HUB-3036" and away.retriable
    assert 'rule "encrypt-pii"' in away.message
    (hub.folder / "kms.secret").write_text("correct horse battery")
    assert CANARY.encode() not in hub.write(encrypt())


def test_a_type_that_cannot_be_encrypted_is_not_written_in_clear(hub: Hub) -> None:
    hub.create_kek()
    error = fails(lambda: hub.write(encrypt("AGE")))
    assert error.code == "HUB-1214" and "not supported for encryption" in error.message


def test_without_kms_in_the_settings_nothing_is_written(hub: Hub) -> None:
    hub.runner.keys = None
    error = fails(lambda: hub.write(encrypt()))
    assert error.code == "HUB-1215" and "encrypt-fields" in (error.hint or "")


def test_a_value_that_may_be_encrypted_already_is_not_encrypted_again(hub: Hub) -> None:
    """Repairs of dead-letter records and sinks write what the log had."""
    hub.create_kek()
    source = replace(SchemaSource.of("AVRO", AVRO), rule_set={"domainRules": [encrypt()]})
    assert fails(lambda: hub.runner.encoder_of(source).body(PERSON)).code == "HUB-1215"


def test_only_kms_keys_of_the_settings_are_used(hub: Hub) -> None:
    hub.create_kek("elsewhere", "another-key")
    error = fails(lambda: hub.write(encrypt(**{"encrypt.kek.name": "elsewhere"})))
    assert "has no access to it" in error.message and not error.retriable


def test_neither_clear_text_nor_keys_are_logged(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hub.create_kek()
    hub.write(encrypt())
    key = hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM"))
    shown = f"{caplog.text}{key!r}{DataKey(1, b'abc')!r}{LOCAL!r}"
    logged = [each for records in hub.cluster.logs.values() for each in records[0]]
    for secret in (CANARY, "correct horse", base64.b64encode(key.key).decode(), "abc"):
        assert secret not in shown
        assert not any(secret.encode() in (each.value or b"") + (each.key or b"") for each in logged)


# ---- reading in clear


class Known:
    """A registry with one schema, whose id is 1."""

    def __init__(self, source: SchemaSource) -> None:
        self._source = source

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id != 1:
            raise NotFound("no such schema")
        return self._source


TEXTS = {
    "AVRO": AVRO,
    "JSON": json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "email": {"type": "string", "confluent:tags": ["PII"]},
                "age": {"type": "integer"},
            },
        }
    ),
    "PROTOBUF": """syntax = "proto3";
import "confluent/meta.proto";
message Person {
  string id = 1;
  string email = 2 [(confluent.field_meta).tags = "PII"];
  int32 age = 3;
}
""",
}


@pytest.mark.parametrize("form", list(TEXTS))
@pytest.mark.parametrize("part", ["domainRules", "encodingRules"])
def test_an_opener_reads_what_the_gateway_wrote(hub: Hub, form: str, part: str) -> None:
    hub.create_kek()
    rule = encrypt(kind="ENCRYPT" if part == "domainRules" else "ENCRYPT_PAYLOAD")
    plain = SchemaSource.of(form, TEXTS[form])
    source = replace(plain, rule_set={part: [rule]})
    clear = frame(1, plain_encoder_of(plain).body(PERSON))
    sealed = frame(1, hub.runner.encoder_of(source, hub.subject).body(PERSON))
    opener = Opener(cast(Any, Known(source)), hub.ring)
    topic = hub.subject.removesuffix("-value")
    assert sealed != clear and opener.opened(topic, sealed) == clear
    assert Opener(cast(Any, Known(plain)), hub.ring).opened(topic, clear) == clear  # no rule: as it is
    for other in (b"", b"text", frame(2, b"x")):
        assert opener.opened(topic, other) == other


def test_what_cannot_be_opened_says_so_and_never_passes(hub: Hub) -> None:
    hub.create_kek()
    source = replace(SchemaSource.of("AVRO", AVRO), rule_set={"domainRules": [encrypt()]})
    sealed = frame(1, hub.runner.encoder_of(source, hub.subject).body(PERSON))
    topic = hub.subject.removesuffix("-value")
    opener = Opener(cast(Any, Known(source)), hub.ring)
    with pytest.raises(CallerError, match='rule "encrypt-pii"'):  # clear text is no ciphertext
        opener.opened(topic, frame(1, plain_encoder_of(SchemaSource.of("AVRO", AVRO)).body(PERSON)))
    with pytest.raises(CallerError, match="does not exist|no data key"):
        opener.opened("another.topic", sealed)
    with pytest.raises(CallerError, match="do not fit"):
        opener.opened(topic, frame(1, b"\xff"))
    hub.forget()
    (hub.folder / "kms.secret").write_text("wrong")
    with pytest.raises(PeerError, match="KMS"):  # not now: it is tried again
        Opener(cast(Any, Known(source)), hub.ring).opened(topic, sealed)


def test_encrypted_fields_are_named_with_their_keys() -> None:
    siv = encrypt("EXTRA", **{"encrypt.dek.algorithm": "AES256_SIV", "encrypt.kek.name": "other"})
    rules = {
        "domainRules": [encrypt(), siv, {**encrypt("AGE"), "disabled": True}],
        "encodingRules": [encrypt(kind="ENCRYPT_PAYLOAD")],
    }
    metadata = {"tags": {"Person.id": ["EXTRA"]}}
    source = replace(SchemaSource.of("AVRO", AVRO), rule_set=rules, metadata=metadata)
    assert [(each.field, each.kek, each.algorithm) for each in encrypted_fields(source)] == [
        ("email", "pii", "AES256_GCM"),
        ("id", "other", "AES256_SIV"),
        (WHOLE, "pii", "AES256_GCM"),
    ]


# ---- the key ring by itself


def test_a_reader_is_told_of_a_key_that_is_gone(hub: Hub) -> None:
    hub.create_kek()
    with pytest.raises(KeyRefused, match="no data key"):
        hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM", 4))


def test_a_kms_that_fails_is_reported_without_its_words(hub: Hub) -> None:
    hub.create_kek()
    hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM"))
    hub.forget()
    (hub.folder / "kms.secret").write_text("wrong")
    with pytest.raises(KmsFailed) as failed:
        hub.ring.key(KeyQuestion("pii", hub.subject, "AES256_GCM"))
    assert failed.value.retriable and "(TinkError)" in failed.value.message


def test_a_pattern_names_keys_of_a_kms() -> None:
    vault = KmsKey(key="hcvault://https://vault:8200/transit/keys/*")
    assert vault.covers("hcvault://https://vault:8200/transit/keys/pii")
    assert not vault.covers("hcvault://https://evil/transit/keys/pii")
    for wrong in ("pii", "kms://x", "hcvault://*", "local-kms://"):
        with pytest.raises(ValueError, match="key"):
            KmsKey(key=wrong)


def test_a_driver_whose_package_is_missing_says_which(tmp_path: Path) -> None:
    kms = KmsClient([KmsKey(key="azure-kms://https://*"), KmsKey(key="gcp-kms://*")], tmp_path)
    for kind, key, package in (
        ("azure-kms", "https://v/keys/k", "azure"),
        ("gcp-kms", "projects/p", "google"),
    ):
        with pytest.raises(KeyRefused, match=f"package {package}"):
            kms.wrap(kind, key, b"")


def test_caller_errors_stay_caller_errors(hub: Hub) -> None:
    assert issubclass(KeyRefused, CallerError) and issubclass(KmsFailed, PeerError)
