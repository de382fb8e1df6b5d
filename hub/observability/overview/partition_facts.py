"""[shell] Facts about partitions besides their ends: settings of their topics, beginnings, offsets by
time, and ranges without records. Each is looked up in bounded bulk requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError
from hub.observability.lag.anchors import Ring
from hub.observability.lag.consumers import Hollow, LagTopicFacts, PartitionLagState, Wait, question
from hub.observability.lag.timed import answered
from hub.observability.overview.collector import Collector
from hub.record import Positions, TopicPartition

log = logging.getLogger(__name__)

TOPICS_A_ROUND = 2_000
FACTS_FOR_MS = 300_000
COMPACTED_FOR_MS = 300_000
BEGINNINGS = 20_000
QUESTIONS = 20_000
STEPS = 24
SUSPECTS = 64
SUSPECT_RECORDS = 100
PROBE_S = 3.0


class LookupCluster(Protocol):
    """Cluster operations that the lookups need (hub.kafka.KafkaCluster)."""

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions: ...

    def offsets_by_time(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]: ...

    def next_records(self, positions: Positions, timeout_s: float) -> Positions: ...

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]: ...


@dataclass
class PartitionFacts:
    """Facts about the partitions of ``cluster``, whose ends ``collector`` polls. ``sample_s``: pause between
    two rounds."""

    cluster: LookupCluster
    collector: Collector
    sample_s: float
    partitions: dict[str, dict[int, PartitionLagState]] = field(default_factory=dict)
    facts: dict[str, tuple[LagTopicFacts, int]] = field(default_factory=dict)

    def facts_of(self, topic: str) -> LagTopicFacts:
        """Return the settings of a topic; the defaults while they are unknown."""
        return self.facts[topic][0] if topic in self.facts else LagTopicFacts()

    def forget(self, topics: Iterable[str]) -> None:
        """Forget all about topics that were recreated."""
        for name in topics:
            self.partitions.pop(name, None)
            self.facts.pop(name, None)

    def learn_settings(self, read: Iterable[str], now_ms: int) -> None:
        """Look up the settings of topics that are due, a slice of them."""
        due = [
            name for name in read if name not in self.facts or self.facts[name][1] <= now_ms - FACTS_FOR_MS
        ]
        due.sort(key=lambda name: self.facts[name][1] if name in self.facts else 0)
        some = due[:TOPICS_A_ROUND]
        try:
            found = self.cluster.effective_config(some)
        except HubError as error:  # without settings the brackets are wider, but still valid
            log.debug("settings of topics could not be read: %s", error.message)
            return
        for name, config in found.items():
            self.facts[name] = (LagTopicFacts.of(config), now_ms)

    def narrow(self, waits: Sequence[Wait], now_ms: int) -> None:
        """Look up what narrows the brackets of the waits: beginnings, offsets by time, existing records."""
        try:
            self._learn_beginnings(waits)
            self._ask_times(waits, now_ms)
        except HubError as error:
            # The ends were just fetched, so Kafka is up; a single partition may have no leader.
            log.debug("what waits could not be narrowed down: %s", error.message)
        self._look_at(waits, now_ms)

    def _ring(self, wait: Wait) -> Ring:
        return self.collector.rings.get(wait.topic, {}).get(wait.partition, ())

    def _of(self, topic: str, partition: int) -> PartitionLagState:
        return self.partitions.setdefault(topic, {}).setdefault(partition, PartitionLagState())

    def _learn_beginnings(self, waits: Sequence[Wait]) -> None:
        """Fetch the beginnings of partitions in which records wait; in a large estate, those with the longest
        wait first."""
        wanted = {TopicPartition(wait.topic, wait.partition): wait.low_s for wait in waits}
        some = sorted(wanted, key=lambda tp: -wanted[tp])[:BEGINNINGS] if len(wanted) > BEGINNINGS else wanted
        for tp, offset in self.cluster.beginnings_of(some):
            self._of(tp.topic, tp.partition).beginning = offset

    def _ask_times(self, waits: Sequence[Wait], now_ms: int) -> None:
        """Narrow the brackets: one timestamp lookup a partition and step, the longest waits first, within a
        budget."""
        open_ones, budget = sorted(waits, key=lambda wait: -wait.low_s), QUESTIONS
        for _ in range(STEPS):
            wanted: dict[TopicPartition, int] = {}
            ends: dict[TopicPartition, int] = {}
            again: list[Wait] = []
            for wait in open_ones:
                tp = TopicPartition(wait.topic, wait.partition)
                ring = self._ring(wait)
                about, facts = self._of(wait.topic, wait.partition), self.facts_of(wait.topic)
                if facts.compacted and now_ms - about.answers_since_ms > COMPACTED_FOR_MS:
                    about.answers.clear()  # compaction may have removed the records of these answers
                    about.answers_since_ms = now_ms
                if about.answers and about.answers[-1][0] > now_ms:
                    about.answers.clear()  # looked up before the local clock was set back
                at_ms = question(wait, ring, about, facts, now_ms) if ring else None
                if at_ms is None:
                    continue
                again.append(wait)
                wanted.setdefault(tp, at_ms)
                ends[tp] = ring[-1].end
                if len(wanted) >= budget:
                    break
            if not wanted:
                return
            for tp, offset in self.cluster.offsets_by_time(wanted).items():
                # None: no record is that recent, so all existing ones are older.
                found = ends[tp] if offset is None else offset
                answered(self._of(tp.topic, tp.partition).answers, wanted[tp], found)
            budget -= len(wanted)
            open_ones = again
            if budget <= 0:
                return

    def _look_at(self, waits: Sequence[Wait], now_ms: int) -> None:
        """Look up the next existing record of lags that do not move. A short lag may consist of transaction
        markers only, and on a compacted topic many offsets may be gone."""
        suspects: dict[TopicPartition, Wait] = {}
        for wait in waits:
            about = self._of(wait.topic, wait.partition)
            short = wait.end - wait.position <= SUSPECT_RECORDS
            if wait.idle_s < self.sample_s or not (short or self.facts_of(wait.topic).compacted):
                continue
            if about.hollow is not None and about.hollow == Hollow(wait.position, wait.position):
                continue
            suspects.setdefault(TopicPartition(wait.topic, wait.partition), wait)
        if not suspects:
            return
        # Longest unchecked first: some partitions may never answer, and must not starve the others.
        some = sorted(suspects, key=lambda tp: self._of(*tp).looked_at_ms)[:SUSPECTS]
        suspects = {tp: suspects[tp] for tp in some}
        for tp in some:
            self._of(*tp).looked_at_ms = now_ms
        positions = Positions({tp: wait.position for tp, wait in suspects.items()})
        try:
            found = self.cluster.next_records(positions, PROBE_S)
        except HubError as error:
            log.debug("suspects could not be looked at: %s", error.message)
            return
        for tp, offset in found:
            about, start = self._of(tp.topic, tp.partition), suspects[tp].position
            joined = about.hollow is not None and about.hollow.until == start
            about.hollow = Hollow(about.hollow.start if joined and about.hollow else start, offset)
