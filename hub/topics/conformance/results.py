"""[shell] Results of the conformance check, read from ``_hub.audit``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from hub.errors import HubError
from hub.kafka.reader import up_to
from hub.log import Cluster, Log, Reader
from hub.record import TopicPartition
from hub.runtime import Backoff
from hub.topics.conformance.rules import (
    AUDIT_TOPIC,
    Tally,
    counters,
    summary,
    tally_of,
)

log = logging.getLogger(__name__)

RESCAN_S = 2.0
_SILENT_S = 60.0


def read_tallies(cluster: Cluster, reader: Reader) -> dict[TopicPartition, Tally]:
    """Return the latest tally of every partition. Leaves the reader at the end of the audit topic. Raises
    PeerError if nothing arrives for a minute.
    """
    end = cluster.end_offsets([AUDIT_TOPIC])
    reader.assign(cluster.beginning_offsets([AUDIT_TOPIC]))
    found: dict[TopicPartition, Tally] = {}
    for records in up_to(end, reader, _SILENT_S):
        for record in records:
            if record.value is not None:
                tally = tally_of(record)
                found[tally.topic_partition] = tally
    return found


class ConformanceResults:
    """Conformance results, followed from ``_hub.audit`` in a background thread. Call ``start`` before use."""

    def __init__(self, cluster: Log) -> None:
        self.cluster = cluster
        self._tallies: dict[TopicPartition, Tally] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="audit-results", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def rows(self) -> list[dict[str, Any]]:
        """Return rows as in ``hub.topics.conformance.rules.summary``."""
        with self._lock:
            return summary(self._tallies.values())

    def counters(self) -> list[tuple[str, str, Mapping[str, str], float]]:
        """Return counters as in ``hub.topics.conformance.rules.counters``."""
        with self._lock:
            return counters(self._tallies.values())

    def _run(self) -> None:
        backoff = Backoff(first_s=1.0, most_s=5.0)
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                if not self.cluster.partition_counts([AUDIT_TOPIC]):
                    self._stop.wait(RESCAN_S)  # no checker has run yet
                    continue
                reader = self.cluster.follower()
                found = read_tallies(self.cluster, reader)
                with self._lock:
                    self._tallies = found
                backoff.reset()
                self._follow(reader)
            except HubError as error:
                log.warning("the audit's results cannot be followed now: %s", error.message)
                self._stop.wait(backoff.next_s())
            finally:
                if reader is not None:
                    reader.close()

    def _follow(self, reader: Reader) -> None:
        while not self._stop.is_set():
            for record in reader.poll(1_000, 0.5):
                if record.value is not None:
                    tally = tally_of(record)
                    with self._lock:
                        self._tallies[tally.topic_partition] = tally
