"""Requests for topics are answered while the broker that clients take for the controller restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_suite.brokers import Brokers
from patience import patient

from hub.kafka import KafkaCluster
from hub.supervisor import end

TOPIC = "controlled"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    three = Brokers(tmp_path, 3)
    try:
        three.start()
        yield three
    finally:
        three.stop()


@pytest.mark.timeout(240)
def test_topics_are_described_while_the_controller_is_away(brokers: Brokers) -> None:
    timeout_s = patient(10.0)
    KafkaCluster(brokers.bootstrap, timeout_s).create_topic(
        TOPIC, partitions=1, config={}, replication_factor=3
    )
    for _ in range(2):
        cluster = KafkaCluster(brokers.bootstrap, timeout_s)
        assert cluster.partition_counts([TOPIC]) == {TOPIC: 1}
        controller = brokers.nodes[cluster.admin.list_topics(timeout=timeout_s).controller_id - 1]
        assert controller.process is not None
        end(controller.process, patient(30.0))
        assert cluster.partition_counts([TOPIC]) == {TOPIC: 1}
        controller.start()
        controller.wait_ready(patient(60.0))
