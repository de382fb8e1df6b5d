"""[edge] Records decoded to events, and judged: which become dead-letter records, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_plan import SourcePlan, UnionColumn, has_value
from hub.materializers.spark.formats import change_events, event_formats
from hub.materializers.spark.formats.decryption import Opening, with_clear_values, with_stored_values
from hub.materializers.types.avro_types import PROOF, AvroType, branch_bytes, projected, united
from hub.materializers.types.cdc import envelope_of, unavailable_sql, wire_schema
from hub.materializers.types.source_formats import ValueReading, reading_of
from hub.materializers.types.spark_text import first_of, literal, one_of, quoted, struct
from hub.record import UNREAD_HEADER, Positions
from hub.topics.dead_letters.model import REPLAY_FOR, REPLAY_LETTER, REPLAY_OF, UNREAD

UNKNOWN_SCHEMA = "HUB-UNKNOWN-SCHEMA"
DLQ_SUFFIX = ".dlq"
KEY, BAD = "_k", "_bad"
BAD_MARK = "\x00"
HEADERS = "array<struct<key:string,value:binary>>"
NO_HEADERS = f"CAST(array() AS {HEADERS})"


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """One registered schema of a source's events. ``schema`` is parsed."""

    schema_id: int
    schema: AvroType

    @property
    def head(self) -> bytes:
        """The five bytes before an event's body in the Confluent wire format."""
        return b"\x00" + self.schema_id.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Input:
    """A source at planning time: its topics, every schema that its events may be written with, and the newest
    of them."""

    source: SourcePlan
    topics: tuple[str, ...]
    writers: tuple[WriterSchema, ...]
    latest: AvroType
    opening: Opening | None = None
    """Access to keys; None: events are decoded as they are stored."""

    @property
    def reading(self) -> ValueReading | None:
        """Reading of its events; None: as Avro."""
        return reading_of(wire_schema(self.latest))

    @property
    def is_cdc(self) -> bool:
        """True if its events are changes of rows."""
        return envelope_of(self.latest) is not None

    @property
    def wire(self) -> Input:
        """The input as its events are decoded: of changes, their envelope."""
        if not self.is_cdc:
            return self
        source = change_events.decoded_source(self.source, self.latest)
        return replace(self, source=source, latest=wire_schema(self.latest))

    @property
    def framed(self) -> bool:
        """True if its events have a schema id."""
        return self.reading is None or self.reading.framed


@dataclass(frozen=True, slots=True)
class SchemaAnswers:
    """Answers of the registry: every id that it had, and how far the log reached before it was asked.

    ``refused`` and every id above ``above`` were asked for in vain before: see
    ``engine/plans/unknown_schema_ids.py``.
    """

    ids: frozenset[int] = frozenset()
    until: Positions = Positions()
    refused: frozenset[int] = frozenset()
    above: int | None = None


# _IS_UNREAD: the record that stands for a batch that could not be unpacked
# (hub/kafka/protocol/bounded_frames.py). It has neither key nor value.
_IS_UNREAD = f"_deleted AND key IS NULL AND coalesce(array_contains(_headers.key, '{UNREAD_HEADER}'), FALSE)"


# _IS_REPLAY is checked before any other header: most events have headers, but few are replays. No lambda here
# or below: Spark does not compile a stage that has one.
_IS_REPLAY = f"array_contains(headers.key, '{REPLAY_LETTER}')"


def taken_by(events: DataFrame, view: str) -> DataFrame:
    """Return the events without replays for other views: this view has accepted their originals."""
    mine = f"coalesce(array_contains(split({_header_text(REPLAY_FOR)}, ','), {literal(view)}), TRUE)"
    return events.where(f"IF({_IS_REPLAY}, {mine}, TRUE)")


def _header_text(name: str, headers: str = "headers") -> str:
    """Return a header's text; null if there is none (an index of -1 is null). A replay has each of its
    headers once."""
    return f"CAST({headers}.value[array_position({headers}.key, '{name}') - 1] AS STRING)"


