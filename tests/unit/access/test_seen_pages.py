"""Pages for callers with grants on a part: empty pages give the reason, and inaccessible ones are not
linked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.staged_estate import StagedEstate
from fastapi.testclient import TestClient

from hub.access.decide import AccessPolicy, Grant, Principal, decide, patterns_of
from hub.caller import CALLER, Caller, Forbidden
from hub.observability.web.page import render

PAGES = [
    "/views",
    "/topics",
    "/lag",
    "/lineage",
    "/latency",
    "/schemas",
    "/completeness",
    "/search?q=nothing",
]
HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    staged = StagedEstate()
    with TestClient(staged.app()) as made:
        yield made
    assert staged.node is not None
    staged.node.stop()


def caller(*grants: Grant) -> Caller:
    policy, who = AccessPolicy(by_name={"ana": grants}), Principal("ana", "user")
    return Caller("ana", frozenset(), lambda action, what: decide(policy, who, action, what))


def test_an_empty_page_says_that_what_is_not_granted_is_left_out(client: TestClient) -> None:
    for path in PAGES:
        assert 'data-testid="left-out"' not in client.get(path, headers=HTML).text, path
    before = CALLER.set(caller(Grant("read", patterns_of(["shop.**"]))))
    try:
        for path in PAGES:
            text = client.get(path, headers=HTML).text
            assert "Objects without a grant for ana are omitted here" in text, path
    finally:
        CALLER.reset(before)


@pytest.mark.parametrize(
    ("grant", "offered"),
    [(None, True), (Grant("read", patterns_of(["**"])), False), (Grant("read", hub=True), True)],
)
def test_what_takes_the_hub_is_offered_to_who_may_open_it(
    client: TestClient, grant: Grant | None, offered: bool
) -> None:
    before = CALLER.set(None if grant is None else caller(grant))
    try:
        text = client.get("/lag", headers=HTML).text.partition("</nav>")[0]
        refused = render("frame/refused.html", error=Forbidden("no"), status=403)
    finally:
        CALLER.reset(before)
    for path in ("/mirrors", "/connect", "/cluster"):
        assert (f'<a href="{path}" data-go' in text) is offered
        assert grant is None or (f'href="{path}"' in refused) is offered
    assert 'href="/alerts"' in text
