"""The page of a connector: what an action would do is shown first, and only then done."""

from __future__ import annotations

import pytest
from browser.staged_connectors import TRACE, detail
from browser.staged_estate import StagedEstate, lag_row
from fastapi.testclient import TestClient

from hub.errors import NotFound
from hub.observability.web.pages.monitor.connector import connector_page, planned

HTML = {"accept": "text/html"}
OWN = {**HTML, "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    ("action", "own", "tasks", "steps"),
    [
        ("pause", "RUNNING", ["RUNNING"], ["connector: RUNNING → PAUSED", "task 0: RUNNING → PAUSED"]),
        ("pause", "PAUSED", ["PAUSED"], []),
        ("resume", "RUNNING", ["RUNNING"], []),
        ("resume", "STOPPED", [], ["connector: STOPPED → RUNNING"]),
        ("restart", "FAILED", [], ["connector is restarted (FAILED)"]),
        ("restart", "PAUSED", ["PAUSED"], []),
        ("restart-failed", "RUNNING", ["RUNNING", "FAILED"], ["task 1 is restarted (FAILED)"]),
        ("restart-failed", "RUNNING", ["RUNNING"], []),
    ],
)
def test_the_steps_of_an_action_follow_from_the_states(
    action: str, own: str, tasks: list[str], steps: list[str]
) -> None:
    assert list(planned(action, detail("a", *tasks, own=own)).steps) == steps


def test_only_what_would_do_something_is_offered_to_those_who_may() -> None:
    running = detail("a", "RUNNING")
    assert [name for name, _ in connector_page(running, ()).actions] == ["pause", "restart"]
    assert connector_page(running, (), may_operate=False).actions == ()
    with pytest.raises(NotFound):
        connector_page(running, (), "delete")


def test_the_lag_of_a_sink_is_its_groups() -> None:
    rows = [lag_row("connect-a", "t", "OK"), lag_row("a", "t", "OK")]
    assert [row.name for row in connector_page(detail("a"), rows).lag] == ["connect-a"]


def test_an_action_is_shown_and_then_done(hub: StagedEstate, client: TestClient) -> None:
    page = client.get("/connect/orders-search", headers=HTML).text
    assert "?do=restart-failed" in page and "&lt;b&gt;no&lt;/b&gt; index" in page and TRACE not in page
    asked = client.get("/connect/orders-search?do=restart-failed", headers=HTML).text
    assert (
        "task 1 is restarted (FAILED)" in asked and 'action="/connect/orders-search/restart-failed"' in asked
    )
    assert hub.connectors.done == []
    done = client.post("/connect/orders-search/restart-failed", data={"by": "ana"}, headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, "/connect/orders-search")
    assert hub.connectors.done == [("orders-search", "restart-failed", "ana")]
    again = client.post("/connect/orders-search/restart-failed", data={}, headers=OWN)
    assert again.status_code == 400 and "nothing to" in again.text


def test_another_sites_form_does_nothing(hub: StagedEstate, client: TestClient) -> None:
    refused = client.post("/connect/crm/pause", headers={**HTML, "sec-fetch-site": "cross-site"})
    assert refused.status_code == 400 and hub.connectors.done == []
