"""Lag in seconds, rates and limits from observations, with the time as an argument."""

from __future__ import annotations

import pytest

from hub.replication.engine.rates import Arrivals, Bucket, Rate


def test_the_lag_is_the_time_since_the_source_was_first_past_the_position() -> None:
    arrivals = Arrivals()
    for now_s, end in ((0.0, 0), (1.0, 10), (2.0, 10), (3.0, 25)):
        arrivals.see(now_s, end)
    assert arrivals.lag_s(4.0, 25) == 0.0
    assert arrivals.lag_s(4.0, 10) == 1.0
    other = Arrivals()
    other.see(1.0, 10)
    other.see(3.0, 25)
    assert other.lag_s(4.0, 9) == 3.0


def test_a_source_that_stands_still_lags_longer_and_longer() -> None:
    arrivals = Arrivals()
    for now_s in range(1000):
        arrivals.see(float(now_s), 5)
    assert arrivals.lag_s(1000.0, 4) == 1000.0


@pytest.mark.parametrize("hours", [1, 24])
def test_a_lag_of_hours_is_told_while_the_source_goes_on(hours: int) -> None:
    """Ten records a second, of which the mirror takes eight."""
    arrivals, end_s = Arrivals(), hours * 3600
    for now_s in range(0, end_s + 1, 1 if hours == 1 else 20):
        arrivals.see(float(now_s), 10 * now_s)
        found = arrivals.lag_s(float(now_s), 8 * now_s)
    assert found == pytest.approx(end_s * 0.2, rel=0.02)
    assert len(arrivals.samples) < 1_000


def test_a_log_that_was_made_anew_is_not_late_by_the_old_one() -> None:
    arrivals = Arrivals()
    arrivals.see(0.0, 1_000_000)
    arrivals.see(500.0, 7)
    assert arrivals.lag_s(501.0, 7) == 0.0
    assert arrivals.lag_s(501.0, 6) == 1.0


def test_a_rate_is_of_the_window() -> None:
    rate = Rate(window_s=10.0)
    assert rate.see(0.0, 0) == 0.0
    assert rate.see(10.0, 100) == 10.0
    assert rate.see(20.0, 100) == pytest.approx(0.0, abs=5.1)
    assert rate.see(30.0, 100) == 0.0
    assert rate.see(31.0, 5) == 0.0  # a new engine counts anew


def test_a_bucket_lets_through_its_rate_on_average() -> None:
    bucket = Bucket(1_000.0)
    now_s, taken = 100.0, 0
    while now_s < 200.0:
        taken += 700
        now_s += 0.01 + bucket.took(now_s, 700)
    assert taken == pytest.approx(100_000, rel=0.03)


def test_what_was_not_taken_is_not_saved_up_for_long() -> None:
    bucket = Bucket(1_000.0)
    assert bucket.took(0.0, 1_000) <= 1.0
    assert bucket.took(500.0, 5_000) == pytest.approx(4.0)
