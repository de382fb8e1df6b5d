"""Rules of a mirror that are changed later: noticed before a record is made under them,
and every stretch known by its own."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import HubFault
from hub.log import TopicDescription
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, checkpoint_of
from hub.replication.planning.plan import MirrorPlan, plan
from hub.replication.planning.steps import ClusterSide
from hub.replication.rewriting.filter_history import (
    AS_THEY_ARE,
    FilterPeriod,
    FilterVersion,
    history_text,
    in_force,
    ruled_of,
    stretches_of,
)

T = "nyc.chat"
PLACE = TopicPartition(T, 0)
KEY = {"${K}": "pepper"}
EMAIL = {"topics": ["nyc.**"], "fields": ["email"], "with": "hash", "key": "${K}"}
EU = {"topics": ["nyc.**"], "where": {"header": "region", "in": ["eu", None]}}


def mirror(**said: Any) -> Mirror:
    return Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.**"], **said})


def rules(secrets: dict[str, str] | None = None, **said: Any) -> FilterVersion:
    return FilterVersion.now(mirror(**said), T, KEY if secrets is None else secrets)


def ruled(first: int, made: FilterVersion) -> FilterPeriod:
    return FilterPeriod("nyc-lon", T, 0, "s", first, made, 99)


def as_read(new: NewRecord, partition: int = 0, *, gone: bool = False) -> Record:
    return Record(new.topic, partition, 8, 0, new.key, None if gone else new.value)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"only": [EU, {"topics": [T], "where": {"field": "n", "not_in": [1, True, "1", None, 2.5]}}]},
        {"mask": [EMAIL, {"topics": [T], "fields": ["a.b", "c"], "with": None}], "schema_ids": "rewrite"},
    ],
)
def test_rules_are_read_as_written_and_hold_no_key(said: dict[str, Any]) -> None:
    made = rules(**said)
    new = ruled(7, made).record(3)
    found = ruled_of(as_read(new))
    assert found is not None and (found.first, found.of) == (7, ("nyc-lon", T, "s", 0))
    assert found.rules.same_as(made) and made.same_as(found.rules)
    assert sorted(str(found.rules)) == sorted(str(made))  # lists may stand in another order
    assert b"pepper" not in (new.value or b"")
    assert checkpoint_of(as_read(new)) is None  # what an older hub makes of it
    assert ruled_of(as_read(new, gone=True)) is None


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"rules": {}}', b'{"rules": null, "signs": {}}'])
def test_what_is_no_record_of_rules_is_an_error_with_its_place(value: bytes) -> None:
    with pytest.raises(HubFault, match="offset 8"):
        ruled_of(Record(CHECKPOINTS_TOPIC, 0, 8, 0, ruled(7, AS_THEY_ARE).key, value))


def test_what_is_another_rule_and_what_is_the_same_said_otherwise() -> None:
    one = rules(only=[EU], mask=[EMAIL])
    turned = {"topics": [T], "where": {"header": "region", "in": [None, "eu"]}}
    assert one.same_as(rules(only=[turned], mask=[EMAIL]))
    assert one.same_as(rules(only=[EU], mask=[EMAIL], on_unreadable="drop"))  # what is read is made the same
    assert one.same_as(rules({}, only=[EU], mask=[EMAIL]))  # who has no key cannot tell
    for other in (
        rules(),
        rules(only=[EU]),
        rules(mask=[EMAIL]),
        rules(only=[EU], mask=[EMAIL], schema_ids="rewrite"),
        rules(only=[EU], mask=[{**EMAIL, "with": "redact", "key": None}]),
        rules(only=[{"topics": [T], "where": {"header": "region", "not_in": ["eu", None]}}], mask=[EMAIL]),
        rules({"${K}": "salt"}, only=[EU], mask=[EMAIL]),
    ):
        assert not one.same_as(other) and not other.same_as(one)
    assert one.other_keys({"${K}": "salt"}) == {"${K}"} and not one.other_keys(KEY)


@given(
    st.lists(st.integers(0, 30), unique=True, max_size=5),
    st.integers(0, 30),
    st.integers(0, 30),
    st.randoms(use_true_random=False),
)
def test_every_offset_is_in_one_stretch_with_the_rules_of_then(
    firsts: list[int], first: int, end: int, chance: random.Random
) -> None:
    shapes = [AS_THEY_ARE, rules(only=[EU]), rules(mask=[EMAIL])]
    known = [ruled(at, shapes[number % 3]) for number, at in enumerate(sorted(firsts), 1)]
    chance.shuffle(known)
    found = list(stretches_of(known, first, end))
    assert [n for begin, until, _ in found for n in range(begin, until)] == list(range(first, end))
    for begin, until, made in found:
        for offset in (begin, until - 1):
            wanted = max(
                (each for each in known if each.first <= offset), key=lambda e: e.first, default=None
            )
            assert made == (wanted.rules if wanted is not None else AS_THEY_ARE)
    if known:
        assert in_force(known) == max(known, key=lambda each: each.first).rules
    assert in_force([]) == AS_THEY_ARE


def test_stretches_are_said_as_people_read_them() -> None:
    masked = rules(mask=[EMAIL])
    assert history_text(list(stretches_of([ruled(0, masked)], 0, 9))) == "mask email (hash)"
    assert (
        history_text(list(stretches_of([ruled(5, masked)], 2, 9)))
        == "offsets 2 to 4: as they are; then offsets 5 to 8: mask email (hash)"
    )


def test_progress_knows_the_rules_of_the_topic_that_the_checkpoint_is_about() -> None:
    progress = WrittenState()
    mark = Checkpoint("nyc-lon", 0, T, 0, "s", 9, 1, 9)
    old = FilterPeriod("nyc-lon", T, 0, "former", 0, rules(only=[EU]))
    known = [ruled(5, rules(mask=[EMAIL])), ruled(0, rules(only=[EU]))]
    assert progress.rules_at("nyc-lon", PLACE) == ()
    for new in (mark.record(), old.record(), *(each.record() for each in known)):
        progress.apply(as_read(new, 2))
    assert [each.first for each in progress.rules_at("nyc-lon", PLACE)] == [0, 5]
    assert len(progress.rules_of("nyc-lon")) == 3 and progress.rules_of("other") == []
    assert progress.gaps == {}
    # With another number of shards it may stand in two partitions: it is gone when it is from both.
    progress.apply(as_read(known[0].record(), 4))
    progress.apply(as_read(known[0].record(), 2, gone=True))
    assert len(progress.rules_at("nyc-lon", PLACE)) == 2
    progress.apply(as_read(known[0].record(), 4, gone=True))
    assert [each.first for each in progress.rules_at("nyc-lon", PLACE)] == [0]


def planned(then: FilterVersion, *, secrets: dict[str, str] | None = None, **said: Any) -> MirrorPlan:
    mark = Checkpoint(
        "nyc-lon",
        0,
        T,
        0,
        "s",
        said.pop("source_next", 50),
        1,
        50,
        target_topic_id="t",
        source_start=10,
    )
    here, there = (ClusterSide({T: TopicDescription(T, of, 1, 1, {})}) for of in ("s", "t"))
    return plan(
        "nyc-lon", mirror(**said), [T], here, there, None, [mark], {PLACE: then}, KEY
        if secrets is None else secrets
    )  # fmt: skip


def test_a_plan_says_what_was_mirrored_under_other_rules() -> None:
    masked = rules(mask=[EMAIL])
    (refusal,) = planned(AS_THEY_ARE, mask=[EMAIL]).refusals
    assert refusal.reason == (
        "40 offsets of it were mirrored under other rules (as they are; now: mask email (hash))"
    )
    assert "--from-now" in refusal.hint and "drop" in refusal.hint
    (refusal,) = planned(masked).refusals
    assert "(mask email (hash); now: as they are)" in refusal.reason
    (refusal,) = planned(masked, mask=[EMAIL], secrets={"${K}": "salt"}).refusals
    assert "the key of a hash is another now" in refusal.reason and "salt" not in str(refusal)
    assert not planned(masked, mask=[EMAIL]).refusals
    assert not planned(masked, mask=[EMAIL], secrets={}).refusals
    assert not planned(AS_THEY_ARE).refusals
    assert not planned(AS_THEY_ARE, mask=[EMAIL], source_next=10).refusals  # nothing is there yet
