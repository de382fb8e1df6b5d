"""Charts: ticks, lines with gaps, what a chart says in words, the routes, and the same series by
Prometheus.
"""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser.staged_estate import ORDERS, StagedEstate, estate
from browser.staged_series import GAP, READERS, STEP_MS, STEPS, TOPIC, in_rate, staged_series
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import PeerError
from hub.observability.series.catalog import HUB, METRICS, Unit, reader_object
from hub.observability.series.marks import Mark
from hub.observability.series.prometheus import PrometheusSeries
from hub.observability.series.reading import SeriesAnswer, SeriesLine, SeriesReader
from hub.observability.series.rollup import DAY_MS, MINUTE_MS, RANGES, window_of
from hub.observability.web.charts.axes import labeled, time_ticks, value_ticks
from hub.observability.web.charts.charts import charts_of
from hub.observability.web.charts.drawing import HIGH, WIDE, band, gaps, known_runs, line

NOW = 1_790_000_001_234
VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=1, max_size=50)


# ---- axes and lines


@given(st.floats(1e-6, 1e15), st.sampled_from(list(Unit)))
def test_ticks_are_few_ascend_from_zero_and_cover_the_largest_value(top: float, unit: Unit) -> None:
    ticks = value_ticks(top, unit)
    assert ticks[0] == 0 and ticks[-1] >= top * (1 - 1e-9)
    assert 2 <= len(ticks) <= 6
    assert len({labeled(each, unit) for each in ticks}) == len(ticks) or top < 0.02 or top > 1e12


@given(st.integers(0, 2 * 10**12), st.integers(10 * MINUTE_MS, 40 * DAY_MS))
def test_times_are_round_few_and_within_the_span(start_ms: int, span_ms: int) -> None:
    ticks = time_ticks(start_ms, start_ms + span_ms)
    assert 1 <= len(ticks) <= 8
    assert all(start_ms <= at_ms < start_ms + span_ms and at_ms % MINUTE_MS == 0 for at_ms, _ in ticks)


@given(VALUES)
def test_a_line_has_each_known_value_once_and_no_unknown_one(values: list[float | None]) -> None:
    known = sum(value is not None for value in values)
    path = line(values, 1e9)
    assert len(re.findall(r"[ML][\d.]+ [\d.]+", path)) == known
    assert path.count("M") == len(list(known_runs(values)))
    missing = sum(after - first for first, after in gaps(values))
    assert missing == len(values) - known
    for x, y in re.findall(r"([\d.]+) ([\d.]+)", path):
        assert 0 <= float(x) <= WIDE and 0 <= float(y) <= HIGH


def test_a_band_ends_at_a_gap() -> None:
    low, high = [1.0, 1.0, None, 1.0, 1.0], [3.0, 3.0, None, 9.0, 9.0]
    assert band(low, high, 4.0) == "M100 50L300 50L300 150L100 150ZM700 0L900 0L900 150L700 150Z"


# ---- the charts of staged series


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SeriesReader:
    return staged_series(tmp_path_factory.mktemp("series"), NOW)


def test_a_chart_says_its_values_band_and_gaps_in_words(reader: SeriesReader) -> None:
    answer = reader.read([TOPIC], (), RANGES["1h"])
    rates, lag, *_ = charts_of([TOPIC], answer, lambda _kind: None)
    assert rates.summary.startswith("Records in and out: in ")
    assert "from 80/s to 250/s" in rates.summary and "8 % of the time is not known" in rates.summary
    assert rates.gaps == ((f"{100 * GAP[0] / STEPS:.2f}%", f"{100 * len(GAP) / STEPS:.2f}%"),)
    assert [each.title for each in rates.lines] == ["in", "out, all readers"]
    data = json.loads(rates.data)
    assert data["lines"][0]["values"][99:102] == [float(f"{in_rate(step):.4g}") for step in (99, 100, 101)]
    assert data["lines"][0]["values"][GAP[0]] is None
    assert lag.band_of == "band: error bound" and lag.lines[0].band.count("M") == 2
    assert json.loads(lag.data)["error"][0] == 0.4
    # At the first step the lag is 1 s, so the band is from 0.6 to 1.4 s, of a scale that ends at 3 s.
    edges = [float(y) for x, y in re.findall(r"([\d.]+) ([\d.]+)", lag.lines[0].band) if float(x) < 2]
    assert edges == pytest.approx([HIGH * (1 - 1.4 / 3), HIGH * (1 - 0.6 / 3)], abs=0.1)
    assert [mark.text.split(" ", 1)[1] for mark in rates.marks] == ["server started", "alert lag fires"]


