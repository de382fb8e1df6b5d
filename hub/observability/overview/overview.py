"""[core] Values of one moment for the dashboard, ``hub lag`` and ``/metrics``.

Field names are the JSON of ``/api/overview``. None means *unknown*, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from hub.observability.cluster.connect import Connect
from hub.observability.lag.anchors import Ring
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.judge import LagRules
from hub.observability.lag.rates import STEPS, history, per_second
from hub.observability.lag.states import SEVERITY, LagReading, LagState, LagVerdict, worst
from hub.observability.lag.watching import WatchedConsumer, presented, watch
from hub.observability.overview.reports import ViewReport

DLQ_SUFFIX = ".dlq"
# States of a view that has caught up and keeps running.
RUNNING = ("live", "realtime")
CHANGELOG_PREFIX = "views."


class TopicKind(StrEnum):
    """Kind of a topic, by its name: published events, changelogs of views, DLQs, the hub's own topics."""

    events = "events"
    changelog = "changelog"
    dead_letters = "dead_letters"
    internal = "internal"


def kind_of(topic: str) -> TopicKind:
    """Return a topic's kind. Names of the hub's own topics begin with ``_``."""
    if topic.startswith("_"):
        return TopicKind.internal
    if topic.endswith(DLQ_SUFFIX):
        return TopicKind.dead_letters
    return TopicKind.changelog if topic.startswith(CHANGELOG_PREFIX) else TopicKind.events


@dataclass(frozen=True, slots=True)
class KafkaHealth:
    """Kafka's availability. ``answered_at_ms``: time of the last answer. ``error``: why Kafka does not answer
    now, else None."""

    bootstrap: str
    answered_at_ms: int | None
    error: str | None

    @property
    def state(self) -> str:
        """State: ``connecting`` before the first answer, then ``up`` or ``down``."""
        if self.error is not None:
            return "down"
        return "connecting" if self.answered_at_ms is None else "up"


@dataclass(frozen=True, slots=True)
class TopicLine:
    """Values of one topic. ``events``: sum of the end offsets. ``undecodable``: events in the topic's DLQ."""

    name: str
    kind: TopicKind
    partitions: int
    events: int
    events_per_second: float | None
    undecodable: int
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Lag of a view on one of its topics; numbers are None until both ends are known."""

    topic: str
    state: LagState
    cause: str
    records: int | None
    seconds: float | None
    error_s: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch of a view: commit time, duration, and number of events read (None: not reported)."""

    at_ms: int
    took_ms: int
    events: int | None


@dataclass(frozen=True, slots=True)
class ViewLine:
    """Values of one view: state of its engine, rows in its store, and its lag, which is the lag of its worst
    source."""

    name: str
    doc: str
    owner: str
    state: str
    reason: str | None
    since_ms: int | None
    mode: str | None
    rows: int | None
    committed_at_ms: int | None
    batch_ms: int | None
    input_rows: int | None
    subscribers: int | None
    lag: SourceLag | None
    sources: tuple[SourceLag, ...]
    ttl: str | None = None
    expired: int | None = None


@dataclass(frozen=True, slots=True)
class CutOff:
    """A process whose Kafka clients have had no answer for ``seconds`` (the longest of them); None: it runs
    but does not report."""

    process: str
    seconds: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Values of one moment.

    ``error``: why the store cannot be read, None while it can. ``connect`` None: no Connect address is
    configured. ``views_heard``: whether the store has reported its views since this server started. Sums are
    None, not 0, until their source has answered.
    """

    at_ms: int
    kafka: KafkaHealth
    error: str | None
    topics: tuple[TopicLine, ...]
    views: tuple[ViewLine, ...]
    connect: Connect | None = None
    views_heard: bool = True
    cut_off: tuple[CutOff, ...] = ()

    @property
    def kafka_answered(self) -> bool:
        """True once Kafka has listed its topics since this server started."""
        return self.kafka.answered_at_ms is not None

    @property
    def live_views(self) -> int | None:
        view_lines = [view for view in self.views if view.state != "unknown"]
        if not view_lines and (self.views or self.error is not None or not self.views_heard):
            return None
        return sum(view.state in RUNNING for view in view_lines)

    @property
    def worst_lag(self) -> SourceLag | None:
        """Longest lag of any view."""
        source_lags = [
            view.lag for view in self.views if view.lag is not None and view.lag.seconds is not None
        ]
        return max(source_lags, key=lambda lag: (lag.seconds or 0.0, lag.records or 0), default=None)

    @property
    def events(self) -> int | None:
        return sum(topic.events for topic in self._published()) if self.kafka_answered else None

    @property
    def events_per_second(self) -> float | None:
        rates = [topic.events_per_second for topic in self._published()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    @property
    def undecodable(self) -> int | None:
        return sum(topic.undecodable for topic in self._published()) if self.kafka_answered else None

    @property
    def history(self) -> tuple[float, ...]:
        """Events per second of all topics, step by step, newest last."""
        histories = [topic.history for topic in self._published() if topic.history]
        steps = max(map(len, histories), default=0)
        return tuple(
            sum(each[-back] for each in histories if len(each) >= back) for back in range(steps, 0, -1)
        )

    @property
    def waiting_views(self) -> tuple[ViewLine, ...]:
        """Views that are not live."""
        return tuple(view for view in self.views if view.state not in RUNNING)

    def _published(self) -> Iterable[TopicLine]:
        return (topic for topic in self.topics if topic.kind is TopicKind.events)


def topic_lines(
    rings: Mapping[str, Mapping[int, Ring]], now_ms: int, steps: int = STEPS
) -> tuple[TopicLine, ...]:
    """Return a line for each event topic and changelog, with ``steps`` of history. DLQs are counted at their
    topics; the hub's own topics are omitted."""
    shown = (name for name in sorted(rings) if kind_of(name) in (TopicKind.events, TopicKind.changelog))
    return tuple(topic_line(name, rings, now_ms, steps) for name in shown)


