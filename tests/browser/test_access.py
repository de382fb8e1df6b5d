"""The real server in a real Chromium: signed in by the page, refused with the missing grant, signed out; also
where the hub has a name of its own and plain http, on which browsers say less of where a request is from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.chromium import FLAGS, executable
from browser.staged_hub import served
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hub.access.secrets import hash_of_password
from hub.api import app as app_module
from hub.api.app import create_app
from hub.config import Settings
from hub.observability.web.page import Site, show_site

PASSWORD = "correct horse"
FILE = f"""\
contact: "#data-platform"
users:
  ana: {{password: "{hash_of_password(PASSWORD, b"0" * 16)}", grants: [{{role: read, topics: ["shop.**"]}}]}}
  root: {{password: "{hash_of_password(PASSWORD, b"1" * 16)}", grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]}}
"""  # noqa: E501


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server without Kafka: its pages say so, and who may see them does not depend on it."""
    folder: Path = tmp_path_factory.mktemp("door")
    (folder / "access.yaml").write_text(FILE)
    home = folder / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "REGISTRY_WAIT_S", 0.1)
        app = create_app(
            Settings(
                project=folder,
                home=home,
                bootstrap="127.0.0.1:1",
                kafka_timeout_s=0.2,
                http_port=1,
                environment="staging",
                environment_color="amber",
            )
        )
        with served(app) as address:
            yield address
    show_site(Site())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.fail("no Chromium: apt-get install -y chromium, or set HUB_CHROMIUM")
    with sync_playwright() as playwright:
        # A name that is not localhost: there browsers send no Sec-Fetch-Site over plain http.
        flags = [*FLAGS, "--host-resolver-rules=MAP hub.test 127.0.0.1"]
        opened = playwright.chromium.launch(executable_path=path, args=flags)
        yield opened
        opened.close()


