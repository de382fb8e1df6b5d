"""Avro: accepted schemas, and read compatibility.

Expected results are those of Java (org.apache.avro 1.12.1), which Confluent's registry uses.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from effort import costs_at_most

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import format as avro_format
from hub.schema_registry.formats.avro.format import AvroSchema, differences


def schema(raw: Any) -> AvroSchema:
    return avro_format.parse(json.dumps(raw))


def record(name: str, *fields: Any, kind: str = "record", **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def rules(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(each.rule, each.path) for each in differences(schema(reader), schema(writer))]


def test_an_error_is_a_record() -> None:
    error = record("Failure", field("code", "int"), kind="error")
    assert rules(error, error) == []
    assert rules(record("Failure", field("code", "long")), error) == []
    text = record("Failure", field("code", "string"), kind="error")
    assert rules(text, error) == [("TYPE_MISMATCH", "/fields/0/type")]


@pytest.mark.parametrize(
    "reads",
    [field("b", "int", aliases=["a"]), field("c", "int", aliases=["a", "b"])],
)
def test_a_field_that_two_of_the_writers_would_be_cannot_be_read(reads: Any) -> None:
    two = record("R", field("a", "int"), field("b", "int"))
    assert rules(record("R", reads), two) == [("READER_FIELD_AMBIGUOUS", "/fields/0")]
    assert rules(record("R", reads), record("R", field("a", "int"))) == []


def test_an_alias_that_is_the_fields_own_name_is_no_second_one() -> None:
    own = record("R", field("a", "int", aliases=["a"]))
    assert rules(own, own) == []


def test_a_type_without_a_namespace_keeps_none_within_one() -> None:
    def around(*more: Any, name: str = "Money", **aliases: Any) -> dict[str, Any]:
        money = record(name, field("cents", "long"), namespace="", **aliases)
        return record("Order", field("net", money), *more, namespace="shop")

    assert rules(around(name="Sum", aliases=["Money"]), around()) == []
    assert rules(around(name="Sum", aliases=["shop.Money"]), around()) == [
        ("NAME_MISMATCH", "/fields/0/type/name")
    ]
    apart = around(field("tax", record("Money", field("parts", "long"))))
    assert rules(apart, apart) == [], "Money and shop.Money are two types"
    assert avro_format.canonical(schema(apart)).count('"namespace":""') == 1


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            ["null", {"type": "fixed", "name": "F", "namespace": "n", "size": 1}, "n.F"],
            "a union has n.F twice",
        ),
        (record("R", field("next", ["R", "null", "R"])), "a union has R twice"),
        (record("R", field("a", "double", default="much")), 'the default "much" is not a valid double'),
        (record("R", field("a", {"type": "float"}, default="")), 'the default "" is not a valid float'),
        (record("R", field("a", "int", aliases=[["b"]])), '"aliases" of "a" is not a list of names'),
    ],
)
def test_what_java_does_not_parse_is_no_schema(raw: Any, said: str) -> None:
    with pytest.raises(InvalidSchema, match=f"not valid Avro: {said}"):
        schema(raw)


@pytest.mark.parametrize("default", ["1.5", "-1e3", "NaN", "-Infinity", " .5f", 1.5, None, True])
def test_other_defaults_of_the_wrong_type_are_taken_as_by_confluent(default: Any) -> None:
    schema(record("R", field("a", "double", default=default)))


@pytest.mark.parametrize("fields", [True, "a", {"a": 1}])
def test_a_property_called_fields_makes_no_record(fields: Any) -> None:
    odd = schema(record("R", field("a", {"type": "array", "items": "int", "fields": fields})))
    assert json.loads(avro_format.resolved(odd))["fields"][0]["type"]["fields"] == fields
    assert avro_format.field_names(odd) == ["a"]
    assert avro_format.field_names(schema({"type": "int", "fields": fields})) == []


# ---- bombs


def test_a_union_of_many_records_is_compared_name_by_name() -> None:
    def events(*more: Any) -> list[Any]:
        fields = [field(f"f{index}", ["null", "string", "int"]) for index in range(40)]
        return [record(f"Event{index}", *fields, *(more if index == 50 else ())) for index in range(100)]

    with costs_at_most(400):
        assert rules(events(), events()) == []
        (found,) = rules(events(field("new", "int")), events())
    assert found == ("MISSING_UNION_BRANCH", "/50")


def test_fields_of_a_wide_record_are_looked_up() -> None:
    before = record("R", *(field(f"old{index}", "int") for index in range(4_990)))
    after = record("R", *(field(f"new{index}", "int", aliases=[f"old{index}"]) for index in range(4_990)))
    with costs_at_most(400):  # most of it is the library's
        new, old = schema(after), schema(before)
    with costs_at_most(160):
        assert differences(new, old) == differences(new, new) == []


def test_symbols_of_a_large_enum_are_looked_up() -> None:
    large = {"type": "enum", "name": "E", "symbols": [f"s{index}" for index in range(45_000)]}
    new = record("R", field("e", large), field("a", "string"))
    with costs_at_most(400):
        assert rules(new, record("R", field("e", large), field("a", "int"))) == [
            ("TYPE_MISMATCH", "/fields/1/type")
        ]


@pytest.mark.timeout(30)
def test_what_is_too_much_work_is_refused() -> None:
    many = schema([{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(1_000)])
    with pytest.raises(InvalidSchema, match="more than 200000 steps"):
        differences(many, many)
