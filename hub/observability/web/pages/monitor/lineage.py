"""[core] Page of lineage: a drawing of the graph, why a node is late, and the origins of a view's columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from hub.errors import CallerError
from hub.observability.lineage.drawing import LONGEST_NAME
from hub.observability.lineage.graph import LatenessPath, Lineage, LineageEdge, LineageNode
from hub.observability.lineage.open_lineage import Columns
from hub.observability.web.pages.monitor.mirrors import MirrorFacts

MOST_NODES = 120
MOST_STEPS = 9

# Entry of ``missing`` until the mirrors' clusters have been read once.
ASKING = "mirrors: their clusters are being asked"

ColumnsOf = Callable[[Collection[str]], Mapping[str, Columns]]


@dataclass(frozen=True, slots=True)
class LineagePage:
    """Values of the page: the graph around ``of``, up to ``steps`` each way; None: the whole graph.

    ``late`` and ``columns`` (of a view) belong to ``of``. ``cut``: there is more. ``total``: number of all
    nodes. ``missing``: parts that could not be read. ``unmeasured``: see PageSources.
    """

    of: LineageNode | None
    steps: int
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    cut: bool
    total: int
    late: LatenessPath | None
    columns: Columns
    missing: tuple[str, ...]
    unmeasured: str | None = None


def lineage_page(
    graph: Lineage,
    of: str,
    steps: int,
    columns_of: ColumnsOf,
    missing: tuple[str, ...] = (),
    unmeasured: str | None = None,
) -> LineagePage:
    """Return the page's values. Raises NotFound, CallerError."""
    if not 1 <= steps <= MOST_STEPS:
        raise CallerError(f"steps: {steps} is not from 1 to {MOST_STEPS}", hint="steps=3 shows most of it")
    node = graph.find(of) if of else None
    shown = graph.around(node.id, steps, MOST_NODES) if node is not None else graph.first(MOST_NODES)
    return LineagePage(
        node,
        steps,
        tuple(shown.nodes.values()),
        tuple(sorted(shown.edges, key=lambda edge: (-(edge.seconds or 0.0), edge.source, edge.target))),
        shown.cut,
        len(graph.nodes),
        graph.why_late(node.id) if node is not None else None,
        columns_of([node.name]).get(node.name, {}) if node is not None and node.kind == "view" else {},
        missing,
        unmeasured,
    )


def unreported_mirrors(mirrors: MirrorFacts) -> tuple[str, ...]:
    """Return the mirrors whose state is unknown, and why."""
    if mirrors.error is not None:
        return (f"mirrors: {mirrors.error}",)
    silent = [each for each in mirrors.mirrors if "partitions" not in each]
    return tuple(f"mirror {each['mirror']}: {each.get('reason', '')}" for each in silent)


def short(name: str, most: int = LONGEST_NAME) -> str:
    """Shorten a name at the beginning, since its end distinguishes it from its neighbors.

    >>> short("nyc.jfk.departures", 12)
    '….departures'
    """
    return name if len(name) <= most else f"…{name[1 - most :]}"


def home_of(node: LineageNode) -> str:
    """Return the address of a node's own page."""
    if node.kind == "mirror" or node.cluster:
        return "/mirrors"
    if node.kind == "sink":
        return "/sinks"
    if node.kind in ("connector", "system"):
        return f"/connect/{quote(node.name, safe='')}" if node.kind == "connector" else "/connect"
    if node.kind == "topic":
        return f"/topics/{quote(node.name, safe='')}"
    if node.kind == "view":
        return f"/views/{quote(node.name, safe='')}"
    if node.kind == "store":
        return f"/views/{quote(node.id.partition(':')[2].rpartition('/')[0], safe='')}"
    return f"/lag?name={quote(node.name, safe='')}"
