"""[edge] The table of a topic as the archive of its log, for queries: records of one snapshot, streamed.

A query reads the archive up to the positions of the snapshot, and the log from there. The snapshot stays as
it is while the writer commits or is killed, so each record is in an answer once.

A value has the form that a decoder of queries gives: times of the top level in milliseconds, the names of the
newest schema, and its defaults for fields that the writer's schema lacks. A column that Iceberg could not
widen (``amount__int``) is a value of its field again.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson
import pyarrow
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan

from hub.iceberg.catalog import catalog_errors
from hub.lake.columns import META, RAW, LakeColumn, holds_json
from hub.lake.evolution import is_retired
from hub.lake.schemas import LakeSchemaVersion
from hub.lake.table import LakeTable
from hub.materializers.queries.topic_columns import json_shape
from hub.materializers.queries.whole_topic import ArchivedRecord, Span, WholeRead
from hub.materializers.types.json_defaults import filled
from hub.record import Record
from hub.schema_registry.codecs.values import decoder_as
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.times import EPOCH

_META = {each.name for each in META}
_ROWS = 2_000
# A record without any field: decoded with a newer schema, it has that schema's defaults.
_EMPTY = SchemaSource.of(
    "AVRO", '{"type": "record", "name": "Empty", "fields": [{"name": "_hub", "type": "null"}]}'
)
_TIMES_OF_DAY = ("time-millis", "time-micros")


class ArchivedTable:
    """Implements ArchivedTopic: one snapshot of a topic's table."""

    def __init__(self, topic: str, table: LakeTable, versions: Sequence[LakeSchemaVersion]) -> None:
        self.topic, self._name = topic, table.name
        self._table, self._scan = table.table, table.table.scan()
        self._progress, self._versions = table.progress, versions
        self._missing_fields: dict[int, Mapping[str, Any]] = {}

    @property
    def positions(self) -> Mapping[int, int]:
        return self._progress.positions

    @property
    def missing(self) -> Mapping[int, Sequence[Span]] | None:
        if self._progress.missing is None:
            return None
        found: dict[int, list[Span]] = {}
        for partition, first, last in self._progress.missing:
            found.setdefault(partition, []).append((first, last))
        return found

    @property
    def dead_letters(self) -> int:
        return self._progress.dead_letters

    def read(
        self, kinds: Mapping[str, str], names: Collection[str] | None, wanted: WholeRead
    ) -> Iterator[Sequence[ArchivedRecord]]:
        """Implements ArchivedTopic. One file is in memory at a time, and of it the needed columns alone."""
        fields = {name: of for name, of in self._fields.items() if names is None or of in names}
        chosen = [*(_META - {"_headers"}), *fields]
        with catalog_errors(f'table "{self._name}"'):
            scan = self._scan.filter(_filter(wanted))
            projected = scan.table_metadata.schema().select(*chosen)
            tasks = list(scan.plan_files())
        for task in tasks:
            with catalog_errors(f'table "{self._name}"'):
                reader = ArrowScan(scan.table_metadata, scan.io, projected, scan.row_filter)
                batches = list(reader.to_record_batches([task]))
            for batch in batches:
                for begin in range(0, batch.num_rows, _ROWS):
                    yield self._records(batch.slice(begin, _ROWS), fields, kinds)

    @cached_property
    def _fields(self) -> dict[str, str]:
        """Columns of the table with the fields of the newest schema that their values belong to."""
        of = {each.name: each.field for version in self._versions for each in version.columns or ()}
        names = [each.name for each in self._table.schema().fields if each.name not in _META]
        found = {}
        for name in names:
            base = next((each for each in names if each != name and is_retired(name, [each])), name)
            found[name] = of.get(base, base)
        return found

    @cached_property
    def _columns(self) -> dict[str, LakeColumn]:
        """The newest column of each name: whether its text is JSON."""
        return {each.name: each for version in self._versions for each in version.columns or ()}

    @cached_property
    def _times_of_day(self) -> frozenset[str]:
        found = set()
        for version in self._versions:
            parsed = version.source.parsed()
            for each in parsed.root().fields if isinstance(parsed, AvroSchema) else ():
                if any(branch.logical in _TIMES_OF_DAY for branch in each.type.branches):
                    found.add(each.name)
        return frozenset(found)

    def _records(
        self, batch: pyarrow.RecordBatch, fields: Mapping[str, str], kinds: Mapping[str, str]
    ) -> list[ArchivedRecord]:
        """Return the records of rows."""
        meta = {name: batch[name] for name in _META - {"_headers"}}
        times = [None if each is None else each // 1_000 for each in _integers(meta["_timestamp"])]
        partitions, offsets, keys, ids = (
            meta[name].to_pylist() for name in ("_partition", "_offset", "_key", "_schema_id")
        )
        columns = [
            (of, name == RAW, self._values(name, batch[name], kinds.get(of))) for name, of in fields.items()
        ]
        raw = next((values for _, is_raw, values in columns if is_raw), None)
        decoded = [(of, values) for of, is_raw, values in columns if not is_raw]
        found = []
        for row, (partition, offset, at_ms, key, schema_id) in enumerate(
            zip(partitions, offsets, times, keys, ids, strict=True)
        ):
            record = Record(self.topic, partition, offset, at_ms, key, b"")  # type: ignore[arg-type]
            if not self._versions or (raw is not None and raw[row] is not None):
                value = None if raw is None else raw[row]
                found.append(ArchivedRecord(record._replace(value=value), None, False, schema_id))
            elif schema_id is None:
                found.append(ArchivedRecord(record._replace(value=None), None, True, None))
            else:
                event = {of: values[row] for of, values in decoded if values[row] is not None}
                found.append(ArchivedRecord(record, self._whole(event, schema_id), True, schema_id))
        return found

    def _values(self, name: str, array: pyarrow.Array, kind: str | None) -> list[Any]:
        """Return the values of a column as a decoder of queries gives them."""
        column, kept = self._columns.get(name), array.type
        avro = not self._versions or self._versions[-1].source.schema_type == "AVRO"
        if pyarrow.types.is_timestamp(kept):
            if avro:
                return [None if each is None else each // 1_000 for each in _integers(array)]
            return [None if each is None else _iso(each) for each in array.to_pylist()]
        if pyarrow.types.is_date32(kept):
            return (
                _integers(array)
                if avro
                else [None if each is None else str(each) for each in array.to_pylist()]
            )
        convert: Callable[[Any], Any] | None = None
        if column is not None and holds_json(column):
            convert = orjson.loads
        elif name in self._times_of_day:
            convert = lambda text: str(dt.time.fromisoformat(text))
        elif pyarrow.types.is_nested(kept):
            convert = lambda value: _plain(value, kept)
        elif kind == "string" and (pyarrow.types.is_binary(kept) or pyarrow.types.is_large_binary(kept)):
            convert = lambda value: base64.b64encode(value).decode()
        values = array.to_pylist()
        return values if convert is None else [None if each is None else convert(each) for each in values]

    def _whole(self, event: dict[str, Any], schema_id: int) -> dict[str, Any]:
        """Return the event with the newest schema's defaults for fields that its writer's schema lacks."""
        newest = self._versions[-1].source
        if newest.schema_type == "JSON":
            shape = json_shape(newest)
            return event if shape is None else dict(filled(event, shape))
        if schema_id not in self._missing_fields:
            self._missing_fields[schema_id] = self._defaults(schema_id)
        return {**self._missing_fields[schema_id], **event}

    def _defaults(self, schema_id: int) -> Mapping[str, Any]:
        writer = next((each.source.parsed() for each in self._versions if each.id == schema_id), None)
        newest = self._versions[-1].source
        parsed = newest.parsed()
        if not isinstance(writer, AvroSchema) or not isinstance(parsed, AvroSchema):
            return {}
        has = {each.name for each in writer.root().fields}
        lacks = [each.name for each in parsed.root().fields if not {each.name, *each.aliases} & has]
        defaults = decoder_as(_EMPTY, newest)(bytes(5), 5) if lacks else {}
        return {name: defaults.get(name) for name in lacks}


def _filter(wanted: WholeRead) -> str | BooleanExpression:
    bounds = [(">=", wanted.since_ms), ("<=", wanted.until_ms)]
    found = [f"_timestamp {sign} '{_moment(at_ms)}'" for sign, at_ms in bounds if at_ms is not None]
    return " and ".join(found) or AlwaysTrue()


_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_999


def _moment(at_ms: int) -> str:
    within = max(_LEAST_MS, min(_MOST_MS, at_ms))
    return (EPOCH + dt.timedelta(milliseconds=within)).isoformat()


def _integers(array: pyarrow.Array) -> list[int | None]:
    kind = pyarrow.int32() if pyarrow.types.is_date32(array.type) else pyarrow.int64()
    found: list[int | None] = array.cast(kind).to_pylist()
    return found


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _plain(value: Any, kind: pyarrow.DataType) -> Any:
    """Return a nested value with maps as dicts."""
    if value is None or not pyarrow.types.is_nested(kind):
        return value
    if pyarrow.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pyarrow.types.is_struct(kind):
        return {each.name: _plain(value[each.name], each.type) for each in kind}
    return [_plain(each, kind.value_type) for each in value]
