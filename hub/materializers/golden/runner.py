"""[edge] pyspark: run a case of a golden test through the view's own plan, without Kafka.

The plan is the one of production: the same decoding of Avro bytes, the same fold, the same SQL. Entity views
fold the case's events at once. Native SQL views run as streams, one micro-batch per batch of the case, so
that watermarks move as on a hub. Views of the incremental engine run their SQL over the final state of the
tables, which the delta operator's result must equal.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow
import pyarrow.parquet
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from hub.errors import ConfigError, HubError, NotFound, PeerError
from hub.materializers.definition.entity_plan import EntityPlan, shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import VERSION, SqlSource, SqlView, checked
from hub.materializers.golden.cases import Case, CaseEvent, Outcome, as_json, events_of
from hub.materializers.golden.values import Encode, encoder_of
from hub.materializers.planning import exact_sums
from hub.materializers.planning.classify import Classified, classify
from hub.materializers.spark import dataframes, delta_stream, sql_stream
from hub.materializers.spark import session as spark
from hub.materializers.spark.dataframes import VERSION_HEADER, Input, SchemaAnswers, WriterSchema
from hub.materializers.spark.python_udfs import failure, register
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions
from hub.schema_registry.codecs.misfit import Unfit

_EVENTS = f"{sql_stream.EVENTS}, headers array<struct<key:string,value:binary>>"
_STORED = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ]
)
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSX"}
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
    need on disk.
    """

    def __init__(
        self,
        session: SparkSession,
        views: Mapping[str, View | SqlView],
        schemas: Mapping[str, Mapping[str, AvroType]],
        folder: Path,
    ) -> None:
        self._session = session.newSession()
        for name, value in _settings().items():
            self._session.conf.set(name, value)
        self._views, self._schemas, self._folder = views, schemas, folder
        self._made: dict[str, PreparedView] = {}
        self._sessions: dict[str, SparkSession] = {}

    def analyze(self, view: str) -> AvroType:
        """Return the schema of the view's rows as Spark's analyzer types them. Runs nothing.

        Raises ConfigError for a view that Spark refuses, NotFound (UNKNOWN_SOURCE) if a source's schema is
        unknown.
        """
        return self._ready(view, ()).row_schema

    def run(self, view: str, case: Case) -> Outcome:
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
            if made.how.native:
                return self._native(made, made.how, events, records, answered)
            return self._tables(made, made.how, events, records, answered)
        except PySparkException as error:
            failed = failure(str(error), view)
            if failed is not None:
                raise failed from None
            said = str(error).strip().split("\n")[0]
            raise ConfigError(f'view "{view}": Spark refuses it: {said[:500]}', code="HUB-2105") from None

    # ---- plan

    def _ready(self, name: str, asked: tuple[str, ...]) -> PreparedView:
        """Return the view's plan, made once. ``asked``: the chain of views that read this one."""
        if name not in self._made:
            if name in asked:
                raise ConfigError(f'view "{name}" reads itself: {" -> ".join((*asked, name))}')
            self._made[name] = self._make(self._views[name], (*asked, name))
        return self._made[name]

    def _make(self, view: View | SqlView, asked: tuple[str, ...]) -> PreparedView:
        sources = view.all_sources
        latest = {name: self._schema(view, name, asked) for name in sources}
        numbered = {
            name: (WriterSchema(number, latest[name]),) if sources[name].declared is None else ()
            for number, name in enumerate(sources, 1)
        }
        encoders = {name: encoder_of(schema) for name, schema in latest.items()}
        if isinstance(view, View):
            compiled = shape(view, latest)
            inputs = tuple(
                Input(each, (each.topic,), numbered[each.name], latest[each.name])
                for each in (*compiled.sources, *(() if compiled.expiry is None else (compiled.expiry,)))
            )
            schema = spark.row_schema(self._own(view), compiled, inputs)
            return PreparedView(view, inputs, compiled, schema, encoders)
        query = checked(view, latest)
        found = exact_sums.of_classified(classify(query))
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

    def _schema(self, view: View | SqlView, name: str, asked: tuple[str, ...]) -> AvroType:
        source = view.all_sources[name]
        if source.declared is not None:
            return source.declared
        other = source.view if isinstance(source, SqlSource) else None
        if other is not None and other in self._views:
            return self._ready(other, asked).row_schema
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
        if given.text is not None:
            value: bytes | None = given.text.encode()
        elif given.value is None:
            value = None
        else:
            said = as_json(given.value)
            if of_view:
                said = _whole_row(said, made.inputs[number - 1].latest, event.number)
            try:
                value = made.encoders[event.source](said)
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
    ) -> Outcome:
        frame = self._own(made.view).createDataFrame(records, _EVENTS)
        rows = dataframes.rows(dataframes.fold(dataframes.decode(frame, made.inputs, answered), how), how)
        columns = tuple(name for name, _ in how.outputs)
        bad = F.col("_bad")
        found = rows.select(
            "_key",
            "_row_deleted",
            _json(columns).alias("_row"),
            bad.isNotNull().alias("_is_bad"),
            *(bad[name].alias(name) for name in ("_topic", "_partition", "_offset")),
            bad["reason"].alias("_reason"),
        ).collect()
        live = {row["_key"]: row["_row"] for row in found if not row["_is_bad"] and not row["_row_deleted"]}
        dead = [(_number(events, row), row["_reason"]) for row in found if row["_is_bad"]]
        return _outcome(columns, live, dead)

    def _native(
        self,
        made: PreparedView,
        how: Classified,
        events: Sequence[CaseEvent],
        records: Sequence[Any],
        answered: SchemaAnswers,
    ) -> Outcome:
        view = made.view
        assert isinstance(view, SqlView)
        own = register(self._session.newSession(), view)
        stateful = str(how.has_state).lower()
        own.conf.set("spark.sql.shuffle.partitions", "1")
        own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", stateful)
        name = f"golden_{next(_names)}"
        folder = self._folder / name
        batches = 1 + max(event.batch for event in events)
        typed: dict[str, DataFrame] = {}
        for given in made.inputs:
            source = view.sources[given.source.name]
            mine = [
                (event, record)
                for event, record in zip(events, records, strict=True)
                if event.source == given.source.name
            ]
            frame = own.createDataFrame([record for _, record in mine], _EVENTS)
            typed[given.source.name] = sql_stream.typed(frame, given, source, answered)
            if source.read_as == "static":
                sql_stream.latest_rows(frame, given, source, answered).createOrReplaceTempView(
                    given.source.name
                )
                continue
            of_batch: list[list[Any]] = [[] for _ in range(batches)]
            for event, record in mine:
                of_batch[event.batch].append(record)
            _write(folder / given.source.name, of_batch)
            stream = own.readStream.schema(_EVENTS).option("maxFilesPerTrigger", "1")
            read = stream.parquet(str(folder / given.source.name))
            rows = sql_stream.taken(sql_stream.typed(read, given, source, answered))
            if (watermark := how.watermark(given.source.name)) is not None:
                rows = rows.withWatermark(*watermark)
            rows.createOrReplaceTempView(given.source.name)
        columns = tuple(how.query.columns)
        frame = own.sql(how.sql)
        out = frame.select(
            sql_stream.key_text(frame, how.key).alias("_key"),
            F.col(VERSION).alias("_order"),
            _json(columns).alias("_row"),
        )
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
        late = 0
        for batch in range(batches):
            watermark_ms = spark.logged_watermark_ms(folder / "checkpoint", 2 * batch - 1)
            offsets = [(each.topic, each.partition, each.offset) for each in events if each.batch == batch]
            for each in how.late if watermark_ms > 0 and offsets else ():
                rows = sql_stream.taken_with_bytes(typed[each.source])
                rows = rows.where(F.struct("_topic", "_partition", "_offset").isin(_structs(offsets)))
                late += sql_stream.too_late(rows, each, view, watermark_ms).count()
        return _outcome(columns, {key: row for key, (_, row) in newest.items()}, _dead(typed, events), late)

    def _tables(
        self,
        made: PreparedView,
        how: Classified,
        events: Sequence[CaseEvent],
        records: Sequence[Any],
        answered: SchemaAnswers,
    ) -> Outcome:
        view = made.view
        assert isinstance(view, SqlView)
        own = register(self._session.newSession(), view)
        own.conf.set("spark.sql.shuffle.partitions", "1")
        typed: dict[str, DataFrame] = {}
        plan, _ = delta_stream.planned(own, view, how, made.inputs)
        tables = {table.name: table for table in plan.tables}
        for given in made.inputs:
            name, source = given.source.name, view.sources[given.source.name]
            mine = [record for event, record in zip(events, records, strict=True) if event.source == name]
            read = sql_stream.typed(own.createDataFrame(mine, _EVENTS), given, source, answered)
            if name not in tables:
                typed[name] = read
                continue
            changes = delta_stream.as_changes(read, source, tables[name], len(given.topics) > 1)
            typed[name] = changes
            delta_stream.standing(changes, tables[name]).createOrReplaceTempView(name)
        frame = own.sql(exact_sums.exact(view.sql))
        columns = tuple(how.query.columns)
        found = frame.select(
            sql_stream.key_text(frame, how.key).alias("_key"), _json(columns).alias("_row")
        ).collect()
        return _outcome(columns, {row["_key"]: row["_row"] for row in found}, _dead(typed, events))


