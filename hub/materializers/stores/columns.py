"""[edge] SQLAlchemy types: storage of Avro values in SQL columns, and their display.

Times are stored as epoch milliseconds and dates as epoch days, the same in every store, and shown as ISO
8601. They stay whole numbers all the way (``as_numbers``): a time that Python's datetime cannot hold (a
source that sends microseconds as milliseconds means the year 50,000) is then a strange value in a row and
does not stop the view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import orjson
from sqlalchemy import JSON, BigInteger, Boolean, Float, LargeBinary, Text
from sqlalchemy.types import TypeEngine

from hub.materializers.types.avro_types import AvroType

Convert = Callable[[Any], Any]

_TYPES: Mapping[str, type[TypeEngine[Any]]] = {
    "string": Text,
    "int": BigInteger,
    "long": BigInteger,
    "float": Float,
    "double": Float,
    "boolean": Boolean,
    "bytes": LargeBinary,
    "timestamp-millis": BigInteger,
    "timestamp-micros": BigInteger,
    "local-timestamp-millis": BigInteger,
    "date": BigInteger,
    "decimal": Text,
}
_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis")
# Types that are stored alike: a change between them needs no new column.
_ALIKE: Mapping[str, str] = {"int": "long", "float": "double", "timestamp-micros": "timestamp-millis"}
_EPOCH_DAY = 719_163  # date(1970, 1, 1).toordinal()


def plain_type(avro_type: AvroType) -> str:
    """Return the type's name without null: a primitive, a logical type, or "json" for a nested type."""
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return plain_type(branches[0]) if len(branches) == 1 else "json"
    if isinstance(avro_type, dict):
        if avro_type["type"] == "enum":
            return "string"
        name = avro_type.get("logicalType", avro_type["type"])
        return name if isinstance(name, str) and name in _TYPES else plain_type(avro_type["type"])
    return avro_type if avro_type in _TYPES else "json"


def stored_alike(one: AvroType, other: AvroType) -> bool:
    """Return whether a column made for one type holds values of the other."""
    first, second = plain_type(one), plain_type(other)
    return _ALIKE.get(first, first) == _ALIKE.get(second, second)


def sql_type(avro_type: AvroType) -> TypeEngine[Any]:
    name = plain_type(avro_type)
    return _TYPES[name]() if name in _TYPES else JSON(none_as_null=True)


def as_numbers(schema: AvroType) -> AvroType:
    """Return a row's schema with the times and dates of its columns as the plain numbers that encode them."""

    def plain(avro_type: AvroType) -> AvroType:
        if isinstance(avro_type, list):
            return [plain(branch) for branch in avro_type]
        if isinstance(avro_type, dict) and avro_type.get("logicalType") in (*_TIMES, "date"):
            return avro_type["type"]
        return avro_type

    return {**schema, "fields": [{**each, "type": plain(each["type"])} for each in schema["fields"]]}


def to_sql(avro_type: AvroType) -> Convert | None:
    """Return the conversion of a row's value (never None) for its column; None if stored unchanged."""
    kind = plain_type(avro_type)
    if kind in _TIMES:
        return _milliseconds_of_micros if kind == "timestamp-micros" else _milliseconds
    if kind == "date":
        return _days
    return str if kind == "decimal" else None


def from_sql(avro_type: AvroType) -> Convert | None:
    """Return the conversion from a column's value (never None) to the shown one; None when it is shown
    unchanged.
    """
    kind = plain_type(avro_type)
    if kind in _TIMES:
        return _iso_time
    if kind == "date":
        return _iso_date
    return bytes.hex if kind == "bytes" else None


def _milliseconds(value: int | datetime) -> int:
    if isinstance(value, int):
        return value
    return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)


def _milliseconds_of_micros(value: int | datetime) -> int:
    return value // 1000 if isinstance(value, int) else _milliseconds(value)


def _days(value: int | date) -> int:
    return value if isinstance(value, int) else value.toordinal() - _EPOCH_DAY


def _iso_time(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    try:
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:03d}Z"
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)  # outside the calendar


def _iso_date(days: int) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(days * 86_400))
    except (OverflowError, ValueError, OSError):
        return str(days)


def json_text(value: Any) -> str:
    """Return nested values as JSON: times as ISO 8601, decimals and bytes as text, NaN and infinities as
    null.
    """
    return orjson.dumps(value, default=_spelled, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS).decode()


def _spelled(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) or type(value).__module__ == "decimal":
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of a row")
