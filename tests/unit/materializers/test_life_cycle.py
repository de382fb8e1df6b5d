"""The life cycle of a version's thread: each transition, and its invariants in simulated lives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.materializers.engine.life_cycle import BULK_FROM, FIRST_PAUSE_S, MOST_PAUSE_S, WAIT_S, advance
from hub.materializers.engine.life_events import (
    RUNNING,
    BatchCommitted,
    CorruptState,
    CountUnread,
    DecidedElsewhere,
    Failure,
    LastingFailure,
    LearnSchema,
    LifeAction,
    LifeEvent,
    MakePlan,
    Pause,
    PauseEnded,
    PlanBlocked,
    PlanChecked,
    PlanMade,
    QuarantineState,
    QueryEnded,
    QueryStarted,
    ReportState,
    RequestDecision,
    SlotsTaken,
    Standing,
    StartQuery,
    StopQuery,
    StopRequested,
    ThreadStarted,
    TransientFailure,
    UnknownSchemaId,
    UnreadCounted,
    ViewFailed,
    ViewFileGone,
    ViewLife,
    WarmUpEnded,
)

LIVE, MANY = Standing(), BULK_FROM + 1
REALTIME = Standing(realtime=True)
BUILDING = Standing(realtime=True, served=False)
LATE_AHEAD = Standing(realtime=True, late=True, ahead=True)
LATE_BEGUN = Standing(realtime=True, late=True, uncommitted=True)
BARRED = Standing(allowed=False)

STARTING = ViewLife()
PLANNED = ViewLife(generation=1)
KNOWN = ViewLife(generation=1, caught_up=True)
RUNS_LIVE = replace(KNOWN, phase="live")
RUNS_REALTIME = replace(KNOWN, phase="realtime", warm=True)
RUNS_BULK = replace(PLANNED, phase="bulk")
REPLAYS = replace(KNOWN, phase="replay", warm=True)
WAITING = ViewLife("waiting", blocked="b waits")
PLAN_AGAIN = (StopQuery(), MakePlan())
ANEW = (ReportState("starting"), MakePlan())
DOUBTED = "its state cannot be read, which is tried once more: "

# (state, event) -> (changes of the state, actions)
TABLE: dict[str, tuple[ViewLife, LifeEvent, dict[str, object], tuple[LifeAction, ...]]] = {
    "it starts": (STARTING, ThreadStarted(), {}, ANEW),
    # ---- planned
    "the first plan": (STARTING, PlanMade(1, LIVE), {"generation": 1}, (CountUnread(),)),
    "the same generation again": (
        KNOWN,
        PlanMade(1, LIVE),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "another generation reads its log anew": (
        KNOWN,
        PlanMade(2, LIVE),
        {"generation": 2, "caught_up": False},
        (CountUnread(),),
    ),
    "a new plan may replay again": (
        replace(KNOWN, replayed=True, warm=True),
        PlanMade(1, LATE_AHEAD),
        {"phase": "replay", "replayed": False},
        (StartQuery("bulk", whole=True),),
    ),
    "a view that waits says why": (
        STARTING,
        PlanBlocked("b waits"),
        {"phase": "waiting", "blocked": "b waits"},
        (ReportState("retrying", "b waits"), Pause(WAIT_S)),
    ),
    "it says it once": (WAITING, PlanBlocked("b waits"), {}, (Pause(WAIT_S),)),
    "and another reason anew": (
        WAITING,
        PlanBlocked("c waits"),
        {"blocked": "c waits"},
        (ReportState("retrying", "c waits"), Pause(WAIT_S)),
    ),
    "it looks again without a word": (WAITING, PauseEnded(), {}, (MakePlan(),)),
    "it waits no longer": (
        WAITING,
        PlanMade(1, LIVE),
        {"phase": "starting", "generation": 1, "blocked": None},
        (ReportState("starting"), CountUnread()),
    ),
    # ---- what runs first
    "many unread": (PLANNED, UnreadCounted(MANY, LIVE), {"phase": "bulk"}, (StartQuery("bulk"),)),
    "few unread": (
        PLANNED,
        UnreadCounted(BULK_FROM, LIVE),
        {"phase": "live", "caught_up": True},
        (StartQuery("live"),),
    ),
    "many again after the bulk": (
        KNOWN,
        UnreadCounted(MANY, LIVE),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "real time when it is warm": (
        replace(KNOWN, warm=True),
        UnreadCounted(0, REALTIME),
        {"phase": "realtime"},
        (StartQuery("realtime"),),
    ),
    "a cold view warms up first": (
        PLANNED,
        UnreadCounted(0, REALTIME),
        {"phase": "live", "caught_up": True},
        (StartQuery("live"),),
    ),
    "a version beside the served one": (
        replace(KNOWN, warm=True),
        UnreadCounted(0, BUILDING),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "the slots are another version's": (
        replace(KNOWN, warm=True),
        UnreadCounted(0, replace(REALTIME, slots_free=False)),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "late events after real time are judged in one batch": (
        PLANNED,
        UnreadCounted(MANY, LATE_AHEAD),
        {"phase": "replay"},
        (StartQuery("bulk", whole=True),),
    ),
    "once a plan": (
        replace(KNOWN, replayed=True),
        UnreadCounted(0, LATE_AHEAD),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "a batch that was begun is completed before real time": (
        replace(KNOWN, warm=True),
        UnreadCounted(0, LATE_BEGUN),
        {"phase": "replay"},
        (StartQuery("bulk", whole=True),),
    ),
    "and simply continued in micro-batches": (
        KNOWN,
        UnreadCounted(0, LATE_BEGUN),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "without lateness nothing is replayed": (
        KNOWN,
        UnreadCounted(0, Standing(realtime=True, ahead=True)),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "another process runs it": (
        PLANNED,
        UnreadCounted(MANY, BARRED),
        {"phase": "isolated"},
        (),
    ),
    # ---- running
    "bulk is reported": (RUNS_BULK, QueryStarted(REALTIME), {}, (ReportState("bulk"),)),
    "a replay is reported as bulk": (REPLAYS, QueryStarted(REALTIME), {}, (ReportState("bulk"),)),
    "live is reported": (RUNS_LIVE, QueryStarted(LIVE), {}, (ReportState("live"),)),
    "warming up is reported": (
        RUNS_LIVE,
        QueryStarted(REALTIME),
        {},
        (ReportState("live", "warms up for real-time mode"),),
    ),
    "running beside is reported": (
        replace(RUNS_LIVE, warm=True),
        QueryStarted(BUILDING),
        {},
        (ReportState("live", "in micro-batches: real-time mode is for the version that is served"),),
    ),
    "real time is reported": (RUNS_REALTIME, QueryStarted(REALTIME), {}, (ReportState("realtime"),)),
    "the slots were taken meanwhile": (
        RUNS_REALTIME,
        SlotsTaken(),
        {"phase": "live"},
        (StartQuery("live"),),
    ),
    "it is warm": (
        RUNS_LIVE,
        WarmUpEnded(REALTIME),
        {"phase": "starting", "warm": True},
        PLAN_AGAIN,
    ),
    "it is warm and not served": (
        RUNS_LIVE,
        WarmUpEnded(BUILDING),
        {"warm": True},
        (ReportState("live", "in micro-batches: real-time mode is for the version that is served"),),
    ),
    "all is as planned": (RUNS_LIVE, PlanChecked(LIVE, False), {}, ()),
    "the plan is stale": (
        replace(RUNS_LIVE, failures=3),
        PlanChecked(LIVE, True),
        {"phase": "starting", "failures": 0},
        PLAN_AGAIN,
    ),
    "it is served now": (
        replace(RUNS_LIVE, warm=True),
        PlanChecked(REALTIME, False),
        {"phase": "starting"},
        PLAN_AGAIN,
    ),
    "it is served no longer": (
        RUNS_REALTIME,
        PlanChecked(BUILDING, False),
        {"phase": "starting"},
        PLAN_AGAIN,
    ),
    "a cold view stays live": (RUNS_LIVE, PlanChecked(REALTIME, False), {}, ()),
    "bulk goes on whatever the mode is": (
        replace(RUNS_BULK, warm=True),
        PlanChecked(REALTIME, False),
        {},
        (),
    ),
    "a stale bulk is planned again, not reported live": (
        RUNS_BULK,
        PlanChecked(LIVE, True),
        {"phase": "starting"},
        PLAN_AGAIN,
    ),
    "bulk has read everything": (
        RUNS_BULK,
        QueryEnded(),
        {"phase": "starting", "caught_up": True},
        (CountUnread(),),
    ),
    "the replay is complete": (
        REPLAYS,
        QueryEnded(),
        {"phase": "starting", "replayed": True},
        (CountUnread(),),
    ),
    "a live query ends by itself": (
        RUNS_LIVE,
        QueryEnded(),
        {"phase": "starting", "caught_up": False},
        ANEW,
    ),
    "a committed batch clears a suspicion": (
        replace(RUNS_LIVE, suspected=True),
        BatchCommitted(),
        {"suspected": False},
        (),
    ),
    # ---- failures
    "a schema id is asked for at once": (
        RUNS_LIVE,
        ViewFailed(UnknownSchemaId(7, "orders")),
        {"phase": "starting", "caught_up": False},
        (LearnSchema(7, "orders"), *ANEW),
    ),
    "corruption is doubted": (
        RUNS_LIVE,
        ViewFailed(CorruptState("no state")),
        {"phase": "retrying", "caught_up": False, "suspected": True, "failures": 1},
        (ReportState("retrying", f"{DOUBTED}no state"), Pause(0.5)),
    ),
    "and believed the second time in a row": (
        replace(KNOWN, suspected=True, failures=1),
        ViewFailed(CorruptState("still none")),
        {"phase": "retrying", "caught_up": False, "suspected": False, "failures": 2},
        (QuarantineState("still none"), Pause(1.0)),
    ),
    "not with a batch in between": (
        replace(RUNS_LIVE, suspected=True),
        ViewFailed(CorruptState("again"), committed=True),
        {"phase": "retrying", "caught_up": False, "suspected": True, "failures": 1},
        (ReportState("retrying", f"{DOUBTED}again"), Pause(0.5)),
    ),
    "nothing is moved that has no place": (
        replace(STARTING, suspected=True),
        ViewFailed(CorruptState("where", located=False)),
        {"phase": "retrying", "failures": 1},
        (ReportState("retrying", f"{DOUBTED}where"), Pause(0.5)),
    ),
    "nor suspected": (
        STARTING,
        ViewFailed(CorruptState("where", located=False)),
        {"phase": "retrying", "failures": 1},
        (ReportState("retrying", f"{DOUBTED}where"), Pause(0.5)),
    ),
    "a failure that may pass": (
        replace(RUNS_LIVE, failures=2),
        ViewFailed(TransientFailure("away")),
        {"phase": "retrying", "caught_up": False, "failures": 3},
        (ReportState("retrying", "away"), Pause(2.0)),
    ),
    "a failure of the view": (
        replace(WAITING, failures=9),
        ViewFailed(LastingFailure("a typo")),
        {"phase": "failed", "blocked": None, "failures": 10},
        (ReportState("failed", "a typo"), Pause(MOST_PAUSE_S)),
    ),
    "a pause never overflows": (
        replace(STARTING, failures=5_000),
        ViewFailed(TransientFailure("away")),
        {"phase": "retrying", "failures": 5_001},
        (ReportState("retrying", "away"), Pause(MOST_PAUSE_S)),
    ),
    "after the pause": (
        replace(STARTING, phase="failed", failures=1),
        PauseEnded(),
        {"phase": "starting"},
        (MakePlan(),),  # it has failed until its query runs: the state keeps its age
    ),
    "another process decides": (
        STARTING,
        ViewFailed(DecidedElsewhere()),
        {"phase": "stopped"},
        (RequestDecision(), ReportState("stopped")),
    ),
    "its file is gone": (
        RUNS_LIVE,
        ViewFailed(ViewFileGone()),
        {"phase": "stopped", "caught_up": False},
        (ReportState("stopped"),),
    ),
    # ---- stopped
    "stopped while it runs": (
        RUNS_LIVE,
        StopRequested(),
        {"phase": "stopped"},
        (StopQuery(), ReportState("stopped")),
    ),
    "stopped while it pauses": (
        replace(STARTING, phase="retrying"),
        StopRequested(),
        {"phase": "stopped"},
        (ReportState("stopped"),),
    ),
    "stopped where it is isolated": (
        replace(STARTING, phase="isolated"),
        StopRequested(),
        {"phase": "stopped"},
        (ReportState("stopped"),),
    ),
    "it stays stopped": (replace(STARTING, phase="stopped"), PauseEnded(), {}, ()),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_transition(name: str) -> None:
    life, event, changes, actions = TABLE[name]
    assert advance(life, event) == (replace(life, **changes), actions)  # type: ignore[arg-type]


def test_what_is_reported_corrupt_once_is_doubted_and_believed_the_second_time_in_a_row() -> None:
    life = RUNS_LIVE
    taken: list[LifeAction] = []
    for event in (
        ViewFailed(CorruptState("a")),
        BatchCommitted(),
        ViewFailed(CorruptState("b")),
        ViewFailed(TransientFailure("away")),
        ViewFailed(CorruptState("c")),
    ):
        life, actions = advance(life, event)
        taken += actions
    assert [each for each in taken if isinstance(each, QuarantineState)] == [QuarantineState("c")]


# ---- simulated lives

_FAILURES: tuple[Failure, ...] = (
    TransientFailure("Kafka is away"),
    LastingFailure("the file has a typo"),
    CorruptState("a file is garbled"),
    CorruptState("somewhere", located=False),
    UnknownSchemaId(3, "orders"),
)


@dataclass
class World:
    """Kafka, Spark, the view's file and other versions around one thread. It carries out actions as
    view_thread.py does, and checks the invariants of life_cycle.py at each."""

    chance: Random
    unread: int
    realtime: bool
    late: bool
    faults: bool = True
    served: bool = True
    generation: int = 1
    ahead: bool = False
    stale: bool = False
    query: str | None = None
    corrupt: list[bool] = field(default_factory=list)  # reports of corruption since the last batch
    caught_up: set[int] = field(default_factory=set)
    planned: int = 0
    reported: list[ReportState] = field(default_factory=list)
    quarantined: int = 0
    life: ViewLife = field(default_factory=ViewLife)
    events: deque[LifeEvent] = field(default_factory=deque)

    def standing(self) -> Standing:
        free = not (self.faults and self.chance.random() < 0.1)
        begun = self.chance.random() < 0.2
        return Standing(self.realtime, self.served, free, self.late, begun, self.ahead)

    def happen(self, event: LifeEvent) -> None:
        before = self.life
        self.life, actions = advance(before, event)
        if isinstance(event, ViewFailed):
            self.check_failure(event, actions)
        for action in actions:
            if self.faults and self.chance.random() < 0.05 and not isinstance(action, ReportState | Pause):
                self.fail(self.chance.choice(_FAILURES))
                return
            self.do(action)

    def check_failure(self, event: ViewFailed, actions: tuple[LifeAction, ...]) -> None:
        assert self.query is None
        pauses = [each.seconds for each in actions if isinstance(each, Pause)]
        if isinstance(event.failure, UnknownSchemaId):
            assert LearnSchema(3, "orders") in actions and not pauses
        else:
            assert len(pauses) == 1 and FIRST_PAUSE_S <= pauses[0] <= MOST_PAUSE_S
            assert any(isinstance(each, ReportState | QuarantineState) for each in actions)

    def fail(self, failure: Failure) -> None:
        self.query = None
        self.events.clear()
        if isinstance(failure, CorruptState) and failure.located:
            self.corrupt.append(True)
        self.events.append(ViewFailed(failure))

    def do(self, action: LifeAction) -> None:
        match action:
            case ReportState():
                self.reported.append(action)
                if action.state in ("live", "realtime"):
                    assert self.planned in self.caught_up, "live with most keys missing"
            case MakePlan():
                self.plan()
            case CountUnread():
                if self.unread <= BULK_FROM:
                    self.caught_up.add(self.planned)
                self.events.append(UnreadCounted(self.unread, self.standing()))
            case StartQuery():
                self.start(action)
            case StopQuery():
                assert self.query is not None
                self.query = None
                self.events.clear()
            case QuarantineState():
                assert len(self.corrupt) >= 2, "one report is not enough"
                self.corrupt.clear()
                self.quarantined += 1
                self.generation += 1
                self.unread += 50_000
            case Pause():
                self.events.append(PauseEnded())

    def plan(self) -> None:
        assert self.query is None, "planned while a query runs"
        if self.faults and self.chance.random() < 0.1:
            self.events.append(PlanBlocked(self.chance.choice(("b has no changelog", "Spark starts again"))))
            return
        self.stale, self.planned = False, self.generation
        self.events.append(PlanMade(self.generation, self.standing()))

    def start(self, action: StartQuery) -> None:
        assert self.query is None, "two queries at once"
        if action.mode == "realtime":
            assert self.realtime and self.life.warm
            if self.faults and self.chance.random() < 0.2:
                self.events.append(SlotsTaken())
                return
            self.ahead = True
        self.query = "whole" if action.whole else action.mode
        self.events.append(QueryStarted(self.standing()))

    def run(self) -> None:
        """Let the query do something."""
        if self.faults and self.chance.random() < 0.1:
            self.fail(self.chance.choice(_FAILURES))
            return
        if self.faults and self.chance.random() < 0.1:
            self.stale = True
            self.generation += self.chance.random() < 0.3  # recomputed in place
            self.served = self.chance.random() < 0.8
            self.unread += self.chance.choice((0, 10, 100_000))
        self.unread = max(0, self.unread - self.chance.choice((0, 1_000, 60_000)))
        self.corrupt.clear()
        self.events.append(BatchCommitted())
        if self.query in ("bulk", "whole"):
            if self.unread == 0:
                self.caught_up.add(self.planned)
                self.ahead, self.query = False, None
                self.events.append(QueryEnded())
                return
        elif self.chance.random() < 0.3:
            self.events.append(WarmUpEnded(self.standing()))
        self.events.append(PlanChecked(self.standing(), self.stale))

    def turn(self) -> None:
        if self.events:
            self.happen(self.events.popleft())
        else:
            assert self.query is not None, "nothing will ever happen again"
            assert self.life.phase in RUNNING
            self.run()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    unread=st.sampled_from((0, BULK_FROM, MANY, 1_000_000)),
    realtime=st.booleans(),
    late=st.booleans(),
)
def test_a_simulated_life_keeps_the_invariants_and_ends_live(
    seed: int, unread: int, realtime: bool, late: bool
) -> None:
    world = World(Random(seed), unread, realtime, late)
    world.happen(ThreadStarted())
    for _ in range(150):
        world.turn()
    world.faults, world.served = False, True
    wanted = "realtime" if realtime else "live"
    for _ in range(200):
        if world.query == wanted and world.life.phase == wanted and not world.events:
            break
        world.turn()
    assert world.life.phase == wanted, "without faults it gets there"
    assert world.reported[-1].state == wanted
    world.happen(StopRequested())
    assert world.life.phase == "stopped" and world.query is None
    assert world.reported[-1] == ReportState("stopped")
    assert advance(world.life, ThreadStarted()) == (world.life, ())
