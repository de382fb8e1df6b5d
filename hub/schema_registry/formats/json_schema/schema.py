"""[core] JSON schemas: parse within limits, resolve references, write Confluent's canonical text.

Drafts 4, 6, 7, 2019-09 and 2020-12 by ``$schema``; draft 7 without it or with an unknown one. White space
does not make another schema; the order of keys does, unless the text is normalized.

A ``$ref`` leads to a place in the document (``#``, ``#/definitions/a``), to an anchor or an ``$id`` in it, or
to a schema referenced by name (``customer.json``, ``customer.json#/definitions/a``). Nothing is fetched: any
other name is refused. Patterns are compiled only for validation, and never run on records.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin

import jsonschema_rs
from jsonschema.exceptions import SchemaError
from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.json_schema.patterns import MOST_PATTERNS, check_patterns

MOST_BYTES = 1_048_576
MOST_DEPTH = 64  # levels of JSON; the validator of the meta-schema recurses
MOST_NODES = 30_000
MOST_ENUM_VALUES = 10_000
MOST_URI = 2_000  # characters of an id joined with those of enclosing schemas
MOST_CHAINED = 100  # references that lead only to another reference

_DRAFTS: Mapping[str, tuple[int, Any]] = {
    "json-schema.org/draft-04/schema": (4, Draft4Validator),
    "json-schema.org/draft-06/schema": (6, Draft6Validator),
    "json-schema.org/draft-07/schema": (7, Draft7Validator),
    "json-schema.org/draft/2019-09/schema": (2019, Draft201909Validator),
    "json-schema.org/draft/2020-12/schema": (2020, Draft202012Validator),
}
_VALIDATORS: Mapping[int, Any] = dict(_DRAFTS.values())
_META_SCHEMAS = {draft: f"https://{name}" for name, (draft, _) in _DRAFTS.items() if draft > 7}
_UNSUPPORTED = ("json-schema.org/draft-03/schema", "json-schema.org/draft-02/schema")

# Keywords that hold one schema, a list of schemas, or schemas by name.
_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
# First draft whose meta-schema checks the keyword; in earlier ones only a reference makes its value a schema.
_SINCE: Mapping[str, int] = {
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "then": 7,
    "else": 7,
    "$defs": 2019,
    "contentSchema": 2019,
    "dependentSchemas": 2019,
    "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
    "prefixItems": 2020,
}
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A parsed schema: its JSON value, its draft (4, 6, 7, 2019, 2020) and the schemas it may reference by
    name.

    ``marks`` holds the anchors (``#a``) and ids in the document. ``homes`` maps each schema in it (by
    identity) to its resource and that resource's URI, the base of relative references.
    """

    raw: Any
    draft: int
    named: Mapping[str, JsonSchema] = field(default_factory=dict)
    marks: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    homes: Mapping[int, tuple[Any, str]] = field(default_factory=dict, repr=False, compare=False)


def parse(text: str, named: Mapping[str, JsonSchema] | None = None) -> JsonSchema:
    """Parse a text. ``named`` holds parsed schemas by reference name, dependencies first.

    Raises InvalidSchema with the reason.
    """
    try:
        raw = _read(text)
        draft = _draft_of(raw)
        _check(raw, draft)
        return _linked(raw, draft, dict(named or {}))
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None


def field_names(schema: JsonSchema) -> list[str]:
    """Return the names of an object's top-level properties."""
    properties = schema.raw.get("properties") if isinstance(schema.raw, dict) else None
    return list(properties) if isinstance(properties, dict) else []


# ---- the text, within limits


def _read(text: str) -> Any:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("the schema is not valid UTF-8") from None
    if size > MOST_BYTES:
        raise InvalidSchema(f"the schema has {size} bytes, {MOST_BYTES} are allowed")
    try:
        raw = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)
    except RecursionError:
        raise InvalidSchema(f"the schema is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {str(error)[:200]}") from None
    _within_limits(raw)
    if not isinstance(raw, dict | bool):
        raise InvalidSchema("the schema is not valid JSON Schema: it is neither an object nor true or false")
    return raw


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise InvalidSchema(f"the schema has the key `{twice[:100]}` twice in one object")
    return found


def _no_number(constant: str) -> Any:
    raise InvalidSchema(f"the schema is not JSON: {constant} is not a number")


