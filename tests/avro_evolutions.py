"""Pairs of Avro schemas, a value of the first, and the value that a reader with the second gets (Avro 1.12,
"Schema Resolution"). ``expected`` None: Avro refuses the value. Cases in which only the hub accepts the value
(a field without value and default is null) are separate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Evolution:
    name: str
    writer: dict[str, Any]
    reader: dict[str, Any]
    value: dict[str, Any]
    expected: dict[str, Any] | None
    problem: str = ""  # part of the messages for this pair of schemas


def record(name: str, **fields: Any) -> dict[str, Any]:
    """A record; a field is its type, or (type, its other attributes)."""
    made = [
        {"name": field, "type": of[0], **of[1]} if isinstance(of, tuple) else {"name": field, "type": of}
        for field, of in fields.items()
    ]
    return {"type": "record", "name": name, "namespace": "shop", "fields": made}


def enum(*symbols: str, name: str = "State", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def _one(name: str, wrote: Any, read: Any, value: Any, expected: Any, problem: str = "") -> Evolution:
    """A record of one field ``f``; ``expected`` is the field's value, ``NO`` none."""
    w, r = record("Order", f=wrote), record("Order", f=read)
    found = None if expected is NO else {"f": expected}
    return Evolution(name, w, r, {"f": value}, found, problem)


NO = object()
_MONEY = record("Money", cents="long")
_MONEY_2 = record("Money", cents="long", cur=("string", {"default": "EUR"}))
_RENAMED = record("Amount", units=("long", {"aliases": ["cents"]}))
_LONG, _TIME = "long", {"type": "long", "logicalType": "timestamp-millis"}

