"""Data contracts over HTTP: tags in the text, version numbers, rules and aliases in lists, formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from hub.log import MemoryCluster
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import format as avro_format
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.inline_tags import Tagged, retagged
from hub.schema_registry.formats.json_schema import schema as json_schema
from hub.schema_registry.formats.protobuf import format as protobuf_format
from hub.schema_registry.formats.protobuf import schema as protobuf
from hub.schema_registry.formats.tag_paths import FIELD, RECORD
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.server.node import RegistryNode

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "note", "type": ["null", "string"], "default": None}],
                    },
                },
            },
        ],
    },
    separators=(",", ":"),
)
INT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0}]}'
TWO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0},{"name":"b","type":"int","default":0}]}'  # noqa: E501


class Http:
    """Calls that have to succeed, or to fail with a code."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, (method, path, answer.text)
        return answer.json()

    def fails(self, code: int, method: str, path: str, body: Any = None) -> str:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code >= 400, (path, answer.text)
        assert answer.json()["error_code"] == code, answer.text
        return str(answer.json()["message"])

    def register(self, schema: str, subject: str = "s", **more: Any) -> Any:
        return self.ok("POST", f"/subjects/{subject}/versions", {"schema": schema, **more})


@pytest.fixture
def http() -> Iterator[Http]:
    node = RegistryNode(MemoryCluster())
    assert node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    yield Http(TestClient(app))
    node.stop()


def entity(path: str, *tags: str, kind: str = FIELD) -> dict[str, Any]:
    return {"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": list(tags)}


# ---- tags in the text


def tags_in(schema: Any, add: list[Tagged], remove: list[Tagged] | None = None) -> Any:
    return json.loads(retagged(schema, add, remove or []))


@pytest.mark.parametrize("path", ["shop.Line.note", "Line.note"])
def test_avro_fields_are_found_by_the_full_name_of_their_record_or_the_short_one(path: str) -> None:
    schema = avro_format.parse(ORDER)
    tagged = tags_in(schema, [Tagged(path, FIELD, ("pii", "free text"))])
    note = tagged["fields"][1]["type"]["items"]["fields"][0]
    assert note["confluent:tags"] == ["pii", "free text"]
    again = avro_format.parse(json.dumps(tagged))
    left = tags_in(again, [Tagged(path, FIELD, ("new",))], [Tagged(path, FIELD, ("pii", "none"))])
    assert left["fields"][1]["type"]["items"]["fields"][0]["confluent:tags"] == ["free text", "new"]
    gone = retagged(again, [], [Tagged(path, FIELD, ("pii", "free text"))])
    assert gone == avro.canonical(json.loads(ORDER))


def test_avro_records_are_tagged_behind_their_fields() -> None:
    text = retagged(avro_format.parse(ORDER), [Tagged("shop.Order", RECORD, ("a",))], [])
    assert text.endswith('],"confluent:tags":["a"]}')


@pytest.mark.parametrize(
    ("path", "kind"),
    [("other.Line.note", FIELD), ("Line.none", FIELD), ("note", FIELD), ("Nobody", RECORD), ("", RECORD)],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, kind: str) -> None:
    with pytest.raises(InvalidSchema, match=f"No matching path '{path}' found in the schema"):
        retagged(avro_format.parse(ORDER), [Tagged(path, kind, ("a",))], [])


