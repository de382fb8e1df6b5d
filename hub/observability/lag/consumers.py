"""[core] Lag of all consumers by one model: consumer groups, views, appliers and mirrors.

``measure`` combines a partition's end (poll anchors), its beginning, its timestamps (timestamp anchors) and
the consumer's position into one ``LagReading`` per consumer and topic. Rules:

- a position before the log's beginning is clamped to it, and the difference is counted as lost
- a range known to hold no readable record (transaction markers, aborted records) is skipped: no phantom lag
- timestamps narrow a bracket where the broker writes them (``LogAppendTime``); where producers do
  (``CreateTime``) they are used only for records that arrived before the first poll, and the reading then has
  ``basis`` "create_time"
- on a compacted topic a poll proves only the upper bound: the record at the position may be gone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from hub.observability.lag.anchors import Bracket, Ring, arrival
from hub.observability.lag.states import LagReading, ReaderState
from hub.observability.lag.timed import Answers, edges, next_question
from hub.observability.lag.watching import WatchedConsumer


class ConsumerId(NamedTuple):
    """Identity of a consumer. ``kind``: ``view``, ``applier`` (writes a view into its store), ``group`` or
    ``mirror``."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """One reader of the log.

    ``positions``: next-to-read offsets by topic and partition. ``missing``: by topic, why it has no position
    there. ``trouble``: why its positions are unknown altogether. ``readers``: state by topic, where it
    differs from ``reader``.
    """

    id: ConsumerId
    positions: Mapping[str, Mapping[int, int]]
    reader: ReaderState = field(default_factory=ReaderState)
    owner: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    readers: Mapping[str, ReaderState] = field(default_factory=dict)

    def reader_of(self, topic: str | None) -> ReaderState:
        """Return the state of the reader of a topic."""
        return self.reader if topic is None else self.readers.get(topic, self.reader)


@dataclass(frozen=True, slots=True)
class LagTopicFacts:
    """Settings of a topic that affect lag. ``retention_s`` None: records are not deleted by age."""

    append_time: bool = False
    compacted: bool = False
    retention_s: float | None = None

    @classmethod
    def of(cls, config: Mapping[str, str | None]) -> LagTopicFacts:
        """Build from Kafka's topic settings, defaults included."""
        policy = config.get("cleanup.policy") or "delete"
        retention_ms = int(config.get("retention.ms") or -1)
        return cls(
            config.get("message.timestamp.type") == "LogAppendTime",
            "compact" in policy,
            retention_ms / 1000 if "delete" in policy and retention_ms > 0 else None,
        )


class Hollow(NamedTuple):
    """Range of offsets without readable records, from ``start`` up to ``until``.

    ``start == until``: the offset was checked and holds a record.
    """

    start: int
    until: int


@dataclass(slots=True)
class PartitionLagState:
    """Knowledge about one partition besides its poll anchors."""

    beginning: int | None = None
    answers: Answers = field(default_factory=list)
    answers_since_ms: int = 0
    hollow: Hollow | None = None
    looked_at_ms: int = 0  # time of the last lookup of the next record

    def skipped(self, position: int) -> int:
        """Return the position, moved past a range known to hold no records."""
        if self.hollow is None or position < self.hollow.start:
            return position
        return max(position, self.hollow.until)


NOTHING_KNOWN = PartitionLagState()
# An end offset older than this is not used.
STALE_MS = 60_000


@dataclass(slots=True)
class PositionMark:
    """A consumer's position in a partition over time: unchanged since ``since_ms``; ``high``: the highest
    position so far."""

    position: int
    since_ms: int
    high: int


class Wait(NamedTuple):
    """A partition in which a consumer is behind, as input to the lookups that narrow its bracket."""

    topic: str
    partition: int
    committed: int
    position: int
    end: int
    low_s: float
    idle_s: float


Marks = dict[int, PositionMark]


