"""The operations of a mirror in a real Chromium: from the page of mirrors to the plan, its confirmation, and
back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.conftest import Opener
from browser.staged_estate import StagedEstate, served_estate
from playwright.sync_api import expect


@pytest.fixture
def site() -> Iterator[StagedEstate]:
    with served_estate() as hub:
        yield hub


def test_an_operation_is_planned_confirmed_and_done(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/mirrors")
    card = page.get_by_test_id("mirror-nyc-lon")
    card.get_by_test_id("actions").get_by_role("link", name="Fail over").click()
    expect(page.locator("h1")).to_have_text("Fail over: nyc-lon")
    expect(page.get_by_test_id("plan-effects")).to_contain_text("Lost: 7 offsets")
    page.get_by_role("textbox", name="Topics").fill("nyc.a, nyc.b")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_test_id("plan-topics").locator("li")).to_have_count(2)
    expect(page.get_by_test_id("command")).to_have_text(
        "hub mirror failover nyc-lon --topic nyc.a --topic nyc.b"
    )
    page.get_by_test_id("confirm").click()  # without the name the browser itself refuses
    assert site.mirror_operations.done == []
    page.get_by_label("Type nyc-lon to confirm").fill("nyc-lon")
    page.get_by_label("Who").fill("ana")
    page.get_by_test_id("confirm").click()
    page.wait_for_url(f"{site.url}/mirrors")
    ((request, by, _),) = site.mirror_operations.done
    assert (request.action, request.topics, by) == ("failover", ("nyc.a", "nyc.b"), "ana")


def test_a_plan_is_left_without_a_change(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/mirrors/nyc-lon/pause")
    expect(page.get_by_test_id("confirm")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url(f"{site.url}/mirrors")
    assert site.mirror_operations.done == []


def test_the_map_of_regions_leads_to_the_topics_of_a_mirror(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/mirrors")
    page.get_by_role("link", name="Map of regions").click()
    expect(page.locator("h1")).to_have_text("Map of regions")
    expect(page.get_by_test_id("region")).to_have_count(3)
    rows = page.get_by_test_id("links").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("1 offset")
    expect(rows.nth(0)).to_contain_text("failed")
    expect(rows.nth(1)).to_contain_text("cluster tyo does not answer")
    expect(rows.nth(1)).not_to_contain_text("offset")  # unknown, never 0
    arrow = page.get_by_role("link", name="nyc to lon: 12/s · 0.40 s")
    arrow.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/mirrors#topics-nyc-lon")
    topics = page.get_by_role("region", name="Topics of nyc-lon")
    expect(topics).to_be_visible()
    expect(topics).to_be_in_viewport()
