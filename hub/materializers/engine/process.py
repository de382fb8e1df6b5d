"""[shell] The materializer process: one Spark session, and one thread per version of a view.

The process starts and stops threads as view files and versions come and go, publishes what they report,
removes dropped versions, and widens Spark's session when views need more task slots. When Spark's JVM is
gone or a batch stalls, the process exits at once. Its supervisor starts it again, and it resumes from the
checkpoints.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from hub.config import Settings
from hub.embedded import SparkGateway
from hub.errors import HubError
from hub.home_key import home_name, make_key
from hub.kafka import own_cluster
from hub.materializers.engine.file_watch import ViewFolder
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.removal import VersionRemover
from hub.materializers.engine.report_thread import ReportThread, folder_of
from hub.materializers.engine.standby.lease_thread import LeaseThread
from hub.materializers.engine.standby.place import own_place
from hub.materializers.engine.standby.starting import (
    EngineStart,
    make_progress_topic,
    open_versions,
    stand_by,
)
from hub.materializers.engine.view_thread import ViewThread
from hub.materializers.isolation.isolated_process import IsolatedProcess
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.progress.span_counts import telling
from hub.materializers.snapshot_groups.coordinator import SnapshotGroups
from hub.materializers.spark import session as spark
from hub.schema_registry.client.registry_client import RegistryClient
from hub.supervisor import describe_exit

log = logging.getLogger(__name__)

_LEASE_S = 3.0  # a free lease is taken in less
_TURN_S = 0.1  # pause of the loop over all views when none has news
_LOOK_S = 2.0
_GROUPS_STOP_S = 5.0
# Longest wait for a JVM to exit after it has closed its connections.
_JVM_ENDS_S = 10.0

# Name of a run of the materializer; the processes of isolated versions inherit it.
_RUN = "HUB_MATERIALIZER_RUN"

ThreadKey = tuple[Path, int | None]


def run(settings: Settings, stop: threading.Event, only: str | None = None, *, decides: bool = False) -> None:
    """Run every view of the project until ``stop`` is set.

    ``only``: run that version alone, as the process of an isolated version (isolation/processes.py). Such a
    process leaves decisions about the view's versions to the shared process, unless ``decides`` is set.
    """
    run_name = os.environ.setdefault(_RUN, secrets.token_hex(8))
    cluster = own_cluster(settings)
    if only is not None:
        isolated = IsolatedProcess(settings, only, decides)
        _run_views(EngineStart(settings, cluster, run_name, isolated, only), stop)
        return
    make_progress_topic(cluster, settings)
    home = home_name(make_key(settings.home))
    lease = LeaseThread(cluster, home, run_name, own_place(), settings.materializer_takeover_s)
    with lease.running():
        start = EngineStart(settings, cluster, run_name, SharedProcess(settings), lease=lease)
        if lease.wait(_LEASE_S) or stand_by(start, lease, stop):
            _run_views(start, stop)


def _run_views(start: EngineStart, stop: threading.Event) -> None:
    settings, cluster = start.settings, start.cluster
    versions = open_versions(cluster, settings)
    progress = ProgressQueue(cluster, cluster.writer(), public=versions.public, run=start.run)
    folder = ViewFolder(settings.project)
    reports = ReportThread(cluster.writer(), folder_of(settings.project), start.run)
    reports.set_views(folder.names())
    # Only the shared process reports: it reports for all views. Spark may take a minute to start.
    with reports.running() if start.only is None else nullcontext():
        slots, session, gateway = start.open_spark()
        registry = RegistryClient(settings.registry)
        parts = EngineParts(settings, session, slots, cluster, registry, progress, versions, start.isolation)
        EngineProcess(parts, gateway, folder, reports, start.only, start.lease).run(stop)


@dataclass
class EngineProcess:
    """The loop of the process. ``only``: see ``run``."""

    parts: EngineParts
    gateway: SparkGateway
    folder: ViewFolder
    reports: ReportThread
    only: str | None = None
    lease: LeaseThread | None = None
    threads: dict[ThreadKey, ViewThread] = field(default_factory=dict)
    remover: VersionRemover = field(init=False)
    groups: SnapshotGroups = field(init=False)
    versions_at_s: float = 0.0
    counted_at_s: float = 0.0
    looked_at_s: float = 0.0

    def __post_init__(self) -> None:
        parts, settings = self.parts, self.parts.settings
        self.remover = VersionRemover(parts)
        events, pause_s = settings.live_events_per_batch, settings.trigger_ms / 1000
        self.groups = SnapshotGroups(parts.cluster, parts.cluster.writer(), events, pause_s)

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set, or until versions must be decided elsewhere."""
        parts = self.parts
        in_step = threading.Thread(target=self.groups.run, args=(stop,), name="cuts", daemon=True)
        opened = ExitStack()
        try:
            parts.isolation.open()
            in_step.start()
            name = "hub-materializer" if self.only is None else f"hub-materializer-{self.only}"
            opened.enter_context(telling(parts.cluster, name))
            while not stop.is_set() and self._step():
                parts.progress.news.wait(_TURN_S)
        except Exception as error:
            if spark.is_gone(error):
                code = self.gateway.ended(_JVM_ENDS_S)
                log.error("Spark's JVM does not answer any more: %s", error)
                self._die(code if code is not None else 1)
            raise
        finally:
            parts.isolation.close()
            self._stop_all()
            parts.progress.post()
            in_step.join(_GROUPS_STOP_S)
            parts.versions.close()
            opened.close()
            parts.session.stop()

    def _step(self) -> bool:
        """Run one turn. Return False when versions must be decided elsewhere."""
        if self.lease is not None and self.lease.is_lost:
            # Nothing is noted: the journal of deaths is the other process's now.
            log.error("another materializer of this home has taken over; this one ends")
            os._exit(1)
        self._run_wanted()
        self._decide_versions()
        self._widen()
        if self.gateway.process.poll() is not None:
            # An orderly stop is not possible any more. A new process resumes from the checkpoints.
            log.error("Spark's JVM has ended: %s", describe_exit(self.gateway.process.returncode))
            self._die(self.gateway.process.returncode)
        if time.monotonic() < self.looked_at_s:
            return True
        self.looked_at_s = time.monotonic() + _LOOK_S
        return self._look()

    def _run_wanted(self) -> None:
        """Run a thread for each wanted version, and publish what the threads report."""
        parts = self.parts
        files = self.folder.files()
        self.reports.set_views(self.folder.names())
        known = [(path, suffix) for path in files for suffix in parts.versions.suffixes(path.stem)]
        wanted = parts.isolation.step(known, parts.versions)
        for state in parts.isolation.take_states():
            parts.progress.report_state(state)
        for key in wanted:
            if key not in self.threads or not self.threads[key].alive:
                self.threads[key] = ViewThread(parts, VersionName(*key))
                self.threads[key].start()
        self.groups.running = parts.isolation.in_groups([self.threads[key] for key in wanted])
        parts.progress.post()
        for key, thread in list(self.threads.items()):
            if key not in wanted:
                thread.stop()
                if all(path != key[0] for path, _ in wanted):
                    parts.slots.release(key[0].stem)
                parts.progress.forget(thread.table)
                del self.threads[key]

    def _decide_versions(self) -> None:
        try:
            if time.monotonic() >= self.versions_at_s:
                self.parts.versions.step()
                read = [thread.reads for thread in self.threads.values()]
                self.remover.step(self.parts.isolation.reads().union(*read))
        except HubError as error:
            log.warning("versions of views, tried again: %s", error.message)
            self.versions_at_s = time.monotonic() + _LOOK_S

    def _widen(self) -> None:
        """Start Spark again when views need more task slots than it has."""
        parts, slots = self.parts, self.parts.slots
        if slots.most is None and time.monotonic() >= self.counted_at_s:
            self.counted_at_s = time.monotonic() + _LOOK_S
            spark.count_slots(parts.session, slots, parts.settings)
        if slots.most is not None and slots.wanted > slots.capacity:
            log.info("Spark starts again with %d task slots", slots.wanted)
            self._stop_all()
            parts.session = spark.wider_session(parts.session, slots)

    def _look(self) -> bool:
        """Look after Spark and the threads. Return False when versions must be decided elsewhere."""
        if spark.is_stopped(self.parts.session):
            log.error("Spark has stopped itself while its JVM still runs; the reason is in its log")
            os._exit(1)
        if any(thread.undecided for thread in self.threads.values()):
            return False
        for thread in self.threads.values():
            why = thread.stalled(time.monotonic())
            if why is not None:
                self.parts.isolation.stalled(thread.table, why)
                os._exit(1)
        return True

    def _die(self, code: int) -> NoReturn:
        """Exit at once after the end of Spark's JVM. ``code``: its exit code."""
        self.parts.isolation.died(code)
        os._exit(1)

    def _stop_all(self) -> None:
        for thread in self.threads.values():
            thread.request_stop()
        for thread in self.threads.values():
            thread.stop()
        self.threads.clear()
