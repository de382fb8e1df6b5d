"""[edge] pyspark: run a SQL view with the incremental engine. Spark's stream brings the batches, the delta
operator computes rows.

::

    topic ─ decode ─ judge ─┬─ a table's key, deleted?, order ─┐
    topic ─ …               │                                  ├─ one batch, gathered ─ DeltaRun.step ─ changelog
                            └─ what cannot be taken ───────────┘                    └─▶ <topic>.dlq

A batch is collected once, in bounded size (``delta_events_per_batch``). While the view is far behind, batches
only load the operator's tables, and the SQL runs once when everything is loaded. Such batches are not
reported: the view covers their events only when it has rows of them.

A view's changelog that is read as a table follows the rules of stores: a row counts if its ``hub.version`` is
not lower than that of the existing row. When a generation has gone live, rows of earlier ones are removed
without a record of their own (``DeltaQuery.expire``).
"""  # noqa: E501

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from hub.config import Settings
from hub.errors import PeerError
from hub.log import Writer
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning import delta_inputs
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import DeltaPlan
from hub.materializers.progress.records import Mode, Progress
from hub.materializers.spark import delta_engine
from hub.materializers.spark.checkpoints.committed_batches import logged_offsets
from hub.materializers.spark.dataframes import GENERATION_SHIFT
from hub.materializers.spark.delta.catalog import SparkCatalog, prepare
from hub.materializers.spark.delta.catalog import row_schema as delta_row_schema
from hub.materializers.spark.delta.change_rows import as_changes, change_records, stored_value
from hub.materializers.spark.delta.emitted import Emitted, emit
from hub.materializers.spark.delta.inputs import DELETED, ORDER
from hub.materializers.spark.delta.stage_query import loose
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.spark.delta_engine import DeltaRun
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, taken_by
from hub.materializers.spark.kafka_source import NO_EVENTS, stream
from hub.materializers.spark.python_udfs import register
from hub.materializers.spark.session_settings import code_settings
from hub.materializers.spark.sql_rows import BYTES, EVENTS, WHY, typed
from hub.materializers.spark.sql_stream import SqlPlan, refused
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions, lag_records

log = logging.getLogger(__name__)

_DEAD = "_dead"
_FOLDER = "delta"
# The first foreachBatch of a process opens the port on which Spark calls Python, and pyspark does not check
# that another thread is doing the same. A query that starts in between would be called on a port where
# nothing listens.
_FIRST = threading.Lock()
# Errors after which state and checkpoint cannot be used: the view is recomputed.
LOST = ("HUB-5021", "HUB-5022")


def planned(
    session: SparkSession, view: SqlView, classified: Classified, inputs: Sequence[Input]
) -> tuple[DeltaPlan, AvroType]:
    """Return (how the view is maintained, its rows' Avro schema), with its inputs as Spark types them. Runs
    nothing.

    Raises ConfigError for a view that cannot be maintained (HUB-2130 … HUB-2134) or that Spark refuses
    (HUB-2105).
    """
    empty = register(session.newSession(), view).createDataFrame([], EVENTS)
    frames = {}
    for given in inputs:
        frames[given.source.name] = typed(empty, given, view.sources[given.source.name], SchemaAnswers())
    types = {
        name: {each.name: each.dataType.simpleString() for each in frame.schema.fields}
        for name, frame in frames.items()
    }
    tables = delta_inputs.tables(classified.query, types)
    catalog = SparkCatalog(session, tables, view)
    made = prepare(
        session,
        view.sql,
        tables,
        classified.key,
        view=delta_inputs.stage_name(classified.query),
        whole_rows=view.whole_rows,
        catalog=catalog,
    )
    for table in tables:
        source = view.sources[table.name]
        try:
            as_changes(frames[table.name], source, table).schema  # noqa: B018 - makes Spark analyze it
        except PySparkException as error:
            raise refused(view, error) from None
    return made, delta_row_schema(session, made, view.name, catalog=catalog)


