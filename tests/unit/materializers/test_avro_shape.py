"""Schemas for reading and writing, checked with Apache's own Avro implementation (fastavro
resolves fewer cases)."""

from __future__ import annotations

import io
import json
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest

from hub.errors import CallerError
from hub.materializers.types.avro_types import PROOF, branch_bytes, changelog_schema, kind, projected, united

WRITER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {
            "name": "unused",
            "type": {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]},
        },
        {"name": "total", "type": "Money"},
        {"name": "rebate", "type": ["null", "shop.Money"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": "Money"}},
    ],
}


def read(writer: dict[str, Any], reader: dict[str, Any], value: dict[str, Any], of: dict[str, Any]) -> Any:
    """``of``: the schema that writes the value."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(of), value)
    decoder = avro.io.BinaryDecoder(io.BytesIO(body.getvalue()))
    return avro.io.DatumReader(
        avro.schema.parse(json.dumps(writer)), avro.schema.parse(json.dumps(reader))
    ).read(decoder)


ORDER = {
    "unused": {"cents": 1},
    "total": {"cents": 2},
    "rebate": None,
    "state": "PAID",
    "lines": [{"cents": 3}],
}


def test_a_projection_reads_its_columns_wherever_their_types_were_defined() -> None:
    both = projected(WRITER, WRITER, ["lines", "rebate", "total"])
    assert read(both.writer, both.reader, ORDER, of=WRITER) == {
        "total": {"cents": 2},
        "rebate": None,
        "lines": [{"cents": 3}],
        PROOF: True,
    }


def test_an_older_writer_without_a_column_reads_as_null() -> None:
    older = {**WRITER, "name": "OldOrder", "fields": WRITER["fields"][:2]}
    both = projected(older, WRITER, ["state", "total"])
    value = {"unused": {"cents": 1}, "total": {"cents": 2}}
    assert read(both.writer, both.reader, value, of=older) == {
        "total": {"cents": 2},
        "state": None,
        PROOF: True,
    }


@pytest.mark.parametrize("n", [0, 1, 2])
def test_one_union_reads_every_writer_as_its_own_reader_would(n: int) -> None:
    """Three writers with the same names inside: the prefix of the bytes identifies the writer."""
    older = {**WRITER, "fields": WRITER["fields"][:2]}
    renamed = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "total", "type": {"type": "record", "name": "Cents", "fields": [
            {"name": "cents", "type": "long"}]}}, {"name": "again", "type": ["null", "Cents"]}],
    }  # fmt: skip
    writers = [WRITER, older, renamed]
    values: list[dict[str, Any]] = [
        ORDER,
        {"unused": {"cents": 1}, "total": {"cents": 7}},
        {"total": {"cents": 9}, "again": {"cents": 1}},
    ]
    latest = (WRITER, WRITER, renamed)
    resolved = [
        projected(by, each, ["total"], f"_{at}")
        for at, (each, by) in enumerate(zip(latest, writers, strict=True))
    ]
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(writers[n]), values[n])
    decoder = avro.io.BinaryDecoder(io.BytesIO(branch_bytes(n) + body.getvalue()))
    unions = [united([each.writer for each in resolved]), united([each.reader for each in resolved])]
    both = [avro.schema.parse(json.dumps(each)) for each in unions]
    found = avro.io.DatumReader(*both).read(decoder)
    assert found == {"one": {"total": values[n]["total"], PROOF: True}}


def test_a_branch_beyond_63_takes_two_bytes() -> None:
    """Encode a long like Avro, zigzag and base 128 (specification 1.12, "Primitive Types")."""
    body = io.BytesIO()
    for n in (0, 62, 63, 300):
        fastavro.schemaless_writer(body, "long", n + 1)
    assert body.getvalue() == b"".join(branch_bytes(n) for n in (0, 62, 63, 300))


def test_kinds() -> None:
    assert kind(["null", "int"]) == "integer"
    assert kind({"type": "long", "logicalType": "timestamp-micros"}) == "timestamp"
    assert kind({"type": "enum", "name": "E", "symbols": ["A"]}) == "string"
    assert kind(["int", "string"]) == "other"


def test_a_changelog_s_schema_follows_spark_s_types() -> None:
    fields = [
        {"name": "at", "type": "timestamp"},
        {"name": "tags", "type": {"type": "array", "elementType": "string"}},
        {"name": "price", "type": "decimal(10,2)"},
        {"name": "place", "type": {"type": "struct", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "_version", "type": "long"},
    ]
    schema = changelog_schema("v", fields, required=["_version"])
    fastavro.parse_schema(schema)
    assert [field["name"] for field in schema["fields"] if "default" not in field] == ["_version"]


def test_a_type_that_avro_has_not_is_refused_by_name() -> None:
    with pytest.raises(CallerError, match='view "v": field "x" has the type void'):
        changelog_schema("v", [{"name": "x", "type": "void"}], required=[])
