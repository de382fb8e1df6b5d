"""Rows of latency: windows over cumulative counts, unknown distinct from zero, and freshness."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics

from hub.api.dashboard import StoreViews
from hub.cli.monitor.latency import line, skewed
from hub.materializers.stores.sql_store import Store
from hub.metrics.histogram import Histogram, edges_with
from hub.observability.lag.anchors import Anchor
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import LagState
from hub.observability.latency.latency import SILENT_MS, WINDOW_MS, LatencyRow, Series, Tracks, rows_of
from hub.observability.latency.pushes import MOST_SUBSCRIBERS, PATIENCE_MS, CoveredUpTo, Pushed, Pushes
from hub.observability.latency.recorder import LatencyRecorder
from hub.observability.latency.routes import create_router
from hub.observability.overview.reports import ViewReport
from hub.record import Positions, TopicPartition

NOW = 1_790_000_000_000


def told(
    spans: Sequence[float], at_ms: int, since_ms: int = NOW, view: str = "v", **more: Any
) -> dict[str, Any]:
    counts = Histogram(edges_with(2.0))
    for each in spans:
        counts.add(each)
    about = {"objective_s": 2.0, "sampled": False, "skewed": 0, "named": [], **more}
    series = [
        {"stage": stage, "origin": "live", **counts.body()} for stage in ("read", "changelog", "readable")
    ]
    return {"at_ms": at_ms, "since_ms": since_ms, "views": {view: {**about, "counts": series}}}


def lag(kind: str, state: LagState, seconds: float | None, view: str = "v") -> LagRow:
    return LagRow(
        *(kind, view, view, "t", "", state, f"{kind}'s cause", NOW, None, seconds, 0.1, None, None, None),
        *(None, None, None, None, ()),
    )


def readable(rows: Sequence[LatencyRow], store: str = "serving") -> LatencyRow:
    (found,) = [row for row in rows if (row.stage, row.store) == ("readable", store)]
    return found


def test_a_row_tells_of_the_last_minutes_only() -> None:
    tracks = Tracks()
    tracks.take_reports({"latency:serving": told([9.0] * 5, NOW + 1_000)}, NOW + 1_000)
    first = readable(rows_of(tracks, ["v"], [], NOW + 1_000))
    assert (first.events, first.within) == (5, 0.0)  # it began a second ago: all of it is of now
    spans = [9.0] * 5
    for step in range(1, 60):
        spans = [*spans, 1.0]
        at_ms = NOW + step * 10_000
        tracks.take_reports({"latency:serving": told(spans, at_ms)}, at_ms)
    last = readable(rows_of(tracks, ["v"], [], NOW + 590_000))
    assert last.within == 1.0
    assert last.total == 64
    assert last.events is not None and last.events <= WINDOW_MS / 10_000 + 1
    assert all(len(track.states) <= 32 for track in tracks.series.values())


def test_counts_of_hours_before_the_server_started_are_not_of_now() -> None:
    tracks = Tracks()
    tracks.take_reports({"latency:serving": told([9.0] * 1_000, NOW, since_ms=NOW - 86_400_000)}, NOW)
    assert readable(rows_of(tracks, ["v"], [], NOW)).events == 0
    # Another applier since: whatever it has counted is new, were it more than before.
    tracks.take_reports(
        {"latency:serving": told([1.0] * 1_200, NOW + 5_000, since_ms=NOW + 1_000)}, NOW + 5_000
    )
    row = readable(rows_of(tracks, ["v"], [], NOW + 5_000))
    assert (row.events, row.within) == (1_200, 1.0)


def test_not_measured_is_not_zero_and_a_dead_view_is_not_healthy() -> None:
    tracks = Tracks()
    unknown = readable(rows_of(tracks, ["v"], [], NOW))
    assert unknown.events is unknown.p50_s is unknown.freshness_s is None
    assert unknown.state == LagState.UNKNOWN
    assert line(json.loads(json.dumps(shown(unknown))))["events"] == "–"
    tracks.take_reports({"latency:serving": told([0.1] * 100, NOW)}, NOW)
    lags = [lag("applier", LagState.OK, 0.0), lag("view", LagState.STOPPED, 400.0)]
    row = readable(rows_of(tracks, ["v"], lags, NOW + 1_000))
    assert row.p99_s is not None and row.p99_s < 0.2  # its past is fine
    assert (row.state, row.freshness_s, row.cause) == (LagState.STOPPED, 400.0, "view's cause")
    later = rows_of(tracks, ["v"], lags, NOW + SILENT_MS + 1)
    silent = readable(later)
    assert silent.silent and all(row.silent for row in later)
    assert line(shown(silent))["p99"] == "–"


def shown(row: LatencyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_a_quantile_beyond_the_last_bucket_is_shown_as_more() -> None:
    tracks = Tracks()
    tracks.take_reports({"latency:serving": told([math.inf] * 3, NOW)}, NOW)
    row = readable(rows_of(tracks, ["v"], [], NOW))
    assert line(shown(row))["p50"] == "> 30 min"


def test_what_is_no_record_of_ours_is_left_out() -> None:
    tracks = Tracks()
    tracks.take_reports({"latency:serving": {"views": 3}, "latency:x": {}, "state:v": {}}, NOW)
    assert tracks.series == {}


def test_a_stage_of_another_version_breaks_neither_the_rows_nor_the_steps() -> None:
    facts = Facts()
    counts = {"stage": "archived", "origin": "live", **Histogram().body()}
    told = {"objective_s": None, "sampled": False, "skewed": 0, "counts": [counts]}
    facts.records = {"latency:serving": {"at_ms": NOW, "since_ms": NOW, "views": {"v": told}}}
    watched = board(facts)
    watched.step()
    assert [row.stage for row in watched.rows()] == ["readable"]
    facts.records = {"latency:serving": {"views": 3}}
    watched.step()


class Facts:
    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.reports = (ViewReport("v"),)
        self.rings = {"t": {0: (Anchor(10, NOW - 5_000, NOW - 4_000), Anchor(12, NOW - 3_000, NOW))}}
        self.lags = [lag("view", LagState.OK, 0.5)]

    def rows(self) -> Sequence[LagRow]:
        return self.lags


def board(facts: Facts) -> LatencyRecorder:
    return LatencyRecorder(facts, facts, lambda sources: (sources or {}).get("at"), now_ms=lambda: NOW)


def test_appended_and_pushed_are_counted_beside_what_stores_tell() -> None:
    facts = Facts()
    made = board(facts)
    named = [
        ["t", 0, 9, NOW - 9_000],
        ["t", 0, 10, NOW - 64_000],
        ["t", 0, 11, NOW - 3_500],
        ["t", 0, 99, NOW],
    ]
    facts.records = {"latency:serving": told([0.3], NOW, named=named), "latency:duck": told([50.0], NOW)}
    made.step()
    made.step()  # named once more: not counted again
    made.pushed("v", {"at": NOW - 700})
    made.pushed("v", {"at": NOW - 7_200_000})
    made.pushed("v", None)
    made.step()
    rows = {(row.stage, row.store, row.origin): row for row in made.rows()}
    appended = rows["appended", "", "live"]
    # Offset 9 was there before the hub looked, 99 was not seen yet; 10 came a minute late, 11 at once.
    assert (appended.events, appended.total, appended.sampled) == (2, 2, True)
    assert made.counted[Series("v", "appended", "", "live")].within(60.0) == 1.0
    assert rows["pushed", "", "live"].total == rows["pushed", "", "replay"].total == 1
    assert rows["readable", "duck", "live"].total == 1
    assert (
        rows["read", "", "live"].total == rows["changelog", "", "live"].total == 1
    )  # of one store, not of both
    assert ("changelog", "duck", "live") not in rows and ("read", "duck", "live") not in rows
    assert [row.stage for row in made.rows() if row.origin == "live"] == [
        *("appended", "read", "changelog", "readable", "readable", "pushed"),
    ]
    facts.reports = (ViewReport("other"),)
    made.step()
    assert {row.view for row in made.rows()} == {"other"}


def test_an_event_of_a_clock_that_is_ahead_is_not_fast_but_unknown() -> None:
    facts = Facts()
    made = board(facts)
    facts.records = {"latency:serving": told([], NOW, named=[["t", 0, 10, NOW + 60_000]], skewed=7)}
    made.pushed("v", {"at": NOW + 60_000})
    made.pushed("v", {"at": NOW + 900})  # two clocks that are kept may differ by so much
    made.step()
    rows = made.rows()
    assert {row.stage: row.total for row in rows} == {
        **dict.fromkeys(("read", "changelog", "readable"), 0),
        "pushed": 1,
    }
    row = readable(rows)
    assert (row.events, row.within, row.p99_s, row.skewed) == (0, None, None, 7)
    assert line(asdict(row))["within"] == "–" == line(asdict(row))["p50"]
    assert skewed([asdict(each) for each in rows]) == {"v": 7}


def at(offset: int) -> Positions:
    return Positions.of([("t", 0, offset)])


def test_a_push_of_rows_that_name_no_events_is_measured_by_the_sampled_ones() -> None:
    facts = Facts()
    made = board(facts)
    made.record_progress("v", 1, at(5), at(9))  # not reported yet that its rows name no events
    facts.records = {"latency:serving": told([0.3], NOW, sampled=True)}
    made.step()
    made.record_progress("v", 1, at(9), at(12))
    named = [["t", 0, 8, NOW - 9_000], ["t", 0, 11, NOW - 700], ["t", 0, 20, NOW - 400]]
    facts.records = {"latency:serving": told([0.3], NOW, sampled=True, named=named)}
    made.step()
    made.step()
    rows = {row.stage: row for row in made.rows()}
    # Offset 8 was pushed before the view was followed, 20 was not pushed yet.
    assert (rows["pushed"].total, rows["pushed"].sampled) == (1, True)
    assert made.counted[Series("v", "pushed", "", "live")].within(1.0) == 1.0
    made.record_progress("v", 1, at(12), at(30))
    made.step()
    made.step()
    assert {row.stage: row for row in made.rows()}["pushed"].total == 2


def test_each_subscriber_counts_and_a_slow_one_is_waited_for() -> None:
    pushes, place = Pushes(), TopicPartition("t", 0)
    pushes.named("v", place, 3, 100, 1_000)  # no subscriber yet
    for subscriber in range(MOST_SUBSCRIBERS + 1):
        pushes.record_progress("v", subscriber, CoveredUpTo(at(0), at(2), 1_000))
    pushes.named("v", place, 3, 100, 1_000)
    pushes.named("v", place, 3, 100, 1_000)
    assert pushes.met(1_000) == []
    for subscriber in range(MOST_SUBSCRIBERS + 1):
        pushes.record_progress("v", subscriber, CoveredUpTo(at(2), at(4), 1_000 + subscriber))
    pushes.record_progress("v", 0, CoveredUpTo(at(4), at(9), 2_000))
    met = pushes.met(2_000)
    assert met == [Pushed("v", 100, 1_000 + each) for each in range(MOST_SUBSCRIBERS)]
    assert pushes.met(2_000) == []
    # Those of before have left: one that comes now is followed.
    late = 3_000 + PATIENCE_MS
    pushes.record_progress("v", 99, CoveredUpTo(at(2), at(9), late))
    assert pushes.met(late) == [Pushed("v", 100, late)]
    pushes.record_progress("v", 98, CoveredUpTo(at(2), at(9), late))
    assert pushes.met(late) == []  # the event was named too long ago
    pushes.forget(["other"])
    assert pushes.views == {}


def test_what_lay_in_a_partition_before_it_was_covered_is_no_push() -> None:
    pushes, place = Pushes(), TopicPartition("t", 1)
    pushes.record_progress("v", 1, CoveredUpTo(at(0), Positions.of([("t", 0, 4), ("t", 1, 10)]), 1_000))
    pushes.named("v", place, 3, 100, 1_000)
    assert pushes.met(1_000) == []


def test_the_json_and_the_series() -> None:
    facts = Facts()
    made = board(facts)
    facts.records = {"latency:serving": told([0.3, 3.0], NOW)}
    made.step()
    app = FastAPI()
    app.include_router(create_router(made))
    client = TestClient(app)
    (row,) = client.get("/api/latency", params={"stage": "readable", "view": "v"}).json()
    assert (row["events"], row["within"], row["freshness_s"]) == (2, 0.5, 0.5)
    assert client.get("/api/latency", params={"view": "none"}).json() == []
    (row,) = client.get("/api/latency", params={"stage": "read"}).json()
    assert (row["stage"], row["store"], row["events"], line(row)["stage"]) == ("read", "", 2, "read")
    assert client.get("/api/latency", params={"stage": "no"}).status_code == 422
    text = generate_latest(registry(made)).decode()
    assert 'hub_view_latency_seconds_count{origin="live",stage="read",store="",view="v"} 2.0' in text
    labels = 'origin="live",stage="readable",store="serving",view="v"'
    assert f'hub_view_latency_seconds_bucket{{le="2.0",{labels}}} 1.0' in text
    assert f"hub_view_latency_seconds_count{{{labels}}} 2.0" in text
    assert 'hub_view_freshness_seconds{view="v"} 0.5' in text
    assert 'hub_view_latency_objective_seconds{view="v"} 2.0' in text
    facts.lags = [lag("view", LagState.UNKNOWN, None)]
    assert "hub_view_freshness_seconds{" not in generate_latest(registry(made)).decode()


def registry(made: LatencyRecorder) -> CollectorRegistry:
    class Families:
        def collect(self) -> Any:
            return made.families()

    found = CollectorRegistry()
    found.register(Families())
    return found


class Versions:
    """A store that reads the second version of its view."""

    def progress(self) -> dict[str, Any]:
        both = {"views": {"v": {"old": 1}, "v@2": {"new": 1}, "gone": {}}}
        return {"latency:serving": dict(both), "latency:lake": dict(both)}

    def names(self) -> list[str]:
        return ["v"]

    def served_tables(self) -> dict[str, str]:
        return {"v": "v@2"}

    def positions(self, view: str, kind: str) -> Positions:
        return Positions()


def test_what_is_told_of_a_version_is_shown_of_the_view_that_shows_it() -> None:
    records = StoreViews(cast(Store, Versions())).progress()
    assert records["latency:serving"]["views"] == {"v": {"new": 1}}
    assert records["latency:lake"]["views"] == {"v": {"old": 1}}  # such a store has one table a view


def test_a_traced_event_is_the_exemplar_of_its_series_and_of_its_bucket() -> None:
    facts = Facts()
    made = board(facts)
    body = told([0.3, 0.7], NOW)
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    named = {"stage": "readable", "origin": "live", "trace_id": trace_id, "seconds": 0.7, "at_ms": NOW}
    body["views"]["v"]["exemplars"] = [named]
    facts.records = {"latency:serving": body}
    made.step()
    row = readable(made.rows())
    assert row.exemplar is not None and row.exemplar.trace_id == trace_id
    assert line({**shown(row), "exemplar": asdict(row.exemplar)})["trace"] == trace_id
    text = as_openmetrics(registry(made)).decode()  # type: ignore[no-untyped-call]
    (bucket,) = [each for each in text.splitlines() if trace_id in each]
    assert 'le="1.0"' in bucket and f'# {{trace_id="{trace_id}"}} 0.7' in bucket
    assert trace_id not in generate_latest(registry(made)).decode()
    body["views"]["v"]["exemplars"] = [{**named, "stage": "changelog"}]
    made.step()
    assert readable(made.rows()).exemplar == row.exemplar  # the last exemplar stays


def test_who_is_silent_is_told_by_our_clock_alone() -> None:
    tracks = Tracks()
    for tick in range(4):  # its clock is an hour behind
        tracks.take_reports(
            {"latency:serving": told([0.1], NOW - 3_600_000 + tick * 5_000)}, NOW + tick * 5_000
        )
    assert not readable(rows_of(tracks, ["v"], [], NOW + 15_000)).silent
    tracks = Tracks()
    ahead = {"latency:serving": told([0.1], NOW + 3_600_000)}
    for tick in range(60):  # and of a dead one, an hour ahead
        tracks.take_reports(ahead, NOW + tick * 5_000)
    assert readable(rows_of(tracks, ["v"], [], NOW + 300_000)).silent


def test_a_clock_that_is_set_back_leaves_no_window_of_the_future() -> None:
    tracks, counts = Tracks(), Histogram()
    series = Series("v", "pushed", "", "live")
    tracks.put(series, counts.copy(), NOW, zero_ms=NOW)
    counts.add(0.1)
    tracks.put(series, counts.copy(), NOW + 20_000)
    for tick in range(40):
        counts.add(0.1)
        tracks.put(series, counts.copy(), NOW - 3_600_000 + tick * 10_000)
    (row,) = rows_of(tracks, ["v"], [], NOW - 3_600_000 + 390_000)
    assert 0 < row.window_s <= 310 and (row.events or 0) <= 31


def test_a_topic_made_again_is_sampled_from_its_start() -> None:
    facts = Facts()
    made = board(facts)
    facts.records = {"latency:serving": told([], NOW, named=[["t", 0, 11, NOW - 3_500]])}
    made.step()
    facts.rings = {"t": {0: (Anchor(0, NOW - 5_000, NOW - 4_000), Anchor(2, NOW - 3_000, NOW))}}
    facts.records = {"latency:serving": told([], NOW, named=[["t", 0, 1, NOW - 3_500]])}
    made.step()
    made.step()
    assert made.counted[Series("v", "appended", "", "live")].count == 2


def test_the_last_view_that_is_gone_is_shown_no_more() -> None:
    facts = Facts()
    made = board(facts)
    facts.records = {"latency:serving": told([0.5], NOW)}
    made.step()
    made.pushed("v", {"at": NOW - 100})
    made.step()
    assert {row.view for row in made.rows()} == {"v"}
    facts.reports = ()
    facts.records = {"latency:serving": {**told([], NOW), "views": {}}}
    made.step()
    made.step()
    assert made.rows() == [] and made.counted == {}