@dataclass(slots=True)
class _Totals:
    """Sums and extremes over the partitions of a topic; the fields are those of ``LagReading``."""

    now_ms: int
    known: bool = False
    past: bool = False
    position: int = 0
    end: int = 0
    records: int = 0
    lost: int = 0
    rewound: int = 0
    low_s: float = 0.0
    high_s: float = 0.0
    unbounded: bool = False
    likely_s: float = 0.0
    idle_s: float = 0.0
    idle_partition: int | None = None
    headroom: int | None = None
    basis: str = "arrival"

    def count(self, mark: PositionMark, end: int, about: PartitionLagState) -> int:
        """Count a partition, and return the offset of the first record that may wait in it."""
        committed = position = mark.position
        self.known = True
        self.position += committed
        self.end += end
        self.past = self.past or committed > end
        self.rewound += mark.high - committed
        if about.beginning is not None and committed < about.beginning:
            self.lost += about.beginning - committed
            position = about.beginning
        return about.skipped(position)

    def count_waiting(self, wait: Wait, high_s: float | None, likely_s: float | None, basis: str) -> None:
        """Count a partition in which records wait, the oldest for up to ``high_s``, probably ``likely_s``."""
        self.records += wait.end - wait.position
        self.low_s = max(self.low_s, wait.low_s)
        if high_s is None:
            self.unbounded = True
        else:
            self.high_s = max(self.high_s, high_s)
            self.likely_s = max(self.likely_s, (wait.low_s + high_s) / 2 if likely_s is None else likely_s)
        self.basis = basis
        if wait.idle_s > self.idle_s:
            self.idle_s, self.idle_partition = wait.idle_s, wait.partition

    def reading(self, partitions: int, retention_s: float | None) -> LagReading:
        return LagReading(
            self.now_ms,
            self.position,
            self.end,
            self.records,
            self.low_s,
            None if self.unbounded and self.records else self.high_s,
            self.lost,
            self.rewound,
            self.idle_s,
            self.idle_partition if partitions > 1 else None,
            self.headroom,
            retention_s,
            self.basis,
            self.likely_s,
            self.past,
        )


def measure(
    topic: str,
    positions: Mapping[int, int],
    rings: Mapping[int, Ring],
    partitions: Mapping[int, PartitionLagState],
    facts: LagTopicFacts,
    marks: Marks,
    now_ms: int,
    waits: list[Wait],
) -> LagReading | None:
    """Return one reading; None when no partition's end is known, or one is older than ``STALE_MS``.

    Updates ``marks`` and appends the partitions in which records wait to ``waits``. A single pass: a large
    estate has hundreds of thousands of these pairs.
    """
    totals = _Totals(now_ms)
    for partition, committed in positions.items():
        ring = rings.get(partition)
        if not ring:
            continue
        newest = ring[-1]
        if now_ms - newest.still_ms > STALE_MS:
            return None
        mark = _moved(marks, partition, committed, newest.end, now_ms)
        about = partitions.get(partition, NOTHING_KNOWN)
        position = totals.count(mark, newest.end, about)
        if position >= newest.end:
            # Nothing waits as of the last poll; later arrivals are unknown.
            totals.high_s = max(totals.high_s, (now_ms - newest.still_ms) / 1000)
            continue
        polled = arrival(ring, position)
        bracket, basis = oldest(polled, about.answers, position, facts, newest.end)
        low_s, high_s, likely_s = bracket.waited(position, now_ms)
        # Time for which it was observed both waiting and not moving.
        still_s = (now_ms - max(mark.since_ms, polled.until_ms or now_ms)) / 1000
        wait = Wait(topic, partition, committed, position, newest.end, low_s, still_s)
        totals.count_waiting(wait, high_s, likely_s, basis)
        if about.beginning is not None:
            headroom = position - about.beginning
            totals.headroom = headroom if totals.headroom is None else min(totals.headroom, headroom)
        waits.append(wait)
    return totals.reading(len(positions), facts.retention_s) if totals.known else None


def _moved(marks: Marks, partition: int, committed: int, end: int, now_ms: int) -> PositionMark:
    """Return the partition's mark in ``marks``, moved to the committed position."""
    mark = marks.get(partition)
    if mark is None:
        mark = marks[partition] = PositionMark(committed, now_ms, committed)
    elif mark.position != committed:
        mark.position, mark.since_ms = committed, now_ms
        mark.high = max(mark.high, committed)
    elif mark.since_ms > now_ms:  # the local clock was set back
        mark.since_ms = now_ms
    mark.high = max(committed, min(mark.high, end))  # nothing past the end was ever read
    return mark


def question(
    wait: Wait, ring: Ring, about: PartitionLagState, facts: LagTopicFacts, now_ms: int
) -> int | None:
    """Return the time whose offset would narrow the bracket of a wait; None when it is narrow enough, or
    cannot be narrowed."""
    position = about.skipped(max(wait.committed, about.beginning or 0))
    polled = arrival(ring, position)
    if not facts.append_time and not facts.compacted and polled.after_ms is not None:
        return None
    end = ring[-1].end
    compacted_to = end if facts.compacted else None
    bracket, _ = oldest(polled, about.answers, position, facts, end)
    if not facts.append_time:
        bracket = edges(about.answers, position, compacted_to)
    return next_question(about.answers, position, now_ms, bracket, compacted_to)