def topic_line(
    name: str, rings: Mapping[str, Mapping[int, Ring]], now_ms: int, steps: int = STEPS
) -> TopicLine:
    """Return the line of a topic of any kind in ``rings``."""
    own = list(rings[name].values())
    return TopicLine(
        name,
        kind_of(name),
        len(own),
        _ends(own),
        per_second(own, now_ms),
        _ends(rings.get(name + DLQ_SUFFIX, {}).values()),
        history(own, now_ms, steps),
    )


def view_line(
    report: ViewReport,
    readings: Mapping[str, LagReading],
    watched_on: Callable[[str, str], WatchedConsumer | None],
    rules: LagRules,
    now_ms: int,
    *,
    rows: int | None,
    subscribers: int | None,
) -> ViewLine:
    """Return a view's line. ``readings``: its present lag by topic. ``watched_on``: a view on a topic as
    the monitor watches it; None: not measured by it yet, so the present lag is judged alone."""

    reader = report.reader

    def verdict(topic: str) -> LagVerdict:
        if reader.silent:  # the view itself is shown as unknown now: its lag must not be shown as known
            return LagVerdict(LagState.UNKNOWN, reader.silent)
        watched, reading = watched_on(report.view, topic), readings.get(topic)
        if watched is None:
            return watch(WatchedConsumer(), reading, reader, now_ms, rules).shown
        return presented(watched, reading, reader, now_ms, rules)

    sources = tuple(_source(topic, readings.get(topic), verdict(topic)) for topic in report.topics)
    return ViewLine(
        report.view,
        report.doc,
        report.owner,
        report.state,
        report.reason,
        report.since_ms,
        report.mode,
        rows,
        report.committed_at_ms,
        report.batch_ms,
        report.input_rows,
        subscribers,
        _of_all(sources, readings),
        sources,
        report.ttl,
        report.expired,
    )


def lag_rows(overview: Overview) -> tuple[LagRow, ...]:
    """Return the overview's views as lag rows, for use until all consumers have been measured once."""
    return tuple(
        LagRow(
            kind="view",
            name=view.name,
            view=view.name,
            topic=source.topic,
            owner=view.owner,
            state=source.state.value,
            cause=source.cause,
            since_ms=None,
            records=source.records,
            seconds=source.seconds,
            error_s=source.error_s,
            basis=None if source.seconds is None else "arrival",
            eta_s=source.eta_s,
            loss_s=None,
            lost_records=None,
            position=None,
            members=None,
            measured_at_ms=overview.at_ms,
            trend=(),
        )
        for view in overview.views
        for source in view.sources
    )


def _source(topic: str, reading: LagReading | None, verdict: LagVerdict) -> SourceLag:
    """Return the lag on a topic. It has numbers only while it is measured and its state is known."""
    if reading is None and verdict.state is LagState.OK:
        verdict = LagVerdict(LagState.UNKNOWN, "the end of its topic is not known now")
    if reading is None or verdict.state is LagState.UNKNOWN:
        return SourceLag(topic, verdict.state, verdict.cause, None, None, None, None)
    return SourceLag(
        topic, verdict.state, verdict.cause, reading.records, reading.seconds, reading.error_s, verdict.eta_s
    )


def _of_all(sources: Sequence[SourceLag], readings: Mapping[str, LagReading]) -> SourceLag | None:
    """Return the state of the worst source, the sum of the records, and the longest lag with its bound; None
    when nothing was measured."""
    lag = worst([readings[source.topic] for source in sources if source.topic in readings])
    if lag is None:
        return None
    first = min(sources, key=lambda source: (SEVERITY[source.state], -(source.seconds or 0.0)))
    if first.state is LagState.UNKNOWN:
        return replace(first, records=None, seconds=None, error_s=None, eta_s=None)
    # The view has caught up when its slowest topic has.
    eta_s = max((source.eta_s for source in sources if source.eta_s is not None), default=None)
    return SourceLag(first.topic, first.state, first.cause, lag.records, lag.seconds, lag.error_s, eta_s)


def _ends(rings: Iterable[Ring]) -> int:
    return sum(ring[-1].end for ring in rings if ring)
