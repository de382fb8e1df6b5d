"""[core] Statistics of a trend.

Sources: Mann (1945), Kendall (1975) with the correction for ties; Theil (1950), Sen (1968).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import median


def mann_kendall(values: Sequence[float]) -> float:
    """Return the test statistic z for a monotone trend, corrected for ties; 0 for fewer than three values."""
    n = len(values)
    if n < 3:
        return 0.0
    score = 0
    for index, value in enumerate(values):
        for later in values[index + 1 :]:
            score += (later > value) - (later < value)
    if score == 0:
        return 0.0
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    return (score - 1 if score > 0 else score + 1) / sqrt(variance) if variance > 0 else 0.0


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope over all pairs; 0 without two different times."""
    slopes = [
        (values[later] - values[index]) / (times[later] - times[index])
        for index in range(len(times))
        for later in range(index + 1, len(times))
        if times[later] > times[index]
    ]
    return median(slopes) if slopes else 0.0
