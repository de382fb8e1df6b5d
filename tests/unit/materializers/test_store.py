"""From changelog to table to subscriber, on an in-memory log and a real SQLite, with splits, repeats and
delays.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from changelog import CHANGELOG, Bench, schema
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.api.app import on_hub_error
from hub.errors import HubError, NotFound
from hub.log import MemoryReader
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.progress.records import Progress
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.subscription_events import SubscriptionRequest
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.store import RowVersion, StoreRefused, ViewBatch
from hub.record import NewRecord, Positions


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


histories = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=25)


@settings(
    max_examples=fast_or(15, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(histories, st.data())
def test_splits_replays_duplicates_and_restarts_give_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, bool]], data: st.DataObject
) -> None:
    bench = Bench(tmp_path_factory.mktemp("store"))
    expected: dict[str, int] = {}
    written: list[tuple[str, int, dict[str, Any] | None]] = []
    for version, (key, deleted) in enumerate(history, 1):
        row = None if deleted else {"points": version}
        written.append((key, version, row))
        bench.write(key, version, row)
        if deleted:
            expected.pop(key, None)
        else:
            expected[key] = version
        if data.draw(st.booleans()):  # a zombie writes something old again
            bench.write(*data.draw(st.sampled_from(written)))
        if data.draw(st.booleans()):
            bench.applier.step(0)
        if data.draw(st.integers(0, 9)) == 0:
            bench.applier = bench.restarted()
    bench.drain()
    assert bench.rows() == expected
    bench.store.close()


@pytest.mark.parametrize("away_h", [80, 90])
def test_a_store_that_was_away_while_deletes_went_is_filled_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, away_h: int
) -> None:
    """Compaction keeps a delete for a limited time, here a week; half of that is considered safe."""
    kept = {"cleanup.policy": "compact", "delete.retention.ms": "604800000"}
    bench.cluster.alter_config(CHANGELOG, kept)
    bench.write("a", 1, {"points": 1})
    bench.write("b", 1, {"points": 1})
    for _ in range(2):  # the report on the end is written with the next records
        bench.drain()
        bench.applier = bench.restarted()
        bench.applier.step(0)
    bench.write("a", 2, None)
    bench.write("c", 3, {"points": 3})
    poll = MemoryReader.poll  # and all of "a" is compacted away
    monkeypatch.setattr(
        MemoryReader,
        "poll",
        lambda reader, most, wait_s: [each for each in poll(reader, most, wait_s) if each.key != b"a"],
    )
    now_ns = time.time_ns() + away_h * 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    bench.applier = bench.restarted()
    for _ in range(3):
        bench.applier.step(0)
    assert bench.rows() == ({"a": 1, "b": 1, "c": 3} if away_h == 80 else {"b": 1, "c": 3})
    if away_h == 90:  # and once is enough
        monkeypatch.setattr(bench.store, "drop_view", None)
        bench.applier = bench.restarted()
        bench.applier.step(0)
        assert bench.rows() == {"b": 1, "c": 3}


def test_indexes_of_views_have_names_of_their_own(bench: Bench) -> None:
    """An index's name is unique in the database, not in its table."""
    more = schema(("order_id", "string"), ("id", "string"), ("changes", "string"))
    wanted = (("customer", "order_id"), ("customer_order", "id"), ("customer", "changes"))
    for version, (view, index) in enumerate(wanted, 1):
        bench.store.ensure_view(view, more, [index], "topic-1")
        bench.store.apply([ViewBatch(view, [RowVersion("k", version, 0, 0, {index: "x"})], Positions())])
        assert [row.key for row in bench.store.select(view, [(index, "eq", "x")], 10, None)] == ["k"]


def test_a_table_that_cannot_be_is_refused_and_the_database_is_not_away(bench: Bench) -> None:
    many = schema(*((f"c{number}", "string") for number in range(2_100)))
    with pytest.raises(StoreRefused, match="too many columns"):
        bench.store.ensure_view("wide", many, [], "topic-1")


