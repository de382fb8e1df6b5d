"""[core] JSON with exact integers: orjson silently reads integers of more than 64 bits as doubles.

orjson decides whether a text is JSON, because Python's own parser also accepts NaN and surrogates.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_MAY_BE_LONG = re.compile(rb"\d{19}")  # as many digits as 2^63


def loaded(text: bytes) -> Any:
    """Parse a text. Raises orjson.JSONDecodeError, also for a number beyond any double (309 digits)."""
    value = orjson.loads(text)
    if not may_be_long(text):
        return value
    try:
        return json.loads(text)
    except RecursionError:
        raise orjson.JSONDecodeError("nested too deep", "", 0) from None


def may_be_long(text: bytes) -> bool:
    """Return True if the text may have an integer of more than 64 bits; False is certain."""
    return _MAY_BE_LONG.search(text) is not None


def dumped(value: Any) -> bytes:
    """Serialize a value. Raises TypeError, RecursionError for values that are not JSON or nest too deep."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_spelled(value))


def _spelled(value: Any) -> Any:
    """Replace each integer that orjson cannot write with its text."""
    if isinstance(value, dict):
        return {name: _spelled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return orjson.Fragment(str(value))
    return value
