"""[core] Defaults of JSON Schemas: a property that an event lacks has the ``default`` of its schema.

The schema is the Avro record that ``source_formats`` makes of a JSON Schema. Its fields have ``default`` and,
if the schema admits null, ``admits_null``. With ``admits_null``, only a missing property gets the default,
and a null stays null. Otherwise null is not a value of the property, and gets the default too.

``filled`` applies defaults to a value in Python. ``filled_row`` writes the same as an expression over the
result of Spark's parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from hub.materializers.types.ddl import columns_ddl
from hub.materializers.types.json_schema_types import ADMITS_NULL
from hub.materializers.types.spark_text import literal, quoted, struct

AvroType = Any
_DEEPEST = 64


def filled(value: Any, of: AvroType, depth: int = 0) -> Any:
    """Return a JSON value with the defaults of its schema."""
    of = _beside_null(of)
    if not isinstance(of, Mapping) or depth > _DEEPEST:
        return value
    if isinstance(value, list) and of["type"] == "array":
        return [filled(each, of["items"], depth + 1) for each in value]
    if isinstance(value, dict) and of["type"] == "map":
        return {key: filled(each, of["values"], depth + 1) for key, each in value.items()}
    if not isinstance(value, dict) or of["type"] != "record":
        return value
    found = dict(value)
    for field in of["fields"]:
        name, default = field["name"], field.get("default")
        missing = name not in found or (found[name] is None and not field.get(ADMITS_NULL))
        if default is not None and missing:
            found[name] = default
        if name in found:
            found[name] = filled(found[name], field["type"], depth + 1)
    return found


def has_defaults(of: AvroType) -> bool:
    """Return True if there is a default anywhere in a type."""
    of = _beside_null(of)
    if not isinstance(of, Mapping):
        return False
    if of["type"] == "record":
        return any(each.get("default") is not None or has_defaults(each["type"]) for each in of["fields"])
    return has_defaults(of.get("items")) or has_defaults(of.get("values"))


def filled_row(row: str, text: str, schema: AvroType, columns: Iterable[str]) -> str:
    """Return columns of a struct ``row``, parsed from the JSON ``text``, with defaults, as Spark SQL.

    Returns ``row`` itself if none of the columns has a default.
    """
    wanted = {each["name"]: each for each in schema["fields"]}
    fields = [wanted[name] for name in columns]
    if not has_defaults({"type": "record", "fields": fields}):
        return row
    return _record(row, text, fields, 0)


def _record(row: str, text: str, fields: Iterable[Mapping[str, Any]], depth: int) -> str:
    made = struct((each["name"], _field(row, text, each, depth)) for each in fields)
    return f"IF({row} IS NULL, NULL, {made})"


def _field(row: str, text: str, field: Mapping[str, Any], depth: int) -> str:
    name, default = field["name"], field.get("default")
    value = f"{row}.{quoted(name)}"
    inside = f"get_json_object({text}, {literal(_path(name))})"
    found = _inner(value, inside, field["type"], depth)
    if default is None:
        return found
    whole = orjson.dumps({name: filled(default, field["type"])}).decode()
    (typed,) = columns_ddl({"fields": [field]}, [name])
    given = f"from_json({literal(whole)}, {literal(f'struct<{typed}>')}).{quoted(name)}"
    missing = f"{value} IS NULL"
    if field.get(ADMITS_NULL):
        missing = f"NOT array_contains(json_object_keys({text}), {literal(name)})"
    return f"IF({missing}, {given}, {found})"


def _inner(value: str, text: str, of: AvroType, depth: int) -> str:
    """Return the value with the defaults of its nested fields."""
    of = _beside_null(of)
    if not has_defaults(of):
        return value
    if of["type"] == "record":
        return _record(value, text, of["fields"], depth)
    x, t = f"x{depth}", f"t{depth}"
    if of["type"] == "array":
        texts = f"from_json({text}, 'array<string>')"
        return f"zip_with({value}, {texts}, ({x}, {t}) -> {_inner(x, t, of['items'], depth + 1)})"
    inside = f"from_json({text}, 'map<string,string>')[{t}]"
    return f"transform_values({value}, ({t}, {x}) -> {_inner(x, inside, of['values'], depth + 1)})"


def _path(name: str) -> str:
    return f"$['{name}']"


def _beside_null(of: AvroType) -> AvroType:
    return next((each for each in of if each != "null"), "null") if isinstance(of, list) else of
