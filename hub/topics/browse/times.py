"""[core] Times as people type them: a moment, or how long ago."""

from __future__ import annotations

import re

from hub.errors import CallerError
from hub.times import parse_iso

_AGO = re.compile(r"(\d{1,6})\s*(s|m|min|h|d)")
_MS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def time_ms(text: str, now_ms: int, hint: str) -> int:
    """Parse ``15m`` or ``2026-01-31T12:00`` (UTC unless it names a zone) into epoch milliseconds. Raises
    CallerError with ``hint``."""
    ago = _AGO.fullmatch(text.lower())
    if ago is not None:
        return now_ms - int(ago[1]) * _MS[ago[2]]
    try:
        return parse_iso(text)
    except ValueError:
        raise CallerError(f'"{text[:40]}" is not a place in the log', hint=hint) from None