def _place(events: DataFrame) -> str:
    """Return ``_at``, an event's place in its partition; for a replay, the place directly after
    its original."""
    if "headers" not in events.columns:
        return "offset * 2"
    replay_of, prefix = _header_text(REPLAY_OF), "concat(topic, ':', partition, ':')"
    of = f"CAST(substring({replay_of}, length({prefix}) + 1) AS BIGINT)"
    # No BETWEEN: Spark evaluates its left side for every event before any other condition.
    return (
        f"CASE WHEN {_IS_REPLAY} AND startswith({replay_of}, {prefix}) AND {of} >= 0 AND {of} < offset "
        f"THEN {of} * 2 + 1 ELSE offset * 2 END"
    )


def judged(
    events: DataFrame, inputs: Sequence[Input], answered: SchemaAnswers, *, filtered: bool = False
) -> DataFrame:
    """Return each event with META, ``key``, ``value``, ``_headers``, ``_at``, ``e_<source>`` and ``_why``.

    ``_at``: its place. ``e_<source>``: its columns. ``_why``: why it cannot be accepted, or null.
    ``filtered``: a filter on these columns follows at once.
    """
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
        f"{'headers' if 'headers' in events.columns else f'CAST(NULL AS {HEADERS})'} AS _headers",
    )
    changes = [each for each in inputs if each.is_cdc]
    for each in changes:  # the deletion before a tombstone is the change
        framed = framed.where(f"NOT ({_is_from(each)} AND _deleted AND NOT ({_IS_UNREAD}))")
    inputs = [each.wire for each in inputs]
    sealed = [each for each in inputs if each.opening is not None]
    if sealed and sealed[0].opening is not None:
        framed = with_clear_values(framed, " OR ".join(map(_is_from, sealed)), sealed[0].opening)
    avro = [each for each in inputs if each.reading is None]
    others = [each for each in inputs if each.reading is not None]
    if avro:
        framed = framed.withColumn("_event", _decoded(avro))
    for each in others:
        made = event_formats.transformed(each.source, each.latest, _is_of(each))
        if made is not None:
            framed = framed.withColumn(*made)
        parsed = event_formats.parsed(each.source, each.latest, _is_of(each))
        if filtered:
            parsed = event_formats.once(parsed)
        framed = framed.withColumn(event_formats.parser_of(each.source), parsed)
    decoded = framed.selectExpr("*", *(f"{_event(each, avro)} AS {each.source.event}" for each in inputs))
    unopened = [("_opened.why IS NOT NULL", "_opened.why")] if sealed else []
    found = decoded.selectExpr("*", f"{first_of([*unopened, ('TRUE', _reason(inputs, answered))])} AS _why")
    for each in changes:
        found = change_events.as_rows(found, each.source, each.latest, _is_from(each))
    return with_stored_values(found) if sealed else found


def decode(events: DataFrame, inputs: Sequence[Input], answered: SchemaAnswers) -> DataFrame:
    """Return the tagged union (_k, _bad, and the union columns of each source)."""
    entity = first_of((_is_from(each), _fields(each)["_entity"]) for each in inputs)
    taken = judged(events, inputs, answered)
    changes = [(each.source, _is_from(each)) for each in inputs if each.is_cdc]
    for source, mine in changes:
        if source.where is not None:  # a row that no longer meets it is gone
            taken = taken.withColumn("_deleted", F.expr(change_events.left_out(source, mine)))
    taken = taken.selectExpr("*", f"{entity} AS _entity")
    if changes:
        taken = change_events.with_former_keys(taken, changes, entity)
    for each in inputs:
        if each.source.where is not None and not each.is_cdc:
            kept = f"_deleted OR coalesce({each.source.where}, FALSE)"
            taken = taken.where(f"_why IS NOT NULL OR NOT ({_is_from(each)}) OR {kept}")
    fits = "_why IS NULL AND _entity IS NOT NULL"
    coordinates = f"concat_ws('-', {literal(BAD_MARK)}, _topic, _partition, _offset)"
    bad = ("_topic", "_partition", "_offset", "_timestamp", "_headers", "key", "value")
    why = "coalesce(_why, 'the view\\'s key is null in this event')"
    entries = ((each, entry) for each in inputs for entry in each.source.entries)
    return taken.selectExpr(
        f"IF({fits}, _entity, {coordinates}) AS {KEY}",
        f"IF({fits}, NULL, {struct([*zip(bad, bad, strict=True), ('reason', why)])}) AS {BAD}",
        *(f"{_entry(entry, each, fits)} AS {entry.column}" for each, entry in entries),
    )


