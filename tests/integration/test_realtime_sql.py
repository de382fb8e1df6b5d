"""SQL views, versions and a ttl in Spark's real-time mode, on a hub of its own:
rows as plain Python has them, whatever dies."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pipeline import Pipeline, iso, plain, records_of
from plant import Plant
from plant_traffic import SENSORS, Events, Reader, served, shown, versions
from postgres import BINARIES
from processes import call_hub
from realtime_hub import Hub, killed, running_hub

from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

pytestmark = pytest.mark.timeout(1_200)
MINUTE, HOUR, DAY_MS = 60_000, 3_600_000, 86_400_000
START = 1_700_000_000_000 // HOUR * HOUR
SALE: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "sale_id", "type": "string"},
        {"name": "shop", "type": "string"},
        {"name": "sold_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cents", "type": "long"},
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
SALES, RETURNS = "till.sales", "till.returns"
VIEWS: dict[str, dict[str, Any]] = {
    "till_lines": {
        "sources": {"s": {"topic": SALES}},
        "sql": "SELECT sale_id, item.sku AS sku, item.number * 2 AS pieces, shop FROM s "
        "LATERAL VIEW explode(items) i AS item WHERE cents > 500",
        "key": ["sale_id", "sku"],
    },
    "till_shops": {
        "sources": {"s": {"topic": SALES}, "r": {"topic": RETURNS}},
        "sql": "SELECT shop, count(*) AS events, sum(cents) AS cents, max_by(sale_id, cents) AS greatest, "
        "max_by(sale_id, cents, 2) AS two FROM "
        "(SELECT shop, sale_id, cents FROM s UNION ALL SELECT shop, sale_id, -cents AS cents "
        "FROM r) e GROUP BY shop",
    },
    "till_hours": {
        "sources": {"s": {"topic": SALES, "event_time": "sold_at", "watermark": "12 hours"}},
        "sql": "SELECT shop, window(sold_at, '1 hour', '30 minutes').start AS since, count(*) AS sales "
        "FROM s GROUP BY shop, window(sold_at, '1 hour', '30 minutes')",
    },
}
Event = dict[str, Any]


@pytest.fixture(scope="module")
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    stores = {"duck": "duckdb", "lake": "iceberg"}
    if BINARIES:
        stores["warehouse"] = request.getfixturevalue("postgres").database("realtime")
    more: dict[str, Any] = {
        "stores": stores,
        "expiry_every_s": 0.3,
        "lake_commit_s": 1.0,
        "live_events_per_batch": 120,
    }
    with running_hub(tmp_path_factory.mktemp("realtime-sql"), **more) as running:
        yield running


# ---- SQL views


def sale(n: int) -> Event:
    """The n-th sale, of which every tenth is a return; everything about it follows from n."""
    chance = random.Random(n)
    return {
        "sale_id": f"s{n}",
        "shop": f"shop{chance.randrange(5)}",
        "sold_at": START + n * MINUTE,
        "cents": chance.randrange(100, 10_000) * 1_000 + n,  # no two alike
        "items": [{"sku": f"k{k}", "number": chance.randrange(1, 4)} for k in range(chance.randrange(3))],
    }


def is_return(n: int) -> bool:
    return n % 10 == 0


class Till:
    """Sales and returns, written a few at a time until it ends."""

    def __init__(self, pipeline: Pipeline, name: str = "till") -> None:
        self.sales, self.returns = f"{name}.sales", f"{name}.returns"
        self.writer = pipeline.cluster.writer()
        self.ids = {}
        for topic in (self.sales, self.returns):
            pipeline.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
            self.ids[topic] = pipeline.registry.register(f"{topic}-value", json.dumps(SALE))
        self.sold = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._goes_on, daemon=True)

    def write(self, count: int) -> Positions:
        numbers = range(self.sold, self.sold + count)
        self.sold += count
        return self.append([(self.returns if is_return(n) else self.sales, sale(n)) for n in numbers])

    def append(self, events: list[tuple[str, Event]]) -> Positions:
        return self.writer.append(
            [
                NewRecord(topic, event["shop"].encode(), encode(self.ids[topic], parsed(SALE), event))
                for topic, event in events
            ]
        )

    def _goes_on(self) -> None:
        while not self.stop.wait(0.4):
            self.write(20)


def rows_of(sold: int) -> dict[str, dict[str, Event]]:
    """Return the expected rows of each view for the first sales."""
    lines: dict[str, Event] = {}
    hours: dict[str, Event] = {}
    taken: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for n in range(sold):
        event = sale(n)
        taken[event["shop"]].append((-event["cents"] if is_return(n) else event["cents"], event["sale_id"]))
        if is_return(n):
            continue
        for item in event["items"]:
            key = json.dumps([event["sale_id"], item["sku"]], separators=(",", ":"))
            row = {"sku": item["sku"], "pieces": 2 * item["number"], "shop": event["shop"]}
            lines[key] = {"sale_id": event["sale_id"], **row}
        for since in (event["sold_at"] // (30 * MINUTE) - back for back in (0, 1)):
            at = iso(since * 30 * MINUTE)
            key = json.dumps([event["shop"], at], separators=(",", ":"))
            hours.setdefault(key, {"shop": event["shop"], "since": at, "sales": 0})["sales"] += 1
    shops = {
        shop: {
            "shop": shop,
            "events": len(each),
            "cents": sum(cents for cents, _ in each),
            "greatest": max(each)[1],
            "two": [sale_id for _, sale_id in sorted(each, reverse=True)[:2]],
        }
        for shop, each in taken.items()
    }
    return {"till_lines": lines, "till_shops": shops, "till_hours": hours}


def equal_plain_python(hub: Hub, sold: int) -> None:
    for view, expected in rows_of(sold).items():
        hub.pipeline.covers(view, {each["topic"] for each in VIEWS[view]["sources"].values()})
        assert {key: plain(row) for key, row in hub.pipeline.rows(view).items()} == expected, view
        proven = call_hub(hub.settings, "view", "verify", view)
        assert proven.returncode == 0, (proven.stdout, proven.stderr)
        batch = hub.pipeline.state(view)["last_batch"]
        assert batch["generation"] == 1, "no state was thrown away"


def test_rows_of_sql_views_are_those_of_plain_python_whatever_dies_between_checkpoints(hub: Hub) -> None:
    till = Till(hub.pipeline)
    till.write(300)
    for name, body in VIEWS.items():
        hub.write_view(name, json.dumps({"view": name, "mode": "realtime", **body}))  # JSON is YAML
    try:
        for name in VIEWS:
            hub.reaches(name, "realtime")
        till.thread.start()
        for victim in killed("materializer"):
            hub.flows("till_lines")
            hub.flows("till_shops")
            hub.kill(victim)
            hub.until(lambda: hub.pipeline.state("till_lines").get("state") != "realtime", 240.0)
            for name in VIEWS:
                hub.reaches(name, "realtime")
        hub.flows("till_hours")
        till.stop.set()
        till.thread.join(60.0)

        # Undecodable events leave at the checkpoint, before the position covers them.
        bad = till.writer.append([NewRecord(SALES, b"x", b"no Avro", partition=1)])
        hub.until(lambda: covers(hub, "till_lines", bad), 120.0)
        letters = [
            each for each in records_of(hub.pipeline.cluster, f"{SALES}.dlq") if each.value == b"no Avro"
        ]
        assert b"till_lines" in {each.header("hub.dlq.view") for each in letters}
        assert hub.pipeline.state("till_lines")["last_batch"]["dead_records"] == 1
        equal_plain_python(hub, till.sold)
        assert hub.pipeline.state("till_lines")["last_batch"]["mode"] == "realtime"
        made_of = [row["_sources"]["s"] for row in hub.pipeline.rows("till_lines").values()]
        assert {each["topic"] for each in made_of} == {SALES}, "a stateless row says which event made it"

        # The same state continues in micro-batches, and back.
        for mode in ("live", "realtime"):
            for name in VIEWS:
                hub.switch_json(name, mode)
            for name in VIEWS:
                hub.reaches(name, mode)
            till.write(200)
            equal_plain_python(hub, till.sold)
    finally:
        till.stop.set()
        hub.remove_views(*VIEWS)


def test_events_that_come_too_late_are_told_and_no_death_makes_more_of_them(hub: Hub) -> None:
    till = Till(hub.pipeline, "late")
    name, late = "till_days", "views.till_days.late"
    body = {
        "sources": {"s": {"topic": till.sales, "event_time": "sold_at", "watermark": "1 hour"}},
        "sql": "SELECT shop, window(sold_at, '1 day').start AS day, count(*) AS sales FROM s GROUP BY shop, "
        "window(sold_at, '1 day')",
    }

    def sold(shop: str, days: int, count: int) -> Positions:
        at = START // DAY_MS * DAY_MS + days * DAY_MS
        return till.append([(till.sales, {**sale(n), "shop": shop, "sold_at": at}) for n in range(count)])

    def days(shop: str) -> list[int]:
        rows = hub.pipeline.rows(name).values()
        return [row["sales"] for row in sorted(rows, key=lambda row: row["day"]) if row["shop"] == shop]

    def told() -> list[bytes]:
        return [each.key or b"" for each in records_of(hub.pipeline.cluster, late)]

    def stands_at(days_: list[int], shop: str) -> None:
        hub.until(lambda: days(shop) == days_, 120.0, lambda: f"{days(shop)} {hub.pipeline.state(name)}")

    hub.write_view(name, json.dumps({"view": name, "mode": "realtime", **body}))
    try:
        sold("a", 0, 1)
        hub.reaches(name, "realtime")
        stands_at([1], "a")
        # All of one interval: the first moves the watermark past the others when the interval ends, not
        # before. A checkpoint that comes in between is waited for, and it starts again with the next days.
        for first in range(1, 40, 4):
            hub.until(lambda: covers(hub, name, hub.pipeline.cluster.end_offsets([till.sales])), 120.0)
            shop = f"b{first}"
            token = till.append(
                [(till.sales, {**sale(0), "shop": shop, "sold_at": START + (first + 2) * DAY_MS})]
            )
            token = sold(shop, first, 200)
            stands_at([200, 1], shop)
            hub.kill("materializer")
            if not covers(hub, name, token):
                break
            hub.reaches(name, "realtime")
        else:
            pytest.fail("each time a checkpoint was faster than the kill")
        # Micro-batches are small here (`live_events_per_batch`): cut like that, the last of them would be
        # behind the first.
        hub.switch_json(name, "live")
        hub.reaches(name, "live")
        hub.until(lambda: covers(hub, name, token), 240.0)
        assert days(shop) == [200, 1]
        assert told() == [], "they were in time before the process died"
        hub.switch_json(name, "realtime")
        hub.reaches(name, "realtime")

        # Now they are late, and are reported at the checkpoint, as written.
        token = sold(shop, first, 3)
        hub.until(lambda: covers(hub, name, token), 120.0)
        if days(shop) == [203, 1]:  # the checkpoint before had not moved the watermark yet
            token = sold(shop, first, 3)
            hub.until(lambda: covers(hub, name, token), 120.0)
        taken = days(shop)
        assert taken[0] in (200, 203) and told() == [shop.encode()] * 3
        assert hub.pipeline.state(name)["last_batch"]["late_records"] == 3
        proven = call_hub(hub.settings, "view", "verify", name)
        assert proven.returncode == 0, (proven.stdout, proven.stderr)
    finally:
        hub.remove_views(name)


def covers(hub: Hub, view: str, written: Positions) -> bool:
    answer = httpx2.get(f"{hub.pipeline.url}/views/{view}?limit=1", timeout=10.0)
    return Positions.parse(answer.headers.get("Hub-Position", "")).covers(written)


# ---- versions


def engines(plant: Plant) -> dict[int, tuple[str, str]]:
    answer = httpx2.get(f"{plant.pipeline.url}/view-versions/{plant.view}", timeout=60.0)
    return {each["number"]: (each["state"], each["engine"]) for each in answer.json()["versions"]}


def test_a_version_is_built_beside_one_in_real_time_and_takes_its_place(hub: Hub) -> None:
    plant = Plant(hub.pipeline, "rt_swapped")
    events = Events(plant)
    events.once()
    plant.declare({"celsius": "r.celsius"}, "[]\nmode: realtime")
    hub.reaches(plant.view, "realtime")
    hub.until(lambda: hub.pipeline.state(plant.view).get("rows") == SENSORS, 120.0)
    width = hub.restarts_of_spark()
    try:
        with events, Reader(plant) as reader:
            plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"}, "[]\nmode: realtime")
            hub.until(lambda: 2 in versions(plant), 120.0, lambda: shown(plant))
            assert hub.pipeline.state(plant.view)["state"] == "realtime", "the version that serves goes on"
            hub.until(lambda: served(plant, 2), 240.0, lambda: shown(plant))
            # The slots move from one to the other; the former continues in micro-batches, up to date for a
            # rollback.
            both = {1: ("former", "live"), 2: ("served", "realtime")}
            hub.until(lambda: engines(plant) == both, 120.0, lambda: shown(plant))
            hub.until(lambda: "readings" in reader.copy.get("s7", {}), 120.0)
            plant.covered("s39", events.last)

            back = call_hub(hub.settings, "view", "rollback", plant.view)
            assert back.returncode == 0, back
            assert "readings" not in plant.row("s7").json()
            turned = {1: ("served", "realtime"), 2: ("former", "live")}
            hub.until(lambda: engines(plant) == turned, 120.0, lambda: shown(plant))
            plant.covered("s39", events.last)
            assert call_hub(hub.settings, "view", "apply", plant.view).returncode == 0
            hub.until(lambda: engines(plant) == both, 120.0, lambda: shown(plant))
            assert hub.restarts_of_spark() == width, "no slots were asked for that the view did not have"

            # A served version whose checkpoint is lost while it runs: its rows stay, the next is built and
            # continues in real time.
            gone = hub.settings.checkpoints / f"{plant.view}@2"
            gone.rename(hub.settings.home / "gone")  # at once: Spark writes and removes files in it meanwhile
            hub.until(lambda: served(plant, 3), 300.0, lambda: shown(plant))
            hub.until(lambda: engines(plant).get(3) == ("served", "realtime"), 120.0, lambda: shown(plant))
        assert reader.wrong == [] and reader.reads > 10 and reader.resets >= 3
        row = plant.row("s7", events.last).json()
        assert (row["celsius"], row["readings"]) == (float(events.rounds - 1), events.rounds)
        proven = call_hub(hub.settings, "view", "verify", plant.view)
        assert proven.returncode == 0, (proven.stdout, proven.stderr)
    finally:
        hub.remove_views(plant.view)


# ---- ttl


def test_rows_that_are_over_go_from_every_store_in_real_time_too(hub: Hub) -> None:
    plant = Plant(hub.pipeline, "rt_over")
    hub.pipeline.cluster.alter_config(plant.topic, {"retention.ms": "-1"})  # its events are old
    named = ["serving", *hub.settings.stores]

    def write(keys: list[str], days_ago: float) -> Positions:
        at_ms = round(time.time() * 1000 - days_ago * DAY_MS)
        return plant.writer.append(
            [
                NewRecord(plant.topic, key.encode(), plant.reading(key, 1.0), timestamp_ms=at_ms + n)
                for n, key in enumerate(keys)
            ]
        )

    def keys_are(wanted: set[str]) -> None:
        hub.until(
            lambda: hub.pipeline.rows(plant.view).keys() == wanted,
            180.0,
            lambda: f"{sorted(hub.pipeline.rows(plant.view))[:9]} {hub.pipeline.state(plant.view)}",
        )

    def in_all_stores() -> dict[str, int]:
        done = call_hub(hub.settings, "view", "verify", plant.view, "--timeout", "120", "-o", "json")
        assert done.returncode == 0, (done.stdout, done.stderr)
        return {each["store"]: each["store_rows"] for each in json.loads(done.stdout)}

    try:
        write(["young"], 0.0)
        plant.declare(
            {"readings": "count(r.celsius)"}, f"[]\nmode: realtime\nttl: 1d\nstores: [{', '.join(named)}]"
        )
        hub.reaches(plant.view, "realtime")
        keys_are({"young"})

        # Written while it runs in real time: each row comes, is found to be over and goes; deaths on the way.
        many = [f"k{n}" for n in range(400)]
        for part, victim in enumerate(("materializer", "spark")):
            write(many[part * 200 : (part + 1) * 200], 2.0)
            hub.flows(plant.view)
            hub.kill(victim)
            hub.until(lambda: hub.pipeline.state(plant.view).get("state") != "realtime", 240.0)
            hub.reaches(plant.view, "realtime")
        expiries = f"_hub.expiry.{plant.view}"
        hub.until(
            lambda: (
                {each.key for each in records_of(hub.pipeline.cluster, expiries)}
                == {key.encode() for key in many}
            ),
            180.0,
        )
        keys_are({"young"})
        hub.pipeline.covers(plant.view, [plant.topic, expiries])
        assert in_all_stores() == dict.fromkeys(named, 1)
        tombs = {each.key for each in hub.pipeline.changelog(plant.view) if each.value is None}
        assert tombs == {key.encode() for key in many}

        # The next event brings one back, with its whole history.
        token = write(["k7"], 0.0)
        plant.covered("k7", token)
        assert plant.row("k7").json()["readings"] == 2
        keys_are({"young", "k7"})
        assert in_all_stores() == dict.fromkeys(named, 2)
    finally:
        hub.remove_views(plant.view)
