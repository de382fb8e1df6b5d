"""Requests for access over HTTP and on the page: who asks, who answers, who sees what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from hub.access.decide import ANONYMOUS, Principal
from hub.access.live_config import LiveAccess
from hub.access_requests import routes
from hub.access_requests.access_file import AccessEditor
from hub.access_requests.asking import AccessRequests
from hub.access_requests.log import request_log
from hub.access_requests.model import DAY_MS
from hub.access_requests.runner import RequestRunner
from hub.api.app import on_hub_error
from hub.api.granting import page
from hub.api.granting.open_requests import LiveOwners
from hub.caller import CALLER, Action, Kind, Resource, require
from hub.errors import HubError
from hub.log import MemoryCluster

ACCESS = """\
groups:
  shop-team: []
  admins: [{role: admin, topics: ["**"], views: ["**"], hub: true}]
  crm-admins: [{role: admin, topics: ["crm.**"]}]
  half-admins: [{role: admin, topics: ["crm", "crm.*", "crm.*.*"]}]
  below-admins: [{role: admin, topics: ["crm.*.**"]}]
users:
  ana: {}
  olga: {groups: [shop-team]}
  ada: {groups: [admins]}
  carl: {groups: [crm-admins]}
  hal: {groups: [half-admins]}
  bea: {groups: [below-admins]}
tokens:
  ci: {token: "sha256$HASH"}
"""
TREE = """\
topics:
  shop:
    owner: shop-team
    topics:
      orders: {}
      pay: {owner: pay-team}
  crm: {topics: {people: {}}}
"""


class SignedIn:
    """Sign in grantee the header User names, by access.yaml; "own" is the hub's command line."""

    def __init__(self, app: ASGIApp, live: LiveAccess) -> None:
        self._app, self._live = app, live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope.get("headers", ())).get(b"user", b"").decode()
        rules = self._live.rules
        assert rules is not None
        who = Principal("_hub", "own") if name == "own" else rules.user(name) if name else ANONYMOUS
        if name in rules.file.tokens:
            who = Principal(name, "token")
        token = CALLER.set(rules.caller(who))
        try:
            await self._app(scope, receive, send)
        finally:
            CALLER.reset(token)


class World:
    def __init__(self, folder: Path) -> None:
        from hub.access.secrets import hash_of_token

        self.path, self.now_ms = folder / "access.yaml", 5_000
        hash_ = hash_of_token("hubt_x").removeprefix("sha256$")
        self.path.write_text(ACCESS.replace("HASH", hash_))
        (folder / "topics.yaml").write_text(TREE)
        (folder / "views").mkdir()
        cluster, live = MemoryCluster(now_ms=1), LiveAccess(folder)
        log, editor = request_log(cluster, 1), AccessEditor(self.path, cluster, 1)
        topics: Any = NewTopics()
        requests = AccessRequests(
            log, live, editor, topics, LiveOwners(folder).facts, DAY_MS, 90, lambda: self.now_ms
        )
        self.runner = RequestRunner(log, editor, topics, DAY_MS, DAY_MS, None, lambda: self.now_ms)
        app = FastAPI()
        app.include_router(routes.create_router(requests))
        app.include_router(page.create_router(requests))
        app.add_exception_handler(HubError, on_hub_error)
        app.add_middleware(SignedIn, live=live)
        self.client, self.live = TestClient(app), live

    def post(self, user: str, path: str = "", **body: Any) -> Any:
        return self.client.post(f"/api/access/requests{path}", json=body, headers={"user": user})

    def asked(self, user: str = "ana", **body: Any) -> str:
        made = self.post(user, **{"role": "read", "reason": "report", **body})
        assert made.status_code == 201, made.text
        id: str = made.json()["id"]
        return id

    def seen(self, by: str) -> list[Any]:
        found: list[Any] = self.client.get("/api/access/requests", headers={"user": by}).json()
        return found


class NewTopics:
    def plan(self, change: Any) -> Any:
        require(Action.admin, Resource(Kind.topic, change.topic))  # as the editor of topics does
        return type("Plan", (), {"changes": change.topic != "shop.orders", "read_only": "", "diff": ""})()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.client:
        yield made


