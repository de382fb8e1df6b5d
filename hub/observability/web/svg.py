"""[core] Sparklines as the points of an SVG path: drawn by the server, colored by the style sheet."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 96, 22


def line(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT, steps: int = 40) -> str:
    """Return the path's ``d``, scaled from zero to the maximum, newest at the right; empty when all values
    are zero."""
    top = max(values, default=0.0)
    if len(values) < 2 or top <= 0:
        return ""
    step = width / (steps - 1)
    left = width - step * (len(values) - 1)
    points = (
        f"{left + index * step:.1f} {height - 1.5 - value / top * (height - 3):.1f}"
        for index, value in enumerate(values)
    )
    return "M" + "L".join(points)


def area(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT, steps: int = 40) -> str:
    """Return the path of ``line``, closed along the bottom."""
    path = line(values, width, height, steps)
    left = width - width / (steps - 1) * (len(values) - 1)
    return f"{path}L{width} {height}L{left:.1f} {height}Z" if path else ""
