"""The dashboard in a real Chromium over a staged hub:
what people see, do with the keyboard, and see change."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opener
from browser.staged_hub import SOURCES, VIEW, StagedHub, visit
from playwright.sync_api import Page, expect

from hub.observability.web.layout import SECTIONS

KEY = "C-1007"


def watch(open_page: Opener, hub: StagedHub, key: str = KEY, **options: object) -> Page:
    page = open_page(f"{hub.url}/?view={VIEW}&key={key}", **options)
    expect(page.get_by_test_id("wire")).to_have_text("live")
    return page


def test_a_changed_row_changes_before_the_eyes_and_lights_up(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    field, before = page.locator("[data-field=visits]"), hub.views.rows[VIEW][KEY]["visits"]
    expect(field).to_have_text(str(before))
    visit(hub, KEY)
    expect(field).to_have_text(str(before + 1))
    assert field.get_attribute("data-changed") == ""
    assert page.locator("[data-field=city]").get_attribute("data-changed") is None
    latest = hub.views.rows[VIEW][KEY]["_sources"]["web"]
    expect(page.get_by_test_id("source-web")).to_contain_text(f"[{latest['partition']}]@{latest['offset']}")
    expect(page.get_by_test_id("changes")).to_contain_text(re.compile(rf"visits\s*{before}\s*{before + 1}"))


def test_many_changes_end_with_the_last_one(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    for number in range(60):
        hub.put(VIEW, KEY, visits=10_000 + number)
    expect(page.locator("[data-field=visits]")).to_have_text("10\u202f059")
    assert page.get_by_test_id("changes").locator("li").count() <= 8


def test_a_change_of_another_row_changes_nothing_here(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    hub.put(VIEW, "C-1001", visits=1)
    hub.put(VIEW, KEY, city="Bergen")
    expect(page.locator("[data-field=city]")).to_have_text("Bergen")
    assert page.get_by_test_id("changes").locator("li").count() == 1


def test_a_deletion_is_shown_and_so_is_the_return(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    hub.delete(VIEW, KEY)
    expect(page.get_by_test_id("gone")).to_contain_text("deleted")
    expect(page.locator("[data-field=visits]")).to_have_count(0)
    hub.put(VIEW, KEY, visits=1)
    expect(page.locator("[data-field=visits]")).to_have_text("1")
    expect(page.get_by_test_id("changes")).to_contain_text("the row appeared")


def test_a_row_that_is_not_there_yet_appears(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub, "C-9999")
    expect(page.get_by_test_id("gone")).to_contain_text("No row with this key")
    hub.put(VIEW, "C-9999", name="New Customer")
    expect(page.locator("[data-field=name]")).to_have_text("New Customer")


def test_choosing_another_row_changes_the_address_and_the_back_button_returns(
    hub: StagedHub, open_page: Opener
) -> None:
    page = watch(open_page, hub)
    page.get_by_test_id("lookup-key").fill("C-1010")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("card").locator("h3")).to_have_text("C-1010")
    expect(page).to_have_url(f"{hub.url}/?view={VIEW}&key=C-1010")
    expect(page.get_by_test_id("lookup-key")).to_be_focused()
    expect(page.get_by_test_id("wire")).to_have_text("live")
    visit(hub, "C-1010")
    expect(page.get_by_test_id("changes")).to_contain_text("visits")
    page.go_back()
    expect(page.get_by_test_id("card").locator("h3")).to_have_text(KEY)
    # the stream of the row that is no longer shown was closed
    page.wait_for_function("() => true")
    expect(page.get_by_test_id(f"view-{VIEW}").locator(".facts")).to_contain_text(
        re.compile(r"Subscribers\s*1")
    )


def test_the_page_refreshes_without_taking_focus_text_or_open_parts(
    hub: StagedHub, open_page: Opener
) -> None:
    page = watch(open_page, hub)
    page.get_by_test_id(f"view-{VIEW}").locator("summary").click()
    page.get_by_test_id("branch-crm").locator("summary").click()
    page.get_by_test_id("lookup-key").fill("half-typ")
    hub.publish("web.visits", 50_000)
    expect(page.get_by_test_id("tile-lag")).to_contain_text("50\u202f000 waiting")
    expect(page.get_by_test_id("lookup-key")).to_be_focused()
    expect(page.get_by_test_id("lookup-key")).to_have_value("half-typ")
    expect(page.get_by_test_id(f"view-{VIEW}").locator("details")).to_have_attribute("open", "")
    expect(page.get_by_test_id("branch-crm")).not_to_have_attribute("open", "")
    hub.commit(VIEW, list(SOURCES.values()))
    expect(page.get_by_test_id("tile-lag")).to_contain_text("0 waiting")


def test_rows_that_change_now_are_offered_unless_the_pointer_is_there(
    hub: StagedHub, open_page: Opener
) -> None:
    page = watch(open_page, hub)
    hub.put(VIEW, "C-1033", visits=1)
    hub.put(VIEW, "C-1033", visits=2)
    recent = page.get_by_test_id("recent")
    expect(recent.locator("a").first).to_have_text("C-1033")
    recent.hover()
    for visits in range(4):
        hub.put(VIEW, "C-1021", visits=visits)
    with page.expect_response("**/ui/recent**"):
        pass
    assert recent.locator("a").first.inner_text() == "C-1033"
    page.mouse.move(0, 0)
    expect(recent.locator("a").first).to_have_text("C-1021")
    recent.locator("a").first.click()
    expect(page.get_by_test_id("card").locator("h3")).to_have_text("C-1021")
    expect(recent.locator("a[aria-current]")).to_have_text("C-1021")


def test_a_new_topic_and_undecodable_events_show_up_by_themselves(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    hub.publish("crm.consent.dlq", 4)
    expect(page.get_by_test_id("topic-crm.consent").get_by_test_id("dlq")).to_have_text("4 undecodable")
    expect(page.get_by_test_id("tile-undecodable")).to_contain_text("7")


def test_kafka_down_and_back(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    hub.cluster.cut = True
    expect(page.get_by_role("alert").filter(has_text="Kafka does not answer")).to_be_visible()
    expect(page.get_by_test_id("topic-crm.customers")).to_be_visible()
    hub.cluster.cut = False
    expect(page.get_by_role("alert").filter(has_text="Kafka does not answer")).to_have_count(0)


def test_a_failed_view_says_why(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    hub.state(VIEW, "failed", 'field "paid_cents": no source "payment"\nHint: did you mean "payments"?')
    expect(page.get_by_test_id("reason")).to_contain_text('did you mean "payments"?')
    expect(page.get_by_test_id("tile-views")).to_contain_text("failed")


def test_what_needs_attention_comes_first_and_goes(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    attention = page.get_by_test_id("attention")
    expect(attention).to_be_hidden()
    hub.state(VIEW, "failed", "no source <b>")
    expect(attention.get_by_role("listitem")).to_have_text(
        re.compile(rf"failed {VIEW} view for .* no source <b>")
    )
    expect(page.locator("main section:visible").first).to_have_attribute("id", "attention")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    hub.state(VIEW, "unknown", "its process does not report")
    expect(attention).to_contain_text("UNKNOWN")
    hub.state(VIEW, "live", sources=SOURCES)
    expect(attention).to_be_hidden()


def test_the_server_gone_is_said(hub: StagedHub, open_page: Opener) -> None:
    page = open_page(f"{hub.url}/?view={VIEW}&key={KEY}", allow_trouble=True)
    expect(page.get_by_test_id("wire")).to_have_text("live")
    page.route("**/ui/overview", lambda route: route.abort())
    expect(page.locator("#offline")).to_be_visible()
    page.unroute("**/ui/overview")
    expect(page.locator("#offline")).to_be_hidden()


def test_an_empty_hub_says_what_to_do(empty_hub: StagedHub, open_page: Opener) -> None:
    page = open_page(empty_hub.url)
    expect(page.get_by_test_id("no-views")).to_contain_text("hub demo")
    expect(page.get_by_test_id("no-topics")).to_contain_text("hub topic apply")
    steps = page.get_by_test_id("first-steps")
    expect(steps.locator("[data-done=true]")).to_have_count(1)
    expect(steps).to_contain_text("hub demo")
    empty_hub.topic("a.b")
    expect(steps.locator("[data-done=true]")).to_have_count(2)
    empty_hub.publish("a.b")
    expect(steps.locator("[data-done=true]")).to_have_count(3)
    expect(steps.get_by_role("link", name="A view is made of them")).to_have_attribute("href", "/workbench")
    empty_hub.state("v", "bulk")
    expect(page.get_by_test_id("view-v")).to_be_visible()
    expect(steps).to_be_hidden()
    expect(page.get_by_test_id("no-rows")).to_be_visible()
    empty_hub.put("v", "K-1", size=3)
    expect(page.locator("[data-field=size]")).to_have_text("3")
    expect(page.get_by_test_id("wire")).to_have_text("live")
    requests: list[str] = []
    page.on("request", lambda asked: requests.append(asked.url))
    with page.expect_response("**/ui/overview"):
        pass
    assert not [url for url in requests if "/ui/lookup" in url]


def test_pause_holds_the_page_still_and_going_on_catches_up(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_test_id("wire")).to_have_text("paused")
    before = page.locator("[data-field=visits]").inner_text()
    with page.expect_event("requestfinished", predicate=lambda asked: "nothing" in asked.url):
        visit(hub, KEY)
        page.wait_for_timeout(500)  # what must not happen has its chance to
        assert page.locator("[data-field=visits]").inner_text() == before
        page.evaluate("fetch('/api/lag?nothing')")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("[data-field=visits]")).to_have_text(str(int(before) + 1))


def test_the_keyboard_reaches_everything_in_reading_order(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub)
    reached = []
    for _ in range(70):
        page.keyboard.press("Tab")
        label = page.evaluate(
            "() => { const e = document.activeElement;"
            " return e === document.body ? '' : e.dataset.testid || e.id || "
            "e.textContent.trim().slice(0, 19) }"
        )
        if not label:
            break
        reached.append(label)
    wanted = [
        "Skip to the lookup",
        "menu",
        "Event hub",
        "find",
        "Kafka",
        "pause",
        "theme",
        "keys-button",
        *(section.title for section in SECTIONS),
        "Undecodable events",
        "Alerts",
        VIEW,
        "7 topics, all up to",
        "lookup-view",
        "lookup-key",
    ]
    assert reached[: len(wanted)] == wanted
    assert reached[len(wanted)] == "Show"
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_test_id("lookup-view")).to_be_focused()


def test_the_theme_follows_the_system_until_one_is_chosen(hub: StagedHub, open_page: Opener) -> None:
    page = watch(open_page, hub, color_scheme="dark")

    def paper() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert paper() < 150
    page.emulate_media(color_scheme="light")
    assert paper() > 600
    button = page.get_by_role("button", name="Theme")
    button.click()
    button.click()
    expect(button).to_contain_text("dark")
    assert paper() < 150
    page.reload()
    assert paper() < 150


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_scrolls_sideways(hub: StagedHub, open_page: Opener, width: int) -> None:
    page = watch(open_page, hub, width=width)
    page.get_by_test_id(f"view-{VIEW}").locator("summary").click()
    hub.put(VIEW, KEY, name="a-very-long-word-without-any-place-to-break-" * 6, tags={"deep": ["x" * 90]})
    expect(page.locator("[data-field=tags]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_accessibility_rule_is_broken(hub: StagedHub, open_page: Opener, scheme: str, width: int) -> None:
    page = watch(open_page, hub, width=width, color_scheme=scheme, reduced_motion="reduce")
    visit(hub, KEY)
    expect(page.get_by_test_id("changes").locator("ins")).to_have_count(1)
    hub.state(VIEW, "retrying", "Spark is starting again")
    page.get_by_test_id(f"view-{VIEW}").locator("summary").click()
    expect(page.get_by_test_id("reason")).to_be_visible()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
