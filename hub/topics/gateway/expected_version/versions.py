"""[shell] Indexes of topics: each reads its topic once, and catches up with the log before it answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from hub.errors import HubError, PeerError
from hub.log import Reader
from hub.record import Positions
from hub.topics.gateway.expected_version.index import KeyIndex

# Topics whose index is kept; the one that was not asked for the longest time goes first.
_MOST_TOPICS = 32
_POLL = 5_000
_POLL_S = 0.05
# How late a reader passes the marker of a commit: an append waits for it.
WAIT_MS = 3


class ConditionalLog(Protocol):
    """Methods of a cluster that expected versions need (hub.kafka.KafkaCluster, hub.log.MemoryCluster)."""

    def end_offsets(self, topics: list[str], *, committed: bool = True) -> Positions: ...

    def beginning_offsets(self, topics: list[str]) -> Positions: ...

    def reader(self, *, committed: bool = True, wait_ms: int = WAIT_MS) -> Reader: ...


class TopicVersions:
    """Index of one topic with its reader. Thread safe: one caller reads, the others wait for it."""

    def __init__(self, log: ConditionalLog, topic: str) -> None:
        self._log, self._topic = log, topic
        self._lock = threading.Lock()
        self._index: KeyIndex | None = None
        self._reader: Reader | None = None

    @contextlib.contextmanager
    def at_end(self, until_s: float, least: Positions | None = None) -> Iterator[KeyIndex]:
        """Yield the index, which has all records that are committed now, and those before ``least``. It does
        not change within the block. Raises PeerError after ``until_s``; a later call continues there.
        """
        if not self._lock.acquire(timeout=max(0.0, until_s - time.monotonic())):
            raise self._late()
        try:
            yield self._caught_up(until_s, least or Positions())
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _caught_up(self, until_s: float, least: Positions) -> KeyIndex:
        stable = self._log.end_offsets([self._topic])
        end = stable.advanced(least)
        try:
            index, reader = self._opened(stable)
            if not index.positions.covers(end):
                self._read(index, reader, end, until_s)
        except HubError as error:
            if not isinstance(error, Late):
                self._drop()  # a gap, another topic of the name, too many keys: begin again next time
            raise
        return index

    def _read(self, index: KeyIndex, reader: Reader, end: Positions, until_s: float) -> None:
        """Read on to ``end``. In between the reader has no topic: it would ask the brokers all the time."""
        reader.assign(index.positions)
        try:
            while not index.positions.covers(end):
                if time.monotonic() > until_s:
                    raise self._late()
                records = reader.poll(_POLL, _POLL_S)
                index.apply(records, reader.position())
        finally:
            reader.assign(Positions())

    def _opened(self, end: Positions) -> tuple[KeyIndex, Reader]:
        topic_partitions = {place for place, _ in end}
        at = None if self._index is None else self._index.positions
        if at is not None and ({place for place, _ in at} != topic_partitions or not end.covers(at)):
            self._drop()  # partitions were added, or the topic is another one of the name
        if self._index is None or self._reader is None:
            self._index, self._reader = KeyIndex(self._topic), self._log.reader(wait_ms=WAIT_MS)
            self._index.positions = self._log.beginning_offsets([self._topic])
        return self._index, self._reader

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._index = self._reader = None

    def _late(self) -> PeerError:
        return Late(
            f'topic "{self._topic}": the versions of its keys are not all read yet; nothing was written',
            hint="send it again in some seconds: a large topic is read once after the server's start",
        )


class Late(PeerError):
    """The index did not reach the end of the log in time."""

    code = "HUB-3103"


class AllVersions:
    """Indexes by topic. Thread safe."""

    def __init__(
        self, log: ConditionalLog, made: Callable[[ConditionalLog, str], TopicVersions] = TopicVersions
    ) -> None:
        self._log, self._made = log, made
        self._lock = threading.Lock()
        self._topics: OrderedDict[str, TopicVersions] = OrderedDict()

    def of(self, topic: str) -> TopicVersions:
        """Return the index of a topic."""
        gone = None
        with self._lock:
            topic_versions = self._topics.pop(topic, None) or self._made(self._log, topic)
            self._topics[topic] = topic_versions
            if len(self._topics) > _MOST_TOPICS:
                gone = self._topics.popitem(last=False)[1]
        if gone is not None:
            gone.close()
        return topic_versions

    def close(self) -> None:
        with self._lock:
            topics, self._topics = list(self._topics.values()), OrderedDict()
        for each in topics:
            each.close()
