"""The map of a mirror is made shorter on a real cluster:
taken over in the middle, cleaned by the broker, and forgotten."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Producer
from patience import patient

from hub.kafka import KafkaCluster
from hub.log import WriterFenced
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics
from hub.replication.clusters.readers import read_progress, read_to_end
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import MAP_CONFIG, MAP_TOPIC, Checkpoint, MapRecord
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.operations import forget as forgetting
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard
from hub.replication.worker.link_tasks import LinkTasks

PLACE = TopicPartition("nyc.a", 0)
NUMBER = 600


@pytest.fixture
def lon(kafka: str) -> ClusterHandle:
    reached = ClusterHandle("lon", KafkaCluster(kafka, 15.0), None)  # type: ignore[arg-type]
    make_own([("lon", step) for step in own_topics(reached)], {"lon": reached})
    return reached


@pytest.fixture
def link(lon: ClusterHandle) -> Link:
    """One whose map stands in two partitions, a run in each record."""
    name = f"fold-{uuid.uuid4().hex[:8]}"
    runs = [Run(2 * n, 3 * n, 2) for n in range(NUMBER)]
    news = [
        MapRecord(name, PLACE.topic, "id", 0, (run,)).record(2 if n < NUMBER // 2 else 3)
        for n, run in enumerate(runs)
    ]
    mark = Checkpoint(name, 0, *PLACE, "id", runs[-1].source_end, -1, runs[-1].target_end)
    lon.kafka.writer().append([*news, mark.record(2)])
    return Link(name, Mirror(source="nyc", target="lon", topics=["**"], shards=1), name)


def chores(lon: ClusterHandle, link: Link) -> LinkTasks:
    made = LinkTasks(None, Shard(link.name, -1), link, {"nyc": lon, "lon": lon}, None, None)  # type: ignore[arg-type]
    made._progress = made._open_progress()
    made._progress.refresh()
    return made


def table(lon: ClusterHandle, link: Link) -> OffsetMap:
    found = read_progress(lon).table(link.name, PLACE)
    assert found is not None
    return found


def keys(lon: ClusterHandle, link: Link) -> int:
    return len(read_progress(lon).keys[link.name, PLACE.topic, "id", 0])


def stored(lon: ClusterHandle, link: Link) -> int:
    """Return the number of records of the link's map at the broker, including tombstones."""
    found: list[bytes] = []

    def take(record_key: bytes | None) -> None:
        if record_key is not None and record_key.startswith(link.name.encode()):
            found.append(record_key)

    read_to_end(lon, [MAP_TOPIC], lambda record: take(record.key))
    return len(found)


def test_a_fold_is_done_at_once_or_not_at_all_and_the_broker_cleans_up_after_it(
    kafka: str, lon: ClusterHandle, link: Link
) -> None:
    before = table(lon, link)
    first = chores(lon, link)
    assert first._progress is not None
    half = Producer({"bootstrap.servers": kafka, "transactional.id": first.shard.transactional_id})
    half.init_transactions(15)
    half.begin_transaction()
    for new in first._folding.step(first._progress.progress)[:100]:
        half.produce(new.topic, new.value, new.key, partition=new.partition)
    half.flush(15)  # and dies here
    second = chores_later(lon, link)
    assert second._fold()
    assert table(lon, link) == before and keys(lon, link) == NUMBER // 2 + 1
    assert second._fold() and not second._fold()
    assert table(lon, link) == before and keys(lon, link) == 2
    second._close()
    first._close()

    cleaned = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    lon.kafka.alter_config(MAP_TOPIC, {**cleaned, "delete.retention.ms": "0"})
    try:
        deadline = time.monotonic() + patient(120)
        while stored(lon, link) > NUMBER // 2:
            assert time.monotonic() < deadline
            other = MapRecord(f"{link.name}-other", PLACE.topic, "id", 0, (Run(0, 0, 1),))
            lon.kafka.writer().append([other.record(2), other.record(3)])  # segments end with a record
            time.sleep(1.0)
        assert table(lon, link) == before
    finally:
        lon.kafka.alter_config(
            MAP_TOPIC, {**{name: MAP_CONFIG[name] for name in cleaned}, "delete.retention.ms": None}
        )


def chores_later(lon: ClusterHandle, link: Link) -> LinkTasks:
    """A second worker that begins while the first one's transaction is open: acquiring the shard ends it."""
    lon.kafka.writer(Shard(link.name, -1).transactional_id).close()
    return chores(lon, link)


def test_who_forgets_a_map_and_who_folds_it_do_not_meet(
    lon: ClusterHandle, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    folding = chores(lon, link)
    assert folding._fold()
    assert folding._progress is not None and folding._writer is not None
    stale = folding._folding.step(folding._progress.refresh())
    assert stale

    read = forgetting.read_progress

    def meanwhile(reached: ClusterHandle, **more: bool) -> object:
        found = read(reached, **more)
        reached.kafka.writer(Shard(link.name, -1).transactional_id).append(
            [NewRecord(MAP_TOPIC, f"{link.name}|x|y|0|0".encode(), None, partition=2)]
        )
        return found

    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "read_progress", meanwhile)
        with pytest.raises(WriterFenced):
            forgetting.forget(link, lon)
    assert forgetting.forget(link, lon) == 1
    assert not folding._fold()
    with pytest.raises(WriterFenced):
        folding._writer.append(stale)
    assert (link.name, PLACE.topic, "id", 0) not in {
        of for of, found in read_progress(lon).keys.items() if found
    }
    folding._close()
