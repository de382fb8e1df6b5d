"""[core] One side of a comparison of Protobuf schemas: its types and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

_Field = FieldDescriptorProto
_NUMBER, _STRING = "number", "string or bytes"


_GROUPS: Mapping[int, str] = {
    **dict.fromkeys(
        (_Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_BOOL),
        _NUMBER,
    ),
    _Field.TYPE_ENUM: _NUMBER,
    **dict.fromkeys((_Field.TYPE_SINT32, _Field.TYPE_SINT64), "zigzag number"),
    **dict.fromkeys((_Field.TYPE_STRING, _Field.TYPE_BYTES), _STRING),
    **dict.fromkeys((_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32), "32 bits"),
    **dict.fromkeys((_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64), "64 bits"),
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_DOUBLE: "double",
}


_LABELS = {
    _Field.LABEL_OPTIONAL: "optional",
    _Field.LABEL_REQUIRED: "required",
    _Field.LABEL_REPEATED: "repeated",
}


@dataclass(frozen=True, slots=True)
class ProtobufType:
    full: str
    local: str  # without the package
    message: DescriptorProto
    is_own: bool  # defined in the schema itself, not in an import


@dataclass(frozen=True, slots=True)
class FieldSide:
    """A field with its context in the message."""

    proto: FieldDescriptorProto
    label: str  # "" when none is written
    oneof: str  # "" when in none
    entry: DescriptorProto | None  # of a map

    @property
    def number(self) -> int:
        return self.proto.number

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def kind(self) -> str:
        if self.entry is not None:
            return "map"
        return "scalar" if self.proto.type in _GROUPS else "message"

    @property
    def called(self) -> str:
        """Return the type as written in .proto text, with its label: ``repeated int32``, ``map<string,
        Item>``.
        """
        if self.entry is not None:
            key, value = (_type_called(each) for each in self.entry.field)
            return f"map<{key}, {value}>"
        return f"{self.label} {_type_called(self.proto)}".strip()


class ProtobufSide:
    """One schema: its types, own and imported, by name."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.file = schema.file
        self._types: dict[str, ProtobufType] = {}
        self._syntax: dict[str, str] = {}  # by type
        for each in (*schema.imports, schema.file):
            self._add(each, each.message_type, "", is_own=each is schema.file)

    def _add(
        self, file: FileDescriptorProto, messages: Sequence[DescriptorProto], scope: str, *, is_own: bool
    ) -> None:
        for each in messages:
            local = f"{scope}.{each.name}" if scope else each.name
            full = f"{file.package}.{local}" if file.package else local
            self._types[full] = ProtobufType(full, local, each, is_own)
            self._syntax[full] = file.syntax or "proto2"
            self._add(file, each.nested_type, local, is_own=is_own)

    def type(self, name: str) -> ProtobufType:
        """Return a type by full name, with or without the leading dot."""
        return self._types[name.removeprefix(".")]

    def nested(self, within: ProtobufType) -> list[ProtobufType]:
        """Return the nested messages, without entry messages of maps."""
        return [
            self._types[f"{within.full}.{each.name}"]
            for each in within.message.nested_type
            if not each.options.map_entry
        ]

    def top(self) -> list[ProtobufType]:
        package = f"{self.file.package}." if self.file.package else ""
        return [self._types[package + each.name] for each in self.file.message_type]

    def members(self, of: ProtobufType) -> dict[int, FieldSide]:
        """Return the fields by number, in ascending order."""
        syntax = self._syntax[of.full]
        found = sorted(of.message.field, key=lambda each: each.number)
        return {each.number: self._member(each, of, syntax) for each in found}

    def _member(self, proto: FieldDescriptorProto, of: ProtobufType, syntax: str) -> FieldSide:
        in_oneof = proto.HasField("oneof_index") and not proto.proto3_optional
        entry = None
        if proto.type == _Field.TYPE_MESSAGE:
            message = self.type(proto.type_name).message
            entry = message if message.options.map_entry else None
        label = _LABELS[proto.label]
        if proto.options.features.field_presence == FeatureSet.LEGACY_REQUIRED:
            label = "required"
        elif in_oneof or entry is not None or (label == "optional" and syntax != "proto2"):
            label = "optional" if proto.proto3_optional else ""
        return FieldSide(
            proto, label, of.message.oneof_decl[proto.oneof_index].name if in_oneof else "", entry
        )


def _type_called(proto: FieldDescriptorProto) -> str:
    return proto.type_name.removeprefix(".") or _Field.Type.Name(proto.type).removeprefix("TYPE_").lower()
