"""The web app of a real server over a real Kafka: written records are read, searched and watched; programs
get their former answers."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import orjson
import pytest
from patience import wait_until

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

HTML = {"Accept": "text/html"}
SCHEMA = {"type": "record", "name": "Landing", "fields": [{"name": "flight", "type": "string"}]}


def until(probe: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true answer."""
    return wait_until(probe, seconds, pause_s=0.2)


@pytest.fixture(scope="module")
def topic(settings: Settings, hub_server: str) -> str:
    """A topic of two partitions with 30 landings in transactions,
    so that the log has marks between the records."""
    name = f"web{uuid.uuid4().hex[:6]}.nyc.landings"
    cluster = KafkaCluster(settings.bootstrap, 10.0)
    cluster.create_topic(name, partitions=2, config={"retention.ms": "86400000"}, replication_factor=1)
    schema_id = RegistryClient(hub_server).register(f"{name}-value", orjson.dumps(SCHEMA).decode())
    writer = cluster.writer(f"{name}.writer")
    for number in range(30):
        value = encode(schema_id, parsed(SCHEMA), {"flight": f"UA-{number}"})
        at = 1_700_000_000_000 + number * 1_000
        writer.append([NewRecord(name, f"k{number}".encode(), value, (("n", b"1"),), at, number % 2)])
    writer.close()
    cluster.writer(f"{name}.writer").close()  # waits until committed records can be read
    return name


def test_a_new_topic_is_a_page_and_its_messages_are_read(hub_server: str, topic: str) -> None:
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        until(lambda: http.get(f"/topics/{topic}", headers=HTML).status_code == 200)
        assert http.get(f"/topics/{topic}").json()["topic"] == topic  # programs: as ever
        told = http.get(f"/api/topics/{topic}").json()
        assert [each["subject"] for each in told["subjects"]] == [f"{topic}-value"]
        settings = http.get(f"/api/topics/{topic}/settings").json()
        assert [each["leader"] for each in settings["partitions"]] == [1, 1]
        assert {"key": "retention.ms", "value": "86400000", "origin": "set by hand"} in settings["config"]
        seen: list[str] = []
        before = ""
        while True:
            page = http.get(f"/api/topics/{topic}/messages", params={"limit": 7, "before": before}).json()
            seen += [each["key"]["text"] for each in page["messages"]]
            if page["older"] is None:
                break
            before = page["older"]
        assert seen == [f"k{number}" for number in reversed(range(30))] and page["complete"]
        sought = http.get(f"/api/topics/{topic}/messages", params={"q": "ua-17"}).json()
        assert [each["key"]["text"] for each in sought["messages"]] == ["k17"] and sought["complete"]
        later = {"from": "2023-11-14T22:13:45Z", "limit": 3}
        found = http.get(f"/api/topics/{topic}/messages", params=later).json()
        assert [each["key"]["text"] for each in found["messages"]] == ["k25", "k26", "k27"]
        assert found["messages"][0]["value"]["schema"]["subject"] == f"{topic}-value"
        part = http.get(f"/ui/topics/{topic}/messages", headers=HTML).text
        assert "UA-29" in part and f"{topic}-value version 1" in part


def test_every_page_of_a_real_server_answers(hub_server: str, topic: str) -> None:
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        for path in (
            "/",
            "/topics",
            "/schemas",
            f"/schemas/{topic}-value",
            "/views",
            "/lag",
            "/lineage",
            "/latency",
            "/cluster",
            "/connect",
            "/completeness",
            "/alerts",
            "/alerts/runbooks/lag",
            "/mirrors",
            "/query",
            "/search?q=flight",
            "/help",
            "/help/how-to/test-a-view",
            "/help/reference/errors",
        ):
            answer = http.get(path, headers=HTML)
            assert answer.status_code == 200 and "<main" in answer.text, path
            assert '<a href="/help"' in answer.text, path
        assert http.get("/topics/no.such", headers=HTML).status_code == 404
        assert http.get("/no/such/page", headers=HTML).status_code == 404
        assert "openapi" in http.get("/docs", headers=HTML).text
        assert http.get("/schemas/types", headers=HTML).json() == ["JSON", "PROTOBUF", "AVRO"]
        assert http.get("/mirrors").json()["declared"] is False
        found = http.get("/api/search", params={"q": f"flight {topic.split('.')[0]}"}).json()
        assert found["groups"][0][0] == "schemas"


