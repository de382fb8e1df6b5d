"""Whose records a broker is asked for first: an answer is filled in the order of the question."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hub.record import TopicPartition
from hub.replication import wire
from hub.replication.batch_engine import BatchEngine


def test_each_partition_of_a_broker_is_first_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        wire, "send_fetch", lambda connection, wanted, **_: asked.append([each.tp.topic for each in wanted])
    )
    names = ["history", "orders", "visits"]
    partitions = {
        name: SimpleNamespace(tp=TopicPartition(name, 0), failed=None, position=0) for name in names
    }
    engine = SimpleNamespace(
        _clock=lambda: 0.0, _refresh_at=None, _partitions=partitions, _fetching={}, _source_retry_at={}, _turn=0,
        source=SimpleNamespace(
            leader=lambda tp: SimpleNamespace(node=1, epoch=0), topics={name: SimpleNamespace(uuid=name) for name in names},
            connection=lambda node, use: None, access=SimpleNamespace(request_timeout_s=1.0),
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
