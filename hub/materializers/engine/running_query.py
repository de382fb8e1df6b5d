"""[shell] One streaming query of a version: start it, watch it, stop it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Event

from hub.config import Settings
from hub.errors import HubError
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.load import view_files
from hub.materializers.engine.batch_reports import BatchReports, realtime_mark
from hub.materializers.engine.file_watch import CommitWatch
from hub.materializers.engine.life_cycle import BULK_FROM, warms_up
from hub.materializers.engine.life_events import (
    BatchCommitted,
    LifeEvent,
    PlanChecked,
    QueryEnded,
    Standing,
    ViewLife,
    WarmUpEnded,
)
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.planner import AnyPlan, ViewPlanner
from hub.materializers.engine.stall_watch import StallWatch
from hub.materializers.progress.records import Mode, Progress
from hub.materializers.snapshot_groups.members import Member
from hub.materializers.source_transactions.cuts import TransactionCuts
from hub.materializers.source_transactions.decoding import ValueDecoder
from hub.materializers.spark import delta_stream, sql_stream
from hub.materializers.spark import session as spark
from hub.materializers.spark.checkpoints import committed_batches
from hub.materializers.spark.delta_stream import DeltaQuery
from hub.materializers.spark.kafka_source import NO_EVENTS
from hub.materializers.spark.pyspark_types import PySparkException, StreamingQuery
from hub.materializers.spark.read_ends import SparkReadEnds
from hub.materializers.spark.sql_stream import SqlPlan
from hub.record import Positions, lag_records

_POLL_S = 0.03
# Shorter than _POLL_S: the other members of a snapshot group wait for this view's report.
_POLL_IN_STEP_S = 0.01
_STALE_CHECK_S = 2.0
# Factor of the trigger interval in milliseconds per view of the project: all views together poll Kafka at
# most a hundred times a second.
_MS_A_VIEW = 10


def paced(settings: Settings, views: int) -> Settings:
    """Return settings with a trigger interval that suits ``views`` views.

    Every view polls Kafka all the time. Together they poll at most a hundred times a second; otherwise some
    dozens of idle views would keep all cores busy.
    """
    return settings.model_copy(update={"trigger_ms": max(settings.trigger_ms, _MS_A_VIEW * views)})


class ViewQuery:
    """A query of one plan in one mode. ``stop`` it also when ``start`` failed.

    ``member``: its membership in a snapshot group; ``unheld``: why its query cannot be held. ``causes``: what
    Spark names as causes when it failed. ``has_committed``: the last ``poll`` found a committed batch.
    """

    def __init__(
        self,
        parts: EngineParts,
        name: VersionName,
        planner: ViewPlanner,
        reports: BatchReports,
        stall: StallWatch,
        plan: AnyPlan,
        mode: Mode,
    ) -> None:
        self._parts = parts
        self._name = name
        self._planner = planner
        self._reports = reports
        self._stall = stall
        self._plan = plan
        self._mode = mode
        self._query: StreamingQuery | None = None
        self._delta: DeltaQuery | None = None
        self._closing = ExitStack()
        self._reported = -1
        self._due = CommitWatch(plan.checkpoint / "commits").due
        self._check_at_s = self._warm_at_s = 0.0
        # Ends at the start, while a view that reads in steps of whole transactions has missed much.
        self._missed: Positions | None = None
        self.member: Member | None = None
        self.unheld: str | None = None
        self.causes = ""
        self.has_committed = False

    # ---- start and stop

    def start(self, *, whole: bool = False) -> bool:
        """Start the query. Return False if another version uses the view's task slots.

        ``whole``: read everything in one bulk batch.
        """
        slots, view, table = self._parts.slots, self._name.view, self._name.table
        if self._mode == "realtime":
            if not (self._planner.has_slots and slots.enter(view, table)):
                return False
            self._closing.callback(slots.leave, view, table)
            self._reports.enter_real_time(self._plan)
        with self._stall.phase("planning"):
            query = self._query = self.start_streaming(whole=whole)
        self._closing.callback(self._reports.end, self._plan)
        if self._delta is not None:
            self._closing.callback(self._delta.close)
        self._closing.enter_context(self._stall.phase("running"))
        self._closing.callback(query.stop)
        self._closing.callback(self._leave)  # before the view's next query starts
        if self._mode == "live" and self._planner.label is not None:
            if self._planner.cut_rules is not None:
                self._missed = self._parts.cluster.end_offsets(self._plan.topics)
            self._join(query)
        committed = (
            committed_batches.committed_batch(self._plan.checkpoint) if self._delta is not None else None
        )
        if self._delta is not None and self._delta.computed and committed is not None:
            # a crash may have prevented the report
            self._reports.report(self._plan, committed, self._mode, self._delta)
        self._stall.query_started(self._mode, delta=self._delta is not None)
        now_s = time.monotonic()
        self._check_at_s = now_s + _STALE_CHECK_S
        self._warm_at_s = now_s + self._parts.settings.realtime_warm_up_s
        return True

    def stop(self) -> None:
        """Leave the snapshot group, stop the query, and leave the task slots."""
        self._closing.close()

    def start_streaming(self, *, whole: bool) -> StreamingQuery:
        """Start Spark's query."""
        plan, session, mode = self._plan, self._planner.session, self._mode
        committed_batches.forget_state_of_no_batch(plan.checkpoint, mode)
        settings = paced(self._parts.settings, len(view_files(self._parts.settings.project)))
        if self._planner.cut_rules is not None:
            settings = settings.model_copy(update={"live_events_per_batch": NO_EVENTS})
        if not isinstance(plan, SqlPlan):
            return spark.start(session, plan, settings, mode)
        if plan.delta is None:
            return sql_stream.start(session, plan, settings, mode, whole=whole)
        cluster = self._parts.cluster
        changelogs = {table: changelog_of(table) for table in self._planner.read_versions().values()}
        self._parts.progress.load_live(changelogs, settings.kafka_timeout_s)
        begins, ends = cluster.beginning_offsets(plan.topics), cluster.end_offsets(plan.topics)
        writer = cluster.writer()
        try:
            delta = delta_stream.start(session, plan, settings, mode, writer, begins, ends)
        except BaseException:
            writer.close()
            raise
        self._delta = delta
        return delta.query

    def _join(self, query: StreamingQuery) -> None:
        """Join the view's snapshot group: let it control how far this query reads."""
        plan, view = self._plan, self._planner.view
        assert view is not None
        committed = committed_batches.committed_batch(plan.checkpoint)
        places = self._places()
        try:
            ends = SparkReadEnds(self._planner.session, query, plan.checkpoint, whole=places is not None)
        except HubError as error:
            self.unheld = str(error)
            return
        reached = committed.sources if committed is not None else Positions()
        views = tuple(changelog_of(table) for table in self._planner.read_versions().values())
        self.member = Member(
            self._name.table,
            plan.generation,
            tuple(plan.topics),
            view.changelog,
            ends,
            reached,
            views=views,
            places=places,
        )

    def _places(self) -> TransactionCuts | None:
        """Return the places that divide no source transaction, for a view that stops at no others."""
        rules = self._planner.cut_rules
        if rules is None:
            return None
        parts = self._parts
        return TransactionCuts(parts.cluster, ValueDecoder(parts.registry), self._plan.checkpoint, rules)

    def _leave(self) -> None:
        if self.member is not None:
            self.member.open = False
            self.member = None

    # ---- watch

    def poll(self, life: ViewLife, stopping: Event) -> Sequence[LifeEvent]:
        """Wait briefly and return what has happened since. Raises what the query failed with."""
        assert self._query is not None
        self.has_committed = False
        stopping.wait(_POLL_S if self.member is None else _POLL_IN_STEP_S)
        now_s = time.monotonic()
        events: list[LifeEvent] = []
        if self._due(self._reported, now_s):
            if not self._query.isActive:
                self._end(self._query)
                return [*([BatchCommitted()] if self.has_committed else []), QueryEnded()]
            if self._report(self._query):
                events.append(BatchCommitted())
        if stopping.is_set():
            return events
        if now_s >= self._warm_at_s:
            self._warm_at_s = math.inf
            standing = running_standing(self._parts, self._name, self._planner)
            if warms_up(life, standing):
                events.append(WarmUpEnded(standing))
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + _STALE_CHECK_S
            standing = running_standing(self._parts, self._name, self._planner)
            events.append(PlanChecked(standing, self._is_stale(self._query, now_s)))
        return events

    def _report(self, query: StreamingQuery) -> bool:
        """Report the last batch. Return False if no batch is new."""
        batch = self._reports.last_batch(self._plan, query, self._reported)
        if batch is None:
            return False
        if self.member is not None:
            self.member.reached = batch.sources
        if self._missed is not None and lag_records(self._missed, batch.sources) <= BULK_FROM:
            self._missed = None
        mode: Mode = self._mode if self._missed is None else "bulk"
        self._reports.report_batch(self._plan, batch, mode, query, self._delta)
        self._reported = batch.batch_id
        self.has_committed = True
        return True

    def _is_stale(self, query: StreamingQuery, now_s: float) -> bool:
        """Look after the query, and return True if its plan is stale."""
        self._stall.look_at_batch(lambda: spark.life(self._planner.session, query), now_s)
        if self._delta is not None:
            self._delta.expire(self._source_progress())
        stale = self._planner.is_stale(self._plan)
        if stale is None:
            self._stall.moved()  # waiting for Kafka is not a stall
        return bool(stale)

    def _source_progress(self) -> dict[str, Progress]:
        """Return the latest live progress of the views that this one reads, by view name. It was reported by
        this process or by the version's own process."""
        progress, reported = self._parts.progress, self._parts.versions.reported
        found = {
            name: progress.live_of(table, reported.get(table))
            for name, table in self._planner.read_versions().items()
        }
        return {name: each for name, each in found.items() if each is not None}

    def _end(self, query: StreamingQuery) -> None:
        """Report the last batch of a query that has ended. Raises the query's failure."""
        failure = (self._delta.failure if self._delta is not None else None) or query.exception()
        if failure is None and self._delta is not None:
            self._delta.finish()
        self._report(query)
        if failure is not None:
            self.causes = spark.causes(query)
            refused = isinstance(failure, PySparkException) and spark.refusal(self._name.view, failure)
            raise refused or failure


def running_standing(parts: EngineParts, name: VersionName, planner: ViewPlanner) -> Standing:
    """Return what decides about the mode of a running version."""
    return Standing(
        realtime=planner.view is not None and planner.view.mode == "realtime",
        served=planner.served,
        slots_free=parts.slots.open_to(name.view, name.table),
    )


def planned_standing(parts: EngineParts, name: VersionName, planner: ViewPlanner, plan: AnyPlan) -> Standing:
    """Return what decides about the next query of a plan."""
    running = running_standing(parts, name, planner)
    return Standing(
        running.realtime,
        running.served,
        running.slots_free,
        in_steps=planner.cut_rules is not None,
        late=isinstance(plan, SqlPlan) and bool(plan.classified.late),
        uncommitted=committed_batches.is_uncommitted(plan.checkpoint),
        ahead=realtime_mark(plan).exists(),
        allowed=parts.isolation.allows(name.table),
    )
