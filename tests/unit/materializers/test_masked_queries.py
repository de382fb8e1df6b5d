"""SQL over masked relations: nothing of a statement tells what its caller does not see, on SQLite and over
events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mask_facts import KnownFacts, caller_of, rules_of
from sql_cases import NOW_MS, ask, fill

from hub.access.masking.facts import TopicFields, ViewColumns
from hub.caller import CALLER
from hub.errors import HubError
from hub.log import MemoryCluster
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord

PLANT = ViewColumns(
    dict.fromkeys(("city", "celsius", "n", "big", "seen", "day", "tags", "price", "note", "raw"), ())
)
FACTS = KnownFacts(
    {"a.b": TopicFields({("mail",): frozenset({"PII"})}, "id")},
    {"plant": PLANT, "customer": ViewColumns({"name": (), "plant": ()})},
)
MASKS = [
    {"fields": ["city"], "views": ["plant"], "as": "hashed", "groups": {"support": "partial(2)"}},
    {"fields": ["n", "celsius", "tags", "seen"], "views": ["plant"], "as": "nulled"},
    {"fields": ["note"], "views": ["plant"], "as": "refused"},
    {"rows": "plant = user.plant", "views": ["customer"]},
    {"tags": ["PII"], "topics": ["a.b"], "as": "hashed"},
]


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryExecutor]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('masked') / 'store.db'}")
    fill(store)
    made = QueryExecutor(store)
    yield made
    made.close()
    store.close()


@pytest.fixture(autouse=True)
def as_ana() -> Iterator[None]:
    caller = caller_of(rules_of(FACTS, MASKS, ana={"claims": {"plant": "p1"}}), "ana")
    before = CALLER.set(caller)
    yield
    CALLER.reset(before)


def told(queries: QueryExecutor, sql: str) -> str:
    """Return everything that a caller learns from a statement: rows, columns, or the error."""
    try:
        answer = ask(queries, sql)
    except HubError as error:
        return f"{error.message} {error.hint}"
    return json.dumps([answer.rows, [each.name for each in answer.columns], answer.more])


def test_columns_are_seen_as_their_mask_says(queries: QueryExecutor) -> None:
    rows = ask(queries, "SELECT key, city, n, celsius, tags, seen, big, price FROM plant ORDER BY key").rows
    oslo = {row[1] for row in rows[0::3]}
    assert len(oslo) == 1 and "Oslo" not in str(rows) and len(str(rows[0][1])) == 32
    assert {tuple(row[2:6]) for row in rows} == {(None, None, None, None)}
    assert [row[0] for row in rows] == [f"p{n}" for n in range(10)]


@pytest.mark.parametrize(
    "guess",
    [
        "SELECT count(*) FROM plant WHERE city = '{}'",
        "SELECT count(*) FROM plant WHERE city LIKE '{}%'",
        "SELECT count(*) FROM plant GROUP BY city HAVING city = '{}'",
        "SELECT key FROM plant ORDER BY CASE WHEN city = '{}' THEN 0 ELSE 1 END, key LIMIT 1",
        "SELECT p.key FROM plant p JOIN (SELECT '{}' AS city) c ON p.city = c.city",
        "SELECT p.key FROM plant p JOIN (SELECT '{}' AS city) c USING (city)",
        "SELECT 1 / CASE WHEN city = '{}' THEN 0 ELSE 1 END FROM plant ORDER BY key",
        "SELECT CAST(CASE WHEN city = '{}' THEN 'x' ELSE '1' END AS bigint) FROM plant ORDER BY key",
        "SELECT left(key, CASE WHEN city = '{}' THEN 1 ELSE 2 END) FROM plant ORDER BY key",
        "SELECT (SELECT count(*) FROM plant q WHERE q.city = '{}') FROM plant p ORDER BY key",
        "WITH c AS (SELECT * FROM (SELECT city FROM plant) x) SELECT count(*) FROM c WHERE city IN ('{}')",
        "SELECT min(city) = '{}', max(city) = '{}' FROM plant",
        "SELECT row_number() OVER (ORDER BY city = '{}', key) FROM plant ORDER BY key",
        "SELECT city FROM plant WHERE city = '{}' UNION SELECT 'none'",
        "SELECT DISTINCT city = '{}' FROM plant ORDER BY 1",
    ],
)
def test_a_masked_column_cannot_be_guessed(queries: QueryExecutor, guess: str) -> None:
    hit, miss = (told(queries, guess.replace("{}", city)) for city in ("Oslo", "Xslo"))
    assert hit == miss


def test_an_order_or_group_by_a_masked_column_is_that_of_the_masked_values(queries: QueryExecutor) -> None:
    shown = [
        row[0] for row in ask(queries, "SELECT city FROM plant WHERE city IS NOT NULL ORDER BY city").rows
    ]
    assert shown == sorted(shown)
    assert ask(queries, "SELECT count(*), count(n), sum(n), max(n) FROM plant").rows == [[10, 0, None, None]]
    assert ask(queries, "SELECT key FROM plant ORDER BY n, key LIMIT 2").rows == [["p0"], ["p1"]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT note FROM plant",
        "SELECT * FROM plant",
        "SELECT p.* FROM plant p",
        "SELECT count(note) FROM plant",
        "SELECT 1 FROM plant WHERE note = 'zz'",
        "SELECT key FROM plant ORDER BY note",
        "SELECT key FROM plant JOIN (SELECT 'x' AS note) x USING (note)",
        "SELECT (SELECT p.note) FROM plant p",
    ],
)
def test_a_refused_column_cannot_be_named_and_the_error_says_which_can(
    queries: QueryExecutor, sql: str
) -> None:
    with pytest.raises(SqlError, match='field "note" of view (plant|p) is refused to you') as refused:
        ask(queries, sql)
    assert refused.value.code == "HUB-1722" and "city" in str(refused.value.hint)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT key, name FROM customer ORDER BY key",
        "SELECT count(*) FROM customer",
        (
            "SELECT count(*) FROM customer "
            "WHERE abs(CASE WHEN plant = 'p2' THEN -9223372036854775807 - 1 ELSE 1 END) > 0"
        ),
    ],
)
def test_rows_are_filtered_before_any_expression_of_the_caller(queries: QueryExecutor, sql: str) -> None:
    rows = ask(queries, sql).rows
    assert rows in ([["c1", "Nönä1"], ["c5", "Nönä5"]], [[2]])


def test_a_partly_shown_text_is_what_filters_compare(queries: QueryExecutor) -> None:
    rules = rules_of(FACTS, MASKS, sue={"groups": ["support"]})
    before = CALLER.set(caller_of(rules, "sue"))
    try:
        rows = ask(queries, "SELECT DISTINCT city FROM plant WHERE city = '***lo'").rows
        assert rows == [["***lo"]] and ask(queries, "SELECT count(*) FROM customer").rows == [[0]]
    finally:
        CALLER.reset(before)


class NoSchemas:
    def versions(self, subject: str) -> list[Any]:
        return []


def test_events_are_masked_before_they_are_rows(queries: QueryExecutor) -> None:
    cluster = MemoryCluster()
    for topic in ("a.b", "a.b.dlq"):
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    values: list[Any] = [{"mail": "ann@x", "id": "1"}, ["ann@x"], {"inner": {"mail": 7}}]
    cluster.writer().append([NewRecord("a.b", b"1", json.dumps(each).encode()) for each in values])
    topics = TopicTables(cluster, NoSchemas())  # type: ignore[arg-type]
    table = topics.table("a.b")
    assert table is not None
    running = RunningQuery(time.monotonic() + 10)
    filled, _ = topics.read(table, frozenset({"_value", "_key"}), running)
    rows = queries.run(
        parse('SELECT _key, _value FROM "a.b"'), {}, running, now_ms=NOW_MS, events=[filled]
    ).rows
    assert "ann@x" not in str(rows) and rows[0][0] == "1" and rows[0][1]["id"] == "1"
    assert rows[2][1]["inner"]["mail"] not in (7, "7")
    with pytest.raises(HubError, match="in other forms"):
        topics.table("a.b.dlq")
