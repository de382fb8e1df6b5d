"""[core] Lay the graph out in layers, as positions of boxes and lines."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from hub.observability.lineage.graph import KINDS, Lineage, LineageEdge, LineageNode

BOX, HIGH, ACROSS, DOWN, EDGE_OF = 196, 46, 116, 16, 8
# Most characters of a name in a box; pixels of one character and of the space around the name.
LONGEST_NAME, _CHARACTER, _AROUND = 40, 7.5, 28


@dataclass(frozen=True, slots=True)
class Box:
    """Position of a node, in pixels from the top left."""

    node: LineageNode
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """An edge as the ``d`` of an SVG path, and the position of its label."""

    edge: LineageEdge
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing, sizes in pixels; each box is ``box`` wide and ``high`` high."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[DrawnLine, ...]
    box: int
    high: int = HIGH


def drawn(graph: Lineage, across: int = ACROSS) -> Drawing:
    """Lay the graph out in layers from left to right: each node right of its sources, and near its
    neighbors within a layer. ``across``: pixels between two layers."""
    layers: dict[int, list[str]] = defaultdict(list)
    layer = _layers(graph)
    for id in sorted(graph.nodes, key=lambda each: (KINDS.index(graph.nodes[each].kind), each)):
        layers[layer[id]].append(id)
    place = {id: at for ids in layers.values() for at, id in enumerate(ids)}
    for number in [*sorted(layers), *sorted(layers, reverse=True)]:

        def middle(id: str) -> float:
            near = [
                place[other]
                for other in (
                    *(edge.source for edge in graph.into(id)),
                    *(edge.target for edge in graph.out_of(id)),
                )
                if other in place
            ]
            return sum(near) / len(near) if near else place[id]

        layers[number].sort(key=lambda id: (middle(id), id))
        place.update({id: at for at, id in enumerate(layers[number])})
    tallest = max((len(ids) for ids in layers.values()), default=0)
    box = box_width(node.name for node in graph.nodes.values())
    at: dict[str, Box] = {}
    for column, number in enumerate(sorted(layers)):
        ids = layers[number]
        above = (tallest - len(ids)) * (HIGH + DOWN) // 2
        for row, id in enumerate(ids):
            at[id] = Box(
                graph.nodes[id],
                EDGE_OF + column * (box + across),
                EDGE_OF + above + row * (HIGH + DOWN),
            )
    lines = [_line(edge, at[edge.source], at[edge.target], box) for edge in graph.edges]
    columns = len(layers)
    return Drawing(
        2 * EDGE_OF + columns * box + max(0, columns - 1) * across,
        2 * EDGE_OF + tallest * HIGH + max(0, tallest - 1) * DOWN,
        tuple(at.values()),
        tuple(lines),
        box,
    )


def _line(edge: LineageEdge, one: Box, two: Box, box: int) -> DrawnLine:
    x1, y1, x2, y2 = one.x + box, one.y + HIGH // 2, two.x, two.y + HIGH // 2
    bend = max(30, (x2 - x1) // 2)
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 7} {y2}"
    # The label is nearer to the start: many edges end in one box, and their labels would overlap there.
    return DrawnLine(edge, path, x1 + (x2 - x1) * 2 // 5, y1 + (y2 - y1) * 3 // 10)


def box_width(names: Iterable[str]) -> int:
    """Return the width in which the longest name fits; names of more than ``LONGEST_NAME`` characters are
    shortened."""
    most = max((min(len(name), LONGEST_NAME) for name in names), default=0)
    return max(BOX, round(most * _CHARACTER) + _AROUND)


def _layers(graph: Lineage) -> dict[str, int]:
    """Return each node's distance from its farthest source; nodes of a cycle get the layer at which they
    are reached."""
    left = {id: sum(edge.source != id for edge in graph.into(id)) for id in graph.nodes}
    layer = dict.fromkeys(graph.nodes, 0)
    ready = deque(sorted(id for id, count in left.items() if count == 0))
    while ready:
        id = ready.popleft()
        for edge in graph.out_of(id):
            if edge.target == id:
                continue
            layer[edge.target] = max(layer[edge.target], layer[id] + 1)
            left[edge.target] -= 1
            if left[edge.target] == 0:
                ready.append(edge.target)
    return layer
