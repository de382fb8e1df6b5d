"""Events per second out of anchors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.observability.lag.anchors import Ring, end_at, observed
from hub.observability.lag.rates import AWAY_MS, STALE_MS, arrived, history, per_second

NOW = 1_000_000_000


def polled(ends: list[int], every_ms: int = 1000) -> Ring:
    ring: Ring = ()
    for index, end in enumerate(ends):
        ring = observed(ring, end, NOW + index * every_ms, NOW + index * every_ms)
    return ring


def test_a_steady_rate_is_exact() -> None:
    ring = polled([50 * second for second in range(60)])
    assert per_second([ring], NOW + 59_000) == pytest.approx(50.0)
    assert per_second([ring, ring], NOW + 59_400) == pytest.approx(100.0)


def test_idle_is_zero_but_unseen_is_unknown() -> None:
    assert per_second([polled([7] * 20)], NOW + 19_000) == 0.0
    assert per_second([polled([7])], NOW) is None
    assert per_second([], NOW) is None


def test_a_rate_of_a_while_ago_is_no_rate_of_now() -> None:
    ring = polled([50 * second for second in range(60)])
    assert per_second([ring], NOW + 59_000 + 60_000) == pytest.approx(50.0)
    assert per_second([ring], NOW + 59_000 + 60_001) is None


def test_what_was_there_at_the_first_poll_did_not_arrive_now() -> None:
    assert per_second([polled([1_000_000, 1_000_010])], NOW + 1000) == pytest.approx(10.0)


def test_a_burst_after_quiet_is_not_spread_over_the_quiet() -> None:
    ring = polled([5] * 30 + [905])
    assert arrived([ring], NOW + 28_000, NOW + 29_000) == 0.0
    assert arrived([ring], NOW + 29_000, NOW + 30_000) == pytest.approx(900.0)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=100))
def test_the_history_counts_every_event_once(arrivals: list[int]) -> None:
    ends = [sum(arrivals[: index + 1]) for index in range(len(arrivals))]
    ring = polled(ends)
    spans = [(NOW + step * 1000, NOW + (step + 1) * 1000) for step in range(len(ends) - 1)]
    total = sum(arrived([ring], start, end) or 0.0 for start, end in spans)
    assert total == pytest.approx(ends[-1] - ends[0])


def test_history_starts_where_knowledge_starts() -> None:
    steps = history([polled([10 * second for second in range(12)])], NOW + 11_000)
    assert 3 <= len(steps) <= 4
    assert steps[-1] == pytest.approx(10.0)
    assert history([], NOW) == ()


def test_what_was_not_heard_of_is_no_rate_of_zero() -> None:
    ring = polled([10 * second for second in range(60)])
    last_ms = NOW + 59_000
    for away_ms in (AWAY_MS + 1, STALE_MS):
        assert history([ring], last_ms + away_ms) == history([ring], last_ms)
    assert history([ring], last_ms + STALE_MS + 1) == ()
    quiet = polled([7] * 60)  # nothing comes, and it is asked more rarely: that is none
    assert history([quiet], last_ms + AWAY_MS)[-1] == 0.0


def test_end_at_is_unknown_before_the_first_poll() -> None:
    ring = polled([10, 20])
    assert end_at(ring, NOW - 1) is None
    assert end_at(ring, NOW + 500) == pytest.approx(15.0)
    assert end_at(ring, NOW + 9_000) == 20
