"""A node's waits are bounded, also those of a write behind another;
one try is made however late its turn comes."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.errors import HubFault, PeerError
from hub.log import MemoryCluster, MemoryWriter, WriterFenced
from hub.record import NewRecord, Positions
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import SCHEMAS_TOPIC
from hub.schema_registry.registry.state_machine import RegisterSchema, Registry
from hub.schema_registry.server.applied_log import topic_warnings
from hub.schema_registry.server.node import RegistryNode


def command(subject: str) -> RegisterSchema:
    return RegisterSchema(subject, json.dumps({"type": "record", "name": "R", "fields": []}))


@dataclass
class Slow(MemoryCluster):
    """Cluster whose writers block after setting ``begun`` until ``go`` is set."""

    begun: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def writer(self, name: str | None = None) -> MemoryWriter:
        opened = super().writer(name)
        return SlowWriter(opened.cluster, opened.name, opened.epoch)


class SlowWriter(MemoryWriter):
    def append(self, records: Sequence[NewRecord]) -> Positions:
        assert isinstance(self.cluster, Slow)
        self.cluster.begun.set()
        assert self.cluster.go.wait(30.0)
        return super().append(records)


def test_a_write_does_not_wait_for_ever_behind_another() -> None:
    cluster = Slow()
    node = RegistryNode(cluster, timeout_s=0.3)
    assert node.start(10.0)
    first = threading.Thread(target=node.submit, args=(command("first"),))
    first.start()
    try:
        assert cluster.begun.wait(10.0)
        for _ in range(2):  # whoever gave up is in nobody's way
            with pytest.raises(PeerError, match="earlier writes") as refused:
                node.submit(command("second"))
            assert refused.value.retriable
        assert node.read(lambda registry: list(registry.subjects)) == []  # reads still answer
    finally:
        cluster.go.set()
        first.join(10.0)
    node.submit(command("second"))
    assert node.read(subjects) == ["first", "second"]
    node.stop()


@dataclass
class Crowded(MemoryCluster):
    """Cluster where another node writes before an append, ``fences`` times."""

    fences: int = 0

    def writer(self, name: str | None = None) -> MemoryWriter:
        opened = super().writer(name)
        if self.fences:
            self.fences -= 1
            super().writer(name)
        return opened


def test_a_fenced_write_is_tried_again_until_its_time_is_over() -> None:
    cluster = Crowded(fences=2)
    node = RegistryNode(cluster, timeout_s=5.0)
    assert node.start(10.0)
    node.submit(command("a"))
    assert cluster.fences == 0
    node.stop()

    hopeless = RegistryNode(Crowded(fences=1_000), timeout_s=0.2)
    assert hopeless.start(10.0)
    with pytest.raises(PeerError, match="without a pause") as refused:
        hopeless.submit(command("a"))
    assert not isinstance(refused.value, WriterFenced)
    assert hopeless.read(subjects) == []
    hopeless.stop()


def subjects(registry: Registry) -> list[str]:
    return sorted(registry.subjects)


def test_a_log_that_was_made_anew_is_written_by_no_node_that_read_the_former_one() -> None:
    """The write once was acknowledged, and shown to nobody until the node was started again."""
    cluster = MemoryCluster()
    node = RegistryNode(cluster)
    assert node.start()
    for number in range(4):
        node.submit(command(f"s{number}"))
    cluster.delete_topic(SCHEMAS_TOPIC)
    cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    for _ in range(2):
        with pytest.raises(HubFault, match="is another one now"):
            node.submit(command("new"))
    assert len(node.read(subjects)) == 4  # served as it was
    node.stop()


@dataclass
class Away(MemoryCluster):
    """Kafka that stops to answer."""

    away: bool = False

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        if self.away:
            raise PeerError("Kafka does not answer")
        return super().end_offsets(topics, committed=committed)


def test_what_is_not_found_while_kafka_is_away_is_unknown_and_not_missing() -> None:
    """Another node may have registered it. What is known is answered as ever."""
    cluster = Away()
    node = RegistryNode(cluster)
    assert node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    http = TestClient(app)
    node.submit(command("known"))
    try:
        assert http.get("/schemas/ids/2").json()["error_code"] == 40403
        cluster.away = True
        assert http.get("/schemas/ids/1").status_code == 200
        for path in ("/schemas/ids/2", "/subjects/unknown/versions/1", "/config/unknown"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["error_code"]) == (500, 50001), path
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("policy", "partitions", "named"),
    [
        ("compact", 1, []),
        (None, 1, []),
        ("delete", 1, ['cleanup.policy is "delete"']),
        ("compact,delete", 3, ['cleanup.policy is "compact,delete"', "has 3 partitions"]),
    ],
)
def test_a_topic_that_would_lose_schemas_is_warned_of(
    policy: str | None, partitions: int, named: list[str]
) -> None:
    found = topic_warnings(policy, partitions)
    assert len(found) == len(named) and all(part in each for part, each in zip(named, found, strict=True))
