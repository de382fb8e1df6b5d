"""The map made shorter while mirrors write it:
every reader translates as if it had not been, wherever anybody stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.log import MemoryCluster, MemoryReader, MemoryWriter, WriterFenced
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, keep_short, map_lag_ms
from hub.replication.clusters.offset_map_compaction import OffsetMapCompaction
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_TOPIC,
    CONTROL_CONFIG,
    CONTROL_TOPIC,
    MAP_CONFIG,
    MAP_TOPIC,
    Checkpoint,
    MapRecord,
)
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard
from hub.replication.worker.link_tasks import LinkTasks

PLACE = TopicPartition("nyc.a", 0)


class Kafka(MemoryCluster):
    """The twin with the mirrors' own topics in it, and with what only clients of Kafka are asked."""

    def __init__(self, **lag: str) -> None:
        super().__init__()
        self.before_reading = list[NewRecord]()
        for name, config in ((CHECKPOINTS_TOPIC, {}), (MAP_TOPIC, {**MAP_CONFIG, **lag})):
            self.create_topic(name, partitions=3, config=config, replication_factor=1)

    def end_offsets(self, topics: Any, *, committed: bool = True) -> Any:
        return super().end_offsets(topics)

    def reader(self, **_: Any) -> MemoryReader:
        return super().reader()

    def writer(self, name: str | None = None) -> MemoryWriter:
        if name is not None and self.before_reading:
            super().writer(name).append(self.before_reading)
            self.before_reading = []
        return super().writer(name)

    @property
    def said(self) -> list[Record]:
        return [r for topic in (CHECKPOINTS_TOPIC, MAP_TOPIC) for log in self.logs[topic] for r in log]

    @property
    def map_keys(self) -> dict[tuple[int, bytes | None], bytes | None]:
        """What compaction would leave of the map."""
        left = {(r.partition, r.key): r.value for log in self.logs[MAP_TOPIC] for r in log}
        return {key: value for key, value in left.items() if value is not None}


def mirrored(steps: Iterable[tuple[int, int, int]], partitions: Iterable[int]) -> list[NewRecord]:
    """Transactions: each skips some source offsets and some target offsets, and carries a few records."""
    written, source, target = [], 3, 7
    for (skipped, markers, count), partition in zip(steps, partitions, strict=False):
        run = Run(source + skipped, target + markers, count)
        source, target = run.source_end, run.target_end
        written += [
            MapRecord("m", *PLACE[:1], "id", PLACE.partition, (run,)).record(partition),
            Checkpoint("m", 0, *PLACE, "id", source, -1, target, source_start=3, target_start=7).record(0),
        ]
    return written


def many(count: int, first: int = 3) -> list[NewRecord]:
    made = [(0, 1, 2)] * (first - 3 + count)
    return mirrored(made, [1] * len(made))[2 * (first - 3) :]


def as_read(new: NewRecord) -> Record:
    return Record(new.topic, new.partition or 0, 0, 0, new.key, new.value)


def read(records: Iterable[Record]) -> WrittenState:
    progress = WrittenState()
    for record in records:
        progress.apply(record)
    return progress


def table(progress: WrittenState) -> OffsetMap:
    found = progress.table("m", PLACE)
    assert found is not None
    return found


def compacted(records: list[Record], upto: int, tombstones: bool) -> list[Record]:
    """What a cleaner leaves that has come ``upto`` there."""
    last = {(r.partition, r.topic, r.key): at for at, r in enumerate(records[:upto])}
    kept = [
        r
        for at, r in enumerate(records[:upto])
        if last[r.partition, r.topic, r.key] == at and (tombstones or r.value is not None)
    ]
    return kept + records[upto:]


STEP = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3))


