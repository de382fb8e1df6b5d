"""[shell] Recent events of a topic as rows of a table: the source of ``FROM "nyc.jfk.departures"``.

Columns come from the versions of the topic's value schema, before any event is read: a field that two
versions type differently is nested (json), and a topic without a schema has only ``_value``. The last N
events of each partition, or those since a time, are decoded with their writer's schema and resolved to the
newest one, as in views: its names and its defaults. Only ``_value`` shows the event as it was written. An
event that cannot be decoded is counted and never shown in part. Reading is bounded in events, bytes and time,
and reports the offsets that it covered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.caller import sees_schema, topic_visibility
from hub.errors import NotFound, PeerError
from hub.log import Log
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.masked_relations import masked_events
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_columns import META, VALUE, cell, columns_of, former_names, json_shape
from hub.materializers.queries.whole_topic import Span, TopicArchive
from hub.materializers.types.json_defaults import filled
from hub.record import Positions, Record, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.unreadable import UNREADABLE
from hub.schema_registry.codecs.values import decoder_as, decoder_of
from hub.schema_registry.codecs.wire_format import Undecodable, unframe
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model.lru_cache import LruCache

DEFAULT_EVENTS = 10_000
MOST_EVENTS = 100_000
MOST_BYTES = 64_000_000
_MOST_VERSIONS = 50
_MOST_COLUMNS = 400
_BATCH = 1_000
_SILENCE_S = 10.0
Decode = Callable[[bytes, int], Any]


@dataclass(slots=True)
class ScannedRange:
    """Offsets of a partition that the answer covers: ``start`` inclusive to ``end`` exclusive.

    ``before``: the log has earlier events in the requested range that are not in the answer. ``archived_to``:
    earlier events are from the archive; None: it was not read. ``missing``: ranges that neither archive nor
    log has; None: not known. ``dead_letters``: records that the topic's archive has as dead letters only.
    """

    topic: str
    partition: int
    start: int
    end: int
    events: int = 0
    unreadable: int = 0
    before: bool = False
    archived_to: int | None = None
    missing: tuple[Span, ...] | None = ()
    dead_letters: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.start,
            "to": self.end,
            "events": self.events,
            "unreadable": self.unreadable,
            "earlier_left_out": self.before,
            "archived_to": self.archived_to,
            "missing": None if self.missing is None else [list(each) for each in self.missing],
            "archive_dead_letters": self.dead_letters,
        }


def missing_text(scanned: Sequence[ScannedRange]) -> str:
    """Return what archive and log of the topics lack, as ``topic:partition:first-next,…``; "" for nothing.

    ``?`` instead of a range: the archive does not know what it lacks.
    """
    parts = []
    for each in scanned:
        spans = ["?"] if each.missing is None else [f"{first}-{end}" for first, end in each.missing]
        parts += [f"{each.topic}:{each.partition}:{span}" for span in spans]
    return ",".join(parts)


def wanted_kinds(table: EventTable, wanted: frozenset[str]) -> dict[str, str]:
    """Return the columns that a statement needs, name to kind. ``wanted``: see ``TopicTables.read``."""
    return {
        name: kind
        for name, kind in {**table.columns, **table.hidden}.items()
        if name.lower() in wanted or ("*" in wanted and name in table.columns)
    }


def cells_of(
    table: EventTable,
    kinds: Mapping[str, str],
    names: Iterable[str],
    record: Record,
    value: Any,
    whole: Any,
) -> list[Any]:
    """Return one event as a row, as the caller sees it. ``whole``: the event as it was written."""
    shape = table.shape
    if not shape.is_open:
        value, whole = (shape.event(each, refuse=False) for each in (value, whole))
        key = None if record.key is None else shape.masked_key(record.key.decode("utf-8", "replace"))
        record = record._replace(key=None if key is None else key.encode())
        kinds = {name: kind for name, kind in kinds.items() if name not in table.blank}
    return [cell(name, kinds, record, whole if name == VALUE else value) for name in names]


@dataclass(slots=True)
class TopicTables:
    """Reads events of topics as tables. Thread-safe: decoders are shared by schema id, and an id never
    changes.
    """

    cluster: Log
    schemas: SchemaRegistry
    archive: TopicArchive | None = None
    _decoders: LruCache[tuple[int, int | None], Decode] = field(default_factory=lambda: LruCache(500))

    def table(self, topic: str) -> EventTable | None:
        """Return the topic as a table without rows, as the caller sees it; None for an unknown topic or
        one of Kafka's own. Raises PeerError, MaskRefused.
        """
        if topic.startswith("__"):
            return None
        try:
            self.cluster.end_offsets([topic])
        except NotFound:
            return None
        columns: dict[str, str] = {}
        newest: dict[str, str] = {}
        former: frozenset[str] = frozenset()
        read_as: int | None = None
        for version in self.schemas.versions(f"{topic}-value")[-_MOST_VERSIONS:]:
            try:
                parsed = self.schemas.source(version.id).parsed()
                found = columns_of(parsed)
            except InvalidSchema:
                continue
            read_as, former = version.id, former_names(parsed)
            for name, kind in found.items():
                columns[name] = kind if columns.get(name, kind) == kind else "json"
                newest[name.lower()] = name
        # SQLite compares column names case-insensitively. Of names that are equal, a reserved one comes
        # first, then the newest. The others, and names that no table can have, are in _value.
        own = [
            (name, kind)
            for name, kind in columns.items()
            if name == newest[name.lower()]
            and name.lower() not in (*META, VALUE)
            and "\0" not in name
            and name not in former
        ]
        table = EventTable(topic, {**dict(own[:_MOST_COLUMNS]), **META}, {VALUE: "json"}, read_as=read_as)
        return masked_events(table, topic_visibility(topic))

    def names(self) -> list[str]:
        """Return every topic's name, without Kafka's own. Raises PeerError."""
        return [name for name in self.cluster.topics() if not name.startswith("__")]

    def read(
        self,
        table: EventTable,
        wanted: frozenset[str],
        running: RunningQuery,
        *,
        last: int = DEFAULT_EVENTS,
        since_ms: int | None = None,
    ) -> tuple[EventTable, list[ScannedRange]]:
        """Return the table with rows: the last events of each partition or those since a time, at most
        ``MOST_EVENTS``.

        ``wanted``: names in the statement, in lower case; ``*`` means all columns except the hidden ones.
        Raises SqlError for too many bytes or too much time, PeerError.
        """
        ranges = self._ranges(table.name, last, since_ms)
        row_of = self.row_maker(table, wanted)
        rows: list[list[Any]] = []
        weight = 0
        for record in self.records(table.name, ranges, running):
            if since_ms is not None and record.timestamp_ms < since_ms:
                # a broker may return the whole batch that holds the time, and times are not monotonic
                continue
            scanned = ranges[record.topic_partition]
            weight += len(record.value or b"") + len(record.key or b"") + 100
            if weight > MOST_BYTES:
                raise SqlError(
                    f'topic "{table.name}": its events are more than {MOST_BYTES // 1_000_000} MB',
                    hint="ask for fewer: events=1000, or a later since",
                    code="HUB-1452",
                )
            scanned.events += 1
            row = row_of(record)
            if row is None:
                scanned.unreadable += 1
            elif row:
                rows.append(row)
        done = replace(table, rows=rows)
        return done, [ranges[tp] for tp in sorted(ranges)]

    def rows(
        self, table: EventTable, wanted: frozenset[str], records: Iterable[Record]
    ) -> tuple[EventTable, int]:
        """Return the table with these records as rows, and how many of them cannot be decoded.

        ``wanted``: as in ``read``.
        """
        row_of = self.row_maker(table, wanted)
        found = [row_of(record) for record in records]
        return replace(table, rows=[row for row in found if row]), sum(row is None for row in found)

    def row_maker(self, table: EventTable, wanted: frozenset[str]) -> Callable[[Record], list[Any] | None]:
        """Return the function from a record to its row; its None: the record cannot be decoded; []: the
        caller does not see it. Raises PeerError if the caller sees something else than when the table was
        made."""
        if topic_visibility(table.name) != table.shape:
            raise PeerError(
                f'topic "{table.name}": what you see of it has changed',
                hint="ask again",
                code="HUB-3079",
            )
        names = [*table.columns, *table.hidden]
        kinds = wanted_kinds(table, wanted)
        visible: dict[int, bool] = {}

        def row_of(record: Record) -> list[Any] | None:
            if record.unread is not None:
                return None
            try:
                value = self._value(record.value, table.read_as, visible)
                whole = self._value(record.value, None, visible) if VALUE in kinds else None
                if not table.shape.admits(value):
                    return []
                return cells_of(table, kinds, names, record, value, whole)
            except UNREADABLE:
                return None

        return row_of

    def _ranges(self, topic: str, last: int, since_ms: int | None) -> dict[TopicPartition, ScannedRange]:
        ends = self.cluster.end_offsets([topic])
        begins = self.cluster.beginning_offsets([topic])
        first = self.cluster.offsets_at([topic], since_ms) if since_ms is not None else None
        found = {}
        for tp, end in ends:
            most = MOST_EVENTS if first is not None else min(last, MOST_EVENTS)
            first_wanted = begins.get(tp) if first is None else first.get(tp, end)
            start = max(begins.get(tp), first_wanted, end - most)
            found[tp] = ScannedRange(
                tp.topic, tp.partition, start, end, before=start > max(first_wanted, begins.get(tp))
            )
        return found

    def records(
        self, topic: str, ranges: Mapping[TopicPartition, ScannedRange], running: RunningQuery
    ) -> Iterable[Record]:
        """Yield every record of the ranges, up to their ends as of the request."""
        waiting = {tp: each.start for tp, each in ranges.items() if each.start < each.end}
        if not waiting:
            return
        reader = self.cluster.reader()
        try:
            reader.assign(Positions(waiting))
            silent_since = time.monotonic()
            while waiting:
                if running.over:
                    raise running.ended()
                page = reader.poll(_BATCH, 0.2)
                for record in page:
                    if record.offset < ranges[record.topic_partition].end:
                        yield record
                position = reader.position()
                waiting = {tp: position.get(tp) for tp in waiting if position.get(tp) < ranges[tp].end}
                if page:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > _SILENCE_S:
                    raise PeerError(
                        f'topic "{topic}": no events for {_SILENCE_S:.0f} s, before its end',
                        hint="check Kafka with hub doctor",
                    )
        finally:
            reader.close()

    def _value(self, value: bytes | None, read_as: int | None, visible: dict[int, bool]) -> Any:
        """Decode the event with this reader schema; None: as it was written.

        ``visible``: whether the caller may see a schema, by id, checked once per read. Raises NotFound for a
        schema that is hidden from the caller, as for a missing one.
        """
        if value is None:
            return None
        try:
            schema_id, _ = unframe(value)
        except Undecodable:
            return orjson.loads(value)
        if schema_id not in visible:
            visible[schema_id] = sees_schema(lambda: self.schemas.subjects_of(schema_id))
        if not visible[schema_id]:
            raise NotFound(f"schema {schema_id} does not exist")
        decode = self._decoders.get((schema_id, read_as))
        if decode is None:
            decode = self._decoder(schema_id, read_as)
            self._decoders.put((schema_id, read_as), decode)
        return decode(value, 5)

    def _decoder(self, schema_id: int, read_as: int | None) -> Decode:
        source = self.schemas.source(schema_id)
        reader = None if read_as is None else self.schemas.source(read_as)
        if reader is None or reader.schema_type != source.schema_type:
            return decoder_of(source)
        if reader.schema_type != "JSON":
            return decoder_as(source, reader)
        decode, shape = decoder_of(source), json_shape(reader)
        return decode if shape is None else lambda value, start: filled(decode(value, start), shape)
