"""``hub mirror import --from-mm2``: a mirror continues the copies of MirrorMaker 2, a real one and one
written by hand."""

from __future__ import annotations

import random
import re
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_nodes import often_cleaned
from mirror_maker import MirrorMaker, properties
from mirror_world import World, own_world
from pipeline import wait_until
from processes import call_hub

from hub.config import Settings
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.clusters.clusters import reach
from hub.replication.clusters.readers import read_progress
from hub.replication.config.load_mirrors import load
from hub.replication.migration.mirror_maker_records import checkpoint_of, sync_of
from hub.replication.verification.comparable import complete_tables

EXACTLY_ONCE = {
    "exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
}
SYNCS, CHECKPOINTS = "mm2-offset-syncs.lon.internal", "nyc.checkpoints.internal"


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        yield made


def taken(world: World, *more: str, ok: Sequence[int] = (0,)) -> Any:
    return world.json("import", world.name, "--from-mm2", "--name", world.name, "--quiet", "1", *more, ok=ok)


def by_place(found: Any) -> dict[tuple[str, int], Any]:
    return {(row["topic"], row["partition"]): row for row in found["partitions"]}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_mirror_goes_on_where_a_real_mirror_maker_stopped(
    world: World, settings: Settings, tmp_path: Path, exactly_once: bool
) -> None:
    """At least once: killed, resumed from its last sync, and killed again. Exactly once: stopped."""
    chat, group = f"{world.label}.chat", f"{world.label}.readers"
    world.make(chat, 2)
    odd_ones(world, chat)
    world.produce(chat, 400)
    maker_of = properties(
        world.nyc, world.lon, chat, {"offset.lag.max": 0, **(EXACTLY_ONCE if exactly_once else {})}
    )
    maker = MirrorMaker(settings, tmp_path / "mm2", maker_of)
    try:
        copied(world, maker, chat)
        world.clusters["nyc"].publish_group(
            group, Positions.of([(chat, 0, 57), (chat, 1, world.end(chat, 1))])
        )
        wait_until(lambda: told_of(world, group), 240.0, lambda: maker.log.read_text()[-3000:])
        world.declare([f"{world.label}.**"])
        running = taken(world, "--dry-run", "--quiet", "3")[
            "still_written"
        ]  # it has nothing to do, but it beats
        assert "heartbeats at lon" in running
        world.produce(chat, 3_000, mark="more")
        wait_until(lambda: world.ends(chat, "lon") > 500, 120.0, lambda: maker.log.read_text()[-3000:])
        if exactly_once:
            maker.stop()
        else:
            maker.kill()
            maker = MirrorMaker(settings, tmp_path / "mm2", maker_of)
            copied(world, maker, chat)
            world.produce(chat, 500, mark="even more")
    finally:
        maker.kill()
    world.produce(chat, 300, mark="after")

    # The copy is refused because it belongs to another producer.
    assert "no checkpoint of this mirror" in world.hub("plan", world.name, ok=(1,))
    before = everything(world)
    rehearsed = taken(world, "--dry-run")
    assert everything(world) == before
    found = taken(world)
    assert by_place(found).keys() == {(chat, 0), (chat, 1)}
    assert {row["state"] for row in found["partitions"]} == {"taken over"}
    for place, row in by_place(rehearsed).items():
        assert (row["state"], row["source_next"]) == ("ready", by_place(found)[place]["source_next"])
    doubled = sum(row["duplicates"] for row in found["partitions"])
    at = {tp.partition: n for tp, n in world.clusters["lon"].group_positions(group)}
    assert {(row["group"], row["partition"], row["state"]) for row in found["groups"]} == {
        (group, 0, "exact"),
        (group, 1, "exact"),
    }

    again = taken(world)
    assert {row["state"] for row in again["partitions"]} == {"has a checkpoint"}
    world.start_worker()
    world.caught_up({chat: world.ends(chat, "nyc")})
    here, there = world.values(chat, "nyc"), world.values(chat, "lon")
    assert len(there) == len(here) + doubled
    if exactly_once:
        assert there == here
    assert without_doubles(world, chat) == here
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"], verdict["not_compared"]) == (2, 0, 0)
    assert sum(row["records"] for row in verdict["partitions"]) == len(here)
    for partition, position in ((0, 57), (1, None)):
        place = TopicPartition(chat, partition)
        if position is not None:
            assert (
                world.from_position("lon", place, at[partition])[:1]
                == world.from_position("nyc", place, position)[:1]
            )


