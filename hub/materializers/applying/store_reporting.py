"""[shell] Report each store's position, lag and latencies, and compare versions, between the appliers'
steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.log import Writer
from hub.materializers.applying.store_thread import StoreThread, known_versions
from hub.materializers.definition.declared import table_of
from hub.materializers.definition.load import clear_text_views
from hub.materializers.progress.latency import PREFIX as LATENCY
from hub.materializers.progress.latency_samples import Sampler
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.store_reports import (
    PREFIX,
    REPORT_EVERY_S,
    StorePosition,
    StoreReport,
    gone,
    reach,
)
from hub.materializers.stores.sql.scans import compared_table
from hub.materializers.stores.sql_store import Store
from hub.materializers.verification.verification_status import PREFIX as PROOF
from hub.materializers.versions.comparison import compare
from hub.materializers.versions.version_records import compared_record
from hub.materializers.versions.versions import Versions
from hub.record import NewRecord, Positions
from hub.times import epoch_ms

log = logging.getLogger(__name__)

_PUBLISH_S = 1.0
# Unchanged reports are repeated at this interval, because readers treat an old report as unknown.
_LATENCY_S, _LATENCY_IDLE_S = 5.0, 30.0
# A comparison tries this often, at this interval, to find a moment at which both versions cover the same
# events.
_LOOKS, _LOOK_S = 20, 0.1


@dataclass
class VersionComparer:
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
        every = known_versions(store.progress())
        for name, known in every.items():
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
                if name in self._clear_text(every):
                    report.pop("samples", None)
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

    @staticmethod
    def _clear_text(every: Mapping[str, Versions]) -> frozenset[str]:
        """Return the views whose rows may not be in a report: it would stay in the log after an erasure."""
        return clear_text_views(
            {name: [each.definition.body for each in known.versions] for name, known in every.items()}
        )

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
class LatencySampler:
    """Samples the events of SQL views and reports latencies, in parallel with the appliers' steps."""

    cluster: KafkaCluster
    stores: list[StoreThread]
    reported: dict[str, tuple[int, float]] = field(default_factory=dict)
    writer: Writer | None = None

    def run(self, stop: threading.Event) -> None:
        sampler, report_at_s = Sampler(self.cluster), 0.0
        try:
            while not stop.wait(_PUBLISH_S):
                try:
                    sampler.step([each.latencies for each in self.stores])
                    if time.monotonic() >= report_at_s:
                        report_at_s = time.monotonic() + _LATENCY_S
                        self.report()
                except HubError as error:
                    log.debug("latencies were not reported: %s", error.message)
                except Exception:  # an internal error must not end the thread
                    log.exception("latency")
        finally:
            sampler.close()
            if self.writer is not None:
                self.writer.close()

    def report(self) -> None:
        now_s = time.monotonic()
        due = [each for each in self.stores if self._news(each, now_s)]
        if not due or not self.cluster.partition_counts([PROGRESS_TOPIC]):
            return
        if self.writer is None:
            self.writer = self.cluster.writer()
        counted = {each.name: (each.latencies.counted, now_s) for each in due}
        self.writer.append([each.latencies.record(epoch_ms()) for each in due])
        self.reported |= counted

    def _news(self, store: StoreThread, now_s: float) -> bool:
        counted, at_s = self.reported.get(store.name, (-1, 0.0))
        return store.latencies.counted != counted or now_s - at_s > _LATENCY_IDLE_S


@dataclass
class LagReporter:
    """Reports the stores' positions, in parallel with the appliers' steps, which do not wait for it."""

    cluster: KafkaCluster
    stores: list[StoreThread]
    groups: dict[str, Mapping[str, Positions]] = field(default_factory=dict)
    reaches: dict[str, dict[str, StorePosition]] = field(default_factory=dict)
    reported: dict[str, tuple[StoreReport, float]] = field(default_factory=dict)
    """Last report of each store, and when it was written (monotonic seconds)."""
    cleared: bool = False
    writer: Writer | None = None

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(_PUBLISH_S):
                try:
                    self.step()
                except HubError as error:
                    log.debug("positions of the stores were not reported: %s", error.message)
        finally:
            if self.writer is not None:
                self.writer.close()

    def step(self) -> None:
        for each in self.stores:
            applier = each.applier
            if applier is None:
                continue
            try:
                self.groups[each.name] = applier.publish(self.groups.get(each.name, {}))
            except HubError as error:  # the reports below do not depend on the groups
                log.debug("groups of the store %s were not published: %s", each.name, error.message)
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
        self.reported.update({each.store: (each, now_s) for each in due})

    def _is_due(self, report: StoreReport, now_s: float) -> bool:
        last, at_s = self.reported.get(report.store, (None, 0.0))
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
        store_positions = {
            name: reach(position, ends.of_topics({tp.topic for tp, _ in position}), stopped)
            for name, (position, stopped) in at.items()
        }
        self.reaches[store.name] = store_positions
        return store_positions

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
