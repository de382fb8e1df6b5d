"""The pages other than the overview in a real Chromium: read, filtered, driven by keys, watched live, with
harmless hostile bytes.

One server and one browser for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_estate import HOSTILE, LATE, ORDERS, StagedEstate, estate, late
from browser.staged_hub import VIEW, served, visit
from browser.staged_ledger import StagedLedger
from history_contract import declare
from playwright.sync_api import expect

from hub.alerts.model.alert_state import AlertingState
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http.routes import create_router as query_routes
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.history.answering import RowsOfThePast
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.observability.web.pages.estate import LakeTableLine, NodeSchemas
from hub.record import Positions
from hub.times import epoch_ms, iso
from hub.topics.browse.bounded_read import FoundMessages, MessageQuery

NOW_MS = epoch_ms()


def moment(step: int) -> str:
    """Return a time some minutes ago."""
    return iso(NOW_MS - 600_000 + step * 1_000)


PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": f"/topics/{ORDERS}",
    "schemas": "/schemas?q=order",
    "subject": f"/schemas/{ORDERS}-value",
    "views": "/views",
    "view": f"/views/{VIEW}?key=C-1003",
    "history of a row": f"/views/{VIEW}?key=H-1&as_of={moment(5)}",
    "history of no row": f"/views/{VIEW}?key=none&as_of=2020-01-01T00:00:00Z",
    "view with a search": f"/views/{VIEW}?q=ada+oslo",
    "view with a wrong search": f"/views/{VIEW}?q=-ada",
    "lag": "/lag",
    "lineage": f"/lineage?of=view:{VIEW}",
    "completeness": f"/completeness?topic={ORDERS}",
    "completeness of a day": "/completeness?range=24h&order=tree",
    "alerts": "/alerts?silence=topic%3Dshop.**",
    "runbook": "/alerts/runbooks/lag",
    "mirrors": "/mirrors",
    "map of regions": "/regions",
    "plan of a failover": "/mirrors/nyc-lon/failover?topic=nyc.chat",
    "plan of a reset": "/groups/billing/offsets?to=earliest&topic=shop.orders",
    "editor of a schema": "/schema-editor/shop.orders-value",
    "form of a message": "/topics/shop.orders/produce",
    "connect": "/connect",
    "connector": "/connect/orders-search?do=restart-failed",
    "latency": "/latency",
    "cluster": "/cluster",
    "settings": f"/topics/{ORDERS}/settings",
    "query": "/query",
    "workbench": "/workbench",
    "search": "/search?q=order",
    "not found": "/topics/no.such.topic",
    "help": "/help",
    "help page": "/help/how-to/test-a-view",
    "no help": "/help/no-such-page",
}
PEOPLE = {
    "type": "record",
    "name": "people",
    "fields": [{"name": "name", "type": ["null", "string"], "default": None}],
}


class Schemas(NodeSchemas):
    """Topics as tables ask for a subject's versions, too; the query of this test asks a view."""

    def versions(self, subject: str) -> list[object]:
        return []


def history_of_a_row(store: Store) -> RowsOfThePast:
    """Keep 23 versions of a row: the last is a delete, and the fourth has a hostile text."""
    declare(store, VIEW)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE hub_history_periods SET from_ms = from_ms - 1800000")
    versions = []
    for n in range(1, 24):
        values = None if n == 23 else {"city": HOSTILE if n == 4 else "Oslo", "n": n}
        sources = {"o": {"topic": ORDERS, "partition": 0, "offset": n - 1}}
        versions.append(RowVersion("H-1", n, 0, n, values, sources, NOW_MS - 600_000 + n * 1_000))
    reached = Positions.of([(f"views.{VIEW}", 0, 23)])
    progress = {"committed_at_ms": NOW_MS, "changelog": {"0": 23}, "sources": {}}
    store.apply([ViewBatch(VIEW, versions, reached, Positions())], {f"progress:{VIEW}": progress})
    return RowsOfThePast(store, dict, UnreadLog())


