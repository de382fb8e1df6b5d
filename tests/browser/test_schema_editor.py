"""The editor of a schema in a real Chromium: from the subject's page to a new version."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from browser.conftest import Opener
from browser.staged_estate import ORDERS, StagedEstate, served_estate
from playwright.sync_api import expect

SUBJECT = f"{ORDERS}-value"


@pytest.fixture
def site() -> Iterator[StagedEstate]:
    with served_estate() as hub:
        yield hub


def test_a_draft_becomes_a_version_after_its_check(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/schemas/{SUBJECT}", width=390)
    page.get_by_role("link", name="New version").click()
    draft = page.get_by_label("Schema", exact=True)
    schema = json.loads(draft.input_value())
    schema["fields"].append({"name": "country", "type": "string"})
    draft.fill(json.dumps(schema))
    page.get_by_test_id("check").click()
    expect(page.get_by_test_id("refusals")).to_contain_text("country")
    expect(page.get_by_test_id("register")).to_have_count(0)
    schema["fields"][-1]["default"] = "NO"
    draft.fill(json.dumps(schema))
    page.get_by_test_id("check").click()
    expect(page.get_by_test_id("changes")).to_contain_text("country")
    expect(page.get_by_test_id("affected")).to_contain_text("billing")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_test_id("register").click()
    expect(page.get_by_test_id("registered")).to_contain_text("version 3")
