"""Repairs of topics on a real Kafka: killed at their steps, beside a producer that goes on, with consumer
groups, and with a view that is built again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from killed_repair import Operations, outcome, run
from patience import patient
from pipeline import Pipeline, plain, records_of, wait_until
from processes import call_hub

from hub.config import Settings
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions, Record
from hub.repairs.journal import read_state
from hub.repairs.model import generation_topic
from hub.schema_registry.codecs.wire_format import encode, parsed

EVENTS = 200
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "event_id", "type": "string"},
    ],
}


@pytest.fixture
def cluster(settings: Settings, kafka: str) -> KafkaCluster:
    return KafkaCluster(kafka, 60.0)


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    """A topic with 100 events in each of two partitions, some of them in transactions."""
    name = f"repair.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=2, config={"retention.ms": "-1"}, replication_factor=1)
    events = [event(name, n) for n in range(EVENTS)]
    for named, part in ((None, events[:90]), (name, events[90:130]), (name, events[130:])):
        writer = cluster.writer(named)
        writer.append(part)
        writer.close()
    return name


def event(topic: str, n: int) -> NewRecord:
    value = json.dumps({"n": n}).encode()
    return NewRecord(topic, b"k%d" % (n % 7), value, (("h", b"%d" % n),), 1_700_000_000_000 + n, n % 2)


def facts(record: Record) -> tuple[Any, ...]:
    return record.partition, record.timestamp_ms, record.key, record.value, record.headers[:1]


def with_value(record: Record, value: bytes | None) -> Record:
    return Record(*record[:5], value, record.headers)


def expected(records: list[Record]) -> list[tuple[Any, ...]]:
    """Return the repaired log, computed without the repair's own steps."""
    made = []
    for each in records:
        result = outcome(each)
        values = (each.value,) if result.kind == "unchanged" else result.values
        made += [facts(with_value(each, value)) for value in values]
    return sorted(made)


