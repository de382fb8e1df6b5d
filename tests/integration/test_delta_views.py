"""Incremental views on real Kafka and real Spark: tables joined, ranked, counted, built on each other, killed
in the middle; always what plain Python makes of the same tables."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from pipeline import Pipeline, plain, records_of, wait_until

from hub.materializers.applying.applier import Applier
from hub.materializers.definition.load import load_view
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord, Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.topics.dead_letters.record_format import dead_letter_of

Row = dict[str, Any]
Rows = dict[str, Row]


def schema(record: str, /, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": of} for field, of in fields.items()]
    return {"type": "record", "name": record, "fields": listed}


MAYBE_TEXT, MAYBE_LONG = ["null", "string"], ["null", "long"]
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "orders": schema(
        "Order", orderId=MAYBE_LONG, customer=MAYBE_LONG, product="string", cents="long", status="string"
    ),
    "customers": schema("Customer", id="long", name=MAYBE_TEXT, region=MAYBE_TEXT),
    "clicks": schema("Click", customer="long", page="string"),
}
ORDERS = {"table": {"key": "orderId", "delete_when": "o.status = 'gone'"}}
JOINED = (
    "SELECT o.orderId AS order_id, o.cents, c.name, c.region -- as they are now\n"
    "FROM o LEFT JOIN c ON c.id = o.customer WHERE o.cents > 10"
)
TOP = (
    "SELECT product, place, order_id, cents FROM (SELECT product, orderId AS order_id, cents, "
    "row_number() OVER (PARTITION BY product ORDER BY cents DESC, orderId) AS place FROM "
    "o) r WHERE place <= 2"
)
OFTEN = (
    "SELECT customer, count(*) AS n FROM o WHERE customer IS NOT NULL GROUP BY customer HAVING count(*) > 2"
)
# What is killed with rows in the changelog, with HUB_FAULT_SEEDS one after the other. (That a materializer
# ends with its JVM alone, test_realtime shows too.)
KILLED: Sequence[Literal["too", "alone"]] = ("too", "alone") if "HUB_FAULT_SEEDS" in os.environ else ("too",)
VARIED = "SELECT customer, count(DISTINCT page) AS pages, count(*) AS n FROM k GROUP BY customer"  # a stream


class World:
    """The expected tables after all writes, and the expected rows of each view."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.orders: dict[int, Row] = {}
        self.customers: dict[int, Row] = {}
        self.clicks: list[Row] = []

    def change(self) -> tuple[str, str, Row | None]:
        """One event: (topic, key, value)."""
        some = self.chance
        kind = some.choices(("orders", "customers", "clicks"), (6, 3, 2))[0]
        if kind == "orders":
            number = some.randrange(40)
            row = {
                "orderId": number, "customer": some.choice([None, *range(9)]), "product": some.choice("xyz"),
                "cents": some.randrange(200), "status": "open",
            }  # fmt: skip
            how = some.random()
            if how < 0.2:  # a tombstone, or an event that marks a deletion
                self.orders.pop(number, None)
                return kind, str(number), None if how < 0.1 else {**row, "status": "gone"}
            self.orders[number] = row
            return kind, str(number), row
        if kind == "customers":
            number = some.randrange(9)
            row = {"id": number, "name": some.choice(["Ann", "Bob", None]), "region": some.choice(["n", "s"])}
            if some.random() < 0.25:
                self.customers.pop(number, None)
                return kind, f"key-{number}", None
            self.customers[number] = row
            return kind, f"key-{number}", row
        row = {"customer": some.randrange(9), "page": some.choice(["home", "shop", "help"])}
        self.clicks.append(row)
        return kind, str(row["customer"]), row

    def joined(self) -> Rows:
        nobody = {"name": None, "region": None}
        return {
            str(number): {
                "order_id": number,
                "cents": order["cents"],
                **{name: self.customers.get(order["customer"], nobody)[name] for name in nobody},
            }
            for number, order in self.orders.items()
            if order["cents"] > 10
        }

    def top(self) -> Rows:
        found = {}
        for product in "xyz":
            mine = [order for order in self.orders.values() if order["product"] == product]
            mine.sort(key=lambda order: (-order["cents"], order["orderId"]))
            for place, order in enumerate(mine[:2], 1):
                key = json.dumps([product, str(place)], separators=(",", ":"))
                row = {"product": product, "place": place, "order_id": order["orderId"]}
                found[key] = {**row, "cents": order["cents"]}
        return found

    def often(self) -> Rows:
        counts: dict[int, int] = defaultdict(int)
        for order in self.orders.values():
            if order["customer"] is not None:
                counts[order["customer"]] += 1
        return {str(each): {"customer": each, "n": n} for each, n in counts.items() if n > 2}

    def varied(self) -> Rows:
        pages: dict[int, list[str]] = defaultdict(list)
        for click in self.clicks:
            pages[click["customer"]].append(click["page"])
        return {
            str(each): {"customer": each, "pages": len(set(seen)), "n": len(seen)}
            for each, seen in pages.items()
        }

    def by_region(self, without: int | None = None) -> Rows:
        """Clicks by region, through the entity view ``clicked``."""
        found: dict[str, Row] = {}
        for each, seen in self.varied().items():
            customer = self.customers.get(int(each))
            if customer is None or int(each) == without:
                continue
            row = found.setdefault(
                customer["region"], {"region": customer["region"], "clicks": 0, "people": 0}
            )
            row["clicks"] += seen["n"]
            row["people"] += 1
        return found


