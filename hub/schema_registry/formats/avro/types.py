"""[core] A parsed Avro schema as a graph of types: the one walk over a schema's JSON.

The JSON spells one type in many ways: ``"string"``, ``{"type": "string"}``, a name in any namespace, a
definition at its first use. ``types_of`` resolves all of that once. Encoder, validator, decoder, resolution,
comparison and columns then only say what they do with each kind of type::

    {"type": "record", "name": "Node", "namespace": "a",          AvroNode record a.Node
     "fields": [{"name": "next", "type": ["null", "Node"]}]}  ─▶    field next: AvroNode union
                                                                       AvroNode null
                                                                       (the same AvroNode a.Node)

A named type is one node, wherever it is used, so a recursive schema is a cyclic graph, and nodes are keys of
a dict. ``error`` is ``record``. The attributes of a type are in ``spec``, as written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.schema_registry.formats import InvalidSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; ``spec`` has its attributes as written."""

    name: str
    type: AvroNode
    spec: Mapping[str, Any]

    @property
    def aliases(self) -> list[str]:
        return list(self.spec.get("aliases") or ())


@dataclass(slots=True, eq=False)
class AvroNode:
    """A type. ``kind``: a primitive's name, record, enum, fixed, array, map or union. ``name``: the full name
    of a named type, else "". ``inner``: the branches of a union; the one type of an array's items or a map's
    values.
    """

    kind: str
    spec: Mapping[str, Any]
    name: str = ""
    fields: tuple[AvroField, ...] = ()
    inner: tuple[AvroNode, ...] = ()

    @property
    def logical(self) -> str:
        """The logical type as written, "" for none; it may not apply to this kind."""
        found = self.spec.get("logicalType")
        return found if isinstance(found, str) else ""

    @property
    def item(self) -> AvroNode:
        return self.inner[0]

    @property
    def branches(self) -> tuple[AvroNode, ...]:
        """The branches of a union; of another type itself."""
        return self.inner if self.kind == "union" else (self,)

    @property
    def parts(self) -> tuple[AvroNode, ...]:
        """The types directly within this one."""
        return self.inner or tuple(each.type for each in self.fields)

    @property
    def symbols(self) -> list[str]:
        return list(self.spec["symbols"])

    @property
    def size(self) -> int:
        return int(self.spec["size"])

    @property
    def aliases(self) -> list[str]:
        """Full names of its aliases."""
        space = self.name.rpartition(".")[0]
        return [full_name(each, space) for each in self.spec.get("aliases") or ()]


def types_of(schema: Any, named: Iterable[Any] = (), *, strict: bool = True) -> AvroNode:
    """Return the type of a schema's JSON values.

    ``named`` holds the schemas of referenced types, dependencies first. Raises InvalidSchema for JSON that is
    no type, and for a name that is not defined, unless not ``strict``: then its kind is "unknown".
    """
    names = _Names(strict)
    for each in named:
        names.read(each, "")
    return names.read(schema, "")


def named_types(schemas: Iterable[Any]) -> dict[str, AvroNode]:
    """Return all named types of schemas, dependencies first, by full name."""
    names = _Names(strict=True)
    for each in schemas:
        names.read(each, "")
    return names.types


def every_type(root: AvroNode) -> Iterator[AvroNode]:
    """Yield each type of the graph once, a type before those within it."""
    visited, left = {root}, [root]
    while left:
        node = left.pop()
        yield node
        for part in reversed(node.parts):
            if part not in visited:
                visited.add(part)
                left.append(part)


def is_recursive(root: AvroNode) -> bool:
    """Return True if a record contains itself."""
    done: set[AvroNode] = set()
    under_way, left = {root}, [(root, iter(root.parts))]
    while left:
        node, parts = left[-1]
        part = next(parts, None)
        if part is None:
            left.pop()
            under_way.discard(node)
            done.add(node)
        elif part in under_way:
            return True
        elif part not in done:
            under_way.add(part)
            left.append((part, iter(part.parts)))
    return False