@pytest.mark.parametrize("file", ["topics.yaml", "policies.yaml", "mirrors.yaml", "alerts.yaml"])
def test_a_file_that_is_odd_yaml_is_no_error_of_the_pages(
    settings: Settings, hub_server: str, file: str
) -> None:
    path = settings.project / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    try:
        for text in (
            b"? [a]\n: b\n",
            b"topics: {a: {doc: !!bool x}}\n",
            b'policies: {"\\ud800": {doc: record}}\n',
        ):
            path.write_bytes(text)
            time.sleep(1.2)  # files are looked at once a second
            with httpx2.Client(base_url=hub_server, timeout=60) as http:
                for page in ("/topics", "/schemas", "/alerts", "/mirrors"):
                    assert http.get(page, headers=HTML).status_code == 200, (page, text)
                for address in ("/topics", "/subjects", "/subjects/a-value/versions", "/config", "/metrics"):
                    assert http.get(address).status_code in (200, 404), (address, text)
    finally:
        path.unlink() if before is None else path.write_bytes(before)
    time.sleep(1.2)


def test_a_page_of_a_name_that_now_leads_here_reads_nothing(hub_server: str, topic: str) -> None:
    """DNS rebinding: to a browser its site is this server."""
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        for path in (
            "/topics",
            f"/topics/{topic}/messages",
            "/subjects",
            "/views",
            "/api/overview",
            "/metrics",
        ):
            for host in ("evil.example", f"evil.example:{hub_server.rpartition(':')[2]}"):
                answer = http.get(path, headers={"Host": host})
                assert answer.status_code == 421 and topic not in answer.text, path
                assert "allowed_hosts" in answer.text
            assert http.get(path, headers={"Host": "localhost"}).status_code != 421
        wrote = http.post(f"/topics/{topic}/records", json={"key": "k"}, headers={"Host": "evil.example"})
        assert wrote.status_code == 421


def test_new_messages_are_pushed(settings: Settings, hub_server: str, topic: str) -> None:
    cluster = KafkaCluster(settings.bootstrap, 10.0)
    opened = threading.Event()

    def write() -> None:
        opened.wait(60)
        writer = cluster.writer()
        for number in range(100):  # until one arrives: the stream reports "open" a moment before it reads
            writer.append([NewRecord(topic, f"live{number}".encode(), b"plain", partition=0)])
            if heard.wait(0.3):
                break
        writer.close()

    heard = threading.Event()
    thread = threading.Thread(target=write)
    thread.start()
    with (
        httpx2.Client(timeout=60) as http,
        http.stream("GET", f"{hub_server}/api/topics/{topic}/tail") as answer,
    ):
        event = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                event = line[7:]
                opened.set()
            elif line.startswith("data: ") and event == "messages":
                tick = orjson.loads(line[6:])
                break
        heard.set()
    thread.join()
    assert tick["messages"][0]["value"]["text"] == "plain" and tick["total_seen"] >= 1


def test_charts_show_what_came_and_an_unknown_time_as_a_gap(
    hub_server: str, settings: Settings, topic: str
) -> None:
    """The server records by itself: records of now are a rate, the time before its start is a gap."""
    writer = KafkaCluster(settings.bootstrap, 10.0).writer(f"{topic}.charted")
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.2):
            writer.append([NewRecord(topic, b"k", b"v", partition=0) for _ in range(10)])

    feeder = threading.Thread(target=write, daemon=True)
    feeder.start()
    try:
        with httpx2.Client(base_url=hub_server, timeout=60) as http:

            def charted() -> dict[str, Any] | None:
                asked = {"of": f"topic:{topic}", "metric": "in_per_s", "range": "15m"}
                answer = http.get("/api/series", params=asked)
                found = answer.json()["series"][0] if answer.status_code == 200 else {"values": []}
                # The first buckets may have the writer's first record alone.
                return found if any((value or 0) > 10 for value in found["values"]) else None

            found = until(charted, 90.0)
            assert found["values"][0] is None and found["samples"][0] == 0
            part = http.get("/ui/charts", params={"of": f"topic:{topic}", "range": "15m"}, headers=HTML).text
            assert "Records in and out" in part and 'class="gap"' in part
            # The server of the tests may have started before the range of the charts above.
            totals = http.get("/api/series", params={"of": "hub", "range": "24h"}).json()
            assert {mark["kind"] for mark in totals["marks"]} >= {"start"}
    finally:
        stop.set()
        feeder.join(10)
        writer.close()
