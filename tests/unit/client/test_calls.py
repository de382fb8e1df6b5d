"""Calls without a socket: what is asked, what is asked again and with what, and what an answer becomes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from hub.client import Aggregate, Event, NotCovered, NotFound, Refused, Unreachable, VersionConflict
from hub.client.aggregates import ATTEMPTS
from hub.client.calls import Calls
from hub.client.errors import ConnectionBroken
from hub.client.produce_bodies import requests_of
from hub.client.requests import Call, Reply, Request, RetryPause, conditions_of
from hub.errors import CallerError, Conflict, HubError
from hub.record import Positions

WRITTEN = {"error_code": 200, "partition_id": 0, "offset": 41}


def reply(status: int, body: Any, **headers: str) -> Reply:
    lines = body if isinstance(body, list) else [body]
    return Reply(
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        b"\n".join(json.dumps(each).encode() for each in lines),
    )


class Clock:
    """Time that passes by pauses, and by a second a request."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def run(
    make: Any, answers: Sequence[Reply | ConnectionBroken], retry: bool = True
) -> tuple[Any, list[Request]]:
    """The result of a call (or its error) and its requests; ``answers`` in their order."""
    clock = Clock()
    call: Call[Any] = make(Calls(10.0, retry, clock, lambda: 1.0))
    asked: list[Request] = []
    left = list(answers)
    try:
        step = call.send(None)
        while True:
            if isinstance(step, RetryPause):
                clock.now_s += step.seconds
                step = call.send(None)
                continue
            asked.append(step)
            clock.now_s += 1.0
            answer = left.pop(0) if left else ConnectionBroken("nobody is there")
            step = call.throw(answer) if isinstance(answer, ConnectionBroken) else call.send(answer)
    except StopIteration as done:
        assert not left
        return done.value, asked
    except HubError as error:
        return error, asked


def produced(*events: Event, key: str | None = None) -> Any:
    return lambda calls: calls.produce("t", events, key, None)


def test_a_write_that_may_have_happened_is_repeated_with_the_same_key_and_body() -> None:
    answers = [
        ConnectionBroken("the line broke"),
        reply(503, {"error_code": 503, "message": "unknown"}, retry_after="1"),
        reply(429, {"error_code": 429, "message": "busy"}),
        reply(200, WRITTEN, hub_position="t:0:42"),
    ]
    position, asked = run(produced(Event({"a": 1})), answers)
    assert position == Positions.of([("t", 0, 42)])
    assert len(asked) == 4
    assert len({(each.body, dict(each.headers)["Idempotency-Key"]) for each in asked}) == 1
    _, other = run(produced(Event({"a": 1})), answers[-1:])
    assert dict(other[0].headers)["Idempotency-Key"] != dict(asked[0].headers)["Idempotency-Key"]


def test_a_retry_says_how_long_ago_the_first_attempt_was() -> None:
    def retries(*answers: Reply | ConnectionBroken) -> list[str | None]:
        _, asked = run(produced(Event({"a": 1})), [*answers, reply(200, WRITTEN, hub_position="t:0:42")])
        return [dict(each.headers).get("Idempotency-Retry") for each in asked]

    away = reply(503, {"error_code": 503, "code": "HUB-3013", "message": "unknown"})
    first, second, third = retries(ConnectionBroken("cut"), away)
    assert (first, second) == (None, "1100") and int(third or 0) > 2_000
    # What no server can have got is no retry.
    busy = reply(429, {"error_code": 429, "code": "HUB-3044", "message": "busy"})
    starting = reply(503, {"error_code": 503, "code": "HUB-3010", "message": "Kafka does not answer"})
    assert retries(ConnectionBroken("refused", sent=False), busy, starting) == [None] * 4
    proxy = Reply(504, {}, b"gateway timeout")
    assert [bool(each) for each in retries(starting, proxy, busy)] == [False, False, True, True]


def test_a_read_is_repeated_unchanged() -> None:
    _, asked = run(lambda calls: calls.get("v", "k", {}), [ConnectionBroken("cut"), reply(200, {"key": "k"})])
    assert asked[0].headers == asked[1].headers


@pytest.mark.parametrize(
    ("status", "kind"), [(422, Refused), (400, Refused), (413, Refused), (404, NotFound), (409, Conflict)]
)
def test_what_is_wrong_is_not_repeated(status: int, kind: type[Exception]) -> None:
    error, asked = run(produced(Event({"a": 1})), [reply(status, {"error_code": status, "message": "no"})])
    assert isinstance(error, kind) and len(asked) == 1


def test_a_redirect_says_where_to() -> None:
    answer = Reply(308, {"location": "https://hub.example/"}, b"")
    error, _ = run(produced(Event({"a": 1})), [answer])
    assert isinstance(error, Refused) and "https://hub.example/" in str(error.hint)


