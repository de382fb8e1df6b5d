"""[edge] State of all sinks of a home as ``<home>/sinks.json``, for commands, pages, alerts and ``/metrics``.

A note that is older than ``STALE_MS`` says nothing of the present: its values are unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson
from prometheus_client.core import Metric

from hub.errors import CallerError, ConfigError
from hub.files import read_bytes, replace_bytes
from hub.formats.fields import known_fields
from hub.metrics.gauges import gauge
from hub.record import Positions
from hub.sinks.sinks_file import SINKS_FILE, SinkEntry, load_sinks

FILE, PAUSED_FILE = "sinks.json", "sinks-paused.json"
STALE_MS = 30_000
_MOST_BYTES = 1 << 24
SinkState = Literal[
    "STARTING", "DELIVERING", "WAITING", "RETRYING", "FAILING", "PAUSED", "REPLACED", "UNKNOWN"
]
BAD: tuple[SinkState, ...] = ("RETRYING", "FAILING", "REPLACED")
UNHEARD = "no worker reports: hub up, or hub sink run"


@dataclass(frozen=True, slots=True)
class SinkNote:
    """State of one sink. ``delivered`` and ``refused``: events since the worker started. ``lag_records``:
    offsets that are not delivered, ``lag_s``: age of the oldest record among them. None: unknown.
    """

    sink: str
    state: SinkState = "STARTING"
    trouble: str = ""
    delivered: int = 0
    refused: int = 0
    lag_records: int | None = None
    lag_s: float | None = None
    delivered_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A declared sink with its present state. ``entry`` None: its entry in sinks.yaml is wrong."""

    note: SinkNote
    entry: SinkEntry | None

    def as_json(self) -> dict[str, Any]:
        entry = self.entry
        declared = {
            "from": None if entry is None else entry.source,
            "tables": None if entry is None or entry.assemble is None else entry.topics[1:],
            "kind": None if entry is None else entry.kind,
            "to": None if entry is None else entry.place,
            "owner": None if entry is None else entry.owner or None,
            "where": None if entry is None else entry.where,
        }
        return {**asdict(self.note), **declared, "trouble": self.note.trouble or None}

    @property
    def is_late(self) -> bool:
        """Return whether the oldest waiting record is older than ``late_after``."""
        lag_s = self.note.lag_s
        return self.entry is not None and lag_s is not None and lag_s * 1000 > self.entry.late_after_ms


def write_notes(home: Path, at_ms: int, notes: Iterable[SinkNote]) -> None:
    """Write the notes. A full disk does not stop the worker."""
    with contextlib.suppress(OSError):
        replace_bytes(home / FILE, orjson.dumps({"at_ms": at_ms, "sinks": [asdict(each) for each in notes]}))


def read_notes(home: Path, now_ms: int) -> Mapping[str, SinkNote] | None:
    """Return the present states by sink; None: no worker of this home reports."""
    try:
        body = orjson.loads(read_bytes(home / FILE, _MOST_BYTES))
        notes = {each["sink"]: known_fields(SinkNote, each) for each in body["sinks"]}
        at_ms = int(body["at_ms"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return notes if now_ms - at_ms <= STALE_MS else None


def rows_of(project: Path, home: Path, now_ms: int) -> list[SinkRow]:
    """Return every sink of sinks.yaml with its state, by name. Raises ConfigError for a file that cannot be
    read."""
    entries, wrong = load_sinks(project / SINKS_FILE)
    notes, paused = read_notes(home, now_ms), paused_sinks(home)
    rows = [SinkRow(_state_of(name, notes, paused), entry) for name, entry in entries.items()]
    rows += [SinkRow(SinkNote(name, "FAILING", error.message), None) for name, error in wrong.items()]
    return sorted(rows, key=lambda row: row.note.sink)


def known_rows(project: Path, home: Path, now_ms: int) -> list[SinkRow]:
    """Return ``rows_of()``; for a file that cannot be read one row with the reason."""
    try:
        return rows_of(project, home, now_ms)
    except ConfigError as error:
        return [SinkRow(SinkNote(SINKS_FILE, "FAILING", error.message), None)]


def _state_of(name: str, notes: Mapping[str, SinkNote] | None, paused: frozenset[str]) -> SinkNote:
    if notes is None:
        return SinkNote(name, "PAUSED" if name in paused else "UNKNOWN", UNHEARD)
    return notes.get(name) or SinkNote(name, "UNKNOWN", "the worker has not begun with it")


def paused_sinks(home: Path) -> frozenset[str]:
    """Return the names of sinks that are paused in this home."""
    try:
        names = orjson.loads(read_bytes(home / PAUSED_FILE, _MOST_BYTES))
    except (OSError, ValueError):
        return frozenset()
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def pause_sink(home: Path, name: str, *, paused: bool) -> None:
    """Pause or resume a sink. Raises CallerError (HUB-1829) if the home cannot be written."""
    names = paused_sinks(home) | {name} if paused else paused_sinks(home) - {name}
    try:
        replace_bytes(home / PAUSED_FILE, orjson.dumps(sorted(names)))
    except OSError as error:
        raise CallerError(
            f'the home folder "{home}" cannot be written: {error.strerror}',
            hint="run the command as the user of the worker",
            code="HUB-1829",
        ) from None


def families(rows: Sequence[SinkRow]) -> Iterable[Metric]:
    """Return the series of sinks. Unknown values have no sample."""
    known = [each for each in rows if each.note.state not in ("UNKNOWN", "STARTING", "PAUSED")]
    notes = [each.note for each in known]
    yield gauge(
        "hub_sink_up",
        "1 while a sink delivers to its target, and is not later than its late_after",
        ["sink"],
        (([each.note.sink], each.note.state not in BAD and not each.is_late) for each in known),
    )
    yield gauge(
        "hub_sink_lag_seconds",
        "Age of the oldest record that a sink has read and not delivered",
        ["sink"],
        (([each.sink], each.lag_s) for each in notes),
    )
    yield gauge(
        "hub_sink_lag_records",
        "Offsets of its source that a sink has not delivered",
        ["sink"],
        (([each.sink], each.lag_records) for each in notes),
    )
    yield gauge(
        "hub_sink_delivered_events",
        "Events that a sink has delivered since its worker started",
        ["sink"],
        (([each.sink], each.delivered) for each in notes),
    )
    yield gauge(
        "hub_sink_refused_events",
        "Events that a sink's target refused for good since its worker started",
        ["sink"],
        (([each.sink], each.refused) for each in notes),
    )


@dataclass
class SinkStatus:
    """State of one sink as its thread reports it. ``oldest_ms``: time of the oldest record that is read and
    not delivered.
    """

    note: SinkNote
    oldest_ms: int | None = None
    positions: Positions = field(default_factory=Positions)

    def put(self, **changes: Any) -> None:
        self.note = replace(self.note, **changes)