def _within_limits(raw: Any) -> None:
    """Raise InvalidSchema for exceeded limits. Iterative, so that any nesting can be counted."""
    nodes = 0
    left = [(raw, 1)]
    while left:
        node, depth = left.pop()
        nodes += 1
        if depth > MOST_DEPTH:
            raise InvalidSchema(f"the schema is nested deeper than {MOST_DEPTH} levels")
        if nodes > MOST_NODES:
            raise InvalidSchema(f"the schema has more than {MOST_NODES} values")
        if isinstance(node, dict):
            left.extend((each, depth + 1) for each in node.values())
            _sound(*node)
            values = node.get("enum")
            if isinstance(values, list) and len(values) > MOST_ENUM_VALUES:
                raise InvalidSchema(f"an enum has {len(values)} values, {MOST_ENUM_VALUES} are allowed")
        elif isinstance(node, list):
            left.extend((each, depth + 1) for each in node)
        elif isinstance(node, str):
            _sound(node)
        elif isinstance(node, float) and not math.isfinite(node):
            raise InvalidSchema("the schema has a number that is too large")


def _sound(*texts: str) -> None:
    """Raise InvalidSchema for unpaired surrogates: valid as JSON escapes, but impossible to store as text."""
    for text in texts:
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise InvalidSchema("the schema is not valid UTF-8")


def _draft_of(raw: Any) -> int:
    dialect = raw.get("$schema") if isinstance(raw, dict) else None
    name = dialect.rstrip("#").split("://")[-1] if isinstance(dialect, str) else ""
    if name in _UNSUPPORTED:
        raise InvalidSchema(
            f'the schema\'s "$schema" is {dialect}: drafts 4, 6, 7, 2019-09 and 2020-12 are known'
        )
    return _DRAFTS.get(name, (7, None))[0]


# ---- validation


def _check(raw: Any, draft: int) -> None:
    """Validate against the draft's meta-schema. Raises InvalidSchema.

    From 2019-09 on jsonschema resolves each ``$dynamicRef`` separately: 10,000 references took seconds.
    jsonschema-rs accepts valid schemas fast; jsonschema checks only the others, for its error messages.
    """
    if draft > 7 and _is_valid(raw, draft):
        return
    try:
        _VALIDATORS[draft].check_schema(_short_enums(raw), format_checker=None)
    except SchemaError as error:
        place = "/".join(str(each) for each in error.absolute_path)
        raise InvalidSchema(
            f"the schema is not valid JSON Schema: #/{place}: {error.message[:300]}"
        ) from None