def test_a_refusal_names_the_record_and_its_field() -> None:
    wrong = {"error_code": 422, "message": 'value.items[1].price: is the text "x"', "code": "HUB-1326"}
    error, _ = run(
        produced(Event({"a": 1}), Event({"a": 2})), [reply(200, [WRITTEN, wrong], hub_position="t:0:42")]
    )
    assert isinstance(error, Refused)
    (reason,) = error.reasons
    assert (reason.record, reason.field, reason.code) == (1, "value.items[1].price", "HUB-1326")
    assert error.written == Positions.of([("t", 0, 42)])
    assert "1 of 2 were refused" in error.message
    single, _ = run(produced(Event({"a": 1})), [reply(422, wrong)])
    assert isinstance(single, Refused) and single.reasons[0].field == "value.items[1].price"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("status", "kind"), [(200, Unreachable), (308, Refused), (302, Refused), (403, Refused), (413, Refused)]
)
@pytest.mark.parametrize(
    "body", [b"", b"<html>\n<h1>no</h1>", b'{"message": "no"}', b'{"error_code": 200}\n' * 3]
)
def test_an_answer_that_does_not_tell_of_each_record_is_no_success(
    body: bytes, status: int, kind: type[Exception], count: int
) -> None:
    error, asked = run(produced(*[Event({"a": 1})] * count), [Reply(status, {}, body)])
    assert isinstance(error, kind)
    assert len(asked) == 1


def test_a_record_of_unknown_outcome_is_asked_again_with_its_whole_request() -> None:
    unknown = {"error_code": 503, "message": "the outcome is unknown"}
    position, asked = run(
        produced(Event({"a": 1}), Event({"a": 2}), key="mine"),
        [
            reply(200, [WRITTEN, unknown], hub_position="t:0:42"),
            reply(200, [WRITTEN, WRITTEN], hub_position="t:0:43"),
        ],
    )
    assert position == Positions.of([("t", 0, 43)])
    assert [dict(each.headers)["Idempotency-Key"] for each in asked] == ["mine", "mine"]
    error, _ = run(produced(Event({"a": 1})), [])
    assert isinstance(error, Unreachable) and "hub up" in str(error.hint)


def test_large_batches_are_several_requests_whose_keys_are_the_same_every_time() -> None:
    events = [Event({"n": number}) for number in range(10_001)]
    answers = [
        reply(200, [WRITTEN] * 10_000, hub_position="t:0:10000"),
        reply(200, WRITTEN, hub_position="t:1:1"),
    ]
    for _ in range(2):
        position, asked = run(produced(*events, key="load"), answers)
        assert position == Positions.of([("t", 0, 10_000), ("t", 1, 1)])
        assert [dict(each.headers)["Idempotency-Key"] for each in asked] == ["load", "load.1"]
    big = [Event({"text": "x" * (1 << 20)}) for _ in range(20)]
    assert [count for _, count in requests_of("t", big)] == [11, 9]


def test_events_with_and_without_a_key_of_their_own() -> None:
    ((short, _),) = requests_of("a/b", [Event({"n": 1})])
    assert (short.path, short.body) == ("/topics/a%2Fb/events", b'{"n":1}')
    at = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    told = Event({"n": 1}, key="k", headers={"h": "v"}, partition=2, timestamp=at)
    ((long, _),) = requests_of("t", [told])
    assert long.path == "/v3/clusters/-/topics/t/records"
    assert json.loads(long.body or b"") == {
        "key": {"data": "k"},
        "value": {"data": {"n": 1}},
        "headers": [{"name": "h", "value": "dg=="}],
        "partition_id": 2,
        "timestamp": "2024-02-29T12:30:00+00:00",
    }
    ((tombstone, _),) = requests_of("t", [Event(None, key=b"\x00")])
    assert json.loads(tombstone.body or b"") == {
        "key": {"type": "BINARY", "data": "AA=="},
        "value": {"data": None},
    }
    assert list(requests_of("t", [])) == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([Event({"a": 1}), Event({"a": 1}, key="k")], "some have none"),
        ([Event("text")], "need a key"),
        ([Event({"a": 1}, headers={"h": "v"})], "need a key"),
        ([Event({"a": object()})], "object"),
    ],
)
def test_an_event_that_cannot_be_said_is_refused_before_anything_is_sent(
    events: list[Event], words: str
) -> None:
    error, asked = run(produced(*events), [])
    assert isinstance(error, CallerError) and words in error.message and asked == []


LATE = {
    "error_code": "HUB-3050",
    "message": "late",
    "hint": None,
    "position": "t:0:40",
    "missing": "t:0:42",
}