def _settings() -> Mapping[str, str]:
    return {**spark.code_settings("live"), "spark.sql.shuffle.partitions": "1"}


def _with_topics(inputs: Iterable[Input], events: Iterable[CaseEvent]) -> tuple[Input, ...]:
    """Return the inputs with the topics of the case's events, for sources that read a pattern."""
    topics: dict[str, set[str]] = {}
    for event in events:
        topics.setdefault(event.source, set()).add(event.topic)
    return tuple(
        replace(each, topics=tuple(sorted(topics.get(each.source.name, {each.source.topic}))))
        for each in inputs
    )


def _whole_row(said: Any, schema: AvroType, version: int) -> Any:
    """Return a row of another view with the columns that the hub adds."""
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    added: dict[str, Any] = {}
    if "_version" in fields:
        added["_version"] = version
    sources = fields.get("_sources")
    if isinstance(sources, dict):
        added["_sources"] = {field["name"]: None for field in sources["fields"]}
    missing = {name: None for name in fields if name not in added}
    return {**missing, **added, **said}


def _write(folder: Path, batches: Sequence[Sequence[Any]]) -> None:
    """Write one file per batch, with modification times that give their order.

    An empty file follows each one: events are judged by the watermark of the batch before, and the empty
    batch moves it.
    """
    folder.mkdir(parents=True)
    empty: Sequence[Any] = ()
    for number, rows in enumerate(each for batch in batches for each in (batch, empty)):
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in _STORED]
        table = pyarrow.table(
            [
                pyarrow.array(_headers(column) if each.name == "headers" else list(column), each.type)
                for column, each in zip(columns, _STORED, strict=True)
            ],
            schema=_STORED,
        )
        path = folder / f"{number:06d}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _headers(column: Iterable[Any]) -> list[Any]:
    return [
        None if each is None else [{"key": key, "value": value} for key, value in each] for each in column
    ]


