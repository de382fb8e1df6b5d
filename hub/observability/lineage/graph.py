"""[core] Graph of topics, mirrors, views, stores, connectors and readers, with the live lag on each edge.

A topic of another cluster has the cluster's name after an @; a mirror is one node per topic, since each topic
has its own lag. ``why_late`` walks upstream from a node along the slowest path and names its slowest hop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hub.errors import CallerError, NotFound, did_you_mean

KINDS = ("system", "connector", "sink", "topic", "mirror", "view", "store", "group")
_NAMED = 10


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A node of the graph.

    ``id``: ``kind:name``; ``store:<view>/<store>`` for a store, ``mirror:<mirror>/<topic>`` for a mirror.
    ``cluster``: the cluster of a remote topic, with which its name ends.
    """

    id: str
    kind: str
    name: str
    owner: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """Flow of events from ``source`` to ``target``. ``state`` and the numbers are the reader's; None:
    unknown, or not applicable for a ``write``."""

    source: str
    target: str
    write: bool = False
    state: str | None = None
    cause: str = ""
    records: int | None = None
    seconds: float | None = None
    error_s: float | None = None


@dataclass(frozen=True, slots=True)
class LatenessPath:
    """Why a node is late: ``path`` from the first source to the node, its total ``seconds``, and its
    ``slowest`` edge.

    ``unknown``: upstream edges whose lag is unknown, so the total may be higher.
    """

    seconds: float
    path: tuple[LineageEdge, ...]
    slowest: LineageEdge | None
    unknown: tuple[LineageEdge, ...]


@dataclass(frozen=True)
class Lineage:
    """Graph of unique nodes (by id) and edges. ``cut``: there is more than is included."""

    nodes: Mapping[str, LineageNode]
    edges: tuple[LineageEdge, ...]
    cut: bool = False

    @cached_property
    def _into(self) -> Mapping[str, list[LineageEdge]]:
        return _by(self.edges, lambda edge: edge.target)

    @cached_property
    def _out(self) -> Mapping[str, list[LineageEdge]]:
        return _by(self.edges, lambda edge: edge.source)

    def into(self, node: str) -> Sequence[LineageEdge]:
        return self._into.get(node, ())

    def out_of(self, node: str) -> Sequence[LineageEdge]:
        return self._out.get(node, ())

    def knows(self, name: str) -> bool:
        """Return whether any node has this id or name."""
        return name in self.nodes or any(node.name == name for node in self.nodes.values())

    def find(self, name: str) -> LineageNode:
        """Return the node with this id or name. Raises NotFound with the nearest name, CallerError when
        the name is ambiguous."""
        if name in self.nodes:
            return self.nodes[name]
        found = [node for node in self.nodes.values() if node.name == name]
        if not found:
            raise NotFound(
                f'"{name}" is nothing that events go through here',
                hint=did_you_mean(
                    name, sorted({node.name for node in self.nodes.values()}), "hub lineage shows all"
                ),
                code="HUB-1501",
            )
        if len(found) > 1:
            raise CallerError(
                f'several are called "{name}": {", ".join(node.id for node in found[:_NAMED])}'
                + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""),
                hint=f"say which: {found[0].id}",
                code="HUB-1502",
            )
        return found[0]

    def around(self, node: str, steps: int, most: int) -> Lineage:
        """Return the nodes upstream and downstream of a node, up to ``steps`` each way and ``most`` nodes,
        nearest first."""
        kept = {node: None}
        cut = False
        for edges, end in ((self.into, "source"), (self.out_of, "target")):
            left = deque([(node, 0)])
            visited = {node}
            while left:
                here, depth = left.popleft()
                for edge in edges(here):
                    other: str = getattr(edge, end)
                    if other in visited:
                        continue
                    if depth == steps or len(kept) >= most:
                        cut = True
                        continue
                    visited.add(other)
                    kept[other] = None
                    left.append((other, depth + 1))
        return self._only(kept, cut)

    def first(self, most: int) -> Lineage:
        """Return the first ``most`` nodes, by name, that have at least one edge."""
        linked = [id for id in sorted(self.nodes) if self.into(id) or self.out_of(id)]
        return self._only(linked[:most], len(linked) > most)

    def _only(self, ids: Iterable[str], cut: bool) -> Lineage:
        nodes = {id: self.nodes[id] for id in ids}
        return Lineage(
            nodes, tuple(each for each in self.edges if each.source in nodes and each.target in nodes), cut
        )

    def why_late(self, node: str) -> LatenessPath:
        """Return the slowest upstream path of a node, as far as lag is known."""
        best: dict[str, tuple[float, LineageEdge | None]] = {}
        for here in reversed(self._upstream(node)):  # sources first
            took = [
                ((edge.seconds or 0.0) + best[edge.source][0], edge)
                for edge in self.into(here)
                if edge.source in best
            ]
            best[here] = max(took, key=lambda each: each[0], default=(0.0, None))
        path: list[LineageEdge] = []
        edge = best[node][1]
        while edge is not None:
            path.append(edge)
            edge = best[edge.source][1]
        path.reverse()
        timed = [each for each in path if each.seconds is not None]
        unknown = tuple(
            edge
            for here in best
            for edge in self.into(here)
            if not edge.write and edge.seconds is None and edge.source in best
        )
        slowest = max(timed, key=lambda each: each.seconds or 0.0, default=None)
        return LatenessPath(best[node][0], tuple(path), slowest, unknown)

    def _upstream(self, node: str) -> list[str]:
        """Return the node and all its upstream nodes, each before its own sources; edges that would close
        a cycle are ignored."""
        order: list[str] = []
        state: dict[str, bool] = {}  # False: on the way, True: done
        stack: list[tuple[str, bool]] = [(node, False)]
        while stack:
            here, done = stack.pop()
            if done:
                state[here] = True
                order.append(here)
                continue
            if here in state:
                continue
            state[here] = False
            stack.append((here, True))
            stack.extend((edge.source, False) for edge in self.into(here) if edge.source not in state)
        order.reverse()
        return order


def _by(edges: Iterable[LineageEdge], end: Callable[[LineageEdge], str]) -> Mapping[str, list[LineageEdge]]:
    found: dict[str, list[LineageEdge]] = defaultdict(list)
    for edge in edges:
        found[end(edge)].append(edge)
    return found
