"""Bulk load of a customer-360 view from seven systems: the hub and hand-written programs.

Run: ``./run bench customer_360`` (about six minutes). Each gets a Kafka of its own with the same events
in it. Prints figures and asserts none on time; rows that differ from those computed here in plain Python end
it.
``--rounds N``: all of them in turn, N times, for a machine whose speed changes from minute to minute; then
the medians.
``--floor``: also what Spark takes that does nothing with these events.
bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from changelogs import rows_of
from peers import kafka_streams, quix, spark_floor
from views import MS, SCHEMAS, Hub, bulk, bulk_again, hub, wait

from hub.cli.platform.up import fetch_jars
from hub.config import Settings
from hub.record import Positions
from hub.schema_registry.client.registry_client import RegistryClient

TOPICS: dict[str, dict[str, Any]] = {
    **SCHEMAS,
    "support.tickets": {"ticket_id": "string", "customer_id": "string", "status": "string", "at": MS},
    "marketing.consents": {"customer_id": "string", "email": "boolean", "sms": "boolean", "at": MS},
    "loyalty.points": {
        "event_id": "string",
        "customer_id": "string",
        "points": "long",
        "tier": "string",
        "at": MS,
    },
}
VIEW = """view: bench
sources:
  crm:     {topic: crm.customers, key: customer_id, order: at}
  web:     {topic: web.visits, key: customer_id, order: at}
  orders:  {topic: shop.orders, key: customer_id, order: at, unique_by: order_id}
  pay:     {topic: shop.payments, key: customer_id, order: at, unique_by: event_id}
  tickets: {topic: support.tickets, key: customer_id, order: at, unique_by: ticket_id}
  consent: {topic: marketing.consents, key: customer_id, order: at}
  loyalty: {topic: loyalty.points, key: customer_id, order: at, unique_by: event_id}
fields:
  name: crm.name
  city: crm.city
  segment: crm.segment
  page: web.page
  last_seen: max(web.at)
  visits: count(web.event_id)
  orders: count(orders.order_id)
  open_orders: count_if(orders.status = 'open')
  ordered: coalesce(sum(orders.cents), 0)
  paid: coalesce(sum(if(pay.kind = 'captured', pay.cents, 0)), 0)
  open_tickets: count_if(tickets.status <> 'closed')
  email_consent: coalesce(consent.email, false)
  sms_consent: coalesce(consent.sms, false)
  points: coalesce(sum(loyalty.points), 0)
  tier: loyalty.tier
computed:
  owes: ordered - paid
indexes: [city]
"""
# What a row is where nothing came of it: the peers' rows have no nulls.
EMPTY: dict[str, str | int | bool] = {
    "name": "", "city": "", "segment": "", "page": "", "last_seen": 0, "visits": 0, "orders": 0,
    "open_orders": 0, "ordered": 0, "paid": 0, "open_tickets": 0, "email_consent": False,
    "sms_consent": False, "points": 0, "tier": "", "owes": 0,
}  # fmt: skip
AVRO = {str: "string", int: "long", bool: "boolean"}
ROWS = {
    "type": "record",
    "name": "bench",
    "fields": [{"name": name, "type": AVRO[type(value)]} for name, value in EMPTY.items()],
}
EPOCH_MS = 1_767_225_600_000
PARTICIPANTS = ("hub", "cogroup", "join", "quix")
HUB, MORE = "the hub", "the hub, a view more"

Row = tuple[str | int | bool, ...]


def stream(events: int, keys: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(topic, key, value), seeded: an order and a ticket are updated, and every tenth event comes late."""
    chance = random.Random(1)
    topics = list(TOPICS)
    for number in range(events):
        key = f"C-{chance.randrange(keys):07d}"
        late = 100_000 if number % 10 == 0 else 0
        yield (
            topics[number % len(topics)],
            key,
            {
                "customer_id": key,
                "at": EPOCH_MS + number - late,
                "event_id": f"e{number}",
                "name": f"Name {number}",
                "city": ("Oslo", "Turin", "Lyon")[number % 3],
                "segment": "consumer",
                "page": f"/{number % 97}",
                "order_id": f"o{key}-{number % 2}",
                "ticket_id": f"t{key}-{number % 3}",
                "status": ("open", "closed")[number % 5 == 0],
                "kind": ("captured", "failed")[number % 4 == 0],
                "cents": number % 1_000,
                "email": number % 2 == 0,
                "sms": number % 3 == 0,
                "points": number % 50,
                "tier": ("silver", "gold")[number % 9 == 0],
            },
        )


