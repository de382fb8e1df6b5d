"""The reset of a group's positions in a real Chromium: from the page of lag to the plan, by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.conftest import Opener
from browser.staged_estate import ORDERS, StagedEstate, served_estate
from playwright.sync_api import expect

from hub.record import TopicPartition


@pytest.fixture
def site() -> Iterator[StagedEstate]:
    with served_estate() as hub:
        hub.cluster.committed["billing"] = {TopicPartition(ORDERS, 0): 3, TopicPartition(ORDERS, 1): 0}
        yield hub


def test_a_reset_is_planned_and_confirmed_by_keyboard(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/lag?name=billing", width=390)
    page.get_by_role("link", name="positions").first.click()
    expect(page.locator("h1")).to_have_text("billing")
    page.get_by_label("Move to").fill("earliest")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("effect")).to_contain_text("Read again: 3 offsets")
    assert site.cluster.committed["billing"][TopicPartition(ORDERS, 0)] == 3
    expect(page.get_by_test_id("command")).to_have_text("hub group reset billing --to earliest")
    page.get_by_test_id("confirm").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/groups/billing/offsets?done=1")
    assert set(site.cluster.committed["billing"].values()) == {0}
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_group_with_members_shows_the_way_out(site: StagedEstate, open_page: Opener) -> None:
    site.members["billing"] = ("app-1", "<b>app-2</b>")
    page = open_page(f"{site.url}/groups/billing/offsets?to=latest")
    expect(page.get_by_test_id("members")).to_contain_text("2 members now: <b>app-2</b>, app-1. Stop them")
    expect(page.get_by_test_id("confirm")).to_have_count(0)
