"""[core] Values of rows, in the display form of queries, for columns of a database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal

import orjson

Family = Literal[
    "text", "json", "timestamp", "local-timestamp", "date", "decimal", "double", "bytes", "other"
]
"""Kind of a column of the target's table; ``local-timestamp``: without a zone, in UTC."""


def value_for(family: Family, value: Any) -> Any:
    """Return the value for a column. Raises ValueError, TypeError or ArithmeticError if it does not fit.

    >>> value_for("local-timestamp", "2026-01-31T12:00:00.000Z")
    datetime.datetime(2026, 1, 31, 12, 0)
    >>> value_for("text", {"a": 1}), value_for("decimal", "1.50")
    ('{"a":1}', Decimal('1.50'))
    """
    return None if value is None else _CONVERTS.get(family, _as_it_is)(value)


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value, default=str).decode()


def _timestamp(value: Any) -> dt.datetime:
    time = dt.datetime.fromisoformat(str(value))
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


def _local_timestamp(value: Any) -> dt.datetime:
    return _timestamp(value).astimezone(dt.UTC).replace(tzinfo=None)


_CONVERTS: Mapping[Family, Callable[[Any], Any]] = {
    "text": _text,
    "timestamp": _timestamp,
    "local-timestamp": _local_timestamp,
    "date": lambda value: dt.date.fromisoformat(str(value)[:10]),
    "decimal": lambda value: Decimal(str(value)),
    "double": float,
    "bytes": lambda value: bytes.fromhex(value) if isinstance(value, str) else bytes(value),
}
