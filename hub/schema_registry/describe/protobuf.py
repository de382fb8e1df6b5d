"""[core] View of a Protobuf schema, from its descriptor. The first message of the file is the root.

Docs are the comments before a declaration, if the descriptor kept them, or ``(confluent.field_meta).doc``;
tags are ``(confluent.field_meta).tags``. Optional are fields marked ``optional`` (in proto2 as well) and
fields of a oneof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from hub.schema_registry.describe.view import FieldShape, SchemaField, SchemaType, SchemaView, placed
from hub.schema_registry.formats import InvalidSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_SCALARS = {
    "TYPE_DOUBLE": "double",
    "TYPE_FLOAT": "float",
    "TYPE_INT64": "long",
    "TYPE_UINT64": "long",
    "TYPE_INT32": "int",
    "TYPE_FIXED64": "long",
    "TYPE_FIXED32": "long",  # unsigned: an int would not hold it
    "TYPE_BOOL": "boolean",
    "TYPE_STRING": "string",
    "TYPE_BYTES": "bytes",
    "TYPE_UINT32": "long",
    "TYPE_SFIXED32": "int",
    "TYPE_SFIXED64": "long",
    "TYPE_SINT32": "int",
    "TYPE_SINT64": "long",
}
_KNOWN = {
    "google.protobuf.Timestamp": FieldShape("timestamp", logical="google.protobuf.Timestamp"),
    "google.type.Date": FieldShape("date", logical="google.type.Date"),
    "google.type.TimeOfDay": FieldShape("time", logical="google.type.TimeOfDay"),
    "google.type.Decimal": FieldShape("decimal", logical="google.type.Decimal"),
    "confluent.type.Decimal": FieldShape("decimal", logical="confluent.type.Decimal"),
    "google.protobuf.Struct": FieldShape("map"),
    "google.protobuf.Any": FieldShape("any"),
    "google.protobuf.Value": FieldShape("any"),
    "google.protobuf.ListValue": FieldShape("array"),
    **{
        f"google.protobuf.{name}Value": FieldShape(plain, optional=True)
        for name, plain in {
            "Double": "double",
            "Float": "float",
            "Int64": "long",
            "UInt64": "long",
            "Int32": "int",
            "UInt32": "long",
            "Bool": "boolean",
            "String": "string",
            "Bytes": "bytes",
        }.items()
    },
}
_META = 1088  # confluent/meta.proto: extension of every kind of options; doc = 1, tags = 3
_META_DOC, _META_TAGS = 1, 3
_MESSAGE, _ENUM, _FIELD, _NESTED, _NESTED_ENUM = 4, 5, 2, 3, 4  # descriptor.proto: steps of a location's path


def describe(schema: Any, named: Mapping[str, Any]) -> SchemaView:
    """Return the view.

    ``schema`` and ``named`` values are FileDescriptorProtos, their bytes, or hold a ``file``.
    """
    types: dict[str, SchemaType] = {}
    imports = [*getattr(schema, "imports", ()), *(getattr(each, "file", each) for each in named.values())]
    for each in imports:
        _ProtobufDescriber(types, _file(each), own=False).read()
    file = _file(getattr(schema, "file", schema))
    _ProtobufDescriber(types, file, own=True).read()
    roots = tuple(_joined(file.package, message.name) for message in file.message_type[:1])
    return placed("PROTOBUF", roots, types)


def _file(schema: Any) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if isinstance(schema, FileDescriptorProto):
        return schema
    if not isinstance(schema, bytes):
        raise InvalidSchema("a Protobuf schema is described from its descriptor, not from its text")
    try:
        return FileDescriptorProto.FromString(schema)
    except DecodeError as error:
        raise InvalidSchema(f"the schema is not a valid Protobuf descriptor: {error}") from None


class _ProtobufDescriber:
    def __init__(self, types: dict[str, SchemaType], file: FileDescriptorProto, own: bool) -> None:
        self._types, self._file, self._own = types, file, own
        self._is_proto2 = file.syntax in ("", "proto2")
        self._comments = {
            tuple(each.path): each.leading_comments.strip() for each in file.source_code_info.location
        }

    def read(self) -> None:
        for index, enum in enumerate(self._file.enum_type):
            self._enum(enum, self._file.package, (_ENUM, index))
        for index, message in enumerate(self._file.message_type):
            self._message(message, self._file.package, (_MESSAGE, index))

    def _message(self, message: DescriptorProto, space: str, place: tuple[int, ...]) -> None:
        name = _joined(space, message.name)
        entries = {
            f"{name}.{each.name}": each.field[1] for each in message.nested_type if each.options.map_entry
        }
        doc, tags = _meta(message)
        self._types[name] = SchemaType(
            name,
            "record",
            tuple(
                self._field(field, entries, (*place, _FIELD, index))
                for index, field in enumerate(message.field)
            ),
            doc=doc or self._comments.get(place, ""),
            tags=tags,
            own=self._own,
        )
        for index, enum in enumerate(message.enum_type):
            self._enum(enum, name, (*place, _NESTED_ENUM, index))
        for index, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                self._message(nested, name, (*place, _NESTED, index))

    def _enum(self, enum: Any, space: str, place: tuple[int, ...]) -> None:
        name = _joined(space, enum.name)
        doc, tags = _meta(enum)
        self._types[name] = SchemaType(
            name,
            "enum",
            symbols=tuple(value.name for value in enum.value),
            doc=doc or self._comments.get(place, ""),
            tags=tags,
            own=self._own,
        )

    def _field(
        self, field: FieldDescriptorProto, entries: Mapping[str, FieldDescriptorProto], place: tuple[int, ...]
    ) -> SchemaField:
        doc, tags = _meta(field)
        return SchemaField(
            field.name,
            _shape(field, entries, self._is_proto2),
            doc=doc or self._comments.get(place, ""),
            tags=tags,
            default=orjson.dumps(field.default_value).decode() if field.HasField("default_value") else None,
            number=field.number,
        )


def _shape(
    field: FieldDescriptorProto, entries: Mapping[str, FieldDescriptorProto], is_proto2: bool
) -> FieldShape:
    type_name = field.type_name.lstrip(".")
    if type_name in entries:
        value = _single(entries[type_name])
        return FieldShape("map", value.of, logical=value.logical)
    element = _single(field)
    if field.label == field.LABEL_REPEATED:
        return FieldShape("array", element.of, logical=element.logical)
    is_labeled = (
        is_proto2 and field.label == field.LABEL_OPTIONAL
    )  # in proto3 a field without a label has this one
    optional = element.optional or is_labeled or field.proto3_optional or field.HasField("oneof_index")
    return FieldShape(element.type, element.of, optional, element.logical)


def _single(field: FieldDescriptorProto) -> FieldShape:
    kind = field.Type.Name(field.type)
    if kind in _SCALARS:
        return FieldShape(_SCALARS[kind])
    name = field.type_name.lstrip(".")
    return _KNOWN.get(name) or FieldShape("enum" if kind == "TYPE_ENUM" else "record", (name,))


def _meta(declared: Any) -> tuple[str, frozenset[str]]:
    """Return (doc, tags) of Confluent's options, read from unknown fields: their extension is not linked
    in.
    """
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    doc, tags = "", set()

    # Parsed as an empty message, so that a linked extension makes no difference.
    def inside(content: bytes) -> Any:
        return UnknownFieldSet(Empty.FromString(content))

    for meta in _texts(inside(declared.options.SerializeToString()), _META):
        try:
            known = inside(meta)
        except DecodeError:  # another extension with that number
            continue
        for value in _texts(known, _META_DOC):
            doc = value.decode(errors="replace")
        tags |= {value.decode(errors="replace") for value in _texts(known, _META_TAGS)}
    return doc, frozenset(tags)


def _texts(fields: Iterable[Any], number: int) -> list[bytes]:
    return [each.data for each in fields if each.field_number == number and isinstance(each.data, bytes)]


def _joined(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name
