"""[core] The table of durable formats. docs/reference/formats.md is generated from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Place = Literal["home", "topics", "itself"]
Older = Literal["nothing", "upgrade", "rebuild"]


@dataclass(frozen=True, slots=True)
class DurableFormat:
    """A durable format. ``where``: its files or topics. ``noted``: where state names its version, see the
    package. ``oldest``: oldest version that this release reads. ``older``: how it handles readable state
    of an older version. ``writers``: processes that write it; () for commands. ``unknown``: how readers treat
    fields that they do not know. ``way_out``: of a refusal, besides the release that wrote the state.
    """

    name: str
    where: str
    noted: Place
    writers: tuple[str, ...] = ()
    version: int = 1
    oldest: int = 1
    older: Older = "upgrade"
    unknown: str = "ignored"
    way_out: str = ""


_REBUILD = "delete it, and the view is computed again from its log"

TOKENS = DurableFormat("tokens", "tokens.json", "home", ("server",), unknown="kept")
STORE = DurableFormat(
    "store",
    "hub_views, hub_positions, hub_progress, _hub_progress",
    "itself",
    ("applier",),
    way_out="name another store, and it is filled from the changelogs",
)
SERIES = DurableFormat(
    "series", "series.db", "itself", ("server",), way_out="delete it, and the charts start again"
)
CHECKPOINT = DurableFormat(
    "checkpoint",
    "checkpoints/<view>/plan.json",
    "itself",
    ("materializer",),
    unknown="kept",
    way_out=_REBUILD,
)
VIEW_RULES = replace(CHECKPOINT, name="view-rules", version=2, oldest=0, older="nothing")
DELTA = DurableFormat(
    "incremental-state",
    "checkpoints/<view>/<generation>/delta/delta.duckdb",
    "itself",
    ("materializer",),
    2,
    2,
    "rebuild",
    way_out=_REBUILD,
)
OFFSET_MAP = DurableFormat("offset-map", "_hub.mirror.map", "itself", ("mirror",), unknown="refused")
GENERATIONS = DurableFormat("generations", "_hub.generations, _hub.generation.<topic>.<n>", "itself")
BACKUP = DurableFormat("backup", "hub-backup.json", "itself", unknown="refused", way_out="make a new backup")
SCHEMA_BACKUP = DurableFormat(
    "schema-backup", "files of hub schema backup", "itself", way_out="make a new backup"
)
SAVED_PLAN = DurableFormat(
    "saved-plan", "files of hub topic plan --save", "itself", unknown="refused", way_out="make a new plan"
)

FORMATS: tuple[DurableFormat, ...] = (
    DurableFormat("access-key", "access.key", "home", ("server",), unknown="none"),
    TOKENS,
    DurableFormat("sessions", "sessions.open, sessions.ended", "home", ("server",)),
    DurableFormat("export-position", "access_log_export.<name>.json", "home", ("server",)),
    DurableFormat("sink-pauses", "sinks-paused.json", "home", ("sinks",)),
    DurableFormat("changelog", "views.<view>", "topics", ("materializer",)),
    DurableFormat("progress", "_hub.progress", "topics", ("materializer", "applier")),
    DurableFormat("expiry", "_hub.expiry.<view>", "topics", ("applier",)),
    DurableFormat(
        "dead-letters",
        "<topic>.dlq, <topic>.quarantine, views.<view>.late",
        "topics",
        ("materializer", "auditor", "lake", "sinks"),
        unknown="kept",
    ),
    DurableFormat("dead-letter-actions", "_hub.dlq", "topics", ("server",)),
    DurableFormat("conformance", "_hub.audit", "topics", ("auditor",)),
    DurableFormat("completeness", "_hub.ledger", "topics", ("server",)),
    DurableFormat("alerts", "_hub.alerts", "topics", ("server",)),
    DurableFormat("access-log", "_hub.access_log", "topics", ("server",)),
    DurableFormat("erasures", "_hub.erasures", "topics", ("server",)),
    GENERATIONS,
    DurableFormat("access-requests", "_hub.access_requests", "topics", ("server",)),
    DurableFormat("outbox", "_hub.outbox", "topics", ("outbox",)),
    DurableFormat("mirror-control", "_hub.mirror.control, _hub.mirror.status", "topics", ("mirror",)),
    DurableFormat("mirror-checkpoints", "_hub.mirror.checkpoints", "topics", ("mirror",)),
    OFFSET_MAP,
    CHECKPOINT,
    VIEW_RULES,
    DELTA,
    STORE,
    SERIES,
    BACKUP,
    SCHEMA_BACKUP,
    SAVED_PLAN,
)

# Order of a rolling upgrade: a reader of a format is upgraded before its writer.
ORDER = ("server", "applier", "materializer", "auditor", "mirror", "outbox", "lake", "sinks")


def written_by(process: str, noted: Place) -> list[DurableFormat]:
    """Return the formats that a process writes, of those whose version is noted there."""
    return [each for each in FORMATS if each.noted == noted and process in each.writers]
