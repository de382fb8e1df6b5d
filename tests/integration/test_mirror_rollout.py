"""Workers with different files: two files with one target,
and one file that is rolled out worker by worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mirror_world import World, own_world, well
from patience import patient

from hub.api.web import Mirrors
from hub.observability.overview.mirror_readers import MirrorStatuses, readers_of
from hub.observability.web.pages.monitor.mirrors import mirrors_page
from hub.record import TopicPartition
from hub.replication.clusters.status_records import WorkerHeartbeat
from hub.replication.ownership.shards import Shard, shards_of
from hub.replication.status.metrics import families

PARTITIONS = 8


@pytest.fixture
def worlds(home: str, away: str, tmp_path: Path) -> Iterator[tuple[World, World]]:
    """Two projects with a file each, between the same clusters."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(own_world(tmp_path / name, home, away)) for name in ("one", "two")
        )
        yield first, second


class Watcher(threading.Thread):
    """Request the status repeatedly, and collect results that must never occur."""

    def __init__(self, world: World, topics: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self.world, self.topics = world, topics
        self.lies: list[dict[str, Any]] = []
        self.asked = 0
        self._halt = threading.Event()

    def run(self) -> None:
        while not self._halt.wait(0.3):
            # The state before the request, and nothing is produced meanwhile.
            found = self.world.status()
            self.asked += 1
            carried: dict[str, int] = {}
            for row in found["partitions"]:
                carried[row["topic"]] = carried.get(row["topic"], 0) + (row["source_next"] or 0)
            lacking = sum(count - carried.get(topic, 0) for topic, count in self.topics.items())
            untold = [row for row in found["partitions"] if row["worker"] is None]
            healthy = found["state"] == "mirroring" and found["ok"]
            if healthy and (untold or (lacking and not found["lag_records"])):
                self.lies.append({**found, "lacking": lacking})

    def stop(self) -> None:
        self._halt.set()
        self.join(patient(60.0))


@pytest.mark.timeout(240)
def test_two_files_with_one_target_leave_no_partition_to_a_worker_that_does_not_have_it(
    worlds: tuple[World, World],
) -> None:
    names = [f"{world.label}.chat" for world in worlds]
    for world, topic in zip(worlds, names, strict=True):
        world.make(topic, PARTITIONS)
        world.produce(topic, 800, partitions=PARTITIONS)
        world.declare([topic], shards=8)
        world.hub("apply")
    one, two = worlds
    watcher = Watcher(two, {names[1]: 800})
    one.start_worker()
    one.until(well)
    two.start_worker()
    two.until(lambda found: bool(found["partitions"]))
    watcher.start()
    try:
        two.until(lambda found: well(found) and len(found["partitions"]) == PARTITIONS)
        assert two.ends(names[1], "nyc") == 800 == len(two.values(names[1], "lon"))
        # The other one keeps all of its own.
        one.produce(names[0], 800, partitions=PARTITIONS, mark="more")
        one.caught_up({names[0]: 1600})
    finally:
        watcher.stop()
    assert watcher.asked and not watcher.lies, watcher.lies[0]
    for world in worlds:
        (beat,) = world.status()["heartbeats"]
        assert beat["shards"] == sorted({row["shard"] for row in world.status()["partitions"]})


@pytest.mark.timeout(300)
def test_a_changed_file_is_rolled_out_over_several_workers(worlds: tuple[World, World]) -> None:
    """The first worker has the changed file, then both have; the first one is killed in between."""
    one, two = worlds
    two.name, two.label = one.name, one.label
    chat, loot = f"{one.label}.chat", f"{one.label}.loot"
    for topic in (chat, loot):
        one.make(topic, PARTITIONS)
        one.produce(topic, 160, partitions=PARTITIONS)
    for world in worlds:
        world.declare([chat], shards=4)
    one.hub("apply")
    first, second = one.start_worker(), two.start_worker()
    one.until(lambda found: well(found) and found["workers"] == 2)

    # One of two has it: it carries all, the other one gives everything back and waits.
    one.declare([chat, loot], shards=4)
    found = one.until(lambda found: well(found) and len(found["partitions"]) == 2 * PARTITIONS)
    assert found["workers"] == 1 and {row["worker"] for row in found["partitions"]} == {
        found["heartbeats"][0]["worker"]
    }
    assert "idle until their mirrors.yaml is the same" in found["cautions"][-1]
    (newest, former) = found["definitions"]
    assert newest["here"] and newest["in_force"] and len(newest["workers"]) == len(former["workers"]) == 1
    assert "otherwise than the file asked with" in two.status()["cautions"][-1]
    one.produce(chat, 160, partitions=PARTITIONS, mark="more")
    one.caught_up({chat: 320})

    # It is killed: the other one continues with its own file, and the rest is not reported as healthy.
    first.kill()
    one.produce(chat, 160, partitions=PARTITIONS, mark="late")
    one.produce(loot, 160, partitions=PARTITIONS, mark="late")
    two.caught_up({chat: 480})
    found = one.until(lambda found: found["workers"] == 1 and found["definitions"][0]["here"] is False)
    assert not (found["state"] == "mirroring" and found["ok"]), found

    # Now it has the changed file, too; then there are two again.
    two.declare([chat, loot], shards=4)
    two.caught_up({chat: 480, loot: 320})
    one.start_worker()
    found = one.until(lambda found: well(found) and found["workers"] == 2 and not found["cautions"])
    assert len(found["definitions"]) == 1
    for topic, count in ((chat, 480), (loot, 320)):
        assert sorted(one.values(topic, "lon")) == sorted(one.values(topic, "nyc"))
        assert len(one.values(topic, "lon")) == count
    verdict = one.json("verify", one.name)
    assert (verdict["different"], verdict["not_compared"]) == (0, 0)
    assert second.process.poll() is None


@pytest.mark.timeout(240)
def test_what_a_worker_of_an_earlier_release_holds_is_its_own_until_it_is_gone(
    worlds: tuple[World, World],
) -> None:
    """A worker that names no links in its heartbeat: it counts only for the shards that it holds."""
    world, _ = worlds
    topic = f"{world.label}.chat"
    world.make(topic, PARTITIONS)
    world.produce(topic, 160, partitions=PARTITIONS)
    world.declare([topic], shards=8)
    world.hub("apply")
    halt = threading.Event()
    sender = world.clusters["lon"].sender(linger_ms=0)

    def beats() -> None:
        while not halt.is_set():
            held = (Shard(world.name, 2), Shard("another", 1))
            beat = WorkerHeartbeat("earlier", "host", 1, held, 6_000, int(time.time() * 1000))
            sender.send(replace(beat.record(), headers=()))
            sender.flush(patient(10.0))
            halt.wait(1.0)

    thread = threading.Thread(target=beats, daemon=True)
    thread.start()
    try:
        world.start_worker()
        mine = shards_of(world.name, [TopicPartition(topic, n) for n in range(PARTITIONS)], 8)
        left = {tp.partition for tp in mine[Shard(world.name, 2)]}

        def rest_is_mirrored(found: Mapping[str, Any]) -> bool:
            rows = {row["partition"]: row for row in found["partitions"]}
            return len(rows) == PARTITIONS and all(
                rows[n]["lag_records"] == 0 and rows[n]["worker"] for n in rows.keys() - left
            )

        assert left
        found = world.until(rest_is_mirrored)
        unknown = {row["partition"]: row for row in found["partitions"] if row["state"] == "unknown"}
        assert unknown.keys() == left and found["state"] == "unknown" and not found["ok"]
        # Nothing of it was mirrored: it lacks all that the source has.
        assert {row["lag_records"] for row in unknown.values()} == {20}
        assert "worker earlier has it and has not reported it" in found["reason"]
        assert world.process("status", world.name, ok=1)
    finally:
        halt.set()
        thread.join(patient(20.0))
    found = world.until(well)
    assert len(world.values(topic, "lon")) == 160


@pytest.mark.timeout(240)
def test_a_worker_that_stands_still_does_not_freeze_its_lag(
    worlds: tuple[World, World], tmp_path: Path
) -> None:
    world, _ = worlds
    topic = f"{world.label}.chat"
    world.make(topic, 2)
    world.produce(topic, 100)
    world.declare([topic])
    worker = world.start_worker()
    world.until(well)
    mirrors = Mirrors(world.path, 10.0, world.clusters["lon"])

    def asked() -> Mapping[str, Any]:
        (status,) = mirrors._statuses().mirrors
        return status

    assert asked()["state"] == "mirroring"
    worker.freeze()
    try:
        world.produce(topic, 60, mark="more")
        # At once, whatever the worker reported last.
        assert world.status()["lag_records"] == asked()["lag_records"] == 60
        found = world.until(lambda found: found["state"] != "mirroring")
        assert (found["state"], found["ok"], found["stands"]) == ("no worker", False, True)
        assert "last reported" in found["reason"]
        assert {row["state"] for row in found["partitions"]} == {"unknown"}
        assert all("last reported" in row["reason"] and row["seen_s"] > 5 for row in found["partitions"])
        world.produce(topic, 40, mark="even more")
        assert world.status()["lag_records"] == 100
        assert world.process("status", world.name, ok=1)
        # The same for pages, series, alerts and `hub lag`.
        known = mirrors._statuses()
        (status,) = known.mirrors
        assert (status["state"], status["lag_records"]) == ("no worker", 100)
        series = {
            sample.name: sample.value
            for family in families(known.mirrors, known=True)
            for sample in family.samples
        }
        assert series["hub_mirror_lag_records_all"] == 100 and series["hub_mirror_unknown_partitions"] == 2
        page = mirrors_page(known).mirrors[0]
        assert "No worker reports 2 partitions" in str(page.checks) and "lacks 100 records" in str(
            page.checks
        )
        (reader,) = readers_of(
            MirrorStatuses(known.mirrors, frozenset(), {}, known.asked_at_ms), known.asked_at_ms or 0
        )
        assert reader.ends is not None
        assert sum(end for end, _ in reader.ends[topic].values()) == 200
    finally:
        worker.thaw()
    world.until(well)
    assert len(world.values(topic, "lon")) == 200
