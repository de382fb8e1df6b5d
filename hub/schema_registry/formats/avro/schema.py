"""[core] Avro schemas: parse within limits, and write Confluent's canonical text.

White space, the order of attributes and the spelling of names do not make another schema; a changed doc,
default or alias does. The text is that of Java's ``Schema.toString()``, which Confluent's registry stores:
attributes in Java's order, a namespace only where it changes. It is not the specification's "parsing
canonical form", which drops docs.

Schemas that Confluent accepts against the specification (a default of the wrong type) are accepted. One
exception: a decimal whose scale exceeds its precision is refused, because nothing here could decode it.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import fastavro
import orjson
from avro.errors import AvroException, IgnoredLogicalType
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from hub.schema_registry.formats import InvalidSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_BYTES = 1_048_576
MOST_DEPTH = 64
MOST_FIELDS = 5_000
MOST_SYMBOLS = 50_000
_NO_NAMESPACE = "_none_."
_MOST_JSON_DEPTH = 240  # orjson writes 254

_NAMED = ("record", "error", "enum", "fixed")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
# Java's order of known attributes; others are properties: first the logical type's own, then by name.
_BEFORE = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default")
_FIELD = ("name", "type", "doc", "default", "order", "aliases")
_REFUSALS = (fastavro.schema.UnknownType, fastavro.schema.SchemaParseException, AvroException)
_DEEPER = ("items", "values", "fields")
_PROPERTIES = ("logicalType", "precision", "scale")


def parse(text: str, named: Mapping[str, Any] | None = None) -> Any:
    """Parse a schema to JSON values. ``named`` holds parsed schemas of referenced types, dependencies first.

    Raises InvalidSchema with the reason.
    """
    schema = read(text)
    types = list((named or {}).values())
    try:
        spelled_out(schema, types)
        avro_schema(schema, types)
        known: dict[str, Any] = {}
        for each in (*types, schema):
            fastavro.parse_schema(_ordered(each, ""), named_schemas=known, _ignore_default_error=True)
    except InvalidSchema:
        raise
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except (*_REFUSALS, ValueError, KeyError, TypeError) as error:
        name = error.name if isinstance(error, fastavro.schema.UnknownType) else None
        said = (
            f'unknown type "{name}"'
            if name
            else str(error).replace(_NO_NAMESPACE, "") or type(error).__name__
        )
        raise InvalidSchema(f"the schema is no valid Avro: {said[:500]}") from None
    return schema


def read(text: str) -> Any:
    """Read a schema's text as JSON within limits, without validation. Raises InvalidSchema."""
    if len(text) > MOST_BYTES:
        raise InvalidSchema(f"the schema has {len(text)} characters, {MOST_BYTES} are allowed")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # a bare primitive may lack quotes: Confluent accepts `string` for `"string"`
        schema = text.strip()
        if schema not in PRIMITIVES:
            raise InvalidSchema(f"the schema is no JSON: {error}") from None
    _within_limits(schema)
    return schema


def _within_limits(schema: Any) -> None:
    """Raise InvalidSchema for exceeded limits. Iterative, so that any nesting can be counted."""
    fields = symbols = 0
    left = [(schema, 0, 0)]  # a value, how deep it is in types, and in JSON
    while left:
        node, types, depth = left.pop()
        if types > MOST_DEPTH or depth > _MOST_JSON_DEPTH:
            raise InvalidSchema(f"the schema is nested deeper than {MOST_DEPTH} types")
        if isinstance(node, list):
            left.extend((each, types, depth + 1) for each in node)
        elif isinstance(node, dict):
            left.extend((each, types + (key in _DEEPER), depth + 1) for key, each in node.items())
            fields += len(node["fields"]) if isinstance(node.get("fields"), list) else 0
            symbols += len(node["symbols"]) if isinstance(node.get("symbols"), list) else 0
    if fields > MOST_FIELDS:
        raise InvalidSchema(f"the schema has {fields} fields, {MOST_FIELDS} are allowed")
    if symbols > MOST_SYMBOLS:
        raise InvalidSchema(f"the schema has {symbols} enum symbols, {MOST_SYMBOLS} are allowed")


# ---- canonical text


def canonical(schema: Any) -> str:
    """Return the text that identifies a schema; the registry stores and serves it. Raises InvalidSchema."""
    return orjson.dumps(_ordered(schema, "")).decode()


