"""[shell] Schema versions of a topic, and decoders of its records by schema id.

A value is decoded with its writer's schema under the names of the newest one: a renamed field (an alias) is
in the column of its new name. A field that the writer lacks is null, whatever its default, so that a row
depends on its record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from pyiceberg.types import NestedField

from hub.errors import NotFound
from hub.lake.columns import RAW, LakeColumn, columns_of, raw_columns
from hub.lake.evolution import fits
from hub.lake.rows import DecodedRecord, Layout
from hub.materializers.types.source_formats import of_registry
from hub.record import Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.avro_resolution import resolve
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.values import decoder_as, decoder_of
from hub.schema_registry.codecs.wire_format import Undecodable, unframe
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.avro.types import types_of
from hub.topics.dead_letters.model import UNREAD


class Rejected(Exception):
    """A record that has no row; the message is the reason, for its dead-letter record."""


@dataclass(frozen=True, slots=True)
class LakeSchemaVersion:
    """A version of the topic's value schema. ``columns`` None: it describes no record."""

    number: int
    id: int
    source: SchemaSource
    columns: tuple[LakeColumn, ...] | None


@dataclass(frozen=True, slots=True)
class _SchemaReading:
    """Reading of the values of one schema id; ``reason``: why they are not read."""

    decode: Callable[[bytes, int], Any] | None
    layout: Layout
    reason: str = ""


class LakeSchemas:
    """Versions of one topic, and readings of its schema ids. Not thread safe."""

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry, self.topic = registry, topic
        self.versions: list[LakeSchemaVersion] = []
        self._readings: dict[int, _SchemaReading] = {}
        self._fields: Mapping[str, NestedField] = {}

    def refresh(self) -> bool:
        """Ask the registry for versions. Returns True if there are new ones. Raises PeerError."""
        subject = f"{self.topic}-value"
        newest = self._registry.known_latest(subject)
        known = self.versions[-1].number if self.versions else 0
        if newest is None or newest.version <= known:
            return False
        for each in self._registry.versions(subject):
            if each.version > known:
                source = self._registry.source(each.id)
                self.versions.append(LakeSchemaVersion(each.version, each.id, source, _columns(source)))
        self._readings.clear()
        return True

    @property
    def number(self) -> int:
        """Number of the newest version; 0 for a topic without a schema."""
        return self.versions[-1].number if self.versions else 0

    def since(self, number: int) -> list[tuple[LakeColumn, ...]]:
        """Return the columns of each version after one, oldest first: what a table is to be brought to."""
        if not self.versions:
            return [raw_columns()] if number < 0 else []
        return [each.columns for each in self.versions if each.number > number and each.columns is not None]

    def use(self, fields: Sequence[NestedField]) -> None:
        """Lay values out for a table with these fields."""
        self._fields = {each.name: each for each in fields}
        self._readings.clear()

    def knows(self, record: Record) -> bool:
        """Return False if the record's schema id may belong to a version that is not known yet."""
        if record.value is None:
            return True
        try:
            schema_id, _ = unframe(record.value)
        except Undecodable:
            return True
        return any(each.id == schema_id for each in self.versions)

    def decoded(self, record: Record) -> DecodedRecord:
        """Return the record with its value. Raises Rejected, PeerError."""
        if record.unread is not None:
            raise Rejected(UNREAD + record.unread)
        if not self.versions:
            value = None if record.value is None else {RAW: record.value}
            return DecodedRecord(record, _id_of(record.value), value, {RAW: raw_columns()[0]})
        if record.value is None:
            return DecodedRecord(record, None, None, {})
        try:
            schema_id, _ = unframe(record.value)
        except Undecodable as error:
            raise Rejected(error.message) from None
        reading = self._readings.get(schema_id)
        if reading is None:
            reading = self._readings[schema_id] = self._reading(schema_id)
        if reading.decode is None:
            raise Rejected(reading.reason)
        try:
            value = reading.decode(record.value, 5)
        except (BrokenValue, Undecodable, InvalidSchema) as error:
            raise Rejected(f"its bytes do not fit its schema id {schema_id}: {str(error)[:300]}") from None
        if not isinstance(value, Mapping):
            raise Rejected(f"it does not fit its schema id {schema_id}: it is not an object")
        return DecodedRecord(record, schema_id, value, reading.layout)

    def _reading(self, schema_id: int) -> _SchemaReading:
        version = next((each for each in self.versions if each.id == schema_id), None)
        if version is None:
            try:
                self._registry.source(schema_id)
            except NotFound:
                return _SchemaReading(None, {}, f"its schema id {schema_id} is not a record schema: unknown")
            reason = f'its schema id {schema_id} is not a version of "{self.topic}-value"'
            return _SchemaReading(None, {}, reason)
        newest = self.versions[-1]
        if version.columns is None or newest.columns is None:
            return _SchemaReading(None, {}, f"its schema id {schema_id} is not a record schema")
        try:
            by_newest, decode = _decoder(version.source, newest.source)
        except InvalidSchema as error:
            return _SchemaReading(
                None, {}, f"its schema id {schema_id} is not a record schema: {error}"[:300]
            )
        layout, missing = _layout(self._fields, newest.columns, version.columns, by_newest)
        if missing:
            reason = f'it does not fit its schema id {schema_id}: no column for the type of "{missing}"'
            return _SchemaReading(None, {}, reason)
        return _SchemaReading(decode, layout)


