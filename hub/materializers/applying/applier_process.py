"""[shell] The applier process: one thread per store, each with its own applier, reader and back-off.

A store that is down or locked stops only itself: its thread closes its resources, reports the reason, and
retries after a growing pause from the positions that the store then has. The other stores continue. Further
threads report each store's position (as consumer groups for other tools, and as records of ``_hub.progress``
for the hub's own lists), expire rows older than their view's ttl (ttl_thread.py), and verify stores against
their changelogs (verification/continuous_check.py).

Limitation: each store decodes the changelog for itself, so n stores of a view cost n times its decoding.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hub.config import SERVING, Settings
from hub.errors import HubError
from hub.kafka import KafkaCluster, own_cluster
from hub.log import Writer
from hub.materializers.applying.applier import Applier, ViewFiles
from hub.materializers.applying.ttl_thread import Expirer, StoredView
from hub.materializers.definition.declared import table_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import view_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.progress.latency import PREFIX as LATENCY
from hub.materializers.progress.latency import Latencies
from hub.materializers.progress.latency_samples import Sampler
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.span_counts import telling
from hub.materializers.progress.store_reports import (
    PREFIX,
    REPORT_EVERY_S,
    StorePosition,
    StoreReport,
    StoreState,
    gone,
    reach,
    state_of,
)
from hub.materializers.stores.open_store import kind_of, open_store, shown
from hub.materializers.stores.sql.scans import compared_table
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import ViewStore
from hub.materializers.verification.continuous_check import ContinuousVerifier, VerifiableView
from hub.materializers.verification.fingerprint import PREFIX as PROOF
from hub.materializers.versions.comparison import compare
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.materializers.versions.versions import Versions, compared_record, versions_of
from hub.record import NewRecord, Positions
from hub.runtime import Backoff
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.tree.tree import LiveTree

log = logging.getLogger(__name__)

_RESCAN_S = 2.0
_PUBLISH_S = 1.0
# Unchanged reports are repeated at this interval, because readers treat an old report as unknown.
_LATENCY_S, _LATENCY_IDLE_S = 5.0, 30.0
_STOP_S = 10.0
# A comparison tries this often, at this interval, to find a moment at which both versions cover the same
# events.
_LOOKS, _LOOK_S = 20, 0.1
# Retry interval of a stopped view: meanwhile the record may be compacted away or the schema registered.
_RETRY_STOPPED_S = 60.0


def belongs(view: View | SqlView, store: str) -> bool:
    """Return whether a view is kept in a store."""
    return store in (view.stores or (SERVING,))


@dataclass
class StoreThread:
    """One store of the project and the state of its thread."""

    name: str
    url: str
    settings: Settings
    schemas: RegistryClient
    reason: str | None = None
    state: StoreState = "starting"
    since_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    store: ViewStore | None = None
    applier: Applier | None = None
    served: Mapping[str, str] = field(default_factory=dict)
    objectives: Mapping[str, float] = field(
        default_factory=dict
    )  # of views, in seconds; replaced, never changed
    latencies: Latencies = field(init=False)

    def __post_init__(self) -> None:
        self.latencies = Latencies(
            self.name,
            time.time_ns() // 1_000_000,
            lambda table: self.objectives.get(table.partition("@")[0]),
            self.settings.latency_replay_s,
        )

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop``. Log and retry every failure: no store's failure affects another store."""
        backoff = Backoff(first_s=0.2, most_s=5.0)
        log_ = own_cluster(self.settings)
        while not stop.is_set():
            try:
                self._drive(log_, stop, backoff)
            except HubError as error:
                log.warning("store %s: %s: tried again", self.name, error.message)
                self._say("down", error.message)
            except (
                Exception
            ) as error:  # an internal error must not end the other stores' threads with the process
                log.exception("store %s", self.name)
                self._say("down", f"{type(error).__name__}: {error}")
            finally:
                self._close()
            stop.wait(backoff.next_s())

    def _drive(self, log_: KafkaCluster, stop: threading.Event, backoff: Backoff) -> None:
        self.store = open_store(self.url)
        self.applier = Applier(
            log_,
            self.schemas,
            self.store,
            self._group,
            self.latencies,
            self.settings.cut_wait_s,
            self.settings.live_events_per_batch,
        )
        rhythm = self.store.rhythm
        files, tree = ViewFiles(self.settings.project), LiveTree(self.settings.project / "topics.yaml")
        rescan_at, retry_at = 0.0, time.monotonic() + _RETRY_STOPPED_S
        while not stop.is_set():
            now = time.monotonic()
            if now >= retry_at:
                retry_at = now + _RETRY_STOPPED_S
                self.applier.retry_stopped()
            if now >= rescan_at or self.applier.stirred:
                rescan_at, self.applier.stirred = now + _RESCAN_S, False
                told = known_versions(self.store.progress())
                views = [view for view in files.views() if belongs(view, self.name)]
                self.objectives = objectives(views, tree)
                self.applier.follow(followed_versions(views, told, every=isinstance(self.store, Store)))
                if isinstance(self.store, Store):
                    self.served = keep_versions(self.store, self.applier, told)
            records = self.applier.step()
            backoff.reset()
            if self.state in ("starting", "down"):
                self._say("live", None)
            if records < rhythm.few:
                stop.wait(rhythm.pause_s)

    def _group(self, table: str) -> str:
        view = table.partition("@")[0]
        if view in self.served:  # readers of groups follow the version that readers of rows get
            table = view if table == self.served[view] else f"{table}.beside"
        return f"hub.store.{table}" if self.name == SERVING else f"hub.store.{table}@{self.name}"

    def kept(self) -> list[StoredView]:
        """Return the store's views that are not stopped, each as the version that readers get."""
        store, applier = self.store, self.applier
        if store is None or applier is None:
            return []
        return [
            StoredView(each.view, table, store)
            for table, each in list(applier.followed.items())
            if each.stopped is None and table == self.served.get(each.view.name, each.view.name)
        ]

    def provable(self) -> tuple[list[VerifiableView], str]:
        """See hub.materializers.verification.continuous_check.CheckedStoreThread."""
        store, applier = self.store, self.applier
        if store is None or applier is None or applier.reader is None or self.state == "down":
            return [], self.reason or "it is being opened"
        return [
            VerifiableView(
                each.view.name,
                table,
                each.view.changelog,
                store,
                "" if each.stopped is None else f"the view is stopped in this store: {each.stopped}",
            )
            for table, each in list(applier.followed.items())
            if table == self.served.get(each.view.name, each.view.name)
        ], ""

    def _say(self, state: StoreState, reason: str | None) -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason, self.since_ms = state, reason, time.time_ns() // 1_000_000

    def _close(self) -> None:
        applier, store = self.applier, self.store
        self.applier = self.store = None
        with suppress(HubError):
            if applier is not None:
                applier.close()
        with suppress(HubError):
            if store is not None:
                store.close()

    def report(self, views: Mapping[str, StorePosition]) -> StoreReport:
        state = state_of(views) if self.state == "live" else self.state
        return StoreReport(
            self.name, kind_of(self.url), shown(self.url), state, self.reason, self.since_ms, views
        )