# ---- from JSON


@dataclass(slots=True)
class _Names:
    """Reader of types; it knows the named ones that it has read."""

    strict: bool
    types: dict[str, AvroNode] = field(default_factory=dict)

    def read(self, schema: Any, space: str) -> AvroNode:
        if isinstance(schema, list):
            return _union([self.read(branch, space) for branch in schema])
        if isinstance(schema, str):
            return AvroNode(schema, {}) if schema in PRIMITIVES else self._reference(schema, space)
        if not isinstance(schema, dict) or "type" not in schema:
            raise InvalidSchema(f"the schema is not valid Avro: {cut(schema)} is not a type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, space)
        if kind in NAMED:
            return self._definition(schema, space)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return AvroNode(kind, schema, inner=(self.read(schema.get(part), space),))
        return AvroNode(kind, schema) if kind in PRIMITIVES else self._reference(kind, space)

    def _reference(self, name: str, space: str) -> AvroNode:
        full = full_name(name, space)
        avro_node = self.types.get(full) or self.types.get(name)
        if avro_node is None and self.strict:
            raise InvalidSchema(f'the schema is not valid Avro: unknown type "{full}"')
        return avro_node or AvroNode("unknown", {}, full)

    def _definition(self, schema: Mapping[str, Any], space: str) -> AvroNode:
        name = name_of(schema, space)
        if name in self.types:
            return self.types[name]
        kind = "record" if schema["type"] == "error" else schema["type"]
        node = self.types[name] = AvroNode(kind, schema, name)  # before its fields, which may use it
        if "aliases" in schema:
            for alias in texts(schema, "aliases"):
                full_name(alias, "")
        if kind == "record":
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise InvalidSchema(f'the schema is not valid Avro: record "{name}" has no list of fields')
            node.fields = tuple(self._field(each, name.rpartition(".")[0]) for each in fields)
        return node

    def _field(self, spec: Any, space: str) -> AvroField:
        if not isinstance(spec, dict) or "type" not in spec or "name" not in spec:
            raise InvalidSchema(f"the schema is not valid Avro: {cut(spec)} is not a field")
        if "aliases" in spec:
            texts(spec, "aliases")
        made = AvroField(spec["name"], self.read(spec["type"], space), spec)
        default = spec.get("default")
        if (
            made.type.kind in ("float", "double")
            and isinstance(default, str)
            and not _NUMBER.fullmatch(default.strip())
        ):  # the one wrong default that Java never parses
            raise InvalidSchema(
                f"the schema is not valid Avro: the default {cut(default)} is not a valid {made.type.kind}"
            )
        return made


def _union(branches: list[AvroNode]) -> AvroNode:
    """Raises InvalidSchema for a type that occurs twice, as Java does."""
    names = Counter(each.name or each.kind for each in branches if each.name or each.kind in PRIMITIVES)
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise InvalidSchema(f"the schema is not valid Avro: a union has {twice[:200]} twice")
    return AvroNode("union", {}, inner=tuple(branches))


# ---- names


def name_of(schema: Mapping[str, Any], space: str) -> str:
    """Return the full name of a named type's definition within the namespace ``space``."""
    own = schema.get("namespace")
    return full_name(schema.get("name"), own if isinstance(own, str) else space)


def full_name(name: Any, space: str) -> str:
    """Return a name with its namespace. Raises InvalidSchema for an invalid name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchema(f"the schema is not valid Avro: {cut(name)} is not a name")
    return name if "." in name or not space else f"{space}.{name}"


def texts(schema: Mapping[str, Any], key: str) -> list[str]:
    """Return an attribute that is a list of names. Raises InvalidSchema."""
    found = schema[key]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidSchema(
            f'the schema is not valid Avro: "{key}" of "{schema.get("name")}" is not a list of names'
        )
    return found


def cut(value: Any) -> str:
    """Return a JSON value as text, of at most 80 characters, for a message."""
    return orjson.dumps(value, default=str).decode()[:80]
