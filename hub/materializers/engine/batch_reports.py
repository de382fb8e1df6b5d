"""[shell] Report the committed batches of a version as progress, once stores may rely on them.

Real-time mode writes rows as events arrive and logs their offsets only at its checkpoints. After a stop
between two checkpoints, the events since the last one are folded again, perhaps in another order among the
sources, and a store keeps the row that it already has of the same version. A position is therefore reported
only once it covers everything that may have been read before (``hold``). Until then a store may hold a row
that is ahead in one source and behind in another.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from hub.errors import HubError
from hub.materializers.engine.life_cycle import BULK_FROM
from hub.materializers.engine.parts import EngineParts
from hub.materializers.engine.plans.planner import AnyPlan, ViewPlanner
from hub.materializers.progress.records import Mode, Progress
from hub.materializers.spark import sql_stream
from hub.materializers.spark.checkpoints import committed_batches
from hub.materializers.spark.delta_stream import DeltaQuery
from hub.materializers.spark.pyspark_types import SparkSession, StreamingQuery
from hub.materializers.spark.sql_stream import SqlPlan, Swept
from hub.record import Positions, lag_records
from hub.times import epoch_ms

log = logging.getLogger(__name__)

# Interval between two writes of the note on how far a view's batches were swept.
_NOTE_S = 1.0


class BatchReports:
    """Progress of one version. ``closed``: its thread was replaced, and nothing more is reported."""

    def __init__(self, parts: EngineParts, table: str, planner: ViewPlanner) -> None:
        self._parts = parts
        self._table = table
        self._planner = planner
        self._required = Positions()  # no batch is reported until it covers these offsets
        self._last: dict[
            Path, committed_batches.CommittedBatch
        ] = {}  # by checkpoint, the last batch that was reported
        self._swept = Swept()
        self._sweeping: SparkSession | None = None  # created when there is something to sweep
        self._noted_at_s = 0.0
        self.closed = False

    def begin(self, plan: AnyPlan) -> None:
        """Prepare for the queries of a plan. Holds back progress when the state may be behind rows of
        real-time mode, until a batch covers all that was readable."""
        self._sweeping = None  # it has the functions of the plan before
        if isinstance(plan, SqlPlan):
            self._swept = sql_stream.swept(plan.checkpoint)
        behind = realtime_mark(plan).exists()
        self._required = self._parts.cluster.end_offsets(plan.topics) if behind else Positions()

    def enter_real_time(self, plan: AnyPlan) -> None:
        """Note that rows may be ahead of the checkpoint's state from now on."""
        if committed_batches.is_uncommitted(plan.checkpoint):
            # The uncommitted batch may have written rows and is not repeated unchanged.
            self._required = self._parts.cluster.end_offsets(plan.topics)
        realtime_mark(plan).touch()

    def count_unread(self, plan: AnyPlan) -> int:
        """Return how many events the plan's state has not read. Reports its last committed batch, because a
        crash may have prevented that.

        Raises HubError (HUB-3020) when retention has deleted events that it has not read.
        """
        cluster = self._parts.cluster
        committed = with_counts(
            committed_batches.committed_batch(plan.checkpoint), self._last.get(plan.checkpoint)
        )
        reached = committed.sources if committed else Positions()
        begin = cluster.beginning_offsets(plan.topics)
        check_retained(reached, begin)
        unread = lag_records(cluster.end_offsets(plan.topics), begin.advanced(reached))
        if committed is not None and not (isinstance(plan, SqlPlan) and plan.delta):
            # "live" also means that this generation has every key, so it is reported only when little is
            # unread.
            self.report(plan, committed, "bulk" if unread > BULK_FROM else "live")
        return unread

    def last_batch(
        self, plan: AnyPlan, query: StreamingQuery, reported: int
    ) -> committed_batches.CommittedBatch | None:
        """Return the last batch that the query has committed since batch ``reported``;
        None: there is none."""
        return with_counts(committed_batches.last_batch(query, reported), self._last.get(plan.checkpoint))

    def report_batch(
        self,
        plan: AnyPlan,
        batch: committed_batches.CommittedBatch,
        mode: Mode,
        query: StreamingQuery,
        delta: DeltaQuery | None,
    ) -> None:
        """Report a batch of a running query."""
        if mode == "realtime":
            parts = ", ".join(f"{part} {took}" for part, took in batch.parts.items())
            log.info("view %s: checkpoint %d, in ms: %s", self._table, batch.batch_id, parts)
        native = isinstance(plan, SqlPlan) and not plan.delta
        self.report(plan, batch, mode, delta, sql_stream.quiet_batches(query) if native else None)
        self._last = {plan.checkpoint: batch}

    def report(
        self,
        plan: AnyPlan,
        batch: committed_batches.CommittedBatch,
        mode: Mode,
        delta: DeltaQuery | None = None,
        quiet: set[int] | None = None,
    ) -> None:
        """Report a committed batch, unless progress is held back. ``quiet``: batches with nothing to
        sweep."""
        view = self._planner.view
        if self.closed or view is None or not batch.sources.covers(self._required):
            return
        mark = realtime_mark(plan)
        # Times that real-time mode logs are not read times, and it may also have begun the first batch after
        # it.
        timed = mode != "realtime" and not mark.exists()
        read_at_ms = committed_batches.logged_read_ms(plan.checkpoint, batch.batch_id) if timed else None
        if mode != "realtime":
            mark.unlink(missing_ok=True)
        if delta is not None:
            if not delta.computed:
                return  # its events are loaded, but the SQL has not run yet
            self._swept = Swept(dead=delta.left_out)
        elif isinstance(plan, SqlPlan):
            # Sweep before reporting progress: events that the view claims to cover must be in the view, its
            # DLQ or its late topic.
            self._sweep(plan, batch.batch_id, quiet or set())
        progress = Progress(
            self._table,
            plan.generation,
            batch.batch_id,
            mode,
            batch.sources,
            Positions(),
            batch.input_rows,
            batch.batch_ms,
            epoch_ms(),
            self._swept.dead,
            self._swept.late,
            read_at_ms=read_at_ms,
        )
        self._parts.progress.report(progress, view.changelog)

    def end(self, plan: AnyPlan) -> None:
        """Note how far the batches of a SQL query were swept, when it stops."""
        if isinstance(plan, SqlPlan) and plan.delta is None:
            sql_stream.keep(plan.checkpoint, self._swept)

    def _sweep(self, plan: SqlPlan, until: int, quiet: set[int]) -> None:
        before, session = self._swept, self._planner.session
        if self._sweeping is None and not quiet.issuperset(range(before.batch_id + 1, until + 1)):
            self._sweeping = sql_stream.sweeping(session, plan)
        self._swept = sql_stream.sweep(
            self._sweeping or session, plan, self._parts.settings, before, until, quiet
        )
        if time.monotonic() >= self._noted_at_s + _NOTE_S:
            self._noted_at_s = time.monotonic()
            sql_stream.keep(plan.checkpoint, self._swept)
        if self._swept.late > before.late or self._swept.dead > before.dead:
            log.warning(
                "view %s: %d events too late, %d not taken so far",
                plan.view.name,
                self._swept.late,
                self._swept.dead,
            )