def test_the_owner_answers_and_the_grant_works(world: World) -> None:
    id = world.asked(topic="shop.orders", days=3)
    row = world.seen("ana")[0]
    assert (row["grantee_kind"], row["grantee"], row["owners"], row["mine"]) == (
        "user",
        "ana",
        ["shop-team"],
        True,
    )
    assert not row["may_answer"]
    for by, why in (("ana", "not yours to answer"), ("carl", "does not exist"), ("", "does not exist")):
        refused = world.post(by, f"/{id}/approve")
        assert refused.status_code in (403, 404) and why in refused.json()["message"], by
    assert world.seen("olga")[0]["waits_for_me"]
    approved = world.post("olga", f"/{id}/approve", reason="fine")
    assert (approved.json()["status"], approved.json()["answered_by"]) == ("approved", "olga")
    world.runner.step()
    world.live.refresh()
    assert world.client.get(f"/api/access/requests/{id}", headers={"user": "ana"}).json()["status"] == "done"
    assert "until: 1970-01-04T00:00:05Z" in world.path.read_text()
    assert world.post("ada", f"/{id}/approve").status_code == 400


@pytest.mark.parametrize(
    ("scope", "answers"),
    [
        ({"topic": "shop.orders"}, {"olga", "ada"}),
        ({"topic": "shop.new.later"}, {"olga", "ada"}),
        ({"topic": "shop.pay"}, {"ada"}),  # its own owner is another team
        ({"topic": "shop.**"}, {"ada"}),  # it covers shop.pay
        ({"topic": "crm.people"}, {"carl", "ada", "hal", "bea"}),
        ({"topic": "crm.**"}, {"carl", "ada"}),
        ({"topic": "**"}, {"ada"}),
        ({"view": "customers"}, {"ada"}),
    ],
)
def test_owners_and_admins_of_the_whole_scope_answer(
    world: World, scope: dict[str, str], answers: set[str]
) -> None:
    if scope == {"topic": "**"}:
        scope = {"topic": "other.**"}
    world.asked(**scope)
    assert {by for by in ("olga", "carl", "ada", "hal", "bea") if world.seen(by)} == answers


def test_nobody_approves_their_own_or_for_themselves(world: World) -> None:
    own = world.asked("ada", topic="crm.people")
    refused = world.post("ada", f"/{own}/approve")
    assert refused.status_code == 400 and "somebody else answers" in refused.json()["message"]
    for_ada = world.asked("ana", topic="shop.orders", grantee_kind="user", grantee="ada")
    assert world.post("ada", f"/{for_ada}/approve").status_code == 400
    assert not [each for each in world.seen("ada") if each["waits_for_me"]]
    assert world.post("olga", f"/{for_ada}/approve").status_code == 200


def test_the_requester_alone_withdraws_and_a_refusal_has_a_reason(world: World) -> None:
    id = world.asked(topic="shop.orders")
    assert world.post("olga", f"/{id}/withdraw").status_code == 403
    bare = world.post("olga", f"/{id}/refuse")
    assert bare.status_code == 400 and "with a reason" in bare.json()["message"]
    assert world.post("ana", f"/{id}/withdraw").json()["status"] == "withdrawn"
    other = world.asked(topic="shop.orders")
    refused = world.post("olga", f"/{other}/refuse", reason="use the view").json()
    assert (refused["status"], refused["answer"]) == ("refused", "use the view")
    assert world.client.get("/api/access/requests?waiting=true", headers={"user": "ana"}).json() == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"topic": "_schemas"}, "belongs to the schema registry"),
        ({"topic": "_hub.audit"}, "belongs to the hub"),
        ({"topic": "views.customers"}, "belongs to a view"),
        ({"topic": "shop.*"}, "not a topic or a node"),
        ({"topic": "shop.orders", "days": 91}, "may last"),
        ({"topic": "shop.orders", "grantee_kind": "user", "grantee": "anna"}, 'user "anna" does not exist'),
        ({"topic": "shop.orders", "grantee_kind": "user", "grantee": "ci"}, 'user "ci" does not exist'),
        ({"topic": "shop.orders", "partitions": "3"}, "belong to a new topic"),
        ({"topic": "shop.orders", "role": None}, "exists already"),
    ],
)
def test_what_nobody_could_grant_is_refused_with_a_way_out(
    world: World, body: dict[str, Any], why: str
) -> None:
    answer = world.post("ana", **{"role": "read", "reason": "x", **body})
    assert answer.status_code in (400, 404) and why in answer.json()["message"] and answer.json()["hint"]


