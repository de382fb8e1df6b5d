"""[shell] Collect the stores' latency reports, count pushes, and determine when events were appended.

One step a second, in a thread of its own; no step queries Kafka or the store, since the collector does.
``rows()`` and ``families()`` read memory only. Objectives come from the stores' reports, so that all stages
of a view have the same edges.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import Exemplar as Named

from hub.metrics.histogram import SKEW_MS, Histogram, edges_with
from hub.observability.lag.anchors import arrival
from hub.observability.latency.latency import (
    SERVING,
    Exemplar,
    LatencyRow,
    Series,
    Tracks,
    freshness_of,
    rows_of,
)
from hub.observability.latency.pushes import CoveredUpTo, Pushes
from hub.observability.overview.collector import Collector
from hub.observability.overview.monitor import Monitor
from hub.record import Positions, TopicPartition
from hub.runtime import repeating
from hub.times import epoch_ms

STEP_S = 1.0
# Limit of views with series of their own in /metrics; the others are only counted.
MOST_VIEWS = 200
REPLAY_S = 1_800.0


@dataclass
class LatencyRecorder:
    """Recorder of latency. Use ``with recorder.running():``.

    ``event_of``: returns the time of the latest event among a row's sources; None: unknown.
    """

    facts: Collector
    lags: Monitor
    event_of: Callable[[Mapping[str, Any] | None], int | None] = lambda _sources: None
    replay_s: float = REPLAY_S
    now_ms: Callable[[], int] = epoch_ms
    tracks: Tracks = field(default_factory=Tracks)
    counted: dict[Series, Histogram] = field(default_factory=dict)
    appended_to: dict[tuple[str, str, int], int] = field(default_factory=dict)
    objectives: dict[str, float | None] = field(default_factory=dict)
    pushes: Pushes = field(default_factory=Pushes)
    # Views whose rows name no events: measured on a sample.
    sampled: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[LatencyRecorder]:
        """Run a step every second for as long as the block runs."""
        with repeating(
            self.step, name="latency", pause_s=lambda _: STEP_S, failed="latency could not be followed"
        ):
            yield self

    def step(self) -> None:
        """Take in the stores' new reports and the counts of this process."""
        records, now_ms = self.facts.records, self.now_ms()
        views = {view_report.view for view_report in self.facts.reports}
        with self.lock:
            reported_views = records.get(f"latency:{SERVING}", {}).get("views")
            serving = (
                reported_views if isinstance(reported_views, dict) else {}
            )  # else in another version's format
            self.objectives = {view: view_report.get("objective_s") for view, view_report in serving.items()}
            self.tracks.take_reports(records, now_ms)
            self.sampled = {view for view, view_report in serving.items() if view_report.get("sampled")}
            for view, view_report in serving.items():
                self._place(view, view_report.get("named", ()))
            for view, event_ms, pushed_ms in self.pushes.met(now_ms):
                self._count(view, "pushed", (pushed_ms - event_ms) / 1000)
            for series, counts in self.counted.items():
                objective_s = self.objectives.get(series.view)
                self.tracks.put(
                    series,
                    counts.copy(),
                    now_ms,
                    objective_s=objective_s,
                    sampled=series.stage == "appended" or series.view in self.sampled,
                    zero_ms=now_ms,
                )
            if views or records:  # else the store has not answered yet
                self.tracks.forget(views)
                self.counted = {series: each for series, each in self.counted.items() if series.view in views}
                self.appended_to = {key: at for key, at in self.appended_to.items() if key[0] in views}
                self.pushes.forget(views)

    def pushed(self, view: str, sources: Mapping[str, Any] | None) -> None:
        """Count a row change that a subscriber took. Called for each change: costs a few microseconds."""
        event_ms = self.event_of(sources)
        if event_ms is not None:
            with self.lock:
                self._count(view, "pushed", (self.now_ms() - event_ms) / 1000)

    def record_progress(self, view: str, subscriber: int, before: Positions, after: Positions) -> None:
        """Record that a subscriber of a view whose rows name no events now has all of the sources up to
        ``after``."""
        with self.lock:
            if view in self.sampled:
                self.pushes.record_progress(view, subscriber, CoveredUpTo(before, after, self.now_ms()))

    def _place(self, view: str, named: Sequence[Sequence[Any]]) -> None:
        """Count when the sampled events were appended: not before the last poll that did not include them.

        So an event that its producer wrote late shows here, as a lower bound; one that was written at once
        counts as 0.
        """
        for topic, partition, offset, event_ms in named:
            if view in self.sampled:
                self.pushes.named(view, TopicPartition(topic, partition), offset, event_ms, self.now_ms())
            place = (view, topic, partition)
            ring = self.facts.rings.get(topic, {}).get(partition, ())
            if ring and ring[-1].end < self.appended_to.get(place, 0):
                del self.appended_to[place]  # another log of that name: its offsets start again
                self.pushes.begun_anew(view, TopicPartition(topic, partition))
            if offset < self.appended_to.get(place, 0) or not ring:
                continue
            bracket = arrival(ring, offset)
            if (
                bracket.after_ms is not None
                and bracket.until_ms is not None
                and event_ms - bracket.until_ms <= SKEW_MS
            ):  # else it arrived before the hub's first poll
                self.appended_to[place] = offset + 1
                self._count(view, "appended", max(0.0, (bracket.after_ms - event_ms) / 1000))

    def _count(self, view: str, stage: str, seconds: float) -> None:
        if seconds * 1000 < -SKEW_MS:
            return  # the event's clock is ahead: its latency is unknown
        origin = "live" if seconds <= self.replay_s else "replay"
        series, edges = Series(view, stage, "", origin), edges_with(self.objectives.get(view))
        histogram = self.counted.get(series)
        if histogram is None or histogram.edges != edges:
            histogram = self.counted[series] = Histogram(edges)
        histogram.add(max(0.0, seconds))

    # ---- queries

    def rows(self) -> list[LatencyRow]:
        """Return the rows; see hub.observability.latency.latency.rows_of."""
        views = [report.view for report in self.facts.reports]
        with self.lock:
            return rows_of(self.tracks, views, self.lags.rows(), self.now_ms())

    def families(self) -> Iterator[Metric]:
        """Yield the Prometheus series: histograms and freshness of at most ``MOST_VIEWS`` views each.
        Unknown values have no sample."""
        with self.lock:
            series = sorted(
                (
                    (key, track.now.copy(), track.skewed, track.exemplar)
                    for key, track in self.tracks.series.items()
                ),
                key=lambda each: each[0],
            )
            objectives = sorted(self.objectives.items())
        views = sorted({key.view for key, *_ in series})
        shown = set(views[:MOST_VIEWS])
        latency = HistogramMetricFamily(
            "hub_view_latency_seconds",
            "From an event's time to the stage: appended, read, changelog, readable in a store, pushed",
            labels=["view", "stage", "store", "origin"],
        )
        skewed = CounterMetricFamily(
            "hub_view_latency_skewed",
            "Events whose time is after the stage's, counted nowhere else",
            labels=["view"],
        )
        for key, counts, negative, exemplar in series:
            if key.view in shown:
                latency.add_metric(list(key), buckets_of(counts, exemplar), counts.sum_s)
                if (key.stage, key.store) == ("readable", SERVING) and key.origin == "live":
                    skewed.add_metric([key.view], negative)
        objective = GaugeMetricFamily(
            "hub_view_latency_objective_seconds",
            "Latency objective of a view (slo)",
            labels=["view"],
        )
        for view, seconds in objectives:
            if seconds is not None and view in shown:
                objective.add_metric([view], seconds)
        freshness = GaugeMetricFamily(
            "hub_view_freshness_seconds", "Age of the oldest event that no reader sees yet", labels=["view"]
        )
        fresh = sorted(freshness_of(self.lags.rows()).items())
        for view, row in fresh[:MOST_VIEWS]:
            if row.seconds is not None:
                freshness.add_metric([view], row.seconds)
        hidden = GaugeMetricFamily(
            "hub_view_latency_hidden_views",
            "Views without series of their own here",
            value=len(views) - len(shown),
        )
        yield from (latency, skewed, objective, freshness, hidden)


def buckets_of(counts: Histogram, exemplar: Exemplar | None) -> list[Any]:
    """Return Prometheus' buckets; the bucket of the traced event has it as exemplar."""
    buckets: list[Any] = list(counts.cumulative())
    if exemplar is not None:
        at = bisect_left(counts.edges, exemplar.seconds)
        edge, number = buckets[at]
        if number:
            named = Named({"trace_id": exemplar.trace_id}, exemplar.seconds, exemplar.at_ms / 1000)
            buckets[at] = (edge, number, named)
    return buckets