@pytest.fixture(params=["127.0.0.1", "hub.test"])
def page(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[tuple[Page, str]]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    yield opened, url.replace("127.0.0.1", request.param)
    context.close()


def sign_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_in_and_out(page: tuple[Page, str]) -> None:
    opened, url = page
    opened.goto(f"{url}/topics?order=busy")
    expect(opened.get_by_test_id("sign-in")).to_be_visible()
    expect(opened.get_by_test_id("environment")).to_have_attribute("data-color", "amber")
    expect(opened).to_have_title("staging · Sign in · Event hub")
    expect(opened.get_by_role("navigation")).to_have_count(0)
    sign_in(opened, "ana", "wrong horse")
    expect(opened.get_by_role("alert")).to_contain_text("wrong user, password or token")
    expect(opened.get_by_label("User")).to_have_value("ana")
    sign_in(opened, "ana")
    expect(opened).to_have_url(f"{url}/topics?order=busy")
    expect(opened.get_by_test_id("who")).to_have_text("ana")

    opened.goto(f"{url}/mirrors")
    refused = opened.get_by_test_id("refused")
    expect(refused).to_contain_text("You have no access to this")
    expect(refused).to_contain_text("hub: true")
    expect(refused).to_contain_text("#data-platform")
    assert not [each for each in Axe().run(opened).response["violations"] if each["impact"] != "minor"]
    expect(opened.get_by_test_id("who")).to_have_text("ana")

    opened.get_by_test_id("who").click()
    menu = opened.get_by_test_id("user-menu")
    expect(menu).to_contain_text("Signed in in this browser")
    assert not [each for each in Axe().run(opened).response["violations"] if each["impact"] != "minor"]
    opened.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(opened.get_by_test_id("who")).to_be_focused()
    opened.keyboard.press("Enter")
    opened.get_by_role("button", name="Sign out").click()
    expect(opened.get_by_test_id("sign-in")).to_be_visible()
    assert not [each for each in Axe().run(opened).response["violations"] if each["impact"] != "minor"]
    opened.goto(f"{url}/topics")
    expect(opened.get_by_test_id("sign-in")).to_be_visible()


def test_a_page_that_stays_open_leads_to_the_sign_in_page_when_its_session_has_gone(
    page: tuple[Page, str],
) -> None:
    opened, url = page
    opened.goto(f"{url}/")
    sign_in(opened, "root")
    expect(opened.get_by_test_id("who")).to_have_text("root")
    opened.context.clear_cookies()
    expect(opened.get_by_test_id("sign-in")).to_be_visible()
    sign_in(opened, "root")
    expect(opened).to_have_url(f"{url}/")

    opened.get_by_role("link", name="Access log").click()
    log = opened.get_by_test_id("access-log")
    expect(log.get_by_role("alert")).to_contain_text("Kafka")
    log.get_by_label("Action").select_option("topic.change")
    log.get_by_role("button", name="Search").click()
    expect(opened).to_have_url(f"{url}/access-log?by=&action=topic.change&on=&result=&since=24h")
    assert not [each for each in Axe().run(opened).response["violations"] if each["impact"] != "minor"]


NOT_KNOWN = ("/topics", "/lag", "/lineage", "/completeness", "/cluster")
SAID_OF_NOTHING = (
    "No topics yet",
    "Nobody reads anything yet",
    "Nothing reads anything yet",
    "There is nothing to audit yet",
    "No schema is registered yet",
    "nothing was lost",
    "Every partition has a leader",
)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (375, "light")])
def test_what_kafka_never_told_is_called_unknown_and_neither_empty_nor_zero(
    browser: Browser, url: str, width: int, scheme: Any
) -> None:
    with browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    ) as context:
        opened = context.new_page()
        opened.set_default_timeout(30_000)
        opened.goto(f"{url}/")
        sign_in(opened, "root")
        expect(opened.get_by_test_id("banner")).to_contain_text("Kafka does not answer")
        for tile in ("tile-events", "tile-undecodable", "tile-rate", "tile-lag"):
            expect(opened.get_by_test_id(tile).locator(".figure")).to_have_text("–")
        others = (
            "/",
            "/schemas",
            "/views",
            "/latency",
            "/mirrors",
            "/connect",
            "/alerts",
            "/query",
            "/workbench",
            "/sinks",
            "/dead-letters",
            "/access-log",
            "/tokens",
            "/docs",
            "/help/how-to/control-access",
            "/search?q=x",
        )
        for path in (*NOT_KNOWN, *others):
            opened.goto(url + path)
            if path in NOT_KNOWN:
                expect(opened.get_by_test_id("unknown"), path).to_be_visible()
            text = opened.locator("body").inner_text()
            assert not [words for words in SAID_OF_NOTHING if words in text], path
            over = opened.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over == 0, path
            found = Axe().run(opened)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        expect(opened.locator("main")).to_contain_text("Not searched: topics")


def test_a_form_of_the_hubs_own_page_is_taken(page: tuple[Page, str]) -> None:
    opened, url = page
    opened.goto(f"{url}/alerts?silence=topic%3Dshop.**")
    sign_in(opened, "root")
    expect(opened.get_by_test_id("silence-by")).to_have_count(0)  # it is who is signed in
    opened.get_by_test_id("silence-reason").fill("moving house")
    with opened.expect_response(lambda answer: answer.request.method == "POST") as answered:
        opened.get_by_test_id("silence-submit").click()
    # Taken as far as to where silences are kept: that is Kafka, which is away.
    assert answered.value.status in (303, 503)


def test_another_sites_page_is_not_answered_with_the_session(browser: Browser, url: str) -> None:
    with browser.new_context() as context:
        opened = context.new_page()
        named = url.replace("127.0.0.1", "hub.test")
        opened.goto(f"{named}/topics")
        sign_in(opened, "root")
        expect(opened.get_by_test_id("who")).to_have_text("root")
        opened.goto("about:blank")
        opened.set_content(
            f'<form method="post" action="{named}/alerts/silences"><input name="matchers" value="topic=a">'
            "<button>Win</button></form>"
        )
        with opened.expect_response(lambda answer: answer.request.method == "POST") as answered:
            opened.get_by_role("button").click()
        assert answered.value.status in (401, 403)
