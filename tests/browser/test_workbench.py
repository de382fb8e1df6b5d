"""The view workbench in a real Chromium: a stranger picks topics, writes SQL, sees rows, saves the view.
The pages of queries and of dead-letter records beside it.

Real routes, registry node and files. A real Spark computes the rows in one test; the others stage them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_estate import ORDERS, V2, estate
from browser.staged_hub import served
from patience import patient
from playwright.sync_api import Page, expect

from hub.config import Settings
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, CaseOutcome, GivenEvent
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http.routes import create_router as query_routes
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.workbench.process import PreviewProcess
from hub.materializers.workbench.routes import create_router as workbench_routes
from hub.materializers.workbench.service import Workbench
from hub.record import NewRecord, Record
from hub.schema_registry.client.in_process import InProcessRegistry
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.topics.dead_letters.queue import DeadLetters
from hub.topics.dead_letters.routes import create_router as dead_letter_routes

STATEMENT = f"""CREATE MATERIALIZED VIEW spent AS
SELECT customer_id, count(*) AS orders, sum(amount_cents) AS cents
FROM "{ORDERS}"
GROUP BY customer_id"""


class SwitchedPreviews:
    """Previews of a real process, or staged ones: one row of how many events there are."""

    def __init__(self, folder: Path) -> None:
        (folder / "home").mkdir()
        self.process = PreviewProcess(Settings(project=folder, home=folder / "home"))
        self.staged = True
        self.why_not = ""

    def compute(self, view: SqlView, schemas: Mapping[str, Any], case: Case) -> CaseOutcome:
        if not self.staged:
            return self.process.compute(view, schemas, case)
        given = [each for each in case.events if isinstance(each, GivenEvent)]
        return CaseOutcome(
            ("customer_id", "orders"), {"C-1007": {"customer_id": "C-1007", "orders": len(given)}}
        )


class Bench:
    """The served workbench."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hub, self.previews = folder, estate(), SwitchedPreviews(folder)
        self.store = Store(f"sqlite:///{folder / 'store.db'}")
        self.queries = QueryExecutor(self.store)
        self.app = self.hub.app()
        assert self.hub.node is not None
        topics = TopicTables(self.hub.cluster, InProcessRegistry(self.hub.node))
        parts = (self.store, Watcher(self.store), self.queries, topics, folder, 5_000)
        service = QueryService.of(*parts)
        self.app.include_router(query_routes(service))
        letters = DeadLetters(self.hub.cluster, InProcessRegistry(self.hub.node), lambda _topic: None)
        self.app.include_router(dead_letter_routes(letters))
        bench = Workbench(service.statements, topics, self.previews, lambda view: f"views.{view}")
        self.app.include_router(workbench_routes(bench))
        self.url = ""

    def refuse(self, value: bytes, reason: str, offset: int) -> None:
        """Write a dead-letter record of the view, as a materializer does."""
        said = {"reason": reason, "view": "spent", "topic": ORDERS, "partition": "0", "offset": str(offset)}
        headers = tuple((f"hub.dlq.{name}", text.encode()) for name, text in said.items())
        self.hub.cluster.writer().append([NewRecord(f"{ORDERS}.dlq", b"O-1", value, headers, 9_000)])

    def replayed(self) -> list[Record]:
        logs = self.hub.cluster.logs[ORDERS]
        return [each for log in logs for each in log if each.header("hub.replay.letter")]

    def close(self) -> None:
        self.previews.process.end()
        self.queries.close()
        self.store.close()
        assert self.hub.node is not None
        self.hub.node.stop()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("workbench"))
    with served(made.app) as url:
        made.url = url
        yield made
    made.close()


@pytest.fixture
def computed(bench: Bench) -> Iterator[Bench]:
    bench.previews.staged = False
    yield bench
    bench.previews.staged = True


def statement(page: Page) -> Any:
    return page.get_by_role("textbox", name="Statement")


