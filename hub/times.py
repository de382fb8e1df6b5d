"""[core] Times as the hub keeps and writes them: milliseconds since 1970 in UTC, and ISO 8601 text."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def epoch_ms() -> int:
    """Return the time of the clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ms_of(at: datetime) -> int:
    """Return milliseconds since 1970, rounded down, without the error of floats; UTC without a zone.

    >>> ms_of(datetime(2023, 11, 14, 22, 13, 20, 123_999))
    1700000000123
    """
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // _MS


def parse_iso(text: str) -> int:
    """Parse an ISO 8601 time into milliseconds since 1970; UTC without a zone. Raises ValueError.

    >>> parse_iso("1970-01-01T01:00:00+01:00"), parse_iso("1970-01-02")
    (0, 86400000)
    """
    return ms_of(datetime.fromisoformat(text.strip()))


def iso(at_ms: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC. Times outside of the calendar stay a number.

    >>> iso(1_700_000_000_123), iso(10**17)
    ('2023-11-14T22:13:20.123Z', '100000000000000000 ms')
    """
    try:
        return (EPOCH + at_ms * _MS).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    except OverflowError:
        return f"{at_ms} ms"
