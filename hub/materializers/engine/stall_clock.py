"""[core] Detect a stalled batch: measure how long nothing in it has changed, on a clock that runs only while
it is watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Most seconds that one look adds: a process that was frozen or starved did not watch the batch meanwhile.
_A_LOOK_S = 5.0
# After this much silence, more than the batch's number is compared.
_LONG_S = 10.0


@dataclass(slots=True)
class StallClock:
    """Time without progress of a batch, in seconds. ``limit_s``: when it counts as a stall; 0: never."""

    limit_s: float
    silent_s: float = 0.0
    _place: object = None
    _life: object = None
    _looked_at_s: float = 0.0

    def moved(self, now_s: float) -> None:
        """Reset the clock: something changed, or the batch cannot be judged."""
        self.silent_s, self._place, self._life, self._looked_at_s = 0.0, None, None, now_s

    def look(self, place: object, life: Callable[[], object], now_s: float) -> bool:
        """Return True when nothing has changed for ``limit_s`` seconds.

        ``place``: which batch it is. ``life``: returns what changes while the batch runs; it is expensive and
        called only for a batch that takes long.
        """
        if place != self._place:
            self.moved(now_s)
            self._place = place
            return False
        self.silent_s += min(_A_LOOK_S, max(0.0, now_s - self._looked_at_s))
        self._looked_at_s = now_s
        if self.silent_s >= min(_LONG_S, self.limit_s / 4):
            before, self._life = self._life, life()
            if before is not None and before != self._life:
                self.silent_s = 0.0
        return 0 < self.limit_s <= self.silent_s
