"""What a sender tells of a record, without a broker: what librdkafka answers is put in its place."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hub.errors import HubError, PeerError
from hub.kafka.connection import Connection
from hub.kafka.writer import KafkaSender
from hub.record import NewRecord, TopicPartition

PLACE = TopicPartition("orders", 1)


class Delivered:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def partition(self) -> int:
        return PLACE.partition

    def offset(self) -> int | None:
        return self._offset


def told(offset: int | None) -> tuple[TopicPartition, int, HubError | None]:
    heard: list[tuple[TopicPartition, int, HubError | None]] = []
    sender = KafkaSender(Connection("127.0.0.1:1", 1.0), "test")
    delivered = cast(Any, Delivered(offset))
    new = NewRecord(PLACE.topic, None, b"v")
    sender._answers.append((new, lambda tp, at, error: heard.append((tp, at, error)), None, delivered))
    sender.poll(0)
    assert len(heard) == 1
    return heard[0]


def test_a_record_is_where_the_broker_put_it() -> None:
    assert told(41) == (PLACE, 41, None)


@pytest.mark.parametrize("unsaid", [None, -1001])
def test_a_record_without_an_offset_is_not_acknowledged(unsaid: int | None) -> None:
    """The broker took it for a duplicate, which it is not when the topic was deleted and made again."""
    place, _, error = told(unsaid)
    assert place == PLACE
    assert isinstance(error, PeerError)
    assert "the outcome is unknown" in error.message