class UnreadLog:
    """A log that the page links to and does not read."""

    def find(self, wanted: MessageQuery) -> FoundMessages:
        raise AssertionError(wanted)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagedEstate]:
    folder: Path = tmp_path_factory.mktemp("web")
    hub = estate()
    store = Store(f"sqlite:///{folder / 'store.db'}")
    store.ensure_view("people", PEOPLE, [], "topic-1")
    rows = [
        RowVersion(f"P-{n}", n + 1, 0, n, {"name": HOSTILE if n == 1 else f"Person {n}"}) for n in range(3)
    ]
    reached = Positions.of([("views.people", 0, 3)])
    store.apply([ViewBatch("people", rows, reached, Positions.of([("web.visits", 0, 3)]))], {})
    queries = QueryExecutor(store)
    hub.history = history_of_a_row(store)
    app = hub.app()
    assert hub.node is not None
    topics = TopicTables(hub.cluster, Schemas(hub.node))  # type: ignore[arg-type]
    service = QueryService.of(store, Watcher(store), queries, topics, folder, 1_000)
    app.include_router(query_routes(service))
    with served(app) as url:
        hub.url = url
        yield hub
    queries.close()
    store.close()
    hub.node.stop()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "dark"), (375, "light"), (1280, "light"), (375, "dark")]
)
def test_every_page_fits_and_breaks_no_accessibility_rule(
    site: StagedEstate, open_page: Opener, width: int, scheme: str
) -> None:
    page = open_page(
        f"{site.url}/lag", width=width, allow_trouble=True, color_scheme=scheme, reduced_motion="reduce"
    )
    wrong = []
    for name, path in PAGES.items():
        page.goto(site.url + path)
        if name == "topic":
            expect(page.get_by_test_id("settings")).to_be_visible()
            for number in (0, 3, 4):
                page.get_by_test_id("message").nth(number).locator("summary").click()
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        outside = page.evaluate(
            """[...document.querySelectorAll('.sheet dd, .sheet p, .sheet h2')].filter(e => {
                 const range = document.createRange(); range.selectNodeContents(e);
                 const box = e.closest('.sheet').getBoundingClientRect(), words = range.getBoundingClientRect();
                 return !e.closest('.scroll') && words.width && words.right > box.right + 1;
               }).map(e => e.textContent.trim().slice(0, 60))"""  # noqa: E501
        )
        assert outside == [], f"{name}: outside of their box"
        found = Axe().run(page)
        if over or found.violations_count:
            wrong.append(f"{name}: {over} px too wide; {found.generate_report()}")
        assert page.locator("h1").count() == 1, name
    assert wrong == []


