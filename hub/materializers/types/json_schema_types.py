"""[core] JSON Schemas as Avro records, with the defaults of their properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.ddl import DEEPEST, SCALARS, optional_field
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema

# Key of a field with a default: null is also a value of the property, and stays null.
ADMITS_NULL = "admits_null"


def of_json_schema(schema: JsonSchema) -> AvroType:
    """Return the columns of a JSON Schema's object. Raises InvalidSchema when the schema describes no object.

    Values without one clear type (``{}``, several types, a nested object without properties) become their
    JSON text.
    """
    documents = {name: each.raw for name, each in schema.named.items()}
    reader = _JsonSchemaReader(schema.raw, documents)
    found = reader.type(schema.raw, schema.raw, ())
    if not isinstance(found, Mapping) or found.get("type") != "record":
        raise InvalidSchema("the schema describes no object with properties: a view's columns are those")
    return found


_FORMATS: Mapping[str, AvroType] = {"date-time": SCALARS["timestamp"], "date": SCALARS["date"]}
_OF_KIND: Mapping[str, AvroType] = {"integer": "long", "number": "double", "boolean": "boolean"}
# Types that Kafka Connect notes as ``connect.type`` because JSON Schema has no word for them.
_OF_CONNECT: Mapping[str, AvroType] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "bytes": "bytes",
}


class _JsonSchemaReader:
    def __init__(self, own: Any, named: Mapping[str, Any]) -> None:
        self._own, self._named, self._records = own, named, 0

    def type(self, node: Any, document: Any, within: tuple[int, ...]) -> AvroType:
        """Return the type of a node. ``within``: identities of the enclosing nodes; a node in itself becomes
        its JSON text."""
        if not isinstance(node, Mapping) or id(node) in within or len(within) > DEEPEST * 4:
            return "string"
        within = (*within, id(node))
        if isinstance(node.get("$ref"), str):
            target, document = self._resolved(node["$ref"], document)
            return self.type(target, document, within)
        node = self._merged(node, document, set())
        for key in ("oneOf", "anyOf"):
            if isinstance(node.get(key), list) and "properties" not in node:
                return self._one_of(node[key], document, within)
        kinds = node.get("type")
        if isinstance(kinds, list):
            kinds = [each for each in kinds if each != "null"]
            kind = kinds[0] if len(kinds) == 1 else "number" if set(kinds) == {"integer", "number"} else None
        else:
            kind = kinds
        if isinstance(node.get("properties"), Mapping) and kind in (None, "object"):
            return self._record(node["properties"], document, within)
        if kind == "object":
            values = node.get("additionalProperties")
            if isinstance(values, Mapping) and values:
                return {"type": "map", "values": ["null", self.type(values, document, within)]}
            return "string"
        if kind == "array":
            items = node.get("items")
            return {"type": "array", "items": ["null", self.type(items, document, within)]}
        connect = node.get("connect.type")
        if kind in ("integer", "number") and connect in _OF_CONNECT and connect != "bytes":
            return _OF_CONNECT[connect]
        if kind == "string":
            if node.get("contentEncoding") == "base64" or connect == "bytes":
                return "bytes"
            return _FORMATS.get(str(node.get("format")), "string")
        return _OF_KIND.get(str(kind), "string")

    def _one_of(self, nodes: list[Any], document: Any, within: tuple[int, ...]) -> AvroType:
        """Return the type of alternatives: the only type besides null; for several objects, their properties;
        else JSON text."""
        branches = [each for each in nodes if not (isinstance(each, Mapping) and each.get("type") == "null")]
        types = [self.type(each, document, within) for each in branches]
        if not types:
            return "string"
        if all(isinstance(each, Mapping) and each.get("type") == "record" for each in types):
            fields: dict[str, Any] = {}
            for each in types:
                for field in each["fields"]:
                    same = fields.get(field["name"], field)["type"] == field["type"]
                    fields[field["name"]] = field if same else optional_field(field["name"], "string")
            return {**types[0], "fields": list(fields.values())}
        return types[0] if all(each == types[0] for each in types) else "string"

    def _record(self, properties: Mapping[str, Any], document: Any, within: tuple[int, ...]) -> AvroType:
        self._records += 1
        name = f"object{self._records}"
        fields = [
            {**optional_field(each, self.type(inner, document, within)), **self._default(inner, document)}
            for each, inner in properties.items()
        ]
        return {"type": "record", "name": name, "fields": fields}

    def _default(self, node: Any, document: Any) -> dict[str, Any]:
        """Return a property's default and if it may be null; {} if it has no default."""
        for _ in range(DEEPEST):
            if not isinstance(node, Mapping):
                return {}
            if "default" in node or not isinstance(node.get("$ref"), str):
                break
            node, document = self._resolved(node["$ref"], document)
        if not isinstance(node, Mapping):
            return {}
        default = self._merged(node, document, set()).get("default")
        if default is None:
            return {}
        return {"default": default, **({ADMITS_NULL: True} if self._admits_null(node, document, 0) else {})}

    def _admits_null(self, node: Any, document: Any, depth: int) -> bool:
        if not isinstance(node, Mapping) or depth > DEEPEST:
            return node is True
        if isinstance(node.get("$ref"), str):
            return self._admits_null(*self._resolved(node["$ref"], document), depth + 1)
        kinds = node.get("type")
        if kinds is not None:
            return "null" in (kinds if isinstance(kinds, list) else [kinds])
        for key in ("oneOf", "anyOf"):
            if isinstance(node.get(key), list):
                return any(self._admits_null(each, document, depth + 1) for each in node[key])
        if isinstance(node.get("allOf"), list):
            return all(self._admits_null(each, document, depth + 1) for each in node["allOf"])
        return None in node["enum"] if isinstance(node.get("enum"), list) else node.get("const") is None

    def _merged(self, node: Mapping[str, Any], document: Any, visited: set[int]) -> Mapping[str, Any]:
        """Return a node with the properties that its ``allOf`` adds."""
        parts = node.get("allOf")
        if not isinstance(parts, list) or id(node) in visited:
            return node
        visited.add(id(node))
        found = {key: value for key, value in node.items() if key != "allOf"}
        properties: dict[str, Any] = {}
        for each in parts:
            part, document_ = each, document
            while isinstance(part, Mapping) and isinstance(part.get("$ref"), str) and id(part) not in visited:
                visited.add(id(part))
                part, document_ = self._resolved(part["$ref"], document_)
            if isinstance(part, Mapping) and document_ is document:
                part = self._merged(part, document_, visited)
                properties |= part.get("properties") or {}
                found = {**{k: v for k, v in part.items() if k != "$ref"}, **found}
        properties |= node.get("properties") or {}
        return {**found, "properties": properties} if properties else found

    def _resolved(self, ref: str, document: Any) -> tuple[Any, Any]:
        file, _, pointer = ref.partition("#")
        if file:
            document = self._named.get(file)
        found = document
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return (found if pointer.startswith("/") or not pointer else None), document