def test_marks_that_are_near_each_other_share_a_place_and_far_ones_do_not() -> None:
    window = window_of(RANGES["1h"], NOW)
    at = [window.start_ms + minute * MINUTE_MS for minute in (10, 11, 12, 30)]
    marks = tuple(Mark(at_ms, "start", HUB, f"p{number}") for number, at_ms in enumerate(at))
    line = SeriesLine(TOPIC, METRICS["topic"]["in_per_s"], (None,) * STEPS)
    chart, *_ = charts_of([TOPIC], SeriesAnswer("1h", window, (line,), marks), lambda _kind: None)
    assert [(each.numbers, each.at) for each in chart.marks] == [("1–3", "16.67%"), ("4", "50.00%")]
    assert [f"p{number}" in chart.marks[0].text for number in range(4)] == [True, True, True, False]


def test_several_readers_are_a_line_each_without_a_band_of_error(reader: SeriesReader) -> None:
    answer = reader.read(READERS, (), RANGES["1h"])
    lag, *_ = charts_of(READERS, answer, lambda _kind: None)
    assert [each.title for each in lag.lines] == [f"{each.reader[1]} reads {ORDERS}" for each in READERS]
    assert lag.band_of == ""


def test_a_longer_range_shows_the_extremes_as_a_band(reader: SeriesReader) -> None:
    answer = reader.read([TOPIC], ["in_per_s", "out_per_s"], RANGES["24h"])
    (rates, *_) = charts_of([TOPIC], answer, lambda _kind: None)
    assert rates.band_of == "band: smallest and largest value"
    peak = max((each for each in answer.lines[0].buckets if each is not None), key=lambda each: each.high)
    assert peak.high == 250.0 > peak.mean


def test_nothing_recorded_is_said_and_is_not_zero(reader: SeriesReader) -> None:
    unseen = reader_object("group", "nobody", ORDERS)
    charts = charts_of([unseen], reader.read([unseen], (), RANGES["1h"]), lambda _kind: None)
    assert all(not chart.is_known and "is not known" in chart.summary for chart in charts)
    assert all(each.newest == "–" for chart in charts for each in chart.lines)


# ---- routes


@pytest.fixture(scope="module")
def client(reader: SeriesReader) -> Iterator[TestClient]:
    staged: StagedEstate = estate()
    staged.series, staged.has_charts = reader, True
    with TestClient(staged.app()) as opened:
        yield opened


def test_series_are_json_and_csv_with_unknown_as_null_and_empty(client: TestClient) -> None:
    of = {"of": str(TOPIC), "metric": "in_per_s", "range": "1h"}
    found = client.get("/api/series", params=of).json()
    (series,) = found["series"]
    assert found["source"] == "hub" and len(found["at_ms"]) == len(series["values"]) == STEPS
    assert series["values"][100] == 250.0 and series["samples"][100] == 1
    assert series["values"][GAP[0]] is None and series["samples"][GAP[0]] == 0
    assert [mark["kind"] for mark in found["marks"]] == ["start", "alert"]
    text = client.get("/api/series", params={**of, "format": "csv"}).text
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["time", f"topic:{ORDERS} in_per_s"] and len(rows) == STEPS + 1
    assert rows[101][1] == "250.0" and rows[GAP[0] + 1][1] == ""


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("of=planet:x", "HUB-1006"),
        (f"of=topic:{ORDERS}&metric=rows", "HUB-1007"),
        (f"of=topic:{ORDERS}&range=1y", "HUB-1008"),
        (f"of=topic:{ORDERS}&of=view:x", "HUB-1000"),
    ],
)
def test_what_is_asked_wrongly_is_an_error_of_the_caller(client: TestClient, query: str, code: str) -> None:
    answer = client.get(f"/api/series?{query}")
    assert (answer.status_code, answer.json()["error_code"]) == (400, code)
    part = client.get(f"/ui/charts?{query}".replace("&metric=rows", "&range=none"))
    assert (
        part.status_code == 200 and 'id="charts-part"' in part.text and 'data-testid="trouble"' in part.text
    )


@pytest.mark.parametrize(
    "path",
    [f"/topics/{ORDERS}", "/views/customer_360", "/lag", "/lag?name=billing", "/cluster", "/mirrors", "/"],
)
def test_pages_have_the_part_of_their_charts_and_links_to_ranges(client: TestClient, path: str) -> None:
    join = "&" if "?" in path else "?"
    page = client.get(f"{path}{join}range=6h", headers={"accept": "text/html"}).text
    part = re.search(r'hx-get="(/ui/charts\?[^"]*)"', page)
    assert part is not None and "range=6h" in part[1]
    assert re.search(r'href="[^"]*range=24h#charts"', page)
    shown = client.get(part[1].replace("&amp;", "&"))
    assert shown.status_code == 200 and 'class="plot"' in shown.text
    assert not re.search(r"<script|\bstyle=|\son\w+=", shown.text)


