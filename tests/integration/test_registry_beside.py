"""Registry nodes that are not alone with their log:
producers of others write to it, and other nodes register."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from fastapi import FastAPI
from fastapi.testclient import TestClient
from kafka_nodes import own_node
from patience import patient
from pipeline import wait_until

from hub.kafka import KafkaCluster
from hub.record import Positions, TopicPartition
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, SchemaStored, record_of
from hub.schema_registry.registry.state_machine import RegisterSchema
from hub.schema_registry.server.node import RegistryNode

SEEDS = (1, 2, 3)
BESIDE = 2_000  # records of the plain producer, for each seed
OWN = 60  # registrations by the node meanwhile
_LOG = TopicPartition(SCHEMAS_TOPIC, 0)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka of its own: thousands of schemas would be in everybody's way."""
    with own_node(tmp_path_factory.mktemp("beside")) as made:
        yield made.bootstrap


class Counting(KafkaCluster):
    """Counts the questions for the log's end, each of which takes a while."""

    asked = 0
    under_way = 0
    most_under_way = 0

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(0.05)
        try:
            return super().end_offsets(topics, committed=committed)
        finally:
            self.under_way -= 1


@contextmanager
def node_of(bootstrap: str, kind: type[KafkaCluster] = KafkaCluster) -> Iterator[RegistryNode]:
    node = RegistryNode(kind(bootstrap, patient(15.0)))
    try:
        assert node.start(patient(30.0))
        yield node
    finally:
        node.stop()


def text(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]})


def test_a_node_that_writes_applies_every_record_that_others_write_beside_it(bootstrap: str) -> None:
    """The registry applies them in the log's order, and assigns no id that another producer took first."""
    acknowledged: dict[str, int] = {}
    with node_of(bootstrap) as writing, node_of(bootstrap) as idle:
        for seed in SEEDS:
            beside = threading.Thread(target=write_beside, args=(bootstrap, seed, acknowledged), daemon=True)
            beside.start()
            for number in range(OWN):
                name = f"own_{seed}_{number}"
                answer, _ = writing.submit(RegisterSchema(name, text(name)))
                acknowledged[name] = answer.schema_id
            beside.join(patient(60.0))
            assert not beside.is_alive()
        end = KafkaCluster(bootstrap, patient(15.0)).end_offsets([SCHEMAS_TOPIC]).get(_LOG)
        for node in (writing, idle):
            wait_until(
                lambda node=node: node.position >= end,
                patient(20.0),
                lambda: "the log is not read to its end",
            )
        with node_of(bootstrap) as fresh:
            told = fresh.read(lambda registry: (registry.subjects, registry.contexts))
        for node in (writing, idle):
            known = node.read(lambda registry: (registry.subjects, registry.contexts))
            assert known == told, f"{missing(known[0], told[0])} of {len(told[0])} subjects are unknown"
        subjects, contexts = told
        # All but those of the plain producer's records whose id was another schema's already.
        assert len(subjects) >= len(SEEDS) * (OWN + BESIDE * 19 // 20)
        assert writing.read(lambda registry: registry.conflict_count) > 0, (
            "nobody took an id before the node: the test shows nothing of it"
        )
        for name, schema_id in acknowledged.items():
            assert contexts["."].ids[schema_id].subject == name
            assert subjects[name][1].schema_id == schema_id


def write_beside(bootstrap: str, seed: int, acknowledged: dict[str, int]) -> None:
    """Records as another vendor's node writes them: one after the other, in bursts;
    some take the next free id."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(BESIDE):
        name = f"beside_{seed}_{number}"
        if number % 20 == 0:
            fact = SchemaStored(name, 1, max(acknowledged.values(), default=0) + 1, text(name))
        else:
            fact = SchemaStored(f":.beside:{name}", 1, seed * BESIDE + number, text(name))
        record = record_of(fact)
        producer.produce(SCHEMAS_TOPIC, record.value, record.key)
        producer.poll(0)
        if chance.random() < 0.3:
            producer.flush(10.0)
            threading.Event().wait(chance.uniform(0.0, 0.004))
    assert producer.flush(patient(30.0)) == 0


def missing(known: dict[str, object], told: dict[str, object]) -> int:
    return len(told.keys() - known.keys())


def http_of(node: RegistryNode) -> TestClient:
    app = FastAPI()
    app.include_router(create_router(node))
    return TestClient(app)


def test_another_node_answers_at_once_what_was_registered_a_moment_ago(bootstrap: str) -> None:
    """Ask by id, by version and by text, each right after the registration."""
    with node_of(bootstrap) as writing, node_of(bootstrap) as asked:
        http = http_of(asked)
        for number in range(12):
            name = f"fresh_{number}"
            stored, _ = writing.submit(RegisterSchema(name, text(name)))
            paths = (
                f"/schemas/ids/{stored.schema_id}",
                f"/subjects/{name}/versions/latest",
                f"/subjects/{name}/versions",
                f"/schemas/ids/{stored.schema_id}/versions",
                f"/schemas/ids/{stored.schema_id}/schema",
                f"/subjects/{name}/versions/1/schema",
            )
            path = paths[number % len(paths)]
            if number < len(paths):
                answer = http.get(path)
            else:
                answer = http.post(f"/subjects/{name}", json={"schema": text(name)})
            assert answer.status_code == 200, (path, answer.text)
        assert http.get("/schemas/ids/2147483647").json()["error_code"] == 40403
        assert http.get("/subjects/nobody/versions/1").json()["error_code"] == 40401
        assert http.get("/subjects/fresh_0/versions/9").json()["error_code"] == 40402


def test_a_node_waits_for_a_transaction_that_kafka_has_acknowledged_and_not_shown_yet(bootstrap: str) -> None:
    """Kafka acknowledges a commit before it writes the mark that shows the records:
    here the mark comes late."""
    with node_of(bootstrap) as asked:
        http = http_of(asked)
        writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "late-mark"})
        writer.init_transactions(30)
        writer.begin_transaction()
        stored = SchemaStored("late_mark", 1, 1_999_999, text("late_mark"))
        record = record_of(stored)
        writer.produce(SCHEMAS_TOPIC, record.value, record.key)
        assert writer.flush(30) == 0
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(http.get, f"/schemas/ids/{stored.schema_id}")
            time.sleep(0.7)
            assert not answer.done()
            writer.commit_transaction(30)
            assert answer.result(30).status_code == 200
        writer.begin_transaction()
        writer.produce(SCHEMAS_TOPIC, record.value, record.key)
        assert writer.flush(30) == 0  # and stays open: its existence was not reported
        assert http.get("/schemas/ids/1999998").json()["error_code"] == 40403
        writer.abort_transaction(30)


def test_a_flood_of_unknown_ids_asks_for_the_end_of_the_log_once_for_all_that_wait(bootstrap: str) -> None:
    with node_of(bootstrap, Counting) as node:
        counting = node.cluster
        assert isinstance(counting, Counting)
        http = http_of(node)
        asked, counting.most_under_way = counting.asked, 0
        with ThreadPoolExecutor(32) as flood:
            codes = list(
                flood.map(
                    lambda number: http.get(f"/schemas/ids/{2**30 + number}").json()["error_code"], range(320)
                )
            )
        assert set(codes) == {40403}
        assert counting.most_under_way == 1
        assert counting.asked - asked <= 320 // 4
