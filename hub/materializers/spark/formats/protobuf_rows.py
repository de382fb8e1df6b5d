"""[edge] protobuf and pyarrow: decode Protobuf messages to Arrow columns, batch by batch, in Spark's Python
workers.

Spark's own Protobuf reader is a jar that does not resolve for this Spark version (docs/adr/0016). This code
takes a batch's bytes as one Arrow array and returns its columns as another. Protobuf's C library parses the
messages. Imports little, because each worker imports it at its start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

from hub.schema_registry.formats.protobuf.message_indexes import message_indexes

BROKEN = "_broken"

_MOST_SECONDS = 253_402_300_800  # the year 10000, the end of Timestamp's range
_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}

Convert = Callable[[Any], Any]


def columns_of(
    bodies: pa.Array, files: bytes, message: str, columns: Sequence[str], *, framed: bool = True
) -> pa.StructArray:
    """Return a struct per value: the given columns of the message, and ``_broken``, why it cannot be read
    (null: it was read).

    ``bodies``: if ``framed``, the bytes after the schema id: the message's place in its file, then the
    message; else the message. Null gives null columns. ``files``: a FileDescriptorSet.
    """
    reader = _reader(files, message, tuple(columns), framed)
    rows: list[tuple[Any, ...]] = []
    broken: list[str | None] = []
    nothing = (None,) * len(columns)
    for value in bodies.to_pylist():
        row, why = (nothing, None) if value is None else reader.row(value)
        rows.append(nothing if row is None else row)
        broken.append(why)
    by_column = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [pa.array(values, kind) for values, kind in zip(by_column, reader.types, strict=True)]
    return pa.StructArray.from_arrays([*arrays, pa.array(broken, pa.string())], names=[*columns, BROKEN])


class _ProtobufReader:
    def __init__(self, files: bytes, message: str, columns: Sequence[str], framed: bool) -> None:
        pool = descriptor_pool.DescriptorPool()
        for file in FileDescriptorSet.FromString(files).file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(message)
        self._pool, self._name, self._framed = pool, message, framed
        self._make = message_factory.GetMessageClass(descriptor)
        fields = [descriptor.fields_by_name[name] for name in columns]
        self._read = [(field, *_field(field, pool, (message,))) for field in fields]
        self.types = [kind for _, kind, _ in self._read]

    def row(self, value: bytes) -> tuple[tuple[Any, ...] | None, str | None]:
        """Return (the columns, None), or (None, why the value cannot be read)."""
        try:
            start = _place(value) if self._framed else 0
            made = self._make()
            made.MergeFromString(value[start:])
            return tuple(_value(made, field, convert) for field, _, convert in self._read), None
        except _OtherMessage as other:
            return None, f"{other}; the view reads {self._name}, the file's first message"
        except Exception as error:  # noqa: BLE001 - any error means an unreadable event
            return None, f"no {self._name}: {str(error)[:200] or type(error).__name__}"


@lru_cache(maxsize=64)
def _reader(files: bytes, message: str, columns: tuple[str, ...], framed: bool) -> _ProtobufReader:
    return _ProtobufReader(files, message, columns, framed)


class _OtherMessage(Exception):
    """The event is another message of the file."""


def _place(value: bytes) -> int:
    """Return where the message begins, after its message indexes. Raises ValueError."""
    indexes, at = message_indexes(value, 0)
    if indexes != [0]:
        raise _OtherMessage(f"it is message {indexes} of its file")
    return at


# ---- fields: (Arrow's type, what makes its value)


def _value(message: Message, field: FieldDescriptor, convert: Convert) -> Any:
    if field.has_presence and not message.HasField(field.name):
        # The file's explicit default (proto2, editions), else null.
        return convert(field.default_value) if field.has_default_value else None
    return convert(getattr(message, field.name))


def _field(field: FieldDescriptor, pool: Any, within: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        kind, of = _one(inner.fields_by_name["value"], pool, within)
        return pa.map_(pa.string(), kind), lambda found: [
            (_key(key), of(found[key])) for key in sorted(found)
        ]
    kind, of = _one(field, pool, within)
    if field.is_repeated:
        return pa.list_(kind), lambda found: [of(each) for each in found]
    return kind, of


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else _text(str(key) if isinstance(key, int) else key)


def _text(found: object) -> str:
    """Return a text. proto2 gives a text that is not UTF-8 as bytes, which raises ValueError."""
    if isinstance(found, str):
        return found
    raise ValueError(f"{found!r} is not UTF-8")


def _one(field: FieldDescriptor, pool: Any, within: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    if field.message_type is not None:
        return _message(field.message_type, pool, within)
    if field.enum_type is not None:
        return pa.string(), _symbol(field.enum_type)
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return pa.decimal128(20, 0), Decimal
    return _ARROW[field.type], _text if field.type == FieldDescriptor.TYPE_STRING else lambda found: found


def _symbol(enum: EnumDescriptor) -> Convert:
    names: Mapping[int, str] = {number: each.name for number, each in enum.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _message(of: Descriptor, pool: Any, within: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    name = of.full_name
    if name == "google.protobuf.Timestamp":
        return pa.timestamp("us", tz="UTC"), _micros
    if name in _WRAPPERS:
        kind, convert = _one(of.fields_by_name["value"], pool, within)
        return kind, lambda found: convert(found.value)
    if name in _JSON:
        return pa.string(), lambda found: json.dumps(
            json_format.MessageToDict(found, descriptor_pool=pool), ensure_ascii=False, sort_keys=True
        )
    fields = [
        (field, *_field(field, pool, (*within, name)))
        for field in of.fields
        if not _leads_back(field, (*within, name))
    ]
    if not fields:
        return pa.bool_(), lambda _: True

    def convert_message(found: Message) -> dict[str, Any]:
        return {field.name: _value(found, field, convert) for field, _, convert in fields}

    return pa.struct([(field.name, kind) for field, kind, _ in fields]), convert_message


def _leads_back(field: FieldDescriptor, within: tuple[str, ...]) -> bool:
    """Return True for a message inside itself, which has no columns (types/source_formats.py omits it as
    well)."""
    of = field.message_type
    if of is not None and of.GetOptions().map_entry:
        of = of.fields_by_name["value"].message_type
    return of is not None and (of.full_name in within or len(within) > MOST_DEEP)


def _micros(found: Any) -> int:
    if not -_MOST_SECONDS < found.seconds < _MOST_SECONDS:
        raise ValueError(f"{found.seconds} s is not a time")
    return int(found.seconds) * 1_000_000 + int(found.nanos) // 1_000


MOST_DEEP = 16
_ARROW: Mapping[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
}
