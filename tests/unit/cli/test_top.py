"""``hub top`` and ``hub lag`` over staged answers of the server."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hub.cli.monitor import top
from hub.cli.monitor.lag import line, sparkline
from hub.errors import CallerError

ROW = {
    "kind": "group", "name": "billing", "view": None, "topic": "shop.orders", "owner": "checkout",
    "state": "STOPPED", "cause": "nothing read for 41 min, and no member is connected", "since_ms": 1,
    "records": 18_204, "seconds": 2_460.0, "error_s": 0.9, "basis": "arrival", "eta_s": None, "loss_s": None,
    "lost_records": 0, "position": 7, "members": 0, "measured_at_ms": 1, "trend": [1.0, 5.0, 9.0],
}  # fmt: skip
OVERVIEW = {
    "kafka": {"state": "up"},
    "connect": {"state": "up", "failed": 2},
    "totals": {"events": 9, "events_per_second": 210.0, "views_live": 1, "views": 2},
    "topics": [{}, {}],
    "views": [
        {"name": "[v]", "state": "live", "rows": 40, "batch_ms": None, "lag": None, "doc": ""},
    ],
}


CLUSTER = {
    "state": "offline", "offline": 1, "under_replicated": 12, "away": [3], "partitions": 99, "bytes": 7,
    "brokers": [{}, {}], "troubles": [{}],
}  # fmt: skip


class Costs:
    def costs(self) -> list[dict[str, Any]]:
        return [{"process": "server", "pid": 7, "cpu_percent": 3.0, "memory_mb": 90}]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    answers = {"/api/overview": OVERVIEW, "/api/lag": [ROW] * 40, "/api/cluster": CLUSTER}
    monkeypatch.setattr(top.http, "get", lambda path, timeout_s: answers[path])
    return top.look(Costs())  # type: ignore[arg-type]


def test_a_look_is_small_and_counts_everybody(seen: dict[str, Any]) -> None:
    assert seen["states"] == {"STOPPED": 40}
    assert len(seen["worst"]) == top.WORST


def test_the_screen_shows_rates_lags_views_and_processes(seen: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(top.screen(seen))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for said in (
        "210",
        "1/2 live",
        "STOPPED 40",
        "billing",
        "41 min",
        "[v]",
        "server",
        "no member is connected",
    ):
        assert said in text, said


def test_the_screen_holds_no_terminal_commands(seen: dict[str, Any]) -> None:
    """The name of a consumer group is anybody's."""
    hostile = {**ROW, "name": "a\x1b[2J\x9b2Jb", "topic": "t", "cause": "c\x1b]0;d\x07"}
    console = Console(file=io.StringIO(), width=300)
    console.print(top.screen({**seen, "worst": [hostile]}))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a\\x1b[2J\\x9b2Jb" in said and "18\u202f204" in said
    assert not {"\x1b", "\x9b", "\x07"} & set(said)


@pytest.mark.parametrize(
    ("connect", "said"),
    [
        ({"failed": 2}, "Connect 2 failed"),
        ({"failed": 0}, "Connect ok"),
        ({"failed": None}, "Connect unknown"),
        (None, ""),
    ],
)
def test_the_head_says_how_kafka_connect_is(seen: dict[str, Any], connect: Any, said: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(top.screen({**seen, "connect": connect}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert said in text and ("Connect" in text) == bool(said)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"brokers": 3, "offline": 0, "under_replicated": 0, "away": []}, "brokers 3 "),
        (
            {"brokers": 3, "offline": 1, "under_replicated": 12, "away": [3]},
            "3, 1 offline, 12 under-replicated, 1 away",
        ),
        ({"brokers": 0, "offline": None, "under_replicated": None, "away": []}, ""),
        (None, ""),
    ],
)
def test_the_head_says_how_the_cluster_is(seen: dict[str, Any], cluster: Any, said: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(top.screen({**seen, "cluster": cluster}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert said in text and ("brokers" in text) == bool(said)


def test_a_look_counts_brokers_and_does_without_where_they_are_not_granted(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen["cluster"] == {
        "state": "offline",
        "offline": 1,
        "under_replicated": 12,
        "away": [3],
        "partitions": 99,
        "bytes": 7,
        "brokers": 2,
    }

    def refused(path: str, timeout_s: float) -> Any:
        raise CallerError("not granted")

    monkeypatch.setattr(top.http, "get", refused)
    assert top.cluster() is None


def test_unknown_numbers_are_dashes() -> None:
    cells = line({**ROW, "records": None, "seconds": None, "error_s": None, "topic": None, "trend": []})
    assert (cells["records"], cells["lag"], cells["topic"], cells["trend"]) == ("–", "–", "", "")


def test_the_trend_is_as_high_as_its_highest() -> None:
    assert sparkline([0.0, 5.0, 10.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
