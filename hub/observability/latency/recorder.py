"""[shell] Follows what stores tell of latency, counts what is pushed, and works out when events were appended.

A step a second, in a thread of its own; no step asks Kafka or the store: the collector has asked already. ``rows()`` and
``families()`` read memory only. Objectives are the stores' words, so that all stages of a view have the same edges.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import Exemplar as Named

from hub.metrics.histogram import SKEW_MS, Histogram, edges_with
from hub.observability.lag.anchors import Ring, arrival
from hub.observability.lag.consumers import LagRow
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
from hub.observability.overview.collector import wall_clock_ms
from hub.observability.overview.reports import ViewReport
from hub.record import Positions, TopicPartition
from hub.runtime import repeating

STEP_S = 1.0
# Views with series of their own in /metrics; the others are counted.
MOST_VIEWS = 200
REPLAY_S = 1_800.0


class CollectorFacts(Protocol):
    """What the collector knows: records of ``_hub.progress``, the views' reports, anchors by topic and partition."""

    records: Mapping[str, Mapping[str, Any]]
    reports: tuple[ViewReport, ...]
    rings: dict[str, dict[int, Ring]]


class HasLatencyRows(Protocol):
    def rows(self) -> Sequence[LagRow]: ...


@dataclass
class LatencyRecorder:
    """Use ``with board.running():``. ``event_of`` a row's sources: the time of its latest event, None where not told."""

    facts: CollectorFacts
    lags: HasLatencyRows
    event_of: Callable[[Mapping[str, Any] | None], int | None] = lambda _sources: None
    replay_s: float = REPLAY_S
    now_ms: Callable[[], int] = wall_clock_ms
    tracks: Tracks = field(default_factory=Tracks)
    counted: dict[Series, Histogram] = field(default_factory=dict)
    appended_to: dict[tuple[str, str, int], int] = field(default_factory=dict)
    objectives: dict[str, float | None] = field(default_factory=dict)
    pushes: Pushes = field(default_factory=Pushes)
    # Views whose rows name no events.
    sampled: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[LatencyRecorder]:
        """A step a second for as long as the block runs."""
        with repeating(
            self.step, name="latency", pause_s=lambda _: STEP_S, failed="latency could not be followed"
        ):
            yield self

    def step(self) -> None:
        """Take in what stores have told since, and what was counted here."""
        records, now_ms = self.facts.records, self.now_ms()
        views = {report.view for report in self.facts.reports}
        with self.lock:
            told_views = records.get(f"latency:{SERVING}", {}).get("views")
            serving = told_views if isinstance(told_views, dict) else {}  # else of another version
            self.objectives = {view: told.get("objective_s") for view, told in serving.items()}
            self.tracks.hear(records, now_ms)
            self.sampled = {view for view, told in serving.items() if told.get("sampled")}
            for view, told in serving.items():
                self._place(view, told.get("named", ()))
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
            if views or records:  # else the store has told nothing yet
                self.tracks.forget(views)
                self.counted = {series: each for series, each in self.counted.items() if series.view in views}
                self.appended_to = {key: at for key, at in self.appended_to.items() if key[0] in views}
                self.pushes.forget(views)

    def pushed(self, view: str, sources: Mapping[str, Any] | None) -> None:
        """A subscriber took a change of a row. Called for each: it costs a few microseconds."""
        event_ms = self.event_of(sources)
        if event_ms is not None:
            with self.lock:
                self._count(view, "pushed", (self.now_ms() - event_ms) / 1000)

    def told(self, view: str, subscriber: int, before: Positions, after: Positions) -> None:
        """A subscriber of a view whose rows name no events was told changes, and has now all that the sources had up to ``after``."""
        with self.lock:
            if view in self.sampled:
                self.pushes.told(view, subscriber, CoveredUpTo(before, after, self.now_ms()))

    def _place(self, view: str, named: Sequence[Sequence[Any]]) -> None:
        """When the named events got into the log: not before the last poll that did not see them. So an event that its
        producer wrote late shows here, by at least as much; one that was written at once counts as 0."""
        for topic, partition, offset, event_ms in named:
            if view in self.sampled:
                self.pushes.named(view, TopicPartition(topic, partition), offset, event_ms, self.now_ms())
            place = (view, topic, partition)
            ring = self.facts.rings.get(topic, {}).get(partition, ())
            if ring and ring[-1].end < self.appended_to.get(place, 0):
                del self.appended_to[place]  # another log of that name: its offsets begin anew
                self.pushes.begun_anew(view, TopicPartition(topic, partition))
            if offset < self.appended_to.get(place, 0) or not ring:
                continue
            seen = arrival(ring, offset)
            if (
                seen.after_ms is not None
                and seen.until_ms is not None
                and event_ms - seen.until_ms <= SKEW_MS
            ):  # else it was there before the hub looked
                self.appended_to[place] = offset + 1
                self._count(view, "appended", max(0.0, (seen.after_ms - event_ms) / 1000))

    def _count(self, view: str, stage: str, seconds: float) -> None:
        if seconds * 1000 < -SKEW_MS:
            return  # its time is of a clock that is ahead: how long it took nobody knows
        origin = "live" if seconds <= self.replay_s else "replay"
        series, edges = Series(view, stage, "", origin), edges_with(self.objectives.get(view))
        known = self.counted.get(series)
        if known is None or known.edges != edges:
            known = self.counted[series] = Histogram(edges)
        known.add(max(0.0, seconds))

    # ---- what is known

    def rows(self) -> list[LatencyRow]:
        """See hub.observability.latency.latency.rows_of."""
        views = [report.view for report in self.facts.reports]
        with self.lock:
            return rows_of(self.tracks, views, self.lags.rows(), self.now_ms())

    def families(self) -> Iterator[Metric]:
        """Prometheus' series: histograms of at most ``MOST_VIEWS`` views, freshness of as many. Unknown has no sample."""
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
            "Events whose time lies after the stage's, counted nowhere else",
            labels=["view"],
        )
        for key, counts, negative, exemplar in series:
            if key.view in shown:
                latency.add_metric(list(key), buckets_of(counts, exemplar), counts.sum_s)
                if (key.stage, key.store) == ("readable", SERVING) and key.origin == "live":
                    skewed.add_metric([key.view], negative)
        objective = GaugeMetricFamily(
            "hub_view_latency_objective_seconds",
            "What is promised of a view (slo in topics.yaml)",
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
    """Prometheus' buckets; the one that the traced event fell into names its trace, where the format has a place for it."""
    buckets: list[Any] = list(counts.cumulative())
    if exemplar is not None:
        at = bisect_left(counts.edges, exemplar.seconds)
        edge, number = buckets[at]
        if number:
            named = Named({"trace_id": exemplar.trace_id}, exemplar.seconds, exemplar.at_ms / 1000)
            buckets[at] = (edge, number, named)
    return buckets
