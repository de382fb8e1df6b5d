"""The page, its fragments and its JSON twins over staged facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.cli.monitor.lag import line
from hub.errors import PeerError
from hub.observability import format
from hub.observability.export.routes import create_router
from hub.observability.lag.states import LagState
from hub.observability.overview.overview import (
    KafkaHealth,
    Overview,
    SourceLag,
    TopicKind,
    TopicLine,
    ViewLine,
)
from hub.observability.web import svg
from hub.observability.web.card import card, field_of
from hub.observability.web.page import render
from hub.observability.web.pages.monitor.completeness_times import minute
from hub.times import iso

NOW = 1_790_000_000_000
HTML = {"accept": "text/html"}
ORDERS = SourceLag("shop.orders", LagState.CATCHING_UP, "reads 9 events/s", 1_204, 41.0, 0.5, 18.0)
TOPIC = TopicLine("shop.orders", TopicKind.events, 2, 12_000, 41.5, 3, (1.0, 4.0, 2.0))
VIEW = ViewLine(
    "customer_360",
    "All of a customer",
    "data",
    "live",
    None,
    NOW,
    "live",
    40,
    NOW - 300,
    87,
    12,
    1,
    ORDERS,
    (ORDERS,),
)
UP = KafkaHealth("127.0.0.1:9092", NOW, None)
ROW = {
    "key": "C-1",
    "name": "<script>alert(1)</script>",
    "paid_cents": 1_234_567,
    "churn": None,
    "_version": 7,
    "_sources": {
        "orders": {"topic": "shop.orders", "partition": 1, "offset": 42, "timestamp": NOW},
        "web": None,
    },
}


class Tags(HTMLParser):
    """Elements by data-testid, their texts, and every tag with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def ids(self) -> list[str]:
        return [found for _, attributes in self.tags if (found := attributes.get("data-testid"))]

    def attribute(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name))]


class Facts:
    """An overview and rows that the test sets."""

    def __init__(self) -> None:
        self.now = Overview(NOW, UP, None, (TOPIC,), (VIEW,))
        self.rows: dict[str, Mapping[str, Any]] = {"C-1": ROW}
        self.away = False

    def overview(self) -> Overview:
        return self.now

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def row_counts(self) -> Mapping[str, int]:
        return {}

    def subscribers(self) -> Mapping[str, int]:
        return {}

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        if self.away:
            raise PeerError("the store is locked")
        return self.rows.get(key)

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        return list(self.rows)[:limit]


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def client(facts: Facts) -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(create_router(facts, facts))
    with TestClient(app) as made:
        yield made


def test_programs_get_the_registrys_empty_object(client: TestClient) -> None:
    assert client.get("/").json() == {}


def test_the_page_shows_topics_views_lag_and_the_newest_row(client: TestClient) -> None:
    answer = client.get("/", headers=HTML)
    html = answer.text
    assert {"tile-lag", "topic-shop.orders", "view-customer_360", "card", "dlq", "source-orders"} <= set(
        Tags(html).ids
    )
    assert "41 s" in html
    assert "± 0.50 s" in html
    assert "catching up, 18 s to go" in html
    assert "1\u202f234\u202f567" in html


def test_nothing_comes_from_elsewhere_and_no_script_is_inline(client: TestClient) -> None:
    answer = client.get("/", headers=HTML)
    tags = Tags(answer.text)
    links = (
        tags.attribute("src") + tags.attribute("href") + tags.attribute("hx-get") + tags.attribute("action")
    )
    assert all(re.match(r"/(?!/)|#", link) for link in links)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert all(attributes.get("src") for tag, attributes in tags.tags if tag == "script")
    assert not any(name.startswith("on") or name == "style" for _, each in tags.tags for name in each)
    assert "<script>alert" not in answer.text
    for link in tags.attribute("src") + [link for link in tags.attribute("href") if "static" in link]:
        assert client.get(link).status_code == 200, link


