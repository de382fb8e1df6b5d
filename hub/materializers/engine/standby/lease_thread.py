"""[shell] The lease of one process: a thread that reads the log of it, renews it, or takes it over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hub.errors import HubError
from hub.log import Log, Reader, Writer, up_to
from hub.materializers.engine.standby.lease import (
    PREFIX,
    Lease,
    LeaseClaim,
    LeaseRecord,
    LeaseStep,
    erased,
    lease_record_of,
    next_step,
)
from hub.materializers.engine.standby.place import has_ended
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import Record
from hub.runtime import repeating
from hub.times import epoch_ms

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
# While somebody waits, the holder renews its lease so often. One who waits writes more rarely.
_RENEW_EVERY_S, _WAITING_EVERY_S = 1.5, 10.0
_FORGOTTEN_AFTER_S = 60.0
_READ_S = 30.0


class LeaseThread:
    """Use ``wait`` and ``is_lost`` inside ``running()``.

    ``limit_s``: a holder that writes nothing for so long, while Kafka answers, loses the lease to whoever
    waits.
    """

    def __init__(
        self,
        cluster: Log,
        home: str,
        run: str,
        place: str,
        limit_s: float,
        *,
        ended: Callable[[str], bool] = has_ended,
    ) -> None:
        self._cluster, self._limit_s, self._ended = cluster, limit_s, ended
        self._home, self._run, self._place = home, run, place
        self._writer: Writer = cluster.writer()
        self._reader: Reader | None = None
        self._lease = Lease()
        self._others: dict[str, tuple[LeaseClaim, float]] = {}
        self._heard_at_s = time.monotonic()
        self._wrote_at_s = float("-inf")
        self._held = threading.Event()
        self._lost = threading.Event()
        self._turn = threading.Lock()
        self._closed = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take part while the block runs. At its end the lease is given back."""
        with repeating(
            self.step,
            name="materializer-lease",
            pause_s=lambda _took_s: _LOOK_EVERY_S,
            failed="the materializer's lease cannot be kept",
        ):
            yield
        self._leave()

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as this process has the lease, False after ``timeout_s`` without it."""
        return self._held.wait(timeout_s)

    @property
    def is_lost(self) -> bool:
        """Return True once another process has taken over: this one must not compute any more."""
        return self._lost.is_set()

    @property
    def others_wait(self) -> bool:
        return any(claim == "waiting" for claim, _ in self._others.values())

    def step(self) -> None:
        """Read what is new, then renew, claim or wait."""
        with self._turn:
            if self._closed:
                return
            try:
                self._read_to_end()
                self._act(time.monotonic())
            except HubError as error:
                # Nobody can be heard, and nobody can take over: silence counts from Kafka's next answer on.
                self._heard_at_s = time.monotonic()
                log.debug("the materializer's lease is tried again: %s", error.message)

    def _read_to_end(self) -> None:
        """Read all that the log has now. Raises PeerError when Kafka does not answer in time."""
        end = self._cluster.end_offsets([PROGRESS_TOPIC])
        if self._reader is None:
            self._reader = self._cluster.reader()
            self._reader.assign(self._cluster.beginning_offsets([PROGRESS_TOPIC]))
        for records in up_to(end, self._reader, _READ_S):
            for record in records:
                self._hear(record)

    def _hear(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(f"{PREFIX}{self._home}:"):
            return
        run = key.rpartition(":")[2]
        if record.value is None:
            self._others.pop(run, None)
            return
        try:
            lease_record = lease_record_of(key, record.value)
        except (ValueError, KeyError, TypeError) as error:
            log.error('topic "%s" offset %d: left out: %s', record.topic, record.offset, error)
            return
        now_s = time.monotonic()
        if run != self._run:
            self._others[run] = lease_record.claim, now_s
        before, self._lease = self._lease, self._lease.after(lease_record)
        if self._lease.run != before.run or run == self._lease.run:
            self._heard_at_s = now_s

    def _act(self, now_s: float) -> None:
        lease = self._lease
        step = next_step(
            lease,
            self._run,
            had_it=self._held.is_set(),
            silent_s=now_s - self._heard_at_s,
            limit_s=self._limit_s,
            gone=not self._held.is_set() and self._ended(lease.place),
        )
        match step:
            case LeaseStep.LOST:
                self._lost.set()
            case LeaseStep.WAIT:
                if now_s - self._wrote_at_s >= _WAITING_EVERY_S:
                    self._write(lease.epoch, "waiting", now_s)
            case LeaseStep.CLAIM:
                self._write(lease.epoch + 1, "held", now_s)
                self._read_to_end()
            case LeaseStep.RENEW:
                self._hold(now_s)

    def _hold(self, now_s: float) -> None:
        if not self._held.is_set():
            log.info("this materializer computes the views of its home (takeover %d)", self._lease.epoch)
        self._held.set()
        for run, (_, at_s) in list(self._others.items()):
            if now_s - at_s > _FORGOTTEN_AFTER_S:
                self._writer.append([erased(self._home, run)])
                del self._others[run]
        if self.others_wait and now_s - self._wrote_at_s >= _RENEW_EVERY_S:
            self._write(self._lease.epoch, "held", now_s)

    def _write(self, epoch: int, claim: LeaseClaim, now_s: float) -> None:
        made = LeaseRecord(self._home, self._run, epoch, claim, self._place, epoch_ms())
        self._writer.append([made.record()])
        self._wrote_at_s = now_s

    def _leave(self) -> None:
        with self._turn:
            self._closed = True
            try:
                if not self._held.is_set():
                    self._writer.append([erased(self._home, self._run)])
                elif not self._lost.is_set():
                    self._write(self._lease.epoch, "released", time.monotonic())
            except HubError as error:
                log.warning("the lease is not given back, the next one waits for it: %s", error.message)
            if self._reader is not None:
                self._reader.close()
