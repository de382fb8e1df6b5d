"""Rows by key, lists and subscriptions of a masked caller: masked, filtered, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from changelog import Bench
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mask_facts import KnownFacts, caller_of, rules_of

from hub.access.masking.facts import ViewColumns
from hub.api.app import on_hub_error
from hub.caller import CALLER, view_visibility
from hub.errors import HubError, PeerError
from hub.materializers.serving.fast_path import FastPath, FastReads
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.subscription_events import SubscriptionEvent, SubscriptionRequest
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher

FACTS = KnownFacts(views={"v": ViewColumns({"city": (), "points": ()}, (), ())})
POINTS = {"fields": ["points"], "views": ["v"], "as": "hashed"}
OSLO = {"rows": "city = user.city", "views": ["v"]}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    for number, city in enumerate(("Oslo", "Bergen", "Oslo"), 1):
        made.write(f"k{number}", number, {"city": city, "points": number})
    made.drain()
    yield made
    made.store.close()


@pytest.fixture
def as_ana() -> Iterator[Any]:
    tokens = []

    def become(*masks: dict[str, Any]) -> None:
        rules = rules_of(FACTS, list(masks), ana={"claims": {"city": "Oslo"}})
        tokens.append(CALLER.set(caller_of(rules, "ana")))

    yield become
    for token in reversed(tokens):
        CALLER.reset(token)


def get(bench: Bench, path: str) -> tuple[int, Any]:
    """Return status and body, through the fast path as a server has it."""
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(bench.store, Watcher(bench.store), 200))
    reads = FastReads()
    reads.open(bench.store)
    try:
        answer = TestClient(FastPath(app, reads)).get(path)
    finally:
        asyncio.run(reads.close())
    return answer.status_code, answer.json()


def test_a_row_by_key_and_a_list_show_what_the_mask_leaves(bench: Bench, as_ana: Any) -> None:
    assert get(bench, "/views/v/k1")[1]["points"] == 1
    as_ana(POINTS)
    status, row = get(bench, "/views/v/k1")
    assert (status, row["city"], len(row["points"])) == (200, "Oslo", 32)
    status, page = get(bench, "/views/v?city=Oslo")
    assert [len(each["points"]) for each in page["rows"]] == [32, 32]
    assert "points" not in get(bench, "/views/v/k1?fields=city")[1]


@pytest.mark.parametrize("question", ["?points=1", "?points.gte=2", "?order=points", "?order=-points,city"])
def test_a_masked_field_neither_filters_nor_sorts_a_list(bench: Bench, as_ana: Any, question: str) -> None:
    as_ana(POINTS)
    status, body = get(bench, f"/views/v{question}")
    # "points" has no index in this view: without one the request is wrong for everybody.
    assert status in (400, 403) and "rows" not in body


def test_a_masked_index_is_refused_with_its_reason(bench: Bench, as_ana: Any) -> None:
    as_ana({"fields": ["city"], "views": ["v"], "as": "nulled"})
    for question in ("?city=Oslo", "?order=city", "?city.gte=A"):
        status, body = get(bench, f"/views/v{question}")
        assert status == 403 and body["error_code"] == "HUB-1722" and "POST /query" in body["hint"]
    assert get(bench, "/views/v")[1]["rows"][0]["city"] is None


def test_a_refused_field_is_left_out_by_naming_others(bench: Bench, as_ana: Any) -> None:
    as_ana({**POINTS, "as": "refused"})
    for path in ("/views/v", "/views/v/k1", "/views/v?fields=points", "/views/v/changes"):
        status, body = get(bench, path)
        assert status == 403 and 'field "points" is refused' in body["message"], path
    assert get(bench, "/views/v?fields=city")[1]["rows"][0] == {"key": "k1", "city": "Oslo"}


def test_a_masked_key_leaves_only_sql(bench: Bench, as_ana: Any) -> None:
    as_ana({"fields": ["key"], "views": ["v"], "as": "hashed"})
    for path in ("/views/v", "/views/v/k1", "/views/v/changes", "/views/v?fields=city"):
        status, body = get(bench, path)
        assert status == 403 and 'field "key" is hashed for you' in body["message"], path


def test_rows_of_others_are_as_if_they_were_not_there(bench: Bench, as_ana: Any) -> None:
    bench.write("k9", 9, {"city": "Bergen", "points": 9})
    bench.write("k9", 10, None)
    bench.drain()
    as_ana(OSLO)
    assert [each["key"] for each in get(bench, "/views/v")[1]["rows"]] == ["k1", "k3"]
    assert [each["key"] for each in get(bench, "/views/v?order=-city&limit=1")[1]["rows"]] == ["k3"]
    hidden, deleted, missing = (get(bench, f"/views/v/{key}") for key in ("k2", "k9", "no"))
    assert hidden[0] == deleted[0] == missing[0] == 404
    assert hidden[1]["message"].replace("k2", "no") == missing[1]["message"]
    assert deleted[1]["message"].replace("k9", "no") == missing[1]["message"]
    status, body = get(bench, "/views/v/changes?snapshot=false")
    assert status == 400 and "begin with a snapshot" in body["message"]


def events_of(bench: Bench, count: int, last: str | None, meanwhile: Any) -> list[SubscriptionEvent]:
    shape = view_visibility("v")
    rows = tuple(shape.conditions({"city": "string", "points": "long"}))
    wanted = SubscriptionRequest("v", shape=shape, rows=rows, look=lambda: view_visibility("v"))

    async def run() -> list[SubscriptionEvent]:
        found: list[SubscriptionEvent] = []
        async with aclosing(subscribe(bench.store, Watcher(bench.store), wanted, last)) as stream:
            while len(found) < count:
                found.append(await asyncio.wait_for(anext(stream), 10.0))
                meanwhile(found[-1])
        return found

    caller = CALLER.get()

    def in_a_loop() -> list[SubscriptionEvent]:
        CALLER.set(caller)
        return asyncio.run(run())

    with ThreadPoolExecutor(1) as thread:  # the browser tests leave an event loop running in this one
        return thread.submit(in_a_loop).result(30.0)


def test_a_subscription_sends_masked_rows_of_the_caller_alone(bench: Bench, as_ana: Any) -> None:
    as_ana(POINTS, OSLO)

    def meanwhile(event: SubscriptionEvent) -> None:
        if event.name == "synced":
            bench.write("k2", 4, None)  # of somebody else
            bench.write("k3", 5, {"city": "Bergen", "points": 3})  # leaves
            bench.write("k5", 6, {"city": "Oslo", "points": 5})
            bench.drain()

    events = events_of(bench, 5, None, meanwhile)
    assert [each.name for each in events[:3]] == ["snapshot", "snapshot", "synced"]
    assert {each.body["key"] for each in events[:2]} == {"k1", "k3"}
    assert {(each.name, each.body["key"]) for each in events[3:]} == {("delete", "k3"), ("upsert", "k5")}
    assert all(len(each.body["row"]["points"]) == 32 for each in events if each.body.get("row"))
    # Who resumes gets a snapshot: a delete of a row that it never saw would name its key.
    mark = next(str(each.mark) for each in events if each.mark is not None)
    again = events_of(bench, 2, mark, lambda _event: None)
    assert [each.name for each in again] == ["reset", "snapshot"]


def test_a_subscription_ends_when_its_caller_sees_something_else(bench: Bench, as_ana: Any) -> None:
    as_ana(POINTS)
    shape = view_visibility("v")
    looks = iter([shape])
    wanted = SubscriptionRequest("v", shape=shape, look=lambda: next(looks, view_visibility("other")))

    async def run() -> list[str]:
        found = []
        async for event in subscribe(bench.store, Watcher(bench.store), wanted):
            found.append(event.name)
            if event.name == "synced":
                bench.write("k1", 7, {"city": "Oslo", "points": 7})
                bench.drain()
        return found

    FACTS.views = {**FACTS.views, "other": ViewColumns({"points": ()})}
    caller = CALLER.get()

    def in_a_loop() -> list[str]:
        CALLER.set(caller)
        return asyncio.run(asyncio.wait_for(run(), 20.0))

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(in_a_loop).result(30.0)[-1] == "closing"


def test_with_a_filter_of_rows_no_key_is_assumed_to_be_held() -> None:
    held = HeldKeys(False, most=2, certain=True)
    held.put("a")
    held.put("b")
    assert held.drop("a") and not held.drop("x")
    held.put("c")
    with pytest.raises(PeerError, match="too many to follow"):
        held.put("d")
