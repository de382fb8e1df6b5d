"""Rows of the past by the Python client and the command line, from a server on a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from app_server import served
from fastapi import FastAPI
from history_contract import KEEP_MS, batch, declare
from typer.testing import CliRunner

from hub.api.app import on_hub_error
from hub.cli import app as command_line
from hub.client import AsyncHub, ChangeEvent, FieldChange, Gone, Hub, NotFound, Refused
from hub.errors import HubError
from hub.materializers.serving.history import routes as history_routes
from hub.materializers.serving.history.answering import RowsOfThePast
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.record import Positions, TopicPartition
from hub.times import epoch_ms
from hub.topics.browse.bounded_read import FoundMessages, MessageQuery

# Keys that a path cannot name, and those that look like a route or an escape.
ODD_KEYS = ("a/history", "a/diff", "/history", ".", "..", "changes", "", "a b/ü", "%2E")
NOW_MS = epoch_ms()
ONE, TWO = (datetime.fromtimestamp((NOW_MS - 3_600_000 + step) / 1000, UTC) for step in (1_000, 2_000))


class NoMessages:
    """A log without any event."""

    def find(self, wanted: MessageQuery) -> FoundMessages:
        return FoundMessages((), (), 0, 0, True, "", None, None)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("history")
    store = Store(f"sqlite:///{folder / 'store.db'}")
    declare(store)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE hub_history_periods SET from_ms = from_ms - 7200000")
    declare(store, "plain", history=None)
    for n, at in ((1, ONE), (2, TWO)):
        at_ms = round(at.timestamp() * 1000)
        batch(store, "v", [(key, n, {"city": key, "n": n}, at_ms) for key in ("C-1", *ODD_KEYS)])
    batch(store, "v", [("gone", 1, None, NOW_MS - 3_500_000)])
    store.apply([], {"progress:v": {"committed_at_ms": NOW_MS, "changelog": {"0": 0}, "sources": {}}})
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(history_routes.create_router(RowsOfThePast(store, dict, NoMessages())))
    app.include_router(create_router(store, Watcher(store), 1_000))
    with served(app) as port:
        yield f"http://127.0.0.1:{port}"
    store.close()


@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_key_has_rows_of_the_past_by_client_and_command(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(url) as hub:
        assert hub.get("v", key)["n"] == 2
        assert (hub.get("v", key, as_of=ONE)["n"], hub.get("v", key, as_of=ONE)["city"]) == (1, key)
        assert hub.diff("v", key, ONE, TWO).changes == (FieldChange("n", 1, 2),)
        assert [each.kind for each in hub.history("v", key, page_changes=1)] == ["changed", "created"]
    monkeypatch.setenv("HUB_HTTP_PORT", url.rpartition(":")[2])
    assert _command("get", "--as-of", ONE.isoformat(), "--", "v", key)["n"] == 1
    assert len(_command("history", "--", "v", key)["changes"]) == 2
    times = ("--from", ONE.isoformat(), "--to", TWO.isoformat())
    assert _command("diff", *times, "--", "v", key) == [{"field": "n", "old": 1, "new": 2}]


def _command(*words: str) -> Any:
    done = CliRunner().invoke(command_line, ["view", words[0], "-o", "json", *words[1:]])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_command_names_a_row_that_no_path_can_name_and_that_does_not_exist(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_HTTP_PORT", url.rpartition(":")[2])
    done = CliRunner().invoke(command_line, ["view", "get", "v", "b/history"])
    assert isinstance(done.exception, NotFound) and 'key "b/history" does not exist' in str(done.exception)


def test_changes_are_typed_the_newest_first_within_their_times(url: str) -> None:
    with Hub(url) as hub:
        newest, oldest = hub.history("v", "C-1")
        assert newest.changes == (FieldChange("n", 1, 2),) and newest.row == hub.get("v", "C-1")
        assert hub.get("v", "C-1", as_of=newest.at)["n"] == 2 and newest.version == 2
        assert newest.events is not None and newest.events.precision == "exact"
        event: ChangeEvent = newest.events.events[0]
        assert (event.place, event.offset, event.source) == (TopicPartition("in", 0), 2, "s")
        assert event.state == "unknown" and event.why
        assert oldest.kind == "created" and FieldChange("city", None, "C-1") in oldest.changes
        assert [each.version for each in hub.history("v", "C-1", until=ONE)] == [1]
        assert [each.version for each in hub.history("v", "C-1", since=TWO)] == [2]
        diff = hub.diff("v", "C-1", Positions.of([("in", 0, 2)]), TWO)
        assert diff.existed and diff.exists
        assert not list(hub.history("v", "nobody"))


def test_reasons_for_no_answer_are_errors_of_their_kind(url: str) -> None:
    with Hub(url) as hub:
        with pytest.raises(Gone):
            hub.get("v", "C-1", as_of=datetime.fromtimestamp((NOW_MS - KEEP_MS * 2) / 1000, UTC))
        with pytest.raises(NotFound):
            hub.get("v", "nobody", as_of=ONE)
        with pytest.raises(NotFound):
            hub.get("v", "no/history", as_of=ONE)
        with pytest.raises(Refused, match="keeps no history"):
            list(hub.history("plain", "C-1"))
        with pytest.raises(Refused, match="future"):
            hub.get("v", "C-1", as_of="2999-01-01T00:00:00Z")


def test_tasks_read_the_past_too(url: str) -> None:
    async def read() -> None:
        async with AsyncHub(url) as hub:
            assert (await hub.get("v", "C-1", as_of=ONE))["n"] == 1
            assert [each.version async for each in hub.history("v", "a/diff", page_changes=1)] == [2, 1]
            assert (await hub.diff("v", "C-1", ONE)).changes == (FieldChange("n", 1, 2),)

    asyncio.run(read())
