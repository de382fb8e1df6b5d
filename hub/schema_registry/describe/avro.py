"""[core] View of an Avro schema, from its JSON values.

Tags are the property ``confluent:tags``, or ``tags``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from hub.schema_registry.describe.view import FieldShape, SchemaField, SchemaType, SchemaView, placed
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.schema import read
from hub.schema_registry.formats.avro.types import PRIMITIVES

# The specification requires that a logical type on another base type is ignored.
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time",
    ("long", "time-micros"): "time",
    ("string", "uuid"): "uuid",
    ("fixed", "uuid"): "uuid",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
    **{
        ("long", f"{local}timestamp-{unit}"): "timestamp"
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}


def describe(schema: Any, named: Mapping[str, Any]) -> SchemaView:
    """Return the view.

    ``schema`` and the values of ``named`` (dependencies first) are text or JSON values.
    """
    types: dict[str, SchemaType] = {}
    fixed: dict[str, FieldShape] = {}
    for each in named.values():
        _AvroDescriber(types, fixed, own=False).shape(_values(each), "")
    shape = _AvroDescriber(types, fixed, own=True).shape(_values(schema), "")
    # A top-level array of records has no root: the event is the array.
    is_record = shape.type in ("record", "union")
    roots = tuple(name for name in shape.of if is_record and name in types and types[name].kind == "record")
    return placed("AVRO", roots, types)


def _values(schema: Any) -> Any:
    schema = getattr(schema, "raw", schema)
    # A parsed primitive is a string too, and reads the same.
    return read(schema) if isinstance(schema, str) else schema


class _AvroDescriber:
    """Reads named types into ``types`` and ``fixed``, each once, by full name."""

    def __init__(self, types: dict[str, SchemaType], fixed: dict[str, FieldShape], own: bool) -> None:
        self._types, self._fixed, self._own = types, fixed, own

    def shape(self, schema: Any, space: str) -> FieldShape:
        if isinstance(schema, list):
            return self._union([self.shape(branch, space) for branch in schema])
        if isinstance(schema, str):
            return FieldShape(schema) if schema in PRIMITIVES else self._named(_full(schema, space))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.shape(kind, space)
        if kind in ("record", "error", "enum"):
            return self._definition(schema, kind, space)
        if kind in ("array", "map"):
            inner = self.shape(schema["items" if kind == "array" else "values"], space)
            return FieldShape(kind, inner.of, logical=inner.logical)
        if kind != "fixed" and kind not in PRIMITIVES:
            return self.shape(kind, space)
        shape = _with_logical(kind, schema)
        if kind == "fixed":  # it may be used again by name
            self._fixed[_full(schema["name"], schema.get("namespace", space))] = shape
        return shape

    def _named(self, name: str) -> FieldShape:
        if name in self._types:
            return FieldShape(self._types[name].kind, (name,))
        return self._fixed.get(name, FieldShape("any", (name,)))  # "any": a missing reference

    def _definition(self, schema: Mapping[str, Any], kind: str, space: str) -> FieldShape:
        kind = "record" if kind == "error" else kind
        name = _full(schema["name"], schema.get("namespace", space))
        inside = name.rpartition(".")[0]
        own = SchemaType(
            name,
            kind,
            (),
            tuple(schema.get("symbols", ())),
            _doc(schema),
            _tags(schema),
            tuple(_full(each, inside) for each in schema.get("aliases", ())),
            own=self._own,
        )
        self._types[name] = own  # before its fields, which may use it
        if kind == "record":
            fields = tuple(self._field(each, inside) for each in schema["fields"])
            self._types[name] = replace(own, fields=fields)
        return FieldShape(kind, (name,))

    def _field(self, field: Mapping[str, Any], space: str) -> SchemaField:
        inner = field["type"]
        return SchemaField(
            field["name"],
            self.shape(inner, space),
            doc=_doc(field),
            tags=_tags(field) | (_tags(inner) if isinstance(inner, dict) else frozenset()),
            aliases=tuple(field.get("aliases", ())),
            default=orjson.dumps(field["default"]).decode() if "default" in field else None,
        )

    @staticmethod
    def _union(branches: list[FieldShape]) -> FieldShape:
        others = [each for each in branches if each.type != "null"]
        optional = len(others) < len(branches)
        if not others:
            return FieldShape("null", optional=True)
        if len(others) == 1:
            return replace(others[0], optional=optional or others[0].optional)
        held = tuple(dict.fromkeys(name for each in others for name in each.of))
        logical = ", ".join(each.logical for each in others if each.logical)
        return FieldShape("union", held, optional, logical)


def _with_logical(kind: str, schema: Mapping[str, Any]) -> FieldShape:
    logical_type = schema.get("logicalType")
    type_name = _LOGICAL.get((kind, logical_type)) if isinstance(logical_type, str) else None
    plain = "bytes" if kind == "fixed" else kind
    if type_name is None:
        return FieldShape(plain)
    detail = f"({schema.get('precision')},{schema.get('scale', 0)})" if type_name == "decimal" else ""
    return FieldShape(type_name, logical=f"{logical_type}{detail}")


def _full(name: Any, space: Any) -> str:
    if not isinstance(name, str):
        raise InvalidSchema("the schema is not valid Avro: a name is not text")
    return name if "." in name or not space else f"{space}.{name}"


def _doc(schema: Mapping[str, Any]) -> str:
    """Return the doc, or "" when it is not text; some tools write null."""
    found = schema.get("doc")
    return found if isinstance(found, str) else ""


def _tags(schema: Mapping[str, Any]) -> frozenset[str]:
    found = schema.get("confluent:tags", schema.get("tags", ()))
    return (
        frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
    )
