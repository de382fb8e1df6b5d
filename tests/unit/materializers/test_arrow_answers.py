"""Answers as Arrow streams and data frames: types of columns, limits, and the client's own conversion."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from query_hub import QueryHub

from hub.client import ArrowResult, Column
from hub.client.answers import Result
from hub.record import Positions

SQL = "SELECT city, celsius, n, big, seen, day, tags, price, raw FROM plant ORDER BY n"
TYPES = {
    "city": pa.string(),
    "celsius": pa.float64(),
    "n": pa.int64(),
    "big": pa.bool_(),
    "seen": pa.timestamp("ms", tz="UTC"),
    "day": pa.date32(),
    "tags": pa.string(),
    "price": pa.string(),
    "raw": pa.binary(),
}
FIRST = {
    "city": "Oslo",
    "celsius": -3.0,
    "n": 0,
    "big": True,
    "seen": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 1),
    "price": "0.50",
    "raw": b"\0\xff",
}


@pytest.fixture
def http(tmp_path: Path) -> Iterator[TestClient]:
    hub = QueryHub(tmp_path)
    with TestClient(hub.app) as client:
        yield client
    hub.close()


def test_rows_have_the_types_of_their_columns(http: TestClient) -> None:
    answer = http.post("/query", json={"sql": SQL, "format": "arrow"})
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.headers["Hub-More"] == "false" and answer.headers["Hub-Position"] == "in:0:7"
    table = ArrowResult(answer.content, False, Positions()).to_arrow()
    assert {each.name: each.type for each in table.schema} == TYPES
    assert table.schema.field("price").metadata == {b"hub.type": b"decimal"}
    assert table.num_rows == 10
    assert {name: value for name, value in table.to_pylist()[0].items() if name != "tags"} == FIRST
    assert table.column("city").to_pylist()[2] is None


def test_limits_and_errors_are_those_of_other_formats(http: TestClient) -> None:
    cut = http.post("/query", json={"sql": SQL, "format": "arrow", "limit": 3})
    assert cut.headers["Hub-More"] == "true"
    assert ArrowResult(cut.content, True, Positions()).to_arrow().num_rows == 3
    empty = http.post("/query", json={"sql": f"SELECT n FROM ({SQL}) WHERE n > 99", "format": "arrow"})
    assert ArrowResult(empty.content, False, Positions()).to_arrow().schema.names == ["n"]
    whole = http.post("/query", json={"sql": SQL, "format": "arrow", "limit": 100_000})
    assert whole.headers["Hub-More"] == "false"
    refused = http.post("/query", json={"sql": SQL, "limit": 100_000})
    assert refused.status_code in (400, 422) and "format arrow takes more" in refused.text
    wrong = http.post("/query", json={"sql": "SELECT nope FROM plant", "format": "arrow"})
    assert wrong.status_code == 400 and wrong.json()["column"] == 8


def test_a_result_of_the_client_becomes_the_same_table(http: TestClient) -> None:
    body = http.post("/query", json={"sql": SQL}).json()
    columns = tuple(Column(each["name"], each["type"]) for each in body["columns"])
    rows = [tuple(row[each.name] for each in columns) for row in body["rows"]]
    table = Result(columns, rows, False, Positions()).to_arrow()
    streamed = http.post("/query", json={"sql": SQL, "format": "arrow"})
    other = ArrowResult(streamed.content, False, Positions()).to_arrow()
    assert table.schema.equals(other.schema, check_metadata=False)
    same = [name for name in TYPES if name != "tags"]  # spaces in JSON text may differ
    assert table.select(same).to_pylist() == other.select(same).to_pylist()
    assert list(Result(columns, rows, False, Positions()).to_pandas()["n"]) == list(range(10))
