"""[edge] The web app over the running hub: its ports (hub.observability.web.pages.estate), implemented by all
packages.

In this package because siblings do not import each other: views are materializers', mirrors replication's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client.core import Metric

from hub.alerts.model.rules import RuleChanges, RuleObservations
from hub.api.mirroring.operations import mirror_operations
from hub.api.page_facts.store_facts import StoreFacts
from hub.api.quotas.usage import ServerUsage
from hub.api.visibility import VisibleAlerts, VisibleTopics, visible_counts, visible_rows, visible_tree
from hub.caller import CALLER, sees_view
from hub.completeness.counts_follower import NOT_READ, CountsFollower
from hub.config import Settings
from hub.connectors.operations import ConnectOperations
from hub.connectors.postgres.slot_watch import SlotWatch
from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster, own_cluster
from hub.lake.note import LakeNote, read_note
from hub.materializers.progress.view_states import Newest
from hub.materializers.queries.saved_queries import load_queries, readable
from hub.materializers.serving.history import routes as history_routes
from hub.materializers.serving.history.answering import RowsOfThePast
from hub.materializers.serving.history.sizes import HistorySizes
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.observability.cluster.health_watch import HealthWatch
from hub.observability.export.metrics import Counters, Families
from hub.observability.latency.recorder import LatencyRecorder
from hub.observability.overview.collector import Collector
from hub.observability.overview.contact_watch import ContactWatch
from hub.observability.overview.mirror_readers import MirrorReader, MirrorStatuses, readers_of
from hub.observability.overview.monitor import Monitor
from hub.observability.overview.overview import lag_rows
from hub.observability.overview.reports import ViewSource
from hub.observability.series.reading import reader_of
from hub.observability.series.recorder import SeriesRecorder
from hub.observability.web.page import Site, show_site
from hub.observability.web.pages.estate import LakeTableLine, NodeSchemas, PageSources
from hub.observability.web.pages.monitor.completeness import CountedTopics, TopicCountsRow
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.observability.web.routes.all_pages import create_router, nowhere
from hub.replication.clusters.clusters import ClusterHandle, own_environ, reach_all, share_address
from hub.replication.clusters.readers import StatusReader
from hub.replication.clusters.renaming.link_view import seen_by
from hub.replication.config.load_mirrors import load as load_mirrors
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.operations.divergence.left_at_source import losses_now
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, back_of, checked, links, rename_text
from hub.replication.status.metrics import families
from hub.replication.status.mirror_rows import places_of
from hub.replication.status.mirror_status import summary_of, with_losses
from hub.replication.status.objectives import RESTING, RULES, observe_mirrors
from hub.replication.status.partition_rows import SourceEndOffsets
from hub.replication.status.source_ends import SourceEndsReader
from hub.sandbox.launch import probed_platform
from hub.sandbox.platforms import python_of_views
from hub.schema_registry.client.in_process import InProcessRegistry
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.server.node import RegistryNode
from hub.sinks.observe import ProjectSinks
from hub.times import epoch_ms
from hub.topics.browse.browse import Browser
from hub.topics.browse.describe import DescribedTopic, describe
from hub.topics.editing.editor import TopicEditor
from hub.topics.gateway.gateway import Gateway
from hub.topics.groups.reset import GroupPositions
from hub.topics.tree.tree import LiveTree, TopicSpec

log = logging.getLogger(__name__)

MIRRORS_FOR_MS = 10_000
# Status older than this is not current.
MEASURED_FOR_MS = 90_000
# Only a part of a page waits for it.
DESCRIBE_S = 5.0


@dataclass(frozen=True)
class Measurers:
    """Running components that measure; they are refreshed until the server stops."""

    monitor: Monitor
    collector: Collector
    latency: LatencyRecorder
    health: HealthWatch
    slots: SlotWatch
    series: SeriesRecorder


@dataclass(frozen=True)
class HubParts:
    """Parts of the running hub that the dashboard and its pages show.

    ``alerts`` None: alerts are off. ``canary`` returns None while canaries are off. ``newest``: a store's
    progress records, with what the log has newer. ``counters`` and ``families``: other packages' metrics.
    """

    store: Store
    watcher: Watcher
    registry: RegistryNode
    contact: ContactWatch
    mirrors: Mirrors
    completeness: Callable[[], CountedTopics]
    alerts: VisibleAlerts | None
    canary: Callable[[], Mapping[str, Any] | None]
    newest: Callable[[Mapping[str, Any]], dict[str, Any]]
    counters: Counters
    families: Families
    usage: ServerUsage
    gateway: Gateway


def add_pages(
    app: FastAPI, settings: Settings, parts: HubParts, measurers: Measurers, rows: ViewSource, tree: LiveTree
) -> None:
    """Add the pages before all other routes: API routes at the same addresses come after them."""
    show_site(Site(settings.environment, settings.environment_color))
    sources = page_sources(settings, parts, measurers, rows, tree)
    # Moved to the front: some addresses are those of API routes too, which would match first.
    routes, others = app.router.routes, len(app.router.routes)
    app.include_router(create_router(sources))
    routes[:] = routes[others:] + routes[:others]
    app.include_router(nowhere(sources))


def add_history(
    app: FastAPI,
    store: Store,
    newest: Newest,
    cluster: KafkaCluster,
    node: RegistryNode,
    opened: AsyncExitStack,
) -> None:
    """Add the routes of histories before that of rows by key, which would match first. Measure their sizes
    until ``opened`` is closed."""
    app.state.history_families = opened.enter_context(HistorySizes(store).running()).families
    past = RowsOfThePast(store, newest, Browser(cluster, NodeSchemas(node)))
    routes, others = app.router.routes, len(app.router.routes)
    app.include_router(history_routes.create_router(past))
    routes[:] = routes[others:] + routes[:others]


def page_sources(
    settings: Settings, parts: HubParts, measurers: Measurers, rows: ViewSource, tree: LiveTree
) -> PageSources:
    """Return the sources of all pages, each limited to what the caller may see."""
    cluster = own_cluster(settings, DESCRIBE_S)
    registry = InProcessRegistry(parts.registry)
    monitor, collector, latency = measurers.monitor, measurers.collector, measurers.latency

    def described(topic: str) -> DescribedTopic:
        return describe(topic, tree.topics().get(topic), cluster, registry, DESCRIBE_S)

    return PageSources(
        topics=VisibleTopics(collector),
        rows=rows,
        registry=parts.registry,
        browser=Browser(cluster, NodeSchemas(parts.registry)),
        describe=described,
        tree=lambda: visible_tree(tree.topics()),
        lag=lambda: visible_rows(monitor.rows() or lag_rows(collector.overview())),
        unmeasured=lambda: "" if monitor.round_s is None else monitor.error,
        history=RowsOfThePast(parts.store, parts.newest, Browser(cluster, NodeSchemas(parts.registry))),
        views=StoreFacts(parts.store, parts.newest, settings.search_timeout_s),
        mirrors=parts.mirrors.latest,
        completeness=lambda: visible_counts(parts.completeness()),
        saved=lambda: _saved(settings.project, parts.store),
        bootstrap=settings.bootstrap,
        alerts=parts.alerts,
        connectors=ConnectOperations(settings.connect_workers, settings.project)
        if settings.connect_workers
        else None,
        sinks=ProjectSinks(settings.project, settings.home),
        mirror_operations=mirror_operations(settings),
        groups=GroupPositions(cluster),
        topic_editor=TopicEditor(
            tree.path, own_cluster(settings), RegistryClient(settings.registry), settings.replication_factor
        ),
        gateway=parts.gateway,
        schemas=parts.registry,
        health=measurers.health.latest,
        processes=measurers.health.processes,
        canary=parts.canary,
        latency=lambda: [row for row in latency.rows() if sees_view(row.view)],
        usage=parts.usage.page,
        python=lambda: python_of_views(settings.transforms, probed_platform()),
        series=reader_of(
            settings.home, measurers.series, settings.prometheus_url, settings.prometheus_timeout_s
        ),
        lake=lambda topic: lake_line(read_note(settings.home, epoch_ms()), topic),
    )


def lake_line(note: LakeNote | None, topic: str) -> LakeTableLine:
    """Return what the writer of Iceberg tables reports of a topic."""
    if note is None:
        return LakeTableLine()
    found = note.topics.get(topic)
    if found is None:
        return LakeTableLine(trouble="its writer has not begun with it yet")
    at_ms = found.committed_at_ms
    return LakeTableLine(found.state, found.table, found.rows, found.behind, at_ms, found.trouble)


def counted_topics(follower: CountsFollower) -> CountedTopics:
    """Return the state of the counts' follower as the heat map needs it."""
    known = follower.latest()
    topics = [TopicCountsRow(each.topic, each.state, each.cause, each.audited_at_ms) for each in known.audits]
    error = None if known.error == NOT_READ else known.error
    return CountedTopics(topics, error, known.read, follower.heat)


