"""Tokens and logins of an OpenID Connect provider:
what is accepted, hostile tokens, rotation and outages of its keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jws, jwt
from oidc_provider import AUDIENCE, CLIENT, OidcProvider
from pydantic import ValidationError

from hub.access.access_yaml import AccessFile, load_access
from hub.access.authenticate import Authenticator, AuthRequest
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.oidc.claims import RefusedToken, check_claims, check_login, groups_of, identity_of
from hub.access.oidc.key_refresh import LONGEST_S, RETRY_EVERY_S, UNKNOWN_EVERY_S, Fetches, must_fetch, usable
from hub.access.oidc.login import LOGIN_S, LoginFailed, code_in, sealed, unsealed
from hub.access.oidc.settings import OidcNode
from hub.access.throttle import MOST_FAILURES
from hub.api.guard import still_granted
from hub.api.route_rules import rule_of
from hub.caller import Action, Kind, Resource, TooManyFailures, Unauthenticated
from hub.errors import ConfigError, HubError, PeerError

ISSUER = "https://login.test/realms/shop"
OIDC: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "client_id": CLIENT}
READS = [{"role": "read", "topics": ["shop.**"]}]
NOW = 1_800_000_000


def rules(oidc: Mapping[str, Any] = OIDC, **more: Any) -> AccessRules:
    file = {"groups": {"shop": READS, "ops": READS}, "oidc": dict(oidc), **more}
    return AccessRules.of(AccessFile.model_validate(file))


class World:
    """A provider, and an authenticator whose clock and requests are under control."""

    def __init__(self, folder: Path) -> None:
        self.provider = OidcProvider(ISSUER)
        self.steady = 1_000.0
        self.ahead_s = 0.0
        self.door = Authenticator(
            LiveAccess(folder),
            b"k" * 32,
            now_s=lambda: time.time() + self.ahead_s,
            steady_s=lambda: self.steady,
        )
        self.door.oidc.ask, self.door.oidc.steady_s = self.ask, lambda: self.steady
        self.loop = asyncio.Runner()

    def ask(self, url: str, form: object, auth: object) -> object:
        self.provider.asked.append(url)
        if self.provider.away:
            raise OSError("connection refused")
        return self.provider.get(url, {})[1]

    def caller(self, token: str, now: AccessRules | None = None, address: str = "10.0.0.1") -> Any:
        request = AuthRequest({"authorization": [f"Bearer {token}"]}, {}, address)
        return self.loop.run(self.door.authenticate(request, now or rules()))

    def keys_asked(self) -> int:
        return sum(each.endswith("/keys") for each in self.provider.asked)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.loop.close()


def test_a_service_is_who_its_token_names_with_the_groups_of_the_claim(world: World) -> None:
    who = world.caller(world.provider.token(groups=["shop", "unknown", 7]))
    assert (who.who.name, who.who.kind, who.who.groups, who.way) == ("checkout", "oidc", {"shop"}, "token")
    assert world.keys_asked() == 1
    world.caller(world.provider.token())
    assert world.keys_asked() == 1


def b64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def forged(header: Mapping[str, Any], claims: object, signature: str = "") -> str:
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}.{signature}"


def by_secret(header: Mapping[str, Any], claims: object, secret: bytes) -> str:
    said = forged(header, claims).rstrip(".")
    return f"{said}.{b64(hmac.new(secret, said.encode(), hashlib.sha256).digest())}"


def hostile(provider: OidcProvider) -> dict[str, str]:
    """Tokens that nobody may accept, by what is wrong with them."""
    now, key = int(time.time()), provider.keys[0]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": now + 300}
    other = jwk.RSAKey.generate_key(2048, {"kid": key.kid})
    public = key.as_pem(private=False)
    own = jwk.RSAKey.generate_key(2048)
    good = provider.token()
    return {
        "alg none": forged({"alg": "none", "kid": key.kid}, claims),
        "alg None": forged({"alg": "None", "kid": key.kid}, claims, "x"),
        "HS256 with the public key": by_secret({"alg": "HS256", "kid": key.kid}, claims, public),
        "another key by the same id": jwt.encode({"alg": "RS256", "kid": key.kid}, claims, other),
        "a key in the header": jwt.encode({"alg": "RS256", "jwk": own.as_dict(private=False)}, claims, own),
        "an address in the header": jwt.encode(
            {"alg": "RS256", "jku": "https://evil.test", "kid": "x"}, claims, own
        ),
        "an algorithm that is not listed": jwt.encode(
            {"alg": "PS256", "kid": key.kid}, claims, key, ["PS256"]
        ),
        "another audience": provider.token(aud=["somebody", "else"]),
        "an audience that contains it": provider.token(aud=f"{AUDIENCE}-2"),
        "no audience": provider.token(aud=None),
        "another issuer": provider.token(iss="https://evil.test"),
        "a longer issuer": provider.token(iss=f"{ISSUER}/"),
        "expired": provider.token(exp=now - 3600),
        "no end": provider.token(exp=None),
        "an end that is a text": provider.token(exp=str(now + 300)),
        "an end that is true": provider.token(exp=True),
        "valid in future": provider.token(nbf=now + 3600),
        "issued in future": provider.token(iat=now + 3600),
        "of nobody": provider.token(sub=None),
        "of a number": provider.token(sub=0),
        "of the hub itself": provider.token(sub="_hub"),
        "of a line break": provider.token(sub="a\nb"),
        "a token of sign-out": provider.token(
            events={"http://schemas.openid.net/event/backchannel-logout": {}}
        ),
        "a refresh token": provider.token(typ="Refresh"),
        "nested": jws.serialize_compact({"alg": "RS256", "kid": key.kid, "cty": "JWT"}, good, key),
        "nested without saying so": jws.serialize_compact({"alg": "RS256", "kid": key.kid}, good, key),
        "a list": jws.serialize_compact({"alg": "RS256", "kid": key.kid}, "[]", key),
        "huge": provider.token(padding="x" * 14_000),
        "deep": forged({"alg": "RS256", "kid": key.kid}, {}, "x").replace("e30", b64(b"[" * 5_000)),
        "a deep header": f"ey{b64(b'[' * 3_000)}.e30.x",
        "encrypted": "eyJhbGciOiJSU0EtT0FFUCJ9.a.b.c.d",
        "cut": good[:-4],
        "other claims": ".".join(
            [good.split(".")[0], b64(json.dumps({**claims}).encode()), good.split(".")[2]]
        ),
        "no header": f"ey.{good}",
        "an extension": forged({"alg": "RS256", "kid": key.kid, "crit": ["x"]}, claims, "x"),
    }


def test_hostile_tokens_are_refused(world: World) -> None:
    for number, (case, token) in enumerate(hostile(world.provider).items()):
        with pytest.raises(Unauthenticated) as refused:
            pytest.fail(f"{case}: {world.caller(token, address=f'10.0.1.{number}')}")
        assert token not in str(refused.value)
    assert world.caller(world.provider.token()).who.name == "checkout"


def test_only_public_key_algorithms_and_https_can_be_configured() -> None:
    for changed in (
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"issuer": "http://login.test"},
        {"issuer": "https://user:secret@login.test"},
        {"client_secret": "in-the-file"},
        {"audience": None, "client_id": None},
        {"audience": []},
        {"scopes": ["profile"]},
    ):
        with pytest.raises(ValidationError):
            OidcNode.model_validate({**OIDC, **changed})


def test_the_secret_of_the_client_is_not_shown_when_it_stands_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(f"oidc: {{issuer: {ISSUER}, client_id: hub, client_secret: canary-4711}}\n")
    with pytest.raises(ConfigError, match="NAME") as refused:
        load_access(path)
    assert "canary-4711" not in str(refused.value)
    path.write_text(f"oidc: {{issuer: {ISSUER}, audience: hub, groups: {{a: nobody}}}}\n")
    with pytest.raises(ConfigError, match='group "nobody" does not exist'):
        load_access(path)


def test_a_new_key_is_fetched_once_and_invented_ones_cause_no_more_requests(world: World) -> None:
    world.caller(world.provider.token())
    world.provider.rotate()
    world.steady += UNKNOWN_EVERY_S
    world.caller(world.provider.token())
    assert world.keys_asked() == 2
    strange = jwk.RSAKey.generate_key(2048)
    for number in range(50):
        token = jwt.encode({"alg": "RS256", "kid": f"invented-{number}"}, {"iss": ISSUER}, strange)
        with pytest.raises(HubError):
            world.caller(token)
    assert world.keys_asked() == 2
    world.caller(world.provider.token(), address="10.0.0.1")  # who floods keeps no good token out
    with pytest.raises(TooManyFailures):
        world.caller(token)


def test_without_keys_nobody_gets_in_and_cached_ones_hold_for_a_day(world: World) -> None:
    world.provider.away = True
    for _ in range(3):
        with pytest.raises(PeerError, match="does not answer: connection refused") as away:
            world.caller(world.provider.token())
        assert away.value.code == "HUB-3074" and away.value.hint
    assert len(world.provider.asked) == 1  # within RETRY_EVERY_S
    world.provider.away = False
    world.steady += RETRY_EVERY_S
    world.caller(world.provider.token())
    world.provider.away = True
    world.steady += LONGEST_S - 1
    world.caller(world.provider.token())
    world.provider.rotate()
    with pytest.raises(PeerError):  # it may be the new key's: unknown is not "wrong"
        world.caller(world.provider.token())
    world.steady += 2
    with pytest.raises(PeerError):
        world.caller(world.provider.token())


def test_fetches_are_bounded() -> None:
    got = Fetches(tried_at=100.0, got_at=100.0)
    assert must_fetch(Fetches(), 0.0, unknown=False)
    assert not must_fetch(got, 101.0, unknown=False) and not must_fetch(got, 101.0, unknown=True)
    assert must_fetch(got, 100.0 + UNKNOWN_EVERY_S, unknown=True)
    assert not must_fetch(Fetches(tried_at=100.0), 101.0, unknown=True)
    assert usable(got, 100.0 + LONGEST_S) and not usable(got, 101.0 + LONGEST_S)


@pytest.mark.parametrize(
    "lie",
    [
        {"issuer": "https://evil.test"},
        {"jwks_uri": "http://evil.test/keys"},
        {"jwks_uri": 7},
        {"jwks_uri": None},
    ],
)
def test_a_discovery_document_that_lies_is_not_followed(world: World, lie: dict[str, Any]) -> None:
    world.provider.lies = lie
    with pytest.raises(PeerError):
        world.caller(world.provider.token())
    assert world.keys_asked() == 0


def test_a_token_of_another_key_kind_does_not_fit_and_one_key_needs_no_id(world: World) -> None:
    (key,) = world.provider.keys
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "a", "exp": int(time.time()) + 60}
    assert world.caller(jwt.encode({"alg": "RS256"}, claims, key)).who.name == "a"
    curve = jwk.ECKey.generate_key("P-256")
    with pytest.raises(Unauthenticated):
        world.caller(jwt.encode({"alg": "ES256", "kid": key.kid or ""}, claims, curve))


def test_nobody_becomes_somebody_else_by_a_name(world: World) -> None:
    password = "scrypt$14$8$5$" + "A" * 22 + "$" + "A" * 43
    taken = rules(users={"ana": {"password": password}}, tokens={"job": {"token": f"sha256${'0' * 64}"}})
    for name in ("ana", "job"):
        with pytest.raises(Unauthenticated, match="has a password or token"):
            world.caller(world.provider.token(sub=name), taken)
    named = rules(users={"ana": {"groups": ["ops"]}})
    assert world.caller(world.provider.token(sub="ana", groups=["shop"]), named).who.groups == {"ops", "shop"}


def test_wrong_tokens_of_an_address_are_limited(world: World) -> None:
    for _ in range(MOST_FAILURES):
        with pytest.raises(Unauthenticated):
            world.caller("eyJ.x.y")
    with pytest.raises(TooManyFailures):
        world.caller("eyJ.x.y")


def test_a_stream_ends_with_its_token_and_with_the_section(world: World) -> None:
    before = rules()
    known = world.caller(world.provider.token(groups=["shop"]), before)
    assert world.door.goes_on(known)
    world.ahead_s = 400.0
    assert not world.door.goes_on(known)
    rule = rule_of("/topics", "GET")
    assert rule is not None
    assert still_granted(*rule[:2], known, before, rules())
    assert not still_granted(*rule[:2], known, before, rules({**OIDC, "audience": "other"}))
    assert not still_granted(*rule[:2], known, before, rules(groups={"ops": READS}))


# ---- claims as Keycloak and Entra send them

KEYCLOAK = {
    "iss": ISSUER,
    "aud": ["event-hub", "account"],
    "exp": NOW + 300,
    "iat": NOW,
    "typ": "Bearer",
    "azp": "checkout",
    "sub": "5f1a8c9e-0d0e-4b53-a3a3-0c4fbd5d0c11",
    "preferred_username": "service-account-checkout",
    "realm_access": {"roles": ["offline_access", "shop-writers"]},
    "groups": ["/data/shop"],
    "scope": "profile email",
}
ENTRA = {
    "aud": "api://event-hub",
    "iss": "https://login.microsoftonline.com/8f3c/v2.0",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 3599,
    "azp": "6c1b0b7e-app",
    "oid": "c2a7-oid",
    "roles": ["Hub.Read"],
    "sub": "c2a7-sub",
    "tid": "8f3c",
    "ver": "2.0",
}


def test_keycloaks_claims() -> None:
    node = OidcNode.model_validate(
        {**OIDC, "name_claim": "preferred_username", "groups": {"/data/shop": "shop", "shop-writers": "ops"}}
    )
    ends_at_s = check_claims(KEYCLOAK, node, ["event-hub"], NOW)
    assert ends_at_s == NOW + 300 + node.clock_skew_s
    who = identity_of(KEYCLOAK, node, {"shop", "ops"}, ends_at_s)
    assert (who.name, who.groups) == ("service-account-checkout", {"shop"})
    nested = node.model_copy(update={"groups_claim": "realm_access.roles"})
    assert groups_of(KEYCLOAK, nested, {"shop", "ops"}) == {"ops"}
    assert groups_of({"realm_access": ["roles"]}, nested, {"shop", "ops"}) == frozenset()


def test_entras_claims(caplog: pytest.LogCaptureFixture) -> None:
    node = OidcNode.model_validate(
        {
            "issuer": ENTRA["iss"],
            "audience": ["api://event-hub"],
            "name_claim": ["preferred_username", "azp"],
            "groups_claim": "roles",
            "groups": {"Hub.Read": "shop"},
        }
    )
    check_claims(ENTRA, node, node.audience or [], NOW)
    who = identity_of(ENTRA, node, {"shop"}, 0.0)
    assert (who.name, who.groups) == ("6c1b0b7e-app", {"shop"})
    too_many = {**ENTRA, "roles": None, "_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}}
    by_groups = node.model_copy(update={"groups_claim": "groups"})
    assert groups_of(too_many, by_groups, {"shop"}) == frozenset() and "too many" in caplog.text


def test_an_address_that_is_not_verified_is_no_name() -> None:
    node = OidcNode.model_validate({**OIDC, "name_claim": "email"})
    with pytest.raises(RefusedToken, match="not verified"):
        identity_of({"email": "a@b.example", "email_verified": False}, node, (), 0.0)


def test_clocks_may_differ_by_the_skew() -> None:
    node = OidcNode.model_validate({**OIDC, "clock_skew_s": 30})
    claims = {"iss": ISSUER, "aud": CLIENT, "exp": NOW, "nbf": NOW}
    check_claims(claims, node, [CLIENT], NOW + 29)
    check_claims(claims, node, [CLIENT], NOW - 30)
    for now in (NOW + 30, NOW - 31):
        with pytest.raises(RefusedToken):
            check_claims(claims, node, [CLIENT], now)


# ---- login


def test_a_login_belongs_to_the_browser_that_began_it(world: World) -> None:
    address, cookie = world.loop.run(world.door.oidc.begin(rules(), "/topics", "http://hub/cb"))
    attempt = unsealed(cookie, b"k" * 32, time.time())
    assert attempt.next == "/topics" and attempt.state in address and attempt.verifier not in address
    assert "code_challenge_method=S256" in address
    for wrong, at in ((cookie[:-1] + "!", 0.0), ("", 0.0), (f"x{cookie}", 0.0), (cookie, LOGIN_S + 1.0)):
        with pytest.raises(LoginFailed):
            unsealed(wrong, b"k" * 32, time.time() + at)
    with pytest.raises(LoginFailed):
        unsealed(sealed(attempt, b"j" * 32), b"k" * 32, time.time())
    good = {"state": attempt.state, "code": "c"}
    node = OidcNode.model_validate(OIDC)
    assert code_in(good, attempt, node) == "c"
    for changed in (
        {"state": "x"},
        {"state": ""},
        {"iss": "https://evil.test"},
        {"error": "access_denied"},
        {"code": ""},
    ):
        with pytest.raises(LoginFailed):
            code_in({**good, **changed}, attempt, node)


def test_an_id_token_of_another_login_or_client_is_refused() -> None:
    check_login({"nonce": "n", "aud": CLIENT}, CLIENT, "n")
    check_login({"nonce": "n", "aud": [CLIENT, "x"], "azp": CLIENT}, CLIENT, "n")
    for wrong in (
        {"nonce": "m", "aud": CLIENT},
        {"aud": CLIENT},
        {"nonce": "n", "aud": [CLIENT, "x"]},
        {"nonce": "n", "aud": CLIENT, "azp": "x"},
    ):
        with pytest.raises(RefusedToken):
            check_login(wrong, CLIENT, "n")


def test_a_session_of_a_login_keeps_its_groups_until_the_provider_changes(world: World) -> None:
    identity = identity_of({"sub": "ana", "groups": ["shop"]}, OidcNode.model_validate(OIDC), {"shop"}, 0.0)
    now = rules()
    session, lasts_s = world.door.logged_in(identity, now)

    def caller(under: AccessRules, text: str = session) -> Any:
        return world.loop.run(
            world.door.authenticate(AuthRequest({}, {"hub_session": text}, "10.0.0.1"), under)
        ).who

    assert (caller(now).name, caller(now).groups) == ("ana", {"shop"}) and lasts_s == 12 * 3600
    assert now.decide(caller(now), Action.read, Resource(Kind.topic, "shop.orders")).allowed
    name, ends, groups, signature = session.split(".")
    more = b64(json.dumps(["ops", "shop"]).encode())
    for wrong in (
        f"{name}.{ends}.{more}.{signature}",
        f"{name}.{ends}.{signature}",
        f"{name}.{ends}.{groups}.",
    ):
        assert caller(now, wrong).name == ""
    assert caller(rules({**OIDC, "client_id": "other"})).name == ""
    assert caller(rules({**OIDC, "issuer": "https://other.test"})).name == ""
    assert caller(rules({**OIDC, "groups": {"/data": "shop"}})).name == ""
    assert caller(AccessRules.of(AccessFile())).name == ""
    assert caller(rules(groups={"ops": READS})).groups == frozenset()
    many = identity_of({"sub": "a"}, OidcNode.model_validate(OIDC), (), 0.0)
    with pytest.raises(LoginFailed, match="more than a session holds"):
        world.door.logged_in(type(many)("a", frozenset(f"{'g' * 90}{n}" for n in range(50)), 0.0), now)
