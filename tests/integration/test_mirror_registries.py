"""Mirrors between two fresh hubs, each with a registry that counts ids from 1:
both ways, and with all that a subject has."""

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
from hub.errors import NotFound
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.client.remote import RemoteRegistry
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.snapshot import SubjectVersion


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    homes = {name: tmp_path_factory.mktemp(name) for name in ("nyc", "lon")}
    with own_node(homes["nyc"]) as nyc, own_node(homes["lon"]) as lon:
        servers = {
            name: Server(
                Settings(
                    home=homes[name],
                    project=homes[name],
                    bootstrap=each.bootstrap,
                    http_port=free_ports(1)[0],
                )
            )
            for name, each in (("nyc", nyc), ("lon", lon))
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


def declare(world: World, hubs: dict[str, Server], **more: Any) -> str:
    """Mirrors both ways with default settings; the name of the one from lon to nyc."""
    world.declare([f"{world.label}.**"], **more)
    body = json.loads(world.path.read_text())
    for name, hub in hubs.items():
        body["clusters"][name]["registry"] = hub.url
    other = world.name.replace("nyc", "lon")
    body["mirrors"][other] = {
        **body["mirrors"][world.name],
        "source": "lon",
        "target": "nyc",
        "topics": [f"{world.label.replace('nyc', 'lon')}.**"],
    }
    world.path.write_text(json.dumps(body))
    return other


def schema(name: str, *fields: str) -> dict[str, Any]:
    made = [{"name": each, "type": "int", "default": 0} for each in ("n", *fields)]
    return {"type": "record", "name": name, "namespace": "acme", "fields": made}


def framed(schema_id: int, said: dict[str, Any], value: dict[str, int]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(said), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def read_with(client: RegistryClient, value: bytes) -> Any:
    """A framed value as a consumer reads it: by the schema that the id has in the
    registry of its own side."""
    written = json.loads(client.schema(int.from_bytes(value[1:5], "big")))
    return written["name"], fastavro.schemaless_reader(
        io.BytesIO(value[5:]), fastavro.parse_schema(written), None
    )


@pytest.mark.timeout(420)
def test_two_fresh_hubs_mirror_both_ways_with_default_settings(world: World, hubs: dict[str, Server]) -> None:
    """Each registry gave its own schemas the ids 1, 2, …:
    the same ids mean other schemas on the other side."""
    clients = {name: RegistryClient(hub.url, patient(15.0)) for name, hub in hubs.items()}
    labels = {"nyc": world.label, "lon": world.label.replace("nyc", "lon")}
    written: dict[str, list[Any]] = {}

    def write(at: str, home: str, name: str, *fields: str) -> None:
        """One more version of a topic's schema, registered and used at one side."""
        topic, said = f"{labels[home]}.{name}", schema(name, *fields)
        schema_id = clients[at].register(f"{topic}-value", json.dumps(said))
        writer = world.clusters[at].writer()
        values = [{"n": n, **dict.fromkeys(fields, 7)} for n in range(20)]
        writer.append([NewRecord(topic, None, framed(schema_id, said, each), partition=0) for each in values])
        writer.close()
        written.setdefault(topic, []).extend((name, each) for each in values)

    def everywhere(topic: str) -> bool:
        return all(
            [read_with(clients[at], value) for value in world.values(topic, at)] == written[topic]
            for at in labels
        )

    for home, label in labels.items():
        for name in (f"orders_{home}", f"loot_{home}"):
            world.make(f"{label}.{name}", 1, at=home)
            write(home, home, name)
    ids = {at: client.ids() for at, client in clients.items()}
    assert ids["nyc"] == ids["lon"] == {1, 2}
    other = declare(world, hubs)
    plans = {each["mirror"]: each for each in world.json("plan", ok=(2,))}
    assert [each["refusals"] for each in plans.values()] == [[], []]
    applied = world.json("apply")
    assert (applied["refused"], applied["failed"]) == ([], {})
    world.start_worker()
    for topic in written:
        wait_until(lambda: everywhere(topic), 90.0, world.logs)  # noqa: B023 called at once
    # Later versions take ids that the other registry has given to something else by then.
    for home in labels:
        for name in (f"orders_{home}", f"loot_{home}"):
            write(home, home, name, "later")
    for topic in written:
        wait_until(lambda: everywhere(topic), 90.0, world.logs)  # noqa: B023 called at once
    for name in (world.name, other):
        world.until(well, name)
        assert world.json("verify", name)["different"] == 0
    # After a switchover schemas are registered at lon, and records with its ids go home.
    world.json("switchover", world.name)
    write("lon", "nyc", "orders_nyc", "later", "away")
    world.json("failback", world.name)
    topic = f"{labels['nyc']}.orders_nyc"
    wait_until(lambda: everywhere(topic), 90.0, world.logs)
    write("nyc", "nyc", "orders_nyc", "later", "away", "home")
    wait_until(lambda: everywhere(topic), 90.0, world.logs)
    for name in (world.name, other):
        world.until(well, name)

    # A topic that must keep its ids is refused by the plan, with the obstacle and the solution.
    world.make(f"{labels['nyc']}.strict", 1)
    taken = {
        clients["lon"].register(f"{labels['lon']}.fill{n}-value", json.dumps(schema(f"Fill{n}")))
        for n in range(40)
    }
    for n in range(80):
        kept = clients["nyc"].register(f"{labels['nyc']}.strict-value", json.dumps(schema("strict", f"f{n}")))
        if kept in taken:
            break
    declare(world, hubs, schema_ids="keep")
    refused = {each["topic"]: each for each in world.json("plan", world.name, ok=(1,))[0]["refusals"]}
    assert f"schema id {kept} is" in refused[f"{labels['nyc']}.strict"]["reason"]
    assert "schema_ids" in refused[f"{labels['nyc']}.strict"]["hint"]


@pytest.mark.timeout(300)
def test_a_subject_is_carried_with_deletions_settings_and_whatever_its_strategy(
    world: World, hubs: dict[str, Server]
) -> None:
    here, there = (RegistryClient(hubs[name].url, patient(15.0)) for name in ("nyc", "lon"))
    settings, theirs = (RemoteRegistry(hubs[name].url, patient(15.0)) for name in ("nyc", "lon"))
    # Ids from here on are those that the other registry has not given by itself.
    settings.set_mode("ids-value", "IMPORT")
    settings.import_version("ids-value", SubjectVersion(1, '"string"', schema_id=5_000))
    settings.set_mode("ids-value", None)
    topic, unmirrored = f"{world.label}.orders", f"nyc.else{world.label[5:]}"
    world.make(topic, 1)
    world.make(unmirrored, 1)
    value, money = f"{topic}-value", f"{world.label}.money"
    settings.set_settings(value, {"compatibility": "NONE", "normalize": True})
    metadata = {"properties": {"owner": "shop"}}
    for number in range(3):
        here.register(
            value, json.dumps(schema("Order", *(f"f{n}" for n in range(number)))), metadata=metadata
        )
    settings.delete_version(value, 2)
    here.register(money, '{"type":"record","name":"Money","namespace":"acme","fields":[]}')
    record = f"acme{world.label[5:]}.Refund"
    refers = [Reference("acme.Money", money, 1)]
    refund = {"type": "record", "name": "Refund", "namespace": "acme", "fields": []}
    refund["fields"] = [{"name": "money", "type": "acme.Money"}]  # type: ignore[assignment]
    here.register(record, json.dumps(refund), references=refers)
    here.register(f"{topic}-acme.Order", json.dumps(schema("Order")))
    here.register(f"{unmirrored}-value", json.dumps(schema("Other")))
    declare(world, hubs)
    body = json.loads(world.path.read_text())
    body["mirrors"] = {world.name: body["mirrors"][world.name]}
    world.path.write_text(json.dumps(body))
    world.hub("apply")
    assert world.json("plan")[0]["steps"] == []
    assert there.versions(value) == here.versions(value) and len(here.versions(value)) == 3
    assert theirs.numbers(value) == settings.numbers(value) == [1, 3]  # the deleted one stays deleted
    assert theirs.own_settings(value) == settings.own_settings(value)
    assert theirs.version(value, 3).metadata == settings.version(value, 3).metadata == metadata
    for subject in (record, f"{topic}-acme.Order", money):
        assert there.version(subject, 1) == here.version(subject, 1)
    with pytest.raises(NotFound):
        there.version(f"{unmirrored}-value", 1)

    # Later changes follow; changes made at the target stay, and are reported.
    world.start_worker()
    world.until(lambda each: each["workers"] > 0)
    settings.set_settings(value, {"compatibility": "FULL"})
    settings.delete_version(value, 1)
    wait_until(lambda: theirs.numbers(value) == [3], 90.0, world.logs)
    wait_until(lambda: there.compatibility(value) == "FULL", 90.0, world.logs)
    late = here.register(f"{world.label}.Late", json.dumps(schema("Late")))
    wait_until(lambda: late in there.ids(), 90.0, world.logs)
    theirs.set_settings(value, {"compatibility": "BACKWARD"})
    found = world.until(lambda each: any("compatibility" in told for told in each["cautions"]))
    assert there.compatibility(value) == "BACKWARD"
    assert any(value in told and "left so" in told for told in found["cautions"])
