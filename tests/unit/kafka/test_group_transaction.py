"""A commit of a group's positions that librdkafka does not answer is given up; an error of it is raised."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hub.kafka.group_transaction import add_offsets


class Producer:
    """Stands still until ``answers`` is set, then raises ``error`` if there is one."""

    def __init__(self, error: KafkaException | None = None) -> None:
        self.answers, self.error = threading.Event(), error
        self.groups: list[tuple[object, float]] = []

    def send_offsets_to_transaction(self, offsets: list[Any], metadata: bytes, timeout_s: float) -> None:
        self.answers.wait(30.0)
        if self.error is not None:
            raise self.error
        self.groups.append((offsets, timeout_s))


def test_a_commit_that_does_not_return_is_given_up() -> None:
    stuck: Any = Producer()
    with pytest.raises(KafkaException, match="no answer for 0.1 s") as raised:
        add_offsets(stuck, "group", [], 0.1)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    stuck.answers.set()


def test_a_commit_is_made_and_its_error_is_raised() -> None:
    producer: Any = Producer()
    producer.answers.set()
    add_offsets(producer, "group", [], 5.0)
    assert producer.groups == [([], 5.0)]
    producer.error = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException) as raised:
        add_offsets(producer, "group", [], 5.0)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
