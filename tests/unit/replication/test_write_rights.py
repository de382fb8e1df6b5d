"""Write rights after a change of ownership: granted per topic, denied over remaining rules, returned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub.errors import HubFault
from hub.record import Record
from hub.replication.planning.steps import Acl
from hub.replication.planning.write_rights import (
    AclChange,
    OwnershipAcls,
    WriteAcls,
    about_writing,
    fact_of,
    giving_back,
    keeping_out,
    letting_in,
)

CHAT, LOOT = "nyc.chat", "nyc.loot"
APP = Acl("nyc.", "PREFIXED", "User:app", "*", "WRITE", "ALLOW")
ALL = Acl(CHAT, "LITERAL", "User:admin", "10.0.0.1", "ALL", "ALLOW")
READER = Acl("nyc.", "PREFIXED", "User:reader", "*", "READ", "ALLOW")
IDEMPOTENT = Acl("kafka-cluster", "LITERAL", "User:app", "*", "IDEMPOTENT_WRITE", "ALLOW", "CLUSTER")
TRANSACTIONS = Acl("app.", "PREFIXED", "User:app", "*", "ALL", "ALLOW", "TRANSACTIONAL_ID")
OTHERS = Acl("x", "LITERAL", "User:reader", "*", "WRITE", "ALLOW", "TRANSACTIONAL_ID")
HOME = frozenset({APP, ALL, READER, IDEMPOTENT, TRANSACTIONS, OTHERS})
FORMER = WriteAcls("nyc-lon", about_writing(HOME, [CHAT, LOOT]))


def write(topic: str, who: str = "app", host: str = "*", permission: str = "ALLOW") -> Acl:
    return Acl(topic, "LITERAL", f"User:{who}", host, "WRITE", permission)  # type: ignore[arg-type]


def test_only_what_is_about_writing_is_recorded_and_read_as_written() -> None:
    assert FORMER.rules == {APP, ALL, IDEMPOTENT, TRANSACTIONS}
    for fact in (
        replace(FORMER, at_ms=7),
        OwnershipAcls("nyc", {"lon": frozenset({APP})}, {"nyc": frozenset({IDEMPOTENT})}, {}, 3),
    ):
        record = fact.record()
        assert fact_of(Record(record.topic, 0, 0, 0, record.key, record.value)) == fact
    with pytest.raises(HubFault, match="HUB-5603|not a record"):
        fact_of(Record("t", 0, 0, 0, b"handed|nyc", b"{}"))


def test_writers_get_each_topic_alone_and_what_transactions_need() -> None:
    change = letting_in(
        "lon", [CHAT, LOOT], FORMER, frozenset({READER}), OwnershipAcls("nyc"), {"User:admin": "User:root"}
    )
    assert change.add == {
        write(CHAT),
        write(LOOT),
        write(CHAT, "root", "10.0.0.1"),
        IDEMPOTENT,
        replace(TRANSACTIONS, operation="WRITE"),
        replace(TRANSACTIONS, operation="DESCRIBE"),
    }
    assert not change.remove and not change.notes
    # What a rule there gives already is not given once more.
    there = frozenset({APP, IDEMPOTENT, TRANSACTIONS, write(CHAT, "*")})
    assert letting_in("lon", [CHAT, LOOT], FORMER, there, OwnershipAcls("nyc"), {}).add == frozenset()


@pytest.mark.parametrize(
    ("former", "there", "said"),
    [
        (None, frozenset[Acl](), "not known"),
        (WriteAcls("l", checked=False), frozenset[Acl](), "checks no access"),
        (FORMER, None, ""),
    ],
)
def test_where_nothing_can_be_granted_people_are_told(
    former: WriteAcls | None, there: frozenset[Acl] | None, said: str
) -> None:
    change = letting_in("lon", [CHAT], former, there, OwnershipAcls("nyc"), {})
    assert not change.add and said in "".join(change.notes)


def test_home_denies_over_its_rules_and_a_failback_takes_that_away() -> None:
    change = keeping_out("nyc", "nyc", [CHAT, LOOT], HOME, OwnershipAcls("nyc"), frozenset({"User:mirror"}))
    denied = {write(CHAT, permission="DENY"), write(LOOT, permission="DENY")}
    denied |= {write(CHAT, "admin", "10.0.0.1", "DENY")}
    assert (change.add, change.remove) == (denied, frozenset())
    handed = OwnershipAcls("nyc").after_taking("nyc", change)
    again = keeping_out("nyc", "nyc", [CHAT, LOOT], HOME | change.add, handed, frozenset({"User:mirror"}))
    assert not again.add and handed.after_taking("nyc", again).denied == handed.denied
    back = letting_in("nyc", [CHAT, LOOT], FORMER, HOME | change.add, handed, {})
    assert (back.add, back.remove) == (frozenset(), denied)
    assert handed.after_giving("nyc", back).denied["nyc"] == frozenset()


def test_the_acting_side_loses_only_what_it_was_given() -> None:
    own = write(LOOT, "local")
    given = letting_in("lon", [CHAT, LOOT], FORMER, frozenset({own}), OwnershipAcls("nyc"), {})
    handed = OwnershipAcls("nyc").after_giving("lon", given)
    there = frozenset({own}) | given.add
    taken = keeping_out("lon", "nyc", [CHAT, LOOT], there, handed, frozenset())
    assert taken.remove == given.add and not taken.add
    # An abort gives it back.
    after = handed.after_taking("lon", taken)
    undone = giving_back("lon", after, frozenset({own}))
    assert undone.add == given.add
    assert after.after_giving("lon", undone).given["lon"] == given.add


def test_nobody_denies_everybody_or_the_mirror_itself() -> None:
    everybody = replace(APP, principal="User:*")
    change = keeping_out(
        "nyc", "nyc", [CHAT], frozenset({everybody, APP}), OwnershipAcls("nyc"), frozenset({"User:app"})
    )
    assert not change.add and "everybody may write" in change.notes[0]
    unknown = keeping_out("nyc", "nyc", [CHAT], frozenset({APP}), OwnershipAcls("nyc"), None)
    assert not unknown.add and "no principal is denied" in unknown.notes[0]
    unchecked = keeping_out("nyc", "nyc", [CHAT], None, OwnershipAcls("nyc"), frozenset())
    assert "checks no access" in unchecked.notes[0]


def test_a_change_is_told_by_principal() -> None:
    topics = [f"nyc.t{n}" for n in range(5)]
    change = AclChange(
        "lon", frozenset(write(topic) for topic in topics), frozenset({IDEMPOTENT}), ("careful",)
    )
    assert list(change.lines()) == [
        "+ lon: ALLOW User:app WRITE: nyc.t0, nyc.t1, nyc.t2 and 2 more",
        "- lon: ALLOW User:app IDEMPOTENT_WRITE on CLUSTER: kafka-cluster",
        "! lon: careful",
    ]
