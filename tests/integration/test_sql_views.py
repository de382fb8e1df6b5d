"""SQL views on real Kafka and real Spark: exact rows against plain Python, late and bad events,
a kill in the middle."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pipeline import Pipeline, iso, plain, records_of, wait_until
from processes import call_hub

from hub.materializers.applying.applier import Applier
from hub.materializers.definition.load import load_view
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord, Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

MINUTE, HOUR = 60_000, 3_600_000
START = 1_700_000_000_000 // HOUR * HOUR  # far behind the broker's clock: no event is ahead of it
AT = {"type": "long", "logicalType": "timestamp-millis"}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "placed_at", "type": ["null", AT], "default": None},
        {"name": "cents", "type": "long"},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "number", "type": "int"}],
                },
            },
        },
    ],
}
PAYMENT: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "payment_id", "type": "string"},
        {"name": "order_id", "type": "string"},
        {"name": "paid_at", "type": AT},
        {"name": "value", "type": "long"},
    ],
}
CITY: dict[str, Any] = {
    "type": "record",
    "name": "CityName",
    "fields": [{"name": "city", "type": "string"}, {"name": "country", "type": "string"}],
}
Event = dict[str, Any]


def order(n: int, at: int | None, **more: Any) -> Event:
    """The n-th order; everything about it follows from n and the time."""
    chance = random.Random(n)
    return {
        "order_id": f"o{n}",
        "customer": f"c{chance.randrange(7)}" if n % 11 else None,
        "placed_at": at,
        "cents": chance.randrange(100, 10_000),
        "address": {"city": chance.choice(["Rome", "Oslo", "[Linz]"])},
        "items": [{"sku": f"s{k}", "number": chance.randrange(1, 4)} for k in range(chance.randrange(3))],
        **more,
    }


class Shop:
    """Topics of its own, views over them, and events written batch by batch."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.pipeline, self.name = pipeline, name
        self.writer = pipeline.writer
        self.ids: dict[str, int] = {}
        self.views: list[Path] = []

    def topic(self, kind: str, schema: dict[str, Any]) -> str:
        topic = f"{self.name}.{kind}"
        if topic not in self.ids:
            self.pipeline.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
            self.ids[topic] = self.pipeline.registry.register(f"{topic}-value", json.dumps(schema))
        return topic

    def declare(self, view: str, sources: dict[str, dict[str, Any]], sql: str, key: list[str] = ()) -> str:  # type: ignore[assignment]
        name = f"{self.name}_{view}"
        body = {"view": name, "sources": sources, "sql": sql, **({"key": list(key)} if key else {})}
        path = self.pipeline.views / f"{name}.yaml"
        path.write_text(json.dumps(body))  # JSON is YAML
        self.views.append(path)
        return name

    def raw(self, topic: str, key: str | None, value: bytes | None) -> Positions:
        return self.writer.append([NewRecord(topic, key.encode() if key else None, value)])

    def write(self, kind: str, schema: dict[str, Any], events: Iterable[Event], key: str) -> None:
        topic = self.topic(kind, schema)
        form = parsed(schema)
        self.writer.append(
            [NewRecord(topic, event[key].encode(), encode(self.ids[topic], form, event)) for event in events]
        )

    def orders(self, events: Iterable[Event]) -> None:
        self.write("orders", ORDER, events, "order_id")

    def payments(self, events: Iterable[Event]) -> None:
        self.write("payments", PAYMENT, events, "payment_id")

    def rows(self, view: str, *kinds: str) -> dict[str, dict[str, Any]]:
        """The view's rows once it covers everything that is in those topics now."""
        self.pipeline.covers(view, [f"{self.name}.{kind}" for kind in kinds], 240.0)
        return {key: plain(row) for key, row in self.pipeline.rows(view).items()}


@pytest.fixture
def shop(pipeline: Pipeline, request: pytest.FixtureRequest) -> Shop:
    return Shop(pipeline, request.node.name.removeprefix("test_")[:24].rstrip("_"))


