"""[core] Read a JSON schema as shapes: one per type's keywords; several in one schema are an ``allOf``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hub.schema_registry.formats.json_schema.schema import JsonSchema, followed, reference


@dataclass(frozen=True, slots=True, eq=False)
class SchemaShape:
    """One kind of rule. ``raw`` holds its keywords, ``members`` the members of a combination.

    Members are shapes, or schemas that are not read yet.
    """

    kind: str  # any never string number boolean null object array enum const not conditional combined
    raw: Mapping[str, Any]
    document: JsonSchema
    integer: bool = False
    criterion: str = ""  # allOf, anyOf or oneOf
    members: tuple[Any, ...] = ()

    def __getitem__(self, keyword: str) -> Any:
        return self.raw.get(keyword)

    @property
    def modern(self) -> bool:
        return self.document.draft > 7


_EMPTY = JsonSchema(True, 7)
_ANY, _NEVER = SchemaShape("any", {}, _EMPTY), SchemaShape("never", {}, _EMPTY)


@cache
def _keywords(draft: int) -> Mapping[str, frozenset[str]]:
    """Return, by type, the keywords that imply this type in a schema without ``type``."""
    objects = {
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "additionalProperties",
    }
    arrays = {"items", "minItems", "maxItems", "uniqueItems"}
    strings = {"minLength", "maxLength", "pattern"}
    if draft <= 7:
        objects |= {"dependencies"}
        strings |= {"format"}
    else:
        objects |= {"dependentRequired", "dependentSchemas", "unevaluatedProperties"}
        arrays |= {"unevaluatedItems"}
    if draft < 2020:
        arrays |= {"additionalItems"}
    else:
        arrays |= {"prefixItems"}
    if draft > 4:
        objects |= {"propertyNames"}
        arrays |= {"contains"}
    numbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    return {
        "array": frozenset(arrays),
        "object": frozenset(objects),
        "number": frozenset(numbers),
        "string": frozenset(strings),
    }


class SchemaShapes:
    """Cache of shapes. Equal schemas in one resource share one shape, so that pairs are known by identity."""

    def __init__(self) -> None:
        self._built: dict[int, SchemaShape] = {}
        self._alike: dict[Any, SchemaShape] = {}
        self._members: dict[int, tuple[SchemaShape, ...]] = {}
        self._kept: list[Any] = []  # keeps objects alive that are known by identity

    def of(self, document: JsonSchema, raw: Any) -> SchemaShape:
        if isinstance(raw, bool):
            return _ANY if raw else _NEVER
        if id(raw) not in self._built:
            resource, base = document.homes.get(id(raw), (raw, ""))
            alike = (id(document), id(resource), base, json_text(raw))
            if alike not in self._alike:
                self._alike[alike] = self._build(document, raw)
            self._built[id(raw)] = self._alike[alike]
        return self._built[id(raw)]

    def members(self, shape: SchemaShape) -> tuple[SchemaShape, ...]:
        """Return the distinct members of a combination."""
        if id(shape) not in self._members:
            distinct: dict[Any, Any] = {}
            for each in shape.members:
                distinct.setdefault(each if isinstance(each, SchemaShape) else json_text(each), each)
            self._members[id(shape)] = tuple(
                each if isinstance(each, SchemaShape) else self.of(shape.document, each)
                for each in distinct.values()
            )
        return self._members[id(shape)]

    def _build(self, document: JsonSchema, raw: dict[str, Any]) -> SchemaShape:
        parts = []
        if reference(raw, document.draft) is not None:
            where, target = followed(document, raw)
            if document.draft == 4 and isinstance(target, dict):
                beside = {key: each for key, each in raw.items() if key != "$ref"}
                target = {**target, **beside} if beside else target
                self._kept.append(target)
            referred = self.of(where, target)
            if document.draft <= 7:
                return referred
            parts.append(referred)
        parts.extend(_parts(document, raw))
        if not parts:
            return SchemaShape("any", raw, document)
        return (
            parts[0]
            if len(parts) == 1
            else SchemaShape("combined", raw, document, criterion="allOf", members=tuple(parts))
        )


def _parts(document: JsonSchema, raw: dict[str, Any]) -> Iterator[SchemaShape]:
    """Yield the shapes in one schema, without references."""
    draft = document.draft
    if "enum" in raw:
        yield SchemaShape("enum", raw, document)
    for criterion in ("allOf", "anyOf", "oneOf"):
        if criterion in raw:
            yield SchemaShape("combined", raw, document, criterion=criterion, members=tuple(raw[criterion]))
    if "not" in raw:
        yield SchemaShape("not", raw, document)
    if "const" in raw and draft > 4:
        yield SchemaShape("const", raw, document)
    named = raw.get("type", [])
    types = [_typed(document, raw, each) for each in ([named] if isinstance(named, str) else named)]
    if isinstance(named, str):
        yield types[0]
    elif types:
        yield SchemaShape("combined", raw, document, criterion="anyOf", members=tuple(types))
    present = {key for key in raw if draft <= 7 or raw[key] or key not in ("properties", "patternProperties")}
    for kind, keywords in _keywords(draft).items():
        if keywords & present and all(each.kind != kind for each in types):
            yield SchemaShape(kind, raw, document)
    if ("if" in raw and draft >= 7) or (draft == 7 and ("then" in raw or "else" in raw)):
        yield SchemaShape("conditional", raw, document)


def _typed(document: JsonSchema, raw: dict[str, Any], name: str) -> SchemaShape:
    if name == "integer":
        return SchemaShape("number", raw, document, integer=True)
    return SchemaShape(name, raw, document)


# ---- properties of a shape


def refers(shape: SchemaShape, raw: Any) -> bool:
    """Return True if a schema inside the shape is a reference."""
    return isinstance(raw, dict) and reference(raw, shape.document.draft) is not None


def tuple_of(shape: SchemaShape) -> list[Any]:
    """Return the schemas of items by position; [] when there are none."""
    found = shape["prefixItems"] if shape.document.draft == 2020 else shape["items"]
    return found if isinstance(found, list) else []


def each_item(shape: SchemaShape) -> Any:
    """Return the schema of all items; None when there is none."""
    found = shape["items"]
    if isinstance(found, list) or (shape.modern and (isinstance(found, bool) or tuple_of(shape))):
        return None
    return found


def additional_of(shape: SchemaShape) -> tuple[bool, Any]:
    """Return (whether unnamed properties or items are allowed, their schema or None)."""
    if shape.kind == "object":
        found = shape["additionalProperties"]
    elif each_item(shape) is not None:
        found = (
            None
            if shape.document.draft == 2020 or shape["additionalItems"] is False
            else shape["additionalItems"]
        )
    elif shape.document.draft == 2020 or (shape.modern and isinstance(shape["items"], bool)):
        found = shape["items"]
    else:
        found = shape["additionalItems"]
    return found is not False, None if isinstance(found, bool) else found


def json_text(value: Any) -> str:
    """Return a text that is equal for equal values; 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)
