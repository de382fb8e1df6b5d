"""[shell] Append an event on the version that it names, in a transaction of its own."""

from __future__ import annotations

import logging
import threading
import time
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import LifoQueue
from typing import Protocol

from hub.errors import CallerError, HubError, HubFault, PeerError
from hub.log import AppendWithdrawn, ConditionalWriter, Reader, up_to
from hub.record import NewRecord, Positions, TopicPartition
from hub.times import epoch_ms
from hub.topics.gateway.expected_version.index import KeyIndex
from hub.topics.gateway.expected_version.version import (
    HEADER,
    NONE,
    KeyVersion,
    conflict,
    expected_version,
    is_expected,
)
from hub.topics.gateway.expected_version.versions import AllVersions, ConditionalLog, Late
from hub.topics.gateway.idempotency import WrittenPlace, other_body
from hub.topics.gateway.produce_batch import ProduceRequest, outcome_unknown

log = logging.getLogger(__name__)

LANES = 4
BUSY = "HUB-3104"
_PAUSE_S = 0.02
_SILENT_S = 5.0
# Longest wait for transactions that are decided a moment ago, so that a conflict names the newest version.
_SETTLES_S = 1.0


class ConditionalCluster(ConditionalLog, Protocol):
    """A log with such writers."""

    def writer(self, name: str | None = None) -> ConditionalWriter: ...


@dataclass(frozen=True, slots=True)
class Append:
    """An event to append. ``partitions`` of its topic. ``mark``, ``print_``: idempotency key and fingerprint
    of the request; the event has the mark in its header. ``until_s``: monotonic time limit.
    """

    new: NewRecord
    expected: KeyVersion | None
    partitions: int
    mark: str
    print_: str
    until_s: float

    @property
    def key(self) -> bytes:
        assert self.new.key
        return self.new.key

    @property
    def place(self) -> TopicPartition:
        """The partition of the key, by the hash of the hub's writers."""
        if self.new.partition is not None:
            return TopicPartition(self.new.topic, self.new.partition)
        return TopicPartition(self.new.topic, zlib.crc32(self.key) % self.partitions)


def append_of(
    request: ProduceRequest, print_: str, new: NewRecord, partitions: int, until_s: float
) -> Append:
    """Return the append of a request's event. Raises CallerError for an event without a key."""
    if not new.key:
        raise CallerError(
            f'topic "{new.topic}": an event with {HEADER} needs a key',
            hint="declare the key in topics.yaml, or send one with the event",
            code="HUB-1347",
        )
    version = expected_version(request.topic, request.expected_version or NONE)
    return Append(new, version, partitions, request.idempotency_key or "", print_, until_s)


@dataclass(frozen=True, slots=True)
class Appended:
    """Place of an event in the log. ``repeated``: an earlier try of the request wrote it."""

    place: TopicPartition
    offset: int
    repeated: bool = False


