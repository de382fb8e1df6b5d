"""[shell] alerts.yaml and alerts/*.yaml as they are now: read again when they change. A file that cannot be read leaves what
held, and ``errors`` says why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hub.alerts.files import (
    ALERTS_FILE,
    MOST_QUERIES,
    AlertsFile,
    QueryAlert,
    load_alerts,
    load_query_alert,
    query_files,
)
from hub.errors import ConfigError
from hub.yaml import Unreadable

Stamp = tuple[int, int]
T = TypeVar("T")
_UNREAD = (-1, -1)


class LiveAlerts:
    """Of one project folder. Thread safe."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.file = AlertsFile()
        self.errors: dict[str, ConfigError] = {}
        self._queries: dict[Path, QueryAlert] = {}
        self._read: dict[Path, Stamp] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read what changed since."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        path = self.project / ALERTS_FILE
        stamp = _stamp(path)
        if stamp is None:
            self.file = AlertsFile()
            self._forget(path)
        else:
            self.file = self._loaded(path, stamp, load_alerts) or self.file
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
        """The queries that are alerts, by name."""
        with self._lock:
            return [self._queries[path] for path in sorted(self._queries)]

    def _refresh_query(self, file: Path) -> None:
        stamp = _stamp(file)
        found = None if stamp is None else self._loaded(file, stamp, load_query_alert)
        if found is not None:
            self._queries[file] = found

    def _loaded(self, path: Path, stamp: Stamp, load: Callable[[Path], T]) -> T | None:
        """What a file says that changed since; None where it did not, or cannot be read."""
        if self._read.get(path) == stamp:
            return None
        found = None
        try:
            found = load(path)
            self.errors.pop(str(path), None)
        except Unreadable as error:  # it is tried again: who may read it is not in the stamp
            self.errors[str(path)], stamp = error, _UNREAD
        except ConfigError as error:
            self.errors[str(path)] = error
        self._read[path] = stamp
        return found

    def _forget(self, path: Path) -> None:
        self._read.pop(path, None)
        self.errors.pop(str(path), None)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return 0, 0  # it is there and cannot be looked at
    return found.st_mtime_ns, found.st_size
