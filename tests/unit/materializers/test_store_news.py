"""Reports on stores are read from the log, whatever the serving store could keep of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from patience import wait_until
from sql_cases import fill

from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryReader
from hub.materializers.progress import store_watch
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.store_reports import StorePosition, StoreReport, StoreState, gone
from hub.materializers.progress.store_watch import ServerFacts, StoreWatch
from hub.materializers.serving import routes
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord, Positions


def report(state: StoreState, reason: str | None, store: str = "serving") -> StoreReport:
    views = {"plant": StorePosition(Positions.of([("views.plant", 0, 12)]), 7)}
    return StoreReport(store, "sqlite", "sqlite:///x.db", state, reason, 1, views)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, 20.0)


def test_lists_tell_what_was_heard_of_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    cluster = MemoryCluster(now_ms=now_ms())
    news = StoreWatch(cluster)
    news.follower.start()  # before the first record
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    fill(store)
    last = report("live", None).record()
    store.apply([], {"store:serving": orjson.loads(last.value or b"")})
    app = FastAPI()
    app.include_router(routes.create_router(store, Watcher(store), 50, news.over))
    with TestClient(app) as http:

        def told() -> list[tuple[str, str, str | None]]:
            (view,) = (each for each in http.get("/views").json()["views"] if each["view"] == "plant")
            return [(each["store"], each["state"], each["reason"]) for each in view["stores"]]

        assert told() == [("serving", "live", None)]
        cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        other = NewRecord(PROGRESS_TOPIC, b"progress:plant", b"no JSON: not read")
        writer = cluster.writer()
        writer.append(
            [other, last, report("down", "disk is full").record(), report("live", None, "lake").record()]
        )
        until(lambda: len(told()) == 2)
        assert told() == [("lake", "live", None), ("serving", "down", "disk is full")]
        writer.append([gone("lake"), report("live", None).record()])
        until(lambda: len(told()) == 1)
        assert told() == [("serving", "live", None)]
    news.follower.stop()
    store.close()


def test_rows_of_a_view_that_reads_a_backlog_are_not_shown_as_complete(tmp_path: Path) -> None:
    """Its name is in a header of lists, until it follows its topics. A version that is built beside the
    served one says nothing of the rows that are served."""
    cluster = MemoryCluster(now_ms=now_ms())
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    news = StoreWatch(cluster)
    news.follower.start()
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    fill(store)
    app = FastAPI()
    app.include_router(
        routes.create_router(store, Watcher(store), 50, news.over, catching_up=news.catching_up)
    )
    with TestClient(app) as http:

        def named() -> str | None:
            found: str | None = http.get("/views/plant?limit=1").headers.get("Hub-Catching-Up")
            return found

        def tell(key: str, state: str) -> None:
            cluster.writer().append([NewRecord(PROGRESS_TOPIC, key.encode(), orjson.dumps({"state": state}))])

        assert named() is None
        tell("state:plant", "bulk")
        until(lambda: named() == "plant")
        assert news.catching_up(["customer", "plant"]) == ("plant",)
        tell("state:plant@2", "bulk")
        tell("state:plant", "live")
        until(lambda: named() is None)
    news.follower.stop()
    store.close()


def test_a_hub_beside_this_one_with_a_store_of_the_same_name_is_not_taken_for_it() -> None:
    cluster = MemoryCluster(now_ms=now_ms())
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    writer = cluster.writer()
    other = replace(report("down", "its disk is full"), url="sqlite:///other.db")
    news = StoreWatch(cluster, ServerFacts(stores={"serving": "sqlite:///x.db"}))
    news.follower.start()

    def reason() -> str | None:
        found: str | None = news.over({}).get("store:serving", {}).get("reason")
        return found

    try:
        writer.append([other.record()])
        until(lambda: reason() == "its disk is full")  # nothing better is known yet
        writer.append([report("filling", "ours").record(), other.record(), gone("serving")])
        until(lambda: reason() == "ours")
        writer.append([other.record(), report("filling", "ours again").record()])
        until(lambda: reason() == "ours again")
    finally:
        news.follower.stop()


class Failing(MemoryCluster):
    """A cluster whose first reader fails."""

    failures = 1

    def follower(self) -> MemoryReader:
        if self.failures:
            self.failures -= 1
            raise PeerError("the log is away")
        return self.reader()


def test_a_store_whose_applier_is_silent_is_unknown_until_it_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_watch, "SILENT_S", 0.3)
    cluster = MemoryCluster(now_ms=now_ms())
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    writer = cluster.writer()
    news = StoreWatch(cluster, ServerFacts(applier=lambda: "the applier process is alive (pid 7)"))
    news.follower.start()

    def store() -> dict[str, Any]:
        found: dict[str, Any] = news.over({}).get("store:serving", {})
        return found

    try:
        writer.append([report("live", None).record()])
        until(lambda: store().get("state") == "unknown")
        assert store()["views"]["plant"]["lag"] is None
        assert "the applier's reports in _hub.progress have been missing" in store()["reason"]
        assert store()["reason"].endswith("Kafka answers; the applier process is alive (pid 7)")
        until(lambda: writer.append([report("live", None).record()]) and store()["state"] == "live")
        assert store()["views"]["plant"]["lag"] == 7
    finally:
        news.follower.stop()


def test_it_goes_on_after_a_log_that_was_away_and_a_record_that_is_none() -> None:
    cluster = Failing(now_ms=now_ms())
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    writer = cluster.writer()
    writer.append([NewRecord(PROGRESS_TOPIC, b"store:odd", b"no JSON"), report("down", "full").record()])
    news = StoreWatch(cluster)
    news.follower.start()
    until(lambda: news.over({}).get("store:serving", {}).get("state") == "down")
    assert news.over({"store:serving": {}, "a": 1}).keys() == {"store:serving", "a"}
    news.follower.stop()
