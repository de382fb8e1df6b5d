"""[core] Protobuf as a ``Format``: parsing, canonical text, comparison."""

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
    """Return the .proto text that identifies a schema; the registry stores and serves it."""
    return written(schema.file, schema.imports)


def normalized(schema: ProtobufSchema) -> str:
    """Return the text that is equal for equivalent schemas: sorted, with full names."""
    return written(schema.file, schema.imports, normal=True)


def serialized(schema: ProtobufSchema) -> str:
    """Return base64 of the FileDescriptorProto, for ``format=serialized``."""
    return base64.b64encode(schema.file.SerializeToString(deterministic=True)).decode()


def ignore_extensions(schema: ProtobufSchema) -> str:
    """Return the .proto text without extensions and custom options except Confluent's.

    For ``format=ignore_extensions``.
    """
    return written(without_extensions(schema.file, schema.imports), schema.imports)


def differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[SchemaDifference]:
    """Return every reason why the reader cannot read the writer's data; [] when it can."""
    from hub.schema_registry.formats.protobuf.differences import differences as compared

    return compared(reader, writer)
