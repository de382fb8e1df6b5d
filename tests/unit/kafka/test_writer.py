"""Reports of a sender about a record, without a broker: librdkafka's answers are replaced."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from hub.errors import HubError, PeerError
from hub.kafka.connection import Connection
from hub.kafka.writer import KafkaSender
from hub.log import WriterFenced
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


class Broker:
    """Takes what is produced, and answers when it is asked: in order, ``silent`` of one record."""

    def __init__(self, silent: bytes) -> None:
        self.silent = silent
        self.waiting: list[tuple[bytes, Any]] = []
        self.taken = 0
        self.most_waiting = 0

    def produce(self, topic: str, value: bytes, key: bytes | None, **fields: Any) -> None:
        assert topic == PLACE.topic and key is None
        self.waiting.append((value, fields["on_delivery"]))
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def poll(self, _timeout_s: float) -> int:
        for value, delivered in self.waiting:
            delivered(None, Delivered(None if value == self.silent else self.taken))
            self.taken += 1
        self.waiting = []
        return 0

    def flush(self, _timeout_s: float) -> int:
        return self.poll(0)


def test_many_records_are_answered_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = KafkaSender(Connection("127.0.0.1:1", 1.0), "test")
    broker = Broker(silent=b"1200")
    monkeypatch.setattr(sender, "producer", broker)
    heard: list[tuple[TopicPartition, int, HubError | None]] = []
    sender.send_all(
        (NewRecord(PLACE.topic, None, b"%d" % number) for number in range(1_234)),
        lambda tp, at, error: heard.append((tp, at, error)),
    )
    assert [at for _, at, error in heard if error is None] == [n for n in range(1_234) if n != 1_200]
    assert {tp for tp, _, _ in heard} == {PLACE}
    assert [str(error) for _, _, error in heard if error is not None] == [str(heard[1_200][2])]
    assert broker.most_waiting <= 500, "answers are served while records are queued"


class Replaced:
    """A producer that was fenced after its last poll: a record gets "fatal", a transaction the reason."""

    def produce(self, *_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "Local: Fatal error"))

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))


def test_who_was_replaced_in_the_middle_of_an_append_hears_of_it() -> None:
    """A retriable fault would reopen the writer and take the name again."""
    sender = KafkaSender(Connection("127.0.0.1:1", 1.0), "test")
    sender.producer = cast(Any, Replaced())
    with pytest.raises(WriterFenced):
        sender.send_all([NewRecord(PLACE.topic, None, b"v")], lambda *_: None)
