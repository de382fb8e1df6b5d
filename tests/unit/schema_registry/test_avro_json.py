"""JSON to Avro, with fastavro as the one who reads;
and the checker of bytes, with fastavro as the one who writes."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pytest
from effort import costs_at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.schema_registry.codecs.avro_validator import BrokenValue, TooDeep, checker
from hub.schema_registry.codecs.misfit import MOST_DEPTH, Unfit
from hub.schema_registry.formats.avro.types import types_of

UTC = dt.UTC


def decoded(schema: Any, body: bytes) -> Any:
    stream = io.BytesIO(body)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.read() == b""
    return value


def through(schema: Any, value: Any) -> Any:
    return decoded(schema, JsonEncoder(schema).body(orjson.loads(orjson.dumps(value))))


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def of(logical: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


COLOR = {"type": "enum", "name": "x.Color", "symbols": ["RED", "GREEN"]}
HASH = {"type": "fixed", "name": "Hash", "size": 3}
NODE = record(
    {"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}, name="Node"
)
A = record({"name": "a", "type": "int"}, name="n.A")
B = record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}, name="n.B")


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(1 << 31), -(1 << 31)),
        ("long", (1 << 63) - 1, (1 << 63) - 1),
        ("long", -(1 << 63), -(1 << 63)),
        ("double", 3, 3.0),
        ("double", "-Infinity", float("-inf")),
        ("float", 0.5, 0.5),
        ("bytes", "\u0000\u00ff", b"\x00\xff"),
        ("string", "Gruß 🙂", "Gruß 🙂"),
        (COLOR, "GREEN", "GREEN"),
        (HASH, "abc", b"abc"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        (NODE, {"id": 1, "next": {"id": 2}}, {"id": 1, "next": {"id": 2, "next": None}}),
        # logical types
        (of("timestamp-millis"), "2024-02-29T12:30:00.125Z", dt.datetime(2024, 2, 29, 12, 30, 0, 125_000,
        UTC)),
        (of("timestamp-millis"), "2024-02-29T12:30:00+02:00", dt.datetime(2024, 2, 29, 10, 30, tzinfo=UTC)),
        (of("timestamp-millis"), "1969-12-31t23:59:59.999z", dt.datetime(1969, 12, 31, 23, 59, 59, 999_000,
        UTC)),
        (of("timestamp-millis"), 86_400_000, dt.datetime(1970, 1, 2, tzinfo=UTC)),
        (of("timestamp-micros"), "1970-01-01T00:00:00.000001Z", dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (of("local-timestamp-millis"), "1970-01-01T00:00:01", dt.datetime(1970, 1, 1, 0, 0, 1)),
        (of("date", "int"), "2024-02-29", dt.date(2024, 2, 29)),
        (of("date", "int"), 1, dt.date(1970, 1, 2)),
        (of("time-millis", "int"), "12:30:00.5", dt.time(12, 30, 0, 500_000)),
        (of("time-micros"), "12:30:00", dt.time(12, 30)),
        (of("uuid", "string"), "6BA7B810-9dad-11d1-80b4-00c04fd430c8",
        uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        (of("decimal", "bytes", precision=6, scale=2), "-12.5", Decimal("-12.50")),
        (of("decimal", "bytes", precision=6, scale=2), "1E+3", Decimal("1000.00")),
        (of("decimal", "bytes", precision=6, scale=2), "0.000", Decimal("0.00")),
        (of("decimal", "bytes", precision=6, scale=2), 128, Decimal("128.00")),
        (of("decimal", "fixed", name="D", size=3, precision=6, scale=2), "9999.99", Decimal("9999.99")),
        # an unknown logical type, or one on the wrong type, is ignored
        (of("timestamp-millis", "string"), "soon", "soon"),
        # unions: by the value's own kind; by tag
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["null", "string"], {"string": "x"}, "x"),
        (["bytes", "string"], "x", "x"),
        (["bytes", "string"], {"bytes": "x"}, b"x"),
        (["double", "long"], 3, 3),
        (["double", "long"], 3.0, 3.0),
        (["int", "long"], 1 << 40, 1 << 40),
        ([COLOR, "string"], "RED", "RED"),
        (["null", of("timestamp-millis")], "1970-01-01T00:00:00Z", dt.datetime(1970, 1, 1, tzinfo=UTC)),
        ([of("timestamp-millis"), "string"], "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        (["null", {"type": "map", "values": "int"}], {"map": 1}, {"map": 1}),
        (["null", {"type": "map", "values": "int"}], {"map": {"x": 1}}, {"x": 1}),
        (["null", A, B], {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (["null", A, B], {"B": {"a": 1}}, {"a": 1, "b": 7}),
        (["null", A, B], {"n.A": {"a": 1}}, {"a": 1}),
    ],
)  # fmt: skip
def test_json_becomes_the_value(schema: Any, value: Any, expected: Any) -> None:
    found = through(schema, value)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("avro_type", "default", "expected"),
    [
        ("int", 3, 3),
        ("bytes", "\u00ff", b"\xff"),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["int", "null"], None, None),
        (of("timestamp-millis"), 0, dt.datetime(1970, 1, 1, tzinfo=UTC)),
        (of("decimal", "bytes", precision=4, scale=2), "\u0001\u0000", Decimal("2.56")),
        (A, {"a": 1}, {"a": 1}),
        ({"type": "array", "items": B}, [{"a": 1}], [{"a": 1, "b": 7}]),
    ],
)
def test_a_missing_field_has_its_default(avro_type: Any, default: Any, expected: Any) -> None:
    schema = record({"name": "f", "type": avro_type, "default": default})
    assert through(schema, {}) == {"f": expected}


ORDER = record(
    {"name": "id", "type": "string"},
    {
        "name": "items",
        "type": {
            "type": "array",
            "items": record({"name": "price", "type": "double"}, {"name": "color", "type": ["null", COLOR],
            "default": None}, name="Item"),
        },
    },
    {"name": "notes", "type": {"type": "map", "values": "int"}, "default": {}},
    name="Order",
)  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value", "message", "hint"),
    [
        ("int", "1", 'v: is the text "1", the schema requires int', None),
        ("int", True, "v: is the boolean true, the schema requires int", None),
        ("int", 1 << 31, "requires int, which ends at 2147483647", None),
        ("long", 1 << 63, "requires long, which ends at 9223372036854775807", None),
        ("long", 1.0, "v: is the number 1.0, the schema requires long", None),
        ("boolean", 1, "v: is the integer 1, the schema requires boolean", None),
        ("null", 0, "requires null", None),
        ("double", (1 << 53) + 1, "cannot hold it exactly", None),
        ("float", 3.5e38, "requires float, which ends at", None),
        ("string", None, "v: is null, the schema requires string", None),
        ("bytes", "€", "requires bytes as text", "one character a byte"),
        (HASH, "ab", 'v: has 2 bytes, the schema requires fixed "Hash" of 3 bytes', None),
        (COLOR, "GREN", 'requires enum "x.Color"', 'did you mean "GREEN"?'),
        ({"type": "array", "items": "int"}, {}, "is an object of 0 fields, the schema requires array", None),
        (of("timestamp-millis"), "2024-02-29T12:30:00", "timestamp-millis, such as", "with its offset"),
        (of("timestamp-millis"), "2024-02-30T12:30:00Z", "timestamp-millis", "day"),
        (of("timestamp-millis"), "2024-02-29T24:00:00Z", "timestamp-millis", "no time"),
        (of("timestamp-millis"), "2024-02-29T12:30:00.0001Z", "timestamp-millis", "more digits"),
        (of("timestamp-nanos"), "2300-01-01T00:00:00Z", "which ends at", None),
        (of("local-timestamp-micros"), "2024-02-29T12:30:00Z", "local-timestamp", "without an offset"),
        (of("date", "int"), "2023-02-29", "date, such as", None),
        (of("uuid", "string"), "nope", "uuid (string)", None),
        (of("decimal", "bytes", precision=4, scale=2), 1.5, "as text", 'write it as text: "1.5"'),
        (of("decimal", "bytes", precision=4, scale=2), "1.234", "at most 2 digits after", None),
        (of("decimal", "bytes", precision=4, scale=2), "123", "at most 2 digits before", None),
        (of("decimal", "bytes", precision=4, scale=2), "1E+999999999", "digits before", None),
        (of("decimal", "bytes", precision=4, scale=2), "NaN", "decimal(4, 2) as text", None),
        (["null", of("decimal", "bytes", precision=4, scale=2)], 1.5, "as text", "write it as text"),
        (["null", "int"], "x", 'v: is the text "x", the schema requires null or int', None),
        (["null", "int", "boolean"], 1 << 40, ("v: is the integer 1099511627776, "
        "the schema requires int"), None),
        (["null", A, B], {"a": 1}, 'fits record "n.A" and record "n.B"', 'say which: {"n.B": …}'),
        (["null", A, B], {"c": 1}, "fits no branch", None),
        (["null", A, B], {"n.A": {"a": "x"}}, 'v["n.A"].a: is the text "x", the schema requires int', None),
        (ORDER, {"id": "1", "items": [{"price": 1}, {"price": "x"}]}, ('v.items[1].price: is the text "x", '
        'the schema requires double'), None),
        (ORDER, {"id": "1", "items": [{"price": 1, "color": "BLUE"}]}, ('v.items[0].color: is the text '
        '"BLUE"'), "it has RED, GREEN"),
        (ORDER, {"id": "1", "items": [], "notes": {"a b": "x"}}, 'v.notes["a b"]: is the text "x"', None),
        (ORDER, {"id": "1", "items": [], "note": {}}, 'v: record "Order" has no field "note"',
        'did you mean "notes"?'),
        (ORDER, {"id": "1"}, 'v: record "Order" needs field "items", which has no default', None),
        (ORDER, {"idd": "1"}, 'has no field "idd"', 'did you mean "id"?'),
        (ORDER, [], 'is an array of 0, the schema requires record "Order"', None),
        (record({"name": "f", "type": "int", "default": "x"}), {}, "its default does not fit", None),
    ],
)  # fmt: skip
def test_a_refusal_names_the_path_and_both_types(
    schema: Any, value: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(Unfit) as refused:
        JsonEncoder(schema).body(value, "v")
    assert message in refused.value.message
    assert (hint or "") in (refused.value.hint or "")


LONGEST = of("decimal", "bytes", precision=40, scale=2)


def test_long_integers_are_exact_where_the_type_holds_them_and_refused_elsewhere() -> None:
    assert decoded(LONGEST, JsonEncoder(LONGEST).body(1 << 100)) == 1 << 100
    assert decoded("double", JsonEncoder("double").body(1 << 100)) == float(1 << 100)
    assert decoded(["long", "double"], JsonEncoder(["long", "double"]).body(1 << 100)) == float(1 << 100)
    for schema, value, said in (
        ("long", 1 << 64, "is the integer 18446744073709551616, the schema requires long, which ends at"),
        ("double", (1 << 64) + 1, "which cannot hold it exactly"),
        ("double", 10**400, "which cannot hold it exactly"),
        ("string", 1 << 64, "is the integer 18446744073709551616, the schema requires string"),
        (LONGEST, 10**39, "at most 38 digits before the point"),
    ):
        with pytest.raises(Unfit, match=said):
            JsonEncoder(schema).body(value)


@pytest.mark.parametrize("schema", ["string", "long", {"type": "map", "values": "int"}, COLOR, "bytes"])
def test_half_a_surrogate_is_unfit(schema: Any) -> None:
    with pytest.raises(Unfit):
        JsonEncoder(schema).body(
            {"\ud800": 1} if isinstance(schema, dict) and "values" in schema else "\ud800"
        )


def test_decimals_of_many_digits_cost_what_they_have() -> None:
    """Zeros at the end once were taken off one by one, each with a copy of all the others:
    a megabyte took minutes."""
    short, long = (
        of("decimal", "bytes", precision=9, scale=2),
        of("decimal", "bytes", precision=10**9, scale=2),
    )
    with costs_at_most(100):
        with pytest.raises(Unfit, match="7 digits before the point"):
            JsonEncoder(short).body("1" + "0" * 1_000_000)
        assert decoded(short, JsonEncoder(short).body("1." + "0" * 1_000_000)) == 1
        assert int.from_bytes(JsonEncoder(long).body("1" * 5_000)[2:], "big") == int(
            "1" * 4_000
        ) * 10**1_002 + int("1" * 1_000 + "00")
        with pytest.raises(Unfit, match="10000 digits are written at most"):
            JsonEncoder(long).body("1E100000000")


def test_hints_are_looked_for_once_they_are_shown() -> None:
    """Each value that fits the second branch only once cost a search among the names of the first."""
    names = {"type": "enum", "name": "E", "symbols": [f"SYMBOL_{number}" for number in range(300)]}
    with costs_at_most(100):
        JsonEncoder({"type": "array", "items": [names, "bytes"]}).body([f"SYMBOX_{n}" for n in range(5_000)])
    with pytest.raises(Unfit) as refused:
        JsonEncoder(names).body("SYMBOL_X")
    assert refused.value.hint == 'did you mean "SYMBOL_9"?'


def nested(levels: int) -> Any:
    value: Any = {"id": 0}
    for number in range(levels):
        value = {"id": number, "next": value}
    return value


def test_what_nests_deep_is_refused_and_does_not_end_the_process() -> None:
    encoder = JsonEncoder(NODE)
    assert decoded(NODE, encoder.body(nested(MOST_DEPTH // 2 - 2)))["id"] == MOST_DEPTH // 2 - 3
    with pytest.raises(Unfit, match="nested deeper"):
        encoder.body(nested(300))
    endless = record({"name": "f", "type": "R", "default": {}})
    with pytest.raises(Unfit, match="nested deeper"):
        JsonEncoder(endless).body({})


def test_branches_of_unions_are_not_tried_for_ever() -> None:
    """Two records that differ at the bottom only: 2 to the number of levels ways to read it."""
    left = record(
        {
            "name": "f",
            "type": ["int", "L", {**record(name="M"), "fields": [{"name": "f", "type": ["int", "L", "M"]}]}],
        },
        name="L",
    )
    value: Any = True
    for _ in range(60):
        value = {"f": value}
    with pytest.raises(Unfit, match="too many ways"):
        JsonEncoder(left).body(value, most_steps=20_000)


def test_types_of_other_subjects_are_found() -> None:
    schema = record({"name": "color", "type": "x.Color"}, {"name": "again", "type": ["null", "x.Color"]})
    body = JsonEncoder(schema, [COLOR]).body({"color": "RED", "again": {"x.Color": "GREEN"}})
    assert body == b"\x00\x02\x02"
    with pytest.raises(Unfit, match="not valid Avro"):
        JsonEncoder(schema)


# ---- the law: a value of a schema, written as JSON, becomes bytes that are the value

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WHEN = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


def _plain(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return strategy.map(lambda value: (value, value))


def _millis(value: dt.datetime) -> dt.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


# schema -> strategy of (as JSON, as fastavro reads it)
LEAVES: list[tuple[Any, st.SearchStrategy[tuple[Any, Any]]]] = [
    ("null", _plain(st.none())),
    ("boolean", _plain(st.booleans())),
    ("int", _plain(st.integers(-(1 << 31), (1 << 31) - 1))),
    ("long", _plain(st.integers(-(1 << 63), (1 << 63) - 1))),
    ("double", _plain(st.floats(allow_nan=False, allow_infinity=False))),
    ("float", _plain(st.floats(allow_nan=False, allow_infinity=False, width=32))),
    ("string", _plain(TEXT)),
    ("bytes", st.binary(max_size=8).map(lambda data: (data.decode("latin-1"), data))),
    (of("timestamp-millis"), WHEN.map(_millis).map(lambda t: (t.isoformat() + "Z", t.replace(tzinfo=UTC)))),
    (of("timestamp-micros"), WHEN.map(lambda t: (t.isoformat() + "+00:00", t.replace(tzinfo=UTC)))),
    (of("date", "int"), st.dates().map(lambda day: (day.isoformat(), day))),
    (of("time-micros"), st.times().map(lambda time: (time.isoformat(), time))),
    (of("uuid", "string"), st.uuids().map(lambda each: (str(each), each))),
    (
        of("decimal", "bytes", precision=12, scale=3),
        st.decimals("-999999999", "999999999", places=3).map(lambda number: (str(number), number)),
    ),
]


@st.composite
def types(draw: st.DrawFn, names: Iterator[int], depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(st.integers(0, 6 if depth else 1))
    if kind == 2:
        item, values = draw(types(names, depth - 1))
        return {"type": "array", "items": item}, st.lists(values, max_size=3).map(_turned_list)
    if kind == 3:
        item, values = draw(types(names, depth - 1))
        return {"type": "map", "values": item}, st.dictionaries(TEXT, values, max_size=3).map(_turned_dict)
    if kind == 4:
        item, values = draw(
            types(names, depth - 1).filter(lambda made: not isinstance(made[0], list) and made[0] != "null")
        )
        return ["null", item], st.one_of(st.just((None, None)), values.map(lambda pair: _tagged(item, pair)))
    if kind == 5:
        fields = draw(st.lists(types(names, depth - 1), max_size=3))
        schema = record(
            *({"name": f"f{n}", "type": made} for n, (made, _) in enumerate(fields)), name=f"N{next(names)}"
        )
        return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)}).map(
            _turned_dict
        )
    if kind == 6:
        symbols = [f"S{number}" for number in range(draw(st.integers(1, 4)))]
        schema = {"type": "enum", "name": f"N{next(names)}", "symbols": symbols}
        return schema, st.sampled_from(symbols).map(lambda symbol: (symbol, symbol))
    return draw(st.sampled_from(LEAVES))  # fmt: skip


def _turned_list(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    return [each[0] for each in pairs], [each[1] for each in pairs]


def _turned_dict(pairs: dict[str, tuple[Any, Any]]) -> tuple[Any, Any]:
    return {key: each[0] for key, each in pairs.items()}, {key: each[1] for key, each in pairs.items()}


def _tagged(item: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Objects within unions with their tag: one of a single field named like the branch
    would be taken for it."""
    if isinstance(pair[0], dict):
        return {item["name"] if item["type"] == "record" else item["type"]: pair[0]}, pair[1]
    return pair


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    schema, values = draw(types(itertools.count()))
    return (schema, *draw(values))


