"""[core] Lineage: topics, the views made of them, their stores and their readers, with the live lag on each
edge.

::

    topic@nyc ─▶ mirror ─▶ topic ─▶ view ─▶ changelog ─▶ store       an edge's lag is the measured lag of the
                             └────▶ group      └────────▶ view, group   reader at its end; views and mirrors write
                                                                        within a batch: those edges have none

Built from what runs: measured readers, and the reports of stores and mirrors. A topic of another cluster has
the cluster's name after an @; a mirror is one node per topic, since each topic has its own lag. ``why_late``
walks upstream from a node along the slowest path and names its slowest hop. ``drawn`` lays the nodes out in
layers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hub.caller import CALLER, sees_topic, sees_view
from hub.errors import CallerError, NotFound, nearest
from hub.observability.lag.consumers import LagRow
from hub.observability.latency.latency import SERVING
from hub.observability.overview.mirror_readers import MIRROR_SILENT_S, MIRRORS_STALE_MS, MirrorStatuses
from hub.observability.overview.overview import ViewLine

KINDS = ("topic", "mirror", "view", "store", "group")
# A mirror with at most this lag is OK.
_MIRROR_OK_S = 10.0
_NAMED = 10
# States of a store's applier as lag states.
_OF_STORE = {"live": "OK", "filling": "CATCHING_UP", "stopped": "STOPPED", "down": "STOPPED"}


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
class ViewStorage:
    """Storage of a view: its changelog, and name, kind, state and lag in records of each store."""

    changelog: str
    stores: Sequence[Mapping[str, object]] = ()


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
            guess = nearest(name, sorted({node.name for node in self.nodes.values()}))
            raise NotFound(
                f'"{name}" is nothing that events go through here',
                hint=f'did you mean "{guess}"?' if guess else "hub lineage shows all",
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
            seen = {node}
            while left:
                here, depth = left.popleft()
                for edge in edges(here):
                    other: str = getattr(edge, end)
                    if other in seen:
                        continue
                    if depth == steps or len(kept) >= most:
                        cut = True
                        continue
                    seen.add(other)
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


def lineage_of(
    views: Iterable[ViewLine],
    rows: Iterable[LagRow],
    kept: Mapping[str, ViewStorage],
    mirrored: MirrorStatuses | None = None,
    now_ms: int = 0,
) -> Lineage:
    """Return the graph of this moment. ``rows``: all measured readers. ``kept``: storage by view."""
    nodes: dict[str, LineageNode] = {}
    edges: dict[tuple[str, str], LineageEdge] = {}
    measured = list(rows)

    def put(kind: str, name: str, owner: str = "") -> str:
        id = f"{kind}:{name}"
        if id not in nodes or (owner and not nodes[id].owner):
            nodes[id] = LineageNode(id, kind, name, owner)
        return id

    def join(edge: LineageEdge) -> None:
        edges.setdefault((edge.source, edge.target), edge)

    appliers = {row.name: row for row in measured if row.kind == "applier"}
    for view in views:
        id = put("view", view.name, view.owner)
        for source in view.sources:
            lag = (source.state.value, source.cause, source.records, source.seconds, source.error_s)
            join(LineageEdge(put("topic", source.topic), id, False, *lag))
        home = kept.get(view.name)
        if home is None:
            continue
        changelog = put("topic", home.changelog, view.owner)
        join(LineageEdge(id, changelog, write=True))
        for store in home.stores:
            target = f"store:{view.name}/{store['store']}"
            nodes[target] = LineageNode(target, "store", str(store["store"]), view.owner)
            join(_storage_edge(changelog, target, store, appliers.get(view.name)))
    for row in measured:
        if row.kind == "group" and row.topic is not None:
            group = put("group", row.name, row.owner)
            join(_read(put("topic", row.topic), group, row))
    for status in mirrored.mirrors if mirrored is not None else ():
        assert mirrored is not None
        ends = [
            "" if cluster in mirrored.here else str(cluster)
            for cluster in (status["source"], status["target"])
        ]
        for topic, carried in _carried(status, mirrored.at_ms, now_ms).items():
            name = f"{status['mirror']}/{topic}"
            nodes[f"mirror:{name}"] = LineageNode(f"mirror:{name}", "mirror", name)
            places = [put("topic", f"{topic}@{cluster}" if cluster else topic) for cluster in ends]
            for place, cluster in zip(places, ends, strict=True):
                nodes[place] = replace(nodes[place], cluster=cluster)
            join(replace(carried, source=places[0], target=f"mirror:{name}"))
            join(LineageEdge(f"mirror:{name}", places[1], write=True))
    return Lineage(nodes, tuple(edges.values()))


def visible_lineage(graph: Lineage) -> Lineage:
    """Return the part of the graph that the caller may see: topics and views, and the readers, mirrors and
    stores of these."""
    if CALLER.get() is None:
        return graph

    def seen(node: LineageNode) -> bool:
        if node.kind == "topic":
            return sees_topic(node.name.partition("@")[0])
        if node.kind == "mirror":
            return sees_topic(node.id.partition("/")[2].partition("@")[0])
        if node.kind == "store":
            return sees_view(node.id.removeprefix("store:").partition("/")[0])
        return node.kind != "view" or sees_view(node.name)

    nodes = {id: node for id, node in graph.nodes.items() if seen(node)}
    edges = tuple(each for each in graph.edges if each.source in nodes and each.target in nodes)
    ends = {end for each in edges for end in (each.source, each.target)}
    # Omit groups that read nothing visible.
    shown = {id: node for id, node in nodes.items() if node.kind != "group" or id in ends}
    return Lineage(shown, edges, graph.cut)


def _carried(status: Mapping[str, Any], at_ms: int | None, now_ms: int) -> dict[str, LineageEdge]:
    """Return the incoming edge of each topic of a mirror, over the topic's partitions."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {str(name): [] for name in status.get("topics_known", ())}
    for row in status.get("partitions", ()):
        if row["state"] != "left":
            by_topic.setdefault(str(row["topic"]), []).append(row)
    age_s = None if at_ms is None else max(0, now_ms - at_ms) / 1000
    old = age_s is None or age_s * 1000 > MIRRORS_STALE_MS
    return {
        topic: LineageEdge("", "", False, "UNKNOWN", "what it told is too old")
        if age_s is None or old
        else _of_topic(status, rows, age_s)
        for topic, rows in by_topic.items()
    }


