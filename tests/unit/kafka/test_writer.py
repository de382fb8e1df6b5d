"""What a sender tells of a record, without a broker: what librdkafka answers is put in its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from hub.errors import HubError, PeerError
from hub.kafka.offsets import Offsets
from hub.kafka.writer import KafkaSender
from hub.record import NewRecord, Positions, TopicPartition

PLACE = TopicPartition("orders", 1)


class Cluster(Offsets):
    """Of which only one partition's end is known, or none."""

    def __init__(self, end: int | None) -> None:
        super().__init__("127.0.0.1:1", 1.0)
        self.end = end

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Positions:
        return Positions({} if self.end is None else dict.fromkeys(partitions, self.end))


class Delivered:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def partition(self) -> int:
        return PLACE.partition

    def offset(self) -> int | None:
        return self._offset


def told(cluster: Cluster, offset: int | None) -> tuple[TopicPartition, int, HubError | None]:
    heard: list[tuple[TopicPartition, int, HubError | None]] = []
    sender = KafkaSender(cluster, "test")
    sender._answers.append(
        (
            NewRecord(PLACE.topic, None, b"v"),
            lambda tp, offset, error: heard.append((tp, offset, error)),
            None,
            cast(Any, Delivered(offset)),
        )
    )
    sender.poll(0)
    assert len(heard) == 1
    return heard[0]


def test_a_record_is_where_the_broker_put_it() -> None:
    assert told(Cluster(99), 41) == (PLACE, 41, None)


@pytest.mark.parametrize("unsaid", [None, -1001])
def test_a_record_that_the_broker_had_already_is_before_the_end(unsaid: int | None) -> None:
    """An idempotent producer's second try is told of a duplicate, and not of its offset."""
    assert told(Cluster(99), unsaid) == (PLACE, 98, None)


def test_a_partition_that_is_gone_is_told_of() -> None:
    place, _, error = told(Cluster(None), None)
    assert place == PLACE
    assert isinstance(error, PeerError)