def killed(settings: Settings, topic: str, number: int, moment: str) -> int:
    """Run the repair in a process that kills itself; return its exit code."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    arguments = [settings.bootstrap, topic, str(number), moment]
    return subprocess.run(
        [sys.executable, "-m", "killed_repair", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        timeout=patient(120.0),
        check=False,
    ).returncode


@pytest.mark.timeout(900)
def test_a_repair_that_is_killed_at_its_steps_is_continued_exactly(
    settings: Settings, cluster: KafkaCluster, topic: str
) -> None:
    """Each process is killed at a seeded operation of its own; the last one ends the repair."""
    before = records_of(cluster, topic)
    seed = random.SystemRandom().randrange(1 << 30)
    chance = random.Random(seed)
    group = f"g-{topic}"
    position = Positions.of([(topic, 0, 41), (topic, 1, 0)])
    assert not cluster.publish_groups({group: position})
    for number in (3, 7, 4, 5, 3):  # operations of the process that is killed next
        moment = chance.choice(["before", "inside", "after"])
        code = killed(settings, topic, number + chance.randrange(2), moment)
        assert code in (0, -9), f"seed {seed}: exit code {code}"
        if read_state(cluster, topic).current > 1:
            break
    else:
        run(settings.bootstrap, topic, Operations())
    assert sorted(map(facts, records_of(cluster, topic))) == expected(before), f"seed {seed}"
    archive = records_of(cluster, generation_topic(topic, 1))
    assert sorted(map(facts, archive)) == sorted(map(facts, before)), f"seed {seed}"
    assert cluster.topic_config([topic])[topic] == {"retention.ms": "-1"}
    at = cluster.group_positions(group)
    left = [each for each in records_of(cluster, topic) if each.offset >= at.get(each.topic_partition)]
    wanted = expected([each for each in before if each.offset >= position.get(each.topic_partition)])
    assert sorted(map(facts, left)) == wanted, f"seed {seed}"


@contextmanager
def producing(settings: Settings, topic: str, accepted: list[int]) -> Iterator[None]:
    """A producer of single events that goes on, whatever Kafka answers; ``accepted``: acknowledged ones."""
    stop = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": settings.bootstrap, "acks": "all", "delivery.timeout.ms": 2_000}
        )
        n = 1_000_000
        while not stop.wait(0.02):
            n += 2

            def delivered(error: Any, _message: Any, number: int = n) -> None:
                if error is None:
                    accepted.append(number)

            producer.produce(topic, json.dumps({"n": n}).encode(), b"p", 0, delivered)
            producer.flush(10.0)
        producer.flush(30.0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(900)
def test_acknowledged_events_of_a_producer_that_goes_on_are_there_once_and_in_order(
    settings: Settings, cluster: KafkaCluster, topic: str
) -> None:
    before = records_of(cluster, topic)
    accepted: list[int] = []
    with producing(settings, topic, accepted):
        wait_until(lambda: len(accepted) > 5, 60.0)
        try:
            run(settings.bootstrap, topic, Operations())
        except PeerError as error:
            if error.code != "HUB-3111":
                raise
    # The producer has ended: continue a repair that it prevented.
    if read_state(cluster, topic).change is not None:
        run(settings.bootstrap, topic, Operations())
    first = [json.loads(each.value or b"")["n"] for each in records_of(cluster, topic) if each.partition == 0]
    foreign = [n for n in first if n >= 1_000_000]
    # A producer may have an event in Kafka that was never acknowledged to it.
    assert set(accepted) <= set(foreign) and len(set(foreign)) == len(foreign)
    assert foreign == sorted(foreign)
    ours = [n for n in first if n < 1_000_000]
    assert ours == [
        json.loads(each.value or b"")["n"]
        for each in before
        if each.partition == 0 and (outcome(each).kind != "dropped")
    ]
    assert first == ours + foreign


def test_a_consumer_continues_and_members_stop_the_command(
    settings: Settings, hub_server: str, cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    """The command line, from the plan to the undo, with a consumer group that was in the middle."""
    group = f"g-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    cluster.publish_groups({group: Positions.of([(topic, 0, 10), (topic, 1, 10)])})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) is not None, 60.0)
    script = tmp_path / "fix.py"
    script.write_text("def fix(event, record):\n    return [] if event['n'] % 4 == 0 else None\n")
    drop = ["topic", "repair", topic, "--script", f"{script}:fix"]
    planned = call_hub(settings, *drop, "--plan", "-o", "json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert (plan["dropped"], plan["unchanged"], plan["refused"]) == (EVENTS // 4, EVENTS - EVENTS // 4, 0)
    refused = call_hub(settings, *drop, "--yes")
    assert refused.returncode != 0 and "consumer groups have members" in refused.stderr
    consumer.close()
    wait_until(lambda: not cluster.group_members([group])[group], 60.0)
    done = call_hub(settings, *drop, "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    # Partition 0 has the even numbers: 5 of the first 10 were dropped. Partition 1 has none of them.
    begins = cluster.group_positions(group)
    left = [each for each in records_of(cluster, topic) if each.offset >= begins.get(each.topic_partition)]
    assert {
        part: min(json.loads(each.value or b"")["n"] for each in left if each.partition == part)
        for part in (0, 1)
    } == {0: 20 + 2, 1: 20 + 1}
    shown = json.loads(call_hub(settings, "topic", "generations", topic, "-o", "json").stdout)
    assert [(row["generation"], row["state"]) for row in shown] == [(1, "archived"), (2, "current")]
    old = call_hub(settings, "topic", "consume", topic, "--generation", "1", "-n", "500", "-o", "json")
    assert sorted(row["event"]["n"] for row in json.loads(old.stdout)) == list(range(EVENTS))
    undone = call_hub(settings, "topic", "repair", topic, "--undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert sorted(json.loads(each.value or b"")["n"] for each in records_of(cluster, topic)) == list(
        range(EVENTS)
    )


@pytest.mark.timeout(900)
def test_a_view_is_the_fold_of_the_repaired_log(pipeline: Pipeline, tmp_path: Path) -> None:
    name = f"repair.{uuid.uuid4().hex[:8]}"
    view = name.replace(".", "_")
    cluster = pipeline.cluster
    cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    schema_id = pipeline.registry.register(f"{name}-value", json.dumps(ORDER))
    pipeline.writer.append(
        [
            NewRecord(
                name,
                b"o%d" % (n % 4),
                encode(schema_id, parsed(ORDER), {"id": f"o{n % 4}", "cents": n - 10, "event_id": f"e{n}"}),
            )
            for n in range(40)
        ]
    )
    body = {
        "view": view,
        "sources": {"e": {"topic": name, "key": "id"}},
        "fields": {"sum": "sum(e.cents)", "count": "count(e.cents)"},
    }
    (pipeline.views / f"{view}.yaml").write_text(json.dumps(body))
    pipeline.covers(view, [name], 400.0)
    script = tmp_path / "fix.py"
    script.write_text(
        "def fix(event, record):\n"
        "    if event['cents'] < -5:\n"
        "        return []\n"
        "    return {**event, 'cents': event['cents'] * 100} if event['cents'] % 2 else None\n"
    )
    arguments = ["topic", "repair", name, "--script", f"{script}:fix", "--yes"]
    done = call_hub(pipeline.settings, *arguments)
    assert done.returncode == 0, done.stderr
    wanted: dict[str, dict[str, Any]] = {}
    for n in range(40):
        cents = n - 10
        if cents >= -5:
            row = wanted.setdefault(f"o{n % 4}", {"sum": 0, "count": 0})
            row["sum"] += cents * 100 if cents % 2 else cents
            row["count"] += 1

    def rows() -> dict[str, dict[str, Any]]:
        return {key: plain(row) for key, row in pipeline.rows(view).items()}

    wait_until(lambda: rows() == wanted, 400.0, lambda: f"{rows()} is not {wanted}")
