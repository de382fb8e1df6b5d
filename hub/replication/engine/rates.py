"""[core] Rates and lag in seconds of a mirror.

A worker observes the source's end offset repeatedly. ``Arrivals`` keeps when it reached which offset; the lag
in seconds is the time since the end was first past the mirror's position. Record timestamps are not used:
events may be years old.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# resolution: 1/100 of the time that the samples span; limits them to some hundreds, over months too
_PARTS = 100


@dataclass
class Arrivals:
    """Times at which the source's end offset was first observed; seconds of one clock."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, now_s: float, end: int) -> None:
        samples = self.samples
        if samples and end < samples[-1][1]:
            samples.clear()  # another log: the topic was recreated or truncated
        if samples and end == samples[-1][1]:
            return
        if len(samples) > 1 and now_s - samples[-2][0] < (now_s - samples[0][0]) / _PARTS:
            samples.pop()
        samples.append((now_s, end))

    def lag_s(self, now_s: float, position: int) -> float:
        """Return the seconds since the source was first seen past ``position``, to 1/100; 0 when it was never
        seen there. A lower bound when nobody observed the source that long ago.
        """
        while len(self.samples) > 1 and self.samples[0][1] <= position:
            self.samples.popleft()
        late = [at_s for at_s, end in self.samples if end > position]
        return max(0.0, now_s - late[0]) if late else 0.0


@dataclass
class Rate:
    """Growth per second of a counter, over about the last ``window_s``."""

    window_s: float = 10.0
    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def see(self, now_s: float, count: float) -> float:
        if self.samples and count < self.samples[-1][1]:
            self.samples.clear()  # the counter was reset
        self.samples.append((now_s, count))
        while len(self.samples) > 2 and now_s - self.samples[1][0] >= self.window_s:
            self.samples.popleft()
        first_s, first = self.samples[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


@dataclass
class Bucket:
    """Byte rate limit that lets one step through at a time; a step that exceeded it is waited for afterwards.

    ``most_s``: seconds' worth of unused rate that later steps may use at once.
    """

    bytes_per_s: float
    most_s: float = 1.0
    _free_at_s: float = 0.0

    def took(self, now_s: float, size: int) -> float:
        """Account for a step of ``size`` bytes; return the seconds to wait before the next one."""
        self._free_at_s = max(self._free_at_s, now_s - self.most_s) + size / self.bytes_per_s
        return max(0.0, self._free_at_s - now_s)
