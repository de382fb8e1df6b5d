"""[shell] Measure every consumer in rounds: groups, views, appliers, mirrors. ``rows()`` returns the last
round's rows.

A round, in bounded bulk requests::

    groups, their commits and members    in slices of GROUPS; the rest follows in the next rounds
    ends                                 the collector's poll, after the commits: none is past the end
    settings of topics                   a slice, refreshed after some minutes
    measure → beginnings of late partitions → timestamp lookups, a few steps → measure late ones again
    suspects                             short lags that do not move: does a record exist there?
    watch → rows, worst first

The rounds run in a thread of their own; requests only read the rows. When Kafka is away, every row becomes
unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import PeerError
from hub.observability.lag.consumers import (
    Consumer,
    ConsumerId,
    LagRow,
    LagTopicFacts,
    Marks,
    Wait,
    measure,
    row_of,
)
from hub.observability.lag.held_back import HeldBack, held_back, with_held_back
from hub.observability.lag.judge import LagRules
from hub.observability.lag.states import SEVERITY, LagReading, LagState, ReaderState
from hub.observability.lag.watching import WatchedConsumer, watch
from hub.observability.overview.collector import Collector
from hub.observability.overview.consumer_list import ConsumerList, GroupCluster
from hub.observability.overview.mirror_readers import MirrorReader, at_least
from hub.observability.overview.partition_facts import LookupCluster, PartitionFacts
from hub.record import Positions, TopicPartition
from hub.runtime import repeating


class MonitoredCluster(GroupCluster, LookupCluster, Protocol):
    """Cluster operations that the monitor needs (hub.kafka.KafkaCluster)."""

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions: ...


@dataclass
class Monitor:
    """Measures all consumers of ``estate``. End offsets and the views' reports come from ``collector``.

    ``owner_of``: returns the owner of a topic. ``mirrors``: returns the mirrors as of a time (epoch ms),
    without blocking.
    """

    estate: MonitoredCluster
    collector: Collector
    rules: LagRules = field(default_factory=LagRules)
    owner_of: Callable[[str], str] = lambda _topic: ""
    mirrors: Callable[[int], Iterable[MirrorReader]] = lambda _now_ms: ()
    watched: dict[tuple[ConsumerId, str | None], WatchedConsumer] = field(default_factory=dict)
    marks: dict[ConsumerId, dict[str, Marks]] = field(default_factory=dict)
    topics_of: dict[ConsumerId, frozenset[str | None]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    watermarks: Mapping[TopicPartition, int] = field(default_factory=dict)
    held_back: Mapping[TopicPartition, HeldBack] = field(default_factory=dict)
    error: str | None = None
    round_s: float | None = None
    _rows: tuple[LagRow, ...] = ()

    def __post_init__(self) -> None:
        self.listed = ConsumerList(self.estate, self.collector, self.mirrors)
        self._partitions = PartitionFacts(self.estate, self.collector, self.rules.sample_s)

    @contextmanager
    def running(self) -> Iterator[Monitor]:
        """Run a round every ``rules.sample_s`` for as long as the block runs."""
        with repeating(
            self._timed_round, name="lag", pause_s=self._pause_s, failed="lag could not be measured"
        ):
            yield self

    def _timed_round(self) -> None:
        began_s = time.monotonic()
        try:
            self.round()
        finally:
            self.round_s = time.monotonic() - began_s

    def _pause_s(self, took_s: float) -> float:
        """Return the pause after a round: at least as long as the round took (up to 60 s), so that half of
        the time is left free."""
        return max(self.rules.sample_s - took_s, min(took_s, 60.0))

    def rows(self) -> tuple[LagRow, ...]:
        """Return one row for each consumer and topic, worst first."""
        return self._rows

    def watched_on(self, view: str, topic: str) -> WatchedConsumer | None:
        """Return a view on a topic under watch, with its shown state; None while it was not measured yet."""
        return self.watched.get((ConsumerId("view", view), topic))

    # ---- a round

    def round(self) -> None:
        """Measure all consumers once; when Kafka is away, mark every row so."""
        try:
            consumers, gone = self.listed.refresh()
            self._forget(gone)
            self.collector.ask_kafka()
            if self.collector.kafka_error is not None:
                raise PeerError(self.collector.kafka_error)
            self._same_topics()
            read = {topic for each in consumers for topic in each.positions if topic in self.topic_ids}
            self._partitions.learn_settings(read, self.collector.now_ms())
            self._learn_watermarks(read)
            readings = self._measured(consumers)
        except PeerError as error:
            self._away(error.message)
            return
        except Exception as error:  # any failure: the previous rows would look current
            self._away(f"{type(error).__name__}: {error}")
            raise
        self.error = None
        now_ms = self.collector.now_ms()
        for consumer in consumers:
            self._watch(consumer, readings.get(consumer.id, {}), now_ms)
        self._show()

    def _forget(self, gone: set[ConsumerId]) -> None:
        for id in gone:
            self.marks.pop(id, None)
            self.topics_of.pop(id, None)
        if gone:
            self.watched = {key: each for key, each in self.watched.items() if key[0] not in gone}

    def _same_topics(self) -> None:
        """Forget everything known about a topic that was recreated under the same name: it is another log."""
        ids = dict(self.collector.topic_ids)
        other = {name for name, topic_id in self.topic_ids.items() if ids.get(name) != topic_id}
        self._partitions.forget(other)
        for name in other:
            for marks in self.marks.values():
                marks.pop(name, None)
        if other:
            self.watched = {key: each for key, each in self.watched.items() if key[1] not in other}
        self.topic_ids = ids

    def _learn_watermarks(self, topics: Iterable[str]) -> None:
        """Read the ends for uncommitted readers, and which records an open transaction holds back."""
        stable = {
            TopicPartition(topic, partition): ring[-1].end
            for topic in topics
            for partition, ring in self.collector.rings.get(topic, {}).items()
            if ring
        }
        self.watermarks = self.estate.ends_of(stable).offsets if stable else {}
        self.held_back = held_back(self.held_back, stable, self.watermarks, self.collector.now_ms())

    def _measured(self, consumers: Sequence[Consumer]) -> dict[ConsumerId, dict[str, LagReading]]:
        """Return a reading of each consumer on each topic; late ones are measured again after narrowing their
        brackets."""
        now_ms = self.collector.answered_at_ms or self.collector.now_ms()
        readings: dict[ConsumerId, dict[str, LagReading]] = {}
        waits: list[Wait] = []
        late: list[tuple[Consumer, str]] = []
        for consumer in consumers:
            mine = readings[consumer.id] = {}
            for topic in consumer.positions:
                before = len(waits)
                reading = self._reading(consumer, topic, now_ms, waits)
                if reading is not None:
                    mine[topic] = reading
                if len(waits) > before:
                    late.append((consumer, topic))
        if waits:
            self._partitions.narrow(waits, now_ms)
            for consumer, topic in late:
                again = self._reading(consumer, topic, now_ms, [])
                if again is not None:
                    readings[consumer.id][topic] = again
        return readings

    def _reading(self, consumer: Consumer, topic: str, now_ms: int, waits: list[Wait]) -> LagReading | None:
        if consumer.id in self.listed.elsewhere:
            return self._of_another_cluster(consumer, topic, now_ms)
        rings = self.collector.rings.get(topic)
        if rings is None or topic not in self.topic_ids:
            return None
        many = self.collector.counts.get(topic, 0)
        if len(rings) < many and any(
            each < many and not rings.get(each) for each in consumer.positions[topic]
        ):
            return None  # a partition had no leader since the hub started: its lag is unknown, not zero
        marks = self.marks.setdefault(consumer.id, {}).setdefault(topic, {})
        found = measure(
            topic,
            consumer.positions[topic],
            rings,
            self._partitions.partitions.get(topic, {}),
            self._partitions.facts_of(topic),
            marks,
            now_ms,
            waits,
        )
        if found is None:
            return None
        read = (TopicPartition(topic, each) for each in consumer.positions[topic])
        return with_held_back(found, self.held_back, read, now_ms)

    def _of_another_cluster(self, consumer: Consumer, topic: str, now_ms: int) -> LagReading | None:
        """Measure a mirror by its workers' reports of another cluster; a topic of the same name here is the
        copy."""
        positions, rings = consumer.positions[topic], self.listed.elsewhere[consumer.id].get(topic, {})
        marks = self.marks.setdefault(consumer.id, {}).setdefault(topic, {})
        found = measure(topic, positions, rings, {}, LagTopicFacts(), marks, now_ms, [])
        return found or at_least(positions, rings, now_ms)

    # ---- states and rows

    def _watch(self, consumer: Consumer, readings: Mapping[str, LagReading], now_ms: int) -> None:
        known = self.topics_of.get(consumer.id, frozenset())
        reasons: dict[str | None, str] = {
            topic: "some of its partitions do not answer" if topic in self.topic_ids else "its topic is gone"
            for topic in consumer.positions
        }
        reasons.update(consumer.missing.items())
        if consumer.trouble:  # its topics are unknown now, but not gone
            reasons = dict.fromkeys(known or [None], consumer.trouble)
        if not reasons:
            reasons[None] = "it has committed nothing"
        for topic, why_not in reasons.items():
            if topic is not None and topic.startswith("__"):
                continue
            key = (consumer.id, topic)
            before = self.watched.get(key, WatchedConsumer())
            reading = None if topic is None else readings.get(topic)
            own = consumer.id not in self.listed.elsewhere
            if own and reading is not None and reading.past and self._past(consumer, topic or ""):
                reading, why_not = (
                    None,
                    "its position is past the topic's end: check whether the topic was recreated",
                )
            self.watched[key] = watch(before, reading, consumer.reader_of(topic), now_ms, self.rules, why_not)
        for topic in known - reasons.keys():
            self.watched.pop((consumer.id, topic), None)
            self.marks.get(consumer.id, {}).pop(topic or "", None)
        self.topics_of[consumer.id] = frozenset(reasons)

    def _past(self, consumer: Consumer, topic: str) -> bool:
        """Return whether the position is past the end for uncommitted readers too, who may be ahead of the
        last stable offset."""
        return any(
            (end := self.watermarks.get(TopicPartition(topic, partition))) is not None and position > end
            for partition, position in consumer.positions[topic].items()
        )

    def _away(self, message: str) -> None:
        self.error = message
        now_ms = self.collector.now_ms()
        for (id, topic), watched in list(self.watched.items()):
            reader = self.listed.consumers[id].reader if id in self.listed.consumers else ReaderState()
            unheard = ReaderState(None, None, reader.members, reader.committed_at_ms)
            self.watched[id, topic] = watch(watched, None, unheard, now_ms, self.rules, message)
        self._show()

    def _show(self) -> None:
        rows = [
            row_of(consumer, topic, watched, consumer.owner or (self.owner_of(topic) if topic else ""))
            for (id, topic), watched in self.watched.items()
            if (consumer := self.listed.consumers.get(id)) is not None
        ]
        rows.sort(key=worst_first)
        self._rows = tuple(rows)


def worst_first(row: LagRow) -> tuple[int, float, int, str, str]:
    """Sort key of all lists: state, then seconds, then records."""
    return (
        SEVERITY[LagState(row.state)],
        -(row.seconds or 0.0),
        -(row.records or 0),
        row.name,
        row.topic or "",
    )