# What of an event counts, and whether it is about something of its own (an order) or about the customer
# alone.
COUNTS: dict[str, tuple[str, ...]] = {
    "crm.customers": ("name", "city", "segment"),
    "web.visits": ("page",),
    "shop.orders": ("cents", "status"),
    "shop.payments": ("cents", "kind"),
    "support.tickets": ("status",),
    "marketing.consents": ("email", "sms"),
    "loyalty.points": ("points", "tier"),
}
IDENTITY = {
    "shop.orders": "order_id",
    "shop.payments": "event_id",
    "support.tickets": "ticket_id",
    "loyalty.points": "event_id",
}


def expected(events: int, keys: int) -> dict[str, Row]:
    """The rows, by key, in plain Python: of every identity the event that is the latest by ``at``."""
    latest: dict[str, dict[tuple[str, str], tuple[Any, ...]]] = {}
    visits: dict[str, int] = {}
    for topic, key, value in stream(events, keys):
        mine = latest.setdefault(key, {})
        new = (value["at"], *(value[column] for column in COUNTS[topic]))
        for about in {"", value[IDENTITY[topic]] if topic in IDENTITY else ""}:
            if (topic, about) not in mine or new[0] >= mine[topic, about][0]:
                mine[topic, about] = new
        visits[key] = visits.get(key, 0) + (topic == "web.visits")
    return {key: _row(mine, visits[key]) for key, mine in latest.items()}


def _row(mine: dict[tuple[str, str], tuple[Any, ...]], visits: int) -> Row:
    def things(topic: str) -> list[tuple[Any, ...]]:
        return [value[1:] for (of, about), value in mine.items() if of == topic and about]

    def latest(topic: str) -> dict[str, Any]:
        found = mine.get((topic, ""))
        return dict(zip(("at", *COUNTS[topic]), found, strict=True)) if found else {}

    ordered = sum(cents for cents, _ in things("shop.orders"))
    paid = sum(cents for cents, kind in things("shop.payments") if kind == "captured")
    row: dict[str, Any] = {
        **EMPTY,
        **latest("crm.customers"),
        **latest("web.visits"),
        "last_seen": latest("web.visits").get("at", 0),
        "visits": visits,
        "orders": len(things("shop.orders")),
        "open_orders": sum(status == "open" for _, status in things("shop.orders")),
        "ordered": ordered,
        "paid": paid,
        "owes": ordered - paid,
        "open_tickets": sum(status != "closed" for (status,) in things("support.tickets")),
        "points": sum(points for points, _ in things("loyalty.points")),
        "tier": latest("loyalty.points").get("tier", ""),
    }
    consent = latest("marketing.consents")
    row |= {"email_consent": consent.get("email", False), "sms_consent": consent.get("sms", False)}
    return tuple(row[name] for name in EMPTY)


def rows_in(running: Hub, topic: str, schema: Any = None) -> dict[str, Row]:
    """The latest row of each key in a topic of rows.
    ``schema``: of rows that name none; the hub's rows name theirs."""
    found = rows_of(running.cluster, RegistryClient(running.url), topic, schema)
    return {key.decode(): _seen(row) for key, row in found.items()}


def _seen(row: dict[str, Any]) -> Row:
    """A row as ``expected`` has it: nothing is the empty text or 0, times are milliseconds."""

    def plain(name: str) -> str | int | bool:
        value = row[name]
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * 1000)
        return EMPTY[name] if value is None else value

    return tuple(plain(name) for name in EMPTY)


