"""Mirrors that leave records out, mask fields and put the target's schema ids in, between two real clusters,
each with a registry of its own."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from ports import free_ports
from processes import Server

from hub.config import Settings
from hub.errors import NotFound
from hub.record import NewRecord, Positions, TopicPartition
from hub.replication.clusters.readers import read_progress
from hub.replication.maps.checkpoint import MapRecord
from hub.replication.maps.offset_map import Run
from hub.replication.verification.comparable import complete_tables
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.model.facts import Reference

KEY = "MASK_KEY"
KEY_REFERENCE = "${MASK_KEY}"


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A server of either side, with its Kafka."""
    homes = {name: tmp_path_factory.mktemp(name) for name in ("nyc", "lon")}
    with own_node(homes["nyc"]) as nyc, own_node(homes["lon"]) as lon:
        servers = [
            Server(
                Settings(
                    home=homes[name],
                    project=homes[name],
                    bootstrap=each.bootstrap,
                    http_port=free_ports(1)[0],
                )
            )
            for name, each in (("nyc", nyc), ("lon", lon))
        ]
        try:
            for server in servers:
                server.start(ready=False)
            for server in servers:
                server.wait_ready()
            yield dict(zip(homes, servers, strict=True))
        finally:
            for server in servers:
                server.stop(10.0)


@pytest.fixture(scope="module")
def sides(registries: dict[str, Server]) -> dict[str, tuple[str, str]]:
    """Bootstrap servers and the registry's URL of either side."""
    return {name: (each.settings.bootstrap, each.url) for name, each in registries.items()}


