"""[core] Avro schemas: parse within limits, and write Confluent's canonical text.

White space, the order of attributes and the spelling of names do not make another schema; a changed doc,
default or alias does. The text is that of Java's ``Schema.toString()``, which Confluent's registry stores:
attributes in Java's order, a namespace only where it changes. It is not the specification's "parsing
canonical form", which drops docs.

Schemas that Confluent accepts against the specification (a default of the wrong type) are accepted. One
exception: a decimal whose scale exceeds its precision is refused, because nothing here could decode it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import orjson
from avro.errors import AvroException, IgnoredLogicalType
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import (
    NAMED,
    PRIMITIVES,
    AvroNode,
    cut,
    full_name,
    name_of,
    named_types,
    texts,
    types_of,
)

MOST_BYTES = 1_048_576
MOST_DEPTH = 64
MOST_FIELDS = 5_000
MOST_SYMBOLS = 50_000
_NO_NAMESPACE = "_none_."
_MOST_JSON_DEPTH = 240  # orjson writes 254

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
        avro_schema(types_of(schema, types))
        known: dict[str, Any] = {}
        for each in (*types, schema):
            fastavro.parse_schema(_ordered(each, ""), named_schemas=known, _ignore_default_error=True)
    except InvalidSchema:
        raise
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except (*_REFUSALS, ValueError, KeyError, TypeError) as error:
        name = error.name if isinstance(error, fastavro.schema.UnknownType) else None
        reason = (
            f'unknown type "{name}"'
            if name
            else str(error).replace(_NO_NAMESPACE, "") or type(error).__name__
        )
        raise InvalidSchema(f"the schema is not valid Avro: {reason[:500]}") from None
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
            raise InvalidSchema(f"the schema is not JSON: {error}") from None
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


def _ordered(schema: Any, space: str, beside: _References | None = None) -> Any:
    """Return the schema with attributes in Java's order, within the namespace ``space``."""
    if isinstance(schema, list):
        return [_ordered(branch, space, beside) for branch in schema]
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return schema
        full = full_name(schema, space)
        definition = None if beside is None else beside.definition(full)
        return _shortened(full, space) if definition is None else _ordered(definition, space, beside)
    if not isinstance(schema, dict) or "type" not in schema:
        raise InvalidSchema(f"the schema is not valid Avro: {cut(schema)} is not a type")
    kind = schema["type"]
    if set(schema) == {"type"}:
        return _ordered(kind, space, beside)  # {"type": "string"} is "string"
    inside, attributes = space, dict(schema)
    if isinstance(kind, str) and kind in NAMED:
        full = name_of(schema, space)
        if beside is not None:
            if full in beside.known:
                return _shortened(full, space)
            beside.known.add(full)
        inside, _, attributes["name"] = full.rpartition(".")
        attributes.pop("namespace", None)
        if inside != space:
            attributes["namespace"] = inside
        if "aliases" in attributes:
            attributes["aliases"] = [
                _shortened(full_name(each, inside), inside) for each in texts(schema, "aliases")
            ]
        if "symbols" in attributes:
            texts(schema, "symbols")
    elif not isinstance(kind, str):
        attributes["type"] = _ordered(kind, space, beside)
    elif beside is not None and kind not in (*PRIMITIVES, "array", "map"):
        definition = beside.definition(full_name(kind, space))
        attributes["type"] = kind if definition is None else _ordered(definition, space, beside)
    for part in ("items", "values"):
        if part in attributes:
            attributes[part] = _ordered(attributes[part], inside, beside)
    if isinstance(attributes.get("fields"), list):
        attributes["fields"] = [_ordered_field(each, inside, beside) for each in attributes["fields"]]
    return _sorted(attributes, _BEFORE, ("aliases",))


def _ordered_field(field: Any, space: str, beside: _References | None) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        raise InvalidSchema(f"the schema is not valid Avro: {cut(field)} is not a field")
    attributes = {**field, "type": _ordered(field["type"], space, beside)}
    if attributes.get("order") == "ascending":
        del attributes["order"]
    return _sorted(attributes, _FIELD, ())


def _sorted(attributes: dict[str, Any], first: tuple[str, ...], last: tuple[str, ...]) -> dict[str, Any]:
    properties = [
        *_PROPERTIES,
        *sorted(key for key in attributes if key not in {*first, *last, *_PROPERTIES}),
    ]
    return {key: attributes[key] for key in (*first, *properties, *last) if key in attributes}


def resolved(schema: Any, types: Sequence[Any] = ()) -> str:
    """Return the canonical text with referenced types written out at first use, for ``format=resolved``."""
    return orjson.dumps(_ordered(schema, "", _References(named_types(types)))).decode()


@dataclass(frozen=True, slots=True)
class _References:
    """Types of other schemas, to be written out at their first use;
    ``known``: names that are defined so far."""

    types: Mapping[str, AvroNode]
    known: set[str] = field(default_factory=set)

    def definition(self, full: str) -> Mapping[str, Any] | None:
        """Return the definition of a type that is not defined yet, with its namespace: valid anywhere."""
        if full in self.known or full not in self.types:
            return None
        space, _, name = full.rpartition(".")
        return {**self.types[full].spec, "name": name, "namespace": space}


def _shortened(full: str, space: str) -> str:
    own, _, name = full.rpartition(".")
    return name if own == space and name not in PRIMITIVES else full


# ---- used by other modules


def fields_of(schema: Any) -> list[Any]:
    """Return the fields of a record; [] for another type, which may have a property of that name."""
    is_record = isinstance(schema, dict) and schema["type"] in ("record", "error")
    return list(schema["fields"]) if is_record else []


def avro_schema(root: AvroNode) -> Schema:
    """Return the type as an object of Apache's library. Raises AvroException, TypeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredLogicalType)
        return make_avsc_object(_for_apache(root, set()), Names())


def _for_apache(node: AvroNode, avro_nodes: set[AvroNode]) -> Any:
    """Return the parts that decide compatibility: full names, no logical types or docs.

    Names without a namespace get one: the library would resolve them in the enclosing namespace.
    """
    if node.kind == "union":
        return [_for_apache(branch, avro_nodes) for branch in node.inner]
    if node.kind in ("array", "map"):
        return {
            "type": node.kind,
            "items" if node.kind == "array" else "values": _for_apache(node.item, avro_nodes),
        }
    if not node.name:
        return node.kind
    name = _in_a_namespace(node.name)
    if node in avro_nodes:
        return name
    avro_nodes.add(node)
    reduced = {key: node.spec[key] for key in ("symbols", "size", "default") if key in node.spec}
    reduced |= {"type": node.kind, "name": name}
    if "aliases" in node.spec:
        reduced["aliases"] = [_in_a_namespace(each) for each in node.aliases]
    if node.kind == "record":
        reduced["fields"] = [
            {key: each.spec[key] for key in ("name", "default", "order", "aliases") if key in each.spec}
            | {"type": _for_apache(each.type, avro_nodes)}
            for each in node.fields
        ]
    return reduced


def _in_a_namespace(full: str) -> str:
    return full if "." in full else _NO_NAMESPACE + full
