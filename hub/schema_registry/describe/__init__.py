"""[core] Format-independent view of a schema for rules and warnings: types, fields, docs, tags.

``describe`` reads Avro, JSON Schema or Protobuf into one ``SchemaView``. It judges nothing and is safe for
invalid schemas: each type is read once, so the cost of types that use each other is linear in their text.
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
    """Return the view of a schema.

    ``schema`` is its text or its parsed form: JSON values for AVRO and JSON, a ``FileDescriptorProto`` (or
    its serialized bytes) for PROTOBUF, or an object that holds one as ``raw`` or ``file``. ``named`` holds
    the referenced schemas by reference name, in the same forms. Types of referenced schemas are in the view,
    with ``own`` False. Raises InvalidSchema when the schema cannot be read.
    """
    if schema_type not in _READERS:
        raise InvalidSchema(f'"{schema_type}" is not a schema type', hint=f"known: {', '.join(_READERS)}")
    try:
        return _READERS[schema_type](schema, named or {})
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"the schema cannot be read: {error}") from None