def _is_valid(raw: Any, draft: int) -> bool:
    """Return True if the draft's meta-schema surely accepts the schema."""
    if not isinstance(raw, dict):
        return isinstance(raw, bool)
    meta_schema = raw.get("$schema", "")
    if not isinstance(meta_schema, str):
        return False
    try:
        return bool(jsonschema_rs.meta.is_valid({**raw, "$schema": _META_SCHEMAS[draft]}))
    except (ValueError, RecursionError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return False


def _short_enums(raw: Any) -> Any:
    """Truncate enums: the validator would compare each pair of values."""
    if isinstance(raw, dict):
        return {
            key: each[:1]
            if key == "enum" and isinstance(each, list) and len(each) > 2
            else _short_enums(each)
            for key, each in raw.items()
        }
    return [_short_enums(each) for each in raw] if isinstance(raw, list) else raw


def _linked(raw: Any, draft: int, named: Mapping[str, JsonSchema]) -> JsonSchema:
    """Collect marks and follow every reference once. Raises InvalidSchema."""
    marks: dict[str, Any] = {}
    homes: dict[int, tuple[Any, str]] = {}
    schema = JsonSchema(raw, draft, named, marks, homes)
    if not isinstance(raw, dict):
        return schema
    length = 0
    referring: list[dict[str, Any]] = []
    left: list[tuple[Any, Any, str]] = [(raw, raw, "")]
    while left or referring:
        if left:
            node, resource, base = left.pop()
            if not isinstance(node, dict) or id(node) in homes:
                continue
            own = node.get("id" if draft == 4 else "$id")
            if isinstance(own, str) and own.startswith("#"):
                marks.setdefault(own, node)
            elif isinstance(own, str) and ("$ref" not in node or draft > 7):
                resource, base = node, _joined(base, own).rstrip("#")
                marks.setdefault(base, node)
                marks.setdefault(own, node)
            for anchor in ("$anchor", "$dynamicAnchor"):
                if draft > 7 and isinstance(node.get(anchor), str):
                    marks.setdefault(f"#{node[anchor]}", node)
            homes[id(node)] = (resource, base)
            length += check_patterns(node)
            if length > MOST_PATTERNS:
                raise InvalidSchema(f"the schema's patterns have more than {MOST_PATTERNS} characters")
            if reference(node, draft):
                referring.append(node)
            left.extend((each, resource, base) for each in _subschemas(node, draft))
            continue
        # All schemas in regular places are marked now. Reference targets may be anywhere.
        document, target = _chain_ends(schema, referring.pop())
        if document is schema and isinstance(target, dict) and id(target) not in homes:
            _check(target, draft)
            left.append((target, raw, homes[id(raw)][1]))
    return schema


def _subschemas(node: Mapping[str, Any], draft: int) -> Iterator[Any]:
    for key, value in node.items():
        if draft < _SINCE.get(key, 0) or (draft == 2020 and key == "additionalItems"):
            continue
        if key in _ONE and isinstance(value, dict):
            yield value
        elif key in _LISTS and isinstance(value, list):
            yield from value
        elif key in _MAPS and isinstance(value, dict):
            yield from value.values()


# ---- patterns of property names


# ---- references


def reference(node: Mapping[str, Any], draft: int) -> str | None:
    """Return the reference of a schema, or None; before 2019-09 it replaces all other keywords."""
    for key in _REFS if draft > 7 else _REFS[:1]:
        if isinstance(node.get(key), str):
            return str(node[key])
    return None


def _chain_ends(schema: JsonSchema, node: Mapping[str, Any]) -> tuple[JsonSchema, Any]:
    """Return the direct target of ``node``'s reference. Raises InvalidSchema for a chain without end."""
    first = document, target = followed(schema, node)
    for _ in range(MOST_CHAINED):
        if not isinstance(target, dict) or reference(target, document.draft) is None:
            return first
        document, target = followed(document, target)
    raise InvalidSchema(
        f'the reference "{str(reference(node, schema.draft))[:200]}" leads back to itself, or over more than'
        f" {MOST_CHAINED} others"
    )


def followed(schema: JsonSchema, node: Mapping[str, Any]) -> tuple[JsonSchema, Any]:
    """Return (document, schema) that the reference of ``node`` in ``schema`` leads to.

    Raises InvalidSchema when it leads nowhere.
    """
    ref = reference(node, schema.draft) or ""
    resource, base = schema.homes.get(id(node), (schema.raw, ""))
    name, _, fragment = ref.partition("#")
    document, starts = schema, [resource, schema.raw]
    if name:
        full = _joined(base, name)
        for each in (ref, name, full):
            if each in schema.named:
                document = schema.named[each]
                starts = [document.raw]
                fragment = "" if each == ref else fragment
                break
        else:
            if full not in schema.marks and name not in schema.marks:
                raise InvalidSchema(
                    f'the reference "{ref[:200]}" is unknown: name a registered schema in '
                    '"references", or define it'
                    ' under "definitions"; nothing is fetched'
                )
            starts = [schema.marks.get(full, schema.marks.get(name))]
    if fragment and not fragment.startswith("/"):
        target = document.marks.get(f"#{unquote(fragment)}", _NOWHERE)
    else:
        found = (_pointed(start, fragment) for start in starts)
        target = next((each for each in found if each is not _NOWHERE), _NOWHERE)
    if target is _NOWHERE:
        raise InvalidSchema(f'the reference "{ref[:200]}" leads nowhere')
    if not isinstance(target, dict | bool):
        raise InvalidSchema(f'the reference "{ref[:200]}" leads to no schema')
    return document, target


_NOWHERE: Any = object()


def _joined(base: str, uri: str) -> str:
    if len(base) + len(uri) > MOST_URI:
        raise InvalidSchema(
            f"an id or a reference has more than {MOST_URI} characters with the ids around it"
        )
    try:
        return urljoin(base, uri)
    except ValueError:
        raise InvalidSchema(f'"{uri[:200]}" is not a URI') from None


def _pointed(start: Any, pointer: str) -> Any:
    """Return the target of a JSON pointer (RFC 6901, as a URI's fragment)."""
    node = start
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 10 and int(key) < len(node):
            node = node[int(key)]
        else:
            return _NOWHERE
    return node
