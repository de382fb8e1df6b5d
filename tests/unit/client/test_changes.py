"""Changes without a socket: any cut of the bytes, and the law:
what a client holds ends equal to the table."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from changelog import Bench
from hypothesis import given
from hypothesis import strategies as st

from hub.client import Covered, Delete, NotFound, Reset, Snapshot, Synced, Unreachable, Upsert
from hub.client.changes import Change, Denied, Listener, Rows, SseDecoder, StreamEvent, stream_event_of
from hub.client.errors import ConnectionBroken
from hub.client.requests import Reply
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.serving import subscriptions
from hub.materializers.serving.pull_query import Condition
from hub.materializers.serving.subscription_events import SubscriptionEvent, SubscriptionRequest
from hub.materializers.serving.subscription_transport import as_message, as_sse
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.record import Positions

STREAM = (
    b'id: 1\nevent: snapshot\ndata: {"key":"\xc3\xa9"}\n\n'
    b": still here\n\nid: 2\n: still here\n\r\n"
    b"event: upsert\r\ndata: {}\r\n\r\nid: 3\nevent: delete\ndata: 1"
)


@given(st.sets(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    decoder = SseDecoder()
    parts = [STREAM[start:end] for start, end in pairwise(places)]
    found = [told for part in parts for told in decoder.feed(part)]
    assert found == [
        StreamEvent("snapshot", "1", {"key": "é"}),
        StreamEvent("alive", None, None),
        StreamEvent("alive", "2", None),
        StreamEvent("upsert", None, {}),
    ]  # the last one was not whole: it never was


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', "nonsense"])
def test_a_message_that_is_no_event_breaks_the_line(text: str) -> None:
    with pytest.raises(ConnectionBroken):
        stream_event_of(text)


@pytest.mark.parametrize("stream", [b"data: {\n\n", b"data: \xff\n\n"])
def test_bytes_that_are_no_event_break_the_line(stream: bytes) -> None:
    with pytest.raises(ConnectionBroken):
        list(SseDecoder().feed(stream))


def row(name: str, key: str, version: int, mark: str | None = None) -> StreamEvent:
    return StreamEvent(name, mark, {"key": key, "row": None if name == "delete" else {}, "version": version})


def test_what_was_told_after_the_last_id_is_not_told_again() -> None:
    listener = Listener("v", chance=lambda: 1.0)
    assert listener.receive(StreamEvent("synced", "0", {"positions": ""})) == Synced(Positions())
    assert listener.receive(row("upsert", "a", 1)) == Upsert("a", {}, 1)
    assert listener.receive(row("upsert", "b", 1)) == Upsert("b", {}, 1)
    listener.broken(ConnectionBroken("cut"))
    assert dict(listener.request().headers)["Last-Event-ID"] == "0"
    assert listener.receive(row("upsert", "a", 1)) is None
    assert listener.receive(row("delete", "b", 2)) == Delete("b", 2)
    assert listener.receive(row("upsert", "c", 1, mark="1")) == Upsert("c", {}, 1)
    assert listener.last_id == "1"
    assert listener.receive(row("upsert", "a", 1)) == Upsert("a", {}, 1)  # behind the id it is new


def test_pauses_grow_and_start_again_after_a_sign_of_life() -> None:
    said: list[str] = []
    listener = Listener("v", chance=lambda: 1.0, on_disconnect=said.append)
    assert [listener.broken(ConnectionBroken("x")) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert len(said) == 1
    with pytest.raises(ConnectionBroken, match="too slow"):
        listener.receive(StreamEvent("closing", None, {"reason": "too slow"}))
    assert listener.broken(ConnectionBroken("x")) == 5.0  # to be closed at once is not a sign of life
    listener.receive(StreamEvent("alive", None, None))
    assert listener.broken(ConnectionBroken("x")) == 0.2
    assert len(said) == 2


def test_refusals_end_it_and_a_server_that_is_away_only_before_the_first_line() -> None:
    denied = Denied(Reply(404, {}, b'{"message": "no such view", "error_code": "HUB-1410"}'))
    with pytest.raises(NotFound, match="no such view"):
        Listener("v").broken(denied)
    away = Denied(Reply(503, {}, b"{}"))
    with pytest.raises(Unreachable):
        Listener("v", patience_s=0.0).broken(away)
    listener = Listener("v", patience_s=0.0)
    listener.receive(StreamEvent("alive", None, None))
    listener.broken(away)
    with pytest.raises(NotFound):
        listener.broken(denied)


def test_a_view_made_anew_is_swapped_when_it_is_whole() -> None:
    rows = Rows()
    for change in (Snapshot("a", {"n": 1}, 1), Synced(Positions())):
        rows.apply(change)
    rows.apply(Reset("anew"))
    rows.apply(Snapshot("b", {"n": 2}, 1))
    assert rows.now == {"a": {"n": 1}}
    rows.apply(Synced(Positions()))
    assert rows.now == {"b": {"n": 2}}


# ---- the law, over the server's own events


OSLO = (Condition("city", "eq", "Oslo"),)


class Lines:
    """A subscriber whose connections are cut anywhere, by bytes or by messages, and its final copy."""

    def __init__(self, bench: Bench, filters: tuple[Condition, ...], chance: random.Random) -> None:
        self.bench, self.filters, self.chance = bench, filters, chance
        self.listener = Listener("v")
        self.rows = Rows()
        self.told: list[Change] = []

    async def line(self, most: int) -> None:
        """One connection that breaks after a number of events, within the last one; or when no event is
        left."""
        last = dict(self.listener.request().headers).get("Last-Event-ID")
        wanted = SubscriptionRequest("v", self.filters)
        stream: AsyncGenerator[SubscriptionEvent, None] = subscribe(
            self.bench.store, Watcher(self.bench.store), wanted, last
        )
        decoder, sse = SseDecoder(), self.chance.random() < 0.5
        async with aclosing(stream):
            for number in range(most):
                event = await anext(stream)
                if event.name == "alive":
                    break
                cut = number == most - 1
                if sse:
                    text = as_sse(event)
                    found = list(decoder.feed(text[: self.chance.randrange(len(text))] if cut else text))
                else:
                    found = [] if cut else [stream_event_of(as_message(event))]
                for told in found:
                    change = self.listener.receive(told)
                    if change is not None:
                        self.told.append(change)
                        self.rows.apply(change)


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_ends_equal_to_the_table_whatever_is_cut_where_and_nothing_is_told_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(subscriptions, "PAGE", 3)
    monkeypatch.setattr("hub.materializers.serving.watcher.PAGE", 3)
    monkeypatch.setattr("hub.materializers.serving.held_keys.HeldKeys.__init__.__defaults__", (4,))
    monkeypatch.setattr(subscriptions, "_HEARTBEAT_S", 0.01)
    chance = random.Random(seed)
    bench = Bench(tmp_path)
    filters = OSLO if seed % 2 else ()
    lines = Lines(bench, filters, chance)
    with ThreadPoolExecutor(1) as thread:
        for version in range(1, 60):
            key = chance.choice("abcdefgh")
            gone = chance.random() < 0.2
            city = chance.choice(["Oslo", "Oslo", "Kiel", None])
            bench.write(key, version, None if gone else {"city": city, "points": version})
            if chance.random() < 0.5:
                bench.drain()
                thread.submit(asyncio.run, lines.line(chance.randint(1, 8))).result(30.0)
        bench.drain()
        if seed % 3 == 0:  # rebuilt: rows vanish without a record of their own
            bench.write("a", (1 << GENERATION_SHIFT) + 1, {"city": "Oslo", "points": 1})
            bench.tell(60, generation=1)
            bench.drain()
        for _ in range(2):
            thread.submit(asyncio.run, lines.line(10_000)).result(30.0)
    wanted = {
        each.key: each.values
        for each in bench.store.select("v", [each.as_tuple() for each in filters], 100, None)
    }
    assert lines.rows.whole and lines.rows.now == wanted
    assert (seed % 3 == 0) <= any(isinstance(each, Reset) for each in lines.told)
    seen: set[Any] = set()
    for change in lines.told:
        if isinstance(change, Reset | Synced):
            seen.clear()
        elif isinstance(change, Upsert):
            assert (change.key, change.version) not in seen, change
            seen.add((change.key, change.version))
    bench.store.close()


def test_a_copy_that_was_built_anew_claims_no_more_than_its_new_rows_include() -> None:
    rows = Rows()
    for change in (Synced(Positions()), Covered(Positions.of([("t", 0, 9)])), Reset("anew")):
        rows.apply(change)
    assert rows.covered == Positions.of([("t", 0, 9)])  # the old rows are served until the new ones are whole
    rows.apply(Synced(Positions()))
    assert rows.covered == Positions()
    rows.apply(Covered(Positions.of([("t", 0, 5)])))
    assert rows.covered == Positions.of([("t", 0, 5)])
