"""[core] Seven systems of a shop, as events: seeded and repeatable, with everything that real feeds do to a
view.

In the stream there are updates, deletes (a flag, and tombstones), customers who come back, late events
(appended after later ones) and duplicates (the same event appended again, some much later). The same seed
gives the same stream.
``fold`` is the independent answer: the rows of the view ``customer_360`` computed in plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

MEAN_STEP_MS = 2_025
EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_FIRST = [
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gia",
    "Hugo",
    "Ida",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Noa",
    "Ole",
    "Pia",
    "Rui",
    "Sol",
    "Tom",
    "Una",
    "Vera",
    "Will",
    "Yara",
    "Zoe",
]
_LAST = [
    "Ahlberg",
    "Brandt",
    "Castro",
    "Dubois",
    "Eriksen",
    "Fontana",
    "Garcia",
    "Haas",
    "Ito",
    "Jansen",
    "Kaya",
    "Lund",
    "Meyer",
    "Novak",
    "Okafor",
    "Rossi",
]
_CITIES = ["Oslo", "Bergen", "Berlin", "Lisbon", "Lyon", "Porto", "Prague", "Turin", "Vienna", "Zurich"]
_SEGMENTS = ["consumer", "consumer", "consumer", "business", "partner"]
_PAGES = ["/", "/sale", "/shoes", "/bags", "/cart", "/checkout", "/help", "/account"]
_SUBJECTS = [
    "Where is my parcel?",
    "Wrong size",
    "Refund, please",
    "Cannot log in",
    "Invoice missing",
    "Broken zip",
]
_ORDER_PATH = ("placed", "packed", "shipped", "delivered")

CUSTOMERS = "crm.customers"
VISITS = "web.visits"
ORDERS = "shop.orders"
PAYMENTS = "shop.payments"
TICKETS = "support.tickets"
CONSENTS = "marketing.consents"
POINTS = "loyalty.points"
TOPICS = (CUSTOMERS, VISITS, ORDERS, PAYMENTS, TICKETS, CONSENTS, POINTS)


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """An event on its way to a topic. ``value`` None is a tombstone; times in it are epoch milliseconds."""

    topic: str
    key: str
    value: dict[str, Any] | None
    timestamp_ms: int


def customer_id(number: int) -> str:
    return f"C-{number:05d}"


def generate(seed: int, customers: int, events: int, epoch_ms: int = EPOCH_MS) -> Iterator[DemoEvent]:
    """Yield the first ``events`` events of the stream of that many customers."""
    return islice(Stream(seed, customers, epoch_ms), events)


class Stream:
    """The endless stream. With ``clock`` set (epoch milliseconds),
    what happens from then on happens at its time."""

    def __init__(self, seed: int, customers: int, epoch_ms: int = EPOCH_MS) -> None:
        self._chance = random.Random(seed)
        self._shop = _Shop(self._chance, customers, epoch_ms)
        self._events = self._disturbed()

    def __iter__(self) -> Iterator[DemoEvent]:
        return self._events

    def at(self, clock: Callable[[], int]) -> Iterator[DemoEvent]:
        """Yield the rest of the stream, with the current time."""
        self._shop.clock = clock
        return self._events

    def _disturbed(self) -> Iterator[DemoEvent]:
        delayed: list[tuple[int, DemoEvent]] = []
        for number, event in enumerate(self._shop.events()):
            fate = self._chance.random()
            if fate < 0.03:  # late: later ones of the same customer are appended before it
                delayed.append((number + self._chance.randint(5, 400), event))
            else:
                yield event
                if fate > 0.98:  # delivered twice, now or much later
                    delayed.append((number + self._chance.choice((1, 3, 500)), event))
            due = [each for each in delayed if each[0] <= number]
            delayed = [each for each in delayed if each[0] > number]
            yield from (each for _, each in due)


class _Shop:
    """The state of the seven systems: what can happen next."""

    def __init__(self, chance: random.Random, customers: int, epoch_ms: int) -> None:
        self.chance = chance
        self.customers = customers
        self.now_ms = epoch_ms
        self.clock: Callable[[], int] | None = None
        self.serial = 0
        self.people: dict[str, dict[str, Any]] = {}
        self.orders: dict[str, list[dict[str, Any]]] = {}
        self.tickets: dict[str, list[dict[str, Any]]] = {}
        self.points: dict[str, int] = {}

    def events(self) -> Iterator[DemoEvent]:
        """Yield events without end: first every customer is created, then events follow, for a few customers
        much more often.
        """
        for number in range(1, self.customers + 1):
            yield self._created(customer_id(number))
        while True:
            # squared: the first customers are busy, the last hardly seen
            key = customer_id(1 + int(self.customers * self.chance.random() ** 2))
            yield from self._something(key)

    def _something(self, key: str) -> Iterator[DemoEvent]:
        fate = self.chance.random()
        if key not in self.people:
            if fate < 0.2:
                yield self._created(key)
            else:
                yield self._visit(key)
        elif fate < 0.40:
            yield self._visit(key)
        elif fate < 0.60:
            yield from self._order(key)
        elif fate < 0.72:
            yield from self._ticket(key)
        elif fate < 0.82:
            yield self._earned(key, self.chance.randint(-40, 120))
        elif fate < 0.88:
            yield self._event(
                CONSENTS,
                key,
                {"email": self.chance.random() < 0.7, "sms": self.chance.random() < 0.3},
                "occurred_at",
            )
        elif fate < 0.985:
            yield self._changed(key)
        else:
            yield self._gone(key)

    def _tick(self) -> None:
        step = self.chance.randint(
            50, 4_000
        )  # drawn in either case: the clock changes times, never what happens
        self.now_ms = self.now_ms + step if self.clock is None else self.clock()

    def _event(self, topic: str, key: str, value: dict[str, Any], time_field: str) -> DemoEvent:
        self.serial += 1
        self._tick()
        body = {"event_id": f"e-{self.serial}", "customer_id": key, **value, time_field: self.now_ms}
        return DemoEvent(topic, key, body, self.now_ms)

    def _created(self, key: str) -> DemoEvent:
        first, last = self.chance.choice(_FIRST), self.chance.choice(_LAST)
        self.people[key] = {
            "first_name": first,
            "last_name": last,
            "email": f"{first}.{last}@example.org".lower() if self.chance.random() < 0.9 else None,
            "city": self.chance.choice(_CITIES) if self.chance.random() < 0.95 else None,
            "segment": self.chance.choice(_SEGMENTS),
            "deleted": False,
        }
        return self._event(CUSTOMERS, key, self.people[key], "updated_at")

    def _changed(self, key: str) -> DemoEvent:
        person = {**self.people[key]}
        field = self.chance.choice(("city", "segment", "last_name", "email"))
        choices = {
            "city": self.chance.choice(_CITIES),
            "segment": self.chance.choice(_SEGMENTS),
            "last_name": self.chance.choice(_LAST),
            "email": f"{person['first_name']}{self.serial}@example.org".lower(),
        }
        self.people[key] = {**person, field: choices[field]}
        return self._event(CUSTOMERS, key, self.people[key], "updated_at")

    def _gone(self, key: str) -> DemoEvent:
        person = self.people.pop(key)
        if self.chance.random() < 0.5:
            return self._event(CUSTOMERS, key, {**person, "deleted": True}, "updated_at")
        self._tick()
        return DemoEvent(CUSTOMERS, key, None, self.now_ms)

    def _visit(self, key: str) -> DemoEvent:
        value = {"page": self.chance.choice(_PAGES), "milliseconds": self.chance.randint(200, 90_000)}
        return self._event(VISITS, key, value, "occurred_at")

    def _order(self, key: str) -> Iterator[DemoEvent]:
        open_orders = [
            each for each in self.orders.get(key, ()) if each["status"] not in ("delivered", "cancelled")
        ]
        if open_orders and self.chance.random() < 0.65:
            order = self.chance.choice(open_orders)
            cancelled = self.chance.random() < 0.12
            order["status"] = (
                "cancelled" if cancelled else _ORDER_PATH[_ORDER_PATH.index(order["status"]) + 1]
            )
            yield self._event(ORDERS, key, order, "updated_at")
            if cancelled:
                paid = {
                    "order_id": order["order_id"],
                    "kind": "refunded",
                    "amount_cents": order["amount_cents"],
                }
                yield self._event(PAYMENTS, key, paid, "occurred_at")
            return
        order = {
            "order_id": f"O-{self.serial:06d}",
            "status": "placed",
            "amount_cents": self.chance.randint(900, 40_000),
            "items": self.chance.randint(1, 6),
        }
        self.orders.setdefault(key, []).append(order)
        yield self._event(ORDERS, key, order, "updated_at")
        paid = {"order_id": order["order_id"], "kind": "captured", "amount_cents": order["amount_cents"]}
        yield self._event(PAYMENTS, key, paid, "occurred_at")
        yield self._earned(key, order["amount_cents"] // 1_000)

    def _ticket(self, key: str) -> Iterator[DemoEvent]:
        live = [each for each in self.tickets.get(key, ()) if each["status"] != "closed"]
        if live and self.chance.random() < 0.7:
            ticket = self.chance.choice(live)
            ticket["status"] = self.chance.choice(("waiting", "closed"))
        else:
            ticket = {
                "ticket_id": f"T-{self.serial:06d}",
                "subject": self.chance.choice(_SUBJECTS),
                "status": "open",
            }
            self.tickets.setdefault(key, []).append(ticket)
        yield self._event(TICKETS, key, ticket, "updated_at")

    def _earned(self, key: str, points: int) -> DemoEvent:
        total = self.points[key] = self.points.get(key, 0) + points
        tier = "gold" if total > 300 else "silver" if total > 100 else "bronze"
        return self._event(POINTS, key, {"points": points, "tier": tier}, "occurred_at")


# ---- the independent answer


def fold(events: Iterable[DemoEvent]) -> dict[str, dict[str, Any]]:
    """Return the rows of ``customer_360`` after these events in log order, by key; deleted rows are left out.

    Written from the meaning of the view, not from how it is computed: sort, take the last, count.
    """
    logs: dict[str, dict[str, list[DemoEvent]]] = {}
    for event in events:
        logs.setdefault(event.key, {}).setdefault(event.topic, []).append(event)
    rows = {key: _row(by_topic) for key, by_topic in logs.items()}
    return {key: row for key, row in rows.items() if row is not None}


_TIME = {VISITS: "occurred_at", PAYMENTS: "occurred_at", CONSENTS: "occurred_at", POINTS: "occurred_at"}


def _ordered(events: list[DemoEvent], topic: str) -> list[DemoEvent]:
    """Sort events by their own time, then by log order; the time of a tombstone is its record's timestamp."""
    field = _TIME.get(topic, "updated_at")
    return sorted(events, key=lambda event: event.timestamp_ms if event.value is None else event.value[field])


