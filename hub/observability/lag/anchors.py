"""[core] Arrival time of an offset, bracketed by the end offsets observed at each poll.

An anchor states: the log's end was already ``end`` at ``observed_ms`` (time of the answer) and still
``end`` at ``still_ms`` (time of the request). For neighboring anchors a and b, an event at offset p with
``a.end <= p < b.end`` arrived after ``a.still_ms`` and not after ``b.observed_ms``. An idle log is one anchor
that grows longer.

Old anchors are thinned so that a gap is at most a tenth of its age. Dropping an anchor only widens brackets,
so they stay correct, and a lag of an hour is known within minutes. Limit: ``LIMIT`` anchors a partition
(about 30 kB).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

# Anchors younger than this are all kept: rates are computed from them.
RECENT_MS = 120_000
GAP_OF_AGE = 0.1
LIMIT = 300
# A partition whose end has not moved for QUIET_MS is polled every QUIET_EVERY_MS.
QUIET_MS = 30_000
QUIET_EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Anchor:
    """End offset ``end`` of a log, known to hold from ``observed_ms`` (at the latest) until ``still_ms`` (at
    the earliest), epoch ms."""

    end: int
    observed_ms: int
    still_ms: int


@dataclass(frozen=True, slots=True)
class Bracket:
    """Arrival time of an event: after ``after_ms`` (None: unknown) and not after ``until_ms`` (None: not
    observed yet).

    ``after_end`` and ``until_end``: end offsets of the log at these times; None: unknown.
    """

    after_ms: int | None
    until_ms: int | None
    after_end: int | None = None
    until_end: int | None = None

    def likely_ms(self, position: int) -> float | None:
        """Return the likely arrival time of the event at ``position``, interpolated between the two ends.

        The middle of the bracket when an end is unknown; None when a time is unknown. Always within the
        bracket.
        """
        if self.after_ms is None or self.until_ms is None:
            return None
        first, end, share = self.after_end, self.until_end, 0.5
        if first is not None and end is not None and first <= position < end:
            share = (position - first + 0.5) / (end - first)
        return self.after_ms + share * (self.until_ms - self.after_ms)

    def waited(self, position: int, now_ms: int) -> tuple[float, float | None, float | None]:
        """Return how long the event at ``position`` has waited, in seconds: (at least, at most, most
        likely); None: unknown."""
        low_s = 0.0 if self.until_ms is None else max(0.0, (now_ms - self.until_ms) / 1000)
        high_s = None if self.after_ms is None else max(low_s, (now_ms - self.after_ms) / 1000)
        likely_ms = self.likely_ms(position)
        if likely_ms is None or high_s is None:
            return low_s, high_s, None
        return low_s, high_s, min(high_s, max(low_s, (now_ms - likely_ms) / 1000))


Ring = tuple[Anchor, ...]


def observed(ring: Ring, end: int, polled_ms: int, answered_ms: int, limit: int = LIMIT) -> Ring:
    """Return the ring after one more poll. A smaller end means another log under the same name: start a
    new ring."""
    if not ring or end < ring[-1].end:
        return (Anchor(end, answered_ms, polled_ms),)
    last = ring[-1]
    if end == last.end:
        return (*ring[:-1], replace(last, still_ms=max(last.still_ms, polled_ms)))
    # Keep the order of anchors when the clock was set back.
    grown = (*ring, Anchor(end, max(answered_ms, last.observed_ms), max(polled_ms, last.still_ms)))
    return grown if len(grown) <= limit else thinned(grown, answered_ms, limit)


def is_due(ring: Ring, now_ms: int) -> bool:
    """Return whether to poll the partition's end again.

    A quiet partition is polled less often. Its anchors record the times of the polls, so its lag stays
    correct and is only known some seconds later.
    """
    if not ring:
        return True
    last = ring[-1]
    return last.still_ms - last.observed_ms < QUIET_MS or now_ms - last.still_ms >= QUIET_EVERY_MS


def thinned(ring: Ring, now_ms: int, limit: int = LIMIT) -> Ring:
    """Return the ring with fewer anchors. Recent ones are kept; the oldest are dropped when there are
    still too many."""
    anchors = [ring[-1]]
    for before, anchor in zip(reversed(ring[:-2]), reversed(ring[1:-1]), strict=True):
        age_ms = now_ms - anchor.observed_ms
        # The gap without this anchor: from its predecessor to the last kept anchor.
        gap_ms = anchors[-1].observed_ms - before.still_ms
        if age_ms <= RECENT_MS or gap_ms > GAP_OF_AGE * age_ms:
            anchors.append(anchor)
    anchors.append(ring[0])
    return tuple(reversed(anchors))[-limit * 3 // 4 :]


def arrival(ring: Sequence[Anchor], position: int) -> Bracket:
    """Return the bracket of the arrival of the event at ``position``. Requires at least one anchor."""
    index = bisect_right(ring, position, key=lambda anchor: anchor.end)
    after_ms, after_end = (ring[index - 1].still_ms, ring[index - 1].end) if index > 0 else (None, None)
    until_ms, until_end = (ring[index].observed_ms, ring[index].end) if index < len(ring) else (None, None)
    return Bracket(after_ms, until_ms, after_end, until_end)


def end_at(ring: Sequence[Anchor], at_ms: float) -> float | None:
    """Return the end offset at a time, interpolated between the neighboring anchors; None before the
    first."""
    if not ring or at_ms < ring[0].observed_ms:
        return None
    index = bisect_right(ring, at_ms, key=lambda anchor: anchor.observed_ms)
    left = ring[index - 1]
    if index == len(ring) or at_ms <= left.still_ms:
        return left.end
    right = ring[index]
    start = max(left.observed_ms, left.still_ms)
    return left.end + (right.end - left.end) * (at_ms - start) / max(1, right.observed_ms - start)
