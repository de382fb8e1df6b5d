"""The form of a message in a real Chromium: fields of the schema, refusal, command, write, send again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.conftest import Opener
from browser.staged_estate import ORDERS, StagedEstate, served_estate
from playwright.sync_api import expect


@pytest.fixture
def site() -> Iterator[StagedEstate]:
    with served_estate() as hub:
        yield hub


def test_a_message_is_written_from_fields_by_keyboard(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics/{ORDERS}", width=390)
    page.get_by_role("link", name="Produce a message").click()
    page.get_by_label("order_id").fill("o-9")
    page.get_by_label("customer_id").fill("C-1")
    page.get_by_label("amount_cents").fill("100")
    page.get_by_label("Headers").fill("source: console")
    page.get_by_test_id("as-command").click()
    expect(page.get_by_test_id("command")).to_contain_text("amount_cents")
    assert site.gateway.written == [] and page.get_by_label("order_id").input_value() == "o-9"
    page.get_by_label("amount_cents").press("Enter")
    expect(page.get_by_test_id("sent")).to_contain_text("partition 0 at offset 0")
    ((topic, record),) = site.gateway.written
    assert topic == ORDERS and record["value"]["data"] == {
        "order_id": "o-9", "customer_id": "C-1", "amount_cents": 100,
    }  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_message_is_sent_again_as_json(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics/{ORDERS}?partition=0&from=0&limit=1")
    page.get_by_test_id("message").first.locator("summary").click()
    page.get_by_role("link", name="send it again").first.click()
    assert "order_id" in page.get_by_label("Value as JSON").input_value()
    page.get_by_test_id("write").click()
    expect(page.get_by_test_id("sent")).to_be_visible()
    ((_, record),) = site.gateway.written
    assert "order_id" in record["value"]["data"] and record["partition_id"] == 0
