"""Reports of mirrors in a cluster, read incrementally, and completely after a topic is recreated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from mirror_statuses import MARK, PLACE, partition

from hub.errors import HubFault
from hub.log import MemoryCluster, MemoryReader
from hub.record import NewRecord, Positions
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.control_state import pause_record
from hub.replication.clusters.readers import StatusReader
from hub.replication.clusters.status_records import STATUS_TOPIC
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, CONTROL_TOPIC

TOPICS = (CONTROL_TOPIC, STATUS_TOPIC, CHECKPOINTS_TOPIC)


@dataclass
class Kafka(MemoryCluster):
    """As the adapter is asked; counts what was begun to be read."""

    began: list[Positions] = field(default_factory=list)

    def end_offsets(self, topics: Sequence[str], committed: bool = True) -> Positions:
        return super().end_offsets(topics)

    def beginning_offsets(self, topics: Sequence[str]) -> Positions:
        self.began.append(super().beginning_offsets(topics))
        return self.began[-1]

    def reader(self, queue_kb: int = 0) -> MemoryReader:
        return super().reader()


def made() -> tuple[Kafka, StatusReader]:
    kafka: Any = Kafka()
    return kafka, StatusReader(ClusterHandle("lon", kafka, None))  # type: ignore[arg-type]


def make(kafka: Kafka, *topics: str) -> None:
    for name in topics:
        kafka.create_topic(name, partitions=1, config={}, replication_factor=1)


def test_only_what_came_since_is_read() -> None:
    kafka, reader = made()
    assert reader.refresh()[0].partitions == {}  # it has none of the topics yet
    make(kafka, *TOPICS)
    kafka.writer().append([partition(), MARK.record()])
    board, progress = reader.refresh()
    assert ("m", *PLACE) in board.partitions and progress.of("m") == {PLACE: MARK}
    kafka.writer().append([pause_record("m", "ada", 1, paused=True)])
    board, progress = reader.refresh()
    assert board.paused == {"m": "ada"} and progress.of("m") == {PLACE: MARK}
    assert len(kafka.began) == 1


def test_a_topic_that_was_made_again_is_read_anew() -> None:
    kafka, reader = made()
    make(kafka, *TOPICS)
    kafka.writer().append([pause_record("m", "ada", 1, paused=True), partition(), partition()])
    assert reader.refresh()[0].paused == {"m": "ada"}
    kafka.delete_topic(CONTROL_TOPIC)
    assert reader.refresh()[0].paused == {}
    make(kafka, CONTROL_TOPIC)
    board, _ = reader.refresh()
    assert board.paused == {} and ("m", *PLACE) in board.partitions
    kafka.delete_topic(STATUS_TOPIC)
    make(kafka, STATUS_TOPIC)
    assert reader.refresh()[0].partitions == {}


def test_after_a_strange_record_nothing_is_missing() -> None:
    kafka, reader = made()
    make(kafka, *TOPICS)
    kafka.writer().append([NewRecord(STATUS_TOPIC, b"worker|w", b"[1]"), partition()])
    for _ in range(2):
        with pytest.raises(HubFault, match="not a record of a mirror"):
            reader.refresh()
