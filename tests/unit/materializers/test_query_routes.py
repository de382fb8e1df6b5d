"""Queries over HTTP: formats, tokens, errors with a place, saved queries, events of topics, ordered pages."""

from __future__ import annotations

import asyncio
import csv
import datetime as dt
import io
import json
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sql_cases import HOUR_MS, NEW_YEAR_MS, fill, plant, schema

from hub.api.app import on_hub_error
from hub.errors import HubError, NotFound
from hub.log import MemoryCluster
from hub.materializers.queries.answering import service as query_service
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http.routes import create_router
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.serving import routes
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import NewRecord, Positions
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.wire_format import encode, frame, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource

FLIGHTS = "nyc.jfk.departures"
FIRST = {
    "type": "record",
    "name": "Departure",
    "fields": [
        {"name": "plant", "type": "string"},
        {"name": "delay", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "crew", "type": {"type": "array", "items": "string"}},
        {"name": "gate", "type": "int"},
        {"name": "_topic", "type": "string"},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        *[each for each in FIRST["fields"] if each["name"] != "gate"],  # type: ignore[index]
        {"name": "gate", "type": "string"},
        {"name": "late", "type": ["null", "boolean"], "default": None},
    ],
}
DEEP = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


class Registry:
    """Schemas by id, in memory."""

    def __init__(self) -> None:
        self.known = {1: ("AVRO", FIRST), 2: ("AVRO", SECOND), 3: ("AVRO", DEEP)}
        self.subjects = {f"{FLIGHTS}-value": [1, 2]}

    def versions(self, subject: str) -> list[RegisteredSchema]:
        ids = self.subjects.get(subject, [])
        return [RegisteredSchema(each, n + 1, json.dumps(self.known[each][1])) for n, each in enumerate(ids)]

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id not in self.known:
            raise NotFound(f"schema {schema_id} not found")
        kind, found = self.known[schema_id]
        return SchemaSource.of(kind, found if isinstance(found, str) else json.dumps(found))


class Hub:
    """A store, a log and an app over both."""

    def __init__(self, folder: Path) -> None:
        self.project = folder
        self.store = Store(f"sqlite:///{folder / 'store.db'}")
        fill(self.store)
        self.queries = QueryExecutor(self.store)
        self.cluster = MemoryCluster()
        self.registry = Registry()
        self.topics = TopicTables(self.cluster, self.registry)
        self.app = FastAPI()
        self.app.add_exception_handler(HubError, on_hub_error)
        self.app.include_router(routes.create_router(self.store, Watcher(self.store), 50))
        self.app.include_router(
            create_router(
                QueryService.of(self.store, Watcher(self.store), self.queries, self.topics, folder, 3_000)
            )
        )

    def publish(self, topic: str, value: bytes | None, **more: Any) -> None:
        if topic not in self.cluster.logs:
            self.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
        self.cluster.writer().append([NewRecord(topic, more.pop("key", b"k"), value, **more)])

    def departure(self, number: int, schema_id: int = 2) -> None:
        value = {
            "plant": f"p{number % 4}",
            "delay": number,
            "at": NEW_YEAR_MS * 1000 + number * 1_000_000,
            "crew": ["ann", f"bob{number}"],
            "gate": number if schema_id == 1 else f"G{number}",
            "_topic": "theirs",
            "late": number > 2,
        }
        if schema_id == 1:
            del value["late"]
        framed = encode(schema_id, parsed(FIRST if schema_id == 1 else SECOND), value)
        when = NEW_YEAR_MS + number * HOUR_MS
        self.publish(FLIGHTS, framed, partition=number % 2, timestamp_ms=when)

    def close(self) -> None:
        self.queries.close()
        self.store.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path)
    yield made
    made.close()


@pytest.fixture
def http(hub: Hub) -> Iterator[TestClient]:
    with TestClient(hub.app) as client:
        yield client


