"""access.yaml: strict parsing with file, line and column; reload on change; never open by mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hub.access.access_yaml import load_access
from hub.access.decide import Principal
from hub.access.live_config import LiveAccess
from hub.access.secrets import hash_of_password, hash_of_token
from hub.caller import HUB, Action, Kind, Resource
from hub.errors import ConfigError
from hub.yaml_nodes import UnreadableFile

PASSWORD = hash_of_password("correct horse", b"0123456789abcdef")
TOKEN = hash_of_token("hubt_secret")
GOOD = f"""\
contact: the platform team
groups:
  shop: [{{role: read, topics: ["shop.**"], views: [customer_360]}}]
users:
  ana: {{password: "{PASSWORD}", groups: [shop]}}
  bob: {{groups: [shop]}}
tokens:
  checkout: {{token: "{TOKEN}", grants: [{{role: write, topics: [shop.orders]}}]}}
anonymous: [{{role: read, topics: ["public.*"]}}]
"""
ORDERS = Resource(Kind.topic, "shop.orders")


def wrong(tmp_path: Path, text: str) -> ConfigError:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_access(path)
    return raised.value


def test_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(GOOD)
    policy = load_access(tmp_path / "access.yaml").policy(0)
    assert policy.contact == "the platform team"
    assert [source for source, _ in policy.grants(Principal("checkout", "token"))] == [
        "anonymous",
        "token checkout",
    ]


@pytest.mark.parametrize(
    ("before", "after", "where", "said"),
    [
        ("groups:\n  shop", "gruops:\n  shop", ":2:1", 'did you mean "groups"?'),
        ('role: read, topics: ["shop', 'rolle: read, topics: ["shop', ":3:11", 'did you mean "role"?'),
        ("groups: [shop]}\n  bob", "groups: [shpo]}\n  bob", ":5:", 'did you mean "shop"?'),
        ("role: write", "role: wirte", ":8:", "'read', 'write', 'operate' or 'admin'"),
        ('"shop.**"', '"shop.**.**"', ":3:", '"**" may occur once'),
        ('"shop.**"', '"shop.ord?rs"', ":3:", "may have letters"),
        ("topics: [shop.orders]", "hub: false", ":8:", "a grant needs a scope"),
        (PASSWORD, "secret", ":5:", "hub access hash"),
        (PASSWORD, TOKEN, ":5:", "hub access hash"),
        (TOKEN, PASSWORD, ":8:", "hub access hash --token"),
        ("  checkout:", "  bob:", ":8:", "is a user and a token"),
        ("  ana:", "  _hub:", ":5:", 'name "_hub"'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, before: str, after: str, where: str, said: str
) -> None:
    assert before in GOOD
    error = wrong(tmp_path, GOOD.replace(before, after, 1))
    assert f"access.yaml{where}" in error.message
    assert said in f"{error.message} {error.hint}"
    assert "correct horse" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace(TOKEN, "hubt_secret"),
        GOOD.replace(PASSWORD, "hubt_secret"),
        "users: {ana: hubt_secret}",
        "tokens: {job: hubt_secret}",
        "tokens: {job: {token: [hubt_secret]}}",
    ],
)
def test_a_secret_in_the_place_of_its_hash_is_not_said(tmp_path: Path, text: str) -> None:
    error = wrong(tmp_path, text)
    assert "hubt_secret" not in f"{error} {error.message} {error.hint}"


def test_one_token_is_one_services(tmp_path: Path) -> None:
    two = GOOD.replace("anonymous", f'  other: {{token: "{TOKEN}"}}\nanonymous')
    assert "the same token" in wrong(tmp_path, two).message


def test_scrypt_with_a_cost_of_nothing_is_refused(tmp_path: Path) -> None:
    weak = PASSWORD.replace("scrypt$14", "scrypt$01")
    assert "too weak" in wrong(tmp_path, GOOD.replace(PASSWORD, weak)).message


# ---- reload


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(path.stat().st_mtime_ns + 1_000_000,) * 2)


def may_read(live: LiveAccess) -> bool | None:
    """Return the decision for a read; None: access control is off."""
    if live.rules is None:
        return None
    return live.rules.decide(live.rules.user("ana"), Action.read, ORDERS).allowed


def test_without_a_file_access_is_not_controlled_and_a_new_file_is_seen(tmp_path: Path) -> None:
    live = LiveAccess(tmp_path)
    assert may_read(live) is None
    (tmp_path / "access.yaml").write_text(GOOD)
    live.refresh()
    assert may_read(live) is True


def test_a_file_that_is_required_and_missing_lets_nobody_in(tmp_path: Path) -> None:
    live = LiveAccess(tmp_path, required=True)
    assert may_read(live) is False and live.error is not None
    (tmp_path / "access.yaml").write_text(GOOD)
    live.refresh()
    assert may_read(live) is True and live.error is None


@pytest.mark.parametrize(
    "broken", ["", "users: 7", "users: [", "groups: {shop: [{role: admin, hub: yes!}]}", "\x00"]
)
def test_a_broken_file_leaves_what_held_and_where_nothing_held_lets_nobody_in(
    tmp_path: Path, broken: str
) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(broken)
    fresh = LiveAccess(tmp_path)
    assert may_read(fresh) is False and "access.yaml" in str(fresh.error)
    rewrite(path, GOOD)
    fresh.refresh()
    assert may_read(fresh) is True and fresh.error is None
    rewrite(path, broken)
    fresh.refresh()
    assert may_read(fresh) is True and fresh.error is not None


def test_a_file_by_the_other_name_of_yaml_lets_nobody_in_and_says_why(tmp_path: Path) -> None:
    """The author of access.yml expects access control to be on."""
    (tmp_path / "access.yml").write_text(GOOD)
    live = LiveAccess(tmp_path)
    live.refresh()
    assert may_read(live) is False and live.error is not None
    assert "rename access.yml to access.yaml" in (live.error.hint or "")
    (tmp_path / "access.yml").rename(tmp_path / "access.yaml")
    live.refresh()
    assert may_read(live) is True and live.error is None


def test_a_file_that_goes_away_leaves_what_held(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(GOOD)
    live = LiveAccess(tmp_path)
    path.unlink()
    live.refresh()
    assert may_read(live) is True and live.error is not None
    assert not live.rules or not live.rules.decide(live.rules.user("eve"), Action.read, ORDERS).allowed


def test_a_file_that_could_not_be_opened_is_tried_again_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "access.yaml").write_text(GOOD)

    def closed(_path: Path) -> None:
        raise UnreadableFile("cannot be read: Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("hub.access.live_config.load_access", closed)
        live = LiveAccess(tmp_path)
        live.refresh()
    assert may_read(live) is False and len(caplog.records) == 1  # logged once
    live.refresh()  # its mode changed, not its content
    assert may_read(live) is True and live.error is None


def test_what_was_granted_and_is_not_any_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(GOOD)
    live = LiveAccess(tmp_path)
    assert may_read(live) is True
    rewrite(path, GOOD.replace("shop.**", "stock.**"))
    live.refresh()
    assert may_read(live) is False


def test_an_admin_token_closes_the_door_without_a_file_and_goes_on_beside_one(tmp_path: Path) -> None:
    token = "hubt_" + "a" * 43
    access = LiveAccess(tmp_path, admin_token=token)
    assert access.rules is not None and access.error is None

    def may(text: str) -> bool:
        assert access.rules is not None
        name = access.rules.tokens.get(hash_of_token(text))
        who = Principal(name, "token") if name else Principal("", "anonymous")
        return access.rules.decide(who, Action.admin, HUB).allowed

    assert may(token) and not may("hubt_other")
    (tmp_path / "access.yaml").write_text("anonymuos: []\n")
    access.refresh()
    assert may(token) and access.error is not None
    (tmp_path / "access.yaml").write_text("anonymous: [{role: read, topics: [a]}]\n")
    access.refresh()
    assert may(token) and access.error is None and access.rules is not None and access.rules.file.anonymous
    (tmp_path / "access.yaml").unlink()
    access.refresh()
    assert may(token) and access.error is not None and access.rules.file.anonymous