def realtime_mark(plan: AnyPlan) -> Path:
    """Return the path of a file that exists while rows may be published that the checkpoint's state does not
    have yet."""
    return plan.checkpoint / "hub.realtime"


def with_counts(
    committed: committed_batches.CommittedBatch | None, reported: committed_batches.CommittedBatch | None
) -> committed_batches.CommittedBatch | None:
    """Return a batch with its event count and duration from ``reported``, if that is the same batch. Its
    files do not have them."""
    if committed is None or reported is None or committed.batch_id != reported.batch_id:
        return committed
    return reported if committed.sources == reported.sources else committed


def check_retained(reached: Positions, begin: Positions) -> None:
    """Raise HubError (HUB-3020) when retention has deleted events that a view has not read: continuing would
    lose them. ``begin``: first offsets of its topics now."""
    gone = [(tp, offset, begin.get(tp)) for tp, offset in sorted(reached) if begin.get(tp) > offset]
    if gone:
        stretches = ", ".join(
            f"{tp.topic} partition {tp.partition}: [{at}, {first})" for tp, at, first in gone[:5]
        )
        raise HubError(
            f"retention has taken offsets that the view has not read: {stretches}",
            hint="raise the topic's retention; to rebuild the view from the remaining events, remove its "
            "folder under checkpoints",
            code="HUB-3020",
        )
