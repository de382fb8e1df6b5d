"""Postgres' protocol over a small store and a log in memory, on a real port:
``with served_pg(folder) as port``."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patience import patient
from sql_cases import fill

from hub.access.authenticate import Authenticator
from hub.access.live_config import LiveAccess
from hub.access.personal_tokens import PersonalTokens
from hub.log import MemoryCluster
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.pgwire.catalog.engine import Catalogs
from hub.pgwire.queries import PgQueries
from hub.pgwire.results import ResultLimits
from hub.pgwire.server import ListenerOptions, PgServer
from hub.pgwire.sign_in import DatabaseSignIn
from hub.record import NewRecord
from hub.schema_registry.client.port import RegisteredSchema


class NoSchemas:
    """A registry without schemas."""

    def versions(self, subject: str) -> list[RegisteredSchema]:
        return []

    def source(self, schema_id: int) -> Any:
        raise AssertionError(schema_id)


@dataclass
class PgHub:
    """A store of two views, a topic ``shop.orders``, a saved query, and a server over them."""

    folder: Path
    tls: ssl.SSLContext | None = None
    limits: ResultLimits = field(default_factory=lambda: ResultLimits(100_000, 64 << 20))
    connections: int = 200
    timeout_ms: int = 60_000
    port: int = 0
    catching_up: set[str] = field(default_factory=set)
    """Views that still read a backlog of their topics."""

    def __post_init__(self) -> None:
        self.store = Store(f"sqlite:///{self.folder / 'store.db'}")
        fill(self.store)
        self.executor = QueryExecutor(self.store)
        self.cluster = MemoryCluster()
        self.cluster.create_topic("shop.orders", partitions=1, config={}, replication_factor=1)
        records = [NewRecord("shop.orders", f"k{n}".encode(), b'{"n": %d}' % n) for n in range(5)]
        self.cluster.writer().append(records)
        queries = self.folder / "queries"
        queries.mkdir(exist_ok=True)
        (queries / "warm.sql").write_text("-- Warm plants\nSELECT city, celsius FROM plant WHERE celsius > 3")
        (queries / "of_city.sql").write_text("SELECT n FROM plant WHERE city = :city")
        self.access = LiveAccess(self.folder)
        self.tokens = PersonalTokens(self.folder)
        self.now_s = time.time()

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        topics = TopicTables(self.cluster, NoSchemas())
        service = QueryService.of(
            *(self.store, Watcher(self.store), self.executor, topics, self.folder, self.timeout_ms),
            catching_up=lambda views: tuple(each for each in views if each in self.catching_up),
        )
        queries = PgQueries(service, Catalogs(service), self.limits)
        sign_in = DatabaseSignIn(
            self.access, Authenticator(self.access, b"k" * 32, tokens=self.tokens, now_s=lambda: self.now_s)
        )
        options = ListenerOptions("127.0.0.1", 0, self.connections, self.connections, tls=self.tls)
        server = PgServer(options, queries, sign_in)
        self.port = await server.start()
        started.set()
        await stop.wait()
        await server.close()


@contextmanager
def served_pg(folder: Path, **options: Any) -> Iterator[PgHub]:
    """Serve a hub in a thread of its own."""
    hub = PgHub(folder, **options)
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(hub.serve(started, stop)), daemon=True)
    thread.start()
    assert started.wait(patient(20.0))
    try:
        yield hub
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(patient(20.0))
        loop.close()
        hub.executor.close()
        hub.store.close()
