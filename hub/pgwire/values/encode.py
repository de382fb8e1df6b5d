"""[core] Values of rows in Postgres' text and binary formats.

``Encode`` takes a value as the database of the hub keeps it (times in milliseconds, dates in days, decimals
and nested values as text) or as DuckDB returns it. Binary layouts are those of Postgres' send functions
(src/backend/utils/adt/timestamp.c, numeric.c, arrayfuncs.c).
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import orjson

from hub.pgwire.values import types as t
from hub.times import ms_of

Encode = Callable[[Any], bytes]
_EPOCH_DAY = dt.date(1970, 1, 1)
_2000_MS, _2000_DAYS = 946_684_800_000, 10_957
_NUMERIC_NAN = struct.pack("!hhHh", 0, 0, 0xC000, 0)


def encoder(oid: int, form: int) -> Encode:
    """Return the encoder of a type in a format (0 text, 1 binary)."""
    if oid in t.ELEMENT_OF:
        return _array_binary(t.ELEMENT_OF[oid]) if form else _array_text(t.ELEMENT_OF[oid])
    return (_BINARY if form else _TEXT).get(oid, _text)


def _text(value: Any) -> bytes:
    if type(value) is str and "\0" not in value:
        return value.encode("utf-8", "replace")
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, dict | list | tuple):
        return orjson.dumps(value, default=str)
    return str(value).replace("\0", "").encode("utf-8", "replace")


def _milliseconds(value: Any) -> int:
    return ms_of(value) if isinstance(value, dt.datetime) else int(value)


def _days(value: Any) -> int:
    return (value - _EPOCH_DAY).days if isinstance(value, dt.date) else int(value)


def _clock(value: Any, zone: str) -> bytes:
    ms = _milliseconds(value)
    days, rest = divmod(ms, 86_400_000)
    seconds, fraction = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    day, era = _calendar(days)
    shown = f"{day} {hour:02}:{minute:02}:{second:02}"
    if fraction:
        shown += f".{fraction:03}".rstrip("0")
    return f"{shown}{zone}{era}".encode()


@lru_cache(maxsize=4_096)
def _calendar(days: int) -> tuple[str, str]:
    """Return a day as Postgres shows it, and its era. Python's calendar ends with the years 1 and 9999."""
    try:
        return (_EPOCH_DAY + dt.timedelta(days)).isoformat(), ""
    except OverflowError:
        pass
    cycles = days // 146_097  # days of 400 years
    day = _EPOCH_DAY + dt.timedelta(days - cycles * 146_097)
    year = day.year + cycles * 400
    shown = f"{year if year > 0 else 1 - year:04}-{day.month:02}-{day.day:02}"
    return shown, "" if year > 0 else " BC"


def _float_text(value: Any) -> bytes:
    number = float(value)
    if math.isnan(number):
        return b"NaN"
    if math.isinf(number):
        return b"Infinity" if number > 0 else b"-Infinity"
    return (str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)).encode()


def _numeric_binary(value: Any) -> bytes:
    number = Decimal(str(value))
    if not number.is_finite():
        return _NUMERIC_NAN
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    whole = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent)
    whole *= 10 ** (-scale % 4)  # the fraction in whole groups of four digits
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - (scale + 3) // 4
    groups.reverse()
    while groups and groups[-1] == 0:
        groups.pop()
    flag = 0x4000 if sign and groups else 0
    head = struct.pack("!hhHh", len(groups), weight if groups else 0, flag, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


def _bool_text(value: Any) -> bytes:
    return b"t" if value else b"f"


def _fixed(layout: str, convert: Callable[[Any], Any] = int) -> Encode:
    pack = struct.Struct(layout).pack
    return lambda value: pack(convert(value))


_TEXT: Mapping[int, Encode] = {
    t.BOOL: _bool_text,
    t.INT8: lambda value: b"%d" % value,
    t.TIMESTAMPTZ: lambda value: _clock(value, "+00"),
    t.TIMESTAMP: lambda value: _clock(value, ""),
    t.DATE: lambda value: "".join(_calendar(_days(value))).encode(),
    t.FLOAT8: _float_text,
    t.FLOAT4: _float_text,
    t.BYTEA: lambda value: b"\\x" + bytes(value).hex().encode(),
}
_BINARY: Mapping[int, Encode] = {
    t.BOOL: lambda value: b"\1" if value else b"\0",
    t.INT2: _fixed("!h"),
    t.INT4: _fixed("!i"),
    t.INT8: _fixed("!q"),
    t.OID: _fixed("!I"),
    t.FLOAT4: _fixed("!f", float),
    t.FLOAT8: _fixed("!d", float),
    t.TIMESTAMPTZ: _fixed("!q", lambda value: (_milliseconds(value) - _2000_MS) * 1000),
    t.TIMESTAMP: _fixed("!q", lambda value: (_milliseconds(value) - _2000_MS) * 1000),
    t.DATE: _fixed("!i", lambda value: _days(value) - _2000_DAYS),
    t.NUMERIC: _numeric_binary,
    t.BYTEA: bytes,
    t.JSONB: lambda value: b"\1" + _text(value),
    t.VOID: lambda _value: b"",
}


def _array_text(element: int) -> Encode:
    encode = encoder(element, 0)

    def array(values: Iterable[Any]) -> bytes:
        return b"{%s}" % b",".join(b"NULL" if each is None else _quoted(encode(each)) for each in values)

    return array


def _quoted(item: bytes) -> bytes:
    plain = item and item.lower() != b"null" and not any(sign in item for sign in b'{}," \\\t\n\r\v\f')
    return item if plain else b'"%s"' % item.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _array_binary(element: int) -> Encode:
    encode = encoder(element, 1)

    def array(values: Sequence[Any]) -> bytes:
        if not values:
            return struct.pack("!iii", 0, 0, element)
        parts = [struct.pack("!iiiii", 1, int(None in values), element, len(values), 1)]
        for each in values:
            item = b"" if each is None else encode(each)
            parts.append(struct.pack("!i", -1 if each is None else len(item)) + item)
        return b"".join(parts)

    return array