@pytest.fixture
def world(
    sides: dict[str, tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv(KEY, "pepper")
    with own_world(tmp_path / "project", sides["nyc"][0], sides["lon"][0]) as made:
        yield made


def declare(world: World, sides: Mapping[str, tuple[str, str]], **more: Any) -> None:
    world.declare([f"{world.label}.**"], **more)
    body = json.loads(world.path.read_text())
    for name, (_, url) in sides.items():
        body["clusters"][name]["registry"] = url
    world.path.write_text(json.dumps(body))


def settled(world: World, topic: str) -> dict[str, Any]:
    """Wait until all source records are decided: filtered records move the position too."""
    ends = {tp.partition: end for tp, end in world.clusters["nyc"].end_offsets([topic], committed=False)}
    return world.until(
        lambda found: all(
            any(
                row["topic"] == topic and row["partition"] == n and (row["source_next"] or 0) >= last
                for row in found["partitions"]
            )
            for n, last in ends.items()
        )
    )


def exact(world: World, topic: str, kept: Any) -> int:
    """Every kept offset leads to its record, every other to the next one that is kept;
    the number left out."""
    ours = world.records(topic, "nyc")
    theirs = world.records(topic, "lon")
    wanted = [record for record in ours if kept(record)]
    assert [(r.partition, r.timestamp_ms, r.key, r.headers) for r in wanted] == [
        (r.partition, r.timestamp_ms, r.key, r.headers) for r in theirs
    ]
    at = {(mine.partition, mine.offset): yours.offset for mine, yours in zip(wanted, theirs, strict=True)}
    _, tables = complete_tables(world.reached["lon"], world.name)
    for tp, table in tables.items():
        if tp.topic != topic:
            continue
        following = table.target_next
        for offset in range(world.end(topic, tp.partition) - 1, -1, -1):
            found = table.translate(offset)
            here = at.get((tp.partition, offset))
            if here is not None:
                following = here
                assert (found.kind, table.reverse(here).offset) == ("exact", offset)
            assert found.offset == following, (tp, offset, found)
            assert here is not None or found.kind in ("hole", "clamped_low")
    return len(ours) - len(wanted)


@pytest.mark.timeout(240)
def test_what_is_not_wanted_is_left_out_and_fields_are_masked(
    world: World, sides: dict[str, tuple[str, str]]
) -> None:
    chat, loot = f"{world.label}.chat", f"{world.label}.loot"
    for topic in (chat, loot):
        world.make(topic, 2)
    producer = Producer(
        {"bootstrap.servers": world.nyc, "transactional.id": world.label, "compression.type": "lz4"}
    )
    producer.init_transactions(30)
    number = 0
    for round_ in range(12):
        producer.begin_transaction()
        for _ in range(25):
            region = ("eu", "us", None)[number % 3]
            value = (
                None
                if number % 10 == 9
                else json.dumps({"n": number, "email": f"u{number % 4}@x", "s": {"e": "é"}})
            )
            producer.produce(
                chat,
                value,
                f"k{number}",
                partition=number % 2,
                headers=[("region", region), ("x", b"\xff")],
                timestamp=1_700_000_000_000 - number,
            )
            number += 1
        producer.flush(30)
        (producer.abort_transaction if round_ % 4 == 3 else producer.commit_transaction)(30)
    world.produce(loot, 40)
    declare(
        world,
        sides,
        only=[{"topics": [chat], "where": {"header": "region", "in": ["eu", None]}}],
        mask=[
            {"topics": [chat], "fields": ["email"], "with": "hash", "key": KEY_REFERENCE},
            {"topics": [chat], "fields": ["s.e"], "with": None},
        ],
    )
    (planned,) = world.json("plan", ok=(2,))
    rules = "only where header region in [eu, null]; mask email (hash); mask s.e (null)"
    assert planned["rules"] == {chat: rules}
    assert f"* topic {chat}  {rules}" in world.hub("plan", ok=(2,))
    world.start_worker()
    found = settled(world, chat)
    assert {row["engine_why"] for row in found["partitions"] if row["topic"] == chat} == {rules}
    found = world.until(
        lambda each: all(row["engine"] for row in each["partitions"] if row["topic"] == chat) and well(each)
    )
    assert {row["engine"] for row in found["partitions"] if row["topic"] == chat} == {"record"}

    assert exact(world, chat, lambda record: dict(record.headers)["region"] != b"us") == 75
    source = {record.key: record.value for record in world.records(chat, "nyc")}
    hashes = set()
    for record in world.records(chat, "lon"):
        before = source[record.key]
        if record.value is None:
            assert before is None
            continue
        assert before is not None
        now, was = json.loads(record.value), json.loads(before)
        hashes.add(now["email"])
        assert now == {**was, "email": now["email"], "s": {"e": None}}
    assert len(hashes) == 4 and not any("@" in each for each in hashes)
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"], verdict["not_compared"]) == (4, 0, 0)
    compared = {row["topic"]: row["rules"] for row in verdict["partitions"]}
    assert compared == {chat: rules, loot: ""}
    assert sum(row["records"] for row in verdict["partitions"] if row["topic"] == chat) == 150


@pytest.mark.timeout(240)
def test_what_cannot_be_masked_stops_and_nothing_of_it_leaves(
    world: World, sides: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    values = [b'{"email": "a"}', b"secret text", b'{"email": "b"}']
    producer = Producer({"bootstrap.servers": world.nyc})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    mask = [{"topics": ["nyc.**"], "fields": ["email"], "with": "hash", "key": KEY_REFERENCE}]
    declare(world, sides, mask=mask)
    world.start_worker()
    found = world.until(lambda each: any(row["state"] == "stopped" for row in each["partitions"]))
    (row,) = found["partitions"]
    assert "offset 1: its value cannot be masked: it is not JSON" in row["reason"] and "drop" in row["reason"]
    assert "secret" not in row["reason"] and world.values(topic, "lon") == []

    declare(world, sides, mask=mask, on_unreadable="drop")
    found = world.until(well)
    assert [(gap["first"], gap["end"], gap["reason"]) for gap in found["gaps"]] == [(1, 2, "skipped")]
    assert exact(world, topic, lambda record: record.value.startswith(b"{")) == 1
    assert world.json("verify", world.name)["different"] == 0
    # Without the key the rest is compared, and the values are reported as not compared.
    monkeypatch.delenv(KEY)
    (compared,) = world.json("verify", world.name)["partitions"]
    assert compared["equal"] and f"values not compared: {KEY} is not set" in compared["rules"]
    monkeypatch.setenv(KEY, "another")
    (compared,) = world.json("verify", world.name)["partitions"]
    assert compared["equal"] and f"values not compared: {KEY} is another now" in compared["rules"]
    assert "the key of a hash is another now" in world.json("plan", ok=(1,))[0]["refusals"][0]["reason"]
    # A record that is not what the rules make of the source's is found.
    monkeypatch.setenv(KEY, "pepper")
    world.hub("pause", world.name)
    world.until(lambda each: all(row["state"] == "paused" for row in each["partitions"]))
    secretly_unmasked(world, topic)
    assert world.json("verify", world.name, ok=(1,))["different"] == 1
    _, said = world.process("verify", world.name, ok=1)
    assert "from what the mirror's rules make of the source's" in said


def secretly_unmasked(world: World, topic: str) -> None:
    """A record at the target that went there as it is,
    with the map and the checkpoint that would be its own."""
    mark = read_progress(world.reached["lon"], maps=False).of(world.name)[TopicPartition(topic, 0)]
    producer = Producer({"bootstrap.servers": world.nyc})
    producer.produce(topic, b'{"email": "c"}', partition=0, timestamp=1_700_000_000_000)
    assert producer.flush(30) == 0
    source = world.end(topic, 0) - 1
    away = Producer({"bootstrap.servers": world.lon})
    away.produce(topic, b'{"email": "c"}', partition=0, timestamp=1_700_000_000_000)
    assert away.flush(30) == 0
    target = world.end(topic, 0, "lon") - 1
    writer = world.clusters["lon"].writer()
    run = MapRecord(world.name, topic, mark.topic_id, 0, (Run(source, target, 1),))
    writer.append([run.record(0), replace(mark, source_next=source + 1, target_next=target + 1).record(0)])
    writer.close()


@pytest.mark.timeout(240)
def test_rules_that_change_later_are_never_mixed_in_silence(
    world: World, sides: dict[str, tuple[str, str]]
) -> None:
    """Two topics, of which one gets a rule later: only this one stops until the rules are confirmed."""
    chat, other = f"{world.label}.chat", f"{world.label}.other"
    producer = Producer({"bootstrap.servers": world.nyc})

    def say(first: int, count: int) -> None:
        for topic in (chat, other):
            for number in range(first, first + count):
                producer.produce(
                    topic, json.dumps({"n": number, "email": f"u{number}@x"}), partition=number % 2
                )
        assert producer.flush(30) == 0

    mask = [{"topics": [chat], "fields": ["email"], "with": "redact"}]
    for topic in (chat, other):
        world.make(topic, 2)
    say(0, 40)
    declare(world, sides)
    world.start_worker()
    world.caught_up({chat: 40, other: 40})
    assert world.json("plan")[0]["refusals"] == []

    declare(world, sides, mask=mask)  # the worker reads it within seconds
    found = world.until(lambda each: chat in each["trouble"])
    assert "40 offsets of it were mirrored under other rules" in found["trouble"][chat]
    say(40, 20)
    world.caught_up({other: 60})
    (refusal,) = world.json("plan", ok=(1,))[0]["refusals"]
    assert refusal["topic"] == chat and "apply --from-now" in refusal["hint"]
    assert world.json("apply", ok=(1,))["refused"][0]["topic"] == chat
    assert len(world.values(chat, "lon")) == 40  # nothing new, neither masked nor as it is
    assert world.json("verify", world.name)["different"] == 0

    done = world.json("apply", "--from-now")["done"]
    assert done == [
        f"~ topic {chat}  from now on mask email (redact) (by partition from offset 0: 20, 1: 20)"
    ]
    world.caught_up({chat: 60})
    made = [json.loads(value)["email"] for value in world.values(chat, "lon")]
    assert sum(each == "***" for each in made) == 20 and len(made) == 60
    assert all(json.loads(v)["n"] >= 40 for v in world.values(chat, "lon") if b"***" in v)
    assert world.json("apply", "--from-now")["done"] == []
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"]) == (4, 0)
    said = {row["rules"] for row in verdict["partitions"] if row["topic"] == chat}
    assert said == {"offsets 0 to 19: as they are; then offsets 20 to 29: mask email (redact)"}
    rows = [row for row in world.status()["partitions"] if row["topic"] == chat]
    assert [[(one["first"], one["end"]) for one in row["rules"]] for row in rows] == [[(0, 20), (20, 30)]] * 2

    # The rule is removed again: this needs a confirmation, too. Afterwards, dropped, all records are of one
    # kind.
    declare(world, sides)
    world.until(lambda each: chat in each["trouble"])
    world.hub("pause", world.name)
    world.until(
        lambda each: all(row["state"] == "paused" for row in each["partitions"] if row["topic"] == other)
    )
    drop = ("drop", world.name, "--topic", chat, "--delete-copies", "--name", world.name)
    assert world.json(*drop)["partitions"] == 2
    declare(world, sides, mask=mask)
    world.hub("resume", world.name)
    world.caught_up({chat: 60, other: 60})
    assert all(json.loads(value)["email"] == "***" for value in world.values(chat, "lon"))
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"]) == (4, 0)
    assert {row["rules"] for row in verdict["partitions"] if row["topic"] == chat} == {"mask email (redact)"}


@pytest.mark.timeout(240)
def test_ids_are_the_targets_and_avro_is_masked_by_its_schema(
    world: World, sides: dict[str, tuple[str, str]]
) -> None:
    topic = f"{world.label}.users"
    world.make(topic, 1)
    here, there = (RegistryClient(sides[name][1]) for name in ("nyc", "lon"))
    for number in range(3):  # ids that mean something else there
        there.register(
            f"{world.label}.other{number}-value",
            json.dumps({"type": "fixed", "name": f"F{number}", "size": 1}),
        )
    first = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "email", "type": ["null", "string"], "default": None}],
    }
    second = {**first, "fields": [*first["fields"], {"name": "n", "type": "int", "default": 0}]}
    ids = [here.register(f"{topic}-value", json.dumps(each)) for each in (first, second)]
    key_id = here.register(f"{topic}-key", '"string"')

    def framed(schema_id: int, schema: Any, value: Any) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()

    producer = Producer({"bootstrap.servers": world.nyc})
    for number in range(20):
        schema = (first, second)[number % 2]
        value = {"email": f"u{number}@x"} | ({"n": number} if number % 2 else {})
        producer.produce(
            topic, framed(ids[number % 2], schema, value), framed(key_id, "string", f"k{number}")
        )
    assert producer.flush(30) == 0
    mask = {"topics": [topic], "fields": ["email"], "with": None}
    declare(world, sides, mask=[{**mask, "fields": ["n"]}], schema_ids="rewrite")
    (planned,) = world.json("plan", ok=(1,))
    assert 'field "n" may not be null' in planned["refusals"][0]["reason"]
    declare(world, sides, mask=[mask], schema_ids="rewrite")
    (planned,) = world.json("plan", ok=(2,))
    assert [step for step in planned["steps"] if "schema" in step] == [
        f"+ schema {topic}-{part}  with an id of the target's" for part in ("key v1", "value v1", "value v2")
    ]
    world.hub("apply")
    assert world.json("plan")[0]["steps"] == []
    world.start_worker()
    settled(world, topic)
    theirs = {each.version: each.id for each in there.versions(f"{topic}-value")}
    assert {*theirs.values()}.isdisjoint(ids)
    for number, record in enumerate(world.records(topic, "lon")):
        assert record.key is not None and record.value is not None
        assert int.from_bytes(record.value[1:5], "big") == theirs[1 + number % 2]
        assert int.from_bytes(record.key[1:5], "big") == there.versions(f"{topic}-key")[0].id
        schema = json.loads(there.schema(theirs[1 + number % 2]))
        found = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), fastavro.parse_schema(schema), None)
        assert found == {"email": None} | ({"n": number} if number % 2 else {})
    assert world.json("verify", world.name)["different"] == 0
    # A schema that comes later is registered before its first record, plan or not.
    third = {**first, "fields": [*first["fields"], {"name": "m", "type": "int", "default": 0}]}
    late = here.register(f"{topic}-value", json.dumps(third))
    producer.produce(topic, framed(late, third, {"email": "x", "m": 7}), partition=0)
    assert producer.flush(30) == 0
    settled(world, topic)
    assert there.versions(f"{topic}-value")[-1].id == int.from_bytes(
        (world.records(topic, "lon")[-1].value or b"")[1:5], "big"
    )
    # Unknown everywhere: it stops, with the position.
    producer.produce(topic, b"\0\x7f\0\0\0body", partition=0)
    assert producer.flush(30) == 0
    stopped = world.until(lambda each: any(row["state"] == "stopped" for row in each["partitions"]))
    assert (
        "offset 21: its value cannot be masked" in stopped["partitions"][0]["reason"]
        or "schema" in stopped["partitions"][0]["reason"]
    )
    with pytest.raises(NotFound):
        there.source(0x7F000000)