def _ordered(schema: Any, space: str) -> Any:
    """Return the schema with attributes in Java's order, within the namespace ``space``."""
    if isinstance(schema, list):
        return [_ordered(branch, space) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _shortened(_full(schema, space), space)
    if not isinstance(schema, dict) or "type" not in schema:
        raise InvalidSchema(f"the schema is no valid Avro: {_cut(schema)} is no type")
    kind = schema["type"]
    if set(schema) == {"type"}:
        return _ordered(kind, space)  # {"type": "string"} is "string"
    inside, mine = space, dict(schema)
    if isinstance(kind, str) and kind in _NAMED:
        name = _name_of(schema, space)
        inside, _, mine["name"] = name.rpartition(".")
        mine.pop("namespace", None)
        if inside != space:
            mine["namespace"] = inside
        if "aliases" in mine:
            mine["aliases"] = [_shortened(_full(each, inside), inside) for each in _texts(schema, "aliases")]
        if "symbols" in mine:
            _texts(schema, "symbols")
    elif not isinstance(kind, str):
        mine["type"] = _ordered(kind, space)
    for part in ("items", "values"):
        if part in mine:
            mine[part] = _ordered(mine[part], inside)
    if isinstance(mine.get("fields"), list):
        mine["fields"] = [_ordered_field(each, inside) for each in mine["fields"]]
    return _sorted(mine, _BEFORE, ("aliases",))


def _ordered_field(field: Any, space: str) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        raise InvalidSchema(f"the schema is no valid Avro: {_cut(field)} is no field")
    mine = {**field, "type": _ordered(field["type"], space)}
    if mine.get("order") == "ascending":
        del mine["order"]
    return _sorted(mine, _FIELD, ())


def _sorted(mine: dict[str, Any], first: tuple[str, ...], last: tuple[str, ...]) -> dict[str, Any]:
    properties = [*_PROPERTIES, *sorted(key for key in mine if key not in {*first, *last, *_PROPERTIES})]
    return {key: mine[key] for key in (*first, *properties, *last) if key in mine}


def resolved(schema: Any, types: list[Any] | None = None) -> str:
    """Return the canonical text with referenced types written out at first use, for ``format=resolved``."""
    beside: dict[str, Any] = {}
    for each in types or ():
        _collect(each, "", beside)
    return canonical(_with_types(schema, "", beside, set()))


def _collect(schema: Any, space: str, into: dict[str, Any]) -> None:
    """Collect every named type by full name, each with its namespace, so that it is valid anywhere."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, space, into)
    elif isinstance(schema, dict):
        if schema["type"] in _NAMED:
            full = _name_of(schema, space)
            space, _, name = full.rpartition(".")
            into.setdefault(full, {**schema, "name": name, "namespace": space})
        elif not isinstance(schema["type"], str):
            _collect(schema["type"], space, into)
        for inner in (
            *(schema[part] for part in ("items", "values") if part in schema),
            *(field["type"] for field in fields_of(schema)),
        ):
            _collect(inner, space, into)


def _with_types(schema: Any, space: str, beside: Mapping[str, Any], known: set[str]) -> Any:
    if isinstance(schema, list):
        return [_with_types(branch, space, beside, known) for branch in schema]
    if isinstance(schema, str):
        if schema in PRIMITIVES or (full := _full(schema, space)) in known or full not in beside:
            return schema
        return _with_types(beside[full], space, beside, known)
    mine = dict(schema)
    if schema["type"] in _NAMED:
        full = _name_of(schema, space)
        if full in known:
            return full if "." in full or not space else schema["name"]
        known.add(full)
        space = full.rpartition(".")[0]
    elif not isinstance(schema["type"], str) or schema["type"] not in (*PRIMITIVES, "array", "map"):
        mine["type"] = _with_types(schema["type"], space, beside, known)
    for part in ("items", "values"):
        if part in mine:
            mine[part] = _with_types(mine[part], space, beside, known)
    if fields := fields_of(schema):
        mine["fields"] = [
            {**field, "type": _with_types(field["type"], space, beside, known)} for field in fields
        ]
    return mine


# ---- names


def _name_of(schema: Mapping[str, Any], space: str) -> str:
    """Return the full name of a named type's definition within the namespace ``space``."""
    own = schema.get("namespace")
    return _full(schema.get("name"), own if isinstance(own, str) else space)


def _full(name: Any, space: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchema(f"the schema is no valid Avro: {_cut(name)} is no name")
    return name if "." in name or not space else f"{space}.{name}"


def _shortened(full: str, space: str) -> str:
    own, _, name = full.rpartition(".")
    return name if own == space and name not in PRIMITIVES else full


def _texts(schema: Mapping[str, Any], key: str) -> list[str]:
    found = schema[key]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidSchema(
            f'the schema is no valid Avro: "{key}" of "{schema.get("name")}" is no list of names'
        )
    return found


def _cut(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()[:80]


# ---- used by other modules


def spelled_out(schema: Any, types: list[Any] | None = None) -> Any:
    """Return a self-contained schema: full names, referenced types written out at first use.

    Raises InvalidSchema for an undefined name.
    """
    beside: dict[str, Any] = {}
    for each in types or ():
        for name, definition in definitions(_in_full(each, "")).items():
            beside.setdefault(name, definition)
    return _written_out(_in_full(schema, ""), beside, set())


def fields_of(schema: Any) -> list[Any]:
    """Return the fields of a record; [] for another type, which may have a property of that name."""
    is_record = isinstance(schema, dict) and schema["type"] in ("record", "error")
    return list(schema["fields"]) if is_record else []


def definitions(schema: Any) -> dict[str, Any]:
    """Return the named types of a spelled-out schema, by full name."""
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left.extend(node)
        elif isinstance(node, dict):
            if node["type"] in _NAMED:
                found[node["name"]] = node
            left.extend(field["type"] for field in node.get("fields", ()))
            left.extend(node[part] for part in ("items", "values") if part in node)
    return found


def avro_schema(schema: Any, types: list[Any] | None = None) -> Schema:
    """Return the schema as an object of Apache's library. Raises AvroException, TypeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredLogicalType)
        names = Names()
        for each in types or ():
            make_avsc_object(_in_a_namespace(_in_full(each, "")), names)
        return make_avsc_object(_in_a_namespace(_in_full(schema, "")), names)


def _in_a_namespace(schema: Any) -> Any:
    """Give names without a namespace one: the library would resolve them in the enclosing namespace."""
    if isinstance(schema, list):
        return [_in_a_namespace(branch) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES or "." in schema else _NO_NAMESPACE + schema
    mine = {
        key: _in_a_namespace(each)
        for key, each in schema.items()
        if key in ("name", "aliases", "items", "values")
    }
    if "fields" in schema:
        mine["fields"] = [{**field, "type": _in_a_namespace(field["type"])} for field in schema["fields"]]
    return {**schema, **mine}


def _in_full(schema: Any, space: str) -> Any:
    """Return the parts that decide compatibility: full names, no logical types or docs.

    An error is a record.
    """
    if isinstance(schema, list):
        return _each_once([_in_full(branch, space) for branch in schema])
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _full(schema, space)
    if not isinstance(schema, dict) or "type" not in schema:
        raise InvalidSchema(f"the schema is no valid Avro: {_cut(schema)} is no type")
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in (*_NAMED, "array", "map"):
        return _in_full(kind, space)
    mine = {key: schema[key] for key in ("type", "symbols", "size", "default") if key in schema}
    mine["type"] = "record" if kind == "error" else kind
    if kind in _NAMED:
        name = _name_of(schema, space)
        mine["name"] = name
        space = name.rpartition(".")[0]
        if not space:
            mine["namespace"] = ""  # valid in any enclosing namespace
        if "aliases" in schema:
            mine["aliases"] = [_full(each, space) for each in _texts(schema, "aliases")]
    for part in ("items", "values"):
        if part in schema:
            mine[part] = _in_full(schema[part], space)
    if mine["type"] == "record":
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f'the schema is no valid Avro: record "{mine["name"]}" has no list of fields')
        mine["fields"] = [_field_in_full(each, space) for each in fields]
    return mine


def _each_once(branches: list[Any]) -> list[Any]:
    """Return the branches of a union.

    Raises InvalidSchema for a named type that occurs twice, as Java does.
    """
    names = Counter(
        each if isinstance(each, str) else each["name"]
        for each in branches
        if not isinstance(each, list) and (isinstance(each, str) or "name" in each)
    )
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise InvalidSchema(f"the schema is no valid Avro: a union has {twice[:200]} twice")
    return branches


def _field_in_full(field: Any, space: str) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        raise InvalidSchema(f"the schema is no valid Avro: {_cut(field)} is no field")
    kept = {key: field[key] for key in ("name", "default", "order", "aliases") if key in field}
    if "aliases" in field:
        _texts(field, "aliases")
    kind, default = _in_full(field["type"], space), field.get("default")
    if kind in ("float", "double") and isinstance(default, str) and not _NUMBER.fullmatch(default.strip()):
        # the one wrong default that Java never parses
        raise InvalidSchema(f"the schema is no valid Avro: the default {_cut(default)} is no {kind}")
    return {**kept, "type": kind}


def _written_out(schema: Any, beside: Mapping[str, Any], known: set[str]) -> Any:
    if isinstance(schema, list):
        return [_written_out(branch, beside, known) for branch in schema]
    if isinstance(schema, str):
        if schema in PRIMITIVES or schema in known:
            return schema
        if schema not in beside:
            raise InvalidSchema(f'the schema is no valid Avro: unknown type "{schema}"')
        return _written_out(beside[schema], beside, known)
    if "name" in schema:
        if schema["name"] in known:
            return schema["name"]
        known.add(schema["name"])
    mine = dict(schema)
    for part in ("items", "values"):
        if part in mine:
            mine[part] = _written_out(mine[part], beside, known)
    if "fields" in mine:
        mine["fields"] = [
            {**field, "type": _written_out(field["type"], beside, known)} for field in mine["fields"]
        ]
    return mine
