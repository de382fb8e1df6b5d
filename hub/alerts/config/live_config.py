"""[shell] alerts.yaml and alerts/*.yaml, reloaded when they change.

A file, or an entry of alerts.yaml, that is invalid keeps its previous version; ``complaints`` has the reason,
and each is logged once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hub.alerts.config.alerts_yaml import (
    ALERTS_FILE,
    MOST_QUERIES,
    AlertsFile,
    QueryAlert,
    load_query_alert,
    query_files,
)
from hub.alerts.config.read_entries import ParsedEntries, Part, carried_on, read_alerts, text_of
from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.yaml_nodes import UnreadableFile

log = logging.getLogger(__name__)

T = TypeVar("T")
_UNREAD = (-1, -1, -1)


class LiveAlerts:
    """Alert configuration of one project folder. Thread safe."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.reading = ParsedEntries()
        self.errors: dict[str, ConfigError] = {}
        self._queries: dict[Path, QueryAlert] = {}
        self._read: dict[Path, Stamp] = {}
        self._logged: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    @property
    def file(self) -> AlertsFile:
        """The valid entries of alerts.yaml, including previous versions of invalid ones."""
        return self.reading.file

    def refresh(self) -> None:
        """Reload the files that changed."""
        with self._lock:
            self._refresh()
        complaints = self.complaints()
        for complaint in complaints:
            if complaint not in self._logged:
                log.error("%s", complaint)
        self._logged = frozenset(complaints)

    def faults(self) -> list[tuple[str, str, ConfigError]]:
        """Return every error as (file below the project, part of it such as ``channels.ops`` or "",
        error).
        """
        whole = [(_below(self.project, path), "", error) for path, error in self.errors.items()]
        return whole + [(ALERTS_FILE, _dotted(part), error) for part, error in self.reading.faults.items()]

    def complaints(self) -> list[str]:
        """List errors as text with their hints, then the routes whose channels are all unusable."""
        held = {("channels", name) for name in self.file.channels} | {
            ("rules", name) for name in self.file.rules
        }
        return [
            *(text_of(error) for error in self.errors.values()),
            *(
                text_of(error) + ("; the previous content stays in force" if part in held else "")
                for part, error in self.reading.faults.items()
            ),
            *self.reading.without_readers(),
        ]

    def _refresh(self) -> None:
        path = self.project / ALERTS_FILE
        stamp = stamp_if_there(path)
        if stamp is None:
            self.reading = ParsedEntries()
            self._forget(path)
        else:
            parsed_entries = self._loaded(path, stamp, read_alerts)
            self.reading = self.reading if parsed_entries is None else carried_on(self.file, parsed_entries)
        files = query_files(self.project)
        for gone in set(self._read) - {path, *files}:
            self._queries.pop(gone, None)
            self._forget(gone)
        named = {str(path), *map(str, files[:MOST_QUERIES])}
        self.errors = {name: error for name, error in self.errors.items() if name in named}
        for file in files[:MOST_QUERIES]:
            self._refresh_query(file)
        for file in files[MOST_QUERIES:]:
            self.errors[str(file)] = ConfigError(
                f"{len(files)} queries as alerts, {MOST_QUERIES} are looked at",
                where=str(file),
                code="HUB-1105",
            )

    def queries(self) -> list[QueryAlert]:
        """Return the query alerts, sorted by file."""
        with self._lock:
            return [self._queries[path] for path in sorted(self._queries)]

    def _refresh_query(self, file: Path) -> None:
        stamp = stamp_if_there(file)
        query_alert = None if stamp is None else self._loaded(file, stamp, load_query_alert)
        if query_alert is not None:
            self._queries[file] = query_alert

    def _loaded(self, path: Path, stamp: Stamp, load: Callable[[Path], T]) -> T | None:
        """Load a file that changed; None if it did not change or is invalid."""
        if self._read.get(path) == stamp:
            return None
        found = None
        try:
            found = load(path)
            self.errors.pop(str(path), None)
        except UnreadableFile as error:  # retry: permissions are not part of the stamp
            self.errors[str(path)], stamp = error, _UNREAD
        except ConfigError as error:
            self.errors[str(path)] = error
        self._read[path] = stamp
        return found

    def _forget(self, path: Path) -> None:
        self._read.pop(path, None)
        self.errors.pop(str(path), None)


def _below(project: Path, path: str) -> str:
    return str(Path(path).relative_to(project)) if Path(path).is_relative_to(project) else path


def _dotted(part: Part) -> str:
    """
    >>> _dotted(("channels", "ops"))
    'channels.ops'
    """
    return ".".join(str(step)[:100] for step in part)
