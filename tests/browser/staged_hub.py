"""A hub of values: the real routes, page and collector over an in-memory log and rows that a test sets.

It stages every state of the page (busy, empty, failed, Kafka gone) in milliseconds. That the page also works
over the real store and Kafka is the matter of ``test_dashboard_real.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from hub.alerts.snapshot import AlertSnapshot
from hub.api.http import BoundedHttp
from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.observability.cluster.connect import Connect
from hub.observability.export.routes import HasLagRows, create_router
from hub.observability.overview.collector import Collector
from hub.record import NewRecord, Positions
from hub.times import epoch_ms

VIEW = "customer_360"
SOURCES = {
    "crm": "crm.customers",
    "consent": "crm.consent",
    "orders": "shop.orders",
    "payments": "shop.payments",
    "web": "web.visits",
    "support": "support.tickets",
    "loyalty": "loyalty.points",
}


@dataclass
class StagedViews:
    """The store's side (hub.observability.overview.reports.ViewSource), as plain dictionaries."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    broken: str | None = None

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        if self.broken:
            raise PeerError(self.broken)
        return dict(self.records)

    def row_counts(self) -> Mapping[str, int]:
        return {
            view: sum(not row.get("_deleted") for row in rows.values()) for view, rows in self.rows.items()
        }

    def subscribers(self) -> Mapping[str, int]:
        return dict(self.open)

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        return self.rows.get(view, {}).get(key)

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        rows = self.rows.get(view, {})
        return sorted(rows, key=lambda key: -rows[key]["_version"])[:limit]


class StagedCluster(MemoryCluster):
    """An in-memory log that can be cut off."""

    cut: bool = False

    def topics(self) -> Any:
        self._reachable()
        return super().topics()

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        self._reachable()
        return super().end_offsets(topics)

    def _reachable(self) -> None:
        if self.cut:
            raise PeerError('Kafka at "127.0.0.1:9092" does not answer (list topics: Connection refused)')


@dataclass
class StagedHub:
    """The app and the levers of a test."""

    cluster: StagedCluster = field(default_factory=StagedCluster)
    views: StagedViews = field(default_factory=StagedViews)
    changed: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    poll_s: float = 0.1
    connect: Connect | None = None
    firing: int | None = None
    has_charts: bool = False

    def app(self) -> FastAPI:
        collector = Collector(
            self.cluster, self.views, "127.0.0.1:9092", poll_s=self.poll_s, connect=lambda: self.connect
        )

        @contextlib.asynccontextmanager
        async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
            with collector.running():
                yield

        app = FastAPI(lifespan=lifespan)
        app.include_router(
            create_router(
                collector,
                self.views,
                monitor=self.monitor(),
                firing=lambda: self.firing,
                alerts=self.known_alerts,
                has_charts=self.has_charts,
            )
        )

        @app.get("/views/{view}/changes")
        async def changes(request: Request, view: str, key: str) -> StreamingResponse:
            return StreamingResponse(self.stream(request, view, key), media_type="text/event-stream")

        return app

    def known_alerts(self) -> AlertSnapshot | None:
        """Alerts of the overview; None: they are off."""
        return None

    def monitor(self) -> HasLagRows | None:
        """Monitor of all readers; None: only the views are reported."""
        return None

    async def stream(self, request: Request, view: str, key: str) -> AsyncIterator[bytes]:
        """The wire format of the store's push side."""
        seen = len(self.changed)
        self.views.open[view] = self.views.open.get(view, 0) + 1
        try:
            yield b"event: synced\ndata: {}\n\n"
            while not await request.is_disconnected():
                fresh, seen = self.changed[seen:], len(self.changed)
                if (view, key) in fresh:
                    row = self.views.row(view, key)
                    name = b"upsert" if row and not row.get("_deleted") else b"delete"
                    yield b"event: " + name + b"\ndata: " + orjson.dumps({"key": key}) + b"\n\n"
                await asyncio.sleep(0.02)
        finally:
            self.views.open[view] -= 1

    # ---- levers

    def topic(self, name: str, partitions: int = 2) -> None:
        self.cluster.create_topic(name, partitions=partitions, config={}, replication_factor=1)

    def publish(self, topic: str, count: int = 1) -> None:
        partitions = len(self.cluster.logs[topic])
        writer = self.cluster.writer()
        writer.append(
            [
                NewRecord(topic, b"k", b"v", timestamp_ms=epoch_ms(), partition=n % partitions)
                for n in range(count)
            ]
        )

    def state(self, view: str, state: str, reason: str | None = None, **more: Any) -> None:
        self.views.records[f"state:{view}"] = {
            "view": view,
            "state": state,
            "reason": reason,
            "since_ms": epoch_ms(),
            "doc": "",
            "owner": "",
            "sources": {},
            **more,
        }

    def commit(self, view: str, topics: Sequence[str], input_rows: int = 40, batch_ms: int = 87) -> None:
        """The view has read everything of these topics."""
        sources: dict[str, dict[str, int]] = {}
        for tp, end in self.cluster.end_offsets(topics):
            sources.setdefault(tp.topic, {})[str(tp.partition)] = end
        self.views.records[f"progress:{view}"] = {
            "view": view,
            "mode": "live",
            "sources": sources,
            "input_rows": input_rows,
            "batch_ms": batch_ms,
            "committed_at_ms": epoch_ms(),
        }

    def put(self, view: str, key: str, **fields: Any) -> None:
        """Set fields of a row and push the change."""
        rows = self.views.rows.setdefault(view, {})
        old = rows.get(key, {"_version": 0})
        rows[key] = {**old, **fields, "_version": old["_version"] + 1, "_deleted": False}
        self.changed.append((view, key))

    def delete(self, view: str, key: str) -> None:
        row = self.views.rows[view][key]
        self.views.rows[view][key] = {
            "_deleted": True,
            "_version": row["_version"] + 1,
            "_sources": row.get("_sources"),
        }
        self.changed.append((view, key))


