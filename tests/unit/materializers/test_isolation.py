"""Views that are suspected of the death of Spark, isolated, and returned: given evidence, the journal."""

from __future__ import annotations

import signal
from dataclasses import replace

import orjson
import pytest

from hub.materializers.isolation.policy import (
    DeathStreak,
    DiskState,
    IsolatedVersion,
    ProcessDeath,
    RestartTurn,
    StrikeJournal,
    after_change,
    after_death,
    after_progress,
    after_stall,
    as_body,
    death_of,
    journal_of,
    may_start,
    next_suspect,
    only_of,
    to_start,
)

MEMORY = ProcessDeath("ended Spark with OutOfMemoryError", "certain")
KILLED = ProcessDeath("was under way when Spark was killed", "killed")
IDLE = DiskState("running", 60.0, 1, 4, 4)
HOUR_MS = 3_600_000


def in_batch(number: int, generation: int = 1) -> DiskState:
    return DiskState("running", 60.0, generation, number, number - 1)


def died(journal: StrikeJournal, death: ProcessDeath, seen: dict[str, DiskState]) -> StrikeJournal:
    return after_death(journal, death, seen, dict.fromkeys(seen, (1,)), 1_000)


def test_one_death_by_memory_isolates_the_only_suspect() -> None:
    after = died(StrikeJournal(), MEMORY, {"bad": in_batch(3), "other": IDLE})
    assert after.isolated == {
        "bad": IsolatedVersion("1/3", "its batch 3 ended Spark with OutOfMemoryError", 1_000, (1,))
    }
    assert after.strikes == {}


def test_of_many_suspects_those_are_isolated_whose_batch_was_under_way_twice() -> None:
    first = died(StrikeJournal(), MEMORY, {name: in_batch(3) for name in ("bad", "b", "c", "d")})
    assert first.isolated == {} and set(first.strikes.values()) == {DeathStreak("1/3", 1, 3)}
    again = {"bad": in_batch(3), "b": in_batch(4), "c": in_batch(9), "d": IDLE}
    second = died(first, MEMORY, again)
    assert [*second.isolated] == ["bad"]
    assert second.isolated["bad"].cause == "its batch 3 ended Spark with OutOfMemoryError 2 times"
    assert second.strikes == {"b": DeathStreak("1/4", 1, 3), "c": DeathStreak("1/9", 1, 3)}


def test_one_is_isolated_at_a_death_that_which_was_started_last() -> None:
    seen = {
        "a": replace(in_batch(0), started_s=5.0),
        "b": replace(in_batch(0), started_s=90.0),
        "c": replace(DiskState("planning"), started_s=1.0),
    }
    second = died(died(StrikeJournal(), MEMORY, seen), MEMORY, seen)
    assert [*second.isolated] == ["a"]
    assert second.strikes == {"b": DeathStreak("1/0", 2, 6), "c": DeathStreak("start", 2, 6)}
    third = died(second, MEMORY, {name: seen[name] for name in ("b", "c")})
    assert [*third.isolated] == ["a", "b"]


def test_who_is_accused_most_starts_last() -> None:
    journal = StrikeJournal({"a": DeathStreak("1/0", 2, 6), "b": DeathStreak("1/0", 1, 3)})
    assert next_suspect(journal, {}, 1.0) == "b"


def test_suspects_start_one_after_the_other() -> None:
    journal = died(StrikeJournal(), MEMORY, {name: in_batch(3) for name in ("a", "b", "c")})
    assert [may_start(journal, table, {}) for table in ("a", "other")] == [False, True]
    assert next_suspect(journal, {}, 100.0) == "a"
    assert may_start(journal, "a", {"a": 100.0})
    assert next_suspect(journal, {"a": 100.0}, 159.0) is None
    assert next_suspect(journal, {"a": 100.0}, 161.0) == "b"
    passed = after_progress(journal, {"a": in_batch(4)}, 2_000)
    assert [*passed.strikes] == ["b", "c"]
    assert next_suspect(passed, {"a": 100.0}, 101.0) == "b"


def test_a_process_that_was_killed_once_starts_as_always() -> None:
    journal = died(StrikeJournal(), KILLED, {name: in_batch(3) for name in ("a", "b")})
    assert may_start(journal, "a", {})
    assert not may_start(died(journal, KILLED, {"a": in_batch(3)}), "a", {})


def test_a_killed_process_accuses_only_what_is_met_three_times() -> None:
    journal = StrikeJournal()
    for times in (1, 2):
        journal = died(journal, KILLED, {"bad": in_batch(3)})
        assert (journal.isolated, journal.strikes["bad"].times) == ({}, times)
    assert [*died(journal, KILLED, {"bad": in_batch(3)}).isolated] == ["bad"]
    assert died(journal, KILLED, {"bad": in_batch(4)}).strikes == {"bad": DeathStreak("1/4", 1, 2)}


def test_who_did_nothing_or_is_isolated_already_is_no_suspect() -> None:
    one = died(StrikeJournal(), MEMORY, {"bad": in_batch(3)})
    after = died(one, MEMORY, {"bad": in_batch(3), "idle": IDLE, "ended": DiskState(None, 0.0, 1, 3, 2)})
    assert after == one


