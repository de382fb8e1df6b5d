"""[shell] Sizes of the histories of a store, measured by a thread for a bounded share of the time.

Counting reads each table of versions, so a request never does it. A size that is not known has no sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from hub.materializers.stores.sql.history_reads import HistorySize
from hub.materializers.stores.sql_store import Store
from hub.metrics.gauges import gauge
from hub.runtime import repeating

# Shortest pause between two measurements, and the share of the time that they take.
EVERY_S = 60.0
SHARE = 0.02
# Pauses without a new measurement after which the last one counts as unknown.
_STALE_PAUSES = 3


@dataclass
class HistorySizes:
    """Sizes of one store. Use ``with sizes.running():``."""

    store: Store
    clock: Callable[[], float] = time.monotonic
    _known: tuple[HistorySize, ...] = ()
    _until_s: float = field(default=0.0)

    @contextmanager
    def running(self) -> Iterator[HistorySizes]:
        """Measure for as long as the block runs."""
        with repeating(
            self.measure, name="history-sizes", pause_s=pause_s, failed="the histories could not be measured"
        ):
            yield self

    def measure(self) -> None:
        """Measure all histories once. After a failure they are unknown."""
        began_s = self.clock()
        try:
            history_sizes = tuple(self.store.history.sizes())
        except Exception:
            self._known = ()
            raise
        took_s = self.clock() - began_s
        self._known, self._until_s = history_sizes, self.clock() + _STALE_PAUSES * (pause_s(took_s) + took_s)

    def latest(self) -> tuple[HistorySize, ...]:
        """Return the last sizes; () if they are unknown, or older than some measurements."""
        return self._known if self.clock() <= self._until_s else ()

    def families(self) -> Iterator[Metric]:
        """Yield the series of versions and bytes."""
        history_sizes = self.latest()
        yield gauge(
            "hub_view_history_versions",
            "Versions of rows that the history of a view has",
            ["view"],
            (([each.view], each.versions) for each in history_sizes),
        )
        yield gauge(
            "hub_view_history_bytes",
            "Size of the history of a view in its store, with indexes in Postgres",
            ["view"],
            (([each.view], each.size_bytes) for each in history_sizes),
        )


def pause_s(took_s: float) -> float:
    """Return the pause after a measurement.

    >>> pause_s(0.1), pause_s(6.0)
    (60.0, 294.0)
    """
    return max(EVERY_S, took_s / SHARE - took_s)
