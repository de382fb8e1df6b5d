"""[shell] Values by id in a compacted topic, read to its end, and written after a decision on its end.

A write opens the writer's name, which fences other servers, reads to the end, decides and appends; a fenced
server does it again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hub.errors import PeerError
from hub.log import Log, WriterFenced, ensure_topic, whole
from hub.record import NewRecord, Positions, Record

_TRIES = 20


class Decided(Protocol):
    """A value of the log."""

    @property
    def id(self) -> str: ...

    @property
    def requested_at_ms(self) -> int: ...


T = TypeVar("T", bound=Decided)
R = TypeVar("R")


@dataclass(frozen=True)
class DecidedTopic(Generic[T]):
    """A topic of such values. ``what``: their name in messages, such as "erasures". ``busy_code``: of the
    error when other servers write without a pause. ``stored`` raises HubFault for a record that the hub did
    not write."""

    name: str
    writer: str
    what: str
    busy_code: str
    record_of: Callable[[T], NewRecord]
    stored: Callable[[Record], T]


class DecidedLog(Generic[T]):
    """All values of one topic. Thread safe."""

    def __init__(self, topic: DecidedTopic[T], cluster: Log, replication_factor: int) -> None:
        self._topic, self._cluster, self._replication_factor = topic, cluster, replication_factor
        self._lock = threading.Lock()
        self._known: dict[str, T] = {}
        self._end = Positions()

    def all(self) -> Mapping[str, T]:
        """Return all values by id, oldest first. Raises PeerError, HubFault."""
        with self._lock:
            return dict(self._read())

    def submit(self, decide: Callable[[Mapping[str, T]], T]) -> T:
        """Decide on the log's end and write the value, unless it is as before. Raises what ``decide``
        raises; PeerError when Kafka is unavailable.
        """

        def changes(known: Mapping[str, T]) -> tuple[T, Mapping[str, T | None]]:
            made = decide(known)
            return made, {} if known.get(made.id) == made else {made.id: made}

        return self._write(changes)

    def remove(self, chosen: Callable[[Mapping[str, T]], Collection[str]]) -> Collection[str]:
        """Remove the values that ``chosen`` names on the log's end; return their ids. Raises PeerError."""

        def changes(known: Mapping[str, T]) -> tuple[Collection[str], Mapping[str, T | None]]:
            ids = [each for each in chosen(known) if each in known]
            return ids, dict.fromkeys(ids)

        return self._write(changes)

    def _write(self, decide: Callable[[Mapping[str, T]], tuple[R, Mapping[str, T | None]]]) -> R:
        with self._lock:
            ensure_topic(self._cluster, self._topic.name, replication_factor=self._replication_factor)
            for _ in range(_TRIES):
                with (
                    contextlib.suppress(WriterFenced),
                    contextlib.closing(self._cluster.writer(self._topic.writer)) as writer,
                ):
                    made, changes = decide(dict(self._read()))
                    if changes:
                        writer.append([self._record(id, value) for id, value in changes.items()])
                        # Kafka moves the stable end a moment after the commit, and the caller reads now.
                        merged = {**self._known, **changes}
                        self._known = {id: value for id, value in merged.items() if value is not None}
                    return made
        raise PeerError(
            f"other servers write {self._topic.what} without a pause",
            hint="try again",
            code=self._topic.busy_code,
        )

    def _record(self, id: str, value: T | None) -> NewRecord:
        if value is None:
            return NewRecord(self._topic.name, id.encode(), None, partition=0)
        return self._topic.record_of(value)

    def _read(self) -> dict[str, T]:
        name = self._topic.name
        if not self._cluster.partition_counts([name]):
            return self._known
        end = self._cluster.end_offsets([name])
        if end != self._end:
            newest = {record.key: record for record in whole(self._cluster, name)}
            found = [self._topic.stored(each) for each in newest.values() if each.value]
            self._known = {each.id: each for each in sorted(found, key=lambda one: one.requested_at_ms)}
            self._end = end
        return self._known