@pytest.mark.timeout(300)
def test_what_is_born_of_masked_values_does_not_go_home(
    world: World, sides: dict[str, tuple[str, str]]
) -> None:
    masked, whole = f"{world.label}.masked", f"{world.label}.whole"
    producer = Producer({"bootstrap.servers": world.nyc})
    for topic in (masked, whole):
        world.make(topic, 1)
        for number in range(10):
            producer.produce(topic, json.dumps({"email": f"u{number}"}), f"k{number}", partition=0)
    assert producer.flush(30) == 0
    declare(
        world,
        sides,
        mask=[{"topics": [masked], "fields": ["email"], "with": "redact"}],
        only=[{"topics": [whole], "where": {"field": "email", "not_in": ["u3"]}}],
    )
    world.start_worker()
    world.until(well)
    assert world.json("drill", world.name)["masked"] == [masked]
    world.json("switchover", world.name)
    away = Producer({"bootstrap.servers": world.lon})
    for topic in (masked, whole):
        away.produce(topic, b'{"email": "u3"}', b"away", partition=0)
    assert away.flush(30) == 0
    _, said = world.process("failback", world.name)
    assert f"! {masked}: its copy at lon is masked" in said
    assert [r.key for r in world.records(masked, "nyc")] == [f"k{n}".encode() for n in range(10)]
    assert [r.key for r in world.records(whole, "nyc")] == [*(f"k{n}".encode() for n in range(10)), b"away"]
    for topic in (masked, whole):
        producer.produce(topic, b'{"email": "later"}', b"later", partition=0)
    assert producer.flush(30) == 0
    for topic in (masked, whole):
        settled(world, topic)
    assert world.records(masked, "lon")[-1].value == b'{"email": "***"}'
    assert [r.key for r in world.records(whole, "lon")][-2:] == [b"away", b"later"]
    assert world.json("verify", world.name)["different"] == 0


