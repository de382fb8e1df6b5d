"""[core] Tags in a schema's text: ``confluent:tags`` in Avro and JSON, an option of confluent/meta.proto in
Protobuf.

Entities are named as in Confluent's API, by a path and its kind:

=========  ==========================================  ============================================================
format     ``sr_record``                               ``sr_field``
=========  ==========================================  ============================================================
AVRO       ``shop.Order``                              ``shop.Order.mail``; the namespace may be left out
JSON       ``object``, ``object.definitions.A.object`` ``object.mail``, ``object.customer.object.mail``; on the way
                                                       ``array``, ``oneof.0``, ``anyof.0``, ``allof.0`` and ``not``
PROTOBUF   ``Order``, ``Order.Item``                   ``Order.mail``, ``Order.payment.card`` for a oneof's field
=========  ==========================================  ============================================================

Source: Confluent's AvroSchemaUtils (Apache-2.0); the documented behavior of its JSON and Protobuf providers.
"""  # noqa: E501

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.tag_paths import FIELD, RECORD, changed, nowhere

KINDS = (RECORD, FIELD)
TAGS = "confluent:tags"
# Confluent's order of the branches of a combined schema before it counts them.
_BY_KIND = ("array", "boolean", "combined", "conditional", "const", "empty", "enum", "false", "not", "null")
_ORDER = (*_BY_KIND, "number", "object", "reference", "string", "true")


@dataclass(frozen=True, slots=True)
class Tagged:
    """An entity of a schema, and tags to add to it or remove from it. ``kind`` is one of KINDS."""

    path: str
    kind: str
    tags: tuple[str, ...]


def retagged(schema: Any, add: Sequence[Tagged], remove: Sequence[Tagged]) -> str:
    """Return the text of a parsed schema of any format with tags added, then tags removed.

    Raises InvalidSchema for a path that leads nowhere.
    """
    changes = _by_entity(add, remove)
    if isinstance(schema, AvroSchema):
        value = json.loads(avro.canonical(schema.value))
        for (path, kind), (more, less) in changes.items():
            _write(_of_avro(value, path, kind), more, less)
        return avro.canonical(value)
    if isinstance(schema, JsonSchema):
        value = copy.deepcopy(schema.raw)
        for (path, kind), (more, less) in changes.items():
            _write(_of_json(value, path, kind), more, less)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    from hub.schema_registry.formats.protobuf import tags as protobuf_tags  # here: it asks this module, too

    return protobuf_tags.retagged(schema, changes)


def _by_entity(
    add: Sequence[Tagged], remove: Sequence[Tagged]
) -> Mapping[tuple[str, str], tuple[list[str], list[str]]]:
    """Group tags by (path, kind): (added, removed)."""
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for index, each_list in enumerate((add, remove)):
        for each in each_list:
            found.setdefault((each.path, each.kind), ([], []))[index].extend(each.tags)
    return found


def _write(node: dict[str, Any], more: Sequence[str], less: Sequence[str]) -> None:
    there = node.get(TAGS)
    tags = changed([str(each) for each in there] if isinstance(there, list) else (), more, less)
    if tags:
        node[TAGS] = tags
    else:
        node.pop(TAGS, None)


# ---- Avro


def _of_avro(schema: Any, path: str, kind: str) -> dict[str, Any]:
    """Return the record or field nearest to the root.

    ``schema`` is canonical: short names, namespaces written.
    """
    *around, last = path.split(".")
    record, space = (last, around) if kind == RECORD else (around[-1] if around else "", around[:-1])
    left: deque[tuple[Any, str]] = deque([(schema, "")])
    while left:
        node, outer = left.popleft()
        if isinstance(node, list):
            left.extend((each, outer) for each in node)
        if not isinstance(node, dict):
            continue
        inside = node.get("namespace", outer)
        if node["type"] in ("record", "error"):
            if node["name"] == record and (not space or ".".join(space) == inside):
                if kind == RECORD:
                    return node
                found = next((each for each in node["fields"] if each["name"] == last), None)
                if found is not None:
                    return found  # type: ignore[no-any-return]
            left.extend((each["type"], inside) for each in node["fields"])
        else:
            left.extend((node[part], inside) for part in ("items", "values", "type") if part in node)
    raise nowhere(path)


# ---- JSON Schema


def _of_json(schema: Any, path: str, kind: str) -> dict[str, Any]:
    found = _step(schema, path.split("."), kind)
    if not isinstance(found, dict):
        raise nowhere(path)
    return found


def _step(node: Any, steps: list[str], kind: str) -> Any:
    """Follow path words (a schema's kind, a name within it, and so on); None when they lead nowhere."""
    if not isinstance(node, dict) or not steps:
        return None
    step, *left = steps
    match step:
        case "object":
            return node if not left and kind == RECORD else _named(node, left, kind)
        case "array":
            return _step(node.get("items"), left, kind)
        case "not":
            return _step(node.get("not"), left, kind)
        case "anyof" | "allof" | "oneof":
            branches = node.get({"anyof": "anyOf", "allof": "allOf", "oneof": "oneOf"}[step])
            number, left = left[:1], left[1:]
            if isinstance(branches, list):
                sorted_ = sorted(branches, key=_order)
                at = int(number[0]) if number and number[0].isdecimal() else -1
                return _step(sorted_[at], left, kind) if 0 <= at < len(sorted_) else None
            if step == "allof" and left[:1] == ["conditional"]:  # if, then, else
                return _step(node.get(left[1]), left[2:], kind) if len(left) > 1 else None
            return _step(node, left, kind)  # "type": ["null", "object"] is Confluent's anyof, too
    return None


def _named(node: dict[str, Any], steps: list[str], kind: str) -> Any:
    """Return a property or definition; names may contain dots."""
    part = steps[0] if steps[:1] in (["definitions"], ["$defs"]) else "properties"
    steps = steps[1:] if part != "properties" else steps
    among = node.get(part)
    if not isinstance(among, dict):
        return None
    for count in range(1, len(steps) + 1):
        name = ".".join(steps[:count])
        if name in among:
            return among[name] if count == len(steps) else _step(among[name], steps[count:], kind)
    return None


def _order(node: Any) -> int:
    """Return a branch's rank among its siblings, by the name of its kind."""
    if isinstance(node, bool):
        return _ORDER.index("true" if node else "false")
    if not isinstance(node, dict) or not node:
        return _ORDER.index("empty")
    keywords = {"$ref": "reference", "enum": "enum", "const": "const", "not": "not", "if": "conditional"}
    combined = dict.fromkeys(("anyOf", "allOf", "oneOf"), "combined")
    kind = next((name for key, name in {**keywords, **combined}.items() if key in node), None)
    if kind is None:
        of = node.get("type")
        kind = "combined" if isinstance(of, list) else {"integer": "number"}.get(str(of), str(of))
    return _ORDER.index(kind) if kind in _ORDER else _ORDER.index("empty")
