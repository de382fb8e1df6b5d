"""Tokens that people make: never worth more than their owner, stored as hashes, ended by revocation, expiry
and their owner's end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cheap_scrypt import cheap_scrypt
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from hub.access.access_yaml import AccessFile, GrantNode
from hub.access.authenticate import AuthRequest
from hub.access.decide import Principal, decide
from hub.access.live_config import LiveAccess
from hub.access.personal_token_routes import create_router
from hub.access.personal_tokens import MOST_OF_OWNER, USED_EVERY_S, PersonalToken, PersonalTokens, grant_of
from hub.access.secrets import hash_of_password
from hub.api.guard import AuthenticationContext, Guard
from hub.caller import CALLER, Action, Kind, Resource
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError
from hub.home_key import OWN, make_key, own_password
from hub.observability.web.http_status import status_of

ANA, ROOT = ("ana", "correct horse"), ("root", "battery staple")
FILE = """\
users:
  ana: {{password: "{ana}", grants: [{{role: read, topics: ["{over}"]}}, {{role: write, topics: [shop.orders]}}]}}
  root: {{password: "{root}", grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]}}
"""  # noqa: E501
READ_PAY = {"role": "read", "topics": ["shop.pay"]}


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> Iterator[None]:
    with cheap_scrypt():
        yield


class Place:
    """A server with the guard, the routes of tokens and one page that tells who asks and what they may."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.write()
        self.access = LiveAccess(folder)
        self.door = AuthenticationContext(self.access, self.home)
        app = FastAPI()

        @app.get("/api/topics")
        def me() -> dict[str, Any]:
            caller = CALLER.get()
            assert caller is not None
            topics = ("shop.orders", "shop.pay", "hr.pay")
            may = [
                f"{action} {topic}"
                for topic in topics
                for action in (Action.read, Action.write)
                if caller.decide(action, Resource(Kind.topic, topic)).allowed
            ]
            return {"name": caller.name, "may": may}

        @app.exception_handler(HubError)
        def on_error(_: Request, error: Exception) -> JSONResponse:
            assert isinstance(error, HubError)
            return JSONResponse({"error_code": error.code, "message": error.message}, status_of(error))

        app.include_router(create_router(self.access, self.door.tokens))
        app.add_middleware(Guard, door=self.door)
        self.client = TestClient(app)

    def write(self, over: str = "shop.**", ana: str = "correct horse") -> None:
        hashes = {
            name: hash_of_password(word, b"0" * 16)
            for name, word in (("ana", ana), ("root", "battery staple"))
        }
        (self.folder / "access.yaml").write_text(FILE.format(over=over, **hashes))

    def make(self, who: Any = ANA, **body: Any) -> Any:
        return self.client.post("/api/access/tokens", json={"name": "ci", **body}, auth=who)

    def get(self, token: str, path: str = "/api/topics") -> Any:
        return self.client.get(path, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_token_may_what_its_owner_may_within_its_grants(place: Place) -> None:
    whole = place.make().json()["token"]
    assert place.get(whole).json() == {
        "name": "ana",
        "may": ["read shop.orders", "write shop.orders", "read shop.pay"],
    }
    asked = [READ_PAY, {"role": "admin", "topics": ["**"], "hub": True}]
    more = place.make(name="more", grants=asked).json()["token"]
    assert place.get(more).json()["may"] == ["read shop.orders", "write shop.orders", "read shop.pay"]
    part = place.make(name="part", grants=[READ_PAY]).json()["token"]
    assert place.get(part).json()["may"] == ["read shop.pay"]

    place.write(over="hr.**")
    place.access.refresh()
    assert place.get(part).json()["may"] == []
    (place.folder / "access.yaml").write_text(FILE.partition("  ana")[0] + "  bob: {grants: []}\n")
    place.access.refresh()
    assert place.get(whole).status_code == 401


def test_the_reason_of_a_refusal_names_the_token() -> None:
    policy = AccessFile.model_validate(
        {"users": {"ana": {"grants": [{"role": "read", "topics": ["**"]}]}}}
    ).policy(0)
    limits = (GrantNode(role="read", topics=["shop.pay"]).grant(),)
    refused = decide(policy, Principal("ana", "user", limits=limits), Action.read, Resource(Kind.topic, "a"))
    assert not refused.allowed and refused.reason == 'this token of ana may not read topic "a", ana may'


def test_nothing_in_the_home_is_a_token_and_its_use_is_shown(place: Place) -> None:
    made = place.make(expires_days=1).json()
    stored = place.home / "tokens.json"
    assert made["token"] not in stored.read_text() and stored.stat().st_mode & 0o077 == 0
    (listed,) = place.client.get("/api/access/tokens", auth=ANA).json()
    assert listed["last_used_at_s"] is None and "token" not in listed and "hash" not in listed
    place.get(made["token"])
    (listed,) = place.client.get("/api/access/tokens", auth=ANA).json()
    assert abs(listed["last_used_at_s"] - time.time()) < USED_EVERY_S
    assert PersonalTokens(place.home).all()[0].last_used_at_s == listed["last_used_at_s"]
    assert listed["expires_at_s"] - listed["created_at_s"] == 86_400


@pytest.mark.parametrize("grants", [[READ_PAY], []])
def test_a_token_makes_revokes_and_lists_no_tokens(place: Place, grants: list[object]) -> None:
    """Else one with few grants would make one with all, and one that ends today one that ends in a year."""
    part = place.make(grants=grants).json()
    headers = {"Authorization": f"Bearer {part['token']}"}
    assert place.client.post("/api/access/tokens", json={"name": "x"}, headers=headers).status_code == 403
    assert place.client.get("/api/access/tokens", headers=headers).json() == []
    assert place.client.delete(f"/api/access/tokens/{part['id']}", headers=headers).status_code == 404


def test_who_may_make_and_revoke(place: Place) -> None:
    of_ana = place.make().json()
    assert place.make(owner="root").status_code == 403
    assert (
        place.make(ROOT, owner="ana", name="y").status_code == 403
    )  # not even admins: it would be ana's act
    assert place.client.get("/api/access/tokens", auth=ROOT).json()[0]["owner"] == "ana"
    own = (OWN, own_password(make_key(place.home)))
    assert place.make(own, owner="ana", name="z").json()["owner"] == "ana"
    assert place.make(own).status_code == 404 and place.make(own, owner="nobody").status_code == 404
    assert place.client.delete(f"/api/access/tokens/{of_ana['id']}", auth=ROOT).status_code == 200
    assert place.get(of_ana["token"]).status_code == 401
    assert place.client.delete(f"/api/access/tokens/{of_ana['id']}", auth=ANA).status_code == 404


def test_bad_requests_are_refused(place: Place) -> None:
    for body in (
        {"grants": [{"role": "read"}]},
        {"grants": [{"role": "king", "topics": ["a"]}]},
        {"grants": [{"role": "read", "topics": ["a..b"]}]},
        {"grants": [{**READ_PAY, "more": 1}]},
    ):
        refused = place.make(**body)
        assert refused.status_code in (400, 422) and refused.json()["error_code"] == "HUB-1707", refused.text
    for body in ({"name": "a b"}, {"name": ""}, {"expires_days": 0}, {"expires_days": 367}, {"x": 1}):
        assert place.make(**body).status_code == 422
    assert place.make().status_code == 200
    assert place.make().json()["error_code"] == "HUB-1708"


def token(number: int, **changed: Any) -> PersonalToken:
    return PersonalToken(
        **{
            "id": str(number),
            "name": f"t{number}",
            "owner": "ana",
            "hash": f"h{number}",
            "grants": (),
            "created_at_s": 0,
            "expires_at_s": 100,
            **changed,
        }
    )


def test_the_file_is_shared_bounded_and_outlives_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = PersonalTokens(tmp_path), PersonalTokens(tmp_path)
    for number in range(MOST_OF_OWNER):
        (one if number % 2 else other).add(token(number))
    assert len(one.all()) == len(other.all()) == MOST_OF_OWNER
    with pytest.raises(Conflict, match="which is the most"):
        one.add(token(99))
    assert other.find("h1", 99.0) is not None and other.find("h1", 100.0) is None
    one.revoke("1")
    assert not other.holds("1") and other.find("h1", 0.0) is None
    with pytest.raises(NotFound):
        other.revoke("1")
    (tmp_path / "tokens.json").write_text("{")
    assert other.holds("2") and "cannot be read" in caplog.text
    (tmp_path / "tokens.json").write_text(json.dumps([]))
    assert not other.holds("2")


def test_a_stream_ends_when_its_token_is_revoked_or_expires(place: Place) -> None:
    made = place.make().json()
    asked = AuthRequest({"authorization": [f"Bearer {made['token']}"]}, {}, "10.0.0.1")
    assert place.access.rules is not None
    known = asyncio.run(place.door.authenticator.authenticate(asked, place.access.rules))
    assert place.door.authenticator.goes_on(known) and known.ends_at_s == made["expires_at_s"]
    place.door.tokens.revoke(made["id"])
    assert not place.door.authenticator.goes_on(known)


def test_grants_of_the_command_line() -> None:
    assert grant_of("write:shop.orders") == {"role": "write", "topics": ["shop.orders"]}
    for wrong in ("read", "king:a", "read:", "read:a b"):
        with pytest.raises(CallerError):
            grant_of(wrong)


def test_an_older_release_keeps_what_a_newer_one_added_and_never_replaces_what_it_cannot_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tokens.json"
    PersonalTokens(tmp_path).add(token(1))
    newer = [{**entry, "networks": ["10.0.0.0/8"]} for entry in json.loads(file.read_text())]
    file.write_text(json.dumps(newer))
    tokens = PersonalTokens(tmp_path)
    tokens.add(token(2))
    assert tokens.holds("1") and tokens.holds("2")
    assert [each.get("networks") for each in json.loads(file.read_text())] == [["10.0.0.0/8"], None]
    file.write_text(json.dumps({"tokens": newer}))
    unreadable = PersonalTokens(tmp_path)  # as after a restart: it knows no token
    with pytest.raises(PeerError, match="cannot be read"):
        unreadable.add(token(3))
    assert json.loads(file.read_text()) == {"tokens": newer}
