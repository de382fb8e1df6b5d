"""One Chromium a module; each test a page that fails on any console error and on any request to elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser.chromium import FLAGS, executable
from browser.staged_hub import StagedHub, customers, served
from playwright.sync_api import Browser, Page, expect, sync_playwright

Opener = Callable[..., Page]

# Generous: a machine that is busy must not fail a test. What is there is seen at once all the same.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Ends with the module: Playwright's event loop runs in the main thread for as long as it is open, and
    nobody else could have one there."""
    path = executable()
    if path is None:
        pytest.fail("no Chromium: apt-get install -y chromium, or set HUB_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Opener]:
    """Open an address; at the end, check the messages of the console and the network."""
    trouble: list[str] = []
    opened: list[Page] = []

    def open_at(url: str, *, allow_trouble: bool = False, width: int = 1280, **context: object) -> Page:
        page = chromium.new_page(viewport={"width": width, "height": 900}, **context)  # type: ignore[arg-type]
        page.set_default_timeout(60_000)
        origin = "/".join(url.split("/")[:3])
        if not allow_trouble:
            page.on("console", lambda said: said.type in ("error", "warning") and trouble.append(said.text))
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.on(
                "request",
                lambda asked: asked.url.startswith(origin) or trouble.append(f"asked elsewhere: {asked.url}"),
            )
        page.goto(url)
        opened.append(page)
        return page

    yield open_at
    for page in opened:
        page.close()
    assert trouble == []


@pytest.fixture
def hub() -> Iterator[StagedHub]:
    """A busy customer-360, served; ``hub.url`` is its address."""
    staged = customers()
    with served(staged.app()) as url:
        staged.url = url
        yield staged


@pytest.fixture
def empty_hub() -> Iterator[StagedHub]:
    """A hub nobody has put anything into yet."""
    staged = StagedHub()
    with served(staged.app()) as url:
        staged.url = url
        yield staged
