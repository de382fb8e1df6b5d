"""[edge] Positions of consumer groups in a producer's transaction; the error of a broken producer.

After the coordinator of a group was killed, librdkafka may wait for it for ever, whatever its timeout (seen
with 2.16, with the coordinator back within seconds). So its call runs in a thread. The owner discards a
producer whose call does not return; the call, its thread and the producer stay until the process ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import lru_cache

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hub.record import Positions

# Longer than librdkafka's own timeout, whose error is more precise.
_MARGIN_S = 1.0


def add_offsets(
    producer: Producer, group: str, offsets: Sequence[KafkaTopicPartition], timeout_s: float
) -> None:
    """Add a group's positions to the open transaction. Raises KafkaException; with the code ``_TIMED_OUT``
    when librdkafka does not return, and then the producer must not be used any more.
    """
    outcome: list[KafkaException | None] = []

    def call() -> None:
        try:
            producer.send_offsets_to_transaction(list(offsets), _metadata_of(group), timeout_s)
            outcome.append(None)
        except KafkaException as error:
            outcome.append(error)

    thread = threading.Thread(target=call, name="kafka-group-positions", daemon=True)
    thread.start()
    thread.join(timeout_s + _MARGIN_S)
    if not outcome:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer for {timeout_s:g} s"))
    if outcome[0] is not None:
        raise outcome[0]


def add_positions(producer: Producer, group: str, positions: Positions, timeout_s: float) -> None:
    """``add_offsets`` with leader epoch -1 (unknown). Retries while the coordinator moves."""
    offsets = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return add_offsets(producer, group, offsets, timeout_s)
        except KafkaException as failed:
            if not failed.args[0].retriable() or time.monotonic() >= deadline:
                raise
        time.sleep(0.1)


@lru_cache(maxsize=10_000)
def _metadata_of(group: str) -> bytes:
    """Return the consumer group metadata of a producer that is not a member.
    Only a consumer can encode it."""
    consumer = Consumer({"group.id": group, "log_level": 0})  # connects to nothing
    try:
        return bytes(consumer.consumer_group_metadata())
    finally:
        consumer.close()


def fatal_error(producer: Producer) -> KafkaException:
    """Return the fatal error that a broken producer raises for every call. An exception of a callback is lost
    when another callback runs after it.
    """
    try:
        producer.begin_transaction()
    except KafkaException as reason:
        if reason.args[0].fatal():
            return reason
    return KafkaException(KafkaError(KafkaError._FATAL, "the producer broke within a callback"))
