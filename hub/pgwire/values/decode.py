"""[core] Values of parameters from Postgres' text and binary formats: to what a query takes.

A query takes texts, numbers, booleans and NULL; it reads a text beside a time or a number as one. So times
become ISO 8601 texts, as in ``POST /query``.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from uuid import UUID

from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import Value
from hub.pgwire.values import types as t

Items = list[Value]
Decode = Callable[[bytes], Value]
_2000 = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


def decoded(raw: bytes | None, oid: int, form: int, number: int) -> Value | Items:
    """Return the value of parameter ``number`` (from 1). ``oid`` 0: unspecified. Raises SqlError."""
    if raw is None:
        return None
    try:
        if oid in t.ELEMENT_OF:
            return (
                _array_binary(raw, number) if form else _array_text(raw.decode(), t.ELEMENT_OF[oid], number)
            )
        return _scalar(raw, oid, form)
    except (ValueError, struct.error, UnicodeDecodeError, OverflowError, InvalidOperation, KeyError):
        raise SqlError(
            f"parameter ${number} is no {t.spelled(oid) if oid else 'text'} in the "
            f"{'binary' if form else 'text'} format",
            hint="pass it as text, with a cast in the statement",
            code="HUB-1447",
        ) from None


def _scalar(raw: bytes, oid: int, form: int) -> Value:
    if form:
        return _BINARY[oid](raw)
    text = raw.decode()
    return _TEXT.get(oid, str)(text)


def _number(text: str) -> Value:
    number = Decimal(text)
    whole = number == number.to_integral_value() if number.is_finite() else False
    return int(number) if whole else float(number)


def _bool(text: str) -> bool:
    return {"t": True, "f": False, "1": True, "0": False, "y": True, "n": False, "o": False}[
        "t" if text.lower() == "on" else text.strip().lower()[:1]
    ]


def _whole(layout: str) -> Decode:
    return lambda raw: int(struct.unpack(layout, raw)[0])


def _moment(raw: bytes) -> str:
    micros = int(struct.unpack("!q", raw)[0])
    return (_2000 + dt.timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def _numeric(raw: bytes) -> Value:
    count, weight, sign, scale = struct.unpack("!hhHh", raw[:8])
    if sign not in (0, 0x4000):
        raise ValueError("NaN")
    number = Decimal(0)
    for place, group in enumerate(struct.unpack(f"!{count}h", raw[8 : 8 + 2 * count])):
        number += Decimal(group).scaleb(4 * (weight - place))
    return _number(f"{-number if sign else number:.{max(0, scale)}f}")


_TEXT: Mapping[int, Callable[[str], Value]] = {
    **dict.fromkeys((t.INT2, t.INT4, t.INT8, t.OID), int),
    **dict.fromkeys((t.FLOAT4, t.FLOAT8), float),
    t.NUMERIC: _number,
    t.BOOL: _bool,
}
_BINARY: Mapping[int, Decode] = {
    **dict.fromkeys((0, t.TEXT, t.VARCHAR, t.BPCHAR, t.NAME, t.UNKNOWN, t.JSON), lambda raw: raw.decode()),
    t.JSONB: lambda raw: raw[1:].decode(),
    t.INT2: _whole("!h"),
    t.INT4: _whole("!i"),
    t.INT8: _whole("!q"),
    t.OID: _whole("!I"),
    t.FLOAT4: lambda raw: float(struct.unpack("!f", raw)[0]),
    t.FLOAT8: lambda raw: float(struct.unpack("!d", raw)[0]),
    t.BOOL: lambda raw: raw != b"\0",
    t.TIMESTAMPTZ: _moment,
    t.TIMESTAMP: _moment,
    t.DATE: lambda raw: (_2000 + dt.timedelta(days=struct.unpack("!i", raw)[0])).date().isoformat(),
    t.NUMERIC: _numeric,
    t.UUID: lambda raw: str(UUID(bytes=raw)),
}


def _array_binary(raw: bytes, number: int) -> Items:
    dimensions, _nulls, element = struct.unpack("!iii", raw[:12])
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("dimensions")
    (length,), at = struct.unpack("!i", raw[12:16]), 20
    found: Items = []
    for _ in range(length):
        (size,) = struct.unpack("!i", raw[at : at + 4])
        at += 4
        item = None if size == -1 else raw[at : at + size]
        at += max(0, size)
        value = decoded(item, element, 1, number)
        assert not isinstance(value, list)
        found.append(value)
    return found


def _array_text(text: str, element: int, number: int) -> Items:
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("braces")
    found: Items = []
    for item in _items(text[1:-1]):
        value = decoded(None if item is None else item.encode(), element, 0, number)
        assert not isinstance(value, list)
        found.append(value)
    return found


def _items(text: str) -> list[str | None]:
    """Split ``a,"b,c",NULL``; a backslash quotes the next character."""
    items: list[str | None] = []
    item, quoted, inside, at = "", False, False, 0
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
            item += text[at : at + 1]
        elif sign == '"':
            quoted, inside = True, not inside
        elif sign == "," and not inside:
            items.append(item if quoted or item.upper() != "NULL" else None)
            item, quoted = "", False
        elif sign in "{}" and not inside:
            raise ValueError("dimensions")
        else:
            item += sign
        at += 1
    if text:
        items.append(item if quoted or item.upper() != "NULL" else None)
    return items
