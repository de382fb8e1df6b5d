"""Protobuf schemas: read compatibility by Confluent's rules, round trips of text, and refusals."""

from __future__ import annotations

import base64
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from effort import costs_at_most
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.protobuf import format as protobuf_format
from hub.schema_registry.formats.protobuf import imports as protobuf_imports
from hub.schema_registry.formats.protobuf import protoc
from hub.schema_registry.formats.protobuf import schema as protobuf
from hub.schema_registry.formats.protobuf.format import canonical, normalized, serialized
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema, parse


def proto3(body: str) -> str:
    return f'syntax = "proto3";\n{body}'


def proto2(body: str) -> str:
    return f'syntax = "proto2";\n{body}'


def linked(texts: Mapping[str, str]) -> dict[str, ProtobufSchema]:
    """Imports by path, those that others need first."""
    found: dict[str, ProtobufSchema] = {}
    for path, text in texts.items():
        found[path] = parse(text, found)
    return found


# ---- read compatibility


@dataclass(frozen=True)
class Case:
    """``backward``: why the new cannot read the old; ``forward``: why the old cannot read the new."""

    name: str
    old: str
    new: str
    backward: str = ""  # "RULE path, RULE path", in order; "" = it can
    forward: str = ""
    old_imports: Mapping[str, str] = field(default_factory=dict)
    new_imports: Mapping[str, str] = field(default_factory=dict)


def m3(old: str, new: str, *, beside: str = "") -> tuple[str, str]:
    """A message M with one body and the other."""
    return proto3(f"message M {{ {old} }} {beside}"), proto3(f"message M {{ {new} }} {beside}")


def m2(old: str, new: str, *, beside: str = "") -> tuple[str, str]:
    return proto2(f"message M {{ {old} }} {beside}"), proto2(f"message M {{ {new} }} {beside}")


TYPES = (
    "message A { string s = 1; } message B { string s = 1; } enum E { E0 = 0; } enum F { F0 = 0; F1 = 1; }"
)
KIND, SCALAR, NAMED, LABEL = (
    f"FIELD_{each} #/M/1"
    for each in ("KIND_CHANGED", "SCALAR_KIND_CHANGED", "NAMED_TYPE_CHANGED", "NUMERIC_LABEL_CHANGED")
)


def both(why: str) -> tuple[str, str]:
    return why, why


HOME = 'syntax = "proto3"; package home; message Home { int32 id = 1; bool on = 2; }'
HOME_WIDER = 'syntax = "proto3"; package home; message Home { int64 id = 1; bool on = 2; string name = 3; }'
HOME_BROKEN = 'syntax = "proto3"; package home; message Home { string id = 1; bool on = 2; }'
HOME_MOVED = 'syntax = "proto3"; package house; message Home { int32 id = 1; bool on = 2; }'
HOME_LOOP = (
    'syntax = "proto3"; package home; message Home { Home up = 1; Room room = 2; } message Room { '
    "Home home = 1; int32 a = 2; }"
)
HOME_LOOP_BROKEN = HOME_LOOP.replace("int32 a", "string a")
USES_HOME = proto3('import "home.proto"; message M { home.Home h = 1; }')
USES_HOUSE = proto3('import "house.proto"; message M { house.Home h = 1; }')
OWN_HOME = proto3("message M { Home h = 1; } message Home { int32 id = 1; bool on = 2; }")
STREET = (
    'syntax = "proto3"; package street; import "home.proto"; message Street { repeated home.Home homes = 1; }'
)
USES_STREET = proto3('import "street.proto"; message M { map<string, street.Street> s = 1; }')
INSIDE = "FIELD_NAMED_TYPE_CHANGED #/M/1, FIELD_SCALAR_KIND_CHANGED #/Home/1"

