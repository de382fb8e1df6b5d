"""[shell] All sinks of a project, each in a thread; ``sinks.yaml`` and pauses are followed.

A sink whose entry changes is stopped and started again, the others continue. One that is wrong reports why.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from hub.access.live_config import LiveAccess
from hub.backup.storage.object_store import open_store
from hub.config import Settings
from hub.errors import ConfigError, HubError, PeerError
from hub.kafka import own_cluster
from hub.record import Positions, lag_records
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.encryption.serving import use_remote_keys
from hub.sinks.assembler import AssemblyRound
from hub.sinks.note import SinkNote, paused_sinks, write_notes
from hub.sinks.owner import Owners
from hub.sinks.selection import SinkSelection
from hub.sinks.sink import Sink, SinkParts, SinkRound
from hub.sinks.sinks_file import SINKS_FILE, SinkEntry, load_sinks
from hub.sinks.targets.database import Database
from hub.sinks.targets.files import Files
from hub.sinks.targets.search import SearchIndexSink
from hub.sinks.targets.target import ReportRetry, Target
from hub.sinks.targets.topic import OtherTopic
from hub.sinks.targets.webhook import WebhookSink
from hub.times import epoch_ms
from hub.topics.tree.erasable import seal_by_tree
from hub.topics.tree.tree_file import duration_ms

log = logging.getLogger(__name__)

_STEP_S, _ENDS_S, _STOP_S = 1.0, 5.0, 20.0


def sink_parts(settings: Settings, environ: Mapping[str, str] = os.environ) -> SinkParts:
    """Return what sinks use; connects to nothing yet. Raises ConfigError."""
    access = LiveAccess(settings.project, required=settings.require_access, admin_token=settings.admin_token)
    cluster, registry = own_cluster(settings), RegistryClient(settings.registry)
    use_remote_keys(settings)
    seal_by_tree(settings.project, settings.erase_kek)

    def explain(query: Mapping[str, str]) -> list[Mapping[str, Any]]:
        try:
            answer = httpx2.get(
                f"{settings.url}/api/access/explain", params=dict(query), headers=settings.authorization
            )
            answer.raise_for_status()
            return list(answer.json()["sees"])
        except (httpx2.HTTPError, ValueError, KeyError) as error:
            raise PeerError(
                f"masks of {' '.join(query.values())}: the hub's server does not say what is seen: {error}",
                hint="start the server: hub up",
                code="HUB-3822",
            ) from None

    def open_target(
        name: str, entry: SinkEntry, selection: SinkSelection, report_retry: ReportRetry
    ) -> Target:
        return target_of(name, entry, selection, settings, parts, report_retry, environ)

    parts = SinkParts(settings, cluster, registry, Owners(access, explain), open_target)
    return parts


def target_of(
    name: str,
    entry: SinkEntry,
    selection: SinkSelection,
    settings: Settings,
    parts: SinkParts,
    report_retry: ReportRetry,
    environ: Mapping[str, str],
) -> Target:
    """Open the target of an entry. Raises ConfigError, PeerError, NotFound."""
    if entry.webhook is not None:
        return WebhookSink(name, entry.webhook, environ, report_retry, link_local=settings.sink_link_local)
    if entry.database is not None:
        return Database(name, entry.database, selection.columns, environ)
    if entry.search is not None:
        return SearchIndexSink(name, entry.search, environ, report_retry, link_local=settings.sink_link_local)
    if entry.files is not None:
        place = entry.files.to
        folder = place if "://" in place else str(settings.project.expanduser() / place)
        return Files(
            open_store(f"{folder.rstrip('/')}/{name}", "folder of a sink"),
            entry.source,
            roll_bytes=int(entry.files.roll_mb * 1_000_000),
            roll_every_s=duration_ms(entry.files.roll_every) / 1000,
            compress=entry.files.compress,
        )
    assert entry.topic is not None
    return OtherTopic(
        entry.topic.name, parts.cluster, parts.registry, copies=not entry.fields and entry.assemble is None
    )


def sink_of(name: str, entry: SinkEntry, parts: SinkParts) -> Sink:
    """Return the sink of an entry; it runs nothing yet."""
    return Sink(name, entry, parts, SinkRound if entry.assemble is None else AssemblyRound)


@dataclass
class RunningSink:
    """A sink in its thread."""

    sink: Sink
    stop: threading.Event
    thread: threading.Thread


def start_sink(sink: Sink) -> RunningSink:
    stop = threading.Event()
    thread = threading.Thread(target=sink.run, args=(stop,), name=f"sink-{sink.name}", daemon=True)
    thread.start()
    return RunningSink(sink, stop, thread)


@dataclass
class SinkWorker:
    """All sinks of a project. Call ``step`` every second, ``close`` at the end. ``only``: these sinks alone;
    empty: all.
    """

    parts: SinkParts
    only: Collection[str] = ()
    running: dict[str, RunningSink] = field(default_factory=dict)
    _wrong: dict[str, str] = field(default_factory=dict)
    _ending: list[RunningSink] = field(default_factory=list)
    _entries: Mapping[str, SinkEntry] = field(default_factory=dict)
    _read: tuple[int, int] | None = (0, 0)
    _ends: Positions = field(default_factory=Positions)
    _ends_s: float = float("-inf")

    def step(self) -> None:
        """Start and stop sinks as the file and the pauses want it, and write the note."""
        self._reload()
        settings = self.parts.settings
        paused = paused_sinks(settings.home)
        wanted = {
            name: entry
            for name, entry in self._entries.items()
            if name not in paused and (not self.only or name in self.only)
        }
        stopping, starting = changes({name: each.sink.entry for name, each in self.running.items()}, wanted)
        for name in stopping:
            ended = self.running.pop(name)
            ended.stop.set()
            self._ending.append(ended)
        self._ending = [each for each in self._ending if each.thread.is_alive()]
        busy = {each.sink.name for each in self._ending}
        for name in starting:
            if name not in busy:
                self.running[name] = start_sink(sink_of(name, wanted[name], self.parts))
        self._measure()
        write_notes(settings.home, epoch_ms(), self.notes(paused))

    def notes(self, paused: Collection[str]) -> list[SinkNote]:
        """Return the state of every sink of the file."""
        now_ms = epoch_ms()
        notes = [SinkNote(name, "FAILING", why) for name, why in self._wrong.items()]
        for name in self._entries:
            running = self.running.get(name)
            if running is not None:
                status = running.sink.status
                lag = self._lag(status.positions)
                oldest = status.oldest_ms
                lag_s = 0.0 if lag == 0 else None if oldest is None else max(0.0, (now_ms - oldest) / 1000)
                notes.append(replace(status.note, lag_records=lag, lag_s=lag_s))
            elif name in paused:
                notes.append(SinkNote(name, "PAUSED"))
            elif not self.only or name in self.only:
                notes.append(SinkNote(name))
        return notes

    def _lag(self, positions: Positions) -> int | None:
        """Return the offsets that are not delivered; None if positions or ends are not known."""
        ends = Positions({place: end for place, end in self._ends if place in positions.offsets})
        return lag_records(ends, positions) if len(ends) else None

    def close(self) -> None:
        """Stop all sinks; waits for the commits under way, at most 20 s."""
        every = [*self.running.values(), *self._ending]
        for each in every:
            each.stop.set()
        deadline_s = time.monotonic() + _STOP_S
        for each in every:
            each.thread.join(max(0.0, deadline_s - time.monotonic()))

    def _reload(self) -> None:
        """Read the file again if it has changed. An unreadable file stops all sinks: a secret or condition
        that was taken out must not stay in use.
        """
        path = self.parts.settings.project.expanduser() / SINKS_FILE
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
        except OSError:
            stamp = None
        if stamp == self._read:
            return
        self._read = stamp
        try:
            self._entries, wrong = load_sinks(path)
        except ConfigError as error:
            self._entries, wrong = {}, {SINKS_FILE: error}
        self._wrong = {name or SINKS_FILE: error.message for name, error in wrong.items()}
        for name, why in self._wrong.items():
            log.error("sink %s: %s", name, why)

    def _measure(self) -> None:
        """Read the ends of the sources every 5 s; they are unknown while Kafka does not answer."""
        if time.monotonic() - self._ends_s < _ENDS_S:
            return
        self._ends_s = time.monotonic()
        topics = sorted({topic for each in self.running.values() for topic in each.sink.entry.topics})
        try:
            there = [*self.parts.cluster.described(topics)] if topics else []
            self._ends = self.parts.cluster.end_offsets(there) if there else Positions()
        except HubError:
            self._ends = Positions()


def changes(running: Mapping[str, SinkEntry], wanted: Mapping[str, SinkEntry]) -> tuple[list[str], list[str]]:
    """Return the sinks to stop and those to start; one whose entry changed is among both."""
    stopping = [name for name, entry in running.items() if wanted.get(name) != entry]
    starting = [name for name, entry in wanted.items() if running.get(name) != entry]
    return stopping, starting


def run(settings: Settings, stop: threading.Event, only: Collection[str] = ()) -> None:
    """Deliver until ``stop`` is set."""
    worker = SinkWorker(sink_parts(settings), only)
    try:
        while not stop.is_set():
            worker.step()
            stop.wait(_STEP_S)
    finally:
        worker.close()