def _structs(offsets: Iterable[tuple[str, int, int]]) -> list[Column]:
    return [
        F.struct(
            F.lit(topic).alias("_topic"),
            F.lit(partition).alias("_partition"),
            F.lit(offset).cast("bigint").alias("_offset"),
        )
        for topic, partition, offset in offsets
    ]


def _json(columns: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns), _JSON)


def _dead(typed: Mapping[str, DataFrame], events: Sequence[CaseEvent]) -> list[tuple[int, str]]:
    found = []
    for frame in typed.values():
        why = F.col(sql_stream.WHY)
        for row in frame.where(why.isNotNull()).select("_topic", "_partition", "_offset", why).collect():
            found.append((_number(events, row), row[sql_stream.WHY]))
    return found


def _number(events: Sequence[CaseEvent], row: Any) -> int:
    place = (row["_topic"], row["_partition"], row["_offset"])
    for event in events:
        if (event.topic, event.partition, event.offset) == place:
            return event.number
    raise HubError(f"no event of the case is at {place}")


def _outcome(
    columns: tuple[str, ...], rows: Mapping[str, str], dead: Iterable[tuple[int, str]], late: int = 0
) -> Outcome:
    return Outcome(columns, {key: orjson.loads(row) for key, row in rows.items()}, sorted(dead), late)