def run(settings: Settings, stop: threading.Event) -> None:
    """Apply every view of the project to its stores until ``stop``; wait for unavailable services and log
    them.
    """
    schemas = RegistryClient(settings.registry)
    stores = [StoreThread(name, url, settings, schemas) for name, url in settings.store_urls.items()]
    threads = [
        threading.Thread(target=each.run, args=(stop,), name=each.name, daemon=True) for each in stores
    ]
    teller = _LagReporter(own_cluster(settings), stores)
    threads.append(threading.Thread(target=teller.run, args=(stop,), name="publish", daemon=True))
    timer = _LatencySampler(own_cluster(settings), stores)
    threads.append(threading.Thread(target=timer.run, args=(stop,), name="latency", daemon=True))
    comparer = _Comparer(own_cluster(settings), stores[0])
    threads.append(threading.Thread(target=comparer.run, args=(stop,), name="compare", daemon=True))
    expirer = Expirer(
        own_cluster(settings),
        stores,
        settings.expiry_every_s,
        settings.expiry_rows_per_s,
    )
    threads.append(threading.Thread(target=expirer.run, args=(stop,), name="expire", daemon=True))
    prover = ContinuousVerifier(
        own_cluster(settings),
        RegistryClient(settings.registry),
        stores,
        settings.home / "proof",
        settings.proof_core_share,
        settings.proof_every_s,
    )
    threads.append(threading.Thread(target=prover.run, args=(stop,), name="prove", daemon=True))
    for thread in threads:
        thread.start()
    known: set[str] = set()
    files = ViewFiles(settings.project)
    with telling(own_cluster(settings), "hub-applier"):
        while not stop.wait(_RESCAN_S):
            for view in files.views():
                for name in set(view.stores) - set(settings.store_urls) - known:
                    known.add(name)
                    log.error('view %s: store "%s" is not in hub.yaml: it is not filled', view.name, name)
    deadline = time.monotonic() + _STOP_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def objectives(views: Sequence[View | SqlView], tree: LiveTree) -> dict[str, float]:
    """Return the promised latency of each view in seconds: its ``slo: {latency: …}``, else its topics'
    shortest.
    """
    found: dict[str, float] = {}
    for view in views:
        if view.slo.latency_ms:
            found[view.name] = view.slo.latency_ms / 1000
            continue
        specs = [tree.find(source.topic) for source in view.sources.values()]
        promised = [spec.slo.latency_ms for spec in specs if spec is not None and spec.slo.latency_ms]
        if promised:
            found[view.name] = min(promised) / 1000
    return found