@dataclass
class DeltaQuery:
    """A running query and its operator.

    ``take`` runs in Spark's thread; ``expire``, ``finish`` and ``close`` run in the view's thread.
    """

    plan: SqlPlan
    run: DeltaRun
    writer: Writer
    # The bulk load is complete when a batch covers this; None: the query does not load.
    loads_until: Positions | None
    query: StreamingQuery = field(init=False)
    failure: BaseException | None = None
    # After the last batch: ``computed``, the SQL has run, so its batches may be reported; ``left_out``,
    # number of events refused since the generation began.
    computed: bool = False
    left_out: int = 0
    expired: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def take(self, rows: DataFrame, batch_id: int) -> None:
        """Process a batch, for ``foreachBatch``. Keeps an error in ``failure``, because Spark passes on only
        its text."""
        try:
            with self.lock:
                self._take(rows, batch_id)
        except BaseException as error:
            self.failure = error
            raise

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        if self.closed:
            raise PeerError(f'view "{self.plan.view.name}": stopped')
        if batch_id == self.run.state.committed()[0]:
            self._emit(self.run.step(batch_id, {}))
            return
        found = rows.toArrow()
        dead = change_records(found.column(_DEAD), self.plan.view)
        if dead:
            self.writer.append(dead)
            log.warning("view %s: %d events of batch %d not taken", self.plan.view.name, len(dead), batch_id)
        reached, _ = logged_offsets(self.plan.checkpoint, batch_id)
        load = self.loads_until is not None and not reached.covers(self.loads_until)
        changes = delta_engine.split(self.run, found)
        self._emit(self.run.step(batch_id, changes, str(reached), load=load, left_out=len(dead)))

    def _emit(self, emitted: Emitted) -> None:
        emit(emitted, self.writer, self.plan.view.changelog)
        self._note()

    def _note(self) -> None:
        self.computed, self.left_out = self.run.computed, self.run.state.left_out()

    def _settle(self, below: Mapping[str, int]) -> None:
        self._emit(self.run.settle(below))
        self.run.state.sent()

    def resume(self) -> None:
        """Emit output that a crash may have kept from the log and that no batch will request."""
        with self.lock:
            if self.run.state.unsent():
                self._emit(self.run.last())
                self.run.state.sent()
            self._note()

    def finish(self) -> None:
        """Complete a load: run the SQL if no batch has run it."""
        with self.lock:
            if not self.closed and not self.run.computed:
                self._settle({})

    def expire(self, live: Mapping[str, Progress]) -> None:
        """Delete rows of generations before those that went live, for views whose live generation was read
        completely.

        ``live``: live progress by view. Does nothing while a batch is running; it is called repeatedly.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.closed or not self.run.computed:
                return
            reached = Positions.parse(self.run.state.committed()[2])
            below = {}
            for table in self.run.plan.tables:
                reported = live.get(self.plan.view.sources[table.name].view or "")
                if (
                    not table.versioned
                    or reported is None
                    or reported.generation <= self.expired.get(table.name, 0)
                ):
                    continue
                if reached.covers(reported.changelog):
                    below[table.name] = reported.generation << GENERATION_SHIFT
            if any(self.run.has_below(name, version) for name, version in below.items()):
                self._settle(below)
            self.expired |= {name: version >> GENERATION_SHIFT for name, version in below.items()}
        finally:
            self.lock.release()

    def close(self) -> None:
        """Close state and writer. Call it after the query was stopped."""
        with self.lock:
            self.closed = True
            self.run.state.close()
            self.writer.close()


def start(
    session: SparkSession,
    plan: SqlPlan,
    settings: Settings,
    mode: Mode,
    writer: Writer,
    begins: Positions,
    ends: Positions,
) -> DeltaQuery:
    """Start the view's query. ``bulk`` reads what exists, at least up to ``ends``, and ends by itself;
    ``live`` continues.

    ``begins``: the first offsets that retention has left.

    Raises ConfigError when Spark refuses it, HubFault (LOST) when its state cannot be used.
    """
    assert plan.delta is not None
    own = register(session.newSession(), plan.view)
    for key, value in code_settings(mode).items():
        own.conf.set(key, value)
    state = DeltaState(
        plan.checkpoint / _FOLDER, delta_inputs.fingerprint(plan.delta), settings.delta_memory_mb
    )
    try:
        run = DeltaRun(
            session,
            plan.delta,
            state,
            plan.generation,
            schema=plan.row_schema,
            schema_id=plan.row_schema_id,
            functions=plan.view,
        )
        delta = DeltaQuery(plan, run, writer, ends if mode == "bulk" else None)
        delta.resume()
        read = begins.advanced(Positions.parse(state.committed()[2]))
        each = _shares(plan, settings, mode, read, ends)
        frames = [
            _gathered(run, _events(own, plan, settings, mode, given, each[given.source.name]), plan, given)
            for given in plan.inputs
        ]
        union = functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        delta.query = _written(union, delta, settings, mode)
    except AnalysisException as error:
        state.close()
        raise refused(plan.view, error) from None
    except BaseException:
        state.close()
        raise
    return delta


def _written(union: DataFrame, delta: DeltaQuery, settings: Settings, mode: Mode) -> StreamingQuery:
    """Start the query that gives each batch of the union to ``delta``."""
    plan = delta.plan
    writing = loose(union).writeStream.queryName(plan.view.table)
    with _FIRST:
        writing = writing.foreachBatch(delta.take)
    writing = writing.option("checkpointLocation", str(plan.checkpoint))
    if mode == "bulk":
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def _shares(
    plan: SqlPlan, settings: Settings, mode: Mode, read: Positions, ends: Positions
) -> Mapping[str, int]:
    """Return the most events of each source in a batch: in bulk, in proportion to those that are unread."""
    unread = {
        given.source.name: lag_records(
            Positions.of((*tp, end) for tp, end in ends if tp.topic in given.topics), read
        )
        for given in plan.inputs
    }
    if mode == "bulk":
        return delta_inputs.shares(
            min(settings.bulk_events_per_batch, settings.delta_events_per_batch), unread
        )
    most = min(settings.live_events_per_batch, settings.delta_events_per_batch)
    if most == NO_EVENTS:
        return dict.fromkeys(unread, NO_EVENTS)
    return delta_inputs.shares(most, dict.fromkeys(unread, 1))


def _events(
    session: SparkSession, plan: SqlPlan, settings: Settings, mode: Mode, given: Input, most: int
) -> DataFrame:
    source = plan.source(given)
    events = (
        stream(session, settings, given.topics)
        .option("maxOffsetsPerTrigger", str(most))
        .load()
        # The cost of a small batch is its number of tasks, and each input has tasks of its own.
        .coalesce(settings.bulk_tasks if mode == "bulk" else 1)
    )
    return typed(taken_by(events, plan.view.name), given, source, plan.answered)


def _gathered(run: DeltaRun, events: DataFrame, plan: SqlPlan, given: Input) -> DataFrame:
    """Return a source's part of the batch: ``i_<source>``, a change, or ``_dead``, an event that cannot be
    accepted."""
    name = given.source.name
    table = next((each for each in run.plan.tables if each.name == name), None)
    taken = F.col(WHY).isNull()
    if table is None:  # declared, but no part of the SQL that makes rows reads it
        taken, changes = F.lit(False), events
    else:
        changes = run.with_derived(name, as_changes(events, plan.source(given), table, len(given.topics) > 1))
        if table.kind == "stream":  # tombstones mean a deletion, and a stream does not retract rows
            changes = changes.where(~F.col(WHY).isNull() | ~F.col(DELETED))
    kept = [] if table is None else [*stored_value(table), *run.derived(name), DELETED, ORDER]
    at = F.unix_millis("_timestamp").alias("_at_ms")
    dead = F.struct("_topic", "_partition", "_offset", at, *BYTES, WHY)
    return changes.select(
        *([F.when(taken, F.struct(*kept)).alias(f"i_{name}")] if kept else []),
        F.when(F.col(WHY).isNotNull(), dead).alias(_DEAD),
    )