class Market:
    """Topics of a test's own, views over them, events written to them."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.pipeline, self.name = pipeline, name
        self.writer = pipeline.writer
        self.views: list[Path] = []
        self.forms = {kind: parsed(body) for kind, body in SCHEMAS.items()}
        self.ids: dict[str, int] = {}
        for kind, body in SCHEMAS.items():
            pipeline.cluster.create_topic(self.topic(kind), partitions=2, config={}, replication_factor=1)
            self.ids[kind] = pipeline.registry.register(f"{self.topic(kind)}-value", json.dumps(body))

    def topic(self, kind: str) -> str:
        return f"{self.name}.{kind}"

    def declare(self, view: str, body: Mapping[str, Any]) -> str:
        name = f"{self.name}_{view}"
        path = self.pipeline.views / f"{name}.yaml"
        path.write_text(json.dumps({"view": name, **body}))  # JSON is YAML
        if path not in self.views:
            self.views.append(path)
        return name

    def views_of(self, *kinds: str) -> dict[str, tuple[str, Callable[[World], Rows]]]:
        """Declared views of these kinds: (name, rows computed in Python)."""
        o = {"o": {"topic": self.topic("orders"), **ORDERS}}
        c = {"c": {"topic": self.topic("customers"), "as": "table"}}
        k = {"k": {"topic": self.topic("clicks")}}
        all_: dict[str, tuple[dict[str, Any], Callable[[World], Rows]]] = {
            "joined": ({"sources": {**o, **c}, "sql": JOINED, "key": "order_id"}, World.joined),
            "top": ({"sources": o, "sql": TOP, "key": ["product", "place"]}, World.top),
            "often": ({"sources": o, "sql": OFTEN}, World.often),
            "varied": ({"sources": k, "sql": VARIED}, World.varied),
        }
        return {kind: (self.declare(kind, all_[kind][0]), all_[kind][1]) for kind in kinds}

    def write(self, changes: Sequence[tuple[str, str, Row | None]]) -> Positions:
        return self.writer.append(
            [
                NewRecord(
                    self.topic(kind),
                    key.encode(),
                    None if row is None else encode(self.ids[kind], self.forms[kind], row),
                )
                for kind, key, row in changes
            ]
        )

    def rows(self, view: str, *kinds: str) -> Rows:
        """The view's rows once it covers all that is in those topics."""
        self.pipeline.covers(view, [self.topic(kind) for kind in kinds], 240.0)
        return {key: plain(row) for key, row in self.pipeline.rows(view).items()}


@pytest.fixture
def market(pipeline: Pipeline, request: pytest.FixtureRequest) -> Market:
    return Market(pipeline, request.node.name.removeprefix("test_")[:20].rstrip("_"))


