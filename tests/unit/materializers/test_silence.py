"""Conditions of a stalled batch."""

from __future__ import annotations

from hub.materializers.engine.stall_clock import StallClock


def looked(silence: StallClock, seconds: range, place: object = 1, life: object = ()) -> list[bool]:
    return [silence.look(place, lambda: life, float(second)) for second in seconds]


def test_a_batch_in_which_nothing_changes_is_stalled_after_its_limit() -> None:
    silence = StallClock(30.0)
    assert looked(silence, range(0, 31, 2)) == [False] * 15 + [True]


def test_a_task_that_reads_on_is_life() -> None:
    silence = StallClock(30.0)
    assert not any(
        silence.look(1, lambda second=second: (second // 10,), float(second)) for second in range(0, 300, 2)
    )  # type: ignore[misc]


def test_another_batch_begins_anew() -> None:
    silence = StallClock(30.0)
    assert not any(looked(silence, range(0, 30, 2)) + looked(silence, range(30, 58, 2), place=2))


def test_nobody_watches_while_the_process_is_frozen() -> None:
    silence = StallClock(30.0)
    looked(silence, range(0, 4, 2))
    assert not silence.look(1, tuple, 500.0)


def test_a_quick_batch_costs_no_question() -> None:
    silence = StallClock(300.0)

    def asked() -> object:
        raise AssertionError

    assert not any(silence.look(1, asked, float(second)) for second in range(0, 10, 2))


def test_zero_is_never() -> None:
    assert not any(looked(StallClock(0.0), range(0, 1000, 2)))
