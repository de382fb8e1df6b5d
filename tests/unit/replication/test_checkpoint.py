"""Checkpoints, gaps and map records are read as they were written; the newest counts;
folding loses no run."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import HubFault
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import (
    Checkpoint,
    Gap,
    MapRecord,
    checkpoint_of,
    checkpoint_partition,
    folded,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.maps.offset_map import OffsetMap, Run

HERE = Checkpoint("nyc-lon", 3, "nyc.chat", 1, "id-1", source_next=42, source_leader_epoch=5, target_next=47)


def as_read(new: NewRecord, offset: int = 0) -> Record:
    return Record(new.topic, new.partition or 0, offset, 0, new.key, new.value)


def test_records_are_read_as_written() -> None:
    gap = Gap("nyc-lon", "nyc.chat", 1, "id-1", 10, 20, "retention", 99)
    runs = MapRecord("nyc-lon", "nyc.chat", "id-1", 1, (Run(5, 7, 3), Run(9, 10, 1)))
    assert checkpoint_of(as_read(HERE.record())) == HERE
    assert checkpoint_of(as_read(gap.record())) == gap
    assert map_record_of(as_read(runs.record())) == runs


def test_an_epoch_that_an_earlier_hub_wrote_is_not_known() -> None:
    """The epoch was that of the last carried batch, wherever the position was."""
    written = HERE.record()
    body = orjson.loads(written.value or b"")
    older = replace(written, value=orjson.dumps({**body, "source_leader_epoch": 5}))
    assert checkpoint_of(as_read(older)) == replace(HERE, source_leader_epoch=-1)
    unknown = replace(HERE, source_leader_epoch=-1)
    assert checkpoint_of(as_read(unknown.record())) == unknown


def test_a_tombstone_says_nothing() -> None:
    assert checkpoint_of(as_read(NewRecord("t", HERE.key, None))) is None
    assert map_record_of(as_read(NewRecord("t", b"a|b|c|0|0", None))) is None


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"shard": 1}', b'{"surprise": 1}'])
def test_an_unknown_checkpoint_is_an_error_with_its_place(value: bytes) -> None:
    with pytest.raises(HubFault, match="partition 0, offset 8"):
        checkpoint_of(as_read(NewRecord("_hub.mirror.checkpoints", HERE.key, value), 8))


@pytest.mark.parametrize("key", [b"a|b|c|0|6", b"a|b|c|0", b"a|b|c|x|5", b"\xff"])
def test_an_unknown_map_record_is_an_error_with_its_place(key: bytes) -> None:
    value = MapRecord("a", "b", "c", 0, (Run(5, 5, 1),)).record().value
    with pytest.raises(HubFault, match="offset 8"):
        map_record_of(as_read(NewRecord("_hub.mirror.map", key, value), 8))


def test_the_newest_counts_wherever_it_was_read() -> None:
    def at(generation: int, source_next: int, shard: int) -> Checkpoint:
        return Checkpoint("l", shard, "t", 0, "id", source_next, -1, source_next, generation=generation)

    old, new, stale = at(0, 900, 0), at(1, 20, 1), at(1, 10, 2)
    assert newest([new, old, stale]) == {("l", "t", 0): new} == newest([stale, new, old])


def test_shards_of_a_link_have_partitions_of_their_own() -> None:
    assert len({checkpoint_partition("nyc-lon", shard, 16) for shard in range(16)}) == 16


def test_a_map_is_of_one_generation() -> None:
    old = MapRecord("nyc-lon", "nyc.chat", "id-0", 1, (Run(0, 0, 9),))
    mine = MapRecord("nyc-lon", "nyc.chat", "id-1", 1, (Run(0, 10, 30),))
    elsewhere = MapRecord("nyc-lon", "nyc.chat", "id-1", 0, (Run(0, 0, 9),))
    found = offset_map(HERE, [elsewhere, mine, old])
    assert found.runs == (Run(0, 10, 30),) and (found.source_next, found.target_next) == (42, 47)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(1, 8), st.integers(0, 60))
def test_folding_loses_nothing_wherever_it_stops(counts: list[int], most: int, stop: int) -> None:
    records, source, target = [], 0, 0
    for count in counts:
        records.append(MapRecord("l", "t", "id", 0, (Run(source, target, count),)))
        source, target = source + count, target + count + 1
    table: dict[bytes | None, MapRecord] = {record.key: record for record in records}
    for new in folded(records, 0, most)[:stop]:
        read = map_record_of(as_read(new))
        if read is None:
            table.pop(new.key)
        else:
            table[new.key] = read
    runs = [run for record in table.values() for run in record.runs]
    assert OffsetMap.of(runs).runs == OffsetMap.of(run for record in records for run in record.runs).runs


def test_maps_are_not_mixed() -> None:
    with pytest.raises(HubFault, match="several maps"):
        folded([MapRecord("l", "t", topic_id, 0, (Run(0, 0, 1),)) for topic_id in ("a", "b")], 0)


def test_what_was_forgotten_in_one_partition_may_have_begun_anew_in_another() -> None:
    progress = WrittenState()
    mark = Checkpoint("m", 0, "nyc.a", 0, "id", 7, -1, 8)
    place = TopicPartition("nyc.a", 0)

    def said(new: NewRecord, partition: int, *, gone: bool = False) -> None:
        progress.apply(Record(new.topic, partition, 0, 0, new.key, None if gone else new.value))

    said(mark.record(), 3)
    said(replace(mark, source_next=9).record(), 5)
    assert progress.of("m")[place].source_next == 9
    said(mark.record(), 3, gone=True)
    assert progress.of("m")[place].source_next == 9
    said(mark.record(), 5, gone=True)
    assert progress.of("m") == {}


def test_a_map_that_does_not_reach_its_checkpoint_is_no_map() -> None:
    """The two are one transaction, but its end is marked in one partition after the other."""
    progress = WrittenState()
    place = TopicPartition("nyc.a", 0)
    mark = Checkpoint("m", 0, "nyc.a", 0, "id", 7, -1, 8)
    maps = [MapRecord("m", "nyc.a", "id", 0, (run,)) for run in (Run(0, 0, 3), Run(3, 4, 4))]
    for new in (mark.record(), maps[0].record()):
        progress.apply(Record(new.topic, 0, 0, 0, new.key, new.value))
    assert progress.table("m", place) is None
    new = maps[1].record()
    progress.apply(Record(new.topic, 0, 0, 0, new.key, new.value))
    table = progress.table("m", place)
    assert table is not None and table.translate(5).offset == 6

    later = replace(mark, source_next=20, target_next=21)
    for each in (later.record(), MapRecord("m", "nyc.a", "id", 0, (Run(10, 11, 10),)).record()):
        progress.apply(Record(each.topic, 0, 0, 0, each.key, each.value))
    table = progress.table("m", place)
    assert table is not None and table.runs == (Run(0, 0, 3), Run(3, 4, 4), Run(10, 11, 10))
    assert (table.source_next, table.target_next) == (20, 21)

    # Made again: the map of the former one is not a part of it.
    again = Checkpoint("m", 0, "nyc.a", 0, "id-2", 2, -1, 32, generation=1, target_start=30)
    for each in (again.record(), MapRecord("m", "nyc.a", "id-2", 0, (Run(0, 30, 2),)).record()):
        progress.apply(Record(each.topic, 0, 0, 0, each.key, each.value))
    table = progress.table("m", place)
    assert table is not None and table.runs == (Run(0, 30, 2),)
