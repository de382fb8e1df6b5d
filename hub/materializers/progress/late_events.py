"""[core] Late events of a SQL view, counted by window: how late they were, and which watermark would have
accepted them.

A late event cannot be replayed through its topic: it is there already, and the view's watermark has passed
it. The solution is another watermark: when the view's file changes, the hub recomputes the view from the
start of its log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hub.record import Record
from hub.times import iso, parse_iso

_UNIT_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_WINDOW = re.compile(
    r"\bwindow\s*\(\s*[^,]+,\s*'(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?'", re.IGNORECASE
)
_DEFAULT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class LateEvent:
    """A late event: ``topic`` is its own topic, ``event_ms`` its event time, ``watermark_ms`` the view's
    watermark."""

    topic: str
    event_ms: int
    watermark_ms: int

    @property
    def behind_ms(self) -> int:
        return max(0, self.watermark_ms - self.event_ms)


def late_event(record: Record) -> LateEvent | None:
    """Parse a record of ``views.<view>.late``. Return None if it lacks the headers or a time in them is
    malformed."""
    headers = [record.header(f"hub.late.{name}") for name in ("topic", "event_time", "watermark")]
    if any(each is None for each in headers):
        return None
    topic, event, watermark = (each.decode(errors="replace") for each in headers if each is not None)
    try:
        return LateEvent(topic, parse_iso(event), parse_iso(watermark))
    except ValueError:
        return None


def window_ms(sql: str) -> int:
    """The length of the first ``window(…)`` of a SELECT; an hour where there is none.

    >>> window_ms("SELECT count(*) FROM t GROUP BY window(at, '5 minutes')")
    300000
    """
    match = _WINDOW.search(sql)
    return _DEFAULT_MS if match is None else int(match[1]) * _UNIT_MS[match[2].lower()]


def by_window(events: Iterable[LateEvent], length_ms: int) -> list[dict[str, Any]]:
    """Return one row per window and topic, in order: the count, and the largest distance behind the
    watermark."""
    counts: dict[tuple[int, str], list[int]] = {}
    for each in events:
        counts.setdefault((each.event_ms // length_ms * length_ms, each.topic), []).append(each.behind_ms)
    return [
        {
            "window": iso(start),
            "until": iso(start + length_ms),
            "topic": topic,
            "late": len(behind),
            "behind_ms": max(behind),
        }
        for (start, topic), behind in sorted(counts.items())
    ]


def needed_ms(events: Iterable[LateEvent], watermark_ms: int) -> int:
    """Return the watermark delay that would have accepted all events, in ms, rounded up to whole minutes.

    It is the current delay plus the most that an event was behind it. Without late events, it is the current
    delay.
    """
    most = max((each.behind_ms for each in events), default=0)
    return -(-(watermark_ms + most + 1) // 60_000) * 60_000 if most else watermark_ms