@pytest.mark.timeout(600)
def test_a_compacted_topic_is_taken_over_with_the_holes_of_either_side(
    world: World, settings: Settings, tmp_path: Path
) -> None:
    """Holes before MirrorMaker copied it, so the copy's offsets are others;
    and holes since, where the copy has records."""
    items, group = f"{world.label}.items", f"{world.label}.readers"
    world.make(
        items,
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_bytes="1048576",
        delete_retention_ms="100000000",
    )
    keyed(world, items, 0, 5_000)
    with often_cleaned(world.nyc):
        wait_until(lambda: len(world.records(items, "nyc")) < 4_500, 120.0, lambda: "nothing was compacted")
    maker = MirrorMaker(settings, tmp_path / "mm2", properties(world.nyc, world.lon, items, EXACTLY_ONCE))
    try:

        def copied_all() -> bool:
            maker.alive()
            there = items in world.clusters["lon"].topics()
            return there and newest(world, items, "lon") == newest(world, items, "nyc")

        wait_until(copied_all, 240.0, lambda: maker.log.read_text()[-3000:])
        maker.stop()
    finally:
        maker.kill()
    known = {record.offset for record in world.records(items, "nyc")}
    keyed(world, items, 5_000, 9_000)

    def fewer() -> set[int]:
        return known - {record.offset for record in world.records(items, "nyc")}

    with often_cleaned(world.nyc):
        wait_until(lambda: len(fewer()) > 100, 120.0, lambda: "nothing more was compacted")
    hole = min(fewer())
    world.clusters["nyc"].publish_group(group, Positions.of([(items, 0, hole)]))

    world.declare([f"{world.label}.**"])
    (row,) = taken(world)["partitions"]
    assert row["state"] == "taken over", row
    world.start_worker()
    world.caught_up({items: world.end(items, 0)})
    ours = world.records(items, "nyc")
    theirs = {record.offset: record for record in world.records(items, "lon")}
    last = {record.key: offset for offset, record in sorted(theirs.items())}
    _, tables = complete_tables(reach(load(world.path), "lon", {}, world.folder), world.name)
    table = tables[TopicPartition(items, 0)]
    for record in ours:
        found = table.translate(record.offset)
        if found.offset not in theirs:  # the target's own cleaner
            assert last[record.key] > found.offset
            continue
        there = theirs[found.offset]
        assert (found.kind, there.key, there.value, there.timestamp_ms) == (
            "exact",
            record.key,
            record.value,
            record.timestamp_ms,
        )
    assert newest(world, items, "lon") == newest(world, items, "nyc")
    verdict = world.json("verify", world.name)
    assert (verdict["different"], verdict["not_compared"]) == (0, 0)
    place = TopicPartition(items, 0)
    wait_until(
        lambda: world.clusters["lon"].group_positions(group).get(place) > 0,
        60.0,
        lambda: str(world.clusters["lon"].group_positions(group)),
    )
    # From there on nothing is missing that the source still has.
    position = world.clusters["lon"].group_positions(group).get(place)
    here = [record for record in ours if record.offset >= hole]
    assert {table.translate(record.offset).offset for record in here} <= {*range(position, table.target_next)}
    assert table.translate(here[0].offset).offset >= position


@pytest.mark.timeout(180)
def test_the_copy_is_the_source_record_by_record(world: World) -> None:
    """Half of it MirrorMaker's, half of it ours; nothing twice, nothing missing;
    groups at the very record."""
    chat, group, gone = f"{world.label}.chat", f"{world.label}.readers", f"{world.label}.gone"
    world.make(chat, 3)
    world.make(chat, 3, at="lon")
    odd_ones(world, chat)
    world.produce(chat, 300, partitions=2)  # nothing in the third: MirrorMaker never recorded it
    by_hand(world, chat, {0: 140, 1: 121}, groups=[(gone, 0, 100), (group, 0, 20)])
    world.clusters["nyc"].publish_group(group, Positions.of([(chat, 0, 88), (chat, 1, 150)]))
    world.declare([f"{world.label}.**"])
    found = taken(world)
    places = by_place(found)
    assert {place: (row["source_next"], row["records"]) for place, row in places.items()} == {
        (chat, 0): (140, 140),
        (chat, 1): (121, 121),
        (chat, 2): (0, 0),
    }
    states = {(row["group"], row["partition"]): (row["state"], row["position"]) for row in found["groups"]}
    assert states == {
        (gone, 0): ("exact", 100),
        (group, 0): ("exact", 88),  # where it is, not where MirrorMaker saw it last
        (group, 1): ("pending", 121),
    }
    world.produce(chat, 300, mark="later", partitions=3)
    world.start_worker()
    assert taken(world)["still_written"] == []  # the copies move, by our own hand
    world.caught_up({chat: world.ends(chat, "nyc")})
    assert world.values(chat, "lon") == world.values(chat, "nyc")
    wait_until(
        lambda: world.clusters["lon"].group_positions(group).get(TopicPartition(chat, 1)) > 121,
        60.0,
        lambda: str(world.clusters["lon"].group_positions(group)),
    )
    place = TopicPartition(chat, 1)
    theirs = world.clusters["lon"].group_positions(group).get(place)
    assert world.from_position("lon", place, theirs) == world.from_position("nyc", place, 150)


