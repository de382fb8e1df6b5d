"""[core] The Confluent wire format: magic byte 0, schema id (4 bytes, big endian), Avro body.

For untrusted bytes: values of a recursive schema can nest as deep as their bytes declare, and fastavro
recurses in C without a limit (10,000 bytes of nesting end the process). Bodies of such schemas are limited
in size, which limits their depth.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import fastavro

from hub.errors import CallerError
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import is_recursive, types_of

# One nesting level costs at least one byte; 2,000 levels are safe (measured), 10,000 are not.
MOST_RECURSIVE_BYTES = 1_500


class Undecodable(CallerError):
    """The bytes do not match their schema, or are not in the wire format."""

    code = "HUB-1220"


def frame(schema_id: int, body: bytes) -> bytes:
    """Return the value of a record."""
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def unframe(data: bytes) -> tuple[int, memoryview]:
    """(schema id, body). Raises Undecodable."""
    if len(data) < 5 or data[0] != 0:
        raise Undecodable("not in the Confluent wire format (no magic byte 0 and schema id)")
    return int.from_bytes(data[1:5], "big"), memoryview(data)[5:]


def parsed(schema: Any) -> Any:
    """Prepare a schema for ``encode`` and ``decode``; prepare once, use often."""
    return fastavro.parse_schema(schema)


def encode(schema_id: int, schema: Any, value: Any) -> bytes:
    """Encode a value in the wire format.

    ``schema`` comes from ``parsed``. Raises Undecodable naming the field.
    """
    body = io.BytesIO()
    try:
        fastavro.schemaless_writer(body, schema, value, strict_allow_default=True)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise Undecodable(f"the value does not fit its schema: {_message(schema, value, error)}") from None
    return frame(schema_id, body.getvalue())


def decode(data: bytes, schema_of: Callable[[int], Any]) -> tuple[int, Any]:
    """Return (schema id, value) of a record's value, decoded with its writer's schema. Raises Undecodable."""
    schema_id, body = unframe(data)
    schema = schema_of(schema_id)
    if len(body) > MOST_RECURSIVE_BYTES and _may_recurse(schema):
        raise Undecodable(
            f"{len(body)} bytes under the recursive schema {schema_id}: {MOST_RECURSIVE_BYTES} are allowed"
        )
    try:
        return schema_id, fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    except (
        EOFError,
        ValueError,
        IndexError,
        TypeError,
        UnicodeDecodeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise Undecodable(
            f"its bytes do not fit its schema id {schema_id}: {error or type(error).__name__}"
        ) from None


def _may_recurse(schema: Any) -> bool:
    """Return False if no type of a schema, as ``parsed`` returned it, contains itself."""
    try:
        return is_recursive(types_of(schema))
    except InvalidSchema:  # fastavro's full names do not say that a type has no namespace
        return True


def _message(schema: Any, value: Any, error: Exception) -> str:
    """Return a message naming the record's field at fault, if it can be found; else fastavro's own
    message.
    """
    if isinstance(schema, dict) and schema.get("type") == "record" and isinstance(value, dict):
        for each in schema["fields"]:
            if each["name"] not in value and "default" not in each:
                return f'field "{each["name"]}" is missing and has no default'
            if each["name"] in value and not _fits(value[each["name"]], each["type"]):
                return (
                    f'field "{each["name"]}": {value[each["name"]]!r} is not a valid '
                    f"{_type_name(each['type'])}"
                )
    return str(error) or type(error).__name__


def _fits(value: Any, avro_type: Any) -> bool:
    try:
        return bool(fastavro.validate(value, avro_type, raise_errors=False))
    except (KeyError, TypeError, ValueError, AttributeError):
        return True  # a named type defined elsewhere: this field is not at fault


def _type_name(avro_type: Any) -> str:
    if isinstance(avro_type, list):
        return " or ".join(_type_name(branch) for branch in avro_type)
    if isinstance(avro_type, dict):
        return str(avro_type.get("logicalType") or avro_type.get("name") or avro_type["type"])
    return str(avro_type)
