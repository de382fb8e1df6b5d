"""[core] Times of the page of completeness: ranges, minutes and ticks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import translate

from hub.errors import CallerError
from hub.times import parse_iso

MINUTE_MS = 60_000
_LATEST_MS = 253_370_764_800_000  # in the year 9999, the last year of a datetime


# name: (a column's milliseconds, columns)
RANGES = {
    "1h": (MINUTE_MS, 60),
    "6h": (10 * MINUTE_MS, 36),
    "24h": (30 * MINUTE_MS, 48),
    "7d": (180 * MINUTE_MS, 56),
    "30d": (720 * MINUTE_MS, 60),
}


def until_of(text: str, now_ms: int) -> int:
    """Parse a time of an address into epoch ms; empty: now. Raises CallerError."""
    if not text:
        return now_ms
    at_ms = at_of(text)
    if at_ms > _LATEST_MS:
        raise CallerError(
            f'"{text[:40]}" is outside the map', hint="write 2026-01-31T12:30Z, or milliseconds"
        )
    return at_ms


def at_of(text: str) -> int:
    """Parse a cell's time into epoch ms, in any format that ``minute`` writes. Raises CallerError."""
    try:
        if number := re.fullmatch(r"(\d{1,15})|(\d{1,19})ms", text):
            return int(number[1] or number[2])
        at_ms = parse_iso(text)
        if at_ms >= 0:
            return at_ms
    except ValueError:
        pass
    raise CallerError(f'"{text[:40]}" is not a time', hint="write 2026-01-31T12:30Z, or milliseconds")


def minute(at_ms: int) -> str:
    """Format a time for ``hub completeness missing``: 2026-01-31T12:30Z.

    Times out of range, such as those of producers that write microseconds, become 1790000000000000ms.
    """
    try:
        return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%MZ}"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms}ms"


def tick(at_ms: int, step_ms: int) -> str:
    """Return the label above a column: a time of day, a date, or "" for most columns."""
    every_ms = {60_000: 10, 600_000: 6, 1_800_000: 6, 10_800_000: 8, 43_200_000: 10}[step_ms] * step_ms
    if at_ms % every_ms:
        return ""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%H:%M}" if every_ms < 86_400_000 else f"{at.day} {at:%b}"


def fitting(text: str) -> Callable[[str], bool]:
    """Return a predicate for topic names: ``shop.*`` matches the whole name, ``shop`` any part of it."""
    text = text.strip()
    if any(each in text for each in "*?"):
        pattern = re.compile(translate(text.replace("[", "[[]")))
        return lambda name: pattern.match(name) is not None
    return lambda name: text in name
