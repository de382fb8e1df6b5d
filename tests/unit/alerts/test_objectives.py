"""Measurements against objectives: BAD, GOOD and UNKNOWN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from hub.alerts.config.alerts_yaml import QueryAlert
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.model.rules import RULES, Observation, Promise, RuleChanges, RuleObservations, Verdict
from hub.api.alerting import AlertSources, QueryWatch, run
from hub.api.web import Measurers
from hub.completeness.balances import Balance, CompletenessState, CountDifference, TopicCompleteness
from hub.completeness.canary.probes import Canary
from hub.completeness.counts import Holes
from hub.completeness.counts_follower import KnownCounts
from hub.completeness.objectives import observe_canaries, observe_completeness
from hub.config import Settings
from hub.errors import PeerError
from hub.kafka.contact.notes import ContactNote
from hub.kafka.contact.watchdog import ContactReport
from hub.observability.cluster.connect import connect_of
from hub.observability.cluster.health import Health
from hub.observability.export.objectives import observe_readers, observe_topics, observe_views, promise_of
from hub.observability.lag.anchors import Anchor
from hub.observability.lag.consumers import LagRow
from hub.observability.latency.latency import LatencyRow
from hub.observability.overview.contact_watch import ContactWatch, observe_contact
from hub.replication.status.objectives import RULES as MIRROR_RULES
from hub.topics.tree.tree import Slo, TopicSpec

BAD, GOOD, UNKNOWN = Verdict.BAD, Verdict.GOOD, Verdict.UNKNOWN
CHANGES = RuleChanges()
NOW = 10_000_000


def spec(name: str = "shop.orders", **slo: Any) -> TopicSpec:
    by = {f"slo.{key}": "shop" for key in ("lag", "freshness", "latency", "completeness")}
    return TopicSpec(name, "shop-team", "", 1, 1, {}, None, None, (), by, Slo(**slo))


def row(**said: Any) -> LagRow:
    plain: dict[str, Any] = dict.fromkeys(LagRow.__slots__)
    about = {
        "kind": "group",
        "name": "billing",
        "topic": "shop.orders",
        "owner": "",
        "state": "OK",
        "cause": "why",
    }
    return LagRow(**{**plain, **about, "trend": (), **said})


def verdicts(seen: RuleObservations) -> dict[str, Verdict]:
    return {next(iter(dict(o.object).values())): o.verdict for o in seen.observations}


def one(seen: RuleObservations) -> Observation:
    (found,) = seen.observations
    return found


@pytest.mark.parametrize(
    ("said", "late", "losing"),
    [
        ({"seconds": 31.0, "error_s": 0.5, "state": "STOPPED"}, BAD, GOOD),
        ({"seconds": 30.0, "state": "OK"}, GOOD, GOOD),
        ({"seconds": 0.0, "state": "OK"}, GOOD, GOOD),
        ({"seconds": None, "state": "UNKNOWN"}, UNKNOWN, UNKNOWN),
        ({"seconds": None, "state": "CATCHING_UP"}, UNKNOWN, GOOD),
        ({"seconds": 100.0, "state": "AT_RISK", "loss_s": 60.0}, BAD, BAD),
        ({"seconds": None, "state": "LOST", "lost_records": 7}, UNKNOWN, BAD),
    ],
)
def test_readers(said: dict[str, Any], late: Verdict, losing: Verdict) -> None:
    tree = {"shop.orders": spec(lag_ms=30_000), "shop.free": spec("shop.free")}
    rows = [row(**said), row(topic="shop.free", seconds=999.0), row(topic="not.ours", seconds=999.0)]
    # covered by rules of its own
    rows.append(row(kind="mirror", name="nyc-lon", state="LOST", seconds=999.0))
    first, second = observe_readers(rows, tree, CHANGES, measured=True)
    assert (one(first).verdict, one(second).verdict) == (late, losing)
    assert dict(one(first).labels) == {"owner": "shop-team", "node": "shop"}
    assert dict(one(first).object) == {"consumer": "billing", "kind": "group", "topic": "shop.orders"}
    assert first.whole and not observe_readers([], tree, CHANGES, measured=False)[0].whole


def anchors(*those: tuple[int, int, int]) -> tuple[Anchor, ...]:
    return tuple(Anchor(*each) for each in those)


@pytest.mark.parametrize(
    ("ring", "verdict"),
    [
        ((), UNKNOWN),  # no such topic
        (anchors((5, NOW - 10_000, NOW)), UNKNOWN),  # observed for ten seconds only
        (anchors((5, NOW - 61_000, NOW)), BAD),  # observed for long enough: the topic did not grow
        (anchors((5, NOW - 90_000, NOW - 50_000), (6, NOW - 49_000, NOW)), GOOD),
        (anchors((5, NOW - 900_000, NOW - 62_000), (6, NOW - 61_000, NOW)), BAD),
        (anchors((5, NOW - 900_000, NOW - 200_000)), UNKNOWN),  # Kafka has not answered for a long time
    ],
)
def test_a_topics_freshness_is_a_proof(ring: tuple[Anchor, ...], verdict: Verdict) -> None:
    tree = {"shop.orders": spec(freshness_ms=60_000)}
    rings = {"shop.orders": {0: ring}} if ring else {}
    assert one(observe_topics(rings, tree, CHANGES, NOW)).verdict is verdict


def test_one_partition_that_moves_is_enough() -> None:
    still, moved = (
        anchors((5, NOW - 900_000, NOW)),
        anchors((1, NOW - 900_000, NOW - 9_000), (2, NOW - 8_000, NOW)),
    )
    tree = {"shop.orders": spec(freshness_ms=60_000)}
    assert one(observe_topics({"shop.orders": {0: still, 1: moved}}, tree, CHANGES, NOW)).verdict is GOOD


PROMISE = Promise("v", "crm", "", 2_000, 0.99, 60_000)
LATENCY = LatencyRow("v", "readable", "serving", "live", 100, objective_s=2.0, within=0.995)


@pytest.mark.parametrize(
    ("latency", "lag", "slow", "old"),
    [
        (LATENCY, row(kind="view", name="v", seconds=1.0), GOOD, GOOD),
        (replace(LATENCY, within=0.98), row(kind="view", name="v", seconds=61.0, state="STOPPED"), BAD, BAD),
        (
            replace(LATENCY, within=0.98, silent=True),
            row(kind="view", name="v", state="UNKNOWN"),
            UNKNOWN,
            UNKNOWN,
        ),
        (
            replace(LATENCY, objective_s=5.0, within=0.5),
            row(kind="view", name="v", seconds=None),
            UNKNOWN,
            UNKNOWN,
        ),
        (replace(LATENCY, events=0, within=None), row(kind="view", name="v", seconds=0.0), GOOD, GOOD),
        (
            replace(LATENCY, events=0, within=None),
            row(kind="view", name="v", seconds=90.0, state="STOPPED"),
            UNKNOWN,
            BAD,
        ),
        (replace(LATENCY, origin="replay", within=0.1), row(kind="view", name="other"), UNKNOWN, UNKNOWN),
    ],
)
def test_views(latency: LatencyRow, lag: LagRow, slow: Verdict, old: Verdict) -> None:
    first, second = observe_views([PROMISE], [latency], [lag], CHANGES, measured=True)
    assert (one(first).verdict, one(second).verdict) == (slow, old)


def test_the_appliers_delay_counts_for_the_view() -> None:
    rows = [
        row(kind="view", name="v", seconds=0.0),
        row(kind="applier", name="v", seconds=300.0, state="STALLED"),
    ]
    assert one(observe_views([PROMISE], [], rows, CHANGES, measured=True)[1]).verdict is BAD


def test_a_views_own_word_is_before_its_topics() -> None:
    tree = {
        "a": spec("a", latency_ms=5_000, latency_share=0.9),
        "b": spec("b", latency_ms=1_000),
        "c": spec("c"),
    }
    own = promise_of("v", "crm", ["a"], tree, latency_ms=100, latency_share=0.5, freshness_ms=7)
    assert (own.latency_ms, own.latency_share, own.node, own.owner) == (100, 0.5, "", "crm")
    told = promise_of("v", "", ["a", "b", "c"], tree, latency_ms=None, latency_share=0.99, freshness_ms=None)
    assert (told.latency_ms, told.node, told.owner) == (1_000, "shop", "shop-team")
    none = promise_of("v", "crm", ["c", "d"], tree, latency_ms=None, latency_share=0.99, freshness_ms=7)
    assert (none.latency_ms, none.freshness_ms) == (None, 7)


def balance(**said: Any) -> Balance:
    plain = {
        "kind": "mirror",
        "instance": "m",
        "state": CompletenessState.BALANCED,
        "cause": "",
        "records": 10,
        "compared": 10,
    }
    return Balance(
        **{**plain, "waiting": 0, "missing": 0, "excess": 0, "dropped": 0, "differences": (), **said}
    )  # type: ignore[arg-type]


SWAPPED = CountDifference(0, CompletenessState.MISMATCH, 5, 5)


def audit(state: CompletenessState, *balances: Balance, holes: Holes | None = None) -> TopicCompleteness:
    return TopicCompleteness(
        "shop.orders", state, "why", 100, 0, 100, holes or Holes(), 0, (), 1, balances, {}
    )


@pytest.mark.parametrize(
    ("found", "promised", "verdict"),
    [
        (audit(CompletenessState.BALANCED, balance()), 1.0, GOOD),
        (audit(CompletenessState.SHORT, balance(missing=1)), 1.0, BAD),
        (audit(CompletenessState.SHORT, balance(missing=1)), 0.9, GOOD),
        (audit(CompletenessState.SHORT, balance(missing=1), balance(missing=2)), 0.9, BAD),
        (audit(CompletenessState.MISMATCH, balance()), 0.5, BAD),
        (audit(CompletenessState.UNEXPLAINED, balance(), holes=Holes(unexplained=1)), 1.0, BAD),
        (audit(CompletenessState.UNKNOWN), 1.0, UNKNOWN),
        (audit(CompletenessState.OPEN, balance(compared=0)), 1.0, UNKNOWN),
        (audit(CompletenessState.EXCESS, balance(excess=3)), 1.0, GOOD),
        # Missing records within the objective do not hide other faults.
        (
            audit(
                CompletenessState.SHORT,
                balance(missing=1),
                balance(state=CompletenessState.MISMATCH, differences=(SWAPPED,)),
            ),
            0.5,
            BAD,
        ),
        (audit(CompletenessState.SHORT, balance(missing=1, differences=(SWAPPED,))), 0.5, BAD),
        (
            audit(CompletenessState.SHORT, balance(missing=1), balance(state=CompletenessState.UNKNOWN)),
            0.5,
            UNKNOWN,
        ),
        (
            audit(
                CompletenessState.SHORT, balance(missing=1), balance(state=CompletenessState.OPEN, compared=0)
            ),
            0.5,
            UNKNOWN,
        ),
        (audit(CompletenessState.SHORT, balance(missing=1, waiting=5)), 0.5, UNKNOWN),
        (audit(CompletenessState.SHORT, balance(missing=9, waiting=5)), 0.5, BAD),
    ],
)
def test_the_ledger(found: TopicCompleteness, promised: float, verdict: Verdict) -> None:
    tree = {"shop.orders": spec(completeness=promised), "shop.free": spec("shop.free")}
    assert one(observe_completeness(KnownCounts((found,), None, 0), tree, CHANGES)).verdict is verdict
    assert one(observe_completeness(KnownCounts((found,), "away", 0), tree, CHANGES)).verdict is UNKNOWN
    assert "hub completeness run" in one(observe_completeness(KnownCounts((), None, 0), tree, CHANGES)).detail


def test_a_share_of_almost_all_is_not_said_to_be_all() -> None:
    lacking = audit(CompletenessState.SHORT, balance(missing=1, compared=20_000_000))
    found = one(
        observe_completeness(KnownCounts((lacking,), None, 0), {"t": spec(completeness=1.0)}, CHANGES)
    )
    assert found.verdict is BAD and "99.99999 % of the records" in found.summary


# ---- canaries


def test_canaries_that_fail_or_are_lost_on_a_way() -> None:
    canary = Canary("r", 0.0)
    canary.way("mirror:nyc-lon", 0.0)
    canary.way("view", 0.0).blind("no view takes them")

    def seen(now_s: float) -> dict[str, Observation]:
        canary.passed(now_s)
        found = observe_canaries(canary.rows(now_s), CHANGES)
        assert found.rule.name == "canary" and found.whole
        return {dict(each.object)["way"]: each for each in found.observations}

    assert {each.verdict for each in seen(0.5).values()} == {UNKNOWN}  # nothing was sent yet
    for second in range(60):
        probe = canary.next(0, second * 1000, float(second))
        canary.acknowledged(probe, second + 0.01)
        if second < 20:
            canary.came("mirror:nyc-lon", probe, second + 0.5)
        if second == 19:
            assert seen(19.9)["mirror:nyc-lon"].verdict is GOOD
        if second == 45:
            losing = seen(45.0)["mirror:nyc-lon"]
            assert losing.verdict is BAD and losing.value and "lost" in losing.summary
    told = seen(60.0)
    failing = told["mirror:nyc-lon"]
    assert failing.verdict is BAD and failing.summary == "no canary comes on the way mirror:nyc-lon"
    assert failing.detail.startswith("nothing came for")
    # A paused mirror is not a fault, and does not affect other routes.
    paused = observe_canaries(canary.rows(60.0), CHANGES, {"nyc-lon"}).observations
    assert {dict(each.object)["way"]: each.verdict for each in paused} == {
        "mirror:nyc-lon": UNKNOWN,
        "ack": GOOD,
        "view": UNKNOWN,
    }
    assert not any(each.summary for each in paused)
    assert (told["ack"].verdict, told["view"].verdict) == (GOOD, UNKNOWN)
    assert told["view"].detail == "no view takes them" and told["ack"].summary == ""


# ---- queries


def query(**said: Any) -> QueryAlert:
    return QueryAlert.model_validate({"alert": "unpaid", "query": "SELECT", **said})


def answering(rows: Sequence[Sequence[Any]], more: bool = False) -> Any:
    return lambda _sql, _limit, _ms: (["customer_id", "owes"], rows, more)


ROWS = [["C-1", 12], ["C-2", 700]]


def test_rows_of_a_query_are_one_alert_or_one_each() -> None:
    whole = run(query(summary="{customer_id} owes {owes}"), answering(ROWS))
    assert (one(whole).verdict, one(whole).summary) == (BAD, "C-1 owes 12 (and 1 more)")
    assert one(run(query(), answering([]))).verdict is GOOD
    each = run(query(by=["customer_id"], summary="{customer_id} owes {owes}"), answering(ROWS))
    assert [(dict(o.object), o.summary) for o in each.observations] == [
        ({"customer_id": "C-1"}, "C-1 owes 12"),
        ({"customer_id": "C-2"}, "C-2 owes 700"),
    ]
    assert (each.absent, each.whole) == (GOOD, True)
    many = run(query(by=["customer_id"]), answering(ROWS, more=True))
    assert (many.absent, many.whole) == (UNKNOWN, False)
    assert one(run(query(when="no rows"), answering([]))).verdict is BAD
    assert one(run(query(when="no rows"), answering(ROWS))).verdict is GOOD


def test_a_query_that_cannot_be_run_says_so_and_ends_nothing() -> None:
    def away(*_: object) -> Any:
        raise PeerError("the store is away")

    seen = run(query(), away)
    assert (seen.observations, seen.whole, seen.error) == ((), False, "the store is away")
    wrong = run(query(summary="{ows}"), answering(ROWS))
    assert wrong.observations == () and 'did you mean "owes"?' in (wrong.error or "")


def test_each_query_runs_when_it_is_due() -> None:
    asked: list[str] = []
    now = [0.0]

    class Live:
        alerts = (query(alert="a", query="A", every="10s"), query(alert="b", query="B", every="1m"))

        def queries(self) -> list[QueryAlert]:
            return list(self.alerts)

    def ask(sql: str, _limit: int, _ms: int) -> Any:
        asked.append(sql)
        return ["x"], [], False

    live = Live()
    watch = QueryWatch(live, ask, now_s=lambda: now[0])  # type: ignore[arg-type]
    assert [(s.whole, s.observations) for s in watch.observations(CHANGES, 0)] == [(False, ()), (False, ())]
    for second in (1, 2, 3, 11, 12, 13, 22, 62, 63):
        now[0] = second
        watch.step()
    assert asked == ["A", "B", "A", "A", "A", "B"]
    live.alerts = (query(alert="a", query="A2", every="10s"),)
    watch.step()
    assert asked[-1] == "A2" and [s.rule.name for s in watch.observations(CHANGES, 0)] == ["a"]
    assert set(watch.observed) == {"a"}


# ---- all rules


def test_each_rule_is_judged_by_what_the_server_asks(tmp_path: Path) -> None:
    """A rule without a source would be listed and have a runbook, but never fire."""
    memory: Any = SimpleNamespace(
        store_trouble=lambda: None,
        store_answered=True,
        rows=tuple,
        round_s=1.0,
        error=None,
        lock=Lock(),
        rings={},
        records={},
        connect=lambda: connect_of([], 0),
    )
    others: Any = SimpleNamespace(
        latest=Health,
        observations=lambda tree, changes: [RuleObservations(changes.rule(name)) for name in MIRROR_RULES],
        resting=frozenset,
    )
    ledger: Any = SimpleNamespace(latest=lambda: KnownCounts((), None, 0))

    def judged(settings: Settings, canaries: Any) -> list[str]:
        files = (LiveAlerts(tmp_path), ContactWatch(tmp_path))
        slots: Any = SimpleNamespace(latest=tuple)
        measurers = Measurers(memory, memory, memory, others, slots, memory)
        sources = AlertSources(settings, measurers, ledger, others, canaries, *files).all()
        return [each.rule.name for source in sources for each in source(CHANGES, 1_000)]

    assert sorted(judged(Settings(project=tmp_path), tuple)) == sorted(RULES)
    # A server without view verification and canaries.
    off = judged(Settings(project=tmp_path, proof_core_share=0.0), None)
    assert set(RULES) - set(off) == {"canary"}


@pytest.mark.parametrize(
    ("reports", "answers", "verdict"),
    [
        (
            (ContactReport("kafka:9092", "writer", 31.0, "all of its connections are down"),),
            True,
            Verdict.BAD,
        ),
        ((ContactReport("kafka:9092", "writer", 29.0, "no answer"),), True, Verdict.GOOD),
        ((), True, Verdict.GOOD),
        (None, True, Verdict.UNKNOWN),
        ((ContactReport("kafka:9092", "writer", 31.0, "no answer"),), False, Verdict.UNKNOWN),
    ],
)
def test_a_process_that_alone_has_no_answer_of_kafka(
    reports: tuple[ContactReport, ...] | None, answers: bool, verdict: Verdict
) -> None:
    note = ContactNote("applier", 7, 0, reports)
    (seen,) = observe_contact([note], CHANGES, cut_off_s=30.0, kafka_answers=answers)
    (found,) = seen.observations
    assert (found.object, found.verdict) == ((("process", "applier"),), verdict)
    if verdict is Verdict.BAD:
        assert found.summary == "Kafka has not answered applier for 31 s"
        assert "all of its connections are down" in found.detail
