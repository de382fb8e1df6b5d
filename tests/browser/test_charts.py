"""Charts in a real Chromium: known values and gaps, the cursor by pointer and keys, the numbers, ranges in
the address, new points by themselves, wide and narrow, dark and light, without violations of accessibility
rules."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_estate import ORDERS, StagedEstate, estate
from browser.staged_hub import VIEW, served
from browser.staged_series import GAP, STEP_MS, STEPS, TOPIC, in_rate, staged_series
from playwright.sync_api import Locator, Page, expect

from hub.observability.series.database import SeriesDatabase
from hub.observability.series.reading import SeriesReader
from hub.observability.series.recorder import FILE
from hub.observability.series.sampling import Sample

RATES = "chart-in_per_s-out_per_s"


@pytest.fixture(scope="module")
def now_ms() -> int:
    return int(time.time() * 1000) // STEP_MS * STEP_MS + 1_234


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, now_ms: int) -> SeriesReader:
    return staged_series(tmp_path_factory.mktemp("series"), now_ms)


@pytest.fixture(scope="module")
def staged(reader: SeriesReader) -> Iterator[StagedEstate]:
    staged = estate()
    staged.series, staged.has_charts = reader, True
    with served(staged.app()) as url:
        staged.url = url
        yield staged


def chart(page: Page, name: str = RATES) -> Locator:
    return page.get_by_test_id(name)


def point_at(page: Page, step: int) -> None:
    """Move the pointer to a step of the hour."""
    box = chart(page).locator(".canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * (step + 0.5) / STEPS, box["y"] + 40)


def test_a_chart_shows_known_values_and_a_gap(staged: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{staged.url}/topics/{ORDERS}")
    expect(chart(page).locator(".traces li").first).to_contain_text(f"in {in_rate(STEPS - 1):.0f}/s")
    chart(page).scroll_into_view_if_needed()
    point_at(page, 100)
    expect(chart(page).get_by_test_id("readout")).to_contain_text("in 250/s · out, all readers 225/s")
    point_at(page, GAP[3])
    expect(chart(page).get_by_test_id("readout")).to_contain_text("in not known · out, all readers not known")
    gap = chart(page).locator("rect.gap")
    expect(gap).to_have_count(1)
    plot, shaded = chart(page).locator(".canvas").bounding_box(), gap.bounding_box()
    assert plot is not None and shaded is not None
    assert shaded["x"] - plot["x"] == pytest.approx(plot["width"] * GAP[0] / STEPS, abs=1.5)
    assert shaded["width"] == pytest.approx(plot["width"] * len(GAP) / STEPS, abs=1.5)
    # The line is interrupted there, and drawn through the peak.
    path = chart(page).locator("path.trace").first.get_attribute("d") or ""
    assert path.count("M") == 2
    lag = chart(page, "chart-lag_s")
    expect(lag.get_by_test_id("readout")).to_contain_text("lag not known")  # one time in all charts
    point_at(page, 0)
    expect(lag.get_by_test_id("readout")).to_contain_text("lag 1 s ± 0.4 s")
    page.mouse.move(2, 2)
    expect(lag.get_by_test_id("readout")).to_have_text("")


def test_the_cursor_moves_by_keys_and_says_where_it_is(staged: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{staged.url}/topics/{ORDERS}")
    plot = chart(page).get_by_role("slider")
    plot.focus()
    page.keyboard.press("Home")
    expect(plot).to_have_attribute("aria-valuenow", "1")
    for _ in range(100):
        page.keyboard.press("ArrowRight")
    expect(plot).to_have_attribute("aria-valuenow", "101")
    expect(plot).to_have_attribute("aria-valuetext", containing("in 250/s"))
    page.keyboard.press("End")
    expect(plot).to_have_attribute("aria-valuenow", str(STEPS))
    page.keyboard.press("Escape")
    expect(chart(page).get_by_test_id("readout")).to_have_text("")


def containing(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def test_the_same_numbers_are_a_table(staged: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{staged.url}/topics/{ORDERS}")
    page.get_by_text("Show numbers").click()
    table = page.get_by_test_id("numbers")
    expect(table.locator("tbody tr")).to_have_count(STEPS - len(GAP))
    expect(table.locator("thead th").nth(1)).to_have_text("in")
    expect(table.get_by_text("250/s")).to_be_visible()


def test_the_range_is_in_the_address_and_events_are_marked(staged: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{staged.url}/views/{VIEW}")
    expect(page.get_by_test_id("marks").locator("li")).to_have_text(
        [containing("server started"), containing(f"version 2 of {VIEW} was swapped in")]
    )
    expect(chart(page, "chart-lag_s").locator(".happened")).to_have_count(2)
    page.get_by_test_id("ranges").get_by_role("link", name="6 h").click()
    page.wait_for_url(f"{staged.url}/views/{VIEW}?range=6h#charts")
    expect(page.get_by_test_id("ranges").locator("[aria-current]")).to_have_text("6 h")
    plot = chart(page, "chart-lag_s").get_by_role("slider")
    expect(plot).to_have_attribute("aria-valuemax", "720")
    page.goto(f"{staged.url}/views/{VIEW}?range=1y")
    expect(page.get_by_test_id("trouble")).to_contain_text('range "1y" is unknown')


def test_a_new_point_comes_by_itself_and_the_cursor_stays(
    staged: StagedEstate, open_page: Opener, reader: SeriesReader, now_ms: int
) -> None:
    page = open_page(f"{staged.url}/topics/{ORDERS}?range=15m")
    newest = chart(page).locator(".traces b").first
    expect(newest).to_have_text(f"{in_rate(STEPS - 1):.0f}/s")
    chart(page).get_by_role("slider").focus()
    page.keyboard.press("Home")
    said = chart(page).get_by_test_id("readout").text_content()
    with closing(SeriesDatabase(reader.folder / FILE)) as database:
        database.add([Sample(TOPIC, "in_per_s", now_ms, 5_000.0)] * 3)
    expect(newest).not_to_have_text(f"{in_rate(STEPS - 1):.0f}/s")
    expect(newest).to_have_text(containing("k/s"))
    assert said and chart(page).get_by_test_id("readout").text_content() == said


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_keep_the_rules_of_accessibility_and_fit(
    staged: StagedEstate, open_page: Opener, width: int, scheme: str, tmp_path: Path
) -> None:
    page = open_page(f"{staged.url}/cluster", width=width, color_scheme=scheme)
    expect(chart(page, "chart-cpu_percent").locator(".traces li")).to_have_count(2)
    result = Axe().run(page, context="#charts")
    assert result.violations_count == 0, result.generate_report()
    for path in ("/", "/lag?name=billing", f"/views/{VIEW}", "/mirrors", "/cluster"):
        page.goto(f"{staged.url}{path}")
        expect(page.locator("#charts .graph").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
