"""[edge] State of the relay as ``<home>/outbox.json``, for commands and for ``/metrics``.

The relay has no port of its own. A note that is older than ``STALE_MS`` says nothing of the present: its
values are unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.core import Metric

from hub.files import replace_bytes
from hub.formats.fields import known_fields
from hub.metrics.gauges import gauge

FILE = "outbox.json"
STALE_MS = 30_000
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class OutboxNote:
    """State of the relay at ``at_ms``. ``state``: RELAYING, STANDBY (another relay has the slot), FAILING or
    STOPPED. ``lag_s``: age of the oldest event that was not in Kafka, ``lag_bytes``: log that is not
    confirmed; None: unknown.
    """

    at_ms: int = 0
    state: str = "STARTING"
    trouble: str = ""
    outbox: str = ""
    events: int = 0
    refused: int = 0
    lag_s: float | None = None
    lag_bytes: int | None = None

    def changed(self, **changes: Any) -> OutboxNote:
        return replace(self, **changes)


class NoteFile:
    """Writes the note at most every second, and each change of its state at once."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._last = OutboxNote()

    def write(self, note: OutboxNote) -> None:
        """Write the note if it is due. A full disk does not stop the relay."""
        if note.state == self._last.state and note.at_ms - self._last.at_ms < 1_000:
            return
        self._last = note
        with contextlib.suppress(OSError):
            replace_bytes(self._path, orjson.dumps(asdict(note)))


def read_note(home: Path, now_ms: int) -> OutboxNote | None:
    """Return the relay's present state; None: no relay runs here, or it hangs."""
    try:
        with (home / FILE).open("rb") as file:
            note = known_fields(OutboxNote, orjson.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
    return note if now_ms - note.at_ms <= STALE_MS else None


def families(note: OutboxNote | None) -> Iterable[Metric]:
    """Return the relay's series. Unknown values have no sample."""
    outbox_notes = [] if note is None or note.state == "STOPPED" else [note]
    yield gauge(
        "hub_outbox_up",
        "1 while the relay of the outbox reads its database and writes to Kafka",
        [],
        (([], each.state == "RELAYING") for each in outbox_notes if each.state != "STANDBY"),
    )
    yield gauge(
        "hub_outbox_lag_seconds",
        "Age of the oldest event of the outbox that was not in Kafka",
        [],
        (([], each.lag_s) for each in outbox_notes),
    )
    yield gauge(
        "hub_outbox_lag_bytes",
        "Log of the outbox's database that the relay has not confirmed",
        [],
        (([], each.lag_bytes) for each in outbox_notes),
    )
    yield gauge(
        "hub_outbox_events",
        "Events that the outbox's relays have written to Kafka",
        [],
        (([], each.events) for each in outbox_notes if each.outbox),
    )
    yield gauge(
        "hub_outbox_refused_events",
        "Events of the outbox that Kafka refuses; their rows stay in the table",
        [],
        (([], each.refused) for each in outbox_notes if each.outbox),
    )
