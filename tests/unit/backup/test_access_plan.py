"""Access rules of a backup: what the target gets, in which order, and what is left out."""

from __future__ import annotations

from dataclasses import asdict, replace

from hub.backup.restoring.access_plan import rules_to_add
from hub.backup.storage.manifest import Manifest, manifest_of
from hub.kafka.acls import AccessRule

READ = AccessRule("shop.a", "LITERAL", "User:ana", "*", "READ", "ALLOW")
DENIED = replace(READ, principal="User:eve", permission="DENY")
PREFIX = replace(READ, name="shop.", pattern="PREFIXED")
EVERY = replace(READ, name="*")
OTHER = replace(READ, name="crm.b")
GROUP = replace(READ, name="billing", resource="GROUP")
SAVED = (READ, DENIED, PREFIX, EVERY, OTHER, GROUP)


def test_a_whole_restore_adds_every_rule_that_is_missing_and_denials_first() -> None:
    found, left_out = rules_to_add(SAVED, {OTHER}, {"shop.a"}, whole=True)
    assert found[0] == DENIED
    assert (set(found), left_out) == ({READ, DENIED, PREFIX, EVERY, GROUP}, 0)


def test_a_restore_of_some_topics_gives_no_right_on_others() -> None:
    found, left_out = rules_to_add(SAVED, set(), {"shop.a"}, whole=False)
    assert (found, left_out) == ((DENIED, READ), 2)
    assert rules_to_add(SAVED, set(SAVED), {"shop.a"}, whole=False) == ((), 0)


def test_a_manifest_keeps_rules_and_one_of_before_has_none() -> None:
    manifest = Manifest(1, 5, rules=(asdict(READ),))
    assert manifest_of(manifest.to_json(), "m").rules == (asdict(READ),)
    assert manifest_of(Manifest(1, 5).to_json().replace(b',"rules":null', b""), "m").rules is None