@pytest.mark.timeout(600)
def test_joins_ranks_having_and_distinct_counts(market: Market, pipeline: Pipeline) -> None:
    world = World(1)
    market.write([world.change() for _ in range(150)])
    views = market.views_of("joined", "top", "often", "varied")
    for more in (0, 100):
        market.write([world.change() for _ in range(more)])
        for name, expected in views.values():
            kinds = {"joined": ("orders", "customers"), "varied": ("clicks",)}.get(name.rpartition("_")[2])
            assert market.rows(name, *(kinds or ("orders",))) == expected(world), name

    # Read your writes: this position of the sources, although no row names it.
    name = views["joined"][0]
    order = {"orderId": 500, "customer": 1, "product": "x", "cents": 7_777, "status": "open"}
    at = market.write([("orders", "500", order)])
    answer = httpx2.get(f"{pipeline.url}/views/{name}/500?after={at}&timeout_ms=60000", timeout=70.0)
    assert (answer.status_code, answer.json()["cents"]) == (200, 7_777)
    at = market.write([("orders", "500", None)])
    answer = httpx2.get(f"{pipeline.url}/views/{name}/500?after={at}&timeout_ms=60000", timeout=70.0)
    assert answer.status_code == 404

    # A failing batch shows its reason; the other views are not affected.
    orders = {"o": {"topic": market.topic("orders"), **ORDERS}}
    sql = "SELECT customer, orderId AS order_id FROM o WHERE customer IS NOT NULL"
    twice = market.declare("twice", {"sources": orders, "sql": sql, "key": "customer"})
    said = "two rows of its SQL have the key (customer)"
    wait_until(
        lambda: said in str(pipeline.state(twice).get("reason")), 120.0, lambda: str(pipeline.state(twice))
    )

    # An event that cannot be a row is reported once by each view; the views continue.
    market.write([("orders", "501", {**order, "orderId": None}), ("orders", "no number", None)])
    market.writer.append([NewRecord(market.topic("orders"), b"502", b"no avro")])
    assert market.rows(name, "orders", "customers") == world.joined()
    dead = records_of(pipeline.cluster, market.topic("orders") + ".dlq")
    reasons = {(each.header("hub.dlq.reason") or b"").decode(): each for each in dead
        if each.header("hub.dlq.view") == name.encode()}  # fmt: skip
    assert set(reasons) == {
        "the table's key (orderid) is null in this event",
        "a tombstone's record key does not fit (orderid): no number",
        "not in the Confluent wire format (no magic byte 0 and schema id)",
    }
    assert {dead_letter_of(each).reason for each in reasons.values()} == {"null_key", "tombstone", "framing"}
    assert all(int(each.header("hub.dlq.timestamp") or b"0") > 0 for each in reasons.values())
    told = [json.loads(each.value or b"{}") for each in records_of(pipeline.cluster, "_hub.progress")
        if each.key == f"progress:{name}".encode()]  # fmt: skip
    assert told[-1]["dead_records"] == 3


def test_a_view_over_views_follows_their_generations(market: Market) -> None:
    world = World(2)
    market.write([world.change() for _ in range(200)])
    clicked = f"{market.name}_clicked"
    # Declared before the view that it reads.
    region = market.declare(
        "region",
        {
            "sources": {
                "v": {"view": clicked},
                "c": {"topic": market.topic("customers"), "as": "table"},
            },
            "sql": "SELECT c.region, sum(v.n) AS clicks, count(*) AS people FROM v JOIN c ON c.id = "
            "v.customer GROUP BY c.region",
        },
    )
    wait_until(lambda: "waits for the view" in str(market.pipeline.state(region).get("reason")), 120.0)
    body: dict[str, Any] = {
        "sources": {"k": {"topic": market.topic("clicks"), "key": "customer"}},
        "fields": {"customer": "k.customer", "n": "count(k.page)"},
    }
    market.declare("clicked", body)
    market.write([world.change() for _ in range(50)])

    def shown() -> Rows:
        found = market.pipeline.rows(region)
        return {key: plain(row) for key, row in found.items()}

    def is_said(expected: Rows) -> Callable[[], bool]:
        return lambda: shown() == expected

    told = lambda: f"{shown()} {market.pipeline.state(region)}"
    wait_until(is_said(world.by_region()), 120.0, told)
    # The next generation of that view has no customer 3: its row goes without a record of its own.
    body["sources"]["k"]["where"] = "customer <> 3"
    market.declare("clicked", body)
    wait_until(is_said(world.by_region(3)), 120.0, told)
    market.write([("clicks", "4", {"customer": 4, "page": "home"})])
    world.clicks.append({"customer": 4, "page": "home"})
    wait_until(is_said(world.by_region(3)), 120.0, told)


