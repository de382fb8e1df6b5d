"""[core] Write time of a record, bracketed by the log's answers to "the first offset at or after time T".

An answer (T, offset) proves: every record before ``offset`` has a timestamp before T; and in a log whose
timestamps do not decrease, every record from ``offset`` on has T or later. On a topic with ``LogAppendTime``
that is the arrival time. Only offsets are requested, so it costs no payload and works right after a restart
and on an idle log.

``next_question`` finds the bracket of a position: a ladder into the past (30 s, 1 min, … the beginning of
time) until an answer is at or before the position, then a binary search.

On a compacted topic the record at the position may be gone, and the oldest unread record is the next existing
one. There the upper edge is the first T whose offset is beyond that next record: ``Bracket.until_ms``. Where
much was compacted away that bracket is wide, and no timestamp lookup narrows it: offsets alone do not show
which record is next.

::

    T        T_i            T_i+1                 T_j
    offset   12             51                    70        position 20, records 20…50 compacted away
      └ after_ms     └ the record at 51    └ until_ms: it was written before T_j
"""

from __future__ import annotations

from bisect import bisect_right, insort
from math import sqrt

from hub.observability.lag.anchors import Bracket

# No younger time is looked up: records of the last moments may still arrive with an earlier timestamp.
SETTLED_MS = 2_000
_S = 1_000
_DAY = 86_400
LADDER_MS = tuple(
    seconds * _S
    for seconds in (
        *(30, 60, 120, 300, 900, 3_600, 7_200, 10_800, 21_600, _DAY),
        *(3 * _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY, 365 * _DAY, 3_650 * _DAY),
    )
)
BEGINNING_MS = 1
NARROW_MS = 2_000
NARROW_SHARE = 0.0005
LIMIT = 96

# (T, offset), ascending in both.
Answers = list[tuple[int, int]]


def answered(answers: Answers, at_ms: int, offset: int) -> None:
    """Add one answer, in place. Older answers that contradict it are removed: the log has changed."""
    answers[:] = [
        each
        for each in answers
        if each[0] != at_ms
        and not (each[0] < at_ms and each[1] > offset)
        and not (each[0] > at_ms and each[1] < offset)
    ]
    insort(answers, (at_ms, offset))
    if len(answers) > LIMIT:  # dropping answers only widens brackets
        del answers[1:-16:2]


def edges(answers: Answers, position: int, compacted_to: int | None = None) -> Bracket:
    """Return the bracket of the write time of the oldest record at or after ``position``.

    ``compacted_to``: the end of a compacted log; None for other logs.
    """
    position = _existing(answers, position)
    index = bisect_right(answers, position, key=lambda each: each[1])
    after_ms, after_end = answers[index - 1] if index else (None, None)
    if (
        index < len(answers)
        and compacted_to is not None
        and not _certain(answers, index, position, compacted_to)
    ):
        index = bisect_right(answers, answers[index][1], key=lambda each: each[1])
    until_ms, until_end = answers[index] if index < len(answers) else (None, None)
    return Bracket(after_ms, until_ms, after_end, until_end)


def _existing(answers: Answers, position: int) -> int:
    """Return the position, moved to the log's first record if that is known (the answer for the beginning
    of time)."""
    return max(position, answers[0][1]) if answers and answers[0][0] == BEGINNING_MS else position


def _certain(answers: Answers, index: int, position: int, end: int) -> bool:
    """Return whether the answer at ``index``, the first beyond the position, is an upper bound in a compacted
    log too.

    It is if the record at the position exists (an answer is that very offset), or if no younger record
    exists.
    """
    return (index > 0 and answers[index - 1][1] == position) or answers[index][1] >= end


def next_question(
    answers: Answers, position: int, now_ms: int, bracket: Bracket, compacted_to: int | None = None
) -> int | None:
    """Return the time to look up next; None when ``bracket`` (these answers and other knowledge) is narrow
    enough."""
    newest_ms = now_ms - SETTLED_MS
    until_ms = min(newest_ms, bracket.until_ms if bracket.until_ms is not None else newest_ms)
    looked_up = {each[0] for each in answers}
    if bracket.after_ms is None:
        # Times are rounded to seconds, so that the consumers of a partition share the answers.
        rungs = (*((now_ms - age_ms) // _S * _S for age_ms in LADDER_MS), BEGINNING_MS)
        oldest_ms = answers[0][0] if answers else newest_ms + 1
        return next((rung for rung in rungs if rung < min(until_ms + 1, oldest_ms) and rung > 0), None)
    if bracket.until_ms is None and newest_ms > bracket.after_ms and newest_ms // _S * _S not in looked_up:
        return newest_ms // _S * _S
    narrow_ms = max(NARROW_MS, NARROW_SHARE * (now_ms - bracket.after_ms))
    position = _existing(answers, position)
    index = bisect_right(answers, position, key=lambda each: each[1])
    gaps = [(bracket.after_ms, until_ms)]
    uncertain = compacted_to is not None and index < len(answers)
    if uncertain and not _certain(answers, index, position, compacted_to or 0):
        # Search before the first and after the last time whose answer is the record known to exist.
        past = bisect_right(answers, answers[index][1], key=lambda each: each[1])
        gaps = [(bracket.after_ms, answers[index][0]), (answers[past - 1][0], until_ms)]
    for low_ms, high_ms in gaps:
        middle_ms = (low_ms + high_ms) // 2
        if now_ms - low_ms > 4 * (now_ms - high_ms):
            # Geometric mean of the ages: half of fifty years is a bad guess.
            middle_ms = now_ms - round(sqrt((now_ms - low_ms) * max(_S, now_ms - high_ms)))
        if (
            high_ms - low_ms > narrow_ms / len(gaps)
            and low_ms < middle_ms < high_ms
            and middle_ms not in looked_up
        ):
            return middle_ms
    return None
