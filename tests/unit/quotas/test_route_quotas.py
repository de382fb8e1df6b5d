"""Test that no route passes by the quotas unnoticed."""

from __future__ import annotations

import pytest

from hub.api.quotas.route_quotas import ROUTE_QUOTAS, registered_subject, topics_of_subject
from hub.api.route_rules import ROUTES
from hub.caller import Action, Kind

# Reads and writes of one topic or view that are counted further in, or are not for reading rows.
ELSEWHERE = {
    ("/topics/{topic}/records", "POST"): "by the route",
    ("/topics/{topic}/events", "POST"): "by the gateway",
    ("/topics/{topic}/produce", "POST"): "by the gateway",
    ("/v3/clusters/{cluster}/topics/{topic}/records", "POST"): "by the gateway",
    ("/view-versions/{view}", "GET"): "versions of the view's file, no rows",
}


def test_every_read_and_write_of_a_topic_or_view_has_a_quota() -> None:
    wanted = {
        (template, method)
        for template, methods in ROUTES.items()
        for method, rule in methods.items()
        if rule.action in (Action.read, Action.write) and rule.kind in (Kind.topic, Kind.view)
    }
    counted = {(template, method) for template, methods in ROUTE_QUOTAS.items() for method in methods}
    assert wanted - counted == set(ELSEWHERE)
    assert {template for template, _ in counted} <= set(ROUTES)


def test_a_quota_names_the_parameters_of_its_route() -> None:
    for template, methods in ROUTE_QUOTAS.items():
        for each in methods.values():
            for name in filter(None, (each.view, each.topic)):
                assert f"{{{name}}}" in template.replace(":path", "")


@pytest.mark.parametrize(
    ("method", "path", "subject"),
    [
        ("POST", "/subjects/nyc.a-value/versions", "nyc.a-value"),
        ("POST", "/subjects/nyc.a-value/versions/?normalize=true", "nyc.a-value"),
        ("POST", "/contexts/.x/subjects/a%2Fb/versions", "a/b"),
        ("POST", "/%73ubjects/a/%76ersions", "a"),
        ("POST", "/subjects/a", None),
        ("GET", "/subjects/a/versions", None),
        ("POST", "/compatibility/subjects/a/versions", None),
        ("POST", "/subjects/a/versions/1/tags", None),
    ],
)
def test_registrations_are_known_in_every_spelling(method: str, path: str, subject: str | None) -> None:
    scope = {"method": method, "path": path, "raw_path": path.encode()}
    assert registered_subject(scope) == subject


def test_a_subject_counts_to_the_tenant_of_its_topic() -> None:
    assert topics_of_subject("nyc.jfk.departures-value") == ("nyc.jfk.departures",)
    assert topics_of_subject(":.ctx:nyc.a-key") == ("nyc.a",)
