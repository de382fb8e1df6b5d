"""[shell] The thread of one store: open it, apply the views that belong to it, and keep their versions.

A store that is down or locked stops only itself: its thread closes its resources, reports the reason, and
retries after a growing pause from the positions that the store then has. The other stores continue.
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
from hub.materializers.applying.applier import Applier
from hub.materializers.applying.ttl_thread import StoredView
from hub.materializers.applying.view_files import ViewFiles
from hub.materializers.definition.declared import table_of
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import view_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.progress.latency import Latencies
from hub.materializers.progress.store_reports import StorePosition, StoreReport, StoreState, state_of
from hub.materializers.stores.open_store import kind_of, note_version, open_store, shown
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import ViewStore
from hub.materializers.verification.turns import VerifiableView
from hub.materializers.versions.version_records import versions_of
from hub.materializers.versions.versions import PREFIX as VERSIONS
from hub.materializers.versions.versions import Versions
from hub.record import Positions
from hub.runtime import Backoff
from hub.schema_registry.client.registry_client import RegistryClient
from hub.times import epoch_ms
from hub.topics.tree.tree import LiveTree

log = logging.getLogger(__name__)

_RESCAN_S = 2.0
# Retry interval of a stopped view: meanwhile the record may be compacted away or the schema registered.
_RETRY_STOPPED_S = 60.0
# Versions of a history that are removed in one transaction, the pauses between two of them, and the pause as
# a multiple of the time that it took.
_PRUNE_ROWS, _PRUNE_EVERY_S, _PRUNE_AGAIN_S, _PRUNE_PAUSE = 5_000, 15.0, 0.5, 20


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
    since_ms: int = field(default_factory=epoch_ms)
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
            epoch_ms(),
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
                self._report_state("down", error.message)
            except (
                Exception
            ) as error:  # an internal error must not end the other stores' threads with the process
                log.exception("store %s", self.name)
                self._report_state("down", f"{type(error).__name__}: {error}")
            finally:
                self._close()
            stop.wait(backoff.next_s())

    def _drive(self, log_: KafkaCluster, stop: threading.Event, backoff: Backoff) -> None:
        self.store = open_store(self.url, self.settings)
        note_version(self.store)
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
        prune_at = time.monotonic() + _PRUNE_EVERY_S
        while not stop.is_set():
            now = time.monotonic()
            if now >= retry_at:
                retry_at = now + _RETRY_STOPPED_S
                self.applier.retry_stopped()
            if now >= rescan_at or self.applier.stirred:
                rescan_at, self.applier.stirred = now + _RESCAN_S, False
                versions = known_versions(self.store.progress())
                views = [view for view in files.views() if belongs(view, self.name)]
                self.objectives = objectives(views, tree)
                self.applier.follow(followed_versions(views, versions, every=isinstance(self.store, Store)))
                if isinstance(self.store, Store):
                    self.served = keep_versions(self.store, self.applier, versions)
            if isinstance(self.store, Store) and now >= prune_at:
                prune_at = prune_history(self.store, now)
            records = self.applier.step()
            backoff.reset()
            if self.state in ("starting", "down"):
                self._report_state("live", None)
            if records < rhythm.few:
                stop.wait(rhythm.pause_s)

    def _group(self, table: str) -> str:
        view = table.partition("@")[0]
        if view in self.served:  # readers of groups follow the version that readers of rows get
            table = view if table == self.served[view] else f"{table}.beside"
        return f"hub.store.{table}" if self.name == SERVING else f"hub.store.{table}@{self.name}"

    def active_views(self) -> list[StoredView]:
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

    def _report_state(self, state: StoreState, reason: str | None) -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason, self.since_ms = state, reason, epoch_ms()

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


def prune_history(store: Store, began_s: float) -> float:
    """Remove versions of rows that are over, a bounded number. Returns when to do it again, by
    ``time.monotonic``."""
    removed = store.history.prune(epoch_ms(), _PRUNE_ROWS)
    now_s = time.monotonic()
    pause_s = _PRUNE_AGAIN_S if removed >= _PRUNE_ROWS else _PRUNE_EVERY_S
    return now_s + max(pause_s, _PRUNE_PAUSE * (now_s - began_s))


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


def known_versions(records: Mapping[str, Any]) -> dict[str, Versions]:
    """Return the versions of views as last read from the log, by view."""
    found = {}
    for key, body in records.items():
        if key.startswith(VERSIONS):
            try:
                found[key.removeprefix(VERSIONS)] = versions_of(body)
            except HubError as error:
                log.error("%s: %s", key, error.message)
    return found


def followed_versions(
    views: Sequence[View | SqlView], versions: Mapping[str, Versions], *, every: bool
) -> list[View | SqlView]:
    """Return the versions of views whose changelogs are applied.

    Without ``every``, only the served version, under the view's name; such a store is refilled when another
    version is served.
    """
    found: list[View | SqlView] = []
    for view in views:
        known = versions.get(view.name)
        if known is None:
            found.append(view)
        elif every:
            found += [view_of(each.definition.body).of_version(each.suffix) for each in known.versions]
        else:
            served = known.served
            found.append(view_of(served.definition.body).of_version(served.suffix, view.name))
    return found


def keep_versions(store: Store, applier: Applier, versions: Mapping[str, Versions]) -> dict[str, str]:
    """Switch readers to the served version once the store has all its rows; drop tables of removed versions.

    Returns the table that readers get, by view.
    """
    found = {}
    tables = store.views()
    for name, known in versions.items():
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