def source(shop: Shop, kind: str, time: str = "placed_at", watermark: str = "10 minutes") -> dict[str, Any]:
    schema, column = (ORDER, time) if kind == "orders" else (PAYMENT, "paid_at")
    return {"topic": shop.topic(kind, schema), "event_time": column, "watermark": watermark}


def by(events: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return groups


def key_of(*parts: Any) -> str:
    return json.dumps(parts, separators=(",", ":"))


def test_stateless_rows_nested_exploded_enriched_and_bad_events(shop: Shop, pipeline: Pipeline) -> None:
    orders = {"topic": shop.topic("orders", ORDER), "event_time": "placed_at", "watermark": "1 minute"}
    cities = {"topic": shop.topic("cities", CITY), "as": "static"}
    shop.write("cities", CITY, [{"city": "Rome", "country": "?"}, {"city": "Oslo", "country": "NO"}], "city")
    shop.write("cities", CITY, [{"city": "Rome", "country": "IT"}], "city")
    large = shop.declare(
        "large",
        {"o": orders},
        "SELECT order_id, address.city AS city, cents / 100 AS euros, size(items) AS n -- the large ones\n"
        ", cents * 9000000000000000 AS beyond FROM o WHERE cents >= 5000",
        ["order_id"],
    )
    lines = shop.declare(
        "lines",
        {"o": orders},
        "SELECT order_id, pos, item.sku AS sku, item.number AS pieces FROM o LATERAL VIEW "
        "posexplode(items) e AS pos, item",
        ["order_id", "pos"],
    )
    latest = shop.declare(
        "latest",
        {"o": orders},
        "SELECT address.city AS city, order_id FROM o UNION ALL SELECT 'any' AS city, order_id FROM o",
        ["city"],
    )
    named = shop.declare(
        "named",
        {"o": orders, "c": cities},
        "SELECT o.order_id, c.country FROM o LEFT JOIN c ON o.address.city = c.city",
        ["order_id"],
    )
    events = [order(n, START + n * MINUTE) for n in range(40)]
    shop.orders(events)
    topic = f"{shop.name}.orders"
    bad = {
        40: b"no avro",
        41: encode(shop.ids[topic], parsed(ORDER), order(41, 4_000_000_000_000)),
        42: encode(shop.ids[topic], parsed(ORDER), order(42, None)),
    }
    for value in bad.values():
        shop.raw(topic, "bad", value)
    shop.raw(topic, "o1", None)  # a tombstone makes no row and takes none back
    after = [order(n, START + n * MINUTE) for n in range(43, 50)]
    shop.orders(after)
    events += after

    assert shop.rows(large, "orders") == {
        e["order_id"]: {
            "order_id": e["order_id"],
            "city": e["address"]["city"],
            "euros": e["cents"] / 100,
            "n": len(e["items"]),
            "beyond": None,  # it does not wrap
        }
        for e in events
        if e["cents"] >= 5000
    }
    assert shop.rows(lines, "orders") == {
        key_of(e["order_id"], str(pos)): {
            "order_id": e["order_id"],
            "pos": pos,
            "sku": item["sku"],
            "pieces": item["number"],
        }
        for e in events
        for pos, item in enumerate(e["items"])
    }
    # Of rows with one key the latest event's stands.
    newest = {e["address"]["city"]: e["order_id"] for e in events} | {"any": events[-1]["order_id"]}
    keys = {"[Linz]": key_of("[Linz]")}
    assert shop.rows(latest, "orders") == {
        keys.get(city, city): {"city": city, "order_id": last} for city, last in newest.items()
    }
    countries = {"Rome": "IT", "Oslo": "NO"}
    assert shop.rows(named, "orders") == {
        e["order_id"]: {"order_id": e["order_id"], "country": countries.get(e["address"]["city"])}
        for e in events
    }

    dead = [
        r for r in records_of(pipeline.cluster, f"{topic}.dlq") if r.header("hub.dlq.view") == large.encode()
    ]
    assert {int(r.header("hub.dlq.offset") or b"-1"): r.value for r in dead} == bad
    reasons = {int(r.header("hub.dlq.offset") or b"-1"): (r.header("hub.dlq.reason") or b"") for r in dead}
    assert b"wire format" in reasons[40]
    assert b"more than 1 hour ahead" in reasons[41]
    assert b"placed_at is null" in reasons[42]

    # Nothing changed, so nothing is planned again: all of them, including the one with a static table,
    # continue.
    wait_until(lambda: pipeline.state(named).get("state") == "live", 60.0)
    since = {view: pipeline.state(view)["since_ms"] for view in (large, named)}
    time.sleep(6.0)
    assert {view: pipeline.state(view)["since_ms"] for view in (large, named)} == since


def windows(at: int, length: int, slide: int) -> list[int]:
    first = at // slide * slide
    return [
        start for start in range(first - length + slide, first + slide, slide) if start <= at < start + length
    ]


def test_windows_with_late_events_and_top_k(shop: Shop, pipeline: Pipeline) -> None:
    tumbling = shop.declare(
        "hourly",
        {"o": source(shop, "orders")},
        "SELECT customer, window(placed_at, '1 hour').start AS hour, count(*) AS n, sum(cents) AS cents\n"
        "FROM o GROUP BY window(placed_at, '1 hour'), customer",
    )
    hopping = shop.declare(
        "hops",
        {"o": source(shop, "orders")},
        "SELECT window.start AS since, max(cents) AS most FROM o\n"
        "GROUP BY window(placed_at, '30 minutes', '10 minutes')",
        ["since"],
    )
    top = shop.declare(
        "top",
        {"o": source(shop, "orders")},
        "SELECT address.city AS city, max_by(order_id, struct(cents, order_id), 3) AS top, count(*) AS n\n"
        "FROM o GROUP BY address.city",
    )
    first = [order(n, START + n * MINUTE) for n in range(150)]  # two and a half hours
    shop.orders(first)
    shop.rows(tumbling, "orders")
    shop.rows(hopping, "orders")
    # The watermark is at 139 minutes now. What a batch takes is judged by the watermark that the batch before
    # had.
    second = [order(150, START + 149 * MINUTE)]  # no later than the last: the watermark stays
    shop.orders(second)
    shop.rows(tumbling, "orders")
    shop.rows(hopping, "orders")
    closed = [order(1_000 + n, START + 5 * MINUTE) for n in range(3)]
    open_ = [order(2_000, START + 125 * MINUTE)]  # its hour is open; one of its three hops is closed
    shop.orders([*closed, *open_])
    events = [*first, *second, *open_]

    assert shop.rows(tumbling, "orders") == {
        key_of(customer, iso(hour)): {
            "customer": customer,
            "hour": iso(hour),
            "n": len(group),
            "cents": sum(e["cents"] for e in group),
        }
        for (customer, hour), group in by(
            events, lambda e: (e["customer"], e["placed_at"] // HOUR * HOUR)
        ).items()
    }
    spread = [
        (start, e["cents"])
        for e in events
        for start in windows(e["placed_at"], 30 * MINUTE, 10 * MINUTE)
        # Of the late one only the windows that end after the watermark.
        if e not in open_ or start + 30 * MINUTE > START + 139 * MINUTE
    ]
    most = {start: max(cents for at, cents in spread if at == start) for start, _ in spread}
    assert shop.rows(hopping, "orders") == {
        str(iso(start)): {"since": iso(start), "most": cents} for start, cents in most.items()
    }
    everything = [*events, *closed]  # without a window no event is late
    assert shop.rows(top, "orders") == {
        (city if not city.startswith("[") else key_of(city)): {
            "city": city,
            "top": [
                e["order_id"]
                for e in sorted(group, key=lambda e: (e["cents"], e["order_id"]), reverse=True)[:3]
            ],
            "n": len(group),
        }
        for city, group in by(everything, lambda e: e["address"]["city"]).items()
    }

    def late(view: str) -> set[str]:
        found = records_of(pipeline.cluster, f"views.{view}.late")
        assert all(r.header("hub.late.topic") == f"{shop.name}.orders".encode() for r in found)
        assert all(r.value is not None and r.value[:1] == b"\0" for r in found)
        return {(r.key or b"").decode() for r in found}

    assert late(tumbling) == {e["order_id"] for e in closed}
    assert late(hopping) == {e["order_id"] for e in [*closed, *open_]}
    told = [json.loads(r.value or b"{}") for r in records_of(pipeline.cluster, "_hub.progress")
        if r.key == f"progress:{tumbling}".encode()]  # fmt: skip
    assert told[-1]["late_records"] == len(closed)

    # The command line counts them by window, and names the watermark that would have included them.
    late_of = call_hub(pipeline.settings, "view", "replay-late", tumbling, "-o", "json")
    assert late_of.returncode == 0, late_of.stderr
    (window,) = json.loads(late_of.stdout)
    assert (window["window"][:19], window["late"]) == (str(iso(START))[:19], 3) and window["behind_ms"] > 0
    assert "watermark 10 minutes; " in late_of.stderr and "would have taken these 3" in late_of.stderr
    listed = call_hub(pipeline.settings, "view", "ls", "-o", "json")
    (row,) = (each for each in json.loads(listed.stdout) if each["view"] == tumbling)
    assert row["rows"] == len(shop.rows(tumbling, "orders"))
    shown = json.loads(call_hub(pipeline.settings, "view", "show", tumbling, "-o", "json").stdout)
    assert shown["fields"] == ["customer", "hour", "n", "cents"] and shown["last_batch"]["late_records"] == 3
    unknown = call_hub(pipeline.settings, "view", "show", tumbling[:-1])
    assert unknown.returncode != 0 and f'did you mean "{tumbling}"?' in unknown.stderr


def test_sessions_and_joins_within_an_interval(shop: Shop, pipeline: Pipeline) -> None:
    both = {"o": source(shop, "orders"), "p": source(shop, "payments")}
    sessions = shop.declare(
        "visits",
        {"o": source(shop, "orders")},
        "SELECT customer, session_window(placed_at, '5 minutes').start AS began, count(*) AS n\n"
        "FROM o WHERE customer IS NOT NULL GROUP BY customer, session_window(placed_at, '5 minutes')",
    )
    condition = (
        "o.order_id = p.order_id AND p.paid_at BETWEEN o.placed_at AND o.placed_at + INTERVAL 30 MINUTES"
    )
    paid = shop.declare(
        "paid",
        both,
        f"SELECT o.order_id, p.payment_id, p.value AS cents FROM o JOIN p ON {condition}",
        ["order_id", "payment_id"],
    )
    maybe = shop.declare(
        "maybe",
        both,
        f"SELECT o.order_id, o.customer, p.payment_id FROM o LEFT JOIN p ON {condition}",
        ["order_id"],
    )
    chance = random.Random(5)
    at = sorted(START + chance.randrange(200) * MINUTE for _ in range(60))
    orders = [order(n, when) for n, when in enumerate(at)]
    payments = [
        {
            "payment_id": f"p{n}",
            "order_id": f"o{n}",
            "paid_at": orders[n]["placed_at"] + delay * MINUTE,
            "value": orders[n]["cents"],
        }
        for n in range(0, 60, 2)
        for delay in [chance.choice([0, 10, 30, 31, 45])]
    ]
    shop.orders(orders)
    shop.payments(payments)
    shop.rows(maybe, "orders", "payments")
    # Two hours on, both topics say so: everything before is complete.
    end_at = START + 400 * MINUTE
    for n in range(2):
        shop.orders([order(9_000 + n, end_at + n, customer="last")])
        shop.payments([{"payment_id": f"end{n}", "order_id": "none", "paid_at": end_at + n, "value": 0}])
        shop.rows(maybe, "orders", "payments")
        shop.rows(sessions, "orders")

    joined = {
        p["payment_id"]: o
        for p in payments
        for o in orders
        if o["order_id"] == p["order_id"] and o["placed_at"] <= p["paid_at"] <= o["placed_at"] + 30 * MINUTE
    }
    assert shop.rows(paid, "orders", "payments") == {
        key_of(o["order_id"], payment): {
            "order_id": o["order_id"],
            "payment_id": payment,
            "cents": o["cents"],
        }
        for payment, o in joined.items()
    }
    partner = {o["order_id"]: payment for payment, o in joined.items()}
    assert 0 < len(partner) < len(payments)
    wanted = {
        o["order_id"]: {
            "order_id": o["order_id"],
            "customer": o["customer"],
            "payment_id": partner.get(o["order_id"]),
        }
        for o in orders
    }
    wait_until(lambda: len(shop.rows(maybe, "orders", "payments")) == len(wanted), 60.0)
    assert shop.rows(maybe, "orders", "payments") == wanted

    visits: dict[str, dict[str, Any]] = {}
    for customer, group in by((o for o in orders if o["customer"]), lambda e: e["customer"]).items():
        began = last = None
        for e in group:
            if began is None or last is None or e["placed_at"] > last + 5 * MINUTE:
                began = e["placed_at"]
            last = e["placed_at"]
            row = visits.setdefault(
                key_of(customer, iso(began)), {"customer": customer, "began": iso(began), "n": 0}
            )
            row["n"] += 1
    wait_until(lambda: len(shop.rows(sessions, "orders")) == len(visits), 60.0)
    assert shop.rows(sessions, "orders") == visits

    shop.orders([order(7_000, START)])
    for view in (sessions, paid, maybe):
        shop.rows(view, "orders")
        late = records_of(pipeline.cluster, f"views.{view}.late")
        assert [record.key for record in late] == [b"o7000"], view
    assert shop.rows(sessions, "orders") == visits


def test_outer_and_semi_joins_windows_over_a_join_and_distinct_rows(shop: Shop) -> None:
    """Invariant of Spark's own streams: each row once, outer rows when the watermark has passed them."""
    both = {"o": source(shop, "orders"), "p": source(shop, "payments")}
    condition = (
        "o.order_id = p.order_id AND p.paid_at BETWEEN o.placed_at AND o.placed_at + INTERVAL 30 MINUTES"
    )
    right = shop.declare(
        "right",
        both,
        f"SELECT p.payment_id, p.value AS cents, o.customer FROM o RIGHT JOIN p ON {condition}",
        ["payment_id"],
    )
    full = shop.declare(
        "full",
        both,
        f"SELECT o.order_id, p.payment_id FROM o FULL OUTER JOIN p ON {condition}",
        ["order_id", "payment_id"],
    )
    semi = shop.declare(
        "semi", both, f"SELECT o.order_id, o.cents FROM o LEFT SEMI JOIN p ON {condition}", ["order_id"]
    )
    hourly = shop.declare(
        "hourly",
        both,
        "SELECT window(o.placed_at, '1 hour').start AS hour, count(*) AS n, sum(p.value) AS cents\n"
        f"FROM o JOIN p ON {condition} GROUP BY window(o.placed_at, '1 hour')",
    )
    distinct = shop.declare(
        "distinct", {"o": source(shop, "orders")}, "SELECT DISTINCT customer, address.city AS city FROM o"
    )
    chance = random.Random(8)
    orders = [
        order(n, at) for n, at in enumerate(sorted(START + chance.randrange(200) * MINUTE for _ in range(40)))
    ]
    payments = [
        {"payment_id": f"p{n}", "order_id": f"o{n}", "paid_at": orders[n % 40]["placed_at"] + delay * MINUTE,
        "value": n}
        for n in range(0, 60, 2)  # the last ten are of orders that nobody placed
        for delay in [chance.choice([0, 10, 30, 31, 45])]
    ]  # fmt: skip
    shop.orders(orders)
    shop.payments(payments)
    shop.rows(full, "orders", "payments")
    end_at = START + 400 * MINUTE
    for n in range(2):
        shop.orders([order(9_000 + n, end_at + n, customer="last")])
        shop.payments([{"payment_id": f"end{n}", "order_id": "none", "paid_at": end_at + n, "value": 0}])
        for view in (right, full, hourly):
            shop.rows(view, "orders", "payments")

    placed = {o["order_id"]: o for o in orders}
    joined = {
        p["payment_id"]: placed[p["order_id"]]
        for p in payments
        if p["order_id"] in placed and 0 <= p["paid_at"] - placed[p["order_id"]]["placed_at"] <= 30 * MINUTE
    }
    paid = {o["order_id"]: payment for payment, o in joined.items()}
    assert 0 < len(paid) < len(payments) - 10

    def until(view: str, wanted: dict[str, dict[str, Any]], *kinds: str) -> None:
        wait_until(lambda: len(shop.rows(view, *kinds)) == len(wanted), 60.0)
        assert shop.rows(view, *kinds) == wanted

    until(
        right,
        {
            p["payment_id"]: {
                "payment_id": p["payment_id"],
                "cents": p["value"],
                "customer": joined[p["payment_id"]]["customer"] if p["payment_id"] in joined else None,
            }
            for p in payments
        },
        "orders",
        "payments",
    )
    pairs = [(o["order_id"], paid.get(o["order_id"])) for o in orders]
    pairs += [(None, p["payment_id"]) for p in payments if p["payment_id"] not in joined]
    until(
        full,
        {key_of(one, other): {"order_id": one, "payment_id": other} for one, other in pairs},
        "orders",
        "payments",
    )
    until(
        semi,
        {name: {"order_id": name, "cents": placed[name]["cents"]} for name in paid},
        "orders",
        "payments",
    )
    values = {p["payment_id"]: p["value"] for p in payments}
    hours = by(joined, lambda payment: joined[payment]["placed_at"] // HOUR * HOUR)
    until(
        hourly,
        {
            str(iso(hour)): {"hour": iso(hour), "n": len(of), "cents": sum(values[each] for each in of)}
            for hour, of in hours.items()
        },
        "orders",
        "payments",
    )
    seen = {(o["customer"], o["address"]["city"]) for o in orders}
    seen |= {("last", order(9_000 + n, None)["address"]["city"]) for n in range(2)}
    until(distinct, {key_of(one, city): {"customer": one, "city": city} for one, city in seen}, "orders")


def test_a_topic_that_comes_later_and_fits_is_read_by_views_of_every_kind(shop: Shop) -> None:
    """``shop.*.orders`` while the views run: also the events that were in it before it was noticed."""
    pattern = f"{shop.name}.*.orders"
    shop.topic("north.orders", ORDER)
    native = shop.declare(
        "native",
        {"o": {"topic": pattern}},
        "SELECT address.city AS city, count(*) AS n FROM o GROUP BY address.city",
    )
    delta = shop.declare(
        "delta",
        {"o": {"topic": pattern}},
        "SELECT address.city AS city, count(DISTINCT order_id) AS n FROM o GROUP BY address.city",
    )
    entity = f"{shop.name}_entity"
    path = shop.pipeline.views / f"{entity}.yaml"
    source_ = {"topic": pattern, "key": "address.city"}
    path.write_text(
        json.dumps({"view": entity, "sources": {"o": source_}, "fields": {"n": "count(o.order_id)"}})
    )
    shop.views.append(path)

    def counted(*kinds: str) -> None:
        cities = by(events, lambda e: e["address"]["city"])
        for view in (native, delta, entity):
            rows = shop.rows(view, *kinds)
            found = {(json.loads(key)[0] if key[1:2] == '"' else key): row["n"] for key, row in rows.items()}
            assert found == {city: len(group) for city, group in cities.items()}, view

    events = [order(n, START) for n in range(20)]
    shop.write("north.orders", ORDER, events, "order_id")
    counted("north.orders")
    more = [order(n, START) for n in range(20, 50)]
    shop.write("south.orders", ORDER, more, "order_id")  # the topic is made by this
    events += more
    counted("north.orders", "south.orders")
    shop.write("north.orders", ORDER, last := [order(n, START) for n in range(50, 60)], "order_id")
    events += last
    counted("north.orders", "south.orders")


def test_what_takes_rows_back_is_kept_by_the_delta_operator(shop: Shop, pipeline: Pipeline) -> None:
    view = shop.declare(
        "rare",
        {"o": source(shop, "orders")},
        "SELECT customer, count(*) AS n FROM o WHERE customer IS NOT NULL GROUP BY "
        "customer HAVING count(*) <= 3",
    )
    events: list[Event] = []
    seen: set[str] = set()
    for numbers in (range(8), range(8, 24)):
        more = [order(n, START - n * HOUR) for n in numbers]  # far behind any watermark, and counted
        shop.orders(more)
        events += more
        counted = by((e for e in events if e["customer"]), lambda e: str(e["customer"]))
        expected = {key: {"customer": key, "n": len(es)} for key, es in counted.items() if len(es) <= 3}
        assert shop.rows(view, "orders") == expected
        gone = seen - expected.keys()
        seen |= expected.keys()
    assert gone
    taken = {
        r.key.decode() for r in records_of(pipeline.cluster, f"views.{view}") if r.key and r.value is None
    }
    assert taken == gone


@pytest.mark.timeout(600)
def test_a_kill_in_the_middle_gives_no_row_twice(shop: Shop, pipeline: Pipeline, tmp_path: Path) -> None:
    """A materializer of its own is killed while it works; what a store makes of its changelogs is exact."""
    settings = pipeline.settings.model_copy(
        update={"home": tmp_path / "home", "project": tmp_path / "project"}
    )
    elsewhere = Pipeline(settings, pipeline.url)
    elsewhere.views.mkdir(parents=True)
    shop.pipeline = elsewhere
    hourly = shop.declare(
        "hourly",
        {"o": source(shop, "orders", watermark="1 day")},
        "SELECT customer, window(placed_at, '1 hour').start AS hour, count(*) AS n, sum(cents) AS cents "
        "FROM o GROUP BY customer, window(placed_at, '1 hour')",
    )
    lines = shop.declare(
        "lines",
        {"o": source(shop, "orders")},
        "SELECT order_id, pos, item.sku AS sku FROM o LATERAL VIEW posexplode(items) e AS pos, item",
        ["order_id", "pos"],
    )
    events = [order(n, START + n * 1_000) for n in range(6_000)]
    elsewhere.start("materialize")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    registry = RegistryClient(pipeline.url)
    applier = Applier(elsewhere.cluster, registry, store)
    views = [load_view(path) for path in shop.views]
    written = 0
    try:
        for n in range(0, 6_000, 500):
            shop.orders(events[n : n + 500])
            if n in (1_500, 4_000):
                wait_until(lambda: elsewhere.written(lines) > written, 120.0)  # noqa: B023 called at once
                elsewhere.kill("materialize", "too")
                written = elsewhere.written(lines)
                elsewhere.start("materialize")
        wanted = {(e["order_id"], pos) for e in events for pos in range(len(e["items"]))}
        hours = by(events, lambda e: (e["customer"], e["placed_at"] // HOUR * HOUR))

        def applied() -> bool:
            applier.follow(views)
            while applier.step():
                pass
            end_at = elsewhere.cluster.end_offsets([f"{shop.name}.orders"])
            return all(store.positions(view.name, "source").covers(end_at) for view in views)

        wait_until(applied, 240.0)
        found = {row.key: row.values for row in _rows(store, hourly)}
        assert {key: (row["n"], row["cents"]) for key, row in found.items()} == {
            key_of(customer, iso(hour)): (len(group), sum(e["cents"] for e in group))
            for (customer, hour), group in hours.items()
        }
        # A version is one state: whenever it was written again, the same row was.
        states: dict[tuple[bytes, int], set[bytes]] = defaultdict(set)
        for record in elsewhere.changelog(hourly):
            states[record.key or b"", int(record.header("hub.version") or b"0")].add(record.value or b"")
        assert all(len(values) == 1 for values in states.values())
        assert {(row.values["order_id"], row.values["pos"]) for row in _rows(store, lines)} == wanted
    finally:
        applier.close()
        registry.close()
        store.close()
        elsewhere.close()


def _rows(store: Store, view: str) -> list[Any]:
    return store.select(view, [], 100_000, None)
