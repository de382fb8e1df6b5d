"""[core] Positions of regions and arrows on their map.

Boxes are placed by the layout of lineage, over a graph without cycles: from the hub of a star, or from the
end of a chain, one column a step. There are at most two arrows between two regions, one each way, whatever
the number of mirrors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.observability.lineage.drawing import HIGH, Box, drawn
from hub.observability.lineage.graph import Lineage, LineageEdge, LineageNode
from hub.observability.web.pages.regions.facts import Region, RegionLink, worst_tone

ACROSS, ASIDE, _HEAD = 160, 9, 7


@dataclass(frozen=True, slots=True)
class Arrow:
    """All mirrors of one direction, as the ``d`` of an SVG path. ``at``: the middle of its label; None: it
    has none, as a bow between regions of one column.
    """

    source: str
    target: str
    links: tuple[RegionLink, ...]
    tone: str
    path: str
    at: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class RegionMap:
    """A drawing, sizes in pixels; each box is ``box`` wide and ``high`` high."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    box: int
    high: int = HIGH


def region_map(regions: Sequence[Region], links: Sequence[RegionLink]) -> RegionMap:
    """Return the drawing."""
    ways: dict[tuple[str, str], list[RegionLink]] = {}
    for each in links:
        ways.setdefault((each.source, each.target), []).append(each)
    column = columns([each.name for each in regions], list(ways))
    nodes = {each.name: LineageNode(each.name, "system", each.name) for each in regions}
    steps = sorted({(a, b) if column[a] < column[b] else (b, a) for a, b in ways if column[a] != column[b]})
    made = drawn(Lineage(nodes, tuple(LineageEdge(a, b) for a, b in steps)), ACROSS)
    boxes = {each.node.id: each for each in made.boxes}
    arrows = tuple(
        _arrow(way, of, boxes, made.box, both=way[::-1] in ways) for way, of in sorted(ways.items())
    )
    bows = [bow(boxes[a], boxes[b]) for a, b in ways if column[a] == column[b]]
    width = made.width + max(bows, default=0) * 3 // 4
    return RegionMap(width, made.height, made.boxes, arrows, made.box)


def columns(names: Sequence[str], ways: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the column of each region: its distance from the first one of those that are connected with it.

    The first one is that with the most neighbors where it has three or more, else the end of a chain: one
    that only sends before others, then by name.
    """
    near: dict[str, set[str]] = {name: set() for name in names}
    for source, target in ways:
        near[source].add(target)
        near[target].add(source)
    receives = {target for _, target in ways}

    def rank(name: str) -> tuple[int, bool, str]:
        count = len(near[name])
        return (-count if count > 2 else count, name in receives, name)

    found: dict[str, int] = {}
    for first in sorted(names, key=rank):
        if first in found:
            continue
        found[first] = 0
        ready = deque([first])
        while ready:
            name = ready.popleft()
            for other in sorted(near[name] - found.keys()):
                found[other] = found[name] + 1
                ready.append(other)
    return found


def _arrow(
    way: tuple[str, str],
    links: Sequence[RegionLink],
    boxes: Mapping[str, Box],
    width: int,
    *,
    both: bool,
) -> Arrow:
    """Return the arrow of one direction; ``both``: it has a parallel one of the other direction."""
    one, two = boxes[way[0]], boxes[way[1]]
    tone = worst_tone(links)
    if one.x == two.x:
        return Arrow(*way, tuple(links), tone, _beside(one, two, width, both=both), None)
    return Arrow(*way, tuple(links), tone, *_between(one, two, width, both=both))


def _between(one: Box, two: Box, width: int, *, both: bool) -> tuple[str, tuple[int, int]]:
    """Return path and label between two columns; to the right above, to the left below."""
    right = one.x < two.x
    left_box, right_box = (one, two) if right else (two, one)
    aside = (-ASIDE if right else ASIDE) if both else 0
    x1, y1 = left_box.x + width, left_box.y + HIGH // 2 + aside
    x2, y2 = right_box.x, right_box.y + HIGH // 2 + aside
    bend = (x2 - x1) // 2
    path = (
        f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - _HEAD} {y2}"
        if right
        else f"M{x2} {y2}C{x2 - bend} {y2} {x1 + bend} {y1} {x1 + _HEAD} {y1}"
    )
    # Near the right end, where the arrows of a star are apart: the point of the curve at three quarters.
    x, y = x1 + (x2 - x1) * 68 // 100, y1 + round((y2 - y1) * 0.83)
    return path, (x, y + (14 if both and not right else -4))


def _beside(one: Box, two: Box, width: int, *, both: bool) -> str:
    """Return the path between two boxes of one column: a bow at their right, the wider the farther they
    are."""
    down = one.y < two.y
    aside = (ASIDE if down else -ASIDE) if both else 0
    out = bow(one, two) - (0 if down else 14)
    x, y1, y2 = one.x + width, one.y + HIGH // 2 + aside, two.y + HIGH // 2 + aside
    return f"M{x} {y1}C{x + out} {y1} {x + out} {y2} {x + _HEAD} {y2}"


def bow(one: Box, two: Box) -> int:
    """Return how far the control points of a bow are from its boxes."""
    return 26 + 34 * (abs(one.y - two.y) // HIGH)
