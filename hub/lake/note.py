"""[edge] State of the lake's writer as ``<home>/lake.json``, for commands, pages and ``/metrics``.

A note that is older than ``STALE_MS`` does not count: its values are unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
from prometheus_client.core import Metric

from hub.files import replace_bytes
from hub.formats.fields import known_fields
from hub.metrics.gauges import gauge

FILE = "lake.json"
STALE_MS = 60_000
_MOST_BYTES = 1 << 24

LakeState = Literal["STARTING", "WRITING", "FAILING"]


@dataclass(frozen=True, slots=True)
class TopicInLake:
    """State of one topic's table. ``behind``: records that are not in the table yet; ``committed_at_ms``:
    of the newest commit. None: unknown.
    """

    topic: str
    table: str
    state: LakeState = "STARTING"
    trouble: str = ""
    rows: int | None = None
    behind: int | None = None
    committed_at_ms: int | None = None
    dead_letters: int | None = None
    lost: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LakeNote:
    """State of the writer at ``at_ms``."""

    at_ms: int = 0
    topics: Mapping[str, TopicInLake] = field(default_factory=dict)


def write_note(home: Path, note: LakeNote) -> None:
    """Write the note. A full disk does not stop the writer."""
    body = {"at_ms": note.at_ms, "topics": [each.as_json() for each in note.topics.values()]}
    with contextlib.suppress(OSError):
        replace_bytes(home / FILE, orjson.dumps(body))


def read_note(home: Path, now_ms: int) -> LakeNote | None:
    """Return the writer's present state; None: no writer runs here, or it hangs."""
    try:
        with (home / FILE).open("rb") as file:
            body = orjson.loads(file.read(_MOST_BYTES))
        topics = [known_fields(TopicInLake, each) for each in body["topics"]]
        note = LakeNote(body["at_ms"], {each.topic: each for each in topics})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return note if now_ms - note.at_ms <= STALE_MS else None


def families(note: LakeNote | None) -> Iterable[Metric]:
    """Return the series of the writer. Unknown values have no sample."""
    lake_topics = [] if note is None else list(note.topics.values())
    yield gauge(
        "hub_lake_up",
        "1 while the Iceberg table of a topic is written",
        ["topic"],
        (([each.topic], each.state == "WRITING") for each in lake_topics if each.state != "STARTING"),
    )
    yield gauge(
        "hub_lake_behind_records",
        "Records of a topic that are not in its Iceberg table yet",
        ["topic"],
        (([each.topic], each.behind) for each in lake_topics),
    )
    yield gauge(
        "hub_lake_lost_offsets",
        "Offsets of a topic that retention removed before they were in its Iceberg table",
        ["topic"],
        (([each.topic], each.lost) for each in lake_topics),
    )