def test_a_stranger_makes_a_view_of_real_events(computed: Bench, open_page: Opener) -> None:
    page = open_page(f"{computed.url}/workbench")
    page.get_by_role("searchbox", name="Search topics", exact=True).fill("orders")
    page.get_by_test_id("topics").get_by_role("button", name=ORDERS).click()
    chosen = page.get_by_test_id("chosen")
    expect(chosen.get_by_role("button", name="amount_cents")).to_be_visible()
    expect(chosen).to_contain_text("bigint")
    expect(statement(page)).to_have_value(
        "CREATE MATERIALIZED VIEW orders_by_customer_id AS\nSELECT customer_id, count(*) AS events, "
        f'sum(amount_cents) AS amount_cents\nFROM "{ORDERS}"\nGROUP BY customer_id'
    )
    rows = page.get_by_test_id("rows")
    expect(rows).to_contain_text("Computed by Spark", timeout=patient(120) * 1000)
    expect(rows.get_by_role("row")).to_have_count(2)
    expect(rows.get_by_role("row").nth(1)).to_contain_text("C-1007")
    expect(page.get_by_test_id("plan")).to_contain_text("one row for each key, forever")
    expect(page.get_by_test_id("diff")).to_contain_text("+view: orders_by_customer_id")
    page.get_by_text("Golden test", exact=False).first.click()
    page.get_by_label("Save the test with the view").check()
    page.get_by_role("button", name="Save the view").click()
    expect(page.get_by_test_id("saved")).to_contain_text(
        "Written: views/orders_by_customer_id.yaml and views/tests"
    )
    assert "topic: shop.orders" in (computed.folder / "views" / "orders_by_customer_id.yaml").read_text()
    assert (computed.folder / "views" / "tests" / "orders_by_customer_id.yaml").exists()


def test_an_error_is_shown_with_its_line_and_goes_when_it_is_mended(bench: Bench, open_page: Opener) -> None:
    # The refused statement stands in Chromium's console.
    page = open_page(f"{bench.url}/workbench", allow_trouble=True)
    statement(page).fill(STATEMENT.replace("sum(amount_cents)", "sum(amount_cent)"))
    wrong = page.get_by_test_id("wrong")
    expect(wrong).to_contain_text('column "amount_cent" does not exist')
    expect(wrong).to_contain_text("line 2: SELECT customer_id")
    expect(wrong).to_contain_text('did you mean "amount_cents"')
    expect(page.locator(".editor-mark")).to_be_visible()
    statement(page).fill(STATEMENT)
    expect(wrong).to_be_hidden()
    expect(page.get_by_test_id("rows")).to_contain_text("C-1007")
    expect(page.get_by_test_id("command")).to_contain_text("hub sql -c 'CREATE MATERIALIZED VIEW spent")


def test_names_are_completed_by_keys_alone(bench: Bench, open_page: Opener) -> None:
    page = open_page(f"{bench.url}/workbench?topic={ORDERS}")
    area = statement(page)
    expect(page.get_by_test_id("rows")).to_contain_text("C-1007")
    area.fill("")
    area.press_sequentially("SELECT cust")
    option = page.get_by_role("option", name="customer_id")
    expect(option).to_have_attribute("aria-selected", "true")
    area.press("Enter")
    expect(area).to_have_value("SELECT customer_id")
    area.press_sequentially(' FROM "shop.ord')
    expect(page.get_by_role("option", name=ORDERS)).to_be_visible()
    area.press("Tab")
    expect(area).to_have_value(f'SELECT customer_id FROM "{ORDERS}"')
    area.press_sequentially(" WHERE regexp_c")
    expect(page.get_by_role("option", name="regexp_count")).to_be_visible()
    area.press("Escape")
    expect(page.get_by_role("listbox", name="Completions")).to_be_hidden()


def test_a_read_only_project_shows_the_file_to_commit(bench: Bench, open_page: Opener) -> None:
    bench.folder.joinpath("views").mkdir(exist_ok=True)
    page = open_page(f"{bench.url}/workbench")
    bench.previews.why_not = "Spark is not installed with this server"
    try:
        statement(page).fill(STATEMENT)
        expect(page.get_by_test_id("rows")).to_contain_text("hub view test computes rows where Spark is")
        expect(page.get_by_test_id("diff")).to_contain_text("+view: spent")
    finally:
        bench.previews.why_not = ""