class Appender:
    """Appends events on expected versions, some at a time. Thread safe."""

    def __init__(self, cluster: ConditionalCluster, lanes: int = LANES) -> None:
        self._cluster, self._lanes = cluster, lanes
        self.versions = AllVersions(cluster)
        self._pool = ThreadPoolExecutor(lanes, "expected-version")
        self._name = f"hub.expected-version.{uuid.uuid4().hex[:12]}"
        self._free: LifoQueue[_Lane] = LifoQueue()
        for number in range(lanes):
            self._free.put(_Lane(cluster, self.versions, f"{self._name}.{number}"))

    def submit(self, append: Append, done: Callable[[Appended | HubError], None]) -> None:
        """Append in a thread of its own; ``done`` is called once with the place or the error."""
        self._pool.submit(self._run, append, done)

    def append(self, append: Append) -> Appended:
        """Append and wait. Raises VersionConflict, CallerError, PeerError."""
        lane = self._free.get()
        try:
            return lane.append(append)
        finally:
            self._free.put(lane)

    def version(self, topic: str, key: bytes, until_s: float) -> KeyVersion | None:
        """Return the version of a key with all events that are committed now. Raises PeerError."""
        begins = self._cluster.beginning_offsets([topic])
        with self.versions.of(topic).at_end(until_s) as index:
            return index.version(key, begins)

    def close(self) -> None:
        """End; appends in progress have an unknown outcome."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while not self._free.empty():
            self._free.get().close()
        self.versions.close()

    def _run(self, append: Append, done: Callable[[Appended | HubError], None]) -> None:
        try:
            result: Appended | HubError = self.append(append)
        except HubError as error:
            result = error
        except Exception:
            log.exception("an event with an expected version could not be appended")
            result = HubFault("the gateway failed; the outcome is unknown", hint="see the server's log")
        done(result)


class _Lane:
    """One writer; it has one transaction at a time. Used by one thread at a time."""

    def __init__(self, cluster: ConditionalCluster, versions: AllVersions, name: str) -> None:
        self._cluster, self._versions, self._name = cluster, versions, name
        self._writer: ConditionalWriter | None = None
        self._reader: Reader | None = None
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        for each in (self._writer, self._reader):
            if each is not None:
                with suppress(HubError):
                    each.close()
        self._writer = self._reader = None

    def append(self, append: Append) -> Appended:
        """Try until the event is in the log, or its version is not the expected one, or the time is over."""
        new = replace(append.new, partition=append.place.partition)
        after, begins = Positions(), Positions()
        failed: HubError | None = None  # of a transaction whose outcome is not known yet
        while True:
            try:
                newest = self._read_version(append, after, begins)
            except PeerError as error:
                raise error if failed is None else outcome_unknown(failed) from None
            failed = None
            if newest.repeated is not None:
                return newest.repeated
            if not newest.is_expected(append):
                if begins:
                    raise newest.refusal(append)
                after, begins = self._newest(append, newest)
                continue
            try:
                end = self._opened().append_if([new], self._check(append, newest.reached))
                return Appended(append.place, end.get(append.place) - 1)
            except AppendWithdrawn as withdrawn:
                after, begins = Positions({append.place: withdrawn.offset + 1}), Positions()
            except CallerError:
                raise  # nothing was written
            except HubError as error:
                failed = error
                after, begins = self._decided(append, error), Positions()
            self._pause(append.until_s)

    def _read_version(self, append: Append, after: Positions, begins: Positions) -> _ReadVersion:
        """Return the version of the key in the log, with all records committed now and before ``after``."""
        busy = PeerError(
            f'topic "{append.new.topic}": another event of the key is being written; nothing was written now',
            hint="send it again: the version may have changed meanwhile",
            code=BUSY,
        )
        if time.monotonic() > append.until_s or self._closing.is_set():
            raise busy
        try:
            with self._versions.of(append.new.topic).at_end(append.until_s, after) as index:
                actual, reached = index.version(append.key, begins), index.positions.get(append.place)
                return _ReadVersion(actual, reached, _repeated(index, append))
        except Late:
            if after:
                raise busy from None
            raise

    def _newest(self, append: Append, newest: _ReadVersion) -> tuple[Positions, Positions]:
        """Return positions that the index must reach before a conflict is certain, and the log's begin.

        An event may be confirmed to its writer before it is readable, behind an open transaction of another
        key. If it is the expected one, the index waits for it; else only a moment.
        """
        topic, place = append.new.topic, append.place
        end = self._cluster.end_offsets([topic], committed=False).get(place)
        begins = self._cluster.beginning_offsets([topic])
        expected = append.expected
        if expected is not None and expected.place == place and newest.reached < expected.after <= end:
            return Positions({place: expected.after}), begins
        until_s = min(append.until_s, time.monotonic() + _SETTLES_S)
        with suppress(PeerError), self._versions.of(topic).at_end(until_s, Positions({place: end})):
            pass
        return Positions(), begins

    def _opened(self) -> ConditionalWriter:
        if self._writer is None:
            self._writer = self._cluster.writer(self._name)
        return self._writer

    def _check(self, append: Append, reached: int) -> Callable[[Positions], None]:
        """Return the check of a transaction: no record of the key from ``reached`` to its own."""
        place = append.place

        def check(after: Positions) -> None:
            mine = after.get(place) - 1
            if mine <= reached:
                return
            if self._reader is None:
                self._reader = self._cluster.reader(committed=False)
            self._reader.assign(Positions({place: reached}))
            try:
                for records in up_to(Positions({place: mine}), self._reader, _SILENT_S):
                    for record in records:
                        if record.offset < mine and record.key == append.key:
                            raise AppendWithdrawn(
                                f"another event of the key is at offset {record.offset}", record.offset
                            )
            finally:
                self._reader.assign(Positions())  # it would ask the brokers all the time

        return check

    def _decided(self, append: Append, error: HubError) -> Positions:
        """Let the brokers decide the transaction that failed; return where its end can be read. Raises
        PeerError of an unknown outcome if that does not succeed in time.
        """
        while True:
            if self._writer is not None:
                with suppress(HubError):
                    self._writer.close()
                self._writer = None
            try:
                self._opened()  # the name's earlier transaction is committed or aborted before this returns
                return self._cluster.end_offsets([append.new.topic])
            except PeerError:
                if time.monotonic() > append.until_s or self._closing.is_set():
                    raise outcome_unknown(error) from None
                self._pause(append.until_s)

    def _pause(self, until_s: float) -> None:
        self._closing.wait(max(0.0, min(_PAUSE_S, until_s - time.monotonic())))


@dataclass(frozen=True, slots=True)
class _ReadVersion:
    """The index's version of a key, read up to ``reached``. ``repeated``: an earlier try wrote the event."""

    actual: KeyVersion | None
    reached: int
    repeated: Appended | None

    def is_expected(self, append: Append) -> bool:
        in_place = self.actual is None or self.actual.place == append.place
        return in_place and is_expected(append.expected, self.actual)

    def refusal(self, append: Append) -> HubError:
        if self.actual is None or self.actual.place == append.place:
            return conflict(append.key.decode("utf-8", "replace"), append.expected, self.actual)
        return CallerError(
            f'topic "{append.new.topic}": the key has events in partition {self.actual.place.partition}, and '
            f"the hub writes it to {append.place.partition}",
            hint="a foreign producer chose another partition, or partitions were added: such a key has no "
            "version; move its events to another topic",
            code="HUB-1348",
        )


def _repeated(index: KeyIndex, append: Append) -> Appended | None:
    """Return the place of the event if an earlier try wrote it. Raises Conflict for another request."""
    found_request = index.written(append.mark, epoch_ms())
    if found_request is None:
        return None
    if found_request.fingerprint != append.print_:
        raise other_body(append.mark)
    place: WrittenPlace = found_request.places[0]
    return Appended(TopicPartition(append.new.topic, place.partition), place.offset, repeated=True)
