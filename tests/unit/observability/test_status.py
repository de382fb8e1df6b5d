"""States over generated histories: which one comes, how soon, and that one odd reading changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.observability.lag.judge import LagRules, mann_kendall, theil_sen
from hub.observability.lag.states import SEVERITY, LagReading, LagState, LagVerdict, ReaderState
from hub.observability.lag.watching import WatchedConsumer, watch

RULES = LagRules()
CONNECTED = ReaderState(members=2)
NOBODY = ReaderState(members=0)
Rate = Callable[[int], float]


@dataclass
class History:
    """A log and its reader second by second; a reading every ten, as the collector would take it.

    ``arrive`` and ``read`` are records a second at a time; ``reset`` moves the position at a time.
    """

    arrive: Rate
    read: Rate
    commit_every_s: int = 1
    seed: int = 1
    reset: dict[int, int] = field(default_factory=dict)
    retention_s: float | None = None
    delete_before: dict[int, int] = field(default_factory=dict)
    reader: Callable[[int], ReaderState] = lambda _: CONNECTED
    away: Callable[[int], bool] = lambda _: False
    collector_from_s: int = 0
    watched: WatchedConsumer = field(default_factory=WatchedConsumer)
    states: list[tuple[int, LagVerdict]] = field(default_factory=list)

    def run(self, seconds: int) -> History:
        chance = random.Random(self.seed)
        arrivals: list[float] = []
        made, position, committed, beginning, high, moved = 0.0, 0.0, 0, 0, 0, self.collector_from_s
        for now in range(seconds):
            made += self.arrive(now)
            while len(arrivals) < int(made):
                arrivals.append(now + chance.random())
            if now in self.reset:
                position = self.reset[now]
                committed = int(position)
            beginning = self.delete_before.get(now, beginning)
            position = min(len(arrivals), position + self.read(now))
            if now % self.commit_every_s == 0 and int(position) != committed:
                committed, moved = int(position), max(now, self.collector_from_s)
                high = max(high, committed)
            if now % 10 == 0 and now >= self.collector_from_s:
                self._reading(now + 1, arrivals, committed, beginning, max(high, committed), moved)
        return self

    def _reading(
        self, now: int, arrivals: list[float], committed: int, beginning: int, high: int, moved: int
    ) -> None:
        reading = None
        if not self.away(now):
            start = max(committed, beginning)
            records = len(arrivals) - start
            waited = now - arrivals[start] if records else 0.0
            seen = max(moved, arrivals[start], self.collector_from_s) if records else now
            reading = LagReading(
                now * 1000,
                committed,
                len(arrivals),
                records,
                max(0.0, waited - 0.5),
                waited + 0.5,
                max(0, beginning - committed),
                max(0, high - committed),
                now - seen,
                0 if records else None,
                start - beginning if records else None,
                self.retention_s,
            )
        self.watched = watch(self.watched, reading, self.reader(now), now * 1000, RULES, "Kafka is away")
        self.states.append((now, self.watched.shown))

    def first(self, state: LagState, after: int = 0) -> int:
        """Seconds from ``after`` until the state was shown first."""
        return next(at for at, verdict in self.states if at >= after and verdict.state is state) - after

    @property
    def seen(self) -> set[LagState]:
        return {verdict.state for _, verdict in self.states}

    @property
    def now(self) -> LagVerdict:
        return self.watched.shown


def steady(rate: float) -> Rate:
    return lambda _: rate


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("commit_every_s", [1, 5])
def test_a_steady_reader_is_ok_all_the_time(seed: int, commit_every_s: int) -> None:
    history = History(steady(20), steady(40), commit_every_s, seed).run(1_800)
    assert history.seen == {LagState.OK}


def test_low_volume_is_ok_and_a_record_every_20_minutes_is_no_stop() -> None:
    history = History(lambda now: now % 1_200 == 600, steady(5), 5).run(3 * 3_600)
    assert history.seen == {LagState.OK}


def test_a_burst_is_caught_up_with_and_the_time_it_takes_is_told() -> None:
    history = History(lambda now: 20_000 if now == 300 else 5, steady(100)).run(900)
    assert history.first(LagState.CATCHING_UP, 300) <= 120
    at, verdict = next(each for each in history.states if each[1].state is LagState.CATCHING_UP)
    assert verdict.eta_s == pytest.approx((20_000 - (at - 300) * 95) / 95, rel=0.05)
    assert history.now.state is LagState.OK
    assert LagState.STOPPED not in history.seen and LagState.FALLING_BEHIND not in history.seen


def test_a_reader_that_goes_away_is_stopped_within_two_minutes() -> None:
    history = History(
        steady(5), lambda now: 10 if now < 600 else 0, reader=lambda now: CONNECTED if now < 600 else NOBODY
    ).run(1_200)
    assert 60 <= history.first(LagState.STOPPED, 600) <= 120
    assert history.now.state is LagState.STOPPED
    assert "no member is connected" in history.now.cause


def test_a_reader_that_is_there_and_does_nothing_is_stalled() -> None:
    history = History(steady(5), lambda now: 10 if now < 600 else 0).run(1_200)
    assert 60 <= history.first(LagState.STALLED, 600) <= 120
    assert "2 members are connected" in history.now.cause


def test_a_view_without_batches_is_stopped_and_with_batches_stalled() -> None:
    def view(committed_s: int) -> History:
        return History(
            steady(5),
            lambda now: 10 if now < 600 else 0,
            reader=lambda now: ReaderState("live", None, None, min(now, committed_s) * 1000),
        ).run(900)

    assert view(600).now.state is LagState.STOPPED and "no batch for" in view(600).now.cause
    assert view(900).now.state is LagState.STALLED and "batches are committed" in view(900).now.cause


def test_a_reader_that_commits_every_ten_minutes_is_not_stopped_between() -> None:
    history = History(steady(5), lambda now: 3_000 if now % 600 == 0 else 0, 600).run(3 * 3_600)
    late = [verdict.state for at, verdict in history.states if at > 3_600]
    assert not {LagState.STOPPED, LagState.STALLED} & set(late)


def test_a_rewind_is_told_until_it_is_where_it_was() -> None:
    history = History(steady(10), steady(30), reset={600: 1_000}).run(1_200)
    assert history.first(LagState.REWOUND, 600) <= 30
    assert next(v for _, v in history.states if v.state is LagState.REWOUND).cause.startswith("went back: ")
    assert history.now.state is LagState.OK


def test_falling_behind_then_catching_up_then_ok() -> None:
    history = History(lambda now: 20 if 300 <= now < 900 else 2, steady(10)).run(3_000)
    assert history.first(LagState.FALLING_BEHIND, 300) <= 180
    assert history.first(LagState.CATCHING_UP, 900) <= 180
    assert history.now.state is LagState.OK
    falling = [v for at, v in history.states if v.state is LagState.FALLING_BEHIND and at < 900]
    assert falling[-1].cause == "20 records/s arrive, 10 are read"


def test_late_and_steady_is_behind() -> None:
    history = History(steady(10), lambda now: 0 if now < 60 else 10).run(1_800)
    assert history.now.state is LagState.BEHIND


def test_deleted_unread_records_are_lost_at_once_and_counted() -> None:
    history = History(steady(10), lambda now: 10 if now < 300 else 0, delete_before={600: 5_000}).run(700)
    assert history.first(LagState.LOST, 600) <= 20
    assert history.now.cause == "2,000 records were deleted before they were read"


def test_after_a_loss_the_state_leaves_after_four_readings() -> None:
    history = History(
        steady(10), lambda now: 10 if now < 300 else 0, delete_before={600: 5_000}, reset={650: 6_500}
    ).run(720)
    gone = next(at for at, verdict in history.states if at > 650 and verdict.state is not LagState.LOST)
    assert gone - 650 >= 31


def test_a_stopped_reader_is_at_risk_an_hour_before_the_loss() -> None:
    history = History(
        steady(1), lambda now: 1 if now < 300 else 0, retention_s=7_200, reader=lambda _: NOBODY
    ).run(5_000)
    first = history.first(LagState.AT_RISK, 300)
    assert 3_600 <= first <= 3_700
    assert "lost in 6" in history.now.cause or "lost in 4" in history.now.cause
    assert history.now.loss_s == pytest.approx(7_200 - (5_000 - 300), abs=30)


def test_a_reader_in_time_is_not_at_risk_however_short_the_retention() -> None:
    assert History(steady(10), steady(20), retention_s=600).run(900).seen == {LagState.OK}


def test_the_beginning_that_comes_nearer_is_a_risk_too() -> None:
    deletions = {at: (at - 300) * 20 for at in range(600, 1_000)}
    history = History(steady(20), lambda now: 20 if now < 300 else 10, delete_before=deletions).run(800)
    assert LagState.AT_RISK in history.seen


def test_a_restarted_collector_is_right_with_its_first_reading() -> None:
    late = History(steady(10), lambda now: 0 if now < 400 else 5, collector_from_s=600).run(620)
    assert late.states[0][1].state is LagState.BEHIND
    lost = History(steady(10), steady(0), delete_before={100: 500}, collector_from_s=600).run(611)
    assert lost.states[0][1].state is LagState.LOST


def test_kafka_away_is_unknown_after_two_readings_and_known_again_with_the_first() -> None:
    history = History(steady(5), steady(10), away=lambda now: 300 <= now < 400).run(500)
    assert [at for at, verdict in history.states if verdict.state is LagState.UNKNOWN] == [
        *range(311, 401, 10),
    ]
    assert next(v for _, v in history.states if v.state is LagState.UNKNOWN).cause == "Kafka is away"


def test_the_engines_word_is_believed_and_quoted() -> None:
    for said, state in (("failed", LagState.STOPPED), ("retrying", LagState.STALLED)):
        history = History(
            steady(5), steady(10), reader=lambda _, said=said: ReaderState(said, "no topic")
        ).run(60)
        assert (history.now.state, history.now.cause) == (state, f"{said}: no topic")


def reading(at_s: float, records: int, seconds: float, **more: int) -> LagReading:
    return LagReading(int(at_s * 1000), 1_000, 1_000 + records, records, seconds, seconds, **more)


@given(st.lists(st.sampled_from(["ok", "lost", "late", None]), min_size=1, max_size=60))
@settings(max_examples=fast_or(40, 200))
def test_one_odd_reading_changes_nothing(kinds: list[str | None]) -> None:
    """A worse state needs two readings in a row, a better one four; unknown two. Whatever comes."""
    made = {
        "ok": lambda at: reading(at, 0, 0.0),
        "lost": lambda at: reading(at, 5, 50.0, lost=3),
        "late": lambda at: reading(at, 5, 50.0),
    }
    watched, run, shown = WatchedConsumer(), 0, []
    for index, kind in enumerate(kinds):
        before = watched
        run = run + 1 if index and kinds[index - 1] == kind else 1
        watched = watch(watched, made[kind](index * 10) if kind else None, NOBODY, index * 10_000, RULES)
        if watched.shown.state is not before.shown.state and before.since_ms is not None:
            worse = SEVERITY[watched.shown.state] < SEVERITY[before.shown.state]
            if before.shown.state is not LagState.UNKNOWN:
                enough = 2 if worse or watched.shown.state is LagState.UNKNOWN else 4
                told = kinds[max(0, index - enough + 1) : index + 1]
                assert len(told) == enough
        shown.append(watched.shown.state)
    if run >= 4:
        expected = {"ok": {LagState.OK}, "lost": {LagState.LOST}, None: {LagState.UNKNOWN}}
        assert kinds[-1] == "late" or shown[-1] in expected[kinds[-1]]


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=30, unique=True))
def test_trends_know_up_from_down(values: list[float]) -> None:
    rising = sorted(values)
    assert mann_kendall(rising) > 0 > mann_kendall(rising[::-1])
    assert mann_kendall(values) == pytest.approx(-mann_kendall(values[::-1]))
    assert theil_sen(list(range(len(rising))), rising) > 0


def test_trends_by_hand() -> None:
    # Kendall's S of 1,3,2,4 is 4, its variance 26/3: (4-1)/sqrt(26/3)
    assert mann_kendall([1, 3, 2, 4]) == pytest.approx(3 / (26 / 3) ** 0.5)
    assert mann_kendall([5, 5, 5, 5]) == 0.0
    assert theil_sen([0, 1, 2, 3], [0, 2, 4, 600]) == pytest.approx(2.0, abs=100)
    assert theil_sen([1, 1], [0, 5]) == 0.0
