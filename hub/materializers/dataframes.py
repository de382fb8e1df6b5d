"""[edge] pyspark: a Shape carried out on DataFrames. The same functions serve streams, batches and tests.

``events`` are rows as Spark's Kafka source gives them (key, value, topic, partition, offset, timestamp). They go
through four steps: ``decode`` (each event by its own writer schema), ``fold`` (the one aggregation), ``rows`` (the
view's columns), ``records`` (what the Kafka sink writes).

An event that cannot be decoded must neither stop the view nor be lost, and a streaming query has one sink. So it
travels through the same aggregation as a group of its own, keyed by its coordinates behind a NUL, and leaves as a
record for ``<topic>.dlq``: exactly as durable as the view itself. Its bytes stay in the state.

An event whose schema id was not known when the query was planned is different: the id may be seconds old and right.
The query then fails before the batch is committed (``UNKNOWN_SCHEMA`` in the message), is planned again with what the
registry knows by now, and reads the same offsets again. Only what ``Answered`` covers is refused: a producer registers
before it writes, so an event that was in the log before the registry was asked can have no id that it did not know.

An event that was dead and is replayed says whose place it has (``hub.replay.of``). Ranks compare ``_at``, twice the
offset, so that a replay is just behind its original and before all that was written after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from hub.materializers import event_formats
from hub.materializers.avro_shape import PROOF, AvroType, branch_bytes, changelog_schema, project, united
from hub.materializers.formats import Reading, reading_of
from hub.materializers.shape import META, ORIGIN, Entry, Shape, SourceShape, steps
from hub.materializers.view import CHANGELOG_PREFIX
from hub.record import Positions
from hub.topics.dead_letter import REPLAY_FOR, REPLAY_LETTER, REPLAY_OF

UNKNOWN_SCHEMA = "HUB-UNKNOWN-SCHEMA"
DLQ_SUFFIX = ".dlq"
VERSION_HEADER = "hub.version"
SOURCES_HEADER = "hub.sources"

# Columns of a row besides the view's own.
ROW_META = ("_version", "_sources")

_KEY, _BAD = "_k", "_bad"
_BAD_MARK = "\x00"
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class Writer:
    """One registered schema of a source's events. ``schema`` is parsed."""

    schema_id: int
    schema: AvroType

    @property
    def head(self) -> bytes:
        """The five bytes before an event's body in the Confluent wire format."""
        return b"\x00" + self.schema_id.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Input:
    """A source as it is now: its topics, every schema its events may be written with, and the newest of them."""

    source: SourceShape
    topics: tuple[str, ...]
    writers: tuple[Writer, ...]
    latest: AvroType

    @property
    def reading(self) -> Reading | None:
        """How its events are read; None: as Avro."""
        return reading_of(self.latest)

    @property
    def framed(self) -> bool:
        """Whether its events have a schema id."""
        return self.reading is None or self.reading.framed


@dataclass(frozen=True, slots=True)
class Answered:
    """What the registry said when it was asked: every id it had, and how far the log reached before the question."""

    ids: frozenset[int] = frozenset()
    until: Positions = Positions()


# Whether an event is a replay, before anything else is asked of its headers: most events have some, and are none.
# No lambda here or below: Spark compiles no stage in which one is.
_IS_REPLAY = f"array_contains(headers.key, '{REPLAY_LETTER}')"


def taken_by(events: DataFrame, view: str) -> DataFrame:
    """Without the replays that are for other views: this one has taken their originals."""
    wanted = F.expr(_header_text(REPLAY_FOR))
    mine = F.coalesce(F.array_contains(F.split(wanted, ","), view), F.lit(True))
    return events.where(F.when(F.expr(_IS_REPLAY), mine).otherwise(F.lit(True)))


def _header_text(name: str) -> str:
    """The header's text; null when there is none (an index of -1 is null). A replay has each of its headers once."""
    return f"CAST(headers.value[array_position(headers.key, '{name}') - 1] AS STRING)"


def _place(events: DataFrame) -> str:
    """``_at``: an event's place in its partition; that of its original when it is a replay of one before it."""
    if "headers" not in events.columns:
        return "offset * 2"
    said, prefix = _header_text(REPLAY_OF), "concat(topic, ':', partition, ':')"
    of = f"CAST(substring({said}, length({prefix}) + 1) AS BIGINT)"
    # No BETWEEN: Spark computes what stands on its left for every event, before anything is asked.
    return (
        f"CASE WHEN {_IS_REPLAY} AND startswith({said}, {prefix}) AND {of} >= 0 AND {of} < offset "
        f"THEN {of} * 2 + 1 ELSE offset * 2 END"
    )


