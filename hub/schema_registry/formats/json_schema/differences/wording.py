"""[core] Texts for shapes."""

from __future__ import annotations

import json
from typing import Any

from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape


def called(shape: SchemaShape) -> str:
    """Return a shape in words: ``string``, ``string or null``, ``enum of `a`, `b```."""
    if shape.kind == "combined":
        names = [
            called(each) if isinstance(each, SchemaShape) else _called_raw(each) for each in shape.members[:6]
        ]
        more = [f"{len(shape.members) - 6} more"] if len(shape.members) > 6 else []
        return (" with " if shape.criterion == "allOf" else " or ").join([*names, *more])
    if shape.kind == "number":
        return "integer" if shape.integer else "number"
    if shape.kind == "enum":
        return "one of " + ", ".join(f"`{shortened(each)}`" for each in shape["enum"][:6])
    if shape.kind == "const":
        return f"`{shortened(shape['const'])}`"
    phrases = {
        "any": "any value",
        "never": "nothing",
        "not": "anything but",
        "conditional": "an if-then-else",
    }
    return phrases.get(shape.kind, shape.kind) + (
        f" {_called_raw(shape['not'])}" if shape.kind == "not" else ""
    )


def _called_raw(raw: Any) -> str:
    if isinstance(raw, bool) or not raw:
        return "nothing" if raw is False else "any value"
    for key in ("title", "$ref", "type"):
        if isinstance(raw.get(key), str):
            return f"`{raw[key][:80]}`" if key != "type" else str(raw[key])
    return "a schema with " + " and ".join(f"`{each[:40]}`" for each in list(raw)[:3])


def shortened(value: Any) -> str:
    """Return a short text of a value."""
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"  # it may be large, and this is asked often
    return value[:40] if isinstance(value, str) else json.dumps(value)[:40]
