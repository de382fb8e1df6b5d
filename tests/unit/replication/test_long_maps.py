"""The mirrors' own records are read from the beginning, however many; silence has a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryReader
from hub.record import NewRecord, Record
from hub.replication.clusters import readers
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.readers import OnwardReader, read_to_end


class Slow(MemoryCluster):
    """So slow that it takes longer than the time for one answer;
    and from a record on it says nothing more."""

    now_s = 0.0
    silent_from = 10**9

    def end_offsets(self, topics: Any, *, committed: bool = True) -> Any:
        return super().end_offsets(topics)

    def reader(self, **_: Any) -> Any:
        cluster = self

        class One(MemoryReader):
            def poll(self, most: int, wait_s: float) -> list[Record]:
                cluster.now_s += 1.0
                at = sum(offset for _, offset in self.position())
                return [] if at >= cluster.silent_from else super().poll(1, wait_s)

        return One(self)


def by_one(cluster: Slow, take: Callable[[Record], None]) -> None:
    OnwardReader(cast(ClusterHandle, _reached(cluster)), ["map"], take).read_on(3.0)


def whole(cluster: Slow, take: Callable[[Record], None]) -> None:
    read_to_end(cast(ClusterHandle, _reached(cluster)), ["map"], take, 3.0)


def _reached(cluster: Slow) -> Any:
    return type("Here", (), {"name": "lon", "kafka": cluster})()


@pytest.mark.parametrize("read", [by_one, whole])
def test_a_long_map_is_read_to_its_end_and_silence_is_not_waited_for(
    read: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Slow()
    cluster.create_topic("map", partitions=1, config={}, replication_factor=1)
    cluster.writer().append([NewRecord("map", b"k", b"%d" % number) for number in range(10)])
    monkeypatch.setattr(readers.time, "monotonic", lambda: cluster.now_s)
    taken: list[Record] = []
    read(cluster, taken.append)
    assert len(taken) == 10
    cluster.silent_from = 5
    with pytest.raises(PeerError) as silent:
        read(cluster, taken.append)
    assert silent.value.code == "HUB-3604" and len(taken) == 15
