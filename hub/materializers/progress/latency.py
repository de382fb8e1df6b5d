"""[core] Latency from events to a store: counted on apply, reported as ``latency:<store>`` in
``_hub.progress``.

::

    event's time ───────▶ taken by a batch ──▶ row in the changelog ──▶ row readable in a store
    (its timestamp in Kafka)   "read"           "changelog"               "readable"

A keyed view's row names the events that made it (``_sources``), with their timestamps: each change of a row
counts once, from its latest event; in a step of more than ``MOST_ROWS`` rows every k-th row counts for k, so
that a bulk load costs next to nothing. A SQL view's rows name no events: a few events of its batches are
looked up (latency_samples.py), so its counts are those of a sample. An event counts as read when its batch
took its events, which the view's progress reports after the row: until then a keyed view's changes wait here,
at most ``MOST_UNREAD`` of them. Not counted as read, because the time is unknown: events read in real time,
by a batch without a report, or read again after their row was made.

An event older than ``REPLAY_S`` on arrival is a *replay* (a view or a store is refilled, history is loaded):
it is counted separately, because it would consume the objective. An event delayed for longer than that by a
failure therefore shows only in freshness.

Times are of several clocks: a negative latency of at most ``SKEW_MS`` counts as 0. The latency of an event
further in the future is unknown: it counts only in ``skewed``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson

from hub.materializers.progress.records import PROGRESS_TOPIC, Progress
from hub.metrics.histogram import SKEW_MS, Histogram, edges_with
from hub.record import NewRecord, TopicPartition
from hub.times import ms_of
from hub.tracing import Trace

PREFIX = "latency:"
REPLAY_S = 1_800.0
# Events per view that are named, so that the server can look up when they were appended.
MOST_NAMED = 4
# Rows of a step that are counted.
MOST_ROWS = 500
# Stretches of source offsets that wait to be sampled, over all SQL views of a store.
MOST_WAITING = 256
# Changes of a keyed view that wait for the time at which their batch read them. Beyond that, every second one
# is kept and counts for two. Even.
MOST_UNREAD = 2_048
# Newest events of keyed views that wait for the lookup of their trace.
MOST_UNSEEN = 8

Stage = Literal["read", "changelog", "readable"]
Origin = Literal["live", "replay"]


class ChangedRow(NamedTuple):
    """A changed row's latest event, and when the row was appended to the changelog (epoch ms).

    ``rows``: number of rows that it stands for. ``read_ms``: when its batch took the event; None while
    unknown.
    """

    topic: str
    partition: int
    offset: int
    event_ms: int
    changelog_ms: int
    rows: int = 1
    read_ms: int | None = None

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReadableRange(NamedTuple):
    """Events [first, end) of one partition that became readable together."""

    view: str
    topic: str
    partition: int
    first: int
    end: int
    committed_ms: int
    readable_ms: int
    read_ms: int | None = None


@dataclass
class _ViewLatency:
    edges: tuple[float, ...]
    objective_s: float | None
    sampled: bool
    counts: dict[tuple[Stage, Origin], Histogram] = field(default_factory=dict)
    skewed: int = 0
    counted: int = 0
    newest_event_ms: int | None = None
    named: deque[ChangedRow] = field(default_factory=lambda: deque(maxlen=MOST_NAMED))
    # Newest traced event of each series: its trace, seconds, and when (epoch ms).
    exemplars: dict[tuple[Stage, Origin], tuple[str, float, int]] = field(default_factory=dict)

    def add(self, stage: Stage, origin: Origin, span_ms: int, count: int) -> None:
        histogram = self.counts.get((stage, origin))
        if histogram is None:
            histogram = self.counts[stage, origin] = Histogram(self.edges)
        if span_ms < -SKEW_MS:
            self.skewed += count
            return
        histogram.add(max(0, span_ms) / 1000, count)


class Latencies:
    """Latencies of one store's views. The applier writes them, the publishing thread reads them.

    ``objective_of``: objective of a view in seconds.
    """

    def __init__(
        self,
        store: str,
        since_ms: int,
        objective_of: Callable[[str], float | None] = lambda _view: None,
        replay_s: float = REPLAY_S,
    ) -> None:
        self.store, self.since_ms, self.objective_of, self.replay_s = store, since_ms, objective_of, replay_s
        self._views: dict[str, _ViewLatency] = {}
        self._reached: dict[str, Progress] = {}
        self._unread: dict[str, list[ChangedRow]] = {}
        self._waiting: deque[ReadableRange] = deque(maxlen=MOST_WAITING)
        self._unseen: deque[tuple[str, ChangedRow, int]] = deque(maxlen=MOST_UNSEEN)
        self._lock = threading.Lock()

    # ---- called by the applier

    def applied(self, view: str, due: Iterable[ChangedRow], readable_ms: int) -> None:
        """Record that rows of a keyed view are readable since ``readable_ms``."""
        with self._lock:
            view_latency, unread = self._of(view, sampled=False), self._unread.setdefault(view, [])
            for each in due:
                self._count(view_latency, each, readable_ms)
                self._unseen.append((view, each, readable_ms))
                unread.append(each)
                if len(unread) >= MOST_UNREAD:
                    pairs = zip(unread[::2], unread[1::2], strict=True)
                    unread[:] = [one._replace(rows=one.rows + other.rows) for one, other in pairs]

    def record_progress(self, view: str, progress: Iterable[Progress]) -> None:
        """Take progress that the store covers (keyed view): it has the read times of batches."""
        with self._lock:
            for each in progress:
                before, self._reached[view] = self._reached.get(view), each
                if before is not None:
                    self._read(view, before, each)
                waiting = self._unread.get(view, ())
                self._unread[view] = [due for due in waiting if due.offset >= each.sources.get(due.place)]

    def _read(self, view: str, before: Progress, after: Progress) -> None:
        view_latency = self._views.get(view)
        if view_latency is None:
            return
        for due in self._unread.get(view, ()):
            read_ms = _read_ms(before, after, due.place, due.offset, due.changelog_ms)
            if read_ms is not None:
                self._add(view_latency, "read", due, read_ms)
                view_latency.counted += due.rows
        for index, (name, due, readable_ms) in enumerate(self._unseen):
            if name == view and due.read_ms is None:
                read_ms = _read_ms(before, after, due.place, due.offset, due.changelog_ms)
                self._unseen[index] = (name, due._replace(read_ms=read_ms), readable_ms)

    def covered(self, view: str, progress: Iterable[Progress], readable_ms: int) -> None:
        """Take progress that the store covers (SQL view). The first one only marks where counting begins."""
        with self._lock:
            for each in progress:
                before, self._reached[view] = self._reached.get(view), each
                if before is None:
                    continue
                for tp, end in each.sources:
                    # A partition that was not named before was empty, or is read from its start: a replay,
                    # not counted.
                    first = before.sources.get(tp, end)
                    if first < end:
                        committed_ms = each.committed_at_ms
                        read_ms = _read_ms(before, each, tp, first, committed_ms)
                        self._waiting.append(
                            ReadableRange(view, *tp, first, end, committed_ms, readable_ms, read_ms)
                        )

    @property
    def counted(self) -> int:
        """Return a number that changes whenever there is something new to report."""
        with self._lock:
            return sum(each.counted for each in self._views.values())

    def forget(self, views: Iterable[str]) -> None:
        """Drop views that the store no longer has."""
        with self._lock:
            for view in views:
                self._views.pop(view, None)
                self._reached.pop(view, None)
                self._unread.pop(view, None)

    # ---- sampling

    def waiting(self) -> list[ReadableRange]:
        """Return the stretches to sample; each is returned once."""
        with self._lock:
            readable_ranges = list(self._waiting)
            self._waiting.clear()
            return readable_ranges

    def sampled(self, of: ReadableRange, offset: int, event_ms: int, trace: Trace | None = None) -> None:
        """Record the time of one event of a stretch, and its trace."""
        with self._lock:
            due = ChangedRow(of.topic, of.partition, offset, event_ms, of.committed_ms, read_ms=of.read_ms)
            self._count(self._of(of.view, sampled=True), due, of.readable_ms)
            self._exemplify(of.view, due, of.readable_ms, trace)

    def unseen(self) -> list[tuple[str, ChangedRow, int]]:
        """Return events of keyed views without a trace lookup: (view, event, when it was readable). Each
        once.
        """
        with self._lock:
            found = list(self._unseen)
            self._unseen.clear()
            return found

    def exemplify(self, view: str, due: ChangedRow, readable_ms: int, trace: Trace | None) -> None:
        """Record the trace of an event that was counted."""
        with self._lock:
            self._exemplify(view, due, readable_ms, trace)

    def _exemplify(self, view: str, due: ChangedRow, readable_ms: int, trace: Trace | None) -> None:
        view_latency = self._views.get(view)
        if view_latency is None or trace is None or not trace.sampled:
            return
        for stage, at_ms in _stages(due, readable_ms):
            span_ms = at_ms - due.event_ms
            if span_ms >= 0:
                view_latency.exemplars[stage, self._origin(span_ms)] = (trace.trace_id, span_ms / 1000, at_ms)

    # ---- report

    def record(self, now_ms: int) -> NewRecord:
        """Return all counts since ``since_ms`` as a record, some hundred bytes per view."""
        with self._lock:
            views = {
                name: {
                    "objective_s": each.objective_s,
                    "sampled": each.sampled,
                    "skewed": each.skewed,
                    "newest_event_ms": each.newest_event_ms,
                    "named": [[due.topic, due.partition, due.offset, due.event_ms] for due in each.named],
                    "counts": [
                        {"stage": stage, "origin": origin, **counts.body()}
                        for (stage, origin), counts in sorted(each.counts.items())
                    ],
                    "exemplars": [
                        {
                            "stage": stage,
                            "origin": origin,
                            "trace_id": trace_id,
                            "seconds": seconds,
                            "at_ms": at,
                        }
                        for (stage, origin), (trace_id, seconds, at) in sorted(each.exemplars.items())
                    ],
                }
                for name, each in self._views.items()
            }
        body = {"store": self.store, "since_ms": self.since_ms, "at_ms": now_ms, "views": views}
        return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{self.store}".encode(), orjson.dumps(body))

    def _of(self, view: str, *, sampled: bool) -> _ViewLatency:
        objective_s = self.objective_of(view)
        view_latency = self._views.get(view)
        if (
            view_latency is None or view_latency.objective_s != objective_s
        ):  # other bucket bounds: counts start over
            view_latency = self._views[view] = _ViewLatency(edges_with(objective_s), objective_s, sampled)
        return view_latency

    def _origin(self, span_ms: int) -> Origin:
        return "live" if span_ms <= self.replay_s * 1000 else "replay"

    def _count(self, view_latency: _ViewLatency, due: ChangedRow, readable_ms: int) -> None:
        for stage, at_ms in _stages(due, readable_ms):
            self._add(view_latency, stage, due, at_ms)
        view_latency.named.append(due)
        view_latency.counted += due.rows
        view_latency.newest_event_ms = max(view_latency.newest_event_ms or 0, due.event_ms)

    def _add(self, view_latency: _ViewLatency, stage: Stage, due: ChangedRow, at_ms: int) -> None:
        span_ms = at_ms - due.event_ms
        view_latency.add(stage, self._origin(span_ms), span_ms, due.rows)


def _stages(due: ChangedRow, readable_ms: int) -> tuple[tuple[Stage, int], ...]:
    stages: tuple[tuple[Stage, int], ...] = (("changelog", due.changelog_ms), ("readable", readable_ms))
    return stages if due.read_ms is None else (("read", due.read_ms), *stages)


def _read_ms(
    before: Progress, after: Progress, place: TopicPartition, offset: int, changelog_ms: int
) -> int | None:
    """Return when the batch of ``after`` read the event (epoch ms); None if that is unknown.

    Unknown: the event is not of that batch, there were other batches between the two, or the time is after
    the row was made (clock skew, or an event that is read in two places).
    """
    if (after.generation, after.batch_id) != (before.generation, before.batch_id + 1):
        return None
    if not before.sources.get(place) <= offset < after.sources.get(place):
        return None
    at_ms = after.read_at_ms
    return at_ms if at_ms is not None and at_ms <= changelog_ms else None


def latest_event(origins: Mapping[str, Any] | None) -> tuple[str, int, int, int] | None:
    """Return topic, partition, offset and time of the latest event in ``_sources``; None if no event has a
    time.
    """
    found: tuple[str, int, int, int] | None = None
    for origin in (origins or {}).values():
        at_ms = None if not isinstance(origin, Mapping) else event_ms(origin.get("timestamp"))
        if at_ms is not None and (found is None or at_ms > found[3]):
            found = (origin["topic"], origin["partition"], origin["offset"], at_ms)
    return found


def event_ms(timestamp: object) -> int | None:
    """Return a timestamp of a row, header or store (ms, a datetime, ISO text) as epoch ms; None for anything
    else.
    """
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp)
        except ValueError:
            return None
    if isinstance(timestamp, datetime):
        return ms_of(timestamp)
    return (
        timestamp
        if isinstance(timestamp, int) and not isinstance(timestamp, bool) and timestamp >= 0
        else None
    )
