"""A Kafka that was killed between the decision of a transaction and its markers: readers of committed records
see what was acknowledged, and do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from java_classes import JavaClasses
from kafka_nodes import batches_of, killed, log_of, own_node, write_log
from patience import patient
from pipeline import wait_until

from hub.embedded import KafkaNode
from hub.embedded.interrupted_transactions import TransactionDecision, decisions_in, known_and_new
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import (
    READ_COMMITTED,
    BrokerBusy,
    BrokerCluster,
    ClusterAccess,
    ConnectionLost,
)
from hub.record import TopicPartition

ORDERS = [TopicPartition("shop.orders", number) for number in range(3)]
COMMITTED, ABORTED, OPEN = ORDERS
_STATE_PARTITIONS = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    with own_node(tmp_path) as made:
        KafkaCluster(made.bootstrap).create_topic(
            "shop.orders", partitions=len(ORDERS), config={}, replication_factor=1
        )
        yield made


def writer(node: KafkaNode, name: str) -> Producer:
    """A producer whose transaction has begun."""
    made = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name, "linger.ms": 0})
    made.init_transactions(patient(30.0))
    made.begin_transaction()
    return made


def write(producer: Producer, tp: TopicPartition, value: bytes) -> None:
    producer.produce(tp.topic, value, partition=tp.partition)
    producer.flush(patient(30.0))


def ends(node: KafkaNode, isolation: int = 0) -> dict[TopicPartition, int]:
    """Return the partitions' ends, once the broker knows their leaders' epochs after a start."""
    found: dict[TopicPartition, int] = {}

    def answered() -> bool:
        cluster = BrokerCluster(ClusterAccess(bootstrap=node.bootstrap))
        try:
            cluster.refresh({"shop.orders"})
            found.update(cluster.offsets(ORDERS, isolation=isolation))
        except (BrokerBusy, ConnectionLost):
            return False
        finally:
            cluster.close()
        return True

    wait_until(answered, 30.0, lambda: "the broker does not know its partitions")
    return found


def committed_values(node: KafkaNode) -> list[bytes | None]:
    """Return all values that a reader of committed records gets, in no order."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    try:
        left = {(tp.topic, tp.partition): end for tp, end in ends(node).items() if end}
        consumer.assign([Assigned(*tp, 0) for tp in left])
        values = []

        def has_all() -> bool:
            if (message := consumer.poll(0.1)) is not None:
                values.append(message.value())
            positions = consumer.position([Assigned(*tp) for tp in left])
            return all(each.offset >= left[each.topic, each.partition] for each in positions)

        wait_until(has_all, 30.0, lambda: f"read {values}")
        return values
    finally:
        consumer.close()


def state_logs(node: KafkaNode) -> list[Path]:
    topic = "__transaction_state"
    return [log_of(node, TopicPartition(topic, number)) for number in range(_STATE_PARTITIONS)]


def forget_the_end(node: KafkaNode) -> None:
    """Cut the logs as they were when the decisions were written and the markers were not."""
    for tp in (COMMITTED, ABORTED):
        batches = batches_of(log_of(node, tp))
        write_log(log_of(node, tp), batches[:-1])
    for segment in state_logs(node):
        batches = batches_of(segment)
        while batches and not decided(batches[-1]):
            batches.pop()
        if batches:
            write_log(segment, batches)


def decided(batch: bytes) -> bool:
    """Return whether the last state in a batch is no complete transaction: its markers are to be written."""
    return b"shop.orders" in batch


def test_markers_that_a_kill_kept_back_are_written_before_clients_come(node: KafkaNode) -> None:
    for name, tp in (("billing", COMMITTED), ("cart", ABORTED)):
        producer = writer(node, name)
        write(producer, tp, b"first")
        if tp == COMMITTED:
            producer.commit_transaction(patient(30.0))
        else:
            producer.abort_transaction(patient(30.0))
    wait_until(lambda: ends(node, READ_COMMITTED) == ends(node), 30.0, lambda: str(ends(node)))
    with killed(node):
        forget_the_end(node)
        found = {each.transactional_id: each for each in decisions_in(node.folder / "data")}
        assert {name: (each.commits, each.partitions) for name, each in found.items()} == {
            "billing": (True, (COMMITTED,)),
            "cart": (False, (ABORTED,)),
        }
    assert ends(node, READ_COMMITTED) == ends(node) == {COMMITTED: 2, ABORTED: 2, OPEN: 0}
    assert not (node.folder / "interrupted-transactions.json").exists()
    assert committed_values(node) == [b"first"]


def test_an_open_transaction_is_left_to_its_writer(node: KafkaNode) -> None:
    producer = writer(node, "billing")
    write(producer, OPEN, b"first")
    with killed(node):
        assert decisions_in(node.folder / "data") == []
    # Only a kill costs the reading of the log: an orderly stop leaves a mark, which a start removes.
    mark = node.folder / "data" / ".kafka_cleanshutdown"
    assert not mark.exists()
    node.stop()
    assert mark.exists()
    node.start()
    node.wait_ready(patient(60.0))
    assert not mark.exists()
    write(producer, OPEN, b"second")
    producer.commit_transaction(patient(60.0))
    wait_until(
        lambda: ends(node, READ_COMMITTED)[OPEN] == ends(node)[OPEN] == 3, 30.0, lambda: str(ends(node))
    )


def write_by_java(node: KafkaNode, name: str, tp: TopicPartition, value: bytes) -> None:
    """Write and commit as Kafka's own client does: each of its transactions has an epoch of its own."""
    with JavaClasses(node.settings, node.jars()) as java:
        properties = java["java.util.Properties"]()
        properties.put("bootstrap.servers", node.bootstrap)
        properties.put("transactional.id", name)
        as_bytes = java["org.apache.kafka.common.serialization.ByteArraySerializer"]
        producer = java["org.apache.kafka.clients.producer.KafkaProducer"](properties, as_bytes(), as_bytes())
        record = java["org.apache.kafka.clients.producer.ProducerRecord"]
        try:
            producer.initTransactions()
            for _ in range(2):
                producer.beginTransaction()
                producer.send(record(tp.topic, tp.partition, None, value)).get()
                producer.commitTransaction()
        finally:
            producer.close()


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_what_an_earlier_start_did_not_finish_is_finished_by_the_next(node: KafkaNode, client: str) -> None:
    if client == "java":
        write_by_java(node, "billing", COMMITTED, b"first")
    else:
        producer = writer(node, "billing")
        write(producer, COMMITTED, b"first")
        producer.commit_transaction(patient(30.0))
    wait_until(lambda: ends(node, READ_COMMITTED) == ends(node), 30.0, lambda: str(ends(node)))
    wanted = ends(node)
    kept = node.folder / "interrupted-transactions.json"
    with killed(node):
        complete = {segment: segment.read_bytes() for segment in state_logs(node)}
        forget_the_end(node)
        found = known_and_new(kept, node.folder / "data")
        assert [each.version for each in found] == [2 if client == "java" else 0]
        gone = TransactionDecision(
            "gone", 9, 0, commits=False, partitions=(TopicPartition("shop.deleted", 0),)
        )
        kept.write_bytes(orjson.dumps([*found, gone], default=tuple))
        # The coordinator took the transaction for complete before that start was killed, too.
        for segment, content in complete.items():
            segment.write_bytes(content)
        assert decisions_in(node.folder / "data") == []
    assert ends(node, READ_COMMITTED) == ends(node) == wanted
    assert b"first" in committed_values(node)
    assert not kept.exists()
