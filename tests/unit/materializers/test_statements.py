"""Statements about views: their grammar, the files that CREATE and DROP write, SHOW, DESCRIBE, EXPLAIN, and
who may.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from query_hub import ORDERS, QueryHub

from hub.caller import CALLER, AccessDecision, Action, Caller, Kind, Resource
from hub.masking.shape import OPEN, RowCondition, Visibility
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.statements.grammar import (
    CreateView,
    DescribeTable,
    DropView,
    Explain,
    ShowCreate,
    ShowList,
    hub_statement,
)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[QueryHub]:
    made = QueryHub(tmp_path)
    yield made
    made.close()


@pytest.fixture
def http(hub: QueryHub) -> Iterator[TestClient]:
    with TestClient(hub.app) as client:
        yield client


def ask(http: TestClient, sql: str, code: int = 200) -> Any:
    answer = http.post("/query", json={"sql": sql})
    assert answer.status_code == code, answer.text
    return answer.json()


def items(http: TestClient, sql: str) -> list[tuple[str, str]]:
    return [(row["item"], row["value"]) for row in ask(http, sql)["rows"]]


OR_REPLACE = (
    "CREATE OR REPLACE MATERIALIZED VIEW v PRIMARY KEY (a, b) WITH (o.watermark = '5 minutes', doc = 'd')"
    '\n AS\nSELECT a -- why\nFROM "o";'
)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("create materialized view V as select 1 from t", CreateView("v", "select 1 from t")),
        (
            OR_REPLACE,
            CreateView(
                "v",
                'SELECT a -- why\nFROM "o"',
                ("a", "b"),
                {"o.watermark": "5 minutes", "doc": "d"},
                replace=True,
            ),
        ),
        ("/* x */ DROP MATERIALIZED VIEW IF EXISTS v;", DropView("v", if_exists=True)),
        ("SHOW VIEWS LIKE 'a%'", ShowList("views", "a%")),
        ("show topics", ShowList("topics")),
        ("SHOW CREATE VIEW v", ShowCreate("v")),
        ('DESCRIBE "shop.orders"', DescribeTable("shop.orders")),
        ("SHOW COLUMNS FROM plant", DescribeTable("plant")),
        ("EXPLAIN SELECT 1", Explain("SELECT 1")),
        ("EXPLAIN DROP VIEW v", Explain(DropView("v"))),
        ("SHOW search_path", None),
        ("SELECT 1", None),
        ("CREATE MATERIALIZED VIEW v AS SELECT 'open", None),
    ],
)
def test_a_text_is_the_statement_that_it_says(text: str, statement: object) -> None:
    assert hub_statement(text) == statement


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CREATE TABLE t (a int)", "CREATE TABLE is not supported", "topics.yaml"),
        ("CREATE STREAM s AS SELECT 1", "CREATE STREAM is not supported", "topics.yaml"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW is not supported", "MATERIALIZED"),
        ("CREATE MATERIALIZED VIEW v", '"the end" where AS is expected', "AS SELECT"),
        ("CREATE MATERIALIZED VIEW v AS", "the SELECT behind AS is missing", "AS SELECT"),
        ('CREATE MATERIALIZED VIEW "../x" AS SELECT 1', "cannot be the name of a view", "customer_360"),
        ("CREATE MATERIALIZED VIEW v WITH (a) AS SELECT 1", "where = is expected", "WITH ("),
        ("DROP TABLE t", "DROP TABLE is not supported", "DROP MATERIALIZED VIEW"),
        ("DROP MATERIALIZED VIEW v CASCADE", "CASCADE is not supported", "first"),
        ("ALTER MATERIALIZED VIEW v RENAME TO w", "ALTER is not supported", "CREATE OR REPLACE"),
        ("REFRESH MATERIALIZED VIEW v", "REFRESH is not needed", None),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN takes no options", "EXPLAIN SELECT"),
        ("EXPLAIN SHOW VIEWS", "EXPLAIN is for a SELECT", "hub view explain"),
    ],
)
def test_what_is_no_statement_here_says_what_to_write(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(SqlError) as refused:
        hub_statement(text)
    assert message in refused.value.message and refused.value.line == 1
    assert hint is None or hint in str(refused.value.hint)


CREATE = (
    "CREATE MATERIALIZED VIEW order_totals KEY (id) AS\n"
    'SELECT "shop.orders".id, count(*) AS n, sum(cents) AS cents\n'
    'FROM "shop.orders"  -- each order\nGROUP BY "shop.orders".id'
)


def test_create_writes_the_file_that_the_same_view_would_have(hub: QueryHub, http: TestClient) -> None:
    hub.order(1)
    file = hub.service.project / "views" / "order_totals.yaml"
    dry = items(http, f"EXPLAIN {CREATE}")
    assert not file.exists()
    assert ("done", "nothing, this is a dry run") in dry
    assert ("first run reads", f"{ORDERS}: up to 1 events") in dry
    assert ("diff", "+view: order_totals") in dry
    told = dict(items(http, CREATE))
    assert told["done"] == "created" and told["check"].startswith("fine; aggregate")
    assert yaml.safe_load(file.read_text()) == {
        "view": "order_totals",
        "sources": {"orders": {"topic": ORDERS}},
        "sql": "SELECT orders.id, count(*) AS n, sum(cents) AS cents\n"
        "FROM orders  -- each order\nGROUP BY orders.id\n",
        "key": ["id"],
    }
    assert isinstance(load_view(file), SqlView)
    assert [
        row["line"] for row in ask(http, "SHOW CREATE VIEW order_totals")["rows"]
    ] == file.read_text().splitlines()
    again = ask(http, CREATE, 409)
    assert again["error_code"] == "HUB-1467" and "CREATE OR REPLACE" in again["hint"]
    assert ("done", "nothing: it exists") in items(http, CREATE.replace("VIEW", "VIEW IF NOT EXISTS", 1))
    replaced = items(http, CREATE.replace("CREATE", "CREATE OR REPLACE", 1).replace("count(*)", "max(cents)"))
    assert any(item == "diff" and value.startswith("-  SELECT orders.id, count") for item, value in replaced)


def test_a_view_over_a_view_and_options_of_its_sources(hub: QueryHub, http: TestClient) -> None:
    ask(http, CREATE)
    ask(
        http,
        "CREATE MATERIALIZED VIEW big KEY id WITH (doc = 'Large orders', order_totals.as = 'table') AS "
        "SELECT id, n FROM order_totals WHERE n > 5",
    )
    found = yaml.safe_load((hub.service.project / "views" / "big.yaml").read_text())
    assert found["sources"] == {"order_totals": {"view": "order_totals", "as": "table"}}
    assert found["doc"] == "Large orders"
    refused = ask(http, "DROP MATERIALIZED VIEW order_totals", 409)
    assert "is read by big" in refused["message"]
    assert ("done", "dropped") in items(http, "DROP MATERIALIZED VIEW big")
    assert ("done", "nothing: it does not exist") in items(http, "DROP MATERIALIZED VIEW IF EXISTS big")
    ask(http, "DROP VIEW order_totals")
    assert not list((hub.service.project / "views").glob("*.yaml"))
    assert ask(http, "DROP VIEW order_totals", 404)["error_code"] == "HUB-1410"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM shop.order", 'no view and no topic "shop.order": did you mean "shop.orders"'),
        ('SELECT o.idd AS x FROM "shop.orders" AS o', 'has no column "idd"'),
        ('SELECT id, rand() AS r FROM "shop.orders"', "rand"),
        ('SELECT id FROM "shop.orders" WHERE', "SQL line 1"),
        ('INSERT INTO "shop.orders" VALUES (1)', "not a SELECT"),
    ],
)
def test_a_wrong_view_is_refused_and_nothing_is_written(
    hub: QueryHub, http: TestClient, sql: str, message: str
) -> None:
    answer = http.post("/query", json={"sql": f"CREATE MATERIALIZED VIEW wrong AS {sql}"})
    assert answer.status_code == 400 and message in answer.json()["message"]
    assert "/tmp" not in answer.text
    assert not (hub.service.project / "views" / "wrong.yaml").exists()


def test_only_who_administers_a_view_and_reads_its_sources_may_create_it(
    hub: QueryHub, http: TestClient
) -> None:
    allowed: set[tuple[Action, Kind]] = {(Action.describe, Kind.topic), (Action.read, Kind.topic)}

    def decide(action: Action, what: Resource) -> AccessDecision:
        return AccessDecision((action, what.kind) in allowed, f"may not {action} {what}")

    token = CALLER.set(Caller("eve", frozenset(), decide))
    try:
        assert ask(http, CREATE, 403)["message"] == 'may not admin view "order_totals"'
        allowed.add((Action.admin, Kind.view))
        allowed.remove((Action.read, Kind.topic))
        assert ask(http, CREATE, 403)["message"] == f'may not read topic "{ORDERS}"'
        assert ask(http, "SHOW VIEWS")["rows"] == []
        assert ask(http, "SHOW TOPICS")["rows"] == [{"topic": ORDERS}]
    finally:
        CALLER.reset(token)


@pytest.mark.parametrize("table", ['"shop.orders"', '"shop.*"'])
def test_a_caller_for_whom_a_source_is_masked_cannot_see_it_whole_by_a_view(
    hub: QueryHub, http: TestClient, table: str
) -> None:
    hidden = Visibility(f'topic "{ORDERS}"', rows=(RowCondition("id", (), ("o1",)),))
    caller = Caller(
        *("eve", frozenset(), lambda _action, _what: AccessDecision(True, "granted")),
        shape=lambda what: hidden if what.name == ORDERS else OPEN,
        is_masked=True,
    )
    token = CALLER.set(caller)
    try:
        refused = ask(http, f"CREATE MATERIALIZED VIEW v KEY (id) AS SELECT id FROM {table} AS o", 403)
    finally:
        CALLER.reset(token)
    assert "masked for you" in refused["message"] and "CREATE MATERIALIZED VIEW" in refused["message"]
    assert not (hub.service.project / "views").exists()


def test_a_project_that_is_deployed_read_only_is_not_changed(hub: QueryHub, http: TestClient) -> None:
    (hub.service.project / "views").write_text("in the way")  # neither a folder nor writable as one
    refused = ask(http, CREATE, 400)
    assert (
        refused["error_code"] == "HUB-1468"
        and "commit the change of views/order_totals.yaml" in refused["hint"]
    )


def test_a_statement_waits_for_its_view_and_says_why_it_is_not_live(hub: QueryHub, http: TestClient) -> None:
    waiting = CREATE.replace(" AS\n", " WITH (wait = '1 second') AS\n", 1)
    refused = ask(http, waiting, 503)
    assert refused["error_code"] == "HUB-3053" and "not live after 1 s" in refused["message"]
    assert (hub.service.project / "views" / "order_totals.yaml").exists()
    ask(http, "DROP VIEW order_totals")
    long = ask(http, waiting.replace("1 second", "2 hours"), 400)
    assert "not a time of 1 to 60 seconds" in long["message"]
    assert not (hub.service.project / "views" / "order_totals.yaml").exists()


def test_lists_and_columns_are_rows(hub: QueryHub, http: TestClient) -> None:
    assert [row["view"] for row in ask(http, "SHOW VIEWS")["rows"]] == ["customer", "plant"]
    assert ask(http, "SHOW TABLES LIKE 'shop%'")["rows"] == [{"name": ORDERS, "kind": "topic"}]
    assert {"column": "city", "type": "string", "note": ""} in ask(http, "DESCRIBE plant")["rows"]
    assert {"column": "_value", "type": "json", "note": "not in *"} in ask(http, f'DESC "{ORDERS}"')["rows"]
    assert 'did you mean "plant"' in ask(http, "DESCRIBE plan", 404)["hint"]
    explained = items(http, "EXPLAIN SELECT city FROM plant WHERE n > :least")
    assert ("reads view", "plant") in explained and ("column", "city string") in explained