def _id_of(value: bytes | None) -> int | None:
    try:
        return None if value is None else unframe(value)[0]
    except Undecodable:
        return None


def _columns(source: SchemaSource) -> tuple[LakeColumn, ...] | None:
    """Return the columns of a schema; None if it is not a record or cannot be parsed."""
    try:
        if source.schema_type == "AVRO":
            root = source.parsed().root()
        else:
            root = types_of(of_registry(source), strict=False)
    except InvalidSchema:
        return None
    if root.kind not in ("record", "error"):
        return None
    return columns_of(root, json=source.schema_type != "AVRO")


def _decoder(
    writer: SchemaSource, newest: SchemaSource
) -> tuple[Callable[[LakeColumn], bool], Callable[[bytes, int], Any]]:
    """Return (whether a column of the newest schema holds the decoded value, the decoder)."""
    if writer.schema_type != "AVRO" or newest.schema_type != "AVRO":
        decode = (
            decoder_of(writer)
            if writer.schema_type != "AVRO"
            else decoder_as(writer, writer, as_written=True)
        )
        return lambda _column: False, decode
    wrote, read = _plain(writer.parsed()), _plain(newest.parsed())

    def resolves(column: LakeColumn) -> bool:
        return not resolve(wrote, read, [column.field]).problems

    return resolves, decoder_as(writer, newest, as_written=True)


def _plain(parsed: AvroSchema) -> Any:
    return orjson.loads(avro.resolved(parsed.value, parsed.types))


def _layout(
    fields: Mapping[str, NestedField],
    newest: Sequence[LakeColumn],
    writer: Sequence[LakeColumn],
    resolves: Callable[[LakeColumn], bool],
) -> tuple[Layout, str]:
    """Return the columns of a writer's schema by the table's, and a field without a column ("": none)."""
    layout: dict[str, LakeColumn] = {}
    for column in writer:
        now = next((each for each in newest if each.field == column.field), None)
        now = now or next((each for each in newest if column.field in each.aliases), None)
        if now is not None and resolves(now):
            layout[now.name] = now
            continue
        # What does not resolve keeps its type, under the name of the newest schema where there is one.
        named = column if now is None else replace(column, name=now.name, field=now.field)
        places = [each for each in fields if each == named.name or each.startswith(f"{named.name}__")]
        place = next((each for each in places if fits(fields[each], named)), None)
        if place is None:
            return {}, column.field
        layout[place] = named
    return layout, ""
