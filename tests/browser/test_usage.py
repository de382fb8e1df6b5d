"""The page Usage in a real Chromium: from the navigation, everybody's use and one's own, wide and narrow,
dark and light, without violations of accessibility rules; and without quotas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.signing_in import signed_in
from browser.staged_hub import served
from pipeline import wait_until
from playwright.sync_api import Browser, expect
from sql_cases import fill

from hub.access.secrets import hash_of_password
from hub.api import app as app_module
from hub.api.app import create_app
from hub.config import Settings
from hub.materializers.stores.sql_store import Store

PASSWORD = "correct horse"
FILE = f"""\
contact: "#data-platform"
users:
  root:
    password: "{hash_of_password(PASSWORD, b"1" * 16)}"
    grants: [{{role: admin, views: ["**"], hub: true}}]
  ana: {{password: "{hash_of_password(PASSWORD, b"2" * 16)}", grants: [{{role: read, views: ["**"]}}]}}
"""
QUOTAS = """\
quotas:
  refusal_delay_ms: 0
  users: {ana: {queries_per_s: 0.01, subscriptions: 5}}
  tenants: {greenhouse: {views: [plant], queries_per_s: 1000}}
"""


@dataclass(frozen=True)
class Site:
    url: str
    folder: Path

    def write(self, text: str) -> None:
        draft = self.folder / "access.draft"
        draft.write_text(text)
        draft.rename(self.folder / "access.yaml")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("usage")
    (folder / "home").mkdir()
    (folder / "access.yaml").write_text(FILE + QUOTAS)
    settings = Settings(
        project=folder,
        home=folder / "home",
        bootstrap="127.0.0.1:1",
        kafka_timeout_s=0.2,
        http_port=1,
        access_log=False,  # it refuses changes while Kafka is away
    )
    store = Store(settings.store)
    fill(store)
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "REGISTRY_WAIT_S", 0.1)
        with served(create_app(settings)) as address:
            for _ in range(4):
                httpx2.get(f"{address}/views/plant/p0", auth=("ana", PASSWORD), timeout=60)
            yield Site(address, folder)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_everybodys_use_is_shown_refused_ones_first(
    chromium: Browser, site: Site, width: int, scheme: str
) -> None:
    page = signed_in(chromium, f"{site.url}/sign-in", "root", PASSWORD, width, scheme)
    if width > 1000:
        page.get_by_role("navigation").get_by_role("link", name="Usage").click()
    else:
        page.goto(f"{site.url}/usage")
    expect(page).to_have_url(f"{site.url}/usage")
    rows = page.get_by_test_id("usage").locator("tbody tr")
    expect(rows.first).to_contain_text("ana")
    queries = page.get_by_test_id("usage-user-ana-queries_per_s")
    for words in ("refused", "0.01", "3", "quotas.users.ana.queries_per_s"):
        expect(queries).to_contain_text(words)
    tenant = page.get_by_test_id("usage-tenant-greenhouse-queries_per_s")
    expect(tenant).to_contain_text("within")
    expect(tenant).to_contain_text("1000")
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over == 0
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()
    page.context.close()


def test_others_see_their_own_use_and_whom_to_ask(chromium: Browser, site: Site) -> None:
    page = signed_in(chromium, f"{site.url}/sign-in", "ana", PASSWORD)
    page.goto(f"{site.url}/usage")
    expect(page.get_by_test_id("total")).to_contain_text("your use")
    expect(page.get_by_test_id("usage-user-ana-queries_per_s")).to_be_visible()
    expect(page.locator("main")).to_contain_text("#data-platform")
    text = page.get_by_test_id("usage").inner_text()
    assert "root" not in text and "greenhouse" not in text
    page.context.close()


def test_without_quotas_the_page_says_how_to_set_them(chromium: Browser, site: Site) -> None:
    site.write(FILE)
    try:
        page = signed_in(chromium, f"{site.url}/sign-in", "root", PASSWORD)

        def empty() -> bool:
            page.goto(f"{site.url}/usage")
            return page.get_by_test_id("no-quotas").count() == 1

        wait_until(empty, 30.0)
        expect(page.locator("main")).to_contain_text("share-a-hub.md")
        page.context.close()
    finally:
        site.write(FILE + QUOTAS)