def _decoded(inputs: Sequence[Input]) -> Column:
    """Decode an event to ``one.member1, one.member2, …``, one per writer schema: null except for the one that
    wrote it."""
    branches: list[tuple[str, str]] = []
    writers: list[AvroType] = []
    readers: list[AvroType] = []
    for given in inputs:
        for writer in given.writers:
            ours = f"{_is_from(given)} AND {one_of('_head', [writer.head])}"
            branches.append((ours, literal(branch_bytes(len(writers)))))
            both = projected(writer.schema, given.latest, given.source.columns, f"_{len(writers)}")
            writers.append(both.writer)
            readers.append(both.reader)
    assert branches, "no source has a schema"
    options = {"mode": "PERMISSIVE", "avroSchema": orjson.dumps(united(readers)).decode()}
    body = F.expr(f"concat({first_of(branches)}, substring(value, 6))")
    return from_avro(body, orjson.dumps(united(writers)).decode(), options)


def _event(given: Input, inputs: Sequence[Input]) -> str:
    """Return the source's columns of an event, whichever of its schemas wrote it; null for other events.

    ``inputs``: the inputs that are Avro.
    """
    if given.reading is not None:
        return event_formats.event(given.source, given.latest)
    writers = [(each, writer) for each in inputs for writer in each.writers]
    members = (f"_event.one.member{n}" for n, (each, _) in enumerate(writers, 1) if each is given)
    return f"coalesce({', '.join(members)})"


def _is_of(given: Input) -> str:
    """Return the condition that an event is the source's and has one of its schemas, if it has schemas."""
    if not given.framed:
        return _is_from(given)
    return f"{_is_from(given)} AND {_is_known(given)}"


def _is_known(given: Input) -> str:
    return one_of("_head", (writer.head for writer in given.writers))


def _is_from(given: Input) -> str:
    return one_of("_topic", given.topics)


def _fields(given: Input) -> Mapping[str, str]:
    """Return the event's used columns, its entity, order and identity, and its origin.

    A tombstone has no columns: its record key names the entity, and its record time is its order.
    """
    source = given.source
    found = {name: f"{source.event}.{quoted(name)}" for name in source.columns}
    if given.is_cdc:
        return _change_fields(given, found)
    found["_entity"] = f"IF(_deleted, _key, {source.key})"
    if source.order is not None:
        found["_order"] = (
            f"IF(_deleted, _timestamp, {source.order})" if source.order_is_time else f"({source.order})"
        )
    if source.unique is not None:
        found["_unique"] = f"({source.unique})"
    return found | {name: name for name in ("_at", *META)}


def _change_fields(given: Input, found: Mapping[str, str]) -> Mapping[str, str]:
    """``_fields()`` of a row's change: a deletion has key, order and identity of the row as it was, and no
    other columns.
    """
    source = given.source
    fields = {name: f"IF(_deleted, NULL, {of})" for name, of in found.items()}
    fields["_entity"], fields["_order"] = source.key, f"({source.order})"
    if source.unique is not None:
        fields["_unique"] = f"({source.unique})"
    for name in source.kept:
        left_out = unavailable_sql(given.latest, name, found[name])
        fields[has_value(name)] = f"IF(NOT _deleted AND coalesce({left_out}, FALSE), NULL, TRUE)"
    return fields | {name: name for name in ("_at", *META)}


