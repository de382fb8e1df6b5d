"""A mirror whose copies have other names, because the target has topics of the same names of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from patience import patient
from pipeline import wait_until
from ports import free_ports
from processes import Server

from hub.config import Settings
from hub.record import NewRecord, Positions, TopicPartition
from hub.schema_registry.client.registry_client import RegistryClient

ORDER = {"type": "record", "name": "Order", "namespace": "acme", "fields": [{"name": "n", "type": "int"}]}
OTHER = {"type": "record", "name": "Other", "namespace": "acme", "fields": [{"name": "s", "type": "string"}]}


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    homes = {name: tmp_path_factory.mktemp(name) for name in ("nyc", "lon")}
    with own_node(homes["nyc"]) as nyc, own_node(homes["lon"]) as lon:
        servers = {
            name: Server(
                Settings(home=home, project=home, bootstrap=at.bootstrap, http_port=free_ports(1)[0])
            )
            for (name, home), at in zip(homes.items(), (nyc, lon), strict=True)
        }
        try:
            for server in servers.values():
                server.start(ready=False)
            for server in servers.values():
                server.wait_ready()
            yield servers
        finally:
            for server in servers.values():
                server.stop(10.0)


@pytest.fixture
def world(hubs: dict[str, Server], tmp_path: Path) -> Iterator[World]:
    addresses = [hubs[name].settings.bootstrap for name in ("nyc", "lon")]
    with own_world(tmp_path / "project", *addresses) as made:
        yield made


def declare(world: World, hubs: dict[str, Server], prefix: str) -> None:
    world.declare([f"{world.label}.**"], rename={"prefix": prefix}, acls={"copy": False})
    body = json.loads(world.path.read_text())
    for name, hub in hubs.items():
        body["clusters"][name]["registry"] = hub.url
    world.path.write_text(json.dumps(body))


def write_orders(world: World, client: RegistryClient, topic: str, first: int, at: str) -> None:
    schema_id = client.register(f"{topic}-value", json.dumps(ORDER))
    writer = world.clusters[at].writer()
    writer.append(
        [
            NewRecord(topic, None, b"\0" + schema_id.to_bytes(4, "big") + packed(n), partition=0)
            for n in range(first, first + 10)
        ]
    )
    writer.close()


def packed(n: int) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(ORDER), {"n": n})
    return body.getvalue()


def orders(world: World, client: RegistryClient, topic: str, at: str) -> list[Any]:
    """The values as a consumer of that side reads them, by its own registry."""
    found = []
    for value in world.values(topic, at):
        written = json.loads(client.schema(int.from_bytes(value[1:5], "big")))
        body = io.BytesIO(value[5:])
        found.append(
            (written["name"], fastavro.schemaless_reader(body, fastavro.parse_schema(written), None))
        )
    return found


def numbers(count: int) -> list[Any]:
    return [("Order", {"n": n}) for n in range(count)]


@pytest.mark.timeout(420)
def test_renamed_copies_are_exact_through_kill_switchover_and_failback(
    world: World, hubs: dict[str, Server]
) -> None:
    clients = {name: RegistryClient(hub.url, patient(15.0)) for name, hub in hubs.items()}
    chat, order, group = f"{world.label}.chat", f"{world.label}.orders", f"{world.label}.readers"
    copied_chat, copied_order = f"copy.{chat}", f"copy.{order}"
    for at in ("nyc", "lon"):  # both clusters have topics of these names
        world.make(chat, at=at)
        world.make(order, 1, at=at)
    world.produce(chat, 20, at="lon", mark="own")
    clients["lon"].register(f"{order}-value", json.dumps(OTHER))
    world.produce(chat, 200)
    write_orders(world, clients["nyc"], order, 0, "nyc")
    world.clusters["nyc"].publish_group(group, Positions.of([(chat, 0, 57), (chat, 1, 30)]))

    declare(world, hubs, "copy.")
    (plan,) = world.json("plan", world.name, ok=(2,))
    assert plan["refusals"] == [] and plan["copies"] == {chat: copied_chat, order: copied_order}
    assert any(step.startswith(f"+ topic {chat} ") and f"as {copied_chat}" in step for step in plan["steps"])
    assert any(step.endswith(f"as {copied_order}-value") for step in plan["steps"])
    applied = world.json("apply", world.name)
    assert (applied["refused"], applied["failed"]) == ([], {})
    assert world.json("plan", world.name)[0]["steps"] == []

    worker = world.start_worker()
    world.caught_up({chat: 200, order: 10})
    world.produce(chat, 3_000, mark="more")
    worker.kill()
    world.start_worker()
    world.caught_up({chat: 3_200, order: 10})
    world.until(well)
    assert world.values(copied_chat, "lon") == world.values(chat, "nyc")
    assert orders(world, clients["lon"], copied_order, "lon") == numbers(10)
    subjects = clients["lon"].subjects()
    assert f"{copied_order}-value" in subjects
    (own,) = clients["lon"].versions(f"{order}-value")
    assert json.loads(clients["lon"].schema(own.id))["name"] == "Other"

    def carried() -> bool:
        return len(world.clusters["lon"].group_positions(group)) == 2

    wait_until(carried, 60.0, lambda: str(world.status()["groups"]))
    theirs = world.clusters["lon"].group_positions(group)
    assert {tp.topic for tp, _ in theirs} == {copied_chat}
    for partition, position in ((0, 57), (1, 30)):
        place = TopicPartition(copied_chat, partition)
        here = world.from_position("nyc", TopicPartition(chat, partition), position)
        assert world.from_position("lon", place, theirs.get(place)) == here
    verdict = world.json("verify", world.name)
    assert (verdict["different"], verdict["not_compared"], verdict["equal"]) == (0, 0, 3)

    assert world.json("switchover", world.name)["new"] == "lon"
    world.produce(copied_chat, 50, at="lon", mark="away")
    read = [(copied_chat, number, world.end(copied_chat, number, "lon") - 3) for number in (0, 1)]
    unread = [world.from_position("lon", place, at) for place, at in Positions.of(read)]
    world.clusters["lon"].publish_group(group, Positions.of(read))
    write_orders(world, clients["lon"], copied_order, 10, "lon")
    assert world.json("failback", world.name)["new"] == "nyc"
    assert orders(world, clients["nyc"], order, "nyc") == numbers(20)
    returned = world.clusters["nyc"].group_positions(group)
    assert [world.from_position("nyc", place, at) for place, at in sorted(returned)] == unread
    world.produce(chat, 10, mark="home")
    world.until(well)
    for partition in (0, 1):
        sides = [
            [record.value for record in world.records(topic, at) if record.partition == partition]
            for topic, at in ((chat, "nyc"), (copied_chat, "lon"))
        ]
        assert sides[0] == sides[1]
    assert len(world.values(chat, "nyc")) == 3_260
    verdict = world.json("verify", world.name)
    assert (verdict["different"], verdict["not_compared"]) == (0, 0)
    # Nothing of it reached the topics of the same names.
    assert world.values(chat, "lon") == [b"own%d" % n for n in [*range(0, 20, 2), *range(1, 20, 2)]]
    assert world.values(order, "lon") == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tail", ["merge", "restore"])
def test_a_failback_settles_what_diverged_under_two_names(
    world: World, hubs: dict[str, Server], tail: str, tmp_path: Path
) -> None:
    chat, copied = f"{world.label}.chat", f"copy.{world.label}.chat"
    world.make(chat, 1, cleanup_policy="compact")
    world.produce(chat, 40, mark="home", partitions=1)
    declare(world, hubs, "copy.")
    worker = world.start_worker()
    world.caught_up({chat: 40})
    world.until(well)
    worker.stop()
    world.produce(chat, 20, mark="tail", partitions=1)
    failed = world.json("failover", world.name, "--name", world.name)
    assert (failed["exact"], failed["lost"]) == (True, 20)
    world.produce(copied, 10, at="lon", mark="away", partitions=1)
    world.start_worker()
    folder = ("--export", str(tmp_path / "lost"), "--name", world.name) if tail == "restore" else ()
    world.json("failback", world.name, "--tail", tail, *folder)
    world.until(well)
    last = [
        {record.key: record.value for record in world.records(topic, at)}
        for topic, at in ((chat, "nyc"), (copied, "lon"))
    ]
    assert last[0] == last[1]
    expected = {b"k%d" % n: b"home%d" % n for n in range(40)}
    expected |= {b"k%d" % n: b"tail%d" % n for n in range(20)} if tail == "merge" else {}
    assert last[0] == expected | {b"k%d" % n: b"away%d" % n for n in range(10)}
    assert world.json("verify", world.name)["different"] == 0


@pytest.mark.timeout(300)
def test_another_name_begins_a_new_copy_and_leaves_the_former(world: World, hubs: dict[str, Server]) -> None:
    chat = f"{world.label}.chat"
    world.make(chat)
    world.produce(chat, 100)
    declare(world, hubs, "one.")
    world.start_worker()
    world.caught_up({chat: 100})
    world.until(well)

    declare(world, hubs, "two.")
    (plan,) = world.json("plan", world.name, ok=(1,))
    (refused,) = plan["refusals"]
    assert f'its copy is "one.{chat}"' in refused["reason"] and "hub mirror drop" in refused["hint"]
    found = world.until(lambda each: chat in each["trouble"])
    assert "another name now" in found["trouble"][chat]
    world.hub("pause", world.name)
    world.json("drop", world.name, "--name", world.name)
    world.hub("resume", world.name)
    world.produce(chat, 30, mark="later")
    wait_until(
        lambda: (
            f"two.{chat}" in world.clusters["lon"].topics()
            and world.values(f"two.{chat}", "lon") == world.values(chat, "nyc")
        ),
        90.0,
        world.logs,
    )
    assert len(world.values(f"one.{chat}", "lon")) == 100
    assert world.json("verify", world.name)["different"] == 0

    # A topic of the copy's name that nobody but others wrote is never written into.
    taken = f"{world.label}.taken"
    world.make(taken)
    world.make(f"three.{taken}", at="lon")
    world.produce(f"three.{taken}", 5, at="lon", mark="theirs")
    declare(world, hubs, "three.")
    (plan,) = world.json("plan", world.name, ok=(1,))
    reasons = {each["topic"]: each["reason"] for each in plan["refusals"]}
    assert "no checkpoint of this mirror" in reasons[taken]
