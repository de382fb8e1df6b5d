"""[shell] Present end offsets of sources, read by the caller, because the reports of workers may be old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field

from hub.errors import HubError
from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.status.partition_rows import SourceEndOffsets

WAIT_S = 4.0
REST_S = 20.0


@dataclass
class SourceEndsReader:
    """Reader of partition ends from source clusters. A cluster that does not answer blocks the caller for at
    most ``wait_s``, and is not asked again for ``rest_s``. Use from one thread.
    """

    wait_s: float = WAIT_S
    rest_s: float = REST_S
    clock: Callable[[], float] = time.monotonic
    _silent: dict[str, tuple[float, str]] = field(default_factory=dict)  # by cluster: until when, and why
    _asking: dict[str, Future[SourceEndOffsets]] = field(default_factory=dict)

    def ask(
        self, source: ClusterHandle, places: Collection[TopicPartition], fresh: Collection[TopicPartition]
    ) -> SourceEndOffsets:
        """Return the ends of ``places``, and the beginnings of ``fresh`` among them; with an error when the
        source does not answer in time. Blocks for ``wait_s`` at most. Of a closed source there are none, and
        no error: the workers inside of it report its ends.
        """
        if source.closed:
            return SourceEndOffsets()
        until_s, why = self._silent.get(source.name, (0.0, ""))
        if self.clock() < until_s:
            return SourceEndOffsets(error=why)
        before = self._asking.pop(source.name, None)
        if before is not None and not before.done():  # the last request is still pending
            self._asking[source.name] = before
            return self._rests(source.name, "it does not answer")
        if not places:
            return SourceEndOffsets()
        future: Future[SourceEndOffsets] = Future()
        # A separate daemon thread, not of a pool: a command ends without waiting for a cluster that is gone.
        threading.Thread(
            target=_answer,
            args=(future, source, frozenset(places), frozenset(fresh)),
            name=f"ends.{source.name}",
            daemon=True,
        ).start()
        try:
            return future.result(self.wait_s)
        except TimeoutError:
            self._asking[source.name] = future
            return self._rests(source.name, f"it did not answer within {self.wait_s:g} s")
        except HubError as error:
            return self._rests(source.name, error.message)

    def _rests(self, source: str, why: str) -> SourceEndOffsets:
        self._silent[source] = self.clock() + self.rest_s, why
        return SourceEndOffsets(error=why)


def _answer(
    future: Future[SourceEndOffsets],
    source: ClusterHandle,
    places: frozenset[TopicPartition],
    fresh: frozenset[TopicPartition],
) -> None:
    try:
        begins = source.kafka.beginnings_of(fresh) if fresh else ()
        future.set_result(SourceEndOffsets(dict(source.kafka.ends_of(places)), dict(begins)))
    except HubError as error:
        future.set_exception(error)
