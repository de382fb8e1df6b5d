"""Rehearsals of failovers: when one is due, what a worker does about them, what is recorded and shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror_statuses import FILE, LINK, MARK, PLACE, board, partition, status
from pydantic import ValidationError

from hub.alerts.model.rules import RuleChanges, Verdict
from hub.replication.clusters.rehearsals import KEPT, Rehearsal, of_link, surplus
from hub.replication.clusters.status_records import WorkerHeartbeat
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.replication.config.rehearsal_schedule import RehearsalSchedule, due, last_time, next_time
from hub.replication.operations.change_plan import ChangePlan
from hub.replication.ownership.failover import Control, begin
from hub.replication.ownership.link_definitions import digests_of
from hub.replication.ownership.links import links
from hub.replication.ownership.loss_report import Loss, LossReport
from hub.replication.ownership.operation_steps import Ownership
from hub.replication.ownership.shards import Shard
from hub.replication.rehearsal.attempt import result_of
from hub.replication.rehearsal.decision import RETRY_MS, RehearsalDecision, begun, decide, interrupted
from hub.replication.status.metrics import families
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.objectives import observe_mirrors

DAY_MS = 86_400_000
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NOW = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1000)  # a Wednesday


def schedule(every: str = "weekly", **more: Any) -> RehearsalSchedule:
    return RehearsalSchedule.model_validate({"every": every, **more})


def at(*numbers: int) -> int:
    return int(datetime(*numbers, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def mirror(**more: Any) -> Mirror:
    return Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.**"], **more})


@st.composite
def schedules(draw: st.DrawFn) -> RehearsalSchedule:
    every = draw(st.sampled_from(["daily", "weekly", "monthly"]))
    day = "" if every == "daily" else draw(st.sampled_from([f"{each} " for each in (*DAYS, "TUE", "Sun")]))
    clock = f"{draw(st.integers(0, 23)):02}:{draw(st.integers(0, 59)):02}"
    return schedule(every, at=day + clock)


TIMES = st.integers(at(2024, 1, 1), at(2031, 12, 31))


# ---- the schedule


@pytest.mark.parametrize(
    ("given_as", "words"),
    [
        ("weekly", "weekly, Mon 03:00 UTC"),
        ("daily", "daily, 03:00 UTC"),
        ({"every": "monthly", "at": "tue 23:59"}, "monthly, Tue 23:59 UTC"),
        ({"every": "daily", "at": 1350}, "daily, 22:30 UTC"),  # YAML 1.1 reads 22:30 so
        ({"every": "weekly", "at": "Tue 03:00", "within": "1h"}, "weekly, Tue 03:00 UTC"),
    ],
)
def test_a_schedule_is_a_word_or_has_a_time(given_as: Any, words: str) -> None:
    made = mirror(rehearse=given_as).rehearse
    assert made is not None and made.text == words


@pytest.mark.parametrize(
    "wrong",
    [
        "hourly",
        {"every": "daily", "at": "Tue 03:00"},
        {"every": "weekly", "at": "Tuesday 03:00"},
        {"every": "weekly", "at": "24:00"},
        {"every": "weekly", "within": "5"},
        {"every": "weekly", "within": "1s"},
        {"at": "03:00"},
    ],
)
def test_a_wrong_schedule_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        mirror(rehearse=wrong)


def test_times_are_those_of_the_calendar() -> None:
    tuesday = schedule(at="Tue 03:00")
    assert last_time(tuesday, NOW) == at(2026, 3, 3, 3) and next_time(tuesday, NOW) == at(2026, 3, 10, 3)
    assert last_time(tuesday, at(2026, 3, 3, 3)) == at(2026, 3, 3, 3)
    assert last_time(tuesday, at(2026, 3, 3, 2, 59)) == at(2026, 2, 24, 3)
    monthly = schedule("monthly", at="Sun 05:00")
    assert last_time(monthly, NOW) == at(2026, 3, 1, 5) and next_time(monthly, NOW) == at(2026, 4, 5, 5)
    assert last_time(monthly, at(2026, 1, 1)) == at(2025, 12, 7, 5)
    assert next_time(schedule("daily", at="12:30"), NOW) == at(2026, 3, 4, 12, 30)


@given(schedules(), TIMES)
def test_the_last_and_next_time_surround_now(one: RehearsalSchedule, now_ms: int) -> None:
    last, following = last_time(one, now_ms), next_time(one, now_ms)
    assert last <= now_ms < following
    assert last_time(one, following) == following and next_time(one, last) == following
    assert last_time(one, following - 1) == last
    longest = {"daily": 1, "weekly": 7, "monthly": 36}[one.every]
    assert 0 < following - last <= longest * DAY_MS


@given(schedules(), TIMES, st.lists(st.integers(0, 400 * DAY_MS), max_size=5))
def test_one_is_due_until_it_began_and_missed_times_are_made_up_once(
    one: RehearsalSchedule, now_ms: int, ages: list[int]
) -> None:
    starts = [now_ms - age for age in ages]
    found = due(one, starts, now_ms)
    assert (found is None) == (max(starts, default=0) >= last_time(one, now_ms))
    # However many times were missed: after one start none is due before the next scheduled time.
    following = next_time(one, now_ms)
    assert due(one, [*starts, now_ms], now_ms) is None
    assert due(one, [*starts, now_ms], following - 1) is None
    assert due(one, [*starts, now_ms], following) == following


@given(schedules(), TIMES, st.integers(DAY_MS, 4_000 * DAY_MS))
def test_a_start_in_the_future_does_not_suppress_rehearsals(
    one: RehearsalSchedule, now_ms: int, ahead_ms: int
) -> None:
    assert due(one, [now_ms + ahead_ms], now_ms) is not None
    assert due(one, [now_ms + 1_000], now_ms) is None  # a clock that is a second ahead


def test_the_schedule_is_no_part_of_what_decides_about_records() -> None:
    planned = FILE.mirrors["m"].model_copy(update={"rehearse": schedule()})
    scheduled = MirrorsFile(clusters=FILE.clusters, mirrors={"m": planned})
    assert scheduled.mirrors["m"].rehearse is not None and digests_of(scheduled) == digests_of(FILE)
    assert links(scheduled)["m~back"].mirror.rehearse is None


# ---- what a worker does


def made(
    started: int, state: str = "passed", by: str = "w1", scheduled: bool = True, **more: Any
) -> Rehearsal:
    return Rehearsal("m", started, state, by, scheduled, started + 600_000, **{"took_ms": 1_000, **more})


def decided(*known: Rehearsal, now_ms: int = NOW, waits: bool = False) -> RehearsalDecision:
    return decide(schedule(at="Tue 03:00"), known, "m", "w2", now_ms, waits=waits)


def told(decision: RehearsalDecision) -> list[tuple[int, str]]:
    return [(each.started_at_ms, each.state) for each in of_link(board(*decision.records).rehearsals, "m")]


def test_what_is_due_begins_with_a_record() -> None:
    first = decided()
    assert first.begin == begun("m", "w2", NOW, 600_000, scheduled=True)
    assert told(first) == [(NOW, "running")]
    assert decided(made(at(2026, 3, 3, 3))) == RehearsalDecision(None, ())
    assert decided(made(at(2026, 3, 3, 2, 59))).begin is not None
    assert decided(made(at(2026, 3, 3, 3), "failed")).begin is None  # made, whatever it showed
    assert decided(waits=True) == RehearsalDecision(None, ())
    assert decide(None, (), "m", "w2", NOW, waits=False).begin is None


def test_one_that_runs_elsewhere_was_interrupted_and_is_run_again() -> None:
    lost = made(NOW - 5_000, "running", took_ms=None)
    found = decided(lost)
    assert told(found) == [(NOW, "running"), (NOW - 5_000, "interrupted")]
    assert found.begin is not None and found.begin.by == "w2"
    known = of_link(board(*found.records).rehearsals, "m")
    assert known[1].reason == "w1 ended before it was complete" and known[1].took_ms == 5_000
    # A person's rehearsal has the time that it has.
    asked = made(NOW - 5_000, "running", "ana@host", scheduled=False)
    assert told(decided(asked)) == [(NOW, "running")]
    late = replace(asked, until_ms=NOW - 1)
    assert (NOW - 5_000, "interrupted") in told(decided(late))


def test_one_that_ends_its_process_again_and_again_waits() -> None:
    before = interrupted(made(NOW - 60_000, "running"), "w0 ended", NOW - 50_000)
    again = made(NOW - 40_000, "running")
    found = decided(before, again)
    assert found.begin is None
    assert decided(before, interrupted(again, "w1 ended", NOW), now_ms=NOW + RETRY_MS + 1).begin is not None


def test_results_are_bounded_and_the_last_complete_ones_stay() -> None:
    complete = [made(NOW - number * DAY_MS) for number in range(1, KEPT + 4)]
    broken = [interrupted(made(NOW - number, "running"), "", NOW) for number in range(1, 5)]
    runs = made(NOW - 2, "running", "ana", scheduled=False)
    gone = surplus([*broken, runs, *complete], NOW)
    assert {each.started_at_ms for each in gone if each.complete} == {
        each.started_at_ms for each in complete[KEPT:]
    }
    assert set(gone) - set(complete) == set(broken[1:])
    deleted = board(*(each.record() for each in complete), *(each.forgotten() for each in gone)).rehearsals
    assert len(deleted) == KEPT


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50 * DAY_MS), st.sampled_from(["passed", "failed", "running", "interrupted"])
        ),
        max_size=40,
        unique_by=lambda each: each[0],
    )
)
def test_after_any_decision_the_records_are_bounded(found: list[tuple[int, str]]) -> None:
    known = [made(NOW - age, state) for age, state in found]
    state = board(*(each.record() for each in known))
    for new in decided(*known).records:
        state.apply(board_record(new), 0.0, 0)
    left = of_link(state.rehearsals, "m")
    # One more than is kept where nothing had to be written; the next record deletes it.
    assert sum(each.complete for each in left) <= KEPT
    assert sum(each.state == "running" for each in left) <= 1


def board_record(new: Any) -> Any:
    from hub.record import Record

    return Record(new.topic, 0, 0, 0, new.key, new.value, new.headers)


def test_a_record_is_read_as_it_was_written_and_newer_fields_are_ignored() -> None:
    one = made(NOW, lost=None, lost_at_least=7, lag_s=1.5, reason="x")
    assert board(one.record()).rehearsals == {("m", NOW): one}
    newer = replace(one.record(), value=(one.record().value or b"").replace(b"{", b'{"later":1,', 1))
    assert board(newer).rehearsals == {("m", NOW): one}
    assert board(one.record(), one.forgotten()).rehearsals == {}


# ---- the result


def plan(not_mirrored: dict[str, str], *losses: Loss, answers: bool = True) -> ChangePlan:
    operation = begin(
        Control(), "failover", id="d", mirror="m", home="nyc", new="lon", now_ms=1, old_is_up=answers
    )
    return ChangePlan(operation, (), LossReport(losses, (), answers), not_mirrored, (), (), 1)


def test_a_result_has_the_bounds_of_its_plan() -> None:
    one = made(NOW, "running")
    found = result_of(one, plan({}, Loss(PLACE, 90, 100, True)), 2.5, 0)
    assert (found.state, found.lost, found.lag_s, found.topics, found.partitions) == ("passed", 10, 2.5, 1, 1)
    gone = result_of(one, plan({}, Loss(PLACE, 90, 100, False, 5), answers=False), None, 0)
    assert (gone.state, gone.lost, gone.lost_at_least, gone.source_heard_at_ms) == ("passed", None, 10, 5)


def test_a_topic_that_is_missing_and_a_copy_that_differs_are_failures() -> None:
    one = made(NOW, "running")
    missing = result_of(one, plan({"nyc.b": "it is full", "nyc.a": "no schema"}), 0.0, 3)
    assert (missing.state, missing.reason) == (
        "failed",
        'topic "nyc.a" is not mirrored: no schema; and 2 more',
    )
    differs = result_of(one, plan({}), 0.0, 3)
    assert differs.state == "failed" and "3 partitions differ" in differs.reason


# ---- status, alerts and series


def shown(
    *known: Rehearsal, every: str | None = "weekly", now_ms: int = NOW, **control: Any
) -> dict[str, Any]:
    link = replace(
        LINK, mirror=LINK.mirror.model_copy(update={"rehearse": schedule(every) if every else None})
    )
    beat = WorkerHeartbeat("w2", "host", 7, (Shard("m", -1),), 6_000, now_ms - 2_000).record()
    state = board(partition(), beat, *(each.record() for each in known))
    state.control = control.get("control", state.control)
    progress = WrittenState(checkpoints={("m", *PLACE): MARK})
    return summary_of(FILE, link, state, progress, now_ms)


def test_the_status_has_schedule_last_result_and_what_is_overdue() -> None:
    assert status(partition())["rehearsal"] is None  # neither a schedule nor a result
    monday = at(2026, 3, 2, 3)
    found = shown(made(monday, lost=0, lost_at_least=0, lag_s=0.0, steps=5))["rehearsal"]
    assert found["schedule"] == "weekly, Mon 03:00 UTC" and found["next_at_ms"] == at(2026, 3, 9, 3)
    assert found["overdue_s"] is None and found["last"]["state"] == "passed"
    assert found["last"]["proved"][0] == "A failover can begin: 5 steps"
    late = shown(made(monday - DAY_MS))["rehearsal"]
    assert late["overdue_s"] == (NOW - monday) / 1000 and late["last"]["state"] == "passed"
    never = shown()["rehearsal"]
    assert never["last"] is None and never["overdue_s"] == (NOW - monday) / 1000
    by_hand = shown(made(NOW - 1_000), every=None)["rehearsal"]
    assert by_hand["schedule"] is None and by_hand["overdue_s"] is None and by_hand["last"] is not None


def test_one_whose_worker_is_gone_is_shown_as_interrupted() -> None:
    gone = shown(made(NOW - 1_000, "running"))["rehearsal"]
    assert gone["running"] is None and gone["last"] is None
    assert (
        gone["results"][0]["state"] == "interrupted" and "worker w1 stopped" in gone["results"][0]["reason"]
    )
    alive = shown(made(NOW - 1_000, "running", "w2"))["rehearsal"]  # which reported 2 s before
    assert alive["running"]["state"] == "running"
    late = shown(made(NOW - 700_000, "running", "ana", scheduled=False))["rehearsal"]
    assert "did not complete it in time" in late["results"][0]["reason"]


def test_none_is_due_while_the_target_serves_the_source() -> None:
    served = Control(owners={"nyc": Ownership("nyc", "lon", 3, 1)})
    found = shown(control=served)["rehearsal"]
    assert found["waits"] == "lon serves the topics of nyc"
    assert found["overdue_s"] is None and found["next_at_ms"] is None
    assert verdicts(shown(control=served)) == ([Verdict.UNKNOWN], [])


def verdicts(found: dict[str, Any], error: str | None = None) -> tuple[list[Verdict], list[Verdict]]:
    rules = {each.rule.name: each for each in observe_mirrors([found], {}, RuleChanges(), error)}
    failed, overdue = rules["rehearsal-failed"], rules["rehearsal-overdue"]
    return [o.verdict for o in failed.observations], [o.verdict for o in overdue.observations]


def test_alerts_follow_the_last_result_and_the_missed_time() -> None:
    bad, good, unknown = Verdict.BAD, Verdict.GOOD, Verdict.UNKNOWN
    monday = at(2026, 3, 2, 3)
    assert verdicts(shown(made(monday))) == ([good], [good])
    assert verdicts(shown(made(monday, "failed", reason="no"))) == ([bad], [good])
    assert verdicts(shown(made(monday - 1))) == ([good], [bad])
    assert verdicts(shown(made(monday - 1), now_ms=monday + 3_600_000)) == ([good], [good])  # the limit
    assert verdicts(shown(made(monday - 1), now_ms=monday + 3_601_000)) == ([good], [bad])
    assert verdicts(shown()) == ([unknown], [bad])
    assert verdicts(shown(made(monday), every=None)) == ([], [])  # nobody promised any
    assert verdicts(shown(made(monday)), "mirrors.yaml cannot be read") == ([unknown], [unknown])
    # A newer one without a result does not hide a failure.
    newer = interrupted(made(NOW - 1_000, "running"), "w1 ended", NOW)
    assert verdicts(shown(made(monday, "failed"), newer)) == ([bad], [good])


def test_series_are_absent_where_there_is_no_result() -> None:
    def series(found: dict[str, Any]) -> dict[str, float]:
        return {
            each.name.removeprefix("hub_mirror_rehearsal_"): each.samples[0].value
            for each in families([found])
            if each.name.startswith("hub_mirror_rehearsal") and each.samples
        }

    assert series(status(partition())) == {}
    monday = at(2026, 3, 2, 3)
    age_s = (NOW - monday) / 1000
    assert series(shown(made(monday, lag_s=2.0))) == {"age_seconds": age_s, "passed": 1.0, "lag_seconds": 2.0}
    assert series(shown(made(monday, "failed"))) == {"age_seconds": age_s, "passed": 0.0}
    assert series(shown()) == {"overdue_seconds": age_s}
