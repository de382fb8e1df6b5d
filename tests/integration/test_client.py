"""``hub.client`` on a whole hub: tokens, a server that is killed, and every example of its document."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pipeline import Pipeline, wait_until
from ports import free_ports
from processes import Server

from hub.client import (
    AsyncHub,
    Change,
    Covered,
    Delete,
    Event,
    Hub,
    NotCovered,
    NotFound,
    Refused,
    Snapshot,
    Upsert,
)
from hub.errors import HubError
from hub.record import Positions

DOCS = Path(__file__).parents[2] / "docs/reference/python-client.md"
SCHEMA = """{"type": "record", "name": "Reading", "fields": [
    {"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}, {"name": "gone", "type": "boolean"}]}"""  # noqa: E501
VIEW = """view: plant_heard
sources:
  r: {topic: plant.heard, key: sensor}
delete_when: r.gone
fields:
  celsius: r.celsius
  readings: count(r.sensor)
indexes: [celsius]
"""
TOPIC, NAME = "plant.heard", "plant_heard"


@pytest.fixture(scope="module")
def heard(pipeline: Pipeline) -> Iterator[Pipeline]:
    """A topic of readings and a view over it that is live."""
    pipeline.cluster.create_topic(TOPIC, partitions=2, config={}, replication_factor=1)
    pipeline.registry.register(f"{TOPIC}-value", SCHEMA)
    with pipeline.own_views():
        (pipeline.views / f"{NAME}.yaml").write_text(VIEW)
        with Hub(pipeline.url) as hub:
            hub.produce(TOPIC, reading("first", 1.0), key="first")
        wait_until(
            lambda: pipeline.state(NAME).get("state") == "live" and bool(pipeline.state(NAME)["fields"]),
            240.0,
        )
        yield pipeline


def reading(sensor: str, celsius: float, gone: bool = False) -> dict[str, Any]:
    return {"sensor": sensor, "celsius": celsius, "gone": gone}


def test_a_read_includes_the_write_whose_token_it_carries(heard: Pipeline) -> None:
    with Hub(heard.url, timeout_s=60.0) as hub:
        row = hub.get(NAME, "a", after=hub.produce(TOPIC, reading("a", 20.5), key="a"))
        assert (row["celsius"], row["readings"]) == (20.5, 1)
        token = hub.produce_many(TOPIC, [Event(reading("a", n), key="a") for n in range(2_000)])
        row = hub.get(NAME, "a", after=token)
        assert (row["celsius"], row["readings"]) == (1999.0, 2001)
        assert list(hub.rows(NAME, where={"key": "a"}, after=token)) == [
            row
        ]  # the view as a whole covers it too
        with pytest.raises(NotCovered) as late:
            hub.get(
                NAME,
                "a",
                after=token.advanced(Positions({tp: offset + 9 for tp, offset in token})),
                timeout_s=0.2,
            )
        assert late.value.lag_records == 9
        sql = f"SELECT key, celsius, readings FROM {NAME} WHERE key = :sensor"
        result = hub.query(sql, {"sensor": "a"}, after=token)
        assert result.rows == [("a", 1999.0, 2001)] and not result.truncated
        assert result.positions.covers(token)
        with pytest.raises(Refused, match="celsious"):
            hub.query(sql.replace("celsius", "celsious"), {"sensor": "a"})
        ordered = hub.rows(NAME, where={"key.gte": "a"}, order="-celsius", fields=["celsius"], page_rows=1)
        assert next(ordered) == {"key": "a", "celsius": 1999.0}
        with pytest.raises(Refused) as refused:
            hub.produce_many(
                TOPIC, [Event(reading("b", 1.0), key="b"), Event({"sensor": "b", "celsius": "x"}, key="b")]
            )
        (reason,) = refused.value.reasons
        assert reason.record == 1 and reason.field == "value.celsius"
        assert hub.get(NAME, "b", after=refused.value.written)["readings"] == 1
        with pytest.raises(NotFound, match="plant.heart"):
            hub.produce("plant.heart", {})


def test_the_same_call_made_again_writes_nothing(heard: Pipeline) -> None:
    async def twice() -> tuple[Positions, Positions, Any]:
        async with AsyncHub(heard.url, timeout_s=60.0) as hub:
            events = [Event(reading("once", n), key="once") for n in range(5)]
            first = await hub.produce_many(TOPIC, events, idempotency_key="once-1")
            again = await hub.produce_many(TOPIC, events, idempotency_key="once-1")
            return first, again, await hub.get(NAME, "once", after=again)

    with ThreadPoolExecutor(1) as thread:
        first, again, row = thread.submit(asyncio.run, twice()).result(120.0)
    assert first == again and row["readings"] == 5


@pytest.fixture
def killable(heard: Pipeline) -> Iterator[Server]:
    """A second server on the same store and Kafka, on a port of its own."""
    own = heard.settings.model_copy(update={"http_port": free_ports(1)[0]})
    running = Server(own, log="killable.log")
    running.start()
    yield running
    running.kill()


@pytest.mark.timeout(280)
def test_subscribers_go_through_kill_9_without_a_loss_or_a_repeat(heard: Pipeline, killable: Server) -> None:
    found: dict[str, list[Change]] = {"sse": [], "websocket": []}
    last = "the-last"
    until: list[Positions] = []
    failures: list[HubError] = []

    def hear(transport: Any) -> None:
        try:
            with Hub(killable.url) as hub, hub.subscribe(NAME, transport=transport, covered=True) as changes:
                for change in changes:
                    found[transport].append(change)
                    if isinstance(change, Covered) and until and change.positions.covers(until[0]):
                        return
        except HubError as error:
            failures.append(error)

    threads = [threading.Thread(target=hear, args=(each,), daemon=True) for each in found]
    chance = random.Random(7)
    with Hub(heard.url, timeout_s=60.0) as hub, Hub(killable.url).follow(NAME) as copy:
        for thread in threads:
            thread.start()
        for number in range(60):
            events = [
                reading(f"s{chance.randrange(20)}", float(number), chance.random() < 0.2) for _ in range(5)
            ]
            hub.produce_many(TOPIC, [Event(each, key=each["sensor"]) for each in events])
            if number in (20, 40):
                killable.kill()
                time.sleep(0.5)
            if number in (25, 45):
                killable.start()
            time.sleep(0.02)
        token = hub.produce(TOPIC, reading(last, 0.0), key=last)
        until.append(token)
        hub.produce(TOPIC, reading(last, 1.0), key=last)  # something more to hear of
        table = {row["key"]: row for row in hub.rows(NAME, after=token) if row["key"] != last}
        copy.wait_until(token, timeout_s=60.0)
        assert {key: {"key": key, **row} for key, row in copy.items() if key != last} == table
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive() and not failures
    for changes in found.values():
        rows: dict[str, Any] = {}
        versions: dict[str, int] = {}
        for change in changes:
            if isinstance(change, Upsert | Delete):
                assert change.version > versions.get(change.key, -1), change  # neither again nor backwards
            if isinstance(change, Snapshot | Upsert):
                rows[change.key], versions[change.key] = change.row, change.version
            elif isinstance(change, Delete):
                rows.pop(change.key, None)
                versions[change.key] = change.version
        rows.pop(last)
        assert {key: {"key": key, **row} for key, row in rows.items()} == table


def with_history(pipeline: Pipeline, view: str) -> None:
    """Let a view keep the versions of its rows."""
    file = pipeline.views / f"{view}.yaml"
    file.write_text(f"{file.read_text()}\nhistory: 1d\n")

    def is_kept() -> bool:
        with Hub(pipeline.url, retry=False) as hub:
            try:
                return list(hub.history(view, "nobody")) == []
            except HubError:
                return False

    wait_until(is_kept, 60.0)


def test_every_example_of_the_document_runs(pipeline: Pipeline) -> None:
    pipeline.install("customer-360")
    wait_until(lambda: pipeline.state("customer_360").get("state") == "live", 240.0)
    with_history(pipeline, "customer_360")
    examples = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 6
    text = "\n".join(examples).replace("http://127.0.0.1:8088", pipeline.url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    # Other tests compare this view with the sample events: its own customers go.
    with Hub(pipeline.url) as hub:
        gone = hub.produce_many("crm.customers", [Event(None, key=f"C-{number}") for number in (1, 2, 3)])
        left = {row["key"] for row in hub.rows("customer_360", after=gone, timeout_s=60)}
        assert not left & {"C-1", "C-2", "C-3"}
