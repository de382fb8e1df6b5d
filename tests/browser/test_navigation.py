"""The frame of every page in a real Chromium: the navigation in its column or in a drawer, breadcrumbs, the
search with suggestions, the badge of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_estate import ORDERS, StagedEstate, served_estate
from browser.staged_hub import VIEW
from playwright.sync_api import Page, expect

from hub.observability.web.page import Site, show_site


@pytest.fixture(scope="module")
def site() -> Iterator[StagedEstate]:
    with served_estate() as hub:
        yield hub


@pytest.fixture
def production() -> Iterator[None]:
    show_site(Site("production", "red"))
    yield
    show_site(Site())


def wrong(page: Page) -> str:
    """Return what is wrong with the page's width or accessibility; empty if nothing is."""
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    found = Axe().run(page)
    return f"{over} px too wide" if over else found.generate_report() if found.violations_count else ""


@pytest.mark.parametrize("width", [390, 768])
def test_a_button_opens_the_navigation_where_it_has_no_room(
    site: StagedEstate, open_page: Opener, width: int
) -> None:
    page = open_page(f"{site.url}/topics", width=width)
    menu, pages = page.locator("#menu"), page.get_by_role("navigation", name="Pages")
    expect(pages).to_be_hidden()
    expect(menu).to_have_attribute("aria-expanded", "false")
    menu.focus()
    page.keyboard.press("Enter")
    expect(pages).to_be_visible()
    expect(menu).to_have_attribute("aria-expanded", "true")
    expect(page.locator("[aria-current=page]")).to_be_focused()
    assert wrong(page) == ""
    outside = (
        "!['BODY', 'HTML'].includes(document.activeElement.tagName)"
        " && !document.activeElement.closest('#drawer')"
    )
    for _ in range(25):
        page.keyboard.press("Tab")
        assert not page.evaluate(outside)
    page.keyboard.press("Escape")
    expect(pages).to_be_hidden()
    expect(menu).to_be_focused()
    expect(menu).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    pages.get_by_role("link", name="Schemas").click()
    expect(page).to_have_url(f"{site.url}/schemas")
    expect(pages).to_be_hidden()


def test_a_hidden_navigation_stays_hidden_until_it_is_shown(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics", width=1280)
    menu, pages = page.locator("#menu"), page.get_by_role("navigation", name="Pages")
    expect(pages).to_be_visible()
    expect(menu).to_have_attribute("aria-expanded", "true")
    menu.click()
    expect(pages).to_be_hidden()
    page.goto(f"{site.url}/lag")
    expect(pages).to_be_hidden()
    expect(menu).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(f"{site.url}/topics")
    menu.click()
    page.reload()
    expect(pages).to_be_visible()


def test_breadcrumbs_lead_up(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics/{ORDERS}")
    crumbs = page.get_by_role("navigation", name="Breadcrumbs")
    expect(crumbs.get_by_role("listitem")).to_have_text(["Topics", "shop", "orders"])
    crumbs.get_by_role("link", name="shop").click()
    expect(page).to_have_url(f"{site.url}/topics?under=shop")
    expect(crumbs.get_by_role("listitem")).to_have_text(["Topics", "shop"])
    crumbs.get_by_role("link", name="Topics").click()
    expect(crumbs).to_have_count(0)
    page.goto(f"{site.url}/views/{VIEW}")
    expect(crumbs.get_by_role("listitem")).to_have_text(["Views", VIEW])


def test_the_search_suggests_pages_and_objects(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/lag")
    find = page.get_by_role("combobox", name="Search")
    options = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    page.keyboard.press("Control+k")
    expect(find).to_be_focused()
    page.keyboard.type("orders")
    expect(options.filter(has_text=re.compile(rf"^{re.escape(ORDERS)}topic$"))).to_have_count(1)
    expect(options.filter(has_text="orders-to-searchconnector")).to_have_count(1)
    expect(find).to_have_attribute("aria-expanded", "true")
    assert wrong(page) == ""
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    for words, kind, address in (
        ("latency", "page", "/latency"),
        (VIEW, "view", f"/views/{VIEW}"),
        ("nyc-lon", "mirror", "/mirrors"),
    ):
        find.fill(words)
        expect(options.first).to_have_text(re.compile(f"{kind}$"))
        page.keyboard.press("ArrowDown")
        expect(options.first).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
        expect(page).to_have_url(site.url + address)
        page.keyboard.press("/")
    page.keyboard.type("cross <b>")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/search\?q=cross"))


@pytest.mark.usefixtures("production")
def test_the_environment_is_named_on_every_page(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(site.url, allow_trouble=True)  # 404 stands in the console
    for path in ("/", "/topics", "/help", "/cluster", "/no/such/page"):
        page.goto(site.url + path)
        expect(page.get_by_test_id("environment"), path).to_have_text("Environment: production")
        assert page.title().startswith("production · "), path
        assert page.get_by_test_id("environment").get_attribute("data-color") == "red"
    page.set_viewport_size({"width": 390, "height": 800})
    assert wrong(page) == ""
