"""Copies are protected topic by topic, by rules that the hub added and removes, and by no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub.record import Record
from hub.replication.clusters.control_state import ControlState
from hub.replication.config.load_mirrors import certain_principals_of
from hub.replication.config.mirrors import ClusterConfig
from hub.replication.planning.protection import ProtectedCopies, protecting
from hub.replication.planning.steps import Acl

MIRROR, NONE = frozenset({"User:hub"}), ProtectedCopies("nyc-lon")
CHAT, ORDERS = "nyc.chat", "nyc.orders"


def allow(principal: str, name: str = "nyc.") -> Acl:
    return Acl(name, "PREFIXED", principal, "*", "WRITE", "ALLOW")


def deny(principal: str, topic: str) -> Acl:
    return Acl(topic, "LITERAL", principal, "*", "WRITE", "DENY")


def test_writers_are_denied_in_the_copies_and_the_mirror_is_not() -> None:
    there = frozenset({allow("User:app"), allow("User:hub"), allow("User:other", "lon.")})
    made = protecting("lon", [CHAT, ORDERS], there, NONE, MIRROR)
    assert made.change.add == {deny("User:app", CHAT), deny("User:app", ORDERS)} and not made.change.remove
    assert list(made.change.lines()) == ["+ lon: DENY User:app WRITE: nyc.chat, nyc.orders"]
    assert made.before == made.after == ProtectedCopies("nyc-lon", made.change.add)
    again = protecting("lon", [CHAT, ORDERS], there | made.change.add, made.after, MIRROR)
    assert again.is_empty


def test_only_rules_that_the_hub_added_are_removed() -> None:
    own = deny("User:app", CHAT)
    there = frozenset({allow("User:app"), own})
    persons = protecting("lon", [CHAT], there, NONE, MIRROR)  # a person denied it before
    assert persons.is_empty and not persons.after.rules
    assert protecting("lon", [], there, persons.after, MIRROR).is_empty
    lifted = protecting("lon", [], there, ProtectedCopies("nyc-lon", frozenset({own})), MIRROR)
    assert lifted.change.remove == {own} and lifted.after == NONE


def test_what_cannot_be_protected_is_said() -> None:
    everybody = protecting("lon", [CHAT], frozenset({allow("User:*")}), NONE, MIRROR)
    assert not everybody.change.add and "User:*" in everybody.change.notes[0]
    unknown = protecting("lon", [CHAT], frozenset({allow("User:app")}), NONE, None)
    assert not unknown.change.add and "unknown" in unknown.change.notes[0]
    assert protecting("lon", [CHAT], None, NONE, MIRROR).is_empty  # it has no authorizer


def test_a_mirror_never_denies_itself_by_a_guess() -> None:
    """The principal of a token is one of its claims, and that of a certificate is mapped by the cluster."""
    secret = {"username": "hub", "password": "${P}"}
    token = {"token_url": "http://idp/token", "client_id": "hub", "client_secret": "${P}"}
    for sasl, found in (
        ({"mechanism": "SCRAM-SHA-512", **secret}, MIRROR),
        ({"mechanism": "OAUTHBEARER", **token}, None),
        (None, frozenset({"User:ANONYMOUS"})),
    ):
        cluster = ClusterConfig.model_validate({"bootstrap": "lon:9092", "sasl": sasl})
        assert certain_principals_of(cluster) == found


@given(st.sets(st.sampled_from([CHAT, ORDERS])), st.sets(st.sampled_from([CHAT, ORDERS])), st.integers(0, 3))
def test_a_crash_between_any_two_writes_leaves_no_rule_behind(
    first: set[str], second: set[str], cut: int
) -> None:
    """before is written, rules are added, rules are removed, after is written."""
    there, known = frozenset({allow("User:app")}), NONE
    for topics, done in ((first, 4), (second, cut), (second, 4)):
        made = protecting("lon", topics, there, known, MIRROR)
        known = made.before if done >= 1 else known
        there |= made.change.add if done >= 2 else frozenset()
        there -= made.change.remove if done >= 3 else frozenset()
        known = made.after if done >= 4 else known
    assert {rule for rule in there if rule.permission == "DENY"} == known.rules
    assert known.rules == {deny("User:app", topic) for topic in second}


def test_the_record_is_read_back_and_an_empty_one_is_a_tombstone() -> None:
    board = ControlState()
    for said in (ProtectedCopies("nyc-lon", frozenset({deny("User:app", CHAT)})), NONE):
        new = said.record()
        board.apply(Record(new.topic, 0, 0, 0, new.key, new.value), 0.0, 0)
        assert board.protected.get("nyc-lon", NONE) == said
