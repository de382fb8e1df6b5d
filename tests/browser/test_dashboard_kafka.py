"""The dashboard of a real server process on a real Kafka: topics, rates and lag come from the log itself."""

from __future__ import annotations

import json
import uuid

import httpx2
from browser.conftest import Opener
from playwright.sync_api import expect
from processes import run_hub

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import NewRecord


def test_topics_and_events_of_a_real_kafka_show_up(
    hub_server: str, kafka: str, settings: Settings, open_page: Opener
) -> None:
    label = f"t{uuid.uuid4().hex[:8]}"
    cluster = KafkaCluster(kafka, 15.0)
    cluster.create_topic(f"{label}.visits", partitions=2, config={}, replication_factor=1)
    page = open_page(hub_server)
    expect(page.get_by_test_id("health")).to_have_attribute("data-state", "up")
    expect(page.get_by_test_id(f"topic-{label}.visits")).to_be_visible()
    writer = cluster.writer()
    writer.append([NewRecord(f"{label}.visits", b"k", b"v", partition=n % 2) for n in range(321)])
    writer.close()
    expect(page.get_by_test_id(f"topic-{label}.visits")).to_contain_text("321")

    overview = httpx2.get(f"{hub_server}/api/overview", timeout=60).json()
    (topic,) = [topic for topic in overview["topics"] if topic["name"] == f"{label}.visits"]
    assert (topic["partitions"], topic["events"], topic["undecodable"]) == (2, 321, 0)
    assert (
        f'hub_topic_end_offset{{topic="{label}.visits"}} 321.0'
        in httpx2.get(f"{hub_server}/metrics", timeout=60).text
    )
    said = run_hub(settings, "lag", "-o", "json")
    assert said.returncode == 0, said.stderr
    assert isinstance(json.loads(said.stdout), list)
