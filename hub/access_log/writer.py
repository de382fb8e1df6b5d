"""[shell] The thread that writes the access log.

``change`` returns a future that is done when Kafka has the record; ``note`` returns at once. A failed append
ends the chain: its records are written again, in a new one, with the same ids. Notes that find no room are
counted, and the count is written as soon as Kafka takes records again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.chain import Chain, LogPlace, LogSigner, hash_of
from hub.access_log.entry import TOPIC, Entry, Who
from hub.access_log.repeats import Repeats
from hub.errors import Conflict, HubError, PeerError
from hub.log import Log, Writer
from hub.metrics.gauges import gauge
from hub.record import NewRecord, Positions, TopicPartition
from hub.times import epoch_ms

log = logging.getLogger(__name__)

MOST_NOTES = 20_000
MOST_CHANGES = 1_000
CHECKPOINT_MS = 60_000
CHECKPOINT_RECORDS = 1_000
_BATCH = 500
_LINGER_S = 0.05  # for notes; a change ends it
_IDLE_S = 5.0  # between looks at repeats and checkpoints that are due
_RETRY_S = 1.0
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogState:
    """State of the writer: entries that wait, notes lost since the start, and why it cannot write."""

    waiting: int
    lost: int
    written: int
    trouble: str | None


@dataclass(slots=True)
class _Waiting:
    """An entry that must be written; ``done``: the caller waits for it."""

    entry: Entry
    done: Future[None] | None = None


@dataclass
class AccessLog:
    """Writes entries in a thread of its own. Call ``start`` before use, ``stop`` after. ``process``: server
    or cli, for the chain's opening."""

    cluster: Log
    signer: LogSigner
    process: str
    replication_factor: int = 1
    retention_days: int = 365
    timeout_s: float = 15.0
    now_ms: Callable[[], int] = epoch_ms
    _notes: deque[Entry] = field(default_factory=deque)
    _musts: deque[_Waiting] = field(default_factory=deque)
    _repeats: Repeats = field(default_factory=Repeats)
    # Notes that an append did not write. They were counted as repeats already.
    _unwritten: list[Entry] = field(default_factory=list)
    _chain: Chain | None = None
    _writer: Writer | None = None
    _written: int = 0
    _lost: int = 0
    _lost_reported: int = 0
    _checkpoint_ms: int = 0
    _trouble: str | None = None

    def __post_init__(self) -> None:
        self._wake, self._urgent = threading.Event(), threading.Event()
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what waits and the signed end of the chain, within the timeout. Idempotent."""
        self._halt.set()
        self._urgent.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self.timeout_s + 2)

    def note(self, entry: Entry) -> None:
        """Queue an entry and return at once. Full queues lose it, which is counted."""
        if len(self._notes) >= MOST_NOTES:
            self._lost += entry.count
            return
        self._notes.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def change(self, entry: Entry) -> Future[None]:
        """Queue the first entry of a change. The future is done when Kafka has it, or has NotLogged."""
        waiting = _Waiting(entry, Future())
        assert waiting.done is not None
        if len(self._musts) >= MOST_CHANGES or self._halt.is_set():
            waiting.done.set_exception(NotLogged(self._trouble or "too many changes wait for it"))
            return waiting.done
        self._put(waiting)
        return waiting.done

    def result(self, entry: Entry) -> None:
        """Queue the second entry of a change. It is kept until it is written."""
        self._put(_Waiting(entry))

    def families(self) -> Iterator[Metric]:
        """Yield the series of the log for ``/metrics``."""
        now = self.state()
        yield _counter(
            CounterMetricFamily("hub_access_log_entries", "entries that were written"), now.written
        )
        yield _counter(CounterMetricFamily("hub_access_log_lost", "entries that found no room"), now.lost)
        waiting, up = [((), float(now.waiting))], [((), float(now.trouble is None))]
        yield gauge("hub_access_log_waiting", "entries that wait to be written", (), waiting)
        yield gauge("hub_access_log_up", "1: the access log is written; 0: changes are refused", (), up)

    def state(self) -> LogState:
        return LogState(
            len(self._notes) + len(self._musts) + len(self._unwritten),
            self._lost,
            self._written,
            self._trouble,
        )

    def _put(self, waiting: _Waiting) -> None:
        self._musts.append(waiting)
        self._urgent.set()
        self._wake.set()

    # ---- the thread

    def _run(self) -> None:
        while not self._halt.is_set():
            self._wake.wait(_IDLE_S)
            if not self._musts:
                self._urgent.wait(_LINGER_S if self._notes else 0)
            self._wake.clear()
            self._urgent.clear()
            self._step(last=False)
        self._step(last=True)

    def _step(self, *, last: bool) -> None:
        """Write everything that waits, in batches."""
        while True:
            musts = [self._musts.popleft() for _ in range(min(_BATCH, len(self._musts)))]
            musts = [each for each in musts if each.done is None or each.done.set_running_or_notify_cancel()]
            notes = [self._notes.popleft() for _ in range(min(_BATCH, len(self._notes)))]
            now_ms = self.now_ms()
            counted, self._unwritten = self._unwritten, []
            counted += [each for each in notes if self._repeats.take(each) is not None]
            counted += self._repeats.due(now_ms, all=last and not self._notes)
            entries = [each.entry for each in musts] + counted
            lost = self._lost - self._lost_reported
            if lost and entries:
                detail = {"why": "the queue of the server was full"}
                entries.append(
                    Entry(
                        LoggedAction.log_lost,
                        Outcome.ok,
                        Who("_hub", "own"),
                        now_ms,
                        detail=detail,
                        count=lost,
                    )
                )
            try:
                self._write(entries, now_ms, last=last and not self._musts and not self._notes)
            except Exception as error:  # noqa: BLE001 - whatever it is, callers that wait are answered
                self._failed(error, musts, counted)
                if not last:
                    self._halt.wait(_RETRY_S)
                    self._wake.set()
                return
            self._lost_reported += lost if entries else 0
            self._trouble = None
            for each in musts:
                if each.done is not None:
                    each.done.set_result(None)
            if not self._musts and not self._notes:
                return

    def _write(self, entries: Sequence[Entry], now_ms: int, *, last: bool) -> None:
        chain = self._chain
        due = chain is not None and chain.unsigned and now_ms - self._checkpoint_ms >= CHECKPOINT_MS
        if not entries and not due and not (last and chain is not None):
            return
        if self._writer is None or chain is None:
            chain = self._open(now_ms)
        assert self._writer is not None
        values = chain.seal(entries, now_ms) if entries else []
        if last:
            values.append(chain.sign(LoggedAction.log_close, now_ms))
        elif due or chain.unsigned >= CHECKPOINT_RECORDS:
            values.append(chain.sign(LoggedAction.log_checkpoint, now_ms))
            self._checkpoint_ms = now_ms
        key = chain.id.encode()
        self._writer.append([NewRecord(TOPIC, key, value, partition=0) for value in values])
        self._written += len(entries)
        if last:
            self._close()

    def _open(self, now_ms: int) -> Chain:
        make_topic(self.cluster, self.replication_factor, self.retention_days)
        self._close()
        self._writer = self.cluster.writer()
        after = last_place(self.cluster, self.timeout_s)
        self._chain = Chain(uuid.uuid4().hex, self.signer, self.process, after)
        self._checkpoint_ms = now_ms
        return self._chain

    def _failed(self, error: Exception, musts: Sequence[_Waiting], notes: Sequence[Entry]) -> None:
        """Keep the unwritten notes, answer the waiting callers, and end the chain."""
        reason = error.message if isinstance(error, HubError) else f"{type(error).__name__}: {error}"
        if self._trouble is None:
            log.warning("the access log is not written now: %s", reason)
        self._trouble = reason
        self._close()
        self._unwritten = list(notes[:MOST_NOTES])
        self._lost += sum(each.count for each in notes[MOST_NOTES:])
        for each in reversed(musts):
            if each.done is None:
                self._musts.appendleft(each)
            else:
                each.done.set_exception(NotLogged(reason))

    def _close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
        self._writer = self._chain = None


class NotLogged(PeerError):
    """A change that could not be logged, and so does not happen."""

    code = "HUB-3094"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the access log cannot be written, so nothing was changed: {reason}",
            hint=f"a change needs the topic {TOPIC}; repeat it when Kafka answers: hub doctor",
        )


def _counter(family: CounterMetricFamily, number: int) -> Metric:
    family.add_metric((), number)
    return family


def make_topic(cluster: Log, replication_factor: int, retention_days: int) -> None:
    """Create the topic if it is missing, and set its retention. Raises PeerError."""
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_days * DAY_MS),
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
    }
    description = cluster.described([TOPIC]).get(TOPIC)
    if description is None:
        with contextlib.suppress(Conflict):
            cluster.create_topic(TOPIC, partitions=1, config=config, replication_factor=replication_factor)
        return
    if cluster.topic_config([TOPIC])[TOPIC].get("retention.ms") != config["retention.ms"]:
        try:
            cluster.alter_config(TOPIC, {"retention.ms": config["retention.ms"]})
        except HubError as error:  # no reason to refuse changes
            log.warning("the retention of %s stays: %s", TOPIC, error.message)


def last_place(cluster: Log, timeout_s: float) -> LogPlace | None:
    """Return the last record of the topic; None if it is empty. Raises PeerError."""
    place = TopicPartition(TOPIC, 0)
    end = cluster.end_offsets([TOPIC]).get(place)
    if end <= cluster.beginning_offsets([TOPIC]).get(place):
        return None
    reader = cluster.reader()
    try:
        reader.assign(Positions({place: end - 1}))
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for record in reader.poll(1, 0.2):
                return LogPlace(record.offset, hash_of(record.value or b""))
    finally:
        reader.close()
    raise PeerError(f'topic "{TOPIC}": its last record at offset {end - 1} could not be read')