def compare(who: str, found: dict[str, Row], right: dict[str, Row]) -> None:
    """Ends the bench where one row differs."""
    wrong = sorted(key for key in found.keys() | right.keys() if found.get(key) != right.get(key))
    if wrong:
        key = wrong[0]
        raise SystemExit(
            f"{who}: {len(wrong):,} of {len(right):,} rows are wrong, the first is {key}:\n"
            f"  {dict(zip(EMPTY, found.get(key, ()), strict=False))}\nmust be\n"
            f"  {dict(zip(EMPTY, right.get(key, ()), strict=False))}"
        )


class Peer(Protocol):
    """A program that folds the topics of a running hub's Kafka into the topic ``peer.bench``."""

    began_at: float

    def positions(self) -> Positions: ...

    def cpu_s(self) -> float: ...

    def peak_memory_mb(self) -> int: ...

    def stop(self) -> None: ...


Start = Callable[[Hub], Peer]


def measure_peer(events: int, keys: int, right: dict[str, Row], name: str, start: Start) -> dict[str, float]:
    with loaded(events, keys) as running:
        end = running.cluster.end_offsets(list(TOPICS))
        peer = start(running)
        try:
            first_at = wait(lambda: any(offset for _, offset in peer.positions()))
            done_at = wait(lambda: peer.positions().covers(end), 1_800)
            found = {
                "whole": events / (done_at - peer.began_at),
                "reading": events / (done_at - first_at),
                "cpu_us": peer.cpu_s() * 1e6 / events,
                "memory_mb": float(peer.peak_memory_mb()),
            }
        finally:
            peer.stop()
        compare(name, rows_in(running, kafka_streams.OUT, ROWS), right)
        return found


def measure_hub(events: int, keys: int, right: dict[str, Row]) -> tuple[dict[str, float], dict[str, float]]:
    """Measure a hub that starts with the view, and the same view added afterwards."""
    with loaded(events, keys) as running:
        began_at = time.monotonic()
        found = bulk(running)
        # ``bulk`` ends when the store has every row; the changelog was complete before.
        whole_s = time.monotonic() - began_at - events / found["served"] + events / found["computed"]
        processes = running.processes()
        memory_mb = sum(
            kafka_streams.peak_memory_mb(processes[name].pid) for name in ("spark", "materializer")
        )
        compare("the hub", rows_in(running, "views.bench"), right)
        began_at = time.monotonic()
        more = bulk_again(running)
        more_s = time.monotonic() - began_at - events / more["served"] + events / more["computed"]
        compare("the hub's second view", rows_in(running, "views.again"), right)
        found_of_each = [
            {
                "whole": events / seconds,
                "reading": each["computed"],
                "cpu_us": each["cpu_us"],
                "memory_mb": float(memory_mb),
            }
            for seconds, each in ((whole_s, found), (more_s, more))
        ]
        return found_of_each[0], found_of_each[1]


def measure_floor(events: int, keys: int) -> None:
    """Spark that starts, that reads the seven topics, that counts their events by key; prints their lines."""
    with loaded(events, keys) as running:
        for step, title in spark_floor.STEPS.items():
            load = os.getloadavg()[0]
            floor = spark_floor.SparkFloor(running.settings, running.folder / step, step, list(TOPICS))
            try:
                whole_s = floor.wait() - floor.began_at
                found = {
                    "whole": events / whole_s,
                    "reading": events / floor.read_s if step != "start" else float("nan"),
                    "cpu_us": floor.cpu_s() * 1e6 / events,
                    "memory_mb": float(floor.peak_memory_mb()),
                }
                tell(title, found, load)
            finally:
                floor.stop()


