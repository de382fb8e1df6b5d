"""The login by an OpenID Connect provider in a real Chromium:
there and back, refused, of another browser, and out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.chromium import FLAGS, executable
from browser.staged_hub import served
from oidc_provider import CLIENT, SECRET, OidcProvider, oidc_provider
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hub.access.secrets import hash_of_password
from hub.api import app as app_module
from hub.api.app import create_app
from hub.config import Settings

VARIABLE = "OIDC_SECRET_OF_THE_TEST"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as made:
        made.people = {
            "ana": {"preferred_username": "ana", "groups": ["/shop"]},
            "root": {"preferred_username": "root"},
        }
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, provider: OidcProvider) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("login")
    (folder / "access.yaml").write_text(
        f"""\
groups:
  shop: [{{role: read, topics: ["shop.**"]}}]
users:
  root: {{password: "{hash_of_password("correct horse", b"1" * 16)}", grants: [{{role: admin, hub: true}}]}}
oidc:
  issuer: {provider.issuer}
  client_id: {CLIENT}
  client_secret: "${{{VARIABLE}}}"
  name_claim: preferred_username
  groups: {{/shop: shop}}
"""
    )
    home = folder / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "REGISTRY_WAIT_S", 0.1)
        patch.setenv(VARIABLE, SECRET)
        app = create_app(
            Settings(
                project=folder,
                home=home,
                bootstrap="127.0.0.1:1",
                kafka_timeout_s=0.2,
                http_port=1,
                access_log=False,  # it refuses changes while Kafka is away
            )
        )
        with served(app) as address:
            yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.fail("no Chromium: apt-get install -y chromium, or set HUB_CHROMIUM")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="dark")
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    yield opened
    context.close()


def log_in(page: Page, name: str) -> None:
    page.get_by_test_id("sign-in-oidc").click()
    page.get_by_label("Account").fill(name)
    page.get_by_role("button", name="Continue").click()


def test_there_and_back_to_the_page_and_out(page: Page, url: str) -> None:
    page.goto(f"{url}/topics?order=busy")
    page.context.add_cookies([{"name": "hub_session", "value": "planted.1-0.x", "url": url}])
    expect(page.get_by_test_id("sign-in-oidc")).to_have_text("Sign in with 127.0.0.1")
    assert not [each for each in Axe().run(page).response["violations"] if each["impact"] != "minor"]
    log_in(page, "ana")
    expect(page).to_have_url(f"{url}/topics?order=busy")
    expect(page.get_by_test_id("who")).to_have_text("ana")
    cookies = {each["name"]: each for each in page.context.cookies()}
    assert cookies["hub_session"]["httpOnly"] and cookies["hub_session"]["value"] != "planted.1-0.x"
    assert "hub_login" not in cookies

    session = cookies["hub_session"]["value"]
    page.get_by_test_id("who").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_test_id("sign-in")).to_be_visible()
    page.context.add_cookies([{"name": "hub_session", "value": session, "url": url}])
    page.goto(f"{url}/topics")
    expect(page.get_by_test_id("sign-in")).to_be_visible()


def test_who_has_a_password_here_is_told_so(page: Page, url: str) -> None:
    page.goto(f"{url}/sign-in")
    log_in(page, "root")
    expect(page.get_by_role("alert")).to_contain_text('"root" has a password or token in access.yaml')
    page.goto(f"{url}/topics")
    expect(page.get_by_test_id("sign-in")).to_be_visible()


def test_an_answer_for_another_browser_signs_nobody_in(browser: Browser, page: Page, url: str) -> None:
    """As an attacker's code would be, sent to somebody as a link; and the same answer twice."""
    page.goto(f"{url}/sign-in?next=https://evil.example/")
    with page.expect_request(lambda each: "/sign-in/oidc/callback" in each.url) as came:
        log_in(page, "ana")
    expect(page).to_have_url(f"{url}/")
    with browser.new_context() as other:
        opened = other.new_page()
        for address in (
            came.value.url,
            f"{url}/sign-in/oidc/callback",
            f"{url}/sign-in/oidc/callback?error=x&state=y",
        ):
            answer = opened.goto(address)
            assert answer is not None and answer.status == 400
            expect(opened.get_by_role("alert")).to_contain_text("has not begun a login")
            assert "hub_session" not in {each["name"] for each in other.cookies()}
        opened.goto(f"{url}/sign-in/oidc")
        query = dict(parse_qsl(urlsplit(came.value.url).query))
        opened.goto(f"{url}/sign-in/oidc/callback?{urlencode(query)}")
        expect(opened.get_by_role("alert")).to_contain_text("belongs to another login")


def test_a_token_is_made_shown_once_used_and_revoked(page: Page, url: str) -> None:
    page.goto(f"{url}/sign-in?next=/tokens")
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_test_id("tokens")).to_contain_text("No tokens yet.")
    page.get_by_label("Name").fill("ci")
    page.get_by_label("Grants").fill("king:a")
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_role("alert")).to_contain_text('"king:a" is not a grant')
    page.get_by_label("Name").fill("ci")
    page.get_by_label("Grants").fill("read:shop.**")
    page.get_by_role("button", name="Make").click()
    token = page.get_by_test_id("made").inner_text()
    row = page.get_by_role("row").filter(has_text="ci")
    expect(row).to_contain_text("read shop.**")
    expect(row).to_contain_text("never")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = [each for each in Axe().run(page).response["violations"] if each["impact"] != "minor"]
        assert not found, found
    asked = page.request.get(f"{url}/api/topics", headers={"Authorization": f"Bearer {token}", "Cookie": ""})
    assert asked.status != 401
    page.goto(f"{url}/tokens")
    expect(page.get_by_test_id("made")).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="ci")).not_to_contain_text("never")
    page.get_by_role("button", name="Revoke ci").click()
    expect(page.get_by_test_id("tokens")).to_contain_text("No tokens yet.")
    asked = page.request.get(f"{url}/api/topics", headers={"Authorization": f"Bearer {token}", "Cookie": ""})
    assert asked.status == 401

    (session,) = [each["value"] for each in page.context.cookies() if each["name"] == "hub_session"]
    rows = page.get_by_test_id("sessions").get_by_role("row").filter(has_text="root")
    expect(rows).to_have_count(1)
    rows.get_by_role("button").click()
    expect(page.get_by_test_id("sign-in")).to_be_visible()
    page.context.add_cookies([{"name": "hub_session", "value": session, "url": url}])
    page.goto(f"{url}/tokens")
    expect(page.get_by_test_id("sign-in")).to_be_visible()
