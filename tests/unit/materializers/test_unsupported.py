"""Constructs that the hub does not have: refused by name and place, with a form that is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from query_hub import ORDERS, QueryHub
from sql_cases import ask

from hub.errors import ConfigError
from hub.materializers.definition.sql_checks import checked, query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_inputs import planned
from hub.materializers.queries.parser import SqlError, parse

MATCHING = "SELECT * FROM e MATCH_RECOGNIZE (PARTITION BY k ORDER BY t PATTERN (A B) DEFINE B AS B.x > A.x)"
# construct, its text, the column of its place, a part of the hint in a view and in a query
CASES = [
    ("MATCH_RECOGNIZE", MATCHING, 17, "lag(x) OVER", "lag(x) OVER"),
    (
        "TUMBLE(TABLE …)",
        "SELECT k FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(t), INTERVAL '10' MINUTES)) GROUP BY k",
        *(21, "window(t, '10 minutes')", "date_trunc"),
    ),
    ("HOP(TABLE …)", "SELECT k FROM HOP(TABLE e, DESCRIPTOR(t))", 15, "'5 minutes')", "a view can"),
    ("SESSION(TABLE …)", "SELECT k FROM SESSION(TABLE e)", 15, "session_window", "a view can"),
    ("CUMULATE(TABLE …)", "SELECT k FROM CUMULATE(TABLE e)", 15, "each step", "a view can"),
    (
        "TUMBLE(…)",
        "SELECT count(*) FROM e GROUP BY TUMBLE(t, INTERVAL '1' HOUR)",
        33,
        "window(",
        "date_trunc",
    ),
    (
        "ASOF JOIN",
        "SELECT e.k FROM e ASOF JOIN d ON e.k = d.k AND e.t >= d.t",
        19,
        "JOIN on k",
        "row_number()",
    ),
    ("ASOF JOIN", "SELECT e.k FROM e ASOF LEFT JOIN d ON e.k = d.k", 19, "JOIN on k", "row_number()"),
    (
        "FOR SYSTEM_TIME AS OF",
        "SELECT e.k FROM e JOIN d FOR SYSTEM_TIME AS OF e.t ON e.k = d.k",
        *(26, "JOIN on k", "_timestamp <="),
    ),
]
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "k", "type": "string"},
        {"name": "x", "type": "long"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def view(sql: str, key: str = "", **more: Any) -> SqlView:
    sources = {"e": {"topic": "a.e", **more.pop("e", {})}, **more}
    return SqlView(view="v", sources=sources, sql=sql, key=[key] if key else [])


@pytest.mark.parametrize(("name", "sql", "column", "in_view", "_in_query"), CASES)
def test_a_view_is_told_the_construct_its_place_and_what_to_write(
    name: str, sql: str, column: int, in_view: str, _in_query: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        query_of(view(sql))
    assert f"{name} is not supported" in refused.value.message
    assert f"SQL line 1, column {column}:" in refused.value.message
    assert in_view in str(refused.value.hint)


# Queries have FOR SYSTEM_TIME AS OF, for views with a history.
IN_QUERIES = [each for each in CASES if each[0] != "FOR SYSTEM_TIME AS OF"]


@pytest.mark.parametrize(("name", "sql", "column", "_in_view", "in_query"), IN_QUERIES)
def test_a_query_is_told_the_same(name: str, sql: str, column: int, _in_view: str, in_query: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse(sql)
    assert refused.value.message == f"line 1, column {column}: {name} is not supported"
    assert refused.value.code == "HUB-1470" and in_query in str(refused.value.hint)


def test_names_that_only_look_like_it_are_names() -> None:
    parse("SELECT session, hop, \"ASOF\" FROM tumble WHERE cumulate = 'MATCH_RECOGNIZE ('")


def windowed(window: str) -> str:
    return f"SELECT k, {window}.start AS at, count(*) AS n FROM e GROUP BY k, {window}"


TIMED = {"e": {"event_time": "t", "watermark": "5 minutes"}}
TABLE = {"e": {"table": {"key": "id"}}}
LAGGING = "SELECT id, k, x, lag(x) OVER (PARTITION BY k ORDER BY t, id) AS p FROM e"
JOINED = {**TABLE, "d": {"topic": "a.d", "table": {"key": "k"}}}


@pytest.mark.parametrize(
    ("sql", "key", "sources"),
    [
        (windowed("window(t, '10 minutes')"), "", TIMED),
        (windowed("window(t, '10 minutes', '5 minutes')"), "", TIMED),
        (windowed("session_window(t, '5 minutes')"), "", TIMED),
        (f"SELECT id, k, x FROM ({LAGGING}) WHERE p < x", "id", TABLE),
        ("SELECT e.id, d.x AS other FROM e JOIN d ON e.k = d.k", "id", JOINED),
    ],
)
def test_what_hints_say_is_taken_in_views(sql: str, key: str, sources: dict[str, Any]) -> None:
    found = view(sql, key, **sources)
    schemas = dict.fromkeys(found.sources, SCHEMA)
    plan = classify(checked(found, schemas))
    if not plan.native:
        planned(plan, schemas)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[QueryHub]:
    made = QueryHub(tmp_path)
    yield made
    made.close()


def test_what_hints_say_is_taken_in_queries(hub: QueryHub) -> None:
    lagging = "SELECT n, lag(n) OVER (PARTITION BY city ORDER BY seen) AS p FROM plant"
    newest = "SELECT n, row_number() OVER (PARTITION BY city ORDER BY seen DESC) AS r FROM plant"
    assert ask(hub.queries, f"SELECT n FROM ({lagging}) WHERE p < n").rows
    assert ask(hub.queries, f"SELECT n FROM ({newest}) WHERE r = 1").rows
    hours = "SELECT date_trunc('hour', seen), count(*) FROM plant GROUP BY date_trunc('hour', seen)"
    assert ask(hub.queries, hours).rows
    table = hub.service.topics.table(ORDERS)
    assert table is not None
    statement = parse(f"SELECT id FROM \"{ORDERS}\" WHERE _timestamp <= TIMESTAMP '2026-01-31'")
    assert hub.queries.check(statement, {}, 0, [table]).columns
