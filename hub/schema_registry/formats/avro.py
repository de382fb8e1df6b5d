"""[core] Avro schemas: parsed within limits, and their canonical text as Confluent has it.

White space, the order of attributes and how names are spelled do not make another schema; a changed doc, default or
alias does (Confluent compares parsed schemas with their properties, not the specification's "parsing canonical form").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import orjson

from hub.errors import CallerError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_BYTES = 1_048_576
MOST_DEPTH = 64
MOST_FIELDS = 5_000


class InvalidSchema(CallerError):
    """The text is no valid schema, or breaks a limit."""

    code = "HUB-1201"


def parse(text: str, named: Mapping[str, Any] | None = None) -> Any:
    """The schema as JSON values. ``named`` are parsed schemas of referenced types, by full name.

    Raises InvalidSchema with the reason.
    """
    if len(text) > MOST_BYTES:
        raise InvalidSchema(f"the schema has {len(text)} characters, {MOST_BYTES} are allowed")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # a bare primitive may be written without quotes: Confluent takes `string` for `"string"`
        schema = text.strip()
        if schema not in PRIMITIVES:
            raise InvalidSchema(f"the schema is no JSON: {error}") from None
    depth, fields = _size(schema, 0)
    if depth > MOST_DEPTH:
        raise InvalidSchema(f"the schema is nested deeper than {MOST_DEPTH}")
    if fields > MOST_FIELDS:
        raise InvalidSchema(f"the schema has {fields} fields, {MOST_FIELDS} are allowed")
    try:
        fastavro.parse_schema(
            schema, named_schemas={name: dict(each) for name, each in (named or {}).items()}
        )
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        name = error.name if isinstance(error, fastavro.schema.UnknownType) else None
        said = f'unknown type "{name}"' if name else f"{error or type(error).__name__}"
        raise InvalidSchema(f"the schema is no valid Avro: {said}") from None
    return schema


def _size(schema: Any, depth: int) -> tuple[int, int]:
    """(depth, number of record fields), cut off just past the limit."""
    if depth > MOST_DEPTH:
        return depth, 0
    deepest, fields = depth, 0
    children: Iterator[Any] = iter(())
    if isinstance(schema, list):
        children = iter(schema)
    elif isinstance(schema, dict):
        children = (value for key, value in schema.items() if key in ("type", "items", "values", "fields"))
        fields = len(schema["fields"]) if isinstance(schema.get("fields"), list) else 0
    for child in children:
        below, more = _size(child, depth + 1)
        deepest, fields = max(deepest, below), fields + more
    return deepest, fields


_ORDER = (
    "type",
    "name",
    "namespace",
    "doc",
    "aliases",
    "fields",
    "symbols",
    "items",
    "values",
    "size",
    "default",
    "order",
)


def canonical(schema: Any) -> str:
    """The text by which two schemas are the same; what the registry stores and serves."""
    return orjson.dumps(_ordered(schema)).decode()


def _ordered(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_ordered(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if set(schema) == {"type"} and isinstance(schema["type"], str):
        return schema["type"]  # {"type": "string"} is "string"
    known = {key: schema[key] for key in _ORDER if key in schema}
    extra = {key: schema[key] for key in sorted(schema) if key not in _ORDER}
    ordered = {**known, **extra}
    for key in ("type", "items", "values"):
        if key in ordered:
            ordered[key] = _ordered(ordered[key])
    if isinstance(ordered.get("fields"), list):
        ordered["fields"] = [
            {key: (_ordered(value) if key == "type" else value) for key, value in _field(each).items()}
            for each in ordered["fields"]
        ]
    return ordered


def _field(each: dict[str, Any]) -> dict[str, Any]:
    order = ("name", "type", "doc", "default", "aliases", "order")
    return {
        **{key: each[key] for key in order if key in each},
        **{k: each[k] for k in sorted(each) if k not in order},
    }