CASES = [
    # nothing that matters
    Case("the same", *m3("int32 a = 1;", "int32 a = 1;")),
    Case("field renamed", *m3("int32 a = 1;", "int32 b = 1;")),
    Case("field added", *m3("int32 a = 1;", "int32 a = 1; string b = 2;")),
    Case("fields reordered", *m3("int32 a = 1; string b = 2;", "string b = 2; int32 a = 1;")),
    Case("field moved to another number", *m3("string a = 1;", "string a = 2;")),
    Case("reserved instead of the field", *m3("string a = 1;", 'reserved 1; reserved "a";')),
    Case("reserved number taken again", *m3("reserved 1;", "string a = 1;")),
    Case(
        "options of fields",
        *m3("repeated int32 a = 1;", "repeated int32 a = 1 [packed = false, deprecated = true];"),
    ),
    Case("options of the file", proto3("message M {}"), proto3('option java_package = "x"; message M {}')),
    Case(
        "proto2 default changed",
        *m2("optional int32 a = 1 [default = 1];", "optional int32 a = 1 [default = 2];"),
    ),
    Case("service added", proto3("message M {}"), proto3("message M {} service S { rpc R(M) returns (M); }")),
    Case(
        "extension field changed",
        proto2("message M { extensions 100 to 200; } extend M { optional int32 a = 100; }"),
        proto2("message M { extensions 100 to 200; } extend M { optional string a = 100; }"),
    ),
    # package and messages
    Case(
        "package changed",
        proto3("package a; message M {}"),
        proto3("package b; message M {}"),
        *both("PACKAGE_CHANGED #/"),
    ),
    Case(
        "package added",
        proto3("message M {}"),
        proto3("package b; message M {}"),
        *both("PACKAGE_CHANGED #/"),
    ),
    Case(
        "message added",
        proto3("message M {}"),
        proto3("message M {} message N {}"),
        "",
        "MESSAGE_REMOVED #/N",
    ),
    Case(
        "message removed",
        proto3("message M {} message N {}"),
        proto3("message M {}"),
        "MESSAGE_REMOVED #/N",
        "",
    ),
    Case("messages reordered", proto3("message M {} message N {}"), proto3("message N {} message M {}")),
    Case(
        "message renamed",
        proto3("message M {}"),
        proto3("message N {}"),
        "MESSAGE_REMOVED #/M",
        "MESSAGE_REMOVED #/N",
    ),
    Case("nested message removed", *m3("message N {}", ""), "MESSAGE_REMOVED #/M/N", ""),
    Case("field added to a nested message", *m3("message N {}", "message N { int32 a = 1; }")),
    Case(
        "type changed in a nested message",
        *m3("message N { int32 a = 1; }", "message N { string a = 1; }"),
        *both("FIELD_SCALAR_KIND_CHANGED #/M/N/1"),
    ),
    # enums
    Case("enum value removed", *m3("F f = 1;", "F f = 1;", beside="enum F { F0 = 0; F1 = 1; }")),
    Case(
        "enum added and removed",
        proto3("enum E { E0 = 0; } message M {}"),
        proto3("message M {} enum F { F0 = 0; }"),
    ),
    Case(
        "enum value removed and renamed",
        proto3("enum E { A = 0; B = 1; C = 2; } message M { E e = 1; }"),
        proto3("enum E { Z = 0; B = 1; } message M { E e = 1; }"),
    ),
    Case("enum to another enum", *m3("E a = 1;", "F a = 1;", beside=TYPES)),
    Case("int to enum", *m3("int32 a = 1;", "E a = 1;", beside=TYPES)),
    Case("enum to sint", *m3("E a = 1;", "sint32 a = 1;", beside=TYPES), *both(SCALAR)),
    # scalars
    Case("int32 to int64", *m3("int32 a = 1;", "int64 a = 1;")),
    Case("uint32 to bool", *m3("uint32 a = 1;", "bool a = 1;")),
    Case("uint64 to int32", *m3("uint64 a = 1;", "int32 a = 1;")),
    Case("sint32 to sint64", *m3("sint32 a = 1;", "sint64 a = 1;")),
    Case("string to bytes", *m3("string a = 1;", "bytes a = 1;")),
    Case("fixed32 to sfixed32", *m3("fixed32 a = 1;", "sfixed32 a = 1;")),
    Case("fixed64 to sfixed64", *m3("fixed64 a = 1;", "sfixed64 a = 1;")),
    Case("int32 to sint32", *m3("int32 a = 1;", "sint32 a = 1;"), *both(SCALAR)),
    Case("int32 to string", *m3("int32 a = 1;", "string a = 1;"), *both(SCALAR)),
    Case("fixed32 to fixed64", *m3("fixed32 a = 1;", "fixed64 a = 1;"), *both(SCALAR)),
    Case("fixed32 to int32", *m3("fixed32 a = 1;", "int32 a = 1;"), *both(SCALAR)),
    Case("fixed32 to float", *m3("fixed32 a = 1;", "float a = 1;"), *both(SCALAR)),
    Case("fixed64 to double", *m3("fixed64 a = 1;", "double a = 1;"), *both(SCALAR)),
    Case("float to double", *m3("float a = 1;", "double a = 1;"), *both(SCALAR)),
    # kinds and named types
    Case("bytes to message", *m3("bytes a = 1;", "A a = 1;", beside=TYPES), *both(KIND)),
    Case("int to message", *m3("int32 a = 1;", "A a = 1;", beside=TYPES), *both(KIND)),
    Case("enum to message", *m3("E a = 1;", "A a = 1;", beside=TYPES), *both(KIND)),
    Case("message to another of the same shape", *m3("A a = 1;", "B a = 1;", beside=TYPES), *both(NAMED)),
    Case(
        "nested and full name are one",
        proto3("package p; message M { message N {} N a = 1; map<string, N> b = 2; }"),
        proto3("package p; message M { message N {} .p.M.N a = 1; map<string, p.M.N> b = 2; }"),
    ),
    Case(
        "another message of the same last name",
        proto3("message M { message N {} N a = 1; } message N {}"),
        proto3("message M { message N {} .N a = 1; } message N {}"),
        *both(NAMED),
    ),
    Case("recursive message", *m3("M a = 1; int32 b = 2;", "M a = 1; int64 b = 2;")),
    Case(
        "recursive message with a changed type",
        *m3("M a = 1; int32 b = 2;", "M a = 1; string b = 2;"),
        *both("FIELD_SCALAR_KIND_CHANGED #/M/2"),
    ),
    # maps
    Case("map value widened", *m3("map<string, int32> a = 1;", "map<string, int64> a = 1;")),
    Case("map renamed, and so its entry", *m3("map<string, int32> a = 1;", "map<string, int32> b = 1;")),
    Case("map added", *m3("", "map<string, int32> a = 1;")),
    Case("map value changed", *m3("map<string, int32> a = 1;", "map<string, string> a = 1;"), *both(SCALAR)),
    Case("map key changed", *m3("map<string, int32> a = 1;", "map<int32, int32> a = 1;"), *both(SCALAR)),
    Case(
        "map key and value changed",
        *m3("map<string, int32> a = 1;", "map<int32, A> a = 1;", beside=TYPES),
        *both(f"{SCALAR}, {KIND}"),
    ),
    Case(
        "map to another message",
        *m3("map<string, A> a = 1;", "map<string, B> a = 1;", beside=TYPES),
        *both(NAMED),
    ),
    Case("map to message", *m3("map<string, A> a = 1;", "A a = 1;", beside=TYPES), *both(KIND)),
    Case(
        "map to repeated entries",
        *m3(
            "map<string, string> a = 1;",
            "repeated P a = 1;",
            beside="message P { string key = 1; string value = 2; }",
        ),
        *both(KIND),
    ),
    Case("map to scalar", *m3("map<string, A> a = 1;", "string a = 1;", beside=TYPES), *both(KIND)),
    # labels
    Case("proto3 singular to repeated", *m3("int32 a = 1;", "repeated int32 a = 1;")),
    Case("proto3 singular to optional", *m3("int32 a = 1;", "optional int32 a = 1;")),
    Case("proto3 optional to repeated", *m3("optional int32 a = 1;", "repeated int32 a = 1;"), *both(LABEL)),
    Case(
        "proto3 optional enum to repeated",
        *m3("optional E a = 1;", "repeated E a = 1;", beside=TYPES),
        *both(LABEL),
    ),
    Case(
        "optional double to repeated", *m3("optional double a = 1;", "repeated double a = 1;"), *both(LABEL)
    ),
    Case("optional string to repeated", *m3("optional string a = 1;", "repeated string a = 1;")),
    Case("optional bytes to repeated", *m3("optional bytes a = 1;", "repeated bytes a = 1;")),
    Case("optional message to repeated", *m3("optional A a = 1;", "repeated A a = 1;", beside=TYPES)),
    Case("proto2 optional to repeated", *m2("optional int32 a = 1;", "repeated int32 a = 1;"), *both(LABEL)),
    Case(
        "proto2 to proto3",
        proto2("message M { optional int32 a = 1; }"),
        proto3("message M { int32 a = 1; }"),
    ),
    Case(
        "proto2 optional to proto3 repeated",
        proto2("message M { optional int32 a = 1; }"),
        proto3("message M { repeated int32 a = 1; }"),
        *both(LABEL),
    ),
    Case("label and type changed", *m3("optional int32 a = 1;", "repeated string a = 1;"), *both(SCALAR)),
    # required
    Case(
        "required added",
        *m2("", "required int32 a = 1;"),
        "REQUIRED_FIELD_ADDED #/M/1",
        "REQUIRED_FIELD_REMOVED #/M/1",
    ),
    Case(
        "required removed",
        *m2("required string a = 1;", ""),
        "REQUIRED_FIELD_REMOVED #/M/1",
        "REQUIRED_FIELD_ADDED #/M/1",
    ),
    Case("required number to optional", *m2("required int32 a = 1;", "optional int32 a = 1;"), *both(LABEL)),
    Case("required string to optional", *m2("required string a = 1;", "optional string a = 1;")),
    # oneofs
    Case("oneof added", *m3("", "oneof o { int32 a = 1; string b = 2; }")),
    Case("oneof removed whole", *m3("oneof o { int32 a = 1; string b = 2; } int32 c = 3;", "int32 c = 3;")),
    Case(
        "oneof renamed",
        *m3("oneof o { int32 a = 1; string b = 2; }", "oneof p { int32 a = 1; string b = 2; }"),
    ),
    Case(
        "field added to a oneof",
        *m3("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; string b = 2; }"),
        "",
        "ONEOF_FIELD_REMOVED #/M/o/2",
    ),
    Case(
        "field removed from a oneof",
        *m3("oneof o { int32 a = 1; string b = 2; }", "oneof o { int32 a = 1; }"),
        "ONEOF_FIELD_REMOVED #/M/o/2",
        "",
    ),
    Case(
        "type changed in a oneof",
        *m3("oneof o { int32 a = 1; }", "oneof o { string a = 1; }"),
        *both("FIELD_SCALAR_KIND_CHANGED #/M/o/1"),
    ),
    Case(
        "type changed behind a renamed oneof",
        *m3("oneof o { int32 a = 1; string b = 2; }", "oneof p { string a = 1; string b = 2; }"),
        "FIELD_SCALAR_KIND_CHANGED #/M/p/1",
        "FIELD_SCALAR_KIND_CHANGED #/M/o/1",
    ),
    Case(
        "field removed behind a renamed oneof",
        *m3("oneof o { int32 a = 1; string b = 2; }", "oneof p { string b = 2; }"),
        "ONEOF_FIELD_REMOVED #/M/o/1",
        "",
    ),
    Case(
        "all fields of a kept oneof replaced",
        *m3("oneof o { int32 a = 1; }", "oneof o { int32 b = 2; }"),
        "ONEOF_FIELD_REMOVED #/M/o/1",
        "ONEOF_FIELD_REMOVED #/M/o/2",
    ),
    Case(
        "one field into a new oneof",
        *m3("int32 a = 1; int32 b = 2;", "int32 a = 1; oneof o { int32 b = 2; }"),
    ),
    Case(
        "type changed on the way into a oneof",
        *m3("int32 a = 1;", "oneof o { string a = 1; }"),
        "FIELD_SCALAR_KIND_CHANGED #/M/o/1",
        "FIELD_SCALAR_KIND_CHANGED #/M/1",
    ),
    Case(
        "two fields into a oneof",
        *m3("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",
        "",
    ),
    Case(
        "field into an existing oneof",
        *m3("int32 a = 1; oneof o { int32 b = 2; }", "oneof o { int32 a = 1; int32 b = 2; }"),
        "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",
        "",
    ),
    Case(
        "two oneofs become one",
        *m3("oneof o { int32 a = 1; } oneof p { int32 b = 2; }", "oneof o { int32 a = 1; int32 b = 2; }"),
        "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",
        "",
    ),
    Case(
        "field moved out of a oneof",
        *m3("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; oneof o { int32 b = 2; }"),
        "",
        "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",
    ),
    Case(
        "proto3 optional is no oneof",
        *m3("int32 a = 1; int32 b = 2;", "optional int32 a = 1; optional int32 b = 2;"),
    ),
    Case("proto2 oneof members have no label", *m2("repeated int32 a = 1;", "oneof o { int32 a = 1; }")),
    # imports
    Case("import stays", USES_HOME, USES_HOME, "", "", {"home.proto": HOME}, {"home.proto": HOME}),
    Case("import widened", USES_HOME, USES_HOME, "", "", {"home.proto": HOME}, {"home.proto": HOME_WIDER}),
    Case(
        "import broken",
        USES_HOME,
        USES_HOME,
        *both(INSIDE),
        {"home.proto": HOME},
        {"home.proto": HOME_BROKEN},
    ),
    Case(
        "package of an import changed",
        USES_HOME,
        USES_HOUSE,
        "",
        "",
        {"home.proto": HOME},
        {"house.proto": HOME_MOVED},
    ),
    Case("into an import", OWN_HOME, USES_HOME, "MESSAGE_REMOVED #/Home", "", {}, {"home.proto": HOME}),
    Case(
        "into a broken import",
        OWN_HOME,
        USES_HOME,
        "FIELD_NAMED_TYPE_CHANGED #/M/1, MESSAGE_REMOVED #/Home, FIELD_SCALAR_KIND_CHANGED #/Home/1",
        INSIDE,
        {},
        {"home.proto": HOME_BROKEN},
    ),
    Case(
        "import of an import broken",
        USES_STREET,
        USES_STREET,
        *both(
            "FIELD_NAMED_TYPE_CHANGED #/M/1, FIELD_NAMED_TYPE_CHANGED #/Street/1, "
            "FIELD_SCALAR_KIND_CHANGED #/Home/1"
        ),
        {"home.proto": HOME, "street.proto": STREET},
        {"home.proto": HOME_BROKEN, "street.proto": STREET},
    ),
    Case(
        "imported types that use each other",
        USES_HOME,
        USES_HOME,
        "",
        "",
        {"home.proto": HOME_LOOP},
        {"home.proto": HOME_LOOP.replace("int32 a", "int64 a")},
    ),
    Case(
        "imported types that use each other, broken",
        USES_HOME,
        USES_HOME,
        *both(
            "FIELD_NAMED_TYPE_CHANGED #/M/1, FIELD_NAMED_TYPE_CHANGED #/Home/1, FIELD_NAMED_TYPE_CHANGED "
            "#/Home/2, FIELD_NAMED_TYPE_CHANGED #/Room/1, FIELD_SCALAR_KIND_CHANGED #/Room/2"
        ),
        {"home.proto": HOME_LOOP},
        {"home.proto": HOME_LOOP_BROKEN},
    ),
    Case(
        "a type changed in an import that nothing uses",
        proto3('import "home.proto"; message M {}'),
        proto3('import "home.proto"; message M {}'),
        "",
        "",
        {"home.proto": HOME},
        {"home.proto": HOME_BROKEN},
    ),
    Case(
        "well-known type to another",
        proto3('import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }'),
        proto3('import "google/protobuf/duration.proto"; message M { google.protobuf.Duration t = 1; }'),
        *both(NAMED),
    ),
    Case(
        "well-known enum to int",
        proto3('import "google/protobuf/struct.proto"; message M { google.protobuf.NullValue t = 1; }'),
        proto3("message M { int32 t = 1; }"),
    ),
    Case(
        "well-known recursive type",
        proto3('import "google/protobuf/struct.proto"; message M { google.protobuf.Struct t = 1; }'),
        proto3('import "google/protobuf/struct.proto"; message M { repeated google.protobuf.Struct u = 1; }'),
    ),
    # groups and editions
    Case(
        "group to scalar", *m2("optional group G = 1 {}", "optional int32 g = 1; message G {}"), *both(KIND)
    ),
    Case(
        "proto3 to edition",
        proto3("message M { int32 a = 1; }"),
        'edition = "2023"; message M { repeated int32 a = 1; }',
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts(case: Case) -> None:
    old, new = parse(case.old, linked(case.old_imports)), parse(case.new, linked(case.new_imports))
    assert told(new, old) == case.backward
    assert told(old, new) == case.forward
    # The same schemas from base64, as Python's serializer registers them.
    again = parse(serialized(new), linked(case.new_imports))
    assert told(again, old) == case.backward
    # A normalized text means the same.
    assert told(parse(normalized(new), linked(case.new_imports)), new) == ""


def told(reader: ProtobufSchema, writer: ProtobufSchema) -> str:
    return ", ".join(f"{each.rule} {each.path}" for each in protobuf_format.differences(reader, writer))


def test_the_table_has_every_kind_of_difference() -> None:
    rules = {
        each.split()[0]
        for case in CASES
        for each in (case.backward + "," + case.forward).split(",")
        if each.strip()
    }
    assert rules == {
        "PACKAGE_CHANGED",
        "MESSAGE_REMOVED",
        "FIELD_KIND_CHANGED",
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
        "FIELD_NUMERIC_LABEL_CHANGED",
        "REQUIRED_FIELD_ADDED",
        "REQUIRED_FIELD_REMOVED",
        "ONEOF_FIELD_REMOVED",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        "FIELD_MOVED_TO_EXISTING_ONEOF",
    }


def test_a_difference_names_the_field_both_sides_and_the_way_out() -> None:
    old = parse(proto3("message Order { message Item { int32 qty = 3; } repeated Item items = 1; }"))
    new = parse(proto3("message Order { message Item { string qty = 3; } repeated Item items = 1; }"))
    (found,) = protobuf_format.differences(new, old)
    assert (found.path, found.field) == ("#/Order/Item/3", "Order.Item.qty")
    assert found.what == "the reader's `Order.Item.qty` (number 3) is string, the writer's is int32"
    assert found.fix == "keep int32, or give the new field a number of its own"


def test_a_long_chain_of_imported_types_is_compared_to_its_end() -> None:
    count = 1_500

    def chain(last: str) -> str:
        links = "".join(f"message L{each} {{ L{each + 1} next = 1; }}" for each in range(count))
        return proto3(f"package c; {links} message L{count} {{ {last} end = 1; }}")

    text = proto3('import "c.proto"; message M { c.L0 first = 1; }')
    old, new = (parse(text, linked({"c.proto": chain(each)})) for each in ("int32", "string"))
    found = protobuf_format.differences(new, old)
    assert found[-1].path == f"#/L{count}/1" and found[0].path == "#/M/1" and len(found) == count + 2


# ---- texts


RICH = proto3(
    """
    package shop.v1;
    import "google/protobuf/timestamp.proto";
    import public "item.proto";
    import "confluent/meta.proto";
    import "confluent/type/decimal.proto";
    import "google/type/money.proto";
    option java_package = "shop";  // a comment
    option deprecated = true;
    option optimize_for = SPEED;
    option (confluent.file_meta) = { doc: "h\\"é\\n" params: [{key: "a" value: "b"}] };
    message Order {
      option (confluent.message_meta).doc = "an order";
      reserved 50 to 60, 70, 1000 to max;
      reserved "gone", "lost";
      message First { int32 a = 1; }
      map<string, First> firsts = 9 [deprecated = true];
      message Second { Order.First a = 1; shop.v1.Order.Second again = 2; }
      enum Status { option allow_alias = true; NEW = 0; OPEN = 0; BAD = -1 [deprecated = true]; reserved 5, 9 to max; reserved "X"; }
      string id = 1 [json_name = "ID", (confluent.field_meta) = { tags: "PII" tags: "KEY" }];
      optional Status status = 2;
      repeated int64 numbers = 3 [packed = false];
      oneof pay { string card = 4; confluent.type.Decimal cash = 5; google.type.Money money = 6; }
      map<int32, google.protobuf.Timestamp> times = 7;
      item.Item item = 8;
    }
    message Empty {}
    service Orders {
      option deprecated = true;
      rpc Get(Order) returns (stream Empty) { option idempotency_level = NO_SIDE_EFFECTS; }
      rpc Put(stream Order) returns (Empty);
    }
    """  # noqa: E501
)
ITEM = proto3(
    'package item; import "google/protobuf/any.proto"; message Item { google.protobuf.Any any = 1; }'
)
OLD_SCHOOL = proto2(
    """
    import "google/protobuf/descriptor.proto";
    import weak "google/protobuf/any.proto";
    message M {
      required string s = 1 [default = "a\\"\\n\\377é"];
      optional bytes b = 2 [default = "\\001\\\\x"];
      optional double d = 3 [default = -inf, (nums) = 1, (nums) = 2, (deep).m.s = "x"];
      optional float f = 4 [default = 1e-7];
      optional E e = 5 [default = B, lazy = true];
      optional bool yes = 6 [default = true];
      optional int64 low = 7 [default = -9223372036854775808];
      message Before {}
      repeated group Part = 8 { optional int32 n = 1; message Inside {} optional Inside i = 2; }
      message After {}
      oneof o { group Choice = 9 { optional int32 n = 1; } string other = 10; }
      extensions 100 to 200, 500;
      extensions 1000 to max [verification = UNVERIFIED];
      extend M { optional After nested = 150; }
      optional group Unused = 11 {}
    }
    enum E { A = 1; B = 0; }
    extend google.protobuf.FieldOptions { repeated int32 nums = 50001; optional Deep deep = 50002; }
    extend M { optional group Added = 100 { optional int32 n = 1; } }
    message Deep { optional M m = 1; }
    """
).replace("lazy = true", "deprecated = true")
EDITION = """
    edition = "2023";
    package e;
    option features.enum_type = CLOSED;
    message M {
      int32 a = 1 [features.field_presence = IMPLICIT];
      M b = 2 [features.message_encoding = DELIMITED];
      repeated int32 c = 3 [features.repeated_field_encoding = EXPANDED];
      string d = 4 [default = "x"];
      reserved gone, lost;
    }
    enum E { A = 1; reserved X; }
"""
NAMES = proto3(
    """
    package p.q;
    message message1 {}
    message group {}
    message A {
      message int32 {}
      .p.q.A.int32 a = 1;
      .p.q.group b = 2;
      message A { .p.q.A outer = 1; A inner = 2; p.q.B far = 3; }
      message C { A.A a = 1; C B = 2; .p.q.B b = 3; }
      oneof p { string x = 3; }
      message D { .p.q.B b = 1; }
    }
    message B { message p {} .p.q.B b = 1; p own = 2; }
    """
)
IN_THE_WAY = proto3(
    """
    package p;
    import "google/protobuf/descriptor.proto";
    extend google.protobuf.FieldOptions { string note = 50001; string tag = 50002; }
    message M { string note = 1 [(.p.note) = "x", (tag) = "y"]; }
    """
)
TEXTS: dict[str, tuple[str, dict[str, str]]] = {
    "rich": (RICH, {"item.proto": ITEM}),
    "old school": (OLD_SCHOOL, {}),
    "edition": (EDITION, {}),
    "names": (NAMES.replace("A.A a = 1", "A a = 1"), {}),
    "an option and a field of one name": (IN_THE_WAY, {}),
    "no message": (proto3("package a;"), {}),
    "edition 2024": (
        (
            'edition = "2024"; package x; export message M { E e = 1; } local enum E { A = 0; } message N { '
            "local message O {} }"
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_canonical_text_is_read_back_to_the_same_descriptor(name: str) -> None:
    text, imports = TEXTS[name]
    named = linked(imports)
    schema = parse(text, named)
    again = parse(canonical(schema), named)
    assert again.file == schema.file
    assert canonical(again) == canonical(schema)
    assert [each.name for each in again.imports] == [each.name for each in schema.imports]


@pytest.mark.parametrize("name", TEXTS)
def test_a_normalized_text_is_stable_and_keeps_the_index_of_every_message(name: str) -> None:
    text, imports = TEXTS[name]
    named = linked(imports)
    schema = parse(text, named)
    again = parse(normalized(schema), named)
    assert normalized(again) == normalized(schema)
    assert [each.name for each in again.file.message_type] == [each.name for each in schema.file.message_type]
    assert told(again, schema) == told(schema, again) == ""


@pytest.mark.parametrize("name", TEXTS)
def test_base64_is_the_same_schema_as_text(name: str) -> None:
    text, imports = TEXTS[name]
    named = linked(imports)
    schema = parse(text, named)
    again = parse(serialized(schema), named)
    assert again.file == schema.file and canonical(again) == canonical(schema)
    assert FileDescriptorProto.FromString(base64.b64decode(serialized(schema))) == schema.file


def test_a_long_run_of_spaces_is_no_riddle() -> None:
    """Regression: the base64 check was quadratic in white space; 1 MB blocked its node for hours."""
    began = time.thread_time()
    assert parse(" " * 300_000 + proto3("message A {}")).file.message_type[0].name == "A"
    assert time.thread_time() - began < 5.0
    spaced = serialized(parse(proto3("message A {}")))
    assert parse(f" {spaced[:9]}\n{spaced[9:]}\n\n").file.message_type[0].name == "A"


def test_a_canonical_text_as_it_is_served() -> None:
    assert canonical(parse(RICH, linked({"item.proto": ITEM}))) == SERVED


SERVED = """\
syntax = "proto3";

package shop.v1;

import "google/protobuf/timestamp.proto";
import public "item.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/money.proto";

option java_package = "shop";
option optimize_for = SPEED;
option deprecated = true;
option (confluent.file_meta) = { doc: "h\\"é\\n" params { key: "a" value: "b" } };

message Order {
  option (confluent.message_meta) = { doc: "an order" };
  message First {
    int32 a = 1;
  }
  map<string, First> firsts = 9 [deprecated = true];
  string id = 1 [json_name = "ID", (confluent.field_meta) = { tags: "PII" tags: "KEY" }];
  optional Status status = 2;
  repeated int64 numbers = 3 [packed = false];
  oneof pay {
    string card = 4;
    confluent.type.Decimal cash = 5;
    google.type.Money money = 6;
  }
  message Second {
    First a = 1;
    Second again = 2;
  }
  map<int32, google.protobuf.Timestamp> times = 7;
  item.Item item = 8;
  enum Status {
    option allow_alias = true;
    NEW = 0;
    OPEN = 0;
    BAD = -1 [deprecated = true];
    reserved 5, 9 to max;
    reserved "X";
  }
  reserved 50 to 60, 70, 1000 to max;
  reserved "gone", "lost";
}

message Empty {}

service Orders {
  option deprecated = true;
  rpc Get(Order) returns (stream Empty) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
  rpc Put(stream Order) returns (Empty);
}
"""


def test_comments_white_space_option_order_and_the_spelling_of_names_do_not_matter() -> None:
    one = proto3("package p; message M { M.N n = 1 [deprecated = true, json_name = 'x']; message N {} }")
    other = proto3(
        'package p;\n// why\nmessage M {\n .p.M.N n = 1 [json_name = "x", deprecated = '
        "true];\n message N {} }"
    )
    assert canonical(parse(one)) == canonical(parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("message M { int32 a = 1; string b = 2; }", "message M { string b = 2; int32 a = 1; }"),
        ("message M { enum E { A = 0; B = 1; C = 2; } }", "message M { enum E { A = 0; C = 2; B = 1; } }"),
        ("enum E { A = 0; } enum F { B = 0; }", "enum F { B = 0; } enum E { A = 0; }"),
        (
            'import "google/protobuf/any.proto"; import "google/protobuf/api.proto";',
            'import "google/protobuf/api.proto"; import "google/protobuf/any.proto";',
        ),
        ("message M { reserved 2, 1; }", "message M { reserved 1, 2; }"),
        ('message M { reserved "b", "a"; }', 'message M { reserved "a", "b"; }'),
        (
            "message M { int32 c = 3; oneof o { int32 b = 2; int32 a = 1; } }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } int32 c = 3; }",
        ),
        (
            "message M { map<string, M> b = 2; map<string, M> a = 1; }",
            "message M { map<string, M> a = 1; map<string, M> b = 2; }",
        ),
        (
            "message M {} service T { rpc B(M) returns (M); rpc A(M) returns (M); } service S {}",
            "message M {} service S {} service T { rpc A(M) returns (M); rpc B(M) returns (M); }",
        ),
    ],
)
def test_order_matters_unless_it_is_normalized(one: str, other: str) -> None:
    first, second = parse(proto3(one)), parse(proto3(other))
    assert canonical(first) != canonical(second)
    assert normalized(first) == normalized(second)


def test_the_order_of_messages_and_the_first_value_of_an_enum_always_matter() -> None:
    # A serialized message names its type by index; the first value of an enum is its default.
    for one, other in (
        ("message M {} message N {}", "message N {} message M {}"),
        ("message M { message N {} message O {} }", "message M { message O {} message N {} }"),
        ("enum E { A = 1; B = 2; }", "enum E { B = 2; A = 1; }"),
    ):
        assert normalized(parse(proto2(one))) != normalized(parse(proto2(other)))


def test_normalized_names_are_written_in_full() -> None:
    text = normalized(parse(proto3("package p; message M { message N {} N n = 2; map<string, N> m = 1; }")))
    assert ".p.M.N n = 2;" in text and "map<string, .p.M.N> m = 1;" in text


def test_a_descriptor_of_generated_python_code_is_read() -> None:
    file = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    for each in file.message_type[0].field:
        each.ClearField("json_name")  # some generated code leaves it out
    schema = parse(base64.b64encode(file.SerializeToString()).decode())
    assert schema.file.message_type[0].field[0].json_name == "seconds"
    assert "message Timestamp {\n  int64 seconds = 1;\n  int32 nanos = 2;\n}" in canonical(schema)


def test_base64_may_import_what_is_named_or_built_in() -> None:
    named = linked({"item.proto": ITEM})
    file = parse(RICH, named).file
    text = base64.encodebytes(file.SerializeToString()).decode()  # in lines
    assert canonical(parse(text, named)) == SERVED
    with pytest.raises(InvalidSchema, match='Import "item.proto" was not found'):
        parse(text)


def test_a_schema_brings_its_imports_along_dependencies_first() -> None:
    named = linked({"home.proto": HOME, "unused.proto": HOME_MOVED, "street.proto": STREET})
    schema = parse(USES_STREET, named)
    assert list(schema.named) == ["home.proto", "street.proto"]
    # The imports of an import need not be named again.
    assert list(parse(USES_STREET, {"street.proto": named["street.proto"]}).named) == [
        "home.proto",
        "street.proto",
    ]


@pytest.mark.parametrize(
    "path",
    [
        *protobuf_imports.TEXTS,
        *(
            f"google/protobuf/{each}.proto"
            for each in (
                "any",
                "api",
                "descriptor",
                "duration",
                "empty",
                "field_mask",
                "source_context",
                "struct",
            )
        ),
        *(f"google/protobuf/{each}.proto" for each in ("timestamp", "type", "wrappers", "compiler/plugin")),
        "google/protobuf/java_features.proto",
    ],
)
def test_built_in_files_need_no_reference(path: str) -> None:
    schema = parse(proto3(f'import "{path}"; message M {{}}'))
    assert schema.imports[-1].name == path and not schema.named
    assert parse(serialized(schema)).file == schema.file


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the schema is empty"),
        (" \n", "the schema is empty"),
        ("hello", "neither .proto text nor base64 of a FileDescriptorProto"),
        ("aGVsbG8=", "neither .proto text nor base64 of a FileDescriptorProto"),
        ("aGVsbG8", "neither .proto text nor base64 of a FileDescriptorProto"),
        (proto3("message M {}\0"), "null byte"),
        (proto3("// \ud800"), "not valid Unicode"),
        (proto3("message M {\n  int33 a = 1;\n}"), 'Protobuf: 3:3: "int33" is not defined.'),
        (proto3("message M {\n  int32 a = ;\n}"), "Protobuf: 3:13: Expected field number."),
        (proto3("message M { int32 a = 1; string b = 1; }"), "2:37: Field number 1 has already been used"),
        (proto3("message M { required int32 a = 1; }"), "2:22: Required fields are not allowed in proto3"),
        (proto3("enum E { A = 1; }"), "The first enum value must be zero"),
        (proto3('import "x.proto";'), 'Protobuf: 2:1: Import "x.proto" was not found'),
        (proto3('import "/etc/passwd";'), 'Protobuf: 2:1: Import "/etc/passwd" was not found'),
        (proto3('import "../secret.proto";'), 'Protobuf: 2:1: Import "../secret.proto" was not found'),
        (proto3('import "default";'), "recursively imports itself"),
        ('{"type": "string"}', "1:1: "),
    ],
)
def test_a_wrong_schema_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse(text)
    assert said in refused.value.message
    assert "hub-protoc-" not in refused.value.message and "/tmp" not in refused.value.message


def test_many_errors_are_told_in_a_few() -> None:
    with pytest.raises(InvalidSchema, match=r"2:13: .*; and 15 more") as refused:
        parse(proto3("message M { " + "".join(f"x{each} a{each} = {each};" for each in range(1, 21)) + "}"))
    assert len(refused.value.message) < 500


def test_nothing_is_told_of_files_beside_protoc() -> None:
    for path in ("site/python3.11/greenlet/greenlet.h", "imports", protobuf.__file__):
        with pytest.raises(InvalidSchema) as refused:
            parse(proto3(f'import "{path}"; message M {{}}'))
        assert "was not found" in refused.value.message and "top-level" not in refused.value.message


def test_what_protoc_finds_by_itself_is_refused_unless_it_is_built_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protobuf, "_BROUGHT_ALONG", re.compile("nothing"))
    with pytest.raises(InvalidSchema, match='Import "google/protobuf/any.proto" was not found'):
        parse(proto3('import "google/protobuf/any.proto"; message Found {}'))


def test_a_schema_that_would_not_come_back_the_same_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "written", lambda *_: proto3("message Other {}"))
    with pytest.raises(InvalidSchema, match="cannot be written back unchanged"):
        parse(proto3("message Unprintable {}"))


def _nested(depth: int) -> str:
    return proto3("message A {" * depth + "}" * depth)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/" * 1_048_577, "1048577 characters"),
        (_nested(33), "maximum recursion limit"),
        (_nested(20_000), "maximum recursion limit"),
        (
            proto3("message M {" + "".join(f"int32 a{each} = {each};" for each in range(1, 5_002)) + "}"),
            "5001 fields",
        ),
        (proto3("".join(f"message M{each} {{}}" for each in range(2_001))), "2001 messages"),
        (
            proto3("enum E {" + "".join(f"A{each} = {each};" for each in range(50_001)) + "}"),
            "50001 enum values",
        ),
        # grows when it is written in lines
        (
            proto3(
                "message A {" * 30
                + "enum E {"
                + "".join(f"a{each}={each};" for each in range(20_000))
                + "}" * 31
            ),
            "written out, the schema has",
        ),
        # takes protoc's stack
        (
            proto2(
                'import "google/protobuf/descriptor.proto"; message M { optional M m = 1; }'
                "extend google.protobuf.FileOptions { optional M m = 50001; }"
                f"option (m) = {'{m ' * 100_000}{'}' * 100_000};"
            ),
            "protoc gave up",
        ),
    ],
    ids=["size", "depth", "great depth", "fields", "messages", "values", "indents", "options"],
)
def test_bombs_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        parse(text)


