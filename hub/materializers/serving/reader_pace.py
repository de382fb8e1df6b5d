"""[core] Pace of a subscriber that reads slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hub.materializers.stores.store import RowVersion

_SLOW_S = 1.0  # a reader that takes longer for a page of changes gets a ``behind`` event


@dataclass
class ReaderPace:
    """Time that the reader took for a page, and the states that it skipped.

    ``counts``: all rows are read, so that changelog records without a row of their own are states that it
    skipped.
    """

    counts: bool
    took_s: float = 0.0

    def behind(self, rows: Sequence[RowVersion], records: int) -> dict[str, Any] | None:
        """Return the ``behind`` event's body for a slow reader; None for a fast one."""
        if self.took_s < _SLOW_S or not rows:
            return None
        return {
            "slow_ms": round(self.took_s * 1000),
            "records": records,
            "rows": len(rows),
            "coalesced": max(0, records - len(rows)) if self.counts else None,
        }
