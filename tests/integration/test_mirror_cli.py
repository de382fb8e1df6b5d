"""``hub mirror`` between two real clusters, workers as processes:
declared, applied, mirrored, watched, handed over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from mirror_world import World, own_world, well
from patience import patient
from pipeline import records_of, wait_until
from typer.testing import CliRunner

from hub.cli import app
from hub.completeness.counting import read_counts, write_entries
from hub.completeness.counts import Cells, bucket_of
from hub.kafka.protocol.broker_client import EARLIEST, BrokerCluster, ClusterAccess
from hub.observability.web.pages.monitor.mirrors import mirror
from hub.record import Positions, TopicPartition
from hub.replication.clusters.status_records import STATUS_TOPIC
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.topics.tree.apply_lock import one_apply


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    """Both clusters are shared by the tests of this file: each has topics and a mirror of its own."""
    with own_world(tmp_path / "project", home, away) as made:
        yield made


def same(world: World, topic: str) -> None:
    """Check that both sides have the same committed values in order, and that `verify` agrees."""
    wait_until(lambda: world.ends(topic, "lon") > 0, 60.0, lambda: "nothing there")
    assert world.values(topic, "lon") == world.values(topic, "nyc")
    verdict = world.json("verify", world.name, "--topic", topic)
    assert verdict["different"] == verdict["not_compared"] == 0


@pytest.mark.timeout(240)
def test_declare_apply_run_status_verify(world: World) -> None:
    chat, loot = f"{world.label}.chat", f"{world.label}.loot"
    world.make(chat, retention_ms="3600000000")
    world.produce(chat, 500)
    world.declare([f"{world.label}.**"])

    said, _ = world.process("plan", world.name, "-o", "json", ok=2)
    (planned,) = json.loads(said)
    assert any(step.startswith(f"+ topic {chat}  partitions=2") for step in planned["steps"])
    with one_apply(world.clusters["lon"], "hub topic apply", replication_factor=1):
        _, refused = world.process("apply", world.name, ok=1)
        assert "`hub topic apply` of" in refused and "is under way since" in refused
        assert chat not in world.clusters["lon"].topics()
    _, remarks = world.process("apply", world.name)
    assert f"+ topic {chat}" in remarks
    assert world.json("plan", world.name)[0]["steps"] == []
    assert world.clusters["lon"].topic_config([chat])[chat]["retention.ms"] == "3600000000"
    (still,) = world.json("status", world.name, ok=(1,))
    assert still["state"] == "no worker"

    world.start_worker()
    world.caught_up({chat: 500})
    # A topic that comes later and fits is picked up by itself; one that grows, grows at the target.
    world.make(loot, 3)
    world.produce(loot, 300, partitions=3)
    world.caught_up({chat: 500, loot: 300})
    world.clusters["nyc"].add_partitions(loot, 5)
    world.produce(loot, 500, partitions=5, mark="grown")
    world.caught_up({loot: 800})
    assert world.clusters["lon"].topics()[loot].partitions == 5

    world.until(well)
    (found,) = world.json("status", world.name)
    assert found["workers"] == 1 and found["lag_records"] == 0
    assert {row["engine"] for row in found["partitions"]} <= {"batch", "record", "batch+record"}
    assert "nyc" in world.hub("ls") and "mirroring" in world.hub("status")
    for topic in (chat, loot):
        same(world, topic)
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"]) == (7, 0)
    assert sum(row["records"] for row in verdict["partitions"]) == 1300


@pytest.mark.timeout(240)
def test_groups_are_carried_over_exactly(world: World) -> None:
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic)
    for part in range(5):  # transactions at the source leave holes, so the offsets of both sides differ
        with_holes(world, topic, f"p{part}-", 40)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    here = Positions.of([(topic, 0, 57), (topic, 1, world.end(topic, 1))])
    world.clusters["nyc"].publish_group(group, here)

    def carried() -> bool:
        return len(world.clusters["lon"].group_positions(group)) == 2

    wait_until(carried, 60.0, lambda: str(world.status(world.name)["groups"]))
    for place, position in here:
        theirs = world.clusters["lon"].group_positions(group).get(place)
        assert world.from_position("lon", place, theirs) == world.from_position("nyc", place, position)
    assert world.clusters["lon"].group_positions(group).get(TopicPartition(topic, 0)) != 57
    found = world.until(lambda each: any(g["group"] == group for g in each["groups"]))
    (mine,) = [g for g in found["groups"] if g["group"] == group]
    assert {place["state"] for place in mine["places"]} == {"exact"}
    assert (mine["rpo_records"], mine["redelivered"]) == (0, 0)

    # It continues with the group, and leaves alone one that has members at the target.
    world.clusters["nyc"].publish_group(group, Positions.of([(topic, 0, 61)]))
    place = TopicPartition(topic, 0)
    wait_until(
        lambda: (
            world.from_position("lon", place, world.clusters["lon"].group_positions(group).get(place))
            == world.from_position("nyc", place, 61)
        ),
        60.0,
        lambda: str(world.status(world.name)["groups"]),
    )
    consumer = Consumer(
        {
            "bootstrap.servers": world.lon,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, 60.0, lambda: "no record")
        world.clusters["nyc"].publish_group(group, Positions.of([(topic, 0, 70)]))
        world.until(
            lambda each: any(
                place["state"] == "active"
                for g in each["groups"]
                if g["group"] == group
                for place in g["places"]
            )
        )
    finally:
        consumer.close()


@pytest.mark.timeout(240)
def test_a_group_has_a_position_where_nothing_was_mirrored_yet(world: World) -> None:
    """Without one it would begin after the first records written there after a failover."""
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic, 3)
    world.produce(topic, 20, partitions=2)
    admin = AdminClient({"bootstrap.servers": world.nyc})
    for future in admin.delete_records([KafkaTopicPartition(topic, 1, world.end(topic, 1))]).values():
        future.result(30)
    at = [(topic, 0, 7), (topic, 1, world.end(topic, 1)), (topic, 2, 0)]
    world.clusters["nyc"].publish_group(group, Positions.of(at))
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    expected = Positions.of([(topic, 0, 7), (topic, 1, 0), (topic, 2, 0)])
    wait_until(
        lambda: world.clusters["lon"].group_positions(group) == expected,
        60.0,
        lambda: str(world.status(world.name)["groups"]),
    )
    world.json("switchover", world.name)
    world.json("failback", world.name)
    assert world.clusters["lon"].group_positions(group) == expected


@pytest.mark.timeout(240)
def test_a_topic_made_again_stops_or_goes_on_as_the_file_says(world: World) -> None:
    topic, other = f"{world.label}.chat", f"{world.label}.other"
    for name in (topic, other):
        world.make(name)
        world.produce(name, 100)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    world.delete(topic)
    world.make(topic)
    world.produce(topic, 60, mark="again")
    found = world.until(lambda each: topic in each["trouble"])
    assert "deleted and created again" in found["trouble"][topic]
    world.produce(other, 50, mark="more")  # the other one continues
    world.caught_up({other: 150})
    assert len(world.values(topic, "lon")) == 100

    world.declare([f"{world.label}.**"], on_recreate="continue")  # the worker reads the file again
    found = world.until(lambda each: well(each) and len(each["gaps"]) == 2)
    assert {gap["reason"] for gap in found["gaps"]} == {"recreated"}
    assert {gap["first"] for gap in found["gaps"]} == {50}
    assert {row["generation"] for row in found["partitions"] if row["topic"] == topic} == {1}
    ours, theirs = world.values(topic, "nyc"), world.values(topic, "lon")
    assert sorted(each for each in theirs if each.startswith(b"again")) == sorted(ours)
    assert len(theirs) == 160
    assert world.json("verify", world.name)["different"] == 0


@pytest.mark.timeout(240)
def test_retention_that_overtakes_the_mirror_is_a_gap_that_is_told(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    world.produce(topic, 100, partitions=1)
    world.declare([f"{world.label}.**"])
    worker = world.start_worker()
    world.until(well)
    world.hub("pause", world.name)

    def paused_by(found: Mapping[str, Any]) -> set[str]:
        """Return the workers that report the pause of each partition; none while one is not paused."""
        rows = found["partitions"] if found["state"] == "paused" else []
        return {row["worker"] for row in rows} if all(row["state"] == "paused" for row in rows) else set()

    (before,) = paused_by(world.until(lambda each: bool(paused_by(each))))
    # So does a worker that never carried anything of it.
    worker.stop()
    world.start_worker()
    world.until(lambda each: bool(paused_by(each) - {before, None}))
    world.produce(topic, 200, mark="late", partitions=1)
    admin = AdminClient({"bootstrap.servers": world.nyc})
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, 250)]).values():
        future.result(30)
    time.sleep(2.0)
    assert len(world.values(topic, "lon")) == 100  # paused is paused

    world.hub("resume", world.name)
    found = world.until(lambda each: any(row["state"] == "stopped" for row in each["partitions"]))
    assert "100 to 249" in found["partitions"][0]["reason"]
    assert world.json("status", world.name, ok=(1,))[0]["state"] == "trouble"
    world.declare([f"{world.label}.**"], on_gap="continue")
    found = world.until(lambda each: well(each) and bool(each["gaps"]))
    (gap,) = found["gaps"]
    assert (gap["first"], gap["end"], gap["reason"]) == (100, 250, "retention")
    assert world.values(topic, "lon")[100:] == world.values(topic, "nyc")
    assert world.json("verify", world.name)["different"] == 0


@pytest.mark.timeout(240)
def test_two_workers_share_and_the_one_that_lives_takes_over(world: World) -> None:
    topics = [f"{world.label}.a", f"{world.label}.b", f"{world.label}.c"]
    for topic in topics:
        world.make(topic, 4)
        world.produce(topic, 200, partitions=4)
    world.declare([f"{world.label}.**"], shards=4)
    first, second = world.start_worker(), world.start_worker()

    def both(found: Mapping[str, Any]) -> bool:
        return well(found) and len({row["worker"] for row in found["partitions"]}) == 2

    world.until(both)
    first.kill()
    for topic in topics:
        world.produce(topic, 400, partitions=4, mark="after")
    found = world.caught_up(dict.fromkeys(topics, 600))
    assert second.process.poll() is None
    world.until(lambda each: well(each) and len({row["worker"] for row in each["partitions"]}) == 1)
    verdict = world.json("verify", world.name)
    assert verdict["equal"] == 12
    for topic in topics:
        assert world.values(topic, "lon") == world.values(topic, "nyc")
    assert found["gaps"] == []


def shown(world: World, name: str = "") -> list[list[str]]:
    """The commands that the page of mirrors offers now, without the words that begin them all."""
    commands = [each.command.split() for each in mirror(world.status(name)).commands]
    assert all(each[:2] == ["hub", "mirror"] for each in commands)
    return [each[2:] for each in commands]


@pytest.mark.timeout(300)
def test_switchover_and_failback_lose_and_repeat_nothing_for_a_group(world: World) -> None:
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic)
    with_holes(world, topic, "home-", 60)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    read = read_as(world, "nyc", topic, group, 40)

    settled = {tuple(place): position for place, position in world.clusters["nyc"].group_positions(group)}
    world.until(
        lambda each: (
            settled
            == {(p["topic"], p["partition"]): p["source_offset"] for g in each["groups"] for p in g["places"]}
        )
    )
    # The worker notes the source's id once, a moment after it began; nothing else is still to be written.
    noted = f"source|{world.name}".encode()
    wait_until(
        lambda: any(each.key == noted for each in records_of(world.clusters["lon"], CONTROL_TOPIC)), 60.0
    )
    before = everything(world)
    # Every command that the page of mirrors shows is right as it stands there.
    assert {each[0] for each in shown(world)} == {"drill", "failover", "switchover"}
    for rehearsal in (each for each in shown(world) if each[0] == "drill"):
        drilled = world.json(*rehearsal)
    assert drilled["kind"] == "switchover"
    assert (drilled["lost"], drilled["redelivered"], drilled["not_mirrored"]) == (0, 0, {})
    assert everything(world) == before  # a drill changes nothing

    (handing,) = [each for each in shown(world) if each[0] == "switchover"]
    switched = world.json(*handing)
    assert switched["new"] == "lon" and switched["steps"][-1] == "finish"
    assert world.until(lambda each: each["state"] == "handed over")["ok"]
    world.hub("pause", world.name)
    world.hub("drop", world.name, "--name", world.name, ok=(1,))  # the way back needs it
    world.hub("resume", world.name)
    with_holes(world, topic, "away-", 40, at="lon")
    read += read_as(world, "lon", topic, group, 20 + 30)
    left_behind, rehearsal, returning = shown(world)
    assert world.json(*left_behind) == []
    assert world.json(*rehearsal)["kind"] == "failback"
    assert shown(world, f"{world.name}~back") == [left_behind, rehearsal, returning]
    back = world.json(*returning)
    assert back["new"] == "nyc"
    assert {each[0] for each in shown(world)} == {"drill", "failover", "switchover"}
    with_holes(world, topic, "home-again-", 20)
    read += read_as(world, "nyc", topic, group, 10 + 20)

    born = [
        f"{mark}{n}".encode()
        for mark, n in (("home-", 60), ("away-", 40), ("home-again-", 20))
        for n in range(n)
    ]
    assert sorted(read) == sorted(born), "each event once"
    for place, position in world.clusters["nyc"].group_positions(group):
        assert world.from_position("nyc", place, position) == [], "and none is left"
    world.until(well)
    wait_until(
        lambda: world.values(topic, "lon") == world.values(topic, "nyc"),
        60.0,
        lambda: f"{len(world.values(topic, 'lon'))} {len(world.values(topic, 'nyc'))}",
    )
    assert sorted(world.values(topic, "nyc")) == sorted(born)
    assert world.json("verify", world.name)["different"] == 0

    # Forgotten, but the copy is there: it is not mirrored into once more, though each side once was the
    # other's source.
    world.hub("pause", world.name)
    assert world.json("drop", world.name, "--name", world.name)["partitions"] == 2
    world.hub("resume", world.name)
    found = world.until(lambda each: topic in each["trouble"])
    assert "no checkpoint of this mirror" in found["trouble"][topic]
    assert sorted(world.values(topic, "lon")) == sorted(born)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tail", ["replay", "discard"])
def test_a_failover_says_what_it_loses_and_a_failback_settles_it(world: World, tail: str) -> None:
    topic, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(topic, 1)
    world.produce(topic, 100, mark="home", partitions=1)
    world.clusters["nyc"].publish_group(group, Positions.of([(topic, 0, 40)]))
    world.declare([f"{world.label}.**"])
    worker = world.start_worker()
    world.until(lambda each: well(each) and any(g["group"] == group for g in each["groups"]))
    worker.stop()
    world.produce(topic, 30, mark="tail", partitions=1)  # nobody mirrors these
    drilled = world.json("drill", world.name)
    failed = world.json("failover", world.name, "--name", world.name)
    for said in (drilled, failed):
        (loss,) = said["losses"]
        assert (loss["first"], loss["end"], said["lost"], said["exact"]) == (100, 130, 30, True)
    assert world.clusters["lon"].group_positions(group).get(TopicPartition(topic, 0)) == 40
    stayed = [{"topic": topic, "partition": 0, "first": 100, "end": 130, "known": True}]
    assert world.status()["lost"] == stayed

    world.produce(topic, 20, at="lon", mark="away", partitions=1)
    rehearsed = world.json("drill", world.name, "--kind", "failback")
    assert 20 <= rehearsed["lost"] <= 22  # those that are to go home, and markers: nothing of the copy
    world.start_worker()
    world.json("failback", world.name, "--tail", tail)
    world.produce(topic, 10, mark="again", partitions=1)
    world.until(lambda each: well(each) and each["partitions"][0]["source_next"] >= 161)  # markers too
    ours, theirs = world.values(topic, "nyc"), world.values(topic, "lon")
    born = {"home": 100, "tail": 30, "away": 20, "again": 10}
    every = [f"{mark}{n}".encode() for mark, count in born.items() for n in range(count)]
    assert sorted(ours) == sorted(every)
    gaps = world.status()["gaps"]
    assert world.status()["lost"] == []
    if tail == "replay":
        assert sorted(theirs) == sorted(every) and gaps == []
    else:
        assert sorted(theirs) == sorted(each for each in every if not each.startswith(b"tail"))
        assert [(gap["first"], gap["end"], gap["reason"]) for gap in gaps] == [(100, 130, "skipped")]
    assert world.json("verify", world.name)["different"] == 0


@pytest.mark.timeout(240)
def test_what_cannot_be_taken_back_wants_the_name(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic)
    world.produce(topic, 50)
    world.declare([f"{world.label}.**"])
    world.hub("apply")
    worker = world.start_worker()
    world.until(well)
    worker.stop()
    _, refused = world.process("failover", world.name, ok=1)
    assert f"--name {world.name}" in refused
    world.hub("failover", world.name, "--name", "another", ok=(1,))
    world.hub("drop", world.name, "--name", world.name, ok=(1,))  # not paused
    world.hub("pause", world.name)
    world.hub("drop", world.name, ok=(1,))
    dropped = world.json("drop", world.name, "--name", world.name, "--delete-copies")
    assert (dropped["partitions"], dropped["topics"]) == (2, [topic])
    assert topic not in world.clusters["lon"].topics()
    world.hub("resume", world.name)
    world.start_worker()
    world.until(lambda each: well(each) and each["lag_records"] == 0)
    same(world, topic)

    # A topic that cannot be mirrored counts as lost, and nothing waits for it. A copy that is gone is not
    # called equal.
    other = f"{world.label}.foreign"
    for at in ("lon", "nyc"):
        world.make(other, at=at)
        world.produce(other, 10, at=at)
    world.until(lambda each: other in each["trouble"])
    drilled = world.json("drill", world.name)
    assert (drilled["lost"], list(drilled["not_mirrored"])) == (10, [other])
    world.hub("switchover", world.name, ok=(1,))
    assert world.status()["operations"] == []
    world.delete(topic, at="lon")
    verdict = world.json("verify", world.name, ok=(1,))
    assert (verdict["equal"], verdict["not_compared"]) == (0, 2)


# ---- what the tests do


def with_holes(world: World, topic: str, mark: str, count: int, at: str = "nyc") -> None:
    """Records in transactions, whose markers are offsets without a record; some are aborted."""
    from confluent_kafka import Producer

    bootstrap = {"nyc": world.nyc, "lon": world.lon}[at]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"app.{topic}.{at}"})
    producer.init_transactions(60)
    for begin in range(0, count, 10):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"aborted", partition=number % 2)
        producer.flush(60)
        producer.abort_transaction(60)
        producer.begin_transaction()
        for number in range(begin, min(count, begin + 10)):
            producer.produce(topic, f"{mark}{number}".encode(), f"k{number}".encode(), partition=number % 2)
        producer.commit_transaction(60)


def read_as(world: World, at: str, topic: str, group: str, count: int) -> list[bytes]:
    """The next ``count`` that the group reads, committed record by record, as an application does;
    it leaves the group after."""
    bootstrap = {"nyc": world.nyc, "lon": world.lon}[at]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    quiet_since = time.monotonic()
    try:
        while len(found) < count:
            assert time.monotonic() - quiet_since < patient(60.0), f"{len(found)} of {count}"
            message = consumer.poll(0.3)
            if message is not None and message.error() is None:
                found.append(message.value())
                consumer.commit(message, asynchronous=False)
                quiet_since = time.monotonic()
    finally:
        consumer.close()
    return found


def everything(world: World) -> dict[str, Any]:
    """State of a cluster: topics, settings, ends of all topics, groups and their positions. The status
    topic is excluded, because workers write to it continuously."""
    found: dict[str, Any] = {}
    for name, cluster in world.clusters.items():
        topics = {topic: each for topic, each in cluster.topics().items() if topic != STATUS_TOPIC}
        wire = BrokerCluster(ClusterAccess(bootstrap=cluster.bootstrap))
        wire.refresh(topics)
        places = [TopicPartition(topic, n) for topic, each in topics.items() for n in range(each.partitions)]
        found[name] = {
            "topics": {topic: (each.topic_id, each.partitions) for topic, each in topics.items()},
            "config": cluster.topic_config(sorted(topics)),
            "ends": (wire.offsets(places, EARLIEST), wire.offsets(places)),
            "groups": {g: str(p) for g, p in cluster.positions_of_groups(cluster.groups()).items()},
        }
        wire.close()
    return found


def test_a_mirrors_copy_is_compared_and_what_is_missing_is_named(world: World) -> None:
    topic = f"{world.label}.complete"
    world.declare([topic])
    world.make(topic, partitions=2)
    world.hub("apply")
    world.start_worker()
    world.produce(topic, 500)
    world.caught_up({topic: 500})
    environment = {
        "HUB_PROJECT": str(world.folder),
        "HUB_BOOTSTRAP": world.nyc,
        "HUB_EMBEDDED_KAFKA": "false",
    }

    def run() -> tuple[int, Any]:
        done = CliRunner().invoke(app, ["completeness", "run", topic, "-o", "json"], env=environment)
        assert done.exit_code in (0, 1), f"{done.output}{done.exception}"
        return done.exit_code, json.loads(done.stdout)[0]

    code, row = run()
    assert (code, row["state"], row["records"]) == (0, "BALANCED", 500), row
    assert row["tiers"][0]["compared"] == 500
    world.produce(topic, 100, mark="later")
    world.caught_up({topic: 600})
    code, row = run()
    assert (code, row["state"], row["records"]) == (0, "BALANCED", 600), row
    bucket_ms = row["buckets"][0]["bucket_ms"]
    # An entry of the mirror that is wrong: as if one record had been another at the target when it was
    # compared.
    cluster = world.clusters["nyc"]
    copy = next(each for each in read_counts(cluster).of(topic) if each.tier == "mirror")
    cell = copy.cells[bucket_of(min(copy.cells))]
    write_entries(
        cluster,
        [replace(copy, cells=Cells({**copy.cells, min(copy.cells): cell._replace(count=cell.count - 1)}))],
    )
    code, row = run()
    assert (code, row["state"], row["tiers"][0]["missing"]) == (1, "SHORT", 1), row
    done = CliRunner().invoke(
        app, ["completeness", "missing", topic, str(bucket_ms), "-o", "json"], env=environment
    )
    assert json.loads(done.stdout) == []  # read again, both sides are the same: only the entry was wrong
    # Records of the copy are deleted: named when asked for; and of new records, not to be compared any more.
    admin = AdminClient({"bootstrap.servers": world.lon})
    world.produce(topic, 20, mark="last")
    world.caught_up({topic: 620})
    for future in admin.delete_records([KafkaTopicPartition(topic, 0, 305)]).values():
        future.result()
    done = CliRunner().invoke(
        app,
        ["completeness", "missing", topic, str(bucket_ms), "-o", "json", "--limit", "1000"],
        env=environment,
    )
    gone = [each for each in json.loads(done.stdout) if each["what"] == "not at the target"]
    assert {each["partition"] for each in gone} == {0}
    assert {each["offset"] for each in gone} >= set(range(100))
    code, row = run()
    assert "retention" in row["tiers"][0]["cause"] or row["tiers"][0]["missing"], row
