"""Four views of the same orders, one of them over another, each kept its own way, and one query over them
while orders come and processes are killed: equal in every answer that carries a cut. Without a group the same
query finds them different now and then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from pipeline import Pipeline, wait_until

from hub.errors import HubError
from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

TOPIC = "bazaar.orders"
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "cents", "type": "long"},
    ],
}
SOURCES = {"o": {"topic": TOPIC}}
VIEWS: dict[str, dict[str, Any]] = {
    "bazaar_customers": {
        "sources": {"o": {"topic": TOPIC, "key": "customer"}},
        "fields": {"orders": "count(o.order_id)", "cents": "sum(o.cents)"},
    },
    "bazaar_cities": {
        "sources": SOURCES,
        "sql": "SELECT city, count(*) AS orders, sum(cents) AS cents FROM o GROUP BY city",
    },
    "bazaar_prices": {  # by the incremental engine
        "sources": SOURCES,
        "sql": "SELECT o.cents % 7 AS digit, count(DISTINCT order_id) AS orders, sum(o.cents) AS cents FROM "
        "o GROUP BY o.cents % 7",
        "key": "digit",
    },
    "bazaar_habits": {  # over one of them
        "sources": {"v": {"view": "bazaar_customers"}},
        "sql": "SELECT v.orders % 3 AS rest, sum(v.orders) AS orders, sum(v.cents) AS cents FROM v "
        "GROUP BY v.orders % 3",
        "key": "rest",
    },
}
ASKED = ", ".join(
    f"(SELECT sum({column}) FROM {view}) AS {view}_{column}"
    for view in VIEWS
    for column in ("orders", "cents")
)


class Market:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        pipeline.cluster.create_topic(TOPIC, partitions=3, config={}, replication_factor=1)
        self.schema_id = pipeline.registry.register(f"{TOPIC}-value", json.dumps(ORDER))
        self.form = parsed(ORDER)
        self.written = self.cents = 0
        self.chance = random.Random(3)

    def declare(self, **more: Any) -> None:
        for name, body in VIEWS.items():
            text = json.dumps({"view": name, **body, **more})  # JSON is YAML
            (self.pipeline.views / f"{name}.yaml").write_text(text)

    def write(self, count: int) -> Positions:
        records = []
        for _ in range(count):
            self.written += 1
            cents = self.chance.randrange(1, 1_000)
            self.cents += cents
            order = {
                "order_id": self.written,
                "customer": f"c{self.chance.randrange(40)}",
                "city": self.chance.choice(("Oslo", "Rome", "Lima")),
                "cents": cents,
            }
            records.append(
                NewRecord(TOPIC, str(self.written).encode(), encode(self.schema_id, self.form, order))
            )
        return self.pipeline.writer.append(records)

    @contextmanager
    def selling(self) -> Iterator[None]:
        """Orders all the while."""
        stop = threading.Event()
        failed: list[HubError] = []

        def sell() -> None:
            try:
                while not stop.wait(self.chance.uniform(0.0, 0.06)):
                    self.write(self.chance.randint(1, 8))
            except HubError as error:
                failed.append(error)

        thread = threading.Thread(target=sell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30.0)
            assert not failed, failed

    def ask(self, **more: Any) -> httpx2.Response:
        return httpx2.post(
            f"{self.pipeline.url}/query", json={"sql": f"SELECT {ASKED}", **more}, timeout=70.0
        )

    def state(self) -> dict[str, Any]:
        return dict(self.pipeline.state("bazaar_cities").get("cut") or {})


def equal(row: dict[str, Any]) -> bool:
    return (
        len({row[f"{view}_orders"] for view in VIEWS}) == 1 == len({row[f"{view}_cents"] for view in VIEWS})
    )


class Watch:
    """Return the contents of the answers."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.cuts: list[str] = []
        self.without = self.different = 0

    def look(self) -> None:
        answer = self.market.ask()
        if not answer.is_success:
            return  # a view has no table yet
        body = answer.json()
        (row,) = body["rows"]
        if body["cut"] is None:
            self.without += 1
            self.different += not equal(row)
            return
        assert body["cut"]["name"] == "bazaar"
        assert equal(row), f"{row} at {body['cut']}"
        # Exactly the orders before the cut: every record of the topic is one.
        at = Positions.parse(body["cut"]["at"]).of_topics([TOPIC])
        assert row["bazaar_cities_orders"] == sum(offset for _, offset in at)
        self.cuts.append(body["cut"]["at"])

    def until(self, different_cuts: int, timeout_s: float = 300.0) -> None:
        before = len(set(self.cuts))

        def seen() -> bool:
            self.look()
            return len(set(self.cuts)) >= before + different_cuts

        wait_until(seen, timeout_s, lambda: f"{len(set(self.cuts)) - before} cuts; {self.market.state()}")