def test_rows_of_a_view_are_searched_without_scripts(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/views/{VIEW}", java_script_enabled=False)
    expect(page.get_by_test_id("search-rows")).to_have_count(0)
    page.get_by_test_id("search-words").fill('"ada lovelace"')
    page.get_by_role("button", name="Search", exact=True).click()
    found = page.get_by_test_id("search-rows").locator("li")
    expect(found).to_have_count(3)
    expect(found.nth(1).locator("mark")).to_have_text("Ada & <Lovelace")  # a text, never markup
    expect(page.get_by_test_id("search-words")).to_have_value('"ada lovelace"')
    page.get_by_test_id("search-next").click()
    expect(page.get_by_test_id("search-next")).to_have_count(0)
    page.get_by_role("link", name="C-1001", exact=True).first.click()
    expect(page).to_have_url(re.compile(r"key=C-1001&q=.*#lookup$"))
    for words, part, says in (
        ("-ada", "search-trouble", "only excludes words"),
        ("nobody", "search-nothing", "No row has these words."),
    ):
        page.goto(f"{site.url}/views/{VIEW}?q={words}")
        expect(page.get_by_test_id(part)).to_contain_text(says)


def test_a_row_shows_its_history_and_its_state_of_a_time_without_scripts(
    site: StagedEstate, open_page: Opener
) -> None:
    page = open_page(f"{site.url}/views/{VIEW}", width=390, java_script_enabled=False)
    expect(page.get_by_test_id("timeline")).to_have_count(0)
    page.get_by_test_id("history-key").fill("H-1")
    page.locator("#history").get_by_role("button", name="Show").click()
    changes = page.get_by_test_id("timeline").locator("li")
    expect(changes).to_have_count(20)
    expect(changes.first.locator(".pill")).to_have_text("deleted")
    expect(changes.nth(1)).to_contain_text("n 21 → 22")
    expect(changes.nth(1)).not_to_contain_text("city")  # it did not change
    event = changes.nth(1).get_by_role("link", name=f"{ORDERS}:0:21")
    expect(event).to_have_attribute("href", f"/topics/{ORDERS}?partition=0&from=21&limit=1")
    page.get_by_test_id("history-next").click()
    expect(changes).to_have_count(3)
    expect(changes.last.locator(".pill")).to_have_text("created")
    expect(page.get_by_test_id("history-next")).to_have_count(0)
    # As of the time of a change, and of a time that is picked.
    changes.first.get_by_role("link").first.click()
    row = page.get_by_test_id("as-of-row")
    expect(row.locator("dd").last).to_have_text("3")
    expect(row).not_to_contain_text("_version")
    page.get_by_test_id("history-as-of").fill(moment(4).removesuffix("Z"))
    page.locator("#history").get_by_role("button", name="Show").click()
    expect(row).to_contain_text(HOSTILE)
    for asked, part, says in (
        (f"key=H-1&as_of={moment(23)}", "as-of-nothing", "did not exist"),
        ("key=H-1&as_of=2020-01-01T00:00", "as-of-trouble", "not kept"),
        ("key=nobody", "history-nothing", "No change"),
        ("key=H-1&changes_after=x", "history-trouble", "cursor"),
    ):
        page.goto(f"{site.url}/views/{VIEW}?{asked}")
        expect(page.get_by_test_id(part)).to_contain_text(says)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_pages_of_a_hub_where_nothing_is_yet_fit_too(open_page: Opener, width: int, scheme: str) -> None:
    """Pages without data, without a first measurement, with unknown data and with errors state this, and
    are as easy to use."""
    hub = StagedEstate()
    with served(hub.app()) as url:
        page = open_page(
            f"{url}/lag", width=width, allow_trouble=True, color_scheme=scheme, reduced_motion="reduce"
        )
        wrong = []

        def judge(path: str, *words: str) -> None:
            page.goto(url + path)
            for each in words:
                expect(page.locator("main"), path).to_contain_text(each)
            over = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            found = Axe().run(page)
            if over or found.violations_count:
                wrong.append(f"{path}: {over} px too wide; {found.generate_report()}")
            assert page.locator("h1").count() == 1, path

        judge("/topics", "hub topic apply")
        judge("/schemas", "hub schema register")
        judge("/views", "No view is running yet")
        judge("/lag", "Nobody reads anything yet")
        judge("/lineage", "Nothing reads anything yet")
        judge("/latency", "No view is measured yet")
        judge("/cluster", "Asking Kafka where everything is")
        judge("/connect", "No worker of Kafka Connect is named")
        judge("/completeness", "hub completeness run")
        judge("/alerts", "Every objective that can be evaluated is met", "Nobody is notified")
        judge("/mirrors", "Asking the clusters")
        judge("/regions", "Asking the clusters")
        judge("/query", "No view has rows yet")
        judge("/search?q=nothing", "Nothing has all of")
        judge("/lag?state=SLEEPY", "STALLED")
        judge("/views/none", "does not exist")
        hub.unmeasured = ""
        judge("/lag", "Looking at every reader for the first time")
        judge("/lineage", "Looking at every reader for the first time")
        hub.unmeasured = "its groups cannot be listed"
        judge("/lag", "Readers are not known now", "its groups cannot be listed")
        judge("/lineage", "Readers are not known now", "its groups cannot be listed")
        hub.views.broken = "the store is locked"
        judge("/views", "Views are not known now", "the store is locked")
        judge("/latency", "Views are not known now", "the store is locked")
        judge("/query", "the store is locked")
        assert wrong == []
    assert hub.node is not None
    hub.node.stop()


def test_keys_lead_everywhere(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/lag")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(f"{site.url}/topics")
    expect(page.locator("[aria-current=page]")).to_have_text("Topics")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("Mirrors")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("f")
    expect(page.locator("[data-filter]")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.type("gq customer_id")  # letters in a field are letters
    expect(page.locator("#find")).to_have_value("gq customer_id")
    page.locator("#find").fill("customer_id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/search?q=customer_id")
    page.get_by_test_id("found-schemas").get_by_role("link", name=f"{ORDERS}-value").click()
    expect(page.get_by_test_id("changes")).to_contain_text("note")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_filter_of_the_tree_is_in_the_address(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics")
    page.locator("select[name=owner]").select_option("crm")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"owner=crm"))
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_test_id("total")).to_contain_text("2 of")
    page.get_by_role("link", name="consent").click()
    expect(page.locator("h1")).to_contain_text("consent")
    page.go_back()
    expect(page.locator("select[name=owner]")).to_have_value("crm")


def test_a_page_keeps_itself_fresh_and_leaves_what_is_typed(site: StagedEstate, open_page: Opener) -> None:
    site.topic("fresh.topic", 1)
    page = open_page(f"{site.url}/topics?under=fresh")
    page.locator("[data-filter]").fill("half-typ")
    site.publish("fresh.topic", 41)
    expect(page.get_by_test_id("row-fresh.topic")).to_contain_text("41")
    expect(page.locator("[data-filter]")).to_have_value("half-typ")


def test_a_topic_that_goes_away_is_said_on_its_page_and_comes_back(
    site: StagedEstate, open_page: Opener
) -> None:
    site.topic("brief.topic", 1)
    # The refused refreshes stand in Chromium's console.
    page = open_page(f"{site.url}/topics/brief.topic", allow_trouble=True)
    expect(page.get_by_test_id("no-messages")).to_be_visible()
    site.cluster.delete_topic("brief.topic")
    expect(page.get_by_test_id("error")).to_contain_text('topic "brief.topic" does not exist')
    expect(page.locator("#offline")).to_be_hidden()
    site.topic("brief.topic", 1)
    site.publish("brief.topic")
    expect(page.get_by_test_id("message")).to_have_count(1)
    expect(page.get_by_test_id("error")).to_have_count(0)


def test_a_topic_shows_its_iceberg_table(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics/{ORDERS}")
    assert page.get_by_test_id("lake").inner_text().split("\n")[1:] == [
        "UNKNOWN no writer of Iceberg tables reports: hub lake run"
    ]
    site.lake = LakeTableLine("WRITING", f"topics.{ORDERS}", 1_200, 3, 1_700_000_000_000, "")
    page.reload()
    shown = page.get_by_test_id("lake").inner_text()
    assert f"topics.{ORDERS} 1\u202f200 rows, 3 records waiting" in shown
    site.lake = LakeTableLine()


def test_messages_are_read_sought_and_harmless(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics/{ORDERS}")
    expect(page.get_by_test_id("message")).to_have_count(35)
    for message in page.get_by_test_id("message").all()[:7]:
        message.locator("summary").click()
    expect(page.locator("[data-testid=message] script, [data-testid=message] img")).to_have_count(0)
    expect(page.get_by_test_id("messages")).to_contain_text(HOSTILE)
    expect(page.get_by_test_id("cut").first).to_contain_text("characters are not shown")
    assert page.locator("pre[data-form=hex]").first.inner_text().startswith("00000000  00 00 00 00")
    assert page.title().startswith(ORDERS)
    page.locator("#messages").get_by_label("Containing").fill("O-17")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=O-17"))
    expect(page.get_by_test_id("message")).to_have_count(1)
    expect(page.get_by_test_id("covered")).to_contain_text("complete, back to the beginning")
    page.goto(f"{site.url}/topics/{ORDERS}?partition=0&from=3&limit=2")
    expect(page.get_by_test_id("message")).to_have_count(2)
    page.get_by_role("button", name="Newer").click()
    expect(page.get_by_test_id("message").first).to_contain_text("@5")
    page.goto(f"{site.url}/topics/{ORDERS}?from=12")
    expect(page.get_by_test_id("trouble")).to_contain_text("choose a partition")


def test_the_tail_shows_what_comes_and_says_when_it_samples(site: StagedEstate, open_page: Opener) -> None:
    site.topic("live.topic", 1)
    page = open_page(f"{site.url}/topics/live.topic")
    expect(page.get_by_test_id("no-messages")).to_be_visible()
    page.get_by_role("button", name="Watch live").click()
    expect(page).to_have_url(re.compile(r"live=1"))
    said = page.get_by_test_id("tail-said")
    expect(said).to_contain_text("Waiting")
    page.wait_for_timeout(700)  # the stream stands at the end of the log when it has opened
    site.write("live.topic", HOSTILE.encode(), key=b"first")
    expect(page.get_by_test_id("message")).to_have_count(1)
    expect(said).to_contain_text("all are shown")
    site.write("live.topic", *[b"flood"] * 400)
    expect(said).to_contain_text(re.compile(r"A sample: \d+ of 401"))
    assert page.get_by_test_id("message").count() < 30
    page.get_by_role("button", name="Pause").click()
    count = page.get_by_test_id("message").count()
    site.write("live.topic", b"not seen while paused")
    page.wait_for_timeout(1_200)  # what must not happen has its chance to
    assert page.get_by_test_id("message").count() == count
    page.get_by_role("link", name="Stop").click()
    expect(page.get_by_test_id("covered")).to_contain_text("there are more")


def test_a_row_changes_on_its_views_page(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/views/{VIEW}?key=C-1007")
    expect(page.get_by_test_id("wire")).to_have_text("live")
    before = site.views.rows[VIEW]["C-1007"]["visits"]
    visit(site, "C-1007")
    expect(page.locator("[data-field=visits]")).to_have_text(str(before + 1))
    page.get_by_test_id("lookup-key").fill("C-1010")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("card").locator("h3")).to_have_text("C-1010")
    expect(page).to_have_url(f"{site.url}/views/{VIEW}?key=C-1010")


def test_a_view_says_which_of_its_stores_is_not_what_its_log_says(
    site: StagedEstate, open_page: Opener
) -> None:
    page = open_page(f"{site.url}/views/{VIEW}")
    expect(page.get_by_test_id("proof-main")).to_contain_text("all 1 500 rows are what the changelog says")
    expect(page.get_by_test_id("proof-warehouse")).to_contain_text("differs")
    expect(page.get_by_test_id("differing-warehouse")).to_have_text("C-1007: another row of version 41")
    page.get_by_role("link", name="view-differs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("view-differs")


def test_a_gap_is_found_on_the_map_by_keys_and_its_command_named(
    site: StagedEstate, open_page: Opener
) -> None:
    page = open_page(f"{site.url}/completeness")
    gaps = page.get_by_test_id(f"heat-{ORDERS}").locator("[data-state=GAP]")
    expect(gaps).to_have_count(2)
    expect(gaps.first).to_have_attribute("aria-label", re.compile(r"gap, .* 3 records are not at the target"))
    signs = {
        state: page.locator(f".key [data-state={state}]").evaluate(
            "e => getComputedStyle(e, '::before').content"
        )
        for state in ("GAP", "DUPLICATES", "UNKNOWN", "EXPLAINED", "EMPTY", "COMPLETE")
    }
    assert len(set(signs.values())) == 6, signs  # never by colour alone
    # One stop of the tab order, then arrows.
    page.locator("#map").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.className") != "swatch":
        page.keyboard.press("Tab")
    newest = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert newest.startswith(ORDERS) and "unknown" in newest and " 0 records" not in newest
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
        if page.evaluate("document.activeElement.dataset.state") == "GAP":
            break
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"topic={re.escape(ORDERS)}&at=\d+#cell"))
    panel = page.get_by_test_id("cell")
    expect(panel).to_contain_text("17 records are not at the target")
    expect(panel.get_by_test_id("command").first).to_contain_text(f"hub completeness missing {ORDERS} 20")
    expect(panel.get_by_test_id("tiers")).to_contain_text("receipts of gateway-5f2c09")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#cell') !== null")
    page.get_by_role("link", name="Close").click()
    expect(panel).to_have_count(0)


def test_the_outline_of_the_last_cell_is_whole(site: StagedEstate, open_page: Opener) -> None:
    """The map is cut off where its last column ends:
    an outline past that would be drawn on three sides only."""
    page = open_page(f"{site.url}/completeness")
    page.get_by_test_id(f"heat-{ORDERS}").locator("[data-state=GAP]").last.focus()
    page.keyboard.press("End")
    for _ in range(60):
        page.keyboard.press("ArrowRight")
    reach = page.evaluate(
        """() => {
            const cell = document.activeElement, style = getComputedStyle(cell);
            const outline = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset);
            const map = document.getElementById("map").getBoundingClientRect();
            return [style.outlineStyle, cell.getBoundingClientRect().right + outline, map.right];
        }"""
    )
    assert reach[0] == "solid" and reach[2] - 20 < reach[1] <= reach[2], reach


def test_the_map_is_filtered_and_ranged_by_its_address(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/completeness")
    page.locator("[data-filter]").fill("crm.*")
    page.locator("select[name=range]").select_option("24h")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"topics=crm\.\*.*range=24h"))
    expect(page.locator("[data-heat] tbody tr[data-testid]")).to_have_count(2)
    expect(page.locator("[data-heat] thead th")).to_have_count(49)
    page.get_by_role("link", name="older").click()
    expect(page.get_by_test_id("heat-crm.consent").locator("[data-state=GAP]")).to_have_count(0)
    page.get_by_test_id("heat-crm.consent").get_by_role("link", name="trouble at").click()
    expect(page.get_by_test_id("cell")).to_contain_text("5 offsets hold no record")
    page.goto(f"{site.url}/completeness?topics=nothing.like.it")
    expect(page.get_by_test_id("none-fit")).to_be_visible()


def test_the_map_says_when_it_is_not_read_away_or_empty(site: StagedEstate, open_page: Opener) -> None:
    before = site.ledger
    try:
        site.ledger = StagedLedger(read=False)
        page = open_page(f"{site.url}/completeness")
        expect(page.get_by_test_id("loading")).to_contain_text("Reading the ledger")
        site.ledger = StagedLedger()
        expect(page.get_by_test_id("nothing-audited")).to_be_visible()
        expect(page.locator("[data-heat] [data-state=EMPTY]")).to_have_count(0)
        before.error = "Kafka does not answer"
        site.ledger = before
        page.reload()
        expect(page.get_by_test_id("trouble")).to_contain_text(
            "Kafka does not answer. The page shows the last known state"
        )
        expect(page.get_by_test_id(f"heat-{ORDERS}")).to_be_visible()
    finally:
        before.error, site.ledger = None, before


def test_a_query_is_asked_refused_with_a_caret_and_remembered(site: StagedEstate, open_page: Opener) -> None:
    # A refused statement is an answer of 400, which Chromium writes to its console.
    page = open_page(f"{site.url}/query", allow_trouble=True)
    page.get_by_role("textbox", name="Statement").fill("SELECT key, name FROM people ORDER BY key")
    page.keyboard.press("Control+Enter")
    answer = page.get_by_test_id("answer")
    expect(answer.locator("tbody tr")).to_have_count(3)
    expect(answer.locator("tbody tr").nth(1)).to_contain_text(HOSTILE)
    expect(answer.locator("img, script")).to_have_count(0)
    assert page.title().startswith("Query")
    page.get_by_role("textbox", name="Statement").fill("SELECT\n  nothing FROM people")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_test_id("wrong")).to_have_text(re.compile(r"^  nothing FROM people\n  \^$"))
    expect(answer).to_contain_text("nothing")
    page.reload()  # the statement is in the address, and asked again
    expect(page.get_by_test_id("wrong")).to_be_visible()
    page.get_by_test_id("history").get_by_role("button").nth(1).click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_value(re.compile("ORDER BY key"))
    page.get_by_role("button", name="Forget them").click()
    expect(page.get_by_test_id("history")).to_contain_text("Nothing yet")


