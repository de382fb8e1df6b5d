"""[edge] Transactions: the requests to the coordinator of one transactional id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from hub.kafka.protocol.broker_client.cluster import BrokerCluster
from hub.kafka.protocol.broker_client.connection import BrokerConnection
from hub.kafka.protocol.broker_client.errors import (
    MAY_NOT,
    NOT_COORDINATOR,
    BrokerBusy,
    BrokerRefused,
    ConnectionLost,
    PartitionsRefused,
    translated,
)
from hub.kafka.protocol.broker_client.long_link import LONG_S
from hub.record import TopicPartition


class Producer(NamedTuple):
    """The producer id that a coordinator assigned to a transactional id, and the epoch that fences older
    producers.
    """

    producer_id: int
    epoch: int


NOBODY: Final = Producer(-1, -1)
_IMPLICIT_END: Final = 5


class Transactions:
    """Requests to the coordinator of one transactional id. Temporary errors are retried until ``timeout_s``;
    then, and for all other errors, raises the errors of ``translated``.

    ``implicit``: over a long link, where the cluster has transactions of version 2 (KIP-890): brokers add a
    partition with the first batch that is produced to it, and every transaction has an epoch of its own.
    """

    def __init__(self, cluster: BrokerCluster, transactional_id: str, transaction_timeout_s: float) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = int(transaction_timeout_s * 1000)
        self.timeout_s = cluster.access.request_timeout_s
        self.implicit = False
        self._node: int | None = None

    def initialize(self, former: Producer = NOBODY) -> Producer:
        """Fence every other producer with this transactional id and end its open transaction. ``former``: the
        producer id and epoch that this process had before; raises WriterFenced if another producer has taken
        the id since (KIP-360).
        """

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                InitProducerIdRequest,
                4,
                3 if former is not NOBODY else 0,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.transaction_timeout_ms,
                producer_id=former.producer_id,
                producer_epoch=former.epoch,
            )
            return int(answer.error_code), answer

        answer = self._until_done(ask, "initialize")
        self.implicit = self._may_be_implicit()
        return Producer(int(answer.producer_id), int(answer.producer_epoch))

    def _may_be_implicit(self) -> bool:
        if self._node is None or self.cluster.round_trip.seconds < LONG_S:
            return False
        connection = self.cluster.connection(self._node, "transactions")
        low, high = connection.versions.get(EndTxnRequest.API_KEY, (0, 0))
        return low <= _IMPLICIT_END <= high and connection.features().get("transaction.version", 0) >= 2

    def add(self, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction at the coordinator, before anything is written to them. Raises
        PartitionsRefused when the user may not write to some of them; then none is added. Does nothing where
        brokers do it themselves (``implicit``).
        """
        if self.implicit:
            return
        closed: list[TopicPartition] = []
        topics: dict[str, list[int]] = {}
        names = self.cluster.topic_names
        for tp in map(names.place_on_wire, partitions):
            topics.setdefault(tp.topic, []).append(tp.partition)
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                AddPartitionsToTxnRequest,
                3,
                0,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[kind(name=name, partitions=numbers) for name, numbers in topics.items()],
            )
            codes = {
                TopicPartition(str(topic.name), int(each.partition_index)): int(each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            closed[:] = [names.seen_place(tp) for tp, code in codes.items() if code == MAY_NOT]
            # One bad partition leaves the others "not attempted": the cause is the other error.
            bad = [code for code in codes.values() if code] or [0]
            return next((code for code in bad if code != 55), bad[0]), answer

        try:
            self._until_done(ask, "add partitions to the transaction")
        except BrokerRefused as error:
            if error.kafka_code == MAY_NOT and closed:
                raise PartitionsRefused(error, closed) from None
            raise

    def end(self, producer: Producer, *, commit: bool) -> Producer:
        """Commit or abort; return the producer of the next transaction. After any error except Refused the
        outcome is unknown; ``initialize`` resolves it.
        """

        def ask(connection: BrokerConnection) -> tuple[int, Any]:
            answer = connection.ask(
                EndTxnRequest,
                _IMPLICIT_END if self.implicit else 4,
                _IMPLICIT_END if self.implicit else 0,
                transactional_id=self.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )
            return int(answer.error_code), answer

        answer = self._until_done(ask, "commit" if commit else "abort")
        if not self.implicit or int(answer.producer_id) < 0:
            return producer
        return Producer(int(answer.producer_id), int(answer.producer_epoch))

    def _until_done(self, ask: Callable[[BrokerConnection], tuple[int, Any]], doing: str) -> Any:
        deadline = time.monotonic() + self.timeout_s
        pause = 0.002
        doing = f'transactional id "{self.transactional_id}": {doing}'
        while True:
            try:
                if self._node is None:
                    self._node = self.cluster.coordinator(self.transactional_id)
                code, answer = ask(self.cluster.connection(self._node, "transactions"))
                error = translated(code, doing)
            except BrokerBusy as busy:
                error = busy
            except ConnectionLost:
                self._node = None
                raise
            if error is None:
                return answer
            if not isinstance(error, BrokerBusy) or time.monotonic() + pause > deadline:
                raise error
            if error.kafka_code in NOT_COORDINATOR:
                self._node = None
            time.sleep(pause)
            pause = min(0.1, pause * 2)