JSON = {
    "type": "object",
    "definitions": {
        "Card": {"type": "object", "properties": {"number": {"type": "string"}}},
        "Dotted.Name": {
            "type": "object",
            "properties": {"deep": {"type": "object", "properties": {"x": {}}}},
        },
    },
    "properties": {
        "mail": {"type": "string", "confluent:tags": ["old"]},
        "card": {
            "oneOf": [
                {"type": "null"},
                {"type": "object", "properties": {"pin": {"type": "string"}}},
                {"type": "array", "items": {"type": "object", "properties": {"pin": {"type": "string"}}}},
            ]
        },
        "maybe": {"type": ["null", "object"], "properties": {"y": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("path", "kind", "place"),
    [
        ("object", RECORD, []),
        ("object.mail", FIELD, ["properties", "mail"]),
        ("object.definitions.Card.object", RECORD, ["definitions", "Card"]),
        ("object.definitions.Card.object.number", FIELD, ["definitions", "Card", "properties", "number"]),
        (
            "object.definitions.Dotted.Name.object.deep.object.x",
            FIELD,
            ["definitions", "Dotted.Name", "properties", "deep", "properties", "x"],
        ),
        # Branches are counted by their kinds' names: array, null, object.
        ("object.card.oneof.2.object.pin", FIELD, ["properties", "card", "oneOf", 1, "properties", "pin"]),
        (
            "object.card.oneof.0.array.object.pin",
            FIELD,
            ["properties", "card", "oneOf", 2, "items", "properties", "pin"],
        ),
        ("object.maybe.anyof.1.object.y", FIELD, ["properties", "maybe", "properties", "y"]),
    ],
)
def test_json_paths_name_the_kinds_on_the_way(path: str, kind: str, place: list[str | int]) -> None:
    tagged: Any = tags_in(json_schema.parse(json.dumps(JSON)), [Tagged(path, kind, ("new",))])
    for step in place:
        tagged = tagged[step]
    assert tagged["confluent:tags"][-1] == "new"
    assert ("old" in tagged["confluent:tags"]) == (path == "object.mail")


@pytest.mark.parametrize(
    "path", ["object.none", "mail", "object.card.oneof.7.object.pin", "array.x", "object"]
)
def test_json_paths_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(InvalidSchema, match="No matching path"):
        retagged(json_schema.parse(json.dumps(JSON)), [Tagged(path, FIELD, ("a",))], [])


PROTO = """syntax = "proto3";
package shop.v1;
message Order {
  string id = 1;
  message Line { string note = 1 [deprecated = true]; }
  oneof pay { string card = 2; }
  map<string, string> more = 3;
}
"""


def test_protobuf_tags_are_options_and_their_import_is_written() -> None:
    schema = protobuf.parse(PROTO)
    add = [
        Tagged("Order", RECORD, ("m",)),
        Tagged(".Order.id", FIELD, ("a", "b")),
        Tagged("shop.v1.Order.Line.note", FIELD, ("c",)),
        Tagged("Order.pay.card", FIELD, ("d",)),
    ]
    text = retagged(schema, add, [])
    assert 'import "confluent/meta.proto";' in text
    assert text.count("confluent.field_meta") == 3 and text.count("confluent.message_meta") == 1
    again = protobuf.parse(text)
    assert protobuf_format.canonical(again) == text
    assert retagged(again, [], []) == text
    less = retagged(again, [], [Tagged("Order.id", FIELD, ("a",)), Tagged("Order", RECORD, ("m",))])
    assert '"a"' not in less and '"b"' in less and "message_meta" not in less
    bare = retagged(again, [], [Tagged(each.path, each.kind, each.tags) for each in add])
    assert "field_meta" not in bare and "deprecated = true" in bare
    assert protobuf.parse(bare).file.message_type == schema.file.message_type


@pytest.mark.parametrize(
    "path", ["Order.none", "None.id", "Order.id.more", "Order.MoreEntry.key", "Order.pay.id"]
)
def test_protobuf_paths_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(InvalidSchema, match="No matching path"):
        retagged(protobuf.parse(PROTO), [Tagged(path, FIELD, ("a",))], [])


def test_to_take_out_a_tag_that_is_not_there_changes_nothing() -> None:
    """In Protobuf the import was written all the same, and made a version."""
    schema = protobuf.parse(PROTO)
    assert retagged(schema, [], [Tagged("Order.id", FIELD, ("a",))]) == protobuf_format.canonical(schema)
    with pytest.raises(InvalidSchema, match="No matching path"):
        retagged(schema, [], [Tagged("Order.none", FIELD, ("a",))])


def test_a_registration_writes_tags_into_what_it_registers(http: Http) -> None:
    first = http.register(ORDER)
    assert "metadata" not in first
    add = [entity("shop.Order.id", "key")]
    second = http.register(ORDER, schemaTagsToAdd=add)
    assert json.loads(second["schema"])["fields"][0] == {
        "name": "id",
        "type": "string",
        "confluent:tags": ["key"],
    }
    assert (second["version"], second["metadata"]) == (2, {"properties": {"confluent:version": "2"}})
    assert http.ok("GET", "/subjects/s/versions/2")["schema"] == second["schema"]
    assert http.register(ORDER, schemaTagsToAdd=add) == second, "again is no new version"
    third = http.register(second["schema"], schemaTagsToRemove=[entity("shop.Order.id", "key")])
    assert (third["version"], third["schema"]) == (3, first["schema"])
    assert third["id"] not in (first["id"], second["id"])


def test_tags_are_changed_from_a_version_to_the_next(http: Http) -> None:
    http.register(INT, metadata={"properties": {"owner": "me"}})
    answer = http.ok(
        "POST", "/subjects/s/versions/latest/tags", {"tagsToAdd": [entity("R", "T1", "T2", kind=RECORD)]}
    )
    assert answer["schema"] == INT[:-1] + ',"confluent:tags":["T1","T2"]}'
    assert answer["metadata"] == {"properties": {"owner": "me", "confluent:version": "2"}}
    body = {"newVersion": 3, "tagsToRemove": [entity("R", "T2", kind=RECORD)]}
    assert http.ok("POST", "/subjects/s/versions/latest/tags", body)["version"] == 3
    latest = http.ok("GET", "/subjects/s/versions/latest")
    assert json.loads(latest["schema"])["confluent:tags"] == ["T1"]
    assert latest["metadata"]["properties"]["confluent:version"] == "3"
    again = {"newVersion": 2, "tagsToAdd": [entity("R", "T3", kind=RECORD)]}
    http.fails(42201, "POST", "/subjects/s/versions/latest/tags", again)
    http.fails(40401, "POST", "/subjects/none/versions/1/tags", body)
    http.fails(40402, "POST", "/subjects/s/versions/9/tags", body)
    nowhere = {"tagsToAdd": [entity("does.not.exist", "T")]}
    assert "No matching path" in http.fails(42201, "POST", "/subjects/s/versions/1/tags", nowhere)


def test_rules_are_merged_and_taken_out_with_tags(http: Http) -> None:
    def rules(*names: str) -> dict[str, Any]:
        return {"domainRules": [{"name": each, "type": "CEL"} for each in names]}

    http.register(INT, ruleSet=rules("one", "two"))
    body = {"rulesToMerge": rules("three"), "rulesToRemove": ["one"]}
    answer = http.ok("POST", "/subjects/s/versions/1/tags", body)
    assert [each["name"] for each in answer["ruleSet"]["domainRules"]] == ["two", "three"]
    assert answer["version"] == 2
    http.fails(422, "POST", "/subjects/s/versions/1/tags", {"rulesToRemove": "one"})


@pytest.mark.parametrize(
    "tags",
    [
        "x",
        [1],
        [{"tags": ["a"]}],
        [{"schemaEntity": {"entityPath": "R", "entityType": "sr_record"}}],
        [{"schemaEntity": {"entityPath": "R", "entityType": "table"}, "tags": []}],
        [{"schemaEntity": {"entityPath": "", "entityType": "sr_field"}, "tags": []}],
        [{"schemaEntity": {"entityPath": "R", "entityType": "sr_field"}, "tags": [1]}],
    ],
)
def test_tags_of_another_shape_are_refused(http: Http, tags: Any) -> None:
    http.fails(422, "POST", "/subjects/s/versions", {"schema": INT, "schemaTagsToAdd": tags})


# ---- confluent:version


def properties(of: Any) -> Any:
    return of.get("metadata", {}).get("properties")


def test_a_version_that_is_asked_for_says_its_number(http: Http) -> None:
    assert properties(http.register(INT)) is None
    assert properties(http.register(TWO, version=2)) == {"confluent:version": "2"}
    http.fails(42201, "POST", "/subjects/s/versions", {"schema": INT, "version": 9})
    numbered = http.register(INT, metadata={"properties": {"owner": "a", "confluent:version": "7"}})
    assert (numbered["version"], properties(numbered)) == (3, {"owner": "a", "confluent:version": "3"})


def test_a_number_once_there_goes_on_with_each_version(http: Http) -> None:
    http.register(INT, version=-1)
    assert properties(http.register(TWO)) == {"confluent:version": "2"}, "taken over from the latest, and set"
    again = http.register(TWO)
    assert again["version"] == 2, "the schema as it is registered already"
    assert http.register(INT)["version"] == 1


def test_a_lookup_counts_the_number_only_where_it_is_asked_for(http: Http) -> None:
    numbered = http.register(INT, version=1, metadata={"properties": {"owner": "a"}})
    assert properties(numbered) == {"owner": "a", "confluent:version": "1"}
    for metadata in (None, {"properties": {"owner": "a"}}, numbered["metadata"]):
        found = http.ok("POST", "/subjects/s", {"schema": INT, "metadata": metadata})
        assert (found["version"], found["id"]) == (1, numbered["id"])
        assert http.register(INT, metadata=metadata)["version"] == 1
    for other in ({"owner": "b"}, {}, {"owner": "a", "confluent:version": "2"}):
        http.fails(40403, "POST", "/subjects/s", {"schema": INT, "metadata": {"properties": other}})


def test_an_older_schema_becomes_the_latest_again_when_that_is_asked_for(http: Http) -> None:
    first, second = http.register(INT), http.register(TWO)
    assert http.register(INT)["version"] == 1
    back = http.register(INT, version=-1)
    assert (back["version"], properties(back)) == (3, {"confluent:version": "3"})
    assert back["id"] not in (first["id"], second["id"])
    assert http.register(INT, version=-1) == back
    assert http.ok("GET", "/subjects/s/versions/latest")["schema"] == INT


def test_settings_that_put_in_metadata_do_not_make_versions_without_end(http: Http) -> None:
    http.ok("PUT", "/config/s", {"defaultMetadata": {"properties": {"owner": "team"}}})
    first = http.register(INT, version=-1)
    assert properties(first) == {"owner": "team", "confluent:version": "1"}
    assert http.register(INT) == first
    assert http.register(TWO)["version"] == 2
    assert http.register(INT)["version"] == 1
    found = http.ok("POST", "/subjects/s", {"schema": INT, "metadata": {"properties": {}}})
    assert found["version"] == 1, "as it was registered: with what the settings put in"


def test_what_a_request_leaves_empty_does_not_take_the_settings_away(http: Http) -> None:
    rules = {"domainRules": [{"name": "low", "type": "CEL"}]}
    http.ok(
        "PUT", "/config/s", {"defaultMetadata": {"properties": {"owner": "team"}}, "defaultRuleSet": rules}
    )
    stored = http.register(INT, metadata={"properties": {}}, ruleSet={"domainRules": []})
    assert (stored["metadata"], stored["ruleSet"]) == ({"properties": {"owner": "team"}}, rules)


# ---- lists


def test_schemas_are_listed_by_the_type_of_their_rules(http: Http) -> None:
    http.register(INT, ruleSet={"migrationRules": [{"name": "up", "type": "JSONATA"}]})
    http.register(INT, "t", ruleSet={"domainRules": [{"name": "low", "type": "CEL"}]})
    http.register(INT, "u")

    def subjects(query: str) -> list[str]:
        return [each["subject"] for each in http.ok("GET", f"/schemas?{query}")]

    assert subjects("ruleType=CEL") == ["t"]
    assert subjects("ruleType=JSONATA") == ["s"]
    assert subjects("ruleType=CEL_FIELD") == []
    assert subjects("ruleType=") == ["s", "t", "u"]


def test_latest_is_chosen_before_the_type_of_rules(http: Http) -> None:
    http.register(INT, ruleSet={"domainRules": [{"name": "low", "type": "CEL"}]})
    http.register(TWO, ruleSet={"domainRules": [{"name": "low", "type": "OTHER"}]})
    assert [each["version"] for each in http.ok("GET", "/schemas?ruleType=CEL")] == [1]
    assert http.ok("GET", "/schemas?ruleType=CEL&latestOnly=true") == []


def test_schemas_are_listed_with_their_aliases_and_by_them(http: Http) -> None:
    http.register(INT, "orders")
    http.register(INT, "others")
    http.register(INT, ":.ctx:orders")
    for alias, subject in (("old", "orders"), ("older", "orders"), (":.ctx:old", "orders"), ("gone", "none")):
        http.ok("PUT", f"/config/{alias}", {"alias": subject})

    def listed(query: str) -> dict[str, list[str] | None]:
        return {each["subject"]: each.get("aliases") for each in http.ok("GET", f"/schemas?{query}")}

    assert listed("") == {":.ctx:orders": None, "orders": None, "others": None}
    everything = {":.ctx:orders": [":.ctx:old"], "orders": ["old", "older"], "others": None}
    assert listed("aliases=true") == everything
    assert listed("aliases=true&subjectPrefix=old") == {"orders": ["old", "older"]}
    assert listed("aliases=true&subjectPrefix=older") == {"orders": ["older"]}
    assert listed("subjectPrefix=old") == {}


# ---- forms


def test_avro_is_resolved_with_all_that_it_references(http: Http) -> None:
    money = '{"type":"record","name":"Money","namespace":"base","doc":"cents","fields":[{"name":"cents","type":"long"}]}'  # noqa: E501
    http.register(money, "money")
    text = (
        '{"type":"record","name":"Bill","namespace":"shop","fields":['
        '{"name":"net","type":"base.Money"},{"name":"tax","type":["null","base.Money"],"default":null}]}'
    )
    references = [{"name": "base.Money", "subject": "money", "version": 1}]
    stored = http.register(text, references=references)
    whole = text.replace('"base.Money"', money, 1)
    places = (
        "/subjects/s/versions/1",
        f"/schemas/ids/{stored['id']}",
        f"/schemas/guids/{stored['guid']}",
        "/subjects/s/metadata",
    )
    for path in places:
        joined = "&" if "?" in path else "?"
        assert http.ok("GET", f"{path}{joined}format=resolved")["schema"] == whole
        assert http.ok("GET", f"{path}{joined}format=unheard-of")["schema"] == text
    for path in ("/subjects/s/versions/1/schema", f"/schemas/ids/{stored['id']}/schema"):
        assert http.client.get(f"{path}?format=resolved").text == whole
    body = {"schema": text, "references": references}
    assert http.ok("POST", "/subjects/s?format=resolved", body)["schema"] == whole
    assert http.ok("POST", "/subjects/s/versions?format=resolved", body)["schema"] == whole
    assert avro.canonical(json.loads(whole)) == whole


def test_a_resolved_type_keeps_its_namespace_wherever_it_stands() -> None:
    kind = avro_format.parse('{"type":"enum","name":"E","namespace":"base","symbols":["A"]}')
    box = avro_format.parse(
        '{"type":"record","name":"Box","namespace":"base","fields":'
        '[{"name":"e","type":"E"},{"name":"again","type":["null","Box"]}]}',
        {"base.E": kind},
    )
    top = avro_format.parse(
        '{"type":"map","values":{"type":"record","name":"Top","fields":'
        '[{"name":"x","type":"base.Box"},{"name":"y","type":"base.E"},{"name":"z","type":"Top"}]}}',
        {"base.E": kind, "base.Box": box},
    )
    assert avro_format.resolved(top) == (
        '{"type":"map","values":{"type":"record","name":"Top","fields":[{"name":"x","type":'
        '{"type":"record","name":"Box","namespace":"base","fields":[{"name":"e","type":'
        '{"type":"enum","name":"E","symbols":["A"]}},{"name":"again","type":["null","Box"]}]}},'
        '{"name":"y","type":"base.E"},{"name":"z","type":"Top"}]}}'
    )
    assert avro_format.resolved(kind) == avro_format.canonical(kind)


def test_protobuf_is_told_without_extensions(http: Http) -> None:
    text = """syntax = "proto2";
import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";
extend google.protobuf.FieldOptions { optional string owner = 50001; }
message Order {
  optional string id = 1 [(owner) = "me", deprecated = true, (confluent.field_meta) = {tags: "pii"}];
  extensions 100 to 200;
}
extend Order { optional int32 extra = 100; }
"""
    stored = http.register(text, schemaType="PROTOBUF")
    plain = http.ok("GET", f"/schemas/ids/{stored['id']}?format=ignore_extensions")["schema"]
    assert "owner" not in plain and "extend " not in plain and "extra" not in plain
    assert "deprecated = true" in plain and "confluent.field_meta" in plain
    assert http.ok("GET", "/subjects/s/versions/1?format=resolved")["schema"] == stored["schema"]
    descriptor = http.ok("GET", "/subjects/s/versions/1?format=serialized")["schema"]
    assert FileDescriptorProto.FromString(base64.b64decode(descriptor)).message_type[0].name == "Order"