def _row(by_topic: dict[str, list[DemoEvent]]) -> dict[str, Any] | None:
    ordered = {topic: _ordered(by_topic.get(topic, []), topic) for topic in TOPICS}
    last = {topic: (found[-1].value or {}) if found else {} for topic, found in ordered.items()}
    crm = ordered[CUSTOMERS]
    if crm and (crm[-1].value is None or crm[-1].value["deleted"]):
        return None

    def latest_of(topic: str, identity: str) -> list[dict[str, Any]]:
        return list({event.value[identity]: event.value for event in ordered[topic] if event.value}.values())

    visits, orders = latest_of(VISITS, "event_id"), latest_of(ORDERS, "order_id")
    payments, tickets = latest_of(PAYMENTS, "event_id"), latest_of(TICKETS, "ticket_id")
    ordered_cents = sum(order["amount_cents"] for order in orders if order["status"] != "cancelled")
    paid = sum(payment["amount_cents"] for payment in payments if payment["kind"] == "captured")
    refunded = sum(payment["amount_cents"] for payment in payments if payment["kind"] == "refunded")
    open_tickets = sum(ticket["status"] != "closed" for ticket in tickets)
    person, tier = last[CUSTOMERS], last[POINTS].get("tier")
    return {
        "first_name": person.get("first_name"),
        "last_name": person.get("last_name"),
        "email": person.get("email"),
        "city": person.get("city"),
        "segment": person.get("segment"),
        "visits": len(visits),
        "last_page": last[VISITS].get("page"),
        "last_seen": max((visit["occurred_at"] for visit in visits), default=None),
        "orders": len(orders),
        "open_orders": sum(order["status"] in ("placed", "packed", "shipped") for order in orders),
        "cancelled_orders": sum(order["status"] == "cancelled" for order in orders),
        "ordered_cents": ordered_cents,
        "last_order": last[ORDERS].get("order_id"),
        "last_order_status": last[ORDERS].get("status"),
        "paid_cents": paid,
        "refunded_cents": refunded,
        "open_tickets": open_tickets,
        "last_ticket": last[TICKETS].get("subject"),
        "email_consent": last[CONSENTS].get("email", False),
        "sms_consent": last[CONSENTS].get("sms", False),
        "points": sum(points["points"] for points in latest_of(POINTS, "event_id")),
        "tier": tier,
        "name": " ".join(filter(None, (person.get("first_name"), person.get("last_name")))),
        "value_cents": paid - refunded,
        "owes_cents": max(ordered_cents - (paid - refunded), 0),
        "needs_care": open_tickets > 1 or (open_tickets > 0 and tier == "gold"),
    }
