"""Schema diffs in plain words: a table for each format, and read compatibility."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import pytest
from effort import costs_at_most
from hypothesis import given
from hypothesis import strategies as st

from hub.schema_registry.folder.diff import diff_schemas, readers
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.registry.snapshot import ParsedSchema, parse


def said(schema_type: str, old: Any, new: Any) -> list[str]:
    before, after = (
        parse(schema_type, each if isinstance(each, str) and schema_type == "PROTOBUF" else json.dumps(each))
        for each in (old, new)
    )
    return [str(each) for each in diff_schemas(schema_type, before, after)]


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    made = [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields]
    return {"type": "record", "name": "R", "fields": made, **more}


A = ("a", "int")
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
ITEM = record(("qty", "int"), ("price", "double")) | {"name": "Item"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (record(A), record(A), []),
        (record(A), record(A, ("b", "string")), ["field `b` (string, without a default) is added"]),
        (record(A), record(A, {"name": "b", "type": ["null", "string"], "default": None}),
         ["field `b` (nullable string, default null) is added"]),
        (record(A, ("b", "string")), record(A), ["field `b` (string) is removed"]),
        (record(A), record({"name": "b", "type": "int", "aliases": ["a"]}),
         ["field `a` is now called `b` (the old name is an alias)", "the aliases of field `b` are now `a`"]),
        (record(A), record(("a", "long")), ["field `a` was int and is long"]),
        (record(A), record(("a", ["null", "int"])), ["field `a` may be null now"]),
        (record(("a", ["null", "int"])), record(A), ["field `a` may not be null any more"]),
        (record(("a", ["int", "string"])), record(("a", ["int", "double"])),
         ["field `a` was int or string and is int or double"]),
        (record(("a", ["int", "string"])), record(("a", ["string", "int"])),
         ["the order of the types of field `a` was int, string and is string, int"]),
        (record(A), record({"name": "a", "type": "int", "default": 7}), ["field `a` got the default 7"]),
        (record({"name": "a", "type": "int", "default": 7}), record(A), ["field `a` lost its default 7"]),
        (record({"name": "a", "type": "int", "default": 7}), record({"name": "a", "type": "int",
        "default": 8}),
         ["the default of field `a` was 7 and is 8"]),
        (record({"name": "a", "type": "boolean", "default": True}), record({"name": "a", "type": "boolean",
        "default": False}),
         ["the default of field `a` was true and is false"]),
        (record({"name": "a", "type": "string", "default": "x" * 100 + "1"}), record({"name": "a",
        "type": "string", "default": "x" * 100 + "2"}),
         ["the default of field `a` was \"" + "x" * 76 + "… and is \"" + "x" * 76 + "…"]),
        (record(A), record({"name": "a", "type": "int", "doc": "x"}), ['field `a` got the doc "x"']),
        (record(A, doc="one"), record(A, doc="two"), ['the doc of record `R` is now "two"']),
        (record(A), record(A, name="S"), ["record `R` is now called `S`"]),
        (record(A), record(A, namespace="shop"), ["record `R` is now called `shop.R`"]),
        (record(A), record(A, name="S", aliases=["R"]),
         ["record `R` is now called `S` (the old name is an alias)"]),
        (record(A, ("b", "int")), record(("b", "int"), A), [("the order of the fields of "
        "record `R` changes: b, a")]),
        (record(("e", ENUM)), record(("e", ENUM | {"symbols": ["X", "Z"], "default": "X"})),
         ["enum `E` has new symbols: `Z`", "enum `E` lost symbols: `Y`", 'enum `E` got the default "X"']),
        (record(("e", ENUM)), record(("e", ENUM | {"symbols": ["Y", "X"]})),
         ["the order of the symbols of enum `E` changes"]),
        (record(("f", {"type": "fixed", "name": "F", "size": 2})), record(("f", {"type": "fixed", "name": "F",
        "size": 3})),
         ["fixed `F` had 2 bytes and has 3"]),
        (record(("t", {"type": "long", "logicalType": "timestamp-millis"})), record(("t", "long")),
         ["field `t` was timestamp-millis (long) and is long"]),
        (record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})),
         record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})),
         ["field `d` was decimal(4, 2) and is decimal(9, 2)"]),
        (record(("items", {"type": "array", "items": ITEM})),
         record(("items", {"type": "array", "items": ITEM | {"fields": [{"name": "qty", "type": "long"}]}})),
         ["field `items[].price` (double) is removed", "field `items[].qty` was int and is long"]),
        (record(("m", {"type": "map", "values": "int"})), record(("m", {"type": "map", "values": "string"})),
         ["`m{}` was int and is string"]),
        (record(("m", {"type": "map", "values": "int"})), record(("m", "int")), [("field `m` was "
        "map of int and is int")]),
        (record(("next", ["null", "R"])), record(("next", ["null", "R"]), A),
         ["field `a` (int, without a default) is added"]),
        (record(("x", ITEM), ("y", "Item")), record(("x", ITEM | {"doc": "d"}), ("y", "Item")),
         ['record `Item` got the doc "d"']),
        (record({"name": "a", "type": {"type": "string", "avro.java.string": "String"}}), record(("a",
        "string")), []),
        (record({"name": "a", "type": "int", "order": "ignore"}), record(A),
        ["field `a` now sorts ascending"]),
    ],
)  # fmt: skip
def test_avro(old: Any, new: Any, expected: list[str]) -> None:
    assert said("AVRO", old, new) == expected


def test_thousands_of_names_are_compared_in_a_moment() -> None:
    symbols = [
        {"type": "enum", "name": "E", "symbols": [f"{each}{n}" for n in range(20_000)]} for each in "XY"
    ]
    values = [{"enum": [f"{each}{n}" for n in range(9_000)]} for each in "xy"]
    fields = record(*((f"f{n}", "int") for n in range(4_000)))
    with costs_at_most(120):
        assert len(said("AVRO", *symbols)) == len(said("JSON", *values)) == 2
        assert said("AVRO", fields, fields) == []


def test_names_of_other_schemas_are_followed() -> None:
    def with_item(*fields: tuple[str, str]) -> ParsedSchema:
        named = {"Item": parse("AVRO", json.dumps(record(*fields) | {"name": "Item"})).schema}
        return parse("AVRO", json.dumps(record(("item", "Item"))), named)

    changes = diff_schemas("AVRO", with_item(A), with_item(A, ("b", "int")))
    assert [(each.kind, each.path) for each in changes] == [("field added", "item.b")]


def obj(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (obj({"a": INT}), obj({"a": INT}), []),
        (obj({"a": INT}), obj({"a": INT, "b": TEXT}), ["property `b` (string, optional) is added"]),
        (obj({"a": INT}), obj({"a": INT, "b": TEXT}, required=["b"]), [("property `b` "
        "(string, required) is added")]),
        (obj({"a": INT, "b": TEXT}), obj({"a": INT}), ["property `b` is removed"]),
        (obj({"a": INT}), obj({"a": TEXT}), ["`a` was integer and is string"]),
        (obj({"a": INT}), obj({"a": {"type": ["integer", "null"]}}), [("`a` was integer "
        "and is integer or null")]),
        (obj({"a": INT}), obj({"a": INT}, required=["a"]), ["property `a` is required now"]),
        (obj({"a": INT}, required=["a"]), obj({"a": INT}), ["property `a` is optional now"]),
        (obj({"a": TEXT}), obj({"a": TEXT | {"maxLength": 5}}), ["`a` got the maxLength 5"]),
        (obj({"a": TEXT}), obj({"a": TEXT | {"enum": ["x"]}}), ['`a` may only be `"x"`']),
        (obj({"a": {"enum": ["x", "y"]}}), obj({"a": {"enum": ["x", "z"]}}),
         ['`a` may also be `"z"`', '`a` may no longer be `"y"`']),
        (obj({}), obj({}, additionalProperties=False), ["the schema allows no other properties now"]),
        (obj({"a": {"type": "array", "items": INT}}), obj({"a": {"type": "array", "items": TEXT}}),
         ["`a[]` was integer and is string"]),
        (obj({"a": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": INT}}), obj({"a": {"$ref": "#/$defs/x"}},
        **{"$defs": {"x": TEXT}}),
         ["`a` was integer and is string"]),
        (obj({"a": {"$ref": "#"}}), obj({"a": {"$ref": "#"}, "b": INT}), [("property `b` "
        "(integer, optional) is added")]),
        (obj({"a": {"oneOf": [INT]}}), obj({"a": {"oneOf": [INT, TEXT]}}), [("`oneOf` of `a` "
        "had 1 schemas and has 2")]),
        (obj({"a": INT}, description="x"), obj({"a": INT}, description="y"), [('the description of '
        'the schema is now "y"')]),
        (obj({"a": obj({"b": INT})}), obj({"a": obj({"b": INT, "c": INT})}), [("property `a.c` "
        "(integer, optional) is added")]),
        (True, False, ["the schema was true and is false"]),
        (obj({"a": True, "b": True}), obj({"a": False, "b": False}), [("`a` was true and is "
        "false"), "`b` was true and is false"]),
        (obj({"a": {"enum": [1]}}), obj({"a": {"enum": [True]}}), [("`a` may also be "
        "`true`"), "`a` may no longer be `1`"]),
        (obj({"a": {"enum": [1]}}), obj({"a": {"enum": [1.0]}}), []),
        (obj({"a": {"const": 0, "x": [1]}}), obj({"a": {"const": False, "x": [True]}}), [("the const of `a` "
        "is now false"), "`x` of `a` changed"]),
        (obj({"a": INT | {"default": 1}}), obj({"a": INT | {"default": 1.0}}), []),
        (obj({"a": {"$ref": "#/definitions/b%20c"}}, definitions={"b c": INT}),
        obj({"a": {"$ref": "#/definitions/b%20c"}}, definitions={"b c": TEXT}),
         ["`a` was integer and is string"]),
        (obj({"a": {"$ref": "#x"}}, definitions={"b": INT | {"$id": "#x"}}), obj({"a": {"$ref": "#x"}},
        definitions={"b": TEXT | {"$id": "#x"}}),
         ["`a` was integer and is string"]),
        (obj({"a": {"$ref": "#/allOf/0"}}, allOf=[INT]), obj({"a": {"$ref": "#/allOf/0"}}, allOf=[TEXT]),
        ["`a` was integer and is string"]),
        (obj({"a": {"$ref": "#/definitions/b", "description": "x"}}, definitions={"b": INT}),
         obj({"a": {"$ref": "#/definitions/b", "description": "y"}}, definitions={"b": INT}),
         ['the description of `a` is now "y"']),
        (obj({}, definitions={"b": INT}), obj({}, definitions={"b": TEXT}),
        ["`definitions.b` was integer and is string"]),
    ],
)  # fmt: skip
def test_json_schema(old: Any, new: Any, expected: list[str]) -> None:
    assert said("JSON", old, new) == expected


P = 'syntax = "proto3"; package shop; message O { %s } %s'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (P % ("int32 a = 1;", ""), P % ("int32 a = 1; /* same */", ""), []),
        (P % ("int32 a = 1;", ""), P % ("int32 a = 1; string b = 2;", ""), [("field `O.b` "
        "(string, number 2) is added")]),
        (P % ("int32 a = 1; int32 b = 2;", ""), P % ("int32 a = 1;", ""),
         ["field `O.b` (int32, number 2) is removed; reserve its number: reserved 2;"]),
        (P % ("int32 a = 1; int32 b = 2;", ""), P % ("int32 a = 1; reserved 2;", ""),
         ["field `O.b` (int32, number 2) is removed; its number is reserved"]),
        (P % ("int32 a = 1;", ""), P % ("int32 z = 1;", ""), ["field `O.a` (number 1) is now called `O.z`"]),
        (P % ("int32 a = 1;", ""), P % ("repeated int64 a = 1;", ""), [("field `O.a` was int32 "
        "and is repeated int64")]),
        (P % ("map<string, int32> a = 1;", ""), P % ("map<string, string> a = 1;", ""),
         ["field `O.a` was map<string, int32> and is map<string, string>"]),
        (P % ("int32 a = 1;", ""), P % ("oneof k { int32 a = 1; }", ""),
         ["field `O.a` was in no oneof and is in the oneof `k`"]),
        (P % ("", "message X {}"), P % ("", "message Y {}"), ["message `X` is removed",
        "message `Y` is added"]),
        (P % ("enum E { A = 0; B = 1; }", ""), P % ("enum E { A = 0; C = 2; }", ""),
         ["enum `O.E` has new values: `C = 2`", "enum `O.E` lost values: `B = 1`"]),
        (P % ("", ""), (P % ("", "")).replace("shop", "store"), ["the package was `shop` and is `store`"]),
    ],
)  # fmt: skip
def test_protobuf(old: str, new: str, expected: list[str]) -> None:
    assert said("PROTOBUF", old, new) == expected


def test_who_can_read_whom_is_told_both_ways() -> None:
    old, new = (parse("AVRO", json.dumps(each)) for each in (record(A), record(A, ("b", "string"))))
    found = readers(old, new)
    assert found.new_reads_old and not found.old_reads_new
    lines = found.lines()
    assert lines[0] == "Consumers with the new schema can NOT read data written with the old one:"
    assert "give `b` a default" in lines[1]
    assert lines[2] == "Consumers with the old schema can read data written with the new one."


def test_another_schema_type_is_the_one_change() -> None:
    (change,) = diff_schemas("JSON", parse("AVRO", '"int"'), parse("JSON", "{}"))
    assert str(change) == "the schema type was AVRO and is JSON"


@pytest.mark.parametrize(
    "limit", [1_000, 10_000], ids=["Python's own limit", "a limit that a library raised"]
)
def test_types_that_are_chained_too_long_are_refused(limit: int, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(functools.partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(limit)

    def chain(last: str) -> Any:
        named: dict[str, Any] = {
            "T0": {"type": "record", "name": "T0", "fields": [{"name": "x", "type": last}]}
        }
        for n in range(1, 900):
            fields = [{"name": "x", "type": f"T{n - 1}"}]
            named[f"T{n}"] = {"type": "record", "name": f"T{n}", "fields": fields}
        return ParsedSchema("AVRO", record(("x", "T899")), named)

    with pytest.raises(InvalidSchema, match="chained too long"):
        diff_schemas("AVRO", chain("int"), chain("long"))


LEAVES = st.sampled_from(["int", "long", "string", {"type": "bytes"}, ["null", "double"]])
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}),
        inner.map(lambda each: {"type": "map", "values": each}),
    ),
    max_leaves=3,
)
RECORDS = st.dictionaries(st.sampled_from("abcd"), TYPES).map(lambda fields: record(*fields.items()))


@given(RECORDS, RECORDS)
def test_no_words_means_the_same_schema_and_the_same_schema_no_words(old: Any, new: Any) -> None:
    before, after = (parse("AVRO", json.dumps(each)) for each in (old, new))
    changes = diff_schemas("AVRO", before, after)
    assert (changes == []) == (before.normalized == after.normalized)