def customers(seed: int = 7) -> StagedHub:
    """A busy customer-360: seven systems, one view, forty rows."""
    hub, dice = StagedHub(), random.Random(seed)
    for number, topic in enumerate(SOURCES.values()):
        hub.topic(topic)
        hub.topic(f"{topic}.dlq", 1)
        hub.publish(topic, 3_000 + 1_700 * number)
    hub.topic(f"views.{VIEW}")
    hub.topic("_schemas", 1)
    hub.publish(f"views.{VIEW}", 9_000)
    hub.publish("web.visits.dlq", 3)
    for number in range(40):
        hub.put(VIEW, f"C-{1000 + number}", **_customer(dice, number))
    hub.state(
        VIEW,
        "live",
        doc="Everything seven systems know about a customer, on one row.",
        owner="customer-data",
        sources=SOURCES,
    )
    hub.commit(VIEW, list(SOURCES.values()))
    return hub


def _customer(dice: random.Random, number: int) -> dict[str, Any]:
    names = ["Ada Lindqvist", "Noor Haddad", "Jonas Weber", "Mei Tanaka", "Luca Moretti", "Sofia Duarte"]
    paid = dice.randrange(2_000, 480_000)
    return {
        "name": names[number % len(names)],
        "city": dice.choice(["Oslo", "Lisbon", "Graz", "Turin", "Ghent"]),
        "tier": dice.choice(["silver", "gold", "platinum"]),
        "email_allowed": dice.random() > 0.3,
        "orders": dice.randrange(1, 60),
        "paid_cents": paid,
        "refunded_cents": paid // 19,
        "value_cents": paid - paid // 19,
        "visits": dice.randrange(20, 900),
        "last_page": dice.choice(["/cart", "/offers", "/returns"]),
        "open_tickets": dice.randrange(3),
        "points": dice.randrange(9_000),
        "last_seen_at": "2026-11-21T05:14:09.120Z",
        "churn_risk": None,
        "_sources": {
            source: {
                "topic": topic,
                "partition": number % 2,
                "offset": 1_400 + number,
                "timestamp": epoch_ms() - 5_000,
            }
            for source, topic in SOURCES.items()
        },
    }


def visit(hub: StagedHub, key: str) -> None:
    """A visit arrives: the event, the row, the batch."""
    _happen(hub, key, "web", visits=hub.views.rows[VIEW][key]["visits"] + 1)


def payment(hub: StagedHub, key: str) -> None:
    """A payment arrives, and a computed field follows."""
    row = hub.views.rows[VIEW][key]
    _happen(
        hub, key, "payments", paid_cents=row["paid_cents"] + 4_990, value_cents=row["value_cents"] + 4_990
    )


def _happen(hub: StagedHub, key: str, source: str, **fields: Any) -> None:
    topic = SOURCES[source]
    hub.publish(topic)
    partition, end = next((tp.partition, end) for tp, end in hub.cluster.end_offsets([topic]))
    event = {"topic": topic, "partition": partition, "offset": end - 1, "timestamp": epoch_ms()}
    hub.put(VIEW, key, **fields, _sources={**hub.views.rows[VIEW][key]["_sources"], source: event})
    hub.commit(VIEW, list(SOURCES.values()), input_rows=1, batch_ms=61)


@contextlib.contextmanager
def traffic(hub: StagedHub, seed: int = 3) -> Iterator[None]:
    """Events at changing rates in every topic, each batch committed at once."""
    stop, dice = threading.Event(), random.Random(seed)
    weights = {topic: dice.randrange(1, 14) for topic in SOURCES.values()}

    def feed() -> None:
        while not stop.wait(0.25):
            for topic, weight in weights.items():
                hub.publish(topic, dice.randrange(weight + 1))
            hub.commit(
                VIEW,
                list(SOURCES.values()),
                input_rows=dice.randrange(20, 60),
                batch_ms=dice.randrange(60, 110),
            )
            hub.publish(f"views.{VIEW}", 4)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join(2)


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The app by a real uvicorn on a free port of this machine; its base URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=BoundedHttp, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 15
    while not server.started:
        if time.monotonic() > deadline or not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)