@settings(max_examples=fast_or(30, 150))
@given(st.lists(STEP, min_size=4, max_size=40), st.data())
def test_a_folded_map_translates_as_the_unfolded_one(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Mirrors write, chores fold in between, a cleaner comes by, and somebody reads on all the while: and a
    reader may see but a part of the chores' transaction, which is more than Kafka allows."""
    news = mirrored(steps, data.draw(st.lists(st.sampled_from([1, 2]), min_size=40, max_size=40)))
    folding, plain, follower = (
        OffsetMapCompaction("m", least=3, longest_runs=8),
        WrittenState(),
        WrittenState(),
    )
    log: list[Record] = []
    while news:
        for new in news[: 2 * data.draw(st.integers(1, 8))]:
            news.remove(new)
            for take in (log.append, folding.apply, plain.apply, follower.apply):
                take(as_read(new))
        if data.draw(st.booleans()):
            table(follower)
        folds = [as_read(new) for new in folding.step(read(log))]
        for seen in range(len(folds) + 1):
            assert table(read([*log, *folds[:seen]])) == table(plain)
        for record in folds:
            for take in (log.append, folding.apply, follower.apply):
                take(record)
        log = compacted(log, data.draw(st.integers(0, len(log))), data.draw(st.booleans()))
        expected, found = table(plain), table(read(log))
        assert found == table(follower) == expected
        for offset in range(expected.target_next + 3):
            assert found.translate(offset) == expected.translate(offset)
            assert found.reverse(offset) == expected.reverse(offset)


def test_a_map_grows_by_runs_and_not_by_records() -> None:
    folding, log, alive = (
        OffsetMapCompaction("m", least=16, longest_runs=100),
        list[Record](),
        set[bytes | None](),
    )
    most = 0
    for new in many(2_000):
        log.append(as_read(new))
        folding.apply(log[-1])
        alive |= {new.key} if new.topic == MAP_TOPIC else set()
        for made in folding.step(read(log)) if folding.due else ():
            log.append(as_read(made))
            folding.apply(log[-1])
            (alive.discard if made.value is None else alive.add)(made.key)
            most = max(most, len(made.value or b""))
    assert len(alive) < 2_000 / 50 + 16 and most < 1_000
    assert len(table(read(log))) == 2_000


def test_each_partition_of_the_map_is_folded_on_its_own() -> None:
    """After the number of shards was changed a map stands in two."""
    log = [as_read(new) for new in mirrored([(0, 1, 2)] * 9, [1] * 5 + [2] * 4)]
    folding = OffsetMapCompaction("m", least=4)
    for record in log:
        folding.apply(record)
    first = folding.step(read(log))
    assert [new.partition for new in first] == [1] * 5
    assert [new.value is None for new in first] == [False, True, True, True, True]
    for new in first:
        folding.apply(as_read(new))
    assert {new.partition for new in folding.step(read(log))} == {2}


def test_what_no_checkpoint_covers_is_left_alone() -> None:
    other = MapRecord("other", PLACE.topic, "id", 0, (Run(0, 0, 1),))
    folding = OffsetMapCompaction("m", least=2)
    news = many(3)
    for new in (*news, other.record(1)):
        folding.apply(as_read(new))
    assert folding.step(WrittenState()) == []
    later = read(map(as_read, [*news[:4], news[5]]))
    assert folding.step(later) == []  # a checkpoint whose part of the map is not there yet
    earlier = read(map(as_read, news[:5]))
    assert [new.key for new in folding.step(earlier)] == [news[0].key, news[2].key]


def test_runs_of_a_former_beginning_are_not_joined_with_ours() -> None:
    """A reader leaves out the former ones by where they begin: joined, ours would go with them."""
    mark = Checkpoint("m", 0, *PLACE, "id", 8, -1, 8, source_start=4, target_start=4)
    runs = [MapRecord("m", PLACE.topic, "id", 0, (Run(at, at, 2),)).record(1) for at in (0, 2, 4, 6)]
    log = [as_read(new) for new in (*runs, mark.record(0))]
    folding = OffsetMapCompaction("m", least=2)
    for record in log:
        folding.apply(record)
    folds = folding.step(read(log))
    assert [new.key for new in folds] == [runs[2].key, runs[3].key]
    assert table(read([*log, *map(as_read, folds)])) == table(read(log))


# ---- in the chores


def chores(kafka: Kafka) -> LinkTasks:
    reached = ClusterHandle("lon", kafka, None)  # type: ignore[arg-type]
    link = Link("m", Mirror(source="nyc", target="lon", topics=["**"]), "m")
    made = LinkTasks(None, Shard("m", -1), link, {"nyc": reached, "lon": reached}, None, None)  # type: ignore[arg-type]
    made._progress = made._open_progress()
    return made


def looked(made: LinkTasks) -> LinkTasks:
    assert made._progress is not None
    made._progress.refresh()
    return made


def test_chores_fold_the_map_under_their_shard() -> None:
    kafka = Kafka()
    kafka.writer().append(many(300))
    made, before = looked(chores(kafka)), table(read(kafka.said))
    assert made._fold()
    assert len(kafka.map_keys) == 1 and table(read(kafka.said)) == before
    looked(made)
    assert not made._fold()
    kafka.writer().append(many(300, 303))
    looked(made)
    kafka.writer("hub.mirror.m.-1")
    with pytest.raises(WriterFenced):
        made._fold()
    assert len(kafka.map_keys) == 301


@pytest.mark.parametrize(("held", "left"), [("", 1), ("paused", 300)])
def test_chores_come_round_to_the_map_unless_they_are_held(
    held: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka()
    kafka.writer().append(many(300))
    made = looked(chores(kafka))
    made.held = held
    monkeypatch.setattr(made, "_control", Control)
    for other in ("_plan", "_carry_groups", "_verify"):
        monkeypatch.setattr(made, other, lambda *_: False)
    monkeypatch.setattr(made, "_rest", made.stop)
    made.run()
    assert len(kafka.map_keys) == left


def test_a_map_that_is_forgotten_before_the_shard_is_theirs_stays_forgotten() -> None:
    kafka = Kafka()
    news = many(300)
    kafka.writer().append(news)
    made = looked(chores(kafka))
    kafka.before_reading = [NewRecord(new.topic, new.key, None, partition=new.partition) for new in news]
    made._fold()
    assert not kafka.map_keys


def test_without_time_for_its_readers_a_map_is_not_folded() -> None:
    kafka = Kafka(**{"min.compaction.lag.ms": "1000"})
    kafka.writer().append(many(300))
    made = looked(chores(kafka))
    assert not made._fold() and len(kafka.map_keys) == 300
    assert "min.compaction.lag.ms of _hub.mirror.map at lon" in made._no_folds


def test_topics_of_an_earlier_hub_get_the_settings_that_nobody_set() -> None:
    kafka = MemoryCluster()
    reached = ClusterHandle("lon", kafka, None)  # type: ignore[arg-type]
    kafka.create_topic(
        MAP_TOPIC, partitions=1, config={"cleanup.policy": "compact,delete"}, replication_factor=1
    )
    kafka.create_topic(CONTROL_TOPIC, partitions=1, config={"segment.ms": "5"}, replication_factor=1)
    kafka.create_topic("nyc.a", partitions=1, config={}, replication_factor=1)
    assert map_lag_ms(reached) == 0
    for _ in range(2):
        keep_short(reached)
    found = kafka.topic_config([MAP_TOPIC, CONTROL_TOPIC, "nyc.a"])
    assert found == {MAP_TOPIC: MAP_CONFIG, CONTROL_TOPIC: {**CONTROL_CONFIG, "segment.ms": "5"}, "nyc.a": {}}
    assert map_lag_ms(reached) == 3_600_000
