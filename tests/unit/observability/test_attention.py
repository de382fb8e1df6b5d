"""What the overview lists as in need of attention: each problem once, worst first, with its cause; unknown is
UNKNOWN."""

from __future__ import annotations

from dataclasses import replace

from browser.staged_estate import LATE, StagedAlerts, late

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, Verdict
from hub.observability.cluster.connect import WorkerAnswer, connect_of, connectors_of
from hub.observability.lag.states import LagState
from hub.observability.overview.attention import needs_attention
from hub.observability.overview.overview import KafkaHealth, Overview, SourceLag, ViewLine

NOW = 1_700_000_000_000


def view(name: str, state: str = "live", reason: str | None = None, lag: LagState | None = None) -> ViewLine:
    late = None if lag is None else SourceLag("shop.orders", lag, "reads 3/s, 9 arrive", 5, 7.0, 0.1, None)
    return ViewLine(name, "", "", state, reason, NOW - 60_000, None, 1, None, None, None, None, late, ())


def overview(*views: ViewLine) -> Overview:
    return Overview(NOW, KafkaHealth("k:9092", NOW, None), None, (), views)


def listed(found: Overview, alerts: StagedAlerts | None = None) -> list[tuple[str, str, str, str]]:
    problems = needs_attention(found, None if alerts is None else alerts.snapshot())
    return [(each.level, each.kind, each.name, each.state) for each in problems]


def test_nothing_is_listed_while_all_is_well() -> None:
    assert listed(overview(view("a", lag=LagState.OK), view("b", "realtime")), StagedAlerts()) == []
    assert listed(overview(view("new", "bulk"), view("newer", "starting"))) == []


def test_views_in_trouble_are_sorted_by_level() -> None:
    found = overview(
        view("silent", "unknown"),
        view("slow", lag=LagState.FALLING_BEHIND),
        view("stuck", lag=LagState.STALLED),
        view("dead", "failed", "no field x"),
        view("odd", lag=LagState.UNKNOWN),
    )
    assert listed(found) == [
        ("bad", "view", "dead", "failed"),
        ("bad", "view", "stuck", "stalled"),
        ("warn", "view", "slow", "falling behind"),
        ("unknown", "view", "odd", "UNKNOWN"),
        ("unknown", "view", "silent", "UNKNOWN"),
    ]
    first = needs_attention(found)[0]
    assert (first.cause, first.since_ms, first.href) == ("no field x", NOW - 60_000, "/views/dead")
    assert needs_attention(found)[1].cause == "shop.orders: reads 3/s, 9 arrive"


def test_firing_alerts_are_listed_and_silenced_ones_are_not() -> None:
    alerts = StagedAlerts()
    of_view = Observation(
        labels_of({"consumer": "slow", "kind": "view", "topic": "shop.orders"}),
        Verdict.BAD,
        "view slow is late",
        41.0,
        labels_of({"owner": "shop"}),
        "",
    )
    alerts.see(LATE, late("billing"), late("quiet", "web"), of_view)
    alerts.silence((("owner", ("web",)),), "new machines", "ada", NOW * 2)
    found = overview(view("slow", lag=LagState.FALLING_BEHIND))
    assert listed(found, alerts) == [
        ("bad", "alert", "billing on shop.orders", "lag"),
        ("bad", "alert", "slow on shop.orders", "lag"),  # its lag is not listed again
    ]
    (first, _) = needs_attention(found, alerts.snapshot())
    assert first.since_ms is not None and first.href == "/lag?name=billing&prefix=shop.orders"
    alerts.error = "Kafka is away"
    assert listed(found, alerts) == [
        ("warn", "view", "slow", "falling behind"),
        ("unknown", "alerts", "", "UNKNOWN"),
    ]


def test_connectors_that_failed_and_those_that_are_unknown() -> None:
    body = {
        name: {"status": {"connector": {"state": state, "worker_id": "w"}, "tasks": [], "type": "sink"}}
        for name, state in (("good", "RUNNING"), ("bad", "FAILED"))
    }
    heard = WorkerAnswer("http://c:8083").answered(connectors_of(body), NOW)
    found = replace(overview(), connect=connect_of([heard], NOW))
    assert listed(found) == [("bad", "connector", "bad", "failed")]
    found = replace(overview(), connect=connect_of([heard], NOW + 10**9))
    ((level, kind, name, state),) = listed(found)
    assert (level, kind, name, state) == ("unknown", "Kafka Connect", "", "UNKNOWN")
    found = replace(overview(), connect=connect_of([WorkerAnswer("http://c:8083")], NOW))
    assert listed(found) == []  # its workers were not heard yet
