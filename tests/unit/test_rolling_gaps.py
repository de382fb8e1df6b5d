"""The longest time without an answer within a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rolling import longest_gap_s


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([], 10.0),
        ([1.0, 2.0, 9.0], 7.0),
        ([4.0], 6.0),  # the last answer until the end counts, too
        ([6.0], 6.0),  # and the begin until the first
        ([9.0, 1.0, 5.0], 4.0),
        ([-5.0, 20.0], 10.0),  # answers before and after the restart do not shorten it
    ],
)
def test_the_gap_is_measured_from_begin_to_end(times: list[float], gap: float) -> None:
    assert longest_gap_s(times, 0.0, 10.0) == gap


@given(st.lists(st.floats(0.0, 10.0)), st.floats(0.0, 10.0))
def test_one_more_answer_never_lengthens_the_gap(times: list[float], more: float) -> None:
    assert longest_gap_s([*times, more], 0.0, 10.0) <= longest_gap_s(times, 0.0, 10.0)
