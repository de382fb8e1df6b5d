"""A topic is created and changed in a real Chromium, on a real server with a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import Opener
from playwright.sync_api import expect

from hub.config import Settings
from hub.kafka import KafkaCluster


@pytest.fixture
def tree_file(settings: Settings, hub_server: str) -> Iterator[Path]:
    path = settings.project / "topics.yaml"
    before = path.read_bytes() if path.exists() else None
    yield path
    path.unlink(missing_ok=True)
    if before is not None:
        path.write_bytes(before)


def test_a_topic_is_created_and_changed(
    settings: Settings, hub_server: str, tree_file: Path, open_page: Opener
) -> None:
    topic = f"made.t{uuid.uuid4().hex[:8]}"
    page = open_page(f"{hub_server}/topics", width=390)
    page.get_by_label("New topic").fill(topic)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(topic)
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Config").fill("cleanup.policy=compact")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_test_id("diff")).to_contain_text("partitions: 2")
    expect(page.get_by_test_id("steps")).to_contain_text(f"+ topic {topic}  partitions=2")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_test_id("confirm").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("state")).to_have_text("The topic was changed.")
    assert KafkaCluster(settings.bootstrap, 10.0).topics()[topic].partitions == 2

    page.get_by_label("Partitions").fill("1")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_test_id("refusal")).to_contain_text("partitions cannot shrink from 2 to 1")
    expect(page.get_by_test_id("confirm")).to_have_count(0)

    page.get_by_label("Partitions").fill("3")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_test_id("confirm")).to_have_text("Change the topic")
    page.get_by_test_id("confirm").click()
    expect(page.get_by_test_id("state")).to_have_text("The topic was changed.")
    assert "partitions: 3" in tree_file.read_text()