def _of_topic(status: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], age_s: float) -> LineageEdge:
    """Return the edge of one mirrored topic. It has numbers only if a worker reported every partition; the
    error bound is the age of that report."""
    reasons = (str(row["reason"]) for row in rows if row["reason"] and row["state"] != "unknown")
    why = next(reasons, str(status.get("reason") or ""))
    if not rows:
        return LineageEdge("", "", False, "UNKNOWN", why)
    records = [row["lag_records"] for row in rows]
    silent_s = max(float(row["seen_s"] or 0.0) for row in rows)
    silent = silent_s > MIRROR_SILENT_S
    told = not silent and all(row["worker"] is not None and row["lag_s"] is not None for row in rows)
    seconds = max(float(row["lag_s"]) for row in rows) if told else None
    bound = None if seconds is None else round(age_s + silent_s, 1)
    stopped = status["state"] in ("paused", "no worker") or any(
        row["state"] in ("stopped", "trouble") for row in rows
    )
    if stopped:
        state = "STOPPED"
    elif seconds is None:
        untold = f"its worker has not told for {age_s + silent_s:.0f} s" if silent else ""
        state, why = "UNKNOWN", why or untold or "no worker has told of all its partitions lately"
    else:
        late = seconds > _MIRROR_OK_S
        state, why = ("BEHIND", why or "the mirror has not carried it yet") if late else ("OK", why)
    known = None if any(each is None for each in records) else sum(records)
    return LineageEdge("", "", False, state, why, known, seconds, bound)


def _read(topic: str, reader: str, row: LagRow) -> LineageEdge:
    return LineageEdge(topic, reader, False, row.state, row.cause, row.records, row.seconds, row.error_s)


def _storage_edge(
    changelog: str, id: str, store: Mapping[str, object], applier: LagRow | None
) -> LineageEdge:
    """Return the edge into a store: in seconds for the serving store, in records for the others."""
    if store["store"] == SERVING and applier is not None:
        return _read(changelog, id, applier)
    lag = store.get("lag")
    records = lag if isinstance(lag, int) else None
    state = _OF_STORE.get(str(store.get("state")), "UNKNOWN")
    seconds = 0.0 if records == 0 and state == "OK" else None  # nothing waits, so the lag is zero
    return LineageEdge(changelog, id, False, state, str(store.get("reason") or ""), records, seconds, seconds)


# ---- drawing

BOX, HIGH, ACROSS, DOWN, EDGE_OF = 196, 46, 116, 16, 8