def test_a_descriptor_that_lacks_what_it_must_have_is_refused() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    file.message_type.add(name="A").options.uninterpreted_option.add().name.add()
    with pytest.raises(InvalidSchema, match="missing required fields"):
        parse(base64.b64encode(file.SerializePartialToString()).decode())


def test_each_of_thousands_of_oneofs_is_written_in_its_turn() -> None:
    oneofs = "".join(f"oneof o{index} {{ int32 a{index} = {index + 1}; }}" for index in range(4_900))
    with costs_at_most(200):
        found = parse(f'syntax = "proto3"; message A {{ {oneofs} }}')
        assert canonical(found).count("oneof") == 4_900


def test_a_group_that_is_no_nested_message_is_refused() -> None:
    file = FileDescriptorProto(name="x", syntax="proto2")
    field = file.message_type.add(name="A").field.add(name="a", number=1, type_name=".A")
    field.label, field.type = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.TYPE_GROUP
    with pytest.raises(InvalidSchema, match="the group a is not nested"):
        parse(base64.b64encode(file.SerializeToString()).decode())


def test_a_nested_bomb_in_base64_is_refused() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    inner: Any = file.message_type.add(name="A")
    for _ in range(40):
        inner = inner.nested_type.add(name="A")
    with pytest.raises(InvalidSchema, match="nested deeper than 32"):
        parse(base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("name", "type_name"), [("M {} message N", ""), ("M", ".nowhere.X"), ("", ""), ('M"', "")], ids=str
)
def test_a_descriptor_that_is_none_is_refused(name: str, type_name: str) -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    message = file.message_type.add(name=name)
    if type_name:
        message.field.add(name="a", number=1, label=1, type=11, type_name=type_name)
    with pytest.raises(InvalidSchema, match="not valid Protobuf"):
        parse(base64.b64encode(file.SerializeToString()).decode())


