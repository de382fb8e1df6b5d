"""Resolution decided before decoding, against the two libraries that resolve while they decode:
Apache's and fastavro."""

from __future__ import annotations

import io
import json
from typing import Any

import avro.errors
import avro.io
import avro.schema
import fastavro
import pytest
from avro_evolutions import EVOLUTIONS, OURS, Evolution, record

from hub.schema_registry.codecs.avro_resolution import resolve

# Apache's library for Python knows neither aliases nor defaults of enums, and promotes nothing within lists
# or to and from bytes. (Its library for Java, which Spark has, does:
# tests/integration/test_schema_evolution.py.)
_NOT_FOR_APACHE = {
    "a field is renamed by its alias, and another one is dropped",
    "a nested record and its field are renamed",
    "a renamed record within a union",
    "items of an array are widened",
    "string to bytes",
    "bytes to string",
    "an unknown symbol has the enum's default",
    "an unknown symbol in a list",
}
_ALIASES = {name for name in _NOT_FOR_APACHE if "renamed" in name}


def plain(schema: Any) -> Any:
    """Without logical types: values are compared as they are written."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: plain(each) if key != "default" else each
            for key, each in schema.items()
            if key != "logicalType"
        }
    return schema


def written(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain(schema)), value)
    return body.getvalue()


def by_fastavro(body: bytes, writer: Any, reader: Any) -> Any:
    """Decode with fastavro; None when it refuses the value."""
    try:
        return fastavro.schemaless_reader(io.BytesIO(body), plain(writer), plain(reader))
    except (
        fastavro.schema.SchemaParseException,
        fastavro.read.SchemaResolutionError,
        ValueError,
        KeyError,
        TypeError,
    ):
        return None


def by_apache(body: bytes, writer: Any, reader: Any) -> Any:
    both = [avro.schema.parse(json.dumps(plain(each))) for each in (writer, reader)]
    try:
        return avro.io.DatumReader(*both).read(avro.io.BinaryDecoder(io.BytesIO(body)))
    except (avro.errors.AvroException, avro.errors.SchemaResolutionException, ValueError):
        return None


def ids(each: Evolution) -> str:
    return each.name


@pytest.mark.parametrize("of", EVOLUTIONS, ids=ids)
def test_what_is_expected_is_what_a_library_makes_of_the_schemas_as_they_are(of: Evolution) -> None:
    """The matrix itself is right: one library at least agrees with each line of it."""
    body = written(of.writer, of.value)
    found = [by_fastavro(body, of.writer, of.reader)]
    if of.name not in _NOT_FOR_APACHE:
        found.append(by_apache(body, of.writer, of.reader))
    assert of.expected in found


@pytest.mark.parametrize("of", [*EVOLUTIONS, *OURS], ids=ids)
def test_resolved_schemas_give_every_decoder_the_same_values(of: Evolution) -> None:
    body = written(of.writer, of.value)
    both = resolve(of.writer, of.reader)
    assert by_fastavro(body, both.writer, both.reader) == of.expected
    if of.name not in _NOT_FOR_APACHE - _ALIASES:  # the resolved schemas have no aliases
        assert by_apache(body, both.writer, both.reader) == of.expected
    assert of.problem in " ".join(both.problems)
    assert bool(of.problem) == bool(both.problems)


def test_columns_that_are_not_wanted_are_skipped_and_what_only_the_writer_has_can_be_kept() -> None:
    writer, reader = (
        record("O", a="long", b="string", c="long"),
        record("O", c="long", d=("long", {"default": 4}), a="long"),
    )
    body = written(writer, {"a": 1, "b": "x", "c": 3})
    some = resolve(writer, reader, ["d", "c"])
    assert by_fastavro(body, some.writer, some.reader) == {"c": 3, "d": 4}
    whole = resolve(writer, reader, unread=True)
    assert by_fastavro(body, whole.writer, whole.reader) == {"c": 3, "d": 4, "a": 1, "b": "x"}


def test_one_type_in_two_places_is_resolved_for_each() -> None:
    """The writer has one record twice, the reader two records:
    libraries that go by name would read one as the other."""
    money = record("Money", cents="long")
    writer = record("O", net=money, gross="shop.Money")
    reader = record(
        "O",
        net=record("Net", cents="double"),
        gross=(["null", {**record("Gross", c=("long", {"aliases": ["cents"]})), "aliases": ["Money"]}], {}),
    )
    body = written(writer, {"net": {"cents": 1}, "gross": {"cents": 2}})
    both = resolve(writer, reader)
    assert by_fastavro(body, both.writer, both.reader) == {"net": {"cents": 1.0}, "gross": {"c": 2}}
    assert by_apache(body, both.writer, both.reader) == {"net": {"cents": 1.0}, "gross": {"c": 2}}


def test_a_type_within_itself_resolves() -> None:
    node = record("Node", v="int", next=["null", "shop.Node"])
    wider = record("Node", v="long", next=["null", "shop.Node"], n=("int", {"default": 7}))
    value = {"v": 1, "next": {"v": 2, "next": None}}
    both = resolve(node, wider)
    expected = {"v": 1, "next": {"v": 2, "next": None, "n": 7}, "n": 7}
    assert by_fastavro(written(node, value), both.writer, both.reader) == expected


def test_branches_of_a_union_that_are_records_are_told_apart() -> None:
    a, b = record("A", x="long"), record("B", x="long")
    writer = record("O", f=[a, b])
    reader = record(
        "O", f=["null", {**b, "fields": [*b["fields"], {"name": "y", "type": "int", "default": 1}]}, a]
    )
    both = resolve(writer, reader)
    body = written(writer, {"f": ("shop.B", {"x": 5})})
    assert by_fastavro(body, both.writer, both.reader) == {"f": {"x": 5, "y": 1}}
    assert by_apache(body, both.writer, both.reader) == {"f": {"x": 5, "y": 1}}
    gone = resolve(writer, record("O", f=["null", record("C", z=("long", {"default": 1}))]))
    assert [each.partition(" is ")[0] for each in gone.problems] in (
        ["f: shop.A", "f: shop.B"],
        ["f: shop.B"],
        [],
    )
