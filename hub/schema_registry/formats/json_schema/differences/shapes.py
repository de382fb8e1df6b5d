"""[core] A JSON schema read as shapes: keywords of one type are one, all that stands beside each other an ``allOf``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hub.schema_registry.formats.json_schema.schema import JsonSchema, followed, reference


@dataclass(frozen=True, slots=True, eq=False)
class SchemaShape:
    """One kind of rule. ``raw`` holds its keywords, ``members`` those of a combination: shapes, or schemas yet to read."""

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
    """The keywords that make a schema without ``type`` one of that type."""
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
    """Schemas as shapes. What is written alike in one resource is one shape, so that a pair is known by identity."""

    def __init__(self) -> None:
        self._built: dict[int, SchemaShape] = {}
        self._alike: dict[Any, SchemaShape] = {}
        self._members: dict[int, tuple[SchemaShape, ...]] = {}
        self._kept: list[Any] = []  # what was made here and is known by identity

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
        """The members of a combination, none twice."""
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
    """What stands beside each other in one schema, references aside."""
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


# ---- what a shape says


def refers(shape: SchemaShape, raw: Any) -> bool:
    """Whether a schema in it is a reference."""
    return isinstance(raw, dict) and reference(raw, shape.document.draft) is not None


def tuple_of(shape: SchemaShape) -> list[Any]:
    """The schemas of items place by place; [] where there are none."""
    found = shape["prefixItems"] if shape.document.draft == 2020 else shape["items"]
    return found if isinstance(found, list) else []


def each_item(shape: SchemaShape) -> Any:
    """The schema of every item; None where there is none."""
    found = shape["items"]
    if isinstance(found, list) or (shape.modern and (isinstance(found, bool) or tuple_of(shape))):
        return None
    return found


def additional_of(shape: SchemaShape) -> tuple[bool, Any]:
    """Whether there may be more properties or items than are named, and the schema of those."""
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
    """Equal values have equal texts; 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)
