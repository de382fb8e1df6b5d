"""[core] Decode changelog records to rows.

Decoding is most of an applier's work, so a schema is compiled to a Python function that reads its bytes,
without a call or type lookup per field. It supports records, unions, strings, bytes, numbers, booleans,
enums, arrays, maps and logical types. fastavro reads any other schema (a fixed, a type that is named again),
and bytes that do not fit, for its error messages. ``tests/unit/materializers/test_row_decoder.py`` checks
that both give the same rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from fastavro.read import LOGICAL_READERS

from hub.errors import HubFault, NotFound
from hub.materializers.changelog import row_batches
from hub.materializers.changelog.row_batches import ReadMany
from hub.materializers.stores.columns import as_numbers
from hub.materializers.types.avro_types import AvroType
from hub.record import Record
from hub.schema_registry.codecs.wire_format import Undecodable, decode, parsed
from hub.varint import take_unsigned

SOURCES_HEADER = "hub.sources"
# At least this many records of a schema are decoded together; for fewer, numpy's calls cost more than they
# save.
MANY = 100
# Raised on reading bytes that do not fit their schema.
BROKEN = (IndexError, ValueError, OverflowError, struct.error)

DecodedRow = Mapping[str, Any]
Read = Callable[[bytes, int], tuple[dict[str, Any], int]]


class SchemaTexts(Protocol):
    def schema(self, schema_id: int) -> str: ...


@dataclass(frozen=True, slots=True)
class _DecodableSchema:
    """A schema, and the functions compiled from it; None for one that needs fastavro."""

    parsed: Any
    read: Read | None
    read_many: ReadMany | None


class RowDecoder:
    """Rows by their writers' schemas. Not thread-safe."""

    def __init__(self, schemas: SchemaTexts) -> None:
        self.schemas = schemas
        self._known: dict[int, _DecodableSchema] = {}

    def row(self, record: Record) -> DecodedRow | None:
        """Return the record's row, times and dates of its columns as numbers; None: deleted.

        The columns of a SQL view are its author's, so the event that made its row is in a header; it becomes
        ``_sources`` here, as in all rows. Raises HubFault with topic, partition and offset.
        """
        return None if record.value is None else _with_sources(record, self._row(record, record.value))

    def rows(self, records: Sequence[Record]) -> list[DecodedRow | None]:
        """``row()`` for many records, in their order, in a fraction of the time."""
        rows: list[DecodedRow | None] = [None] * len(records)
        alike: dict[bytes, list[int]] = {}
        for place, record in enumerate(records):
            if record.value is not None:
                alike.setdefault(record.value[:5], []).append(place)
        for head, places in alike.items():
            values = [records[place].value or b"" for place in places]
            for place, value, row in zip(places, values, self._read_many(head, values), strict=True):
                record = records[place]
                rows[place] = _with_sources(record, row if row is not None else self._row(record, value))
        return rows

    def _read_many(self, head: bytes, values: Sequence[bytes]) -> Sequence[dict[str, Any] | None]:
        """Decode values together; None for each that is to be read by itself: it does not fit, or there are
        too few.
        """
        if len(values) >= MANY and len(head) == 5 and head[0] == 0:
            try:
                read_many = self._of(int.from_bytes(head[1:], "big")).read_many
            except NotFound:
                read_many = None
            if read_many is not None:
                return read_many(values, 5)
        return [None] * len(values)

    def _row(self, record: Record, value: bytes) -> dict[str, Any]:
        try:
            if len(value) >= 5 and value[0] == 0:
                read = self._of(int.from_bytes(value[1:5], "big")).read
                if read is not None:
                    try:
                        row, end = read(value, 5)
                        if end <= len(value):
                            return row
                    except BROKEN:
                        pass  # fastavro gives the reason
            _, row = decode(value, lambda schema_id: self._of(schema_id).parsed)
        except (Undecodable, NotFound) as error:  # NotFound: the registry answers, and has no such schema
            raise unreadable(record, error.message) from None
        if not isinstance(row, dict):
            raise unreadable(record, "not a row")
        return row

    def _of(self, schema_id: int) -> _DecodableSchema:
        decodable_schema = self._known.get(schema_id)
        if decodable_schema is None:
            schema = as_numbers(orjson.loads(self.schemas.schema(schema_id)))
            read = reader_of(schema)
            many = None if read is None else rows_reader_of(schema)
            decodable_schema = self._known[schema_id] = _DecodableSchema(parsed(schema), read, many)
        return decodable_schema


