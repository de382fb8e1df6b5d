"""Operations on a mirror over HTTP and on its page: the plan is shown first, and confirmed."""

from __future__ import annotations

import pytest
from browser.staged_estate import StagedEstate
from fastapi.testclient import TestClient

from hub.errors import CallerError, NotFound
from hub.observability.web.pages.mirror_actions import (
    LABELS,
    check_confirmed,
    checked_request,
    offered,
)

HTML = {"accept": "text/html"}
OWN = {**HTML, "sec-fetch-site": "same-origin"}
WELL = {"mirror": "m", "workers": 1, "operations": [], "state": "mirroring"}


@pytest.mark.parametrize(
    ("action", "topics", "tail", "deletes", "command"),
    [
        ("pause", [], "replay", False, "hub mirror pause m"),
        ("abort", ["nyc.*"], "replay", False, "hub mirror resume m --abort --topic 'nyc.*'"),
        ("failback", ["a", "b"], "discard", True, "hub mirror failback m --topic a --topic b --discard"),
        (
            "failback",
            [],
            "restore",
            False,
            "hub mirror failback m --restore --export m-failback",
        ),
        ("failback", [], "merge", False, "hub mirror failback m --merge"),
        ("drop", [], "discard", True, "hub mirror drop m --delete-copies"),
        ("promote", ["nyc.a"], "replay", False, "hub mirror promote m --topic nyc.a"),
    ],
)
def test_the_equal_command_does_the_same(
    action: str, topics: list[str], tail: str, deletes: bool, command: str
) -> None:
    assert checked_request("m", action, topics, tail, deletes).command == command


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(NotFound, match='no operation "delete"'):
        checked_request("m", "delete", ())
    with pytest.raises(CallerError, match='tail "keep"'):
        checked_request("m", "failback", (), "keep")
    with pytest.raises(CallerError, match="101 topic patterns"):
        checked_request("m", "pause", [f"t{number}" for number in range(101)])
    assert checked_request("m", "pause", [" a ", "", "a"]).topics == ("a",)


def test_what_cannot_be_undone_needs_the_name() -> None:
    for action in LABELS:
        request = checked_request("m", action, ())
        check_confirmed(request, "m")
        for typed in ("", "n"):
            if action in ("drop", "failover", "promote"):
                with pytest.raises(CallerError) as refused:
                    check_confirmed(request, typed)
                assert refused.value.code == "HUB-1606"
            else:
                check_confirmed(request, typed)


def test_a_failback_that_restores_needs_the_name_and_always_exports() -> None:
    for tail in ("replay", "discard", "merge"):
        request = checked_request("m", "failback", (), tail)
        check_confirmed(request, "")
        assert not request.exports and checked_request("m", "failback", (), tail, export=True).exports
    restore = checked_request("m", "failback", (), "restore", confirmed="abc")
    assert restore.exports and restore.confirmed == "abc"
    with pytest.raises(CallerError) as refused:
        check_confirmed(restore, "")
    assert refused.value.code == "HUB-1606"
    check_confirmed(restore, "m")
    assert not checked_request("m", "switchover", (), "restore", export=True).exports


def test_the_page_of_a_failback_offers_each_decision(hub: StagedEstate, client: TestClient) -> None:
    page = client.get("/mirrors/nyc-lon/failback?tail=restore", headers=HTML).text
    assert 'name="name"' in page and '<option value="restore" selected>' in page
    assert "hub mirror failback nyc-lon --restore --export nyc-lon-failback" in page
    merge = client.get("/mirrors/nyc-lon/failback?tail=merge&export=true", headers=HTML).text
    assert 'name="name"' not in merge and '<option value="merge" selected>' in merge
    form = {"topic": "", "tail": "merge", "export": "true", "plan": "abc", "by": "ana"}
    assert client.post("/mirrors/nyc-lon/failback", data=form, headers=OWN).status_code == 303
    ((request, _, _),) = hub.mirror_operations.done
    assert (request.tail, request.export, request.confirmed) == ("merge", True, "abc")