def test_in_real_time_a_batch_is_under_way_all_the_time() -> None:
    assert replace(IDLE, realtime=True).at == "1/5"
    assert IDLE.at is None


def test_an_isolated_view_returns_when_it_has_committed_the_batch() -> None:
    journal = died(StrikeJournal(), MEMORY, {"bad": in_batch(3)})
    assert after_progress(journal, {"bad": in_batch(3)}, 2_000) == journal
    after = after_progress(journal, {"bad": in_batch(4)}, 2_000)
    assert (after.isolated, after.returned_ms) == ({}, {"bad": (2_000,)})


@pytest.mark.parametrize(
    ("seen", "returns"),
    [
        (DiskState("running", 1.0, 2, 0, -1), False),  # a new generation has to commit something
        (DiskState("running", 1.0, 2, 0, 0), True),
        (DiskState("planning", 1.0, 1, 3, 2), False),
        (DiskState(None, 0.0, 1, 3, 3), True),
    ],
)
def test_progress_is_that_of_the_checkpoint(seen: DiskState, returns: bool) -> None:
    journal = died(StrikeJournal(), MEMORY, {"bad": in_batch(3)})
    assert (after_progress(journal, {"bad": seen}, 2_000).isolated == {}) is returns


def test_a_start_is_passed_when_the_query_runs_for_a_while_or_commits() -> None:
    journal = died(StrikeJournal(), MEMORY, {"bad": DiskState("planning")})
    assert journal.isolated["bad"].cause.startswith("its start ended Spark")
    for seen, passed in (
        (DiskState("planning", 90.0), False),
        (DiskState("running", 5.0), False),
        (DiskState("running", 31.0), True),
        (DiskState("running", 5.0, 1, 0, 0), True),
    ):
        assert (after_progress(journal, {"bad": seen}, 2_000).isolated == {}) is passed


def test_a_view_that_returned_twice_within_an_hour_stays() -> None:
    journal = StrikeJournal()
    for batch, at_ms in ((3, 2_000), (5, 3_000), (7, 4_000)):
        journal = after_progress(
            died(journal, MEMORY, {"bad": in_batch(batch)}), {"bad": in_batch(batch + 1)}, at_ms
        )
    assert [*journal.isolated] == ["bad"]
    assert after_progress(journal, {"bad": in_batch(8)}, 3_001 + HOUR_MS).isolated == {}


def test_a_changed_file_is_a_new_try_and_a_death_isolates_it_again() -> None:
    journal = after_change(died(StrikeJournal(), MEMORY, {"bad": in_batch(3)}), "bad")
    assert (journal.isolated, [*journal.barred]) == ({}, ["bad"])
    again = died(journal, MEMORY, {"bad": in_batch(3)})
    assert ([*again.isolated], again.barred) == (["bad"], {})
    assert after_progress(journal, {"bad": in_batch(4)}, 2_000).barred == {}


def test_a_stalled_batch_accuses_its_view_alone() -> None:
    journal = after_stall(StrikeJournal(), "slow", "1/7", "did not move for 300 s", (5,), 1_000)
    assert journal.isolated == {
        "slow": IsolatedVersion("1/7", "its batch 7 did not move for 300 s", 1_000, (5,))
    }


def test_versions_that_are_no_more_are_forgotten() -> None:
    journal = died(StrikeJournal(), MEMORY, {"bad": in_batch(3)})
    assert only_of(journal, ["bad"]) is journal
    assert only_of(journal, ["other"]) == StrikeJournal()


def test_the_journal_is_the_same_after_it_was_written() -> None:
    journal = after_stall(
        died(StrikeJournal(), MEMORY, {"bad": in_batch(3)}), "slow", "1/7", "stands", (5, 6), 2
    )
    journal = replace(
        after_change(journal, "bad"), strikes={"c": DeathStreak("start", 2, 6)}, returned_ms={"d": (1, 2)}
    )
    assert journal_of(orjson.loads(orjson.dumps(as_body(journal)))) == journal


def test_processes_take_turns_the_longest_waiting_first() -> None:
    turns = {
        "a": RestartTurn(True, 0.0),
        "b": RestartTurn(False, 9.0),
        "c": RestartTurn(False, 5.0),
        "d": RestartTurn(False, 99.0),
    }
    assert to_start(turns, 2, 10.0) == ["c"]
    assert to_start(turns, 1, 10.0) == []
    assert to_start(turns, 9, 10.0) == ["c", "b"]


@pytest.mark.parametrize(
    ("code", "kills", "weight"),
    [
        (3, 0, "certain"),
        (52, 0, "certain"),
        (50, 0, "certain"),
        (-signal.SIGKILL, 1, "certain"),
        (-signal.SIGKILL, 0, "killed"),
        (-signal.SIGSEGV, 0, "crash"),
        (1, 0, "killed"),
    ],
)
def test_what_an_exit_code_says(code: int, kills: int, weight: str) -> None:
    assert death_of(code, kills).weight == weight