@settings(max_examples=fast_or(80, 400), deadline=None)
@given(cases())
def test_a_value_written_as_json_becomes_bytes_that_are_the_value(case: tuple[Any, Any, Any]) -> None:
    schema, as_json, expected = case
    body = JsonEncoder(schema).body(orjson.loads(orjson.dumps(as_json)))
    assert decoded(schema, body) == expected
    root = types_of(schema)
    check = checker(root)
    assert check(body, 0) == len(body)
    assert check(b"\x00\x00\x00\x00\x07" + body + b"x", 5) == len(body) + 5


# ---- the checker against bytes of chance


@settings(max_examples=fast_or(120, 600), deadline=None)
@given(cases(), st.binary(max_size=12), st.integers(0, 30))
def test_what_the_checker_takes_fastavro_reads_and_to_the_same_end(
    case: tuple[Any, Any, Any], noise: bytes, cut: int
) -> None:
    schema, as_json, _ = case
    body = JsonEncoder(schema).body(orjson.loads(orjson.dumps(as_json)))
    data = body[:cut] + noise + body[cut:]
    root = types_of(schema)
    try:
        end = checker(root)(data, 0)
    except BrokenValue:
        return
    if end > 2_000_000 or _counts_nothing(schema):
        return
    stream = io.BytesIO(data)
    # Without logical types: fastavro makes dates of any number.
    plain = orjson.loads(orjson.dumps(schema).replace(b'"logicalType"', b'"ignored"'))
    fastavro.schemaless_reader(stream, fastavro.parse_schema(plain), None)
    assert stream.tell() == end


