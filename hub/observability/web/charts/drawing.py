"""[core] Lines, bands and gaps of a chart as parts of SVG.

Coordinates are in a box of ``WIDE`` by ``HIGH`` that the page stretches to its size, without its strokes.
Texts are placed by percentages beside that box, so they keep their size on every screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

WIDE, HIGH = 1_000, 200
Values = Sequence[float | None]


def known_runs(values: Values) -> Iterator[tuple[int, int]]:
    """Yield the stretches of known values as (first, index after the last)."""
    first: int | None = None
    for index, value in enumerate([*values, None]):
        if value is not None and first is None:
            first = index
        elif value is None and first is not None:
            yield first, index
            first = None


def gaps(values: Values) -> list[tuple[int, int]]:
    """Return the stretches of unknown values as (first, index after the last)."""
    found, at = [], 0
    for first, after in known_runs(values):
        if first > at:
            found.append((at, first))
        at = after
    if at < len(values):
        found.append((at, len(values)))
    return found


def line(values: Values, top: float) -> str:
    """Return the ``d`` of a path that is interrupted where a value is unknown. A value alone is a dot: a line
    without length, with round ends.

    >>> line([0.0, 10.0, None, 5.0], 10.0)
    'M125 200L375 0M875 100h0'
    """
    parts = []
    for first, after in known_runs(values):
        places = [_place(index, value, len(values), top) for index, value in _known(values, first, after)]
        parts.append("M" + "L".join(places) + ("h0" if after - first == 1 else ""))
    return "".join(parts)


def band(low: Values, high: Values, top: float) -> str:
    """Return the ``d`` of the area between two lines, where both are known for two points or more."""
    both = [None if one is None or other is None else one for one, other in zip(low, high, strict=True)]
    parts = []
    for first, after in known_runs(both):
        if after - first > 1:
            there = [_place(index, value, len(low), top) for index, value in _known(high, first, after)]
            back = [_place(index, value, len(low), top) for index, value in _known(low, first, after)]
            parts.append("M" + "L".join([*there, *reversed(back)]) + "Z")
    return "".join(parts)


def _known(values: Values, first: int, after: int) -> Iterator[tuple[int, float]]:
    for index in range(first, after):
        value = values[index]
        if value is not None:
            yield index, value


def _place(index: int, value: float, count: int, top: float) -> str:
    """Return the place of a value, in the middle of its bucket."""
    x, y = (index + 0.5) * WIDE / count, HIGH * (1 - min(value, top) / top)
    return f"{x:.1f} {y:.1f}".replace(".0", "")


def share(part: float, whole: float) -> str:
    """Return a part as a percentage, for the place of a text or mark."""
    return f"{100 * part / whole:.2f}%"
