"""A failover as it is on the worst day: the source is killed while the mirror is behind,
and what is lost is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from patience import patient
from pipeline import wait_until
from secured_node import PASSWORD, Right, SecuredNode, give

from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.kafka.acls import AccessRule
from hub.observability.web.pages.monitor.mirrors import mirror
from hub.record import NewRecord, Positions
from hub.replication.clusters.readers import read_control_state


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[dict[str, SecuredNode]]:
    with (
        own_node(tmp_path / "nyc", SecuredNode) as nyc,
        own_node(tmp_path / "lon", SecuredNode) as lon,
    ):
        yield {"nyc": nyc, "lon": lon}


@pytest.fixture
def world(sides: dict[str, SecuredNode], tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", sides["nyc"].bootstrap, sides["lon"].bootstrap) as made:
        yield made


def kill(node: SecuredNode) -> None:
    assert node.process is not None
    node.process.kill()
    node.process.wait()


def heard_ends(world: World) -> int:
    """The sum of the source's end offsets as the mirror's worker heard them last."""
    ends = read_control_state(world.reached["lon"]).ends.get(world.name)
    return 0 if ends is None else sum(end for _, end in ends.places.values())


@pytest.mark.timeout(420)
def test_what_a_dead_source_had_is_unknown_until_it_is_back(
    world: World, sides: dict[str, SecuredNode]
) -> None:
    """The mirror is paused and writers continue; then the source is killed, and its end is unknown."""
    topic, fresh, group = f"{world.label}.chat", f"{world.label}.fresh", f"{world.label}.readers"
    world.make(topic)
    world.make(fresh)  # nothing of it is mirrored before the failover
    world.produce(topic, 100)
    world.clusters["nyc"].publish_group(group, Positions.of([(topic, 0, 30), (topic, 1, 20)]))
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(lambda each: well(each) and bool(each["groups"]))
    world.hub("pause", world.name)
    world.until(lambda each: {row["state"] for row in each["partitions"]} == {"paused"})
    world.produce(topic, 400, mark="behind")
    world.produce(fresh, 5, mark="first")
    exact = world.json("drill", world.name)
    assert (exact["exact"], exact["lost"], exact["lost_at_least"]) == (True, 405, 405)

    # The worker that plans a paused mirror hears the source's ends all the same.
    wait_until(lambda: heard_ends(world) == 505, 60.0, lambda: str(heard_ends(world)))
    assert world.status()["source_heard_s"] < 60
    world.produce(topic, 10, mark="unheard")
    kill(sides["nyc"])

    drilled = world.json("drill", world.name)
    assert (drilled["exact"], drilled["lost"], drilled["redelivered"]) == (False, None, None)
    assert drilled["lost_at_least"] in (405, 415) and drilled["redelivered_at_least"] == 0
    assert (
        drilled["redelivered_at_most"] == 50
    )  # all that was mirrored and that the group had not read when it was seen
    assert 0 < drilled["source_heard_s"] < 600
    rehearsed = world.json("failover", world.name, "--dry-run")
    assert (rehearsed["lost"], rehearsed["lost_at_least"]) == (None, drilled["lost_at_least"])
    assert world.json("drill", world.name)["steps"] == drilled["steps"]  # a dry run changes nothing
    _, asked = world.process("failover", world.name, ok=1)  # the name is not typed
    assert "Lost: unknown, at least 4" in asked and "nyc does not answer; its last report was" in asked
    assert "0 offsets would be lost" not in asked

    failed = world.json("failover", world.name, "--name", world.name)
    assert (failed["exact"], failed["lost"], failed["new"]) == (False, None, "lon")
    left = world.json("status", world.name)[0]
    assert not left["lost_known"] and {row["known"] for row in left["lost"]} == {False}
    assert sum(row["end"] - row["first"] for row in left["lost"]) in (405, 415)
    page = mirror(left).lost
    assert any("at least stayed" in line for line in page)
    assert any("is unknown" in line and "last reported" in line for line in page)
    world.hub("left-behind", world.name, ok=(1,))
    world.produce(fresh, 7, at="lon", mark="away")

    sides["nyc"].start()
    sides["nyc"].wait_ready()
    found = world.json("status", world.name)[0]
    assert found["lost_known"] and {row["known"] for row in found["lost"]} == {True}
    assert sum(row["end"] - row["first"] for row in found["lost"]) == 415
    shown: list[dict[str, Any]] = world.json("left-behind", world.name, "--limit", "1000")
    assert len(shown) == 415
    values = {name: [row["value"] for row in shown if row["topic"] == name] for name in (topic, fresh)}
    assert set(values[topic]) == {f"behind{n}" for n in range(400)} | {f"unheard{n}" for n in range(10)}
    assert sorted(values[fresh]) == [f"first{n}" for n in range(5)]
    _, said = world.process("left-behind", world.name)
    assert "hub mirror failback" in said and "--replay" in said and "--discard" in said
    world.hub("resume", world.name)
    world.json("failback", world.name)
    assert world.status()["lost"] == []
    values[topic] += [f"r{n}" for n in range(100)]
    values[fresh] += [f"away{n}" for n in range(7)]
    for at in ("nyc", "lon"):
        for name, all_of_it in values.items():
            assert sorted(value.decode() for value in world.values(name, at)) == sorted(all_of_it)
    assert json.loads(world.hub("left-behind", world.name, "-o", "json")) == []


@pytest.mark.timeout(420)
def test_writers_are_let_in_where_ownership_goes_and_kept_out_where_it_was(
    world: World, sides: dict[str, SecuredNode]
) -> None:
    """The source is dead when its rules are needed; it comes back, and gets everything as it was."""
    topic = f"{world.label}.chat"
    world.make(topic)
    world.produce(topic, 50)
    for node in sides.values():
        for user in ("app", "stranger"):
            node.make_users(user)
    app: list[Right] = [
        ("TOPIC", f"{world.label}.*", "WRITE", "ALLOW"),
        ("TRANSACTIONAL_ID", "app.*", "ALL", "ALLOW"),
        ("BROKER", "kafka-cluster", "IDEMPOTENT_WRITE", "ALLOW"),
    ]
    give(sides["nyc"].bootstrap, app, "User:app")
    give(sides["nyc"].bootstrap, [("TOPIC", f"{world.label}.*", "READ", "ALLOW")], "User:stranger")
    own = not_reading(world)
    world.declare([f"{world.label}.**"])
    world.start_worker()
    world.until(well)
    wait_until(lambda: world.name in read_control_state(world.reached["lon"]).rights, 60.0, world.logs)
    assert may_write(sides["nyc"], topic, "app") and not may_write(sides["lon"], topic, "app")

    # There and back with both sides up: the plan is shown before, and carried out as it was shown.
    drilled = world.json("drill", world.name, "--kind", "switchover")["rights"]
    assert f"+ lon: ALLOW User:app WRITE: {topic}" in drilled
    assert f"+ nyc: DENY User:app WRITE: {topic}" in drilled
    world.json("switchover", world.name)
    wait_until(lambda: may_write(sides["lon"], topic, "app", "app.1"), 60.0, str)
    assert not may_write(sides["nyc"], topic, "app") and not may_write(sides["lon"], topic, "stranger")
    world.json("failback", world.name)
    wait_until(lambda: may_write(sides["nyc"], topic, "app", "app.1"), 60.0, str)
    assert not may_write(sides["lon"], topic, "app") and not_reading(world) == own
    # What the hub denied for a while is not a rule of the source's: it was not copied.
    assert not [rule for rule in world.clusters["lon"].access_rules() or () if rule.permission == "DENY"]

    world.until(well)
    kill(sides["nyc"])
    assert (
        f"+ lon: ALLOW User:app WRITE: {topic}" in world.json("failover", world.name, "--dry-run")["rights"]
    )
    world.json("failover", world.name, "--name", world.name)
    wait_until(lambda: may_write(sides["lon"], topic, "app", "app.1"), 60.0, str)
    sides["nyc"].start()
    sides["nyc"].wait_ready()
    wait_until(lambda: may_write(sides["nyc"], topic, "app"), 60.0, str)  # it was not informed yet
    world.hub("resume", world.name)
    wait_until(lambda: not may_write(sides["nyc"], topic, "app"), 60.0, str)
    world.json("failback", world.name)
    wait_until(lambda: may_write(sides["nyc"], topic, "app", "app.1"), 60.0, str)
    assert not may_write(sides["lon"], topic, "app") and not_reading(world) == own


@pytest.mark.timeout(420)
def test_a_copy_is_written_by_its_mirror_alone_until_its_topic_moves(
    world: World, sides: dict[str, SecuredNode]
) -> None:
    """`app` may write by rules of both clusters, and is denied in the copies, topic by topic."""
    orders, chat = f"{world.label}.orders", f"{world.label}.chat"
    for topic in (orders, chat):
        world.make(topic)
        world.produce(topic, 20)
    everything: list[Right] = [("TOPIC", f"{world.label}.*", "WRITE", "ALLOW")]
    for node in sides.values():
        for user in ("app", "late"):
            node.make_users(user)
        give(node.bootstrap, everything, "User:app")
    world.declare([f"{world.label}.**"])
    said, _ = world.process("plan", world.name, "-o", "json", ok=2)
    assert f"+ lon: DENY User:app WRITE: {chat}, {orders}" in json.loads(said)[0]["steps"]
    world.start_worker()
    world.until(well)
    wait_until(lambda: not may_write(sides["lon"], chat, "app"), 60.0, world.logs)
    assert may_write(sides["nyc"], chat, "app") and not may_write(sides["lon"], orders, "app")

    # A rule that somebody adds later is drift, and is answered by the worker.
    give(sides["lon"].bootstrap, everything, "User:late")
    wait_until(lambda: not may_write(sides["lon"], chat, "late"), 60.0, world.logs)
    world.until(well)
    world.process("plan", world.name, ok=0)

    # Lifted for the topic that moves, and for no other.
    world.json("promote", world.name, "--topic", orders, "--name", world.name)
    wait_until(lambda: may_write(sides["lon"], orders, "app"), 60.0, world.logs)
    assert not may_write(sides["lon"], chat, "app") and not may_write(sides["nyc"], orders, "app")
    world.json("failover", world.name, "--topic", chat, "--name", world.name)
    wait_until(lambda: may_write(sides["lon"], chat, "app"), 60.0, world.logs)
    assert not denied_in(world, chat) and not denied_in(world, orders)
    world.json("failback", world.name, "--topic", chat)
    wait_until(lambda: not may_write(sides["lon"], chat, "app"), 60.0, world.logs)
    wait_until(lambda: may_write(sides["nyc"], chat, "app"), 60.0, world.logs)

    # Not any more.
    world.declare([f"{world.label}.**"], protect=False)
    wait_until(lambda: not denied_in(world, chat), 90.0, world.logs)
    assert may_write(sides["lon"], chat, "app")


def denied_in(world: World, topic: str) -> list[AccessRule]:
    """Return the rules at lon that deny somebody a topic."""
    rules = world.clusters["lon"].access_rules() or ()
    return [each for each in rules if each.permission == "DENY" and each.name == topic]


def not_reading(world: World) -> frozenset[AccessRule]:
    """The rules at nyc without those that let somebody read, which the way back copies as any mirror does."""
    rules = world.clusters["nyc"].access_rules() or frozenset()
    return frozenset(each for each in rules if each.operation not in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"))


def may_write(node: SecuredNode, topic: str, user: str, transactional_id: str | None = None) -> bool:
    """Return whether a user's producer may write; with a transactional id, in a transaction."""
    access = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }
    cluster = KafkaCluster(f"127.0.0.1:{node.sasl_port}", patient(15.0), access)
    try:
        writer = cluster.writer(transactional_id)
        try:
            writer.append([NewRecord(topic, None, b"tried", partition=0)])
        finally:
            writer.close()
    except HubError:
        return False
    return True
