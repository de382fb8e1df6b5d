"""[shell] Row count of each view: counted again when it has new rows, for a bounded share of the time.

Counting reads the whole table: 50 ms for a view of 200,000 rows, on every list of views that shows it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hub.materializers.stores.sql_store import Store
from hub.record import Positions

SHARE = 0.02
# Faster counts are repeated each time: a list of small views is exact.
FREE_S = 0.005
# Rows that were removed manually show after this time, even if the log did not move.
LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class _Count:
    rows: int
    table: str
    at: Positions
    counted_s: float
    again_at_s: float


@dataclass
class RowCounts:
    """Row counts of one store. Thread-safe; two concurrent calls may both count."""

    store: Store
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, _Count] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, view: str) -> int:
        """Return the view's live rows; for a large view in change, a count up to 50 counting times old."""
        table = self.store.served(view)
        at = self.store.positions(
            table, "changelog"
        )  # before the count: rows may be newer than it, never older
        with self._lock:
            count = self._known.get(view)
        began_s = self.clock()
        if count is not None and count.table == table:
            same = count.at == at and began_s < count.counted_s + LONGEST_S
            if same or began_s < count.again_at_s:
                return count.rows
        rows = self.store.count(view)
        took_s = self.clock() - began_s
        again_at_s = began_s + took_s + (took_s / SHARE if took_s > FREE_S else 0.0)
        with self._lock:
            self._known[view] = _Count(rows, table, at, began_s, again_at_s)
        return rows

    def all(self) -> Mapping[str, int]:
        """Return the row count of every view of the store."""
        views = self.store.names()
        with self._lock:
            self._known = {view: known for view, known in self._known.items() if view in views}
        return {view: self.of(view) for view in views}
