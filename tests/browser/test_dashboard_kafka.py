"""The dashboard of a real server process on a real Kafka: topics, rates and lag come from the log itself."""

from __future__ import annotations

import json
import uuid

import httpx2
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_estate import HOSTILE
from pipeline import wait_until
from playwright.sync_api import expect
from processes import run_hub

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions


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


def test_hostile_bytes_names_and_huge_records_of_a_real_kafka_are_shown_safely(
    hub_server: str, kafka: str, open_page: Opener
) -> None:
    """A page that fails on any error of the console, in which nothing of the log
    becomes markup or a script."""
    topic = f"t{uuid.uuid4().hex[:8]}.hostile"
    cluster = KafkaCluster(kafka, 15.0)
    cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    group = f"{HOSTILE} {topic}"
    many = tuple((f"{HOSTILE}{number}", b"\xff\x00") for number in range(300))
    values = [
        HOSTILE.encode(),
        json.dumps({"note": HOSTILE, "</pre>": ["</script>"] * 3}).encode(),
        "turned \u202e round \u2066 and ]]> --> {{ 7 * 7 }}".encode(),
        bytes(range(256)) * 4,
        b"\x00\x00\x00\x00\x01no such schema",
        b"[" * 50_000,
        b"x" * 900_000,
        b"",
        None,
    ]
    writer = cluster.writer()
    keys = (HOSTILE.encode(), b"\xff\xfe\x00<b>", None)
    for number, value in enumerate(values):
        writer.append(
            [NewRecord(topic, keys[number % 3], value, partition=0, headers=many if number == 1 else ())]
        )
    writer.close()
    cluster.publish_group(group, Positions.of([(topic, 0, 2)]))

    address = f"{hub_server}/topics/{topic}"
    wait_until(
        lambda: httpx2.get(address, headers={"accept": "text/html"}, timeout=30).status_code == 200, 60.0
    )
    page = open_page(address)
    messages = page.get_by_test_id("message")
    expect(messages).to_have_count(len(values))
    for each in messages.all():
        each.locator("summary").click()
    inside = page.locator("[data-testid=message] :is(script, img, b, iframe)")
    expect(inside).to_have_count(0)
    text = page.get_by_test_id("messages").inner_text()
    assert HOSTILE in text and "{{ 7 * 7 }}" in text and "250 headers more" in text
    assert len(page.content()) < 400_000  # a record of 900 kB is cut, and marked as cut
    expect(page.get_by_test_id("cut").first).to_be_visible()
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert (over, page.title().startswith(topic)) == (0, True)
    assert Axe().run(page).violations_count == 0

    page.goto(f"{hub_server}/lag?prefix={topic}")
    row = page.locator("#readers tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(group)
    expect(page.locator("#readers img, #readers script")).to_have_count(0)
    page.goto(f"{hub_server}/lineage?of=topic:{topic}")
    expect(page.locator("main")).to_contain_text(topic)
    expect(page.locator("main :is(img, script)")).to_have_count(0)
    assert page.title() != "owned"
    cluster.delete_topic(topic)
