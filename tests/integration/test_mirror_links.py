"""The batch engine over links that are cut, slow or half open, and requests that arrive late: nothing is
lost, doubled or held up for ever."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer
from delay_line import FarNode
from kafka_nodes import own_node
from link_proxy import END_TXN, FETCH, PRODUCE, LinkedNode
from mirror_world import own_world, well
from patience import patient
from pipeline import records_of, wait_until

from hub.errors import Conflict
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_CONFIG,
    CHECKPOINTS_TOPIC,
    MAP_CONFIG,
    MAP_TOPIC,
    map_record_of,
)
from hub.runtime import die_with_parent

_numbers = itertools.count()
REQUEST_S = 2.0
ADD_PARTITIONS_TO_TXN = 24


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FarNode, FarNode]]:
    with (
        own_node(tmp_path_factory.mktemp("nyc"), FarNode) as source,
        own_node(tmp_path_factory.mktemp("lon"), FarNode) as target,
    ):
        for name, config in ((CHECKPOINTS_TOPIC, CHECKPOINTS_CONFIG), (MAP_TOPIC, MAP_CONFIG)):
            with contextlib.suppress(Conflict):
                KafkaCluster(target.bootstrap).create_topic(
                    name, partitions=4, config=config, replication_factor=1
                )
        yield source, target


class Way:
    """A topic of one partition on both sides, and engines that take the links."""

    def __init__(self, source: LinkedNode, target: LinkedNode) -> None:
        self.source, self.target = source, target
        self.topic = f"nyc.link{next(_numbers)}"
        self.sides = [KafkaCluster(each.bootstrap) for each in (source, target)]
        for each in self.sides:
            each.create_topic(self.topic, partitions=1, config={}, replication_factor=1)
        self.link = f"{self.topic}-lon"
        self.sent: list[bytes] = []

    def engine(self) -> BatchEngine:
        return BatchEngine(
            KafkaConnection(self.access(self.source.through), "source"),
            KafkaConnection(self.access(self.target.through), "target"),
            link=self.link,
            shard=0,
            partitions=[TopicPartition(self.topic, 0)],
            settings=EngineSettings(commit_interval_s=0.02),
        )

    @staticmethod
    def access(bootstrap: str) -> ClusterAccess:
        return ClusterAccess(bootstrap=bootstrap, request_timeout_s=REQUEST_S, connect_timeout_s=REQUEST_S)

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.source.bootstrap, "linger.ms": 5})
        for _ in range(count):
            self.sent.append(b"r%d" % len(self.sent))
            producer.produce(self.topic, self.sent[-1], partition=0)
        assert producer.flush(30) == 0

    def until_all(self, engine: BatchEngine, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + patient(timeout_s)
        while engine.progress()[0].source_next < len(self.sent):
            assert time.monotonic() < deadline, (engine.progress(), engine.error)
            engine.step()

    def check(self) -> None:
        copied = {record.offset: record.value for record in records_of(self.sides[1], self.topic)}
        assert list(copied.values()) == self.sent
        runs = [
            run
            for record in records_of(self.sides[1], MAP_TOPIC)
            if (found := map_record_of(record)) is not None and found.link == self.link
            for run in found.runs
        ]
        mapped = {run.target + at: run.source + at for run in runs for at in range(run.count)}
        assert mapped == {target: source for source, target in enumerate(copied)}
        assert sum(run.count for run in runs) == len(self.sent)


@pytest.fixture
def way(nodes: tuple[LinkedNode, LinkedNode]) -> Iterator[Way]:
    made = Way(*nodes)
    try:
        yield made
    finally:
        for each in nodes:
            each.link.heal()


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("what", ["cut", "half_open", "delay"])
def test_a_link_that_fails_costs_time_only(way: Way, side: str, what: str) -> None:
    """Also when the mirror had caught up, and only a missing answer shows the fault."""
    link = {"source": way.source, "target": way.target}[side].link
    engine = way.engine()
    try:
        way.produce(100)
        way.until_all(engine)
        engine.step()  # a fetch is under way
        if what == "delay":
            link.delay_s = 0.05
        else:
            getattr(link, what)()
        way.produce(50)
        before = link.seen[FETCH]
        for _ in range(3):
            engine.step()
        assert what == "delay" or engine.progress()[0].source_next < len(way.sent)
        link.heal()
        way.until_all(engine)
        assert side == "target" or link.seen[FETCH] > before
    finally:
        engine.close()
    way.check()


@pytest.mark.parametrize("api", [END_TXN, PRODUCE])
def test_a_request_that_comes_after_another_worker_has_the_shard_changes_nothing(way: Way, api: int) -> None:
    """The late commit, or the late records, of a worker that was fenced meanwhile."""
    first, second = way.engine(), way.engine()
    link = way.target.link
    try:
        way.produce(20)
        way.until_all(first)
        link.hold(api)
        way.produce(30)
        before = link.seen[api]
        late = threading.Thread(target=_steps, args=(first,), daemon=True)
        late.start()
        wait_until(lambda: link.seen[api] > before, 30.0, lambda: f"{link.seen}")
        # The other one comes by a way that is not held back.
        second.interrupt()
        second = BatchEngine(
            KafkaConnection(ClusterAccess(bootstrap=way.source.bootstrap), "source"),
            KafkaConnection(ClusterAccess(bootstrap=way.target.bootstrap), "target"),
            link=way.link,
            shard=0,
            partitions=[TopicPartition(way.topic, 0)],
        )
        way.until_all(second)
        link.heal()
        late.join(60.0)
        assert not late.is_alive() and first.fenced
        way.produce(10)
        way.until_all(second)
    finally:
        first.close()
        second.close()
    way.check()


WORKER = """
import sys
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.kafka.protocol.compression import LZ4
from hub.record import TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.shard_state import EngineSettings