def ask(http: TestClient, sql: str, **more: Any) -> Any:
    answer = http.post("/query", json={"sql": sql, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_rows_columns_positions_and_whether_there_are_more(http: TestClient) -> None:
    answer = http.post("/query", json={"sql": "SELECT city, seen FROM plant ORDER BY n", "limit": 2})
    body = answer.json()
    assert body["columns"] == [{"name": "city", "type": "string"}, {"name": "seen", "type": "timestamp"}]
    assert body["rows"][0] == {"city": "Oslo", "seen": "2026-01-01T00:00:00.000Z"}
    assert body["more"] is True and len(body["rows"]) == 2
    assert body["views"] == ["plant"] and body["scanned"] == []
    assert answer.headers["Hub-Position"] == body["positions"] == "in:0:7"
    assert answer.headers["Hub-More"] == "true"


def test_lines_and_csv(http: TestClient) -> None:
    sql = "SELECT n, big, tags->1->'c' AS c, city FROM plant WHERE n = 2"
    lines = http.post("/query", json={"sql": sql, "format": "ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson" and lines.headers["Hub-More"] == "false"
    assert [json.loads(line) for line in lines.text.splitlines()] == [
        {"n": 2, "big": True, "c": [1, 2.5, None], "city": None}
    ]
    table = http.post("/query", json={"sql": sql, "format": "csv"})
    assert list(csv.reader(io.StringIO(table.text))) == [
        ["n", "big", "c", "city"],
        ["2", "true", "[1,2.5,null]", ""],
    ]


def test_an_error_has_a_place_and_a_caret(http: TestClient) -> None:
    answer = http.post("/query", json={"sql": "SELECT celsious FROM plant"})
    assert answer.status_code == 400
    body = answer.json()
    assert (body["error_code"], body["line"], body["column"]) == ("HUB-1471", 1, 8)
    assert body["caret"].endswith("       ^^^^^^^^") and 'did you mean "celsius"' in body["message"]
    assert http.post("/query", json={"sql": "DROP TABLE x"}).status_code == 400
    assert http.post("/query", json={"sql": "SELECT 1", "limit": 10**6}).status_code == 422


def test_a_view_without_a_table_is_not_called_unknown(hub: Hub, http: TestClient) -> None:
    """The view's store was lost and is being refilled, or it has just been added."""
    hub.store.apply([], {"state:fresh": {"state": "starting", "reason": "its first batch runs"}})
    answer = http.post("/query", json={"sql": "SELECT count(*) AS n FROM fresh"})
    assert (answer.status_code, answer.json()["error_code"]) == (503, "HUB-3053")
    assert answer.json()["message"] == 'view "fresh" has no rows yet: it is starting'
    assert http.post("/query", json={"sql": "SELECT count(*) AS n FROM strange"}).status_code == 400


def test_it_waits_for_the_write_it_names(hub: Hub, http: TestClient) -> None:
    told = {"progress:plant": {"sources": {"in": 0}}, "progress:customer": {"sources": {"in": 0, "x": 0}}}
    hub.store.apply([], told)
    assert ask(http, "SELECT 1 AS one FROM plant LIMIT 1", after="in:0:7")["rows"] == [{"one": 1}]
    late = http.post(
        "/query", json={"sql": "SELECT 1 FROM plant, customer", "after": "x:0:9", "timeout_ms": 100}
    )
    assert late.status_code == 503 and 'view "customer" does not cover' in late.json()["message"]
    header = http.post(
        "/query", json={"sql": "SELECT 1 FROM plant", "timeout_ms": 50}, headers={"Hub-Position": "in:0:99"}
    )
    assert header.status_code == 503
    other = http.post("/query", json={"sql": "SELECT 1 FROM plant", "after": "elsewhere:0:1"})
    assert other.status_code == 400 and "not a source of view" in other.json()["message"]


def in_step(hub: Hub, state: str = "together", **more: Any) -> None:
    """Put both views in a group, the store at its snapshot or not, as the applier notes it."""
    views = {
        name: {"generation": 1, "changelog": {"0": end}, "topics": topics}
        for name, end, topics in (("plant", 12, ["in"]), ("customer", 8, ["in", "x"]))
    }
    mark = {"state": state, "cut": "shop", "at": {"in": {"0": 7}, "x": {"0": 1}}, "views": views, "at_ms": 5}
    told = {f"state:{view}": {"cut": "shop", "sources": {}} for view in views}
    hub.store.apply([], {**told, "cut:shop": {**mark, **more}})


BOTH = "SELECT (SELECT count(*) FROM plant) AS p, (SELECT count(*) FROM customer) AS c"


def test_an_answer_says_at_which_cut_its_views_are(hub: Hub, http: TestClient) -> None:
    assert ask(http, BOTH)["cut"] is None
    in_step(hub)
    assert ask(http, BOTH)["cut"] == {"name": "shop", "at": "in:0:7,x:0:1"}
    # Only their own part of the snapshot: a caller who may not see the other views sees none of their topics.
    answer = http.post("/query", json={"sql": "SELECT key FROM plant", "cut": "required", "format": "csv"})
    assert answer.headers["Hub-Cut"] == "shop"
    assert ask(http, "SELECT key FROM plant", cut="required")["cut"]["at"] == "in:0:7"
    # The rows of one of them advance without the other.
    hub.store.apply([ViewBatch("plant", [], Positions.of([("views.plant", 0, 13)]))])
    assert ask(http, BOTH)["cut"] is None
    assert ask(http, "SELECT key FROM customer")["cut"]["name"] == "shop"


def test_a_cut_that_is_demanded_is_waited_for_or_it_is_said_why_there_is_none(
    hub: Hub, http: TestClient
) -> None:
    alone = http.post("/query", json={"sql": BOTH, "cut": "required"})
    assert (alone.status_code, alone.json()["error_code"]) == (400, "HUB-1455")
    assert 'view "plant" is of no group' in alone.json()["message"]
    in_step(hub, "apart", why="rows have waited for a cut for 10 s", since_ms=1)
    apart = http.post("/query", json={"sql": BOTH, "cut": "required", "timeout_ms": 100})
    assert (apart.status_code, apart.json()["error_code"]) == (503, "HUB-3060")
    assert "rows have waited for a cut" in apart.json()["message"]

    timer = threading.Timer(0.3, in_step, [hub])
    timer.start()
    assert ask(http, BOTH, cut="required", timeout_ms=3_000)["cut"]["name"] == "shop"
    timer.join()
    hub.departure(1)
    events = http.post("/query", json={"sql": f'SELECT count(*) FROM plant, "{FLIGHTS}"', "cut": "required"})
    assert events.status_code == 400
    assert "events of topics are at no cut" in events.json()["message"]
    assert ask(http, f'SELECT count(*) FROM plant, "{FLIGHTS}"')["cut"] is None
    assert http.post("/query", json={"sql": BOTH, "cut": "maybe"}).status_code == 422


def test_who_waits_keeps_nobody_from_asking_and_not_without_number(
    hub: Hub, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits for a snapshot or a write holds none of the few slots for running queries."""
    in_step(hub, "apart", why="rows have waited for a cut for 10 s", since_ms=1)
    hub.store.apply([], {f"progress:{view}": {"sources": {"in": 0}} for view in ("plant", "customer")})
    waiting, answers = [0], list[int]()
    for module, name in ((query_service, "_until_news"), (query_service, "wait_for")):
        monkeypatch.setattr(module, name, counting(getattr(module, name), waiting))

    def wait(number: int) -> None:
        more = {"after": "in:0:99"} if number % 2 else {"cut": "required"}
        answers.append(http.post("/query", json={"sql": BOTH, "timeout_ms": 60_000, **more}).status_code)

    def asked() -> int:
        return http.post("/query", json={"sql": BOTH, "timeout_ms": 2_000}).status_code

    threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(36)]
    for number, thread in enumerate(threads):
        thread.start()
        deadline = time.monotonic() + 20.0
        while waiting[0] <= number:
            assert time.monotonic() < deadline, (number, waiting, answers)
            time.sleep(0.001)
        if number == 10:
            assert asked() == 200
    refused = http.post("/query", json={"sql": BOTH, "timeout_ms": 2_000})
    assert (refused.status_code, refused.json()["error_code"]) == (503, "HUB-3066")
    for view, end in (("plant", 12), ("customer", 8)):
        at, covered = Positions.of([(f"views.{view}", 0, end)]), Positions.of([("in", 0, 99)])
        hub.store.apply([ViewBatch(view, [], at, covered)])
    in_step(hub)
    for thread in threads:
        thread.join(90.0)
    assert answers == [200] * 36 and asked() == 200


def counting(wait: Callable[..., Awaitable[None]], calls: list[int]) -> Callable[..., Awaitable[None]]:
    """Return ``wait`` with a count of its calls, without the first call of each task."""
    tasks = set[Any]()

    async def counted(*arguments: Any) -> None:
        task = asyncio.current_task()
        if task not in tasks:
            tasks.add(task)
            calls[0] += 1
        await wait(*arguments)

    return counted


def test_what_demands_a_cut_is_not_run_without_one(hub: Hub, http: TestClient) -> None:
    """A query like this would take long, and its rows would be discarded."""
    in_step(hub, "apart", since_ms=1)
    tables = ", ".join(f"plant t{n}" for n in range(12))
    body = {"sql": f"SELECT count(*) FROM {tables}", "cut": "required", "timeout_ms": 300}
    refused = http.post("/query", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (503, "HUB-3060")
    misspelled = http.post("/query", json={"sql": "SELECT key FROM plnt", "cut": "required"})
    assert misspelled.status_code == 400 and 'did you mean "plant"?' in misspelled.json()["message"]


def test_views_tell_their_group_and_its_state(hub: Hub, http: TestClient) -> None:
    in_step(hub)
    hub.store.apply(
        [],
        {
            "group:shop": {"state": "apart", "why": 'view "customer" is failed', "views": []},
            "progress:plant": {"sources": {"in": {"0": 7}}},
        },
    )
    views = {each["view"]: each for each in http.get("/views").json()["views"]}
    assert views["plant"]["cut"] == {
        "name": "shop",
        "state": "together",
        "why": None,
        "since_ms": None,
        "engine": "apart",
        "engine_why": 'view "customer" is failed',
        "at": "in:0:7",
        "views": ["customer", "plant"],
    }
    hub.store.apply([ViewBatch("plant", [], Positions.of([("views.plant", 0, 13)]))])
    apart = {each["view"]: each for each in http.get("/views").json()["views"]}["customer"]["cut"]
    assert (apart["state"], apart["engine"]) == ("apart", "apart")
    assert 'the rows of view "plant" are not at the cut' in apart["why"]


def test_the_time_limit_is_the_callers(http: TestClient) -> None:
    tables = ", ".join(f"plant t{n}" for n in range(12))
    answer = http.post("/query", json={"sql": f"SELECT count(*) FROM {tables}", "timeout_ms": 200})
    assert answer.status_code == 400 and answer.json()["error_code"] == "HUB-1472"


def test_saved_queries(hub: Hub, http: TestClient) -> None:
    (hub.project / "queries").mkdir()
    (hub.project / "queries" / "in_city.sql").write_text(
        "-- Plants of a city.\nSELECT n FROM plant\nWHERE city = :city AND n >= :least ORDER BY n;\n"
    )
    (listed,) = http.get("/queries").json()["queries"]
    assert listed["query"] == "in_city" and listed["doc"] == "Plants of a city."
    assert sorted(listed["parameters"]) == ["city", "least"]
    answer = http.get("/queries/in_city?city=Oslo&least=3&limit=2")
    assert answer.json()["rows"] == [{"n": 3}, {"n": 6}] and answer.json()["more"] is True
    assert http.get("/queries/in_city?city=Oslo&least=8&format=csv").text == "n\r\n9\r\n"
    missing = http.get("/queries/in_city?city=Oslo").json()
    assert 'parameter "least" was not given' in missing["message"] and missing["line"] == 3
    unknown = http.get("/queries/in_cty")
    assert unknown.status_code == 404 and unknown.json()["hint"] == 'did you mean "in_city"?'


def test_what_there_is_to_ask(hub: Hub, http: TestClient) -> None:
    tables = http.get("/query/tables").json()
    plant = next(each for each in tables["views"] if each["view"] == "plant")
    assert plant["columns"][0] == {"name": "key", "type": "string"} and plant["indexes"][0] == "city"
    assert [each["name"] for each in plant["hidden"]] == ["_version", "_applied_at"]
    assert "date_trunc" in tables["functions"]
    hub.departure(0)
    columns = {each["name"]: each["type"] for each in http.get(f"/query/topics/{FLIGHTS}").json()["columns"]}
    assert columns["delay"] == "long" and columns["gate"] == "json" and columns["_timestamp"] == "timestamp"
    assert http.get("/query/topics/none").status_code == 404


# ---- events


def test_recent_events_are_a_table_and_the_answer_says_what_it_scanned(hub: Hub, http: TestClient) -> None:
    for number in range(10):
        hub.departure(number, schema_id=1 if number < 5 else 2)
    body = ask(
        http,
        f'SELECT delay, "at", crew->>1 AS c, gate, late, _offset, _key, _topic FROM "{FLIGHTS}" ORDER '
        "BY delay DESC LIMIT 1",
    )
    assert body["rows"] == [
        {
            "delay": 9,
            "at": "2026-01-01T00:00:09.000Z",
            "c": "bob9",
            "gate": "G9",
            "late": True,
            "_offset": 4,
            "_key": "k",
            "_topic": FLIGHTS,
        }
    ]
    assert [(each["partition"], each["from"], each["to"], each["events"]) for each in body["scanned"]] == [
        (0, 0, 5, 5),
        (1, 0, 5, 5),
    ]
    first = ask(http, f"SELECT gate, late, _value->>'_topic' AS theirs FROM \"{FLIGHTS}\" WHERE delay = 0")[
        "rows"
    ]
    assert first == [{"gate": 0, "late": None, "theirs": "theirs"}]
    few = ask(http, f'SELECT count(*) AS n FROM "{FLIGHTS}"', events=2)
    assert (
        few["rows"] == [{"n": 4}] and few["scanned"][0]["from"] == 3 and few["scanned"][0]["earlier_left_out"]
    )
    assert "Hub-Position" not in http.post("/query", json={"sql": f'SELECT 1 FROM "{FLIGHTS}"'}).headers


def test_events_since_a_time_are_found_by_the_time_index(hub: Hub, http: TestClient) -> None:
    for number in range(10):
        hub.departure(number)
    later = "2026-01-01T07:00:00Z"
    for body in (
        ask(http, f'SELECT count(*) AS n FROM "{FLIGHTS}"', since=later),
        ask(http, f"SELECT count(*) AS n FROM \"{FLIGHTS}\" WHERE _timestamp >= '{later}'"),
        ask(http, f'SELECT count(*) AS n FROM "{FLIGHTS}" WHERE _timestamp >= :t', parameters={"t": later}),
    ):
        assert body["rows"] == [{"n": 3}]
        assert sum(each["events"] for each in body["scanned"]) == 3
    refused = http.post("/query", json={"sql": "SELECT 1", "since": "yesterday"})
    assert refused.status_code == 400


def test_events_beside_views_in_one_query(hub: Hub, http: TestClient) -> None:
    for number in range(8):
        hub.departure(number)
    body = ask(
        http,
        f'SELECT p.city, sum(d.delay) AS delay FROM "{FLIGHTS}" d JOIN plant p ON p.key = d.plant '
        "GROUP BY p.city ORDER BY 1",
    )
    assert body["rows"] == [
        {"city": "Oslo", "delay": 14},
        {"city": "Rome", "delay": 6},
        {"city": None, "delay": 8},
    ]
    assert body["positions"] == "in:0:7" and body["views"] == ["plant"]


def test_what_cannot_be_read_is_counted(hub: Hub, http: TestClient) -> None:
    hub.departure(0)
    hub.publish(FLIGHTS, None, partition=0)
    for broken in (b"\x00\x00\x00\x00\x02\xff", frame(77, b"x"), b"not json", frame(3, b"\x02" * 20_000)):
        hub.publish(FLIGHTS, broken, partition=0)
    body = ask(http, f'SELECT _offset, _deleted, delay FROM "{FLIGHTS}"')
    assert body["rows"] == [
        {"_offset": 0, "_deleted": False, "delay": 0},
        {"_offset": 1, "_deleted": True, "delay": None},
    ]
    assert (body["scanned"][0]["events"], body["scanned"][0]["unreadable"]) == (6, 4)


def test_names_are_matched_without_regard_to_case(hub: Hub, http: TestClient) -> None:
    hub.departure(7)
    rows = ask(http, f"SELECT DELAY, Late, _OFFSET, _VALUE->>'plant' AS p FROM \"{FLIGHTS}\"")["rows"]
    assert rows == [{"DELAY": 7, "Late": True, "_OFFSET": 0, "p": "p3"}]
    shown = ask(http, f'SELECT *, _value FROM "{FLIGHTS}"')["rows"][0]
    assert shown["delay"] == 7 and shown["_value"]["delay"] == 7


def test_a_time_that_a_subquery_makes_narrows_nothing(hub: Hub, http: TestClient) -> None:
    for number in range(10):
        hub.departure(number)
    counted = f'SELECT plant, count(*) AS n, max(_timestamp) AS _timestamp FROM "{FLIGHTS}" GROUP BY 1'
    rows = ask(http, f"SELECT n FROM ({counted}) t WHERE _timestamp >= '2026-01-01T08:00:00Z'")["rows"]
    assert rows == [{"n": 3}, {"n": 3}]


def test_of_names_equal_without_case_the_newest_is_a_column(hub: Hub, http: TestClient) -> None:
    """SQLite, where the events are asked, knows names without case."""

    def described(*names: str) -> Any:
        return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}

    hub.registry.known |= {
        7: ("JSON", described("a", "userID", "_KEY")),
        8: ("JSON", described("userId", "b\0")),
    }
    hub.registry.known[4] = ("JSON", described("userId"))  # type: ignore[assignment]
    hub.registry.subjects |= {"u-value": [4, 7, 8]}
    hub.publish("u", frame(7, b'{"a": 1, "userID": 2, "_KEY": 3}'), partition=0)
    hub.publish("u", frame(8, b'{"userId": 4, "b\\u0000": 5}'), partition=0)
    body = ask(http, "SELECT a, userid, _key, _value FROM u ORDER BY _offset")
    assert body["rows"] == [
        {"a": 1, "userid": None, "_key": "k", "_value": {"a": 1, "userID": 2, "_KEY": 3}},
        {"a": None, "userid": 4, "_key": "k", "_value": {"userId": 4, "b\0": 5}},
    ]
    columns = [each["name"] for each in http.get("/query/topics/u").json()["columns"]]
    assert columns[:3] == ["userId", "a", "_topic"]


def test_events_of_earlier_versions_have_the_newest_one_s_names_and_defaults(
    hub: Hub, http: TestClient
) -> None:
    """Avro, JSON Schema and Protobuf. ``_value`` alone is the event as it was written."""

    def sale(**fields: Any) -> Any:
        made = [
            {"name": name, **(of if isinstance(of, dict) else {"type": of})} for name, of in fields.items()
        ]
        return {"type": "record", "name": "Sale", "fields": made}

    text = {"type": "object", "properties": {"cur": {"type": "string", "default": "EUR"}}}
    proto = 'syntax = "proto2"; message Sale {{ optional int32 {} = 1; {} }}'
    first = sale(id="long", amt="int", at={"type": {"type": "long", "logicalType": "timestamp-micros"}})
    second = sale(
        id="long",
        amount={"type": "long", "aliases": ["amt"]},
        cur={"type": "string", "default": "EUR"},
        at={"type": {"type": "long", "logicalType": "timestamp-micros"}},
    )
    hub.registry.known |= {
        21: ("AVRO", first),
        22: ("AVRO", second),
        23: ("JSON", text),
        24: ("PROTOBUF", proto.format("amt", "")),
        25: ("PROTOBUF", proto.format("amount", 'optional string cur = 2 [default = "EUR"];')),
    }  # type: ignore[assignment,dict-item]
    hub.registry.subjects |= {"sales-value": [21, 22], "texts-value": [23], "messages-value": [24, 25]}
    at = NEW_YEAR_MS * 1000
    hub.publish("sales", encode(21, parsed(first), {"id": 1, "amt": 5, "at": at}), partition=0)
    hub.publish(
        "sales", encode(22, parsed(second), {"id": 2, "amount": 6, "cur": "USD", "at": at}), partition=0
    )
    hub.publish("texts", frame(23, b"{}"), partition=0)
    hub.publish("messages", frame(24, b"\x00\x08\x05"), partition=0)
    rows = ask(http, "SELECT id, amount, cur, at, _value->>'amt' AS amt FROM sales ORDER BY id")["rows"]
    assert rows == [
        {"id": 1, "amount": 5, "cur": "EUR", "at": "2026-01-01T00:00:00.000Z", "amt": "5"},
        {"id": 2, "amount": 6, "cur": "USD", "at": "2026-01-01T00:00:00.000Z", "amt": None},
    ]
    columns = [each["name"] for each in http.get("/query/topics/sales").json()["columns"]]
    assert "amt" not in columns and "amount" in columns
    assert ask(http, "SELECT cur FROM texts")["rows"] == [{"cur": "EUR"}]
    assert ask(http, "SELECT amount, cur FROM messages")["rows"] == [{"amount": 5, "cur": "EUR"}]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("delay", b"9223372036854775808"),
        ("delay", b"1e30"),
        ("at", b"9223372036854775808"),
        ("at", b"[1]"),
        ("at", b'"today"'),
        ("price", b'"dear"'),
        ("raw", b'"ff"'),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_counted(
    hub: Hub, http: TestClient, column: str, value: bytes
) -> None:
    """A single event does not make a topic unreadable; events without a schema id may hold any values."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    more = [{"name": "price", "type": price}, {"name": "raw", "type": "bytes"}]
    hub.registry.known |= {9: ("AVRO", {**FIRST, "fields": [*FIRST["fields"], *more]})}  # type: ignore[misc]
    hub.registry.subjects |= {"odd-value": [9]}
    hub.publish("odd", b'{"plant": "p1"}', partition=0)
    hub.publish("odd", b'{"plant": "p2", "%s": %s}' % (column.encode(), value), partition=0)
    body = ask(http, f'SELECT plant, "{column}" FROM odd')
    assert body["rows"] == [{"plant": "p1", column: None}]
    assert body["scanned"][0]["unreadable"] == 1
    assert len(ask(http, "SELECT plant FROM odd")["rows"]) == 2


def test_unsigned_64_bits_are_decimals_as_in_views(hub: Hub, http: TestClient) -> None:
    proto = 'syntax = "proto3"; message M { uint64 id = 1; fixed64 f = 2; uint32 n = 3; }'
    hub.registry.known |= {6: ("PROTOBUF", proto)}  # type: ignore[dict-item]
    hub.registry.subjects |= {"p-value": [6]}
    hub.publish("p", frame(6, b"\x00\x08" + b"\xff" * 9 + b"\x01\x11" + b"\xff" * 8), partition=0)
    body = ask(http, "SELECT id, f, n, id > 5 AS more FROM p")
    largest = str(2**64 - 1)
    assert body["rows"] == [{"id": largest, "f": largest, "n": 0, "more": True}]
    assert [each["type"] for each in body["columns"]] == ["decimal", "decimal", "long", "boolean"]


def test_a_topic_without_a_schema_is_its_value(hub: Hub, http: TestClient) -> None:
    hub.publish("plain", b'{"a": {"b": 5}}', partition=0)
    hub.publish("plain", b"[1, 2]", partition=0)
    rows = ask(http, "SELECT _value->'a'->>'b' AS b, _value FROM plain ORDER BY _offset")["rows"]
    assert rows == [{"b": "5", "_value": {"a": {"b": 5}}}, {"b": None, "_value": [1, 2]}]
    refused = http.post("/query", json={"sql": "SELECT a FROM plain"}).json()
    assert 'no column "a" in topic plain' in refused["message"]


def test_json_schema_and_protobuf_topics(hub: Hub, http: TestClient) -> None:
    described = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "w": {"type": ["number", "null"]}, "o": {"type": "object"}},
    }
    proto = 'syntax = "proto3"; message M { int64 id = 1; string name = 2; repeated int32 n = 3; }'
    hub.registry.known |= {5: ("JSON", described), 6: ("PROTOBUF", proto)}  # type: ignore[dict-item]
    hub.registry.subjects |= {"j-value": [5], "p-value": [6]}
    hub.publish("j", frame(5, b'{"id": 7, "w": 1.5, "o": {"x": 1}}'), partition=0)
    hub.publish("j", frame(5, b'{"id": "seven"}'), partition=0)
    hub.publish("p", frame(6, b"\x00" + b"\x08\x96\x01" + b"\x12\x02ab" + b"\x1a\x02\x01\x02"), partition=0)
    body = ask(http, "SELECT id, w, o FROM j")
    assert body["rows"] == [{"id": 7, "w": 1.5, "o": {"x": 1}}] and body["scanned"][0]["unreadable"] == 1
    assert ask(http, "SELECT id, name, n FROM p")["rows"] == [{"id": 150, "name": "ab", "n": [1, 2]}]


def test_a_wrong_name_is_refused_before_events_are_read(
    hub: Hub, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.departure(0)
    monkeypatch.setattr(TopicTables, "read", lambda *_a, **_k: pytest.fail("read"))
    refused = http.post("/query", json={"sql": f'SELECT dely FROM "{FLIGHTS}"'}).json()
    assert f'no column "dely" in topic {FLIGHTS}: did you mean "delay"?' in refused["message"]
    bare = http.post("/query", json={"sql": f"SELECT 1 FROM {FLIGHTS}"}).json()
    assert bare["hint"] == f'FROM "{FLIGHTS}"'
    near = http.post("/query", json={"sql": 'SELECT 1 FROM "nyc.jfk.departure"'}).json()
    assert f'did you mean "{FLIGHTS}"?' in near["message"] and near["column"] == 15
    assert (
        "no view and no topic" in http.post("/query", json={"sql": 'SELECT 1 FROM "__x"'}).json()["message"]
    )


def test_too_many_bytes_of_events_are_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.materializers.queries.topic_rows.MOST_BYTES", 500)
    for number in range(10):
        hub.departure(number)
    table = hub.topics.table(FLIGHTS)
    assert table is not None
    with pytest.raises(SqlError, match="more than"):
        hub.topics.read(table, frozenset("*"), RunningQuery(time.monotonic() + 10))


# ---- pages in order


@pytest.mark.parametrize(
    "order", ["city", "-city", "n", "-n", "city,-n", "-city,n", "note,city", "key", "-key", "city,-key"]
)
@pytest.mark.parametrize("limit", [1, 3, 4])
def test_pages_in_order_are_the_whole_once(http: TestClient, order: str, limit: int) -> None:
    whole = http.get(f"/views/plant?order={order}&limit=100").json()["rows"]
    assert [row["key"] for row in whole] == expected(order)
    found, after = [], None
    while True:
        page = http.get(
            "/views/plant", params={"order": order, "limit": limit, **({"after": after} if after else {})}
        ).json()
        found += page["rows"]
        after = page["next"]
        if after is None:
            break
    assert found == whole


def expected(order: str) -> list[str]:
    rows = [{**plant(n), "key": f"p{n}"} for n in range(10)]
    last = order.split(",")[-1]
    parts = [*order.split(","), "-key" if last.startswith("-") else "key"]
    for part in reversed(parts):
        name, down = part.removeprefix("-"), part.startswith("-")
        rows.sort(
            key=lambda row: (row[name] is None, row[name] if row[name] is not None else ""), reverse=down
        )
    return [row["key"] for row in rows]


def test_a_page_begins_behind_the_last_whatever_came_meanwhile(hub: Hub, http: TestClient) -> None:
    chance = random.Random(3)
    page = http.get("/views/plant?order=city,-n&limit=3").json()
    seen = [row["key"] for row in page["rows"]]
    # The last row moves, another comes before it: neither is shown twice, nothing behind is left out.
    moved = {"city": "Aa", "n": 5, "note": chance.choice("xyz")}
    hub.store.apply(
        [
            ViewBatch(
                "plant",
                [RowVersion(seen[-1], 100, 0, 50, moved), RowVersion("new", 101, 0, 51, moved)],
                Positions(),
            )
        ]
    )
    rest = http.get("/views/plant", params={"order": "city,-n", "limit": 100, "after": page["next"]}).json()
    keys = [row["key"] for row in rest["rows"]]
    assert set(keys) == {f"p{n}" for n in range(10)} - set(seen)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("order=celsius", "add it to `indexes`"),
        ("order=cty", 'did you mean "city"'),
        ("order=price", "POST /query"),
        ("order=city,city", "twice"),
        ("order=city&after=nonsense", "none of this order"),
        ("order=city&after=WyJuIixbMSwicDEiXV0", "none of this order"),
        ("order=city&after=WyJjaXR5LGtleSIsW3t9LCJwMSJdXQ", "none of this order"),
        ("fields=nme", "has no field"),
        ("fields=citi", 'did you mean "city"'),
    ],
)
def test_what_has_no_order_says_the_way_out(http: TestClient, query: str, words: str) -> None:
    answer = http.get(f"/views/plant?{query}")
    assert answer.status_code == 400
    assert words in answer.json()["message"] + str(answer.json()["hint"])


def test_only_the_fields_that_are_asked_for(http: TestClient) -> None:
    rows = http.get("/views/plant?fields=city,_version&order=-n&limit=1&city=Oslo").json()["rows"]
    assert rows == [{"key": "p9", "city": "Oslo", "_version": 10}]
    assert http.get("/views/plant?fields=&limit=1").json()["rows"] == [{"key": "p0"}]


def test_text_columns_of_new_tables_are_kept_by_code_point(hub: Hub) -> None:
    from sqlalchemy.dialects import postgresql

    hub.store.ensure_view("w", schema(t="string"), ["t"], "t8")
    column = hub.store.view("w").table.c["t"]
    assert 'COLLATE "C"' in str(column.type.compile(postgresql.dialect()))


def test_avros_identities_and_times_of_day_are_texts(hub: Hub, http: TestClient) -> None:
    kinds = [("id", "string", "uuid"), ("opens", "int", "time-millis"), ("closes", "long", "time-micros")]
    fields = [
        {"name": name, "type": ["null", {"type": of, "logicalType": logical}]} for name, of, logical in kinds
    ]
    schema = {"type": "record", "name": "Shop", "fields": fields}
    hub.registry.known[4], hub.registry.subjects["shops-value"] = ("AVRO", schema), [4]
    shop = {"id": UUID(int=7), "opens": dt.time(9, 30), "closes": dt.time(18, 0, 0, 250)}
    for value in (shop, dict.fromkeys(shop)):
        hub.publish("shops", encode(4, parsed(schema), value), partition=0)
    body = ask(http, 'SELECT id, opens, closes FROM "shops" ORDER BY _offset')
    assert body["rows"] == [{name: value and str(value) for name, value in shop.items()}, dict.fromkeys(shop)]
    assert body["scanned"][0]["unreadable"] == 0
