"""Positions of a real consumer group, reset over HTTP and by the command line: what a consumer reads next."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from confluent_kafka import Consumer
from patience import patient
from pipeline import wait_until
from processes import call_hub

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import NewRecord


@pytest.fixture
def topic(settings: Settings, hub_server: str) -> str:
    """A topic with 20 records in each of two partitions."""
    name = f"reset.{uuid.uuid4().hex[:8]}"
    cluster = KafkaCluster(settings.bootstrap, 10.0)
    cluster.create_topic(name, partitions=2, config={}, replication_factor=1)
    writer = cluster.writer()
    writer.append(
        [NewRecord(name, None, b"%d" % n, timestamp_ms=1_000 * n, partition=n % 2) for n in range(40)]
    )
    writer.close()
    return name


@contextmanager
def consumer(settings: Settings, group: str, topic: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    made.subscribe([topic])
    try:
        yield made
    finally:
        made.close()


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Read and commit the given number of records; return their partitions and offsets."""
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None
            found.append((message.partition(), message.offset()))
        return len(found) >= count

    wait_until(enough, patient(60.0))
    consumer.commit(asynchronous=False)
    return sorted(found)


def test_a_group_reads_again_from_where_it_was_reset(settings: Settings, hub_server: str, topic: str) -> None:
    group = f"g/{uuid.uuid4().hex[:8]}"  # a slash, as Kafka allows
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        address = f"/api/groups/{group.replace('/', '%2F')}/offsets"
        with consumer(settings, group, topic) as first:
            assert len(read(first, 40)) == 40
            plan = http.get(address, params={"to": "1970-01-01T00:00:15Z"}).json()
            assert len(plan["members"]) == 1 and plan["again"] == 25
            refused = http.post(address, json={"to": plan["to"], "plan": plan["digest"]})
            assert refused.status_code == 409 and refused.json()["error_code"] == "HUB-1940"
        wait_until(lambda: not http.get(address).json()["members"], patient(60.0))
        done = http.post(address, json={"to": plan["to"], "plan": plan["digest"]})
        assert done.status_code == 200 and done.json()["changes"] == 2, done.text
        again = http.post(address, json={"to": plan["to"], "plan": plan["digest"]})
        assert again.json()["error_code"] == "HUB-1941"  # the group is elsewhere now
    with consumer(settings, group, topic) as second:
        assert read(second, 25) == [*((0, n) for n in range(8, 20)), *((1, n) for n in range(7, 20))]


def test_the_command_line_does_the_same(settings: Settings, hub_server: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    options = ("--topic", f"{topic}:1", "--to", "5", "-o", "json")
    tried = call_hub(settings, "group", "reset", group, *options, "--dry-run")
    (row,) = json.loads(tried.stdout)
    assert (row["partition"], row["position"], row["target"], row["skipped"]) == (1, None, 5, None)
    asked = call_hub(settings, "group", "reset", group, *options)
    assert asked.returncode == 1 and "--yes" in asked.stderr
    unknown = call_hub(settings, "group", "show", group)
    assert unknown.returncode == 1 and "no position in any topic" in unknown.stderr
    assert call_hub(settings, "group", "reset", group, *options, "--yes").returncode == 0
    moved = call_hub(settings, "group", "reset", group, "--to", "-2", "--topic", f"{topic}:1", "--yes")
    assert moved.returncode == 0, moved.stderr
    rows = json.loads(call_hub(settings, "group", "show", group, "-o", "json").stdout)
    assert [row["position"] for row in rows if row["partition"] == 1] == [3]
    with consumer(settings, group, topic) as reader:
        # Partition 0 has no position: it begins at the start.
        assert read(reader, 37) == [*((0, n) for n in range(20)), *((1, n) for n in range(3, 20))]


def test_kafka_itself_refuses_a_group_that_a_member_joined_meanwhile(
    settings: Settings, hub_server: str, topic: str
) -> None:
    from hub.errors import PeerError
    from hub.record import Positions

    group = f"g-{uuid.uuid4().hex[:8]}"
    with consumer(settings, group, topic) as member:
        read(member, 40)
        with pytest.raises(PeerError) as refused:
            KafkaCluster(settings.bootstrap, 10.0).publish_group(group, Positions.of([(topic, 0, 1)]))
        assert refused.value.code == "HUB-3012"