def _entry(entry: UnionColumn, given: Input, fits: str) -> str:
    fields = _fields(given)
    mine = f"{fits} AND {_is_from(given)}"
    if entry.wants is not None:
        mine += f" AND {fields[entry.wants]} IS NOT NULL"
    return f"IF({mine}, {struct((name, fields[name]) for name in entry.fields)}, NULL)"


def _reason(inputs: Sequence[Input], answered: SchemaAnswers) -> str:
    """Return why an event cannot be accepted; null if it can. The expression fails the query on a schema id
    that it cannot judge."""
    cases = [
        ("_topic IS NULL", "''"),
        (_IS_UNREAD, f"concat('{UNREAD}', {_header_text(UNREAD_HEADER, '_headers')})"),
    ]
    for given in inputs:
        tombstone = "CAST(NULL AS STRING)"
        if given.source.order is not None and not given.source.order_is_time:
            tombstone = literal(f"a tombstone has no time to compare with the order `{given.source.order}`")
        cases.append((f"{_is_from(given)} AND _deleted", tombstone))
    for given in inputs:
        if not given.framed:
            failed = event_formats.failed(given.source, given.latest)
            misfit = event_formats.misfit(given.source, given.latest)
            cases.append((_is_from(given), f"IF({failed}, {misfit}, NULL)"))
    cases.append(("NOT (length(value) >= 5 AND substring(value, 1, 1) = X'00')", literal(_NOT_FRAMED)))
    for given in inputs:
        if not given.framed:
            continue
        if given.reading is None:
            failed, misfit = f"{given.source.event}.{PROOF} IS NULL", _avro_misfit(given)
        else:
            failed = event_formats.failed(given.source, given.latest)
            # Another message: the columns that one view reads may fit, and those of another may not.
            cause = event_formats.misfit(given.source, given.latest)
            misfit = f"concat('it does not fit its schema id ', {_SCHEMA_ID}, ': ', {cause})"
        cases.append((_is_of(given), f"IF({failed}, {misfit}, NULL)"))
    mine = {writer.schema_id for given in inputs for writer in given.writers}
    elsewhere = [WriterSchema(schema_id, None).head for schema_id in sorted(answered.ids - mine)]
    judged = f"_offset < {_reach(answered.until)} AND NOT ({one_of('_head', elsewhere)})"
    if answered.refused or answered.above is not None:
        refused = one_of("_head", [WriterSchema(each, None).head for each in sorted(answered.refused)])
        if answered.above is not None:
            refused += f" OR CAST({_SCHEMA_ID} AS BIGINT) > {answered.above}L"
        judged = f"({judged}) OR {refused}"
    cases.append(
        (judged, f"concat('its schema id ', {_SCHEMA_ID}, ' is not a record schema of the registry')")
    )
    unknown = f"raise_error(concat('{UNKNOWN_SCHEMA} ', {_SCHEMA_ID}, ' ', _topic))"
    return first_of(cases, f"CAST({unknown} AS STRING)")


def _avro_misfit(given: Input) -> str:
    """Return why an event could not be decoded.

    If its schema does not resolve in every value to the view's reader schema, that is the likely cause and is
    named.
    """
    cases: list[tuple[str, str]] = []
    for writer in given.writers:
        problems = projected(writer.schema, given.latest, given.source.columns).problems
        if problems:
            cause = (
                f"its schema id {writer.schema_id} does not resolve to the schema that the view reads with: "
            )
            cases.append((one_of("_head", [writer.head]), literal(cause + "; ".join(problems))))
    other = f"concat('its bytes do not fit its schema id ', {_SCHEMA_ID})"
    return first_of(cases, other) if cases else other


def _reach(until: Positions) -> str:
    """Return the offset up to which an event's partition is covered by ``until``; 0 if it is not."""
    covered = [
        (f"_topic = {literal(topic)} AND _partition = {partition}", f"{offset}L")
        for (topic, partition), offset in until
    ]
    return first_of(covered, "0L") if covered else "0L"


_NOT_FRAMED = "not in the Confluent wire format (no magic byte 0 and schema id)"
_SCHEMA_ID = "conv(hex(substring(_head, 2, 4)), 16, 10)"
