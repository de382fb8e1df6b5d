"""A page of a hub with access control, as somebody who has signed in."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect


def signed_in(
    chromium: Browser, url: str, name: str, password: str, width: int = 1280, scheme: str = "light"
) -> Page:
    """Open an address, which shows the form, and sign in; the page that follows is shown to ``name``."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(url)
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_test_id("who")).to_have_text(name)
    return page
