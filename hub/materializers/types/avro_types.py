"""[core] Avro schemas for views: projected for reading, derived for writing.

Reading: every writer schema is resolved against the schema that the view reads with (``avro_resolution``),
which has only the used fields; unused ones are skipped, not decoded. The reader schema has one more field,
``PROOF``, that no writer has. Its default is present after a successful decode and missing after a failed
one. In Spark's permissive mode, a failure would otherwise look like a row of nulls.

All writers of all sources of a view are read through one pair of unions, ``united``: Spark evaluates each
decoding expression again in every task, which costs more than the events of a small batch.

Writing: a changelog's schema follows from Spark's row type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from hub.errors import CallerError
from hub.schema_registry.codecs.avro_resolution import Resolution, resolve
from hub.schema_registry.formats.avro.types import AvroNode, is_recursive, types_of
from hub.varint import signed

AvroType = Any  # a parsed Avro schema as in the specification: a name, a list (union) or a mapping

PROOF = "_decoded"
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}

Kind = Literal["integer", "floating", "decimal", "string", "boolean", "timestamp", "date", "other"]


def field_types(schema: AvroType) -> dict[str, AvroType]:
    """Return a record schema's field types by name. Raises CallerError when the schema is not a record."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise CallerError(
            "an event's schema must be an Avro record", hint="wrap the value in a record with one field"
        )
    return {field["name"]: field["type"] for field in schema["fields"]}


def kind(avro_type: AvroType) -> Kind:
    """Return the kind of value that a type holds, for typing aggregates. A union with null counts as its
    other branch."""
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return kind(branches[0]) if len(branches) == 1 else "other"
    if isinstance(avro_type, Mapping):
        logical = avro_type.get("logicalType")
        if logical in ("timestamp-millis", "timestamp-micros"):
            return "timestamp"
        if logical in ("date", "decimal"):
            return cast(Kind, logical)
        if avro_type["type"] == "enum":
            return "string"
        return kind(avro_type["type"]) if avro_type["type"] in _PRIMITIVES else "other"
    by_name: dict[str, Kind] = {
        "int": "integer",
        "long": "integer",
        "float": "floating",
        "double": "floating",
        "string": "string",
        "boolean": "boolean",
    }
    return by_name.get(avro_type, "other")


def has_map(avro_type: AvroType) -> bool:
    """Return True if the type contains a map at any level."""
    if isinstance(avro_type, Mapping):
        return avro_type.get("type") == "map" or any(
            has_map(avro_type.get(part)) for part in ("type", "items", "fields")
        )
    return isinstance(avro_type, list) and any(map(has_map, avro_type))


def has_micros(avro_type: AvroType) -> bool:
    """Return True if the type is a time finer than milliseconds."""
    if isinstance(avro_type, list):
        return any(map(has_micros, avro_type))
    return isinstance(avro_type, Mapping) and avro_type.get("logicalType") == "timestamp-micros"


def projected(writer: AvroType, reader: AvroType, columns: Iterable[str], space: str = "_r") -> Resolution:
    """Resolve a writer schema against the given columns of the reader schema. All names get the namespace
    ``space``."""
    resolution = resolve(writer, reader, columns, space=space)
    proof = {"name": PROOF, "type": "boolean", "default": True}
    return replace(resolution, reader={**resolution.reader, "fields": [*resolution.reader["fields"], proof]})


def united(schemas: Sequence[AvroType]) -> AvroType:
    """Return a record whose one field, ``one``, is the union of the schemas. (Spark decodes only records; a
    record adds no bytes.)

    Branch 0 is empty and never used; the n-th schema is branch n + 1. An event's bytes contain no names, so
    each schema has names in a namespace of its own (``projected``): a union of writers and a union of readers
    in the same order resolve branch by branch.
    """
    nothing = {"type": "record", "name": "_none", "fields": []}
    return {"type": "record", "name": "_event", "fields": [{"name": "one", "type": [nothing, *schemas]}]}


def branch_bytes(n: int) -> bytes:
    """Return the prefix of an event of the n-th schema of ``united``: the branch as an Avro long."""
    return signed(n + 1)


# Spark's DDL types for Avro types (Avro Data Source Guide, "Supported types").
_READ: Mapping[str, str] = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_READ_LOGICAL: Mapping[str, str] = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "date": "date",
}


def spark_types(schema: AvroType) -> dict[str, str]:
    """Return a record schema's field types in Spark's DDL; "" for a type that only Spark can infer."""
    field_types(schema)  # refuses everything but records
    fields = types_of(schema, strict=False).fields
    return {each.name: "" if is_recursive(each.type) else _spark_type(each.type) for each in fields}


def _spark_type(node: AvroNode) -> str:
    if node.kind == "union":
        branches = [branch for branch in node.inner if branch.kind != "null"]
        return _spark_type(branches[0]) if len(branches) == 1 else ""
    logical = node.logical
    if logical == "decimal":
        return f"decimal({node.spec['precision']},{node.spec.get('scale', 0)})"
    if logical in _READ_LOGICAL:
        return _READ_LOGICAL[logical]
    parts = [_spark_type(part) for part in node.parts]
    if not all(parts):
        return ""
    match node.kind:
        case "array":
            return f"array<{parts[0]}>"
        case "map":
            return f"map<string,{parts[0]}>"
        case "record":
            named = zip(node.fields, parts, strict=True)
            return f"struct<{','.join(f'{each.name}:{part}' for each, part in named)}>"
    return "" if logical.startswith("time-") else _READ.get(node.kind, "")


# Avro types in changelogs for Spark's type names (StructType.jsonValue).
_WRITTEN: Mapping[str, AvroType] = {
    "string": "string",
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-millis"},
    "date": {"type": "int", "logicalType": "date"},
}


def changelog_schema(
    view: str, row_fields: Sequence[Mapping[str, Any]], *, required: Iterable[str]
) -> AvroType:
    """Return the Avro schema of a view's rows from Spark's fields (``StructType.jsonValue()["fields"]``).

    Every field is nullable with default null, so that adding or dropping a field is compatible in both
    directions. ``required`` fields are not nullable. Raises CallerError for types that Avro cannot hold.
    """
    must = set(required)
    fields = []
    for field in row_fields:
        written = _written(field["type"], f"views.{view}", field["name"])
        if field["name"] in must:
            fields.append({"name": field["name"], "type": written})
        else:
            fields.append({"name": field["name"], "type": ["null", written], "default": None})
    return {"type": "record", "name": view, "namespace": "views", "fields": fields}


def _written(spark_type: Any, namespace: str, name: str) -> AvroType:
    if isinstance(spark_type, str):
        if spark_type.startswith("decimal"):
            precision, scale = spark_type.removeprefix("decimal(").rstrip(")").split(",")
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": int(precision),
                "scale": int(scale),
            }
        if spark_type in _WRITTEN:
            return _WRITTEN[spark_type]
        raise CallerError(
            f'view "{namespace.removeprefix("views.")}": field "{name}" has the type {spark_type}',
            hint="cast it: a row can hold numbers, text, booleans, times, dates, arrays, maps and structs",
            code="HUB-2104",
        )
    if spark_type["type"] == "array":
        return {"type": "array", "items": ["null", _written(spark_type["elementType"], namespace, name)]}
    if spark_type["type"] == "map":
        return {"type": "map", "values": ["null", _written(spark_type["valueType"], namespace, name)]}
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [
            {
                "name": field["name"],
                "type": ["null", _written(field["type"], f"{namespace}.{name}", field["name"])],
                "default": None,
            }
            for field in spark_type["fields"]
        ],
    }
