"""Authentication: cached passwords, sessions, and the effects of a changed file."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from cheap_scrypt import cheap_scrypt

from hub.access import authenticate
from hub.access.access_yaml import AccessFile, GrantNode, TokenNode, UserNode
from hub.access.authenticate import AuthenticatedCaller, Authenticator, AuthRequest, Proxies
from hub.access.decide import ANONYMOUS, Principal
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.secrets import fits_password, hash_of_password, hash_of_token
from hub.access.throttle import AGAIN_EVERY_S, MOST_FAILURES
from hub.api.guard import still_granted
from hub.api.route_rules import rule_of
from hub.caller import Action, Kind, Resource, TooManyFailures, Unauthenticated

with cheap_scrypt():
    ONE, OTHER = (hash_of_password(word, b"0" * 16) for word in ("correct horse", "battery staple"))
READS = GrantNode(role="read", topics=["shop.*"])
KEY = b"k" * 32


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> Iterator[None]:
    with cheap_scrypt():
        yield


def rules(
    password: str | None = ONE, token: str = "hubt_a", grants: tuple[GrantNode, ...] = (READS,)
) -> AccessRules:
    return AccessRules.of(
        AccessFile(
            groups={"shop": list(grants)},
            users={"ana": UserNode(password=password, groups=["shop"])},
            tokens={"job": TokenNode(token=hash_of_token(token), groups=["shop"])},
        )
    )


def asked(name: str, password: str, address: str = "10.0.0.1") -> AuthRequest:
    told = base64.b64encode(f"{name}:{password}".encode()).decode()
    return AuthRequest({"authorization": [f"Basic {told}"]}, {}, address)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the users whose scrypt hashes were computed."""
    seen: list[str] = []

    def fits(password: str, line: str) -> bool:
        seen.append(password)
        return fits_password(password, line)

    monkeypatch.setattr(authenticate, "fits_password", fits)
    return seen


@pytest.fixture
def door(tmp_path: Path) -> Authenticator:
    return Authenticator(LiveAccess(tmp_path), KEY, now_s=lambda: 0.0)


def test_a_password_is_computed_once_however_many_ask_and_again_when_the_file_changes(
    door: Authenticator, computed: list[str]
) -> None:
    now = rules()

    async def twenty(of: AccessRules) -> list[AuthenticatedCaller]:
        return await asyncio.gather(
            *(door.authenticate(asked("ana", "correct horse"), of) for _ in range(20))
        )

    assert {each.who.name for each in asyncio.run(twenty(now))} == {"ana"}
    assert len(computed) <= 2  # two at a time
    asyncio.run(twenty(now))
    before = len(computed)
    assert before <= 2
    with pytest.raises(Unauthenticated):
        asyncio.run(door.authenticate(asked("ana", "correct horse"), rules(OTHER)))
    assert len(computed) == before + 1


def test_who_does_not_exist_costs_as_much_as_who_does(door: Authenticator, computed: list[str]) -> None:
    for name in ("ana", "nobody"):
        with pytest.raises(Unauthenticated, match="wrong user, password or token"):
            asyncio.run(door.authenticate(asked(name, "guess"), rules()))
    assert computed == ["guess", "guess"]
    with pytest.raises(Unauthenticated):  # the decoy's own password does not authenticate anybody
        asyncio.run(door.authenticate(asked("nobody", ""), rules()))


def test_many_guesses_at_once_are_as_few_as_one_after_the_other(
    door: Authenticator, computed: list[str]
) -> None:
    async def guesses() -> list[AuthenticatedCaller | BaseException]:
        tries = (door.authenticate(asked("ana", f"guess {n}"), rules()) for n in range(40))
        return await asyncio.gather(*tries, return_exceptions=True)

    told = asyncio.run(guesses())
    assert sum(isinstance(each, TooManyFailures) for each in told) >= 28
    assert len(computed) <= 12
    # A service's token is not delayed by failures of others, and neither is another address.
    assert asyncio.run(door.authenticate(asked("job", "hubt_a"), rules())).who.name == "job"
    assert (
        asyncio.run(door.authenticate(asked("ana", "correct horse", "10.0.0.2"), rules())).who.name == "ana"
    )


def test_a_clock_that_was_set_back_keeps_nobody_waiting(tmp_path: Path, computed: list[str]) -> None:
    wall_s, steady_s = 7_200.0, 0.0
    door = Authenticator(LiveAccess(tmp_path), KEY, now_s=lambda: wall_s, steady_s=lambda: steady_s)
    for _ in range(MOST_FAILURES):
        with pytest.raises(Unauthenticated):
            asyncio.run(door.authenticate(asked("ana", "guess"), rules()))
    wall_s, steady_s = 0.0, AGAIN_EVERY_S
    assert asyncio.run(door.authenticate(asked("ana", "correct horse"), rules())).who.name == "ana"


