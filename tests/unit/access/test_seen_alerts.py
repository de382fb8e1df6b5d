"""Alerts for callers with grants on a part of the tree: their visibility, and their silences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from browser.staged_estate import LATE, StagedAlerts, late
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.access.decide import AccessPolicy, Grant, Principal, decide, patterns_of
from hub.alerts.delivery.notification_queues import ChannelStatus
from hub.alerts.model.alert_state import AlertingState
from hub.alerts.model.matching import labels_of, matchers_of
from hub.alerts.model.rules import RULES, AlertRule, Observation, RuleObservations, Verdict
from hub.alerts.model.state_machine import step
from hub.alerts.routes import create_router
from hub.alerts.snapshot import RuleStatus
from hub.api.app import on_hub_error
from hub.api.visibility import VisibleAlerts
from hub.caller import CALLER, Caller, Forbidden
from hub.errors import CallerError, HubError
from hub.materializers.queries.saved_queries import readable

QUERIES = {
    "unpaid": AlertRule("unpaid", "query", "Somebody owes.", query="SELECT 1 FROM customer_360"),
    "salaries": AlertRule("salaries", "query", "Paid too much.", query="SELECT 1 FROM hr_salaries"),
}
VIEWS = ("customer_360", "hr_salaries")
SHOP = Grant("read", patterns_of(["shop.**"]), patterns_of(["customer_360"]))
OPERATES = Grant("operate", patterns_of(["shop.**"]), patterns_of(["customer_360"]))
HUB_READ = Grant("read", hub=True)
FAR = 4_000_000_000_000


@contextmanager
def asked_by(*grants: Grant) -> Iterator[None]:
    policy, who = AccessPolicy(by_name={"ana": grants}), Principal("ana", "user")
    caller = Caller("ana", frozenset(), lambda action, what: decide(policy, who, action, what))
    before = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(before)


def about(**said: str) -> Observation:
    return Observation(labels_of(said), Verdict.BAD, "broken")


def seen(rule: str, *those: Observation) -> RuleObservations:
    return RuleObservations(QUERIES.get(rule) or RULES[rule], those)


def desk_of(*those: RuleObservations) -> tuple[VisibleAlerts, StagedAlerts]:
    state = AlertingState()
    for at in (1, 10_000_000):
        state, _ = step(state, those, (), at)
    rules = tuple(RuleStatus(each.rule, 3, len(each.observations), 1) for each in those)
    staged = StagedAlerts(
        state, rules=rules, channels=(ChannelStatus("ops", "webhook"),), troubles=("secret",)
    )
    staged.firing = lambda: staged.snapshot().firing  # type: ignore[attr-defined]
    return VisibleAlerts(staged, lambda sql: readable(VIEWS, sql)), staged  # type: ignore[arg-type]


EVERY = (
    seen("lag", about(consumer="billing", kind="group", topic="shop.orders"), about(consumer="pay",
    kind="group", topic="hr.salaries")),
    seen("loss", about(consumer="hr_view", kind="view", topic="shop.orders"), about(consumer="customer_360",
    kind="view", topic="shop.orders")),
    seen("view-freshness", about(view="customer_360"), about(view="hr_view")),
    seen("mirror-lag", about(mirror="nyc-lon"), about(mirror="nyc-lon", topic="shop.orders"),
    about(mirror="nyc-lon", topic="hr.salaries")),
    seen("connect-failed", about(connector="orders-sink")),
    seen("partitions-offline", about()),
    seen("canary", about(way="mirror:nyc-lon")),
    seen("unpaid", about()),
    seen("salaries", about()),
)  # fmt: skip
MINE = {
    ("lag", "billing", "shop.orders"),
    ("loss", "customer_360", "shop.orders"),
    ("view-freshness", "", ""),
    ("mirror-lag", "", "shop.orders"),
    ("unpaid", "", ""),
}


def told(desk: VisibleAlerts) -> set[tuple[str, str, str]]:
    found = set()
    for each in desk.snapshot().listing.open:
        said = dict(each.alert.object)
        found.add((each.alert.rule, said.get("consumer", ""), said.get("topic", "")))
    return found


def test_a_part_of_the_tree_has_its_alerts_and_no_other() -> None:
    desk, _ = desk_of(*EVERY)
    with asked_by(SHOP):
        assert told(desk) == MINE
        known = desk.snapshot()
        assert (known.whole, known.firing, desk.firing()) == (False, 5, 5)
        assert (known.channels, known.problems) == ((), ())
        rules = {each.rule.name: each for each in known.rules}
        assert "salaries" not in rules and "unpaid" in rules
        assert all((each.good, each.bad, each.unknown) == (None, None, None) for each in known.rules)
        assert (rules["mirror-lag"].firing, rules["connect-failed"].firing) == (1, 0)
    with asked_by(Grant("write", patterns_of(["crm.**"]))):
        assert told(desk) == set()


def test_who_reads_the_hub_and_who_is_not_controlled_see_all() -> None:
    desk, staged = desk_of(*EVERY)
    assert desk.snapshot() == staged.snapshot() or desk.snapshot().whole
    with asked_by(HUB_READ):
        assert len(desk.snapshot().listing.open) == len(staged.snapshot().listing.open) == 14
        assert desk.snapshot().whole and desk.snapshot().channels and desk.snapshot().rules[0].good == 3


def test_what_is_over_is_seen_by_the_same_people() -> None:
    desk, staged = desk_of(*EVERY)
    gone = [RuleObservations(each.rule, (), Verdict.GOOD) for each in EVERY]
    for at in (20_000_000, 30_000_000):
        staged.state, _ = step(staged.state, gone, (), at)
    with asked_by(SHOP):
        assert {each.alert.rule for each in desk.snapshot().listing.past} == {rule for rule, *_ in MINE}


@pytest.mark.parametrize(
    ("matchers", "error"),
    [
        ({"topic": "shop.orders"}, None),
        ({"topic": ["shop.orders", "shop.payments"], "alertname": "*"}, None),
        ({"view": "customer_360"}, None),
        ({"topic": "shop.**"}, CallerError),
        ({"topic": "hr.salaries"}, Forbidden),
        ({"topic": ["shop.orders", "hr.salaries"]}, Forbidden),
        ({"owner": "shop"}, Forbidden),
        ({"mirror": "nyc-lon"}, Forbidden),
    ],
)
def test_who_operates_a_part_silences_it_by_name_and_nothing_else(matchers: Any, error: Any) -> None:
    desk, staged = desk_of(*EVERY)
    with asked_by(OPERATES):
        if error is None:
            made = desk.silence(matchers_of(matchers), "deploy", "ana", FAR)
            assert made.id in staged.state.silences and made.id in desk.snapshot().state.silences
            assert desk.unsilence(made.id).id == made.id
        else:
            with pytest.raises(error):
                desk.silence(matchers_of(matchers), "deploy", "ana", FAR)
            assert not staged.state.silences
    with asked_by(SHOP), pytest.raises((Forbidden, CallerError)):
        desk.silence(matchers_of(matchers), "deploy", "ana", FAR)
    with asked_by(Grant("operate", hub=True)):
        assert desk.silence(matchers_of(matchers), "deploy", "bob", FAR)


def test_silences_of_others_are_neither_seen_nor_ended() -> None:
    desk, staged = desk_of(*EVERY)
    hidden = staged.silence(matchers_of({"topic": "hr.salaries"}), "secret move", "hr", FAR)
    wide = staged.silence(matchers_of({"severity": ["page", "warning"]}), "the whole night", "bob", FAR)
    with asked_by(SHOP, OPERATES):
        # A silence that affects one of their alerts is visible, whoever created it.
        assert set(desk.snapshot().state.silences) == {wide.id}
        assert all(each.silence is not None for each in desk.snapshot().listing.open)
        for id in (hidden.id, wide.id, "nothing"):
            with pytest.raises(Forbidden):
                desk.unsilence(id)
    assert hidden.id in staged.state.silences


def test_the_api_says_that_there_is_more() -> None:
    desk, _ = desk_of(*EVERY)
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(desk))
    client = TestClient(app)
    assert client.get("/api/alerts").json()["whole"] is True
    with asked_by(SHOP):
        body = client.get("/api/alerts").json()
        assert body["whole"] is False and body["channels"] == [] and body["rules"][0]["good"] is None
        assert "hr" not in str(body) and "secret" not in str(body) and "orders-sink" not in str(body)
        refused = client.post(
            "/api/alerts/silences", json={"matchers": {"topic": "shop.orders"}, "reason": "x", "for": "2h"}
        )
        assert refused.status_code == 403 and "operate" in refused.json()["hint"]


def test_a_staged_alert_of_the_pages_is_seen_by_its_topic() -> None:
    staged = StagedAlerts()
    staged.see(LATE, late("billing"))
    with asked_by(SHOP):
        assert len(VisibleAlerts(staged, lambda _: False).snapshot().listing.open) == 1  # type: ignore[arg-type]
