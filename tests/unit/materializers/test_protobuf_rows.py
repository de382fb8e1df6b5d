"""Protobuf messages as Arrow columns: what each kind of field becomes, and what cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from event_schemas import PROTO

from hub.materializers.golden.values import encoder_of
from hub.materializers.spark.formats.protobuf_rows import BROKEN, columns_of
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.ddl import columns_ddl
from hub.materializers.types.source_formats import of_registry, reading_of
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.compat.resolved_schema import SchemaSource

SCHEMA = of_registry(SchemaSource.of("PROTOBUF", PROTO))


def rows(
    *bodies: bytes | None, columns: list[str] | None = None, schema: AvroType = SCHEMA
) -> list[dict[str, Any]]:
    reading = reading_of(schema)
    assert reading is not None
    wanted = columns or list(field_types(schema))
    found: list[dict[str, Any]] = columns_of(
        pa.array(bodies, pa.binary()), reading.files, reading.message, wanted
    ).to_pylist()
    return found


def test_every_kind_of_field() -> None:
    at = "2024-03-01T10:00:00.123456Z"
    value = {
        "id": "o1",
        "big": 2**64 - 1,
        "small": -5,
        "number": 2**32 - 1,
        "flag": False,
        "status": "SHUT",
        "lines": [{"product": "tea", "price": 1.5}, {}],
        "card": "visa",
        "by_number": {"7": {"product": "jam"}},
        "at": at,
        "maybe": 0,
        "any": {"b": [1, None], "a": "x"},
        "raw": "aGk=",
        "before": {"id": "left out"},
        "nothing": {},
        "f": 0.5,
    }
    (row,) = rows(encoder_of(SCHEMA)(value))
    assert row.pop(BROKEN) is None
    assert dict(row.pop("by_number")) == {"7": {"product": "jam", "price": 0.0}}
    assert orjson.loads(row.pop("any")) == {"a": "x", "b": [1, None]}
    assert row == {
        "id": "o1",
        "big": Decimal(2**64 - 1),
        "small": -5,
        "number": 2**32 - 1,
        "flag": False,
        "status": "SHUT",
        "lines": [{"product": "tea", "price": 1.5}, {"product": "", "price": 0.0}],
        "card": "visa",
        "voucher": None,
        "at": datetime(2024, 3, 1, 10, 0, 0, 123456, UTC),
        "maybe": 0,
        "raw": b"hi",
        "nothing": True,
        "f": 0.5,
    }


def test_what_was_not_written_is_null_where_the_message_can_tell_and_else_the_default() -> None:
    (row,) = rows(b"\x00")
    assert row == {
        **dict.fromkeys(("flag", "card", "voucher", "at", "maybe", "any", "nothing", BROKEN)),
        "id": "",
        "big": Decimal(0),
        "small": 0,
        "number": 0,
        "status": "OPEN",
        "f": 0.0,
        "raw": b"",
        "lines": [],
        "by_number": [],
    }


def test_a_number_that_the_enum_does_not_have_is_its_text_and_unknown_fields_are_left_out() -> None:
    assert rows(b"\x00\x30\x09" + b"\xfa\x01\x01x", columns=["status"]) == [{"status": "9", BROKEN: None}]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x00\x0a\x05ab", "no shop.Order: "),
        (b"\x00\xff", "no shop.Order: "),
        (b"\x00\x0a\x02\xff\xfe", "no shop.Order: "),
        (b"", "cut off"),
        (b"\x02\x02", "it is message [1] of its file; the view reads shop.Order"),
        (b"\x04\x00\x02", "it is message [0, 1] of its file"),
        (b"\x7f", "of its file"),
        (b"\x00\x5a\x0c\x08" + b"\xff" * 8 + b"\x7f\x10\x00", "is not a time"),
    ],
)
def test_what_cannot_be_read_is_told_and_leaves_the_others_alone(body: bytes, why: str) -> None:
    good = encoder_of(SCHEMA)({"id": "o1"})
    first, bad, last = rows(good, body, good, columns=["id", "at"])
    assert (first["id"], last["id"]) == ("o1", "o1")
    assert why in bad[BROKEN]
    assert bad["id"] is None


def test_a_text_of_proto2_that_is_no_utf_8_refuses_its_event_alone() -> None:
    schema = of_registry(
        SchemaSource.of(
            "PROTOBUF",
            'syntax = "proto2"; message Order { optional string id = 1; repeated string tags = 2; '
            "map<string, string> named = 3; map<int32, bool> marks = 4; }",
        )
    )
    good = b"\x00\x0a\x02o1\x12\x01t\x1a\x06\x0a\x01k\x12\x01v\x22\x04\x08\x07\x10\x01"
    bad = (
        b"\x00\x0a\x02\xff\xfe",
        b"\x00\x12\x02\xff\xfe",
        b"\x00\x1a\x05\x0a\x01\xff\x12\x00",
        b"\x00\x1a\x05\x0a\x00\x12\x01\xff",
    )
    first, *others, last = rows(good, *bad, good, schema=schema)
    assert first == last
    assert first == {"id": "o1", "tags": ["t"], "named": [("k", "v")], "marks": [("7", True)], BROKEN: None}
    for row in others:
        assert row["id"] is None and "is not UTF-8" in row[BROKEN]


def test_a_message_inside_itself_further_down_is_left_out_as_its_columns_say() -> None:
    schema = of_registry(
        SchemaSource.of(
            "PROTOBUF",
            'syntax = "proto3"; message Order { Item item = 1; } message Item { string sku = '
            "1; Links links = 2; } "
            "message Links { repeated Order orders = 1; string title = 2; }",
        )
    )
    assert columns_ddl(schema, ["item"]) == ["`item`:struct<`sku`:string,`links`:struct<`title`:string>>"]
    body = encoder_of(schema)({"item": {"sku": "s", "links": {"title": "t", "orders": [{}]}}})
    assert rows(body, schema=schema) == [{"item": {"sku": "s", "links": {"title": "t"}}, BROKEN: None}]


def test_the_first_message_may_be_written_as_a_list_of_indexes_and_null_is_null() -> None:
    assert rows(b"\x02\x00\x0a\x01x", None, columns=["id"]) == [
        {"id": "x", BROKEN: None},
        {"id": None, BROKEN: None},
    ]


def test_a_value_that_is_no_such_message_is_told() -> None:
    with pytest.raises(Unfit, match="colour"):
        encoder_of(SCHEMA)({"colour": 1})
