"""[edge] The last run of each backup as a note in the home folder, and its age as a series of the server.

A run on another machine, or with another home, is not known to the server: it has no sample then.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from prometheus_client.core import Metric

from hub.files import read_bytes
from hub.formats.fields import known_fields
from hub.metrics.gauges import gauge

FOLDER = "backups"
_MOST_NOTES, _MOST_BYTES = 100, 10_000


@dataclass(frozen=True, slots=True)
class LastRun:
    """``place``: of the backup, without credentials.
    ``troubles``: topics and groups not saved to their end."""

    place: str
    number: int
    taken_at_ms: int
    stored_bytes: int
    troubles: int


def keep(home: Path, run: LastRun) -> None:
    """Write the note. Raises OSError."""
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(run.place.encode()).hexdigest()[:16]}.json"
    part = path.with_suffix(".part")
    part.write_bytes(orjson.dumps(asdict(run)))
    part.replace(path)


def last_runs(home: Path) -> Iterator[LastRun]:
    """Yield the last run of each backup that was made with this home. Unreadable notes are left out."""
    for path in sorted((home / FOLDER).glob("*.json"))[:_MOST_NOTES]:
        with contextlib.suppress(OSError, ValueError, TypeError):
            yield known_fields(LastRun, orjson.loads(read_bytes(path, _MOST_BYTES)))


def families(home: Path, now_ms: int) -> Iterator[Metric]:
    """Yield the series of all known backups."""
    runs = list(last_runs(home))
    yield gauge(
        "hub_backup_age_seconds",
        "Age of the newest complete run of a backup that this home made",
        ("place",),
        (((each.place,), (now_ms - each.taken_at_ms) / 1000) for each in runs),
    )
    yield gauge(
        "hub_backup_troubles",
        "Topics and groups that the newest run of a backup did not save to their end",
        ("place",),
        (((each.place,), each.troubles) for each in runs),
    )
    yield gauge(
        "hub_backup_stored_bytes",
        "Size of the segments of the newest run of a backup",
        ("place",),
        (((each.place,), each.stored_bytes) for each in runs),
    )