def test_wrong_bodies_and_callers_without_a_name_are_refused(world: World) -> None:
    for wrong in (
        {"topic": "a", "view": "b"},
        {},
        {"role": None, "view": "b"},
        {"role": "admin", "topic": "a"},
        {"topic": "a", "reason": ""},
        {"topic": "a", "grantee": "ana"},
    ):
        assert world.post("ana", **{"role": "read", "reason": "x", **wrong}).status_code == 422, wrong
    assert world.post("", role="read", topic="shop.orders", reason="x").status_code == 401
    own = world.post("own", role="read", topic="shop.orders", reason="x", by="root@box")
    assert own.status_code == 400 and "--for" in own.json()["hint"]
    made = world.post(
        "own", role="read", topic="shop.orders", reason="x", by="root@box", grantee_kind="token", grantee="ci"
    )
    assert (made.json()["requested_by"], made.json()["grantee"]) == ("root@box", "ci")


def test_somebody_without_grants_asks_for_a_new_topic(world: World) -> None:
    id = world.asked(role=None, topic="shop.later", partitions="3")
    assert world.seen("olga")[0]["text"] == "new topic shop.later"
    approved = world.post("olga", f"/{id}/approve")
    assert approved.json()["status"] == "approved" and approved.json()["until_ms"] is None


def test_a_service_asks_for_itself(world: World) -> None:
    world.asked("ci", topic="shop.orders")
    assert world.seen("ci")[0]["grantee_kind"] == "token"


def form(world: World, by: str, path: str = "", **values: str) -> Any:
    headers = {"user": by, "sec-fetch-site": "same-origin"}
    return world.client.post(f"/access-requests{path}", data=values, headers=headers, follow_redirects=False)


def test_the_page_asks_answers_and_shows_errors(world: World) -> None:
    asked = form(world, "ana", what="read", object="shop.orders", reason="<b>report</b>", days="3")
    assert asked.status_code == 303
    id = world.seen("ana")[0]["id"]
    mine = world.client.get("/access-requests", headers={"user": "ana"}).text
    assert "&lt;b&gt;report&lt;/b&gt;" in mine and f"/access-requests/{id}/withdraw" in mine
    assert f"/access-requests/{id}/approve" not in mine
    owners = world.client.get("/access-requests", headers={"user": "olga"}).text
    assert f"/access-requests/{id}/approve" in owners
    assert id not in world.client.get("/access-requests", headers={"user": "carl"}).text
    wrong = form(world, "ana", what="read", object="shop..x", reason="a", days="3")
    assert wrong.status_code == 400 and "label" in wrong.text and "shop..x" in wrong.text
    assert form(world, "olga", f"/{id}/refuse").status_code == 400
    assert form(world, "olga", f"/{id}/approve", reason="ok").status_code == 303
    assert world.seen("ana")[0]["status"] == "approved"
    prefilled = world.client.get("/access-requests?what=write&object=shop.x", headers={"user": "ana"}).text
    assert 'value="shop.x"' in prefilled and '<option value="write" selected>' in prefilled
    foreign = world.client.post("/access-requests", data={"what": "read"}, headers={"user": "ana"})
    assert foreign.status_code == 400


def test_owners_are_those_of_the_files_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    owners = LiveOwners(tmp_path)
    assert owners.facts().topics == {}
    (tmp_path / "topics.yaml").write_text("topics: {shop: {partitions: 1, owner: ana}}")
    facts = owners.facts()
    assert facts.topics == {"shop": "ana"} and owners.facts() is facts
    (tmp_path / "topics.yaml").write_text("topics: {shop: {partitions: 1, owner: boris}}")
    assert owners.facts().topics == {"shop": "boris"}
    (tmp_path / "topics.yaml").write_text("topics: [")
    assert owners.facts().topics == {}
