"""[core] Latency of events to readers: recent counts of appliers and the push side, as rows.

::

    event ─▶ appended ─▶ read ─▶ changelog ─▶ readable (each store) ─▶ pushed
    └──────────┴─────────┴─────────┴────────────────┴──────────────────┘   measured from the event's own time

The input is cumulative counts. A few earlier states of each series are kept, and a row shows what was added
since the oldest of them (``WINDOW_MS``). Limits: ``MOST_SERIES`` series, ``KEPT`` states each. A series that
was never counted has no numbers: unknown is not zero. A histogram shows nothing when no events arrive; so
each row also has its view's freshness (the age of the oldest event that no reader can see) and the state of
the view or its applier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hub.metrics.histogram import Histogram, histogram_of
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import SEVERITY, LagState

WINDOW_MS = 300_000
STEP_MS = 10_000
KEPT = WINDOW_MS // STEP_MS
MOST_SERIES = 4_000
# An applier that has not reported for this long is gone.
SILENT_MS = 90_000
STAGES = ("appended", "read", "changelog", "readable", "pushed")
# Stages that each store's applier counts for the whole view: taken from one of them.
_ONCE = ("read", "changelog")
SERVING = "serving"
_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


class Series(NamedTuple):
    """Key of a series. ``store``: the store of stage readable, "" for other stages."""

    view: str
    stage: str
    store: str
    origin: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A counted event with a trace: trace id, latency, and time at which it reached the stage (epoch ms)."""

    trace_id: str
    seconds: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One series over the last ``window_s``.

    ``events``: 0: none arrived; None: not measured. ``p50_s``…: None without events; a lower bound where
    ``beyond`` names it. ``within``: share that met ``objective_s``. ``sampled``: measured on a sample of
    events. ``freshness_s``, ``state``, ``cause``: of the worse of the view and its applier. ``silent``: the
    counts are no longer reported. ``exemplar``: the newest traced event.
    """

    view: str
    stage: str
    store: str
    origin: str
    events: int | None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    beyond: tuple[str, ...] = ()
    objective_s: float | None = None
    within: float | None = None
    total: int | None = None
    sampled: bool = False
    skewed: int = 0
    window_s: float = 0.0
    freshness_s: float | None = None
    freshness_error_s: float | None = None
    state: str = LagState.UNKNOWN
    cause: str = ""
    silent: bool = False
    exemplar: Exemplar | None = None


@dataclass
class Track:
    """Cumulative counts of a series, and its earlier states, oldest first."""

    now: Histogram
    objective_s: float | None = None
    sampled: bool = False
    skewed: int = 0
    reported_ms: int = 0
    since_ms: int = 0
    exemplar: Exemplar | None = None
    states: deque[tuple[int, Histogram]] = field(default_factory=deque)

    def update(self, counts: Histogram, at_ms: int, since_ms: int) -> None:
        if self.states and at_ms < self.states[-1][0]:  # the local clock was set back
            self.states.clear()
        begun_anew = counts.edges != self.now.edges or counts.count < self.now.count
        if begun_anew or since_ms != self.since_ms:
            self.states.clear()
            self.states.append((max(since_ms, at_ms - WINDOW_MS), Histogram(counts.edges)))
            self.since_ms = since_ms
        elif not self.states or at_ms - self.states[-1][0] >= STEP_MS:
            self.states.append((at_ms, self.now.copy()))
        while (len(self.states) > 1 and self.states[1][0] <= at_ms - WINDOW_MS) or len(
            self.states
        ) > KEPT + 1:
            self.states.popleft()
        self.now = counts

    def recent(self, now_ms: int) -> tuple[Histogram, float]:
        """Return the counts added within the window, and its length in seconds."""
        at_ms, before = self.states[0]
        return self.now.since(before), (now_ms - at_ms) / 1000


@dataclass
class Tracks:
    """All series. ``take_reports`` takes the stores' records; ``put`` takes counts of this process."""

    series: dict[Series, Track] = field(default_factory=dict)
    counted_at: dict[str, int] = field(default_factory=dict)  # time of each store's last counts
    # Time of each store's last report: by its clock, by the local clock.
    reported_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: int = 0

    def take_reports(self, records: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Take in the records ``latency:<store>``. Records in an unknown format are ignored."""
        for key, body in records.items():
            if key.startswith("latency:"):
                self._take_report(key.partition(":")[2], body, now_ms)

    def _take_report(self, store: str, body: Mapping[str, Any], now_ms: int) -> None:
        try:
            at_ms, since_ms = int(body["at_ms"]), int(body["since_ms"])
            # The store's clock only shows whether the report is new: with a fast clock a dead applier would
            # look alive, with a slow one a live applier dead. The first report may be old.
            before = self.reported_at.get(store)
            if before is None or before[0] != at_ms:
                self.reported_at[store] = (at_ms, now_ms if before is not None else min(at_ms, now_ms))
            # Start of the counts; None: they may span hours, and only later ones are recent.
            zero_ms = since_ms if since_ms >= now_ms - WINDOW_MS else self.counted_at.get(store)
            for view, report in body["views"].items():
                traced = {(each["stage"], each["origin"]): each for each in report.get("exemplars", ())}
                for each in report["counts"]:
                    stage = str(each["stage"])
                    if stage not in STAGES or (stage in _ONCE and store != SERVING):
                        continue  # another version's stage, or counted by the serving store already
                    series = Series(view, stage, store if stage == "readable" else "", str(each["origin"]))
                    self.put(
                        series,
                        histogram_of(each),
                        now_ms,
                        objective_s=report["objective_s"],
                        sampled=bool(report["sampled"]),
                        skewed=int(report["skewed"]),
                        reported_ms=self.reported_at[store][1],
                        since_ms=since_ms,
                        zero_ms=zero_ms,
                    )
                    named = traced.get((each["stage"], each["origin"]))
                    if named is not None and series in self.series:
                        self.series[series].exemplar = Exemplar(
                            str(named["trace_id"]), float(named["seconds"]), int(named["at_ms"])
                        )
            self.counted_at[store] = now_ms
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def put(
        self,
        series: Series,
        counts: Histogram,
        now_ms: int,
        *,
        objective_s: float | None = None,
        sampled: bool = False,
        skewed: int = 0,
        reported_ms: int | None = None,
        since_ms: int = 0,
        zero_ms: int | None = None,
    ) -> None:
        """Set the current cumulative counts of a series. ``zero_ms``: when a new series had no counts;
        None: unknown."""
        track = self.series.get(series)
        if track is None:
            if len(self.series) >= MOST_SERIES:
                self.left_out += 1
                return
            track = self.series[series] = Track(counts.copy(), since_ms=since_ms)
            first = counts.copy() if zero_ms is None else Histogram(counts.edges)
            track.states.append((now_ms if zero_ms is None else zero_ms, first))
        track.update(counts, now_ms, since_ms)
        track.objective_s, track.sampled, track.skewed = objective_s, sampled, skewed
        track.reported_ms = now_ms if reported_ms is None else reported_ms

    def forget(self, views: Iterable[str]) -> None:
        """Remove the series of all other views."""
        kept = set(views)
        self.series = {series: track for series, track in self.series.items() if series.view in kept}


def freshness_of(lags: Sequence[LagRow]) -> Mapping[str, LagRow]:
    """Return by view the worse row of the view itself and its applier, by state, then by age. UNKNOWN is
    worse than OK."""
    lag_rows: dict[str, LagRow] = {}
    for row in lags:
        if row.kind in ("view", "applier"):
            lag_row = lag_rows.get(row.name)
            if lag_row is None or _badness(row) > _badness(lag_row):
                lag_rows[row.name] = row
    return lag_rows


def _badness(row: LagRow) -> tuple[int, float]:
    return (-SEVERITY[LagState(row.state)], row.seconds or 0.0)


def rows_of(tracks: Tracks, views: Iterable[str], lags: Sequence[LagRow], now_ms: int) -> list[LatencyRow]:
    """Return the rows of every view, by view, stage and origin; a view without counts has one row without
    numbers."""
    fresh = freshness_of(lags)
    by_view: dict[str, list[tuple[Series, Track]]] = {view: [] for view in views}
    for series, track in tracks.series.items():
        by_view.setdefault(series.view, []).append((series, track))
    latency_rows: list[LatencyRow] = []
    for view, those in sorted(by_view.items()):
        lag = fresh.get(view)
        if not those:
            latency_rows.append(_row(Series(view, "readable", SERVING, "live"), None, lag, now_ms))
        those.sort(key=lambda each: (each[0].origin, STAGES.index(each[0].stage), each[0].store))
        latency_rows += [_row(series, track, lag, now_ms) for series, track in those]
    return latency_rows


def _row(series: Series, track: Track | None, lag: LagRow | None, now_ms: int) -> LatencyRow:
    row = LatencyRow(
        series.view, series.stage, series.store, series.origin, None, cause="nothing measured yet"
    )
    if lag is not None:
        row = replace(
            row, freshness_s=lag.seconds, freshness_error_s=lag.error_s, state=lag.state, cause=lag.cause
        )
    if track is None:
        return row
    recent, window_s = track.recent(now_ms)
    return replace(
        row,
        events=recent.count,
        p50_s=recent.quantile(0.5),
        p95_s=recent.quantile(0.95),
        p99_s=recent.quantile(0.99),
        beyond=tuple(name for name, share in _SHARES if recent.beyond(share)),
        objective_s=track.objective_s,
        within=None if track.objective_s is None else recent.within(track.objective_s),
        total=track.now.count,
        sampled=track.sampled,
        skewed=track.skewed,
        window_s=round(window_s, 1),
        exemplar=track.exemplar,
        silent=series.stage in (*_ONCE, "readable") and now_ms - track.reported_ms > SILENT_MS,
    )
