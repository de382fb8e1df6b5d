"""[edge] prometheus-client: searches by view, and their durations, since the server started."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from hub.metrics.histogram import Histogram

_EDGES_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Series of more views would be no help to anybody.
_MOST_VIEWS = 200


@dataclass
class SearchTimes:
    """Thread-safe."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    durations: dict[str, Histogram] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def measured(self, view: str) -> Iterator[None]:
        """Count a search, which runs meanwhile."""
        started, outcome = time.monotonic(), "failed"
        try:
            yield
            outcome = "answered"
        finally:
            self._add(view, outcome, time.monotonic() - started)

    def _add(self, view: str, outcome: str, seconds: float) -> None:
        with self._lock:
            if view not in self.durations and len(self.durations) >= _MOST_VIEWS:
                return
            self.counts[view, outcome] = self.counts.get((view, outcome), 0) + 1
            self.durations.setdefault(view, Histogram(_EDGES_S)).add(seconds)

    def families(self) -> Iterator[Metric]:
        """Yield the series in Prometheus' form."""
        with self._lock:
            counts = dict(self.counts)
            durations = {view: each.copy() for view, each in self.durations.items()}
        searches = CounterMetricFamily(
            "hub_view_searches",
            "Text searches of a view since the server started",
            labels=("view", "outcome"),
        )
        for (view, outcome), count in sorted(counts.items()):
            searches.add_metric((view, outcome), count)
        seconds = HistogramMetricFamily(
            "hub_view_search_seconds", "Time of text searches in the store", labels=("view",)
        )
        for view, each in sorted(durations.items()):
            seconds.add_metric((view,), each.cumulative(), each.sum_s)
        yield from (searches, seconds)
