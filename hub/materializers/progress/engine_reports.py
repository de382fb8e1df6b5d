"""[core] The materializer's own report in ``_hub.progress``: record ``engine:materializer``, JSON, every few
seconds.

A view that reads nothing writes nothing for hours. This record shows that the materializer runs and can
write, and which views it has, so that silence has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord

PREFIX = "engine:"
KEY = f"{PREFIX}materializer"
REPORT_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Report of a materializer. ``at_ms``: time of writing, by its clock; ``views``: those whose files it
    has.

    ``folder``: host and path of its project. ``run``: names this run of the materializer, as its states of
    views do; "" in reports of versions without it.
    """

    at_ms: int
    views: frozenset[str]
    folder: str
    run: str = ""

    def record(self) -> NewRecord:
        body = {"at_ms": self.at_ms, "views": sorted(self.views), "folder": self.folder, "run": self.run}
        return NewRecord(PROGRESS_TOPIC, KEY.encode(), orjson.dumps(body))


def engine_report_of(body: Mapping[str, Any]) -> EngineReport:
    """Read the body of a record. Raises ValueError, TypeError or KeyError when it has another format."""
    views = frozenset(map(str, body["views"]))
    return EngineReport(int(body["at_ms"]), views, str(body["folder"]), str(body.get("run", "")))
