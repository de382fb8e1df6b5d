"""[shell] The thread of one version of a view: carry out what its life cycle decides (life_cycle.py).

The thread plans the view, runs its query and reports what happens as events. When the query fails, it reports
the error in the view's state and retries after a growing pause. Other views are not affected.

A *version* is one computation of a view from the start of its log (versions/versions.py). When the plan
changes so that the state cannot be used, or the checkpoint is lost, the next version is built beside the
serving one, with a thread, a checkpoint and a changelog of its own. The view's file applies to the newest
version. Older versions continue from their own definition in the log and from the schemas and topics noted
beside their checkpoints. With ``swap: in_place`` the view is recomputed in the same changelog instead, as its
next *generation*. Rows carry the generation in ``hub.version``, so rows of a later generation replace those
of an earlier one in every store.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import assert_never

from hub.errors import HubError
from hub.materializers.definition.load import load_view
from hub.materializers.engine.batch_reports import BatchReports
from hub.materializers.engine.failures import FailedView, failure_of
from hub.materializers.engine.life_cycle import advance
from hub.materializers.engine.life_events import (
    CountUnread,
    LearnSchema,
    LifeAction,
    LifeEvent,
    MakePlan,
    Pause,
    PauseEnded,
    PlanBlocked,
    PlanMade,
    QuarantineState,
    QueryEnded,
    QueryStarted,
    ReportState,
    RequestDecision,
    SlotsTaken,
    StartQuery,
    StopQuery,
    StopRequested,
    ThreadStarted,
    UnreadCounted,
    ViewFailed,
    ViewLife,
)
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.planner import AnyPlan, ViewPlanner
from hub.materializers.engine.plans.source_schemas import WAITS
from hub.materializers.engine.running_query import ViewQuery, planned_standing, running_standing
from hub.materializers.engine.stall_watch import StallWatch
from hub.materializers.isolation.thread_marks import isolation_message
from hub.materializers.progress.records import EngineState, ViewState
from hub.materializers.snapshot_groups.members import Member
from hub.materializers.spark.slots import WIDENS
from hub.times import epoch_ms

log = logging.getLogger(__name__)


class ViewThread:
    """The thread of one version. ``start`` and ``stop`` are called only from the process's main loop.

    ``undecided``: the shared process must decide about its view's versions. ``reported``: its last state,
    and the reason.
    """

    def __init__(self, parts: EngineParts, name: VersionName) -> None:
        self._parts = parts
        self._name = name
        self._planner = ViewPlanner(parts, name)
        self._reports = BatchReports(parts, name.table, self._planner)
        self._stall = StallWatch(parts.settings, parts.isolation.marks, name.table)
        self._plan: AnyPlan | None = None
        self._query: ViewQuery | None = None
        self._events: deque[LifeEvent] = deque()
        self._stopping = threading.Event()
        self._replaced = False  # its later states are ignored
        self._label: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"view-{name.table}", daemon=True)
        self.life = ViewLife()
        self.undecided = False
        self.reported: tuple[str, str | None] = ("starting", None)
        self._since_ms = epoch_ms()

    # ---- what the process and the snapshot groups see

    @property
    def table(self) -> str:
        return self._name.table

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def group(self) -> str | None:
        return self._planner.label if self._planner.view is not None else self._label

    @property
    def served(self) -> bool:
        return self._planner.served

    @property
    def member(self) -> Member | None:
        query = self._query
        return None if query is None else query.member

    @property
    def unheld(self) -> str | None:
        query = self._query
        return None if query is None else query.unheld

    @property
    def reads(self) -> frozenset[str]:
        """The topics that it reads."""
        return self._planner.reads

    def stalled(self, now_s: float) -> str | None:
        """Return why it should be isolated, which completes the sentence "its batch …"; None: it makes
        progress."""
        self._stall.look_at_planning(now_s)
        return self._stall.stalled

    def start(self) -> None:
        with suppress(HubError, OSError):  # the view's thread reports the error
            self._label = load_view(self._name.path).of_version(self._name.suffix).group
        self._parts.isolation.marks.begin(self.table)
        self._thread.start()

    def request_stop(self) -> None:
        """Let the thread stop soon. Idempotent."""
        self._stopping.set()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stop the thread and wait for it. Its reports after ``timeout_s`` are ignored."""
        self.request_stop()
        self._thread.join(timeout_s)
        self._replaced = self._reports.closed = True

    # ---- the loop

    def _run(self) -> None:
        self._happen(ThreadStarted())
        while self.life.phase != "stopped":
            if self._stopping.is_set():
                self._happen(StopRequested())
            elif self._events:
                self._happen(self._events.popleft())
            elif self._query is None:
                self._stopping.wait()  # isolated: another process runs it
            else:
                self._attempt(partial(self._watch, self._query))

    def _watch(self, query: ViewQuery) -> None:
        events = query.poll(self.life, self._stopping)
        if QueryEnded() in events:
            self._stop_query()
        self._events += events

    def _happen(self, event: LifeEvent) -> None:
        """Let the life cycle decide, and carry out its actions in order."""
        self.life, actions = advance(self.life, event)
        for action in actions:
            if not self._attempt(partial(self._do, action)) and self.life.phase != "stopped":
                return

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do some work. Let any error be the next event, and return False then."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - classified and reported; other views are left alone
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        """Stop the query, and let an error be the next event."""
        self._stall.keep_marks(error)
        query, planner = self._query, self._planner
        causes = "" if query is None else query.causes
        folders = self._name.folders(self._parts.settings)
        about = FailedView(self._name.view, planner.view, planner.checkpoint, folders, causes)
        try:
            self._stop_query()
        except Exception as other:  # noqa: BLE001 - the first error is the one to report
            log.warning("view %s: its query is not stopped in order: %s", self.table, other)
        committed = query is not None and query.has_committed
        self._events.append(ViewFailed(failure_of(error, about), committed))

    def _stop_query(self) -> None:
        """Stop the query, if one runs. Its unhandled reports are discarded."""
        query, self._query = self._query, None
        self._events.clear()
        if query is not None:
            query.stop()

    # ---- actions

    def _do(self, action: LifeAction) -> None:
        match action:
            case ReportState():
                self._report_state(action.state, action.reason)
            case MakePlan():
                self._events.append(self._planned())
            case CountUnread():
                plan = self._plan_made()
                unread = self._reports.count_unread(plan)
                standing = planned_standing(self._parts, self._name, self._planner, plan)
                self._events.append(UnreadCounted(unread, standing))
            case StartQuery():
                self._events.append(self._started(action))
            case StopQuery():
                self._stop_query()
            case LearnSchema():
                self._planner.schemas.learn(action.schema_id, action.topic)
            case QuarantineState():
                if self._planner.checkpoint is not None:
                    self._planner.folder.set_aside(self._planner.checkpoint, action.why)
            case Pause():
                self._stopping.wait(action.seconds)
                self._events.append(PauseEnded())
            case RequestDecision():
                self.undecided = True
            case _:
                assert_never(action)

    def _planned(self) -> LifeEvent:
        try:
            with self._stall.phase("planning"):
                plan = self._plan = self._planner.plan()
        except HubError as error:
            if error.code not in (WAITS, WIDENS):
                raise
            return PlanBlocked(str(error))
        self._reports.begin(plan)
        standing = planned_standing(self._parts, self._name, self._planner, plan)
        return PlanMade(plan.generation, standing)

    def _plan_made(self) -> AnyPlan:
        assert self._plan is not None
        return self._plan

    def _started(self, action: StartQuery) -> LifeEvent:
        self._query = ViewQuery(
            self._parts,
            self._name,
            self._planner,
            self._reports,
            self._stall,
            self._plan_made(),
            action.mode,
        )
        if not self._query.start(whole=action.whole):
            self._query = None
            return SlotsTaken()
        return QueryStarted(running_standing(self._parts, self._name, self._planner))

    def _report_state(self, state: EngineState, reason: str | None) -> None:
        """Publish the view's state; that of an isolated version names why it is isolated."""
        if self._replaced:
            return
        entry = self._parts.isolation.entry
        if entry is not None:
            now = f"now {state}" + (f": {reason}" if reason else "")
            state, reason = "isolated", isolation_message(entry, now)
        if self.reported != (state, reason):
            self.reported, self._since_ms = (state, reason), epoch_ms()
        view = self._planner.view
        self._parts.progress.report_state(
            ViewState(
                self.table,
                state,
                self._since_ms,
                reason or self._planner.trouble,
                view.doc if view else "",
                view.owner if view else "",
                {name: source.topic for name, source in view.sources.items()} if view else {},
                view.ttl if view else None,
                self.group,
            )
        )
