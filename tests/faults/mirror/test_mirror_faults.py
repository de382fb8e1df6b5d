"""A mirror with two workers under seeded faults: workers are killed or frozen, brokers of either side die,
and links are cut, slow, half open or hold requests back. Every record is there once, in order, at the
mapped offset.

What it shows: processes may end or stop at any moment, and packets may be late or lost. It does not show
power loss.

    HUB_FAULT_SEEDS=30 ./run test tests/faults/mirror        the whole suite, an hour on two quiet cores

A seed of the suite has 200,000 records or more; the sample, which runs with all the other tests, a few
thousand.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from link_proxy import END_TXN, PRODUCE, LinkedNode, linked_node
from mirror_world import World
from pipeline import wait_until
from processes import Running

from hub.errors import HubError
from hub.kafka.protocol.broker_client import READ_COMMITTED, BrokerCluster, ClusterAccess
from hub.record import Record, TopicPartition
from hub.replication.verification.comparable import complete_tables

SEEDS = int(os.environ.get("HUB_FAULT_SEEDS", "1"))
"""A sample of one seed (a cut, kills, a freeze, a held commit); HUB_FAULT_SEEDS=30 is the suite,
HUB_FAULT_FIRST=7 begins with the seventh."""
FIRST = int(os.environ.get("HUB_FAULT_FIRST", "1" if "HUB_FAULT_SEEDS" in os.environ else "9"))
RECORDS, MOST_AT_ONCE = (200_000, 60_000) if "HUB_FAULT_SEEDS" in os.environ else (0, 1_500)
"""At least so many in a seed, and at most so many between two faults."""
KINDS = (
    *("kill a worker", "freeze a worker", "restart nyc", "restart lon", "kill both"),
    *("cut nyc", "cut lon", "delay nyc", "delay lon", "half-open nyc", "half-open lon"),
    *("hold EndTxn", "hold Produce"),
)
LONGEST_S = 25.0 if "HUB_FAULT_SEEDS" in os.environ else 4.0
"""Of a link's trouble: longer than a transaction may last, once in a while."""
STEPS = 4
UNWANTED = b"x" * 20
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTLE_S = 180.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LinkedNode]]:
    with (
        linked_node(tmp_path_factory.mktemp("nyc")) as nyc,
        linked_node(tmp_path_factory.mktemp("lon")) as lon,
    ):
        yield {"nyc": nyc, "lon": lon}


