"""One view of three formats; remarks on what no compatibility level sees."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from effort import costs_at_most
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FieldOptions, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from hub.schema_registry.describe import SchemaField, SchemaView, describe, warnings
from hub.schema_registry.formats import InvalidSchema


def record(*fields: dict[str, Any], name: str = "acme.Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def types(view: SchemaView) -> dict[str, str]:
    """Map each path to its type, with its logical type, and "?" when it is optional."""
    return {
        each.path: f"{each.type}{f' {each.shape.logical}' if each.shape.logical else ''}{'?' * each.shape.optional}"  # noqa: E501
        for _, each in view.fields()
    }


def one(view: SchemaView, path: str) -> SchemaField:
    return next(each for _, each in view.fields() if each.path == path)


# ---- Avro


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("string", "string"),
        ("float", "float"),
        ({"type": "long"}, "long"),
        (["null", "int"], "int?"),
        (["int", "string"], "union"),
        (["null", "int", "string"], "union?"),
        ("null", "null"),
        (["null"], "null?"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp timestamp-millis"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp local-timestamp-micros"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "int"),  # ignored on another base
        ({"type": "int", "logicalType": "date"}, "date date"),
        ({"type": "long", "logicalType": "time-micros"}, "time time-micros"),
        ({"type": "string", "logicalType": "uuid"}, "uuid uuid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "decimal decimal(4,2)"),
        (
            {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 4},
            "decimal decimal(4,0)",
        ),
        ({"type": "fixed", "name": "F", "size": 8}, "bytes"),
        ({"type": "string", "logicalType": ["odd"]}, "string"),
        ({"type": "array", "items": "string"}, "array"),
        (
            {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
            "map timestamp-millis",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "enum"),
        (record(name="Inner"), "record"),
        ({"type": {"type": "string"}}, "string"),
    ],
)
def test_avro_types(avro: Any, expected: str) -> None:
    view = describe("AVRO", json.dumps(record({"name": "f", "type": avro})))
    assert types(view)["f"] == expected


def test_avro_names_paths_docs_tags_and_what_refers_back() -> None:
    line = record(
        {"name": "sku", "type": "string", "doc": "What.", "tags": ["INTERNAL"]},
        {"name": "parent", "type": ["null", "Order"], "default": None},
        name="Line",
        aliases=["Item"],
        doc="A line.",
    )
    view = describe(
        "AVRO",
        record(
            {"name": "lines", "type": {"type": "array", "items": line}},
            {"name": "first", "type": "Line", "confluent:tags": ["PII"], "aliases": ["top"]},
            {"name": "money", "type": {"type": "fixed", "name": "Money", "size": 8}},
            {"name": "paid", "type": "Money"},
        ),
    )
    assert view.roots == ("acme.Order",)
    assert list(view.types) == ["acme.Order", "acme.Line"]
    assert [each.path for _, each in view.fields()] == [
        "lines",
        "first",
        "money",
        "paid",
        "lines.sku",
        "lines.parent",
    ]
    assert (one(view, "lines.sku").doc, one(view, "lines.sku").tags) == ("What.", {"INTERNAL"})
    assert (one(view, "first").aliases, one(view, "first").tags) == (("top",), {"PII"})
    assert (one(view, "lines.parent").default, one(view, "lines.parent").shape.of) == (
        "null",
        ("acme.Order",),
    )
    assert (view.types["acme.Line"].aliases, view.types["acme.Line"].doc) == (("acme.Item",), "A line.")
    assert one(view, "paid").type == "bytes"
    deep = view.find("acme.Order", "lines.parent.first.sku")
    assert deep is not None and deep.name == "sku"
    assert view.find("acme.Order", "lines.nothing") is None and view.find("acme.Order", "paid.sku") is None


def test_referenced_types_are_seen_and_are_not_the_schemas_own() -> None:
    schema = record({"name": "meta", "type": "acme.Meta"}, {"name": "gone", "type": "acme.Unknown"})
    meta = json.dumps(record({"name": "eventId", "type": "string"}, name="acme.Meta"))
    view = describe("AVRO", schema, {"acme.Meta": meta})
    assert types(view) == {"meta": "record", "gone": "any"}
    found = view.find("acme.Order", "meta.eventId")
    assert found is not None and found.type == "string"


def test_a_plain_value_has_no_root_and_a_union_several() -> None:
    assert describe("AVRO", '"string"').roots == describe("AVRO", "string").roots == ()
    union = describe(
        "AVRO", ["null", record({"name": "x", "type": "int"}, name="A"), record(name="B"), "acme.C"]
    )
    assert union.roots == ("A", "B")
    assert types(union) == {"A.x": "int"}


# ---- JSON Schema


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "long"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null?"),
        ({"type": ["string", "null"]}, "string?"),
        ({"type": ["string", "integer"]}, "union"),
        ({"type": "string", "format": "date-time"}, "timestamp date-time"),
        ({"type": "string", "format": "date"}, "date date"),
        ({"type": "string", "format": "time"}, "time time"),
        ({"type": "string", "format": "uuid"}, "uuid uuid"),
        ({"type": "string", "format": "email"}, "string email"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes base64"),
        ({"enum": ["A", "B"]}, "enum"),
        ({"enum": [1, 2]}, "any"),
        ({"type": ["object", "null"], "properties": {"x": {"type": "string"}}}, "record?"),
        ({"type": ["array", "null"], "items": {"type": "string", "format": "uuid"}}, "array uuid?"),
        ({"type": ["string", "null"], "enum": ["A", "B", None]}, "enum?"),
        ({"allOf": [{"type": ["string", "null"]}]}, "string?"),
        ({"type": "array", "items": {"type": "string", "format": "uuid"}}, "array uuid"),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, "array"),
        ({"type": "object", "properties": {}}, "record"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "map"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "string?"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "union"),
        ({"$ref": "#/$defs/Id"}, "uuid uuid"),
        ({"$ref": "#/$defs/no/such"}, "any"),
        ({"$ref": "#/$defs/Self"}, "any"),
        ({"$ref": "other.json"}, "any"),
        ({"$ref": "meta.json#/$defs/At"}, "timestamp date-time"),
        (True, "any"),
        ({}, "any"),
    ],
)
def test_json_types(node: Any, expected: str) -> None:
    schema = {
        "properties": {"f": node},
        "required": ["f"],
        "$defs": {"Id": {"type": "string", "format": "uuid"}, "Self": {"$ref": "#/$defs/Self"}},
    }
    meta = json.dumps({"$defs": {"At": {"type": "string", "format": "date-time"}}})
    assert types(describe("JSON", json.dumps(schema), {"meta.json": meta}))["f"] == expected


def test_json_names_paths_docs_tags_and_what_refers_back() -> None:
    schema = {
        "title": "Order",
        "description": "An order.",
        "type": "object",
        "required": ["id", "again"],
        "allOf": [
            {"$ref": "#/definitions/Meta"},
            {"properties": {"note": {"type": "string", "default": ""}}},
        ],
        "properties": {
            "id": {"type": "string", "description": "Which.", "confluent:tags": ["PII"]},
            "again": {"$ref": "#"},
            "ship": {"$ref": "#/definitions/Address"},
            "inline": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
        "definitions": {
            "Meta": {"properties": {"event_id": {"type": "string"}}, "required": ["event_id"]},
            "Address": {"type": "object", "properties": {"next": {"$ref": "#/definitions/Address"}}},
        },
    }
    view = describe("JSON", schema)
    assert view.roots == ("Order",)
    assert types(view) == {
        "event_id": "string",
        "note": "string?",
        "id": "string",
        "again": "record",
        "ship": "record?",
        "inline": "record?",
        "ship.next": "record?",
        "inline.x": "long?",
    }
    assert (one(view, "id").doc, one(view, "id").tags, one(view, "note").default) == ("Which.", {"PII"}, '""')
    assert one(view, "ship.next").shape.of == ("Address",)
    assert view.types["Order"].doc == "An order."
    assert {name: each.named for name, each in view.types.items()} == {
        "Order": True,
        "Address": True,
        "(record)": False,
    }


def test_json_objects_of_one_title_are_kept_apart() -> None:
    twin = {"title": "T", "properties": {"x": {"type": "string"}}}
    view = describe("JSON", {"title": "T", "properties": {"a": twin, "b": dict(twin)}})
    assert len(view.types) == 3 and {each.path for _, each in view.fields()} == {"a", "b", "a.x", "b.x"}


def test_json_properties_that_another_document_gives_are_there_and_not_the_schemas_own() -> None:
    base = {
        "required": ["event_id", "by"],
        "properties": {
            "event_id": {"$ref": "#/$defs/Id"},
            "by": {"type": "array", "items": {"$ref": "#/$defs/Id"}},
        },
        "$defs": {"Id": {"type": "string", "format": "uuid"}},
    }
    schema = {
        "title": "Order",
        "allOf": [{"$ref": "base.json"}],
        "properties": {"id": {"$ref": "#/$defs/Id"}},
        "$defs": {"Id": {"type": "integer"}},
    }
    view = describe("JSON", schema, {"base.json": base})
    assert types(view) == {"id": "long?"}
    found = [view.find("Order", each) for each in ("id", "event_id", "by")]
    assert [each and (each.type, each.shape.logical, each.shape.optional) for each in found] == [
        ("long", "", True),
        ("uuid", "uuid", False),
        ("array", "uuid", False),
    ]


def test_json_objects_of_one_title_are_both_called_by_it() -> None:
    twin = {"title": "Money", "properties": {"x": {"type": "string"}}}
    view = describe("JSON", {"title": "T", "properties": {"a": twin, "b": dict(twin)}})
    assert sorted(each.simple_name for each in view.types.values()) == ["Money", "Money", "T"]


def test_types_that_use_each_other_twice_cost_what_their_text_costs() -> None:
    defs = {
        f"T{n}": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/T{n - 1}"}] * 2}}
        for n in range(1, 60)
    }
    schema = {"properties": {"f": {"$ref": "#/$defs/T59"}}, "$defs": {"T0": {"type": "string"}, **defs}}
    assert types(describe("JSON", schema)) == {"f": "array?"}
    chain: Any = record(name="T0")
    for n in range(1, 60):
        chain = record({"name": "a", "type": chain}, {"name": "b", "type": f"T{n - 1}"}, name=f"T{n}")
    assert len(list(describe("AVRO", chain).fields())) == 118


# ---- Protobuf


@dataclass
class Parsed:
    """A parsed file with its imports, in the form of the registry's parser."""

    file: FileDescriptorProto
    imports: list[FileDescriptorProto] = field(default_factory=list)


