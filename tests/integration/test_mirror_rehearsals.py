"""Rehearsals of a failover between two real clusters: by schedule in one of two workers, killed, run again,
asked for, refused; and nothing but their records is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until

from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.clusters.readers import read_control_state
from hub.replication.clusters.rehearsals import Rehearsal, of_link
from hub.replication.maps.checkpoint import CONTROL_TOPIC


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        yield made


@contextmanager
def followed(world: World) -> Iterator[ControlFollower]:
    follower = ControlFollower(world.reached["lon"], status=False)
    follower.start()
    try:
        yield follower
    finally:
        follower.stop()
        follower.join(10.0)


def rehearsals(world: World) -> tuple[Rehearsal, ...]:
    board = read_control_state(world.reached["lon"], status=False)
    return of_link(board.rehearsals, world.name)


def mirrored(world: World, topic: str) -> None:
    world.make(topic)
    world.produce(topic, 60)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)


def running(world: World) -> Rehearsal:
    """Return the rehearsal that a worker has begun, as soon as it has."""
    found: list[Rehearsal] = []
    with followed(world) as follower:

        def runs() -> bool:
            known = follower.ask(lambda board: of_link(board.rehearsals, world.name))
            found[:] = [each for each in known if each.state == "running"]
            return bool(found)

        wait_until(runs, 60.0, world.logs)
    return found[0]


def killed_in_a_rehearsal(world: World) -> Rehearsal:
    """Let the workers begin the rehearsal that is due, and kill the one that does while it runs."""
    for _ in range(3):
        world.declare([f"{world.label}.**"], rehearse="weekly")
        one = running(world)
        os.kill(int(one.by.rsplit("-", 2)[1]), signal.SIGKILL)
        if any(each.state == "running" for each in rehearsals(world)):
            return one
        # It was complete before: once more, with another worker.
        world.clusters["lon"].writer().append([each.forgotten() for each in rehearsals(world)])
        world.start_worker()
    raise AssertionError("no rehearsal was killed")


@pytest.mark.timeout(300)
def test_a_killed_rehearsal_is_run_again_by_one_of_two_workers(world: World) -> None:
    topic = f"{world.label}.chat"
    mirrored(world, topic)
    world.start_worker()
    killed = killed_in_a_rehearsal(world)

    def passed() -> list[Rehearsal]:
        return [each for each in rehearsals(world) if each.state == "passed"]

    wait_until(lambda: bool(passed()), 90.0, lambda: f"{rehearsals(world)}\n{world.logs()}")
    lost, (again,) = [each for each in rehearsals(world) if each.state == "interrupted"], passed()
    assert [each.started_at_ms for each in lost] == [killed.started_at_ms]
    assert lost[0].reason == f"{killed.by} ended before it was complete"
    assert again.by != killed.by and again.scheduled
    assert (again.topics, again.partitions, again.lost, again.steps > 3) == (1, 2, 0, True)

    # Neither worker runs it a second time, and a new one does not make it up.
    world.start_worker()
    world.until(lambda found: found["workers"] == 2)
    printed = world.json("rehearse", world.name)[0]
    assert printed["last"]["started_at_ms"] == again.started_at_ms and printed["overdue_s"] is None
    assert printed["schedule"] == "weekly, Mon 03:00 UTC"
    status = world.until(well)
    assert status["rehearsal"]["last"]["proved"] == printed["last"]["proved"] != []
    assert [each.started_at_ms for each in passed()] == [again.started_at_ms]


@pytest.mark.timeout(240)
def test_a_rehearsal_leaves_nothing_but_its_record(world: World) -> None:
    topic = f"{world.label}.chat"
    mirrored(world, topic)
    world.workers[0].stop()

    def content() -> dict[str, Any]:
        return {
            name: (
                sorted(kafka.topics()),
                sorted(kafka.groups()),
                dict(kafka.end_offsets([each for each in kafka.topics() if each != CONTROL_TOPIC])),
            )
            for name, kafka in world.clusters.items()
        }

    before = content()
    world.produce(topic, 8)  # which the target lacks
    found = world.json("rehearse", world.name, "--now")[0]
    assert (
        found["last"]["state"] == "passed" and found["last"]["lost"] == 8 and not found["last"]["scheduled"]
    )
    assert found["schedule"] is None and found["overdue_s"] is None
    (one,) = rehearsals(world)
    assert one.took_ms is not None and one.took_ms > 0
    after = content()
    assert after["lon"] == before["lon"]
    assert after["nyc"][:2] == before["nyc"][:2]
    records = [each for each in world.records(CONTROL_TOPIC, "lon") if b"rehearsal|" in (each.key or b"")]
    assert {each.key for each in records if world.name.encode() in (each.key or b"")} == {one.key}

    # People get a table.
    table = world.hub("rehearse", world.name)
    assert "passed" in table and world.name in table


@pytest.mark.timeout(240)
def test_a_failover_that_would_leave_a_topic_behind_fails_its_rehearsal(world: World) -> None:
    topic, foreign = f"{world.label}.chat", f"{world.label}.full"
    world.make(foreign, at="lon")
    world.produce(foreign, 5, at="lon")  # the copy would have records of others
    world.make(foreign)
    world.produce(foreign, 5)
    world.make(topic)
    world.declare([f"{world.label}.**"], rehearse={"every": "daily", "at": "00:00"})
    world.start_worker()
    world.until(lambda found: foreign in found["trouble"] and found["rehearsal"]["last"] is not None)
    (row,) = world.json("rehearse", ok=(1,))
    assert row["last"]["state"] == "failed" and foreign in row["last"]["reason"]
    assert row["overdue_s"] is None  # it was made; what it showed is another matter
    world.delete(foreign, at="lon")
    world.until(well)
    (row,) = world.json("rehearse", world.name, "--now")
    assert row["last"]["state"] == "passed" and [each["state"] for each in row["results"]] == [
        "passed",
        "failed",
    ]
    # None without a name, and none of a mirror that does not exist.
    assert "needs the name" in world.process("rehearse", "--now", ok=1)[1]