@pytest.mark.timeout(240)
def test_no_event_arrives_before_the_schema_that_it_names(
    world: World, sides: dict[str, tuple[str, str]], registries: dict[str, Server]
) -> None:
    topic, other = f"{world.label}.users", f"{world.label}.else"
    world.make(topic, 1)
    world.make(other, 1)
    here, there = (RegistryClient(sides[name][1]) for name in ("nyc", "lon"))
    for size in range(
        100, 150
    ):  # ids that the other registry, which the tests of this file share, has not given by itself
        here.register(f"{world.label}.unused-{size}", f'{{"type":"fixed","name":"Unused","size":{size}}}')
    fields = [{"name": "f0", "type": "int", "default": 0}]

    def registered() -> int:
        """The next version of the events' schema."""
        fields.append({"name": f"f{len(fields)}", "type": "int", "default": 0})
        return here.register(
            f"{topic}-value", json.dumps({"type": "record", "name": "User", "fields": fields})
        )

    writer, reader = world.clusters["nyc"].writer(), world.clusters["lon"].reader()

    def written(schema_id: int, to: str = topic) -> None:
        writer.append([NewRecord(to, None, b"\0" + schema_id.to_bytes(4, "big") + b"body", partition=0)])

    try:
        first = registered()
        written(first)
        declare(world, sides)
        world.hub("apply")
        for _ in range(2):
            world.start_worker()
        world.until(well)
        reader.assign(Positions({TopicPartition(topic, 0): 0}))
        for number in range(12):
            newest = registered()
            written(newest)
            time.sleep(0.1 * (number % 4))  # at any moment of the workers' rounds
            seen = first
            while seen != newest:
                for record in reader.poll(100, 5.0):
                    seen = int.from_bytes((record.value or b"")[1:5], "big")
                    assert there.source(seen) == here.source(seen)

        # A registry that is away keeps them waiting, all of the mirror's: nobody looked into them.
        registries["lon"].stop(10.0)
        for each in world.workers:
            each.kill()
        world.start_worker()  # nothing can be planned, so it continues with the previous plan
        written(newest)
        world.caught_up({topic: world.ends(topic, "nyc")})  # it names nothing new
        late = registered()
        written(late)
        written(late, other)
        # The shard reports it; after a restart it names the registry that does not answer.
        causes = ("events wait for schemas", f'schema registry at "{sides["lon"][1]}" does not answer')
        waiting = world.until(
            lambda found: any(cause in row["reason"] for row in found["partitions"] for cause in causes)
        )
        assert waiting["state"] == "trouble" and not world.values(other, "lon")
        world.workers[-1].kill()  # and a new worker does not let them pass
        world.start_worker()
        time.sleep(3.0)
        assert not world.values(other, "lon")
        assert len(world.values(topic, "lon")) == len(world.values(topic, "nyc")) - 1
        registries["lon"].start(ready=False)
        registries["lon"].wait_ready()
        world.caught_up({topic: world.ends(topic, "nyc"), other: 1})
        assert there.source(late) == here.source(late)
        world.until(well)
    finally:
        for one in (writer, reader, here, there):
            one.close()


