"""Source positions that a store takes from the rows of a real-time view between two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changelog import CHANGELOG, Bench, schema
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.api.app import on_hub_error
from hub.errors import HubError
from hub.materializers.serving.read_your_writes import row_covers
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

ORIGIN = {
    "type": "record",
    "name": "origin",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
    ],
}
SOURCES = {
    "type": "record",
    "name": "sources",
    "fields": [{"name": "s", "type": ["null", ORIGIN], "default": None}],
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    shown = schema()
    shown["fields"][-1] = {"name": "_sources", "type": SOURCES}
    made.schemas.texts = [json.dumps(shown)]
    made.view = made.view.model_copy(update={"mode": "realtime"})
    made.applier = made.restarted()
    yield made
    made.store.close()


def origin(offset: int, partition: int = 0) -> dict[str, Any]:
    return {"s": {"topic": "in", "partition": partition, "offset": offset}}


def delete(bench: Bench, key: str, version: int, sources: bytes) -> None:
    headers = (("hub.version", str(version).encode()), ("hub.sources", sources))
    bench.cluster.writer().append([NewRecord(CHANGELOG, key.encode(), None, headers)])


def test_rows_show_how_far_a_view_has_read_and_prove_nothing_of_others(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1, "_sources": origin(7)})
    bench.write("b", 1, {"points": 1, "_sources": origin(5, partition=1)})
    bench.drain()
    seen = bench.store.progress()["seen:v"]["sources"]
    assert seen == {"in": {"0": 8, "1": 6}}
    assert bench.store.positions("v", "source") == Positions()


def test_what_came_too_soon_after_is_told_when_nothing_comes_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", 1, {"points": 1, "_sources": origin(7)})
    bench.drain()
    bench.write("a", 2, {"points": 1, "_sources": origin(8)})
    bench.drain()
    assert bench.store.progress()["seen:v"]["sources"] == {"in": {"0": 8}}
    monkeypatch.setattr("hub.materializers.applying.followed_view._VISIBLE_EVERY_MS", 0)
    bench.applier.step(0)
    assert bench.store.progress()["seen:v"]["sources"] == {"in": {"0": 9}}


def test_a_view_in_micro_batches_tells_nothing_so(bench: Bench) -> None:
    bench.view = bench.view.model_copy(update={"mode": "auto"})
    bench.applier = bench.restarted()
    bench.write("a", 1, {"points": 1, "_sources": origin(7)})
    bench.drain()
    assert "seen:v" not in bench.store.progress()


def test_the_writer_of_a_delete_reads_it_without_waiting_for_a_checkpoint(bench: Bench) -> None:
    bench.write("a", 1, {"points": 1, "_sources": origin(7)})
    bench.drain()
    before = bench.store.get("v", "a")
    assert before is not None and not row_covers(before.sources, Positions.of([("in", 0, 9)]))
    delete(bench, "a", 2, json.dumps(origin(8)).encode())
    bench.drain()
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(bench.store, Watcher(bench.store), query_timeout_ms=50))
    with TestClient(app) as http:
        assert http.get("/views/v/a?after=in:0:9").status_code == 404
        assert http.get("/views/v/a?after=in:0:10").status_code == 503


def test_a_delete_that_cannot_be_read_stops_the_view(bench: Bench) -> None:
    delete(bench, "a", 1, b"{junk")
    bench.drain()
    assert "hub.sources" in bench.store.progress()["state:v"]["reason"]


def test_a_row_of_a_sql_view_has_the_event_that_made_it_beside_it(bench: Bench) -> None:
    """Its columns are its author's; the store, verification and latency know the event from the header."""
    told = schema()
    told["fields"] = [each for each in told["fields"] if each["name"] != "_sources"]
    bench.schemas.texts = [json.dumps(told)]
    value = encode(1, parsed(told), {"city": None, "points": 1, "_version": 8})
    event = {"s": {"topic": "in", "partition": 0, "offset": 7, "timestamp": "2024-03-01T10:00:00.000Z"}}
    headers = (("hub.version", b"8"), ("hub.sources", json.dumps(event).encode()))
    bench.cluster.writer().append([NewRecord(CHANGELOG, b"a", value, headers)])
    bench.drain()
    kept = bench.store.get("v", "a")
    assert kept is not None and kept.sources == event
    assert row_covers(kept.sources, Positions.parse("in:0:8"))
    assert not row_covers(kept.sources, Positions.parse("in:0:9"))
