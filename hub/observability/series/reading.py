"""[shell] Series of a range for pages and ``/api/series``, from Prometheus or the hub's own store; only those
that the caller may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hub.caller import HUB as HUB_ITSELF
from hub.caller import Action, Kind, Resource, may, require, sees_topic, sees_view
from hub.errors import PeerError
from hub.observability.series.catalog import METRICS, SeriesKind, SeriesMetric, SeriesObject, checked_metrics
from hub.observability.series.database import SeriesName, StoredSeries
from hub.observability.series.marks import Mark, concerns
from hub.observability.series.prometheus import Points, PrometheusSeries
from hub.observability.series.recorder import FILE, SeriesRecorder, SeriesStatus
from hub.observability.series.rollup import (
    FINE,
    HOUR,
    SampleBucket,
    SeriesRange,
    SeriesWindow,
    hourly,
    points,
    window_of,
)
from hub.times import epoch_ms

# Most objects of one answer, and most marks, the newest.
MOST_OBJECTS = 8
MOST_MARKS = 50


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """One series: a bucket for each time of the window; None: nothing is known of it."""

    object: SeriesObject
    metric: SeriesMetric
    buckets: tuple[SampleBucket | None, ...]

    @property
    def values(self) -> tuple[float | None, ...]:
        return tuple(None if each is None else each.mean for each in self.buckets)


@dataclass(frozen=True, slots=True)
class SeriesAnswer:
    """Series of a range. ``source``: ``hub`` or ``prometheus``. ``notes``: what a reader must know about it,
    such as that Prometheus does not answer."""

    range: str
    window: SeriesWindow
    lines: tuple[SeriesLine, ...]
    marks: tuple[Mark, ...] = ()
    source: str = "hub"
    notes: tuple[str, ...] = ()
    status: SeriesStatus = field(default_factory=SeriesStatus)

    def line(self, about: SeriesObject, metric: str) -> SeriesLine | None:
        series_lines = (each for each in self.lines if (each.object, each.metric.name) == (about, metric))
        return next(series_lines, None)


class HasSeries(Protocol):
    """Source of series for pages."""

    def read(
        self, objects: Sequence[SeriesObject], metrics: Sequence[str], wanted: SeriesRange
    ) -> SeriesAnswer:
        """Return the series of objects that the caller may see. Raises CallerError, PeerError."""

    def objects(self, kind: str) -> Sequence[SeriesObject]:
        """Return the objects of a kind that were sampled lately and that the caller may see."""


@dataclass(frozen=True)
class SeriesReader:
    """Series by Prometheus where one is named, else, and where it does not answer, by the hub's own store."""

    folder: Path
    status: Callable[[], SeriesStatus] = SeriesStatus
    prometheus: PrometheusSeries | None = None
    sample_ms: int = FINE.step_ms
    now_ms: Callable[[], int] = epoch_ms

    @property
    def stored(self) -> StoredSeries:
        return StoredSeries(self.folder / FILE)

    def read(
        self, objects: Sequence[SeriesObject], metrics: Sequence[str], wanted: SeriesRange
    ) -> SeriesAnswer:
        """Return the series. Raises CallerError, Forbidden, PeerError."""
        for about in objects:
            require_visible(about)
        chosen = checked_metrics(objects, metrics)
        names = [(about, name) for about in objects for name in chosen if name in METRICS[about.kind]]
        window = window_of(wanted, self.now_ms(), self.sample_ms)
        found: Mapping[SeriesName, Points] = {}
        notes: list[str] = []
        if self.prometheus is not None:
            try:
                found = self.prometheus.read(names, window)
            except PeerError as error:
                notes.append(f"{error.message}. The chart shows the hub's own store.")
        source = "prometheus" if found else "hub"
        rest = [name for name in names if name not in found]
        own, window = self._own(rest, window, notes, is_free=not found) if rest else ({}, window)
        found = {**own, **found}
        lines = [
            SeriesLine(about, METRICS[about.kind][name], points(found[about, name], window))
            for about, name in names
        ]
        status = self.status()
        if status.error is not None:
            notes.append(f"Nothing is recorded now: {status.error}.")
        marks = self._marks(objects, window)
        return SeriesAnswer(wanted.name, window, tuple(lines), marks, source, tuple(notes), status)

    def _own(
        self, names: Sequence[SeriesName], window: SeriesWindow, notes: list[str], *, is_free: bool
    ) -> tuple[Mapping[SeriesName, Points], SeriesWindow]:
        """Return the series of the own store. ``is_free``: the step may be an hour where nothing finer is
        kept.
        """
        try:
            found = self.stored.read(names, window, window.level)
        except PeerError:
            if is_free:
                raise
            return {name: [] for name in names}, window  # Prometheus has the others
        if any(found.values()) or window.level is HOUR or not is_free or not self.status().coarse:
            return found, window
        by_hour = hourly(window)
        coarse = self.stored.read(names, by_hour, HOUR)
        if not any(coarse.values()):
            return found, window
        notes.append("The estate has more series than series_most: these are kept by the hour only.")
        return coarse, by_hour

    def _marks(self, objects: Sequence[SeriesObject], window: SeriesWindow) -> tuple[Mark, ...]:
        try:
            marks = self.stored.marks(window.start_ms, window.end_ms)
        except PeerError:
            return ()
        shown = [
            mark for mark in marks if sees(mark.object) and any(concerns(mark, about) for about in objects)
        ]
        return tuple(shown[-MOST_MARKS:])

    def objects(self, kind: str) -> Sequence[SeriesObject]:
        """Return the objects of a kind that were sampled in the last hour and that the caller may see."""
        try:
            series_objects = self.stored.objects(kind, self.now_ms() - HOUR.step_ms)
        except PeerError:
            return ()
        return [about for about in series_objects if sees(about)][:MOST_OBJECTS]


def reader_of(
    folder: Path, recorder: SeriesRecorder, prometheus_url: str | None, timeout_s: float
) -> SeriesReader | None:
    """Return the reader of a recorder's file and a Prometheus; None without both."""
    if recorder.most <= 0 and prometheus_url is None:
        return None
    prometheus = None if prometheus_url is None else PrometheusSeries(prometheus_url, timeout_s)
    return SeriesReader(folder, lambda: recorder.status, prometheus, recorder.sample_ms)


def sees(about: SeriesObject) -> bool:
    """Return whether the caller sees an object. Totals cover every topic and view, so they need the grant to
    read the hub, as mirrors, the cluster and processes do."""
    match about.kind:
        case SeriesKind.topic:
            return sees_topic(about.name)
        case SeriesKind.view:
            return sees_view(about.name)
        case SeriesKind.reader:
            kind, name, topic = about.reader
            return sees_topic(topic) and (kind not in ("view", "applier") or sees_view(name))
        case _:
            return may(Action.read, HUB_ITSELF)


def require_visible(about: SeriesObject) -> None:
    """Raise Forbidden with the missing grant, or Unauthenticated, unless the caller sees the object."""
    for needed in _grants(about):
        require(*needed)


def _grants(about: SeriesObject) -> Iterable[tuple[Action, Resource]]:
    match about.kind:
        case SeriesKind.topic:
            yield Action.describe, Resource(Kind.topic, about.name)
        case SeriesKind.view:
            yield Action.describe, Resource(Kind.view, about.name)
        case SeriesKind.reader:
            kind, name, topic = about.reader
            yield Action.describe, Resource(Kind.topic, topic)
            if kind in ("view", "applier"):
                yield Action.describe, Resource(Kind.view, name)
        case _:
            yield Action.read, HUB_ITSELF
