"""Kafka Connect: the workers' answers, unknown states, pages, series and alerts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from hub.alerts.delivery.payloads import object_name, object_path
from hub.alerts.model.alert_state import AlertingState, NotificationRoute
from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import RuleChanges, RuleObservations, Verdict
from hub.alerts.model.state_machine import step
from hub.config import Settings
from hub.errors import CallerError, PeerError
from hub.observability.cluster.connect import (
    STALE_MS,
    Connect,
    Connector,
    ConnectState,
    WorkerAnswer,
    connect_of,
    connectors_of,
    without_password,
)
from hub.observability.cluster.connect_workers import ConnectWorkers
from hub.observability.export.metrics import CONNECTORS, exposition
from hub.observability.export.objectives import observe_connect
from hub.observability.export.routes import create_router
from hub.observability.overview.overview import KafkaHealth, Overview
from hub.observability.web.page import render
from hub.observability.web.pages.monitor.connect import connect_page

NOW = 1_790_000_000_000
HTML = {"accept": "text/html"}
TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: <b>no</b> table\n\tat a.B.c(B.java:1)\nCaused by: x"
)


def told(
    state: str, *tasks: str, worker: str = "one:8083", kind: str = "source", trace: str = TRACE
) -> dict[str, Any]:
    """Return a worker's answer for one connector."""

    def part(word: str) -> dict[str, Any]:
        return {"state": word, "worker_id": worker, **({"trace": trace} if word == "FAILED" else {})}

    return {
        "status": {
            "connector": part(state),
            "tasks": [{"id": number, **part(word)} for number, word in enumerate(tasks)],
            "type": kind,
        },
        "info": {
            "config": {"connector.class": "io.example.TableSource", "password": "s3cret"},
            "type": kind,
        },
    }


def heard(url: str, body: dict[str, Any], at_ms: int = NOW) -> WorkerAnswer:
    return WorkerAnswer(url).answered(connectors_of(body), at_ms)


def away(before: WorkerAnswer) -> WorkerAnswer:
    return WorkerAnswer(
        before.url, before.connectors, before.answered_at_ms, "no answer within 5 s", before.peers
    )


def by_name(connect: Connect) -> dict[str, str]:
    return {one.name: one.state.value for one in connect.connectors}


def test_a_connector_is_as_well_as_its_worst_part_and_says_why() -> None:
    fine, broken, whole = connectors_of(
        {
            "fine": told("RUNNING", "RUNNING", "RUNNING"),
            "broken": told("RUNNING", "RUNNING", "FAILED", kind="sink"),
            "whole": told("FAILED"),
        }
    )
    assert (fine.state, fine.reason, fine.kind, fine.worker) == ("RUNNING", "", "source", "one:8083")
    assert (broken.state, broken.own) == (ConnectState.FAILED, ConnectState.RUNNING)
    assert broken.reason == "task 1: org.apache.kafka.connect.errors.ConnectException: <b>no</b> table"
    assert broken.tasks[1].reason == broken.reason.removeprefix("task 1: ")
    assert whole.reason.endswith("no</b> table")
    assert "s3cret" not in repr((fine, broken, whole))


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("RUNNING", "RUNNING"),
        ("PAUSED", "PAUSED"),
        ("UNASSIGNED", "UNASSIGNED"),
        ("RESTARTING", "RESTARTING"),
        ("STOPPED", "STOPPED"),
        ("SOMETHING_NEW", "UNKNOWN"),
        (None, "UNKNOWN"),
    ],
)
def test_every_state_is_told_and_a_new_word_is_not_known(word: Any, state: str) -> None:
    (one,) = connectors_of({"c": told(word)})
    assert one.state == state
    assert (one.reason != "") == (state == "UNKNOWN")


def test_hostile_answers_are_cut_or_refused() -> None:
    (one,) = connectors_of({"n" * 9_999: told("FAILED", trace="x" * 9_999)})
    assert len(one.name) == len(one.reason) == 300
    (bare,) = connectors_of({"c": {}})
    assert (bare.state, bare.tasks) == ("UNKNOWN", ())
    for wrong in ([], "x", None, {"c": {"status": {"tasks": [{"state": "RUNNING"}]}}}):
        with pytest.raises(TypeError):
            connectors_of(wrong)


