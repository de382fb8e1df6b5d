"""[shell] Follow ``_hub.ledger`` in a background thread: rows per topic, minutes of one topic, metric
series.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hub.completeness.balances import SEVERITY, CompletenessState, TopicCompleteness, audit_of
from hub.completeness.counts import COUNTS_TOPIC, Counts
from hub.completeness.minutes import minute_grid_of
from hub.errors import HubError
from hub.kafka.reader import up_to
from hub.log import Log, Reader
from hub.observability.web.pages.monitor.completeness_counts import MinuteGrid
from hub.runtime import Backoff

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_SILENT_S = 60.0
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
    """Follower of ``_hub.ledger``. Call ``start`` before use and ``stop`` after."""

    def __init__(self, cluster: Log) -> None:
        self.cluster = cluster
        self._ledger = Counts()
        self._audits: dict[str, TopicCompleteness] = {}
        self._heats: dict[str, MinuteGrid | None] = {}
        self._error: str | None = NOT_READ
        self._read = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def known(self) -> KnownCounts:
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
        for audit in self.known().audits[:MOST_TOPICS]:
            yield from series_of(audit)

    def _run(self) -> None:
        backoff = Backoff(first_s=1.0, most_s=5.0)
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                if not self.cluster.partition_counts([COUNTS_TOPIC]):
                    # The topic was never created, or it was deleted with its contents.
                    with self._lock:
                        self._ledger, self._audits, self._heats, self._error = Counts(), {}, {}, None
                    self._read = True
                    self._stop.wait(_LOOK_S)
                    continue
                reader = self.cluster.follower()
                self._follow(reader, backoff.reset)
            except HubError as error:
                self._error = error.message
                log.warning("the ledger cannot be followed now: %s", error.message)
                self._stop.wait(backoff.next_s())
            except Exception as error:
                self._error = f"{type(error).__name__}: {error}"
                log.exception("the ledger cannot be followed")
                self._stop.wait(backoff.next_s())
            finally:
                if reader is not None:
                    reader.close()

    def _follow(self, reader: Reader, read: Callable[[], object]) -> None:
        ledger, end = Counts(), self.cluster.end_offsets([COUNTS_TOPIC])
        reader.assign(self.cluster.beginning_offsets([COUNTS_TOPIC]))
        for records in up_to(end, reader, _SILENT_S):
            if self._stop.is_set():
                return
            for record in records:
                ledger.apply(record)
        with self._lock:
            self._ledger, self._audits, self._heats, self._error = ledger, {}, {}, None
        self._read = True
        read()
        while not self._stop.is_set():
            records = reader.poll(1_000, 0.5)
            with self._lock:
                for record in records:
                    ledger.apply(record)
                    key = (record.key or b"").split(b"|")
                    if len(key) > 2:
                        topic = key[2].decode(errors="replace")
                        self._audits.pop(topic, None)
                        self._heats.pop(topic, None)


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
                "kind": each.kind,
                "instance": each.instance,
                "state": each.state,
                "cause": each.cause,
                "records": each.records,
                "compared": each.compared,
                "waiting": each.waiting,
                "missing": each.missing,
                "excess": each.excess,
                "dropped": each.dropped,
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
