"""A real server with access.yaml over a real Kafka in a real Chromium, for a user with access to a part of
the tree: each page shows only that part or names the missing grant; by keys, wide and narrow, dark and
light, without violations of accessibility rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.signing_in import signed_in
from pipeline import wait_until
from playwright.sync_api import Browser, Page, expect
from ports import free_ports
from processes import Server

from hub.access.secrets import hash_of_password
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions
from hub.schema_registry.client.registry_client import RegistryClient

PASSWORD = "correct horse"
FILE = f"""\
contact: "#data-platform"
users:
  ana: {{password: "{hash_of_password(PASSWORD, b"0" * 16)}", grants: [{{role: read, topics: ["seen.**"]}}]}}
  nil: {{password: "{hash_of_password(PASSWORD, b"2" * 16)}", grants: [{{role: read, topics: ["nothing.like.it"]}}]}}
  root: {{password: "{hash_of_password(PASSWORD, b"1" * 16)}", grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]}}
"""  # noqa: E501
SEEN, HIDDEN = "seen.orders", "hidden.salaries"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
# What ana may open, and what of it is hers; the rest is refused, with the grant that it takes.
OPEN = {
    "/": "events",
    "/topics": SEEN,
    f"/topics/{SEEN}": "Messages",
    f"/topics/{SEEN}/settings": "retention.ms",
    "/schemas": f"{SEEN}-value",
    f"/schemas/{SEEN}-value": "customer",
    "/views": "hub access check",
    "/lag": "seen-readers",
    "/latency": "hub access check",
    f"/lineage?of=topic:{SEEN}": "seen-readers",
    "/completeness": "never audited",
    "/alerts": "Alerts",
    "/usage": "No quotas are set",
    "/alerts/runbooks/lag": "later than promised",
    "/query": "Query",
    "/search?q=orders": SEEN,
}
REFUSED = {
    "/cluster": "hub: true",
    "/connect": "hub: true",
    "/sinks": "hub: true",
    "/mirrors": "hub: true",
    "/regions": "hub: true",
    f"/topics/{HIDDEN}": HIDDEN,
    f"/topics/{HIDDEN}/settings": HIDDEN,
    f"/schemas/{HIDDEN}-value": HIDDEN,
    "/views/hidden_view": "hidden_view",
}
NAMES = (HIDDEN, "hidden-readers", "Salary")


@dataclass(frozen=True)
class Site:
    url: str
    cluster: KafkaCluster


@pytest.fixture(scope="module")
def site(settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("restricted")
    (folder / "access.yaml").write_text(FILE)
    told = {"project": folder, "home": folder / "home", "http_port": free_ports(1)[0], "lag_sample_s": 0.5}
    own = settings.model_copy(update={**told, "registry_url": None, "store_url": None})
    url = own.url
    cluster = KafkaCluster(kafka, 15.0)
    for topic, group in ((SEEN, "seen-readers"), (HIDDEN, "hidden-readers")):
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
        writer = cluster.writer()
        writer.append([NewRecord(topic, b"k", b'{"customer": "C-1"}', partition=0)] * 20)
        writer.close()
        cluster.publish_group(group, Positions.of([(topic, 0, 5)]))
    server = Server(own)
    try:
        server.start()
        registry = RegistryClient(url.replace("//", f"//root:{PASSWORD}@".replace(" ", "%20")))
        registry.register(f"{SEEN}-value", json.dumps(ORDER))
        registry.register(f"{HIDDEN}-value", json.dumps({**ORDER, "name": "Salary"}))

        def measured() -> bool:
            rows = httpx2.get(f"{url}/api/lag", auth=("root", PASSWORD), timeout=30).json()
            return {"seen-readers", "hidden-readers"} <= {row["name"] for row in rows}

        wait_until(measured, 60.0)
        yield Site(url, cluster)
    finally:
        server.stop(10.0)
        for topic in (SEEN, HIDDEN):
            cluster.delete_topic(topic)


def judged(page: Page, path: str) -> list[str]:
    """Return the defects in the presentation of a page."""
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    found = Axe().run(page)
    wrong = [f"{path}: {over} px too wide"] if over else []
    wrong += [f"{path}: {found.generate_report()}"] if found.violations_count else []
    wrong += [f"{path}: no heading of its own"] if page.locator("h1").count() != 1 else []
    return wrong


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_each_page_shows_what_is_granted_or_says_which_grant_it_takes(
    chromium: Browser, site: Site, width: int, scheme: str
) -> None:
    page = signed_in(chromium, site.url, "ana", PASSWORD, width, scheme)
    wrong = []
    for path, words in OPEN.items():
        answer = page.goto(site.url + path)
        assert answer is not None and answer.status == 200, path
        if path == f"/topics/{SEEN}":
            expect(page.get_by_test_id("message").first).to_be_visible()
        expect(page.locator("main"), path).to_contain_text(words)
        text = page.content()
        assert not [name for name in NAMES if name in text], path
        wrong += judged(page, path)
    for path, words in REFUSED.items():
        answer = page.goto(site.url + path)
        assert answer is not None and answer.status == 403, path
        # A subject is distinguished from a program's address: there it is an error within the frame.
        refused = page.locator("[data-testid=refused], [data-testid=error]")
        expect(refused).to_contain_text("You have no access to this")
        expect(refused).to_contain_text(words)
        expect(refused).to_contain_text("#data-platform")
        expect(page.get_by_test_id("who")).to_have_text("ana")
        wrong += judged(page, path)
    assert wrong == []
    page.context.close()


def test_who_sees_nothing_is_told_that_it_may_be_for_want_of_grants(chromium: Browser, site: Site) -> None:
    page = signed_in(chromium, site.url, "nil", PASSWORD)
    for path in ("/topics", "/views", "/lag", "/latency", "/completeness", "/schemas"):
        page.goto(site.url + path)
        expect(page.get_by_test_id("left-out"), path).to_contain_text("without a grant for nil")
        text = page.content()
        assert not [name for name in (*NAMES, SEEN) if name in text], path
    page.context.close()


def test_from_a_page_that_is_refused_keys_lead_on(chromium: Browser, site: Site) -> None:
    page = signed_in(chromium, site.url, "ana", PASSWORD)
    page.goto(f"{site.url}/topics")
    expect(page.locator("[data-go]").first).to_be_attached()
    for address in ("/mirrors", "/cluster", "/connect", "/sinks"):  # nothing leads to where it is refused
        expect(page.locator(f"a[href='{address}']")).to_have_count(0)
    page.goto(f"{site.url}/mirrors")
    expect(page.get_by_test_id("refused")).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "/topics":
            break
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/topics")
    expect(page.locator("main")).to_contain_text(SEEN)
    page.context.close()
