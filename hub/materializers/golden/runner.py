"""[edge] pyspark: run a case of a golden test through the view's own plan, without Kafka.

The plan is the one of production: the same decoding of Avro bytes, the same fold, the same SQL. Entity views
fold the case's events at once. Native SQL views run as streams, one micro-batch per batch of the case, so
that watermarks move as on a hub. Views of the incremental engine run their SQL over the final state of the
tables, which the incremental engine's result must equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hub.errors import ConfigError, NotFound, PeerError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_plan import EntityPlan
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import VERSION, SqlSource, SqlView
from hub.materializers.golden.cases import Case, CaseEvent, CaseOutcome, as_json, events_of
from hub.materializers.golden.frames import (
    EVENTS,
    CaseInput,
    count_late,
    dead_events,
    event_number,
    key_and_row,
    outcome_of,
    row_json,
    whole_row,
    write_batches,
)
from hub.materializers.golden.values import Encode, encoder_of
from hub.materializers.planning import exact_numbers
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.classify import classify
from hub.materializers.planning.validation import Built
from hub.materializers.spark import dataframes, delta_stream, sql_rows, sql_stream
from hub.materializers.spark import session as spark
from hub.materializers.spark.dataframes import VERSION_HEADER
from hub.materializers.spark.delta.change_rows import as_changes, standing
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, WriterSchema, decode
from hub.materializers.spark.python_udfs import failure, register
from hub.materializers.spark.session_settings import code_settings
from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.cdc import wire_schema
from hub.record import Positions
from hub.schema_registry.codecs.misfit import Unfit

UNKNOWN_SOURCE = "HUB-2147"
_MOST_S = 120
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class PreparedView:
    """A view that is ready for its cases: its sources with their schemas, and its compiled plan."""

    view: View | SqlView
    inputs: tuple[Input, ...]
    how: EntityPlan | Classified
    row_schema: AvroType
    encoders: Mapping[str, Encode]


class GoldenRunner:
    """Runs cases in Spark sessions of its own.

    ``schemas``: by view and source, the parsed schema of its topic's events. ``folder``: files that streams
    need on disk. ``built`` returns a PySpark view with its SQL; None: there are no such views.
    """

    def __init__(
        self,
        session: SparkSession,
        views: Mapping[str, View | SqlView],
        schemas: Mapping[str, Mapping[str, AvroType]],
        folder: Path,
        built: Built | None = None,
    ) -> None:
        self._session = session.newSession()
        for name, value in _settings().items():
            self._session.conf.set(name, value)
        self._views, self._schemas, self._folder = views, schemas, folder
        self._built = built
        self._made: dict[str, PreparedView] = {}
        self._sessions: dict[str, SparkSession] = {}

    def analyze(self, view: str) -> AvroType:
        """Return the schema of the view's rows as Spark's analyzer types them. Runs nothing.

        Raises ConfigError for a view that Spark refuses, NotFound (UNKNOWN_SOURCE) if a source's schema is
        unknown.
        """
        return self._ready(view, ()).row_schema

    def run(self, view: str, case: Case) -> CaseOutcome:
        """Return what the view makes of the case's events.

        Raises ConfigError for an invalid view or event, PeerError when Spark does not finish within
        ``_MOST_S``.
        """
        plan = self._ready(view, ())
        topics = {
            name: source.topic for name, source in plan.view.all_sources.items() if "*" not in source.topic
        }
        events = events_of(case, topics)
        made = replace(plan, inputs=_with_topics(plan.inputs, events))
        records = [self._record(made, event) for event in events]
        answered = SchemaAnswers(
            frozenset(writer.schema_id for each in made.inputs for writer in each.writers),
            Positions.of((event.topic, event.partition, event.offset + 1) for event in events),
        )
        try:
            if isinstance(made.how, EntityPlan):
                return self._entity(made, made.how, events, records, answered)
            return self._sql(made, made.how, events, records, answered)
        except PySparkException as error:
            failed = failure(str(error), view)
            if failed is not None:
                raise failed from None
            message = str(error).strip().split("\n")[0]
            raise ConfigError(f'view "{view}": Spark refuses it: {message[:500]}', code="HUB-2105") from None

    # ---- plan

    def _ready(self, name: str, readers: tuple[str, ...]) -> PreparedView:
        """Return the view's plan, made once. ``readers``: the chain of views that read this one."""
        if name not in self._made:
            if name in readers:
                raise ConfigError(f'view "{name}" reads itself: {" -> ".join((*readers, name))}')
            self._made[name] = self._make(self._views[name], (*readers, name))
        return self._made[name]

    def _make(self, view: View | SqlView, readers: tuple[str, ...]) -> PreparedView:
        sources = view.all_sources
        latest = {name: self._schema(view, name, readers) for name in sources}
        numbered = {
            name: (WriterSchema(number, wire_schema(latest[name])),) if sources[name].declared is None else ()
            for number, name in enumerate(sources, 1)
        }
        encoders = {name: encoder_of(wire_schema(schema)) for name, schema in latest.items()}
        if isinstance(view, View):
            compiled = shape(view, latest)
            inputs = tuple(
                Input(each, (each.topic,), numbered[each.name], latest[each.name])
                for each in (*compiled.sources, *(() if compiled.expiry is None else (compiled.expiry,)))
            )
            schema = spark.row_schema(self._own(view), compiled, inputs)
            return PreparedView(view, inputs, compiled, schema, encoders)
        if self._built is not None:
            view = self._built(view, latest)
        query = checked(view, latest)
        found = exact_numbers.of_classified(classify(query))
        inputs = sql_stream.inputs_of(
            query,
            {name: ((view.sources[name].topic,), numbered[name], latest[name]) for name in view.sources},
        )
        if found.native:
            schema = sql_stream.row_schema(self._session, view, found, inputs)
        else:
            _, schema = delta_stream.planned(self._session, view, found, inputs)
        return PreparedView(view, inputs, found, schema, encoders)

    def _own(self, view: View | SqlView) -> SparkSession:
        """Return a session that knows the view's Python functions; the shared one if it has none."""
        if view.transforms is None:
            return self._session
        if view.name not in self._sessions:
            own = register(self._session.newSession(), view)
            for name, value in _settings().items():
                own.conf.set(name, value)
            self._sessions[view.name] = own
        return self._sessions[view.name]

    def _schema(self, view: View | SqlView, name: str, readers: tuple[str, ...]) -> AvroType:
        source = view.all_sources[name]
        if source.declared is not None:
            return source.declared
        other = source.view if isinstance(source, SqlSource) else None
        if other is not None and other in self._views:
            return self._ready(other, readers).row_schema
        found = self._schemas[view.name].get(name)
        if found is None:
            raise NotFound(
                f'view "{view.name}": source "{name}": topics.yaml names no schema for "{source.topic}"',
                hint="schema: schemas/orders.avsc at the topic; a test encodes its events with it",
                code=UNKNOWN_SOURCE,
            )
        return found

    def _record(self, made: PreparedView, event: CaseEvent) -> tuple[Any, ...]:
        """Return the event as Spark's Kafka source would give it."""
        sources = made.view.all_sources
        given, number = event.given, list(sources).index(event.source) + 1
        headers = None
        source = sources[event.source]
        of_view = isinstance(source, SqlSource) and source.view is not None
        if of_view:
            headers = [(VERSION_HEADER, str(event.number).encode())]
        if (whole := given.whole) is not None:
            value: bytes | None = whole
        elif given.value is None:
            value = None
        else:
            value_json = as_json(given.value)
            if of_view:
                value_json = whole_row(value_json, made.inputs[number - 1].latest, event.number)
            try:
                value = made.encoders[event.source](value_json)
                if source.declared is None:
                    value = WriterSchema(number, None).head + value
            except Unfit as unfit:
                raise ConfigError(
                    f"event {event.number}: {unfit}", hint=unfit.hint, code="HUB-2146"
                ) from None
        return (event.topic, event.partition, event.offset, event.at, event.key, value, headers)

    # ---- run

    def _entity(
        self,
        made: PreparedView,
        how: EntityPlan,
        events: Sequence[CaseEvent],
        records: Sequence[Any],
        answered: SchemaAnswers,
    ) -> CaseOutcome:
        frame = self._own(made.view).createDataFrame(records, EVENTS)
        rows = dataframes.rows(dataframes.fold(decode(frame, made.inputs, answered), how), how)
        columns = tuple(name for name, _ in how.outputs)
        bad = F.col("_bad")
        found = rows.select(
            "_key",
            "_row_deleted",
            row_json(columns).alias("_row"),
            bad.isNotNull().alias("_is_bad"),
            *(bad[name].alias(name) for name in ("_topic", "_partition", "_offset")),
            bad["reason"].alias("_reason"),
        ).collect()
        live = {row["_key"]: row["_row"] for row in found if not row["_is_bad"] and not row["_row_deleted"]}
        dead = [(event_number(events, row), row["_reason"]) for row in found if row["_is_bad"]]
        return outcome_of(columns, live, dead)

    def _sql(
        self,
        made: PreparedView,
        how: Classified,
        events: Sequence[CaseEvent],
        records: Sequence[Any],
        answered: SchemaAnswers,
    ) -> CaseOutcome:
        view = made.view
        assert isinstance(view, SqlView)
        own = register(self._session.newSession(), view)
        own.conf.set("spark.sql.shuffle.partitions", "1")
        pairs = list(zip(events, records, strict=True))
        inputs = [
            CaseInput(own, given, view.sources[given.source.name], answered, pairs) for given in made.inputs
        ]
        if how.native:
            return self._stream(own, view, how, inputs, events)
        return self._tables(own, view, how, inputs, events)

    def _stream(
        self,
        own: SparkSession,
        view: SqlView,
        how: Classified,
        inputs: Sequence[CaseInput],
        events: Sequence[CaseEvent],
    ) -> CaseOutcome:
        """Run the view's SQL as a stream, one micro-batch per batch of the case."""
        own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(how.has_state).lower())
        name = f"golden_{next(_names)}"
        folder = self._folder / name
        batches = 1 + max(event.batch for event in events)
        for given in inputs:
            if given.source.read_as == "static":
                latest = sql_rows.latest_rows(given.frame, given.input, given.source, given.answered)
                latest.createOrReplaceTempView(given.name)
                continue
            write_batches(folder / given.name, given.by_batch(batches))
            stream = own.readStream.schema(EVENTS).option("maxFilesPerTrigger", "1")
            rows = sql_rows.taken(given.typed(stream.parquet(str(folder / given.name))))
            if (watermark := how.watermark(given.name)) is not None:
                rows = rows.withWatermark(*watermark)
            rows.createOrReplaceTempView(given.name)
        frame = own.sql(how.sql)
        columns = tuple(how.query.columns)
        out = frame.select(*key_and_row(frame, how), F.col(VERSION).alias("_order"))
        query = (
            out.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .outputMode(how.mode or "append")
            .trigger(availableNow=True)
            .start()
        )
        try:
            if not query.awaitTermination(_MOST_S):
                raise PeerError(f'view "{view.name}": its query did not end within {_MOST_S} s')
        finally:
            query.stop()
        newest: dict[str, tuple[int, str]] = {}
        for row in own.table(name).collect():
            if row["_order"] >= newest.get(row["_key"], (row["_order"], ""))[0]:
                newest[row["_key"]] = (row["_order"], row["_row"])
        typed = {given.name: given.typed(given.frame) for given in inputs}
        late = count_late(view, how, typed, events, folder / "checkpoint", batches)
        return outcome_of(
            columns, {key: row for key, (_, row) in newest.items()}, dead_events(typed, events), late
        )

    def _tables(
        self,
        own: SparkSession,
        view: SqlView,
        how: Classified,
        inputs: Sequence[CaseInput],
        events: Sequence[CaseEvent],
    ) -> CaseOutcome:
        """Run the SQL of a view of the incremental engine over the final state of its tables."""
        plan, _ = delta_stream.planned(own, view, how, tuple(given.input for given in inputs))
        tables = {table.name: table for table in plan.tables}
        typed: dict[str, DataFrame] = {}
        for given in inputs:
            typed[given.name] = given.typed(given.frame)
            if given.name in tables:
                table, many_topics = tables[given.name], len(given.input.topics) > 1
                typed[given.name] = as_changes(typed[given.name], given.source, table, many_topics)
                standing(typed[given.name], table).createOrReplaceTempView(given.name)
        frame = own.sql(exact_numbers.exact(view.sql))
        found = frame.select(*key_and_row(frame, how)).collect()
        rows = {row["_key"]: row["_row"] for row in found}
        return outcome_of(tuple(how.query.columns), rows, dead_events(typed, events))


def _settings() -> Mapping[str, str]:
    return {**code_settings("live"), "spark.sql.shuffle.partitions": "1"}


def _with_topics(inputs: Iterable[Input], events: Iterable[CaseEvent]) -> tuple[Input, ...]:
    """Return the inputs with the topics of the case's events, for sources that read a pattern."""
    topics: dict[str, set[str]] = {}
    for event in events:
        topics.setdefault(event.source, set()).add(event.topic)
    return tuple(
        replace(each, topics=tuple(sorted(topics.get(each.source.name, {each.source.topic}))))
        for each in inputs
    )