def test_schemas_go_with_what_they_refer_to(world: World, sides: dict[str, tuple[str, str]]) -> None:
    here, there = (RegistryClient(sides[name][1]) for name in ("nyc", "lon"))
    inner, middle = f"{world.label}.money", f"{world.label}.price"
    topics = [f"{world.label}.{name}" for name in ("orders", "refunds")]
    money = '{"type":"record","name":"t.Money","fields":[{"name":"cents","type":"long"}]}'
    price = '{"type":"record","name":"t.Price","fields":[{"name":"net","type":"t.Money"}]}'
    # Ids that the other registry, which the tests of this file share, has not given by itself.
    for size in range(1, 50):
        here.register(f"{world.label}.unused-{size}", f'{{"type":"fixed","name":"Unused","size":{size}}}')
    here.register(inner, money)
    here.register(middle, price, references=[Reference("t.Money", inner, 1)])
    ids = {}
    for topic in topics:
        world.make(topic, 1)
        name = topic.rpartition(".")[2].title()
        order = f'{{"type":"record","name":"t.{name}","fields":[{{"name":"price","type":"t.Price"}}]}}'
        ids[topic] = here.register(f"{topic}-value", order, references=[Reference("t.Price", middle, 1)])
    try:
        declare(world, sides)
        world.hub("apply")
        for topic in topics:
            found = there.version(f"{topic}-value", 1)
            assert found.id == ids[topic] and there.text_of(found.id) == here.text_of(found.id)
        for subject in (inner, middle):
            assert there.version(subject, 1) == here.version(subject, 1)
        assert world.json("plan")[0]["steps"] == []
    finally:
        here.close()
        there.close()