def add(message: Any, name: str, kind: int, type_name: str = "", label: int = Field.LABEL_OPTIONAL) -> Any:
    made = message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label)
    if type_name:
        made.type_name = type_name
    return made


def order() -> FileDescriptorProto:
    file = FileDescriptorProto(name="order.proto", package="acme", syntax="proto3")
    message = file.message_type.add(name="Order")
    add(message, "id", Field.TYPE_STRING)
    add(message, "count", Field.TYPE_UINT32)
    add(message, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(message, "price", Field.TYPE_MESSAGE, ".confluent.type.Decimal")
    add(message, "nick", Field.TYPE_MESSAGE, ".google.protobuf.StringValue")
    add(message, "lines", Field.TYPE_MESSAGE, ".acme.Order.Line", Field.LABEL_REPEATED)
    add(message, "by_name", Field.TYPE_MESSAGE, ".acme.Order.ByNameEntry", Field.LABEL_REPEATED)
    add(message, "state", Field.TYPE_ENUM, ".acme.State")
    add(message, "meta", Field.TYPE_MESSAGE, ".acme.common.Meta")
    maybe = add(message, "maybe", Field.TYPE_BOOL)
    maybe.proto3_optional = True
    line = message.nested_type.add(name="Line")
    add(line, "sku", Field.TYPE_SFIXED64)
    entry = message.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    add(entry, "key", Field.TYPE_STRING)
    add(entry, "value", Field.TYPE_MESSAGE, ".acme.Order.Line")
    state = file.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    return file


def test_protobuf_types_names_and_paths() -> None:
    common = FileDescriptorProto(name="common.proto", package="acme.common")
    add(common.message_type.add(name="Meta"), "event_id", Field.TYPE_STRING)
    view = describe("PROTOBUF", Parsed(order(), [common]))
    assert view.roots == ("acme.Order",)
    assert types(view) == {
        "id": "string",
        "count": "long",
        "at": "timestamp google.protobuf.Timestamp",
        "price": "decimal confluent.type.Decimal",
        "nick": "string?",
        "lines": "array",
        "by_name": "map",
        "state": "enum",
        "meta": "record",
        "maybe": "boolean?",
        "lines.sku": "long",
    }
    assert {each.name: each.kind for each in view.own_types} == {
        "acme.State": "enum",
        "acme.Order": "record",
        "acme.Order.Line": "record",
    }
    found = view.find("acme.Order", "meta.event_id")
    assert found is not None and found.type == "string"
    assert one(view, "at").number == 3
    assert view.types["acme.State"].symbols == ("OPEN",)
    assert describe("PROTOBUF", order().SerializeToString(), {"common.proto": common}) == view


@pytest.mark.parametrize(("syntax", "seen"), [("", "string?"), ("proto2", "string?"), ("proto3", "string")])
def test_the_word_optional_of_proto2_is_one(syntax: str, seen: str) -> None:
    file = FileDescriptorProto(name="a.proto", syntax=syntax)
    message = file.message_type.add(name="A")
    add(message, "maybe", Field.TYPE_STRING)
    add(message, "must", Field.TYPE_STRING, label=Field.LABEL_REQUIRED)
    assert types(describe("PROTOBUF", file)) == {"maybe": seen, "must": "string"}


def test_protobuf_docs_are_comments_and_tags_confluents_option() -> None:
    file = order()
    file.source_code_info.location.add(path=[4, 0], leading_comments=" An order.\n")
    file.source_code_info.location.add(path=[4, 0, 2, 0], leading_comments=" Which.\n")
    file.source_code_info.location.add(path=[5, 0], leading_comments=" How far.\n")
    # (confluent.field_meta) = {doc: "d", tags: ["PII", "X"]}: field 1088, then fields 1 and 3, all
    # length-delimited
    meta = b"\x0a\x01d\x1a\x03PII\x1a\x01X"
    file.message_type[0].field[1].options.MergeFromString(b"\x82\x44" + bytes([len(meta)]) + meta)
    view = describe("PROTOBUF", file)
    assert (view.types["acme.Order"].doc, view.types["acme.State"].doc) == ("An order.", "How far.")
    assert (one(view, "id").doc, one(view, "id").tags) == ("Which.", frozenset())
    assert (one(view, "count").doc, one(view, "count").tags) == ("d", {"PII", "X"})


# ---- what is odd, and what would be large


def objects(*titles: str) -> str:
    inner = {f"p{at}": {"title": title, "properties": {}} for at, title in enumerate(titles)}
    return json.dumps({"title": "a", "properties": inner})


def test_titles_that_are_the_names_of_others_end() -> None:
    """A title was looked for a number for, and the number never changed."""
    view = describe("JSON", objects("a#2", "a", "a#4", "a"))
    assert list(view.types) == ["a", "a#2", "a#3", "a#4", "a#5"]


def test_what_all_of_repeats_is_limited() -> None:
    many = {"properties": {f"f{number}": True for number in range(2_000)}}
    each = {"allOf": [{"$ref": "#/definitions/many"}]}
    schema = {"definitions": {"many": many}, "properties": {f"p{number}": each for number in range(2_000)}}
    with pytest.raises(InvalidSchema, match="repeat more than"):
        describe("JSON", json.dumps(schema))


def test_fields_that_hold_the_same_thousands_of_types_cost_what_their_text_costs() -> None:
    some = {"oneOf": [{"title": f"T{number}", "properties": {}} for number in range(2_000)]}
    refs = {f"p{number}": {"$ref": "#/definitions/some"} for number in range(2_000)}
    with costs_at_most(40):
        view = describe("JSON", json.dumps({"definitions": {"some": some}, "properties": refs}))
    assert len(view.types) == 2_001


@pytest.mark.parametrize(("doc", "seen"), [(None, ""), (5, ""), ("d", "d")])
def test_a_doc_that_is_no_text_is_none(doc: Any, seen: str) -> None:
    view = describe("AVRO", record({"name": "f", "type": "int", "doc": doc}, doc=doc))
    assert (one(view, "f").doc, view.types["acme.Order"].doc) == (seen, seen)


def test_numbers_of_any_length_are_read() -> None:
    default = {"type": "integer", "default": 1 << 70}
    assert one(describe("JSON", Raw({"properties": {"f": default}})), "f").default == str(1 << 70)
    index = {"$ref": f"#/allOf/{'1' * 5_000}"}
    assert one(describe("JSON", json.dumps({"properties": {"f": index}})), "f").type == "any"


@dataclass
class Raw:
    raw: Any


@pytest.mark.parametrize("option", [b"abc", b"\x08\x07"])
def test_somebody_elses_option_of_confluents_number_says_nothing(option: bytes) -> None:
    file = order()
    file.message_type[0].field[0].options.MergeFromString(b"\x92\x44" + bytes([len(option)]) + option)
    content = file.SerializeToString().replace(b"\x92\x44", b"\x82\x44")
    # Protobuf itself refuses it in a process that imported Confluent's client, as some tests do.
    linked = "confluent.field_meta" in {
        each.full_name for each in descriptor_pool.Default().FindAllExtensions(FieldOptions.DESCRIPTOR)
    }
    if linked and option == b"abc":
        with pytest.raises(InvalidSchema, match="not a valid Protobuf descriptor"):
            describe("PROTOBUF", content)
    else:
        found = one(describe("PROTOBUF", content), "id")
        assert (found.doc, found.tags) == ("", frozenset())


def test_large_records_are_compared_in_a_moment() -> None:
    old, new = (
        describe("AVRO", record(*({"name": f"{letter}{n}", "type": "int"} for n in range(2_000)), *more))
        for letter, more in (("a", ()), ("b", ({"name": "more", "type": "int"},)))
    )
    symbols = [
        describe("AVRO", {"type": "enum", "name": "E", "symbols": [f"{s}{n}" for n in range(20_000)]})
        for s in "XY"
    ]
    with costs_at_most(150):
        assert warnings(old, new) == [] and len(warnings(*symbols)) == 20_000


# ---- what cannot be read


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("XML", "<a/>"),
        ("AVRO", "{"),
        ("AVRO", {"type": "record", "name": "R"}),
        ("AVRO", {"type": "record", "name": 1, "fields": []}),
        ("AVRO", {"no": "type"}),
        ("JSON", "{"),
        ("PROTOBUF", "syntax = 'proto3';"),
        ("PROTOBUF", b"\xff\xff"),
    ],
)
def test_what_cannot_be_read_is_an_invalid_schema(kind: str, schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        describe(kind, schema)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "record", "array", "#/a", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "properties",
                    "$ref",
                    "a",
                    "required",
                    "enum",
                    "allOf",
                    "oneOf",
                    "default",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(["AVRO", "JSON"]), junk)
