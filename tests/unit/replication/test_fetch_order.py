"""Order of a fetch: an answer is filled in the order of the request,
so each partition is first in its turn."""

from __future__ import annotations

from memory_brokers import ManualClock, MemoryBrokers
from memory_connection import MemoryConnection

from hub.record import NewRecord, TopicPartition
from hub.replication.engine.fetcher import Fetcher, turned
from hub.replication.engine.shard_state import EngineSettings, ShardState
from hub.replication.ownership.shards import Shard


def test_each_partition_of_a_broker_is_first_in_its_turn() -> None:
    names = ["history", "orders", "visits"]
    asked = [turned(names, turn) for turn in range(6)]
    assert all(sorted(each) == names for each in asked)
    for turn in (asked[:3], asked[3:]):  # nobody is first twice before everybody was
        assert sorted(each[0] for each in turn) == names


def test_who_had_no_room_in_an_answer_is_first_in_the_next() -> None:
    """Eight partitions with much to catch up, and answers that have room for three: all have got something
    after three."""
    brokers = MemoryBrokers(ManualClock())
    names = [f"t{number}" for number in range(8)]
    for name in names:
        brokers.create_topic(name, 1)
        for _ in range(5):
            brokers.append([NewRecord(name, None, b"x" * 1_000)])
    tps = [TopicPartition(name, 0) for name in names]
    settings = EngineSettings(fetch_bytes=3_300, fetch_partition_bytes=1_000)
    shard = ShardState(Shard("m", 0), settings, tps)
    source = MemoryConnection(brokers, "source")
    source.refresh(names)
    fetcher = Fetcher(source, shard, frozenset(names), {}, frozenset(), brokers.clock)
    fetcher.send()
    for _ in range(3):
        fetcher.receive(0.0)
    assert all(each.staged for each in shard.partitions.values())
    assert sum(len(each.staged) for each in shard.partitions.values()) == 9
