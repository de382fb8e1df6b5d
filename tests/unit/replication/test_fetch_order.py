"""Whose records a broker is asked for first: an answer is filled in the order of the question."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hub.kafka.protocol import broker_client
from hub.record import TopicPartition
from hub.replication.engine.batch_engine import BatchEngine


def test_each_partition_of_a_broker_is_first_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        broker_client,
        "send_fetch",
        lambda connection, wanted, **_: asked.append([each.tp.topic for each in wanted]),
    )
    names = ["history", "orders", "visits"]
    partitions = {
        name: SimpleNamespace(tp=TopicPartition(name, 0), failed=None, position=0, same_to=0)
        for name in names
    }
    engine = SimpleNamespace(
        _clock=lambda: 0.0, _refresh_at=None, _partitions=partitions, _fetching={}, _source_retry_at={}, _turn=0,
        source=SimpleNamespace(
            leader=lambda tp: SimpleNamespace(node=1, epoch=0), topics={name: SimpleNamespace(uuid=name) for name in names},
            connection=lambda node, use: None, patience=SimpleNamespace(seconds=1.0),
        ),
        settings=SimpleNamespace(fetch_wait_ms=10, fetch_bytes=10, fetch_partition_bytes=10),
    )  # fmt: skip
    for _ in range(6):
        engine._fetching.clear()
        BatchEngine._send_fetches(cast(Any, engine))
    assert sorted(each[0] for each in asked) == sorted(names * 2)
    assert all(sorted(each) == names for each in asked)
    for turn in (asked[:3], asked[3:]):  # nobody is first twice before everybody was
        assert sorted(each[0] for each in turn) == names


def test_who_had_no_room_in_an_answer_is_first_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight partitions with much to catch up, and answers that have room for three: all have got something after three."""
    names = [f"t{number}" for number in range(8)]
    asked: list[list[str]] = []
    monkeypatch.setattr(
        broker_client,
        "send_fetch",
        lambda connection, wanted, **_: asked.append([each.tp.topic for each in wanted]),
    )

    def answered(*_: Any) -> tuple[int, list[Any]]:
        parts = [
            SimpleNamespace(tp=TopicPartition(name, 0), start=0, end=int(at < 3))
            for at, name in enumerate(asked[-1])
        ]
        return 0, parts

    monkeypatch.setattr(broker_client, "fetched", answered)
    monkeypatch.setattr(broker_client, "raise_for", lambda *_: None)
    connection = SimpleNamespace(
        buffered=lambda: True, fileno=lambda: 0, receive=lambda spare: (bytearray(), 0)
    )
    partitions = {
        TopicPartition(name, 0): SimpleNamespace(
            tp=TopicPartition(name, 0), failed=None, position=0, same_to=0
        )
        for name in names
    }
    got: list[str] = []
    engine = SimpleNamespace(
        _clock=lambda: 0.0, _refresh_at=None, _partitions=partitions, _fetching={}, _source_retry_at={}, _turn=0,
        _spare=[], _frames=[], _give_up_fetches=lambda: None,
        _take=lambda each, part: got.append(each.tp.topic) if part.end else None,
        source=SimpleNamespace(
            leader=lambda tp: SimpleNamespace(node=1, epoch=0), topics={name: SimpleNamespace(uuid=name) for name in names},
            connection=lambda node, use: connection, patience=SimpleNamespace(seconds=1.0), names=dict,
        ),
        settings=SimpleNamespace(fetch_wait_ms=10, fetch_bytes=10, fetch_partition_bytes=10),
    )  # fmt: skip
    engine._send_fetches = lambda: BatchEngine._send_fetches(cast(Any, engine))
    engine._send_fetches()
    for _ in range(3):
        BatchEngine._receive_fetches(cast(Any, engine), 0.0)
    assert set(got) == set(names)
