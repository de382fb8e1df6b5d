"""[core] Events per second, from the same anchors as lag: how far the end offsets moved, over how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hub.observability.lag.anchors import QUIET_EVERY_MS, Ring, end_at

WINDOW_MS = 10_000
STEPS = 40
STALE_MS = 60_000
# A topic without an answered poll for this long is away: quiet topics are polled more often than that.
AWAY_MS = 3 * QUIET_EVERY_MS


def arrived(rings: Iterable[Ring], from_ms: float, to_ms: float) -> float | None:
    """Return the events that arrived between two times, over several partitions; None when nothing was
    observed.

    A partition first seen within the span counts from then on: what it held before did not arrive now.
    """
    total, known = 0.0, False
    for ring in rings:
        end = end_at(ring, to_ms)
        if end is None:
            continue
        start = end_at(ring, from_ms)
        total += end - (ring[0].end if start is None else start)
        known = True
    return total if known else None


def per_second(rings: Sequence[Ring], now_ms: int, window_ms: int = WINDOW_MS) -> float | None:
    """Return the mean rate over the last ``window_ms``, or since the first poll if that is shorter.

    None when no poll was answered for ``STALE_MS``: an older rate is not current.
    """
    first_ms = min((ring[0].observed_ms for ring in rings if ring), default=now_ms)
    # Up to the last poll, not now: later events are not counted yet and must not dilute the rate.
    to_ms = _answered_ms(rings, now_ms)
    if now_ms - to_ms > STALE_MS:
        return None
    from_ms = max(to_ms - window_ms, first_ms)
    count = arrived(rings, from_ms, to_ms)
    return None if count is None or to_ms <= from_ms else count * 1000 / (to_ms - from_ms)


def history(
    rings: Sequence[Ring], now_ms: int, steps: int = STEPS, step_ms: int = 3_000
) -> tuple[float, ...]:
    """Return the events per second of the last ``steps`` steps, oldest first; unknown steps are omitted.

    While no poll is answered the values stay the same; after ``STALE_MS`` the result is empty. Steps begin at
    multiples of ``step_ms``, so that a chart redrawn every second does not flicker.
    """
    answered_ms = _answered_ms(rings, now_ms)
    if now_ms - answered_ms > STALE_MS:
        return ()
    if now_ms - answered_ms > AWAY_MS:
        now_ms = answered_ms
    last_ms = now_ms - now_ms % step_ms
    spans = ((last_ms - (index + 1) * step_ms, last_ms - index * step_ms) for index in reversed(range(steps)))
    counts = (arrived(rings, start, end) for start, end in spans)
    return tuple(count * 1000 / step_ms for count in counts if count is not None)


def _answered_ms(rings: Iterable[Ring], now_ms: int) -> int:
    """Return the time of the most recent successful poll, epoch milliseconds."""
    return max((max(ring[-1].observed_ms, ring[-1].still_ms) for ring in rings if ring), default=now_ms)
