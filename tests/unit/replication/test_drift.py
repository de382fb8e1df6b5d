"""Settings that somebody changed at a copy: left, reported, or put back."""

from __future__ import annotations

from typing import Any

from mirror_statuses import FILE, T, board
from plan_sides import DEFAULTS, altered, made, mark, side, topic

from hub.alerts.model.rules import RuleChanges, Verdict
from hub.record import Positions
from hub.replication.clusters.written_state import WrittenState
from hub.replication.ownership.links import links
from hub.replication.planning.drift import FoundDrift, TopicDrift, drifts_to_record, next_drift
from hub.replication.planning.plan import MirrorPlan
from hub.replication.planning.steps import Acl, AlterAcls, SyncedTopic
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.objectives import observe_mirrors

WEEK, DAY = "604800000", "86400000"
SYNCED = SyncedTopic("nyc-lon", T, {"retention.ms": WEEK})


def changed(there: dict[str, str], here: dict[str, str] | None = None, **said: Any) -> MirrorPlan:
    """Plan a topic whose copy has the settings ``there``; the source was synced with a week."""
    source = side(topic({"retention.ms": WEEK} if here is None else here))
    target = side(topic(there, id="t"), ends=Positions.of([(T, 0, 12)]), defaults=DEFAULTS)
    return made(source, target, SYNCED, (mark(),), **said)


def test_what_a_person_changed_is_put_back_or_left() -> None:
    by_hand = {"retention.ms": DAY}
    for policy in ("keep", "alert"):
        found = changed(by_hand, drift=policy)
        assert altered(found) == {} and "changed at the target" in found.cautions[0].reason
        assert found.drift == {T: FoundDrift({"retention.ms": (DAY, WEEK)})}
    found = changed(by_hand, drift="revert")
    assert altered(found) == {"retention.ms": (DAY, WEEK)} and not found.cautions
    assert found.drift == {T: FoundDrift({}, {"retention.ms": (DAY, WEEK)})}
    assert changed({"retention.ms": WEEK}, drift="revert").drift == {}


def test_a_change_on_both_sides_ends_as_the_source_has_it() -> None:
    found = changed({"retention.ms": DAY}, {"retention.ms": "5"}, drift="revert")
    assert altered(found) == {"retention.ms": (DAY, "5")}
    assert "both set by hand" in changed({"retention.ms": DAY}, {"retention.ms": "5"}).cautions[0].reason


def test_putting_back_never_lowers_durability_nor_what_the_mirror_set_itself() -> None:
    raised = changed({"retention.ms": WEEK, "min.insync.replicas": "2"}, drift="revert")
    assert altered(raised) == {} and raised.drift[T].stays == {"min.insync.replicas": ("2", None)}
    short = {**DEFAULTS, "retention.ms": "1000"}
    synced = SyncedTopic("nyc-lon", T, {})
    ends = Positions.of([(T, 0, 12)])
    own = made(
        side(topic({})),
        side(topic({"retention.ms": WEEK}, id="t"), ends=ends, defaults=short),
        synced,
        (mark(),),
        drift="revert",
    )
    assert altered(own) == {} and own.drift == {}  # else the target's default would delete records
    few = made(
        side(topic({"min.insync.replicas": "3"})),
        side(topic({"min.insync.replicas": "1"}, id="t", replicas=1), ends=ends),
        SyncedTopic("nyc-lon", T, {"min.insync.replicas": "3"}),
        (mark(),),
        drift="revert",
    )
    assert altered(few) == {}  # more than the copy's replicas would stop its writes


def test_settings_that_refuse_a_topic_are_put_back() -> None:
    hostile = {"retention.ms": WEEK, "compression.type": "gzip", "max.message.bytes": "1000"}
    assert changed(hostile).refusals
    found = changed(hostile, drift="revert")
    assert not found.refusals
    assert altered(found) == {"compression.type": ("gzip", "producer"), "max.message.bytes": ("1000", None)}


def test_partitions_stay_and_copied_rules_come_back() -> None:
    read = Acl(T, "LITERAL", "User:app", "*", "READ", "ALLOW")
    ends = Positions.of([(T, 0, 12)])
    found = made(
        side(topic(), acls=frozenset({read})),
        side(topic(partitions=5, id="t"), ends=ends),
        SyncedTopic("nyc-lon", T, {}, frozenset({read})),
        (mark(),),
        drift="revert",
    )
    assert found.drift[T].stays == {"partitions": ("5", "3")}
    assert found.drift[T].reverted == {"acl User:app READ": ("none", "ALLOW")}
    assert [step.add for step in found.steps if isinstance(step, AlterAcls)] == [(read,)]


def test_drift_is_recorded_when_it_changes_and_ends() -> None:
    stays, back = FoundDrift({"a": ("1", "2")}), FoundDrift({}, {"a": ("1", "2")})
    first = next_drift("m", T, None, stays, 5)
    assert first == TopicDrift("m", T, 5, {"a": ("1", "2")})
    assert next_drift("m", T, first, stays, 9) is None
    ended = next_drift("m", T, first, FoundDrift(), 9)
    assert ended is not None and ended.record().value is None
    reverted = next_drift("m", T, first, back, 9)
    assert reverted is not None and (reverted.open, reverted.reverted_at_ms) == ({}, 9)
    assert next_drift("m", T, reverted, FoundDrift(), 12) is None  # the last revert stays recorded
    assert next_drift("m", T, None, FoundDrift(), 12) is None
    assert board(reverted.record()).drifts == {("m", T): reverted}
    (gone,) = drifts_to_record("m", (), {T: first}, {}, 9)
    assert gone.record().value is None and board(first.record(), gone.record()).drifts == {}


def observed(policy: str, *drifts: TopicDrift) -> list[Verdict]:
    body = FILE.model_dump(by_alias=True, exclude_unset=True)
    body["mirrors"]["m"]["drift"] = policy
    file = type(FILE).model_validate(body)
    state = board(*(each.record() for each in drifts))
    found = summary_of(file, links(file)["m"], state, WrittenState(), 50_000)
    rules = {each.rule.name: each for each in observe_mirrors([found], {}, RuleChanges())}
    return [each.verdict for each in rules["mirror-drift"].observations]


def test_an_alert_fires_while_a_copy_differs() -> None:
    there = TopicDrift("m", T, 5, {"retention.ms": ("1", None)})
    assert observed("alert", there) == [Verdict.BAD]
    assert observed("alert") == [Verdict.GOOD]
    assert observed("revert", TopicDrift("m", T, 5, {}, {"retention.ms": ("1", None)}, 6)) == [Verdict.GOOD]
    assert observed("keep", there) == []
