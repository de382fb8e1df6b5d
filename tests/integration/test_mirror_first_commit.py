"""A worker that dies before its very first commit leaves offsets without a record at the target,
and no checkpoint."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from link_proxy import END_TXN, OFFSET_COMMIT, TXN_OFFSET_COMMIT, LinkedNode, linked_node
from mirror_world import World, own_world, well
from patience import patient
from pipeline import wait_until

from hub.errors import PeerError
from hub.record import Positions, TopicPartition
from hub.replication.ownership.shards import Shard


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedNode]:
    with linked_node(tmp_path_factory.mktemp("lon")) as made:
        yield made


@pytest.fixture
def world(home: str, linked: LinkedNode, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, linked.bootstrap) as made:
        yield made


def uncommitted_ends(world: World, topic: str) -> int:
    if topic not in world.clusters["lon"].topics():
        return 0
    return sum(end for _, end in world.clusters["lon"].end_offsets([topic], committed=False))


@pytest.mark.timeout(240)
def test_what_a_first_transaction_left_is_nobodys_data(world: World, linked: LinkedNode) -> None:
    topic = f"{world.label}.chat"
    world.make(topic)
    world.produce(topic, 50)
    world.through = {"lon": linked.through}
    world.declare([f"{world.label}.**"])
    linked.link.hold(END_TXN)
    first = world.start_worker()
    wait_until(lambda: uncommitted_ends(world, topic) > 0, 60.0, lambda: f"{world.status()}\n{world.logs()}")
    first.kill()
    for number in range(2):  # what the coordinator does by itself when the transactions' time is over
        id = Shard(world.name, number).transactional_id
        Producer({"bootstrap.servers": world.lon, "transactional.id": id}).init_transactions(60)
    assert uncommitted_ends(world, topic) == world.ends(topic, "lon") > 0
    assert world.values(topic, "lon") == []

    # Nothing of it is anybody's: it is planned as if it were empty, and another worker begins.
    world.through = {}
    world.declare([f"{world.label}.**"])
    (planned,) = world.json("plan", world.name, ok=(0, 2))
    assert planned["refusals"] == [], planned
    world.start_worker()
    world.until(well)
    linked.link.heal()
    assert world.values(topic, "lon") == world.values(topic, "nyc") and world.ends(topic, "nyc") == 50
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"]) == (2, 0)
    # Its offsets differ from the source's: aborted records have some of them.
    assert world.ends(topic, "lon") > 50 + 2


@pytest.mark.timeout(240)
def test_what_others_committed_is_theirs_whatever_they_aborted_before(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic)
    world.produce(topic, 50)
    world.make(topic, at="lon")
    producer = Producer({"bootstrap.servers": world.lon, "transactional.id": topic})
    producer.init_transactions(60)
    for good in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"theirs", partition=1)
        producer.flush(30)
        if not good:
            producer.abort_transaction(30)
            world.declare([f"{world.label}.**"])
            (planned,) = world.json("plan", world.name, ok=(0, 2))
            assert planned["refusals"] == [], planned
    producer.commit_transaction(30)
    (planned,) = world.json("plan", world.name, ok=(1,))
    (refusal,) = planned["refusals"]
    assert "no checkpoint of this mirror" in str(refusal)
    world.start_worker()
    found = world.until(lambda each: bool(each["trouble"]))
    assert "no checkpoint of this mirror" in found["trouble"][topic]
    assert world.values(topic, "lon") == [b"theirs"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("held", ["the position", "the end of the transaction"])
def test_a_position_that_a_group_commits_while_the_mirror_commits_its_own_stays(
    world: World, linked: LinkedNode, held: str
) -> None:
    """Whoever commits without being a member is not refused by the broker, nor is the mirror."""
    topic, lon, link = f"{world.label}.chat", world.clusters["lon"], linked.link
    place, group = TopicPartition(topic, 0), f"{world.label}.readers"
    world.make(topic, 1)
    world.produce(topic, 1_000, partitions=1)
    world.through = {"lon": linked.through}
    world.declare([f"{world.label}.**"], shards=1)
    world.start_worker()
    world.until(well)
    # The position that the group gets is that of another record at the source.
    apis = (OFFSET_COMMIT, TXN_OFFSET_COMMIT) if held == "the position" else (END_TXN,)
    link.hold(*apis)
    before = sum(link.seen[api] for api in apis)
    try:
        world.clusters["nyc"].publish_group(group, Positions({place: 300}))
        wait_until(
            lambda: sum(link.seen[api] for api in apis) > before,
            60.0,
            lambda: f"{link.seen}\n{world.status()}\n{world.logs()}",
        )
        assert place not in lon.group_positions(group).offsets
        lon.publish_group(group, Positions({place: 700}))
    finally:
        link.heal()

    def states() -> set[str]:
        return {
            row["state"]
            for each in world.status()["groups"]
            if each["group"] == group
            for row in each["places"]
        }

    wait_until(lambda: states() == {"moved"}, 60.0, lambda: f"{world.status()['groups']}\n{world.logs()}")
    assert lon.group_positions(group).get(place) == 700
    # It continues there, and is left alone; one that nobody moved is carried as always.
    world.clusters["nyc"].publish_group(group, Positions({place: 400}))
    world.clusters["nyc"].publish_group(f"{group}.others", Positions({place: 500}))
    wait_until(
        lambda: lon.group_positions(f"{group}.others").offsets.get(place) == 500,
        60.0,
        lambda: f"{world.status()['groups']}\n{world.logs()}",
    )
    assert lon.group_positions(group).get(place) == 700
    if (
        held == "the end of the transaction"
    ):  # a coordinator that reads its log again comes to the same result
        assert linked.process is not None
        linked.process.kill()
        linked.process.wait(patient(30.0))
        linked.start()
        linked.wait_ready()

        def loaded() -> bool:
            with contextlib.suppress(PeerError):
                return lon.group_positions(group).offsets.get(place) is not None
            return False

        wait_until(loaded, 60.0, lambda: "its coordinator does not answer")
        assert lon.group_positions(group).get(place) == 700
        assert lon.group_positions(f"{group}.others").get(place) == 500


@pytest.mark.timeout(240)
def test_records_that_somebody_else_writes_into_a_copy_are_listed_and_markers_are_not(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic)
    in_transactions(world.nyc, topic, 40, 0, committed=True)
    in_transactions(world.nyc, topic, 10, 1, committed=False)
    world.produce(topic, 60)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    assert world.json("verify", world.name)["differences"] == []

    # Behind all that was mirrored, while the mirror writes nothing.
    world.produce(topic, 3, at="lon", mark="theirs", partitions=1)
    in_transactions(world.lon, topic, 2, 1, committed=False)
    in_transactions(world.lon, topic, 1, 1, committed=True)

    def foreign() -> list[tuple[int, int]]:
        return [
            (record.partition, record.offset)
            for record in world.records(topic, "lon")
            if record.value in (b"theirs0", b"theirs1", b"theirs2", world.lon.encode())
        ]

    def listed(*more: str) -> tuple[list[tuple[int, int]], int]:
        found = world.json("verify", world.name, *more, ok=(1,))
        assert all(row["source_offset"] is None for row in found["differences"])
        places = [(row["partition"], row["target_offset"]) for row in found["differences"]]
        return places, found["more_differences"]

    assert len(foreign()) == 4 and listed() == (foreign(), 0)
    # No request is needed: it is found while both sides are idle.
    found = world.until(lambda each: each["different"] == 2)
    assert found["state"] == "trouble" and "differ from the source" in found["reason"]
    assert any("that no mirror brought" in row["verified"]["why"] for row in found["partitions"])
    said_by = [row["verified"]["why"] for row in found["partitions"] if "(" in row["verified"]["why"]]
    assert said_by and all("producer id " in why and " UTC)" in why for why in said_by)

    # In the middle of a copy that continues all the while.
    halt = threading.Event()

    def goes_on() -> None:
        producer = Producer({"bootstrap.servers": world.nyc})
        while not halt.wait(0.02):
            producer.produce(topic, b"more")
            producer.poll(0)
        producer.flush(60)

    writer = threading.Thread(target=goes_on, daemon=True)
    writer.start()
    try:
        world.until(lambda each: each["records_per_s"] > 0)
        for _ in range(3):
            assert listed() == (foreign(), 0)
    finally:
        halt.set()
        writer.join(patient(60.0))
    world.until(lambda each: each["lag_records"] == 0)
    assert listed() == (foreign(), 0)
    assert listed("-n", "2") == (foreign()[:2], 2)
    said, notes = world.process("verify", world.name, "--limit", "2", ok=1)
    assert "that no mirror brought" in said and "2 more differences: list them with --limit 4" in notes


def in_transactions(bootstrap: str, topic: str, count: int, partition: int, *, committed: bool) -> None:
    """Records whose value is the address, in one transaction."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.{partition}.{committed}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, bootstrap.encode(), partition=partition)
    if committed:
        producer.commit_transaction(60)
    else:
        producer.flush(60)
        producer.abort_transaction(60)
