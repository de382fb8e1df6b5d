"""Spark's real-time mode on a hub of its own: same rows, same state, positions that are true after any death.

One hub for the module (a start costs half a minute); the tests do not depend on each other's order, but on
its state.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pipeline import iso, plain, records_of
from realtime_hub import Hub, killed, running_hub

from hub.demo import customers
from hub.demo.feeder import Feeder
from hub.errors import HubError
from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

SEED, CUSTOMERS = 23, 150
VIEW = "customer_360"
READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
}
WIDER = {
    **READING,
    "fields": [*READING["fields"], {"name": "site", "type": ["null", "string"], "default": None}],
}


class Customers(Hub):
    """Return how far its customers' events were fed."""

    fed = 0

    def feed(self, upto: int) -> None:
        self.pipeline.feed(customers.TOPICS, customers.generate(SEED, CUSTOMERS, upto))
        self.fed = upto

    def equals_the_fold(self) -> None:
        """Wait until the view covers all fed events, and check every row against the plain computation."""
        end = self.pipeline.cluster.end_offsets(list(customers.TOPICS))

        def covered() -> bool:
            answer = httpx2.get(f"{self.pipeline.url}/views/{VIEW}?limit=1", timeout=10.0)
            return Positions.parse(answer.headers.get("Hub-Position", "")).covers(end)

        self.until(covered, 180.0, lambda: f"{VIEW} does not cover {end}: {self.pipeline.state(VIEW)}")
        rows = customers.fold(customers.generate(SEED, CUSTOMERS, self.fed))
        expected = {key: {**row, "last_seen": iso(row["last_seen"])} for key, row in rows.items()}
        assert {key: plain(row) for key, row in self.pipeline.rows(VIEW).items()} == expected


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Customers]:
    with running_hub(tmp_path_factory.mktemp("realtime"), kind=Customers) as running:
        running.pipeline.install("customer-360")
        running.switch(VIEW, "realtime")
        running.feed(2_000)
        yield running


@pytest.mark.timeout(1_200)
def test_realtime_and_live_take_turns_on_one_state_and_equal_the_fold(hub: Customers) -> None:
    hub.switch(VIEW, "realtime")
    for mode in ("realtime", "live", "realtime"):
        hub.switch(VIEW, mode)
        hub.reaches(VIEW, mode)
        hub.feed(hub.fed + 700)
        hub.equals_the_fold()
        assert hub.pipeline.state(VIEW)["last_batch"]["mode"] == mode
    assert hub.pipeline.state(VIEW)["last_batch"]["generation"] == 1


@pytest.mark.timeout(1_200)
def test_no_death_in_the_middle_of_a_checkpoint_changes_a_row(hub: Customers) -> None:
    hub.switch(VIEW, "realtime")
    hub.reaches(VIEW, "realtime")
    stop = threading.Event()
    before = hub.fed
    feeding = threading.Thread(target=feed_slowly, args=(hub, stop), daemon=True)
    feeding.start()
    try:
        for victim in killed("spark"):
            hub.flows(VIEW)
            hub.kill(victim)
            hub.until(lambda: hub.pipeline.state(VIEW).get("state") != "realtime", 240.0)  # a JVM starts
            hub.reaches(VIEW, "realtime")
    finally:
        stop.set()
        feeding.join(60.0)
    assert not feeding.is_alive() and hub.fed > before
    hub.equals_the_fold()


@pytest.mark.timeout(1_200)
def test_bad_events_new_schemas_and_reads_of_ones_own_writes(hub: Customers) -> None:
    """A second realtime view in the same session, made while that runs: Spark becomes wider for it."""
    cluster, registry = hub.pipeline.cluster, hub.pipeline.registry
    cluster.create_topic("plant.fast", partitions=2, config={}, replication_factor=1)
    schema_id = registry.register("plant.fast-value", json.dumps(READING))
    hub.write_view(
        "fast",
        "view: fast\nmode: realtime\nsources:\n  r: {topic: plant.fast, key: sensor}\n"
        "fields:\n  celsius: r.celsius\n  readings: count(r.sensor)\n",
    )
    writer = cluster.writer()
    reading = encode(schema_id, parsed(READING), {"sensor": "a", "celsius": 20.0})
    writer.append([NewRecord("plant.fast", b"a", reading)])
    hub.reaches("fast", "realtime")

    token = writer.append([NewRecord("plant.fast", b"a", reading)])
    assert read(hub, "a", token)["readings"] == 2

    writer.append([NewRecord("plant.fast", b"a", b"not avro at all")])
    wider_id = registry.register("plant.fast-value", json.dumps(WIDER))
    wider = encode(wider_id, parsed(WIDER), {"sensor": "a", "celsius": 25.0, "site": "north"})
    token = writer.append([NewRecord("plant.fast", b"a", wider)])
    row = read(hub, "a", token)
    assert (row["celsius"], row["readings"]) == (25.0, 3)

    dead = "plant.fast.dlq"
    hub.until(lambda: sum(offset for _, offset in cluster.end_offsets([dead])) > 0, 120.0)
    assert records_of(cluster, dead)[0].value == b"not avro at all"


@pytest.mark.timeout(600)
def test_a_view_without_room_is_refused_with_what_it_needs(hub: Customers) -> None:
    hub.pipeline.cluster.create_topic("plant.wide", partitions=1, config={}, replication_factor=1)
    hub.pipeline.registry.register("plant.wide-value", json.dumps(READING))
    hub.write_view(
        "wide",
        "view: wide\nmode: realtime\npartitions: 200\nsources:\n  r: {topic: plant.wide, key: sensor}\n"
        "fields: {celsius: r.celsius}\n",
    )
    try:
        # One look for both: it is planned again, and has no reason then.
        hub.until(
            lambda: (
                "201 in all" in (reason := hub.pipeline.state("wide").get("reason") or "")
                and "mode: live" in reason
            ),
            120.0,
            lambda: f"not refused: {hub.pipeline.state('wide')}",
        )
    finally:
        (hub.settings.project / "views" / "wide.yaml").unlink()


def read(hub: Customers, key: str, after: Positions) -> dict[str, Any]:
    """Read the row that includes a write; repeat while the view is being planned."""
    answers: list[httpx2.Response] = []

    def covered() -> bool:
        parameters = {"after": str(after), "timeout_ms": "10000"}
        answers.append(httpx2.get(f"{hub.pipeline.url}/views/fast/{key}", params=parameters, timeout=20.0))
        return answers[-1].status_code == 200

    hub.until(covered, 120.0, lambda: answers[-1].text)
    row: dict[str, Any] = answers[-1].json()
    return row


def feed_slowly(hub: Customers, stop: threading.Event) -> None:
    """Feed about a hundred events a second as long as needed; a feeder that meets a fault is restarted, as
    by a user. At the end ``hub.fed`` reports its position."""
    while True:
        try:
            feeder = Feeder(hub.pipeline.cluster, hub.pipeline.publisher(), customers.TOPICS)
            feeder.epoch_ms = 0
            for event in customers.generate(SEED, CUSTOMERS, hub.fed + 1_000_000):
                if feeder.feed(event) and feeder.number % 20 == 0:
                    feeder.publisher.flush()
                    if stop.wait(0.2):
                        hub.fed = feeder.number
                        return
        except HubError as error:
            print(f"the feeder meets: {error.message}")
            time.sleep(1.0)
