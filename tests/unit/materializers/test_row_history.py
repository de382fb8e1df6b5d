"""History of rows in SQLite: any sequence of batches, kills and prunes, against a plain list of versions."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from history_contract import any_history, at, batch, declare
from mask_facts import KnownFacts, caller_of, rules_of
from samples import fast_or
from typer.testing import CliRunner

from hub.access.masking.facts import ViewColumns
from hub.api.app import on_hub_error
from hub.caller import CALLER
from hub.cli import app
from hub.errors import CallerError, Gone, HubError
from hub.log import MemoryCluster
from hub.materializers.history.causes import BatchRange, causes
from hub.materializers.history.periods import StoreReach
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http import routes as query_routes
from hub.materializers.queries.parser import parse
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving.history import routes as history_routes
from hub.materializers.serving.history.answering import RowsOfThePast
from hub.materializers.serving.history.sizes import HistorySizes
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql.history_reads import HistorySize, RowHistory
from hub.materializers.stores.sql_store import Store
from hub.record import Positions
from hub.times import iso
from hub.topics.browse.bounded_read import FoundMessages, MessageQuery


class NoMessages:
    """A log without any event."""

    def find(self, wanted: MessageQuery) -> FoundMessages:
        return FoundMessages((), (), 0, 0, True, "", None, None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'store.db'}")
    declare(made)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(fast_or(2, 8)))
def test_a_row_as_of_a_time_is_its_newest_version_by_then(tmp_path: Path, seed: int) -> None:
    any_history(lambda: Store(f"sqlite:///{tmp_path / 'store.db'}"), random.Random(seed))


def test_swaps_rollbacks_and_rebuilds_keep_what_readers_got(store: Store) -> None:
    shift(store)
    begins = store.history.periods("v")[0].from_ms
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, begins + 1)])
    declare(store, "v@2")
    batch(store, "v@2", [("a", 1, {"city": "Bergen", "n": 1}, begins + 1)])
    store.serve("v", 2)
    shift(store)
    swapped = store.history.periods("v")[-1].from_ms
    batch(store, "v@2", [("a", 2, {"city": "Bergen", "n": 2}, swapped + 1)])
    store.drop_view("v")
    now = swapped + 100_000
    assert store.history.row_at("v", "a", swapped - 1, now).values["city"] == "Oslo"  # type: ignore[union-attr, index]
    assert store.history.row_at("v", "a", swapped, now).values["city"] == "Bergen"  # type: ignore[union-attr, index]
    kinds = [each.kind for each in store.history.timeline("v", "a", now, now, None, 9)]
    assert kinds == ["changed", "swapped", "created"]
    # A table that is filled again continues where the former one ended.
    declare(store, "v@2", topic="another")
    assert len(store.history.periods("v")) == 3
    assert store.history.row_at("v", "a", swapped + 1, now).values["n"] == 2  # type: ignore[union-attr, index]
    # Erased: nothing of an earlier table is left, whatever it is called.
    removed = store.history.erase("v", keep=[])
    assert len(removed) == 3 and not store.history.periods("v")


def test_a_saved_store_answers_for_times_before_its_views_were_computed_again(
    store: Store, tmp_path: Path
) -> None:
    shift(store)
    begins = store.history.periods("v")[0].from_ms
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, begins + 1)])
    files = [contextlib.closing(sqlite3.connect(tmp_path / name)) for name in ("saved.db", "store.db")]
    with files[0] as saved, files[1] as live:
        live.backup(saved)
    restored = Store(f"sqlite:///{tmp_path / 'saved.db'}")
    declare(restored, topic="the restored cluster's changelog")
    again = restored.history.periods("v")[-1].from_ms
    batch(restored, "v", [("a", 9, {"city": "Bergen", "n": 9}, again + 1)])
    values = [restored.history.row_at("v", "a", at_ms, again + 9) for at_ms in (begins + 1, again + 1)]
    assert [each and (each.values or {})["city"] for each in values] == ["Oslo", "Bergen"]
    with pytest.raises(Gone):
        restored.history.row_at("v", "a", begins - 1, again + 9)
    restored.close()


def test_without_history_nothing_is_kept_and_the_error_says_how(store: Store) -> None:
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, at(1))])
    declare(store, history=None)
    with pytest.raises(CallerError, match="keeps no history"):
        store.history.row_at("v", "a", at(1), at(1))
    assert not store.history.sizes()


def test_history_that_is_switched_on_begins_with_the_rows_that_there_are(store: Store) -> None:
    declare(store, "w", history=None)
    batch(store, "w", [("a", 1, {"city": "Oslo", "n": 1}, at(1))])
    declare(store, "w")
    begins = store.history.periods("w")[0].from_ms
    assert store.history.row_at("w", "a", begins, begins).values["n"] == 1  # type: ignore[union-attr, index]
    with pytest.raises(Gone, match="not kept"):
        store.history.row_at("w", "a", begins - 1, begins)
    (change,) = store.history.timeline("w", "a", begins + 9, begins + 9, None, 9)
    assert change.kind == "known"


def test_the_events_of_a_change_are_exact_only_if_their_count_says_so() -> None:
    within = BatchRange(Positions.of([("t", 0, 1)]), Positions.of([("t", 0, 9)]))

    def place(offset: int) -> dict[str, Any]:
        return {"s": {"topic": "t", "partition": 0, "offset": offset}}

    assert causes((1, place(1)), (2, place(2)), within).precision == "exact"
    assert causes((1, place(1)), (3, place(3)), within).precision == "within"
    assert causes((1, place(1)), (2, place(1)), within).precision == "within"  # a late event
    assert causes(None, (1, place(1)), within, first=True).precision == "exact"
    assert causes(None, (1, place(1)), within).precision == "within"
    assert causes((1, place(1)), ((1 << 40) + 2, place(2)), within).precision == "within"
    assert causes((1, None), (2, None), BatchRange(None, None)).precision == "unknown"


def test_sizes_of_histories_are_series_and_unknown_ones_have_no_sample(store: Store) -> None:
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, at(1)), ("a", 2, {"city": "Oslo", "n": 2}, at(2))])
    declare(store, "w", history=None)
    now = [0.0]
    sizes = HistorySizes(store, lambda: now[0])
    assert samples(sizes) == {}  # not measured yet
    sizes.measure()
    found = samples(sizes)
    assert found["hub_view_history_versions", "v"] == 2
    assert found.get(("hub_view_history_bytes", "v"), 1) > 0
    assert {view for _, view in found} == {"v"}
    now[0] = 60.0 * 3 + 1
    assert samples(sizes) == {}  # too old
    sizes.measure()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowHistory, "sizes", broken)
        with pytest.raises(OSError, match="away"):
            sizes.measure()
    assert samples(sizes) == {}


def samples(sizes: HistorySizes) -> dict[tuple[str, str], float]:
    return {
        (each.name, each.labels["view"]): each.value for family in sizes.families() for each in family.samples
    }


def broken(_: RowHistory) -> list[HistorySize]:
    raise OSError("the store is away")


def test_a_store_that_is_behind_answers_nothing_about_times_it_may_lack() -> None:
    StoreReach(100, True).require("v", 100)
    StoreReach(100, False).require("v", 101)
    for unknown in (StoreReach(100, True), StoreReach(None, None)):
        with pytest.raises(HubError, match="not yet those"):
            unknown.require("v", 101)


# ---- HTTP and SQL


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    shift(store, 6_000_000)
    one, two = ago(1), ago(2)
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, one), ("b", 1, {"city": "Rome", "n": 5}, one)])
    batch(store, "v", [("a", 2, {"city": "Oslo", "n": 2}, two), ("b", 2, None, two)])
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    store.apply([], {"progress:v": COMMITTED})
    app.include_router(history_routes.create_router(RowsOfThePast(store, dict, NoMessages())))
    app.include_router(create_router(store, Watcher(store), 1_000))
    with TestClient(app) as made:
        yield made


def test_rows_history_and_diff_over_http(client: TestClient) -> None:
    assert client.get("/views/v/a", params={"as_of": "yesterday"}).status_code == 400
    one, two = moment(1), moment(2)
    assert client.get("/views/v/a", params={"as_of": one}).json()["n"] == 1
    assert client.get("/views/v/a", params={"as_of": two}).json()["n"] == 2
    assert client.get("/views/v/b", params={"as_of": one}).json()["city"] == "Rome"
    assert client.get("/views/v/b", params={"as_of": two}).status_code == 404
    assert client.get("/views/v/c", params={"as_of": one}).status_code == 404
    assert client.get("/views/v/a", params={"as_of": "2020-01-01T00:00:00Z"}).status_code == 410
    assert client.get("/views/v/a", params={"as_of": "2999-01-01T00:00:00Z"}).status_code == 400
    listed = client.get("/views/v", params={"as_of": one, "city": "Rome"}).json()["rows"]
    assert [each["key"] for each in listed] == ["b"]
    page = client.get("/views/v", params={"as_of": one, "order": "-city", "limit": 1}).json()
    assert [each["key"] for each in page["rows"]] == ["b"]
    rest = client.get("/views/v", params={"as_of": one, "order": "-city", "after": page["next"]}).json()
    assert [each["key"] for each in rest["rows"]] == ["a"]
    found = client.get("/views/v/a/history", params={"limit": 1}).json()
    assert found["changes"][0]["changes"] == [{"field": "n", "old": 1, "new": 2}]
    assert found["changes"][0]["events"]["precision"] == "exact"
    (event,) = found["changes"][0]["events"]["events"]
    assert (event["topic"], event["state"]) == ("in", "unknown")
    older = client.get("/views/v/a/history", params={"after": found["next"]}).json()
    assert [each["kind"] for each in older["changes"]] == ["created"] and older["next"] is None
    diff = client.get("/views/v/b/diff", params={"from": one, "to": two}).json()
    assert not diff["exists"] and {each["field"] for each in diff["changes"]} == {"city", "n"}
    # As of a write: the version that it made, and no guess about others.
    assert client.get("/views/v/a", params={"as_of": "in:0:2"}).json()["n"] == 1
    assert client.get("/views/v/a", params={"as_of": "in:0:99"}).json()["error_code"] == "HUB-1493"


def test_commands_ask_for_the_times_that_they_are_given(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(method: str, url: str, *, params: Any, **_: Any) -> Any:
        return client.request(method, urlsplit(url).path, params=[*params.multi_items()])

    monkeypatch.setattr("hub.cli.http.httpx2.request", request)

    def said(*words: str) -> Any:
        done = CliRunner().invoke(app, ["view", *words, "-o", "json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    one, two = moment(1), moment(2)
    assert said("get", "v", "a", "--as-of", one)["n"] == 1
    assert said("get", "v", "a")["n"] == 2
    assert said("diff", "v", "a", "--from", one, "--to", two) == [{"field": "n", "old": 1, "new": 2}]
    assert [each["kind"] for each in said("history", "v", "a", "--to", one)["changes"]] == ["created"]


def test_masks_and_filters_of_rows_hide_the_past_too(client: TestClient, store: Store) -> None:
    facts = KnownFacts(views={"v": ViewColumns(dict.fromkeys(("city", "n"), ()), (), ())})
    rules = rules_of(facts, [{"fields": ["city"], "views": ["v"], "as": "hashed"}], ana={})
    token = CALLER.set(caller_of(rules, "ana"))
    try:
        assert "Oslo" not in client.get("/views/v/a/history").text
        assert "Oslo" not in client.get("/views/v/a/diff", params={"from": moment(1)}).text
        assert "Oslo" not in client.get("/views/v/a", params={"as_of": moment(1)}).text
        past = RowsOfThePast(store, dict, NoMessages())  # as the view's page asks
        for found in (past.changes("v", "a", ""), past.row_as_of("v", "a", moment(1))):
            assert found and "Oslo" not in str(found)
    finally:
        CALLER.reset(token)


def test_sql_reads_rows_of_a_time_beside_those_of_now(client: TestClient, store: Store) -> None:
    queries = QueryExecutor(store)

    def rows(sql: str, **parameters: str) -> list[list[Any]]:
        running = RunningQuery(float("inf"))
        return queries.run(parse(sql), parameters, running, now_ms=ago(99)).rows

    one = moment(1)
    assert rows(f"SELECT key, n FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '{one}' ORDER BY key") == [
        ["a", 1],
        ["b", 5],
    ]
    joined = "SELECT o.n, v.n FROM v FOR SYSTEM_TIME AS OF :t AS o JOIN v ON v.key = o.key"
    assert rows(joined, t=one) == [[1, 2]]
    for wrong in ("SELECT * FROM v FOR SYSTEM_TIME AS OF n", "SELECT * FROM v FOR SYSTEM_TIME ALL"):
        with pytest.raises(CallerError):
            rows(wrong)
    with pytest.raises(Gone):
        rows("SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '2001-01-01 00:00:00'")
    queries.close()


def test_sql_waits_for_no_time_that_the_store_may_lack(store: Store, tmp_path: Path) -> None:
    batch(store, "v", [("a", 1, {"city": "Oslo", "n": 1}, ago(1))])
    store.apply([], {"progress:v": COMMITTED})
    ahead = {"progress:v": COMMITTED | {"changelog": {"0": 10**9}}}
    topics = TopicTables(MemoryCluster(), NoSchemas())
    queries = QueryExecutor(store)
    service = QueryService.of(store, Watcher(store), queries, topics, tmp_path, 3_000, newest=lambda _: ahead)
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(query_routes.create_router(service))

    def status(at_ms: int) -> int:
        sql = f"SELECT n FROM V FOR SYSTEM_TIME AS OF TIMESTAMP '{iso(at_ms)}'"
        return int(http.post("/query", json={"sql": sql}).status_code)

    with TestClient(app) as http:
        assert status(COMMITTED["committed_at_ms"]) != 503
        assert status(COMMITTED["committed_at_ms"] + 1) == 503
    queries.close()


def ago(step: int) -> int:
    """Return a time some minutes before the tests, while the history is kept."""
    return at(step) - 3_900_000


def moment(step: int) -> str:
    return iso(ago(step))


class NoSchemas:
    """A registry without schemas."""

    def versions(self, subject: str) -> list[Any]:
        return []

    def source(self, schema_id: int) -> Any:
        raise AssertionError(schema_id)


COMMITTED: dict[str, Any] = {"committed_at_ms": ago(99), "changelog": {"0": 0}, "sources": {}}


def shift(store: Store, by_ms: int = 5_000) -> None:
    """Set the periods of a store back, as if they had begun and ended earlier."""
    with store.engine.begin() as connection:
        moved = f"from_ms = from_ms - {by_ms}, until_ms = until_ms - {by_ms}"
        connection.exec_driver_sql(f"UPDATE hub_history_periods SET {moved}")