def _with_sources(record: Record, row: dict[str, Any]) -> dict[str, Any]:
    if "_sources" not in row and (origins := provenance(record)) is not None:
        row["_sources"] = origins
    return row


def provenance(record: Record) -> dict[str, Any] | None:
    """Return the events that made or deleted a row, from its header. Raises HubFault for invalid JSON."""
    header = record.header(SOURCES_HEADER)
    try:
        origins = orjson.loads(header) if header is not None else None
    except ValueError:
        raise unreadable(record, f"its header {SOURCES_HEADER} is not JSON") from None
    return origins if isinstance(origins, dict) else None


def unreadable(record: Record, why: str) -> HubFault:
    """Return the error for a record that is not a changelog row."""
    return HubFault(
        f'topic "{record.topic}" partition {record.partition} offset {record.offset}: '
        f"no changelog row: {why}",
        hint="find the other writer; delete the changelog topic and the view's "
        "checkpoint to rebuild the view",
        code="HUB-5020",
    )


def reader_of(schema: AvroType) -> Read | None:
    """Return a function from (bytes, position) to (row, position after it); None for an unsupported schema.

    It raises one of ``BROKEN`` for bytes that do not fit, or returns a position past their end.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    try:
        return _value_reader(schema)
    except _UnknownType:
        return None


def _value_reader(avro_type: AvroType) -> Callable[[bytes, int], tuple[Any, int]]:
    """``reader_of()`` for a value of any type. Raises _UnknownType."""
    writer = _FunctionWriter()
    result = writer.read(avro_type, 1)
    source = "\n".join(["def read(d, p):", *writer.lines, f"    return {result}, p"])
    space: dict[str, Any] = {
        "unsigned": take_unsigned,
        "length": _length,
        "unpack_d": _DOUBLE,
        "unpack_f": _FLOAT,
        "constants": writer.constants,
    }
    exec(compile(source, "<avro>", "exec"), space)  # noqa: S102 of a schema only the shape and quoted names are in it
    read: Read = space["read"]
    return read


def rows_reader_of(schema: AvroType) -> ReadMany:
    """Return the reader of many records, for a schema that ``reader_of`` supports: see ``row_batches``."""
    return row_batches.reader_of(schema, _value_reader, BROKEN, LOGICAL_READERS)


class _UnknownType(Exception):
    """A type that is left to fastavro."""


_DOUBLE = struct.Struct("<d").unpack_from
_FLOAT = struct.Struct("<f").unpack_from
# A union of more branches has an index of more bytes.
_MOST_BRANCHES = 60
_DEEPEST = 12


def _length(data: bytes, place: int, low: int) -> tuple[int, int]:
    """Read a length whose first byte was ``low``. The caller detects a length past the end."""
    number, place = take_unsigned(data, place - 1) if low > 0x7F else (low, place)
    if number & 1:
        raise ValueError("a negative length")
    return number >> 1, place


class _FunctionWriter:
    """Writes the lines of one reading function. Field names enter the text only by ``repr``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[Any] = []
        self.count = 0

    def read(self, avro_type: AvroType, depth: int) -> str:
        """Write lines that read a value at ``p``; return the variable or expression that then holds it."""
        if depth > _DEEPEST:
            raise _UnknownType
        if isinstance(avro_type, list):
            return self._union(avro_type, depth)
        if isinstance(avro_type, dict):
            return self._complex(avro_type, depth)
        return self._primitive(avro_type, depth)

    def _new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _emit(self, depth: int, *lines: str) -> None:
        self.lines.extend("    " * depth + line for line in lines)

    def _long(self, name: str, depth: int) -> None:
        self._emit(depth, f"{name} = d[p]; p += 1")
        self._emit(depth, f"if {name} > 127: {name}, p = unsigned(d, p - 1)")
        self._emit(depth, f"{name} = ({name} >> 1) ^ -({name} & 1)")

    def _primitive(self, avro_type: AvroType, depth: int) -> str:
        name = self._new()
        match avro_type:
            case "null":
                return "None"
            case "boolean":
                self._emit(depth, f"{name} = d[p] != 0; p += 1")
            case "int" | "long":
                self._long(name, depth)
            case "double":
                self._emit(depth, f"{name}, = unpack_d(d, p); p += 8")
            case "float":
                self._emit(depth, f"{name}, = unpack_f(d, p); p += 4")
            case "string" | "bytes":
                as_text = ".decode()" if avro_type == "string" else ""
                self._emit(depth, "n = d[p]; p += 1", "if n & 129: n, p = length(d, p, n)", "else: n >>= 1")
                self._emit(depth, f"e = p + n; {name} = d[p:e]{as_text}; p = e")
            case _:
                raise _UnknownType
        return name

    def _union(self, branches: list[AvroType], depth: int) -> str:
        if not 0 < len(branches) <= _MOST_BRANCHES:
            raise _UnknownType
        name = self._new()
        self._emit(depth, "u = d[p]; p += 1")
        for index, branch in enumerate(branches):
            self._emit(depth, f"{'if' if index == 0 else 'elif'} u == {2 * index}:")
            value = self.read(branch, depth + 1)
            self._emit(depth + 1, f"{name} = {value}")
        self._emit(depth, "else: raise ValueError")
        return name

    def _complex(self, avro_type: Mapping[str, Any], depth: int) -> str:
        kind = avro_type["type"]
        logical = LOGICAL_READERS.get(f"{kind}-{avro_type.get('logicalType')}")
        if logical is not None and isinstance(kind, str):
            self.constants.append((logical, avro_type))
            value, name = self.read(kind, depth), self._new()
            self._emit(depth, f"f, s = constants[{len(self.constants) - 1}]", f"{name} = f({value}, s, None)")
            return name
        match kind:
            case "record":
                return self._record(avro_type, depth)
            case "enum":
                name = self._new()
                self._long(name, depth)
                self.constants.append(list(avro_type["symbols"]))
                self._emit(depth, f"if {name} < 0: raise ValueError")
                self._emit(depth, f"{name} = constants[{len(self.constants) - 1}][{name}]")
                return name
            case "array" | "map":
                return self._blocks(avro_type, depth)
            case str():
                return self.read(kind, depth)
        raise _UnknownType

    def _record(self, avro_type: Mapping[str, Any], depth: int) -> str:
        values = [(each["name"], self.read(each["type"], depth)) for each in avro_type["fields"]]
        made = self._new()
        self._emit(depth, f"{made} = {{{', '.join(f'{field!r}: {value}' for field, value in values)}}}")
        return made

    def _blocks(self, avro_type: Mapping[str, Any], depth: int) -> str:
        """Write lines that read blocks of counted items; a negative count precedes the block's size, 0 ends
        them.
        """
        made, left, is_map = self._new(), self._new(), avro_type["type"] == "map"
        self._emit(depth, f"{made} = {'{}' if is_map else '[]'}", "while True:")
        self._long(left, depth + 1)
        self._emit(depth + 1, f"if {left} == 0: break", f"if {left} < 0:")
        self._emit(depth + 2, f"{left} = -{left}")
        self._long("n", depth + 2)
        # Items of no bytes (null) would let a few bytes request any number of them.
        self._emit(depth + 1, f"if {left} > len(d): raise ValueError", f"for _ in range({left}):")
        key = self.read("string", depth + 2) if is_map else ""
        value = self.read(avro_type["values" if is_map else "items"], depth + 2)
        self._emit(depth + 2, f"{made}[{key}] = {value}" if is_map else f"{made}.append({value})")
        return made
