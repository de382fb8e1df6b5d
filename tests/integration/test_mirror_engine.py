"""The batch engine between two real clusters: every record once, in order, unchanged, and at a known offset, whatever
is killed, cut, damaged or hung."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pipeline import wait_until
from ports import free_pair

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.replication.batch_engine import BatchEngine, EngineSettings, PartitionProgress
from hub.replication.batches import Aborted, batches_in, is_intact
from hub.replication.checkpoint import (
    CHECKPOINTS_CONFIG,
    CHECKPOINTS_TOPIC,
    MAP_CONFIG,
    MAP_TOPIC,
    Checkpoint,
    MapRecord,
    checkpoint_of,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.reencode import Fields, fields_of, records_in
from hub.replication.wire import (
    EARLIEST,
    READ_COMMITTED,
    Cluster,
    ClusterAccess,
    FetchFrom,
    fetched,
    raise_for,
    send_fetch,
)

Found = tuple[int, int, Fields]
"""Offset, timestamp and the rest of a record."""

_names = itertools.count()
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Iterator[str]:
    """Bootstrap servers of a second cluster, with the mirrors' own topics."""
    port = free_pair()
    home = tmp_path_factory.mktemp("target-home")
    node = KafkaNode(settings.model_copy(update={"home": home, "kafka_port": port}))
    node.start()
    try:
        node.wait_ready()
        bootstrap = f"127.0.0.1:{port}"
        cluster = KafkaCluster(bootstrap)
        for name, config in ((CHECKPOINTS_TOPIC, CHECKPOINTS_CONFIG), (MAP_TOPIC, MAP_CONFIG)):
            cluster.create_topic(name, partitions=4, config=config, replication_factor=1)
        yield bootstrap
    finally:
        node.stop()


class Pair:
    """A topic of its own in both clusters, and what a test does with it."""

    def __init__(self, source: str, target: str, partitions: int, config: Mapping[str, str]) -> None:
        self.topic = f"nyc.mirror{next(_names)}.orders"
        self.link = f"nyc-lon-{self.topic.split('.')[1]}"
        self.source, self.target = source, target
        self.tps = [TopicPartition(self.topic, number) for number in range(partitions)]
        for bootstrap in (source, target):
            KafkaCluster(bootstrap).create_topic(
                self.topic, partitions=partitions, config=config, replication_factor=1
            )

    def engine(self, tps: Sequence[TopicPartition] | None = None, **more: Any) -> BatchEngine:
        return BatchEngine(
            ClusterAccess(bootstrap=self.source),
            ClusterAccess(bootstrap=self.target),
            link=self.link,
            shard=0,
            partitions=self.tps if tps is None else tps,
            settings=EngineSettings(**more),
        )

    def carry(self, engine: BatchEngine) -> None:
        """Step until everything that can be is mirrored."""
        done(engine)

    def check(self) -> dict[TopicPartition, list[Found]]:
        """Same records on both sides, and every offset where the map says. The source's records."""
        ours = read(self.source, self.tps)
        theirs = read(self.target, self.tps)
        maps = maps_of(self.target, self.link)
        for tp in self.tps:
            assert digest(theirs[tp]) == digest(ours[tp]), tp
            if not ours[tp]:
                continue
            table = maps[tp]
            translated = [table.translate(offset) for offset, _, _ in ours[tp]]
            assert {each.kind for each in translated} == {"exact"}, tp
            assert [each.offset for each in translated] == [offset for offset, _, _ in theirs[tp]], tp
            back = [table.reverse(offset) for offset, _, _ in theirs[tp]]
            assert [each.offset for each in back] == [offset for offset, _, _ in ours[tp]], tp
        return ours


@pytest.fixture
def pair(kafka: str, target: str) -> Callable[..., Pair]:
    def make(partitions: int = 3, **config: str) -> Pair:
        named = {key.replace("_", "."): value for key, value in config.items()}
        return Pair(kafka, target, partitions, {"compression.type": "producer", **named})

    return make


