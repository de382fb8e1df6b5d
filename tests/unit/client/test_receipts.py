"""Acknowledged records as reported to the server: each record once, in bounded bodies, dropped ones
counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from hub.client import Event
from hub.client import receipts as told
from hub.client.calls import Calls
from hub.client.errors import ConnectionBroken
from hub.client.receipts import EVENT_ID, Receipts
from hub.client.requests import DECLARED, Call, Reply, Request
from hub.completeness.counts import id_of


def line(offset: int, at: str = "2026-01-31T12:30:59.999Z") -> dict[str, Any]:
    return {"error_code": 200, "partition_id": 1, "offset": offset, "timestamp": at}


def receipts_of(body: bytes | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body or b'{"receipts": []}')["receipts"]
    return found


def test_each_acknowledged_event_is_an_offset_and_counts_in_its_minute_by_its_own_id() -> None:
    receipts = Receipts("checkout")
    events = [Event({"a": 1}), Event({"a": 1}, key="k", headers={EVENT_ID: "e-1"})]
    plain, named = receipts.named(events, "t", "load")
    made, again = receipts.named([Event({}, key="k"), Event({}, key="k")], "t", "load")
    assert plain.key is DECLARED
    assert not plain.headers
    assert made.headers[EVENT_ID] != again.headers[EVENT_ID]
    receipts.took("t", [plain, named], [line(3), line(4)])
    receipts.took(
        "t", [named, made], [line(4), {"error_code": 400}]
    )  # once more the same, and one that was refused
    receipts.took("t", [replace_id(made, "e-2")], [line(6, "2026-01-31T12:31:00.000Z")])
    (receipt,) = receipts_of(receipts.due(1))
    assert receipt["runs"] == [[4, 1], [6, 1]]
    assert [each["count"] for each in receipt["minutes"]] == [1, 1]
    assert receipt["minutes"][0]["sum"] == f"{id_of(None, 0, None, b'e-1'):016x}"
    assert receipts.due(1) is None


def replace_id(event: Event, event_id: str) -> Event:
    return Event(event.value, event.key, {EVENT_ID: event_id})


def test_bodies_are_bounded_and_nothing_is_told_twice() -> None:
    receipts = Receipts("p")
    events = [replace_id(Event({}), str(number)) for number in range(2_500)]
    receipts.took("t", events, [line(number) for number in range(2_500)])
    told: list[int] = []
    while (body := receipts.due(1)) is not None:
        for each in receipts_of(body):
            told += [offset for first, count in each["runs"] for offset in range(first, first + count)]
            assert sum(minute["count"] for minute in each["minutes"]) <= 1_000
    assert told == list(range(2_500))


def ask(call: Call[Any], answers: Sequence[Reply | ConnectionBroken]) -> list[Request]:
    asked: list[Request] = []
    left = list(answers)
    try:
        step = call.send(None)
        while True:
            assert isinstance(step, Request)
            asked.append(step)
            answer = left.pop(0)
            step = call.throw(answer) if isinstance(answer, ConnectionBroken) else call.send(answer)
    except StopIteration:
        return asked


def test_a_write_tells_now_and_then_and_what_the_server_does_not_take_is_dropped() -> None:
    receipts = Receipts("p")
    calls = Calls(10.0, now=lambda: 100.0, receipts=receipts)
    written = Reply(200, {"hub-position": "t:1:4"}, json.dumps(line(3)).encode())
    asked = ask(calls.produce("t", [Event({}, key="k")], None, None), [written, ConnectionBroken("away")])
    assert [each.path for each in asked] == ["/v3/clusters/-/topics/t/records", "/api/audit/receipts"]
    assert EVENT_ID in (asked[0].body or b"").decode()
    asked = ask(calls.produce("t", [Event({}, key="k")], None, None), [written])
    assert len(asked) == 1  # not after each write
    (receipt,) = receipts_of(ask(calls.send_receipts(), [Reply(204, {}, b"")])[0].body)
    assert (receipt["dropped"], receipt["runs"]) == (1, [[3, 1]])
    silent = Calls(10.0)
    assert (
        EVENT_ID
        not in (ask(silent.produce("t", [Event({}, key="k")], None, None), [written])[0].body or b"").decode()
    )


def test_a_call_that_is_made_again_with_its_key_sends_the_very_same_body() -> None:
    def body(topic: str, key: str | None) -> bytes | None:
        calls = Calls(10.0, now=lambda: -1.0, receipts=Receipts("p"))
        written = Reply(200, {}, b"\n".join([json.dumps(line(3)).encode()] * 2))
        return ask(calls.produce(topic, [Event({}, key="k"), Event({}, key="k")], key, None), [written])[
            0
        ].body

    assert body("t", "load-7") == body("t", "load-7")
    bodies = [body("t", "load-7"), body("t", "load-8"), body("u", "load-7"), body("t", None), body("t", None)]
    assert len(set(bodies)) == len(bodies)


def test_a_partition_all_of_whose_events_are_beyond_the_bound_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told, "MOST", 2)
    receipts = Receipts("p")
    for topic in ("t", "u"):
        events = [replace_id(Event({}), str(number)) for number in range(3)]
        receipts.took(topic, events, [line(number) for number in range(3)])
    said = receipts_of(receipts.due(1))
    assert [(each["topic"], each["runs"], each["dropped"]) for each in said] == [
        ("t", [[0, 2]], 1),
        ("u", [[0, 1]], 2),
    ]


def test_what_is_being_told_when_the_task_is_cancelled_counts_as_dropped() -> None:
    receipts = Receipts("p")
    call = Calls(10.0, receipts=receipts).send_receipts()
    receipts.took("t", [replace_id(Event({}), "e")], [line(0)])
    call.send(None)
    call.close()
    receipts.took("t", [replace_id(Event({}), "f")], [line(1)])
    (receipt,) = receipts_of(receipts.due(1))
    assert (receipt["runs"], receipt["dropped"]) == ([[1, 1]], 1)