def test_a_descriptor_that_only_protoc_sees_through_is_refused() -> None:
    file = FileDescriptorProto(name="x", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, label=1, type=5)
    message.reserved_range.add(start=1, end=2)
    DescriptorPool().Add(file)
    with pytest.raises(InvalidSchema, match="uses reserved number 1"):
        parse(base64.b64encode(file.SerializeToString()).decode())


# ---- the child process


def test_a_known_schema_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    text, named = (
        proto3('import "home.proto"; message Known { home.Home h = 1; }'),
        linked({"home.proto": HOME}),
    )
    first = parse(text, named)
    served = canonical(first)
    parse(served, named)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert parse(text, linked({"home.proto": HOME})) == first
    assert canonical(parse(served, named)) == served
    with pytest.raises(TypeError):  # with another import it is another schema
        parse(text, {"home.proto": first})


def test_a_slow_compiler_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "TIMEOUT_S", 0.0)
    with pytest.raises(InvalidSchema, match="took protoc longer than"):
        protoc.compiled(proto3("message Slow {}"), [])


def test_a_reference_may_have_any_name() -> None:
    # as bad as "default", which is what a file without a name is called
    named = linked({"default.proto": HOME, "a b/ü.proto": HOME_MOVED})
    text = proto3(
        'import "default.proto"; import "a b/ü.proto"; message M { home.Home a = 1; house.Home b = 2; }'
    )
    schema = parse(text, named)
    assert canonical(parse(canonical(schema), named)) == canonical(schema)