def known_versions(told: Mapping[str, Any]) -> dict[str, Versions]:
    """Return the versions of views as last read from the log, by view."""
    found = {}
    for key, body in told.items():
        if key.startswith(VERSIONS):
            try:
                found[key.removeprefix(VERSIONS)] = versions_of(body)
            except HubError as error:
                log.error("%s: %s", key, error.message)
    return found


def followed_versions(
    views: Sequence[View | SqlView], told: Mapping[str, Versions], *, every: bool
) -> list[View | SqlView]:
    """Return the versions of views whose changelogs are applied.

    Without ``every``, only the served version, under the view's name; such a store is refilled when another
    version is served.
    """
    found: list[View | SqlView] = []
    for view in views:
        known = told.get(view.name)
        if known is None:
            found.append(view)
        elif every:
            found += [view_of(each.definition.body).of_version(each.suffix) for each in known.versions]
        else:
            served = known.served
            found.append(view_of(served.definition.body).of_version(served.suffix, view.name))
    return found


def keep_versions(store: Store, applier: Applier, told: Mapping[str, Versions]) -> dict[str, str]:
    """Switch readers to the served version once the store has all its rows; drop tables of removed versions.

    Returns the table that readers get, by view.
    """
    found = {}
    tables = store.views()
    for name, known in told.items():
        wanted = table_of(name, known.served.suffix)
        read = store.served(name)
        followed = applier.followed.get(wanted)
        if read != wanted and wanted in tables and followed is not None:
            # A store that is filled from nothing has no other rows to show meanwhile.
            whole = followed.position.covers(Positions.parse(known.served.at or ""))
            if whole or read not in tables:
                store.serve(name, known.served.suffix)
                log.info("view %s: readers get %s", name, wanted)
                read = wanted
        kept = {read, *(table_of(name, each.suffix) for each in known.versions)}
        for table in tables:
            if table.partition("@")[0] == name and table not in kept:
                store.drop_view(table)
                log.info("view %s: table of %s dropped", name, table)
        found[name] = read
    return found


@dataclass
class _Comparer:
    """Compares ready versions with the served ones, in the serving store, once it has all their rows.

    Runs in parallel with the appliers' steps, which do not wait for it.
    """

    cluster: KafkaCluster
    serving: StoreThread
    done: dict[str, str] = field(default_factory=dict)
    writer: Writer | None = None

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(_PUBLISH_S):
            try:
                self.step()
            except HubError as error:
                log.debug("versions not compared: %s", error.message)
        if self.writer is not None:
            self.writer.close()

    def step(self) -> None:
        store, applier = self.serving.store, self.serving.applier
        if not isinstance(store, Store) or applier is None:
            return
        for name, known in known_versions(store.progress()).items():
            ready = known.coming
            if ready is None or ready.state != "ready" or ready.comparison is not None:
                continue
            table, mark = table_of(name, ready.suffix), f"{ready.number} {ready.at}"
            followed = applier.followed.get(table)
            if self.done.get(name) == mark or followed is None or followed.stopped is not None:
                continue
            if not followed.position.covers(Positions.parse(ready.at or "")):
                continue
            try:
                report = self._compared(store, table_of(name, known.served.suffix), table)
            except HubError:
                raise
            # rows that cannot be compared: a user must decide without a comparison
            except Exception as error:
                log.exception("view %s: versions not compared", name)
                report = {"error": f"{type(error).__name__}: {error}"[:500]}
            if self.writer is None:
                self.writer = self.cluster.writer()
            self.writer.append([compared_record(name, ready.number, ready.at or "", report)])
            self.done[name] = mark

    def _compared(self, store: Store, before: str, after: str) -> dict[str, Any]:
        """Compare two versions, at equal positions if one of several attempts finds them."""
        looks = 0
        while True:
            with store.reading() as connection:
                one, other = (compared_table(connection, store.catalog, name) for name in (before, after))
                if one.sources == other.sources or looks == _LOOKS:
                    return compare(one, other).body()
            looks += 1
            time.sleep(_LOOK_S)