def judged(
    events: DataFrame, inputs: Sequence[Input], answered: Answered, *, filtered: bool = False
) -> DataFrame:
    """Each event with META, its own ``key``, ``value`` and ``_headers``, ``_at`` (its place), ``e_<source>`` (its columns)
    and ``_why`` it cannot be taken. ``filtered``: a filter on these follows at once."""
    framed = events.selectExpr(
        "topic AS _topic",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
        "key",
        "CAST(key AS STRING) AS _key",
        "value",
        "value IS NULL AS _deleted",
        "substring(value, 1, 5) AS _head",
        f"{_place(events)} AS _at",
        f"{'headers' if 'headers' in events.columns else f'CAST(NULL AS {_HEADERS})'} AS _headers",
    )
    avro = [each for each in inputs if each.reading is None]
    others = [each for each in inputs if each.reading is not None]
    if avro:
        framed = framed.withColumn("_event", _decoded(avro))
    for each in others:
        said = event_formats.parsed(each.source, each.latest, _is_of(each))
        if filtered:
            said = event_formats.once(said)
        framed = framed.withColumn(event_formats.parser_of(each.source), said)
    decoded = framed.select("*", *(_event(each, avro).alias(each.source.event) for each in inputs))
    return decoded.select("*", _reason(inputs, answered).alias("_why"))


def decode(events: DataFrame, inputs: Sequence[Input], answered: Answered) -> DataFrame:
    """The tagged union (_k, _bad, and the entries of each source)."""
    entity = F.coalesce(*(F.when(_is_from(each), _fields(each)["_entity"]) for each in inputs))
    taken = judged(events, inputs, answered).select("*", entity.alias("_entity"))
    for each in inputs:
        if each.source.where is not None:
            left_out = (
                _is_from(each) & ~F.col("_deleted") & ~F.coalesce(F.expr(each.source.where), F.lit(False))
            )
            taken = taken.where(F.col("_why").isNotNull() | ~left_out)
    fits = F.col("_why").isNull() & F.col("_entity").isNotNull()
    why = F.coalesce("_why", F.lit("the view's key is null in this event"))
    coordinates = F.concat_ws("-", F.lit(_BAD_MARK), "_topic", "_partition", "_offset")
    bad = F.struct(
        "_topic", "_partition", "_offset", "_timestamp", "_headers", "key", "value", why.alias("reason")
    )
    return taken.select(
        F.when(fits, F.col("_entity")).otherwise(coordinates).alias(_KEY),
        F.when(~fits, bad).alias(_BAD),
        *(
            _entry(entry, _fields(each), fits & _is_from(each)).alias(entry.column)
            for each in inputs
            for entry in each.source.entries
        ),
    )


def _decoded(inputs: Sequence[Input]) -> Column:
    """An event as ``one.member1, one.member2, …``, one a writer schema: null but for the one that wrote it."""
    branch: Column | None = None
    writers: list[AvroType] = []
    readers: list[AvroType] = []
    for given in inputs:
        for writer in given.writers:
            ours = _is_from(given) & (F.col("_head") == F.lit(writer.head))
            before = F.lit(branch_bytes(len(writers)))
            branch = F.when(ours, before) if branch is None else branch.when(ours, before)
            writers.append(writer.schema)
            readers.append(project(given.latest, given.source.columns, read_as=writer.schema))
    assert branch is not None, "no source has a schema"
    options = {"mode": "PERMISSIVE", "avroSchema": orjson.dumps(united(readers)).decode()}
    body = F.concat(branch, F.expr("substring(value, 6)"))
    return from_avro(body, orjson.dumps(united(writers)).decode(), options)


def _event(given: Input, inputs: Sequence[Input]) -> Column:
    """The source's columns of an event, whichever of its schemas it was written with; null for all others. ``inputs``:
    those that are Avro."""
    if given.reading is not None:
        return event_formats.event(given.source, given.latest)
    writers = [(each, writer) for each in inputs for writer in each.writers]
    return F.coalesce(
        *(F.col("_event")["one"][f"member{n}"] for n, (each, _) in enumerate(writers, 1) if each is given)
    )


def _is_of(given: Input) -> Column:
    """Whether an event is the source's, and of a schema of it where it has one."""
    if not given.framed:
        return _is_from(given)
    return _is_from(given) & F.col("_head").isin(*(F.lit(writer.head) for writer in given.writers))


