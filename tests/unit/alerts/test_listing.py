"""Sorted alerts, computed once per round; thousands of them in pages."""

from __future__ import annotations

from dataclasses import replace

from hub.alerts.alerts_json import body_of
from hub.alerts.model.alert_state import FIRING, PENDING, Alert, AlertingState, Silence
from hub.alerts.model.listing import listing
from hub.alerts.model.matching import labels_of, matchers_of
from hub.alerts.model.rules import Verdict
from hub.alerts.snapshot import AlertSnapshot
from hub.observability.overview.overview import KafkaHealth, Overview
from hub.observability.web.page import render
from hub.observability.web.pages.monitor.alerts import PAGE, AlertsFilter, alerts_page, narrow

NOW = 1_790_000_000_000


def alert(
    name: str, phase: str = FIRING, severity: str = "warning", owner: str = "shop", at: int = 0
) -> Alert:
    about = labels_of({"consumer": name, "topic": "shop.orders"})
    labels = labels_of({**dict(about), "alertname": "lag", "severity": severity, "owner": owner})
    fired = NOW + at if phase != PENDING else None
    return Alert(
        *(name, "lag", about, labels, f"{name} is late", "why", 41.0, phase, NOW + at),
        last=Verdict.BAD,
        last_ms=NOW,
        fired_at_ms=fired,
        ended_at_ms=NOW + at if phase == "resolved" else None,
        runbook="lag",
    )


def state(*alerts: Alert, silences: tuple[Silence, ...] = ()) -> AlertingState:
    past = {each.once: each for each in alerts if each.phase == "resolved"}
    here = {each.key: each for each in alerts if each.phase != "resolved"}
    return AlertingState(here, past, {}, {each.id: each for each in silences})


def silence(id: str, starts: int, ends: int, **matchers: str) -> Silence:
    return Silence(id, matchers_of(matchers), "why", "ada", NOW + starts, NOW + ends)


def names(known: AlertSnapshot) -> list[str]:
    return [each.alert.key for each in known.listing.open]


def known(of: AlertingState, at: int = 0) -> AlertSnapshot:
    return AlertSnapshot(NOW + at, of, (), ())


def test_the_worst_and_newest_first_and_silenced_ones_last() -> None:
    those = state(
        alert("old"),
        alert("new", at=5),
        alert("page", severity="page", at=-9),
        alert("soon", PENDING, "page", at=9),
        alert("quiet", severity="page", owner="web", at=9),
        silences=(silence("s", 0, 1_000, owner="web"), silence("other", 0, 1_000, owner="nobody")),
    )
    found = known(those)
    assert names(found) == ["page", "new", "old", "soon", "quiet"]
    assert (found.firing, found.listing.pending, found.listing.silenced) == (3, 1, 1)
    assert found.listing.owners == ("shop", "web")
    rows = {row["key"]: row["silenced_by"] for row in body_of(found)["alerts"]}
    assert rows["quiet"] == "s" and rows["page"] is None


def test_a_listing_holds_until_a_silence_turns_or_the_state_is_another() -> None:
    those = state(alert("a"), silences=(silence("later", 500, 1_000, topic="shop.**"),))
    first = listing(those, NOW)
    assert first.firing == 1 and first.until_ms == NOW + 500
    assert first.holds(those, NOW + 499)
    assert not first.holds(those, NOW + 500) and not first.holds(replace(those), NOW)
    during = listing(those, NOW + 500)
    assert (during.firing, during.silenced, during.until_ms) == (0, 1, NOW + 1_000)
    after = listing(those, NOW + 1_000)
    assert (after.firing, after.until_ms) == (1, None) and after.holds(those, NOW + 10**9)


def test_a_page_of_thousands_has_some_of_them_and_counts_all() -> None:
    many = [alert(f"c{n:04}", owner=f"team{n % 7}", at=-n) for n in range(5_000)]
    over = [alert(f"p{n:04}", "resolved", at=-n) for n in range(500)]
    found = known(state(*many, *over))
    page = alerts_page(found, AlertsFilter(), 2, 3)
    assert (page.firing, len(page.rows), len(page.past)) == (5_000, PAGE, PAGE)
    assert (page.rows[0]["key"], page.past[0]["key"]) == (f"c{PAGE:04}", f"p{2 * PAGE:04}")
    assert (page.pager.total, page.past_pager.number) == (5_000, 3)
    narrowed = alerts_page(found, AlertsFilter(owner="team3"))
    assert narrowed.pager.total == 714 and {row["owner"] for row in narrowed.rows} == {"team3"}
    assert alerts_page(found, AlertsFilter(), 9_999).pager.number == 5_000 // PAGE
    assert len(body_of(found, lambda each: each.owner == "team3", 10)["alerts"]) == 10


def test_pages_of_both_lists_are_in_the_address() -> None:
    many = [alert(f"c{n:04}", at=-n) for n in range(120)]
    over = [alert(f"p{n:04}", "resolved", at=-n) for n in range(120)]
    page = alerts_page(known(state(*many, *over)), AlertsFilter(owner="shop"), 2, 1)
    form = {"matchers": "", "reason": "", "by": "", "for": "2h", "error": None}
    html = render(
        "monitor/alerts.html",
        facts=page,
        form=form,
        narrow=narrow,
        section="alerts",
        overview=Overview(NOW, KafkaHealth("b:1", NOW, None), None, (), ()),
        now_ms=NOW,
        here="/alerts",
        json_url="/api/alerts",
        path="/alerts",
    )
    assert 'href="/alerts?owner=shop&amp;page=3"' in html and 'href="/alerts?owner=shop&amp;page=1"' in html
    assert 'href="/alerts?owner=shop&amp;page=2&amp;past=2#history"' in html
    assert "/alerts?owner=shop&amp;page=2&amp;silence=" in html
    assert html.count('data-testid="alert-') == html.count('data-testid="past-') == PAGE