def _counts_nothing(schema: Any) -> bool:
    """Items without bytes may be many more than fastavro should be asked for."""
    return "null" in str(schema) or "'fields': []" in str(schema)


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ("long", b"", "end within"),
        ("long", b"\x80", "end within"),
        ("long", b"\xff" * 10 + b"\x01", "ten bytes"),
        ("long", b"\xff" * 9 + b"\x03", "64 bits"),
        ("int", b"\xff\xff\xff\xff\x1f", "32 bits"),
        ("boolean", b"\x02", "neither"),
        ("double", b"1234567", "end within"),
        ("string", b"\x01", "negative length"),
        ("string", b"\x06ab", "2 bytes are left"),
        ("string", b"\x02\xff", "UTF-8"),
        (COLOR, b"\x04", "symbol 2"),
        (COLOR, b"\x01", "symbol -1"),
        (["null", "int"], b"\x01", "branch -1"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x00\x00", "block with the length"),
        ({"type": "array", "items": "int"}, b"\x04\x00", "end within"),
    ],
)
def test_the_checker_says_what_is_broken(schema: Any, data: bytes, said: str) -> None:
    root = types_of(schema)
    with pytest.raises(BrokenValue, match=said):
        checker(root)(data, 0)


def test_the_checker_does_little_work_for_hostile_bytes() -> None:
    nulls = checker(types_of({"type": "array", "items": "null"}))
    assert nulls(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 0) == 11  # 2⁶³-1 items that take no bytes
    root = types_of(NODE)
    with pytest.raises(TooDeep):
        checker(root)(b"\x00\x02" * 100_000, 0)


def test_the_checker_reads_blocks_with_their_size() -> None:
    check = checker(types_of({"type": "map", "values": "int"}))
    assert check(b"\x01\x06\x02a\x02\x00", 0) == 6
