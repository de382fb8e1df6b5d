"""[core] Whether a batch still moves: how long nothing of it has changed, on a clock that does not run while nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Longest time that one look adds: a process that was frozen, or starved, has not watched a batch meanwhile.
_A_LOOK_S = 5.0
# A batch that was silent for this long is asked for more than its number.
_LONG_S = 10.0


@dataclass(slots=True)
class StallClock:
    """How long a batch has been silent. ``limit_s``: when that is too long; 0: never."""

    limit_s: float
    silent_s: float = 0.0
    _place: object = None
    _life: object = None
    _looked_at_s: float = 0.0

    def moved(self, now_s: float) -> None:
        """Start from zero: something happened, or nothing can be said."""
        self.silent_s, self._place, self._life, self._looked_at_s = 0.0, None, None, now_s

    def look(self, place: object, life: Callable[[], object], now_s: float) -> bool:
        """Return True when nothing has changed for too long. ``place``: which batch it is; ``life``: what changes while it
        runs, asked only of a batch that takes long because the question has a price."""
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
