"""[edge] sqlite3: a read-only connection with the query functions, limits and an authorizer.

This is the second line of defense. The first is that ``compiler.py`` writes every statement; here SQLite
itself refuses anything but a SELECT over the tables of this query with the functions of that list.

LIKE is reimplemented: SQLite's own takes a time that grows exponentially with the wildcards, within one step
that no time limit interrupts. This one searches for the parts between the wildcards from left to right, each
once. For the same reason search texts are short, and so are texts in which a part with ``_`` is compared at
every position.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any

from hub.masking.values import hashed, partly
from hub.materializers.stores.columns import from_sql
from hub.times import EPOCH, parse_iso

_DAY_MS = 86_400_000
_LARGEST_VALUE = 32_000_000
_LONGEST_SOUGHT = 1_000
_MOST_COMPARED = 50_000_000  # length of a LIKE part that has _ times the length of the text: 0.2 s
LONGEST = (
    f"LIKE, position, replace and trim look for up to {_LONGEST_SOUGHT:,} characters; LIKE for a part with "
    f"_ where its length times the text's is up to {_MOST_COMPARED:,}: left(…, n) takes part of a text"
)
_DIGITS = Context(prec=1_000)
_WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")
_NUMERAL = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?\s*")

_iso_time = from_sql({"type": "long", "logicalType": "timestamp-millis"})
_iso_date = from_sql({"type": "int", "logicalType": "date"})

BUILT_IN = frozenset(
    (
        *("abs", "avg", "coalesce", "count", "dense_rank", "first_value", "group_concat", "instr"),
        *("json_array_length", "json_type", "lag", "last_value", "lead", "length", "lower", "ltrim", "max"),
        *("min", "nullif", "rank", "row_number", "rtrim", "substr", "sum", "trim"),
        *("->", "->>"),
    )
)
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 500),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)


def prepare(connection: sqlite3.Connection) -> None:
    """Register the functions and limits on a connection. Sorts spill to disk, not to memory."""
    for pragma in ("temp_store=FILE", "cache_size=-8192", "cell_size_check=ON", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    for limit, value in _LIMITS:
        connection.setlimit(limit, value)
    for name, arguments, function in FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)


def fence(connection: sqlite3.Connection, tables: frozenset[str]) -> None:
    """Allow only SELECT over these tables from now on."""

    def allowed(action: int, one: str | None, two: str | None, _db: str | None, _trigger: str | None) -> int:
        if action == sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            return sqlite3.SQLITE_OK if one in tables else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            name = (two or "").lower()
            return sqlite3.SQLITE_OK if name in BUILT_IN or name in _OURS else sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(allowed)


def unfence(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(None)
    connection.set_progress_handler(None, 0)


# ---- LIKE


def like(pattern: Any, text: Any, escape: Any) -> int | None:
    """``text LIKE pattern ESCAPE escape``; null when an operand is null."""
    if pattern is None or text is None:
        return None
    return int(_pattern(str(pattern), str(escape or ""))(str(text)))


def ilike(pattern: Any, text: Any, escape: Any) -> int | None:
    """``like()``, case-insensitive."""
    if pattern is None or text is None:
        return None
    return int(_pattern(str(pattern).lower(), str(escape or "").lower())(str(text).lower()))


@lru_cache(256)
def _pattern(pattern: str, escape: str) -> Callable[[str], bool]:
    """Compile a LIKE pattern to a matcher. Raises ValueError when the pattern is too long, alone or for the
    text.
    """
    sought(pattern)
    parts: list[list[str | None]] = [[]]  # None: any one character
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape and at + 1 < len(pattern):
            at += 1
            parts[-1].append(pattern[at])
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
        at += 1
    searches = [_search(part) for part in parts]
    lengths = [len(part) for part in parts]
    whole = len(parts) == 1

    def matches(text: str) -> bool:
        if len(text) < sum(lengths) or (whole and len(text) != lengths[0]):
            return False
        if searches[0](text, 0, lengths[0]) != 0:
            return False
        if whole:
            return True
        last = len(text) - lengths[-1]
        if searches[-1](text, last, len(text)) != last:
            return False
        place = lengths[0]
        for search, length in zip(searches[1:-1], lengths[1:-1], strict=True):
            found = search(text, place, last)
            if found < 0:
                return False
            place = found + length
        return place <= last

    return matches


def _search(part: list[str | None]) -> Callable[[str, int, int], int]:
    if None not in part:
        wanted = "".join(each or "" for each in part)
        return lambda text, start, end: text.find(wanted, start, end)
    found = re.compile("".join("." if each is None else re.escape(each) for each in part), re.DOTALL)

    def search(text: str, start: int, end: int) -> int:
        if (end - start) * len(part) > _MOST_COMPARED:
            raise ValueError("a part of LIKE is too long for its text")
        match = found.search(text, start, end)
        return match.start() if match else -1

    return search


# ---- search texts


def sought(value: Any) -> Any:
    """Return the search text unchanged. Raises ValueError when it is too long."""
    if value is not None and len(str(value)) > _LONGEST_SOUGHT:
        raise ValueError("the search text is too long")
    return value


# ---- times and numbers


def _calendar(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it returns null for a null argument and for a value that it cannot handle."""

    def call(*values: Any) -> Any:
        if any(value is None for value in values):
            return None
        try:
            return function(*values)
        except (ValueError, OverflowError, TypeError):
            return None

    return call


