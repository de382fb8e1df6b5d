"""[core] Sparklines as the points of an SVG path: drawn by the server, coloured by the style sheet."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 96, 22


def line(values: Sequence[float], width: int = WIDTH, height: int = HEIGHT, steps: int = 40) -> str:
    """The path's ``d``: from zero at the bottom to the greatest value; newest at the right. Empty when flat at zero."""
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
    """The same line closed along the bottom."""
    path = line(values, width, height, steps)
    left = width - width / (steps - 1) * (len(values) - 1)
    return f"{path}L{width} {height}L{left:.1f} {height}Z" if path else ""