def test_it_resumes_from_the_positions_in_the_store(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.drain()
    resumed = bench.restarted()
    assert resumed.step(0) == 0
    bench.write("a", 2, {"points": 2})
    assert resumed.step(0) == 1


def test_a_deleted_row_stays_deleted_when_old_rows_come_again(bench: Bench) -> None:
    bench.write("a", 5, {"points": 1})
    bench.write("a", 6, None)
    bench.drain()
    bench.write("a", 5, {"points": 1})
    bench.drain()
    row = bench.store.get("v", "a")
    assert row is not None and row.values is None and row.version == 6


def test_sources_are_covered_only_when_the_changelog_is(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.tell(10)
    bench.drain()
    assert bench.store.positions("v", "source") == Positions.of([("in", 0, 10)])
    ahead = Progress(
        "v", 1, 2, "live", Positions.of([("in", 0, 99)]), Positions.of([(CHANGELOG, 0, 50)]), 1, 1, 1
    )
    bench.cluster.writer().append([ahead.record()])
    bench.drain()
    assert bench.store.positions("v", "source") == Positions.of([("in", 0, 10)])


def test_a_later_generation_that_is_live_removes_what_it_does_not_have(bench: Bench) -> None:
    bench.write("a", (1 << GENERATION_SHIFT) + 1, {"points": 1})
    bench.write("b", (1 << GENERATION_SHIFT) + 1, {"points": 1})
    bench.write("a", (2 << GENERATION_SHIFT) + 1, {"points": 2})
    bench.tell(3, generation=2)
    bench.drain()
    assert bench.rows() == {"a": 2}


def test_a_changelog_made_again_is_read_from_its_start(bench: Bench) -> None:
    bench.write("a", 9, {"points": 9})
    bench.drain()
    bench.cluster.delete_topic(CHANGELOG)
    bench.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
    bench.write("b", 1, {"points": 1})
    bench.applier = bench.restarted()
    bench.drain()
    assert bench.rows() == {"b": 1}


def test_new_columns_are_added_before_their_first_row_is_taken(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.drain()
    bench.schemas.texts.append(json.dumps(schema(("tier", ["null", "string"]))))
    bench.write("b", 1, {"points": 2, "tier": "gold"}, schema_id=2)
    bench.drain()
    row = bench.store.get("v", "b")
    assert row is not None and row.values is not None and row.values["tier"] == "gold"
    assert bench.rows() == {"a": 1, "b": 2}


def test_a_row_that_cannot_be_read_stops_its_view_and_says_where(bench: Bench) -> None:
    bench.cluster.writer().append([NewRecord(CHANGELOG, b"a", b"junk", (("hub.version", b"1"),))])
    bench.drain()
    state = bench.store.progress()["state:v"]
    assert state["state"] == "failed" and f'topic "{CHANGELOG}"' in state["reason"]
    bench.tell(1)
    bench.drain()
    assert bench.store.positions("v", "source") == Positions()


def test_a_batch_that_fails_leaves_nothing(bench: Bench) -> None:
    good = RowVersion("a", 1, 0, 0, {"points": 1})
    bad = RowVersion("b", 1, 0, 1, {"points": object()})
    batch = ViewBatch("v", [good, bad], Positions.of([(CHANGELOG, 0, 2)]))
    with pytest.raises((HubError, TypeError)):
        bench.store.apply([batch])
    assert bench.rows() == {} and bench.store.positions("v", "changelog") == Positions()


# ---- push


EVERYTHING = 1_000


def follow(bench: Bench, last: str | None, copy: dict[str, Any], stop_after: int) -> str | None:
    """Take events into ``copy`` until all or ``stop_after`` of them have come; return the last id."""

    async def run() -> str | None:
        mark, seen = last, 0
        end = bench.store.positions("v", "changelog")
        # Only for a copy that has everything from the start, or whose next mark reports no change.
        patience_s = 0.5 if stop_after == EVERYTHING else 0.1
        watcher = Watcher(bench.store)
        async with aclosing(subscribe(bench.store, watcher, SubscriptionRequest("v"), last)) as stream:
            while True:
                try:
                    event = await asyncio.wait_for(anext(stream), patience_s)
                except TimeoutError:
                    return mark
                mark = mark if event.mark is None else str(event.mark)
                if event.name == "reset":
                    copy.clear()
                elif event.name in ("snapshot", "upsert"):
                    copy[event.body["key"]] = event.body["row"]["points"]
                elif event.name == "delete":
                    copy.pop(event.body["key"], None)
                seen += 1
                everything = (
                    event.mark is not None and event.mark.after is None and event.mark.positions == end
                )
                if seen >= stop_after or everything:
                    return mark

    if last is None:
        copy.clear()  # without an id the client starts over with a whole snapshot
    # In a thread of its own: the browser tests leave an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result(30.0)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12), st.data())
def test_a_subscriber_that_loses_its_line_ends_equal_to_the_table(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, bool]], data: st.DataObject
) -> None:
    bench = Bench(tmp_path_factory.mktemp("push"))
    copy: dict[str, Any] = {}
    last: str | None = None
    for version, (key, deleted) in enumerate(history, 1):
        bench.write(key, version, None if deleted else {"points": version})
        if data.draw(st.booleans()):
            bench.drain()
            last = follow(bench, last, copy, data.draw(st.integers(1, 4)))
    bench.drain()
    follow(bench, last, copy, EVERYTHING)
    assert copy == bench.rows()
    bench.store.close()


def test_a_view_made_anew_resets_its_subscribers(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.drain()
    copy: dict[str, Any] = {"ghost": 0}
    follow(bench, f"another-topic/{CHANGELOG}:0:5", copy, EVERYTHING)
    assert copy == {"a": 1}


# ---- HTTP


@pytest.fixture
def http(bench: Bench) -> Iterator[TestClient]:
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(bench.store, Watcher(bench.store), 50))
    for number in range(1, 6):
        city = "Oslo" if number % 2 else "Bergen"
        bench.write(f"k{number}", number, {"city": city, "points": number})
    bench.tell(7)
    bench.drain()
    with TestClient(app) as client:
        yield client


def test_rows_by_key_by_index_and_page_by_page(http: TestClient) -> None:
    assert http.get("/views/v/k1").json() == {
        "key": "k1",
        "city": "Oslo",
        "points": 1,
        "_version": 1,
        "_sources": None,
    }
    assert [row["key"] for row in http.get("/views/v?city=Oslo").json()["rows"]] == ["k1", "k3", "k5"]
    page = http.get("/views/v?limit=2").json()
    assert ([row["key"] for row in page["rows"]], page["next"]) == (["k1", "k2"], "k2")
    rest = http.get("/views/v?limit=9&after=k2").json()
    assert ([row["key"] for row in rest["rows"]], rest["next"]) == (["k3", "k4", "k5"], None)
    assert http.get("/views/v/k1").headers["Hub-Position"] == "in:0:7"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/views/vv/k1", 404, 'did you mean "v"?'),
        ("/views/v/none", 404, "does not exist"),
        ("/views/v?cty=Oslo", 400, 'did you mean "city"?'),
        ("/views/v?points=1", 400, "add it to `indexes`"),
        ("/views/v?city.gt_=a", 400, "operator"),
        ("/views/v?limit=0", 400, "between 1 and"),
        ("/views/v/k1?after=nonsense", 400, "topic:partition:offset"),
        ("/views/v/k1?after=other:0:1", 400, "not a source of view"),
        ("/views/v?after=other:0:1", 400, "not a source of view"),
        ("/views/v?city=Oslo&after=in:0:12", 503, "in:0 is at 7 of 12 (5 to go)"),
        ("/views/v?order=city&after=in:0:12", 503, "in:0 is at 7 of 12 (5 to go)"),
        ("/views/v/k1?field=city", 400, 'did you mean "fields"?'),
        ("/views/v/k1?fields=cty", 400, 'did you mean "city"?'),
        ("/views/v/changes?after=in:0:5", 400, 'no field "after"'),
    ],
)
def test_what_cannot_be_answered_says_the_way_out(
    http: TestClient, path: str, status: int, words: str
) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    assert words in answer.json()["message"] + str(answer.json()["hint"])


