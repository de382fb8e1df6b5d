"""[core] Ticks of the axes of a chart: round values in the metric's unit, round times in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import floor, log10

from hub.observability import format
from hub.observability.series.catalog import Unit

FEWEST_TICKS = 4
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_TIME_STEPS_S = (
    *(60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY_S, 2 * _DAY_S, 5 * _DAY_S, 10 * _DAY_S),
)
MOST_TIMES = 7
# Durations have no round hundreds: after 60 s come minutes, after 60 minutes hours.
_SECOND_STEPS = (60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200)
_WHOLE = {Unit.number, Unit.bytes, Unit.bytes_per_second, Unit.percent}


def value_ticks(top: float, unit: Unit) -> tuple[float, ...]:
    """Return round values from 0 up to the first one that is not below ``top``.

    >>> value_ticks(7.2, Unit.per_second)
    (0.0, 2.0, 4.0, 6.0, 8.0)
    >>> value_ticks(3, Unit.number), value_ticks(200, Unit.seconds)
    ((0.0, 1.0, 2.0, 3.0), (0.0, 60.0, 120.0, 180.0, 240.0))
    """
    if top <= 0:
        return (0.0, 1.0)
    step = _step(top / FEWEST_TICKS, unit)
    count = max(1, -int(-top / step // 1))
    return tuple(float(f"{index * step:.12g}") for index in range(count + 1))


def _step(least: float, unit: Unit) -> float:
    if unit is Unit.seconds and least > 30:
        day = next((step for step in _SECOND_STEPS if step >= least), None)
        return float(day) if day is not None else _round_up(least / _DAY_S) * _DAY_S
    step = _round_up(least)
    return max(1.0, step) if unit in _WHOLE else step


def _round_up(least: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is not below ``least``."""
    power: float = 10.0 ** floor(log10(least))
    return next((times * power for times in (1, 2, 5) if times * power >= least * (1 - 1e-9)), 10 * power)


def time_ticks(start_ms: int, end_ms: int) -> tuple[tuple[int, str], ...]:
    """Return round times within a span with their labels: time of day, at midnight the date."""
    span_s = (end_ms - start_ms) / 1000
    step_s = next((step for step in _TIME_STEPS_S if span_s / step <= MOST_TIMES), _TIME_STEPS_S[-1])
    step_ms = step_s * 1000
    first_ms = -(-start_ms // step_ms) * step_ms
    return tuple((at_ms, time_label(at_ms, step_s)) for at_ms in range(first_ms, end_ms, step_ms))


def time_label(at_ms: int, step_s: int = _MINUTE_S) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step_s >= _DAY_S or (step_s >= _HOUR_S and at.hour == 0):
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}"


def labeled(value: float | None, unit: Unit) -> str:
    """Format a value for the legend and the numbers; a dash for an unknown one."""
    return _FORMATS[unit](value)


def _per_second(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{format.rate(value)}/s"


def _bytes_per_second(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{format.size(value)}/s"


def _count(value: float | None) -> str:
    whole = value is None or value == floor(value)
    return format.short(value) if whole or (value or 0) >= 100 else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.0f} %"


_FORMATS: Mapping[Unit, Callable[[float | None], str]] = {
    Unit.per_second: _per_second,
    Unit.seconds: format.seconds,
    Unit.number: _count,
    Unit.bytes: format.size,
    Unit.bytes_per_second: _bytes_per_second,
    Unit.percent: _percent,
}
