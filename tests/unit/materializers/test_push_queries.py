"""Push queries: their grammar, rows of topics and views as they change, limits, and HTTP forms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from patience import patient
from query_hub import ORDERS, QueryHub
from sql_cases import plant

from hub.caller import CALLER, AccessDecision, Action, Caller, Forbidden, Resource
from hub.errors import CallerError
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.push.statement import push_statement
from hub.materializers.serving.subscription_events import SubscriptionEvent

Step = Callable[[SubscriptionEvent], object]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[QueryHub]:
    made = QueryHub(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "table", "start", "limit"),
    [
        ('SELECT id FROM "shop.orders" EMIT CHANGES', "shop.orders", "now", None),
        ("SELECT * FROM plant WHERE n > 3 emit changes from beginning limit 5;", "plant", "beginning", 5),
        ("SELECT n FROM plant EMIT CHANGES FROM NOW", "plant", "now", None),
        (
            "SELECT id FROM \"t\" EMIT CHANGES FROM '2026-01-01T00:00:00Z'",
            *("t", 1_767_225_600_000, None),
        ),
        ("SUBSCRIBE plant", "plant", "beginning", None),
        ("SUBSCRIBE TO (SELECT n FROM plant WHERE n > 1)", "plant", "beginning", None),
        ("subscribe to plant with (snapshot = false)", "plant", "now", None),
    ],
)
def test_a_push_query_says_its_table_start_and_limit(
    text: str, table: str, start: object, limit: int | None
) -> None:
    push = push_statement(text)
    assert push is not None
    assert (push.table, push.start, push.limit) == (table, start, limit)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT emit, changes FROM t", "SELECT 'EMIT CHANGES'", ""])
def test_other_statements_are_no_push_queries(text: str) -> None:
    assert push_statement(text) is None


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("SELECT count(*) FROM t EMIT CHANGES", "the aggregate count() in a push query", None),
        ("SELECT n FROM t GROUP BY n EMIT CHANGES", "GROUP BY in a push query", 26),
        ("SELECT n FROM t LIMIT 3 EMIT CHANGES", "LIMIT before EMIT CHANGES", None),
        ("SELECT n FROM t ORDER BY n EMIT CHANGES", "ORDER BY in a push query", None),
        ("SELECT n FROM a JOIN b ON a.n = b.n EMIT CHANGES", "JOIN in a push query", None),
        ("SELECT n FROM t WHERE n IN (SELECT n FROM s) EMIT CHANGES", "a subquery in a push query", None),
        ("SELECT 1 EMIT CHANGES", "reads one topic or one view", None),
        ("SELECT n FROM t EMIT CHANGES FROM yesterday", 'FROM "yesterday" is not a time', 35),
        ("SELECT n FROM t EMIT CHANGES LIMIT x", 'LIMIT "x" is not a number of rows', 36),
        ("SELECT n FROM t EMIT FINAL", "EMIT FINAL is not supported here", 17),
        ("SELECT nn FRM t EMIT CHANGES", "this is not expected here", None),
        ("SUBSCRIBE TO", "SUBSCRIBE names no table", 1),
    ],
)
def test_what_a_push_query_cannot_say_is_named_with_its_place(
    text: str, message: str, at: int | None
) -> None:
    with pytest.raises(SqlError, match="line 1, column") as refused:
        push_statement(text)
    assert message in refused.value.message
    if at is not None:
        assert refused.value.column == at
    assert refused.value.hint or refused.value.code == "HUB-1442"


def test_a_push_query_sent_as_an_ordinary_one_is_told_where_it_belongs() -> None:
    for text in ("SELECT n FROM plant EMIT CHANGES", "SUBSCRIBE TO plant"):
        with pytest.raises(SqlError, match="push query") as refused:
            parse(text)
        assert "/query/changes" in str(refused.value.hint)


def taken(
    hub: QueryHub,
    sql: str,
    count: int,
    *,
    steps: dict[str, Step] | None = None,
    last: str | None = None,
    **given: Any,
) -> list[SubscriptionEvent]:
    """Return the first ``count`` events; ``steps`` run when an event of that name has come."""
    waiting = dict(steps or {})

    async def read() -> list[SubscriptionEvent]:
        watching = asyncio.create_task(hub.watcher.run())
        found: list[SubscriptionEvent] = []
        try:
            push = push_statement(sql)
            assert push is not None
            opened = await hub.service.push.opened(push, given, last)
            async with asyncio.timeout(patient(20)), aclosing(opened.events) as events:
                async for event in events:
                    found.append(event)
                    if (step := waiting.pop(event.name, None)) is not None:
                        step(event)
                    if len(found) == count:
                        break
        finally:
            watching.cancel()
        return found

    return asyncio.run(read())


def rows(events: list[SubscriptionEvent]) -> list[Any]:
    return [each.body["row"] for each in events if each.name == "row"]


def test_events_of_a_topic_are_projected_and_filtered_as_they_come(hub: QueryHub) -> None:
    for number in range(3):
        hub.order(number)
    sql = f'SELECT upper(id) AS id, cents / 100 AS euros FROM "{ORDERS}" WHERE cents >= :least EMIT CHANGES'
    found = taken(
        hub,
        f"{sql} FROM BEGINNING",
        4,
        steps={"row": lambda _: [hub.order(n) for n in (0, 7)]},
        least=100,
    )
    assert found[0].body == {"columns": [{"name": "id", "type": "string"}, {"name": "euros", "type": "long"}]}
    assert rows(found) == [{"id": "O1", "euros": 1}, {"id": "O2", "euros": 2}, {"id": "O7", "euros": 7}]
    # The id of a page's last event goes on behind it.
    assert rows(taken(hub, f"{sql} FROM BEGINNING", 2, last=str(found[2].mark), least=100)) == [
        {"id": "O7", "euros": 7}
    ]


def test_a_topic_is_read_from_now_from_a_time_and_up_to_a_limit(hub: QueryHub) -> None:
    for number in range(4):
        hub.order(number, at_ms=1_000 * number + 1)
    since = f"SELECT id FROM \"{ORDERS}\" EMIT CHANGES FROM '1970-01-01T00:00:02Z' LIMIT 2"
    found = taken(hub, since, 100)
    assert rows(found) == [{"id": "o2"}, {"id": "o3"}]
    assert found[-1].name == "complete" and found[-1].body == {"rows": 2}
    now = taken(hub, f'SELECT * FROM "{ORDERS}" EMIT CHANGES', 2, steps={"columns": lambda _: hub.order(9)})
    assert [each["id"] for each in rows(now)] == ["o9"] and rows(now)[0]["_offset"] == 4


def test_an_event_that_cannot_be_decoded_is_counted_and_the_others_arrive(hub: QueryHub) -> None:
    hub.order(1)
    hub.publish(b"\0\0\0\0\x09broken")
    hub.order(2)
    found = taken(hub, f'SELECT id FROM "{ORDERS}" EMIT CHANGES FROM BEGINNING', 4)
    assert rows(found) == [{"id": "o1"}, {"id": "o2"}]
    assert [each.body for each in found if each.name == "skipped"] == [{"unreadable": 1}]


def test_rows_of_a_view_arrive_changed_and_leave_when_they_stop_meeting_where(hub: QueryHub) -> None:
    sql = "SELECT lower(city) AS town, n FROM plant AS p WHERE p.n >= 8 EMIT CHANGES FROM BEGINNING"

    def leave(_event: SubscriptionEvent) -> None:
        hub.change("p8", {**plant(8), "n": 1}, 20)
        hub.change("p1", {**plant(1), "n": 50}, 21)
        hub.change("p2", {**plant(2), "city": "Bari"}, 22)
        hub.change("p9", None, 23)

    found = taken(hub, sql, 7, steps={"synced": leave})
    told = [(each.name, each.body) for each in found if each.name != "alive"]
    assert told[1:4] == [
        ("snapshot", {"key": "p8", "row": {"town": None, "n": 8}}),
        ("snapshot", {"key": "p9", "row": {"town": "oslo", "n": 9}}),
        ("synced", {"positions": "views.plant:0:12"}),
    ]
    assert told[4:] == [
        ("delete", {"key": "p8", "row": None}),
        ("upsert", {"key": "p1", "row": {"town": "rome", "n": 50}}),
        ("delete", {"key": "p9", "row": None}),
    ]


def test_a_view_from_now_sends_no_snapshot_and_cannot_begin_at_a_time(hub: QueryHub) -> None:
    found = taken(
        hub,
        "SELECT n FROM plant EMIT CHANGES LIMIT 1",
        3,
        steps={"columns": lambda _: hub.change("p3", {**plant(3), "n": 77}, 30)},
    )
    names = [each.name for each in found]
    assert names[0] == "columns" and "snapshot" not in names
    with pytest.raises(SqlError, match="cannot begin at a time"):
        taken(hub, "SELECT n FROM plant EMIT CHANGES FROM '2026-01-01T00:00:00Z'", 1)


def test_names_ids_and_grants_are_checked_before_the_first_row(hub: QueryHub) -> None:
    with pytest.raises(SqlError, match='no view and no topic "plan": did you mean "plant"'):
        taken(hub, "SELECT n FROM plan EMIT CHANGES", 1)
    with pytest.raises(SqlError, match='no column "m"'):
        taken(hub, "SELECT m FROM plant EMIT CHANGES", 1)
    with pytest.raises(CallerError, match="Last-Event-ID"):
        taken(hub, f'SELECT id FROM "{ORDERS}" EMIT CHANGES', 1, last="views.x:0:1")

    def decide(action: Action, what: Resource) -> AccessDecision:
        return AccessDecision(action is Action.describe, f"may not {action} {what}")

    token = CALLER.set(Caller("eve", frozenset(), decide))
    try:
        for table in ("plant", f'"{ORDERS}"'):
            with pytest.raises(Forbidden):
                taken(hub, f"SELECT * FROM {table} EMIT CHANGES", 1)
    finally:
        CALLER.reset(token)


def test_http_answers_with_events_or_lines_and_errors_with_their_place(hub: QueryHub) -> None:
    for number in range(3):
        hub.order(number)
    sql = f'SELECT id FROM "{ORDERS}" WHERE cents < :most EMIT CHANGES FROM BEGINNING LIMIT 2'
    with TestClient(hub.app) as client:
        lines = client.get("/query/changes", params={"sql": sql, "format": "ndjson", "most": "900"})
        assert lines.headers["content-type"] == "application/x-ndjson"
        found = [json.loads(line) for line in lines.text.splitlines()]
        assert [each["event"] for each in found] == ["columns", "row", "row", "complete"]
        assert found[1]["data"] == {"row": {"id": "o0"}}
        events = client.get("/query/changes", params={"sql": sql, "most": "900"})
        assert events.headers["content-type"].startswith("text/event-stream")
        assert 'event: row\ndata: {"row":{"id":"o1"}}' in events.text
        wrong = client.get("/query/changes", params={"sql": "SELECT nope FROM plant EMIT CHANGES"})
        assert (wrong.status_code, wrong.json()["column"]) == (400, 8)
        assert client.get("/query/changes", params={"sql": "SELECT 1"}).json()["error_code"] == "HUB-1465"
        with client.websocket_connect(
            "/query/changes?" + "sql=" + sql.replace(" ", "%20") + "&most=900"
        ) as ws:
            got = [json.loads(ws.receive_text()) for _ in range(4)]
        assert [each["event"] for each in got] == ["columns", "row", "row", "complete"]
