"""[shell] Counts of a process's spans by outcome, reported as ``spans:<service>`` in ``_hub.progress``.

The server's ``/metrics`` shows them. A process without a port of its own reports its counts through the log,
like its other reports. One record per service, compacted; written when the counts changed, and at an interval
when not. Counts without a report for ``SILENT_MS`` are unknown and have no sample. Without a trace collector
there are no counts, no thread and no record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from hub.errors import HubError
from hub.log import Log, Writer
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord
from hub.runtime import repeating
from hub.times import epoch_ms
from hub.tracing import spans

log = logging.getLogger(__name__)

PREFIX = "spans:"
SILENT_MS = 90_000
# Anybody who may write the topic may write any key: series exist for this many services, in name order.
MOST_SERVICES = 16
OUTCOMES = ("exported", "failed", "dropped")
_EVERY_S, _IDLE_S = 5.0, 30.0


class Count(NamedTuple):
    """Number of one service's spans with this outcome, since the service started."""

    service: str
    outcome: str
    number: int


def record(service: str, counters: Mapping[str, int], now_ms: int) -> NewRecord:
    body = {"at_ms": now_ms, "counters": dict(counters)}
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{service}".encode(), orjson.dumps(body))


def read_counts(records: Mapping[str, Mapping[str, Any]], now_ms: int) -> Iterator[Count]:
    """Return the counts in records of ``_hub.progress``. Skips records in another version's format."""
    keys = sorted(key for key in records if key.startswith(PREFIX))
    for key in keys[:MOST_SERVICES]:
        body = records[key]
        at_ms, counters = body.get("at_ms"), body.get("counters")
        if not isinstance(at_ms, int) or not isinstance(counters, Mapping) or now_ms - at_ms > SILENT_MS:
            continue
        for outcome in OUTCOMES:
            if isinstance(number := counters.get(outcome), int):
                yield Count(key.removeprefix(PREFIX), outcome, number)


@dataclass
class SpanCounts:
    """Reporter of span counts. Call ``step`` regularly and ``close`` at the end."""

    cluster: Log
    service: str
    last: Mapping[str, int] = field(default_factory=dict)
    reported_at_s: float = 0.0
    writer: Writer | None = None

    def step(self, now_s: float | None = None) -> bool:
        """Report the counts if they changed or are due. Returns True when a record was written."""
        now_s = time.monotonic() if now_s is None else now_s
        known = spans()
        counters = {} if known is None else known.counters()
        if not counters or (counters == self.last and now_s - self.reported_at_s < _IDLE_S):
            return False
        try:
            if not self.cluster.partition_counts([PROGRESS_TOPIC]):
                return False
            if self.writer is None:
                self.writer = self.cluster.writer()
            self.writer.append([record(self.service, counters, epoch_ms())])
        except HubError as error:
            log.debug("counts of spans were not reported: %s", error.message)
            return False
        self.last, self.reported_at_s = counters, now_s
        return True

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@contextmanager
def telling(cluster: Log, service: str) -> Iterator[None]:
    """Report the counts in a thread of its own while the block runs; do nothing without tracing."""
    if spans() is None:
        yield
        return
    counts = SpanCounts(cluster, service)
    failed = "counts of spans could not be reported"
    try:
        with repeating(counts.step, name="span-counts", pause_s=lambda _: _EVERY_S, failed=failed):
            yield
    finally:
        counts.close()
