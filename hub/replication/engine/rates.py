"""[core] How late a mirror is: in seconds out of what was seen, rates, and what a failover would cost each group now.

A worker sees the source's end again and again. ``Arrivals`` keeps when it reached what; the lag in seconds is the time
since it was first past the mirror's position. No clock of the records is asked: events may be years old.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_PARTS = 100  # as fine as a hundredth of the time that the samples span; so they are some hundreds, over months too


@dataclass
class Arrivals:
    """When the source's end was first seen at which offset; times in seconds of one clock."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, now_s: float, end: int) -> None:
        samples = self.samples
        if samples and end < samples[-1][1]:
            samples.clear()  # it is another log: made anew, or cut
        if samples and end == samples[-1][1]:
            return
        if len(samples) > 1 and now_s - samples[-2][0] < (now_s - samples[0][0]) / _PARTS:
            samples.pop()
        samples.append((now_s, end))

    def lag_s(self, now_s: float, position: int) -> float:
        """How long ago the source was first seen past ``position``, to a hundredth; 0 when it has not been. At least that,
        where nobody looked so long ago."""
        while len(self.samples) > 1 and self.samples[0][1] <= position:
            self.samples.popleft()
        late = [at_s for at_s, end in self.samples if end > position]
        return max(0.0, now_s - late[0]) if late else 0.0


@dataclass
class Rate:
    """Of a count that only grows: its growth a second over about the last ``window_s``."""

    window_s: float = 10.0
    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def see(self, now_s: float, count: float) -> float:
        if self.samples and count < self.samples[-1][1]:
            self.samples.clear()  # it began anew
        self.samples.append((now_s, count))
        while len(self.samples) > 2 and now_s - self.samples[1][0] >= self.window_s:
            self.samples.popleft()
        first_s, first = self.samples[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


@dataclass
class Bucket:
    """A limit of bytes a second that lets one step through at a time: what a step took too much is waited for.

    ``most_s``: how much of what was not taken may be taken at once later.
    """

    bytes_per_s: float
    most_s: float = 1.0
    _free_at_s: float = 0.0

    def took(self, now_s: float, size: int) -> float:
        """A step took ``size`` bytes; the seconds to wait before the next one."""
        self._free_at_s = max(self._free_at_s, now_s - self.most_s) + size / self.bytes_per_s
        return max(0.0, self._free_at_s - now_s)