def test_a_read_waits_for_its_token_as_long_as_the_call_may_take() -> None:
    def get(calls: Calls) -> Any:
        return calls.get("v", "a/b", {"after": Positions.of([("t", 0, 42)])})

    row, asked = run(get, [reply(503, LATE), ConnectionBroken("x"), reply(200, {"key": "a/b"})])
    assert row == {"key": "a/b"}
    assert asked[0].path == "/views/v/a%2Fb"
    assert dict(asked[0].headers)["Hub-Position"] == "t:0:42"
    waits = [int(dict(each.query)["timeout_ms"]) for each in asked]
    assert waits[0] == 10_000 and waits[0] > waits[1]
    error, asked = run(get, [reply(503, LATE)] * 20)
    assert isinstance(error, NotCovered) and len(asked) == 10  # a second each
    assert (str(error.position), str(error.missing), error.lag_records) == ("t:0:40", "t:0:42", 2)
    error, asked = run(get, [reply(503, LATE)], retry=False)
    assert isinstance(error, NotCovered) and len(asked) == 1


def test_without_retries_a_call_is_one_request() -> None:
    error, asked = run(lambda calls: calls.get("v", "k", {}), [ConnectionBroken("x")], retry=False)
    assert isinstance(error, Unreachable) and len(asked) == 1


@pytest.mark.parametrize("key", ["changes", "", ".", "..", "a/history", "a/diff"])
def test_keys_that_no_path_can_say_are_found_all_the_same(key: str) -> None:
    def get(calls: Calls) -> Any:
        return calls.get("v", key, {})

    row, asked = run(get, [reply(200, {"rows": [{"key": key}], "next": None})])
    assert row == {"key": key} and dict(asked[0].query)["key"] == key
    error, _ = run(get, [reply(200, {"rows": [], "next": None})])
    assert isinstance(error, NotFound)


def test_conditions_as_the_routes_take_them() -> None:
    at = datetime(2024, 2, 29, tzinfo=UTC)
    given = {"city": "Oslo", "points.gte": 3, "big": True, "at.lt": at, "key": "k"}
    assert conditions_of(given) == (
        ("city.eq", "Oslo"),
        ("points.gte", "3"),
        ("big.eq", "true"),
        ("at.lt", "2024-02-29T00:00:00+00:00"),
        ("key", "k"),
    )
    assert conditions_of([("n.gte", 1), ("n.gte", 2)]) == (("n.gte", "1"), ("n.gte", "2"))


def test_sql_with_parameters() -> None:
    body = {
        "columns": [{"name": "n", "type": "bigint"}],
        "rows": [{"n": 1}, {"n": 2}],
        "more": True,
        "positions": "t:0:4",
    }
    result, asked = run(
        lambda calls: calls.query("SELECT 1", {"p": datetime(2024, 1, 1, tzinfo=UTC)}, 2, "t:0:3", 5.0),
        [reply(200, body)],
    )
    sent = json.loads(asked[0].body or b"")
    assert sent == {
        "sql": "SELECT 1",
        "parameters": {"p": "2024-01-01T00:00:00+00:00"},
        "timeout_ms": 5_000,
        "limit": 2,
        "after": "t:0:3",
    }
    assert result.rows == [(1,), (2,)] and result.dicts() == body["rows"] and result.truncated
    assert result.columns[0].type == "bigint" and str(result.positions) == "t:0:4"


