"""[core] A view's rows as its changes tell them. Built anew beside the old ones: a reader meets no half of a snapshot."""

from __future__ import annotations

from hub.client.calls import Row
from hub.client.changes import Behind, Change, Covered, Delete, Reset, Snapshot, Synced, Upsert
from hub.record import Positions


class Rows:
    """``apply`` every change in order. ``whole``: a snapshot was complete. ``covered``: the source positions included."""

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
                # What the rows of before included says nothing of these; it is told next.
                self.now, self._next, self.whole, self.covered = rows, None, True, Positions()
            case Covered(positions):
                self.covered = positions
            case Behind():
                pass
