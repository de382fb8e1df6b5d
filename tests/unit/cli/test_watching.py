"""``--watch`` and ``-o json`` of everything that is looked at:
again and again until Ctrl-C, over a server that comes and goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from hub.cli import app, http
from hub.cli.terminal import interrupt, watch_option
from hub.errors import PeerError

OVERVIEW = {
    "kafka": {"state": "up"},
    "connect": None,
    "totals": {"events": 1, "events_per_second": 1.0, "views_live": 0, "views": 0},
    "topics": [],
    "views": [],
}
CLUSTER = {
    "state": "ok",
    "offline": 0,
    "under_replicated": 0,
    "away": [],
    "partitions": 1,
    "bytes": 1,
    "brokers": [{}],
}
ALERT = {
    "key": "3fa1",
    "alert": "lag",
    "severity": "page",
    "state": "firing",
    "object": "billing on shop.orders",
    "owner": "shop",
    "summary": "late",
    "labels": {"consumer": "billing"},
    "silenced_by": [],
    "unknown": False,
    "since_ms": 1,
    "fired_at_ms": 2,
    "ended_at_ms": None,
    "ended": "",
}
RULE = {"alert": "lag", "severity": "page", "on": True, "for_s": 60, "error": "", "doc": "A reader is late."}
ANSWERS: dict[str, Any] = {
    "/api/lag": [],
    "/api/latency": [],
    "/api/audit": {"error": None, "topics": []},
    "/api/audit/views": {"views": []},
    "/api/lineage": {"nodes": [], "edges": [], "cut": False, "missing": [], "late": None, "columns": {}},
    "/api/openlineage": [],
    "/api/canary": {"state": "OK", "cause": "all came", "ways": []},
    "/api/alerts": {"alerts": [ALERT], "past": [], "silences": [], "error": None, "troubles": []},
    "/api/alerts/rules": [{**RULE, **dict.fromkeys(("good", "bad", "unknown", "firing"), 1)}],
    "/api/overview": OVERVIEW,
    "/api/cluster": CLUSTER,
}
COMMANDS = [
    ["lag"],
    ["latency"],
    ["completeness", "show"],
    ["view", "verify"],
    ["lineage"],
    ["canary"],
    ["alert", "ls"],
    ["alert", "show", "3fa"],
    ["alert", "rules"],
    ["top"],
]


class Over(Exception):
    """The end of a command that would continue."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that was asked; after the third pause a command is over."""
    asked: list[str] = []
    pauses = [0]

    def get(path: str, *_: Any, **__: Any) -> Any:
        asked.append(path)
        return ANSWERS[path]

    def pause(_seconds: float) -> None:
        pauses[0] += 1
        if pauses[0] > 3:
            raise Over

    monkeypatch.setattr(http, "get", get)
    monkeypatch.setattr(watch_option, "pause", pause)
    monkeypatch.setattr(interrupt, "pause", pause)
    monkeypatch.setattr("hub.cli.monitor.top.pause", lambda _seconds: None)
    return asked


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_it_looks_once_or_again_and_again(looks: list[str], command: list[str]) -> None:
    once = CliRunner().invoke(app, [*command, *(["--once"] if command == ["top"] else [])])
    assert once.exit_code == 0, once.exception
    first = len(looks)
    again = CliRunner().invoke(app, [*command, "--watch"])
    assert isinstance(again.exception, Over)
    assert len(looks) == first + 4 * first


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_look_is_a_document_of_its_own(looks: list[str], command: list[str]) -> None:
    once = CliRunner().invoke(app, [*command, "-o", "json"])
    assert once.exit_code == 0, once.exception
    one = json.loads(once.stdout)
    again = CliRunner().invoke(app, [*command, "-o", "json", "--watch"])
    assert isinstance(again.exception, Over)
    left, found = again.stdout.strip(), 0
    while left:
        told, end = json.JSONDecoder().raw_decode(left)
        assert type(told) is type(one)
        left, found = left[end:].lstrip(), found + 1
    assert found == 4


def test_what_is_made_from_files_is_not_watched(looks: list[str]) -> None:
    done = CliRunner().invoke(app, ["alert", "rules", "-o", "grafana", "--watch"])
    assert "nothing to watch" in str(done.exception) and looks == []


def test_an_alert_that_is_not_there_yet_is_waited_for(looks: list[str]) -> None:
    done = CliRunner().invoke(app, ["alert", "show", "zz", "--watch"])
    assert isinstance(done.exception, Over) and 'no alert "zz" is open' in done.output


def test_a_server_that_goes_away_meanwhile_is_said_and_asked_again(looks: list[str]) -> None:
    answers = iter([[1], PeerError("it does not answer"), [2], [3]])
    told: list[Any] = []

    def look() -> Any:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(Over):
        watch_option.looked(look, told.append, True)
    assert told == [[1], [2], [3]]


def test_one_that_is_not_there_at_first_is_an_error() -> None:
    def look() -> Any:
        raise PeerError("it does not answer")

    with pytest.raises(PeerError):
        watch_option.looked(look, print, True)
