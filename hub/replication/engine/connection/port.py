"""[core] Port to one cluster, as the engine needs it: metadata, batches to read, batches to write,
transactions.

``kafka_connection.py`` implements it over the hub's protocol client, the tests also in memory with the same
rules. Both raise the errors of ``hub/kafka/protocol/broker_client/``: the engine reacts to these alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hub.errors import HubError
from hub.kafka.protocol.broker_client import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    EpochEnd,
    Fetched,
    FetchFrom,
    Leader,
    Produced,
    Producer,
    TopicMetadata,
)
from hub.record import TopicPartition
from hub.times import epoch_ms


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch. ``max_wait_ms``: how long the broker waits for the first record."""

    max_wait_ms: int
    max_bytes: int
    partition_bytes: int


class FetchAnswer(NamedTuple):
    """Answer of one broker to ``send_fetch``: the partitions' shares, or the error of the whole answer.
    ``took_s``: seconds from its first byte to its last.
    """

    node: int
    parts: Sequence[Fetched]
    error: HubError | None = None
    took_s: float = 0.0


class TransactionCoordinator(Protocol):
    """Coordinator of one transactional id; see ``broker_client.Transactions``. ``implicit``: brokers add
    partitions to the transaction when something is produced to them.
    """

    implicit: bool

    def initialize(self, former: Producer) -> Producer: ...

    def add(self, producer: Producer, partitions: Iterable[TopicPartition]) -> None: ...

    def end(self, producer: Producer, *, commit: bool) -> Producer: ...


class EngineConnection(Protocol):
    """One cluster. Use from one thread; only ``interrupt`` may be called from another.

    ``topics``: metadata as of the last ``refresh``. A request names its broker by ``leader(tp).node``.
    """

    name: str
    topics: dict[str, TopicMetadata]

    @property
    def round_trip_s(self) -> float:
        """Length of the link to the cluster in seconds, as it was measured; 0: unknown."""
        ...

    def close(self) -> None:
        """Close all connections and forget the fetches in flight. The next request connects again."""
        ...

    def interrupt(self) -> None:
        """End the wait of the thread that uses the connection: its requests raise ConnectionLost."""
        ...

    def refresh(self, topics: Iterable[str]) -> dict[str, HubError]: ...

    def leader(self, tp: TopicPartition) -> Leader: ...

    def offsets(
        self, wanted: Iterable[TopicPartition], at: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]: ...

    def epoch_ends(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | HubError]: ...

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]: ...

    def fetch(
        self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int = READ_COMMITTED
    ) -> Sequence[Fetched]:
        """Fetch and wait for the answer. Raises the error of the whole answer, not those of partitions."""
        ...

    def send_fetch(self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits) -> None:
        """Request batches (read_committed). One request per broker may be in flight."""
        ...

    def receive_fetches(self, wait_s: float) -> Sequence[FetchAnswer]:
        """Return the answers that have arrived; wait up to ``wait_s`` for the first. A fetch that stays
        without an answer for too long is answered with ConnectionLost.
        """
        ...

    @property
    def fetching(self) -> Collection[int]:
        """Brokers with a fetch in flight."""
        ...

    def recycle(self, *, reusable: bool) -> None:
        """Let go of the buffers of all answers so far. ``reusable``: nothing refers to them any more."""
        ...

    def coordinator_of(
        self, transactional_id: str, transaction_timeout_s: float
    ) -> TransactionCoordinator: ...

    def send_produce(
        self,
        node: int,
        transactional_id: str,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        timeout_s: float,
        *,
        implicit: bool = False,
    ) -> Callable[[], Sequence[Produced]]:
        """Send one batch per partition; ``implicit`` as the coordinator has it. The returned function waits
        for the answer; call those of one broker in the order of the requests.
        """
        ...


class EngineClock(Protocol):
    """Time, as an argument: simulations pass their own."""

    def monotonic(self) -> float: ...

    def epoch_ms(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch_ms(self) -> int:
        return epoch_ms()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
