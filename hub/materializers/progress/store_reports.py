"""[core] An applier's report on its store in the topic ``_hub.progress``: a record ``store:<name>``, JSON.

A store that is down cannot report its own state; through the log, the store that serves by key has the
reports on all stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from hub.formats.fields import fields_of
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord, Positions, lag_records

StoreState = Literal["starting", "filling", "live", "down"]
UNKNOWN = "unknown"
PREFIX = "store:"
REPORT_EVERY_S = 5.0
"""An applier writes a report of each store at least this often;
one that has not been heard for much longer is silent."""
# A store with a greater lag is reported as filling instead of live.
LIVE_WITHIN = 10_000


@dataclass(frozen=True, slots=True)
class StorePosition:
    """A view's position in a store. ``lag``: records of its changelog, None if unknown; ``stopped``: the
    reason, if it is.
    """

    positions: Positions
    lag: int | None
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Report on one store. ``since_ms``: when it came into its state (epoch ms). ``url`` has no password."""

    store: str
    kind: str
    url: str
    state: StoreState
    reason: str | None
    since_ms: int
    views: Mapping[str, StorePosition] = field(default_factory=dict)

    def record(self) -> NewRecord:
        views = {
            name: {"positions": str(each.positions), "lag": each.lag, "stopped": each.stopped}
            for name, each in self.views.items()
        }
        body = {**fields_of(self), "views": views}
        return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{self.store}".encode(), orjson.dumps(body))


def gone(store: str) -> NewRecord:
    """Return the record that removes a store."""
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{store}".encode(), None)


def silent(report: Mapping[str, Any], why: str) -> dict[str, Any]:
    """Return the report of a store whose applier is silent:
    its state and lag are unknown, and ``why`` is the reason."""
    views = {name: {**each, "lag": None} for name, each in report.get("views", {}).items()}
    return {**report, "state": UNKNOWN, "reason": why, "views": views}


def reach(position: Positions, end: Positions | None, stopped: str | None) -> StorePosition:
    return StorePosition(position, None if end is None else lag_records(end, position), stopped)


def state_of(views: Mapping[str, StorePosition]) -> StoreState:
    """Return the state of a store that answers."""
    return "filling" if any((each.lag or 0) > LIVE_WITHIN for each in views.values()) else "live"


def stores_of(
    records: Mapping[str, Any], view: str, proofs: Mapping[str, Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return the stores that a view is in, for lists.

    ``view``: its version, which some stores keep under the view's name; ``records``: the progress records by
    key; ``proofs``: verification status by store.
    """
    found = []
    for key in sorted(key for key in records if key.startswith(PREFIX)):
        report = records[key]
        views = report.get("views", {})
        mine = views.get(view) or views.get(view.partition("@")[0])
        if mine is not None:
            found.append(
                {
                    "store": report["store"],
                    "kind": report["kind"],
                    "state": "stopped" if mine["stopped"] else report["state"],
                    "lag": mine["lag"],
                    "positions": mine["positions"],
                    "reason": mine["stopped"] or report["reason"],
                    **({} if proofs is None else {"proof": proofs.get(report["store"])}),
                }
            )
    return found