def test_addresses_of_one_network_are_one(door: Authenticator) -> None:
    assert authenticate.neighbourhood("2001:db8::1") == authenticate.neighbourhood("2001:db8::ffff:1")
    assert authenticate.neighbourhood("2001:db8::1") != authenticate.neighbourhood("2001:db8:1::1")
    trusted = Proxies("X-User", ("10.0.0.0/8",))
    assert trusted.trusts("10.1.2.3") and trusted.trusts("::ffff:10.1.2.3")
    assert not trusted.trusts("11.0.0.1") and not trusted.trusts("") and not trusted.trusts("unix")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.7", ["192.0.2.9"], "192.0.2.9"),
        ("10.0.0.7", ["192.0.2.9:4711"], "192.0.2.9"),
        ("10.0.0.7", ["2001:db8::9"], "2001:db8::9"),
        ("10.0.0.7", ["[2001:db8::9]:4711"], "2001:db8::9"),
        ("::ffff:10.0.0.7", ["192.0.2.9"], "192.0.2.9"),
        # Entries that the client wrote itself precede those that a proxy added.
        ("10.0.0.7", ["1.1.1.1, 192.0.2.9"], "192.0.2.9"),
        ("10.0.0.7", ["1.1.1.1", "192.0.2.9"], "192.0.2.9"),
        ("10.0.0.7", ["10.0.0.1, 192.0.2.9"], "192.0.2.9"),
        ("10.0.0.7", ["1.1.1.1, 192.0.2.9, 10.0.0.8"], "192.0.2.9"),
        ("10.0.0.7", ["10.0.0.1, 10.0.0.8"], "10.0.0.1"),
        # Not a trusted proxy: the header is ignored.
        ("192.0.2.9", ["1.1.1.1"], "192.0.2.9"),
        ("192.0.2.9", ["10.0.0.7"], "192.0.2.9"),
        ("", ["1.1.1.1"], ""),
        # A proxy without the header, or with an invalid address.
        ("10.0.0.7", [], "10.0.0.7"),
        ("10.0.0.7", ["unknown"], "10.0.0.7"),
        ("10.0.0.7", ["1.1.1.1, _hidden"], "10.0.0.7"),
        ("10.0.0.7", ["1.1.1.1, [::"], "10.0.0.7"),
        ("10.0.0.7", ["fe80::1%" + "x" * 60_000], "10.0.0.7"),
    ],
)
def test_proxies_are_believed_for_as_long_as_they_are_some(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert Proxies(addresses=["10.0.0.0/8"]).client_of(peer, forwarded) == client
    assert Proxies().client_of(peer, forwarded) == peer


def test_addresses_of_ipv4_stay_apart_where_they_come_over_ipv6(door: Authenticator) -> None:
    """Addresses as reported by a proxy that listens on both protocols with one socket."""
    door.steady_s = lambda: 0.0  # fixed clock: on a slow machine no attempts are refilled meanwhile
    for n in range(MOST_FAILURES):
        with pytest.raises(Unauthenticated):
            asyncio.run(door.authenticate(asked("ana", f"guess {n}", "::ffff:10.0.0.1"), rules()))
    for address in ("::ffff:10.0.0.1", "10.0.0.1"):
        with pytest.raises(TooManyFailures):
            asyncio.run(door.authenticate(asked("ana", "correct horse", address), rules()))
    assert (
        asyncio.run(door.authenticate(asked("ana", "correct horse", "::ffff:10.0.0.2"), rules())).who.name
        == "ana"
    )


@pytest.mark.parametrize("name", ["job", "", "_hub"])
def test_a_service_with_an_old_token_keeps_nobody_of_its_address_from_signing_in(
    door: Authenticator, name: str
) -> None:
    told: list[type[Exception]] = []
    for _ in range(MOST_FAILURES + 2):
        with pytest.raises((Unauthenticated, TooManyFailures)) as raised:
            asyncio.run(door.authenticate(asked(name, "hubt_old"), rules()))
        told.append(raised.type)
    assert told[-1] is TooManyFailures  # its own attempts are bounded
    assert asyncio.run(door.authenticate(asked("ana", "correct horse"), rules())).who.name == "ana"


def test_names_that_nobody_has_fill_no_memory() -> None:
    """Anonymous callers may request unknown names, each a sixteenth of a megabyte long."""
    now = rules()
    for n in range(200):
        assert not now.decide(ANONYMOUS, Action.read, Resource(Kind.topic, f"{n}".ljust(60_000, "x"))).allowed
    assert sum(len(what.name) for _, _, what in now._known) < 60_000


ANA, JOB = (
    AuthenticatedCaller(Principal("ana", "user", frozenset({"shop"})), "session"),
    AuthenticatedCaller(Principal("job", "token", frozenset({"shop"})), "token"),
)
EMPTY = AccessRules.of(AccessFile())


@pytest.mark.parametrize(
    ("who", "now", "goes_on"),
    [
        (ANA, rules(), True),
        (ANA, rules(token="hubt_b"), True),
        (ANA, rules(OTHER), False),
        (ANA, rules(None), False),
        (ANA, rules(grants=()), False),
        (ANA, EMPTY, False),
        (JOB, rules(OTHER), True),
        (JOB, rules(token="hubt_b"), False),
        (JOB, EMPTY, False),
        (AuthenticatedCaller(Principal("carl", "proxy"), "proxy"), rules(), False),
        (AuthenticatedCaller(Principal("_hub", "own"), "password"), EMPTY, True),
    ],
)
def test_a_stream_goes_on_for_as_long_as_its_listener_would_be_let_in(
    who: AuthenticatedCaller, now: AccessRules, goes_on: bool
) -> None:
    found = rule_of("/api/topics/shop.orders/tail", "GET")
    assert found is not None
    assert still_granted(*found[:2], who, rules(), now) is goes_on