@pytest.mark.parametrize("path", ["confluent/type/decimal.proto", "google/protobuf/mine.proto"])
def test_a_reference_stands_in_for_a_file_that_is_not_googles(path: str) -> None:
    named = linked({path: proto3("package own; message Own { string digits = 1; }")})
    schema = parse(proto3(f'import "{path}"; message M {{ own.Own d = 1; }}'), named)
    assert schema.imports[-1].message_type[0].name == "Own" and list(schema.named) == [path]


def test_a_reference_to_one_of_googles_files_is_that_file() -> None:
    named = linked({"google/protobuf/timestamp.proto": HOME})
    text = proto3('import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }')
    schema = parse(text, named)
    assert schema.imports[-1].message_type[0].name == "Timestamp" and not schema.named
    assert parse(serialized(schema), named) == schema


def test_a_made_up_import_path_of_a_descriptor_is_refused() -> None:
    for path in (
        'google/protobuf/any.proto"; import "google/protobuf/api.proto',
        "google/protobuf/none.proto",
    ):
        file = FileDescriptorProto(name="x", syntax="proto3", dependency=[path])
        with pytest.raises(InvalidSchema, match="was not found"):
            parse(base64.b64encode(file.SerializeToString()).decode())


def test_descriptors_of_options_are_read_with_the_file() -> None:
    # descriptor.proto itself is a schema that people register as a reference
    file = FileDescriptorProto()
    descriptor_pb2.DESCRIPTOR.CopyToProto(file)
    schema = parse(base64.b64encode(file.SerializeToString()).decode())
    assert canonical(parse(canonical(schema))) == canonical(schema)
