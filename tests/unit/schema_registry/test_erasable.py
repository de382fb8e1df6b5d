"""Erasable fields: encrypted with a person's key when written, clear for readers, gone with the key."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver

from hub.access.decide import AccessPolicy, Grant, Principal, decide, patterns_of
from hub.caller import Action, Kind, Resource
from hub.config.kms import KmsKey
from hub.errors import CallerError, ConfigError, NotFound
from hub.log.memory import MemoryCluster
from hub.schema_registry.codecs.values import encoder_of
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.dek_registry.bodies import kek_of
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import KeyRemoved
from hub.schema_registry.dek_registry.state import DekRegistryState, create_kek
from hub.schema_registry.encryption.erasable import ERASED, ErasableFields, NotErasable, person_hash
from hub.schema_registry.encryption.key_ring import KeyRing, NodeDeks
from hub.schema_registry.encryption.kms import KmsClient
from hub.schema_registry.encryption.opener import Opener
from hub.schema_registry.encryption.sealing import FieldSealer
from hub.schema_registry.model.subject_names import person_subject, topic_of
from hub.topics.tree.tree import load

CANARY = "ann@canary.example"
PII = {"confluent:tags": ["PII"]}


def avro(email: Any) -> str:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "email", "type": email, **PII},
        {"name": "age", "type": "int"},
    ]
    return json.dumps({"type": "record", "name": "Person", "fields": fields})


TEXTS = {
    "AVRO": avro("string"),
    "JSON": json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "email": {"type": "string", **PII},
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


class Known:
    """A registry with one schema, 1."""

    def __init__(self, form: str, text: str) -> None:
        self.found = SchemaSource.of(form, text)

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id != 1:
            raise NotFound("no such schema")
        return self.found


class Vault:
    """A DEK registry in memory, a sealer and an opener of one topic."""

    def __init__(self, folder: Path, form: str = "AVRO", text: str | None = None) -> None:
        self.topic = f"crm.{uuid.uuid4().hex}"
        self.registry = cast(Any, Known(form, text or TEXTS[form]))
        self.node = DekNode(MemoryCluster(now_ms=1_000))
        (folder / "kms.secret").write_text("correct horse battery")
        self.kms = KmsClient([KmsKey(key="local-kms://people", secrets={"secret": "kms.secret"})], folder)
        RUNNER.keys = self.ring()
        kek = kek_of({"name": "erasable", "kmsType": "local-kms", "kmsKeyId": "people"}, ".")
        self.node.submit(lambda state: create_kek(state, kek))
        self.sealer, self.fields = FieldSealer(), ErasableFields("id")
        self.sealer.fields_of = lambda topic: self.fields if topic == self.topic else None
        self.opener = Opener(self.registry, RUNNER.keys)

    def ring(self) -> KeyRing:
        return KeyRing(NodeDeks(self.node, lambda _subject: None), self.kms)

    def clear(self, **value: Any) -> bytes:
        given = {"id": "C-1", "email": CANARY, "age": 7, **value}
        return frame(1, encoder_of(self.registry.found).body(given))

    def sealed(self, value: bytes) -> bytes:
        found = self.sealer.sealed(self.topic, value, self.registry)
        assert found is not None
        return found

    def destroy(self, person: str) -> None:
        subject = person_subject(self.topic, person_hash(self.topic, person))

        def decide(state: DekRegistryState) -> list[KeyRemoved]:
            return [KeyRemoved(each.id) for each in state.deks_of("erasable", subject, deleted=True)]

        self.node.submit(decide)
        RUNNER.keys = self.ring()
        self.opener = Opener(self.registry, RUNNER.keys)


@pytest.fixture(autouse=True)
def local_kms() -> Iterator[None]:
    LocalKmsDriver.register()
    yield
    RUNNER.keys = None


@pytest.mark.parametrize("form", list(TEXTS))
def test_what_is_written_has_no_clear_text_and_readers_see_it_until_the_key_is_gone(
    tmp_path: Path, form: str
) -> None:
    vault = Vault(tmp_path, form)
    clear, other = vault.clear(), vault.clear(id="C-2")
    written, second = vault.sealed(clear), vault.sealed(other)
    assert CANARY.encode() not in written and b"C-1" in written
    assert vault.opener.opened(vault.topic, written) == clear
    vault.destroy("C-1")
    assert vault.opener.opened(vault.topic, written) == vault.clear(email=ERASED)
    assert vault.opener.opened(vault.topic, second) == other  # everybody else stays


def test_null_stands_for_an_erased_field_where_the_schema_accepts_it(tmp_path: Path) -> None:
    vault = Vault(tmp_path, text=avro(["null", "string"]))
    written = vault.sealed(vault.clear())
    vault.destroy("C-1")
    assert vault.opener.opened(vault.topic, written) == vault.clear(email=None)


def test_a_person_who_returns_has_a_new_key_and_former_values_stay_erased(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    before = vault.sealed(vault.clear())
    reader = vault.opener  # has the former key in memory
    assert reader.opened(vault.topic, before) == vault.clear()
    vault.destroy("C-1")
    after = vault.sealed(vault.clear(email="new@canary.example"))
    for opener in (vault.opener, reader):
        assert opener.opened(vault.topic, after) == vault.clear(email="new@canary.example")
        assert opener.opened(vault.topic, before) == vault.clear(email=ERASED)


def test_a_value_that_is_written_again_is_not_encrypted_twice(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    once = vault.sealed(vault.clear())
    assert vault.sealed(once) == once


def test_a_ciphertext_opens_for_no_other_topic(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    written = vault.sealed(vault.clear())
    assert vault.opener.opened("crm.another", written) == vault.clear(email=ERASED)


def test_fields_are_named_or_tagged(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.fields = ErasableFields("id", frozenset({"age"}))
    refused(vault, vault.clear(), 'field "age" is neither text nor bytes')
    vault.fields = ErasableFields("id", frozenset({"none"}))
    assert vault.sealed(vault.clear()) == vault.clear()


def test_what_cannot_be_encrypted_is_refused(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    refused(vault, vault.clear(id=""), 'erasable by "id"')
    refused(vault, b"text", "has no schema")
    vault.fields = ErasableFields("email")
    refused(vault, vault.clear(), "names the person")
    vault.fields = ErasableFields("id")
    RUNNER.keys = None
    refused(vault, vault.clear(), "no access to a key management service")
    RUNNER.keys = vault.ring()
    vault.sealer.kek = "other"
    with pytest.raises(CallerError, match='KEK "other" does not exist'):
        vault.sealed(vault.clear())
    assert vault.sealer.sealed("other.topic", b"text", vault.registry) == b"text"
    assert vault.sealer.sealed(vault.topic, None, vault.registry) is None


def refused(vault: Vault, value: bytes, message: str) -> None:
    with pytest.raises(NotErasable, match=message):
        vault.sealed(value)


def test_fields_in_clear_text_are_named(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    assert vault.sealer.clear_fields(vault.topic, vault.clear(), vault.registry) == ["email"]
    assert vault.sealer.clear_fields(vault.topic, vault.sealed(vault.clear()), vault.registry) == []
    assert vault.sealer.clear_fields("other.topic", vault.clear(), vault.registry) == []


def test_a_key_of_a_person_belongs_to_the_topic() -> None:
    subject = person_subject("crm.people", person_hash("crm.people", "C-1"))
    assert topic_of(subject) == "crm.people"
    policy = AccessPolicy(by_name={"ann": (Grant("write", patterns_of(["crm.people"])),)})
    ann = Principal("ann", "user")
    assert decide(policy, ann, Action.write, Resource(Kind.subject, subject)).allowed
    other = person_subject("crm.others", "0" * 32)
    assert not decide(policy, ann, Action.write, Resource(Kind.subject, other)).allowed


def test_the_tree_declares_erasable_topics_for_everything_below(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text(
        "topics:\n  crm:\n    erasable_by: customer.id\n    legal_hold: case 7\n    topics:\n"
        "      people: {}\n      notes: {erasable_by: author, erasable_fields: [text]}\n  shop: {}\n"
    )
    tree = load(file)
    people, notes, shop = (tree.find(each) for each in ("crm.people", "crm.notes", "shop"))
    assert people and notes and shop
    assert people.erasable == ErasableFields("customer.id") and people.legal_hold == "case 7"
    assert notes.erasable == ErasableFields("author", frozenset({"text"}))
    assert shop.erasable is None and shop.legal_hold is None
    file.write_text("topics:\n  a: {erasable_by: email, erasable_fields: [email]}\n")
    with pytest.raises(ConfigError, match="cannot be one of the erasable_fields"):
        load(file)


def test_a_process_that_made_no_key_unwraps_one(tmp_path: Path) -> None:
    """A server does so after a restart: Tink has to know its algorithms by then."""
    vault = Vault(tmp_path)
    wrapped = vault.kms.wrap("local-kms", "people", b"a key")
    code = (
        "import sys; from pathlib import Path; from hub.config.kms import KmsKey\n"
        "from hub.schema_registry.encryption.kms import KmsClient\n"
        "key = KmsKey(key='local-kms://people', secrets={'secret': 'kms.secret'})\n"
        "kms = KmsClient([key], Path(sys.argv[1]))\n"
        "sys.stdout.buffer.write(kms.unwrap('local-kms', 'people', bytes.fromhex(sys.argv[2])))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), wrapped.hex()]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == b"a key"
