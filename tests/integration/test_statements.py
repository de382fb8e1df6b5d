"""Statements and push queries in a real hub: CREATE, changes and events as they come, and an agent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters, stdio_client
from mcp.client.session import ClientSession
from patience import patient
from pipeline import Pipeline
from processes import run_hub, variables_of

TOPIC = "statements.orders"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}],
}


@pytest.fixture(scope="module")
def shop(pipeline: Pipeline) -> Pipeline:
    """A topic with a schema and four orders."""
    pipeline.cluster.create_topic(TOPIC, partitions=2, config={}, replication_factor=1)
    body = {"schema": json.dumps(SCHEMA)}
    httpx2.post(f"{pipeline.url}/subjects/{TOPIC}-value/versions", json=body).raise_for_status()
    for customer, cents in (("ann", 100), ("bob", 250), ("ann", 400), ("cy", 5)):
        order(pipeline, customer, cents)
    return pipeline


def order(shop: Pipeline, customer: str, cents: int) -> None:
    event = {"customer": customer, "cents": cents}
    url = f"{shop.url}/topics/{TOPIC}/events?key=customer"
    httpx2.post(url, json=event, timeout=patient(30)).raise_for_status()


def asked(shop: Pipeline, sql: str) -> Any:
    answer = httpx2.post(f"{shop.url}/query", json={"sql": sql, "timeout_ms": 60_000}, timeout=patient(90))
    assert answer.is_success, answer.text
    return answer.json()["rows"]


def events_of(shop: Pipeline, sql: str) -> Generator[dict[str, Any], None, None]:
    """Yield the events of a push query, without signs of life."""
    asks = {"sql": sql, "format": "ndjson"}
    with httpx2.stream("GET", f"{shop.url}/query/changes", params=asks, timeout=patient(60)) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["event"] != "alive":
                yield event


def test_events_of_a_topic_arrive_in_the_shell_while_they_are_written(shop: Pipeline) -> None:
    found = run_hub(
        shop.settings,
        *("sql", "-o", "json", "-c"),
        f'SELECT customer, cents FROM "{TOPIC}" WHERE cents >= 100 EMIT CHANGES FROM BEGINNING LIMIT 3',
    )
    assert found.returncode == 0, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert sorted(row["cents"] for row in rows) == [100, 250, 400]

    events = events_of(
        shop, f'SELECT upper(customer) AS who FROM "{TOPIC}" WHERE cents > 1000 EMIT CHANGES LIMIT 2'
    )
    assert next(events)["event"] == "columns"
    for cents in (1001, 7, 1002):
        order(shop, "dee", cents)
    told = list(events)
    assert [each["data"] for each in told] == [{"row": {"who": "DEE"}}] * 2 + [{"rows": 2}]


def test_a_view_is_created_followed_and_dropped(shop: Pipeline) -> None:
    create = (
        "CREATE MATERIALIZED VIEW statement_totals AS "
        f'SELECT customer, sum(cents) AS cents FROM "{TOPIC}" GROUP BY customer'
    )
    file = shop.views / "statement_totals.yaml"
    dry = run_hub(shop.settings, "sql", "--dry-run", "-c", create)
    assert dry.returncode == 0 and "+view: statement_totals" in dry.stdout and not file.exists()
    assert {"item": "done", "value": "created"} in asked(shop, create) and file.exists()
    shop.covers("statement_totals", [TOPIC])
    following = (
        "SELECT customer, cents / 100 AS euros FROM statement_totals WHERE cents >= 500 "
        "EMIT CHANGES FROM BEGINNING"
    )
    changes = events_of(shop, following)
    seen = {}
    for event in changes:
        if event["event"] == "synced":
            threading.Thread(target=order, args=(shop, "bob", 10_000)).start()
        if event["event"] in ("snapshot", "upsert"):
            seen[event["data"]["key"]] = event["data"]["row"]["euros"]
        if seen.get("bob") == 102:
            break
    changes.close()
    assert seen["ann"] == 5
    assert any(row["view"] == "statement_totals" for row in asked(shop, "SHOW VIEWS LIKE 'statement%'"))
    assert {"item": "done", "value": "dropped"} in asked(shop, "DROP MATERIALIZED VIEW statement_totals")
    assert not file.exists()


def test_the_workbench_computes_the_rows_that_a_view_will_have(shop: Pipeline) -> None:
    create = (
        "CREATE MATERIALIZED VIEW statement_tried AS\n"
        f'SELECT customer, sum(cents) AS cents FROM "{TOPIC}" WHERE cents IN (5, 250) GROUP BY customer'
    )
    answer = httpx2.post(
        f"{shop.url}/api/workbench/preview", json={"sql": create, "events": 200}, timeout=patient(240)
    )
    assert answer.is_success, answer.text
    found = answer.json()
    assert found["rows"] == [
        {"key": "bob", "row": {"customer": "bob", "cents": 250}},
        {"key": "cy", "row": {"customer": "cy", "cents": 5}},
    ]
    assert not (shop.views / "statement_tried.yaml").exists()
    body = {"sql": create.replace("sum(cents)", "sum(cent)")}
    wrong = httpx2.post(f"{shop.url}/api/workbench/plan", json=body)
    assert wrong.status_code == 400 and wrong.json()["line"] == "2"


def test_an_agent_lists_describes_and_queries_and_changes_nothing(shop: Pipeline) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "hub.cli", "mcp", "--rows", "3"],
        env={**os.environ, **variables_of(shop.settings)},
    )

    async def talk() -> None:
        async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as client:
            await client.initialize()
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {
                "list_topics",
                "list_views",
                "describe",
                "get_schema",
                "lineage",
                "lag",
                "run_sql",
            } <= tools

            async def call(tool: str, /, **arguments: Any) -> tuple[bool, str]:
                answer = await client.call_tool(tool, arguments)
                return bool(answer.is_error), "".join(each.text for each in answer.content)  # type: ignore[union-attr]

            wrong, topics = await call("list_topics", like=TOPIC)
            assert not wrong and TOPIC in topics
            assert '"cents"' in (await call("describe", name=TOPIC))[1]
            assert "Order" in (await call("get_schema", subject=f"{TOPIC}-value"))[1]
            wrong, rows = await call("run_sql", sql=f'SELECT customer FROM "{TOPIC}"', limit=500)
            assert not wrong and len(json.loads(rows)["rows"]) == 3 and json.loads(rows)["more"] is True
            wrong, said = await call("run_sql", sql="SELECT nope FROM nowhere")
            assert wrong and "no view and no topic" in said
            wrong, said = await call("run_sql", sql="CREATE MATERIALIZED VIEW x AS SELECT 1")
            assert wrong and "agents read only" in said
            for name in ("list_views", "list_schemas", "lineage", "lag"):
                assert not (await call(name))[0]

    asyncio.run(asyncio.wait_for(talk(), patient(90)))
