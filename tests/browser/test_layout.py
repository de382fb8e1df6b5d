"""Values, links with underscores, names in boxes and durations are distinguishable on the pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.conftest import Opener
from browser.staged_estate import StagedEstate, estate, lag_row
from browser.staged_hub import SOURCES, VIEW, served
from playwright.sync_api import expect

LONG = "checkout.regional.orders_of_customers_v2"  # 40 characters
PATHS = (
    "/",
    "/views",
    f"/views/{VIEW}",
    "/lineage",
    "/lag",
    "/cluster",
    "/latency",
    "/mirrors",
    "/alerts",
    "/topics",
)

# Groups of facts in which two values are nearer than eight pixels, by their text.
TOUCHING = """() => [...document.querySelectorAll('.facts')].flatMap(facts => {
  const values = [...facts.querySelectorAll('dd')].map(dd => {
    const range = document.createRange(); range.selectNodeContents(dd);
    return [dd.textContent.trim().replace(/\\s+/g, ' '), range.getBoundingClientRect()];
  });
  return values.flatMap(([one, a], i) => values.slice(i + 1)
    .filter(([, b]) => a.right + 8 > b.left && b.right + 8 > a.left && a.bottom > b.top && b.bottom > a.top)
    .map(([other]) => `${one} | ${other}`));
})"""
# Underlined links with an underscore, whose line is less than a pixel below it.
HIDDEN = """() => [...document.querySelectorAll('main a')].filter(a => {
  const style = getComputedStyle(a);
  if (!a.textContent.includes('_') || !style.textDecorationLine.includes('underline')) return false;
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  return parseFloat(style.textUnderlineOffset) < pen.measureText('_').actualBoundingBoxDescent + 1;
}).map(a => a.textContent.trim())"""
# Names in the picture that leave their box.
OUTSIDE = """() => [...document.querySelectorAll('.graph .box')].filter(box => {
  const frame = box.querySelector('rect').getBBox();
  return [...box.querySelectorAll('text')].some(text => {
    const words = text.getBBox();
    return words.x < frame.x + 4 || words.x + words.width > frame.x + frame.width - 4;
  });
}).map(box => box.textContent)"""


@pytest.fixture(scope="module")
def site() -> Iterator[StagedEstate]:
    """A view whose last batch took six minutes, with a subscriber; a group with a long name;
    a broker away."""
    hub = estate()
    hub.commit(VIEW, list(SOURCES.values()), input_rows=1_204_331, batch_ms=372_220)
    hub.views.open[VIEW] = 1
    hub.rows.append(lag_row(LONG, "shop.orders", "BEHIND"))
    with served(hub.app()) as url:
        hub.url = url
        yield hub
    assert hub.node is not None
    hub.node.stop()


@pytest.mark.parametrize("width", [1280, 900, 375])
def test_values_do_not_touch_and_links_do_not_hide_underscores(
    site: StagedEstate, open_page: Opener, width: int
) -> None:
    page = open_page(site.url + PATHS[0], width=width, allow_trouble=True)
    wrong = {}
    for path in PATHS:
        page.goto(site.url + path)
        expect(page.locator("h1")).to_have_count(1)
        found = {"touching": page.evaluate(TOUCHING), "hidden": page.evaluate(HIDDEN)}
        wrong |= {f"{path} {kind}": texts for kind, texts in found.items() if texts}
    assert wrong == {}


def test_a_long_duration_is_in_minutes_and_seconds(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(site.url)
    expect(page.get_by_test_id(f"view-{VIEW}")).to_contain_text("6 min 12 s")
    for path in ("/views", f"/views/{VIEW}"):
        page.goto(site.url + path)
        expect(page.locator("main")).to_contain_text("6 min 12 s")
        expect(page.locator("main")).not_to_contain_text("372\u202f220")


def test_a_name_in_the_lineage_is_whole_and_within_its_box(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/lineage")
    expect(page.locator(".graph .name", has_text=LONG)).to_be_visible()
    assert page.evaluate(OUTSIDE) == []


def test_brokers_that_are_away_are_named_apart_from_their_number(
    site: StagedEstate, open_page: Opener
) -> None:
    page = open_page(f"{site.url}/cluster")
    away = page.get_by_test_id("counts").locator("div", has_text="Brokers unreachable")
    expect(away).to_contain_text("1 broker 3")


def test_lists_and_paragraphs_of_the_documentation_can_be_told_apart(
    site: StagedEstate, open_page: Opener
) -> None:
    page = open_page(f"{site.url}/help/explanation/how-lag-is-measured")
    styles = "all => all.map(each => getComputedStyle(each).listStyleType)"
    assert set(page.locator(".help-page ol").evaluate_all(styles)) == {"decimal"}
    assert set(page.locator(".help-page ul").evaluate_all(styles)) == {"disc"}
    first, second = (page.locator(".help-page p").nth(n).bounding_box() for n in (1, 2))
    assert first is not None and second is not None
    assert second["y"] - (first["y"] + first["height"]) >= 8
