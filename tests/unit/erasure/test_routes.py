"""Erasures over HTTP: whose name is noted, and who may approve."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from hub.access_log.chain import LogSigner
from hub.api.app import on_hub_error
from hub.caller import CALLER, AccessDecision, Caller
from hub.erasure.log import erasure_log
from hub.erasure.places import ProjectFacts, TopicPlace
from hub.erasure.proof import signature_holds
from hub.erasure.routes import Erasing, create_router
from hub.errors import HubError
from hub.log import MemoryCluster

FACTS = ProjectFacts((TopicPlace("crm.people", True), TopicPlace("crm.claims", True, hold="case 7")))
REQUEST = {"person": "C-1", "topics": ["crm.*"], "reason": "mail 17", "by": "root@laptop"}


class SignedIn:
    """Sign in whom the header User names; without it, access is not controlled."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope.get("headers", ())).get(b"user", b"").decode()
        allowed = AccessDecision(True, "in this test")
        token = CALLER.set(Caller(name, frozenset(), lambda _action, _what: allowed) if name else None)
        try:
            await self._app(scope, receive, send)
        finally:
            CALLER.reset(token)


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = FastAPI()
    erasing = Erasing(
        erasure_log(MemoryCluster(now_ms=1), 1), lambda: FACTS, LogSigner(b"k" * 32), 3_600_000, lambda: 5_000
    )
    app.include_router(create_router(erasing))
    app.add_exception_handler(HubError, on_hub_error)
    app.add_middleware(SignedIn)
    with TestClient(app) as made:
        yield made


def by(name: str) -> dict[str, str]:
    return {"user": name}


def test_a_second_person_approves_while_access_is_controlled(client: TestClient) -> None:
    made = client.post("/api/erasures", json=REQUEST, headers=by("ana"))
    assert made.status_code == 201 and made.json()["requested_by"] == "ana"  # not who the body names
    id = made.json()["id"]
    own = client.post(f"/api/erasures/{id}/approve", json={"by": "somebody"}, headers=by("ana"))
    assert own.status_code == 400 and "a second person approves" in own.json()["message"]
    other = client.post(f"/api/erasures/{id}/approve", json={}, headers=by("ben"))
    assert (other.json()["status"], other.json()["due_at_ms"]) == ("approved", 3_605_000)
    ended = client.post(f"/api/erasures/{id}/cancel", json={}, headers=by("ana"))
    assert ended.json()["status"] == "canceled"
    (listed,) = client.get("/api/erasures").json()
    assert listed == client.get(f"/api/erasures/{id}").json() == ended.json()


def test_without_access_control_the_account_is_noted(client: TestClient) -> None:
    id = client.post("/api/erasures", json=REQUEST).json()["id"]
    approved = client.post(f"/api/erasures/{id}/approve", json={"by": "root@laptop"}).json()
    assert (approved["requested_by"], approved["approved_by"]) == ("root@laptop", "root@laptop")
    proof = client.get(f"/api/erasures/{id}/proof").json()
    assert signature_holds(proof) and proof["report"]["status"] == "approved"


def test_a_plan_changes_nothing_and_wrong_requests_name_the_way_out(client: TestClient) -> None:
    planned = client.post("/api/erasures/plan", json={"person": "C-1", "topics": ["crm.*"]}).json()
    assert {each["name"]: each["state"] for each in planned["places"] if each["kind"] == "topic"} == {
        "crm.people": "planned",
        "crm.claims": "not erased",
    }
    assert client.get("/api/erasures").json() == []
    held = client.post("/api/erasures", json={**REQUEST, "topics": ["crm.claims"]})
    assert held.status_code == 400 and "legal hold: case 7" in held.json()["message"]
    assert client.post("/api/erasures", json={**REQUEST, "topics": ["crm..x"]}).status_code == 422
    unknown = client.get("/api/erasures/none")
    assert unknown.status_code == 404 and "hub erase ls" in unknown.json()["hint"]