def oldest(
    polled: Bracket, answers: Answers, position: int, facts: LagTopicFacts, end: int
) -> tuple[Bracket, str]:
    """Return the narrowest proven bracket of the oldest unread record's arrival, and its basis."""
    there_ms = polled.until_ms
    if facts.compacted:
        polled = Bracket(polled.after_ms, None)
    if not answers:
        return polled, "arrival"
    written = edges(answers, position, end if facts.compacted else None)
    if facts.append_time:
        return _both(polled, written), "arrival"
    if polled.after_ms is not None and not facts.compacted:
        return polled, "arrival"
    # A record is written before it arrives: a poll is an upper bound only.
    until_ms, until_end = written.until_ms, written.until_end
    if until_ms is None:
        until_ms, until_end = polled.until_ms, polled.until_end
    after_ms, after_end = written.after_ms, written.after_end
    if after_ms is not None and there_ms is not None and after_ms > there_ms:
        # It arrived before its timestamp: a producer's clock that is ahead must not make it look young.
        after_ms, after_end = None, None
        if not facts.compacted:
            until_ms, until_end = polled.until_ms, polled.until_end
    if facts.compacted and polled.after_ms is not None and (after_ms is None or after_ms < polled.after_ms):
        after_ms, after_end = polled.after_ms, polled.after_end
    if after_ms is not None and until_ms is not None and until_ms < after_ms:
        until_ms = None  # the producer's clock is not ours
    return Bracket(after_ms, until_ms, after_end, until_end), "create_time"


def _both(polled: Bracket, written: Bracket) -> Bracket:
    """Return the intersection of both brackets; where the clocks of broker and hub contradict each other, the
    union.

    Where each bracket has only one end, and these contradict, the upper bound of the wait is unknown.
    """
    both = (polled, written)
    after = [(each.after_ms, each.after_end) for each in both if each.after_ms is not None]
    until = [(each.until_ms, each.until_end) for each in both if each.until_ms is not None]
    by_time = itemgetter(0)  # ends may be None and are not comparable
    first, last = max(after, key=by_time, default=(None, None)), min(until, key=by_time, default=(None, None))
    if first[0] is not None and last[0] is not None and first[0] > last[0]:
        first, last = min(after, key=by_time), max(until, key=by_time)
        if first[0] > last[0]:
            first = (None, None)
    return Bracket(first[0], last[0], first[1], last[1])


@dataclass(frozen=True, slots=True)
class LagRow:
    """One consumer on one topic, as in ``/api/lag``. None means *unknown*, which is never the same as 0.

    ``view``: the name if the consumer is a view, else None. ``basis``: evidence for the seconds. ``trend``:
    seconds behind at the last readings, oldest first.
    """

    kind: str
    name: str
    view: str | None
    topic: str | None
    owner: str
    state: str
    cause: str
    since_ms: int | None
    records: int | None
    seconds: float | None
    error_s: float | None
    basis: str | None
    eta_s: float | None
    loss_s: float | None
    lost_records: int | None
    position: int | None
    members: int | None
    measured_at_ms: int | None
    trend: tuple[float, ...]


TREND = 12


def row_of(consumer: Consumer, topic: str | None, watched: WatchedConsumer, owner: str) -> LagRow:
    """Return the row to show. While the state is UNKNOWN the numbers are None: old ones would look
    current."""
    shown = watched.shown
    last = watched.last if shown.state != "UNKNOWN" else None
    return LagRow(
        consumer.id.kind,
        consumer.id.name,
        consumer.id.name if consumer.id.kind == "view" else None,
        topic,
        owner,
        shown.state.value,
        shown.cause,
        watched.since_ms,
        last.records if last else None,
        _rounded(last.seconds) if last else None,
        _rounded(last.error_s) if last else None,
        last.basis if last else None,
        _rounded(shown.eta_s),
        _rounded(shown.loss_s),
        last.lost if last else None,
        last.position if last else None,
        consumer.reader.members,
        watched.last.at_ms if watched.last else None,
        tuple(round(each.seconds, 3) for each in watched.window[-TREND:]) if last else (),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