def test_the_example_of_the_docs(pipeline: Pipeline) -> None:
    """``examples/sql-views`` as it is: a join, two HAVING, and a ranking over another view."""
    pipeline.install("sql-views")
    publisher = pipeline.publisher()

    def customer(number: int, name: str, region: str | None) -> None:
        event = {"customer_id": number, "name": name, "region": region}
        publisher.publish("market.customers", str(number), event)

    def order(number: int, customer_id: int, cents: int, status: str = "open") -> None:
        event = {
            "order_id": number, "customer_id": customer_id, "product": f"p{number % 2}",
            "amount_cents": cents,
            "status": status, "placed_at": 1_700_000_000_000,
        }  # fmt: skip
        publisher.publish("market.orders", str(number), event)

    def shown() -> dict[str, Any]:
        regular = pipeline.rows("regular_customers")
        best = pipeline.rows("best_of_region")
        return {
            "joined": {key: row["name"] for key, row in pipeline.rows("orders_with_customers").items()},
            "regular": {key: (row["orders"], row["products"], row["amount_cents"]) for key,
            row in regular.items()},
            "best": {key: (row["order_id"], row["name"]) for key, row in best.items()},
        }  # fmt: skip

    def is_shown(expected: dict[str, Any]) -> None:
        views = ("orders_with_customers", "regular_customers", "best_of_region")
        told = lambda: f"{shown()} {[pipeline.state(view) for view in views]}"
        wait_until(lambda: shown() == expected, 120.0, told)

    try:
        customer(1, "Ann", "north")
        customer(2, "Bob", "south")
        for number, cents in enumerate((100, 200, 300, 400), 1):
            order(number, 1, cents)
        order(5, 2, 500)
        order(6, 3, 600)  # of nobody that is known
        first = {"1": "Ann", "2": "Ann", "3": "Ann", "4": "Ann", "5": "Bob", "6": None}
        best = {'["north","1"]': (4, "Ann"), '["north","2"]': (3, "Ann"), '["north","3"]': (2, "Ann")}
        south = {'["south","1"]': (5, "Bob")}
        is_shown({"joined": first, "regular": {"1": (4, 2, 1_000)}, "best": best | south})

        order(4, 1, 400, "withdrawn")
        publisher.publish("market.orders", "3", None)  # a tombstone takes it away as well
        customer(2, "Bob", "north")
        customer(3, "Eve", None)
        left = {"1": "Ann", "2": "Ann", "5": "Bob", "6": "Eve"}
        best = {'["north","1"]': (5, "Bob"), '["north","2"]': (2, "Ann"), '["north","3"]': (1, "Ann")}
        is_shown({"joined": left, "regular": {}, "best": best})
    finally:
        publisher.close()


@pytest.mark.timeout(900)
def test_a_kill_in_the_middle_leaves_the_tables_as_they_are(pipeline: Pipeline, tmp_path: Path) -> None:
    """A materializer of its own, which begins in bulk, is killed twice, its JVM once more;
    its changelogs in a store are exact."""
    settings = pipeline.settings.model_copy(
        update={"home": tmp_path / "home", "project": tmp_path / "project", "delta_events_per_batch": 5_000}
    )
    elsewhere = Pipeline(settings, pipeline.url)
    elsewhere.views.mkdir(parents=True)
    market = Market(elsewhere, "killed_delta")
    world = World(3)
    market.write([world.change() for _ in range(26_000)])
    views = market.views_of("joined", "top")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    registry = RegistryClient(pipeline.url)
    applier = Applier(elsewhere.cluster, registry, store)
    declared = [load_view(path) for path in market.views]
    elsewhere.start("materialize")

    def applied() -> bool:
        applier.follow(declared)
        while applier.step():
            pass
        ends = {
            view.name: elsewhere.cluster.end_offsets(
                [each.topic for each in view.sources.values()], committed=False
            )
            for view in declared
        }
        return all(store.positions(name, "source").covers(end) for name, end in ends.items())

    try:
        joined = views["joined"][0]
        # Killed while it loads, killed with rows in its changelog, Spark killed under it.
        wait_until(lambda: (settings.checkpoints / joined / "1" / "commits" / "1").exists(), 300.0)
        elsewhere.kill("materialize", "too")
        elsewhere.start("materialize")
        for jvm in KILLED:
            written = elsewhere.written(joined)
            market.write([world.change() for _ in range(300)])
            wait_until(lambda: elsewhere.written(joined) > written, 200.0)  # noqa: B023 called at once
            market.write([world.change() for _ in range(300)])
            elsewhere.kill("materialize", jvm)
            elsewhere.start("materialize")
        market.write([world.change() for _ in range(100)])
        wait_until(applied, 240.0)
        for name, expected in views.values():
            found = {row.key: plain(dict(row.values or {})) for row in store.select(name, [], 100_000, None)}
            assert found == expected(world), name
            # A version is one row, whenever it was written again; a key's versions grow.
            states: dict[tuple[bytes, int], set[bytes | None]] = defaultdict(set)
            for record in elsewhere.changelog(name):
                states[record.key or b"", int(record.header("hub.version") or b"0")].add(record.value)
            assert all(len(values) == 1 for values in states.values()), name
    finally:
        applier.close()
        registry.close()
        store.close()
        elsewhere.close()