@pytest.mark.timeout(180)
def test_what_cannot_be_proven_is_refused_with_the_way_out(world: World) -> None:
    good, foreign, prefixed = (f"{world.label}.{name}" for name in ("good", "foreign", "prefixed"))
    for topic in (good, foreign):
        world.make(topic)
        world.make(topic, at="lon")
        world.produce(topic, 100)
    by_hand(world, good, {0: 50, 1: 30})
    by_hand(world, foreign, {0: 50, 1: 30})
    world.clusters["lon"].writer().append([NewRecord(foreign, b"k", b"somebody else's", partition=1)])
    world.make(prefixed)
    world.make(f"nyc.{prefixed}", at="lon")
    world.produce(prefixed, 10)
    world.declare([f"{world.label}.**"])
    found = by_place(taken(world, ok=(1,)))
    assert {place: row["state"] for place, row in found.items()} == {
        (good, 0): "taken over",
        (good, 1): "taken over",
        (foreign, 0): "held",
        (foreign, 1): "refused",
        (prefixed, 0): "renamed",
        (prefixed, 1): "renamed",
    }
    assert found[foreign, 1]["reason"] == "offset 30 of the copy is not at the source"
    assert "its records may exist nowhere else" in found[foreign, 1]["hint"]
    assert "delete" not in found[foreign, 1]["hint"]
    assert (
        f"nyc.{prefixed}" in found[prefixed, 0]["reason"]
        and "DefaultReplicationPolicy" in found[prefixed, 0]["reason"]
    )
    known = read_progress(reach(load(world.path), "lon", {}, world.folder), maps=False).of(world.name)
    assert {tp.topic for tp in known} == {good}
    # With the newest part alone the older difference does not matter, but a group that reads before it does.
    world.clusters["lon"].delete_topic(foreign)
    wait_until(lambda: foreign not in world.clusters["lon"].topics(), 60.0)
    world.make(foreign, at="lon")
    world.clusters["lon"].writer().append([NewRecord(foreign, b"k", b"older", partition=0)])
    by_hand(world, foreign, {0: 50, 1: 30})
    assert by_place(taken(world, ok=(1,)))[foreign, 0]["state"] == "refused"
    world.clusters["nyc"].publish_group(f"{world.label}.slow", Positions.of([(foreign, 0, 5)]))
    slow = by_place(taken(world, "--newest", "30", ok=(1,)))[foreign, 0]
    assert f'group "{world.label}.slow" is at 5' in slow["reason"]
    world.clusters["nyc"].publish_group(f"{world.label}.slow", Positions.of([(foreign, 0, 22)]))
    row = by_place(taken(world, "--newest", "30", ok=(1,)))[foreign, 0]
    assert (row["state"], row["from"], row["source_next"]) == ("taken over", 20, 50)


@pytest.mark.timeout(120)
def test_nothing_is_taken_over_while_mirror_maker_writes(world: World) -> None:
    chat = f"{world.label}.chat"
    world.make(chat)
    world.make(chat, at="lon")
    world.produce(chat, 100)
    world.declare([f"{world.label}.**"])
    assert re.search(r"neither .*nowhere", refusal(world, "--offset-syncs-topic", "nowhere"))
    by_hand(world, chat, {0: 50, 1: 30})
    stop = threading.Event()

    def write() -> None:
        writer = world.clusters["nyc"].writer()
        while not stop.wait(0.1):
            writer.append([sync(chat, 0, 49, 49)])
        writer.close()

    still = threading.Thread(target=write)
    still.start()
    try:
        assert taken(world, "--dry-run")["still_written"] == [f"{SYNCS} at nyc"]
        assert "still writes" in refusal(world)
    finally:
        stop.set()
        still.join()
    assert {row["state"] for row in taken(world)["partitions"]} == {"taken over"}


# ---- what the tests do


def refusal(world: World, *more: str) -> str:
    """Why nothing is taken over."""
    words = ("mirror", "import", world.name, "--from-mm2", "--name", world.name, "--quiet", "1", *more)
    done = call_hub(world.told, *words, "-f", str(world.path))
    assert done.returncode == 1, done
    return done.stderr


def odd_ones(world: World, topic: str) -> None:
    """Records that a copier may spoil: null, empty, headers twice and without a value."""
    producer = Producer({"bootstrap.servers": world.nyc, "compression.type": "zstd"})
    for partition in (0, 1):
        producer.produce(topic, None, b"gone", partition=partition)
        producer.produce(topic, b"", None, partition=partition)
        headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", b""), ("n", None)]
        producer.produce(topic, b"v", "ключ", partition, headers=headers, timestamp=1_600_000_000_000)
    assert producer.flush(30) == 0


