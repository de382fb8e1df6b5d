"""[core] Protobuf as a format of the registry: what it parses, writes, and compares."""

from __future__ import annotations

import base64

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema, field_names, parse
from hub.schema_registry.formats.protobuf.text import without_extensions, written

__all__ = [
    "canonical",
    "differences",
    "field_names",
    "ignore_extensions",
    "normalized",
    "parse",
    "serialized",
]


def canonical(schema: ProtobufSchema) -> str:
    """The .proto text by which two schemas are the same; what the registry stores and serves."""
    return written(schema.file, schema.imports)


def normalized(schema: ProtobufSchema) -> str:
    """The text in which what means the same is written the same: sorted, and every name in full."""
    return written(schema.file, schema.imports, normal=True)


def serialized(schema: ProtobufSchema) -> str:
    """Base64 of the FileDescriptorProto, for ``format=serialized``."""
    return base64.b64encode(schema.file.SerializeToString(deterministic=True)).decode()


def ignore_extensions(schema: ProtobufSchema) -> str:
    """The .proto text without extensions and without custom options but Confluent's own, for
    ``format=ignore_extensions``."""
    return written(without_extensions(schema.file, schema.imports), schema.imports)


def differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[SchemaDifference]:
    """Every reason why the reader cannot read what the writer wrote; [] when it can."""
    from hub.schema_registry.formats.protobuf.differences import differences as compared

    return compared(reader, writer)
