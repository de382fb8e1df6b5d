"""Lag: the law of the bound over generated histories, and what a history of lags means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.observability.lag import consumers
from hub.observability.lag.anchors import (
    LIMIT,
    RECENT_MS,
    Anchor,
    Bracket,
    Ring,
    arrival,
    is_due,
    observed,
    thinned,
)
from hub.observability.lag.consumers import LagTopicFacts, measure
from hub.observability.lag.states import Lag, LagReading, worst

NOW = 1_000_000_000


@pytest.fixture(scope="module", autouse=True)
def old_ends_are_used() -> Iterator[None]:
    """Histories are longer than the minute after which an end counts as unknown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumers, "STALE_MS", 10**12)
        yield


def lag_of_topic(rings: Mapping[int, Ring], positions: Mapping[int, int], now: int) -> LagReading | None:
    """The lag over a topic's partitions, as the collector and the monitor measure it."""
    return measure("t", positions, rings, {}, LagTopicFacts(), {}, now, [])


def lag_of(ring: Ring, position: int, now: int) -> LagReading:
    reading = lag_of_topic({0: ring}, {0: position}, now)
    assert reading is not None
    return reading


def test_a_position_past_the_observed_end_is_said_of_the_topic() -> None:
    rings = {0: (Anchor(100, NOW, NOW),), 1: (Anchor(50, NOW, NOW),)}
    for positions, past in (({0: 100, 1: 50}, False), ({0: 101, 1: 50}, True), ({0: 100, 1: 51}, True)):
        reading = lag_of_topic(rings, positions, NOW)
        assert reading is not None
        assert reading.past is past


@st.composite
def histories(draw: st.DrawFn) -> tuple[Ring, list[int], int, int]:
    """Draw the anchors of a log whose events arrived at known times, the arrival times, a position, and
    now.

    Arrivals, polls and the time a poll takes are of one scale, so that events also arrive while a poll is
    under way.
    """
    scale = draw(st.sampled_from([1, 100, 20_000]))
    arrivals, at = [], NOW
    for gap in draw(st.lists(st.integers(0, 12), max_size=60)):
        at += gap * scale
        arrivals.append(at)
    ring: Ring = ()
    at = NOW + draw(st.integers(0, 60)) * scale
    polls = st.tuples(st.integers(0, 15), st.integers(0, 12), st.integers(0, 12))
    for wait, answer, look in draw(st.lists(polls, min_size=1, max_size=60)):
        asked, answered = at, at + answer * scale
        looked = asked + min(look, answer) * scale  # the broker looks somewhere between question and answer
        ring = observed(ring, sum(arrival <= looked for arrival in arrivals), asked, answered)
        at = answered + wait * scale
    if len(ring) > 2 and draw(st.booleans()):
        ring = thinned(ring, at)
    return ring, arrivals, draw(st.integers(0, len(arrivals))), at + draw(st.integers(0, 40)) * scale


def true_lag_s(arrivals: list[int], position: int, now: int) -> float:
    """The age of the oldest unread event, known only to the test."""
    waiting = [at for at in arrivals[position:] if at <= now]
    return (now - waiting[0]) / 1000 if waiting else 0.0


@given(histories())
def test_true_lag_lies_within_the_bound(history: tuple[Ring, list[int], int, int]) -> None:
    ring, arrivals, position, now = history
    lag, truth = lag_of(ring, position, now), true_lag_s(arrivals, position, now)
    assert lag.low_s - 1e-9 <= truth
    assert lag.high_s is None or truth <= lag.high_s + 1e-9
    if lag.error_s is not None:
        assert abs(lag.seconds - truth) <= lag.error_s + 1e-9


@given(st.lists(histories(), min_size=1, max_size=4))
def test_the_worst_of_several_partitions_bounds_the_longest_wait(
    parts: list[tuple[Ring, list[int], int, int]],
) -> None:
    now = max(part[3] for part in parts)
    rings = {number: part[0] for number, part in enumerate(parts)}
    lag = lag_of_topic(rings, {number: part[2] for number, part in enumerate(parts)}, now)
    truth = max(true_lag_s(arrivals, position, now) for _, arrivals, position, _ in parts)
    assert lag is not None
    assert lag.low_s - 1e-9 <= truth
    assert lag.high_s is None or truth <= lag.high_s + 1e-9


def test_records_are_exact_and_never_negative() -> None:
    ring = (Anchor(100, NOW, NOW),)
    assert lag_of(ring, 58, NOW).records == 42
    read = lag_of(ring, 100, NOW + 700)
    assert (read.records, read.low_s, read.high_s) == (0, 0.0, 0.7)
    assert lag_of(ring, 120, NOW).records == 0


