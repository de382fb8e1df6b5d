"""Generated functions decode rows, one by one or together, as fastavro does; invalid bytes give its error
message.
"""

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
from samples import fast_or

from hub.errors import HubFault, NotFound
from hub.materializers.changelog.row_decoder import BROKEN, MANY, RowDecoder, reader_of, rows_reader_of
from hub.record import Record
from hub.schema_registry.codecs.wire_format import frame

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
    """Draw a type and a value of it."""
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


def _written(columns: list[tuple[Any, Any]]) -> tuple[Any, Any, bytes]:
    """Return a schema of these columns, as fastavro parses it, and a row's bytes."""
    fields = [{"name": f"c{place}", "type": kind} for place, (kind, _) in enumerate(columns)]
    schema = {"type": "record", "name": "v", "namespace": "views", "fields": fields}
    known = fastavro.parse_schema(json.loads(json.dumps(schema)))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, known, {f"c{place}": value for place, (_, value) in enumerate(columns)})
    return schema, known, body.getvalue()


@settings(max_examples=fast_or(40, 200), deadline=None)
@given(st.lists(typed_values(), max_size=5), st.data())
def test_it_reads_what_fastavro_reads_and_no_more(
    columns: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    schema, known, whole = _written(columns)
    read = reader_of(schema)
    assert read is not None
    row, end = read(b"12345" + whole, 5)
    assert row == fastavro.schemaless_reader(io.BytesIO(whole), known, None)
    assert end == len(whole) + 5
    # It never makes a row from truncated or broken bytes that fastavro refuses.
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if broken:
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(0, 255))
    try:
        row, end = read(bytes(broken), 0)
    except (IndexError, ValueError, OverflowError, struct.error):
        return
    if end <= len(broken):
        assert _same(row, fastavro.schemaless_reader(io.BytesIO(bytes(broken)), known, None))


@settings(max_examples=fast_or(60, 300), deadline=None)
@given(st.lists(typed_values(), max_size=5), st.data())
def test_many_together_are_the_rows_of_each(columns: list[tuple[Any, Any]], data: st.DataObject) -> None:
    schema, _, whole = _written(columns)
    values = [b"12345" + whole]
    for _ in range(data.draw(st.integers(1, 6))):
        body = bytearray(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(0, 255))
        values.append(b"12345" + bytes(body))
    values = data.draw(st.permutations(values))
    one = reader_of(schema)
    assert one is not None
    for value, row in zip(values, rows_reader_of(schema)(values, 5), strict=True):
        try:
            wanted, end = one(value, 5)
        except BROKEN:
            assert row is None
            continue
        if row is not None:
            assert end <= len(value)
            assert _same(row, wanted)
        elif end <= len(value):  # left to the single-row reader: only rows with a number of more than 56 bits
            assert value != b"12345" + whole or _farthest(wanted) >= 2**55


def _farthest(value: Any) -> int:
    if isinstance(value, dict | list):
        return max(map(_farthest, value.values() if isinstance(value, dict) else value), default=0)
    return abs(value) if isinstance(value, int) else 0


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
    """Schema 1, and schemas with more columns; schema 404 does not exist."""

    def schema(self, schema_id: int) -> str:
        if schema_id == 404:
            raise NotFound("no schema 404")
        fields = [{"name": name, "type": "string"} for name in ("a", "b")[:schema_id]]
        return json.dumps({"type": "record", "name": "v", "fields": fields})


def _record(offset: int, value: bytes | None, sources: bytes | None = None) -> Record:
    headers = () if sources is None else (("hub.sources", sources),)
    return Record("views.v", 3, offset, 0, b"k", value, headers)


def test_rows_come_in_the_order_of_their_records() -> None:
    records = []
    for place in range(0, 5 * MANY, 5):
        text = f"é{place}".encode()
        text = bytes([2 * len(text)]) + text
        records += [
            _record(place, frame(1, text)),
            _record(place + 1, frame(2, text + text)),
            _record(place + 2, None),
            _record(place + 3, frame(1, text), b'{"s": {"offset": 7}}'),
            _record(place + 4, frame(1, text + b"more")),
        ]
    decoder = RowDecoder(Texts())
    rows = decoder.rows(records)
    assert rows[:4] == [
        {"a": "é0"},
        {"a": "é0", "b": "é0"},
        None,
        {"a": "é0", "_sources": {"s": {"offset": 7}}},
    ]
    assert rows == [decoder.row(each) for each in records]


@pytest.mark.parametrize("value", [b"", b"junk", frame(1, b"\x08ab"), frame(404, b"\x02a")])
def test_one_of_many_that_cannot_be_read_names_its_place(value: bytes) -> None:
    records = [_record(offset, frame(1, b"\x02a")) for offset in range(2 * MANY)]
    records[77] = _record(77, value)
    with pytest.raises(HubFault, match='topic "views.v" partition 3 offset 77'):
        RowDecoder(Texts()).rows(records)


def test_a_broken_list_takes_no_more_than_its_own_record() -> None:
    schema = {
        "type": "record",
        "name": "v",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
    }
    asks = b"\xfe\xff\xff\xff\x0f" + b"\x00"  # two thousand million items in six bytes
    assert rows_reader_of(schema)([asks, b"\x00", b"\x04\x00"], 0) == [None, {"a": []}, {"a": [None, None]}]


@pytest.mark.parametrize(
    "value", [b"", b"junk", frame(1, b""), frame(1, b"\x08ab"), frame(1, b"\x01"), frame(1, b"\x02\xff")]
)
def test_what_cannot_be_read_names_its_place(value: bytes) -> None:
    with pytest.raises(HubFault, match='topic "views.v" partition 3 offset 7'):
        RowDecoder(Texts()).row(Record("views.v", 3, 7, 0, b"k", value))
