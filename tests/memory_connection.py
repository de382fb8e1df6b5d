"""``EngineConnection`` to a cluster in memory, the counterpart of ``kafka_connection.py``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from memory_brokers import MemoryBrokers

from hub.errors import HubError
from hub.kafka.protocol.broker_client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    BrokerBusy,
    ConnectionLost,
    EpochEnd,
    Fetched,
    FetchFrom,
    Leader,
    Produced,
    Producer,
    TopicMetadata,
    topic_id_text,
    translated,
)
from hub.record import TopicPartition
from hub.replication.engine.connection.port import FetchAnswer, FetchLimits

_NODE = 0
_IDLE_S = 0.05


class _Fetching(NamedTuple):
    wanted: Sequence[FetchFrom]
    limits: FetchLimits
    until_s: float


class MemoryConnection:
    """``EngineConnection`` to a cluster in memory."""

    def __init__(self, brokers: MemoryBrokers, name: str) -> None:
        self.brokers, self.name = brokers, name
        self.topics: dict[str, TopicMetadata] = {}
        self._fetching: dict[int, _Fetching] = {}

    @property
    def round_trip_s(self) -> float:
        return self.brokers.round_trip_s

    def close(self) -> None:
        self._fetching.clear()

    def interrupt(self) -> None: ...

    def refresh(self, topics: Iterable[str]) -> dict[str, HubError]:
        self.request("metadata")
        refused: dict[str, HubError] = {}
        for name in sorted(set(topics)):
            identity = self.brokers.topics.get(name)
            if identity is None:
                self.topics.pop(name, None)
                error = translated(UNKNOWN_TOPIC, f'cluster "{self.name}", topic "{name}"')
                assert error is not None
                refused[name] = error
                continue
            leaders = {
                tp.partition: Leader(_NODE, self.brokers.logs[tp].epoch)
                for tp in self.brokers.partitions(name)
            }
            self.topics[name] = TopicMetadata(topic_id_text(identity), identity, leaders)
        return refused

    def leader(self, tp: TopicPartition) -> Leader:
        topic = self.topics.get(tp.topic)
        if topic is None or tp.partition not in topic.leaders:
            raise BrokerBusy(f'cluster "{self.name}", {tp}: no leader', kafka_code=5)
        return topic.leaders[tp.partition]

    def offsets(
        self, wanted: Iterable[TopicPartition], at: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        self.request("offsets")
        found = {}
        for tp in wanted:
            log = self.brokers.logs.get(tp)
            if log is None:
                raise BrokerBusy(f'cluster "{self.name}", {tp}: offsets', kafka_code=UNKNOWN_TOPIC)
            end = log.stable_end if isolation == READ_COMMITTED else log.end
            found[tp] = log.start if at == EARLIEST else end
        return found

    def epoch_ends(
        self, node: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | HubError]:
        self.request("epochs")
        found: dict[TopicPartition, EpochEnd | HubError] = {}
        for tp, epoch in wanted.items():
            end = EpochEnd(-1, -1)
            for batch, after in zip(self.brokers.logs[tp].batches, self.brokers.logs[tp].ends, strict=True):
                (led_by,) = struct.unpack_from(">i", batch, 12)
                if led_by <= epoch:
                    end = EpochEnd(led_by, after)
            found[tp] = end
        return found

    def largest_batches(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, self.brokers.largest_batch_bytes)

    def fetch(
        self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int = READ_COMMITTED
    ) -> Sequence[Fetched]:
        self.request("fetch")
        found = self._read(wanted, limits, isolation)
        if not any(part.end or part.error for part in found):
            self.brokers.clock.sleep(limits.max_wait_ms / 1000)
        return found

    def send_fetch(self, node: int, wanted: Sequence[FetchFrom], limits: FetchLimits) -> None:
        self.request("fetch")
        until_s = self.brokers.clock.monotonic() + limits.max_wait_ms / 1000
        self._fetching[node] = _Fetching(wanted, limits, until_s)

    def receive_fetches(self, wait_s: float) -> Sequence[FetchAnswer]:
        clock = self.brokers.clock
        asked = self._fetching.get(_NODE)
        if asked is None:
            clock.sleep(min(wait_s, _IDLE_S))
            return ()
        try:
            self.request("fetch", "after")
        except HubError as error:
            del self._fetching[_NODE]
            return [FetchAnswer(_NODE, (), error)]
        parts = self._read(asked.wanted, asked.limits, READ_COMMITTED)
        if not any(part.end or part.error for part in parts):
            clock.sleep(min(wait_s, max(0.0, asked.until_s - clock.monotonic())))
            parts = self._read(asked.wanted, asked.limits, READ_COMMITTED)
            if clock.monotonic() < asked.until_s and not any(part.end or part.error for part in parts):
                return ()
        del self._fetching[_NODE]
        return [FetchAnswer(_NODE, parts)]

    @property
    def fetching(self) -> Collection[int]:
        return self._fetching.keys()

    def recycle(self, *, reusable: bool) -> None: ...

    def coordinator_of(self, transactional_id: str, transaction_timeout_s: float) -> MemoryCoordinator:
        return MemoryCoordinator(self, transactional_id, transaction_timeout_s)

    def send_produce(
        self,
        node: int,
        transactional_id: str,
        batches: Sequence[tuple[TopicPartition, memoryview]],
        timeout_s: float,
        *,
        implicit: bool = False,
    ) -> Callable[[], Sequence[Produced]]:
        self.request("produce")
        assert implicit is self.brokers.implicit
        found = [self.brokers.produce(transactional_id, tp, payload) for tp, payload in batches]

        def answer() -> Sequence[Produced]:
            self.request("produce", "after")
            return found

        return answer

    def _read(self, wanted: Sequence[FetchFrom], limits: FetchLimits, isolation: int) -> list[Fetched]:
        """Answer in the order of the request, until it is full (KIP-74)."""
        found: list[Fetched] = []
        left = limits.max_bytes
        for each in wanted:
            log = self.brokers.logs.get(each.tp)
            if log is None or self.brokers.topics[each.tp.topic] != each.topic_id:
                found.append(Fetched(each.tp, UNKNOWN_TOPIC_ID, -1, -1, -1, (), bytearray(), 0, 0))
                continue
            part = log.read(each.tp, each, min(limits.partition_bytes, left), isolation)
            if part.end > left and len(found) and any(one.end for one in found):
                part = part._replace(buffer=bytearray(), end=0)
            left = max(0, left - part.end)
            found.append(part)
        return found

    def request(self, request: str, moment: str = "before") -> None:
        self.brokers.hook(request, moment)
        if not self.brokers.up:
            raise ConnectionLost(f'cluster "{self.name}" does not answer')


class MemoryCoordinator:
    """``TransactionCoordinator`` of a cluster in memory."""

    def __init__(self, connection: MemoryConnection, transactional_id: str, timeout_s: float) -> None:
        self._connection, self._brokers = connection, connection.brokers
        self._id, self._timeout_s = transactional_id, timeout_s

    @property
    def implicit(self) -> bool:
        return self._brokers.implicit

    def initialize(self, former: Producer) -> Producer:
        self._connection.request("initialize")
        producer = self._brokers.initialize(self._id, former)
        self._connection.request("initialize", "after")
        return producer

    def add(self, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
        if self.implicit:
            return
        self._connection.request("add")
        self._brokers.add(self._id, producer, partitions, self._timeout_s)
        self._connection.request("add", "after")

    def end(self, producer: Producer, *, commit: bool) -> Producer:
        self._connection.request("end")
        following = self._brokers.end(self._id, producer, commit=commit)
        self._connection.request("end", "after")
        return following
