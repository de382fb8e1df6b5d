"""[edge] The dashboard over the store: the ViewSource of observability, implemented with the materializers'
Store.

In this package because the two are siblings and do not import each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from hub.alerts.alert_manager import AlertManager
from hub.api.push_traces import PushTraces
from hub.api.visibility import VisibleAlerts, VisibleLag, VisibleTopics
from hub.api.web import HubParts, Measurers, add_pages
from hub.backup.storage import last_run
from hub.caller import reads_all, view_visibility
from hub.completeness.canary import routes as canary_routes
from hub.completeness.canary.probes import VIEW
from hub.completeness.canary.runner import Canaries, MirroredTopics, mirrored
from hub.config import SERVING, Settings
from hub.connectors.postgres.slot_watch import SlotWatch
from hub.connectors.postgres.slots import slot_series
from hub.errors import HubError
from hub.kafka import KafkaCluster, own_cluster
from hub.kafka.log_dirs import log_dirs
from hub.lake import note as lake_note
from hub.materializers.progress import span_counts
from hub.materializers.progress.latency import PREFIX as LATENCY
from hub.materializers.progress.latency import latest_event
from hub.materializers.progress.records import by_topic
from hub.materializers.queries.saved_queries import readable, shows_all_of
from hub.materializers.serving.row_counts import RowCounts
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.verification import metrics as verification_metrics
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.observability.cluster import contact_series, health_series
from hub.observability.cluster.connect_workers import ConnectWorkers
from hub.observability.cluster.health_watch import HealthWatch
from hub.observability.cluster.processes import ProcessList
from hub.observability.export import routes
from hub.observability.lag.judge import LagRules
from hub.observability.latency import routes as latency_routes
from hub.observability.latency.recorder import LatencyRecorder
from hub.observability.overview.collector import Collector
from hub.observability.overview.monitor import Monitor
from hub.observability.series.recorder import SHORTEST_SAMPLE_S, SeriesRecorder
from hub.observability.series.sampling import Moment
from hub.outbox import note as outbox_note
from hub.record import Positions
from hub.schema_registry.client.port import SchemaRegistry
from hub.sinks import note as sinks_note
from hub.times import epoch_ms
from hub.topics.tree.tree import LiveTree
from hub.tracing import spans

# The collector polls every second and serves its last state meanwhile, so a short timeout is enough.
KAFKA_TIMEOUT_S = 5.0
# Name of this process in traces and in the counts of spans.
SERVICE = "hub-server"
# Number of a partition's last changes that are searched for the newest rows.
RECENT_OFFSETS = 40

log = logging.getLogger(__name__)


def add_dashboard(app: FastAPI, settings: Settings, parts: HubParts, opened: AsyncExitStack) -> Measurers:
    """Add the page ``/``, its JSON and metrics, and all other pages. Returns the measuring components, which
    are refreshed until ``opened`` is closed."""
    views = StoreViews(parts.store, parts.watcher.subscribers_by_view, parts.newest)
    tree = LiveTree(settings.project / "topics.yaml")
    measurers = start_measuring(settings, parts, views, tree, opened)
    trace_pushes(parts.watcher, measurers, opened)
    app.include_router(latency_routes.create_router(measurers.latency))
    alerts = parts.alerts
    app.include_router(
        routes.create_router(
            VisibleTopics(measurers.collector),
            views,
            parts.counters,
            VisibleLag(measurers.monitor),
            settings.lag_series,
            lambda: all_families(settings, parts, measurers),
            alerts.firing if alerts is not None else lambda: None,
            alerts.snapshot if alerts is not None else lambda: None,
            has_charts=settings.series_most > 0 or settings.prometheus_url is not None,
        )
    )
    add_pages(app, settings, parts, measurers, views, tree)
    return measurers


def start_measuring(
    settings: Settings, parts: HubParts, views: StoreViews, tree: LiveTree, opened: AsyncExitStack
) -> Measurers:
    """Start the components that measure."""
    cluster = own_cluster(settings, KAFKA_TIMEOUT_S)
    workers = opened.enter_context(ConnectWorkers(settings.connect_workers).running())
    rules = LagRules.every(settings.lag_sample_s, settings.lag_objective_s)
    collector = Collector(
        cluster,
        views,
        settings.bootstrap,
        connect=workers.latest,
        cut_off=parts.contact.cut_off,
        rules=rules,
    )
    health = HealthWatch(
        cluster,
        ProcessList(settings.home, with_own=True),
        lambda host, port, wait_s: log_dirs(host, port, wait_s, cluster.socket_to),
    )
    monitor = Monitor(
        cluster,
        collector,
        rules,
        lambda topic: spec.owner if (spec := tree.find(topic)) is not None else "",
        parts.mirrors.readers,
    )
    collector.watched_on = monitor.watched_on
    latency = LatencyRecorder(collector, monitor, _event_of, settings.latency_replay_s)
    slots = SlotWatch(settings.project)
    series = SeriesRecorder(
        settings.home,
        lambda: moment_of(parts, measurers),
        lambda topic: tree.find(topic) is not None,
        max(SHORTEST_SAMPLE_S, settings.lag_sample_s),
        settings.series_most,
        settings.series_mb * 1_000_000,
    )
    measurers = Measurers(monitor, collector, latency, health, slots, series)
    for each in (collector, health, monitor, latency, slots, series):
        opened.enter_context(each.running())
    return measurers


def moment_of(parts: HubParts, measurers: Measurers) -> Moment:
    """Return what is measured now, from memory, for the series of charts."""
    collector, monitor, alerts = measurers.collector, measurers.monitor, parts.alerts
    overview = collector.overview()
    measured = monitor.round_s is not None and monitor.error is None
    return Moment(
        overview.at_ms,
        overview,
        monitor.rows(),
        measured,
        measurers.latency.rows(),
        measurers.health.latest(),
        measurers.health.processes(),
        parts.mirrors.current(),
        {view.name: collector.batches(view.name) for view in overview.views},
        {
            key.removeprefix(VERSIONS): body
            for key, body in collector.records.items()
            if key.startswith(VERSIONS)
        },
        alerts.snapshot() if alerts is not None else None,
        alerts.firing() if alerts is not None else None,
    )


def trace_pushes(watcher: Watcher, measurers: Measurers, opened: AsyncExitStack) -> None:
    """Record the latency of pushes to subscribers, and with tracing their spans."""
    watcher.pushed, watcher.covered = measurers.latency.pushed, measurers.latency.record_progress
    known = spans()
    if known is not None:
        traces = PushTraces(known, lambda: measurers.collector.records)
        opened.enter_context(traces.running())
        watcher.sent = traces.sent


def all_families(settings: Settings, parts: HubParts, measurers: Measurers) -> Iterable[Metric]:
    """Return the metrics of all packages besides the overview's own."""
    records = measurers.collector.records
    return (
        *measurers.latency.families(),
        *measurers.series.families(),
        *health_series.families(measurers.health.latest()),
        *slot_series(measurers.slots.latest()),
        *verification_metrics.families(records, epoch_ms()),
        *parts.store.text.times.families(),
        contact_series.family(parts.contact.notes),
        *parts.families(),
        *parts.usage.families(),
        *last_run.families(settings.home, epoch_ms()),
        span_series(records, epoch_ms()),
    )