def test_only_the_pages_own_files_are_served(client: TestClient, facts: Facts) -> None:
    with pytest.raises(Exception, match="is not part of the dashboard"):
        client.get("/ui/static/page.html")


def test_the_choice_is_in_the_address(client: TestClient) -> None:
    answer = client.get("/ui/lookup", params={"view": "customer_360", "key": "a&b=c"})
    assert answer.headers["hx-push-url"] == "/?view=customer_360&key=a%26b%3Dc"
    assert "key=a%26b%3Dc" in answer.text
    assert "No row with this key" in answer.text
    assert 'value="a&amp;b=c"' in client.get("/?view=customer_360&key=a%26b%3Dc", headers=HTML).text


def test_a_deleted_row_a_missing_one_and_one_that_cannot_be_read(client: TestClient, facts: Facts) -> None:
    def state(key: str) -> str:
        html = client.get("/ui/card", params={"view": "customer_360", "key": key}).text
        return Tags(html).attribute("data-state")[0]

    assert (state("C-1"), state("C-2")) == ("present", "missing")
    facts.rows["C-1"] = {"_deleted": True, "_version": 8}
    assert state("C-1") == "deleted"
    facts.away = True
    assert state("C-1") == "trouble"


def test_kafka_down_no_views_and_a_failed_view_say_what_to_do(client: TestClient, facts: Facts) -> None:
    down = KafkaHealth("b:1", NOW - 5_000, "Kafka does not answer")
    facts.now = Overview(NOW, down, None, (), ())
    html = client.get("/", headers=HTML).text
    assert "as of 5 s ago" in html
    assert "hub demo" in html
    failed = ViewLine(
        "v", "", "", "failed", 'topic "x" is not there', NOW, None, None, None, None, None, 0, None, ()
    )
    facts.now = Overview(NOW, UP, "disk is full", (), (failed,))
    html = client.get("/", headers=HTML).text
    assert "topic &#34;x&#34; is not there" in html
    assert "disk is full" in html
    assert "no-topics" in Tags(html).ids


def test_views_that_nobody_told_are_not_none(client: TestClient, facts: Facts) -> None:
    facts.now = Overview(NOW, UP, None, (), (), None, False)
    text = client.get("/", headers=HTML).text
    assert "Asking the store for its views" in text and "No view is running yet" not in text
    facts.now = Overview(NOW, UP, "disk is full", (), ())
    text = client.get("/", headers=HTML).text
    assert "Views are not known now" in text and "No view is running yet" not in text


def test_unknown_view_in_the_address(client: TestClient) -> None:
    assert "unknown-view" in Tags(client.get("/?view=nope", headers=HTML).text).ids


def test_json_twins(client: TestClient) -> None:
    overview = client.get("/api/overview").json()
    assert overview["kafka"]["state"] == "up"
    assert overview["totals"]["worst_lag"]["seconds"] == 41.0
    assert overview["totals"]["undecodable"] == 3
    assert overview["views"][0]["sources"][0]["state"] == "CATCHING_UP"
    (row,) = client.get("/api/lag").json()
    assert line(row) == {
        "consumer": "customer_360",
        "kind": "view",
        "topic": "shop.orders",
        "state": "CATCHING_UP",
        "records": "1\u202f204",
        "lag": "41 s",
        "bound": "± 0.50 s",
        "trend": "",
        "eta": "18 s",
        "owner": "data",
        "cause": "reads 9 events/s",
    }