def _is_from(given: Input) -> Column:
    if len(given.topics) == 1:
        return F.col("_topic") == F.lit(given.topics[0])
    return F.col("_topic").isin(*given.topics)


def _fields(given: Input) -> Mapping[str, Column]:
    """The event's used columns, its entity, order and identity, and where it came from.

    A tombstone has no columns: the record's key names the entity, the record's time is its order.
    """
    source, deleted = given.source, F.col("_deleted")
    event = F.col(source.event)
    found = {name: event[name] for name in source.columns}
    found["_entity"] = F.when(deleted, F.col("_key")).otherwise(F.expr(source.key))
    if source.order is not None:
        order = F.expr(source.order)
        found["_order"] = (
            F.when(deleted, F.col("_timestamp")).otherwise(order) if source.order_is_time else order
        )
    if source.unique is not None:
        found["_unique"] = F.expr(source.unique)
    return found | {name: F.col(name) for name in ("_at", *META)}


def _entry(entry: Entry, fields: Mapping[str, Column], mine: Column) -> Column:
    if entry.wants is not None:
        mine = mine & fields[entry.wants].isNotNull()
    return F.when(mine, F.struct(*(fields[name].alias(name) for name in entry.fields)))


def _reason(inputs: Sequence[Input], answered: Answered) -> Column:
    """Why an event cannot be taken; null when it can. Fails the query on a schema id that it cannot judge."""
    why = F.when(F.col("_topic").isNull(), F.lit(""))
    for given in inputs:
        tombstone = F.lit(None).cast("string")
        if given.source.order is not None and not given.source.order_is_time:
            tombstone = F.lit(f"a tombstone has no time to compare with the order `{given.source.order}`")
        why = why.when(_is_from(given) & F.col("_deleted"), tombstone)
    for given in inputs:
        if not given.framed:
            misfit = event_formats.misfit(given.source, given.latest)
            why = why.when(_is_from(given), F.when(event_formats.failed(given.source, given.latest), misfit))
    framed = (F.length("value") >= 5) & (F.expr("substring(value, 1, 1)") == F.lit(b"\x00"))
    why = why.when(~framed, F.lit(_NOT_FRAMED))
    for given in inputs:
        if not given.framed:
            continue
        known = F.col("_head").isin(*(F.lit(writer.head) for writer in given.writers))
        misfit = F.concat(F.lit("its bytes do not fit its schema id "), _schema_id())
        if given.reading is None:
            failed = F.col(given.source.event)[PROOF].isNull()
        else:
            failed = event_formats.failed(given.source, given.latest)
            # Other words: what one view reads of such an event fits, and what another reads does not.
            misfit = F.concat(F.lit("it does not fit its schema id "), _schema_id(), F.lit(": "))
            misfit = F.concat(misfit, event_formats.misfit(given.source, given.latest))
        why = why.when(_is_from(given) & known, F.when(failed, misfit))
    mine = {writer.schema_id for given in inputs for writer in given.writers}
    elsewhere = [F.lit(Writer(schema_id, None).head) for schema_id in sorted(answered.ids - mine)]
    judged = F.col("_offset") < _reach(answered.until)
    if elsewhere:
        judged = judged & ~F.col("_head").isin(*elsewhere)
    absent = F.concat(F.lit("its schema id "), _schema_id(), F.lit(" is no record schema of the registry"))
    unknown = F.concat(F.lit(f"{UNKNOWN_SCHEMA} "), _schema_id(), F.lit(" "), F.col("_topic"))
    return why.when(judged, absent).otherwise(F.raise_error(unknown).cast("string"))


def _reach(until: Positions) -> Column:
    """The offset up to which an event's own partition is covered; 0 where nothing is."""
    reach = F.when(F.col("_topic").isNull(), F.lit(0))
    for (topic, partition), offset in until:
        reach = reach.when((F.col("_topic") == topic) & (F.col("_partition") == partition), F.lit(offset))
    return reach.otherwise(F.lit(0))


_NOT_FRAMED = "not in the Confluent wire format (no magic byte 0 and schema id)"


def _schema_id() -> Column:
    return F.expr("conv(hex(substring(_head, 2, 4)), 16, 10)")


def fold(union: DataFrame, shape: Shape, partitions: int | None = None) -> DataFrame:
    """The one aggregation: a row of state a key. ``partitions``: of the state, where much is read at once.

    Spark would fold in each task what it has of a key, send that, and fold it with the others'. Where a set is kept that makes
    nothing smaller, so events are sent as they are, to where their key's state is, and folded once.
    """
    if partitions is not None and any(source.unique is not None for source in shape.sources):
        union = union.repartition(partitions, _KEY)
    return union.groupBy(_KEY).agg(
        F.expr("count(1)").alias("_version"),
        F.first(_BAD, ignorenulls=True).alias(_BAD),
        *(F.expr(sql).alias(name) for name, sql in shape.aggregates),
    )


