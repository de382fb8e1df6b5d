"""[core] The graph of this moment, built from what runs: measured readers, and the reports of stores and
mirrors.

An edge's lag is the measured lag of the reader at its end. Views and mirrors write within a batch: these
edges have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hub.caller import CALLER, sees_topic, sees_view
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.judge import LagRules, is_in_time
from hub.observability.lag.states import Lag
from hub.observability.latency.latency import SERVING
from hub.observability.lineage.graph import Lineage, LineageEdge, LineageNode
from hub.observability.overview.mirror_readers import MIRROR_SILENT_S, MIRRORS_STALE_MS, MirrorStatuses
from hub.observability.overview.overview import ViewLine

# States of a store's applier as lag states.
_OF_STORE = {"live": "OK", "filling": "CATCHING_UP", "stopped": "STOPPED", "down": "STOPPED"}


@dataclass(frozen=True, slots=True)
class ViewStorage:
    """Storage of a view: its changelog, and name, kind, state and lag in records of each store."""

    changelog: str
    stores: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class ConnectorFlow:
    """A declared connector, or sink of the hub: the topics that it writes (``source``) or reads, and the
    external system at its other end."""

    name: str
    source: bool
    system: str
    topics: tuple[str, ...]
    owner: str = ""
    reader: str = ""  # consumer group; "": the one that Kafka Connect gives a sink

    @property
    def group(self) -> str:
        """Return the consumer group of a sink."""
        return self.reader or f"connect-{self.name}"


def lineage_of(
    views: Iterable[ViewLine],
    rows: Sequence[LagRow],
    view_storages: Mapping[str, ViewStorage],
    mirrored: MirrorStatuses | None = None,
    now_ms: int = 0,
    flows: Sequence[ConnectorFlow] = (),
) -> Lineage:
    """Return the graph of this moment. ``rows``: all measured readers. ``view_storages``: storage by view. A
    sink among ``flows`` takes the place of its consumer group."""
    sinks = {flow.group for flow in flows if not flow.source}
    reads = {(row.name, row.topic): row for row in rows if row.kind == "group" and row.name in sinks}
    measured = [row for row in rows if row.kind != "group" or row.name not in sinks]
    graph = _Builder()
    graph.add_views(views, view_storages, {row.name: row for row in measured if row.kind == "applier"})
    graph.add_groups(row for row in measured if row.kind == "group")
    graph.add_connectors(flows, reads)
    if mirrored is not None:
        carried = {(row.name, row.topic): row for row in measured if row.kind == "mirror"}
        graph.add_mirrors(mirrored, carried, now_ms)
    return Lineage(graph.nodes, tuple(graph.edges.values()))


class _Builder:
    """Nodes by id and edges by their two ends, as far as the graph is built."""

    def __init__(self) -> None:
        self.nodes: dict[str, LineageNode] = {}
        self.edges: dict[tuple[str, str], LineageEdge] = {}

    def put(self, kind: str, name: str, owner: str = "") -> str:
        """Add a node if it is new, and return its id."""
        id = f"{kind}:{name}"
        if id not in self.nodes or (owner and not self.nodes[id].owner):
            self.nodes[id] = LineageNode(id, kind, name, owner)
        return id

    def join(self, edge: LineageEdge) -> None:
        self.edges.setdefault((edge.source, edge.target), edge)

    def add_views(
        self,
        views: Iterable[ViewLine],
        view_storages: Mapping[str, ViewStorage],
        appliers: Mapping[str, LagRow],
    ) -> None:
        for view in views:
            id = self.put("view", view.name, view.owner)
            for source in view.sources:
                lag = (source.state.value, source.cause, source.records, source.seconds, source.error_s)
                self.join(LineageEdge(self.put("topic", source.topic), id, False, *lag))
            home = view_storages.get(view.name)
            if home is None:
                continue
            changelog = self.put("topic", home.changelog, view.owner)
            self.join(LineageEdge(id, changelog, write=True))
            for store in home.stores:
                target = f"store:{view.name}/{store['store']}"
                self.nodes[target] = LineageNode(target, "store", str(store["store"]), view.owner)
                self.join(_storage_edge(changelog, target, store, appliers.get(view.name)))

    def add_groups(self, rows: Iterable[LagRow]) -> None:
        for row in rows:
            if row.topic is not None:
                group = self.put("group", row.name, row.owner)
                self.join(_read(self.put("topic", row.topic), group, row))

    def add_connectors(
        self, flows: Iterable[ConnectorFlow], reads: Mapping[tuple[str, str | None], LagRow]
    ) -> None:
        """Add connectors between their topics and external systems. The lag of a source is not known."""
        for flow in flows:
            kind = "sink" if flow.reader else "connector"
            connector, system = self.put(kind, flow.name, flow.owner), self.put("system", flow.system)
            if flow.source:
                why = "how late a source is, Kafka Connect does not tell"
                self.join(LineageEdge(system, connector, False, "UNKNOWN", why))
            else:
                self.join(LineageEdge(connector, system, write=True))
            for name in flow.topics:
                topic, row = self.put("topic", name), reads.get((flow.group, name))
                if flow.source:
                    self.join(LineageEdge(connector, topic, write=True))
                elif row is not None:
                    self.join(_read(topic, connector, row))
                else:
                    self.join(LineageEdge(topic, connector, False, "UNKNOWN", "it has not read yet"))

    def add_mirrors(
        self, mirrored: MirrorStatuses, measured: Mapping[tuple[str, str | None], LagRow], now_ms: int
    ) -> None:
        """Add mirrors with their measured lag; with the lag of their status until they are measured."""
        for status in mirrored.mirrors:
            clusters = [
                "" if cluster in mirrored.here else str(cluster)
                for cluster in (status["source"], status["target"])
            ]
            for topic, carried in _carried(status, mirrored.at_ms, now_ms).items():
                mirror = self.put("mirror", f"{status['mirror']}/{topic}")
                names = _names_of(topic, status)
                ends = [self._topic_in(name, at) for name, at in zip(names, clusters, strict=True)]
                row = measured.get((str(status["mirror"]), topic))
                edge = carried if row is None else _read(ends[0], mirror, row)
                self.join(replace(edge, source=ends[0], target=mirror))
                self.join(LineageEdge(mirror, ends[1], write=True))

    def _topic_in(self, topic: str, cluster: str) -> str:
        """Add a topic of a cluster ("": this server's), and return its id."""
        id = self.put("topic", f"{topic}@{cluster}" if cluster else topic)
        self.nodes[id] = replace(self.nodes[id], cluster=cluster)
        return id


def visible_lineage(graph: Lineage) -> Lineage:
    """Return the part of the graph that the caller may see: topics and views, and the readers, mirrors and
    stores of these."""
    if CALLER.get() is None:
        return graph

    def is_visible(node: LineageNode) -> bool:
        if node.kind == "topic":
            return sees_topic(node.name.partition("@")[0])
        if node.kind == "mirror":
            return sees_topic(node.id.partition("/")[2].partition("@")[0])
        if node.kind == "store":
            return sees_view(node.id.removeprefix("store:").partition("/")[0])
        return node.kind != "view" or sees_view(node.name)

    nodes = {id: node for id, node in graph.nodes.items() if is_visible(node)}
    edges = tuple(each for each in graph.edges if each.source in nodes and each.target in nodes)
    ends = {end for each in edges for end in (each.source, each.target)}
    # Omit groups that read nothing visible.
    shown = {id: node for id, node in nodes.items() if node.kind != "group" or id in ends}
    return Lineage(shown, edges, graph.cut)


def _names_of(topic: str, status: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of a mirrored topic at the mirror's source and target."""
    template = status.get("rename")
    if template is None:
        return topic, topic
    copy = str(template).replace("{topic}", topic)
    return (topic, copy) if status["mirror"] == status.get("declared") else (copy, topic)


def _carried(status: Mapping[str, Any], at_ms: int | None, now_ms: int) -> dict[str, LineageEdge]:
    """Return the incoming edge of each topic of a mirror, over the topic's partitions."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {str(name): [] for name in status.get("topics_known", ())}
    for row in status.get("partitions", ()):
        if row["state"] != "left":
            by_topic.setdefault(str(row["topic"]), []).append(row)
    age_s = None if at_ms is None else max(0, now_ms - at_ms) / 1000
    old = age_s is None or age_s * 1000 > MIRRORS_STALE_MS
    return {
        topic: LineageEdge("", "", False, "UNKNOWN", "its report is too old")
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
    reported = not silent and all(row["worker"] is not None and row["lag_s"] is not None for row in rows)
    seconds = max(float(row["lag_s"]) for row in rows) if reported else None
    bound = None if seconds is None else round(age_s + silent_s, 1)
    stopped = status["state"] in ("paused", "no worker") or any(
        row["state"] in ("stopped", "trouble") for row in rows
    )
    if stopped:
        state = "STOPPED"
    elif seconds is None:
        untold = f"its worker has not reported for {age_s + silent_s:.0f} s" if silent else ""
        state, why = "UNKNOWN", why or untold or "no worker has reported all its partitions lately"
    else:
        late = not is_in_time(Lag(1, seconds, seconds), LagRules())
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