def test_workers_of_one_cluster_are_one_and_of_two_are_two() -> None:
    first = heard("http://one:8083", {"a": told("RUNNING", "RUNNING", worker="one:8083")})
    second = heard("http://two:8083", {"a": told("RUNNING", "RUNNING", worker="one:8083")})
    other = heard("http://far:8083", {"a": told("PAUSED", worker="far:8083")})
    connect = connect_of([first, second, other], NOW)
    assert [(one.name, one.worker) for one in connect.connectors] == [("a", "far:8083"), ("a", "one:8083")]
    assert connect.connectors_by_state is not None and connect.connectors_by_state["RUNNING"] == 1
    assert connect.whole


def test_a_worker_that_is_gone_takes_nothing_with_it_while_another_of_its_cluster_answers() -> None:
    first = heard("http://one:8083", {"a": told("RUNNING", worker="one:8083")})
    second = heard("http://two:8083", {"a": told("RUNNING", worker="one:8083")})
    moved = second.answered(connectors_of({"a": told("RUNNING", worker="two:8083")}), NOW)
    connect = connect_of([away(first), moved], NOW)
    assert by_name(connect) == {"a": "RUNNING"} and len(connect.connectors) == 1
    assert (connect.state, connect.whole, connect.failed) == ("up", False, 0)


def test_what_nobody_answers_for_is_unknown_and_never_nothing() -> None:
    first = heard("http://one:8083", {"a": told("RUNNING", "RUNNING"), "b": told("FAILED")})
    connect = connect_of([away(first)], NOW)
    assert by_name(connect) == {"a": "UNKNOWN", "b": "UNKNOWN"}
    assert (connect.failed, connect.unknown, connect.state) == (None, None, "down")
    assert connect.connectors[1].reason == "was FAILED; no answer within 5 s"
    assert connect.connectors[0].tasks[0].state == "UNKNOWN"
    assert connect.tasks_by_state is not None and connect.tasks_by_state["UNKNOWN"] == 1
    never = connect_of([WorkerAnswer("http://one:8083", error="no answer")], NOW)
    assert (never.connectors_by_state, never.tasks_by_state, never.failed) == (None, None, None)
    assert connect_of([WorkerAnswer("http://one:8083")], NOW).state == "connecting"
    # One whose thread hangs is not well for ever.
    assert connect_of([first], NOW + STALE_MS).state == "up"
    assert connect_of([first], NOW + STALE_MS + 1).state == "down"


class Workers(ConnectWorkers):
    """ConnectWorkers whose answers a test sets."""

    def __init__(self, *urls: str) -> None:
        self.answers: dict[str, dict[str, Any] | None] = {}
        self.at_ms = NOW
        super().__init__(urls, self._answer, now_ms=lambda: self.at_ms)

    def _answer(self, url: str) -> tuple[Connector, ...]:
        body = self.answers.get(url)
        if body is None:
            raise PeerError(f"Kafka Connect at {url}: no answer")
        return connectors_of(body)

    def round(self) -> Connect:
        for url in self.urls:
            self.step(url)
        known = self.latest()
        assert known is not None
        return known


def test_the_sampler_remembers_what_was_and_hears_when_it_is_back() -> None:
    workers = Workers("http://one:8083")
    assert ConnectWorkers([]).latest() is None
    assert workers.round().connectors_by_state is None
    workers.answers["http://one:8083"] = {"a": told("RUNNING")}
    assert by_name(workers.round()) == {"a": "RUNNING"}
    assert workers.latest() is workers.latest()  # not computed for each request
    workers.answers.clear()
    gone = workers.round()
    assert (by_name(gone), gone.failed, gone.workers[0].answered_at_ms) == ({"a": "UNKNOWN"}, None, NOW)
    workers.answers["http://one:8083"] = {"b": told("RUNNING")}
    assert by_name(workers.round()) == {"b": "RUNNING"}
    workers.at_ms += STALE_MS + 1
    stale = workers.latest()
    assert stale is not None and stale.state == "down"


def test_it_runs_a_thread_for_each_address() -> None:
    workers = Workers("http://one:8083", "http://two:8083")
    workers.answers = {url: {"a": told("RUNNING")} for url in workers.urls}
    with workers.running():
        for _ in range(500):
            known = workers.latest()
            if known is not None and known.whole:
                break
            time.sleep(0.01)
    assert known is not None and known.whole and len(known.connectors) == 1


def overview(connect: Connect | None) -> Overview:
    return Overview(NOW, KafkaHealth("b:1", NOW, None), None, (), (), connect)


class Staged:
    def __init__(self, connect: Connect | None) -> None:
        self.now = overview(connect)

    def overview(self) -> Overview:
        return self.now


