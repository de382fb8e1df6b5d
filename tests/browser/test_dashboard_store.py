"""The dashboard over the real store, its push routes and SQLite:
a row that is applied changes before the eyes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from browser.conftest import Opener
from browser.staged_hub import StagedCluster, StagedHub, served
from fastapi import FastAPI
from playwright.sync_api import expect

from hub.api.dashboard import StoreViews
from hub.materializers.serving.routes import create_router as view_routes
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.observability.export.routes import create_router
from hub.observability.overview.collector import Collector
from hub.record import Positions

VIEW = "people"
SCHEMA = {
    "type": "record",
    "name": "people",
    "fields": [
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "visits", "type": ["null", "long"], "default": None},
        {
            "name": "seen_at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
    ],
}


class Hub(StagedHub):
    """The staged hub, with the real store in the place of dictionaries."""

    store: Store
    applied = 0

    def app(self) -> FastAPI:
        views, watcher = StoreViews(self.store), Watcher(self.store)
        collector = Collector(self.cluster, views, "127.0.0.1:9092", poll_s=0.1)

        @contextlib.asynccontextmanager
        async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
            watching = asyncio.create_task(watcher.run())
            with collector.running():
                yield
            watching.cancel()

        app = FastAPI(lifespan=lifespan)
        app.include_router(create_router(collector, views))
        app.include_router(view_routes(self.store, watcher, 1_000))
        return app

    def apply(self, key: str, row: dict[str, object] | None) -> None:
        """One more change of the changelog, from an event of web.visits."""
        self.publish("web.visits")
        (end,) = (offset for _, offset in self.cluster.end_offsets(["web.visits"]))
        offset, self.applied = self.applied, self.applied + 1
        source = {"topic": "web.visits", "partition": 0, "offset": end - 1, "timestamp": 1_790_000_000_000}
        sources = None if row is None else {"web": source, "crm": None}
        self.store.apply(
            [
                ViewBatch(
                    VIEW,
                    [RowVersion(key, offset + 1, 0, offset, row, sources)],
                    Positions.of([(f"views.{VIEW}", 0, offset + 1)]),
                    Positions.of([("web.visits", 0, end)]),
                )
            ],
            {
                f"state:{VIEW}": {"state": "live", "sources": {"web": "web.visits"}, "since_ms": 1},
                f"progress:{VIEW}": {
                    "mode": "live",
                    "sources": {"web.visits": {"0": end}},
                    "committed_at_ms": 1,
                },
            },
        )


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(StagedCluster())
    made.store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    made.store.ensure_view(VIEW, SCHEMA, [], "topic-1")
    made.topic("web.visits", 1)
    for number in range(12):
        made.apply(f"P-{number}", {"name": f"Person {number}", "visits": number})
    with served(made.app()) as url:
        made.url = url
        yield made
    made.store.close()


def test_an_applied_row_is_seen_changed_deleted_and_back(hub: Hub, open_page: Opener) -> None:
    page = open_page(hub.url)
    expect(page.get_by_test_id("wire")).to_have_text("live")
    # with nothing chosen, the row that changed last is shown
    expect(page.get_by_test_id("card").locator("h3")).to_have_text("P-11")
    hub.apply("P-11", {"name": "Person 11", "visits": 4_711})
    expect(page.locator("[data-field=visits]")).to_have_text("4\u202f711")
    expect(page.get_by_test_id("source-web")).to_contain_text("web.visits[0]@12")
    expect(page.get_by_test_id("changes")).to_contain_text("visits")
    hub.apply("P-11", None)
    expect(page.get_by_test_id("gone")).to_contain_text("was deleted")
    hub.apply("P-11", {"name": "Again"})
    expect(page.locator("[data-field=name]")).to_have_text("Again")


def test_rows_lag_and_recent_keys_come_from_the_store(hub: Hub, open_page: Opener) -> None:
    page = open_page(f"{hub.url}/?view={VIEW}&key=P-3")
    view = page.get_by_test_id(f"view-{VIEW}")
    expect(view.locator(".facts")).to_contain_text("12")
    expect(page.locator(".chips a").first).to_have_text("P-11")
    expect(page.get_by_test_id("tile-lag")).to_contain_text("0 waiting")
    hub.publish("web.visits", 30)
    expect(page.get_by_test_id("tile-lag")).to_contain_text("30 waiting")


def test_a_view_that_is_built_anew_goes_on(hub: Hub, open_page: Opener) -> None:
    page = open_page(f"{hub.url}/?view={VIEW}&key=P-3")
    expect(page.get_by_test_id("wire")).to_have_text("live")
    hub.store.ensure_view(VIEW, SCHEMA, [], "topic-2")
    hub.apply("P-3", {"name": "Anew"})
    expect(page.locator("[data-field=name]")).to_have_text("Anew")