def test_law_any_json_is_described_or_refused(kind: str, schema: Any) -> None:
    try:
        view = describe(kind, json.dumps(schema))
    except InvalidSchema:
        return
    assert warnings(view, view) == []


# ---- warnings


def field_(type_: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return record({"name": name, "type": type_, **more})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (field_("int"), field_("int"), []),
        (field_("int"), field_("long"), []),  # the levels' affair
        (record(name="a.Order"), record(name="b.Order"), ["NAMESPACE_CHANGED at b.Order"]),
        (record(name="a.Order"), record(name="b.Order", aliases=["a.Order"]), []),
        (
            field_(MILLIS),
            field_(MICROS),
            ["LOGICAL_TYPE_CHANGED at f: was timestamp-millis and is timestamp-micros"],
        ),
        (field_(MILLIS), field_("long"), ["LOGICAL_TYPE_CHANGED at f: was timestamp-millis and is long"]),
        (field_("long"), field_(MILLIS), ["LOGICAL_TYPE_CHANGED at f: was long and is timestamp-millis"]),
        (
            field_({"type": "array", "items": MILLIS}),
            field_({"type": "array", "items": MICROS}),
            ["LOGICAL_TYPE_CHANGED at f"],
        ),
        (field_(decimal(4, 2)), field_(decimal(10, 2)), ["LOGICAL_TYPE_CHANGED at f: was decimal(4,2)"]),
        (field_("int", default=1), field_("int"), ["DEFAULT_DROPPED at f: the default 1 is gone"]),
        (
            field_("int", default=1),
            field_("int", default=2),
            ["DEFAULT_CHANGED at f: the default was 1 and is 2"],
        ),
        (field_("int"), field_("int", default=2), []),
        (
            field_({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            field_({"type": "enum", "name": "E", "symbols": ["B"], "default": "B"}),
            ['ENUM_SYMBOL_REMOVED at acme.E: symbol "A" of enum "acme.E" is gone'],
        ),
        (
            field_("string", "customer", default=""),
            field_("string", "buyer", default=""),
            ['FIELD_RENAMED at buyer: field "customer" seems to be "buyer" now'],
        ),
        (field_("string", "customer"), field_("string", "buyer", aliases=["customer"]), []),
        (field_("string", "customer"), field_("int", "buyer"), []),  # another type: gone, and a new one
        (
            record({"name": "a", "type": "int"}, {"name": "customer_id", "type": "string"}),
            record(
                {"name": "customerId", "type": "string"},
                {"name": "a", "type": "int"},
                {"name": "b", "type": "int"},
            ),
            ['FIELD_RENAMED at customerId: field "customer_id"'],
        ),
        (
            record({"name": "a", "type": "int"}, {"name": "first", "type": "string"}),
            record(
                {"name": "a", "type": "int"}, {"name": "b", "type": "int"}, {"name": "zip", "type": "string"}
            ),
            [],  # one gone and two new ones that are not alike
        ),
        (
            field_(record({"name": "at", "type": MILLIS}, name="Inner")),
            field_(record({"name": "at", "type": MICROS}, name="Inner")),
            ["LOGICAL_TYPE_CHANGED at f.at"],
        ),
        (
            field_(MILLIS, "at"),
            record({"name": "since", "type": MICROS, "aliases": ["at"]}, name="acme.Renamed"),
            ["LOGICAL_TYPE_CHANGED at since"],  # through the only root and the alias
        ),
    ],
)
def test_what_no_level_sees_is_told(old: Any, new: Any, expected: list[str]) -> None:
    found = warnings(describe("AVRO", old), describe("AVRO", new))
    assert len(found) == len(expected), found
    for each, said in zip(found, expected, strict=True):
        assert str(each).startswith(said) and each.fix and each.severity == "warn"


def test_protobuf_fields_are_one_by_their_numbers_and_json_formats_are_logical() -> None:
    renamed = order()
    renamed.message_type[0].field[0].name = "order_id"
    (found,) = warnings(describe("PROTOBUF", order()), describe("PROTOBUF", renamed))
    assert (found.rule, found.path, found.fix) == ("FIELD_RENAMED", "order_id", 'keep the name "id"')
    old, new = (
        {"title": "T", "properties": {"at": {"type": "string", "format": each}}}
        for each in ("date-time", "date")
    )
    assert [each.rule for each in warnings(describe("JSON", old), describe("JSON", new))] == [
        "LOGICAL_TYPE_CHANGED"
    ]