class Trial:
    """One seed: what is produced, what is done, what is left to check."""

    def __init__(self, seed: int, world: World, nodes: dict[str, LinkedNode]) -> None:
        self.chance = random.Random(seed)
        self.hurts = random.Random(seed).choices(KINDS, k=STEPS)
        self.world, self.nodes = world, nodes
        self.topics = [f"{world.label}.{name}" for name in ("chat", "loot")]
        self.filtered = seed % 3 == 0
        """Of these, records of the first topic with one header are left out on the way:
        its batches are written anew."""
        self.number = 0
        self.done: Counter[str] = Counter()
        self.slots: list[Running] = []

    def produce(self, fewest: int = 200) -> None:
        """Records of mixed shapes; now and then in transactions, some of which are aborted."""
        left = self.chance.randint(fewest, max(fewest, MOST_AT_ONCE))
        while left > 0:
            count = min(left, self.chance.choice((1, 7, 50, 400, 1_500, 15_000)))
            left -= count
            topic, transactional = self.chance.choice(self.topics), self.chance.random() < 0.25
            settings = {
                "bootstrap.servers": self.world.nyc,
                "compression.type": self.chance.choice(CODECS),
                "linger.ms": self.chance.choice((0, 5, 50)),
                "enable.idempotence": True,
            }
            if transactional:
                settings["transactional.id"] = f"app.{self.world.label}"
            producer = Producer(settings)
            if transactional:
                producer.init_transactions(60)
                producer.begin_transaction()
            for _ in range(count):
                self.one(producer, topic)
            if not transactional:
                assert producer.flush(60) == 0
            elif self.chance.random() < 0.4:
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    def one(self, producer: Producer, topic: str) -> None:
        self.number += 1
        key = self.chance.choice((None, b"", b"k%d" % (self.number % 17)))
        size = self.chance.choice((0, 20, 200, 1_000))
        value = self.chance.choice((b"%d|" % self.number + self.chance.randbytes(size), None, b""))
        headers = [("h", self.chance.choice((None, b"", UNWANTED)))] * self.chance.randrange(4)
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition=self.chance.randrange(PARTITIONS),
                    headers=headers or None,
                    timestamp=1_700_000_000_000 + self.chance.randrange(10**9),
                )
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.1)

    def hurt(self, what: str) -> None:
        self.done[what] += 1
        at = self.chance.randrange(len(self.slots))
        match what:
            case "kill a worker":
                self.slots[at].kill()
                time.sleep(self.chance.uniform(0.0, 2.0))
                self.slots[at] = self.world.start_worker()
            case "kill both":
                for each in self.slots:
                    each.kill()
                self.slots = [self.world.start_worker() for _ in self.slots]
            case "freeze a worker":
                # Longer than its heartbeats count: another one takes over, and then it comes back.
                self.slots[at].freeze()
                time.sleep(self.chance.uniform(7.0, 10.0))
                self.slots[at].thaw()
            case "hold EndTxn" | "hold Produce":
                # Whoever is killed meanwhile has its request arrive after it has been replaced.
                link = self.nodes["lon"].link
                link.hold(END_TXN if what == "hold EndTxn" else PRODUCE)
                self.produce()
                if self.chance.random() < 0.5:
                    self.slots[at].kill()
                    self.slots[at] = self.world.start_worker()
                time.sleep(self.lasts())
                link.heal()
            case _ if not what.startswith("restart "):
                how, side = what.split()
                link = self.nodes[side].link
                if how == "delay":
                    link.delay_s = self.chance.choice((0.01, 0.05, 0.2))
                else:
                    {"cut": link.cut, "half-open": link.half_open}[how]()
                self.produce()
                time.sleep(self.lasts())
                link.heal()
            case _:
                broken = self.nodes[what.removeprefix("restart ")]
                assert broken.process is not None
                broken.process.kill()
                broken.process.wait(10.0)
                time.sleep(self.chance.uniform(0.0, 1.0))
                broken.start()
                broken.wait_ready()

    def lasts(self) -> float:
        """Return the duration of a link's fault: mostly short, sometimes longer than any timeout."""
        return self.chance.uniform(
            0.2, self.chance.choice((1.0, 4.0, 9.0, LONGEST_S)) if LONGEST_S > 9.0 else LONGEST_S
        )

    def settle(self) -> None:
        """Wait until everything committed at the source is mirrored."""
        places = [TopicPartition(topic, n) for topic in self.topics for n in range(PARTITIONS)]

        def caught_up() -> bool:
            cluster = BrokerCluster(ClusterAccess(bootstrap=self.world.nyc))
            try:
                cluster.refresh(self.topics)
                ends = cluster.offsets(places, isolation=READ_COMMITTED)
                rows = {(r["topic"], r["partition"]): r for r in self.world.status()["partitions"]}
            except (HubError, KafkaException):
                return False
            finally:
                cluster.close()
            return all((rows.get(tuple(tp), {}).get("source_next") or 0) >= end for tp, end in ends.items())

        wait_until(caught_up, SETTLE_S, lambda: f"{self.world.status()}\n{self.world.logs()}")

    def kept(self, record: Record) -> bool:
        unwanted = record.topic == self.topics[0] and any(said == UNWANTED for _, said in record.headers)
        return not (self.filtered and unwanted)

    def check(self) -> None:
        verdict = self.world.json("verify", self.world.name, ok=(0, 1))
        assert verdict["different"] == verdict["not_compared"] == 0, verdict
        source = {topic: self.world.records(topic, "nyc") for topic in self.topics}
        target = {topic: self.world.records(topic, "lon") for topic in self.topics}
        _, tables = complete_tables(self.world.reached["lon"], self.world.name)
        wanted = {topic: [each for each in records if self.kept(each)] for topic, records in source.items()}
        for topic in self.topics:
            ours, theirs = wanted[topic], target[topic]
            assert len(ours) == len(theirs), topic
            for mine, yours in zip(ours, theirs, strict=True):
                assert (mine.partition, mine.timestamp_ms, mine.key, mine.value, mine.headers) == (
                    yours.partition,
                    yours.timestamp_ms,
                    yours.key,
                    yours.value,
                    yours.headers,
                )
                found = tables[mine.topic_partition].translate(mine.offset)
                assert (found.kind, found.offset) == ("exact", yours.offset)
            # A filtered offset leads to the next record that was kept.
            following: dict[int, int] = {}
            at = {
                (mine.partition, mine.offset): yours.offset for mine, yours in zip(ours, theirs, strict=True)
            }
            for each in reversed(source[topic]):
                place = each.partition, each.offset
                end = tables[each.topic_partition].target_next
                following[each.partition] = at.get(place, following.get(each.partition, end))
                assert tables[each.topic_partition].translate(each.offset).offset == following[each.partition]
        assert sum(row["records"] for row in verdict["partitions"]) == sum(map(len, wanted.values())) > 0
        assert self.world.status()["gaps"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_whatever_dies_every_record_is_there_once(
    seed: int, nodes: dict[str, LinkedNode], tmp_path: Path
) -> None:
    world = World(tmp_path / "project", nodes["nyc"].bootstrap, nodes["lon"].bootstrap)
    world.label, world.name = f"nyc.s{seed}", f"nyc-s{seed}"
    world.through = {name: each.through for name, each in nodes.items()}
    trial = Trial(seed, world, nodes)
    try:
        for topic in trial.topics:
            world.make(topic, PARTITIONS)
        where = {"header": "h", "not_in": [UNWANTED.decode()]}
        rules = [{"topics": [trial.topics[0]], "where": where}] if trial.filtered else []
        world.declare([f"{world.label}.**"], shards=3, only=rules)
        trial.produce()
        trial.slots = [world.start_worker() for _ in range(2)]
        world.until(lambda found: any(row["source_next"] for row in found["partitions"]))
        for what in trial.hurts:
            trial.produce()
            trial.hurt(what)
        trial.produce(max(200, RECORDS - trial.number))
        trial.settle()
        print(f"seed {seed}: {trial.number} records, {dict(trial.done)}")
        trial.check()
    finally:
        for each in nodes.values():
            each.link.heal()
        world.close()