def keyed(world: World, topic: str, first: int, end: int) -> None:
    """Records that take each other's place; now and then a tombstone."""
    chance = random.Random(first)
    producer = Producer({"bootstrap.servers": world.nyc, "compression.type": "lz4", "linger.ms": 50})
    for number in range(first, end):
        value = None if number % 50 == 49 else b"%d|" % number + chance.randbytes(600)
        producer.produce(topic, value, f"k{chance.randrange(1_500)}", partition=0)
        if number % 500 == 0:
            producer.flush(10)
    assert producer.flush(30) == 0


def newest(world: World, topic: str, at: str) -> dict[bytes | None, bytes | None]:
    """Return the content of a compacted topic: each key's last value."""
    last = {record.key: record.value for record in world.records(topic, at)}
    return {key: value for key, value in last.items() if value is not None}


def copied(world: World, maker: MirrorMaker, topic: str) -> None:
    """Wait until the copy has everything; a record may be in it twice."""

    def all_there() -> bool:
        maker.alive()
        here = {record.value for record in world.records(topic, "nyc")}
        return topic in world.clusters["lon"].topics() and here == {
            record.value for record in world.records(topic, "lon")
        }

    wait_until(all_there, 240.0, lambda: maker.log.read_text()[-3000:])


def told_of(world: World, group: str) -> bool:
    """Return whether the real one's topics are readable as ours, and name the group."""
    if CHECKPOINTS not in world.clusters["lon"].topics():
        return False
    syncs = [sync_of(record) for record in world.records(SYNCS, "nyc")]
    marks = [checkpoint_of(record) for record in world.records(CHECKPOINTS, "lon")]
    assert any(syncs)
    # It records nothing about a group further behind than its last restart: one partition is enough.
    return any(mark is not None and mark.group == group for mark in marks)


def without_doubles(world: World, topic: str) -> list[bytes]:
    """The copy's values in order, those that came a second time left out."""
    seen: set[tuple[int, int, bytes | None, bytes | None]] = set()
    found = []
    for record in world.records(topic, "lon"):
        one = (record.partition, record.timestamp_ms, record.key, record.value)
        if one not in seen:
            found.append(record.value or b"")
        seen.add(one)
    return found


def sync(topic: str, partition: int, upstream: int, downstream: int) -> NewRecord:
    name = topic.encode()
    key = struct.pack(">h", len(name)) + name + struct.pack(">i", partition)
    return NewRecord(SYNCS, key, struct.pack(">qq", upstream, downstream))


def by_hand(
    world: World, topic: str, ends: dict[int, int], groups: Sequence[tuple[str, int, int]] = ()
) -> None:
    """Write MirrorMaker's topics: records up to ``ends``, a sync every ten, and groups as (group,
    partition, position)."""
    for name, at in ((SYNCS, "nyc"), (CHECKPOINTS, "lon")):
        if name not in world.clusters[at].topics():
            world.make(name, 1, at, cleanup_policy="compact")
    offsets: dict[int, int] = {n: world.end(topic, n, "lon") for n in ends}
    producer = Producer({"bootstrap.servers": world.lon, "compression.type": "lz4"})
    syncs = []
    for record in world.records(topic, "nyc"):
        if record.offset < ends.get(record.partition, 0):
            headers = list(record.headers) if record.headers else None
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                headers=headers,
                timestamp=record.timestamp_ms,
            )
            if record.offset % 10 == 0:
                syncs.append(sync(topic, record.partition, record.offset, offsets[record.partition]))
            offsets[record.partition] += 1
    assert producer.flush(30) == 0
    writer = world.clusters["nyc"].writer()
    writer.append(syncs)
    writer.close()
    text = topic.encode()
    marks = []
    for group, partition, position in groups:
        who = group.encode()
        key = (
            struct.pack(">h", len(who))
            + who
            + struct.pack(">h", len(text))
            + text
            + struct.pack(">i", partition)
        )
        marks.append(NewRecord(CHECKPOINTS, key, struct.pack(">hqqh", 0, position, position, 0)))
    if marks:
        writer = world.clusters["lon"].writer()
        writer.append(marks)
        writer.close()


def everything(world: World) -> dict[str, Any]:
    """Topics, their ends and groups of both clusters, without what Kafka itself keeps."""
    time.sleep(0.5)
    return {
        name: (
            {topic: str(cluster.end_offsets([topic], committed=False)) for topic in cluster.topics()},
            {group: str(cluster.group_positions(group)) for group in cluster.groups()},
        )
        for name, cluster in world.clusters.items()
    }
