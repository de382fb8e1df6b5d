"""[core] Lag in seconds as interpolating exporters estimate it, and a summary of errors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence


class Interpolating:
    """Lag in seconds as lag exporters guess it: a queue of (end offset, time of the poll), a straight line
    between neighbours, and beyond the oldest a line through the first and the last."""

    def __init__(self, points: int = 60) -> None:
        self.points: deque[tuple[int, float]] = deque(maxlen=points)

    def add(self, end: int, at_s: float) -> None:
        points = self.points
        if points and (at_s <= points[-1][1] or end < points[-1][0]):
            return
        if len(points) >= 2 and end == points[-1][0] == points[-2][0]:
            points[-1] = (end, at_s)  # a flat stretch is its two ends
            return
        points.append((end, at_s))

    def lag_s(self, position: int, now_s: float) -> float:
        points = list(self.points)
        if points and position == points[-1][0]:
            return 0.0
        if len(points) < 2:
            return math.nan
        for left, right in zip(reversed(points[:-1]), reversed(points[1:]), strict=True):
            if left[0] <= position < right[0]:
                return now_s - self._on_line(left, right, position)
        return now_s - self._on_line(points[0], points[-1], position)

    @staticmethod
    def _on_line(left: tuple[int, float], right: tuple[int, float], position: int) -> float:
        if right[0] == left[0]:
            return -math.inf
        return right[1] - (right[0] - position) * (right[1] - left[1]) / (right[0] - left[0])


def middle_and_tail(values: Sequence[float]) -> str:
    """The median and the 99th percentile."""
    if not values:
        return "-/-"
    ordered = sorted(values)
    return "/".join(
        f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))]:.1f}" for share in (0.5, 0.99)
    )
