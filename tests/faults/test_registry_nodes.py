"""Two registry nodes take registrations under seeded faults of each node and the broker: acknowledged ids
and versions stay the same on every node and in a fold of the log.

What it shows: a node may be killed, or stand still while others go on, at any moment; the broker's process
may die. It does not show power loss: the page cache survives a kill.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kafka_nodes import own_node
from pipeline import wait_until
from ports import free_ports
from processes import Server

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster
from hub.record import Positions, TopicPartition
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, fact_of
from hub.schema_registry.registry.state_machine import Registry

SEED = int(os.environ.get("HUB_FAULT_SEED", "1"))
THREADS = 4
SUBJECTS = ("a", "b", "c", ":.other:a", ":.other:b")
READY_S, GIVE_UP_S = 40.0, 45.0
TRIES = 12  # of 3 s and a pause at most
_LOG = TopicPartition(SCHEMAS_TOPIC, 0)


def server_of(home: Path, bootstrap: str) -> Server:
    return Server(
        Settings(home=home, project=home / "project", bootstrap=bootstrap, http_port=free_ports(1)[0])
    )


class Load:
    """Threads that register, through either node, schemas that others register at the same time. A client
    that meets a dead node, or one that cannot write now, asks again, there or at the other one, until it is
    acknowledged."""

    def __init__(self, servers: list[Server]) -> None:
        self.urls = [each.url for each in servers]
        self.ids: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.through: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._count = 0
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{SEED}/{number}"),), daemon=True)
            for number in range(THREADS)
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(GIVE_UP_S)
        assert not any(each.is_alive() for each in self._threads)

    def goes_on(self, through: str | None = None) -> None:
        """Wait until more is acknowledged, by the node at this address when one is given."""
        before = self.acknowledged(through)
        wait_until(
            lambda: bool(self.wrong) or self.acknowledged(through) > before + 2,
            2 * GIVE_UP_S,
            lambda: f"nothing is acknowledged any more through {through or self.urls}: {self.through}",
        )

    def acknowledged(self, through: str | None = None) -> int:
        with self._lock:
            return self.through[through] if through is not None else self.through.total()

    def _run(self, chance: random.Random) -> None:
        clients = [RegistryClient(url, 3.0) for url in self.urls]
        try:
            while not self._stop.is_set() and not self.wrong:
                with self._lock:
                    self._count += 1
                    newest = self._count // 6
                # One of the newest few, so that several threads have the same one, in one subject or in
                # several.
                self._register(chance, clients, chance.choice(SUBJECTS), newest + chance.randrange(4))
                self._stop.wait(chance.uniform(0.0, 0.1))
        finally:
            for each in clients:
                each.close()

    def _register(
        self, chance: random.Random, clients: list[RegistryClient], subject: str, number: int
    ) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        for tried in itertools.count(1):
            client = chance.choice(clients)
            try:
                schema_id = client.register(subject, text(number))
            except PeerError as error:  # no connection, no answer in time, or 5xx: the outcome is not known
                with self._lock:
                    self.again[error.message] += 1
                # Time alone proves little: this machine and the client may have been frozen.
                if tried >= TRIES and time.monotonic() > deadline:
                    self.wrong.append(f"{subject} {number} was never acknowledged: {error.message}")
                    return
                time.sleep(chance.uniform(0.05, 0.3))
                continue
            except HubError as error:
                self.wrong.append(f"{subject} {number} at {client.url}: {error}")
                return
            with self._lock:
                self.ids[subject, number].add(schema_id)
                self.through[client.url] += 1
            return


def text(number: int) -> str:
    """Any of them may follow any other: what is added has a default, what is gone is not missed."""
    added = {"name": f"f{number}", "type": "int", "default": 0}
    return json.dumps({"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}, added]})


def number_of(schema: str) -> int:
    return int(json.loads(schema)["fields"][1]["name"][1:])


@pytest.fixture
def kafka_node(tmp_path: Path) -> Iterator[KafkaNode]:
    """A broker of its own: it is going to be hurt."""
    with own_node(tmp_path / "kafka") as node:
        yield node


@pytest.fixture
def servers(tmp_path: Path, kafka_node: KafkaNode) -> Iterator[list[Server]]:
    """Two that run, and a third that is not started yet."""
    every = [server_of(tmp_path / f"server-{number}", kafka_node.bootstrap) for number in range(3)]
    try:
        for each in every[:2]:
            each.start(ready=False)
        for each in every[:2]:
            each.wait_ready()
        yield every
    finally:
        for each in every:
            each.stop()


@pytest.mark.timeout(240)
def test_whatever_dies_ids_and_versions_stay_as_acknowledged(
    servers: list[Server], kafka_node: KafkaNode
) -> None:
    print(f"seed {SEED}: again with HUB_FAULT_SEED={SEED}")
    chance = random.Random(SEED)
    *running, third = servers
    load = Load(running)
    load.start()
    try:
        load.goes_on()
        for name, fault in faults(chance, running, kafka_node):
            time.sleep(chance.uniform(0.5, 1.5))
            began_at = time.monotonic()
            fault()
            load.goes_on()
            print(f"{name}: acknowledged again {time.monotonic() - began_at:.1f} s after it began")
        for each in running:
            load.goes_on(each.url)
    finally:
        load.stop()
    print(f"acknowledged {dict(load.through)}, asked again {load.again.total()} times:")
    for message, count in load.again.most_common(10):
        print(f"  {count} {message}")
    assert not load.wrong
    assert load.again, "no client has felt anything: the test hurts nobody"

    third.start()
    third.wait_ready()
    expected = versions_of(folded(kafka_node.bootstrap))
    for server in servers:
        wait_until(
            lambda server=server: served(server.url) == expected,
            READY_S,
            lambda server=server: f"{server.url} serves something else than the log says",
        )
    one_id_one_schema(expected)
    for (subject, number), ids in load.ids.items():
        versions = [found for found in expected[subject].values() if found[1] == number]
        assert [schema_id for schema_id, _ in versions] == list(ids), (subject, number, ids)
    for subject, found in expected.items():
        assert sorted(found) == list(range(1, len(found) + 1)), subject


def faults(
    chance: random.Random, running: list[Server], kafka_node: KafkaNode
) -> list[tuple[str, Callable[[], None]]]:
    """Register in random order; each node suffers one kind of fault."""
    killed, frozen = chance.sample(running, 2)
    away_s, frozen_s = chance.uniform(0.0, 1.0), chance.uniform(2.0, 4.0)

    def kill_a_node() -> None:
        killed.kill()
        time.sleep(away_s)
        killed.start()

    def freeze_a_node() -> None:
        with frozen.frozen():
            time.sleep(frozen_s)

    def restart_the_broker() -> None:
        assert kafka_node.process is not None
        kafka_node.process.kill()
        kafka_node.process.wait(10.0)
        kafka_node.start()
        kafka_node.wait_ready()

    every = [
        (f"kill -9 {killed.url}", kill_a_node),
        (f"SIGSTOP {frozen.url} for {frozen_s:.1f} s", freeze_a_node),
        ("kill -9 of the broker", restart_the_broker),
    ]
    chance.shuffle(every)
    return every


# By subject and version: (id, the schema's number).
Versions = dict[str, dict[int, tuple[int, int]]]


def folded(bootstrap: str) -> Registry:
    """Return the fold of the log, read here. No record contradicts another, and all can be read."""
    cluster = KafkaCluster(bootstrap, 15.0)
    registry = Registry()
    reader = cluster.reader()
    try:
        stop_at = cluster.end_offsets([SCHEMAS_TOPIC]).get(_LOG)
        reader.assign(Positions({_LOG: 0}))
        deadline = time.monotonic() + READY_S
        while reader.position().get(_LOG) < stop_at and time.monotonic() < deadline:
            for record in reader.poll(1_000, 0.5):
                registry.apply(fact_of(record))
        assert reader.position().get(_LOG) >= stop_at
    finally:
        reader.close()
    assert (registry.conflict_count, registry.unreadable_count) == (0, 0), registry.conflicts
    return registry


def versions_of(registry: Registry) -> Versions:
    return {
        subject: {
            version: (stored.schema_id, number_of(stored.schema)) for version, stored in versions.items()
        }
        for subject, versions in registry.subjects.items()
    }


def served(url: str) -> Versions:
    """All that a node serves, in every context."""
    found: Versions = defaultdict(dict)
    listed: list[dict[str, Any]] = httpx2.get(
        f"{url}/schemas", params={"subjectPrefix": ":*:", "deleted": "true"}, timeout=60.0
    ).json()
    for each in listed:
        found[each["subject"]][each["version"]] = (each["id"], number_of(each["schema"]))
    return dict(found)


def one_id_one_schema(versions: Versions) -> None:
    """Within a context."""
    pairs = {
        (names.context_of(subject), schema_id, number)
        for subject, found in versions.items()
        for schema_id, number in found.values()
    }
    assert len({(context, schema_id) for context, schema_id, _ in pairs}) == len(pairs), (
        "an id has two schemas"
    )
    assert len({(context, number) for context, _, number in pairs}) == len(pairs), "a schema has two ids"
