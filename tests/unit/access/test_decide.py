"""Authorization by roles, by patterns of the tree, and by what a name belongs to; nothing without a grant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.access.decide import (
    ANONYMOUS,
    ROLES,
    AccessPolicy,
    Grant,
    Principal,
    decide,
    granted_as,
    patterns_of,
)
from hub.caller import HUB, Action, Kind, Resource


def topic(name: str) -> Resource:
    return Resource(Kind.topic, name)


def grants(role: str, *topics: str, views: tuple[str, ...] = (), hub: bool = False) -> Grant:
    return Grant(role, patterns_of(topics), patterns_of(views), hub)


def allowed(grant: Grant, action: Action, what: Resource) -> bool:
    policy = AccessPolicy({"shop": (grant,)})
    return decide(policy, Principal("ana", "user", frozenset({"shop"})), action, what).allowed


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("read", {"describe", "read"}),
        ("write", {"describe", "write"}),
        ("operate", {"describe", "operate"}),
        ("admin", {"describe", "read", "write", "operate", "admin"}),
    ],
)
def test_each_role_has_its_actions_and_no_other(role: str, may: set[str]) -> None:
    grant = grants(role, "shop.orders")
    assert {each.value for each in Action if allowed(grant, each, topic("shop.orders"))} == may


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("shop.orders", "shop.orders", True),
        ("shop.orders", "shop.orders.eu", False),
        ("shop", "shop.orders", False),
        ("nyc.*", "nyc.jfk", True),
        ("nyc.*", "nyc.jfk.departures", False),
        ("nyc.*", "nyc", False),
        ("shop.**", "shop.orders.eu", True),
        ("shop.**", "shopping.orders", False),
        ("**.chat", "team.a.chat", True),
        ("**.chat", "team.a.chats", False),
        ("**", "anything.at.all", True),
    ],
)
def test_patterns_are_label_by_label(pattern: str, name: str, fits: bool) -> None:
    assert allowed(grants("read", pattern), Action.read, topic(name)) is fits


@pytest.mark.parametrize(
    ("what", "by"),
    [
        (Resource(Kind.subject, "nyc.jfk.departures-value"), "nyc.jfk.departures"),
        (Resource(Kind.subject, "nyc.jfk.departures-key"), "nyc.jfk.departures"),
        (Resource(Kind.subject, ":.eu:nyc.jfk.departures-value"), "nyc.jfk.departures"),
        (Resource(Kind.subject, "com.acme.Order"), "com.acme.Order"),
        (topic("shop.orders.dlq"), "shop.orders"),
        (topic("shop.orders.quarantine"), "shop.orders"),
        (Resource(Kind.subject, "shop.orders.dlq-value"), "shop.orders"),
    ],
)
def test_what_belongs_to_a_topic_is_granted_with_it(what: Resource, by: str) -> None:
    assert allowed(grants("read", by), Action.read, what)
    assert not allowed(grants("read", by + "x"), Action.read, what)


@pytest.mark.parametrize(
    "name",
    ["views.customer_360", "views.customer_360.v2", "views.customer_360.dlq", "views.customer_360.late"],
)
def test_a_changelog_belongs_to_its_view(name: str) -> None:
    assert allowed(grants("read", views=("customer_360",)), Action.read, topic(name))
    assert not allowed(grants("read", views=("customer_361",)), Action.read, topic(name))


def test_nobody_but_an_admin_writes_into_a_changelog() -> None:
    for what in (topic("views.customer_360.v2"), Resource(Kind.subject, "views.customer_360-value")):
        assert not allowed(grants("write", "**", views=("**",)), Action.write, what)
        assert allowed(grants("admin", views=("customer_360",)), Action.write, what)
        assert allowed(grants("read", "**"), Action.read, what)


def test_a_view_is_granted_by_its_own_name_only() -> None:
    view = Resource(Kind.view, "customer_360")
    assert allowed(grants("read", views=("customer_*", "customer_360")), Action.read, view)
    assert not allowed(grants("read", "**"), Action.read, view)
    assert not allowed(grants("read", "customer_360", "views.customer_360"), Action.read, view)


def test_the_hubs_own_topics_take_a_pattern_of_their_own_or_an_admin_of_the_hub() -> None:
    for own in ("_schemas", "_hub.alerts", "__consumer_offsets"):
        assert not allowed(grants("admin", "**"), Action.read, topic(own))
        assert allowed(grants("admin", hub=True), Action.read, topic(own))
        assert not allowed(grants("read", hub=True), Action.read, topic(own))
    assert allowed(grants("read", "_hub.*"), Action.read, topic("_hub.alerts"))


def test_the_hub_itself_is_in_no_pattern() -> None:
    assert not allowed(grants("operate", "**", views=("**",)), Action.operate, HUB)
    assert allowed(grants("operate", hub=True), Action.operate, HUB)
    assert not allowed(grants("operate", hub=True), Action.operate, topic("shop.orders"))


def test_a_refusal_says_what_is_missing_and_who_can_give_it() -> None:
    policy = AccessPolicy(contact="the platform team")
    no = decide(policy, Principal("ana", "user"), Action.write, Resource(Kind.subject, "shop.orders-value"))
    assert no.reason == 'ana may not write subject "shop.orders-value"'
    assert no.hint is not None
    assert (
        'role write or admin with topics: ["shop.orders"]' in no.hint and "ask the platform team" in no.hint
    )
    hub = decide(policy, ANONYMOUS, Action.operate, HUB)
    assert "hub: true" in (hub.hint or "")


def test_what_everybody_has_somebody_has_too() -> None:
    policy = AccessPolicy(anonymous=(grants("read", "public.**"),))
    for who in (ANONYMOUS, Principal("ana", "user")):
        assert decide(policy, who, Action.read, topic("public.holidays")).allowed
        assert not decide(policy, who, Action.read, topic("shop.orders")).allowed


def test_grants_by_name_are_not_of_who_has_no_name() -> None:
    policy = AccessPolicy(by_name={"": (grants("admin", "**", hub=True),)})
    assert not decide(policy, ANONYMOUS, Action.read, topic("shop.orders")).allowed


names = st.from_regex(r"[a-z_]{1,4}(\.[a-z@]{1,4}){0,3}(\.dlq|\.late|-value)?", fullmatch=True)


@given(
    st.sampled_from(Action),
    st.sampled_from([Kind.topic, Kind.subject, Kind.view, Kind.hub]),
    names,
)
def test_nothing_is_allowed_to_whom_nothing_is_granted(action: Action, kind: Kind, name: str) -> None:
    assert not decide(AccessPolicy(), Principal("ana", "user"), action, Resource(kind, name)).allowed


@given(st.lists(st.tuples(st.sampled_from(list(ROLES)), names), max_size=4), names, st.sampled_from(Action))
def test_a_grant_more_never_takes_away(given_: list[tuple[str, str]], name: str, action: Action) -> None:
    every = tuple(grants(role, pattern.replace("@", "a")) for role, pattern in given_)
    who = Principal("ana", "user", frozenset({"g"}))
    before = [
        decide(AccessPolicy({"g": every[:n]}), who, action, topic(name)).allowed
        for n in range(len(every) + 1)
    ]
    assert before == sorted(before)


@given(names)
def test_what_it_belongs_to_is_found_and_it_ends(name: str) -> None:
    found = list(granted_as(topic(name)))
    assert found[0] == topic(name) and len(found) <= 2
