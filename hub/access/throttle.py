"""[core] Limit of failed sign-ins per address: a refilling bucket. Time is an argument."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

MOST_FAILURES = 10
AGAIN_EVERY_S = 6.0
_MOST_ADDRESSES = 10_000


@dataclass
class Throttle:
    """Allows ``MOST_FAILURES`` failures at once, then one every ``AGAIN_EVERY_S``. Keeps the latest 10,000
    addresses. Not thread safe.
    """

    _failed: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait_s(self, address: str, now_s: float) -> int:
        """Return the seconds until the address may try again; 0: now."""
        over = self._level(address, now_s) - (MOST_FAILURES - 1)
        return max(0, math.ceil(over * AGAIN_EVERY_S)) if over > 0 else 0

    def failed(self, address: str, now_s: float) -> None:
        """Count a failure from the address."""
        level = self._level(address, now_s) + 1.0
        self._failed[address] = (level, now_s)
        self._failed.move_to_end(address)
        while len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)

    def _level(self, address: str, now_s: float) -> float:
        level, at_s = self._failed.get(address, (0.0, now_s))
        return max(0.0, level - (now_s - at_s) / AGAIN_EVERY_S)
