"""[core] Samples rolled up into buckets of 10 s, 1 min and 1 h: number, sum, smallest and largest.

A bucket is a sum over its samples, so the order of samples and how they are split into writes does not
matter.
``samples`` is the number of known samples: a bucket without one does not exist, and is a gap in a chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hub.errors import CallerError

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
# Most points of one series in an answer.
MOST_POINTS = 800


class SampleBucket(NamedTuple):
    """Samples of one span of time."""

    samples: int
    total: float
    low: float
    high: float

    @property
    def mean(self) -> float:
        return self.total / self.samples


class SeriesLevel(NamedTuple):
    """A level of the store: buckets of ``step_ms``, deleted after ``keep_ms``."""

    name: str
    step_ms: int
    keep_ms: int


FINE = SeriesLevel("fine", 10 * SECOND_MS, 6 * HOUR_MS + 10 * MINUTE_MS)
MINUTE = SeriesLevel("minute", MINUTE_MS, 2 * DAY_MS)
HOUR = SeriesLevel("hour", HOUR_MS, 40 * DAY_MS)
LEVELS = (FINE, MINUTE, HOUR)


@dataclass(frozen=True, slots=True)
class SeriesRange:
    """A range that pages offer: its length, the step between two points, and the level that has it."""

    name: str
    title: str
    span_ms: int
    step_ms: int
    level: SeriesLevel


RANGES: Mapping[str, SeriesRange] = {
    each.name: each
    for each in (
        SeriesRange("15m", "15 min", 15 * MINUTE_MS, 10 * SECOND_MS, FINE),
        SeriesRange("1h", "1 h", HOUR_MS, 10 * SECOND_MS, FINE),
        SeriesRange("6h", "6 h", 6 * HOUR_MS, 30 * SECOND_MS, FINE),
        SeriesRange("24h", "24 h", DAY_MS, 2 * MINUTE_MS, MINUTE),
        SeriesRange("7d", "7 d", 7 * DAY_MS, HOUR_MS, HOUR),
        SeriesRange("30d", "30 d", 30 * DAY_MS, HOUR_MS, HOUR),
    )
}
DEFAULT_RANGE = "1h"


def checked_range(name: str) -> SeriesRange:
    """Return the range of that name, ``1h`` for none. Raises CallerError (HUB-1008)."""
    series_range = RANGES.get(name or DEFAULT_RANGE)
    if series_range is None:
        raise CallerError(
            f'range "{name[:100]}" is unknown', hint=f"use one of: {', '.join(RANGES)}", code="HUB-1008"
        )
    return series_range


@dataclass(frozen=True, slots=True)
class SeriesWindow:
    """Span of an answer: points at ``start_ms``, then every ``step_ms``, the last one before ``end_ms``. Each
    point is the bucket that begins there."""

    start_ms: int
    end_ms: int
    step_ms: int
    level: SeriesLevel

    @property
    def times(self) -> range:
        return range(self.start_ms, self.end_ms, self.step_ms)


def window_of(wanted: SeriesRange, now_ms: int, sample_ms: int = FINE.step_ms) -> SeriesWindow:
    """Return the window that ends with the bucket of ``now_ms``. ``sample_ms``: interval of the samples; a
    shorter step would show a gap between each two of them."""
    step_ms = max(wanted.step_ms, -(-sample_ms // FINE.step_ms) * FINE.step_ms)
    end_ms = now_ms - now_ms % step_ms + step_ms
    count = min(MOST_POINTS, wanted.span_ms // step_ms)
    return SeriesWindow(end_ms - count * step_ms, end_ms, step_ms, wanted.level)


def hourly(window: SeriesWindow) -> SeriesWindow:
    """Return the window by the hour, a day at least: for series that are kept by the hour only."""
    end_ms = -(-window.end_ms // HOUR_MS) * HOUR_MS
    start_ms = min(window.start_ms // HOUR_MS * HOUR_MS, end_ms - DAY_MS)
    return SeriesWindow(start_ms, end_ms, HOUR_MS, HOUR)


def bucket_of(value: float) -> SampleBucket:
    return SampleBucket(1, value, value, value)


def merged(one: SampleBucket, other: SampleBucket) -> SampleBucket:
    """Return the bucket of both. Associative and commutative."""
    return SampleBucket(
        one.samples + other.samples,
        one.total + other.total,
        min(one.low, other.low),
        max(one.high, other.high),
    )


def rolled(buckets: Iterable[tuple[int, SampleBucket]], step_ms: int) -> dict[int, SampleBucket]:
    """Return buckets of ``step_ms`` by their start, from (time, bucket) in any order."""
    found: dict[int, SampleBucket] = {}
    for at_ms, bucket in buckets:
        start_ms = at_ms - at_ms % step_ms
        known = found.get(start_ms)
        found[start_ms] = bucket if known is None else merged(known, bucket)
    return found


def points(
    buckets: Iterable[tuple[int, SampleBucket]], window: SeriesWindow
) -> tuple[SampleBucket | None, ...]:
    """Return one bucket for each time of the window; None: nothing is known of it."""
    by_start = rolled(buckets, window.step_ms)
    return tuple(by_start.get(at_ms) for at_ms in window.times)
