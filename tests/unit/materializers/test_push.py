"""Subscriptions: ids resume at their place, filters send deletes, slow readers get ``behind``, encodings."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from changelog import Bench
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError, PeerError
from hub.materializers.serving import reader_pace, subscriptions
from hub.materializers.serving.held_keys import HeldKeys
from hub.materializers.serving.pull_query import Condition
from hub.materializers.serving.subscription_events import (
    SubscriberPosition,
    SubscriptionEvent,
    SubscriptionRequest,
    parse_event_id,
)
from hub.materializers.serving.subscription_transport import ServerSentEvents, as_message, as_sse
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql.queries import ChangedRows, Filter
from hub.materializers.stores.sql_store import Store
from hub.record import Positions

T = TypeVar("T")
AT = Positions.of([("views.v", 0, 3), ("views.v", 1, 0)])


# Topic ids are base64 with "+" and "/", and a swept view adds a mark; keys are anybody's text.
@pytest.mark.parametrize(
    "incarnation", ["aVvpPY86T6Wm64CszHIsIQ", "U/zWUdCEQU6i+jEyLJe5VA.1099511627776", "//", ""]
)
@pytest.mark.parametrize("after", [None, "", "a/b", "50 %", "é\n/+"])
@pytest.mark.parametrize("filters", ["", "0a1b2c3d"])
def test_an_event_id_comes_back_as_the_place_it_was(
    incarnation: str, after: str | None, filters: str
) -> None:
    place = SubscriberPosition(incarnation, AT, after, filters)
    text = str(place)
    assert text.isascii() and text.isprintable()
    assert parse_event_id(text) == place


@pytest.mark.parametrize("text", ["abc", "a/b/c/d"])
def test_an_id_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match="not one that this server sent"):
        parse_event_id(text)
    assert parse_event_id("") is None


@given(st.booleans(), st.lists(st.tuples(st.sampled_from("abcde"), st.booleans())))
def test_who_may_have_a_key_is_told_that_it_left(assumed: bool, steps: list[tuple[str, bool]]) -> None:
    held, has = HeldKeys(assumed, most=2), set[str]("abcde" if assumed else "")
    told_for_nothing = 0
    for key, comes in steps:
        if comes:
            held.put(key)
            has.add(key)
        else:
            told = held.drop(key)
            assert told or key not in has
            told_for_nothing += told and key not in has
            has.discard(key)
    if not assumed and len({key for key, _ in steps}) <= 2:
        assert told_for_nothing == 0  # within its memory it is exact


OSLO = (Condition("city", "eq", "Oslo"),)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def in_a_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run in a thread of its own: the browser tests leave an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result(30.0)


def told(
    bench: Bench,
    wanted: SubscriptionRequest,
    count: int,
    last: str | None = None,
    meanwhile: Any = None,
    watcher: Watcher | None = None,
) -> list[SubscriptionEvent]:
    """Return the first events; ``meanwhile`` is called with each event as it is read."""

    async def run() -> list[SubscriptionEvent]:
        found: list[SubscriptionEvent] = []
        by = watcher or Watcher(bench.store)
        async with aclosing(subscribe(bench.store, by, wanted, last)) as stream:
            while len(found) < count:
                found.append(await asyncio.wait_for(anext(stream), 10.0))
                if meanwhile is not None:
                    meanwhile(found[-1])
        return found

    return in_a_loop(run())


def test_a_row_that_leaves_the_filter_is_a_delete_and_one_that_was_never_in_is_nothing(bench: Bench) -> None:
    bench.write("a", 1, {"city": "Oslo", "points": 1})
    bench.write("b", 2, {"city": "Kiel", "points": 2})
    bench.drain()

    def meanwhile(event: SubscriptionEvent) -> None:
        if event.name == "synced":
            bench.write("b", 3, {"city": "Rome", "points": 3})  # never in
            bench.write("a", 4, {"city": "Kiel", "points": 4})  # leaves
            bench.write("c", 5, {"city": "Oslo", "points": 5})  # enters
            bench.drain()

    events = told(bench, SubscriptionRequest("v", OSLO), 4, meanwhile=meanwhile)
    assert [each.name for each in events[:2]] == ["snapshot", "synced"]
    changes = {
        each.body["key"]: (each.name, each.body["row"] and each.body["row"]["points"]) for each in events[2:]
    }
    assert changes == {"a": ("delete", None), "c": ("upsert", 5)}


def test_an_id_of_another_filter_starts_over(bench: Bench) -> None:
    bench.write("a", 1, {"city": "Oslo", "points": 1})
    bench.drain()
    last = str(told(bench, SubscriptionRequest("v", OSLO), 2)[-1].mark)
    again = told(bench, SubscriptionRequest("v"), 3, last)
    assert [each.name for each in again] == ["reset", "snapshot", "synced"]
    assert "another filter" in again[0].body["reason"]


def test_a_slow_reader_is_told_how_many_states_it_does_not_see(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_pace, "_SLOW_S", 0.0)  # whoever takes any time at all is slow
    bench.write("a", 1, {"points": 1})
    bench.drain()
    version = 1

    def meanwhile(event: SubscriptionEvent) -> None:
        nonlocal version
        if event.name in ("synced", "upsert"):
            for _ in range(4):
                version += 1
                bench.write("a", version, {"points": version})
            bench.drain()

    events = told(bench, SubscriptionRequest("v"), 4, meanwhile=meanwhile)
    assert [each.name for each in events] == ["snapshot", "synced", "behind", "upsert"]
    assert {name: events[2].body[name] for name in ("records", "rows", "coalesced")} == {
        "records": 4,
        "rows": 1,
        "coalesced": 3,
    }
    assert events[2].mark is None


def test_what_is_covered_is_told_once_it_is_and_only_to_who_asks(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.tell(7)
    bench.drain()
    events = told(bench, SubscriptionRequest("v", covered=True), 3)
    assert [each.name for each in events] == ["snapshot", "synced", "covered"]
    assert events[-1].body == {"positions": "in:0:7"} and events[-1].mark is not None


def test_changes_that_name_no_events_are_told_of_by_the_stretch_of_the_sources(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1})
    bench.tell(7)
    bench.drain()
    heard: list[tuple[str, str, str]] = []

    class Woken(Watcher):
        async def wait(self, seen: int, timeout_s: float) -> bool:
            return True

    watcher = Woken(
        bench.store, covered=lambda view, _who, before, after: heard.append((view, str(before), str(after)))
    )

    def meanwhile(event: SubscriptionEvent) -> None:
        match event.body:
            case {"positions": "in:0:7"}:
                bench.write("a", 2, {"points": 2})
            case {"key": "a", "row": {"points": 2}}:
                bench.tell(9)  # a batch's progress comes after its rows
            case {"positions": "in:0:9"}:
                bench.tell(12)  # events that changed nothing
            case {"positions": "in:0:12"}:
                bench.write("b", 3, {"points": 3})
                bench.tell(15)
        bench.drain()

    events = told(bench, SubscriptionRequest("v", covered=True), 8, meanwhile=meanwhile, watcher=watcher)
    assert [each.name for each in events][2:] == [
        "covered",
        "upsert",
        "covered",
        "covered",
        "upsert",
        "covered",
    ]
    assert heard == [("v", "in:0:7", "in:0:9"), ("v", "in:0:12", "in:0:15")]


def test_a_busy_neighbour_does_not_silence_the_sign_of_life(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_HEARTBEAT_S", 0.05)
    bench.write("a", 1, {"city": "Kiel", "points": 1})
    bench.drain()

    def meanwhile(event: SubscriptionEvent) -> None:
        if event.name == "synced":
            bench.write("b", 2, {"city": "Rome", "points": 2})
            bench.drain()

    events = told(bench, SubscriptionRequest("v", OSLO), 2, meanwhile=meanwhile)
    assert [each.name for each in events] == ["synced", "alive"]
    # Without any change the position advances: a resumed subscriber does not read everything again.
    assert events[1].mark is not None and str(events[1].mark) != str(events[0].mark)


def test_the_watcher_wakes_for_what_others_apply_and_asks_nothing_while_they_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.materializers.serving.watcher._POLL_S", 0.001)
    monkeypatch.setattr("hub.materializers.serving.watcher._GATHER_S", 0.001)
    reader = Store(bench.store.url)  # the applier writes from a process of its own
    watcher, asked = Watcher(reader), 0
    stamp = reader.feed.stamp

    def counted() -> int:
        nonlocal asked
        asked += 1
        return stamp()

    monkeypatch.setattr(reader.feed, "stamp", counted)

    async def run() -> None:
        nonlocal asked
        task = asyncio.create_task(watcher.run())
        try:
            for version in range(1, 4):
                seen = watcher.generation
                bench.write("a", version, {"points": version})
                await asyncio.to_thread(bench.drain)
                assert await watcher.wait(seen, 10.0)
                for _ in range(100):  # a busy machine lets it look later
                    seen, asked = watcher.generation, 0
                    await asyncio.sleep(0.1)
                    if (watcher.generation, asked) == (seen, 0):
                        break
                assert (watcher.generation, asked) == (seen, 0)
        finally:
            task.cancel()

    in_a_loop(run())
    reader.close()


def test_changes_that_follow_a_change_at_once_are_told_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.materializers.serving.watcher._POLL_S", 0.001)
    monkeypatch.setattr("hub.materializers.serving.watcher._GATHER_S", 2.0)
    reader = Store(bench.store.url)
    watcher = Watcher(reader)

    async def run() -> None:
        task = asyncio.create_task(watcher.run())
        try:
            for versions in ((1,), (2, 3, 4)):
                seen = watcher.generation
                for version in versions:
                    bench.write("a", version, {"points": version})
                    await asyncio.to_thread(bench.drain)
                    await asyncio.sleep(0.05)  # dozens of looks, if it looked
                assert await watcher.wait(seen, 10.0)
                assert watcher.generation == seen + 1
                (row,) = (await watcher.changes("v", Positions(), (), reader.view("v").incarnation)).rows
                assert row.values is not None and row.values["points"] == versions[-1]
        finally:
            task.cancel()

    in_a_loop(run())
    reader.close()


def test_subscribers_at_one_place_ask_the_store_once_and_after_a_change_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", 1, {"points": 1})
    bench.drain()
    incarnation, ask, begun, go_on = (
        bench.store.view("v").incarnation,
        bench.store.feed.changes,
        [],
        threading.Event(),
    )

    def slow(*asked: Any) -> ChangedRows:
        found = ask(*asked)
        begun.append(asked)
        assert go_on.wait(10.0)
        return found

    monkeypatch.setattr(bench.store.feed, "changes", slow)
    watcher, start = Watcher(bench.store), Positions()

    def look(since: Positions = start, filters: Sequence[Filter] = ()) -> asyncio.Task[ChangedRows]:
        return asyncio.ensure_future(watcher.changes("v", since, filters, incarnation))

    async def until_asked(times: int) -> None:
        async with asyncio.timeout(5.0):
            while len(begun) < times:
                await asyncio.sleep(0.001)

    async def run() -> None:
        together = [look() for _ in range(5)]
        await until_asked(1)
        others = [look(AT), look(filters=[("city", "eq", "Oslo")])]
        await until_asked(3)
        bench.write("a", 2, {"points": 2})
        bench.drain()
        watcher.generation += 1  # as its task does when it sees that
        late = [look() for _ in range(5)]
        await until_asked(4)
        together.pop(0).cancel()  # who happened to be first leaves
        go_on.set()
        answers = [await each for each in (*together, *others, *late)]
        points = [[row.values and row.values["points"] for row in each.rows] for each in answers]
        assert points == [[1]] * 5 + [[None]] + [[2]] * 5
        assert len(begun) == 4
        await look()
        assert len(begun) == 5  # an answer is not kept

    in_a_loop(run())


def test_all_who_ask_together_hear_that_the_store_cannot_be_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> ChangedRows:
        raise PeerError("store: no answer", hint="start it")

    monkeypatch.setattr(bench.store.feed, "changes", down)
    watcher = Watcher(bench.store)

    async def run() -> None:
        looks = [watcher.changes("v", Positions(), (), "") for _ in range(3)]
        answers = await asyncio.gather(*looks, return_exceptions=True)
        assert [type(each) for each in answers] == [PeerError] * 3

    in_a_loop(run())


def test_both_encodings_say_the_same() -> None:
    event = SubscriptionEvent(
        "upsert", SubscriberPosition("t", AT), {"key": "a\n", "row": {"x": "é"}, "version": 3}
    )
    lines = as_sse(event).decode().split("\n")
    message = json.loads(as_message(event))
    assert lines[0] == f"id: {message['id']}" and lines[1] == f"event: {message['event']}"
    assert json.loads(lines[2].removeprefix("data: ")) == message["data"]
    assert lines[3:] == ["", ""]
    assert "id" not in json.loads(as_message(SubscriptionEvent("alive", None, {})))


def test_a_page_of_changes_goes_out_in_one_piece_and_nothing_waits_for_the_next() -> None:
    row = {"row": {"x": "y"}, "version": 3}
    page = [
        SubscriptionEvent("upsert", SubscriberPosition("t", AT) if n == 9 else None, {"key": f"k{n}", **row})
        for n in range(10)
    ]
    wide = [
        SubscriptionEvent(
            "snapshot", SubscriberPosition("t", AT, str(n)), {"key": str(n), "row": "z" * 9_000}
        )
        for n in range(3)
    ]
    events = [
        *wide,
        SubscriptionEvent("synced", SubscriberPosition("t", AT), {}),
        *page,
        SubscriptionEvent("alive", None, {}),
    ]
    pieces: list[bytes] = []

    async def stream() -> AsyncGenerator[SubscriptionEvent]:
        for event in events:
            yield event

    async def send(message: Any) -> None:
        pieces.append(message.get("body", b""))

    in_a_loop(ServerSentEvents(stream()).stream_response(send))
    assert b"".join(pieces) == b"".join(as_sse(event) for event in events)
    assert [piece.count(b"event: ") for piece in pieces] == [0, 2, 2, 10, 0, 0]  # head, pieces, end
