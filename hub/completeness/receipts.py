"""[shell] Receipts: records acknowledged to a producer, counted by minute and written to ``_hub.ledger``.

``took`` is called for each acknowledged record, from any thread, and costs a few microseconds. A thread
writes new receipts every few seconds, and on stop. While Kafka is unavailable, up to ``MOST_PENDING``
receipts are kept; beyond that they are dropped, and the entries state how many, so the tier is then
*unknown*, not complete.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hub.completeness.counts import (
    COUNTS_CONFIG,
    COUNTS_TOPIC,
    EVENT_ID_HEADER,
    MOST_CELLS,
    MOST_RUNS,
    Cells,
    CountEntry,
    id_of,
    runs_of,
)
from hub.errors import Conflict, HubError
from hub.log import Cluster, Log, Writer
from hub.record import Headers, NewRecord, TopicPartition
from hub.times import epoch_ms

log = logging.getLogger(__name__)

EVERY_S = 5.0
MOST_PENDING = 200_000
_STOP_S = 5.0

# (offset, timestamp in epoch ms, id, size in bytes).
Receipt = tuple[int, int, int, int]


class ReceiptWriter:
    """Receipts of one producer. ``instance`` is unique per start. Call ``start`` before use and ``stop``
    after.
    """

    def __init__(
        self,
        cluster: Log,
        instance: str,
        *,
        replication_factor: int = 1,
        every_s: float = EVERY_S,
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        self.cluster, self.instance, self.every_s, self.now_ms = cluster, instance, every_s, now_ms
        self.replication_factor = replication_factor
        self.dropped: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, list[Receipt]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._writer: Writer | None = None
        self._thread: threading.Thread | None = None

    def took(self, new: NewRecord, place: TopicPartition, offset: int) -> None:
        """Count a record that is in the log at this offset. Records of the hub's own topics are ignored."""
        if place.topic.startswith("_") or new.timestamp_ms is None:
            return
        event_id = header(new.headers, EVENT_ID_HEADER)
        record_id = id_of(new.key, new.timestamp_ms, new.value, event_id)
        self.took_id(place, offset, new.timestamp_ms, record_id, len(new.key or b"") + len(new.value or b""))

    def took_id(
        self, place: TopicPartition, offset: int, timestamp_ms: int, record_id: int, size: int
    ) -> None:
        """Count a record whose id is known."""
        with self._lock:
            # The first receipt of a partition is always kept: it carries the number of dropped ones.
            if self._count >= MOST_PENDING and place in self._pending:
                self.dropped[place] = self.dropped.get(place, 0) + 1
                return
            self._count += 1
            self._pending.setdefault(place, []).append((offset, timestamp_ms, record_id, size))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait up to 5 s for pending receipts to be written."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def flush(self) -> int:
        """Write pending receipts. Returns the number of entries. Raises HubError and keeps the receipts
        then.
        """
        with self._lock:
            pending, dropped = self._pending, self.dropped
            self._pending, self.dropped, count = {}, {}, self._count
            self._count = 0
        try:
            entries = list(entries_of(self.instance, pending, dropped, self.now_ms()))
            if entries:
                self._open().append([entry.record() for entry in with_topic_ids(self.cluster, entries)])
            return len(entries)
        except BaseException:
            with self._lock:
                for place, receipts in self._pending.items():
                    pending.setdefault(place, []).extend(receipts)
                for place, number in self.dropped.items():
                    dropped[place] = dropped.get(place, 0) + number
                self._pending, self.dropped, self._count = pending, dropped, self._count + count
            raise

    def _open(self) -> Writer:
        if self._writer is None:
            create_counts_topic(self.cluster, self.replication_factor)
            self._writer = self.cluster.writer()
        return self._writer

    def _run(self) -> None:
        has_warned = False
        while True:
            stopping = self._stop.wait(self.every_s)
            try:
                self.flush()
                has_warned = False
            except HubError as error:
                if not has_warned:
                    log.warning("receipts are kept until they can be written: %s", error.message)
                has_warned = True
            except Exception:
                log.exception("receipts")
            if stopping:
                break
        if self._writer is not None:
            self._writer.close()


def create_counts_topic(cluster: Cluster, replication_factor: int) -> None:
    """Create the topic ``_hub.ledger`` if it does not exist. Raises PeerError."""
    if COUNTS_TOPIC not in cluster.topics():
        with contextlib.suppress(Conflict):  # another process created it first
            cluster.create_topic(
                COUNTS_TOPIC, partitions=1, config=COUNTS_CONFIG, replication_factor=replication_factor
            )


def with_topic_ids(cluster: Cluster, entries: Sequence[CountEntry]) -> list[CountEntry]:
    """Add Kafka's topic ids to source entries: a recreated topic does not have the earlier records and did
    not lose them. The id stays empty if Kafka does not return it now.
    """
    topics = {each.topic for each in entries if each.tier == "source"}
    ids: dict[str, str] = {}
    with contextlib.suppress(HubError):
        ids = {name: each.kafkas_id for name, each in (cluster.described(topics) if topics else {}).items()}
    return [
        replace(each, topic_id=ids.get(each.topic, "")) if each.tier == "source" else each for each in entries
    ]


def entries_of(
    instance: str,
    pending: Mapping[TopicPartition, Iterable[Receipt]],
    dropped: Mapping[TopicPartition, int],
    now_ms: int,
) -> Iterable[CountEntry]:
    """Build source entries, split so that each is a record of bounded size. A repeated offset counts once."""
    for place, receipts in pending.items():
        by_offset = {each[0]: each for each in receipts}
        offsets = sorted(by_offset)
        left = dropped.get(place, 0)
        at = 0
        while at < len(offsets):
            cells, taken, runs = Cells(), at, 0
            while taken < len(offsets):
                offset, timestamp_ms, record_id, size = by_offset[offsets[taken]]
                runs += taken == at or offsets[taken - 1] != offset - 1
                if runs > MOST_RUNS or len(cells) >= MOST_CELLS:
                    break
                cells.add(timestamp_ms, record_id, size)
                taken += 1
            some = offsets[at:taken]
            yield CountEntry(
                *("source", instance, *place, some[0], some[-1] + 1, now_ms, cells),
                runs=runs_of(some),
                dropped=left,
            )
            left, at = 0, taken


def header(headers: Headers, name: str) -> bytes | None:
    """Return the last header value with that name."""
    return next((value for key, value in reversed(headers) if key == name), None)
