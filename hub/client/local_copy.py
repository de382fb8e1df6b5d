"""[core] Rows of a view, kept current by its changes. A new snapshot is collected separately, so readers
never see part of one.
"""

from __future__ import annotations

from hub.client.changes import Behind, Change, Covered, Delete, Reset, Snapshot, Synced, Upsert
from hub.client.requests import Row
from hub.record import Positions


class Rows:
    """``apply`` every change in order. ``whole``: a snapshot was complete.
    ``covered``: the source positions included."""

    def __init__(self) -> None:
        self.now: dict[str, Row] = {}
        self.whole = False
        self.covered = Positions()
        self._next: dict[str, Row] | None = {}

    def apply(self, change: Change) -> None:
        rows = self.now if self._next is None else self._next
        match change:
            case Snapshot(key, row, _) | Upsert(key, row, _):
                rows[key] = row
            case Delete(key, _):
                rows.pop(key, None)
            case Reset():
                self._next = {}
            case Synced():
                # The positions covered by the old rows do not apply to the new ones; the next Covered has
                # theirs.
                self.now, self._next, self.whole, self.covered = rows, None, True, Positions()
            case Covered(positions):
                self.covered = positions
            case Behind():
                pass
