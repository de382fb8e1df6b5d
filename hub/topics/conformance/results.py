"""[shell] Results of the conformance check, read from ``_hub.audit``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hub.log import Cluster, Log, Reader, TopicFollower, up_to
from hub.record import Positions, Record, TopicPartition
from hub.topics.conformance.rules import AUDIT_TOPIC, Tally, counters, summary, tally_of

RESCAN_S = 2.0
_SILENT_S = 60.0


def read_tallies(cluster: Cluster, reader: Reader) -> dict[TopicPartition, Tally]:
    """Return the latest tally of every partition. Leaves the reader at the end of the audit topic. Raises
    PeerError if nothing arrives for a minute.
    """
    end = cluster.end_offsets([AUDIT_TOPIC])
    reader.assign(cluster.beginning_offsets([AUDIT_TOPIC]))
    tallies: dict[TopicPartition, Tally] = {}
    for records in up_to(end, reader, _SILENT_S):
        _add(tallies, records)
    return tallies


def _add(tallies: dict[TopicPartition, Tally], records: Sequence[Record]) -> None:
    for record in records:
        if record.value is not None:
            tally = tally_of(record)
            tallies[tally.topic_partition] = tally


class ConformanceResults:
    """Conformance results, followed from ``_hub.audit``; start ``follower`` before use."""

    def __init__(self, cluster: Log) -> None:
        self.follower = TopicFollower(cluster, AUDIT_TOPIC, "the audit's results", self._begin)
        self._tallies: dict[TopicPartition, Tally] = {}
        self._lock = threading.Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Return rows as in ``hub.topics.conformance.rules.summary``."""
        with self._lock:
            return summary(self._tallies.values())

    def counters(self) -> list[tuple[str, str, Mapping[str, str], float]]:
        """Return counters as in ``hub.topics.conformance.rules.counters``."""
        with self._lock:
            return counters(self._tallies.values())

    def _begin(self, _end: Positions) -> Callable[[Sequence[Record], bool], None]:
        tallies: dict[TopicPartition, Tally] = {}

        def take(records: Sequence[Record], current: bool) -> None:
            with self._lock:
                _add(tallies, records)
                if current:
                    self._tallies = tallies

        return take
