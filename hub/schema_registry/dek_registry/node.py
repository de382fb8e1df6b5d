"""[shell] One node of the DEK registry: its state is the log up to the end that each request sees.

A write opens the writer's name, which fences every other node, reads to the end, decides and appends; a
fenced node does it again. The writer stays open for a while: an append by it proves that no other node has
written since, and costs a tenth. What appends nothing, such as a refusal, proves nothing, and is decided
again with the name opened anew. While Kafka is unavailable, reads are answered from what was read before; a
key that is not found is then unknown, not missing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hub.errors import HubFault, NotFound, PeerError
from hub.log import Log, Writer, WriterFenced, between, ensure_topic
from hub.record import Positions, TopicPartition
from hub.schema_registry.dek_registry.records import KEYS_TOPIC, KeyFact, record_of
from hub.schema_registry.dek_registry.state import DekRegistryState
from hub.schema_registry.registry.errors import RequestRefused

T = TypeVar("T")

WRITER_NAME = "hub.dek-registry"
_LOG = TopicPartition(KEYS_TOPIC, 0)
_TRIES = 20
_KEPT_S = 60.0  # an idle writer
_PAUSE_S = 5.0  # without asking Kafka again after it did not answer a read


class DekNode:
    """One node. Thread safe: one request at a time, each bounded by ``timeout_s``. Call ``close`` after
    use."""

    def __init__(self, cluster: Log, *, replication_factor: int = 1, timeout_s: float = 10.0) -> None:
        self._cluster = cluster
        self._replication_factor = replication_factor
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._state = DekRegistryState()
        self._position: int | None = None  # None: nothing was read yet
        self._failed_s = float("-inf")
        self._writer: Writer | None = None
        self._used_s = float("-inf")

    def read(self, question: Callable[[DekRegistryState], T]) -> T:
        """Answer a question on the state at the log's end. Raises RequestRefused, PeerError."""
        with self._turn():
            try:
                if time.monotonic() - self._failed_s < _PAUSE_S and self._position is not None:
                    raise _unread()
                self._catch_up()
            except PeerError as error:
                if error.code != _UNREAD:
                    self._failed_s = time.monotonic()
                if self._position is None:
                    raise
                try:
                    return question(self._state)
                except RequestRefused as refused:
                    raise error if refused.status == 404 else refused from None
            return question(self._state)

    def submit(self, decide: Callable[[DekRegistryState], Sequence[KeyFact]]) -> int:
        """Decide on the log's end and append the facts; return the position after them.

        Raises RequestRefused; PeerError when Kafka is unavailable.
        """
        with self._turn():
            ensure_topic(self._cluster, KEYS_TOPIC, replication_factor=self._replication_factor)
            for _ in range(_TRIES):
                try:
                    return self._carried_out(decide)
                except WriterFenced:
                    self._close_writer()
                except PeerError:
                    self._close_writer()
                    raise
        raise PeerError("the registry's other nodes write without a pause", hint="try again", code="HUB-3030")

    def close(self) -> None:
        """Close the writer; the next write opens it again. A request that does not end keeps it."""
        with contextlib.suppress(PeerError), self._turn():
            self._close_writer()

    def _carried_out(self, decide: Callable[[DekRegistryState], Sequence[KeyFact]]) -> int:
        """Raises WriterFenced when another node opened the writer's name since."""
        if self._writer is not None and time.monotonic() - self._used_s < _KEPT_S:
            self._catch_up()
            with contextlib.suppress(RequestRefused):
                facts = decide(self._state)
                if facts:
                    return self._appended(self._writer, facts)
        self._close_writer()
        self._writer = self._cluster.writer(WRITER_NAME)
        position = self._catch_up()
        facts = decide(self._state)
        return self._appended(self._writer, facts) if facts else position

    def _appended(self, writer: Writer, facts: Sequence[KeyFact]) -> int:
        position = writer.append([record_of(each) for each in facts]).get(_LOG)
        self._used_s = time.monotonic()
        self._catch_up(position)
        return position

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _catch_up(self, written: int = 0) -> int:
        """Apply the log up to its present end, at least to ``written``; return that end.

        Kafka acknowledges an append shortly before it counts as the end. Raises PeerError, HubFault.
        """
        try:
            end = max(written, self._cluster.end_offsets([KEYS_TOPIC]).get(_LOG))
        except NotFound:
            end = written
        at = self._position or 0
        if end < at:
            raise HubFault(
                f'topic "{KEYS_TOPIC}" ends at {end}, and was read up to {at}: it is another one now',
                hint="check whether it was deleted or restored; restart the server to read it again",
            )
        if end > at:
            silent_s = self._timeout_s
            for record in between(
                Positions({_LOG: at}), Positions({_LOG: end}), self._cluster.reader(), silent_s
            ):
                self._state.apply(record)
        self._position = end
        return end

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the node. Raises PeerError when earlier requests do not end."""
        if not self._lock.acquire(timeout=self._timeout_s):
            raise PeerError(
                "the registry's earlier requests for keys have not ended",
                hint="check Kafka with hub doctor; try again",
                code="HUB-3035",
            )
        try:
            yield
        finally:
            self._lock.release()


_UNREAD = "HUB-3034"


def _unread() -> PeerError:
    return PeerError(
        "Kafka did not answer a moment ago, so a key that is not known may exist",
        hint="check Kafka with hub doctor; try again",
        code=_UNREAD,
    )