def test_a_read_waits_for_the_write_it_names_or_tells_the_lag(http: TestClient, bench: Bench) -> None:
    assert http.get("/views/v/k1?after=in:0:7").status_code == 200
    late = http.get("/views/v/k1?after=in:0:12")
    assert late.status_code == 503 and late.headers["Retry-After"] == "1"
    assert "in:0 is at 7 of 12 (5 to go)" in late.json()["message"]


def test_a_list_waits_for_the_write_that_its_after_names(http: TestClient, bench: Bench) -> None:
    """The read answered 200 with an empty list: the token was taken for a key after all others."""
    for path in (
        "/views/v?after=in:0:7",
        "/views/v?after=in:0:5&order=-city",
        "/views/v?after=in:0:7&limit=9",
    ):
        found = http.get(path)
        assert found.status_code == 200 and len(found.json()["rows"]) == 5
        assert found.headers["Hub-Position"] == "in:0:7"
    assert http.get("/views/v/k1?fields=city").json() == {"key": "k1", "city": "Oslo"}
    for key in ("in:0:7", "other:0:7", "z"):  # keys that look like tokens are pages all the same
        bench.write(key, 9, {"city": "Rome", "points": 9})
    bench.tell(9)
    bench.drain()
    pages, after = [], ""
    while after is not None:
        page = http.get("/views/v", params={"limit": "1", **({"after": after} if after else {})}).json()
        pages += [row["key"] for row in page["rows"]]
        after = page["next"]
    assert pages == ["in:0:7", "k1", "k2", "k3", "k4", "k5", "other:0:7", "z"]


def test_a_view_that_is_dropped_is_gone(bench: Bench) -> None:
    bench.store.drop_view("v")
    with pytest.raises(NotFound):
        bench.store.view("v")