EVOLUTIONS = [
    Evolution(
        "a field that was added has its default",
        record("Order", id="long"),
        record("Order", id="long", cur=("string", {"default": "EUR"}), n=(["null", "int"],
        {"default": None})),
        {"id": 1},
        {"id": 1, "cur": "EUR", "n": None},
    ),
    Evolution(
        "a default beside null, of a number, a list, a map and a record",
        record("Order", id="long"),
        record(
            "Order",
            id="long",
            cur=(["string", "null"], {"default": "EUR"}),
            rate=("double", {"default": 1.5}),
            tags=({"type": "array", "items": "string"}, {"default": ["new"]}),
            more=({"type": "map", "values": "long"}, {"default": {"a": 1}}),
            total=(_MONEY_2, {"default": {"cents": 7}}),
            state=(enum("OPEN", "PAID"), {"default": "PAID"}),
        ),
        {"id": 1},
        {
            "id": 1, "cur": "EUR", "rate": 1.5, "tags": ["new"], "more": {"a": 1},
            "total": {"cents": 7, "cur": "EUR"}, "state": "PAID",
        },
    ),
    Evolution(
        "a field is renamed by its alias, and another one is dropped",
        record("Order", id="long", amt="long", old="string"),
        record("Order", id="long", amount=("long", {"aliases": ["value", "amt"]})),
        {"id": 1, "amt": 5, "old": "x"},
        {"id": 1, "amount": 5},
    ),
    Evolution(
        "the record is renamed, with its namespace",
        record("Purchase", id="long"),
        {**record("Order", id="long", cur=("string", {"default": "EUR"})), "namespace": "other",
        "aliases": ["shop.Purchase"]},
        {"id": 1},
        {"id": 1, "cur": "EUR"},
    ),
    _one("a nested record gets a field", _MONEY, _MONEY_2, {"cents": 5}, {"cents": 5, "cur": "EUR"}),
    _one("a nested record and its field are renamed", _MONEY, {**_RENAMED, "aliases": ["Money"]},
    {"cents": 5}, {"units": 5}),
    _one(
        "an array of records",
        {"type": "array", "items": _MONEY}, {"type": "array", "items": _MONEY_2},
        [{"cents": 5}, {"cents": 6}], [{"cents": 5, "cur": "EUR"}, {"cents": 6, "cur": "EUR"}],
    ),
    _one(
        "a map of records",
        {"type": "map", "values": _MONEY}, {"type": "map", "values": _MONEY_2},
        {"a": {"cents": 5}}, {"a": {"cents": 5, "cur": "EUR"}},
    ),
    _one("a record that may be null", ["null", _MONEY], ["null", _MONEY_2], {"cents": 5}, {"cents": 5,
    "cur": "EUR"}),
    _one("a null of a record that may be null", ["null", _MONEY], ["null", _MONEY_2], None, None),
    _one(
        "a renamed record within a union",
        ["null", _MONEY], ["null", {**_RENAMED, "aliases": ["shop.Money"]}], {"cents": 5}, {"units": 5},
    ),
    _one("a value becomes optional", "long", ["null", "long"], 5, 5),
    _one("int to long", "int", "long", 5, 5),
    _one("int to double", "int", "double", 5, 5.0),
    _one("long to float", "long", "float", 5, 5.0),
    _one("float to double", "float", "double", 0.5, 0.5),
    _one("int to an optional long", ["null", "int"], ["null", "long"], 5, 5),
    _one("items of an array are widened", {"type": "array", "items": "int"}, {"type": "array",
    "items": "double"}, [1, 2], [1.0, 2.0]),
    _one("string to bytes", "string", "bytes", "né", "né".encode()),
    _one("bytes to string", "bytes", "string", "né".encode(), "né"),
    _one("a known symbol", enum("OPEN", "PAID"), enum("OPEN", "PAID", "UNKNOWN", default="UNKNOWN"), "PAID",
    "PAID"),
    _one("an unknown symbol has the enum's default", enum("OPEN", "GONE"), enum("OPEN", "UNKNOWN",
    default="UNKNOWN"), "GONE", "UNKNOWN"),
    _one(
        "an unknown symbol in a list",
        {"type": "array", "items": enum("OPEN", "GONE")},
        {"type": "array", "items": enum("OPEN", "UNKNOWN", default="UNKNOWN")},
        ["GONE", "OPEN"], ["UNKNOWN", "OPEN"],
    ),
    _one(
        "an unknown symbol without a default", enum("OPEN", "GONE"), enum("OPEN", "PAID"), "GONE", NO,
        "f: GONE is not a symbol of shop.State, which has no default",
    ),
    _one("a known symbol where another is unknown", enum("OPEN", "GONE"), enum("OPEN", "PAID"), "OPEN",
    "OPEN", "f: GONE is not a symbol"),
    _one("string to long", "string", "long", "5", NO, "f: string is not long"),
    _one("long to int", "long", "int", 5, NO, "f: long is not int"),
    _one("double to long", "double", ["null", "long"], 5.0, NO, "f: double is not null or long"),
    _one("a record to a text", _MONEY, "string", {"cents": 1}, NO, "f: shop.Money is not string"),
    _one(
        "a text deep inside to a number",
        {"type": "array", "items": record("Line", n="string")}, {"type": "array", "items": record("Line",
        n="long")},
        [{"n": "1"}], NO, "f[].n: string is not long",
    ),
    _one("a branch of a union that is gone", ["null", "string", "long"], ["null", "long"], "x", NO,
    "f: string is not null or long"),
    _one("a branch of a union that stayed", ["null", "string", "long"], ["null", "long"], 5, 5,
    "f: string is not"),
    _one("fixed of another size", {"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F",
    "size": 3}, b"ab", NO, "f: shop.F is not shop.F"),
    _one("fixed", {"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 2}, b"ab",
    b"ab"),
]  # fmt: skip

# What the hub decides itself: a field without value and default; logical types that contradict each other;
# and the alias of a field whose own name the writer has too, which Avro for Java refuses and its other
# libraries leave aside, as here.
OURS = [
    Evolution(
        "a field of the name itself goes before one of the alias",
        record("Order", amt="long", amount="long"),
        record("Order", amount=("long", {"aliases": ["amt"]})),
        {"amt": 1, "amount": 2},
        {"amount": 2},
    ),
    _one("a null where the reader has none", ["null", "long"], "long", None, None),
    Evolution(
        "a field without a default",
        record("Order", id="long"),
        record("Order", id="long", cur="string"),
        {"id": 1},
        {"id": 1, "cur": None},
    ),
    _one("a field within a record without a default", _MONEY, record("Money", cents="long", cur="string"),
    {"cents": 1}, {"cents": 1, "cur": None}),
    _one("a default that is none of its type", _MONEY, record("Money", cents="long", n=("long",
    {"default": "x"})), {"cents": 1}, {"cents": 1, "n": None}),
    _one("milliseconds to microseconds", _TIME, {"type": "long", "logicalType": "timestamp-micros"}, 5, NO,
    "f: timestamp-millis is not timestamp-micros"),
    _one("a number to a time", _LONG, _TIME, 5, 5),
    _one("a time to a number", _TIME, _LONG, 5, 5),
]  # fmt: skip