def test_a_link_to_a_range_keeps_the_filter(client: TestClient) -> None:
    page = client.get("/lag?state=OK&state=STALLED&range=7d", headers={"accept": "text/html"}).text
    assert 'href="/lag?state=OK&amp;state=STALLED&amp;range=30d#charts"' in page
    assert 'href="/lag?state=OK&amp;state=STALLED#charts"' in page  # the default range has no parameter


def test_the_numbers_are_a_table_with_the_newest_first(client: TestClient) -> None:
    text = client.get("/ui/charts/numbers", params={"of": str(TOPIC), "range": "1h"}).text
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", text)
    assert len(rows) == STEPS - len(GAP)
    newest = in_rate(STEPS - 1)
    assert f'<td class="n">{labeled(newest, Unit.per_second)}</td>' in rows[0]
    assert labeled(250.0, Unit.per_second) in "".join(rows)


# ---- Prometheus


@contextmanager
def prometheus(body: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Serve ``body`` as the answer to every query, on a free port; yield the address and the queries."""
    asked: list[dict[str, list[str]]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(parse_qs(urlsplit(self.path).query))
            text = json.dumps(body).encode() if not isinstance(body, bytes) else body
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://ada:secret@127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def answer_of(values: list[tuple[float, str]]) -> dict[str, Any]:
    return {
        "status": "success",
        "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]},
    }


def test_series_are_read_from_prometheus_with_gaps_and_escaped_names() -> None:
    window = window_of(RANGES["1h"], NOW)
    first_s = (window.start_ms + STEP_MS) / 1000
    values = [(first_s, "1.5"), (first_s + 10, "NaN"), (first_s + 30, "2.5")]
    about = reader_object("group", 'a"b', ORDERS)
    with prometheus(answer_of(values)) as (url, asked):
        reader = PrometheusSeries(url)
        found = reader.read([(about, "lag_s"), (about, "read_per_s")], window)
        assert found.keys() == {(about, "lag_s")}  # the other one is not in /metrics
        points = [(at_ms - window.start_ms, bucket.mean) for at_ms, bucket in found[about, "lag_s"]]
        assert points == [(0, 1.5), (30_000, 2.5)]
        reader.read([(about, "lag_s")], window)
        assert len(asked) == 1  # the second viewer gets the same answer
    query = f'max(hub_consumer_lag_seconds{{kind="group",consumer="a\\"b",topic="{ORDERS}"}})'
    assert asked[0]["query"] == [query] and asked[0]["step"] == ["10.0"]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"<html>", 200, "is not Prometheus"),
        ({"status": "error", "error": "bad query"}, 400, "HTTP 400 (bad query)"),
        ({"status": "success", "data": {}}, 200, "is not Prometheus"),
    ],
)
def test_what_prometheus_does_not_answer_is_said_without_its_password(
    body: Any, status: int, why: str
) -> None:
    with prometheus(body, status) as (url, _), pytest.raises(PeerError) as caught:
        PrometheusSeries(url).read([(TOPIC, "in_per_s")], window_of(RANGES["1h"], NOW))
    assert why in caught.value.message and "secret" not in caught.value.message
    assert caught.value.code == "HUB-3098"


def test_while_prometheus_is_away_the_own_store_is_shown_and_that_is_said(reader: SeriesReader) -> None:
    away = PrometheusSeries("http://127.0.0.1:9")
    found = SeriesReader(reader.folder, reader.status, away, now_ms=lambda: NOW).read(
        [TOPIC], ["in_per_s"], RANGES["1h"]
    )
    assert found.source == "hub" and found.lines[0].values[100] == 250.0
    assert "does not answer" in found.notes[0] or "no answer" in found.notes[0]


def test_what_prometheus_lacks_comes_from_the_own_store(reader: SeriesReader) -> None:
    window = window_of(RANGES["1h"], NOW)
    values = [((window.start_ms + STEP_MS) / 1000, "7")]
    with prometheus(answer_of(values)) as (url, _):
        both = SeriesReader(reader.folder, reader.status, PrometheusSeries(url), now_ms=lambda: NOW)
        found = both.read([TOPIC], ["in_per_s", "out_per_s"], RANGES["1h"])
    rate_in, rate_out = found.lines
    assert found.source == "prometheus"
    assert rate_in.values[:2] == (7.0, None)
    assert rate_out.values[100] == pytest.approx(225.0)
