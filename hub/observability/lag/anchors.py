"""[core] When did an offset arrive? Bracketed by the end offsets that were seen, poll by poll.

An anchor says: the log's end was already ``end`` at ``seen_ms`` (the answer came) and still ``end`` at ``still_ms``
(the question was asked). So an event at offset p with ``a.end <= p < b.end``, for neighbouring anchors a and b,
arrived after ``a.still_ms`` and not after ``b.seen_ms``. An idle log is one anchor that grows longer.

Old anchors are thinned so that a gap is at most a tenth of its age: dropping one only widens brackets, so the law
still holds and a lag of an hour is known within minutes. Limit: ``LIMIT`` anchors a partition (some 30 kB).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

# Everything younger is kept, because rates are drawn from it.
RECENT_MS = 120_000
GAP_OF_AGE = 0.1
LIMIT = 300
# An end that has stood for so long is asked for so often.
QUIET_MS = 30_000
QUIET_EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Anchor:
    """The log ended at ``end`` from ``seen_ms`` at the latest until ``still_ms`` at the earliest (epoch ms)."""

    end: int
    seen_ms: int
    still_ms: int


@dataclass(frozen=True, slots=True)
class Bracket:
    """An event arrived after ``after_ms`` (None: unknown) and not after ``until_ms`` (None: not seen yet). The log ended at
    ``after_end`` and at ``until_end`` at these times (None: not known)."""

    after_ms: int | None
    until_ms: int | None
    after_end: int | None = None
    until_end: int | None = None

    def likely_ms(self, position: int) -> float | None:
        """When the event at ``position`` arrived if all between the two ends came evenly; the middle where an end is not
        known, None where a time is not. Always within the bracket."""
        if self.after_ms is None or self.until_ms is None:
            return None
        first, end, share = self.after_end, self.until_end, 0.5
        if first is not None and end is not None and first <= position < end:
            share = (position - first + 0.5) / (end - first)
        return self.after_ms + share * (self.until_ms - self.after_ms)

    def waited(self, position: int, now_ms: int) -> tuple[float, float | None, float | None]:
        """For how long the event at ``position`` has waited, in seconds: at least, at most and most likely; None: not known."""
        low_s = 0.0 if self.until_ms is None else max(0.0, (now_ms - self.until_ms) / 1000)
        high_s = None if self.after_ms is None else max(low_s, (now_ms - self.after_ms) / 1000)
        likely_ms = self.likely_ms(position)
        if likely_ms is None or high_s is None:
            return low_s, high_s, None
        return low_s, high_s, min(high_s, max(low_s, (now_ms - likely_ms) / 1000))


Ring = tuple[Anchor, ...]


def observed(ring: Ring, end: int, asked_ms: int, answered_ms: int, limit: int = LIMIT) -> Ring:
    """The ring after one more poll. An end that fell means another log under the same name: start anew."""
    if not ring or end < ring[-1].end:
        return (Anchor(end, answered_ms, asked_ms),)
    last = ring[-1]
    if end == last.end:
        return (*ring[:-1], replace(last, still_ms=max(last.still_ms, asked_ms)))
    # A clock that was set back must not make a later anchor older than an earlier one.
    grown = (*ring, Anchor(end, max(answered_ms, last.seen_ms), max(asked_ms, last.still_ms)))
    return grown if len(grown) <= limit else thinned(grown, answered_ms, limit)


def is_due(ring: Ring, now_ms: int) -> bool:
    """Whether to ask for its end again. Of a partition where nothing comes that need not be with every poll: its anchors say
    for how long nothing was asked, so what is told of it is as true, and known some seconds later."""
    if not ring:
        return True
    last = ring[-1]
    return last.still_ms - last.seen_ms < QUIET_MS or now_ms - last.still_ms >= QUIET_EVERY_MS


def thinned(ring: Ring, now_ms: int, limit: int = LIMIT) -> Ring:
    """Fewer anchors, none of the recent ones lost; the oldest go when it is still too many."""
    kept = [ring[-1]]
    for before, anchor in zip(reversed(ring[:-2]), reversed(ring[1:-1]), strict=True):
        age_ms = now_ms - anchor.seen_ms
        # Without this anchor the gap would reach from the one before it to the one last kept.
        gap_ms = kept[-1].seen_ms - before.still_ms
        if age_ms <= RECENT_MS or gap_ms > GAP_OF_AGE * age_ms:
            kept.append(anchor)
    kept.append(ring[0])
    return tuple(reversed(kept))[-limit * 3 // 4 :]


def arrival(ring: Sequence[Anchor], position: int) -> Bracket:
    """When the event at ``position`` arrived. Needs at least one anchor."""
    index = bisect_right(ring, position, key=lambda anchor: anchor.end)
    after_ms, after_end = (ring[index - 1].still_ms, ring[index - 1].end) if index > 0 else (None, None)
    until_ms, until_end = (ring[index].seen_ms, ring[index].end) if index < len(ring) else (None, None)
    return Bracket(after_ms, until_ms, after_end, until_end)


def end_at(ring: Sequence[Anchor], at_ms: float) -> float | None:
    """The end offset at a time, on the line between the anchors around it; None before the first."""
    if not ring or at_ms < ring[0].seen_ms:
        return None
    index = bisect_right(ring, at_ms, key=lambda anchor: anchor.seen_ms)
    left = ring[index - 1]
    if index == len(ring) or at_ms <= left.still_ms:
        return left.end
    right = ring[index]
    start = max(left.seen_ms, left.still_ms)
    return left.end + (right.end - left.end) * (at_ms - start) / max(1, right.seen_ms - start)
