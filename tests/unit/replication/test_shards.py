"""Shards have one worker each, move as little as can be, and a stuck one is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from hub.record import TopicPartition
from hub.replication.ownership.shards import (
    Lease,
    Shard,
    Watch,
    assign,
    moves,
    shard_of,
    shards_of,
    watch,
)

SHARDS = [Shard(link, number) for link in ("nyc-lon", "lon-nyc") for number in range(32)]
MEMBERS = st.sets(st.integers(0, 40).map("worker-{}".format), min_size=1, max_size=12)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_partition_keeps_its_shard() -> None:
    assert [shard_of("nyc.chat", partition, 8) for partition in range(4)] == [2, 7, 0, 4]
    partitions = [TopicPartition("nyc.chat", partition) for partition in range(20)]
    found = shards_of("nyc-lon", partitions, 8)
    assert sorted(tp for each in found.values() for tp in each) == partitions
    more = shards_of("nyc-lon", [*partitions, TopicPartition("nyc.chat", 20)], 8)
    assert all(set(found[shard]) <= set(more[shard]) for shard in found)
    assert Shard("nyc-lon", 3).transactional_id == "hub.mirror.nyc-lon.3"


@given(MEMBERS)
def test_everything_is_assigned_and_nobody_has_more_than_a_share(members: set[str]) -> None:
    found = assign(members, SHARDS)
    assert found.keys() == set(SHARDS)
    assert max(Counter(found.values()).values()) <= -(-len(SHARDS) // len(members))
    assert found == assign(sorted(members, reverse=True), reversed(SHARDS))


def moved(before: Mapping[Shard, str], after: Mapping[Shard, str]) -> set[Shard]:
    return {shard for shard in before.keys() & after.keys() if before[shard] != after[shard]}


@given(MEMBERS, st.integers(0, 40).map("worker-{}".format))
def test_nothing_moves_but_what_has_to(members: set[str], other: str) -> None:
    small, large = members - {other}, members | {other}
    before = assign(large, SHARDS)
    if small:
        after = assign(small, SHARDS, before)
        assert {shard for shard in SHARDS if before[shard] == other} == moved(before, after)
        again = assign(large, SHARDS, after)
        assert moved(after, again) == {shard for shard in SHARDS if again[shard] == other}
        assert assign(large, SHARDS, again) == again


@given(MEMBERS, st.lists(st.tuples(st.booleans(), st.integers(0, 11)), min_size=1, max_size=6))
def test_leases_settle_without_two_holders(start: set[str], changes: list[tuple[bool, int]]) -> None:
    members, leases, now = set(start), dict[Shard, Lease](), 0
    for comes, number in [*changes, (True, 0)]:
        if comes:
            members.add(f"worker-{number}")
        elif len(members) > 1:
            members.discard(sorted(members)[number % len(members)])
        for _ in range(3):  # each worker looks a few times
            for me in sorted(members):
                found = moves(me, members, SHARDS, leases.values(), now)
                for shard in found.release:
                    del leases[shard]
                for shard in found.take:
                    held = leases.get(shard)
                    assert held is None or held.worker not in members
                    leases[shard] = Lease(shard, me, now + 100)
                for shard in found.renew:
                    leases[shard] = Lease(shard, me, now + 100)
                now += 1
        held = {shard: lease.worker for shard, lease in leases.items()}
        assert held.keys() == set(SHARDS) and set(held.values()) <= members
        assert held == assign(members, SHARDS, held)


@given(MEMBERS, st.sets(st.tuples(st.sampled_from(SHARDS), st.integers(0, 11))))
def test_whoever_holds_what_at_first_in_the_end_each_shard_has_one_holder(
    members: set[str], doubled: set[tuple[Shard, int]]
) -> None:
    """Two that hold the same shard (one stood still while the other took it),
    and nothing that fences either."""
    names = sorted(members)
    held = {(shard, names[number % len(names)]) for shard, number in doubled}
    for _ in range(4):
        for me in names:
            found = moves(me, members, SHARDS, [Lease(shard, who, 100) for shard, who in sorted(held)], 0)
            held -= {(shard, me) for shard in found.release}
            held |= {(shard, me) for shard in found.take}
    assert sorted(shard for shard, _ in held) == sorted(SHARDS)


def test_a_lease_runs_out() -> None:
    lease = Lease(SHARDS[0], "other", 50)
    assert moves("me", {"other"}, SHARDS[:1], [lease], 49).take in ((), (SHARDS[0],))
    mine = moves("me", set(), SHARDS[:1], [Lease(SHARDS[0], "me", 50)], 50)
    assert mine.take == (SHARDS[0],)  # its own lease ran out: it opens the shard anew


def test_a_shard_that_lags_and_stands_still_is_restarted_then_alarmed() -> None:
    state, verdicts = Watch(0, {A: 5, B: 5}), []
    for now in range(0, 150, 10):
        state, verdict = watch(state, {A: 5 + now, B: 5}, {A: 1000, B: 9}, now, patience_ms=30)
        verdicts.append(verdict)
    assert verdicts == ["wait"] * 3 + ["restart"] + ["wait"] * 5 + ["alarm"] + ["wait"] * 5
    state, verdict = watch(state, {A: 200, B: 6}, {A: 1000, B: 9}, 150, patience_ms=30)
    assert verdict == "well" and state.restarts == 0


def test_a_shard_without_lag_is_well_however_long() -> None:
    assert watch(Watch(0, {A: 5}), {A: 5}, {A: 5}, 10**9, 10)[1] == "well"


def test_a_shard_of_which_some_always_wait_their_turn_is_not_restarted() -> None:
    """Much to catch up over a slow line: each look finds one of them where it was,
    and none stands for long."""
    state, end = Watch(0, {A: 0, B: 0}), {A: 10**6, B: 10**6}
    for look in range(1, 30):
        positions = {A: 5 * (look // 2), B: 5 * ((look + 1) // 2)}
        state, verdict = watch(state, positions, end, look * 10, patience_ms=50)
        assert verdict in ("well", "wait")
    # One that stands is still seen, and one that was helped is well once it got on.
    for look in range(30, 40):
        state, verdict = watch(state, {A: 10**3 + look, B: 75}, end, look * 10, patience_ms=50)
        if verdict == "restart":
            break
    assert verdict == "restart"
    for look in range(40, 44):
        positions = {A: 10**4 + 5 * (look // 2), B: 10**4 + 5 * ((look + 1) // 2)}
        state, verdict = watch(state, positions, end, look * 10, patience_ms=50)
    assert state.restarts == 0
