"""[core] A schema as rules and warnings see it, whatever its format: types, fields, docs, tags.

``describe`` reads Avro, JSON Schema or Protobuf into one ``SchemaView``. It judges nothing and needs no valid schema to
be safe: each type is read once, so that types that use each other cost what their texts cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.schema_registry.describe import avro, json_schema, protobuf
from hub.schema_registry.describe.changes import Warned, warnings
from hub.schema_registry.describe.view import TYPES, SchemaField, SchemaType, SchemaView
from hub.schema_registry.formats import InvalidSchema

__all__ = ["TYPES", "SchemaField", "SchemaType", "SchemaView", "Warned", "describe", "warnings"]

_READERS = {"AVRO": avro.describe, "JSON": json_schema.describe, "PROTOBUF": protobuf.describe}


def describe(schema_type: str, schema: Any, named: Mapping[str, Any] | None = None) -> SchemaView:
    """The view of a schema. ``schema`` is its text, or what the format's parser made of it: JSON values for AVRO and
    JSON, a ``FileDescriptorProto`` (or its serialized bytes) for PROTOBUF; objects that hold those as ``raw`` or
    ``file`` will do. ``named`` are the schemas that it refers to, by reference name, of the same kinds.

    Raises InvalidSchema when it cannot be read. Types of referenced schemas are in the view, marked as not its own.
    """
    if schema_type not in _READERS:
        raise InvalidSchema(f'"{schema_type}" is no schema type', hint=f"known: {', '.join(_READERS)}")
    try:
        return _READERS[schema_type](schema, named or {})
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"the schema cannot be read: {error}") from None
