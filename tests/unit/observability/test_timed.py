"""Timestamp anchors: the bracket holds the truth, whatever was asked; and asking makes it narrow."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from hub.observability.lag.consumers import LagTopicFacts, oldest
from hub.observability.lag.timed import LIMIT, SETTLED_MS, Answers, Bracket, answered, edges, next_question

NOW = 1_700_000_000_000


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(offset, timestamp) of the records that exist, timestamps not going back; offsets have holes."""
    offset, at = draw(st.integers(0, 50)), NOW - draw(st.integers(1, 10**8))
    found = []
    for hole, gap in draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10**6)), min_size=1, max_size=60)
    ):
        offset, at = offset + hole, min(NOW - SETTLED_MS, at + gap)
        found.append((offset, at))
    return found


def first_at(log: list[tuple[int, int]], at_ms: int) -> int:
    """Return ListOffsets' answer: the first offset with that timestamp or later; the end without one."""
    index = bisect_left(log, at_ms, key=lambda each: each[1])
    return log[index][0] if index < len(log) else log[-1][0] + 1


def oldest_unread(log: list[tuple[int, int]], position: int) -> int | None:
    return next((at for offset, at in log if offset >= position), None)


@given(logs(), st.lists(st.integers(0, 2 * 10**8), max_size=80), st.integers(0, 400))
def test_the_oldest_unread_record_lies_within_the_edges(
    log: list[tuple[int, int]], ages: list[int], position: int
) -> None:
    answers: Answers = []
    for age in ages:
        answered(answers, NOW - age, first_at(log, NOW - age))
    truth = oldest_unread(log, position)
    if truth is None:
        return
    found = edges(answers, position, compacted_to=log[-1][0] + 1)
    assert found.after_ms is None or found.after_ms <= truth
    assert found.until_ms is None or truth < found.until_ms
    assert len(answers) <= LIMIT + 1


@given(logs(), st.data(), st.booleans())
def test_asking_finds_the_record_within_a_two_thousandth_of_its_age(
    log: list[tuple[int, int]], data: st.DataObject, compacted: bool
) -> None:
    position = data.draw(st.integers(0, log[-1][0]))
    if not compacted:  # nothing is missing: the record at the position is there
        position = log[bisect_left(log, position, key=lambda each: each[0])][0]
    truth = oldest_unread(log, position)
    assert truth is not None
    end = log[-1][0] + 1 if compacted else None
    answers: Answers = []
    for _ in range(60):
        found = edges(answers, position, end)
        at_ms = next_question(answers, position, NOW, found, end)
        if at_ms is None:
            break
        answered(answers, at_ms, first_at(log, at_ms))
    else:
        raise AssertionError("it goes on asking")
    found = edges(answers, position, end)
    assert found.after_ms is not None and found.after_ms <= truth
    until = NOW if found.until_ms is None else found.until_ms
    assert truth < until or truth >= NOW - SETTLED_MS - 1_000
    wide_ms = max(10_000, 0.001 * (NOW - found.after_ms))
    before = [at for offset, at in log if offset < position]
    if compacted and (position not in dict(log) or (before and truth - before[-1] <= wide_ms)):
        return  # it is gone, or was written right after another: offsets alone do not show the next record
    assert until - found.after_ms <= wide_ms + SETTLED_MS + 1_000


def test_where_the_next_record_of_a_compacted_log_ends_is_asked_though_its_middle_was_answered() -> None:
    log = [(1, NOW - 32_814), (2, NOW - 32_814), (3, NOW - 24_559)]
    answers: Answers = []
    while (at_ms := next_question(answers, 2, NOW, edges(answers, 2, 4), 4)) is not None:
        answered(answers, at_ms, first_at(log, at_ms))
    found = edges(answers, 2, 4)
    assert found.until_ms is not None and log[-1][1] < found.until_ms <= log[-1][1] + 2_000


def test_a_week_old_position_takes_few_questions() -> None:
    log = [(n, NOW - 7 * 86_400_000 + n * 1_000) for n in range(7 * 86_400)]
    answers: Answers = []
    asked = 0
    while (at_ms := next_question(answers, 1_000, NOW, edges(answers, 1_000))) is not None:
        answered(answers, at_ms, first_at(log, at_ms))
        asked += 1
    assert asked <= 26


def test_an_answer_that_contradicts_older_ones_replaces_them() -> None:
    answers: Answers = [(100, 5), (200, 9), (300, 12)]
    answered(answers, 150, 10)
    assert answers == [(100, 5), (150, 10), (300, 12)]


def test_by_hand() -> None:
    answers: Answers = [(100, 12), (200, 51), (300, 70)]
    assert edges(answers, 20) == Bracket(100, 200, 12, 51)
    assert edges(answers, 20, compacted_to=99) == Bracket(100, 300, 12, 70)
    assert edges(answers, 5) == Bracket(None, 100, None, 12)
    assert edges(answers, 70) == Bracket(300, None, 70, None)
    assert edges([], 1) == Bracket(None, None)


def test_a_poll_and_an_answer_of_the_same_moment_are_not_told_apart_by_ends_that_may_be_unknown() -> None:
    """The broker's clock and ours show the same millisecond;
    of a compacted topic the answer's end is unknown."""
    facts = LagTopicFacts(append_time=True, compacted=True)
    found, basis = oldest(Bracket(NOW, NOW + 100, 5, 9), [(NOW, 5), (NOW + 50, 9)], 6, facts, 9)
    assert (found.after_ms, basis) == (NOW, "arrival")


def test_where_the_brokers_clock_and_ours_contradict_each_other_the_wider_bracket_is_told() -> None:
    facts = LagTopicFacts(append_time=True)
    polled = Bracket(NOW, NOW + 1_000, 5, 9)  # by our clock
    ahead, behind = 60_000, -60_000
    for off_ms in (ahead, behind):
        answers = [(NOW + off_ms, 5), (NOW + off_ms + 500, 9)]
        found, _ = oldest(polled, answers, 6, facts, 9)
        assert found.after_ms == min(NOW, NOW + off_ms)
        assert found.until_ms == max(NOW + 1_000, NOW + off_ms + 500)


def test_a_brokers_clock_that_is_ahead_does_not_bound_what_was_there_before() -> None:
    """The record existed at the first poll, but the broker dates it later: the wait has a lower bound
    only."""
    facts = LagTopicFacts(append_time=True)
    found, _ = oldest(Bracket(None, NOW, None, 9), [(NOW + 60_000, 5)], 6, facts, 9)
    assert found == Bracket(None, NOW, None, 9)
    assert found.waited(6, NOW + 90_000) == (90.0, None, None)


def test_of_a_compacted_log_a_producers_clock_that_is_ahead_bounds_nothing() -> None:
    facts = LagTopicFacts(compacted=True)
    found, _ = oldest(Bracket(None, NOW, None, 9), [(NOW + 60_000, 5)], 6, facts, 9)
    assert found == Bracket(None, None)
    # The record at 6 is there since the poll, by our clock; a later one may be what is read next.
    known, _ = oldest(Bracket(NOW - 500, NOW, 5, 9), [(NOW + 60_000, 5)], 6, facts, 9)
    assert known.after_ms == NOW - 500 and known.until_ms is None