def rows(folded: DataFrame, shape: Shape) -> DataFrame:
    """The view: key, the declared columns in order, _version, _sources, _row_deleted; and _bad events beside them."""
    ready = folded.select("*", *(F.expr(sql).alias(name) for name, sql in shape.uniques))
    kept = [name for name, _ in shape.outputs]
    for group in steps(shape.outputs):
        ready = ready.withColumns({name: F.expr(sql) for name, sql in group.items()})
    origins = [
        F.when(
            F.col(source.latest).isNotNull(),
            F.struct(*(_origin(source, name, shape).alias(name.removeprefix("_")) for name in ORIGIN)),
        ).alias(source.name)
        for source in shape.sources
    ]
    gone = F.expr(shape.delete_when) if shape.delete_when is not None else F.lit(False)
    gone = F.coalesce(gone.cast("boolean"), F.lit(False))
    if shape.expired is not None:
        gone = gone | F.expr(shape.expired)
    return ready.select(
        F.col(_KEY).alias("_key"),
        *kept,
        "_version",
        F.struct(*origins).alias("_sources"),
        gone.alias("_row_deleted"),
        _BAD,
    )


def _origin(source: SourceShape, name: str, shape: Shape) -> Column:
    """Of a row that is over no times: no event of a source deleted it, so nobody may take the last one's for the cause and
    count how long that took."""
    found = F.col(source.latest)[name]
    return F.when(~F.expr(shape.expired), found) if shape.expired and name == "_timestamp" else found


def row_schema(view: str, row_frame: DataFrame) -> AvroType:
    """The changelog's Avro schema of ``rows``."""
    fields = row_frame.drop("_key", "_row_deleted", _BAD).schema.jsonValue()["fields"]
    return changelog_schema(view, fields, required=ROW_META)


def records(
    row_frame: DataFrame,
    view: str,
    schema: AvroType,
    schema_id: int,
    generation: int,
    changelog: str | None = None,
) -> DataFrame:
    """What the Kafka sink writes: rows to the changelog (that of the view's own name if not said), undecodable events to
    their topic's dead-letter queue.

    ``hub.version`` is generation · 2⁴⁰ + events folded: it grows with every event, and a recomputation's rows
    replace those of the generation before.
    """
    columns = [field["name"] for field in schema["fields"]]
    body = to_avro(F.struct(*columns), orjson.dumps(schema).decode())
    value = F.concat(F.lit(Writer(schema_id, None).head), body)
    version = (F.col("_version") + F.lit(generation << GENERATION_SHIFT)).cast("string").cast("binary")

    def header(name: str, of: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), of.cast("string").cast("binary").alias("value"))

    bad = F.col(_BAD)
    dead = with_headers(
        bad["_headers"],
        header("hub.dlq.reason", bad["reason"]),
        header("hub.dlq.view", F.lit(view)),
        header("hub.dlq.topic", bad["_topic"]),
        header("hub.dlq.partition", bad["_partition"]),
        header("hub.dlq.offset", bad["_offset"]),
        header("hub.dlq.timestamp", F.unix_millis(bad["_timestamp"])),
    )
    versioned = F.struct(F.lit(VERSION_HEADER).alias("key"), version.alias("value"))
    # A deleted row has no columns to say which events deleted it; who waits for that write reads it here.
    alive = F.when(
        F.col("_row_deleted"), F.array(versioned, header(SOURCES_HEADER, F.to_json("_sources")))
    ).otherwise(F.array(versioned))
    is_bad = bad.isNotNull()
    return row_frame.select(
        F.when(is_bad, F.concat(bad["_topic"], F.lit(DLQ_SUFFIX)))
        .otherwise(F.lit(changelog or CHANGELOG_PREFIX + view))
        .alias("topic"),
        F.when(is_bad, bad["key"]).otherwise(F.col("_key").cast("binary")).alias("key"),
        F.when(is_bad, bad["value"]).when(~F.col("_row_deleted"), value).alias("value"),
        F.when(is_bad, dead).otherwise(alive).alias("headers"),
    )


def with_headers(own: Column, *more: Column) -> Column:
    """An event's own headers and then these."""
    return F.concat(F.coalesce(own, F.expr(f"CAST(array() AS {_HEADERS})")), F.array(*more))


GENERATION_SHIFT = 40
