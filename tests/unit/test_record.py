"""Positions are a vector clock: laws of order and join, and a text form that survives a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError
from hub.record import Positions, Record, TopicPartition, lag_records

topics = st.text("abcxyz._-", min_size=1, max_size=8)
positions = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 9)), st.integers(0, 1_000), max_size=6
).map(Positions)


@given(positions)
def test_the_text_form_is_read_back(some: Positions) -> None:
    assert Positions.parse(str(some)) == some


@given(positions, positions)
def test_the_join_covers_both_and_nothing_more(one: Positions, other: Positions) -> None:
    joined = one.advanced(other)
    assert joined.covers(one) and joined.covers(other)
    assert joined == other.advanced(one)
    assert all(offset in (one.get(tp), other.get(tp)) for tp, offset in joined)


@given(positions, positions)
def test_covers_says_that_nothing_is_behind(one: Positions, other: Positions) -> None:
    assert one.covers(other) == (len(one.behind(other)) == 0)


@given(positions, positions)
def test_lag_is_zero_exactly_where_the_end_is_covered(end: Positions, at: Positions) -> None:
    assert (lag_records(end, at) == 0) == at.covers(end)


def test_a_token_may_name_a_partition_twice_and_means_the_later() -> None:
    assert str(Positions.parse("a:0:3,a:0:2, b:1:7")) == "a:0:3,b:1:7"
    assert len(Positions.parse("")) == 0


@pytest.mark.parametrize("token", ["a", "a:0", "a:0:", ":0:1", "a:x:1", "a:0:-1", "a:0:1:2"])
def test_a_token_that_is_none_is_named(token: str) -> None:
    with pytest.raises(CallerError, match=token) as refusal:
        Positions.parse(f"ok:0:1,{token}")
    assert refusal.value.hint


def test_of_topics_keeps_those() -> None:
    some = Positions.of([("a", 0, 1), ("b", 0, 2)])
    assert some.of_topics(["b", "c"]) == Positions.of([("b", 0, 2)])


def test_the_last_header_of_a_name_wins() -> None:
    record = Record("t", 0, 1, 0, None, None, (("h", b"1"), ("g", b"2"), ("h", b"3")))
    assert record.header("h") == b"3"
    assert record.header("none") is None
    assert record.topic_partition == ("t", 0)
