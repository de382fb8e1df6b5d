"""The registry through Java clients that nobody here wrote: Confluent's own (inside a jar of Flink's),
Flink's serializers on top of it, and Spring's. Codes, words and shapes are those that these clients read."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from java_classes import JavaClasses
from py4j.protocol import Py4JJavaError

from hub.config import Settings
from hub.embedded import ensure_jars

CONFLUENT = "org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry"
ENTITIES = f"{CONFLUENT}.client.rest.entities"
FLINK = "org.apache.flink.formats.avro.registry.confluent"
AVRO = "org.apache.flink.avro.shaded.org.apache.avro"
SPRING = "org.springframework.cloud.schema.registry"


def text(*names: str, record: str = "R", default: bool = True) -> str:
    """A record of ints, as it is stored."""
    more = {"default": 0} if default else {}
    fields = [{"name": each, "type": "int", **more} for each in names]
    return json.dumps({"type": "record", "name": record, "fields": fields}, separators=(",", ":"))


class Registry:
    """The clients of one server, and the objects that their calls take."""

    def __init__(self, java: JavaClasses, url: str) -> None:
        self.java, self.url = java, url
        self.rest = java[f"{CONFLUENT}.client.rest.RestService"](url)

    def client(self, **settings: Any) -> Any:
        """A ``CachedSchemaRegistryClient`` with nothing in its cache."""
        return self.java[f"{CONFLUENT}.client.CachedSchemaRegistryClient"](self.url, 100, settings)

    def avro(
        self,
        schema: str,
        references: Any = (),
        resolved: Any = None,
        metadata: Any = None,
        rules: Any = None,
    ) -> Any:
        """An ``AvroSchema``."""
        kind = self.java[f"{CONFLUENT}.avro.AvroSchema"]
        return kind(schema, list(references), dict(resolved or {}), metadata, rules, None, False)

    def reference(self, name: str, subject: str, version: int) -> Any:
        return self.java[f"{ENTITIES}.SchemaReference"](name, subject, version)

    def metadata(self, properties: dict[str, str], tags: Any = None, sensitive: Any = None) -> Any:
        """``Metadata``: tags by path, properties, and the names of those that are sensitive."""
        sets = None if tags is None else {path: self._set(each) for path, each in tags.items()}
        return self.java[f"{ENTITIES}.Metadata"](
            sets, properties, None if sensitive is None else self._set(sensitive)
        )

    def rule(self, name: str, mode: str = "WRITE", kind: str = "CONDITION") -> Any:
        kinds, modes = self.java[f"{ENTITIES}.RuleKind"], self.java[f"{ENTITIES}.RuleMode"]
        return self.java[f"{ENTITIES}.Rule"](
            name,
            "why",
            kinds.valueOf(kind),
            modes.valueOf(mode),
            "CEL",
            self._set(["PII"]),
            {"p": "1"},
            "message.a > 0",
            None,
            "ERROR",
            False,
        )

    def rules(self, *domain: Any) -> Any:
        return self.java[f"{ENTITIES}.RuleSet"](None, list(domain))

    def ordered(self, items: Any) -> Any:
        """A set that keeps the order."""
        found = self.java["java.util.LinkedHashSet"]()
        for each in items:
            found.add(each)
        return found

    def _set(self, items: Any) -> Any:
        found = self.java["java.util.TreeSet"]()
        for each in items:
            found.add(each)
        return found


@contextlib.contextmanager
def refused(status: int, code: int, words: str = "") -> Iterator[None]:
    """The block ends in a ``RestClientException`` with this status, error code and message."""
    with pytest.raises(Py4JJavaError) as caught:
        yield
    error = caught.value.java_exception
    assert error.getClass().getSimpleName() == "RestClientException", caught.value
    assert (error.getStatus(), error.getErrorCode()) == (status, code), error.getMessage()
    assert words in error.getMessage()


@pytest.fixture(scope="module")
def java(settings: Settings) -> Iterator[JavaClasses]:
    jars = ensure_jars(settings, ("registry-client",))["registry-client"]
    beside = ("slf4j-api", "avro", "jackson-core", "jackson-databind", "jackson-annotations", "commons-lang3")
    with JavaClasses(settings, jars, beside) as classes:
        yield classes


@pytest.fixture
def registry(java: JavaClasses, hub_server: str) -> Registry:
    return Registry(java, hub_server)


@pytest.fixture
def subject() -> str:
    return f"java-{uuid.uuid4().hex[:8]}-value"


def test_a_schema_is_registered_once_and_found_every_way(registry: Registry, subject: str) -> None:
    client, other = registry.client(), registry.client()
    schema_id = client.register(subject, registry.avro(text("a")))
    assert other.register(subject, registry.avro(text("a"))) == schema_id
    assert registry.client().register(f"{subject}-too", registry.avro(text("a"))) == schema_id
    assert other.getSchemaById(schema_id).canonicalString() == text("a")
    assert other.getSchemaBySubjectAndId(subject, schema_id).canonicalString() == text("a")
    assert registry.rest.getOnlySchemaById(schema_id) == text("a")
    second = client.register(subject, registry.avro(text("a", "b")))
    assert second > schema_id
    latest = registry.client().getLatestSchemaMetadata(subject)
    assert (latest.getId(), latest.getVersion(), latest.getSchemaType()) == (second, 2, "AVRO")
    assert latest.getSchema() == text("a", "b")
    assert list(latest.getReferences()) == []
    first = client.getSchemaMetadata(subject, 1)
    assert (first.getId(), first.getSchema()) == (schema_id, text("a"))
    assert client.getByVersion(subject, 1, False).getId() == schema_id
    assert list(client.getAllVersions(subject)) == [1, 2]
    assert registry.client().getVersion(subject, registry.avro(text("a"))) == 1
    assert registry.client().getId(subject, registry.avro(text("a", "b"))) == second
    assert {subject, f"{subject}-too"} <= set(client.getAllSubjects())
    assert set(client.getAllSubjectsByPrefix(subject)) == {subject, f"{subject}-too"}
    assert set(client.getAllSubjectsById(schema_id)) == {subject, f"{subject}-too"}
    places = {(each.getSubject(), each.getVersion()) for each in client.getAllVersionsById(schema_id)}
    assert places == {(subject, 1), (f"{subject}-too", 1)}
    newest = client.getSchemas(subject, False, True)
    assert sorted(each.canonicalString() for each in newest) == sorted([text("a", "b"), text("a")])
    assert registry.rest.getVersionSchemaOnly(subject, 1) == text("a")
    assert registry.rest.getLatestVersionSchemaOnly(subject) == text("a", "b")
    assert registry.rest.getId(schema_id, subject, True).getMaxId() >= second
    answer = client.registerWithResponse(subject, registry.avro(text("a", "b", "c")), False)
    assert (answer.getId() > second, answer.getVersion(), answer.getSchema()) == (
        True,
        3,
        text("a", "b", "c"),
    )


def test_what_is_missing_or_wrong_has_confluents_codes(registry: Registry, subject: str) -> None:
    client = registry.client()
    with refused(404, 40401, f"Subject '{subject}' not found."):
        client.getLatestSchemaMetadata(subject)
    with refused(404, 40401):
        client.getAllVersions(subject)
    with refused(404, 40401):
        client.getVersion(subject, registry.avro(text("a")))
    with refused(404, 40401):
        client.deleteSubject(subject, False)
    client.register(subject, registry.avro(text("a")))
    with refused(404, 40402, "Version 7 not found."):
        client.getSchemaMetadata(subject, 7)
    with refused(422, 42202):
        client.getSchemaMetadata(subject, 0)
    with refused(404, 40403):
        client.getVersion(subject, registry.avro(text("z")))
    with refused(404, 40403, "Schema 2147483647 not found"):
        client.getSchemaById(2**31 - 1)
    with refused(422, 42201):
        registry.rest.registerSchema('{"type": "nothing"}', subject)
    with refused(422, 42208):
        client.register("__GLOBAL", registry.avro(text("a")))
    with refused(404, 40408):
        client.getConfig(subject)
    with refused(404, 40409):
        client.getMode(subject)
    with refused(422, 42204):
        client.setMode("SIDEWAYS", subject)
    with refused(422, 42203):
        client.updateCompatibility(subject, "SIDEWAYS")


def test_compatibility_is_set_asked_and_holds(registry: Registry, subject: str) -> None:
    client = registry.client()
    client.register(subject, registry.avro(text("a")))
    breaking = registry.avro(text("b", default=False))
    assert client.testCompatibility(subject, registry.avro(text("a", "b")))
    assert not client.testCompatibility(subject, breaking)
    assert list(client.testCompatibilityVerbose(subject, registry.avro(text("a", "b")))) == []
    said = list(client.testCompatibilityVerbose(subject, breaking))
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in each for each in said)
    assert list(registry.rest.testCompatibility(text("a", "b"), subject, "1")) == []
    with refused(409, 40901, "READER_FIELD_MISSING_DEFAULT_VALUE"):
        client.register(subject, breaking)
    assert client.updateCompatibility(subject, "NONE") == "NONE"
    assert client.getCompatibility(subject) == "NONE"
    assert client.testCompatibility(subject, breaking)
    assert client.register(subject, breaking) > 0
    client.deleteCompatibility(subject)
    with refused(404, 40408):
        client.getCompatibility(subject)
    assert client.getCompatibility(None) == "BACKWARD"
    new = f"{subject}-new"
    assert client.testCompatibility(new, breaking), "a subject without versions takes anything"
    with refused(404, 40402):
        registry.rest.testCompatibility(text("a"), new, "1")


def test_settings_are_kept_with_all_their_fields(registry: Registry, subject: str) -> None:
    client = registry.client()
    config = registry.java[f"{ENTITIES}.Config"]("FULL")
    config.setNormalize(True)
    config.setCompatibilityGroup("major")
    config.setValidateFields(True)
    config.setDefaultMetadata(registry.metadata({"owner": "team"}))
    config.setOverrideRuleSet(registry.rules(registry.rule("positive")))
    set_to = client.updateConfig(subject, config)
    assert set_to.getCompatibilityLevel() == "FULL"
    assert registry.client().getConfig(subject).equals(set_to)
    assert set_to.equals(config)
    client.register(subject, registry.avro(text("a")))
    latest = client.getLatestSchemaMetadata(subject)
    assert dict(latest.getMetadata().getProperties()) == {"owner": "team"}
    assert [each.getName() for each in latest.getRuleSet().getDomainRules()] == ["positive"]
    client.deleteConfig(subject)
    with refused(404, 40408):
        client.getConfig(subject)


def test_an_alias_stands_for_its_subject(registry: Registry, subject: str) -> None:
    client = registry.client()
    schema_id = client.register(subject, registry.avro(text("a")))
    config = registry.java[f"{ENTITIES}.Config"]()
    config.setAlias(subject)
    client.updateConfig(f"{subject}-alias", config)
    assert client.getLatestSchemaMetadata(f"{subject}-alias").getId() == schema_id


def test_modes_let_in_and_keep_out(registry: Registry, subject: str) -> None:
    client = registry.client()
    assert client.getMode() == "READWRITE"
    assert client.setMode("READONLY", subject) == "READONLY"
    assert client.getMode(subject) == "READONLY"
    with refused(422, 42205, "is in read-only mode"):
        client.register(subject, registry.avro(text("a")))
    assert client.setMode("IMPORT", subject) == "IMPORT"
    with refused(422, 42205, "is not in read-write mode"):
        client.register(subject, registry.avro(text("a", record="Other")))
    context = f":.{subject}:"
    assert client.setMode("IMPORT", f"{context}s") == "IMPORT"
    assert registry.client().register(f"{context}s", registry.avro(text("a")), 7, 4_711) == 4_711
    assert registry.client().getSchemaMetadata(f"{context}s", 7).getId() == 4_711
    with refused(422, 42205):
        registry.client().register(f"{context}s", registry.avro(text("b")), 8, 4_711)
    with refused(422, 42205, "is not in import mode"):
        client.register(f"{context}t", registry.avro(text("a")), 1, 4_712)
    client.deleteMode(subject)
    with refused(404, 40409):
        client.getMode(subject)
    assert registry.client().register(subject, registry.avro(text("a"))) > 0
    with refused(422, 42205, "Cannot import since found existing subjects"):
        client.setMode("IMPORT", subject)
    assert client.setMode("IMPORT", subject, True) == "IMPORT"


def test_references_hold_what_they_refer_to(registry: Registry, subject: str) -> None:
    client = registry.client()
    inner, outer = (
        text("a", record="Inner"),
        '{"type":"record","name":"O","fields":[{"name":"i","type":"Inner"}]}',
    )
    inner_id = client.register(f"{subject}-inner", registry.avro(inner))
    named = registry.reference("Inner", f"{subject}-inner", 1)
    outer_id = client.register(subject, registry.avro(outer, [named], {"Inner": inner}))
    found = registry.client().getSchemaById(outer_id)  # its client fetches what is referenced, and parses it
    assert found.rawSchema().getField("i").schema().getFullName() == "Inner"
    assert [each.getSubject() for each in found.references()] == [f"{subject}-inner"]
    assert list(registry.rest.getReferencedBy(f"{subject}-inner", 1)) == [outer_id]
    assert registry.client().getVersion(subject, registry.avro(outer, [named], {"Inner": inner})) == 1
    latest = registry.reference("Inner", f"{subject}-inner", -1)
    assert registry.client().register(subject, registry.avro(outer, [latest], {"Inner": inner})) == outer_id
    for permanent in (False, True):
        with refused(422, 42206, "One or more references exist to the schema"):
            client.deleteSchemaVersion(f"{subject}-inner", "1", permanent)
    missing = registry.reference("Inner", f"{subject}-none", 1)
    with refused(422, 42201):
        client.register(f"{subject}-2", registry.avro(outer, [missing], {"Inner": inner}))
    assert list(client.deleteSubject(subject, False)) == [1]
    assert client.deleteSchemaVersion(f"{subject}-inner", "1", False) == 1
    assert registry.client().getSchemaById(inner_id).canonicalString() == inner


def test_deletes_are_soft_then_for_ever(registry: Registry, subject: str) -> None:
    client = registry.client()
    own = "R" + subject.split("-")[1]  # no other test's: the last use of an id goes with this subject
    schemas = [registry.avro(text(*each, record=own)) for each in ("a", "ab", "abc")]
    ids = [client.register(subject, each) for each in schemas]
    with refused(404, 40407, "was not deleted first before being permanently deleted"):
        client.deleteSchemaVersion(subject, "1", True)
    assert client.deleteSchemaVersion(subject, "1", False) == 1
    with refused(404, 40406, "was soft deleted"):
        client.deleteSchemaVersion(subject, "1", False)
    with refused(404, 40402):
        registry.client().getSchemaMetadata(subject, 1)
    assert registry.client().getSchemaMetadata(subject, 1, True).getId() == ids[0]
    assert list(client.getAllVersions(subject)) == [2, 3]
    assert list(client.getAllVersions(subject, True)) == [1, 2, 3]
    assert list(registry.rest.getDeletedOnlyVersions(subject)) == [1]
    with refused(404, 40403):
        registry.client().getId(subject, schemas[0])
    assert registry.rest.deleteSchemaVersion({}, subject, "latest", False) == 3
    assert client.deleteSchemaVersion(subject, "1", True) == 1
    with refused(404, 40405, "was not deleted first before being permanently deleted"):
        client.deleteSubject(subject, True)
    assert list(client.deleteSubject(subject, False)) == [2]
    with refused(404, 40404, "was soft deleted"):
        client.deleteSubject(subject, False)
    assert subject not in list(client.getAllSubjects())
    assert subject in list(client.getAllSubjects(True))
    assert list(registry.rest.getDeletedOnlySubjects(subject)) == [subject]
    assert list(client.deleteSubject(subject, True)) == [2, 3]
    assert subject not in list(client.getAllSubjects(True))
    with refused(404, 40403):
        registry.client().getSchemaById(ids[1])


def test_contexts_have_ids_of_their_own(registry: Registry, subject: str) -> None:
    context = f".{subject}"
    client = registry.client()
    inside = client.register(f":{context}:s", registry.avro(text("a", record="Inside")))
    assert inside == 1
    assert context in list(registry.rest.getAllContexts())
    assert registry.client().getLatestSchemaMetadata(f":{context}:s").getId() == 1
    assert registry.client().getSchemaBySubjectAndId(f":{context}:s", 1).name() == "Inside"
    assert registry.client().getSchemaBySubjectAndId(f":{context}:", 1).name() == "Inside"
    assert list(client.getAllSubjectsByPrefix(f":{context}:")) == [f":{context}:s"]
    below = Registry(registry.java, f"{registry.url}/contexts/{context}")
    assert below.client().register("s", registry.avro(text("a", record="Inside"))) == 1
    assert below.client().getSchemaById(1).name() == "Inside"
    assert list(below.client().getAllSubjects()) == [f":{context}:s"]
    assert list(below.client().deleteSubject("s", False)) == [1]


def test_normalize_takes_spellings_for_one(registry: Registry, subject: str) -> None:
    plain = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'
    long = '{"type":"record","name":"n.R","fields":[{"name":"a","type":{"type":"int"}}]}'
    client = registry.client(**{"normalize.schemas": True})
    first = client.register(subject, registry.avro(plain), True)
    assert registry.client().register(subject, registry.avro(long), True) == first
    assert registry.client().getId(subject, registry.avro(long), True) == first
    assert list(client.getAllVersions(subject)) == [1]


def test_metadata_and_rules_come_back_as_they_went(registry: Registry, subject: str) -> None:
    client = registry.client()
    metadata = registry.metadata({"owner": "team", "major": "1"}, {"R.a": ["PII"]}, ["owner"])
    rules = registry.rules(registry.rule("positive"), registry.rule("mask", "WRITEREAD", "TRANSFORM"))
    schema_id = client.register(subject, registry.avro(text("a"), metadata=metadata, rules=rules))
    latest = registry.client().getLatestSchemaMetadata(subject)
    assert latest.getMetadata().equals(metadata)
    assert latest.getRuleSet().equals(rules)
    assert registry.client().getSchemaById(schema_id).ruleSet().equals(rules)
    assert registry.client().getLatestWithMetadata(subject, {"major": "1"}, False).getId() == schema_id
    with refused(404, 40403):
        registry.client().getLatestWithMetadata(subject, {"major": "2"}, False)
    other = registry.avro(text("a"), metadata=registry.metadata({"major": "2"}))
    assert client.register(subject, other) != schema_id
    assert registry.client().getLatestWithMetadata(subject, {"major": "2"}, False).getVersion() == 2
    twice = registry.avro(text("a"), rules=registry.rules(registry.rule("same"), registry.rule("same")))
    with refused(422, 42210, "Found rule with duplicate name 'same'"):
        client.register(f"{subject}-2", twice)


def test_tags_are_written_as_its_client_would_write_them(registry: Registry, subject: str) -> None:
    inner = '{"type":"record","name":"I","fields":[{"name":"x","type":"int"}],"confluent:tags":["B"]}'
    schema = '{"type":"record","name":"O","namespace":"n","fields":[{"name":"i","type":[%s,"null"]},{"name":"k","type":"int"}]}'  # noqa: E501
    types = registry.java[f"{ENTITIES}.SchemaEntity"].EntityType
    kinds = {"sr_record": types.SR_RECORD, "sr_field": types.SR_FIELD}
    add = {("n.O.k", "sr_field"): ["A"], ("n.I", "sr_record"): ["C", "A"], ("I.x", "sr_field"): ["D"]}
    remove = {("n.I", "sr_record"): ["B"]}

    def of_java(tags: dict[tuple[str, str], list[str]]) -> Any:
        found = registry.java["java.util.LinkedHashMap"]()
        for (path, kind), each in tags.items():
            found.put(registry.java[f"{ENTITIES}.SchemaEntity"](path, kinds[kind]), registry.ordered(each))
        return found

    def of_json(tags: dict[tuple[str, str], list[str]]) -> list[dict[str, Any]]:
        return [
            {"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": each}
            for (path, kind), each in tags.items()
        ]

    expected = registry.avro(schema % inner).copy(of_java(add), of_java(remove)).canonicalString()
    body = {"schema": schema % inner, "schemaTagsToAdd": of_json(add), "schemaTagsToRemove": of_json(remove)}
    answer = httpx.post(f"{registry.url}/subjects/{subject}/versions", json=body).json()
    assert answer["schema"] == expected
    latest = registry.client().getLatestSchemaMetadata(subject)
    assert latest.getSchema() == expected
    assert dict(latest.getMetadata().getProperties()) == {"confluent:version": "1"}
    assert registry.client().getVersion(subject, registry.avro(expected)) == 1


def test_a_schema_is_resolved_as_its_client_would_resolve_it(registry: Registry, subject: str) -> None:
    inner = '{"type":"record","name":"I","namespace":"m","doc":"d","fields":[{"name":"x","type":"int"}]}'
    outer = '{"type":"record","name":"O","namespace":"n","fields":[{"name":"i","type":"m.I"},{"name":"j","type":"m.I"}]}'  # noqa: E501
    client = registry.client()
    client.register(f"{subject}-inner", registry.avro(inner))
    named = registry.reference("m.I", f"{subject}-inner", 1)
    parsed = registry.avro(outer, [named], {"m.I": inner})
    schema_id = client.register(subject, parsed)
    expected = parsed.formattedString("resolved")
    assert expected != parsed.canonicalString()
    for path in (f"/schemas/ids/{schema_id}", f"/subjects/{subject}/versions/1"):
        assert httpx.get(f"{registry.url}{path}?format=resolved").json()["schema"] == expected


def test_what_its_client_cannot_parse_it_still_registers_and_reads(registry: Registry, subject: str) -> None:
    """The jar has no providers for JSON and Protobuf: what goes over the wire is the same."""
    assert list(registry.rest.getSchemaTypes()) == ["JSON", "PROTOBUF", "AVRO"]
    kinds = {"JSON": '{"type":"object"}', "PROTOBUF": 'syntax = "proto3";\nmessage M {\n  int32 a = 1;\n}\n'}
    for kind, each in kinds.items():
        name = f"{subject}-{kind}"
        answer = registry.rest.registerSchema(each, kind, [], name)
        found = registry.rest.getVersion(name, 1)
        assert (found.getSchemaType(), found.getId()) == (kind, answer.getId())
        assert registry.rest.getId(answer.getId()).getSchemaType() == kind
        assert registry.rest.lookUpSubjectVersion(each, kind, [], name, False).getVersion() == 1


def test_the_server_says_who_it_is(registry: Registry) -> None:
    assert registry.rest.getSchemaRegistryServerVersion().getVersion()
    assert registry.rest.getClusterId().getScope() is not None


def test_flinks_bytes_are_pythons_and_the_other_way(registry: Registry, subject: str) -> None:
    topic = subject.removesuffix("-value")
    old, new = (registry.avro(each).rawSchema() for each in (text("a"), text("a", "b")))
    serializers = registry.java[f"{FLINK}.ConfluentRegistryAvroSerializationSchema"]
    written = bytes(serializers.forGeneric(subject, old, registry.url).serialize(record(registry, old, a=7)))
    schema_id = registry.client().getLatestSchemaMetadata(subject).getId()
    assert written == b"\x00" + schema_id.to_bytes(4, "big") + b"\x0e"
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        assert AvroDeserializer(client, text("a", "b"))(written, context) == {"a": 7, "b": 0}
        by_python = AvroSerializer(client, text("a", "b"))({"a": 1, "b": 2}, context)
    reader = registry.java[f"{FLINK}.ConfluentRegistryAvroDeserializationSchema"].forGeneric(
        new, registry.url
    )
    assert json.loads(reader.deserialize(by_python).toString()) == {"a": 1, "b": 2}
    assert json.loads(reader.deserialize(written).toString()) == {"a": 7, "b": 0}
    breaking = registry.avro(text("c", default=False)).rawSchema()
    with pytest.raises(Py4JJavaError, match="READER_FIELD_MISSING_DEFAULT_VALUE"):
        serializers.forGeneric(subject, breaking, registry.url).serialize(record(registry, breaking, c=1))


def record(registry: Registry, schema: Any, **values: int) -> Any:
    builder = registry.java[f"{AVRO}.generic.GenericRecordBuilder"](schema)
    for name, value in values.items():
        builder.set(name, value)
    return builder.build()


def test_springs_client_registers_and_fetches(registry: Registry, subject: str) -> None:
    client = registry.java[f"{SPRING}.client.ConfluentSchemaRegistryClient"]()
    client.setEndpoint(registry.url)
    ids = []
    for version, fields in ((1, "a"), (2, "ab")):
        answer = client.register(subject, "avro", text(*fields))
        ids.append(answer.getId())
        assert answer.getSchemaReference().getVersion() == version
        assert client.fetch(answer.getId()) == text(*fields)
        assert client.fetch(answer.getSchemaReference()) == text(*fields)
    assert client.register(subject, "avro", text("a")).getId() == ids[0]
    missing = registry.java[f"{SPRING}.SchemaReference"](subject, 9, "avro")
    with pytest.raises(Py4JJavaError, match="SchemaNotFoundException"):
        client.fetch(missing)
