"""Rows by generated functions are the rows that fastavro reads; bytes that do not fit stop the view in its words."""

from __future__ import annotations

import io
import json
import math
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.errors import HubFault
from hub.materializers.row_decoder import RowDecoder, reader_of
from hub.record import Record
from hub.schema_registry.codec import frame

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=200),
}
_numbers = iter(range(10**9))


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> tuple[Any, Any]:
    """A type and a value of it."""
    kinds = [*SIMPLE] + ([] if depth > 2 else ["array", "map", "record", "enum", "option", "time"])
    kind = draw(st.sampled_from(kinds))
    if kind in SIMPLE:
        return kind, draw(SIMPLE[kind])
    if kind == "enum":
        symbols = ["A", "B", "C"]
        return {"type": "enum", "name": f"e{next(_numbers)}", "symbols": symbols}, draw(
            st.sampled_from(symbols)
        )
    if kind == "time":
        return {"type": "long", "logicalType": "timestamp-millis"}, draw(st.integers(0, 10**12))
    inner, value = draw(typed_values(depth + 1))
    if kind == "option":
        if inner == "null" or isinstance(inner, list):
            return inner, value
        return ["null", inner], draw(st.sampled_from([None, value]))
    if kind == "array":
        return {"type": "array", "items": inner}, [value] * draw(st.integers(0, 3))
    if kind == "map":
        keys = draw(st.lists(st.text(max_size=5), max_size=3))
        return {"type": "map", "values": inner}, dict.fromkeys(keys, value)
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "long"}]
    return {"type": "record", "name": f"r{next(_numbers)}", "namespace": "n.s", "fields": fields}, {
        "a": value,
        "b": draw(SIMPLE["long"]),
    }


@settings(max_examples=200, deadline=None)
@given(st.lists(typed_values(), max_size=5), st.data())
def test_it_reads_what_fastavro_reads_and_no_more(
    columns: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    fields = [{"name": f"c{place}", "type": kind} for place, (kind, _) in enumerate(columns)]
    schema = {"type": "record", "name": "v", "namespace": "views", "fields": fields}
    known = fastavro.parse_schema(json.loads(json.dumps(schema)))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, known, {f"c{place}": value for place, (_, value) in enumerate(columns)})
    whole = body.getvalue()
    read = reader_of(schema)
    assert read is not None
    row, end = read(b"12345" + whole, 5)
    assert row == fastavro.schemaless_reader(io.BytesIO(whole), known, None)
    assert end == len(whole) + 5
    # Of bytes that are cut off or broken it never makes a row that fastavro does not.
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if broken:
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(0, 255))
    try:
        row, end = read(bytes(broken), 0)
    except (IndexError, ValueError, OverflowError, struct.error):
        return
    if end <= len(broken):
        assert _same(row, fastavro.schemaless_reader(io.BytesIO(bytes(broken)), known, None))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "fixed", "name": "f", "size": 2},
        ["null", {"type": "record", "name": "t", "fields": [{"name": "t", "type": ["null", "t"]}]}],
    ],
)
def test_what_it_does_not_know_is_left_to_fastavro(kind: Any) -> None:
    assert reader_of({"type": "record", "name": "v", "fields": [{"name": "a", "type": kind}]}) is None


class Texts:
    def schema(self, schema_id: int) -> str:
        return json.dumps({"type": "record", "name": "v", "fields": [{"name": "a", "type": "string"}]})


@pytest.mark.parametrize(
    "value", [b"", b"junk", frame(1, b""), frame(1, b"\x08ab"), frame(1, b"\x01"), frame(1, b"\x02\xff")]
)
def test_what_cannot_be_read_names_its_place(value: bytes) -> None:
    with pytest.raises(HubFault, match='topic "views.v" partition 3 offset 7'):
        RowDecoder(Texts()).row(Record("views.v", 3, 7, 0, b"k", value))
