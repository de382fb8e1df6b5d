"""[core] Changes of a row as JSON, as the caller sees them.

A version that a filter of rows hides is as if the row did not exist. Fields are compared as they are shown: a
change that a mask hides is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hub.masking.shape import Visibility
from hub.materializers.history.causes import Causes, EventPlace
from hub.materializers.history.changes import field_changes
from hub.materializers.history.timeline import StoredRow, TimelineChange
from hub.times import iso

Show = Callable[[EventPlace], Mapping[str, Any]]

_PRECISION = {
    "exact": "these events, and no others",
    "within": "events between these positions; those that are listed are some of them",
    "unknown": "those that are listed are among the events; the others are not known",
}


def visible_row(key: str, row: StoredRow | None, shape: Visibility) -> dict[str, Any] | None:
    """Return the fields of a row as the caller sees them; None if it sees no row. Raises MaskRefused for a
    refused field."""
    if row is None or row.values is None:
        return None
    values: dict[str, Any] = dict(row.values)
    if shape.rows and not shape.admits({"key": key, **values}):
        return None
    shape.refused_columns(values)
    return values if shape.is_open else shape.row(values)


def change_body(change: TimelineChange, key: str, shape: Visibility, show: Show) -> dict[str, Any] | None:
    """Return a change for an answer; None if the caller sees nothing of it. ``show`` returns an event."""
    before, after = (
        visible_row(key, None if each is None else each.row, shape) for each in (change.before, change.after)
    )
    kind = change.kind
    if before is None and after is None:
        return None
    if kind in ("created", "changed", "deleted"):
        kind = "created" if before is None else "deleted" if after is None else "changed"
    version = change.after
    return {
        "at": iso(change.at_ms),
        "at_ms": change.at_ms,
        "applied_at_ms": None if version is None else version.applied_at_ms,
        "kind": kind,
        "version": None if version is None else version.row.version,
        "changes": None if kind == "known" else [each.as_json() for each in field_changes(before, after)],
        "row": None if after is None else {"key": key, **after},
        "events": _events(change.causes, show),
    }


def _events(causes: Causes | None, show: Show) -> dict[str, Any] | None:
    if causes is None:
        return None
    begin, end = causes.range.begin, causes.range.end
    return {
        "precision": causes.precision,
        "meaning": _PRECISION[causes.precision],
        "count": causes.count,
        "after": None if begin is None else str(begin),
        "up_to": None if end is None else str(end),
        "events": [dict(show(each)) for each in causes.events],
    }