def test_alerts_open_past_rules_channels_and_a_silence_by_hand(site: StagedEstate, open_page: Opener) -> None:
    page = open_page(f"{site.url}/topics", allow_trouble=True)  # the form is refused once: 400
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page).to_have_url(f"{site.url}/alerts")
    expect(page.get_by_test_id("total")).to_contain_text("1 firing · 0 pending · 1 silenced")
    rows = page.locator("#open tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("group billing is 41 s")
    expect(rows.nth(1)).to_contain_text("silenced")
    expect(rows.first.get_by_role("link", name=f"billing on {ORDERS}", exact=True)).to_have_attribute(
        "href", f"/lag?name=billing&prefix={ORDERS}"
    )
    expect(page.locator("#history tbody tr")).to_have_count(1)
    expect(page.get_by_test_id("rule-lag")).to_contain_text("3 well · 2 broken · 1 unknown")
    expect(page.get_by_test_id("channels")).to_contain_text("does not take mail now")
    page.locator("select[name=owner]").select_option("web")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("owner=web"))
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Clear").click()

    # A form with invalid input keeps the typed text; then the silence is created and ended.
    rows.first.get_by_role("link", name=re.compile("^Silence")).click()
    matchers = page.get_by_test_id("silence-matchers")
    expect(matchers).to_have_value(f"alertname=lag, consumer=billing, topic={ORDERS}")
    page.get_by_test_id("silence-reason").fill("deploy <b>")
    page.get_by_test_id("silence-for").fill("soon")
    page.get_by_test_id("silence-submit").click()
    expect(page.get_by_test_id("silence-error")).to_contain_text('"soon" is not the end')
    expect(page.get_by_test_id("silence-reason")).to_have_value("deploy <b>")
    page.get_by_test_id("silence-for").fill("2h")
    page.get_by_test_id("silence-by").fill("ada")
    page.get_by_test_id("silence-submit").click()
    expect(page).to_have_url(f"{site.url}/alerts#silence")
    expect(page.get_by_test_id("total")).to_contain_text("0 firing · 0 pending · 2 silenced")
    expect(page.get_by_test_id("silences")).to_contain_text("deploy <b> · ada · until")
    page.get_by_role("button", name=re.compile("End now.*billing")).click()
    expect(page.get_by_test_id("total")).to_contain_text("1 firing")

    # What happens meanwhile comes by itself, and leaves what is typed.
    page.get_by_test_id("silence-reason").fill("half a sen")
    site.alerts.see(LATE, late("billing"), late("third", summary=HOSTILE))
    expect(page.locator("#open")).to_contain_text(f"third on {ORDERS}")
    expect(page.locator("#open")).to_contain_text(HOSTILE)
    expect(page.get_by_test_id("silence-reason")).to_have_value("half a sen")
    rows.first.get_by_role("link", name=re.compile("^Runbook")).click()
    expect(page.get_by_test_id("runbook")).to_contain_text("a reader is later than promised")


def test_alerts_that_are_not_watched_or_nothing_wrong(site: StagedEstate, open_page: Opener) -> None:
    before = site.alerts.state, site.alerts.channels
    page = open_page(f"{site.url}/alerts")
    site.alerts.state, site.alerts.channels = AlertingState(), ()
    expect(page.get_by_test_id("none-open")).to_contain_text("Every objective that can be evaluated is met")
    expect(page.get_by_test_id("no-channels")).to_contain_text("alerts.yaml")
    expect(page.get_by_test_id("no-silences")).to_be_visible()
    expect(page.get_by_test_id("no-past")).to_be_visible()
    site.alerts.error = "the earlier notifications cannot be read: Kafka is away"
    expect(page.get_by_test_id("not-watched")).to_contain_text("Kafka is away")
    expect(page.get_by_test_id("loading")).to_be_visible()
    expect(page.get_by_test_id("total")).to_have_text("not watched")
    site.alerts.state, site.alerts.channels = before
    site.alerts.error = None