@pytest.mark.timeout(1200)
def test_views_of_a_group_are_equal_in_every_answer_that_carries_a_cut(pipeline: Pipeline) -> None:
    market = Market(pipeline)
    market.declare(cut="bazaar")
    market.write(50)
    watch = Watch(market)
    with market.selling():
        watch.until(8, 600.0)
        for _ in range(100):
            watch.look()
        # On a busy machine a cut may be late, and "apart" for a moment.
        wait_until(lambda: market.state().get("state") == "together", 120.0, lambda: str(market.state()))
        assert sorted(market.state()["views"]) == sorted(VIEWS)

        pipeline.kill("apply-changelogs")
        for _ in range(20):
            watch.look()
        pipeline.start("apply-changelogs")
        watch.until(3)
        pipeline.kill("materialize", "too")
        for _ in range(20):
            watch.look()
        pipeline.start("materialize")
        watch.until(8)

        # A write of ours, and a cut that has it.
        after = str(market.write(1))
        demanded = market.ask(cut="required", after=after, timeout_ms=30_000)
        assert demanded.status_code == 200, demanded.text
        assert equal(demanded.json()["rows"][0])
        assert Positions.parse(demanded.json()["cut"]["at"]).covers(Positions.parse(after))

    wait_until(
        lambda: (
            market.ask(cut="required", timeout_ms=20_000).json()["rows"][0]["bazaar_prices_orders"]
            == market.written
        ),
        60.0,
    )
    assert market.ask().json()["rows"][0]["bazaar_customers_cents"] == market.cents

    # The same without a group: the equality came from the group.
    market.declare()
    alone = Watch(market)

    def differ() -> bool:
        alone.look()
        return alone.different > 0 and alone.without > 10

    with market.selling():
        wait_until(differ, 120.0, lambda: f"{alone.without} answers without a cut, all equal")
    refused = market.ask(cut="required")
    assert (refused.status_code, refused.json()["error_code"]) == (400, "HUB-1455")


def test_a_query_that_demands_a_cut_is_told_why_there_is_none(pipeline: Pipeline) -> None:
    """A group of which one view cannot run: the other is served, alone."""
    pipeline.cluster.create_topic("stall.orders", partitions=1, config={}, replication_factor=1)
    schema_id = pipeline.registry.register("stall.orders-value", json.dumps(ORDER))
    body = {"cut": "stall", "sources": {"o": {"topic": "stall.orders"}}}
    for name, sql in (
        ("stall_one", "SELECT city, count(*) AS n FROM o GROUP BY city"),
        ("stall_two", "SELECT town FROM o"),
    ):
        (pipeline.views / f"{name}.yaml").write_text(json.dumps({"view": name, **body, "sql": sql}))
    order = {"order_id": 1, "customer": "c", "city": "Oslo", "cents": 5}
    pipeline.writer.append([NewRecord("stall.orders", b"1", encode(schema_id, parsed(ORDER), order))])
    pipeline.covers("stall_one", ["stall.orders"])
    asked = {"sql": "SELECT n FROM stall_one", "cut": "required", "timeout_ms": 500}

    def refused() -> bool:
        answer = httpx2.post(f"{pipeline.url}/query", json=asked, timeout=30.0)
        said = answer.json()
        return (
            answer.status_code == 503 and said["error_code"] == "HUB-3060" and "stall_two" in said["message"]
        )

    began = time.monotonic()
    wait_until(refused, 60.0, lambda: httpx2.post(f"{pipeline.url}/query", json=asked, timeout=30.0).text)
    assert time.monotonic() - began < 90.0
    assert (
        httpx2.post(f"{pipeline.url}/query", json={"sql": asked["sql"]}, timeout=30.0).json()["cut"] is None
    )
