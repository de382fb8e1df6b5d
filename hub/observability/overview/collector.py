"""[shell] Refresh the overview: one thread polls Kafka, one polls the store, and readers wait for neither.

Partitions that receive events are polled every second, quiet ones every few seconds. Two threads, because a
hang of Kafka must not make the views look stale. Each thread runs one bounded step and waits for its
interval; a failure is stored as the reason, logged once, and retried. They are daemon threads: a request that
hangs does not delay shutdown.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hub.errors import HubError, PeerError
from hub.log import TopicDescription
from hub.observability.cluster.connect import Connect
from hub.observability.lag.anchors import LIMIT, Ring, is_due, observed
from hub.observability.lag.consumers import STALE_MS, LagTopicFacts, measure
from hub.observability.lag.judge import LagRules
from hub.observability.lag.states import LagReading
from hub.observability.lag.watching import WatchedConsumer
from hub.observability.overview.overview import (
    BatchSummary,
    CutOff,
    KafkaHealth,
    Overview,
    TopicKind,
    TopicLine,
    kind_of,
    topic_line,
    topic_lines,
    view_line,
)
from hub.observability.overview.reports import ViewReport, ViewSource, reports_of
from hub.record import Positions, TopicPartition
from hub.runtime import repeating
from hub.times import epoch_ms

log = logging.getLogger(__name__)

POLL_S = 1.0
TOPICS_EVERY_S = 5.0
# Clock corrections are smaller than this.
SET_BACK_MS = 1_000
# In a large estate polls are less frequent, and the total number of anchors is bounded (about 150 bytes
# each).
BUSY_SHARE = 0.2
ALL_ANCHORS = 1_500_000
FEWEST_ANCHORS = 12
# Above this number, topic lines are computed once a poll instead of once a request.
MANY_TOPICS = 1_000
# Batches kept of each view.
BATCHES = 40


class ClusterEnds(Protocol):
    """Cluster operations that the collector needs (hub.kafka.KafkaCluster, hub.log.MemoryCluster)."""

    def topics(self) -> Mapping[str, TopicDescription]: ...

    def known_ends(self, partitions: Collection[TopicPartition]) -> Positions:
        """Return the next offset of committed records of each partition that answers. Raises PeerError when
        none does."""


@dataclass
class Collector:
    """Poller of ``cluster`` and ``views``; ``overview()`` returns the current state.

    Use ``with collector.running():``.
    """

    cluster: ClusterEnds
    views: ViewSource
    bootstrap: str = ""
    poll_s: float = POLL_S
    now_ms: Callable[[], int] = epoch_ms
    connect: Callable[[], Connect | None] = lambda: None  # from memory
    cut_off: Callable[[], tuple[CutOff, ...]] = tuple  # from memory
    rules: LagRules = field(default_factory=LagRules)
    # A view on a topic under watch, from memory (hub.observability.overview.monitor.Monitor.watched_on).
    watched_on: Callable[[str, str], WatchedConsumer | None] = lambda _view, _topic: None
    lock: threading.Lock = field(default_factory=threading.Lock)
    polling: threading.Lock = field(default_factory=threading.Lock)  # one poll at a time
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: Sequence[TopicPartition] = ()
    counts: dict[str, int] = field(default_factory=dict)  # partitions of each topic
    topics_at_ms: int | None = None
    rings: dict[str, dict[int, Ring]] = field(default_factory=dict)  # by topic and partition
    drawn: tuple[TopicLine, ...] | None = None
    answered_at_ms: int | None = None
    kafka_error: str | None = None
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as the store has them
    reports: tuple[ViewReport, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    subscribers: Mapping[str, int] = field(default_factory=dict)
    store_error: str | None = None
    store_answered: bool = False
    store_at_ms: int | None = None  # time of the last complete answer
    readings: dict[str, dict[str, LagReading]] = field(default_factory=dict)  # by view and topic
    committed: dict[str, deque[BatchSummary]] = field(default_factory=dict)
    # By view and topic: since when the view's position is past the topic's end.
    past: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[Collector]:
        """Poll for as long as the block runs."""
        with ExitStack() as threads:
            for name, step in (("kafka", self.ask_what_is_due), ("store", self.ask_store)):
                threads.enter_context(
                    repeating(
                        step,
                        name=f"overview-{name}",
                        pause_s=lambda took_s: max(self.poll_s, took_s / BUSY_SHARE - took_s),
                        failed="the overview could not be refreshed",
                    )
                )
            yield self

    # ---- bounded steps

    def ask_kafka(self) -> None:
        """Fetch the end offsets of all topics in one call; refresh the list of topics first, every few
        seconds."""
        with self.polling:
            self._ask_kafka(everything=True)

    def ask_what_is_due(self) -> None:
        """Like ``ask_kafka``, but skip quiet partitions that were polled in the last few seconds."""
        with self.polling:
            self._ask_kafka(everything=False)

    def _ask_kafka(self, everything: bool) -> None:
        try:
            polled_ms = self.now_ms()
            if self.answered_at_ms is not None and polled_ms < self.answered_at_ms - SET_BACK_MS:
                self._begin_anew()
            if self.topics_at_ms is None or polled_ms - self.topics_at_ms >= TOPICS_EVERY_S * 1000:
                self._know_topics(self.cluster.topics(), polled_ms)
                polled_ms = self.now_ms()
            ends = self._ends(everything, polled_ms)
        except HubError as error:
            if self.kafka_error is None:
                log.warning("%s", error.message)
            self.kafka_error = error.message
            self._draw(self.now_ms())
            return
        except Exception as error:  # any failure makes the previous answer stale
            self.kafka_error = f"{type(error).__name__}: {error}"
            raise
        if self.kafka_error is not None:
            log.info("Kafka answers again")
        answered_ms = self.now_ms()
        most = max(FEWEST_ANCHORS, min(LIMIT, ALL_ANCHORS // max(1, len(self.partitions))))
        with self.lock:
            for tp, end in ends:
                rings = self.rings.setdefault(tp.topic, {})
                rings[tp.partition] = observed(rings.get(tp.partition, ()), end, polled_ms, answered_ms, most)
        self.kafka_error, self.answered_at_ms = None, answered_ms
        self._draw(answered_ms)

    def _draw(self, now_ms: int) -> None:
        """Precompute the topic lines of a large estate, also while Kafka is away, so that old rates are not
        shown as current."""
        self.drawn = topic_lines(self.rings, now_ms, steps=0) if len(self.rings) > MANY_TOPICS else None

    def _begin_anew(self) -> None:
        """Discard all measurements after the local clock was set back, as after a start.

        With timestamps from the future, everything that waits would look young and no partition would be due
        until the clock caught up.
        """
        log.warning("the clock was set back: ends are measured again")
        with self.lock:
            self.rings, self.readings, self.past, self.topics_at_ms = {}, {}, {}, None

    def _ends(self, everything: bool, now_ms: int) -> Positions:
        due = [
            tp
            for tp in self.partitions
            if everything or is_due(self.rings.get(tp.topic, {}).get(tp.partition, ()), now_ms)
        ]
        try:
            return self.cluster.known_ends(due) if due else Positions({})
        except PeerError:
            if len(due) == len(self.partitions):
                raise
            return self.cluster.known_ends(self.partitions)  # away only if no partition answers

    def _know_topics(self, topics: Mapping[str, TopicDescription], now_ms: int) -> None:
        """Store the topics; forget the anchors of topics that were deleted or recreated."""
        found = {name: topic.topic_id for name, topic in topics.items()}
        self.counts = {name: topic.partitions for name, topic in topics.items()}
        self.partitions = tuple(
            TopicPartition(name, partition)
            for name, topic in topics.items()
            for partition in range(topic.partitions)
        )
        with self.lock:
            same = {
                name for name, topic_id in found.items() if self.topic_ids.get(name, topic_id) == topic_id
            }
            self.rings = {topic: rings for topic, rings in self.rings.items() if topic in same}
            self.topic_ids, self.topics_at_ms = found, now_ms

    def ask_store(self) -> None:
        """Read the views' reports and row counts; then measure every view's lag."""
        try:
            records = self.views.progress()
            reports = tuple(each for each in reports_of(records) if each.state != "removed")
            rows, subscribers = self.views.row_counts(), self.views.subscribers()
        except HubError as error:
            self.store_error = error.message
            return
        except Exception as error:
            self.store_error = f"{type(error).__name__}: {error}"
            raise
        with self.lock:
            self.records = records
            self.reports, self.rows, self.subscribers = reports, rows, subscribers
            self._sample(self.now_ms())
        self.store_error, self.store_answered, self.store_at_ms = None, True, self.now_ms()

    def _sample(self, now_ms: int) -> None:
        self.committed = {
            report.view: self.committed.get(report.view, deque(maxlen=BATCHES)) for report in self.reports
        }
        for report in self.reports:
            batch_summaries = self.committed[report.view]
            at_ms, batch_ms = report.committed_at_ms, report.batch_ms
            if (
                at_ms is not None
                and batch_ms is not None
                and (not batch_summaries or batch_summaries[-1].at_ms != at_ms)
            ):
                batch_summaries.append(BatchSummary(at_ms, batch_ms, report.input_rows))
        self.readings = {report.view: self._measured(report, now_ms) for report in self.reports}
        self.past = {key: at_ms for key, at_ms in self.past.items() if key[0] in self.readings}

    def _measured(self, report: ViewReport, now_ms: int) -> dict[str, LagReading]:
        """Return the lag of a view by topic; topics whose end is unknown now are omitted."""
        found = {}
        for topic in report.topics if report.positions is not None else ():
            offsets = {tp.partition: offset for tp, offset in report.positions or () if tp.topic == topic}
            reading = self._lag(topic, offsets, now_ms)
            if reading is not None and not self._is_past(report.view, topic, reading, now_ms):
                found[topic] = reading
        return found

    def _is_past(self, view: str, topic: str, reading: LagReading, now_ms: int) -> bool:
        """Return whether a view is past the end of a topic for longer than polls take.

        Views read committed records only, so the topic was then recreated.
        """
        if not reading.past:
            self.past.pop((view, topic), None)
            return False
        return now_ms - self.past.setdefault((view, topic), now_ms) > STALE_MS

    def _lag(self, topic: str, positions: Mapping[int, int], now_ms: int) -> LagReading | None:
        """Return a topic's lag; unread partitions count from 0. None when some partition's end was never
        observed, or not recently."""
        rings = self.rings.get(topic, {})
        if len(rings) < self.counts.get(topic, 0):
            return None
        whole = {partition: positions.get(partition, 0) for partition in rings}
        return measure(topic, whole, rings, {}, LagTopicFacts(), {}, now_ms, [])

    # ---- queries

    def store_silent(self, now_ms: int) -> str | None:
        """Return why the views are unknown once the store has not answered for ``STALE_MS``; None before.

        Covers a store that hangs, which raises no error.
        """
        if self.store_at_ms is None or now_ms - self.store_at_ms <= STALE_MS:
            return None
        return self.store_error or f"it has not answered for {(now_ms - self.store_at_ms) / 1000:.0f} s"

    def store_trouble(self) -> str | None:
        """Return why the store cannot be read: its last error, or that it does not answer; None while it can
        be read."""
        with self.lock:
            return self.store_error or self.store_silent(self.now_ms())

    def overview(self) -> Overview:
        """Return the present moment, from memory."""
        now_ms = self.now_ms()
        with self.lock:
            silent = self.store_silent(now_ms)
            reports, readings, rows, subscribers = self.reports, self.readings, self.rows, self.subscribers
            if silent is not None:  # its previous values would look current
                reports = tuple(
                    replace(each, state="unknown", reason=silent, batch_ms=None, input_rows=None)
                    for each in reports
                )
                readings, rows, subscribers = {}, {}, {}
            return Overview(
                now_ms,
                KafkaHealth(self.bootstrap, self.answered_at_ms, self.kafka_error),
                self.store_error or silent,
                self.drawn if self.drawn is not None else topic_lines(self.rings, now_ms),
                tuple(
                    view_line(
                        report,
                        readings.get(report.view, {}),
                        self.watched_on,
                        self.rules,
                        now_ms,
                        rows=rows.get(report.view),
                        subscribers=subscribers.get(report.view),
                    )
                    for report in reports
                ),
                self.connect(),
                self.store_answered,
                self.cut_off(),
            )

    def line(self, topic: str) -> TopicLine | None:
        """Return one topic of any kind, with its history; None when the topic is unknown."""
        with self.lock:
            return topic_line(topic, self.rings, self.now_ms()) if topic in self.rings else None

    def other_lines(self, kind: str) -> tuple[TopicLine, ...]:
        """Return topics of a kind that the overview omits: DLQs and the hub's own topics."""
        if kind not in (TopicKind.internal, TopicKind.dead_letters):
            return ()
        now_ms = self.now_ms()
        with self.lock:
            return tuple(
                topic_line(name, self.rings, now_ms, 0)
                for name in sorted(self.rings)
                if kind_of(name) == kind
            )

    def batches(self, view: str) -> tuple[BatchSummary, ...]:
        """Return a view's last batches, newest first, sampled once a second; of several within a second, the
        last."""
        with self.lock:
            return tuple(reversed(self.committed.get(view, ())))

    def names(self) -> tuple[str, ...]:
        """Return the names of all known topics."""
        with self.lock:
            return tuple(self.rings)