def _trunc(unit: str, milliseconds: int) -> int:
    moment = _calendar(milliseconds)
    month = {"month": moment.month, "quarter": (moment.month - 1) // 3 * 3 + 1, "year": 1}[unit]
    start = datetime(moment.year, month, 1, tzinfo=UTC) - EPOCH
    return start.days * _DAY_MS


_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda at: at.year,
    "quarter": lambda at: (at.month - 1) // 3 + 1,
    "month": lambda at: at.month,
    "day": lambda at: at.day,
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: at.second,
    "dow": lambda at: at.isoweekday() % 7,
    "isodow": lambda at: at.isoweekday(),
    "doy": lambda at: at.timetuple().tm_yday,
    "week": lambda at: at.isocalendar().week,
}


def _concat_ws(separator: Any, *values: Any) -> str | None:
    if separator is None:
        return None
    return str(separator).join(str(value) for value in values if value is not None)


def _part_of(text: Any, start: int, length: int | None = None) -> str:
    """``substring(text FROM start FOR length)``; places before the first character count, and are empty."""
    end = None if length is None else max(start + length - 1, 0)
    return str(text)[max(start - 1, 0) : end]


def _replaced(text: Any, part: Any, by: Any) -> str | None:
    """``replace(text, part, by)``. SQLite's own ignores a null ``by`` where it replaces nothing."""
    if text is None or part is None or by is None:
        return None
    whole, sought_part, new = str(text), str(part), str(by)
    if not sought_part:
        return whole
    if len(whole) + whole.count(sought_part) * (len(new) - len(sought_part)) > _LARGEST_VALUE:
        raise OverflowError  # to sqlite3: the text is too big
    return whole.replace(sought_part, new)


def float_text(value: float) -> str:
    """Return a number as Postgres writes a double: the fewest digits that distinguish it, with an exponent
    below 1e-4 and from 1e15 on.
    """
    number = float(value)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Infinity"
    text = repr(number).removesuffix(".0")
    if abs(number) < 1e15 or "e" in text:
        return text
    sign, digits = "-" if number < 0 else "", text.lstrip("-").replace(".", "").rstrip("0")
    return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e+15"


def _rounded(value: Any, places: int) -> Decimal:
    """Round to a number of decimals, a half away from zero: Postgres' numeric of 15 digits."""
    number = Decimal(value if isinstance(value, str) else f"{value:.15g}")
    return number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _DIGITS)


def _matching(pattern: re.Pattern[str], make: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: make(str(value)) if pattern.fullmatch(str(value)) else None


FUNCTIONS: tuple[tuple[str, int, Callable[..., Any]], ...] = (
    ("hub_like", 3, like),
    ("hub_ilike", 3, ilike),
    ("hub_sought", 1, sought),
    ("hub_trim", 2, _quiet(lambda text, of: str(text).strip(str(of)))),
    ("hub_ltrim", 2, _quiet(lambda text, of: str(text).lstrip(str(of)))),
    ("hub_rtrim", 2, _quiet(lambda text, of: str(text).rstrip(str(of)))),
    ("hub_lower", 1, _quiet(lambda text: str(text).lower())),
    ("hub_upper", 1, _quiet(lambda text: str(text).upper())),
    ("hub_left", 2, _quiet(lambda text, count: str(text)[:count])),
    ("hub_right", 2, _quiet(lambda text, count: str(text)[-count:] if count else "")),
    ("hub_substr", -1, _quiet(_part_of)),
    ("hub_replace", 3, _replaced),
    ("hub_concat_ws", -1, _concat_ws),
    ("hub_iso", 1, _quiet(lambda value: _iso_time(value) if _iso_time else None)),
    ("hub_iso_date", 1, _quiet(lambda value: _iso_date(value) if _iso_date else None)),
    ("hub_whole", 1, _quiet(_matching(_WHOLE, int))),
    ("hub_floating", 1, _quiet(_matching(_NUMERAL, float))),
    ("hub_epoch_ms", 1, _quiet(lambda text: parse_iso(str(text)))),
    ("hub_epoch_day", 1, _quiet(lambda text: parse_iso(str(text)) // _DAY_MS)),
    ("hub_float_text", 1, _quiet(float_text)),
    ("hub_rounded", 1, _quiet(lambda value: round(value) if abs(value) <= 9.2e18 else None)),
    ("hub_rounded_decimal", 1, _quiet(lambda value: int(_rounded(value, 0)))),
    ("hub_round", 1, _quiet(lambda value: float(round(value)))),
    ("hub_round_to", 2, _quiet(lambda value, places: float(_rounded(value, places)))),
    ("hub_floor", 1, _quiet(lambda value: float(math.floor(value)))),
    ("hub_ceil", 1, _quiet(lambda value: float(math.ceil(value)))),
    ("hub_sign", 1, _quiet(lambda value: (value > 0) - (value < 0))),
    ("hub_trunc", 2, _quiet(_trunc)),
    ("hub_hashed", 2, _quiet(lambda value, secret: hashed(str(value), bytes.fromhex(secret)))),
    ("hub_partly", 2, _quiet(lambda value, last: partly(str(value), last))),
    ("hub_part", 2, _quiet(lambda part, value: _PARTS[part](_calendar(value)))),
)
_OURS = frozenset(name for name, _, _ in FUNCTIONS)
