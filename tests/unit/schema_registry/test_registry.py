"""The registry: decide and apply, its laws, Confluent's bytes and codes, several nodes on one log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hub.log import MemoryCluster
from hub.record import NewRecord, Record
from hub.schema_registry.codecs.wire_format import Undecodable, decode, encode, parsed
from hub.schema_registry.compat.compatibility import ANSWERS, Question, check
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import (
    SCHEMAS_TOPIC,
    LevelSet,
    SchemaStored,
    UnreadableFact,
    fact_of,
    record_of,
)
from hub.schema_registry.model.subject_names import DEFAULT_CONTEXT
from hub.schema_registry.registry.across_contexts import listed_versions, with_metadata
from hub.schema_registry.registry.state import MOST_REPORTS
from hub.schema_registry.registry.state_machine import DeleteSubject, RegisterSchema, Registry, RequestRefused
from hub.schema_registry.server.node import RegistryNode


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def text(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps(record(*fields, **more))


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string", "default": ""}


# ---- facts


def test_records_have_the_bytes_that_confluent_writes() -> None:
    stored = record_of(SchemaStored("s", 1, 1, '"string"'))
    assert stored.key == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    assert stored.value == b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}'
    assert record_of(LevelSet("s", "NONE")).key == b'{"keytype":"CONFIG","subject":"s","magic":0}'


def test_what_is_no_fact_is_kept_visible_and_changes_nothing() -> None:
    cluster = MemoryCluster()
    cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    cluster.writer().append([NewRecord(SCHEMAS_TOPIC, b"junk", b"junk")])
    fact = fact_of(cluster.logs[SCHEMAS_TOPIC][0][0])
    assert isinstance(fact, UnreadableFact)
    registry = Registry()
    registry.apply(fact)
    assert registry.unreadable == [fact] and not registry.subjects
    for _ in range(MOST_REPORTS):
        registry.apply(fact)
    assert (len(registry.unreadable), registry.unreadable_count) == (1_000, 1_001)


# ---- decide, apply


def test_what_could_not_be_written_again_is_no_fact() -> None:
    """Regression: such a record was applied in part: its subject existed without versions."""
    deep = "[" * 300 + "]" * 300
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    value = f'{{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","metadata":{{"x":{deep}}}}}'
    fact = fact_of(Record(SCHEMAS_TOPIC, 0, 7, 0, key, value.encode()))
    assert isinstance(fact, UnreadableFact) and "nested too deep" in fact.reason


@pytest.mark.parametrize("odd", [["a"], 5, None])
def test_metadata_and_rules_of_other_shapes_are_in_nobodys_way(odd: Any) -> None:
    """Records of other registries are not validated."""
    registry = Registry()
    stored = SchemaStored("s", 1, 1, '"int"', metadata={"properties": odd}, rule_set={"domainRules": odd})
    registry.apply(stored)
    with pytest.raises(RequestRefused):
        with_metadata(registry, "s", {"a": "b"})
    assert listed_versions(registry, lambda _: True, rule_type="CEL") == []
    again = RegisterSchema("s", '"int"', metadata={"properties": {"a": "b"}})
    assert registry.decide(again).answer.version == 2


def registered(registry: Registry, subject: str, schema: str) -> SchemaStored:
    facts, answer = registry.decide(RegisterSchema(subject, schema))
    for fact in facts:
        registry.apply(fact)
    assert isinstance(answer, SchemaStored)
    return answer


def test_one_text_has_one_id_in_all_subjects_and_white_space_makes_no_other() -> None:
    registry = Registry()
    first = registered(registry, "x", text(A))
    again = registered(registry, "y", json.dumps(record(A), indent=3))
    assert (first.schema_id, again.schema_id) == (1, 1)
    assert registry.decide(RegisterSchema("x", text(A))).facts == []


def test_an_incompatible_schema_is_refused_with_field_rule_and_fix() -> None:
    registry = Registry()
    registered(registry, "x", text(A))
    with pytest.raises(RequestRefused) as caught:
        registry.decide(RegisterSchema("x", text(A, {"name": "b", "type": "int"})))
    assert caught.value.status == 409
    for word in ("field `b`", "READER_FIELD_MISSING_DEFAULT_VALUE", "give `b` a default"):
        assert word in caught.value.message


def test_ids_and_versions_are_never_given_again() -> None:
    registry = Registry()
    registered(registry, "x", text(A))
    registered(registry, "x", text(A, B))
    for permanent in (False, True):
        for fact in registry.decide(DeleteSubject("x", permanent)).facts:
            registry.apply(fact)
    assert "x" not in registry.subjects and 2 not in registry.contexts[DEFAULT_CONTEXT].ids
    assert registered(registry, "x", text(B)).schema_id == 3


def test_the_first_binding_of_an_id_holds() -> None:
    registry = Registry()
    registry.apply(SchemaStored("x", 1, 7, text(A)))
    registry.apply(SchemaStored("y", 1, 7, text(B)))
    assert registry.contexts[DEFAULT_CONTEXT].ids[7].subject == "x" and "y" not in registry.subjects
    assert "id 7" in registry.conflicts[0]


names = st.sampled_from(["x", "y"])
schemas = st.sampled_from([text(A), text(A, B), text(B)])


@given(st.lists(st.tuples(names, schemas, st.booleans()), max_size=12))
def test_any_replay_gives_the_same_state_and_ids_stay_unique(commands: list[tuple[str, str, bool]]) -> None:
    live = Registry()
    log: list[Any] = []
    for subject, schema, delete in commands:
        try:
            facts = live.decide(DeleteSubject(subject) if delete else RegisterSchema(subject, schema)).facts
        except RequestRefused:
            continue
        log.extend(facts)
        for fact in facts:
            live.apply(fact)
    replayed = Registry()
    for fact in log:
        replayed.apply(fact)
    assert (replayed.subjects, replayed.contexts[DEFAULT_CONTEXT]) == (
        live.subjects,
        live.contexts[DEFAULT_CONTEXT],
    )
    texts = {stored.schema_id: stored.schema for stored in live.contexts[DEFAULT_CONTEXT].ids.values()}
    assert len(set(texts.values())) == len(texts)


# ---- compatibility: the traps, as Confluent's registry answers them


def field(avro_type: Any, **more: Any) -> dict[str, Any]:
    return record({"name": "f", "type": avro_type, **more})


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


@pytest.mark.parametrize(
    ("old", "new", "level", "compatible"),
    [
        (field("int"), field("long"), "BACKWARD", True),
        (field("long"), field("int"), "BACKWARD", False),
        (field("string"), field("bytes"), "FULL", True),
        (record(name="Order", namespace="a"), record(name="Order", namespace="b"), "FULL", True),
        (field(enum("A", "B")), field(enum("A")), "BACKWARD", False),
        (field(enum("A", "B")), field(enum("A", default="A")), "BACKWARD", True),
        (field(["null", "int"]), field("int"), "BACKWARD", False),
        (field(["null", "int"]), field("int"), "FORWARD", True),
        (record(A), record(A, {"name": "n", "type": "int"}), "BACKWARD", False),
        (record(A), record(A, {"name": "n", "type": "int"}), "FORWARD", True),
        (record(A, B), record(A), "FULL", True),
        (record(A), record(), "FORWARD", False),
        (record(A), record({"name": "z", "type": "int", "aliases": ["a"]}), "BACKWARD", True),
        (record(A), record({"name": "z", "type": "int", "aliases": ["a"]}), "FORWARD", False),
        (
            field({"type": "long", "logicalType": "timestamp-millis"}),
            field({"type": "long", "logicalType": "timestamp-micros"}),
            "FULL",
            True,
        ),
        (record(A), field("string"), "NONE", True),
    ],
)
def test_verdicts(old: dict[str, Any], new: dict[str, Any], level: str, compatible: bool) -> None:
    assert (check(new, [(1, old)], level) == []) is compatible


@given(schemas, schemas)
def test_full_is_backward_and_forward(old: str, new: str) -> None:
    earlier = [(1, json.loads(old))]
    fine = {level: not check(json.loads(new), earlier, level) for level in ("BACKWARD", "FORWARD", "FULL")}
    assert fine["FULL"] == (fine["BACKWARD"] and fine["FORWARD"])


def test_an_answer_that_is_kept_weighs_what_its_schemas_do() -> None:
    """Regression: each entry weighed 1 of 4,096, even with a schema of a megabyte."""
    large, before = text(doc="x" * 100_000), ANSWERS.weight
    assert Question(SchemaSource.of("AVRO", large), (), "BACKWARD").answer() == ()
    assert ANSWERS.weight - before >= 100_000


def test_transitive_levels_look_at_every_version() -> None:
    oldest, latest = record(A), record(A, {"name": "n", "type": "int", "default": 1})
    new = record(A, {"name": "n", "type": "int"})
    assert check(new, [(1, oldest), (2, latest)], "BACKWARD") == []
    (reason,) = check(new, [(1, oldest), (2, latest)], "BACKWARD_TRANSITIVE")
    assert reason.against == 1


# ---- codec


def test_the_codec_names_the_field_and_refuses_bombs() -> None:
    schema = parsed(record(A, B))
    assert decode(encode(9, schema, {"a": 1}), lambda _: schema) == (9, {"a": 1, "b": ""})
    with pytest.raises(Undecodable, match='field "a"'):
        encode(9, schema, {"a": "one"})
    with pytest.raises(Undecodable, match="wire format"):
        decode(b"\x01", lambda _: schema)
    nested = parsed(record({"name": "next", "type": ["null", "R"]}))
    with pytest.raises(Undecodable, match="recursive"):
        decode(b"\x00\x00\x00\x00\x01" + b"\x02" * 10_000 + b"\x00", lambda _: nested)


# ---- over HTTP, several nodes


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def http(cluster: MemoryCluster) -> Iterator[TestClient]:
    node = RegistryNode(cluster)
    node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    with TestClient(app) as client:
        yield client
    node.stop()


def post(http: TestClient, path: str, schema: str) -> Any:
    return http.post(path, json={"schema": schema})


def test_status_and_error_codes_are_those_of_the_protocol(http: TestClient) -> None:
    assert post(http, "/subjects/s/versions", text(A)).json()["id"] == 1
    cases = [
        (http.get("/subjects/none/versions"), 404, 40401),
        (http.get("/subjects/s/versions/9"), 404, 40402),
        (http.get("/subjects/s/versions/zero"), 422, 42202),
        (http.get("/schemas/ids/99"), 404, 40403),
        (post(http, "/subjects/s", text(B)), 404, 40403),
        (http.delete("/subjects/s?permanent=true"), 404, 40405),
        (http.get("/config/s"), 404, 40408),
        (http.put("/config/s", json={"compatibility": "SOMETIMES"}), 422, 42203),
        (post(http, "/subjects/s/versions", "{"), 422, 42201),
        (post(http, "/subjects/s/versions", text({"name": "a", "type": "string"})), 409, 40901),
    ]
    for answer, status, code in cases:
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.request.url
        assert set(answer.json()) == {"error_code", "message"}
    assert (
        http.post("/subjects/s/versions", content=b"x", headers={"content-type": "text/xml"}).status_code
        == 415
    )


def test_the_life_of_a_subject(http: TestClient) -> None:
    first = post(http, "/subjects/s%2Fx/versions", text(A))
    assert first.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert first.headers["Hub-Position"] == "_schemas:0:1"
    assert post(http, "/subjects/s%2Fx/versions", text(A, B)).json()["id"] == 2
    assert http.get("/subjects").json() == ["s/x"]
    assert http.get("/subjects/s%2Fx/versions").json() == [1, 2]
    assert json.loads(http.get("/subjects/s%2Fx/versions/latest").json()["schema"]) == record(A, B)
    assert http.get("/schemas/ids/2/versions").json() == [{"subject": "s/x", "version": 2}]
    assert post(http, "/compatibility/subjects/s%2Fx/versions/latest", text(A)).json() == {
        "is_compatible": True
    }
    assert http.put("/config", json={"compatibility": "FULL"}).json() == {"compatibility": "FULL"}
    assert http.get("/config/s%2Fx?defaultToGlobal=true").json() == {"compatibilityLevel": "FULL"}
    assert http.delete("/subjects/s%2Fx").json() == [1, 2]
    assert http.get("/subjects").json() == []
    assert http.get("/subjects?deleted=true").json() == ["s/x"]
    assert http.delete("/subjects/s%2Fx?permanent=true").json() == [1, 2]
    assert post(http, "/subjects/s%2Fx/versions", text(B)).json()["id"] == 3


def test_nodes_that_write_at_once_never_share_an_id(cluster: MemoryCluster) -> None:
    nodes = [RegistryNode(cluster, timeout_s=20.0) for _ in range(3)]
    for node in nodes:
        node.start()
    ids: list[int] = []

    def write(number: int) -> None:
        for each in range(8):
            stored, _ = nodes[number].submit(
                RegisterSchema(f"s{number}-{each}", text(A, name=f"R{number}x{each}"))
            )
            ids.append(stored.schema_id)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    late = RegistryNode(cluster)
    late.start()
    assert sorted(ids) == list(range(1, 25))
    assert late.read(lambda registry: (len(registry.contexts[DEFAULT_CONTEXT].ids), registry.conflicts)) == (
        24,
        [],
    )
    for node in (*nodes, late):
        node.stop()
