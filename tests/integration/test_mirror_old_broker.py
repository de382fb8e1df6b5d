"""Mirrors from and to a broker of Kafka 3.7, the oldest that is promised:
planned, carried exactly, groups and all, verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from old_node import OldNode
from pipeline import wait_until

from hub.kafka.protocol.broker_client import BrokerConnection, ClusterAccess
from hub.record import Positions

FETCH, PRODUCE = 1, 0


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with own_node(tmp_path_factory.mktemp("old"), OldNode) as made:
        yield made.bootstrap


@pytest.fixture(params=["source", "target"])
def world(request: pytest.FixtureRequest, old: str, home: str, tmp_path: Path) -> Iterator[World]:
    """The old broker is nyc, or lon; the other is the newest."""
    ends = (old, home) if request.param == "source" else (home, old)
    with own_world(tmp_path / "project", *ends) as made:
        yield made


def write(world: World, topic: str) -> list[bytes]:
    """Batches as they are, of each codec; a transaction that is committed and one that is not.
    What a reader is to see."""
    seen = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": world.nyc,
                "compression.type": codec,
                "linger.ms": 50,
                "enable.idempotence": True,
            }
        )
        for number in range(100):
            seen.append(f"{codec}-{number}".encode())
            producer.produce(
                topic, seen[-1], key=f"k{number}", partition=number % 2, headers={"n": b"%d" % number}
            )
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": world.nyc, "transactional.id": topic, "linger.ms": 50})
    producer.init_transactions(60)
    for part, good in (("first", True), ("never", False), ("last", True)):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, f"{part}-{number}", partition=number % 2)
        if good:
            producer.commit_transaction(60)
            seen += [f"{part}-{number}".encode() for number in range(20)]
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    return seen


@pytest.mark.timeout(240)
def test_from_an_old_broker_and_to_one(world: World, old: str) -> None:
    host, _, port = old.partition(":")
    connection = BrokerConnection(ClusterAccess(bootstrap=old), host, int(port))
    try:
        # Kafka 3.7's newest; that of Kafka 4 speaks newer ones, and would prove nothing.
        assert (connection.versions[FETCH][1], connection.versions[PRODUCE][1]) == (16, 10)
    finally:
        connection.close()
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic, retention_ms="3600000000")
    wanted = write(world, topic)
    world.declare([f"{world.label}.**"])

    (planned,) = world.json("plan", world.name, ok=(2,))
    assert any(step.startswith(f"+ topic {topic}  partitions=2") for step in planned["steps"]), planned
    world.hub("apply", world.name)
    assert world.json("plan", world.name)[0]["steps"] == []
    world.start_worker()
    world.until(well)

    assert sorted(world.values(topic, "lon")) == sorted(wanted)
    here, there = (
        [
            (each.partition, each.key, each.value, each.headers, each.timestamp_ms)
            for each in world.records(topic, at)
        ]
        for at in ("nyc", "lon")
    )
    assert here == there
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"], verdict["not_compared"]) == (2, 0, 0), json.dumps(verdict)

    # A group that stands in the middle, behind holes of transactions, reads the same on from there.
    at_source = Positions.of([(topic, 0, world.end(topic, 0) - 5), (topic, 1, 30)])
    world.clusters["nyc"].publish_group(group, at_source)
    wait_until(
        lambda: len(world.clusters["lon"].group_positions(group)) == 2,
        60.0,
        lambda: f"{world.status()['groups']}\n{world.logs()}",
    )
    for place, position in at_source:
        theirs = world.clusters["lon"].group_positions(group).get(place)
        assert world.from_position("lon", place, theirs) == world.from_position("nyc", place, position)

    # It grows, and what comes later comes too.
    world.clusters["nyc"].add_partitions(topic, 3)
    world.produce(topic, 300, partitions=3, mark="later")
    wait_until(
        lambda: len(world.values(topic, "lon")) == len(wanted) + 300,
        60.0,
        lambda: f"{world.status()}\n{world.logs()}",
    )
    assert world.clusters["lon"].topics()[topic].partitions == 3