def alerts_for_caller(desk: AlertManager, store: Store) -> VisibleAlerts:
    """Return the alert manager limited to the caller: a query's alerts are visible to those who may read
    all its tables."""

    return VisibleAlerts(
        desk,
        lambda sql: readable(store.names(), sql),
        lambda sql: shows_all_of(store.names(), sql),
    )


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
                records[key] = {**records[key], "sources": by_topic(covered)}
            records[f"applied:{view}"] = {"positions": by_topic(self.store.positions(table, "changelog"))}
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
        shape = view_visibility(view)
        shape.require_readable("the card of a row")
        shape.refuse_columns(["key"], "look up by")
        row_version = self.store.get(view, key)
        if row_version is None or not shape.admits({"key": key, **(row_version.values or {})}):
            return None
        if row_version.values is None:
            return {"key": key, "_deleted": True, "_version": row_version.version}
        return {"key": key, **shape.row(row_version.values)}

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        reads_all(views=[view])
        shape = view_visibility(view)
        if shape.closed or shape.key.form != "shown":
            return []
        reached = self.store.positions(self.store.served(view), "changelog")
        since = Positions({tp: max(0, offset - RECENT_OFFSETS) for tp, offset in reached})
        rows = self.store.feed.changes(view, since, RECENT_OFFSETS * max(1, len(reached))).rows
        ends = {tp.partition: offset for tp, offset in reached}
        # Partitions have no common order: rows nearest to their partition's end count as newest.
        newest = sorted(rows, key=lambda row: ends[row.partition] - row.offset)
        live = [(row.key, row.values) for row in newest if row.values is not None]
        return [key for key, values in live if shape.admits({"key": key, **values})][:limit]


def _of_served(report: Mapping[str, Any], served: Mapping[str, str]) -> dict[str, Any]:
    """Return the reports of tables under the names of the views that serve them."""
    views = {served[table]: each for table, each in report.get("views", {}).items() if table in served}
    return {**report, "views": views}


def _event_of(sources: Mapping[str, Any] | None) -> int | None:
    event = latest_event(sources)
    return None if event is None else event[3]


def own_families(app: FastAPI, project: Path, home: Path) -> Iterator[Metric]:
    """Yield the series of the access log and of histories, and of processes that leave notes in the home
    folder."""
    yield from getattr(app.state, "access_log_families", tuple)()
    yield from getattr(app.state, "history_families", tuple)()
    now_ms = epoch_ms()
    yield from outbox_note.families(outbox_note.read_note(home, now_ms))
    yield from lake_note.families(lake_note.read_note(home, now_ms))
    yield from sinks_note.families(sinks_note.known_rows(project, home, now_ms))


def add_canaries(
    app: FastAPI,
    settings: Settings,
    cluster: KafkaCluster,
    registry: SchemaRegistry,
    store: Store,
    opened: AsyncExitStack,
) -> Canaries | None:
    """Start the canaries, which send one record a second on every route, if the settings enable them."""
    canaries: Canaries | None = None
    if settings.canary:
        try:
            mirrors = mirrored(settings.project, cluster, settings.canary_topic, settings.kafka_timeout_s)
        except HubError as error:
            log.error("canaries go over no mirror: %s", error.message)
            mirrors = MirroredTopics()

        def row(key: str) -> Mapping[str, Any] | None:
            row_version = store.get(VIEW, key)
            return None if row_version is None else row_version.values

        canaries = Canaries(
            cluster,
            registry,
            settings.canary_topic,
            mirrors.clusters,
            row,
            replication_factor=settings.replication_factor,
            headers=mirrors.headers,
            closed=mirrors.closed,
        )
        opened.enter_context(canaries.running())
    app.include_router(canary_routes.create_router(canaries))
    return canaries
