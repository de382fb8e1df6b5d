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

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError, PeerError
from hub.log import GroupDescription
from hub.observability.lag.anchors import Ring
from hub.observability.lag.consumers import (
    Consumer,
    ConsumerId,
    Hollow,
    LagRow,
    LagTopicFacts,
    Marks,
    PartitionState,
    Wait,
    measure,
    question,
    row_of,
)
from hub.observability.lag.judge import LagRules
from hub.observability.lag.states import SEVERITY, LagReading, LagState, LagVerdict, ReaderState
from hub.observability.lag.timed import answered
from hub.observability.lag.watching import WatchedConsumer, watch
from hub.observability.overview.collector import Collector
from hub.observability.overview.mirror_readers import MirrorReader, at_least, update_rings
from hub.observability.overview.reports import ViewReport
from hub.record import Positions, TopicPartition
from hub.runtime import repeating

log = logging.getLogger(__name__)

GROUPS = 5_000
# Groups under which the hub publishes positions of views and appliers for other tools; it measures these
# itself.
SHADOWS = ("hub.view.", "hub.store.")
UNLISTED = 3
TOPICS_A_ROUND = 2_000
FACTS_FOR_MS = 300_000
COMPACTED_FOR_MS = 300_000
BEGINNINGS = 20_000
QUESTIONS = 20_000
STEPS = 24
SUSPECTS = 64
SUSPECT_RECORDS = 100
PROBE_S = 3.0

Pair = tuple[ConsumerId, str]


