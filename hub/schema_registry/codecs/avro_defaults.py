"""[core] Defaults of Avro fields: registries accept some that do not fit their type."""

from __future__ import annotations

from typing import Any

from hub.schema_registry.formats.avro.types import AvroNode

_DEEPEST = 64


def is_value(value: Any, node: AvroNode, depth: int = 0) -> bool:
    """Return True if a schema's JSON default is a value of its type."""
    if depth > _DEEPEST:
        return False
    if node.kind == "union":
        return any(is_value(value, each, depth + 1) for each in node.inner)
    if node.kind in ("array", "map"):
        if not isinstance(value, list if node.kind == "array" else dict):
            return False
        values = value if isinstance(value, list) else value.values()
        return all(is_value(each, node.item, depth + 1) for each in values)
    if node.kind == "record":
        return isinstance(value, dict) and all(
            is_value(value.get(each.name, each.spec.get("default")), each.type, depth + 1)
            for each in node.fields
        )
    return _is_plain_value(value, node)


def _is_plain_value(value: Any, node: AvroNode) -> bool:
    match node.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if node.kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "enum":
            return value in node.symbols
        case "fixed" | "bytes":
            sized = node.kind == "bytes" or (isinstance(value, str) and len(value) == node.size)
            return sized and isinstance(value, str) and all(ord(each) < 256 for each in value)
    return isinstance(value, str)


def completed(value: Any, node: AvroNode) -> Any:
    """Complete a default, a value of its type, with the defaults of nested fields that it omits."""
    match node.kind:
        case "union":
            return completed(value, next(each for each in node.inner if is_value(value, each)))
        case "array":
            return [completed(each, node.item) for each in value]
        case "map":
            return {key: completed(each, node.item) for key, each in value.items()}
        case "record":
            return {
                each.name: completed(value.get(each.name, each.spec.get("default")), each.type)
                for each in node.fields
            }
    return value
