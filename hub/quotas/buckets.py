"""[core] A token bucket, and a sum over the last hour. The time is an argument, in seconds.

A bucket is kept as the amount that is used and not refilled yet. So a changed limit applies at once, and an
unused bucket needs no memory. A request larger than the whole bucket is admitted when the bucket is full;
the debt is refilled before the next one. Over any time T the admitted amount is at most ``limit * T / window
+ limit``, plus the excess of one such request. Source: the leaky bucket as a meter, ITU-T I.371, annex A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SLOT_S = 300.0
_SLOTS = 12
_ROUNDING = 1e-9  # of the limit: a bucket that refills to it in floating point is full


@dataclass(frozen=True, slots=True)
class BucketLevel:
    """The used amount at a time."""

    used: float = 0.0
    at_s: float = 0.0


def refilled(level: BucketLevel, limit: float, window_s: float, now_s: float) -> BucketLevel:
    """Return the level at ``now_s``. A clock that was set back refills nothing and blocks nobody."""
    elapsed_s = max(0.0, now_s - level.at_s)
    return BucketLevel(max(0.0, level.used - elapsed_s * limit / window_s), now_s)


def wait_s(level: BucketLevel, limit: float, window_s: float, amount: float) -> float:
    """Return the seconds until ``amount`` is admitted; 0.0: now. ``level`` is refilled already."""
    excess = level.used + min(amount, limit) - limit
    return 0.0 if excess <= limit * _ROUNDING else excess * window_s / limit


def spent(level: BucketLevel, amount: float) -> BucketLevel:
    return BucketLevel(level.used + amount, level.at_s)


def retry_after(seconds: float) -> int:
    """Return the value of ``Retry-After``: whole seconds, at least 1.

    >>> retry_after(0.01), retry_after(1.2)
    (1, 2)
    """
    return max(1, math.ceil(seconds))


@dataclass(slots=True)
class HourSum:
    """Sum of the amounts of the last 55 to 60 minutes, in slots of five minutes, and since the start."""

    total: float = 0.0
    _newest: int = 0
    _slots: list[float] = field(default_factory=lambda: [0.0] * _SLOTS)

    def add(self, amount: float, now_s: float) -> None:
        self._turn(now_s)
        self._slots[self._newest % _SLOTS] += amount
        self.total += amount

    def hour(self, now_s: float) -> float:
        self._turn(now_s)
        return sum(self._slots)

    def _turn(self, now_s: float) -> None:
        """Clear the slots between the newest one and now; all of them after more than an hour."""
        number = int(now_s // SLOT_S)
        if number <= self._newest:
            return
        for each in range(max(self._newest, number - _SLOTS) + 1, number + 1):
            self._slots[each % _SLOTS] = 0.0
        self._newest = number
