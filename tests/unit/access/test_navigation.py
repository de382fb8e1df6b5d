"""The navigation offers what its reader may open, by the rules of the routes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from browser.staged_estate import estate
from fastapi.testclient import TestClient

from hub.access.decide import AccessPolicy, Grant, Principal, decide, patterns_of
from hub.api.route_rules import ROUTES
from hub.caller import CALLER, Caller, Kind
from hub.observability.web.layout import NAVIGATION, SECTIONS, breadcrumbs, visible_navigation

OF_THE_HUB = {"mirrors", "connect", "sinks", "cluster"}


@contextmanager
def called_by(*grants: Grant) -> Iterator[None]:
    policy, who = AccessPolicy(by_name={"ana": grants}), Principal("ana", "user")
    before = CALLER.set(Caller("ana", frozenset(), lambda action, what: decide(policy, who, action, what)))
    try:
        yield
    finally:
        CALLER.reset(before)


def offered(*grants: Grant) -> set[str]:
    with called_by(*grants):
        return {section.key for group in visible_navigation() for section in group.sections}


def test_an_entry_needs_what_the_route_of_its_page_needs() -> None:
    for section in SECTIONS:
        rule = ROUTES[section.href]["GET"]
        assert section.needs == rule.action, section.key
        assert rule.action is None or rule.kind is Kind.hub, section.key


def test_what_may_not_be_opened_is_not_offered() -> None:
    every = {section.key for section in SECTIONS}
    assert offered(Grant("read", patterns_of(["**"]))) == every - OF_THE_HUB - {"access-log", "governance"}
    assert offered(Grant("read", hub=True)) == every - {"access-log", "governance"}
    assert offered(Grant("admin", hub=True)) == every
    assert visible_navigation() == NAVIGATION  # without access control


def test_pages_are_in_three_groups_with_a_key_each() -> None:
    assert [group.title for group in NAVIGATION if group.title] == ["Data", "Flow", "Operate"]
    for values in ([each.shortcut for each in SECTIONS], [each.href for each in SECTIONS]):
        assert len(set(values)) == len(values)


def test_the_search_finds_by_name_what_may_be_opened() -> None:
    hub = estate()
    with TestClient(hub.app()) as client:

        def found(words: str, *grants: Grant) -> set[tuple[str, str]]:
            with called_by(*grants):
                groups = client.get("/api/search", params={"q": words}).json()["groups"]
            return {(hit["name"], hit["href"]) for _, _, hits in groups for hit in hits}

        reader, operator = Grant("read", patterns_of(["**"])), Grant("read", hub=True)
        assert found("nyc-lon", operator) == {("nyc-lon", "/mirrors")}
        assert found("nyc-lon", reader) == set()
        assert found("mirrors", operator) == {("Mirrors", "/mirrors")}
        assert found("mirrors", reader) == set()
        assert found("Dead-letter", reader) == {("Dead-letter records", "/dead-letters")}
        assert ("orders-to-search", "/connect/orders-to-search") in found("orders-to", operator)
    assert hub.node is not None
    hub.node.stop()


@pytest.mark.parametrize(
    ("section", "path", "place", "steps"),
    [
        ("topics", "/topics", "", []),
        ("topics", "/topics", "shop.eu", [("Topics", "/topics"), ("shop", "/topics?under=shop"), ("eu", "")]),
        ("topics", "/topics/orders", "", [("Topics", "/topics"), ("orders", "")]),
        (
            "topics",
            "/topics/shop.a b/settings",
            "",
            [
                ("Topics", "/topics"),
                ("shop", "/topics?under=shop"),
                ("a b", "/topics/shop.a%20b"),
                ("Settings", ""),
            ],
        ),
        ("views", "/views/customer-360", "", [("Views", "/views"), ("customer-360", "")]),
        ("schemas", "/schemas/a/b-value", "", [("Schemas", "/schemas"), ("a/b-value", "")]),
        ("lineage", "/lineage", "topic:shop.orders", [("Lineage", "/lineage"), ("shop.orders", "")]),
        ("alerts", "/alerts/runbooks/lag", "", [("Alerts", "/alerts"), ("Runbooks", ""), ("Lag", "")]),
        ("overview", "/", "", []),
        ("", "/search", "", []),
    ],
)
def test_breadcrumbs(section: str, path: str, place: str, steps: list[tuple[str, str]]) -> None:
    assert [(each.title, each.href) for each in breadcrumbs(section, path, place)] == steps