def test_series_leave_out_what_is_not_known_and_are_bounded() -> None:
    def text(connect: Connect | None) -> str:
        lines = exposition(overview(connect)).decode().splitlines()
        return "\n".join(line for line in lines if line.startswith("hub_connect"))

    assert text(None) == ""
    assert text(connect_of([WorkerAnswer("http://u:p@one:8083")], NOW)) == ""
    never = text(connect_of([WorkerAnswer("http://u:p@one:8083", error="no answer")], NOW))
    assert never == 'hub_connect_up{worker="http://one:8083"} 0.0'
    first = heard("http://one:8083", {"a": told("RUNNING", "FAILED"), "b": told("RUNNING", "RUNNING")})
    up = text(connect_of([first], NOW))
    assert (
        'hub_connect_connectors{state="FAILED"} 1.0' in up and 'hub_connect_tasks{state="RUNNING"} 1.0' in up
    )
    assert "hub_connect_failures 1.0" in up and 'hub_connect_failed{connector="a"} 1.0' in up
    down = text(connect_of([away(first)], NOW))
    assert "hub_connect_failures" not in down and "hub_connect_failed" not in down
    assert 'hub_connect_connectors{state="UNKNOWN"} 2.0' in down
    many = heard("http://one:8083", {f"c{n}": told("FAILED") for n in range(500)})
    assert text(connect_of([many], NOW)).count("hub_connect_failed{") == CONNECTORS


def test_json_has_null_for_what_is_not_known() -> None:
    first = heard("http://one:8083", {f"c{n:03}": told("RUNNING") for n in range(50)})
    for connect, failed, shown in (
        (None, None, 0),
        (connect_of([first], NOW), 0, 20),
        (connect_of([away(first)], NOW), None, 20),
    ):
        app = FastAPI()
        app.include_router(create_router(Staged(connect), None))  # type: ignore[arg-type]
        body = TestClient(app).get("/api/overview").json()["connect"]
        if connect is None:
            assert body is None
        else:
            assert (body["failed"], len(body["connectors"]), body["more"]) == (failed, shown, 30)


def test_the_overview_shows_the_worst_and_escapes_what_connectors_say() -> None:
    def part(connect: Connect | None) -> str:
        return render("overview/connect.html", overview=overview(connect), now_ms=NOW, most_connectors=20)

    assert part(None).strip() == ""
    first = heard(
        "http://one:8083",
        {"<i>c": told("RUNNING", "FAILED"), **{f"c{n}": told("RUNNING") for n in range(30)}},
    )
    html = part(connect_of([first], NOW))
    assert "&lt;i&gt;c" in html and "&lt;b&gt;no&lt;/b&gt; table" in html and "<b>no" not in html
    assert html.count("<li ") == 20 and "11 more" in html
    assert html.index("&lt;i&gt;c") < html.index(">c0<")
    assert "is not known" in part(connect_of([WorkerAnswer("http://one:8083", error="no answer")], NOW))
    health = render("frame/health.html", overview=overview(connect_of([first], NOW)), now_ms=NOW)
    assert "Connect 1 failed" in health
    assert "Connect unknown" in render(
        "frame/health.html", overview=overview(connect_of([away(first)], NOW)), now_ms=NOW
    )
    assert "Connect" not in render("frame/health.html", overview=overview(None), now_ms=NOW)


def test_the_page_filters_and_does_not_take_unknown_for_none() -> None:
    body = {"orders": told("RUNNING", worker="one:8083"), "users": told("FAILED", worker="two:8083")}
    first = heard("http://one:8083", body)
    page = connect_page(connect_of([first], NOW), "TWO", "")
    assert [one.name for one in page.connectors] == ["users"] and (page.total, page.of) == (1, 2)
    assert connect_page(connect_of([first], NOW), "", "RUNNING").counts == (("FAILED", 1), ("RUNNING", 1))
    assert connect_page(connect_of([WorkerAnswer("http://x:1")], NOW), "", "").of is None
    assert connect_page(None, "", "").connect is None
    with pytest.raises(CallerError, match="not a state"):
        connect_page(None, "", "BROKEN")


def verdicts(seen: RuleObservations) -> dict[str, Verdict]:
    return {dict(each.object).popitem()[1]: each.verdict for each in seen.observations}


