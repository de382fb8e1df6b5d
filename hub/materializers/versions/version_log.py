"""[shell] Versions of all views in the log, and the only place that changes them.

``_hub.progress`` is read from its start: ``versions:`` records are the state, ``wanted:`` and ``compared:``
records are requests and reports by others. An event is decided (transitions.py), the new state appended, and
only then adopted, so a restarted process reads the completed state. One materializer decides; the views'
threads and its loop call from several threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.errors import HubError, PeerError
from hub.log import Log, Reader, Writer
from hub.materializers.definition.declared import changelog_of, table_of
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, progress_of
from hub.materializers.versions.transitions import decide, is_recompute_due
from hub.materializers.versions.version_records import command_of, state_record, versions_of
from hub.materializers.versions.versions import (
    COMPARED,
    PREFIX,
    WANTED,
    CommandReceived,
    Event,
    TimePassed,
    Version,
    VersionCaughtUp,
    VersionCompared,
    VersionRemoved,
    Versions,
)
from hub.record import NewRecord, Positions, Record
from hub.times import epoch_ms

log = logging.getLogger(__name__)

UNDECIDED = "HUB-3068"
_READ = 1_000
_START_S = 60.0


@dataclass
class VersionLog:
    """Thread-safe. Call ``open`` first, then ``step`` regularly."""

    cluster: Log
    writer: Writer
    state: dict[str, Versions] = field(default_factory=dict)
    # Requests and reports of others that are not decided yet.
    commands: dict[str, CommandReceived] = field(default_factory=dict)
    compared: dict[str, tuple[int, str, Mapping[str, Any]]] = field(default_factory=dict)
    # Last progress of each version.
    reported: dict[str, Progress] = field(default_factory=dict)
    # For versions that are built next to one in real-time mode: the log's end when they had nearly caught up.
    shown: dict[str, Positions] = field(default_factory=dict)
    # The views of this project.
    own: frozenset[str] = frozenset()
    # False in the process of an isolated version, which decides only about views in ``own``.
    decides: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)
    reader: Reader | None = None

    def open(self) -> None:
        """Read the log to its end. Raises PeerError when Kafka does not answer in time."""
        self.reader = self.cluster.reader()
        self.reader.assign(self.cluster.beginning_offsets([PROGRESS_TOPIC]))
        end = self.cluster.end_offsets([PROGRESS_TOPIC])
        deadline = time.monotonic() + _START_S
        while not self.reader.position().covers(end):
            for record in self.reader.poll(_READ, 0.5):
                self._take_record(record)
            if time.monotonic() > deadline:
                raise PeerError(f'topic "{PROGRESS_TOPIC}" cannot be read to its end', code="HUB-3055")

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def of(self, view: str) -> Versions | None:
        with self.lock:
            return self.state.get(view)

    def version(self, view: str, suffix: int | None) -> Version | None:
        versions = self.of(view)
        return None if versions is None else versions.with_suffix(suffix)

    def all(self) -> dict[str, Versions]:
        """Return the views that this materializer decides about: several hubs may share a log."""
        with self.lock:
            return {view: state for view, state in self.state.items() if view in self.own}

    def suffixes(self, view: str) -> tuple[int | None, ...]:
        """Return the versions that run; for a view that never ran, the one of its own name."""
        versions = self.of(view)
        return (None,) if versions is None else tuple(each.suffix for each in versions.versions)

    def served(self, view: str) -> str:
        """Return the name of the served version."""
        versions = self.of(view)
        return table_of(view, versions.served.suffix if versions is not None else None)

    def public(self, table: str) -> str | None:
        """Return the view's own name for the served version; None for others."""
        view = table.partition("@")[0]
        return view if self.served(view) == table else None

    def submit(self, view: str, event: Event) -> Versions | None:
        """Decide an event, write the next state and return it.

        Raises HubError when it cannot be written or is decided elsewhere (UNDECIDED); the state is then
        unchanged.
        """
        if not self.decides and view not in self.own:
            raise HubError(f'view "{view}": {type(event).__name__} is decided elsewhere', code=UNDECIDED)
        with self.lock:
            before = self.state.get(view)
            after = decide(before, event, view, epoch_ms())
            if after is None or after == before:
                return before
            self.writer.append([state_record(after)])
            self.state[view] = after
        log.info("view %s: %s: %s", view, type(event).__name__, _state_text(after))
        return after

    def step(self) -> None:
        """Decide the events that arrived since the last step."""
        if self.reader is not None:
            for record in self.reader.poll(_READ, 0.0):
                self._take_record(record)
        for view, state in self.all().items():
            coming = state.coming
            if coming is not None and coming.state == "building":
                building = self.reported.get(table_of(view, coming.suffix))
                other = self.reported.get(table_of(view, state.served.suffix))
                # "bulk": keys may be missing.
                if (
                    building is not None
                    and building.mode != "bulk"
                    and (other is None or self._has_read(building, state.served, other))
                ):
                    self.submit(view, VersionCaughtUp(coming.number, building.changelog))
            number, at, report = self.compared.get(view, (0, "", {}))
            ready = self._coming(view)
            if ready is not None and (ready.number, ready.at) == (number, at):
                self.submit(view, VersionCompared(number, report))
            command = self.commands.get(view)
            if command is not None:
                self.submit(view, command)
                self.commands.pop(view, None)  # not before it is written
            former, now_ms = state.former, epoch_ms()
            if (former is not None and (former.until_ms or 0) <= now_ms) or is_recompute_due(state, now_ms):
                self.submit(view, TimePassed())

    def _has_read(self, building: Progress, served: Version, other: Progress) -> bool:
        """Return whether the version that is built has read everything that the served one shows."""
        if not _covers(building, self._to_read(served, other)):
            return False
        if other.mode != "realtime":
            return True
        # The progress is as old as the last checkpoint, but the rows are newer: no row may go back at the
        # swap. Rows show at most what is in the log.
        if building.view not in self.shown:
            self.shown[building.view] = self._ends(building)
        return _covers(building, self.shown[building.view])

    def _ends(self, progress: Progress) -> Positions:
        try:
            return self.cluster.end_offsets(sorted({tp.topic for tp, _ in progress.sources}))
        except HubError:  # a topic was deleted: the positions read are final
            return progress.sources

    def _to_read(self, served: Version, progress: Progress) -> Positions:
        """Return the positions that a version must have read to be served: those of the served one.

        A served version that lost its state may name a topic that was recreated since, so no offset past a
        topic's end is required.
        """
        if served.lost is None:
            return progress.sources
        try:
            ends = self.cluster.end_offsets(sorted({tp.topic for tp, _ in progress.sources}))
        except HubError:  # a topic was deleted: nothing of it can be read either way
            return progress.sources
        return Positions({tp: min(offset, ends.offsets.get(tp, 0)) for tp, offset in progress.sources})

    def _coming(self, view: str) -> Version | None:
        versions = self.of(view)
        return versions.coming if versions is not None else None

    def removed(self, view: str, suffix: int | None) -> None:
        """Finish the removal of a version: delete its progress records too."""
        table = table_of(view, suffix)
        self.shown.pop(table, None)
        keys = [f"{kind}:{table}".encode() for kind in ("progress", "state")]
        if self._coming(view) is None:
            keys.append(f"{COMPARED}{view}".encode())  # it may show rows of the removed version
        self.writer.append([NewRecord(PROGRESS_TOPIC, key, None) for key in keys])
        self.submit(view, VersionRemoved(suffix))

    def _take_record(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        kind, _, view = key.partition(":")
        try:
            if key.startswith(PREFIX):
                if view not in self.own:  # nobody else decides about this project's views
                    with self.lock:
                        self.state.pop(view, None)
                        if record.value is not None:
                            self.state[view] = versions_of(orjson.loads(record.value))
            elif key.startswith(WANTED) and record.value is not None:
                command = command_of(orjson.loads(record.value))
                if command is not None:
                    self.commands[view] = command
            elif kind == "progress":
                progress = progress_of(record, changelog_of(view))
                if progress is None:
                    self.reported.pop(view, None)
                else:
                    self.reported[view] = progress
            elif key.startswith(COMPARED) and record.value is not None:
                body = orjson.loads(record.value)
                self.compared[view] = (int(body["version"]), str(body["at"]), dict(body["report"]))
        except (ValueError, KeyError, TypeError, AttributeError, HubError) as error:
            log.error('topic "%s" offset %d (%s): left out: %s', record.topic, record.offset, kind, error)


def _covers(progress: Progress, wanted: Positions) -> bool:
    """Return whether a version has read that far in the topics that it reads."""
    return progress.sources.covers(wanted.of_topics(tp.topic for tp, _ in progress.sources))


def _state_text(state: Versions) -> str:
    return ", ".join(
        f"{each.number} {each.state}" + (" (lost)" if each.lost else "") for each in state.versions
    )
