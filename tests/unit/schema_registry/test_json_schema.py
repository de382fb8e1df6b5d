"""JSON schemas: what is taken as one, its canonical text, and Confluent's verdicts on a change of it."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from effort import costs_at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.schema_registry.formats import Format, InvalidSchema, SchemaDifference
from hub.schema_registry.formats.json_schema import differences as json_schema_differences
from hub.schema_registry.formats.json_schema import format as json_schema_format
from hub.schema_registry.formats.json_schema import schema as json_schema
from hub.schema_registry.formats.json_schema.format import canonical, normalized
from hub.schema_registry.formats.json_schema.patterns import Pattern
from hub.schema_registry.formats.json_schema.schema import JsonSchema, parse

NEWEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
DRAFT_6 = {"$schema": "http://json-schema.org/draft-06/schema#"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}

S: dict[str, Any] = {"type": "string"}
I: dict[str, Any] = {"type": "integer"}
N: dict[str, Any] = {"type": "number"}
B: dict[str, Any] = {"type": "boolean"}
NULL: dict[str, Any] = {"type": "null"}


def schema(raw: Any, **named: JsonSchema) -> JsonSchema:
    return parse(json.dumps(raw), named)


def opened(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, **more}
    return {**found, "required": list(required)} if required else found


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return opened(properties, *required, additionalProperties=False, **more)


def array(**more: Any) -> dict[str, Any]:
    return {"type": "array", **more}


def items(*each: Any, **more: Any) -> dict[str, Any]:
    return array(items=list(each), **more)


def prefix(*each: Any, **more: Any) -> dict[str, Any]:
    return {**NEWEST, **array(prefixItems=list(each), **more)}


def one_of(*each: Any) -> dict[str, Any]:
    return {"oneOf": list(each)}


def any_of(*each: Any) -> dict[str, Any]:
    return {"anyOf": list(each)}


def all_of(*each: Any) -> dict[str, Any]:
    return {"allOf": list(each)}


def tree(value: Any) -> dict[str, Any]:
    node = opened({"value": value, "children": array(items={"$ref": "#/definitions/node"})})
    return {"$ref": "#/definitions/node", "definitions": {"node": node}}


def masked(first: str, second: str) -> dict[str, Any]:
    """T0 -> T2 -> T0 is a circle, entered within a oneOf:
    what is believed of it must not outlive the belief."""

    def node(kind: str, target: str) -> dict[str, Any]:
        return opened({"id": {"type": kind}, "ref": one_of({"$ref": f"#/definitions/{target}"})})

    definitions = {"T0": node(first, "T2"), "T1": node(second, "T2"), "T2": node("integer", "T0")}
    union = one_of({"$ref": "#/definitions/T0"}, {"$ref": "#/definitions/T1"})
    return {"definitions": definitions, **opened({"root": union})}


ID = {"id": S}
SAME = ""
BOTH, BACK, FORTH, NEITHER = (True, True), (True, False), (False, True), (False, False)

# The old schema, the new one, may BACKWARD and FORWARD, and a rule that is broken (BACKWARD's, if it is).
CASES: list[tuple[str, Any, Any, tuple[bool, bool], str]] = [
    # what only describes
    ("title", {"type": "string", "title": "a"}, {"type": "string", "title": "b"}, BOTH, SAME),
    ("description added", S, {**S, "description": "b"}, BOTH, SAME),
    ("default changed", {**S, "default": "a"}, {**S, "default": "b"}, BOTH, SAME),
    ("id changed", {**S, "$id": "http://a"}, {**S, "$id": "http://b"}, BOTH, SAME),
    (
        "examples, comment and readOnly",
        S,
        {**S, "examples": ["x"], "$comment": "c", "readOnly": True},
        BOTH,
        SAME,
    ),
    ("format is not compared", {**S, "format": "date"}, {**S, "format": "email"}, BOTH, SAME),
    ("format added", S, {**S, "format": "date"}, BOTH, SAME),
    # types
    ("string to integer", S, I, NEITHER, "TYPE_CHANGED"),
    ("object to array", {"type": "object"}, array(), NEITHER, "TYPE_CHANGED"),
    ("integer to number", I, N, BACK, "TYPE_NARROWED"),
    ("number to integer", N, I, FORTH, "TYPE_NARROWED"),
    ("anything to {}", S, {}, BACK, "TYPE_CHANGED"),
    ("anything to true", opened(ID), True, BACK, "TYPE_CHANGED"),
    ("false to anything", False, S, BACK, "TYPE_CHANGED"),
    ("{} and true", {}, True, BOTH, SAME),
    ("{} to an object of nothing", {}, {"properties": {}}, FORTH, "TYPE_CHANGED"),
    ("{} to an object of nothing, 2020", NEWEST, {**NEWEST, "properties": {}}, BOTH, SAME),
    ("keywords imply the type", {"maxLength": 3}, {**S, "maxLength": 3}, BOTH, SAME),
    ("Connect's bytes", {**S, "connect.type": "bytes"}, {**N, "connect.type": "bytes"}, BOTH, SAME),
    ("Connect's bytes on one side", {**S, "connect.type": "bytes"}, N, NEITHER, "TYPE_CHANGED"),
    # lists of types
    ("type to list", S, {"type": ["string", "null"]}, BACK, "TYPE_CHANGED"),
    ("list of one to type", {"type": ["string"]}, S, BOTH, SAME),
    (
        "list longer",
        {"type": ["string", "null"]},
        {"type": ["null", "integer", "string"]},
        BACK,
        "SUM_TYPE_NARROWED",
    ),
    ("list shorter", {"type": ["string", "null"]}, {"type": ["string"]}, FORTH, "SUM_TYPE_NARROWED"),
    ("list in other order", {"type": ["string", "null"]}, {"type": ["null", "string"]}, BOTH, SAME),
    (
        "list of other types",
        {"type": ["string", "null"]},
        {"type": ["string", "integer"]},
        NEITHER,
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    (
        "a keyword goes to its type",
        {"type": ["string", "null"], "maxLength": 3},
        {"type": ["string", "null"]},
        BACK,
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    # strings
    ("maxLength added", S, {**S, "maxLength": 3}, FORTH, "MAX_LENGTH_ADDED"),
    ("maxLength raised", {**S, "maxLength": 3}, {**S, "maxLength": 4}, BACK, "MAX_LENGTH_DECREASED"),
    ("maxLength lowered", {**S, "maxLength": 4}, {**S, "maxLength": 3}, FORTH, "MAX_LENGTH_DECREASED"),
    ("minLength added", S, {**S, "minLength": 3}, FORTH, "MIN_LENGTH_ADDED"),
    ("minLength raised", {**S, "minLength": 3}, {**S, "minLength": 4}, FORTH, "MIN_LENGTH_INCREASED"),
    ("pattern added", S, {**S, "pattern": "^a"}, FORTH, "PATTERN_ADDED"),
    ("pattern removed", {**S, "pattern": "^a"}, S, BACK, "PATTERN_ADDED"),
    ("pattern widened", {**S, "pattern": "^a$"}, {**S, "pattern": "^a"}, NEITHER, "PATTERN_CHANGED"),
    # numbers
    ("maximum added", N, {**N, "maximum": 3}, FORTH, "MAXIMUM_ADDED"),
    ("maximum raised", {**N, "maximum": 3}, {**N, "maximum": 3.5}, BACK, "MAXIMUM_DECREASED"),
    ("maximum 3 and 3.0", {**N, "maximum": 3}, {**N, "maximum": 3.0}, BOTH, SAME),
    ("minimum added", N, {**N, "minimum": 3}, FORTH, "MINIMUM_ADDED"),
    ("minimum lowered", {**N, "minimum": 3}, {**N, "minimum": 2}, BACK, "MINIMUM_INCREASED"),
    ("exclusiveMaximum added", N, {**N, "exclusiveMaximum": 3}, FORTH, "EXCLUSIVE_MAXIMUM_ADDED"),
    (
        "exclusiveMaximum lowered",
        {**N, "exclusiveMaximum": 3},
        {**N, "exclusiveMaximum": 2},
        FORTH,
        "EXCLUSIVE_MAXIMUM_DECREASED",
    ),
    ("exclusiveMinimum added", N, {**N, "exclusiveMinimum": 3}, FORTH, "EXCLUSIVE_MINIMUM_ADDED"),
    (
        "exclusiveMinimum raised",
        {**N, "exclusiveMinimum": 3},
        {**N, "exclusiveMinimum": 4},
        FORTH,
        "EXCLUSIVE_MINIMUM_INCREASED",
    ),
    (
        "draft 4's exclusiveMaximum is a flag",
        {**DRAFT_4, **N, "maximum": 3},
        {**DRAFT_4, **N, "maximum": 3, "exclusiveMaximum": True},
        BOTH,
        SAME,
    ),
    ("multipleOf added", I, {**I, "multipleOf": 5}, FORTH, "MULTIPLE_OF_ADDED"),
    ("multipleOf multiplied", {**I, "multipleOf": 5}, {**I, "multipleOf": 10}, FORTH, "MULTIPLE_OF_EXPANDED"),
    ("multipleOf divided", {**I, "multipleOf": 10}, {**I, "multipleOf": 5}, BACK, "MULTIPLE_OF_EXPANDED"),
    ("multipleOf changed", {**I, "multipleOf": 3}, {**I, "multipleOf": 5}, NEITHER, "MULTIPLE_OF_CHANGED"),
    (
        "multipleOf of fractions",
        {**N, "multipleOf": 0.3},
        {**N, "multipleOf": 0.1},
        BACK,
        "MULTIPLE_OF_EXPANDED",
    ),
    ("multipleOf below one", {**N, "multipleOf": 1}, {**N, "multipleOf": 0.5}, BACK, "MULTIPLE_OF_EXPANDED"),
    # values
    ("string to enum", S, {**S, "enum": ["a"]}, FORTH, "TYPE_CHANGED"),
    ("enum to string", {**S, "enum": ["a"]}, S, BACK, "TYPE_CHANGED"),
    ("enum without type to string", {"enum": ["a"]}, S, NEITHER, "TYPE_CHANGED"),
    ("enum longer", {"enum": ["a"]}, {"enum": ["b", "a"]}, BACK, "ENUM_ARRAY_NARROWED"),
    ("enum shorter", {"enum": ["a", "b"]}, {"enum": ["a"]}, FORTH, "ENUM_ARRAY_NARROWED"),
    ("enum changed", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, NEITHER, "ENUM_ARRAY_CHANGED"),
    ("enum of true and 1", {"enum": [True]}, {"enum": [1]}, NEITHER, "ENUM_ARRAY_CHANGED"),
    ("enum of objects", {"enum": [{"a": 1, "b": 2}]}, {"enum": [{"b": 2, "a": 1}]}, BOTH, SAME),
    (
        "typed enum shorter",
        {**S, "enum": ["a", "b"]},
        {**S, "enum": ["a"]},
        FORTH,
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    ("const changed", {"const": 1}, {"const": 2}, NEITHER, "ENUM_ARRAY_CHANGED"),
    ("const to enum", {"const": 1}, {"enum": [1, 2]}, NEITHER, "TYPE_CHANGED"),
    ("const in draft 4 is nothing", {**DRAFT_4, "const": 1}, {**DRAFT_4, "const": 2}, BOTH, SAME),
    # properties of open objects
    (
        "open: typed property added",
        opened(ID),
        opened({**ID, "b": S}),
        FORTH,
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN",
    ),
    (
        "open: required property added",
        opened(ID),
        opened({**ID, "b": S}, "b"),
        FORTH,
        "REQUIRED_PROPERTY_ADDED_TO_OPEN",
    ),
    (
        "open: required property with default added",
        opened(ID),
        opened({**ID, "b": {**S, "default": ""}}, "b"),
        FORTH,
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN",
    ),
    ("open: property {} added", opened(ID), opened({**ID, "b": {}}), BOTH, SAME),
    ("open: property true added", opened(ID), opened({**ID, "b": True}), BOTH, SAME),
    ("open: property removed", opened({**ID, "b": S}), opened(ID), BACK, "OPTIONAL_PROPERTY_ADDED_TO_OPEN"),
    (
        "open: another property",
        opened({"a": S}),
        opened({"b": S}),
        NEITHER,
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN",
    ),
    # of closed ones
    ("closed: optional added", closed(ID), closed({**ID, "b": S}), BACK, "PROPERTY_REMOVED_FROM_CLOSED"),
    (
        "closed: required added",
        closed(ID),
        closed({**ID, "b": S}, "b"),
        NEITHER,
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN",
    ),
    (
        "closed: required with default added",
        closed(ID),
        closed({**ID, "b": {**S, "default": ""}}, "b"),
        BACK,
        "PROPERTY_REMOVED_FROM_CLOSED",
    ),
    (
        "closed: null is a default",
        closed(ID),
        closed({**ID, "b": {**S, "default": None}}, "b"),
        BACK,
        "PROPERTY_REMOVED_FROM_CLOSED",
    ),
    ("closed: property false added", closed(ID), closed({**ID, "b": False}), BOTH, SAME),
    ("closed: removed", closed({**ID, "b": S}), closed(ID), FORTH, "PROPERTY_REMOVED_FROM_CLOSED"),
    # of objects that say something of other properties
    (
        "additionalProperties cover what is added",
        opened(ID, additionalProperties=I),
        opened({**ID, "b": N}, additionalProperties=I),
        BACK,
        "PROPERTY_REMOVED_NOT_COVERED",
    ),
    (
        "additionalProperties do not cover what is added",
        opened(ID, additionalProperties=S),
        opened({**ID, "b": I}, additionalProperties=S),
        NEITHER,
        "PROPERTY_ADDED_NOT_COVERED",
    ),
    (
        "additionalProperties cover what is added, but it is required",
        opened(ID, additionalProperties=S),
        opened({**ID, "b": S}, "b", additionalProperties=S),
        FORTH,
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN",
    ),
    (
        "additionalProperties cover what is removed",
        closed({**ID, "b": S}),
        opened(ID, additionalProperties={"type": ["string", "null"]}),
        BACK,
        "PROPERTY_ADDED_NOT_COVERED",
    ),
    (
        "additionalProperties do not cover what is removed",
        closed({**ID, "b": I}),
        opened(ID, additionalProperties=S),
        NEITHER,
        "PROPERTY_REMOVED_NOT_COVERED",
    ),
    (
        "a pattern covers what is added",
        closed(ID, patternProperties={"^I_": I}),
        closed({**ID, "I_1": N}, patternProperties={"^I_": I}),
        BACK,
        "PROPERTY_REMOVED_NOT_COVERED",
    ),
    (
        "a pattern does not cover what is added",
        closed(ID, patternProperties={"^I_": I}),
        closed({**ID, "I_1": S}, patternProperties={"^I_": I}),
        NEITHER,
        "PROPERTY_ADDED_NOT_COVERED",
    ),
    (
        "an object with patterns is not open",
        opened(ID, patternProperties={"^I_": I}),
        opened({**ID, "b": S}, patternProperties={"^I_": I}),
        BACK,
        "PROPERTY_REMOVED_FROM_CLOSED",
    ),
    ("closed to open", closed(ID), opened(ID), BACK, "ADDITIONAL_PROPERTIES_REMOVED"),
    ("open to closed", opened(ID), closed(ID), FORTH, "ADDITIONAL_PROPERTIES_REMOVED"),
    (
        "open to typed",
        opened(ID),
        opened(ID, additionalProperties=S),
        FORTH,
        "ADDITIONAL_PROPERTIES_NARROWED",
    ),
    ("typed to open", opened(ID, additionalProperties=S), opened(ID), BACK, "ADDITIONAL_PROPERTIES_NARROWED"),
    (
        "additionalProperties changed",
        opened(ID, additionalProperties=S),
        opened(ID, additionalProperties=I),
        NEITHER,
        "TYPE_CHANGED",
    ),
    (
        "unevaluatedProperties false",
        {**NEWEST, **opened(ID)},
        {**NEWEST, **opened(ID, unevaluatedProperties=False)},
        FORTH,
        "UNEVALUATED_PROPERTIES_REMOVED",
    ),
    (
        "unevaluatedProperties typed",
        {**NEWEST, **opened(ID)},
        {**NEWEST, **opened(ID, unevaluatedProperties=S)},
        FORTH,
        "UNEVALUATED_PROPERTIES_NARROWED",
    ),
    (
        "unevaluatedProperties close an object",
        {**NEWEST, **opened(ID, unevaluatedProperties=False)},
        {**NEWEST, **opened({**ID, "b": S}, unevaluatedProperties=False)},
        BACK,
        "PROPERTY_REMOVED_FROM_CLOSED",
    ),
    (
        "unevaluatedProperties in draft 7 are nothing",
        opened(ID),
        opened(ID, unevaluatedProperties=False),
        BOTH,
        SAME,
    ),
    (
        "unevaluatedProperties cover what is added",
        {**NEWEST, **opened(ID, unevaluatedProperties=I)},
        {**NEWEST, **opened({**ID, "b": S}, unevaluatedProperties=I)},
        NEITHER,
        "PROPERTY_ADDED_NOT_COVERED",
    ),
    (
        "unevaluatedItems cover what is added",
        prefix(S, unevaluatedItems=I),
        prefix(S, N, unevaluatedItems=I),
        BACK,
        "ITEM_REMOVED_NOT_COVERED",
    ),
    # required
    ("becomes required", opened(ID), opened(ID, "id"), FORTH, "REQUIRED_ATTRIBUTE_ADDED"),
    ("no longer required", opened(ID, "id"), opened(ID), BACK, "REQUIRED_ATTRIBUTE_ADDED"),
    ("becomes required with default", opened(ID), opened({"id": {**S, "default": "x"}}, "id"), BOTH, SAME),
    ("required but not defined", opened(ID), opened(ID, "other"), BOTH, SAME),
    (
        "null is no default from 2019",
        {**NEWEST, **opened(ID)},
        {**NEWEST, **opened({"id": {**S, "default": None}}, "id")},
        FORTH,
        "REQUIRED_ATTRIBUTE_ADDED",
    ),
    (
        "a default beside a reference",
        {"definitions": {"s": S}, **opened(ID)},
        {"definitions": {"s": S}, **opened({"id": {"$ref": "#/definitions/s", "default": "x"}}, "id")},
        BOTH,
        SAME,
    ),
    # counts, names and dependencies
    ("maxProperties added", opened(ID), opened(ID, maxProperties=3), FORTH, "MAX_PROPERTIES_ADDED"),
    (
        "maxProperties lowered",
        opened(ID, maxProperties=3),
        opened(ID, maxProperties=2),
        FORTH,
        "MAX_PROPERTIES_DECREASED",
    ),
    ("minProperties added", opened(ID), opened(ID, minProperties=3), FORTH, "MIN_PROPERTIES_ADDED"),
    (
        "minProperties raised",
        opened(ID, minProperties=2),
        opened(ID, minProperties=3),
        FORTH,
        "MIN_PROPERTIES_INCREASED",
    ),
    ("propertyNames are not compared", opened(ID), opened(ID, propertyNames={"maxLength": 3}), BOTH, SAME),
    ("dependency added", opened(ID), opened(ID, dependencies={"id": ["b"]}), FORTH, "DEPENDENCY_ARRAY_ADDED"),
    (
        "dependency extended",
        opened(ID, dependencies={"id": ["b"]}),
        opened(ID, dependencies={"id": ["b", "c"]}),
        FORTH,
        "DEPENDENCY_ARRAY_EXTENDED",
    ),
    (
        "dependency narrowed",
        opened(ID, dependencies={"id": ["b", "c"]}),
        opened(ID, dependencies={"id": ["c"]}),
        BACK,
        "DEPENDENCY_ARRAY_EXTENDED",
    ),
    (
        "dependency changed",
        opened(ID, dependencies={"id": ["b"]}),
        opened(ID, dependencies={"id": ["c"]}),
        NEITHER,
        "DEPENDENCY_ARRAY_CHANGED",
    ),
    (
        "dependency on a schema",
        opened(ID),
        opened(ID, dependencies={"id": S}),
        FORTH,
        "DEPENDENCY_SCHEMA_ADDED",
    ),
    (
        "dependency on another schema",
        opened(ID, dependencies={"id": S}),
        opened(ID, dependencies={"id": I}),
        NEITHER,
        "TYPE_CHANGED",
    ),
    (
        "dependentRequired",
        {**NEWEST, **opened(ID)},
        {**NEWEST, **opened(ID, dependentRequired={"id": ["b"]})},
        FORTH,
        "DEPENDENCY_ARRAY_ADDED",
    ),
    (
        "dependentSchemas",
        {**DRAFT_2019, **opened(ID)},
        {**DRAFT_2019, **opened(ID, dependentSchemas={"id": S})},
        FORTH,
        "DEPENDENCY_SCHEMA_ADDED",
    ),
    # arrays
    ("items added", array(), array(items=S), FORTH, "SCHEMA_ADDED"),
    ("items changed", array(items=S), array(items=I), NEITHER, "TYPE_CHANGED"),
    ("items widened", array(items=I), array(items=N), BACK, "TYPE_NARROWED"),
    ("maxItems added", array(), array(maxItems=3), FORTH, "MAX_ITEMS_ADDED"),
    ("maxItems lowered", array(maxItems=3), array(maxItems=2), FORTH, "MAX_ITEMS_DECREASED"),
    ("minItems added", array(), array(minItems=3), FORTH, "MIN_ITEMS_ADDED"),
    ("minItems raised", array(minItems=3), array(minItems=4), FORTH, "MIN_ITEMS_INCREASED"),
    ("uniqueItems added", array(), array(uniqueItems=True), FORTH, "UNIQUE_ITEMS_ADDED"),
    ("contains is not compared", array(), array(contains=S), BOTH, SAME),
    (
        "contains from 2019 asks for one",
        {**NEWEST, **array()},
        {**NEWEST, **array(contains=S)},
        FORTH,
        "MIN_CONTAINS_ADDED",
    ),
    (
        "maxContains lowered",
        {**NEWEST, **array(contains=S, maxContains=3)},
        {**NEWEST, **array(contains=S, maxContains=2)},
        FORTH,
        "MAX_CONTAINS_DECREASED",
    ),
    # tuples
    ("open tuple: item added", items(S), items(S, I), FORTH, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    ("open tuple: item {} added", items(S), items(S, {}), BOTH, SAME),
    ("open tuple: item removed", items(S, I), items(S), BACK, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        "closed tuple: item added",
        items(S, additionalItems=False),
        items(S, I, additionalItems=False),
        BACK,
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    (
        "closed tuple: item false added",
        items(S, additionalItems=False),
        items(S, False, additionalItems=False),
        BOTH,
        SAME,
    ),
    (
        "additionalItems cover what is added",
        items(S, additionalItems=I),
        items(S, N, additionalItems=I),
        BACK,
        "ITEM_REMOVED_NOT_COVERED",
    ),
    (
        "additionalItems do not cover what is added",
        items(S, additionalItems=S),
        items(S, I, additionalItems=S),
        NEITHER,
        "ITEM_ADDED_NOT_COVERED",
    ),
    ("tuple: item changed", items(S, I), items(S, S), NEITHER, "TYPE_CHANGED"),
    ("additionalItems false", items(S), items(S, additionalItems=False), FORTH, "ADDITIONAL_ITEMS_REMOVED"),
    ("additionalItems typed", items(S), items(S, additionalItems=S), FORTH, "ADDITIONAL_ITEMS_NARROWED"),
    ("prefixItems: item added", prefix(S), prefix(S, I), FORTH, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        "prefixItems, closed: item added",
        prefix(S, items=False),
        prefix(S, I, items=False),
        BACK,
        "ITEM_REMOVED_FROM_CLOSED",
    ),
    ("prefixItems: items false", prefix(S), prefix(S, items=False), FORTH, "ADDITIONAL_ITEMS_REMOVED"),
    (
        "unevaluatedItems false",
        {**NEWEST, **array()},
        {**NEWEST, **array(unevaluatedItems=False)},
        FORTH,
        "UNEVALUATED_ITEMS_REMOVED",
    ),
    ("tuples of two drafts", items(S, I, additionalItems=N), prefix(S, I, items=N), BOTH, SAME),
    # combinations
    ("to oneOf with it", S, one_of(I, S), BACK, "TYPE_CHANGED"),
    ("to anyOf with it, looser", {**S, "maxLength": 3}, any_of(NULL, S), BACK, "TYPE_CHANGED"),
    ("to oneOf without it", B, one_of(I, S), NEITHER, "TYPE_CHANGED"),
    ("to allOf of it alone", S, all_of(S), BOTH, SAME),
    ("to allOf with it", S, all_of(S, {"maxLength": 3}), FORTH, "TYPE_CHANGED"),
    ("oneOf longer", one_of(S), one_of(I, S), BACK, "SUM_TYPE_NARROWED"),
    ("oneOf shorter", one_of(S, I), one_of(S), FORTH, "SUM_TYPE_NARROWED"),
    ("oneOf in other order", one_of(S, I, B), one_of(B, S, I), BOTH, SAME),
    ("oneOf changed", one_of(S, I), one_of(S, B), NEITHER, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ("oneOf with one twice", one_of(S, S), one_of(S), BOTH, SAME),
    (
        "each needs a partner of its own",
        any_of(I, N),
        any_of(N, S),
        NEITHER,
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    ("the first must make room", any_of(I, N), any_of(N, {**I, "title": "i"}), BOTH, SAME),
    ("allOf shorter", all_of(S, {"maxLength": 3}), all_of(S), BACK, "PRODUCT_TYPE_EXTENDED"),
    ("allOf longer", all_of(S), all_of(S, {"enum": ["a"]}), FORTH, "PRODUCT_TYPE_EXTENDED"),
    ("oneOf to anyOf", one_of(S, I), any_of(S, I), BACK, "COMBINED_TYPE_CHANGED"),
    ("anyOf to oneOf", any_of(S, I), one_of(S, I), FORTH, "COMBINED_TYPE_CHANGED"),
    ("allOf to anyOf", all_of(S, {"enum": ["a"]}), any_of(S, {"enum": ["a"]}), BACK, "COMBINED_TYPE_CHANGED"),
    ("allOf to anyOf of fewer", all_of(I, S, B), any_of(I, S), BACK, "COMBINED_TYPE_CHANGED"),
    ("allOf to anyOf of one", all_of(I, S), any_of(S), BACK, "COMBINED_TYPE_CHANGED"),
    ("allOf to oneOf of one", all_of(I, S), one_of(S), BACK, "COMBINED_TYPE_CHANGED"),
    ("allOf to oneOf of fewer", all_of(I, S, B), one_of(I, S), NEITHER, "COMBINED_TYPE_CHANGED"),
    ("oneOf to anyOf of fewer", one_of(I, S, B), any_of(I, S), NEITHER, "SUM_TYPE_NARROWED"),
    ("oneOf one to allOf one", one_of(S), all_of(S), BOTH, SAME),
    ("anyOf one to oneOf two", any_of(S), one_of(I, S), BACK, "SUM_TYPE_NARROWED"),
    ("anyOf one to allOf two", any_of(S), all_of(I, S), FORTH, "COMBINED_TYPE_CHANGED"),
    ("not narrowed", {"not": N}, {"not": I}, BACK, "NOT_TYPE_EXTENDED"),
    ("not extended", {"not": I}, {"not": N}, FORTH, "NOT_TYPE_EXTENDED"),
    ("if-then-else is not compared", {"if": S, "then": {}}, {"if": I, "then": S}, BOTH, SAME),
    (
        "if-then-else added",
        opened(ID),
        opened(ID, **{"if": S, "then": {"maxLength": 2}}),
        FORTH,
        "TYPE_CHANGED",
    ),
    ("if in draft 6 is nothing", {**DRAFT_6, **S}, {**DRAFT_6, **S, "if": {"maxLength": 2}}, BOTH, SAME),
    # references
    ("a reference for its schema", S, {"$ref": "#/definitions/s", "definitions": {"s": S}}, BOTH, SAME),
    (
        "a definition changed",
        {"definitions": {"s": S}, **array(items={"$ref": "#/definitions/s"})},
        {"definitions": {"s": I}, **array(items={"$ref": "#/definitions/s"})},
        NEITHER,
        "TYPE_CHANGED",
    ),
    (
        "a definition that nobody uses",
        {"definitions": {"s": S}, **B},
        {"definitions": {"s": I}, **B},
        BOTH,
        SAME,
    ),
    ("recursive", tree(I), tree(I), BOTH, SAME),
    ("recursive, widened", tree(I), tree(N), BACK, "TYPE_NARROWED"),
    ("recursive, changed", tree(I), tree(S), NEITHER, "TYPE_CHANGED"),
    (
        "a circle hides nothing",
        masked("integer", "boolean"),
        masked("boolean", "number"),
        NEITHER,
        "SUBSCHEMAS_CHANGED",
    ),
    (
        "beside a reference: nothing, in draft 7",
        {"definitions": {"s": S}, "items": {"$ref": "#/definitions/s"}},
        {"definitions": {"s": S}, "items": {"$ref": "#/definitions/s", "maxLength": 3}},
        BOTH,
        SAME,
    ),
    (
        "beside a reference: a further rule, from 2019",
        {**NEWEST, "$defs": {"s": S}, "items": {"$ref": "#/$defs/s"}},
        {**NEWEST, "$defs": {"s": S}, "items": {"$ref": "#/$defs/s", "maxLength": 3}},
        FORTH,
        "TYPE_CHANGED",
    ),
    (
        "beside a reference: part of its schema, in draft 4",
        {**DRAFT_4, "definitions": {"s": S}, "items": {"$ref": "#/definitions/s"}},
        {**DRAFT_4, "definitions": {"s": S}, "items": {"$ref": "#/definitions/s", "maxLength": 3}},
        FORTH,
        "MAX_LENGTH_ADDED",
    ),
    ("the same in two drafts", {**DRAFT_4, **opened(ID, "id")}, {**NEWEST, **opened(ID, "id")}, BOTH, SAME),
]


@pytest.mark.parametrize(
    ("old", "new", "verdicts", "rule"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_verdicts_are_confluents(old: Any, new: Any, verdicts: tuple[bool, bool], rule: str) -> None:
    backward = json_schema_format.differences(schema(new), schema(old))
    forward = json_schema_format.differences(schema(old), schema(new))
    assert (not backward, not forward) == verdicts, (backward, forward)
    assert any(rule in each.rule for each in backward or forward) if rule else not backward + forward
    assert all(each.path.startswith("#/") and each.what and each.fix for each in backward + forward)


# Every verdict holds as deep as you like: in a property, an item, a definition.
@pytest.mark.parametrize(
    ("old", "new", "verdicts"), [(c[1], c[2], c[3]) for c in CASES if "$schema" not in str(c)]
)
def test_verdicts_hold_within(old: Any, new: Any, verdicts: tuple[bool, bool]) -> None:
    def around(raw: Any) -> Any:
        definitions = raw.get("definitions", {}) if isinstance(raw, dict) else {}
        return {
            "definitions": {**definitions, "it": raw},
            **closed({"in": array(items={"$ref": "#/definitions/it"})}),
        }

    old, new = schema(around(old)), schema(around(new))
    backward, forward = json_schema_format.differences(new, old), json_schema_format.differences(old, new)
    assert (not backward, not forward) == verdicts
    assert all(each.path.startswith("#/properties/in/items") for each in backward + forward)
    assert all(each.field.split(".")[0] == "in" for each in backward + forward)


@pytest.mark.parametrize(
    ("old", "new", "strict", "lenient"),
    [
        (opened(ID), opened({**ID, "b": S}), False, True),
        (opened(ID), opened({**ID, "b": {**S, "default": ""}}, "b"), False, True),
        (opened(ID), opened({**ID, "b": S}, "b"), False, False),
        (opened(ID), closed(ID), False, True),
        (opened(ID), opened(ID, additionalProperties=S), False, True),
        (closed({**ID, "b": S}), closed(ID), False, True),
        (opened(ID), opened({"id": I}), False, False),
        (opened(ID), opened(ID, "id"), False, False),
        (one_of(opened(ID)), one_of(opened({**ID, "b": S}), NULL), False, True),
    ],
)
def test_the_lenient_policy_lets_objects_evolve(old: Any, new: Any, strict: bool, lenient: bool) -> None:
    old, new = schema(old), schema(new)
    assert (not json_schema_format.differences(new, old)) is strict
    assert (not json_schema_format.differences(new, old, lenient=True)) is lenient


def test_a_difference_says_where_what_and_the_way_out() -> None:
    old = opened({"order": opened({"qty": I, "lines": items(opened({"sku": S}))})})
    new = opened({"order": opened({"qty": S, "lines": items(opened({"sku": S}, "sku"))}), "note": S})
    assert json_schema_format.differences(schema(new), schema(old)) == [
        SchemaDifference(
            "TYPE_CHANGED",
            "#/properties/order/properties/qty",
            "order.qty",
            "the reader expects string, the writer has integer",
            "keep integer, or add a property with another name",
        ),
        SchemaDifference(
            "REQUIRED_ATTRIBUTE_ADDED",
            "#/properties/order/properties/lines/items/0/required/sku",
            "order.lines.sku",
            "the reader requires `sku`, the writer may leave it out",
            "give `sku` a default, or do not require it",
        ),
        SchemaDifference(
            "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
            "#/properties/note",
            "note",
            "the reader expects string in `note`; the writer does not define it and, being open to "
            "additional properties, may have written anything there",
            "let `note` take any value ({}), or let the writer's schema be closed (additionalProperties: "
            "false) before a property is added",
        ),
    ]


def test_it_is_a_format() -> None:
    module: Format = json_schema_format
    assert module.differences(module.parse("{}", {}), module.parse('{"type":"string"}', {})) == []


# ---- references by name


def test_names_are_resolved_and_compared_deeply() -> None:
    address = schema({"definitions": {"zip": S}, **opened({"zip": {"$ref": "#/definitions/zip"}})})
    moved = schema({"definitions": {"zip": I}, **opened({"zip": {"$ref": "#/definitions/zip"}})})
    customer = {"a.json": address}, {"a.json": moved}
    text = json.dumps(opened({"home": {"$ref": "a.json"}, "zip": {"$ref": "a.json#/definitions/zip"}}))
    old, new = (parse(text, named) for named in customer)
    assert [(each.rule, each.path) for each in json_schema_format.differences(new, old)] == [
        ("TYPE_CHANGED", "#/properties/home/properties/zip"),
        ("TYPE_CHANGED", "#/properties/zip"),
    ]
    assert json_schema_format.differences(new, parse(text, customer[1])) == []
    over_two = {**customer[0], "customer.json": old}
    assert parse('{"$ref": "customer.json#/properties/zip"}', over_two).named == over_two


@pytest.mark.parametrize(
    "raw",
    [
        {"$ref": "#"},
        {**NEWEST, "$defs": {"a": {"$anchor": "here", **S}}, "items": {"$ref": "#here"}},
        {"definitions": {"a": {"$id": "#here", **S}}, "items": {"$ref": "#here"}},
        {"$id": "http://x/y.json", "definitions": {"a": {"$id": "z.json", **S}}, "items": {"$ref": "z.json"}},
        {"$id": "http://x/y.json", "definitions": {"a": S}, "items": {"$ref": "y.json#/definitions/a"}},
        {"$id": "http://x/y.json", "items": {"$ref": "http://x/y.json"}},
        {"x-types": {"a/b c": S}, "items": {"$ref": "#/x-types/a~1b%20c"}},
        {"items": [S, {"$ref": "#/items/0"}]},
        {"properties": {"$ref": S}, "const": {"$ref": "no reference"}},
        {**NEWEST, "$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
        {**DRAFT_2019, "items": {"$recursiveRef": "#"}},
        {
            "definitions": {
                "r": {"$id": "r.json", "definitions": {"a": S}, "items": {"$ref": "#/definitions/a"}}
            }
        },
    ],
)
def test_references_within_the_document(raw: Any) -> None:
    if raw == {"$ref": "#"}:
        with pytest.raises(InvalidSchema, match="leads back to itself"):
            schema(raw)
        return
    assert json_schema_format.differences(schema(raw), schema(raw)) == []


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("http://example.com/a.json", "unknown.*nothing is fetched"),
        ("https://example.com/a.json#/definitions/b", "unknown.*nothing is fetched"),
        ("file:///etc/passwd", "unknown.*nothing is fetched"),
        ("other.json", "unknown.*nothing is fetched"),
        ("http://[", "unknown.*nothing is fetched"),
        ("#/definitions/none", "leads nowhere"),
        ("#none", "leads nowhere"),
        ("#/type", "leads to no schema"),
        ("a.json#/none", "leads nowhere"),
    ],
)
def test_what_leads_nowhere_is_refused(ref: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse(json.dumps({"type": "object", "properties": {"a": {"$ref": ref}}}), {"a.json": schema(S)})


def test_what_is_pointed_at_must_be_a_schema_wherever_it_stands() -> None:
    with pytest.raises(InvalidSchema, match="maxLength|abc"):
        schema({"x-types": {"a": {"maxLength": "abc"}}, "items": {"$ref": "#/x-types/a"}})
    with pytest.raises(InvalidSchema, match="enum"):  # a name of later drafts
        schema({"$defs": {"a": {"enum": {}}}, "items": {"$ref": "#/$defs/a"}})
    schema({"$defs": {"a": {"enum": {}, "$ref": "no.json"}}})
    with pytest.raises(InvalidSchema, match="unknown"):
        schema({"x-types": {"a": {"items": {"$ref": "b.json"}}}, "items": {"$ref": "#/x-types/a"}})


# ---- the text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"type": "string"} x', "not JSON"),
        ("[]", "neither an object nor true or false"),
        ("5", "neither an object"),
        ('"string"', "neither an object"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"maximum": 1e999}', "too large"),
        ('{"maximum": ' + "9" * 5000 + "}", "not JSON"),
        ('{"type": "string", "type": "number"}', "key `type` twice"),
        ('{"properties": {"a": {}, "b": {}, "a": {}}}', "key `a` twice"),
        ('{"title": "\\ud800"}', "UTF-8"),
        ('{"\\udc00": 1}', "UTF-8"),
        ('{"title": "\ud800"}', "UTF-8"),
        ('{"type": "text"}', "#/type"),
        ('{"properties": {"a": {"maxLength": -1}}}', "#/properties/a/maxLength"),
        ('{"properties": {"a": 5}}', "#/properties/a"),
        ('{"required": ["a", "a"]}', "#/required"),
        ('{"exclusiveMaximum": true}', "#/exclusiveMaximum"),
        ('{"multipleOf": 0}', "#/multipleOf"),
        ('{"$schema": "http://json-schema.org/draft-03/schema#"}', "drafts 4, 6, 7"),
        ('{"$id": "http://x/y", "items": {"$ref": "http://["}}', "not a URI"),
        ('{"$schema": 7}', r"\$schema"),
        ('{"pattern": "("}', "is not a pattern"),
        ('{"patternProperties": {"[": {}}}', "is not a pattern"),
        ('{"pattern": "' + "a" * 1001 + '"}', "1001 characters"),
        (
            json.dumps({"anyOf": [{"pattern": f"{index:0999}"} for index in range(102)]}),
            "patterns have more than",
        ),
        ('{"pattern": "' + "(" * 499 + ")" * 499 + '"}', "nested deeper than 100 groups"),
        ('{"enum": [' + ",".join(map(str, range(10_001))) + "]}", "enum has 10001 values"),
        (json.dumps({"properties": {f"a{index}": {} for index in range(30_001)}}), "more than 30000 values"),
        ('{"description": "' + "a" * json_schema.MOST_BYTES + '"}', "1048576 are allowed"),
        ('{"description": "' + "ä" * (json_schema.MOST_BYTES // 2) + '"}', "1048576 are allowed"),
        ('{"not":' * 64 + "{}" + "}" * 64, "nested deeper"),
        ('{"not":' * 100_000 + "{}" + "}" * 100_000, "nested deeper"),
        ("[" * 500_000, "nested deeper|no JSON"),
        ('{"default":' + "[" * 500 + "]" * 500 + "}", "nested deeper"),
    ],
)
def test_what_is_no_schema_or_too_much(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse(text, {})


def test_what_is_just_small_enough() -> None:
    schema({"pattern": "(" * 100 + ")" * 100, "patternProperties": {r"\(" * 101 + r"[(\](]" * 101: {}}})
    deep = schema(json.loads('{"not":' * 62 + '{"type":"string"}' + "}" * 62))
    assert json_schema_format.differences(deep, deep) == []
    long = schema({"enum": [*range(5_000), *map(str, range(5_000))]})
    assert json_schema_format.differences(long, long) == []
    schema({"pattern": "a" * 1000})
    schema({"pattern": r"^(?<year>\d{4})\p{L}+\h$"})  # Java's and ECMAScript's are theirs to judge


@pytest.mark.parametrize(
    ("dialect", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", 4),
        ("http://json-schema.org/draft-06/schema", 6),
        ("https://json-schema.org/draft-07/schema#", 7),
        ("https://json-schema.org/draft/2019-09/schema", 2019),
        ("https://json-schema.org/draft/2020-12/schema", 2020),
        ("http://example.com/mine", 7),
        (None, 7),
    ],
)
def test_the_draft(dialect: str | None, draft: int) -> None:
    assert schema({"$schema": dialect} if dialect else {}).draft == draft


def test_true_is_a_schema_but_not_in_draft_4() -> None:
    assert schema(True).raw is True
    with pytest.raises(InvalidSchema):
        schema({**DRAFT_4, "properties": {"a": True}})


def test_the_canonical_text_keeps_the_order_of_keys() -> None:
    text = '{ "type": "object",\n "properties": {"b": {"title": "Größe"}, "a": {"maximum": 1.5}} }'
    found = parse(text, {})
    assert canonical(found) == '{"type":"object","properties":{"b":{"title":"Größe"},"a":{"maximum":1.5}}}'
    assert normalized(found) == '{"properties":{"a":{"maximum":1.5},"b":{"title":"Größe"}},"type":"object"}'


# ---- laws

names = st.sampled_from(["a", "b", "S_1"])
leaves = st.sampled_from(
    [
        S,
        I,
        N,
        B,
        NULL,
        {},
        True,
        False,
        {"enum": ["a", 1]},
        {"const": None},
        {"maxLength": 3},
        {"$ref": "#"},
        {"type": ["string", "null"]},
        {**N, "multipleOf": 0.5},
        {**S, "pattern": "^a", "default": "a"},
    ]
)
closing = st.sampled_from([{}, {"additionalProperties": False}, {"patternProperties": {"^S_": S}}])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda p, c: {"type": "object", "properties": p, **c}, st.dictionaries(names, inner), closing
        ),
        st.builds(lambda p: {"properties": p, "required": sorted(p)}, st.dictionaries(names, inner)),
        st.builds(lambda p: {"type": "object", "additionalProperties": p}, inner),
        st.builds(lambda p: array(items=p), inner),
        st.builds(lambda p: {"items": p}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda p: {"not": p}, inner),
        st.builds(
            lambda key, p: {key: p}, st.sampled_from(["oneOf", "anyOf", "allOf"]), st.lists(inner, min_size=1)
        ),
        st.builds(lambda p, q: {"if": p, "then": q, **S}, inner, inner),
    ),
    max_leaves=8,
).map(lambda raw: {"definitions": {"it": raw}, "properties": {"it": raw}} if isinstance(raw, dict) else raw)


def shuffled(raw: Any, order: random.Random) -> Any:
    if isinstance(raw, dict):
        keys = list(raw)
        order.shuffle(keys)
        return {key: shuffled(raw[key], order) for key in keys}
    return [shuffled(each, order) for each in raw] if isinstance(raw, list) else raw


@settings(max_examples=fast_or(30, 150), deadline=None)
@given(schemas, st.randoms(use_true_random=False))
def test_a_schema_reads_itself_however_it_is_written(raw: Any, order: random.Random) -> None:
    one, other = schema(raw), schema(shuffled(raw, order))
    assert json_schema_format.differences(one, schema(raw)) == []
    assert json_schema_format.differences(one, other) == json_schema_format.differences(other, one) == []
    assert normalized(one) == normalized(other) == normalized(parse(normalized(one), {}))
    assert canonical(parse(canonical(other), {})) == canonical(other)


@settings(max_examples=fast_or(30, 150), deadline=None)
@given(schemas, schemas)
def test_lenient_never_finds_more_than_strict(old: Any, new: Any) -> None:
    strict = json_schema_format.differences(schema(new), schema(old))
    lenient = json_schema_format.differences(schema(new), schema(old), lenient=True)
    assert bool(strict) >= bool(lenient)
    assert json_schema_format.differences(schema(True), schema(old)) == []


patterns = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-b0-9]", r"\d", r"\W", "^", "$", "_"]),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{0,3}"])),
    ),
    max_leaves=6,
)


@settings(max_examples=fast_or(60, 300), deadline=None)
@given(patterns, st.text("ab1_-", max_size=6))
def test_names_are_matched_as_re_would(pattern: str, name: str) -> None:
    assert Pattern(pattern, lambda _: None).is_in(name) == bool(re.search(pattern, name))


# ---- bombs


@pytest.mark.timeout(60)
def test_a_pattern_that_explodes_in_re_does_not_here() -> None:
    old = closed({}, patternProperties={"^(a+)+(a|a)*$": I})
    new = closed({"a" * 200 + "!": S}, patternProperties={"^(a+)+(a|a)*$": I})
    assert json_schema_format.differences(schema(new), schema(old)) == []


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a)\1", "(?i)a", r"\h"])
def test_what_cannot_be_told_of_a_pattern_is_said(pattern: str) -> None:
    old, new = closed({}, patternProperties={pattern: I}), closed({"a": S}, patternProperties={pattern: I})
    assert json_schema_format.differences(schema(old), schema(old)) == []
    with pytest.raises(InvalidSchema, match="cannot be decided"):
        json_schema_format.differences(schema(new), schema(old))


def web(count: int, last: Any = S) -> JsonSchema:
    """Types that all refer to each other, twice."""
    union = one_of(*({"$ref": f"#/definitions/T{index}"} for index in range(count)))
    types = {f"T{index}": opened({"id": S, "one": union, "two": union}) for index in range(count)}
    types[f"T{count - 1}"]["properties"]["id"] = last
    return schema({"definitions": types, "properties": {"root": union}})


@pytest.mark.timeout(60)
def test_a_web_of_references_ends() -> None:
    assert json_schema_format.differences(web(24), web(24)) == []
    found = json_schema_format.differences(web(24, I), web(24))
    assert [each.rule for each in found] == ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]
    assert "TYPE_CHANGED" in found[0].what or "nearest" in found[0].what


def test_a_long_chain_of_references_ends() -> None:
    def chain(last: Any) -> JsonSchema:
        links = {f"T{i}": opened({"n": {"$ref": f"#/definitions/T{i + 1}"}}) for i in range(3_000)}
        return schema({"definitions": {**links, "T3000": last}, "$ref": "#/definitions/T0"})

    assert json_schema_format.differences(chain(S), chain(S)) == []
    (found,) = json_schema_format.differences(chain(I), chain(S))
    assert found.path == "#" + "/properties/n" * 3_000 and found.rule == "TYPE_CHANGED"
    with pytest.raises(InvalidSchema, match="over more than 100 others"):
        schema(
            {"definitions": {f"T{i}": {"$ref": f"#/definitions/T{i + 1}"} for i in range(200)} | {"T200": S}}
        )


@pytest.mark.parametrize("each", [{"$id": "c"}, {"$ref": "c"}])
def test_a_long_id_is_not_joined_to_thousands(each: Any) -> None:
    long = {"$id": "http://a/" + "b/" * 100_000, "definitions": {"c": {"$id": "c"}}}
    with costs_at_most(400), pytest.raises(InvalidSchema, match="more than 2000 characters"):
        schema({**long, "properties": {f"p{index}": each for index in range(9_000)}})


@pytest.mark.timeout(60)
def test_what_is_too_much_work_is_refused() -> None:
    wide = schema(any_of(*({"const": index} for index in range(600))))
    with pytest.raises(InvalidSchema, match="more than 300000 steps"):
        json_schema_format.differences(wide, schema(any_of(*({"const": index} for index in range(700)))))


def test_many_reasons_are_cut_short() -> None:
    def many(kind: Any) -> JsonSchema:
        return schema(opened({f"a{index}": kind for index in range(500)}))

    assert len(json_schema_format.differences(many(S), many(I))) == json_schema_differences.MOST_REASONS


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_ten_thousand_references_are_read_in_a_moment(draft: str) -> None:
    """Regression: since draft 2019-09 each cost as much as hundreds, because of dynamic references."""
    properties = {f"p{number}": {"$ref": "#/definitions/A"} for number in range(10_000)}
    text = json.dumps({"$schema": draft, "definitions": {"A": {"type": "string"}}, "properties": properties})
    with costs_at_most(60):
        schema = json_schema.parse(text)
    assert len(json_schema.field_names(schema)) == 10_000
    wrong = json.dumps({"$schema": draft, "properties": {"a": {"type": "text"}}})
    with pytest.raises(InvalidSchema, match="#/properties/a/type"):
        json_schema.parse(wrong)
