"""Single topics of a mirror between two real clusters: paused, promoted through kill -9,
failed over, returned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until
from processes import Running

from hub.record import Positions, TopicPartition
from hub.replication.clusters.readers import read_control_state
from hub.replication.ownership.operation_steps import scope_of


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        yield made


def states(world: World) -> dict[str, str]:
    return {row["topic"]: row["state"] for row in world.status()["topic_states"]}


def of(world: World, topic: str) -> set[str]:
    return {row["state"] for row in world.status()["partitions"] if row["topic"] == topic}


def position(world: World, at: str, group: str, topic: str) -> int | None:
    return world.clusters[at].group_positions(group).offsets.get(TopicPartition(topic, 0))


def same_count(world: World, topic: str) -> bool:
    return len(world.values(topic, "lon")) == len(world.values(topic, "nyc"))


def stands_still(world: World, topic: str, other: str) -> bool:
    """Write one record into each; return whether the other topic's arrives and the topic's does not."""
    for each in (topic, other):
        world.produce(each, 1, mark="tried")
    wait_until(lambda: same_count(world, other), 60.0, world.logs)
    return not same_count(world, topic)


def killed_after(world: World, topic: str, step: str, *command: str) -> None:
    """Run a command as a process, and kill it as soon as the topic's record has the step."""
    running = Running(
        world.told, "mirror", *command, "-f", str(world.path), log=world.folder / f"killed-after-{step}.log"
    )
    running.start()

    def reached() -> bool:
        control = read_control_state(world.reached["lon"], status=False).control
        found = control.operations.get(scope_of("nyc", topic))
        return (found is not None and step in found.done) or running.process.poll() is not None

    wait_until(reached, 120.0, lambda: running.last_words())
    running.kill()


@pytest.mark.timeout(420)
def test_topics_move_by_themselves(world: World) -> None:
    orders, lines, chat = (f"{world.label}.{name}" for name in ("orders.heads", "orders.lines", "chat"))
    group, moved = f"{world.label}.readers", f"{world.label}.orders.**"
    for topic in (orders, lines, chat):
        world.make(topic)
        world.produce(topic, 60)
    world.clusters["nyc"].publish_group(group, Positions.of([(orders, 0, 11), (chat, 0, 12)]))
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    assert states(world) == dict.fromkeys((orders, lines, chat), "mirroring")

    # Paused by itself: the others go on.
    world.hub("pause", world.name, "--topic", orders)
    assert of(world, orders) == {"paused"}
    wait_until(lambda: stands_still(world, orders, chat), 60.0, world.logs)
    before = world.ends(orders, "lon")
    world.produce(orders, 10, mark="held")
    world.produce(chat, 10, mark="on")
    wait_until(lambda: same_count(world, chat), 60.0, world.logs)
    assert world.ends(orders, "lon") == before and world.status()["state"] == "mirroring"
    _, refused = world.process("promote", world.name, "--topic", moved, "--name", world.name, ok=1)
    assert "is paused" in refused and f"hub mirror resume {world.name} --topic {orders}" in refused
    world.hub("pause", world.name, "--topic", "nyc.none", ok=(1,))
    world.hub("resume", world.name, "--topic", orders)
    world.until(well)

    # The plan, then the promotion, killed twice in its middle.
    planned = world.json("promote", world.name, "--topic", moved, "--dry-run")
    assert planned["topics"] == [orders, lines] and planned["lost"] == 0
    assert {row["topic"] for row in planned["groups"]} == {orders}
    assert states(world)[orders] == "mirroring"
    killed_after(world, orders, "stop_writers", "promote", world.name, "--topic", moved, "--name", world.name)
    (running,) = world.status()["operations"]
    assert running["topics"] == [orders, lines] and states(world)[orders] == "moving"
    killed_after(world, orders, "fence_mirror", "resume", world.name, "--topic", moved)
    world.hub("resume", world.name)
    wait_until(lambda: states(world).get(chat) == "mirroring", 60.0, world.logs)
    assert [states(world)[topic] for topic in (orders, lines)] == ["promoted", "promoted"]
    for topic in (orders, lines):  # nothing lost, nothing twice
        assert world.values(topic, "lon") == world.values(topic, "nyc")
    there = position(world, "lon", group, orders)
    assert there is not None
    place = TopicPartition(orders, 0)
    assert world.from_position("lon", place, there) == world.from_position("nyc", place, 11)

    # The group reads both sides from now on: only what is still mirrored is carried.
    world.produce(orders, 5, at="lon", mark="born")
    world.produce(orders, 5, mark="late")
    world.clusters["lon"].publish_group(group, Positions.of([(orders, 0, there + 3)]))
    world.clusters["nyc"].publish_group(group, Positions.of([(orders, 0, 25), (chat, 0, 21)]))
    wait_until(
        lambda: (
            world.from_position("lon", TopicPartition(chat, 0), position(world, "lon", group, chat) or 0)
            == world.from_position("nyc", TopicPartition(chat, 0), 21)
        ),
        60.0,
        world.logs,
    )
    assert position(world, "lon", group, orders) == there + 3
    assert len(world.values(orders, "lon")) == len(world.values(orders, "nyc"))
    assert not [value for value in world.values(orders, "lon") if value.startswith(b"late")]

    # There and back: a topic that failed over by itself returns, with what was born away.
    failed = world.json("failover", world.name, "--topic", chat, "--name", world.name)
    assert (failed["topics"], failed["lost"], failed["new"]) == ([chat], 0, "lon")
    assert states(world) == {orders: "promoted", lines: "promoted", chat: "failed over"}
    world.produce(chat, 7, at="lon", mark="away")
    world.json("failback", world.name, "--topic", chat)
    world.produce(chat, 3, mark="back")
    wait_until(lambda: same_count(world, chat), 60.0, world.logs)
    assert sorted(world.values(chat, "lon")) == sorted(world.values(chat, "nyc"))
    assert (
        states(world)[chat] == "mirroring" and read_control_state(world.reached["lon"]).control.acting == {}
    )
