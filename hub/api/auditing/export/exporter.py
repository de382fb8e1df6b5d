"""[shell] Exporter: one thread per target reads the access log, sends batches, and keeps its position.

The position is a file in the home, written after the target has taken a batch. So after kill -9 a batch may
be sent again, with the same ids, and none is skipped. A target that refuses is tried again for ever.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from prometheus_client.core import CounterMetricFamily, Metric

from hub.access_log.entry import TOPIC
from hub.access_log.search import PLACE, entry_of
from hub.api.auditing.export.formats import ExportedEntry
from hub.api.auditing.export.senders import sender_of
from hub.config.audit_export import AuditExport
from hub.errors import HubError
from hub.log import Log, Reader
from hub.metrics.gauges import gauge
from hub.record import Positions, Record
from hub.runtime import Backoff

log = logging.getLogger(__name__)

_BATCH, _POLL_S = 500, 1.0
_NO_TOPIC_S = 5.0

SendBatch = Callable[[Sequence[ExportedEntry]], None]


@dataclass(frozen=True, slots=True)
class ExportPosition:
    """Next offset to export of the topic with this id. A topic that was made again is exported from its
    start."""

    topic_id: str
    offset: int


class PositionFile:
    """Position of one target, in the home."""

    def __init__(self, home: Path, name: str) -> None:
        self.path = home / f"access_log_export.{name}.json"

    def read(self) -> ExportPosition | None:
        """Return the position; None without a readable file."""
        try:
            body = orjson.loads(self.path.read_bytes())
            return ExportPosition(str(body["topic_id"]), int(body["offset"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, position: ExportPosition) -> None:
        """Replace the file as a whole, on disk when this returns. Raises OSError."""
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as out:
            out.write(orjson.dumps({"topic_id": position.topic_id, "offset": position.offset}))
            out.flush()
            os.fsync(out.fileno())
        draft.replace(self.path)


def start_of(export_position: ExportPosition | None, topic_id: str, begin: int) -> tuple[int, int]:
    """Return the first offset to export, and how many entries retention deleted before they were exported."""
    if export_position is None or export_position.topic_id != topic_id:
        return begin, 0
    return max(begin, export_position.offset), max(0, begin - export_position.offset)


class AuditExporter(threading.Thread):
    """Thread of one target. ``start`` it, ``stop`` it after."""

    def __init__(
        self,
        name: str,
        target: AuditExport,
        cluster: Log,
        home: Path,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name=f"audit-export-{name}", daemon=True)
        self.target, self.kind = name, target.kind
        self.exported = self.skipped = 0
        self.error: str | None = None
        self._make: Callable[[], SendBatch] = lambda: sender_of(name, target, environ)
        self._cluster, self._file = cluster, PositionFile(home, name)
        self._halt = threading.Event()

    def stop(self) -> None:
        self._halt.set()
        if self.is_alive():
            self.join(5.0)

    def run(self) -> None:
        backoff = Backoff(first_s=1.0, most_s=60.0)
        while not self._halt.is_set():
            try:
                self._follow(backoff)
            except (HubError, OSError) as error:
                self._failed(error.message if isinstance(error, HubError) else str(error))
            except Exception as error:
                log.exception('audit_export "%s"', self.target)
                self._failed(f"{type(error).__name__}: {error}")
            self._halt.wait(backoff.next_s())

    def _failed(self, reason: str) -> None:
        if reason != self.error:
            log.error("%s", reason)
        self.error = reason

    def _follow(self, backoff: Backoff) -> None:
        """Export from the kept position on. Raises HubError, OSError."""
        description = self._cluster.described([TOPIC]).get(TOPIC)
        if description is None:
            self._halt.wait(_NO_TOPIC_S)
            return
        send, begin = self._make(), self._cluster.beginning_offsets([TOPIC]).get(PLACE)
        start, skipped = start_of(self._file.read(), description.topic_id, begin)
        if skipped:
            self.skipped += skipped
            log.error('audit_export "%s": retention deleted %d entries first', self.target, skipped)
        reader = self._cluster.follower()
        try:
            reader.assign(Positions({PLACE: start}))
            self._file.write(ExportPosition(description.topic_id, start))
            while not self._halt.is_set():
                self._step(reader, send, description.topic_id, backoff)
        finally:
            reader.close()

    def _step(self, reader: Reader, send: SendBatch, topic_id: str, backoff: Backoff) -> None:
        records = reader.poll(_BATCH, _POLL_S)
        entries = list(_entries(records))
        if entries:
            send(entries)
        if records:
            self._file.write(ExportPosition(topic_id, records[-1].offset + 1))
            self.exported += len(entries)
            self.error = None
            backoff.reset()


def _entries(records: Sequence[Record]) -> Iterator[ExportedEntry]:
    """Yield the entries; records that the hub did not write are left to ``verify``."""
    for record in records:
        stored = entry_of(record)
        if stored is not None and record.value is not None:
            yield ExportedEntry(stored, record.value)


@contextlib.contextmanager
def exporting(
    targets: Mapping[str, AuditExport], cluster: Log, home: Path
) -> Iterator[Sequence[AuditExporter]]:
    """Run an exporter for each target while the block runs."""
    running = [AuditExporter(name, target, cluster, home) for name, target in targets.items()]
    for each in running:
        each.start()
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def families(exporters: Sequence[AuditExporter]) -> Iterator[Metric]:
    """Yield the series of the exports for ``/metrics``."""
    if not exporters:
        return
    exported = CounterMetricFamily("hub_access_log_exported", "entries that a target took", labels=["target"])
    skipped = CounterMetricFamily(
        "hub_access_log_export_skipped",
        "entries that retention deleted before their export",
        labels=["target"],
    )
    for each in exporters:
        exported.add_metric([each.target], each.exported)
        skipped.add_metric([each.target], each.skipped)
    yield from (exported, skipped)
    up = [((each.target,), float(each.error is None)) for each in exporters]
    yield gauge("hub_access_log_export_up", "1: the target takes entries; 0: it does not", ("target",), up)
