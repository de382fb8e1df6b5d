"""[shell] The log ``_hub.erasures``: read to its end, and written after a decision on its end.

A write opens the writer's name, which fences other servers, reads to the end, decides and appends; a fenced
server does it again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from hub.erasure.model import Erasure, Erasures
from hub.erasure.records import ERASURES_TOPIC, record_of, stored_erasure
from hub.errors import PeerError
from hub.log import Log, WriterFenced, ensure_topic, whole
from hub.record import Positions

WRITER_NAME = "hub.erasures"
_TRIES = 20


class ErasureLog:
    """All erasures. Thread safe."""

    def __init__(self, cluster: Log, replication_factor: int) -> None:
        self._cluster, self._replication_factor = cluster, replication_factor
        self._lock = threading.Lock()
        self._known: dict[str, Erasure] = {}
        self._end = Positions()

    def all(self) -> Erasures:
        """Return all erasures by id, oldest first. Raises PeerError, HubFault."""
        with self._lock:
            return dict(self._read())

    def submit(self, decide: Callable[[Erasures], Erasure]) -> Erasure:
        """Decide on the log's end and write the erasure, unless it is as before. Raises what ``decide``
        raises; PeerError when Kafka is unavailable.
        """
        with self._lock:
            ensure_topic(self._cluster, ERASURES_TOPIC, replication_factor=self._replication_factor)
            for _ in range(_TRIES):
                with (
                    contextlib.suppress(WriterFenced),
                    contextlib.closing(self._cluster.writer(WRITER_NAME)) as writer,
                ):
                    known = self._read()
                    made = decide(known)
                    if known.get(made.id) != made:
                        writer.append([record_of(made)])
                        known[made.id] = made
                    return made
        raise PeerError("other servers write erasures without a pause", hint="try again", code="HUB-3830")

    def _read(self) -> dict[str, Erasure]:
        if not self._cluster.partition_counts([ERASURES_TOPIC]):
            return self._known
        end = self._cluster.end_offsets([ERASURES_TOPIC])
        if end != self._end:
            found = (stored_erasure(each) for each in whole(self._cluster, ERASURES_TOPIC) if each.value)
            newest = {each.id: each for each in found}
            self._known = dict(sorted(newest.items(), key=lambda item: item[1].requested_at_ms))
            self._end = end
        return self._known
