"""Settings of mirrors.yaml other than topics, between two real clusters: limits, schedules, start, access
rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_nodes import own_node
from mirror_world import World, own_world, well

from hub.embedded import KafkaNode
from hub.kafka.acls import AccessRule
from hub.record import Record, TopicPartition
from hub.replication.clusters.clusters import reach
from hub.replication.clusters.control_state import joined
from hub.replication.clusters.link_plan import planned
from hub.replication.clusters.readers import read_control_state, read_progress, read_to_end
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.load_mirrors import load
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, checkpoint_of
from hub.replication.ownership.links import links
from hub.replication.verification.comparable import complete_tables


class AskingNode(KafkaNode):
    """Checks access; tests and workers come without a name, and may do everything."""

    def prepare(self) -> list[str]:
        command = super().prepare()
        with (self.folder / "server.properties").open("a") as file:
            file.write("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
            file.write("super.users=User:ANONYMOUS\n")
        return command


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with (
        own_node(tmp_path_factory.mktemp("nyc"), AskingNode) as nyc,
        own_node(tmp_path_factory.mktemp("lon"), AskingNode) as lon,
    ):
        yield nyc.bootstrap, lon.bootstrap


@pytest.fixture
def world(sides: tuple[str, str], tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", *sides) as made:
        yield made


def produce_at(world: World, topic: str, times_ms: list[int], size: int = 10) -> None:
    producer = Producer({"bootstrap.servers": world.nyc, "linger.ms": 5, "batch.num.messages": 20})
    for time_ms in times_ms:
        producer.produce(topic, b"x" * size, partition=0, timestamp=time_ms)
    assert producer.flush(30) == 0


def test_a_limit_holds_by_what_was_committed_and_when(world: World) -> None:
    topic, rate = f"{world.label}.chat", 100 << 10
    world.make(topic, 1)
    produce_at(world, topic, [1] * 800, size=1_000)
    world.declare([topic], limits={"bytes_per_second": "100KiB"}, shards=1)
    world.start_worker()
    world.until(lambda each: any(row["source_next"] and row["lag_records"] for row in each["partitions"]))
    world.until(well)
    marks: list[Checkpoint] = []

    def take(record: Record) -> None:
        mark = checkpoint_of(record)
        if isinstance(mark, Checkpoint) and mark.link == world.name:
            marks.append(mark)

    read_to_end(world.reached["lon"], [CHECKPOINTS_TOPIC], take)
    # A transaction is of about a second at most. The log's own times: never more than the limit, after the
    # first.
    steps = [b.source_next - a.source_next for a, b in itertools.pairwise(marks)]
    assert len(marks) >= 4 and max(steps) * 1_000 < 3 * rate
    for first, last in itertools.combinations(marks, 2):
        taken = (last.source_next - first.source_next) * 1_000
        most = rate * (last.committed_at_ms - first.committed_at_ms) / 1_000
        assert taken <= most + 3 * rate, (first, last)


def test_outside_its_schedule_nothing_moves_and_it_is_said_until_when(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    produce_at(world, topic, [1] * 50)
    tomorrow = f"{datetime.now(UTC) + timedelta(days=2):%a}".lower()
    world.declare([topic], schedule={"windows": [{"days": [tomorrow], "from": "00:00", "to": "01:00"}]})
    world.hub("apply")
    world.start_worker()
    found = world.until(lambda each: each["workers"] == 1 and each["state"] == "paused")
    assert f"continues {tomorrow.capitalize()} " in found["reason"] and found["reason"].endswith("00:00 UTC")
    world.until(lambda each: bool(each["partitions"]))
    assert world.ends(topic, "lon") == 0 and not any(
        row["source_next"] for row in world.status()["partitions"]
    )
    world.declare([topic], schedule={"windows": [{}]})
    world.until(well)
    assert len(world.values(topic, "lon")) == 50


def test_a_mirror_may_begin_at_a_time(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    begin_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    produce_at(world, topic, [begin_ms - 2, begin_ms - 1, begin_ms, begin_ms - 5, begin_ms + 1])
    world.declare([topic], start={"timestamp": "2026-01-01T00:00:00Z"})
    world.start_worker()
    world.until(well)
    assert [r.timestamp_ms - begin_ms for r in world.records(topic, "lon")] == [0, -5, 1]
    _, tables = complete_tables(world.reached["lon"], world.name)
    table = tables[TopicPartition(topic, 0)]
    assert (table.translate(2).kind, table.translate(0).kind, table.translate(0).distance) == (
        "exact",
        "clamped_low",
        2,
    )
    assert [world.end(topic, 0, at) - 1 for at in ("nyc", "lon")] == [4, table.translate(4).offset + 1]
    assert world.json("verify", world.name)["partitions"][0]["from"] == 2


def test_a_mirror_may_begin_with_what_comes_next(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    world.produce(topic, 30, mark="before", partitions=1)
    world.declare([topic], start="latest")
    world.start_worker()
    world.until(lambda each: well(each) and len(each["partitions"]) == 1)
    assert world.values(topic, "lon") == []
    world.produce(topic, 20, mark="after", partitions=1)
    # Another worker begins at the checkpoint, not at the end that there is now.
    world.workers[0].kill()
    world.produce(topic, 10, mark="late", partitions=1)
    world.start_worker()
    wanted = [b"after%d" % n for n in range(20)] + [b"late%d" % n for n in range(10)]
    world.until(lambda each: world.values(topic, "lon") == wanted)
    assert world.status()["gaps"] == []


def test_what_a_busy_mirror_writes_while_it_is_planned_is_not_taken_for_lost(world: World) -> None:
    topic = f"{world.label}.chat"
    world.make(topic, 1)
    world.produce(topic, 30, partitions=1)
    world.declare([topic])
    world.start_worker()
    world.until(well)
    file = load(world.path)
    clusters = {name: reach(file, name, {}, world.folder) for name in file.clusters}
    lon, board = clusters["lon"], read_control_state(clusters["lon"])

    def goes_on() -> WrittenState:
        world.produce(topic, 20, partitions=1, mark="meanwhile")
        world.caught_up({topic: 50})
        return read_progress(lon, maps=False)

    def claims_more() -> WrittenState:
        (mark,) = read_progress(lon, maps=False).of(world.name).values()
        writer = world.clusters["lon"].writer()
        more = replace(mark, source_next=mark.source_next + 5, target_next=mark.target_next + 5)
        writer.append([more.record(0)])
        writer.close()
        return read_progress(lon, maps=False)

    def refusals(read: Callable[[], WrittenState]) -> list[str]:
        made = planned(file, links(file)[world.name], clusters, joined([board.control]), board, read)
        return [each.reason for each in made.made.refusals]

    assert refusals(goes_on) == []
    (reason,) = refusals(claims_more)
    assert reason.startswith("partition 0 ends at ") and reason.endswith(" were written")


def test_rules_follow_the_source_and_what_people_set_at_the_target_stays(world: World) -> None:
    topic, other = f"{world.label}.chat", f"{world.label}.loot"
    for each in (topic, other):
        world.make(each, 1)
    nyc, lon = world.clusters["nyc"], world.clusters["lon"]

    def rule(who: str, operation: str, name: str = topic, **more: Any) -> AccessRule:
        said = {"pattern": "LITERAL", "host": "*", "permission": "ALLOW", **more}
        return AccessRule(name, said["pattern"], f"User:{who}", said["host"], operation, said["permission"])

    def there() -> set[tuple[str, str, str, str]]:
        rules = lon.access_rules()
        assert rules is not None
        mine = [each for each in rules if each.resource == "TOPIC" and each.name.startswith(world.label)]
        assert {each.pattern for each in mine} <= {"LITERAL"}
        return {(each.name, each.principal, each.operation, each.permission) for each in mine}

    reader, writer = rule("ann", "READ"), rule("bob", "WRITE")
    denied = rule("eve", "WRITE", permission="DENY")
    prefixed = rule("ops", "ALL", f"{world.label}.c", pattern="PREFIXED")
    nyc.add_rules([reader, writer, denied, prefixed])
    world.declare([f"{world.label}.**"], acls={"principals": {"User:ann": "User:anna"}})
    world.hub("apply")
    ops = {(topic, "User:ops", each, "ALLOW") for each in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")}
    ann, eve = (topic, "User:anna", "READ", "ALLOW"), (topic, "User:eve", "WRITE", "DENY")
    assert there() == {ann, eve, *ops}
    # By hand at the target: one more, and one of the copied taken away. Then the source changes too.
    lon.add_rules([rule("local", "READ")])
    nyc.remove_rules([denied])
    nyc.add_rules([rule("dan", "DESCRIBE", other)])
    (planned,) = world.json("plan", ok=(2,))
    assert planned["steps"] == [f"~ acls {topic}  -User:eve WRITE", f"~ acls {other}  +User:dan DESCRIBE"]
    # A worker does the same by itself.
    world.start_worker()
    dan, local = (other, "User:dan", "DESCRIBE", "ALLOW"), (topic, "User:local", "READ", "ALLOW")
    world.until(lambda each: there() == {ann, local, dan, *ops})
    assert world.json("plan")[0]["steps"] == []
    world.declare([f"{world.label}.**"], acls={"write": True, "principals": {"User:ann": "User:anna"}})
    world.hub("apply")
    assert there() - {ann, local, dan, *ops} == {
        (topic, "User:bob", "WRITE", "ALLOW"),
        (topic, "User:ops", "WRITE", "ALLOW"),
    }