def test_what_waited_before_the_first_poll_has_no_upper_bound() -> None:
    lag = lag_of((Anchor(100, NOW, NOW),), 10, NOW + 8_000)
    assert (lag.seconds, lag.error_s) == (8.0, None)


def test_an_idle_log_keeps_one_anchor_and_a_new_log_forgets_the_old() -> None:
    ring: Ring = ()
    for second in range(1_000):
        ring = observed(ring, 7, NOW + second * 1000, NOW + second * 1000 + 4)
    assert ring == (Anchor(7, NOW + 4, NOW + 999_000),)
    assert observed(ring, 2, NOW + 10**6, NOW + 10**6 + 1) == (Anchor(2, NOW + 10**6 + 1, NOW + 10**6),)


def test_a_week_of_anchors_stays_small_and_a_tenth_fine() -> None:
    ring: Ring = ()
    for poll in range(60 * 60 * 24 * 7 // 10):
        ring = observed(ring, poll + 1, NOW + poll * 10_000, NOW + poll * 10_000)
    now = ring[-1].observed_ms
    assert len(ring) <= LIMIT
    assert ring[0].observed_ms < NOW + 86_400_000
    for position in range(ring[0].end, ring[-1].end, 97):
        lag = lag_of(ring, position, now)
        assert lag.error_s is not None
        assert lag.error_s <= max(RECENT_MS / 1000, 0.13 * lag.seconds)


def test_a_clock_of_ours_that_is_set_back_makes_nothing_older_or_younger_than_it_is() -> None:
    ring = observed((), 10, NOW, NOW + 10)
    ring = observed(ring, 20, NOW - 3_600_000, NOW - 3_599_990)  # an hour back, and ten came
    ring = observed(ring, 20, NOW - 3_500_000, NOW - 3_499_990)
    assert [each.end for each in ring] == [10, 20]
    assert all(a.observed_ms <= b.observed_ms and a.still_ms <= b.still_ms for a, b in pairwise(ring))
    found = arrival(ring, 15)
    assert found.after_ms is not None and found.until_ms is not None and found.after_ms <= found.until_ms
    low_s, high_s, _ = found.waited(15, NOW - 3_400_000)
    assert low_s == 0.0 and high_s is not None and high_s >= 0.0  # never negative


def test_an_end_that_stands_is_due_more_rarely() -> None:
    assert is_due((), 0)
    assert is_due((Anchor(5, 0, 29_000),), 29_500)  # seen for less than half a minute
    assert not is_due((Anchor(5, 0, 30_000),), 34_000)
    assert is_due((Anchor(5, 0, 30_000),), 35_000)
    assert is_due((Anchor(5, 0, 60_000), Anchor(6, 61_000, 61_000)), 62_000)


def test_arrival_between_neighbours() -> None:
    ring = (Anchor(5, 100, 150), Anchor(9, 200, 210))
    assert (arrival(ring, 5).after_ms, arrival(ring, 5).until_ms) == (150, 200)
    assert (arrival(ring, 4).after_ms, arrival(ring, 4).until_ms) == (None, 100)
    assert (arrival(ring, 9).after_ms, arrival(ring, 9).until_ms) == (210, None)


def test_what_came_evenly_is_placed_where_it_came() -> None:
    """Ten events a second, polled every ten seconds: the brackets are ten seconds wide, the likely value
    is exact."""
    ring: Ring = ()
    for poll in range(30):
        ring = observed(ring, poll * 100, NOW + poll * 10_000, NOW + poll * 10_000)
    for position in range(2_900):
        lag = lag_of(ring, position, ring[-1].observed_ms)
        truth = (2_900 - position - 0.5) / 10
        assert lag.high_s is not None and lag.error_s is not None
        assert lag.high_s - lag.low_s == 10
        assert lag.seconds == pytest.approx(truth, abs=0.001)
        assert lag.low_s <= lag.seconds <= lag.high_s
        assert lag.error_s == pytest.approx(max(lag.high_s - lag.seconds, lag.seconds - lag.low_s))


def test_where_no_ends_are_known_the_middle_is_told() -> None:
    assert Bracket(100, 200).likely_ms(7) == 150
    assert Bracket(100, 200, 7, 8).likely_ms(7) == 150
    assert Bracket(100, 200, 8, 9).likely_ms(7) == 150
    assert Bracket(None, 200, 0, 9).likely_ms(7) is None
    assert Bracket(100, None, 0, None).likely_ms(7) is None


def test_worst_of_none_is_unknown_not_zero() -> None:
    assert worst([]) is None
    assert lag_of_topic({}, {}, NOW) is None
    assert worst([Lag(3, 1.0, 2.0), Lag(1, 5.0, None)]) == Lag(4, 5.0, None, 5.0)