def test_a_query_is_completed_explained_followed_and_exported(bench: Bench, open_page: Opener) -> None:
    page = open_page(f"{bench.url}/query")
    area = page.get_by_role("textbox", name="Statement")
    area.fill(f'SELECT order_id FROM "{ORDERS}" WHERE amount_cents > :least AND custo')
    area.press("End")
    area.press_sequentially("m")
    # The columns of the topic are fetched while the reader types.
    expect(page.get_by_role("option", name="customer_id")).to_have_attribute("aria-selected", "true")
    area.press("Enter")
    expect(area).to_have_value(re.compile("AND customer_id$"))
    area.press_sequentially(" = 'C-1007'")
    page.get_by_label(":least").fill("1000")
    page.get_by_role("button", name="Run").click()
    answer = page.get_by_test_id("answer")
    expect(answer.locator("tbody tr").first).to_contain_text("O-")
    expect(page).to_have_url(re.compile(r"p\.least=1000"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.path().read_text().startswith("order_id")
    area.fill(f'SELECT order_id FROM "{ORDERS}"')
    page.get_by_role("button", name="Explain").click()
    expect(answer).to_contain_text("reads topic")
    area.fill(f'SELECT order_id FROM "{ORDERS}" EMIT CHANGES FROM BEGINNING')
    area.press("Control+Enter")
    expect(answer.locator("tbody tr").last).to_contain_text("O-")
    expect(answer).to_contain_text("the newest first")
    page.get_by_role("button", name="Stop").click()
    expect(answer).to_contain_text(re.compile(r"Stopped after \d+ rows"))
    judge(page)


@pytest.mark.parametrize("width", [1440, 390])
def test_dead_letters_are_repaired_replayed_and_dismissed_by_cause(
    bench: Bench, open_page: Opener, width: int
) -> None:
    value = encode(2, parsed(V2), {"order_id": "O-1", "customer_id": "C-1", "amount_cents": 1, "note": None})
    began, offset = len(bench.replayed()), width
    for number in range(3):
        bench.refuse(value, "the view's key is null in this event", offset + number)
    bench.refuse(b"nonsense", "not in the Confluent wire format", offset + 3)
    page = open_page(f"{bench.url}/dead-letters", width=width)
    page.get_by_test_id("counts").get_by_role("link", name=ORDERS).click()
    groups = page.get_by_test_id("groups")
    expect(groups.locator("details")).to_have_count(2)
    judge(page)
    groups.get_by_label("all of framing").check()
    page.get_by_label("Why").fill("a test event")
    page.get_by_role("button", name="Dismiss…").click()
    plan = page.get_by_test_id("plan")
    expect(plan).to_contain_text("Dismiss 1 record?")
    expect(plan.get_by_test_id("command")).to_contain_text(f"hub dlq dismiss {ORDERS}.dlq")
    expect(plan.get_by_test_id("command")).to_contain_text("--why 'a test event'")
    plan.get_by_test_id("confirm").click()
    expect(page.get_by_test_id("letters-said")).to_contain_text("1 record dismissed. 3 records")
    groups.get_by_role("button", name="Show").first.click()
    event = page.get_by_label("Event, as JSON")
    expect(event).to_have_value(re.compile("customer_id"))
    event.fill(event.input_value().replace('"C-1"', '"C-2"'))
    page.get_by_role("button", name="Check the repair").click()
    expect(page.get_by_test_id("repair-said")).to_contain_text("It fits.")
    expect(page.get_by_test_id("repair-said")).to_contain_text("C-2")
    page.get_by_role("button", name="Repair", exact=True).click()
    expect(page.get_by_test_id("repair-said")).to_contain_text("It is repaired")
    judge(page)
    page.get_by_label("State").select_option("repaired")
    expect(page.get_by_test_id("letters-said")).to_have_text("1 record")
    groups.locator("input[data-record]").check()
    page.get_by_role("button", name="Replay…").click()
    expect(plan).to_contain_text(f"→ {ORDERS}:0, repaired")
    plan.get_by_test_id("confirm").click()
    expect(page.get_by_test_id("letters-said")).to_contain_text("1 record replayed")
    assert len(bench.replayed()) == began + 1
    page.get_by_label("State").select_option("open")
    expect(page.get_by_test_id("letters-said")).to_have_text("2 records")
    groups.get_by_role("checkbox", name="all of", exact=False).first.check()
    page.get_by_role("button", name="Dismiss…").click()
    plan.get_by_test_id("confirm").click()
    expect(page.get_by_test_id("letters-said")).to_contain_text("2 records dismissed")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (768, "light"), (390, "dark")])
def test_the_workbench_fits_and_breaks_no_accessibility_rule(
    bench: Bench, open_page: Opener, width: int, scheme: str
) -> None:
    page = open_page(
        f"{bench.url}/workbench?topic={ORDERS}", width=width, color_scheme=scheme, allow_trouble=True
    )
    expect(page.get_by_test_id("rows")).to_contain_text("C-1007")
    page.get_by_text("recent events", exact=False).last.click()
    page.get_by_text("Golden test", exact=False).first.click()
    area = statement(page)
    area.focus()
    area.press("Control+End")
    area.press_sequentially(" HAVING coun")
    expect(page.get_by_role("option", name="count").first).to_be_visible()
    judge(page)
    area.press("Escape")
    area.fill(STATEMENT.replace("customer_id,", "customer,"))
    expect(page.get_by_test_id("wrong")).to_be_visible()
    judge(page)


def judge(page: Page) -> None:
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    found = Axe().run(page)
    assert not over and not found.violations_count, f"{over} px too wide; {found.generate_report()}"