def done(engine: BatchEngine, timeout_s: float = 60.0) -> list[PartitionProgress]:
    """Step until no partition that can go on has anything left."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        engine.step()
        progress = engine.progress()
        if all(
            each.error is not None or 0 <= each.source_stable_end <= each.source_next for each in progress
        ):
            return progress
    pytest.fail(f"still behind: {engine.progress()} {engine.error}")


def digest(records: Sequence[Found]) -> str:
    summed = hashlib.sha256()
    for _, timestamp_ms, fields in records:
        summed.update(repr((timestamp_ms, fields)).encode())
    return f"{len(records)} {summed.hexdigest()}"


def read(bootstrap: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, list[Found]]:
    """Every committed record, byte for byte (a client's reader cannot show all of them)."""
    cluster = Cluster(ClusterAccess(bootstrap=bootstrap))
    found: dict[TopicPartition, list[Found]] = {tp: [] for tp in tps}
    try:
        cluster.refresh({tp.topic for tp in tps})
        positions = cluster.offsets(tps, EARLIEST)
        ends = cluster.offsets(tps, isolation=READ_COMMITTED)
        for tp in tps:
            while positions[tp] < ends[tp]:
                leader = cluster.leader(tp)
                connection = cluster.connection(leader.node)
                wanted = [FetchFrom(tp, cluster.topics[tp.topic].uuid, leader.epoch, positions[tp])]
                version = send_fetch(
                    connection, wanted, max_wait_ms=100, max_bytes=1 << 24, partition_bytes=1 << 23
                )
                frame, at = connection.receive()
                _, (part,) = fetched(frame, at, version, cluster.names())
                raise_for(part.error, str(tp))
                books = Aborted(part.aborted)
                for batch in batches_in(part.buffer, part.start, part.end):
                    assert is_intact(batch)
                    if not books.covers(batch) and not batch.is_control:
                        found[tp] += [
                            (raw.offset, raw.timestamp_ms, fields_of(raw.rest))
                            for raw in records_in(batch)
                            if raw.offset >= positions[tp]
                        ]
                    positions[tp] = batch.next_offset
    finally:
        cluster.close()
    return found


def maps_of(bootstrap: str, link: str) -> dict[TopicPartition, Any]:
    from hub.record import Record

    def records(topic: str) -> Iterator[Record]:
        for tp, found in read(bootstrap, [TopicPartition(topic, number) for number in range(4)]).items():
            for offset, timestamp_ms, fields in found:
                yield Record(*tp, offset, timestamp_ms, fields.key, fields.value)

    checkpoints = [
        each for each in map(checkpoint_of, records(CHECKPOINTS_TOPIC)) if isinstance(each, Checkpoint)
    ]
    runs: list[MapRecord] = [each for each in map(map_record_of, records(MAP_TOPIC)) if each is not None]
    return {
        TopicPartition(topic, partition): offset_map(found, runs)
        for (of, topic, partition), found in newest(checkpoints).items()
        if of == link
    }


def delivered(error: object, _message: object) -> None:
    assert error is None, error


def fill(pair: Pair, records: int, seed: int, *, codecs: Sequence[str] = CODECS, linger_ms: int = 20) -> None:
    """Records of mixed shapes, in turns by producers of every codec."""
    chance = random.Random(seed)
    left = records
    for codec in codecs:
        producer = Producer(
            {
                "bootstrap.servers": pair.source,
                "compression.type": codec,
                "linger.ms": linger_ms,
                "enable.idempotence": True,
                "batch.num.messages": chance.choice((50, 500, 5_000)),
            }
        )
        count = left if codec == codecs[-1] else records // len(codecs)
        left -= count
        for number in range(count):
            shape = chance.randrange(8)
            value = None if shape == 0 else b"" if shape == 1 else chance.randbytes(chance.randrange(4, 300))
            key = None if shape == 2 else b"" if shape == 3 else f"k{number % 97}".encode()
            headers: list[tuple[str, bytes | None]] = (
                [("trace", b"1"), ("trace", None), ("größe", b"")] if shape > 5 else []
            )
            producer.produce(
                pair.topic,
                value,
                key,
                partition=chance.randrange(len(pair.tps)),
                timestamp=chance.randrange(1, 1_700_000_000_000),
                headers=headers,
                on_delivery=delivered,
            )
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(30) == 0


def test_every_record_arrives_once_in_order_and_at_a_known_offset(pair: Callable[..., Pair]) -> None:
    topic = pair()
    fill(topic, 20_000, seed=1)
    engine = topic.engine()
    try:
        progress = done(engine)
        assert [each.error for each in progress] == [None] * 3
        assert sum(each.records for each in progress) == 20_000
        assert sum(each.batches_passed for each in progress) > 0
        assert [each.lag_records for each in progress] == [0, 0, 0]
        fill(topic, 500, seed=2)
        done(engine)
    finally:
        engine.close()
    assert sum(map(len, topic.check().values())) == 20_500
