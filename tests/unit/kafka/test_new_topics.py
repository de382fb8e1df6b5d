"""New topics while every broker is fenced: Kafka refuses them for a moment, not for good."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hub.errors import CallerError, PeerError
from hub.kafka import KafkaCluster

FENCED = "Unable to replicate the partition 1 time(s): All brokers are currently fenced"
TOO_FEW = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached"


class Controller:
    """An admin client whose brokers are fenced for the first ``refusals`` requests."""

    def __init__(self, refusals: int, text: str) -> None:
        self.refusals, self.text, self.requests = refusals, text, 0

    def poll(self, _timeout_s: float) -> int:
        return 0

    def create_topics(self, topics: Sequence[Any], **_options: Any) -> dict[str, Future[None]]:
        self.requests += 1
        answers: dict[str, Future[None]] = {each.topic: Future() for each in topics}
        for answer in answers.values():
            if self.requests <= self.refusals:
                refusal = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, self.text)
                answer.set_exception(KafkaException(refusal))
            else:
                answer.set_result(None)
        return answers


def created(monkeypatch: pytest.MonkeyPatch, controller: Controller, timeout_s: float) -> None:
    monkeypatch.setattr(KafkaCluster, "admin", controller)
    cluster = KafkaCluster("127.0.0.1:1", timeout_s)
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1, rehearse=True)


def test_a_topic_is_asked_for_again_until_a_broker_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(1, FENCED)
    created(monkeypatch, controller, 20.0)
    assert controller.requests == 2


def test_brokers_that_stay_fenced_are_named_at_the_end_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerError, match="no leader now"):
        created(monkeypatch, Controller(1_000, FENCED), 0.1)


def test_too_few_brokers_are_a_refusal_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(1_000, TOO_FEW)
    with pytest.raises(CallerError, match="cannot be reached"):
        created(monkeypatch, controller, 20.0)
    assert controller.requests == 1