@dataclass
class _LatencySampler:
    """Samples the events of SQL views and reports latencies, in parallel with the appliers' steps."""

    cluster: KafkaCluster
    stores: list[StoreThread]
    told: dict[str, tuple[int, float]] = field(default_factory=dict)
    writer: Writer | None = None

    def run(self, stop: threading.Event) -> None:
        sampler, tell_at = Sampler(self.cluster), 0.0
        try:
            while not stop.wait(_PUBLISH_S):
                try:
                    sampler.step([each.latencies for each in self.stores])
                    if time.monotonic() >= tell_at:
                        tell_at = time.monotonic() + _LATENCY_S
                        self.tell()
                except HubError as error:
                    log.debug("not told how long events took: %s", error.message)
                except Exception:  # an internal error must not end the thread
                    log.exception("latency")
        finally:
            sampler.close()
            if self.writer is not None:
                self.writer.close()

    def tell(self) -> None:
        now_s = time.monotonic()
        due = [each for each in self.stores if self._news(each, now_s)]
        if not due or not self.cluster.partition_counts([PROGRESS_TOPIC]):
            return
        if self.writer is None:
            self.writer = self.cluster.writer()
        counted = {each.name: (each.latencies.counted, now_s) for each in due}
        self.writer.append([each.latencies.record(time.time_ns() // 1_000_000) for each in due])
        self.told |= counted

    def _news(self, store: StoreThread, now_s: float) -> bool:
        counted, at_s = self.told.get(store.name, (-1, 0.0))
        return store.latencies.counted != counted or now_s - at_s > _LATENCY_IDLE_S


@dataclass
class _LagReporter:
    """Reports the stores' positions, in parallel with the appliers' steps, which do not wait for it."""

    cluster: KafkaCluster
    stores: list[StoreThread]
    groups: dict[str, Mapping[str, Positions]] = field(default_factory=dict)
    reaches: dict[str, dict[str, StorePosition]] = field(default_factory=dict)
    told: dict[str, tuple[StoreReport, float]] = field(default_factory=dict)
    """Last report of each store, and when it was written (monotonic seconds)."""
    cleared: bool = False
    writer: Writer | None = None

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(_PUBLISH_S):
                try:
                    self.step()
                except HubError as error:
                    log.debug("not told how far the stores are: %s", error.message)
        finally:
            if self.writer is not None:
                self.writer.close()

    def step(self) -> None:
        for each in self.stores:
            applier = each.applier
            if applier is not None:
                self.groups[each.name] = applier.publish(self.groups.get(each.name, {}))
        reports = [each.report(self._reach(each)) for each in self.stores]
        now_s = time.monotonic()
        due = [each for each in reports if self._is_due(each, now_s)]
        if not due or not self.cluster.partition_counts([PROGRESS_TOPIC]):
            return
        if self.writer is None:
            self.writer = self.cluster.writer()
        strangers = self._strangers()
        forgotten = [
            NewRecord(PROGRESS_TOPIC, f"{kind}{name}".encode(), None)
            for name in strangers
            for kind in (LATENCY, PROOF)
        ]
        self.writer.append([*(each.record() for each in due), *map(gone, strangers), *forgotten])
        self.told.update({each.store: (each, now_s) for each in due})

    def _is_due(self, report: StoreReport, now_s: float) -> bool:
        last, at_s = self.told.get(report.store, (None, 0.0))
        return report != last or now_s - at_s >= REPORT_EVERY_S

    def _reach(self, store: StoreThread) -> dict[str, StorePosition]:
        """Return each view's position and lag; for a store that is down the last known position with the
        current lag.
        """
        applier = store.applier
        followed = {} if applier is None else dict(applier.followed)
        at = {name: (each.position, each.stopped) for name, each in followed.items()} or {
            name: (each.positions, each.stopped) for name, each in self.reaches.get(store.name, {}).items()
        }
        ends = self.cluster.end_offsets(
            sorted({tp.topic for position, _ in at.values() for tp, _ in position})
        )
        found = {
            name: reach(position, ends.of_topics({tp.topic for tp, _ in position}), stopped)
            for name, (position, stopped) in at.items()
        }
        self.reaches[store.name] = found
        return found

    def _strangers(self) -> list[str]:
        """Return stores with reports that are not in hub.yaml any more. Checked once, when the serving store
        answers.
        """
        serving = self.stores[0].store
        if self.cleared or serving is None:
            return []
        known = {f"{PREFIX}{each.name}" for each in self.stores}
        found = [key.removeprefix(PREFIX) for key in serving.progress() if key.startswith(PREFIX)]
        self.cleared = True
        return [name for name in found if f"{PREFIX}{name}" not in known]
