"""[core] Life cycle of one version's thread: ``advance(life, event) -> (life, actions)``.

::

    starting ──plan──▶ many unread ──▶ bulk ──────────┐
        ▲  ▲    │                                     ▼
        │  │    ├─▶ late events after real time ─▶ replay ─▶ live ⇄ realtime
        │  │    │                                            │
        │  │    └─ a prerequisite is missing: waiting ─plan─▶ │   the plan is stale, or another mode is due:
        │  └──────────────────── planned again ◀─────────────┤   stop the query and plan
        │ pause                                              ▼
        └────────────────── retrying, failed ◀──────── any failure            stop: stopped, from everywhere

``isolated`` is a version that the isolation policy does not let run here: it waits until it is stopped.

The thread (view_thread.py) carries out the actions in order. An action that fails drops the rest of its step
and becomes the event ``ViewFailed``; its query is stopped by then.

Invariants: at most one query runs; a query is stopped before the view is planned again; a generation is
reported "live" only after its unread events were few once; state is quarantined only after two reports of
corruption with no committed batch in between; every failure is reported and followed by a pause of at most
``MOST_PAUSE_S``, except for a schema id that the registry is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

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
    Phase,
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
    Step,
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
from hub.materializers.progress.records import Mode

# Below this many unread events a start goes straight to live.
BULK_FROM = 20_000
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 10.0
# Interval of looking for a missing prerequisite, such as the changelog of another view.
WAIT_S = 0.5
_WARMS_UP = "warms up for real-time mode"
_BESIDE = "in micro-batches: real-time mode is for the version that is served"
_DOUBT = "its state cannot be read, which is tried once more: "


def advance(life: ViewLife, event: LifeEvent) -> Step:
    """Return the next state and what to do now, in order. A stopped thread stays stopped.

    >>> advance(ViewLife(), ThreadStarted())[1]
    (ReportState(state='starting', reason=None), MakePlan())
    """
    if life.phase == "stopped":
        return life, ()
    match event:
        case ThreadStarted() | PauseEnded():
            return _plan(life, quietly=life.phase in ("waiting", "retrying", "failed"))
        case PlanMade():
            return _planned(life, event)
        case PlanBlocked():
            return _blocked(life, event.reason)
        case UnreadCounted():
            bulk = not life.caught_up and event.unread > BULK_FROM and not event.standing.in_steps
            return _run(life if bulk else replace(life, caught_up=True), event.standing, bulk=bulk)
        case QueryStarted():
            return life, (_running_state(life, event.standing),)
        case SlotsTaken():
            return replace(life, phase="live"), (StartQuery("live"),)
        case BatchCommitted():
            return replace(life, suspected=False), ()
        case WarmUpEnded():
            life = replace(life, warm=True)
            if mode_of(life, event.standing) != life.phase:
                return _plan_again(life)
            return life, (_running_state(life, event.standing),)
        case PlanChecked():
            moved = life.phase in ("live", "realtime") and mode_of(life, event.standing) != life.phase
            return _plan_again(life) if moved or event.stale else (life, ())
        case QueryEnded():
            return _ended(life)
        case ViewFailed():
            suspected = life.suspected and not event.committed
            life = replace(life, caught_up=False, blocked=None, suspected=suspected)
            return _failed(life, event.failure)
        case StopRequested():
            stopping: tuple[LifeAction, ...] = (StopQuery(),) if life.phase in RUNNING else ()
            return _stopped(life, *stopping)
        case _:
            assert_never(event)


def mode_of(life: ViewLife, standing: Standing) -> Mode:
    """Return the mode after the catch-up.

    Only the served version runs in real-time mode. Versions that are being built or kept for a rollback
    follow in micro-batches and take no slots.
    """
    its_turn = standing.served and standing.slots_free
    return "realtime" if standing.realtime and life.warm and its_turn else "live"


def warms_up(life: ViewLife, standing: Standing) -> bool:
    """Return True while a live query is to end in real-time mode once the JVM is warm.

    Real-time mode plans only at checkpoints, and everything waits for it, so the compiled code for planning
    must be ready.
    """
    return life.phase == "live" and standing.realtime and not life.warm


def _plan(life: ViewLife, *, quietly: bool = False) -> Step:
    """Return the step that makes a plan. ``quietly``: the reported state stays, so that a view that fails
    again and again has failed since the first time."""
    reports: tuple[LifeAction, ...] = () if quietly else (ReportState("starting"),)
    phase: Phase = "waiting" if quietly and life.phase == "waiting" else "starting"
    return replace(life, phase=phase), (*reports, MakePlan())


def _plan_again(life: ViewLife) -> Step:
    return replace(life, phase="starting", failures=0), (StopQuery(), MakePlan())


def _planned(life: ViewLife, event: PlanMade) -> Step:
    reports: tuple[LifeAction, ...] = () if life.blocked is None else (ReportState("starting"),)
    same = event.generation == life.generation
    life = replace(
        life,
        phase="starting",
        generation=event.generation,
        caught_up=life.caught_up and same,
        replayed=False,
        blocked=None,
    )
    if not life.caught_up:
        return life, (*reports, CountUnread())
    life, actions = _run(life, event.standing, bulk=False)
    return life, (*reports, *actions)


def _blocked(life: ViewLife, reason: str) -> Step:
    reports: tuple[LifeAction, ...] = () if life.blocked == reason else (ReportState("retrying", reason),)
    life = replace(life, phase="waiting", caught_up=False, blocked=reason)
    return life, (*reports, Pause(WAIT_S))


def _run(life: ViewLife, standing: Standing, *, bulk: bool) -> Step:
    """Start the query that is due.

    Real-time mode judged all events that it read past its last checkpoint by the watermark of that
    checkpoint, and so does one batch. In several batches, the later ones would be judged by a watermark that
    the first have moved, and a count would stay below the one that a store already has. A batch that was
    begun in another mode is completed in the same way before real-time mode starts.
    """
    if not standing.allowed:
        return replace(life, phase="isolated"), ()
    mode: Mode = "bulk" if bulk else mode_of(life, standing)
    unfinished = standing.ahead or (mode == "realtime" and standing.uncommitted)
    if standing.late and unfinished and not life.replayed:
        return replace(life, phase="replay"), (StartQuery("bulk", whole=True),)
    return replace(life, phase=mode), (StartQuery(mode),)


def _running_state(life: ViewLife, standing: Standing) -> ReportState:
    if life.phase == "realtime":
        return ReportState("realtime")
    if life.phase != "live":
        return ReportState("bulk")
    if warms_up(life, standing):
        return ReportState("live", _WARMS_UP)
    return ReportState("live", _BESIDE if standing.realtime and not standing.served else None)


def _ended(life: ViewLife) -> Step:
    """Return what follows a query that ended by itself: a bulk query has read everything; any other query is
    started again."""
    if life.phase == "replay":
        return replace(life, phase="starting", replayed=True), (CountUnread(),)
    if life.phase == "bulk":
        return replace(life, phase="starting", caught_up=True), (CountUnread(),)
    return _plan(replace(life, caught_up=False))


def _failed(life: ViewLife, failure: Failure) -> Step:
    match failure:
        case UnknownSchemaId():
            life, actions = _plan(life)
            return life, (LearnSchema(failure.schema_id, failure.topic), *actions)
        case CorruptState():
            if failure.located and life.suspected:
                return _retry(replace(life, suspected=False), "retrying", QuarantineState(failure.why))
            life = replace(life, suspected=life.suspected or failure.located)
            return _retry(life, "retrying", ReportState("retrying", f"{_DOUBT}{failure.why}"))
        case TransientFailure():
            return _retry(life, "retrying", ReportState("retrying", failure.reason))
        case LastingFailure():
            return _retry(life, "failed", ReportState("failed", failure.reason))
        case DecidedElsewhere():
            return _stopped(life, RequestDecision())
        case ViewFileGone():
            return _stopped(life)
        case _:
            assert_never(failure)


def _retry(life: ViewLife, phase: Phase, action: LifeAction) -> Step:
    pause_s = min(FIRST_PAUSE_S * 2.0 ** min(life.failures, 16), MOST_PAUSE_S)
    return replace(life, phase=phase, failures=life.failures + 1), (action, Pause(pause_s))


def _stopped(life: ViewLife, *actions: LifeAction) -> Step:
    return replace(life, phase="stopped"), (*actions, ReportState("stopped"))
