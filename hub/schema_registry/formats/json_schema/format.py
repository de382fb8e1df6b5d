"""[core] JSON Schema as a format of the registry: what it parses, writes, and compares."""

from __future__ import annotations

import json

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.json_schema.schema import JsonSchema, field_names, parse

__all__ = ["canonical", "differences", "field_names", "normalized", "parse"]


def canonical(schema: JsonSchema) -> str:
    """The text by which two schemas are the same: without white space, keys in the order in which they came."""
    return json.dumps(schema.raw, ensure_ascii=False, separators=(",", ":"))


def normalized(schema: JsonSchema) -> str:
    """The text in which the order of keys does not matter either (``normalize=true``)."""
    return json.dumps(schema.raw, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def differences(reader: JsonSchema, writer: JsonSchema, lenient: bool = False) -> list[SchemaDifference]:
    """Every reason, in the reader's order; [] when it can read. Raises InvalidSchema where that is too much work."""
    from hub.schema_registry.formats.json_schema import differences as json_schema_differences

    return json_schema_differences.differences(reader, writer, lenient)
