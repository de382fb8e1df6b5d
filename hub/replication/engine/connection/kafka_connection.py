"""[edge] ``EngineConnection`` over the hub's protocol client: long polls of all brokers at once, pipelined
produce requests, and buffers that are used again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from hub.errors import HubError
from hub.kafka.protocol.broker_client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    BrokerCluster,
    BrokerConnection,
    ClusterAccess,
    ConnectionLost,
    Fetched,
    FetchFrom,
    Produced,
    Transactions,
    fetched,
    produce_version,
    produced,
    raise_for,
    send_fetch,
    send_produce,
)
from hub.record import TopicPartition
from hub.replication.engine.connection.port import FetchAnswer, FetchLimits

_IDLE_S = 0.05


class _InFlight(NamedTuple):
    connection: BrokerConnection
    version: int
    until_s: float


class KafkaConnection(BrokerCluster):
    """Brokers of one cluster. ``name`` identifies the side in messages."""

    def __init__(self, access: ClusterAccess, name: str) -> None:
        super().__init__(access, name)
        self._fetching: dict[int, _InFlight] = {}
        self._frames: list[bytearray] = []  # buffers of answers that staged pieces may refer to
        # buffers of answers that are written completely, reused for the next answers
        self._spare: list[bytearray] = []

    def close(self) -> None:
        super().close()
        self._fetching.clear()
        self._frames.clear()

    def interrupt(self) -> None:
        super().close()  # the fetches in flight are the other thread's

    @property
    def round_trip_s(self) -> float:
        return self.round_trip.seconds

    # ---- reading

    @property
    def fetching(self) -> Collection[int]:
        return self._fetching.keys()

    def fetch(
        self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int = READ_COMMITTED
    ) -> Sequence[Fetched]:
        # Separate from the long polls; reads of uncommitted and committed data are separate, too.
        connection = self.connection(node, "peek" if isolation == READ_UNCOMMITTED else "read")
        version = _send(connection, self.on_wire(wanted), limits, isolation)
        frame, at = connection.receive()
        code, parts = fetched(frame, at, version, self.names())
        raise_for(code, f'cluster "{self.name}": read')
        return self.seen(parts)

    def send_fetch(self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits) -> None:
        connection = self.connection(node, "fetch")
        version = _send(connection, self.on_wire(wanted), limits, READ_COMMITTED)
        until_s = time.monotonic() + limits.max_wait_ms / 1000 + self.patience.seconds
        self._fetching[node] = _InFlight(connection, version, until_s)

    def receive_fetches(self, wait_s: float) -> Sequence[FetchAnswer]:
        lost = self._give_up()
        if lost:
            return lost
        if not self._fetching:
            time.sleep(min(wait_s, _IDLE_S))
            return ()
        return [self._receive(node) for node in self._ready(wait_s)]

    def recycle(self, *, reusable: bool) -> None:
        if self._frames and reusable:
            self._spare = self._frames
        self._frames = []

    def _ready(self, wait_s: float) -> list[int]:
        poll = select.poll()
        by_file: dict[int, int] = {}
        ready = []
        for node, (connection, *_) in self._fetching.items():
            if connection.closed or connection.buffered():
                ready.append(node)
                continue
            by_file[connection.fileno()] = node
            poll.register(connection.fileno(), select.POLLIN)
        return ready or [by_file[file] for file, _ in poll.poll(int(wait_s * 1000))]

    def _receive(self, node: int) -> FetchAnswer:
        connection, version, _ = self._fetching.pop(node)
        began_s = time.monotonic()
        try:
            frame, at = connection.receive(spare=self._spare.pop() if self._spare else None)
            self._frames.append(frame)
            code, parts = fetched(frame, at, version, self.names())
            raise_for(code, "fetch")
        except HubError as error:
            connection.close()
            return FetchAnswer(node, (), error)
        return FetchAnswer(node, self.seen(parts), took_s=time.monotonic() - began_s)

    def _give_up(self) -> list[FetchAnswer]:
        """Drop fetches past their deadline. A half-open connection gives neither an answer nor an error, and
        a mirror that had caught up shows no lag.
        """
        now_s = time.monotonic()
        lost = []
        for node, (connection, _, until_s) in list(self._fetching.items()):
            if now_s > until_s:
                del self._fetching[node]
                connection.close()
                self.patience.exceeded()
                error = ConnectionLost(f"broker {connection.where} does not answer")
                lost.append(FetchAnswer(node, (), error))
        return lost

    # ---- writing

    def coordinator_of(self, transactional_id: str, transaction_timeout_s: float) -> Transactions:
        return Transactions(self, transactional_id, transaction_timeout_s)

    def send_produce(
        self,
        node: int,
        transactional_id: str,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        timeout_s: float,
        *,
        implicit: bool = False,
    ) -> Callable[[], Sequence[Produced]]:
        connection, names = self.connection(node, "produce"), self.topic_names
        renamed = [(names.place_on_wire(tp), payload) for tp, payload in batches]
        send_produce(connection, transactional_id, renamed, timeout_s, implicit=implicit)
        version = produce_version(connection, implicit=implicit)

        def answer() -> Sequence[Produced]:
            frame, at = connection.receive()
            return [each._replace(tp=names.seen_place(each.tp)) for each in produced(frame, at, version)]

        return answer


def _send(
    connection: BrokerConnection, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int
) -> int:
    return send_fetch(
        connection,
        wanted,
        max_wait_ms=limits.max_wait_ms,
        max_bytes=limits.max_bytes,
        partition_bytes=limits.partition_bytes,
        isolation=isolation,
    )