@dataclass
class Mirrors:
    """Status of all mirrors, read in a thread of its own when it is requested and the last one is old.

    Alerts request it all the time: what was read is kept, and only later records are read.
    """

    path: Path
    timeout_s: float
    own: KafkaCluster
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _now: MirrorFacts = field(default_factory=MirrorFacts)
    _topics: dict[str, list[str]] = field(default_factory=dict)  # by mirror, as last reported
    _ids: dict[str, str] = field(default_factory=dict)  # Kafka's cluster id, by address
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _file: MirrorsFile | None = None
    _reached: Mapping[str, ClusterHandle] = field(default_factory=dict)
    _readers: dict[str, StatusReader] = field(default_factory=dict)  # by cluster
    _ends: SourceEndsReader = field(default_factory=SourceEndsReader)
    _ways_back: dict[str, Link | None] = field(default_factory=dict)  # by mirror, while they carry anything

    def latest(self) -> MirrorFacts:
        """Return the last known status at once; start a refresh if it is old."""
        if not self.path.exists():
            return MirrorFacts(declared=False)
        now = self._now
        # A time in the future: the clock was set back since.
        old = now.asked_at_ms is None or not 0 <= epoch_ms() - now.asked_at_ms <= MIRRORS_FOR_MS
        if old and self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask, name="mirrors", daemon=True).start()
        return now

    def readers(self, now_ms: int) -> Iterator[MirrorReader]:
        """Return mirrors as readers of their sources, from the last status; unknown while mirrors.yaml
        cannot be read."""
        now = self.latest()
        if now.declared:
            at_ms = now.asked_at_ms if now.error is None else None
            yield from readers_of(MirrorStatuses(now.mirrors, now.here, now.clusters, at_ms), now_ms)

    def current(self) -> Sequence[Mapping[str, Any]]:
        """Return the last statuses; () while they are not current."""
        now = self.latest()
        return () if now.asked_at_ms is None or self._trouble(now) is not None else now.mirrors

    def families(self) -> Iterator[Metric]:
        """Yield the series of mirrors, from the last status; none while it is unknown."""
        now = self.latest()
        if not now.declared:
            return
        good = self._trouble(now) is None and now.asked_at_ms is not None
        yield from families(_visible(now) if good else (), known=None if now.asked_at_ms is None else good)

    def observations(self, tree: Mapping[str, TopicSpec], changes: RuleChanges) -> list[RuleObservations]:
        """Return the observations of the mirror rules, from the last status; empty without a mirrors.yaml."""
        now = self.latest()
        if not now.declared:
            return []
        if now.asked_at_ms is None:
            return [RuleObservations(changes.rule(name), whole=False) for name in RULES]
        return observe_mirrors(_visible(now), tree, changes, self._trouble(now))

    def resting(self) -> frozenset[str]:
        """Return mirrors that carry nothing on purpose: paused, outside their schedule, or handed over."""
        mirrors = self.latest().mirrors
        return frozenset(str(each["mirror"]) for each in mirrors if each.get("state") in RESTING)

    @staticmethod
    def _trouble(now: MirrorFacts) -> str | None:
        """Return why the last status is not current, or None."""
        if now.error is not None or now.asked_at_ms is None:
            return now.error
        age_ms = epoch_ms() - now.asked_at_ms
        return None if age_ms < MEASURED_FOR_MS else f"the clusters last reported {age_ms // 1000} s ago"

    def _ask(self) -> None:
        try:
            self._now = self._statuses()
        except (HubError, OSError) as error:
            message = error.message if isinstance(error, HubError) else str(error)
            self._now = replace(self._now, asked_at_ms=epoch_ms(), error=message)
        except Exception as error:  # a page must not say "asking" forever
            log.exception("mirrors could not be asked")
            message = f"{type(error).__name__}: {error}"
            self._now = replace(self._now, asked_at_ms=epoch_ms(), error=message)
        finally:
            self._asking.release()

    def _statuses(self) -> MirrorFacts:
        file = load_mirrors(self.path)
        if file != self._file:
            self._file = None
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()
            self._ways_back.clear()
            self._reached = reach_all(checked(file), self.environ, self.path.parent, self.timeout_s)
            self._file = file
        reached = self._reached
        status = self._status(file, reached)
        here = frozenset(name for name, each in reached.items() if self._is_own(each.kafka))
        clusters = {name: each.kafka.bootstrap.partition(",")[0] for name, each in reached.items()}
        return MirrorFacts(status, epoch_ms(), here=here, clusters=clusters)

    def _is_own(self, cluster: KafkaCluster) -> bool:
        """Return whether a cluster is this server's: by an address, else by Kafka's cluster id if both
        answer."""
        if share_address(cluster.bootstrap, self.own.bootstrap):
            return True
        try:
            for each in (cluster, self.own):
                if each.bootstrap not in self._ids:
                    self._ids[each.bootstrap] = each.cluster_id()
        except HubError:
            return False
        return self._ids[cluster.bootstrap] == self._ids[self.own.bootstrap]

    def _status(self, file: MirrorsFile, reached: Mapping[str, ClusterHandle]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        declared = links(file)
        for name in file.mirrors:
            forward, control = self._of(file, declared[name], seen_by(declared[name], reached))
            found.append(forward)
            if control is not None:
                self._ways_back[name] = back_of(file, declared[name], self._topics[name], control)
            # Kept while the target does not answer, so that a late reverse link is still reported.
            if (back := self._ways_back.get(name)) is not None:
                found.append(self._of(file, back, seen_by(back, reached))[0])
        return found

    def _of(
        self, file: MirrorsFile, link: Link, reached: Mapping[str, ClusterHandle]
    ) -> tuple[Mapping[str, Any], Control | None]:
        """Return one direction's status, as reported at its target, and the ownership state; None while it
        does not answer."""
        try:
            if link.target not in self._readers:
                self._readers[link.target] = StatusReader(reached[link.target])
            board, progress = self._readers[link.target].refresh()
        except PeerError as error:
            short = {"mirror": link.name, "state": "unknown", "reason": error.message, "ok": False}
            short["closed"] = (target := reached.get(link.target)) is not None and target.closed
            ends = {"declared": link.declared, "source": link.source, "target": link.target}
            return {**short, **ends, "topics_known": self._topics.get(link.name, [])}, None
        source_ends = SourceEndOffsets()
        if (source := reached.get(link.source)) is not None:
            places, carried = places_of(link, board, progress), progress.of(link.name)
            source_ends = self._ends.ask(source, places, places - carried.keys())
        summary = summary_of(file, link, board, progress, epoch_ms(), source_ends)
        found = with_losses(summary, losses_now(file, link, reached, board, progress))
        found = {**found, "rename": rename_text(link)}
        self._topics[link.name] = sorted({str(row["topic"]) for row in found["partitions"]})
        return found, board.control


def _visible(facts: MirrorFacts) -> list[Mapping[str, Any]]:
    """Return the statuses without mirrors to closed regions, which only a server inside of them can watch."""
    return [each for each in facts.mirrors if not each.get("closed")]


def mirrors_of(settings: Settings) -> Mirrors:
    """Return the status reader for the project's mirrors.yaml."""
    own = own_cluster(settings, DESCRIBE_S)
    environ = own_environ(settings)
    return Mirrors(settings.project / "mirrors.yaml", settings.kafka_timeout_s, own, environ)


def _saved(project: Path, store: Store) -> Sequence[Mapping[str, Any]]:
    found, known = load_queries(project), store.names() if CALLER.get() is not None else ()
    return [
        {"name": each.name, "doc": each.doc, "sql": each.sql} for each in found if readable(known, each.sql)
    ]
