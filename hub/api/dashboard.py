"""[edge] The dashboard over the store: the ViewSource of observability, implemented with the materializers'
Store.

In this package because the two are siblings and do not import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from hub.alerts.alert_manager import AlertManager
from hub.api.push_traces import PushTraces
from hub.api.visibility import VisibleAlerts, VisibleLag, VisibleTopics
from hub.api.web import Mirrors, PageContext, add_pages
from hub.caller import reads_all
from hub.config import SERVING, Settings
from hub.kafka import own_cluster
from hub.kafka.log_dirs import log_dirs
from hub.materializers.progress import span_counts
from hub.materializers.progress.latency import PREFIX as LATENCY
from hub.materializers.progress.latency import latest_event
from hub.materializers.queries.http.calls import readable
from hub.materializers.serving.row_counts import RowCounts
from hub.materializers.serving.subscriptions import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.verification import metrics as verification_metrics
from hub.observability.cluster import contact_series, health_series
from hub.observability.cluster.connect_workers import ConnectWorkers
from hub.observability.cluster.health_watch import HealthWatch
from hub.observability.cluster.processes import ProcessList
from hub.observability.export import routes
from hub.observability.export.metrics import Counters, Families
from hub.observability.lag.status import LagRules
from hub.observability.latency import routes as latency_routes
from hub.observability.latency.recorder import LatencyRecorder
from hub.observability.overview.collector import Collector, wall_clock_ms
from hub.observability.overview.contact_watch import ContactWatch
from hub.observability.overview.monitor import Monitor
from hub.observability.web.pages.monitor.completeness import CountedTopics
from hub.record import Positions
from hub.schema_registry.server.node import RegistryNode
from hub.topics.tree.tree import LiveTree
from hub.tracing import spans

# The collector polls every second and serves its last state meanwhile, so a short timeout is enough.
KAFKA_TIMEOUT_S = 5.0
# Name of this process in traces and in the counts of spans.
SERVICE = "hub-server"
# Number of a partition's last changes that are searched for the newest rows.
RECENT_OFFSETS = 40


class Measurers(NamedTuple):
    """Running measuring components, as inputs of the alerts."""

    monitor: Monitor
    collector: Collector
    latency: LatencyRecorder
    health: HealthWatch


def add_dashboard(
    app: FastAPI,
    settings: Settings,
    store: Store,
    opened: AsyncExitStack,
    subscribers: Callable[[], Mapping[str, int]] = dict,
    counters: Counters = tuple,
    watcher: Watcher | None = None,
    families: Families = tuple,
    node: RegistryNode | None = None,
    completeness: Callable[[], CountedTopics] = CountedTopics,
    desk: VisibleAlerts | None = None,
    mirrors: Mirrors | None = None,
    canary: Callable[[], Mapping[str, Any] | None] = lambda: None,
    newest: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    contact: ContactWatch | None = None,
) -> Measurers:
    """Add the page ``/``, its JSON and metrics, and with a registry ``node`` all other pages. Returns the
    measuring components.

    They are refreshed until ``opened`` is closed. ``counters``: other packages' metrics.
    """
    views = StoreViews(store, subscribers, newest)
    cluster = own_cluster(settings, KAFKA_TIMEOUT_S)
    workers = opened.enter_context(ConnectWorkers(settings.connect_urls).running())
    collector = opened.enter_context(
        Collector(
            cluster,
            views,
            settings.bootstrap,
            connect=workers.known,
            cut_off=tuple if contact is None else contact.cut_off,
        ).running()
    )
    health = opened.enter_context(
        HealthWatch(
            cluster,
            ProcessList(settings.home, with_own=True),
            lambda host, port, wait_s: log_dirs(host, port, wait_s, cluster.socket_to),
        ).running()
    )
    tree = LiveTree(settings.project / "topics.yaml")
    monitor = Monitor(
        cluster,
        collector,
        LagRules.every(settings.lag_sample_s, settings.lag_objective_s),
        lambda topic: spec.owner if (spec := tree.find(topic)) is not None else "",
        mirrors.readers if mirrors is not None else lambda _now_ms: (),
    )
    opened.enter_context(monitor.running())
    latency = LatencyRecorder(collector, monitor, _event_of, settings.latency_replay_s)
    opened.enter_context(latency.running())
    if watcher is not None:
        watcher.pushed, watcher.told = latency.pushed, latency.told
        known = spans()
        if known is not None:
            traces = PushTraces(known, lambda: collector.records)
            opened.enter_context(traces.running())
            watcher.sent = traces.sent
    app.include_router(latency_routes.create_router(latency))

    def both() -> Iterable[Metric]:
        return (
            *latency.families(),
            *health_series.families(health.known()),
            *verification_metrics.families(collector.records, wall_clock_ms()),
            contact_series.family(() if contact is None else contact.known),
            *families(),
            span_series(collector.records, wall_clock_ms()),
        )

    app.include_router(
        routes.create_router(
            VisibleTopics(collector),
            views,
            counters,
            VisibleLag(monitor),
            settings.lag_series,
            both,
            desk.firing if desk is not None else lambda: None,
        )
    )
    if node is not None:
        around = PageContext(health, latency, canary, newest)
        add_pages(
            app, settings, node, store, collector, monitor, views, tree, around, completeness, desk, mirrors
        )
    return Measurers(monitor, collector, latency, health)


def alerts_for_caller(desk: AlertManager, store: Store) -> VisibleAlerts:
    """Return the alert manager limited to the caller: a query's alerts are visible to those who may read
    all its tables."""
    return VisibleAlerts(desk, lambda sql: readable(store.names(), sql))


def span_series(records: Mapping[str, Mapping[str, Any]], now_ms: int) -> Metric:
    """Return the number of spans by outcome: this server's own, and those that other processes report.

    A process without tracing has no sample.
    """
    found = CounterMetricFamily(
        "hub_traces_spans",
        "Spans by the process that made them and what became of them",
        labels=["service", "outcome"],
    )
    known = spans()
    own = {} if known is None else known.counters()
    for outcome, number in own.items():
        found.add_metric([SERVICE, outcome], number)
    for service, outcome, number in span_counts.read_counts(records, now_ms):
        if service != SERVICE:
            found.add_metric([service, outcome], number)
    return found


@dataclass
class StoreViews:
    """ViewSource over the store; see hub.observability.overview.reports.ViewSource."""

    store: Store
    open_subscriptions: Callable[[], Mapping[str, int]] = dict
    newest: Callable[[Mapping[str, Any]], dict[str, Any]] = dict

    def __post_init__(self) -> None:
        self._counts = RowCounts(self.store)

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the store's records; ``sources`` are the positions that its rows cover, which may be
        behind the computed ones."""
        records: dict[str, Any] = self.newest(self.store.progress())
        tables = self.store.served_tables()
        served: dict[str, str] = {}
        for view in self.store.names():
            table = tables.get(view, view)
            key, covered = f"progress:{view}", self.store.positions(view, "source")
            if key in records and covered:
                records[key] = {**records[key], "sources": _by_topic(covered)}
            records[f"applied:{view}"] = {"positions": _by_topic(self.store.positions(table, "changelog"))}
            served[table] = view
            if table != view and f"trace:{table}" in records:
                records[f"trace:{view}"] = records[f"trace:{table}"]
        for key in [key for key in records if key.startswith(LATENCY)]:
            own = served if key == f"{LATENCY}{SERVING}" else {view: view for view in served.values()}
            records[key] = _of_served(records[key], own)
        return records

    def row_counts(self) -> Mapping[str, int]:
        return self._counts.all()

    def subscribers(self) -> Mapping[str, int]:
        return self.open_subscriptions()

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        reads_all(views=[view])
        found = self.store.get(view, key)
        if found is None:
            return None
        if found.values is None:
            return {"key": key, "_deleted": True, "_version": found.version}
        return {"key": key, **found.values}

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        reads_all(views=[view])
        reached = self.store.positions(self.store.served(view), "changelog")
        since = Positions({tp: max(0, offset - RECENT_OFFSETS) for tp, offset in reached})
        rows = self.store.feed.changes(view, since, RECENT_OFFSETS * max(1, len(reached))).rows
        ends = {tp.partition: offset for tp, offset in reached}
        # Partitions have no common order: rows nearest to their partition's end count as newest.
        newest = sorted(rows, key=lambda row: ends[row.partition] - row.offset)
        return [row.key for row in newest if row.values is not None][:limit]


def _of_served(told: Mapping[str, Any], served: Mapping[str, str]) -> dict[str, Any]:
    """Return the reports of tables under the names of the views that serve them."""
    views = {served[table]: each for table, each in told.get("views", {}).items() if table in served}
    return {**told, "views": views}


def _event_of(sources: Mapping[str, Any] | None) -> int | None:
    event = latest_event(sources)
    return None if event is None else event[3]


def _by_topic(positions: Positions) -> dict[str, dict[str, int]]:
    grouped: dict[str, dict[str, int]] = {}
    for tp, offset in positions:
        grouped.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return grouped