class MonitoredCluster(Protocol):
    """Cluster operations that the monitor needs (hub.kafka.KafkaCluster)."""

    def groups(self) -> Sequence[str]: ...

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]: ...

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]: ...

    def beginnings_of(self, partitions: Iterable[TopicPartition]) -> Positions: ...

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions: ...

    def offsets_by_time(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]: ...

    def next_records(self, positions: Positions, timeout_s: float) -> Positions: ...

    def effective_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]: ...


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
    consumers: dict[ConsumerId, Consumer] = field(default_factory=dict)
    marks: dict[ConsumerId, dict[str, Marks]] = field(default_factory=dict)
    topics_of: dict[ConsumerId, frozenset[str | None]] = field(default_factory=dict)
    partitions: dict[str, dict[int, PartitionState]] = field(default_factory=dict)
    facts: dict[str, tuple[LagTopicFacts, int]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, int] = field(default_factory=dict)
    # For mirrors whose source is another cluster: the end offsets that workers reported.
    elsewhere: dict[ConsumerId, dict[str, dict[int, Ring]]] = field(default_factory=dict)
    turn: int = 0
    error: str | None = None
    round_s: float | None = None
    _rows: tuple[LagRow, ...] = ()

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

    def verdict_on(self, view: str, topic: str) -> LagVerdict | None:
        """Return the shown state of a view on a topic; None while it was not measured yet."""
        watched = self.watched.get((ConsumerId("view", view), topic))
        return None if watched is None else watched.shown

    # ---- a round

    def round(self) -> None:
        """Measure all consumers once; when Kafka is away, mark every row so."""
        try:
            consumers = self._everybody()
            self.collector.ask_kafka()
            if self.collector.kafka_error is not None:
                raise PeerError(self.collector.kafka_error)
            self._same_topics()
            self._learn_settings(consumers)
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

    def _everybody(self) -> list[Consumer]:
        """Return views, appliers and mirrors from their reports, then this round's slice of the groups."""
        now_ms = self.collector.now_ms()
        silent = self.collector.store_silent(now_ms)
        own = [each for report in self.collector.reports for each in self._of_view(report, silent)]
        own += [self._of_mirror(each) for each in self.mirrors(now_ms)]
        names = self._names()
        start = self.turn % max(1, len(names))
        some = names if len(names) <= GROUPS else (names + names)[start : start + GROUPS]
        self.turn = start + len(some) if len(names) > GROUPS else 0
        offsets = self.estate.group_offsets(some)
        described = self.estate.describe_groups(some)
        groups = [_group(name, offsets.get(name), described.get(name)) for name in some]
        known = {ConsumerId("group", name) for name in names} | {each.id for each in own}
        # When a topic is deleted, Kafka deletes the commits on it; the group stays listed for days and reads
        # nothing.
        nobody = {
            ConsumerId("group", name)
            for name, each in zip(some, groups, strict=True)
            if each is None and name in offsets and name not in self.unlisted
        }
        self._forget({id for id in self.consumers if id not in known or id in nobody})
        found = [*own, *(each for each in groups if each is not None)]
        self.consumers |= {each.id: each for each in found}
        return found

    def _names(self) -> list[str]:
        """Return the names of all groups. A group that is missing from a list is kept for a few rounds: a
        broker that is away takes its groups out of the list."""
        listed = {name for name in self.estate.groups() if not name.startswith(SHADOWS)}
        known = {id.name for id in self.consumers if id.kind == "group"}
        self.unlisted = {name: self.unlisted.get(name, 0) + 1 for name in known - listed}
        return sorted(listed | {name for name, rounds in self.unlisted.items() if rounds < UNLISTED})

    def _of_view(self, report: ViewReport, silent: str | None) -> Iterator[Consumer]:
        """Return a view and its applier as consumers. ``silent``: why the store does not report their
        positions.

        While the store is silent they are unknown: with the last positions they would seem stuck while their
        topics grow.
        """
        if silent is not None:
            trouble = f"the store cannot be read: {silent}"
            for kind in ("view", "applier") if report.applied else ("view",):
                yield Consumer(ConsumerId(kind, report.view), {}, owner=report.owner, trouble=trouble)
            return
        positions = _by_topic(report.positions) if report.positions is not None else {}
        # A view reads a partition from its start if it has no position there yet.
        counts = self.collector.counts
        whole = {
            topic: {
                partition: read.get(partition, 0)
                for partition in (range(counts[topic]) if topic in counts else read)
            }
            for topic, read in positions.items()
        }
        missing = {topic: "no batch is committed yet" for topic in report.topics if topic not in positions}
        yield Consumer(ConsumerId("view", report.view), whole, report.reader, report.owner, missing)
        if report.applied is not None and len(report.applied):
            yield Consumer(ConsumerId("applier", report.view), _by_topic(report.applied), owner=report.owner)

    def _of_mirror(self, mirror: MirrorReader) -> Consumer:
        id = mirror.consumer.id
        if mirror.ends is None:
            self.elsewhere.pop(id, None)
        else:
            before = self.elsewhere.get(id, {})
            kept = {topic: before[topic] for topic in before if topic in mirror.ends or not mirror.ends}
            self.elsewhere[id] = kept | {
                topic: update_rings(before.get(topic, {}), ends) for topic, ends in mirror.ends.items()
            }
        return mirror.consumer

    def _forget(self, gone: set[ConsumerId]) -> None:
        for id in gone:
            self.elsewhere.pop(id, None)
            self.consumers.pop(id, None)
            self.marks.pop(id, None)
            self.topics_of.pop(id, None)
        if gone:
            self.watched = {key: each for key, each in self.watched.items() if key[0] not in gone}

    def _same_topics(self) -> None:
        """Forget everything known about a topic that was recreated under the same name: it is another log."""
        ids = dict(self.collector.topic_ids)
        other = {name for name, topic_id in self.topic_ids.items() if ids.get(name) != topic_id}
        for name in other:
            self.partitions.pop(name, None)
            self.facts.pop(name, None)
            for marks in self.marks.values():
                marks.pop(name, None)
        if other:
            self.watched = {key: each for key, each in self.watched.items() if key[1] not in other}
        self.topic_ids = ids

    def _learn_settings(self, consumers: Iterable[Consumer]) -> None:
        now_ms = self.collector.now_ms()
        read = {topic for consumer in consumers for topic in consumer.positions if topic in self.topic_ids}
        due = [
            name for name in read if name not in self.facts or self.facts[name][1] <= now_ms - FACTS_FOR_MS
        ]
        due.sort(key=lambda name: self.facts[name][1] if name in self.facts else 0)
        some = due[:TOPICS_A_ROUND]
        try:
            found = self.estate.effective_config(some)
        except HubError as error:  # without settings the brackets are wider, but still valid
            log.debug("settings of topics were not told: %s", error.message)
            return
        for name, config in found.items():
            self.facts[name] = (LagTopicFacts.of(config), now_ms)

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
            try:
                self._learn_beginnings(waits)
                self._ask_times(waits, now_ms)
            except HubError as error:
                # The ends were just fetched, so Kafka is up; a single partition may have no leader.
                log.debug("what waits could not be narrowed down: %s", error.message)
            self._look_at(waits, now_ms)
            for consumer, topic in late:
                again = self._reading(consumer, topic, now_ms, [])
                if again is not None:
                    readings[consumer.id][topic] = again
        return readings

    def _reading(self, consumer: Consumer, topic: str, now_ms: int, waits: list[Wait]) -> LagReading | None:
        if consumer.id in self.elsewhere:
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
        return measure(
            topic,
            consumer.positions[topic],
            rings,
            self.partitions.get(topic, {}),
            self._facts(topic),
            marks,
            now_ms,
            waits,
        )

    def _of_another_cluster(self, consumer: Consumer, topic: str, now_ms: int) -> LagReading | None:
        """Measure a mirror by its workers' reports of another cluster; a topic of the same name here is the
        copy."""
        positions, rings = consumer.positions[topic], self.elsewhere[consumer.id].get(topic, {})
        marks = self.marks.setdefault(consumer.id, {}).setdefault(topic, {})
        found = measure(topic, positions, rings, {}, LagTopicFacts(), marks, now_ms, [])
        return found or at_least(positions, rings, now_ms)

    def _facts(self, topic: str) -> LagTopicFacts:
        return self.facts[topic][0] if topic in self.facts else LagTopicFacts()

    def _ring(self, wait: Wait) -> Ring:
        return self.collector.rings.get(wait.topic, {}).get(wait.partition, ())

    def _about(self, topic: str, partition: int) -> PartitionState:
        return self.partitions.setdefault(topic, {}).setdefault(partition, PartitionState())

    def _learn_beginnings(self, waits: Sequence[Wait]) -> None:
        """Fetch the beginnings of partitions in which records wait; in a large estate, those with the longest
        wait first."""
        wanted = {TopicPartition(wait.topic, wait.partition): wait.low_s for wait in waits}
        some = sorted(wanted, key=lambda tp: -wanted[tp])[:BEGINNINGS] if len(wanted) > BEGINNINGS else wanted
        for tp, offset in self.estate.beginnings_of(some):
            self._about(tp.topic, tp.partition).beginning = offset

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
                about, facts = self._about(wait.topic, wait.partition), self._facts(wait.topic)
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
            for tp, offset in self.estate.offsets_by_time(wanted).items():
                # None: no record is that recent, so all existing ones are older.
                found = ends[tp] if offset is None else offset
                answered(self._about(tp.topic, tp.partition).answers, wanted[tp], found)
            budget -= len(wanted)
            open_ones = again
            if budget <= 0:
                return

    def _look_at(self, waits: Sequence[Wait], now_ms: int) -> None:
        """Look up the next existing record of lags that do not move. A short lag may consist of transaction
        markers only, and on a compacted topic many offsets may be gone."""
        suspects: dict[TopicPartition, Wait] = {}
        for wait in waits:
            about = self._about(wait.topic, wait.partition)
            short = wait.end - wait.position <= SUSPECT_RECORDS
            if wait.idle_s < self.rules.sample_s or not (short or self._facts(wait.topic).compacted):
                continue
            if about.hollow is not None and about.hollow == Hollow(wait.position, wait.position):
                continue
            suspects.setdefault(TopicPartition(wait.topic, wait.partition), wait)
        if not suspects:
            return
        # Longest unchecked first: some partitions may never answer, and must not starve the others.
        some = sorted(suspects, key=lambda tp: self._about(*tp).looked_at_ms)[:SUSPECTS]
        suspects = {tp: suspects[tp] for tp in some}
        for tp in some:
            self._about(*tp).looked_at_ms = now_ms
        asked = Positions({tp: wait.position for tp, wait in suspects.items()})
        try:
            found = self.estate.next_records(asked, PROBE_S)
        except HubError as error:
            log.debug("suspects could not be looked at: %s", error.message)
            return
        for tp, offset in found:
            about, start = self._about(tp.topic, tp.partition), suspects[tp].position
            joined = about.hollow is not None and about.hollow.until == start
            about.hollow = Hollow(about.hollow.start if joined and about.hollow else start, offset)

    # ---- states and rows

    def _watch(self, consumer: Consumer, readings: Mapping[str, LagReading], now_ms: int) -> None:
        known = self.topics_of.get(consumer.id, frozenset())
        said: dict[str | None, str] = {
            topic: "some of its partitions do not answer" if topic in self.topic_ids else "its topic is gone"
            for topic in consumer.positions
        }
        said.update(consumer.missing.items())
        if consumer.trouble:  # its topics are unknown now, but not gone
            said = dict.fromkeys(known or [None], consumer.trouble)
        if not said:
            said[None] = "it has committed nothing"
        for topic, why_not in said.items():
            if topic is not None and topic.startswith("__"):
                continue
            key = (consumer.id, topic)
            before = self.watched.get(key, WatchedConsumer())
            reading = None if topic is None else readings.get(topic)
            own = consumer.id not in self.elsewhere
            if own and reading is not None and reading.past and self._past(consumer, topic or ""):
                reading, why_not = None, "its position lies past the topic's end: was the topic made again?"
            self.watched[key] = watch(before, reading, consumer.reader_of(topic), now_ms, self.rules, why_not)
        for topic in known - said.keys():
            self.watched.pop((consumer.id, topic), None)
            self.marks.get(consumer.id, {}).pop(topic or "", None)
        self.topics_of[consumer.id] = frozenset(said)

    def _past(self, consumer: Consumer, topic: str) -> bool:
        """Return whether the position is past the end for uncommitted readers too, who may be ahead of the
        last stable offset."""
        wanted = [TopicPartition(topic, partition) for partition in consumer.positions[topic]]
        try:
            ends = self.estate.ends_of(wanted)
        except HubError:
            return False
        return any(tp in ends.offsets and consumer.positions[topic][tp.partition] > end for tp, end in ends)

    def _away(self, message: str) -> None:
        self.error = message
        now_ms = self.collector.now_ms()
        for (id, topic), watched in list(self.watched.items()):
            reader = self.consumers[id].reader if id in self.consumers else ReaderState()
            unheard = ReaderState(None, None, reader.members, reader.committed_at_ms)
            self.watched[id, topic] = watch(watched, None, unheard, now_ms, self.rules, message)
        self._show()

    def _show(self) -> None:
        rows = [
            row_of(consumer, topic, watched, consumer.owner or (self.owner_of(topic) if topic else ""))
            for (id, topic), watched in self.watched.items()
            if (consumer := self.consumers.get(id)) is not None
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


def _group(
    name: str, positions: Positions | HubError | None, described: GroupDescription | None
) -> Consumer | None:
    """Return a group as a consumer; None when it has no commits and no members."""
    members = described.members if described is not None else None
    connected = described is not None and members != 0
    reader = ReaderState(members=members, connected=connected)
    id = ConsumerId("group", name)
    if isinstance(positions, HubError):
        return Consumer(id, {}, reader, trouble=positions.message)
    read = _by_topic(positions or Positions())
    assigned = described.topics if described is not None else frozenset()
    missing = {topic: "it has committed nothing" for topic in assigned if topic not in read}
    if not read and not missing and not connected:
        return None
    return Consumer(id, read, reader, missing=missing)


def _by_topic(positions: Positions) -> dict[str, dict[int, int]]:
    grouped: dict[str, dict[int, int]] = {}
    for tp, offset in positions:
        grouped.setdefault(tp.topic, {})[tp.partition] = offset
    return grouped