@pytest.mark.processes
def test_the_client_brings_nothing_of_the_server_along() -> None:
    script = (
        "import sys, hub.client as c; before = set(sys.modules); c.Hub('http://127.0.0.1:1').close();"
        "print(*sorted(m for m in sys.modules if m.startswith('hub.')), '|', *sorted(before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours, _, light = done.stdout.partition("|")
    assert all(
        name.startswith(("hub.client", "hub.errors", "hub.record", "hub.times", "hub.tracing"))
        for name in ours.split()
    )
    heavy = {"httpx2", "websockets", "fastapi", "pyspark", "confluent_kafka", "sqlalchemy", "pydantic"}
    assert not heavy & set(light.split())


@pytest.mark.parametrize("body", ["<html>sign in</html>", [], {}, {"rows": 7}, None])
@pytest.mark.parametrize(
    "asked",
    [
        lambda calls: calls.page("v", {"limit": 1}),
        lambda calls: calls.query("SELECT 1", None, None, None, None),
    ],
)
def test_an_answer_of_something_else_that_is_no_hub_is_an_error_of_the_client(asked: Any, body: Any) -> None:
    error, _ = run(
        asked, [Reply(200, {}, body.encode() if isinstance(body, str) else json.dumps(body).encode())]
    )
    assert isinstance(error, Unreachable) and "proxy" in str(error.hint)


def test_answers_name_the_views_that_still_read_a_backlog() -> None:
    def page(calls: Calls) -> Any:
        return calls.page("v", {"limit": 1})

    body = {"rows": [], "next": None}
    found, _ = run(page, [reply(200, body, **{"hub-catching-up": "v"})])
    assert found.catching_up == ("v",)
    assert run(page, [reply(200, body)])[0].catching_up == ()
    answer = {"columns": [], "rows": [], "more": False, "positions": ""}
    query = [reply(200, {**answer, "catching_up": ["v", "w"]}), reply(200, answer)]
    told = [run(lambda calls: calls.query("SELECT 1", None, None, None, None), [each])[0] for each in query]
    assert [each.catching_up for each in told] == [("v", "w"), ()]


def test_a_row_that_is_none_is_an_error_of_the_client() -> None:
    for body in (b"<html>", b"[1]", b"7"):
        error, _ = run(lambda calls: calls.get("v", "k", {}), [Reply(200, {}, body)])
        assert isinstance(error, Unreachable)


@pytest.mark.parametrize("text", ["Zürich-7", "load\r\nX-Other: 1", "load\x00"])
def test_what_no_header_can_say_is_refused_before_it_is_sent(text: str) -> None:
    error, asked = run(produced(Event({"a": 1}), key=text), [])
    assert isinstance(error, CallerError) and "Idempotency-Key" in error.message and not asked
    error, asked = run(lambda calls: calls.get("v", "k", {"after": text}), [])
    assert isinstance(error, CallerError) and not asked


def test_a_parameter_that_json_cannot_say_is_refused() -> None:
    error, asked = run(lambda calls: calls.query("SELECT :n", {"n": 2**70}, None, None, None), [])
    assert isinstance(error, CallerError) and error.message.startswith("query: ") and not asked


def test_a_conflict_of_versions_names_the_actual_one_and_is_not_repeated() -> None:
    def produce(calls: Calls) -> Any:
        return calls.produce_one("t", {"a": 1}, {"key": "k", "expected_version": "t:0:7"})

    body = {"error_code": 409, "code": "HUB-1931", "message": "its version is t:0:9", "version": "t:0:9"}
    error, asked = run(produce, [reply(409, body)])
    assert isinstance(error, VersionConflict) and error.version == "t:0:9" and len(asked) == 1
    assert dict(asked[0].headers)["Expected-Version"] == "t:0:7"
    # Not known what became of it: the same request, key and version again.
    token, asked = run(produce, [reply(503, {"error_code": 503, "message": "?"}), reply(200, WRITTEN)])
    assert isinstance(token, Positions)
    assert [name for name, _ in set(asked[1].headers) - set(asked[0].headers)] == ["Idempotency-Retry"]
    assert set(asked[0].headers) < set(asked[1].headers)


class FakeHub:
    """A topic with one key, whose view is the number of its events; ``rivals`` append before the next
    append."""

    def __init__(self, rivals: int = 0) -> None:
        self.events: list[Any] = []
        self.rivals = rivals

    def version(self, topic: str, key: str) -> str:
        return f"{topic}:0:{len(self.events)}" if self.events else "none"

    def get(self, view: str, key: str, **options: Any) -> dict[str, Any]:
        if not self.events:
            raise NotFound("no row", code="HUB-1411")
        assert str(options["after"]) == self.version("t", key)
        return {"n": len(self.events)}

    def produce(self, topic: str, value: Any, **options: Any) -> Positions:
        if self.rivals:
            self.rivals -= 1
            self.events.append("rival")
        if options["expected_version"] != self.version(topic, options["key"]):
            raise VersionConflict("moved", self.version(topic, options["key"]))
        self.events.append(value)
        return Positions.of([(topic, 0, len(self.events))])


def test_an_aggregate_decides_anew_on_the_state_that_a_rival_made() -> None:
    hub, seen = FakeHub(rivals=2), list[Any]()

    def decide(row: Any) -> Any:
        seen.append(None if row is None else row["n"])
        return {"on": seen[-1]}

    mine = Aggregate(hub, "t", "k", "v", None)
    written = mine.decide(decide)
    assert seen == [None, 1, 2] and hub.events == ["rival", "rival", {"on": 2}]
    assert mine.version == str(written) == "t:0:3"
    mine.append({"more": 1})  # on the version of its own event
    assert mine.version == "t:0:4"
    assert mine.decide(lambda row: None) is None and len(hub.events) == 4
    hub.rivals = ATTEMPTS
    with pytest.raises(VersionConflict):
        mine.decide(decide)
