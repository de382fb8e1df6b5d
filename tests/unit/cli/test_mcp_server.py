"""``hub mcp``: its tools as an agent sees them, bounded answers, and nothing that changes anything."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import Client

from hub.cli.query import mcp_server
from hub.errors import CallerError, NotFound


def test_tools_are_described_and_only_read() -> None:
    async def listed() -> dict[str, tuple[bool | None, str]]:
        async with Client(mcp_server.make_server(200, 1_000)) as client:
            tools = (await client.list_tools()).tools
        return {
            each.name: (each.annotations and each.annotations.read_only_hint, each.description)
            for each in tools
        }  # type: ignore[misc]

    tools = asyncio.run(listed())
    assert set(tools) == {
        *("list_topics", "list_views", "list_schemas", "describe", "get_schema", "lineage", "lag", "run_sql")
    }
    assert all(reads is True and text.endswith((".", "unknown.")) for reads, text in tools.values())


def test_answers_and_errors_are_those_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def post(path: str, body: dict[str, object]) -> dict[str, object]:
        asked.append((path, body))
        if "nope" in str(body["sql"]):
            raise NotFound('no view and no topic "nope"', hint="SHOW VIEWS lists them")
        return {"columns": [], "rows": [{"n": 1}], "more": False}

    monkeypatch.setattr(mcp_server, "post", post)

    async def call(sql: str) -> tuple[bool, str, object]:
        async with Client(mcp_server.make_server(50, 1_000)) as client:
            answer = await client.call_tool("run_sql", {"sql": sql, "limit": 9_999})
        return bool(answer.is_error), answer.content[0].text, answer.structured_content  # type: ignore[union-attr]

    wrong, text, structured = asyncio.run(call("SELECT 1 AS n"))
    assert not wrong and json.loads(text)["rows"] == [{"n": 1}] and structured is None
    assert asked[0][1]["limit"] == 50 and asked[0][1]["timeout_ms"] == 1_000
    wrong, text, _ = asyncio.run(call("SELECT * FROM nope"))
    assert wrong and 'no view and no topic "nope" Hint: SHOW VIEWS lists them' in text
    wrong, text, _ = asyncio.run(call("DROP MATERIALIZED VIEW v"))
    assert wrong and "agents read only" in text and len(asked) == 2


@pytest.mark.parametrize("sql", ["SELECT 1", "SHOW VIEWS", "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1"])
def test_what_only_reads_is_sent(sql: str) -> None:
    assert mcp_server.read_only(sql) == sql


@pytest.mark.parametrize("sql", ["CREATE MATERIALIZED VIEW v AS SELECT 1", "/* x */ drop view v"])
def test_what_changes_a_view_is_not(sql: str) -> None:
    with pytest.raises(CallerError, match="agents read only"):
        mcp_server.read_only(sql)


def test_a_long_answer_has_fewer_rows_and_is_still_json() -> None:
    rows = [{"text": "x" * 1_000, "n": n} for n in range(1_000)]
    text = mcp_server.shortened({"rows": rows, "more": False})
    found = json.loads(text)
    assert len(text) <= mcp_server.MOST_TEXT and found["more"] is True and 0 < len(found["rows"]) < 1_000
    assert len(mcp_server.shortened({"text": "x" * 300_000})) < mcp_server.MOST_TEXT + 20