@dataclass(frozen=True, slots=True)
class Box:
    """Position of a node, in pixels from the top left."""

    node: LineageNode
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
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
    lines: tuple[Line, ...]
    box: int = BOX
    high: int = HIGH


def drawn(graph: Lineage) -> Drawing:
    """Lay the graph out in layers from left to right: each node right of its sources, and near its
    neighbors within a layer."""
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
    at: dict[str, Box] = {}
    for column, number in enumerate(sorted(layers)):
        ids = layers[number]
        above = (tallest - len(ids)) * (HIGH + DOWN) // 2
        for row, id in enumerate(ids):
            at[id] = Box(
                graph.nodes[id],
                EDGE_OF + column * (BOX + ACROSS),
                EDGE_OF + above + row * (HIGH + DOWN),
            )
    lines = []
    for edge in graph.edges:
        one, two = at[edge.source], at[edge.target]
        x1, y1, x2, y2 = one.x + BOX, one.y + HIGH // 2, two.x, two.y + HIGH // 2
        bend = max(30, (x2 - x1) // 2)
        path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 7} {y2}"
        # Place the label nearer to the start: many edges end in one box, and their labels would overlap
        # there.
        lines.append(Line(edge, path, x1 + (x2 - x1) * 2 // 5, y1 + (y2 - y1) * 3 // 10))
    columns = len(layers)
    return Drawing(
        2 * EDGE_OF + columns * BOX + max(0, columns - 1) * ACROSS,
        2 * EDGE_OF + tallest * HIGH + max(0, tallest - 1) * DOWN,
        tuple(at.values()),
        tuple(lines),
    )


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


# ---- OpenLineage

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_COLUMNS = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json"
_OWNERS = "https://openlineage.io/spec/facets/1-0-1/OwnershipJobFacet.json"
_PRODUCER = "event-hub"

# By column of a view: the (topic, column) pairs that it is made of.
Columns = Mapping[str, Sequence[tuple[str, str]]]


def open_lineage(
    graph: Lineage,
    columns: Mapping[str, Columns],
    kafka: str,
    at: str,
    clusters: Mapping[str, str] | None = None,
) -> list[dict[str, object]]:
    """Return the graph as OpenLineage job events, one for each view, group, and topic of a mirror.

    ``kafka``: the cluster's first address, which names its datasets, as ``clusters`` does for remote ones.
    ``at``: ISO 8601.
    """
    space = f"kafka://{kafka}"
    events: list[dict[str, object]] = []

    def dataset(id: str) -> dict[str, object]:
        """Return the dataset of a topic, in its cluster."""
        node = graph.nodes[id]
        if not node.cluster:
            return {"namespace": space, "name": node.name}
        address = (clusters or {}).get(node.cluster, node.cluster)
        return {"namespace": f"kafka://{address}", "name": node.name.rpartition("@")[0]}

    for node in sorted(graph.nodes.values(), key=lambda each: each.id):
        if node.kind not in ("view", "group", "mirror"):
            continue
        inputs = [dataset(edge.source) for edge in graph.into(node.id)]
        outputs: list[dict[str, object]] = []
        for edge in graph.out_of(node.id):
            facets = _column_facet(columns.get(node.name, {}), space)
            outputs.append({**dataset(edge.target), **({"facets": facets} if facets else {})})
            outputs += [
                {"namespace": "hub://stores", "name": each.target.partition(":")[2]}
                for each in graph.out_of(edge.target)
                if graph.nodes[each.target].kind == "store"
            ]
        owner = {
            "ownership": {"_producer": _PRODUCER, "_schemaURL": _OWNERS, "owners": [{"name": node.owner}]}
        }
        events.append(
            {
                "eventTime": at,
                "producer": _PRODUCER,
                "schemaURL": _SCHEMA,
                "job": {
                    "namespace": f"hub.{node.kind}s",
                    "name": node.name,
                    "facets": owner if node.owner else {},
                },
                "inputs": inputs,
                "outputs": outputs,
            }
        )
    return events


def _column_facet(columns: Columns, space: str) -> dict[str, object]:
    if not columns:
        return {}
    fields = {
        column: {
            "inputFields": [{"namespace": space, "name": topic, "field": field} for topic, field in made_of]
        }
        for column, made_of in columns.items()
        if column
    }
    return {"columnLineage": {"_producer": _PRODUCER, "_schemaURL": _COLUMNS, "fields": fields}}
