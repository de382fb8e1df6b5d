"""[shell] Read a topic: up to an end, as a whole, or continuously in a thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hub.errors import HubError, PeerError
from hub.log.port import Log, Reader
from hub.record import Positions, Record

log = logging.getLogger(__name__)

SILENT_S = 60.0
_POLL = 5_000
_LOOK_S = 2.0
_FIRST_PAUSE_S, _MOST_PAUSE_S = 1.0, 5.0


def up_to(end: Positions, reader: Reader, silent_s: float) -> Iterator[Sequence[Record]]:
    """Yield the records from the reader's position until ``end``, as they arrive. It does not time out
    while the position moves. Also yields empty batches, so that the caller can stop. Raises the errors of
    ``poll``, and PeerError when nothing arrived for ``silent_s``.
    """
    answered_s = time.monotonic()
    while not (at := reader.position()).covers(end):
        records = reader.poll(_POLL, 0.2)
        came = reader.position() != at  # past marks of transactions, too
        if not came and time.monotonic() - answered_s > silent_s:
            names = ", ".join(f'"{name}"' for name in sorted({place.topic for place, _ in at.behind(end)}))
            raise PeerError(
                f"topic {names} is not read to its end: nothing came for {silent_s:g} s", hint="try again"
            )
        yield records
        if came:
            answered_s = time.monotonic()


def whole(cluster: Log, topic: str, silent_s: float = SILENT_S) -> Iterator[Record]:
    """Yield the records of a topic from its beginning to its present end. Raises NotFound, and PeerError if
    nothing arrives for ``silent_s``.
    """
    end = cluster.end_offsets([topic])
    yield from between(cluster.beginning_offsets([topic]), end, cluster.reader(), silent_s)


def between(start: Positions, end: Positions, reader: Reader, silent_s: float) -> Iterator[Record]:
    """Yield the records from ``start`` up to ``end``, exclusive, and close the reader. Raises PeerError if
    nothing arrives for ``silent_s``.
    """
    try:
        reader.assign(start)
        for records in up_to(end, reader, silent_s):
            yield from (each for each in records if each.offset < end.get(each.topic_partition))
    finally:
        reader.close()


@dataclass
class TopicFollower:
    """Thread that reads a topic from its beginning without end; after an error it begins again.
    ``start`` before use, ``stop`` after.

    ``begin`` is called at each beginning with the topic's end, and returns what takes the records: it is
    called with each batch, and with whether that end is reached. ``absent`` is called while the topic does
    not exist, ``failed`` with the reason of an error. ``what``: the records' name in log lines.
    """

    cluster: Log
    topic: str
    what: str
    begin: Callable[[Positions], Callable[[Sequence[Record], bool], object]]
    absent: Callable[[], object] = lambda: None
    failed: Callable[[str], object] = lambda _reason: None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"follow-{self.topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop within 5 s."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            reader: Reader | None = None
            try:
                if not self.cluster.partition_counts([self.topic]):
                    self.absent()
                    self._stopping.wait(_LOOK_S)
                    continue
                reader = self.cluster.follower()
                self._read(reader)
            except HubError as error:
                log.warning("%s cannot be followed now: %s", self.what, error.message)
                self._wait(error.message)
            except Exception as error:  # an internal error: what is known stays
                log.exception("%s cannot be followed", self.what)
                self._wait(f"{type(error).__name__}: {error}")
            finally:
                if reader is not None:
                    reader.close()

    def _wait(self, reason: str) -> None:
        self.failed(reason)
        self._stopping.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)

    def _read(self, reader: Reader) -> None:
        end = self.cluster.end_offsets([self.topic])
        reader.assign(self.cluster.beginning_offsets([self.topic]))
        take = self.begin(end)
        for records in up_to(end, reader, SILENT_S):
            if self._stopping.is_set():
                return
            take(records, False)
        take((), True)
        self._pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            take(reader.poll(_POLL, 0.5), True)
