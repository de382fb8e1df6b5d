"""Spans counted into buckets: sums stay exact, objectives are edges, unknown is not zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.metrics.histogram import EDGES_S, Histogram, edges_with, histogram_of

spans = st.lists(st.floats(0.0, 4_000.0), max_size=60)


def of(values: list[float], edges: tuple[float, ...] = EDGES_S) -> Histogram:
    made = Histogram(edges)
    for each in values:
        made.add(each)
    return made


@given(spans, spans)
def test_what_was_added_since_is_exactly_what_was_added(before: list[float], after: list[float]) -> None:
    first, both = of(before), of(before + after)
    assert both.since(first).counts == of(after).counts


@given(spans.filter(bool), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    made = of(values)
    rank = max(1, -int(-share * len(values) // 1))
    true = sorted(values)[min(len(values), rank) - 1]
    found = made.quantile(share)
    assert found is not None
    if made.beyond(share):
        assert found == EDGES_S[-1] < max(values)
    else:
        index = next(i for i, edge in enumerate(EDGES_S) if true <= edge)
        low = EDGES_S[index - 1] if index else 0.0
        assert low <= found <= EDGES_S[index]


def test_an_objective_is_counted_exactly_and_others_are_not_guessed() -> None:
    made = of([1.9, 2.0, 2.1, 9.0], edges_with(2.0))
    assert made.within(2.0) == 0.5
    assert made.within(3.0) is None
    assert Histogram().within(1.0) is None
    assert Histogram().quantile(0.5) is None


def test_a_counter_begun_anew_counts_from_zero() -> None:
    assert of([1.0]).since(of([1.0, 1.0])).count == 1
    assert of([1.0]).since(of([1.0], edges_with(7.0))).count == 1


def test_a_histogram_comes_back_from_its_body() -> None:
    made = of([0.05, 0.051, 7_000.0])
    assert histogram_of(made.body()) == made
    assert made.cumulative()[0] == ("0.05", 1.0)
    assert made.cumulative()[-1] == ("+Inf", 3.0)
    for broken in (
        {},
        {"edges": [1], "counts": [1], "sum_s": 0},
        {"edges": [1], "counts": [1, -1], "sum_s": 0},
    ):
        with pytest.raises(ValueError, match="histogram|negative"):
            histogram_of(broken)