def test_only_operations_that_fit_the_state_are_offered() -> None:
    def names(*, handed_over: bool = False, **more: object) -> tuple[str, ...]:
        return offered({**WELL, **more}, handed_over=handed_over)

    assert names() == ("pause", "rehearse", "switchover", "failover", "promote")
    assert names(state="paused") == ("resume", "rehearse", "failover", "drop")
    assert names(handed_over=True) == names(mirror="m~back", declared="m") == ("failback",)
    assert names(operations=[{"kind": "failover"}]) == ("resume", "abort")
    assert offered({"mirror": "m", "state": "unknown"}, handed_over=False) == ()


def test_a_rehearsal_is_of_a_whole_mirror() -> None:
    assert checked_request("m", "rehearse", []).command == "hub mirror rehearse m --now"
    with pytest.raises(CallerError, match="covers the whole mirror"):
        checked_request("m", "rehearse", ["nyc.a"])


def test_the_page_shows_the_plan_and_then_does_it(hub: StagedEstate, client: TestClient) -> None:
    assert 'href="/mirrors/nyc-lon/failover"' in client.get("/mirrors", headers=HTML).text
    page = client.get("/mirrors/nyc-lon/failover?topic=nyc.a,nyc.b", headers=HTML).text
    for words in (
        "Lost: 7 offsets",
        "lon owns the topics",
        "DENY &lt;b&gt;User:app",
        "hub mirror failover nyc-lon --topic nyc.a --topic nyc.b",
        'name="name"',
    ):
        assert words in page
    assert 'name="name"' not in client.get("/mirrors/nyc-lon/pause", headers=HTML).text
    form = {"topic": "nyc.a,nyc.b", "tail": "replay", "delete_copies": "false", "by": "ana"}
    unnamed = client.post("/mirrors/nyc-lon/failover", data=form, headers=OWN)
    assert unnamed.status_code == 400 and "HUB-1606" in unnamed.text
    cross = {**HTML, "sec-fetch-site": "cross-site"}
    foreign = client.post("/mirrors/nyc-lon/failover", data={**form, "name": "nyc-lon"}, headers=cross)
    assert foreign.status_code == 400 and hub.mirror_operations.done == []
    done = client.post("/mirrors/nyc-lon/failover", data={**form, "name": "nyc-lon"}, headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, "/mirrors")
    ((request, by, _),) = hub.mirror_operations.done
    assert (request.action, request.topics, by) == ("failover", ("nyc.a", "nyc.b"), "ana")


def test_programs_get_the_plan_and_carry_it_out(hub: StagedEstate, client: TestClient) -> None:
    url = "/api/mirrors/nyc-lon/promote"
    plan = client.get(f"{url}?topic=nyc.a").json()
    assert plan["needs_name"] and plan["plan"] == {"kind": "promote", "lost": 7}
    assert client.post(url, json={"topics": ["nyc.a"], "dry_run": True}).json() == plan
    assert client.post(url, json={"topics": ["nyc.a"]}).json()["error_code"] == "HUB-1606"
    assert client.post(url, json={"topic": ["nyc.a"]}).status_code == 422  # a wrong name of a field
    assert hub.mirror_operations.done == []
    assert client.post(url, json={"topics": ["nyc.a"], "name": "nyc-lon", "wait_s": 9}).status_code == 200
    assert [(request.action, wait_s) for request, _, wait_s in hub.mirror_operations.done] == [("promote", 9)]
    hub.mirror_operations.refuses = "failback"
    refused = client.get("/api/mirrors/nyc-lon/failback")
    assert refused.status_code == 409 and refused.json()["error_code"] == "HUB-1961"
    shown = client.get("/mirrors/nyc-lon/failback", headers=HTML)
    assert shown.status_code == 409 and "another change is in progress" in shown.text
