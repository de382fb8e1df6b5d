"""[shell] Follow ``_hub.ledger``: rows per topic, minutes of one topic, metric
series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hub.completeness.balances import SEVERITY, CompletenessState, TopicCompleteness, audit_of
from hub.completeness.counts import COUNTS_TOPIC, Counts
from hub.completeness.minutes import minute_grid_of
from hub.formats.fields import fields_of
from hub.log import Log, TopicFollower
from hub.observability.web.pages.monitor.completeness_counts import MinuteGrid
from hub.record import Positions, Record

# Limit of the newest minutes per topic, and of the differing minutes per tier.
MOST_BUCKETS = 240
# Limit of topics with their own series in /metrics, worst first.
MOST_TOPICS = 200
# Limit of topics whose minutes are cached, for the pages in use.
MOST_GRIDS = 100

NOT_READ = "the ledger is not read yet"

Counter = tuple[str, str, Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class KnownCounts:
    """State of the follower. ``error`` is the reason if it is not current; ``read`` is False until the first
    complete read.
    """

    audits: tuple[TopicCompleteness, ...]
    error: str | None
    forgotten: int
    read: bool = True


class CountsFollower:
    """Follower of ``_hub.ledger``; start ``follower`` before use."""

    def __init__(self, cluster: Log) -> None:
        self.follower = TopicFollower(
            cluster, COUNTS_TOPIC, "the ledger", self._begin, self._absent, self._failed
        )
        self._ledger = Counts()
        self._audits: dict[str, TopicCompleteness] = {}
        self._heats: dict[str, MinuteGrid | None] = {}
        self._error: str | None = NOT_READ
        self._read = False
        self._lock = threading.Lock()

    def latest(self) -> KnownCounts:
        """Return the topics, worst first."""
        with self._lock:
            stale = [topic for topic in self._ledger.topics() if topic not in self._audits]
            for topic in stale:
                self._audits[topic] = audit_of(topic, self._ledger.of(topic))
            found = sorted(self._audits.values(), key=lambda each: (SEVERITY[each.state], each.topic))
            return KnownCounts(tuple(found), self._error, self._ledger.forgotten, self._read)

    def heat(self, topic: str) -> MinuteGrid | None:
        """Return a topic's minutes, None if it has no entries."""
        with self._lock:
            if topic not in self._heats:
                if len(self._heats) >= MOST_GRIDS:
                    self._heats.clear()
                self._heats[topic] = minute_grid_of(self._ledger.of(topic))
            return self._heats[topic]

    def families(self) -> Iterator[Counter]:
        """Yield (series, help, labels, value) for the worst topics. Unknown values have no sample."""
        for audit in self.latest().audits[:MOST_TOPICS]:
            yield from series_of(audit)

    def _absent(self) -> None:
        """The topic was never created, or it was deleted with its contents."""
        with self._lock:
            self._replace(Counts())

    def _failed(self, reason: str) -> None:
        self._error = reason

    def _replace(self, ledger: Counts) -> None:
        self._ledger, self._audits, self._heats, self._error, self._read = ledger, {}, {}, None, True

    def _begin(self, _end: Positions) -> Callable[[Sequence[Record], bool], None]:
        ledger = Counts()

        def take(records: Sequence[Record], current: bool) -> None:
            with self._lock:
                for record in records:
                    ledger.apply(record)
                    key = (record.key or b"").split(b"|")
                    if current and len(key) > 2:
                        topic = key[2].decode(errors="replace")
                        self._audits.pop(topic, None)
                        self._heats.pop(topic, None)
                if current and self._ledger is not ledger:
                    self._replace(ledger)

        return take


def row_of(audit: TopicCompleteness, *, buckets: bool = False) -> dict[str, Any]:
    """Return an audit as a JSON-ready dict. ``buckets`` adds its newest minutes."""
    row: dict[str, Any] = {
        "topic": audit.topic,
        "state": audit.state,
        "cause": audit.cause,
        "records": audit.records,
        "bytes": audit.size,
        "offsets": audit.offsets,
        "holes": asdict(audit.holes),
        "repeated": audit.repeated,
        "unaudited": [
            {"partition": part, "first": first, "end": end} for part, first, end in audit.unaudited
        ],
        "unread": audit.unread,
        "audited_at_ms": audit.audited_at_ms,
        "tiers": [
            {
                **fields_of(each, but=("differences",)),
                "differences": [
                    {**asdict(one), "state": one.state} for one in each.differences[:MOST_BUCKETS]
                ],
            }
            for each in audit.balances
        ],
    }
    if buckets:
        newest = list(audit.buckets.items())[-MOST_BUCKETS:]
        row["buckets"] = [
            {"bucket_ms": at, "records": cell.count, "sum": f"{cell.sum:016x}", "bytes": cell.size}
            for at, cell in newest
        ]
    return row


def series_of(audit: TopicCompleteness) -> Iterator[Counter]:
    topic = {"topic": audit.topic}
    yield "hub_completeness_records", "Records of a topic that were audited", topic, audit.records
    yield (
        "hub_completeness_repeated",
        "Records that were there before, within a stretch",
        topic,
        audit.repeated,
    )
    for name, number in asdict(audit.holes).items():
        yield (
            "hub_completeness_holes",
            "Offsets without a record, by reason",
            {**topic, "reason": name},
            number,
        )
    by_kind: dict[str, tuple[int, int, int]] = {}
    for each in audit.balances:
        missing, excess, waiting = by_kind.get(each.kind, (0, 0, 0))
        by_kind[each.kind] = (missing + each.missing, excess + each.excess, waiting + each.waiting)
    for kind, (missing, excess, waiting) in by_kind.items():
        labels = {**topic, "tier": kind}
        yield "hub_completeness_missing", "Records that a tier lacks", labels, missing
        yield "hub_completeness_excess", "Records that a tier has too many", labels, excess
        yield "hub_completeness_waiting", "Records that are not compared yet", labels, waiting
    for state in CompletenessState:
        labels = {**topic, "state": state}
        yield "hub_completeness_state", "1 for the state a topic is in", labels, float(audit.state is state)
