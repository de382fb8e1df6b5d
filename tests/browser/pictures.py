"""Make the pictures of the dashboard: ``python -m tests.browser.pictures`` from the repository's root.

Writes docs/images/dashboard*.png, and page-*.png of some other pages. ``--url`` takes a running hub instead
of the staged one.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from playwright.sync_api import Browser, TimeoutError, sync_playwright

from tests.browser import staged_estate, staged_hub
from tests.browser.chromium import FLAGS, executable

IMAGES = Path(__file__).parents[2] / "docs" / "images"
# name: (width, height, theme, whole page)
SHOTS = {
    "dashboard": (1280, 860, "light", True),
    "dashboard-dark": (1280, 860, "dark", True),
    "dashboard-phone": (390, 844, "light", True),
}
# Those of docs/reference/web-pages.md.
IN_DOCS = ("lag", "lineage", "completeness", "mirrors")
# name: address, in the staged estate
PAGES = {
    "topics": "/topics",
    "topic": f"/topics/{staged_estate.ORDERS}?q=O-",
    "schemas": "/schemas",
    "schema": f"/schemas/{staged_estate.ORDERS}-value",
    "views": "/views",
    "lineage": "/lineage",
    "view": f"/views/{staged_hub.VIEW}?key=C-1007",
    "lag": "/lag",
    "alerts": "/alerts",
    "connect": "/connect",
    "sinks": "/sinks",
    "completeness": f"/completeness?topic={staged_estate.ORDERS}",
    "mirrors": "/mirrors",
    "regions": "/regions",
    "latency": "/latency",
    "cluster": "/cluster",
    "query": "/query",
    "search": "/search?q=customer",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="base URL of a running hub; default: a staged one")
    parser.add_argument(
        "--warm-up-s", type=float, default=125.0, help="so that there are rates of two minutes to draw"
    )
    parser.add_argument("--to", type=Path, default=IMAGES)
    parser.add_argument(
        "--pages", action="store_true", help="all other pages instead, light and dark, wide and narrow"
    )
    chosen = parser.parse_args()
    chosen.to.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = chosen.url or (_estate if chosen.pages else _staged)(stack, chosen.warm_up_s)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=executable(), args=FLAGS
        )
        if chosen.pages:
            _pages(browser, url, chosen.to)
            return
        for name, (width, height, theme, whole) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(url)
            page.get_by_test_id("wire").get_by_text("live").wait_for()
            # A row of a real hub may be quiet: then the picture is of a quiet row.
            with suppress(TimeoutError):
                page.get_by_test_id("changes").locator("ins").nth(2).wait_for(timeout=30_000)
            page.screenshot(path=chosen.to / f"{name}.png", full_page=whole, animations="allow")
            page.close()
        if chosen.url is None:
            url = _estate(stack, min(chosen.warm_up_s, 10.0))
            for name in IN_DOCS:
                page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="light")
                page.goto(url + PAGES[name])
                page.screenshot(path=chosen.to / f"page-{name}.png")
                page.close()
        browser.close()


def _pages(browser: Browser, url: str, to: Path) -> None:
    """Every page with something in it; of a running hub those that need no name."""
    for name, path in PAGES.items():
        for width, theme in ((1280, "light"), (1280, "dark"), (375, "light"), (375, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 860}, color_scheme=theme)
            page.goto(url + path)
            with suppress(TimeoutError):
                page.locator(".loading").first.wait_for(state="detached", timeout=10_000)
            page.screenshot(path=to / f"{name}-{width}-{theme}.png", full_page=True)
            page.close()


def _estate(stack: ExitStack, warm_up_s: float) -> str:
    hub = staged_estate.estate()
    url = stack.enter_context(staged_hub.served(hub.app()))
    stack.enter_context(staged_hub.traffic(hub))
    time.sleep(warm_up_s)
    return url


def _staged(stack: ExitStack, warm_up_s: float) -> str:
    hub = staged_hub.customers()
    hub.poll_s, hub.firing = 1.0, 0
    url = stack.enter_context(staged_hub.served(hub.app()))
    stack.enter_context(staged_hub.traffic(hub))
    stop = threading.Event()

    def visits() -> None:
        happens = itertools.cycle((staged_hub.visit, staged_hub.payment, staged_hub.visit))
        while not stop.wait(1.6):
            next(happens)(hub, "C-1039")

    threading.Thread(target=visits, daemon=True).start()
    stack.callback(stop.set)
    time.sleep(warm_up_s)
    return url


if __name__ == "__main__":
    main()
