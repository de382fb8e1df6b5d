"""Heat map cells: gaps, duplicates, explained, unknown and empty cells are distinct, and unknown is never
0."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from browser.staged_estate import estate
from browser.staged_ledger import MINUTE, StagedLedger, entry, lacking, minutes, staged
from fastapi.testclient import TestClient

from hub.cli.monitor.completeness import bucket
from hub.completeness.counts import Cell, Cells, CountEntry, Holes, MinuteHoles, named
from hub.completeness.minutes import minute_grid_of
from hub.errors import CallerError, NotFound
from hub.observability.web.pages.monitor.completeness import (
    PAGE,
    CompletenessPage,
    CountedTopics,
    GridFilter,
    TopicCountsRow,
    cell_of,
    completeness_page,
)
from hub.observability.web.pages.monitor.completeness_counts import CellState, MinuteRange, joined
from hub.observability.web.pages.monitor.completeness_times import RANGES, fitting, tick, until_of

NOW = 1_790_000_000_000 // MINUTE * MINUTE
BEGIN = NOW - 10 * MINUTE
COUNTS = [5, 0, 7, 9, 4]


def shown(
    kept: StagedLedger | CountedTopics, wanted: GridFilter = GridFilter(), **more: object
) -> CompletenessPage:
    known = kept if isinstance(kept, CountedTopics) else kept.latest()
    return completeness_page(known, (), wanted, NOW, **more)  # type: ignore[arg-type]


def states(entries: list[CountEntry], at: range = range(5)) -> list[str]:
    heat = minute_grid_of(entries)
    assert heat is not None
    found = []
    for number in at:
        at_ms = BEGIN + number * MINUTE
        those = [heat.minutes[at_ms]] if at_ms in heat.minutes else []
        found.append(str(cell_of(heat, those, at_ms, MINUTE).state))
    return found


def with_copy(there: Cells, **more: object) -> list[CountEntry]:
    log = entry("t", minutes(BEGIN, COUNTS), NOW, **more)
    return [log, named(log, "mirror", there, NOW, instance="m")]


def test_each_state_is_told_apart() -> None:
    whole = minutes(BEGIN, COUNTS)
    assert states(with_copy(whole)) == ["COMPLETE", "EMPTY", "COMPLETE", "COMPLETE", "COMPLETE"]
    assert states(with_copy(lacking(whole, BEGIN + 2 * MINUTE, 1)))[2] == "GAP"
    assert states(with_copy(lacking(whole, BEGIN + 2 * MINUTE, -1)))[2] == "DUPLICATES"
    swapped = Cells({**whole, BEGIN: Cell(5, 1, 0)})
    assert states(with_copy(swapped))[0] == "GAP"
    aborted = {BEGIN + 3 * MINUTE: MinuteHoles(Holes(aborted=2, markers=1))}
    assert states(with_copy(whole, spots=aborted, holes=Holes(aborted=2, markers=1)))[3] == "EXPLAINED"
    nothing = {BEGIN + 3 * MINUTE: MinuteHoles(Holes(aborted=2, unexplained=1))}
    assert states(with_copy(whole, spots=nothing))[3] == "GAP"
    assert states(with_copy(whole, spots={BEGIN: MinuteHoles(Holes(), 2)}))[0] == "DUPLICATES"
    assert states(with_copy(Cells({**whole, BEGIN + MINUTE: Cell(1, 1, 1)})))[1] == "DUPLICATES"


def test_what_is_not_known_is_unknown_and_never_empty() -> None:
    whole = minutes(BEGIN, COUNTS)
    log = entry("t", whole, BEGIN + 5 * MINUTE)
    mirror = named(log, "mirror", whole, NOW, instance="m")
    later = states([log, mirror], range(-2, 8))
    assert later[:2] == ["EMPTY", "EMPTY"]  # before offset 0 there was nothing
    assert later[-3:] == ["UNKNOWN"] * 3  # after the audit
    assert states([log]) == ["UNKNOWN", "EMPTY", "UNKNOWN", "UNKNOWN", "UNKNOWN"]  # nobody to compare with
    assert states([log, replace(mirror, why="retention was faster", cells=Cells())])[0] == "UNKNOWN"
    begun = replace(log, first=100, end=125)
    assert states([begun, replace(mirror, first=100, end=125)], range(-1, 2)) == [
        "UNKNOWN",
        "COMPLETE",
        "EMPTY",
    ]
    behind = replace(log, first=500, end=510, cells=minutes(BEGIN + 4 * MINUTE, [10]))
    assert states([log, mirror, behind])[1] == "UNKNOWN"  # offsets between them are not audited
    quiet = replace(log, partition=1, at_ms=BEGIN + 2 * MINUTE, cells=minutes(BEGIN, [1]))
    assert states([log, quiet])[1] == "EMPTY" and states([log, quiet], range(5, 6)) == ["UNKNOWN"]
    assert (
        states([replace(log, compact=True), replace(mirror, cells=lacking(whole, BEGIN, 2))])[0] == "UNKNOWN"
    )
    assert minute_grid_of([]) is None
    assert cell_of(None, (), BEGIN, MINUTE).records is None


def test_receipts_are_compared_in_their_minutes_and_rows_of_stores_have_none() -> None:
    whole = minutes(BEGIN, COUNTS)
    log = entry("t", whole, NOW)
    source = replace(log, tier="source", instance="p", runs=((0, 25),))
    found = named(source, "found", lacking(whole, BEGIN, 2), NOW)
    assert states([log, source, found])[:3] == ["GAP", "EMPTY", "COMPLETE"]
    assert states([log, source])[0] == "UNKNOWN"
    assert states([log, replace(source, dropped=3), named(source, "found", whole, NOW)])[0] == "UNKNOWN"
    rows = entry("t", Cells({0: Cell(9, 1, 0)}), NOW, tier="view", instance="main")
    heat = minute_grid_of([log, rows, named(rows, "store", Cells({0: Cell(8, 1, 0)}), NOW)])
    assert heat is not None and 0 not in heat.minutes
    (store,) = heat.stores
    assert (store.state, store.expected, store.there, store.missing) == ("SHORT", 9, 8, 1)


def test_minutes_add_up_to_a_column_and_the_worst_is_its_state() -> None:
    whole = minutes(BEGIN, COUNTS)
    heat = minute_grid_of(with_copy(lacking(whole, BEGIN, 2), spots={BEGIN: MinuteHoles(Holes(aborted=3))}))
    assert heat is not None
    all_of_it = joined(list(heat.minutes.values()))
    (side,) = all_of_it.sides
    assert (all_of_it.records, all_of_it.aborted) == (25, 3)
    assert (side.state, side.expected, side.there, side.missing) == ("SHORT", 25, 23, 2)
    assert joined([]) == MinuteRange()


def test_holes_of_older_hubs_are_in_no_minute() -> None:
    heat = minute_grid_of([entry("t", minutes(BEGIN, COUNTS), NOW, holes=Holes(compacted=4), repeated=1)])
    assert heat is not None and heat.unplaced == 5
    assert all(each.compacted == 0 for each in heat.minutes.values())


def test_the_page_names_the_command_for_what_is_missing() -> None:
    page = shown(staged(NOW), topic="shop.orders", at=str(NOW - 13 * MINUTE))
    assert page.chosen is not None and page.chosen.state is CellState.GAP
    (said, missing), (_, run) = page.chosen.commands
    assert (
        missing.startswith("hub completeness missing shop.orders 20")
        and run == "hub completeness run shop.orders"
    )
    assert missing.split()[-1] in said
    assert [side.there for side in page.chosen.sides if side.kind == "mirror"] != [None]
    assert page.chosen.records is not None
    unknown = shown(staged(NOW), topic="shop.orders").chosen
    assert unknown is not None and (unknown.state, unknown.records) == (CellState.UNKNOWN, None)
    assert [topic for topic, _ in page.differing][:2] == ["shop.orders"] * 2
    day = shown(staged(NOW), GridFilter(range="24h"), topic="shop.orders", at=str(NOW - 30 * MINUTE))
    assert day.chosen is not None and day.chosen.end_ms - day.chosen.at_ms == 30 * MINUTE


def test_worst_first_by_branch_and_counts_of_all() -> None:
    page = shown(staged(NOW))
    assert [row.topic for row in page.rows] == [
        "shop.orders",
        "shop.payments",
        "views.customer_360",
        "crm.consent",
        "crm.customers",
        "web.visits",
    ]
    assert dict(page.counts) == {"SHORT": 2, "EXCESS": 1, "UNEXPLAINED": 1, "UNKNOWN": 1, "BALANCED": 1}
    view = next(row for row in page.rows if row.branch == "views")
    assert view.said.startswith("view main") and view.elsewhere_ms is None
    later = shown(staged(NOW), GridFilter(until=str(NOW - 100 * MINUTE)))
    assert later.rows[0].elsewhere_ms == NOW - 13 * MINUTE and later.newer and later.older
    tree = shown(staged(NOW), GridFilter(order="tree"))
    assert [row.branch for row in tree.rows] == ["crm", "crm", "shop", "shop", "views", "web"]
    short = shown(staged(NOW), GridFilter(topics="shop.*", state=("SHORT",)))
    assert [row.topic for row in short.rows] == ["shop.orders"] and dict(short.counts) == {
        "SHORT": 1,
        "EXCESS": 1,
    }


@pytest.mark.parametrize("span", RANGES)
def test_every_range_ends_with_now(span: str) -> None:
    page = shown(staged(NOW), GridFilter(range=span))
    assert page.columns[-1] <= NOW <= page.until_ms and len(page.columns) == len(page.rows[0].cells)
    assert any(tick(at, page.step_ms) for at in page.columns) and page.newer == ""


def test_ten_thousand_topics_cost_a_page_of_cells() -> None:
    asked: list[str] = []
    log = minute_grid_of([entry("t", minutes(BEGIN, COUNTS), NOW)])

    def minutes_of(topic: str) -> object:
        asked.append(topic)
        return log

    topics = [TopicCountsRow(f"a{number % 40}.t{number}", "BALANCED", "") for number in range(5_000)]
    known = CountedTopics(topics, None, True, minutes_of)  # type: ignore[arg-type]
    names = [f"n.t{number}" for number in range(5_000)]
    page = completeness_page(known, names, GridFilter(), NOW, 2)
    assert (page.total, page.pager.pages, len(page.rows), len(asked)) == (10_000, 400, PAGE, PAGE)
    assert dict(page.counts) == {"BALANCED": 5_000, "NEVER": 5_000}
    last = completeness_page(known, names, GridFilter(), NOW, 400)
    assert {cell.state for row in last.rows for cell in row.cells} <= set(CellState)
    assert all(row.state == "NEVER" for row in last.rows)


@pytest.mark.parametrize(
    "wanted",
    [GridFilter(state=("BAD",)), GridFilter(range="2h"), GridFilter(order="x"), GridFilter(until="soon")],
)
def test_what_cannot_be_asked_is_refused(wanted: GridFilter) -> None:
    with pytest.raises(CallerError) as refused:
        shown(staged(NOW), wanted)
    assert refused.value.hint
    with pytest.raises(NotFound, match="no.such"):
        shown(staged(NOW), topic="no.such")


def test_patterns_and_times() -> None:
    assert fitting("shop.*")("shop.orders") and not fitting("shop.*")("a.shop.orders")
    assert fitting("ord")("shop.orders") and fitting("s?op.[a]*")("shop.[a]b") and fitting("")("any")
    assert until_of("2026-01-31T12:30Z", 0) == until_of("1769862600000", 0) == 1_769_862_600_000
    for wrong in ("-5", "99999999999999999", "999999999999999", "9999-13-01"):
        with pytest.raises(CallerError):
            until_of(wrong, 0)


@pytest.mark.parametrize(
    "at_ms",
    [1_790_000_000_000_000, 253_402_300_740_000, 9_223_372_036_854_720_000, NOW - 500 * MINUTE],
    ids=["microseconds", "the year 9999", "the largest", "a date"],
)
def test_trouble_at_any_time_that_a_record_may_have_is_reached_by_its_link(at_ms: int) -> None:
    at_ms = at_ms // MINUTE * MINUTE
    whole = minutes(at_ms, [4])
    log = entry("far.t", whole, NOW)
    hub = estate()
    hub.ledger.keep(log, named(log, "mirror", lacking(whole, at_ms, 1), NOW, instance="m"))
    with TestClient(hub.app()) as client:
        page = client.get("/completeness?topics=far.t", headers={"accept": "text/html"}).text
        (link,) = re.findall(r'class="elsewhere" href="([^"]+)"', page)
        reached = client.get(unescape(link), headers={"accept": "text/html"})
        assert reached.status_code == 200 and "1 record is not at the target" in reached.text
        (command,) = re.findall(r"hub completeness missing far.t ([^<]+)<", reached.text)
    assert bucket(unescape(command)) == at_ms
