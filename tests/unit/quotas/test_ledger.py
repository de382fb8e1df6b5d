"""Test buckets and accounts: what is admitted over any time, clocks, and the memory of many principals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.quotas.buckets import BucketLevel, HourSum, refilled, retry_after, spent, wait_s
from hub.quotas.kinds import Quota
from hub.quotas.ledger import MOST_ADDRESSES, Debtor, Ledger
from hub.quotas.policy import Limit

RATES = st.floats(0.1, 1e6)
STEPS = st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.01, 1.0)), min_size=1, max_size=60)


def of(key: str, quota: Quota, value: float | None) -> Debtor:
    return Debtor(key, {quota: Limit(value, f"quotas.users.{key}")})


@given(RATES, st.sampled_from([1.0, 60.0]), STEPS)
def test_any_time_admits_the_rate_and_one_bucket(
    limit: float, window_s: float, steps: Sequence[tuple[float, float]]
) -> None:
    level, now, admitted = BucketLevel(), 0.0, list[tuple[float, float]]()
    for pause_s, share in steps:
        now += pause_s
        level = refilled(level, limit, window_s, now)
        if wait_s(level, limit, window_s, share * limit) == 0.0:
            level = spent(level, share * limit)
            admitted.append((now, share * limit))
    for number, (begin, _) in enumerate(admitted):
        total = 0.0
        for at, amount in admitted[number:]:
            total += amount
            assert total <= limit * (at - begin) / window_s + limit * (1 + 1e-6)


@given(RATES, st.sampled_from([1.0, 60.0]), st.floats(0.01, 50.0))
def test_the_promised_wait_is_enough_and_no_longer_than_needed(
    limit: float, window_s: float, used: float
) -> None:
    level, amount = BucketLevel(used * limit, 100.0), limit
    wait = wait_s(level, limit, window_s, amount)
    assert wait > 0.0
    assert wait_s(refilled(level, limit, window_s, 100.0 + wait * 1.000001), limit, window_s, amount) == 0.0
    assert wait_s(refilled(level, limit, window_s, 100.0 + wait * 0.99), limit, window_s, amount) > 0.0
    assert retry_after(wait) >= wait


def test_a_request_larger_than_the_bucket_is_admitted_once_and_paid_for() -> None:
    ledger, ana = Ledger(), [of("user ana", Quota.events_in, 100.0)]
    assert ledger.spend(ana, Quota.events_in, 1_000, 0.0) is None
    refused = ledger.spend(ana, Quota.events_in, 1, 1.0)
    assert refused is not None and refused.wait_s == pytest.approx(8.01)
    assert ledger.spend(ana, Quota.events_in, 1, 9.02) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_clock_that_jumps_refills_nothing_backwards_and_blocks_nobody(jumps: list[float]) -> None:
    ledger, ana = Ledger(), [of("user ana", Quota.queries, 10.0)]
    now, forward = 1e7, 0.0
    admitted = 0
    for jump in jumps:
        now += jump
        forward += max(0.0, jump)
        admitted += sum(ledger.spend(ana, Quota.queries, 1, now) is None for _ in range(20))
    assert admitted <= 10 + forward * 10 + 1
    assert ledger.spend(ana, Quota.queries, 1, now + 1.0) is None


def test_a_clock_set_back_by_an_hour_keeps_nobody_waiting_for_an_hour() -> None:
    ledger, ana = Ledger(), [of("user ana", Quota.queries, 1.0)]
    assert ledger.spend(ana, Quota.queries, 1, 3_600.0) is None
    assert ledger.spend(ana, Quota.queries, 1, 0.0) is not None
    assert ledger.spend(ana, Quota.queries, 1, 1.0) is None


def test_principal_and_tenant_are_both_charged_or_neither_is() -> None:
    ledger = Ledger()
    both = [of("user ana", Quota.queries, 100.0), of("tenant nyc", Quota.queries, 2.0)]
    assert [ledger.spend(both, Quota.queries, 1, 0.0) for _ in range(2)] == [None, None]
    refused = ledger.spend(both, Quota.queries, 1, 0.0)
    assert refused is not None and refused.key == "tenant nyc"
    assert ledger.named["user ana"].levels[Quota.queries].used == 2.0
    assert ledger.spend(both[:1], Quota.queries, 98, 0.0) is None


def test_what_is_known_afterwards_is_charged_and_delays_the_next() -> None:
    ledger, ana = Ledger(), [of("user ana", Quota.sql_seconds, 6.0)]
    assert ledger.spend(ana, Quota.sql_seconds, 0, 0.0) is None
    ledger.charge(ana, Quota.sql_seconds, 12.0, 0.0)
    refused = ledger.spend(ana, Quota.sql_seconds, 0, 0.0)
    assert refused is not None and 59.0 < refused.wait_s < 61.0
    assert ledger.spend(ana, Quota.sql_seconds, 0, 60.1) is None


def test_open_things_are_counted_and_come_back() -> None:
    ledger, ana = Ledger(), [of("user ana", Quota.subscriptions, 2.0)]
    assert ledger.hold(ana, Quota.subscriptions, 0.0) is None
    assert ledger.hold(ana, Quota.subscriptions, 0.0) is None
    assert ledger.hold(ana, Quota.subscriptions, 0.0) is not None
    ledger.release(["user ana"], Quota.subscriptions)
    assert ledger.hold(ana, Quota.subscriptions, 0.0) is None


def test_a_changed_limit_applies_at_once() -> None:
    ledger = Ledger()
    assert ledger.spend([of("user ana", Quota.queries, 10.0)], Quota.queries, 10, 0.0) is None
    assert ledger.spend([of("user ana", Quota.queries, 20.0)], Quota.queries, 10, 0.0) is None
    assert ledger.spend([of("user ana", Quota.queries, 10.0)], Quota.queries, 1, 0.0) is not None
    assert ledger.spend([Debtor("user ana", {})], Quota.queries, 1_000, 0.0) is None


def test_many_addresses_take_bounded_memory_and_nobodys_account() -> None:
    ledger = Ledger()
    ana = [of("user ana", Quota.queries, 1.0)]
    assert ledger.spend(ana, Quota.queries, 1, 0.0) is None
    first = [of("address 10.0.0.1", Quota.subscriptions, 1.0)]
    assert ledger.hold(first, Quota.subscriptions, 0.0) is None
    for number in range(3 * MOST_ADDRESSES):
        ledger.spend([of(f"address {number}", Quota.queries, 1.0)], Quota.queries, 1, 0.0)
    assert len(ledger.addresses) == MOST_ADDRESSES
    assert ledger.spend(ana, Quota.queries, 1, 0.0) is not None
    assert ledger.hold(first, Quota.subscriptions, 0.0) is not None, "what is open was forgotten"


def test_the_last_hour_is_a_sum_that_forgets() -> None:
    used = HourSum()
    used.add(5, 10.0)
    used.add(7, 1_900.0)
    assert used.hour(3_000.0) == 12
    assert used.hour(3_700.0) == 7
    assert used.hour(2_000.0) == 7  # a clock that was set back
    assert used.hour(1e9) == 0 and used.total == 12