def test_metrics_leave_out_what_is_not_known(client: TestClient, facts: Facts) -> None:
    text = client.get("/metrics").text
    assert 'hub_consumer_lag_seconds{consumer="customer_360",kind="view",topic="shop.orders"} 41.0' in text
    labels = 'consumer="customer_360",kind="view",state="CATCHING_UP",topic="shop.orders"'
    assert f"hub_consumer_state{{{labels}}} 1.0" in text
    assert 'hub_consumers{kind="view",state="CATCHING_UP"} 1.0' in text
    unknown = SourceLag("shop.orders", LagState.UNKNOWN, "", None, None, None, None)
    view = ViewLine("v", "", "", "live", None, None, None, None, None, None, None, 0, unknown, (unknown,))
    facts.now = Overview(NOW, UP, None, (), (view,))
    assert "hub_consumer_lag_seconds{" not in client.get("/metrics").text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.42, "0.42 s"),
        (1.04, "1.0 s"),
        (59.6, "60 s"),
        (150, "2 min"),
        (9000, "2.5 h"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert format.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (999.6, "1.00k"), (12_340, "12.3k"), (3_050_000, "3.05M")]
)
def test_short(value: float, text: str) -> None:
    assert format.short(value) == text


def test_moments_say_the_day_only_when_it_is_another() -> None:
    now = 1_790_000_000_000  # 2026-09-21T14:13:20Z
    assert format.moment(now - 1_000, now) == "14:13:19"
    assert format.moment(now - 86_400_000, now) == "20 Sep 14:13"
    assert format.moment(now - 400 * 86_400_000, now) == "2025-08-17"
    assert format.moment(None, now) == "–"


def test_cards_keep_years_whole_and_times_readable() -> None:
    assert field_of("year", 2013).text == "2013"
    assert field_of("seen_at", "2026-11-21T05:14:09.120Z").text == "2026-11-21 05:14:09.120"
    assert field_of("tags", ["a"]).text == '["a"]'
    assert [source.source for source in card(ROW).sources] == ["orders"]
    assert card({"_version": (3 << 40) + 17}).events == 17


def test_sparklines_stay_inside_their_box() -> None:
    assert svg.line([0, 0, 0]) == ""
    points = [float(number) for number in re.findall(r"[\d.]+", svg.line([1, 50, 3]))]
    assert all(0 <= x <= 96 for x in points[::2])
    assert all(0 <= y <= 22 for y in points[1::2])


def test_an_overview_of_very_many_topics_leads_to_their_page(client: TestClient, facts: Facts) -> None:
    topics = tuple(replace(TOPIC, name=f"area{number % 90}.topic{number}") for number in range(10_000))
    facts.now = replace(facts.now, topics=topics)
    page = client.get("/", headers=HTML).text
    assert 'href="/topics?under=area1"' in page and "All 10\u202f000 topics" in page
    assert page.count("topic7") == 0 and len(page) < 60_000


@pytest.mark.parametrize("at_ms", [1_790_000_000_000_000, -(2**63), 2**63 - 1])
def test_times_that_no_date_can_say_break_no_page(at_ms: int) -> None:
    said = [format.moment(at_ms, 1_790_000_000_000), iso(at_ms), format.clock(at_ms), minute(at_ms)]
    assert all(str(at_ms) in each for each in said)
    row = {
        "_sources": {"o": {"topic": "t", "partition": 0, "offset": 1, "timestamp": "+56789-01-01T00:00:00Z"}}
    }
    assert card(row).sources[0].timestamp_ms is None
    shown = card({"_sources": {"o": {"topic": "t", "partition": 0, "offset": 1, "timestamp": at_ms}}})
    assert str(at_ms) in render("overview/card.html", view="v", key="k", card=shown, trouble=None, now_ms=0)


def test_nested_values_that_json_libraries_refuse_break_no_page() -> None:
    assert field_of("n", {"big": 2**70}).text == f'{{"big":{2**70}}}'
    assert field_of("n", ["\ud800"]).text == '["\\ud800"]'
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "too deep" in field_of("n", deep).text
    while deep:
        deep = deep.pop()  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (1234.5, "1\u202f234.50"), (0.0034, "0.0034"), (-2.5e-7, "-2.5e-07"), (0.5, "0.50")],
)
def test_a_small_number_is_not_shown_as_0(value: float, text: str) -> None:
    assert field_of("rate", value).text == text
