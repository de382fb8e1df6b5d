"""Output of ``hub alert``, over the answers of an alert manager."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser.staged_estate import LATE, StagedAlerts, late
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from hub.alerts.routes import create_router
from hub.api.app import on_hub_error
from hub.cli import app, http
from hub.errors import HubError


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> StagedAlerts:
    """An alert manager behind its real routes; commands call them without a socket."""
    staged = StagedAlerts()
    server = FastAPI()
    server.add_exception_handler(HubError, on_hub_error)
    server.include_router(create_router(staged))
    client = TestClient(server)

    def asked(method: str, path: str, **more: Any) -> Any:
        answer = client.request(method, path, **more)
        if answer.is_success:
            return answer.json()
        raise http.refused(answer)  # type: ignore[arg-type]

    monkeypatch.setattr(http, "get", lambda path, asks=(), **_: asked("GET", path, params=list(asks)))
    monkeypatch.setattr(http, "post", lambda path, body, **_: asked("POST", path, json=body))
    monkeypatch.setattr(http, "delete", lambda path, **_: asked("DELETE", path))
    return staged


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["alert", *arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output if code == 0 else str(done.exception)


def test_what_is_open_over_and_silenced(desk: StagedAlerts) -> None:
    assert "nothing fires" in run("ls")
    desk.see(LATE, late("billing"), late("old"))
    desk.see(LATE, late("billing"), late("indexer", "web"))
    table = run("ls")
    assert "billing on shop.orders" in table and "indexer on shop.orders" in table
    assert "firing" in table and "old on" not in table
    assert "billing" not in run("ls", "--owner", "web")
    assert "nothing fires that fits" in run("ls", "--rule", "latency")
    assert "old on shop.orders" in run("ls", "--past") and "well again" in run("ls", "--past")
    (row,) = json.loads(run("ls", "--owner", "web", "-o", "json"))
    assert (row["alert"], row["severity"], row["runbook"]) == ("lag", "page", "/alerts/runbooks/lag")

    made = run(
        "silence", "consumer=indexer", "--for", "2h", "--reason", "moving", "--by", "ada", "-o", "json"
    )
    id = json.loads(made)["id"]
    assert "silenced" in run("ls", "--owner", "web")
    assert "moving" in run("ls", "--silences") and "ada" in run("ls", "--silences")
    assert f"silence {id}: consumer=indexer ended" in run("unsilence", id)
    assert "does not exist" in run("unsilence", "nope", code=1)


def test_one_alert_closely_and_the_rules(desk: StagedAlerts) -> None:
    desk.see(LATE, late("billing"))
    (row,) = json.loads(run("ls", "-o", "json"))
    for name in (row["key"][:5], "lag"):
        shown = run("show", name)
        assert "STALLED: nothing read" in shown and "consumer=billing" in shown and row["key"] in shown
    assert "no alert" in run("show", "zzz", code=1)
    rules = run("rules")
    assert "lag" in rules and "page" in rules
    assert json.loads(run("rules", "-o", "json"))[0]["bad"] == 1
    assert "took it" in run("test", "ops")


def test_what_is_said_wrongly_and_what_is_not_watched(desk: StagedAlerts) -> None:
    assert "LABEL=VALUE" in run("silence", "indexer", "--reason", "x", code=1)
    assert "not the end of a silence" in run("silence", "a=b", "--for", "soon", "--reason", "x", code=1)
    assert "Missing option" in str(CliRunner().invoke(app, ["alert", "silence", "a=b"]).output)
    desk.error = "another server of the hub watches now"
    assert "nothing is watched now: another server" in run("ls")