def test_alerts_of_connectors_and_addresses() -> None:
    first = heard("http://one:8083", {"a": told("RUNNING", "FAILED", "RUNNING"), "b": told("RUNNING")})
    failed, unreachable = observe_connect(
        connect_of([first, WorkerAnswer("http://u:p@new:1")], NOW), RuleChanges()
    )
    assert verdicts(failed) == {"a": Verdict.BAD, "b": Verdict.GOOD} and not failed.whole
    assert verdicts(unreachable) == {"http://one:8083": Verdict.GOOD, "http://new:1": Verdict.UNKNOWN}
    (bad,) = [each for each in failed.observations if each.verdict is Verdict.BAD]
    assert (bad.summary, bad.value) == ("connector a: 1 of 2 tasks failed", 1.0)
    assert bad.detail.startswith("task 0: org.apache")
    failed, unreachable = observe_connect(connect_of([away(first)], NOW), RuleChanges())
    assert verdicts(failed) == {"a": Verdict.UNKNOWN, "b": Verdict.UNKNOWN}
    assert verdicts(unreachable) == {"http://one:8083": Verdict.BAD}


def test_an_address_that_is_said_twice_is_one_alert_and_what_is_wrong_is_told() -> None:
    fine, wrong = heard("http://one:8083/", {}), WorkerAnswer("http://ana:old@one:8083", error="HTTP 401")
    for both in ([fine, wrong], [wrong, fine]):
        _, unreachable = observe_connect(connect_of(both, NOW), RuleChanges())
        (only,) = unreachable.observations
        assert only.verdict is Verdict.BAD and only.detail == "HTTP 401"


def test_a_failed_connector_fires_and_its_silence_of_a_dead_worker_ends_nothing() -> None:
    first = heard("http://one:8083", {"a": told("FAILED")})
    mended = heard("http://one:8083", {"a": told("RUNNING")})
    state, at_ms = AlertingState(), NOW
    fires: list[set[str]] = []
    for each, seconds in (
        (first, 70),
        (first, 70),
        (away(first), 3_600),
        (away(first), 3_600),
        (mended, 70),
        (mended, 70),
    ):
        at_ms += seconds * 1000
        now = WorkerAnswer(each.url, each.connectors, at_ms, each.error, each.peers)
        seen = observe_connect(connect_of([now], at_ms), RuleChanges())
        state, _ = step(state, seen, (NotificationRoute((), ("ops",)),), at_ms)
        fires.append({alert.rule for alert in state.firing})
    both = {"connect-failed", "connect-unreachable"}
    assert fires == [set(), {"connect-failed"}, {"connect-failed"}, both, both, set()]


def test_an_alert_leads_to_its_connector() -> None:
    labels = labels_of({"alertname": "connect-failed", "severity": "warning", "connector": "a b"})
    assert (object_path(labels), object_name(labels)) == ("/connect?q=a+b", "a b")
    assert (
        object_path(labels_of({"alertname": "connect-unreachable", "worker": "http://one:1"})) == "/connect"
    )


def test_addresses_are_checked_and_passwords_not_shown() -> None:
    assert without_password("https://ada:pw@c:8083/base/") == "https://c:8083/base"
    assert Settings(connect_urls=["http://ada:pw@c:8083"]).connect_urls
    for wrong in ("c:8083", "ftp://c", "http://c:8083/?x=1", "http://"):
        with pytest.raises(ValidationError, match="connect_urls"):
            Settings(connect_urls=[wrong])
    with pytest.raises(ValidationError) as refused:
        Settings(connect_urls=["http//ada:s3cret@c:8083"])
    assert "not an address" in str(refused.value)


def test_an_address_with_two_names_to_sign_in_is_one_series() -> None:
    heard = [
        WorkerAnswer("http://a:1@connect:8083", (), NOW),
        WorkerAnswer("http://b:2@connect:8083", error="HTTP 401"),
    ]
    text = exposition(
        Overview(NOW, KafkaHealth("b", NOW, None), None, (), (), connect_of(heard, NOW))
    ).decode()
    assert [line for line in text.splitlines() if line.startswith("hub_connect_up{")] == [
        'hub_connect_up{worker="http://connect:8083"} 1.0'
    ]


def test_a_cluster_is_not_hidden_by_another_whose_worker_had_the_address_before() -> None:
    first = heard("http://a:8083", {"x": told("RUNNING", worker="10.0.0.5:8083")})
    first = first.answered(connectors_of({"x": told("RUNNING", worker="10.0.0.6:8083")}), NOW)
    other = heard("http://b:8083", {"y": told("FAILED", worker="10.0.0.5:8083")})
    connect = connect_of([first, other], NOW)
    assert by_name(connect) == {"x": "RUNNING", "y": "FAILED"} and connect.failed == 1
    restarted = heard("http://c:8083", {"x": told("FAILED", worker="10.0.0.5:8083")})
    assert len(connect_of([first, restarted], NOW).connectors) == 1
