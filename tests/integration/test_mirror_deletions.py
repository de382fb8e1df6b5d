"""Topics deleted at the source of a mirror, and settings changed at a copy, between two real clusters;
workers are killed while they delete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until

from hub.kafka import KafkaCluster
from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.planning.source_deletion import SourceDeletion

SOON = {"do": "follow", "after": "2s"}


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        yield made


def mirrored(world: World, *topics: str, **said: Any) -> None:
    for topic in topics:
        world.make(topic)
        world.produce(topic, 60)
    world.declare([f"{world.label}.**"], **said)
    world.start_worker()
    world.until(lambda found: well(found) and {row["topic"] for row in found["partitions"]} == set(topics))


def states(found: dict[str, Any]) -> dict[str, str]:
    return {row["topic"]: row["state"] for row in found["deletions"]}


def deletion(world: World, topic: str) -> SourceDeletion:
    return board(world).deletions[world.name, topic]


def board(world: World) -> ControlState:
    return read_control_state(world.reached["lon"])


def with_checkpoints(world: World) -> set[str]:
    progress = read_progress(world.reached["lon"])
    maps = {topic for (link, topic, _, _), keys in progress.keys.items() if link == world.name and keys}
    return maps | {tp.topic for tp in progress.of(world.name)}


def exists(cluster: KafkaCluster, topic: str) -> bool:
    return topic in cluster.topics()


@pytest.mark.timeout(400)
def test_a_deletion_is_followed_through_kill_9(world: World) -> None:
    stays, goes, half = (f"{world.label}.{name}" for name in ("stays", "goes", "half"))
    lon = world.clusters["lon"]
    mirrored(world, stays, goes, half, on_delete=SOON)
    follower = ControlFollower(world.reached["lon"], status=False)
    follower.start()
    world.delete(goes)
    try:

        def begun() -> bool:
            known = follower.ask(lambda board: board.deletions.get((world.name, goes)))
            return known is not None and known.state in ("deleting", "deleted")

        wait_until(begun, 120.0, world.logs)
    finally:
        world.workers[-1].kill()
        follower.stop()
        follower.join(10.0)

    # A worker that was killed after the copy, and before its checkpoints: exactly that is made here.
    world.delete(half)
    made = replace(deletion(world, goes), topic=half, state="deleting", deleted_at_ms=0)
    marks = [
        mark for tp, mark in read_progress(world.reached["lon"]).of(world.name).items() if tp.topic == half
    ]
    made = replace(made, topic_id=marks[0].topic_id, copy_id=marks[0].target_topic_id)
    lon.writer().append([made.record()])
    lon.delete_topic(half)

    world.start_worker()
    world.until(lambda found: states(found) == {goes: "deleted", half: "deleted"}, timeout_s=120.0)
    assert not exists(lon, goes) and not exists(lon, half) and exists(lon, stays)
    assert with_checkpoints(world) == {stays}
    found = world.until(well)
    assert found["state"] == "mirroring" and not found["trouble"]
    lines = world.json("plan", ok=(0, 2))[0]["deletions"]
    assert all("the copy was deleted at" in lines[topic] for topic in (goes, half))

    # The name again: a new topic with a copy of its own, from its first record.
    world.make(goes)
    world.produce(goes, 40, mark="again")
    world.produce(stays, 20, mark="more")
    world.until(lambda found: well(found) and {stays, goes} == {row["topic"] for row in found["partitions"]})
    assert sorted(world.values(goes, "lon")) == sorted(f"again{n}".encode() for n in range(40))
    assert len(world.values(stays, "lon")) == 80
    world.until(lambda found: states(found) == {half: "deleted"})


@pytest.mark.timeout(300)
def test_a_copy_is_kept_as_a_state_or_because_others_wrote_it(world: World) -> None:
    stays, goes = f"{world.label}.stays", f"{world.label}.goes"
    lon = world.clusters["lon"]
    mirrored(world, stays, goes)
    world.delete(goes)
    found = world.until(
        lambda found: states(found) == {goes: "kept"} and found["state"] == "mirroring", timeout_s=120.0
    )
    assert not found["trouble"] and not found["cautions"]
    rows = {row["reason"] for row in found["partitions"] if row["topic"] == goes}
    assert len(rows) == 1 and "on_delete: keep" in rows.pop()
    assert "on_delete: keep" in world.hub("plan", ok=(0, 2))

    # Only now: continuous verification would find the record while the mirror carries the topic.
    world.produce(goes, 1, at="lon", mark="foreign")
    world.declare([f"{world.label}.**"], on_delete={"do": "follow", "after": "1s"})
    found = world.until(lambda found: states(found) == {goes: "held"}, timeout_s=120.0)
    assert "that the mirror did not write" in found["deletions"][0]["text"]
    assert len(world.values(goes, "lon")) == 61 and lon.topics()[goes].partitions == 2


@pytest.mark.timeout(300)
def test_settings_that_somebody_changed_are_reported_or_put_back(world: World) -> None:
    topic, lon = f"{world.label}.chat", world.clusters["lon"]
    world.make(topic, retention_ms="7200000")
    world.produce(topic, 20)
    world.declare([f"{world.label}.**"], drift="alert")
    world.start_worker()
    world.until(well)
    lon.alter_config(topic, {"retention.ms": "3600000"})
    found = world.until(lambda found: bool(found["drift"]))
    assert found["drift"][0]["open"] == {"retention.ms": ["3600000", "7200000"]}
    assert lon.topic_config([topic])[topic]["retention.ms"] == "3600000"

    planned = [board(world).carries[world.name].at_ms]
    for _ in range(2):  # later plans find the same, and record nothing new
        wait_until(lambda: board(world).carries[world.name].at_ms > planned[-1], 60.0, world.logs)
        planned.append(board(world).carries[world.name].at_ms)
    assert board(world).drifts[world.name, topic].at_ms == found["drift"][0]["at_ms"]

    began_ms = int(time.time() * 1000)
    world.declare([f"{world.label}.**"], drift="revert")
    found = world.until(lambda found: bool(found["drift"]) and not found["drift"][0]["open"])
    (row,) = found["drift"]
    assert row["reverted"] == {"retention.ms": ["3600000", "7200000"]}
    assert row["reverted_at_ms"] >= began_ms - 1_000
    wait_until(lambda: lon.topic_config([topic])[topic].get("retention.ms") == "7200000", 30.0, world.logs)
    assert sorted(world.values(topic, "lon")) == sorted(world.values(topic, "nyc"))
