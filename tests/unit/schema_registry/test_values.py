"""JSON values in the formats' own bytes: what a serializer of that format would read,
and what is refused, by path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.codecs.values import check_of, decoder_of, encoder_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema

MONEY = SchemaSource.of(
    "JSON", '{"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}'
)
ORDER = SchemaSource.of(
    "JSON",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "string", "pattern": "^(o+)+$"},
                "lines": {"type": "array", "items": {"$ref": "money.json"}},
            },
            "additionalProperties": False,
        }
    ),
    (("money.json", MONEY),),
)
PRICE = SchemaSource.of("PROTOBUF", 'syntax = "proto3"; package a; message Price { int64 cents = 1; }')
SALE = SchemaSource.of(
    "PROTOBUF",
    """syntax = "proto3";
    import "price.proto"; import "google/protobuf/timestamp.proto";
    message Sale { string id = 1; a.Price price = 2; google.protobuf.Timestamp at = 3; message Line { int32 n = 1; } }
    message Other { bool yes = 1; }""",  # noqa: E501
    (("price.proto", PRICE),),
)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (ORDER, {"id": "ooo", "lines": [{"cents": 1}]}),
        (SALE, {"id": "s", "price": {"cents": "9007199254740993"}, "at": "2026-01-01T00:00:00Z"}),
        (SchemaSource.of("AVRO", '{"type": "map", "values": "long"}'), {"a": 1}),
    ],
)
def test_what_is_written_is_what_is_taken(source: SchemaSource, value: object) -> None:
    body = encoder_of(source).body(value)
    record = b"\x00\x00\x00\x00\x01" + body
    assert check_of(source)(record, 5) == len(record)


def test_protobuf_begins_with_the_place_of_its_message() -> None:
    assert encoder_of(SALE).body({"id": "s"}) == b"\x00\x0a\x01s"
    check = check_of(SALE)
    assert check(b"\x02\x02\x08\x01", 0) == 4  # the file's second message: count 1, index 1
    assert check(b"\x04\x00\x00\x08\x07", 0) == 5  # Sale.Line: count 2, indexes 0 and 0
    for wrong in (b"", b"\x02", b"\x02\x08", b"\x04\x00\x04", b"\x03\x00", b"\x00\x0a\x05s", b"\xff" * 9):
        with pytest.raises(BrokenValue):
            check(wrong, 0)


@pytest.mark.parametrize(
    ("source", "value", "said"),
    [
        (ORDER, {"id": 1}, 'value.id: 1 is not of type "string"'),
        (ORDER, {"lines": [{}, {}]}, 'value.lines[0]: "cents" is a required property'),
        (ORDER, {"more": 1}, "value: Additional properties"),
        (ORDER, {"id": "o" * 60 + "!"}, "value.id"),  # a pattern that would run for ever
        (SALE, {"id": 5}, "value: "),
        (SALE, {"nope": 5}, 'no field named "nope"'),
        (SALE, [], "a message is a JSON object"),
        (
            SchemaSource.of("PROTOBUF", 'syntax = "proto2"; message M { required int32 a = 1; }'),
            {},
            "required fields: a",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_path(source: SchemaSource, value: object, said: str) -> None:
    with pytest.raises(Unfit) as refused:
        encoder_of(source).body(value)
    assert said in refused.value.message


def test_a_time_is_one_on_its_own_base_only() -> None:
    def read(kind: str) -> Any:
        field = {"name": "a", "type": {"type": kind, "logicalType": "timestamp-micros"}}
        source = SchemaSource.of("AVRO", json.dumps({"type": "record", "name": "R", "fields": [field]}))
        return decoder_of(source)(b"\x90\x4e", 0)["a"]

    assert (read("long"), read("int")) == (5, 5_000)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        array("null"),
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": array(EMPTY)}]},
        ["int", array({"type": "fixed", "name": "F", "size": 0})],
    ],
)
def test_items_that_take_no_bytes_are_not_made_by_the_billion(schema: Any) -> None:
    text = json.dumps(schema)
    body = (b"\x02" if text.startswith("[") else b"") + b"\xff" * 8 + b"\x7f\x00" + b"\x00"
    with pytest.raises(BrokenValue, match="more than are shown"):
        decoder_of(SchemaSource.of("AVRO", text))(body, 0)
    small = body[: len(body) - 11] + b"\x06\x00"
    found = decoder_of(SchemaSource.of("AVRO", text))(small, 0)
    assert len(found["a"] if isinstance(found, dict) else found) == 3


def test_long_integers_are_written_as_they_are() -> None:
    source = SchemaSource.of(
        "JSON", '{"properties": {"n": {"type": "integer", "maximum": 18446744073709551616}}}'
    )
    body = encoder_of(source).body({"n": 1 << 64})
    assert body == b'{"n":18446744073709551616}'
    assert check_of(source)(b"12345" + body, 5) == 5 + len(body)
    assert decoder_of(source, exact=True)(body, 0) == {"n": 1 << 64}
    assert str(decoder_of(source)(body, 0)) == "{'n': 1.8446744073709552e+19}"
    with pytest.raises(Unfit, match=r"value\.n: 18446744073709551617 is greater"):
        encoder_of(source).body({"n": (1 << 64) + 1})


@pytest.mark.parametrize("value", [{"any": {"@type": 5}}, {"any": {"@type": []}}, {"d": 10**400}])
def test_what_protobufs_own_parser_trips_over_is_unfit(value: object) -> None:
    message = "google.protobuf.Any any = 1; double d = 2;"
    text = f'syntax = "proto3"; import "google/protobuf/any.proto"; message M {{ {message} }}'
    with pytest.raises(Unfit):
        encoder_of(SchemaSource.of("PROTOBUF", text)).body(value)


def test_bytes_that_are_not_what_the_schema_says_are_broken() -> None:
    for wrong in (b"{", b'{"id": 1}', b"\xff"):
        with pytest.raises(BrokenValue):
            check_of(ORDER)(wrong, 0)


def test_a_file_without_a_message_has_no_values() -> None:
    with pytest.raises(InvalidSchema, match="no message"):
        encoder_of(SchemaSource.of("PROTOBUF", 'syntax = "proto3"; enum E { A = 0; }'))


def test_json_that_is_deeper_than_it_can_be_written_is_unfit_and_harms_nobody() -> None:
    source = SchemaSource.of("JSON", '{"type": "object"}')
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(Unfit, match="value: .*[Rr]ecursion"):
        encoder_of(source).body(deep)
    with pytest.raises(BrokenValue):
        check_of(source)(b'{"a":' * 300 + b"1" + b"}" * 300, 0)
