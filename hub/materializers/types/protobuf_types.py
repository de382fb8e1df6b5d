"""[core] Protobuf messages as Avro records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.ddl import DEEPEST, SCALARS, optional_field

_KIND = FieldDescriptorProto
_OF_PROTOBUF: Mapping[int, AvroType] = {
    _KIND.TYPE_DOUBLE: "double",
    _KIND.TYPE_FLOAT: "float",
    _KIND.TYPE_INT32: "int",
    _KIND.TYPE_SINT32: "int",
    _KIND.TYPE_SFIXED32: "int",
    _KIND.TYPE_UINT32: "long",
    _KIND.TYPE_FIXED32: "long",
    _KIND.TYPE_INT64: "long",
    _KIND.TYPE_SINT64: "long",
    _KIND.TYPE_SFIXED64: "long",
    # An unsigned 64-bit value may exceed BIGINT.
    _KIND.TYPE_UINT64: {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
    _KIND.TYPE_FIXED64: {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
    _KIND.TYPE_BOOL: "boolean",
    _KIND.TYPE_STRING: "string",
    _KIND.TYPE_BYTES: "bytes",
    _KIND.TYPE_ENUM: "string",
}
# Well-known messages by meaning. Other messages of google.protobuf are read like any message.
WELL_KNOWN: Mapping[str, AvroType] = {
    "google.protobuf.Timestamp": SCALARS["timestamp"],
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "long",
    "google.protobuf.UInt64Value": _OF_PROTOBUF[_KIND.TYPE_UINT64],
    "google.protobuf.Int32Value": "int",
    "google.protobuf.UInt32Value": "long",
    "google.protobuf.BoolValue": "boolean",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "bytes",
    # Values of any type become their JSON text.
    "google.protobuf.Struct": "string",
    "google.protobuf.Value": "string",
    "google.protobuf.ListValue": "string",
}


def plain_file(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the file with a name: a descriptor pool identifies files by name."""
    if file.name:
        return file
    named = FileDescriptorProto()
    named.CopyFrom(file)
    named.name = "event.proto"
    return named


def messages_of(found: Any, package: str) -> Iterator[tuple[str, DescriptorProto]]:
    for each in found:
        name = f"{package}.{each.name}" if package else each.name
        yield name, each
        yield from messages_of(each.nested_type, name)


def message_type(name: str, messages: Mapping[str, DescriptorProto], within: tuple[str, ...]) -> AvroType:
    fields = []
    for field in messages[name].field:
        of = _field_type(field, messages, (*within, name))
        if of is not None:
            # The default's text distinguishes two schemas; Protobuf's library gives its value.
            default = {"default": field.default_value} if field.HasField("default_value") else {}
            fields.append({**optional_field(field.name, of), **default})
    return {"type": "record", "name": name.replace(".", "_"), "fields": fields}


def _field_type(
    field: FieldDescriptorProto, messages: Mapping[str, DescriptorProto], within: tuple[str, ...]
) -> AvroType | None:
    """Return a field's type; None for a message inside itself."""
    of: AvroType | None
    if field.type in (_KIND.TYPE_MESSAGE, _KIND.TYPE_GROUP):
        name = field.type_name.lstrip(".")
        message = messages[name]
        if message.options.map_entry:
            value = _field_type(message.field[1], messages, within)
            return None if value is None else {"type": "map", "values": ["null", value]}
        if name in WELL_KNOWN:
            of = WELL_KNOWN[name]
        elif name in within or len(within) > DEEPEST:
            return None
        else:
            of = message_type(name, messages, within)
            if not of["fields"]:  # Spark's Avro has no record without fields; only its presence is kept
                of = "boolean"
    else:
        of = _OF_PROTOBUF[field.type]
    return {"type": "array", "items": ["null", of]} if field.label == _KIND.LABEL_REPEATED else of
