"""[core] Columns of a topic as a table, by the format of its schema, and an event's values in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from hub.materializers.queries.executor import kind_of
from hub.materializers.stores.columns import json_text
from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.json_defaults import has_defaults
from hub.materializers.types.source_formats import of_registry
from hub.record import Record
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.avro.types import AvroNode
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

_LARGEST = 2**63
META: Mapping[str, str] = {
    "_topic": "string",
    "_partition": "long",
    "_offset": "long",
    "_timestamp": "timestamp",
    "_key": "string",
    "_deleted": "boolean",
}
VALUE = "_value"
_JSON_KINDS = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}
# Avro types that are shown as text: 12:30:00, 6ba7b810-9dad-11d1-80b4-00c04fd430c8.
_TEXTS = ("time-millis", "time-micros", "uuid")
_PYTHON: Mapping[str, type] = {"string": str, "boolean": bool, "bytes": bytes}


def json_shape(reader: SchemaSource) -> AvroType | None:
    """Return the columns of a JSON Schema that has defaults."""
    try:
        shape = of_registry(reader)
    except InvalidSchema:  # it does not describe an object
        return None
    return shape if has_defaults(shape) else None


def former_names(parsed: Any) -> frozenset[str]:
    """Return the former names (aliases) of the fields of an Avro record."""
    fields = avro.fields_of(parsed.value) if isinstance(parsed, AvroSchema) else []
    own = {each["name"] for each in fields}
    return frozenset(alias for each in fields for alias in each.get("aliases") or () if alias not in own)


def columns_of(parsed: Any) -> dict[str, str]:
    """Return a schema's top-level fields as columns, name to kind; {} if it is not a record."""
    if isinstance(parsed, AvroSchema):
        return {each.name: _avro_kind(each.type) for each in parsed.root().fields}
    if isinstance(parsed, JsonSchema):
        raw = parsed.raw if isinstance(parsed.raw, dict) else {}
        properties = raw.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {name: _json_kind(each) for name, each in properties.items()}
    if isinstance(parsed, ProtobufSchema) and parsed.file.message_type:
        return {each.name: _protobuf_kind(each) for each in parsed.file.message_type[0].field}
    return {}


def _avro_kind(node: AvroNode) -> str:
    branches = [each for each in node.branches if each.kind != "null"]
    if len(branches) != 1:
        return "json"
    one = branches[0]
    if one.logical == "local-timestamp-micros":
        return "timestamp"
    if one.logical in _TEXTS:
        return "string"
    if one.kind == "fixed" and one.logical != "decimal":
        return "bytes"
    return kind_of(one.spec or one.kind)


def _json_kind(schema: Any) -> str:
    declared = schema.get("type") if isinstance(schema, dict) else None
    types = [each for each in (declared if isinstance(declared, list) else [declared]) if each != "null"]
    return _JSON_KINDS.get(str(types[0]), "json") if len(types) == 1 else "json"


def _protobuf_kind(each: Any) -> str:
    if each.label == each.LABEL_REPEATED:
        return "json"
    if each.type in (each.TYPE_DOUBLE, each.TYPE_FLOAT):
        return "double"
    if each.type == each.TYPE_BOOL:
        return "boolean"
    if each.type in (each.TYPE_STRING, each.TYPE_BYTES, each.TYPE_ENUM):
        return "string"
    if each.type in (each.TYPE_MESSAGE, each.TYPE_GROUP):
        return "json"
    if each.type in (each.TYPE_UINT64, each.TYPE_FIXED64):
        return "decimal"  # an unsigned value may be twice the largest bigint
    return "long"


def cell(name: str, kinds: Mapping[str, str], record: Record, value: Any) -> Any:
    """Return one column's value as SQLite stores it; None for a column that the statement does not name."""
    kind = kinds.get(name)
    if kind is None:
        return None
    if name in META:
        return _meta(name, record)
    if name == VALUE:
        return None if value is None else json_text(value)
    return _stored_value(value.get(name), kind) if isinstance(value, dict) else None


def _meta(name: str, record: Record) -> Any:
    if name == "_key":
        return None if record.key is None else record.key.decode("utf-8", "replace")
    if name == "_deleted":
        return record.value is None
    return {
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
        "_timestamp": record.timestamp_ms,
    }[name]


def _stored_value(value: Any, kind: str) -> Any:
    """Convert a value for storage. Raises ValueError, TypeError or ArithmeticError if it does not fit its
    column's kind.

    Events without a schema id may hold any value; such an event counts as unreadable.
    """
    if value is None:
        return None
    if kind == "json":
        return json_text(value)
    if kind in ("long", "timestamp", "date"):
        whole = int(value)  # Protobuf's JSON encodes 64-bit integers as text
        if not -_LARGEST <= whole < _LARGEST:
            raise OverflowError
        return whole
    if kind == "double":
        return float(value)
    if kind == "decimal":
        return str(value) if isinstance(value, Decimal) else str(Decimal(str(value)))
    if kind == "string" and isinstance(value, UUID | dt.time):
        return str(value)
    if not isinstance(value, _PYTHON[kind]):
        raise TypeError
    return value