@contextlib.contextmanager
def loaded(events: int, keys: int) -> Iterator[Hub]:
    """A hub whose log is full and whose view does not run yet."""
    with hub(TOPICS, VIEW) as running:
        running.append(
            (topic, key, running.encoded(topic, value)) for topic, key, value in stream(events, keys)
        )
        yield running


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--only", nargs="*", choices=PARTICIPANTS, help="default: all")
    arguments.add_argument(
        "--floor", action="store_true", help="also a Spark that does nothing with the events"
    )
    arguments.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="all in turn, N times (default: once)"
    )
    given = arguments.parse_args()
    fetch_jars(Settings())
    right = expected(given.events, given.keys)
    asked = given.only or list(PARTICIPANTS)

    def streams(way: str) -> Start:
        return lambda running: kafka_streams.KafkaStreamsView(
            running.settings, running.cluster, running.folder / "peer", running.schemas, way, ROWS
        )

    peers: dict[str, tuple[str, Start]] = {
        "cogroup": (f"Kafka Streams {kafka_streams.VERSION}, cogroup", streams("cogroup")),
        "join": (f"Kafka Streams {kafka_streams.VERSION}, outer joins of KTables", streams("join")),
    }
    print(f"{given.events:,} events of seven topics, {given.keys:,} keys, {len(right):,} rows")
    print(f"{'':<46} {'from start':>14} {'reading':>14} {'CPU':>16} {'peak memory':>12} {'load':>6}")
    with tempfile.TemporaryDirectory(prefix="hub-bench-quix-") as folder:
        if "quix" in asked:
            try:
                peers["quix"] = (f"Quix Streams {quix.VERSION}", quix_streams(quix.install(Path(folder))))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"Quix Streams: left out, {error}", file=sys.stderr)
                asked.remove("quix")
        seen: dict[str, list[dict[str, float]]] = {}
        for turn in range(given.rounds * len(asked)):
            name = asked[turn % len(asked)]
            for title, found in measure(name, given.events, given.keys, right, peers).items():
                seen.setdefault(title, []).append(found)
    tell_beside(seen)
    if given.floor:
        measure_floor(given.events, given.keys)


def quix_streams(python: Path) -> Start:
    return lambda running: quix.QuixView(
        running.settings, running.cluster, running.folder / "peer", running.schemas, ROWS, python
    )


def measure(
    name: str, events: int, keys: int, right: dict[str, Row], peers: dict[str, tuple[str, Start]]
) -> dict[str, dict[str, float]]:
    """One of them, its figures by title; prints its lines."""
    if name in ("cogroup", "join") and kafka_streams.javac() is None:
        print(f"{peers[name][0]}: left out, there is no javac", file=sys.stderr)
        return {}
    load = os.getloadavg()[0]
    if name == "hub":
        first, more = measure_hub(events, keys, right)
        measured = {HUB: first, MORE: more}
    else:
        title, start = peers[name]
        measured = {title: measure_peer(events, keys, right, title, start)}
    for title, found in measured.items():
        tell(title, found, load)
    return measured


def tell_beside(seen: dict[str, list[dict[str, float]]]) -> None:
    """The medians of several rounds, and how many times each peer's figures the hub's are."""
    middle = {
        title: {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}
        for title, rounds in seen.items()
    }
    rounds = max(map(len, seen.values()), default=0)
    if rounds > 1:
        print(f"\nmedians of {rounds} rounds")
        for title, found in middle.items():
            tell(title, found, math.nan)
    for ours in (HUB, MORE):
        for title, peer in middle.items():
            if ours in middle and title not in (HUB, MORE):
                us = middle[ours]
                print(
                    f"{ours}: {us['whole'] / peer['whole']:.1f} and {us['reading'] / peer['reading']:.1f} "
                    f"times the events a second, {peer['cpu_us'] / us['cpu_us']:.1f} times the events a "
                    f"CPU-second of {title}"
                )


def tell(title: str, found: dict[str, float], load: float) -> None:
    reading = "-" if math.isnan(found["reading"]) else f"{found['reading']:,.0f} ev/s"
    print(
        f"{title:<46} {found['whole']:>9,.0f} ev/s {reading:>14} "
        f"{found['cpu_us']:>10.1f} us/ev {found['memory_mb']:>9,.0f} MB "
        f"{'-' if math.isnan(load) else f'{load:.1f}':>6}",
        flush=True,
    )


if __name__ == "__main__":
    main()
