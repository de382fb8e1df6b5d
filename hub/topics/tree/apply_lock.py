"""[shell] Lock that allows one apply at a time per cluster. A record in the compacted topic ``_hub.applies``
names the holder.

Invariants (docs/adr/0032-one-apply-at-a-time.md):

- The record changes by compare-and-set only: open the transactional writer, which fences every other writer;
  read to the end; append if the record is still the expected one. Of two concurrent writers, one is fenced
  and reads again.
- The holder writes a new ``beat`` every few seconds. A process that finds a record waits for the next beat,
  measured with its own clock, so clocks of different machines are never compared. A beat refuses the lock;
  silence for ``DEAD_S`` frees it.
- The holder calls ``Hold.check`` between steps, and stops if the record names another holder.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson

from hub.errors import Conflict, HubError
from hub.formats.fields import known_fields
from hub.log import Log, WriterFenced, ensure_topic, whole
from hub.record import NewRecord
from hub.times import epoch_ms

log = logging.getLogger(__name__)

TOPIC = "_hub.applies"
WRITER = "hub.apply"
KEY = b"apply"
BEAT_S = 3.0
# Several missed beats: the process was killed, or its machine is off.
DEAD_S = 15.0
_TRIES = 20
_SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of the lock: ``who`` as user@host (pid), ``command``, start time (epoch ms), and the number of
    the last beat.
    """

    id: str
    who: str
    command: str
    since_ms: int
    beat: int = 0

    def record(self) -> NewRecord:
        return NewRecord(TOPIC, KEY, orjson.dumps(self), partition=0)


@dataclass
class Hold:
    """A held lock. Call ``check`` between steps."""

    cluster: Log
    holder: Holder
    beat_s: float
    dead_s: float
    renewed_s: float
    lost: HubError | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="apply-lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise Conflict if another apply took over; PeerError if this cannot be determined."""
        if self.lost is None and time.monotonic() - self.renewed_s > self.dead_s / 2:
            self._renew()
        if self.lost is not None:
            raise self.lost

    def release(self) -> None:
        """Release the lock. If Kafka does not answer, the lock expires after ``dead_s``."""
        self._stopped.set()
        self._thread.join()
        with contextlib.suppress(HubError), self._lock:
            if self.lost is None:
                swap(self.cluster, self.holder, None)

    def _renew(self) -> None:
        with self._lock:
            if self.lost is not None or self._stopped.is_set():
                return
            at_s, after = time.monotonic(), replace(self.holder, beat=self.holder.beat + 1)
            holder = swap(self.cluster, self.holder, after)
            if holder == after:
                self.holder, self.renewed_s = after, at_s
            else:
                self.lost = _lost_lock(holder)

    def _run(self) -> None:
        while not self._stopped.wait(self.beat_s):
            try:
                self._renew()
            except HubError as error:  # ``check`` tries again, and stops the apply in time
                log.warning("the lock of this apply could not be renewed: %s", error.message)


@contextmanager
def one_apply(
    cluster: Log,
    command: str,
    *,
    replication_factor: int,
    say: Callable[[str], None] = log.warning,
    beat_s: float = BEAT_S,
    dead_s: float = DEAD_S,
) -> Iterator[Hold]:
    """Hold the lock while the block runs. ``say`` receives messages about waiting and taking over.

    Raises Conflict naming the holder, PeerError.
    """
    ensure_topic(cluster, TOPIC, replication_factor=replication_factor)
    hold = _acquired(cluster, command, say, beat_s, dead_s)
    try:
        yield hold
    finally:
        hold.release()


def swap(cluster: Log, expected: Holder | None, after: Holder | None) -> Holder | None:
    """Write ``after`` if the current record is ``expected``. Returns the resulting record. Raises Conflict,
    PeerError.
    """
    record = NewRecord(TOPIC, KEY, None, partition=0) if after is None else after.record()
    for _ in range(_TRIES):
        writer = cluster.writer(WRITER)
        try:
            current = read(cluster)
            if current != expected:
                return current
            writer.append([record])
        except WriterFenced:
            continue
        else:
            return after
        finally:
            writer.close()
    raise Conflict("another apply starts at the same time", hint="try again in a moment", code="HUB-1916")


def read(cluster: Log) -> Holder | None:
    """Return the holder of the lock, None if it is free. Raises PeerError."""
    holder = None
    for record in whole(cluster, TOPIC, _SILENT_S):
        holder = None if record.value is None else known_fields(Holder, orjson.loads(record.value))
    return holder


def _acquired(cluster: Log, command: str, say: Callable[[str], None], beat_s: float, dead_s: float) -> Hold:
    me = Holder(uuid.uuid4().hex, _who(), command, epoch_ms())
    for _ in range(_TRIES):
        before = _free_or_dead(cluster, say, beat_s, dead_s)
        at_s = time.monotonic()
        if swap(cluster, before, me) == me:
            return Hold(cluster, me, beat_s, dead_s, at_s)
    raise Conflict("another apply starts at the same time", hint="try again in a moment", code="HUB-1916")


def _free_or_dead(cluster: Log, say: Callable[[str], None], beat_s: float, dead_s: float) -> Holder | None:
    """Return None if the lock is free, or the holder that was silent for ``dead_s``. Raises Conflict if the
    holder is alive.
    """
    first = read(cluster)
    if first is None:
        return None
    say(
        f"{first.who} applies (`{first.command}`, since {_moment(first.since_ms)}): waiting for "
        "its next sign of life"
    )
    since_s = time.monotonic()
    while time.monotonic() - since_s < dead_s:
        time.sleep(beat_s / 3)
        now = read(cluster)
        if now is None:
            return None
        if now != first:
            raise _under_way(now)
    say(f"{first.who} did not end its apply, and has not reported for {dead_s:.0f} s: this one takes over")
    return first


def _under_way(holder: Holder) -> Conflict:
    return Conflict(
        f"`{holder.command}` of {holder.who} is under way since {_moment(holder.since_ms)}",
        hint="wait until it has ended, then check the plan again; if that process was killed, the next "
        f"apply continues after {DEAD_S:.0f} s",
        code="HUB-1916",
    )


def _lost_lock(by: Holder | None) -> Conflict:
    who = "nobody" if by is None else f"{by.who} since {_moment(by.since_ms)} (`{by.command}`)"
    return Conflict(
        f"this apply did not report in time, and another one took over: now applies {who}",
        hint="check the plan again: completed steps stay",
        code="HUB-1916",
    )


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (pid {os.getpid()})"
