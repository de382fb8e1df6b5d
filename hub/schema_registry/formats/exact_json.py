"""[core] JSON with its integers as they are: of one with more than 64 bits orjson makes a double, and says nothing.

What is JSON is orjson's to say, for Python's own parser takes NaN and half characters too.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_MAY_BE_LONG = re.compile(rb"\d{19}")  # -2^63 - 1 has so many digits


def loaded(text: bytes) -> Any:
    """The value. Raises orjson.JSONDecodeError; also for a number that is beyond every double (309 digits)."""
    value = orjson.loads(text)
    if not may_be_long(text):
        return value
    try:
        return json.loads(text)
    except RecursionError:
        raise orjson.JSONDecodeError("nested too deep", "", 0) from None


def may_be_long(text: bytes) -> bool:
    """Whether an integer in it may have more than 64 bits; no is certain."""
    return _MAY_BE_LONG.search(text) is not None


def dumped(value: Any) -> bytes:
    """The text. Raises TypeError, RecursionError for what is no JSON, or is nested too deep."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_spelled(value))


def _spelled(value: Any) -> Any:
    """With the text of each integer that orjson does not write."""
    if isinstance(value, dict):
        return {name: _spelled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(str(value))
    return value