source, target, link, topic = sys.argv[1:]
sides = [KafkaConnection(ClusterAccess(bootstrap=each), each) for each in (source, target)]
settings = EngineSettings(compression=LZ4)
engine = BatchEngine(*sides, link=link, shard=0, partitions=[TopicPartition(topic, 0)], settings=settings)
while True:
    print(engine.step(), flush=True)
"""


@contextlib.contextmanager
def worker(way: Way) -> Iterator[IO[bytes]]:
    """An engine as a process of its own, killed with -9 in the end; its steps' records, line by line."""
    words = [way.source.through, way.target.through, way.link, way.topic]
    with subprocess.Popen(
        die_with_parent([sys.executable, "-W", "ignore", "-c", WORKER, *words]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


@pytest.mark.timeout(300)
def test_kills_and_cuts_on_a_long_link_lose_and_double_nothing(way: Way) -> None:
    """kill -9 with requests under way on the line, some of which arrive after the next worker has begun.
    The workers compress what the source has uncompressed, the last engine does not."""
    chance = random.Random(7)
    ends: set[int] = set()
    added = way.target.link.seen[ADD_PARTITIONS_TO_TXN]
    for turn in range(6):
        for node, far_s in ((way.source, 0.02), (way.target, 0.05)):
            node.link.delay_s = far_s
        way.produce(3_000)
        with worker(way) as steps:
            while (line := steps.readline()) and not int(line):
                pass
            assert line, "the worker ended"
            time.sleep(chance.random() * 0.3)
            if turn % 2:
                chance.choice((way.source, way.target)).link.cut()
        for node in (way.source, way.target):
            node.link.heal()
        ends.add(way.sides[1].end_offsets([way.topic]).get(TopicPartition(way.topic, 0)))
    assert len(ends) > 1
    assert way.target.link.seen[ADD_PARTITIONS_TO_TXN] == added  # partitions joined with their first batch
    way.target.link.delay_s = 0.05
    engine = way.engine()
    try:
        way.until_all(engine, 120.0)
    finally:
        engine.close()
    way.check()


def _steps(engine: BatchEngine) -> None:
    with contextlib.suppress(WriterFenced):
        for _ in range(1_000):
            engine.step()


@pytest.mark.timeout(240)
def test_a_half_open_link_is_told_and_a_worker_that_hears_nobody_takes_nothing(
    nodes: tuple[LinkedNode, LinkedNode], tmp_path: Path
) -> None:
    """The first of two workers loses its connections for good, without an error: first to the source, then
    to the target."""
    source, target = nodes
    with (
        own_world(tmp_path / "one", source.bootstrap, target.bootstrap) as one,
        own_world(tmp_path / "two", source.bootstrap, target.bootstrap) as two,
    ):
        topic = f"{one.label}.chat"
        one.make(topic, 4)
        one.produce(topic, 80, partitions=4)
        one.through = {"nyc": source.through, "lon": target.through}
        two.name, two.label = one.name, one.label
        for world in (one, two):
            world.declare([topic], shards=4)
        one.start_worker()
        one.until(well)
        source.link.half_open()
        # No answer and no error; the mirror had caught up, so that no lag would show it either.
        found = one.until(lambda found: found["state"] == "trouble", timeout_s=15.0)
        # Each shard notices by itself; the first one suffices for the state and its reason.
        assert any(each["reason"] for each in found["partitions"]) and not found["ok"]
        source.link.heal()
        one.until(well)

        two.start_worker()
        one.until(lambda found: well(found) and found["workers"] == 2)
        target.link.half_open()
        target.link.heal()  # open connections stay dead, and new ones work
        log = one.workers[0].log
        wait_until(
            lambda: "its own heartbeats do not arrive" in log.read_text(),
            60.0,
            lambda: one.logs() + two.logs(),
        )
        one.produce(topic, 80, partitions=4, mark="more")
        one.caught_up({topic: 160})
        one.until(lambda found: well(found) and found["workers"] == 2)
        other = two.workers[0].log.read_text()
        assert "FENCED" not in other and "has this shard" not in other, other
        assert len(one.values(topic, "lon")) == 160
