"""[core] JSON Schema as a ``Format``: parsing, canonical text, comparison."""

from __future__ import annotations

import json

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.json_schema.schema import JsonSchema, field_names, parse

__all__ = ["canonical", "differences", "field_names", "normalized", "parse"]


def canonical(schema: JsonSchema) -> str:
    """Return the text that identifies a schema: without white space, keys in their original order."""
    return json.dumps(schema.raw, ensure_ascii=False, separators=(",", ":"))


def normalized(schema: JsonSchema) -> str:
    """Return the text with sorted keys (``normalize=true``)."""
    return json.dumps(schema.raw, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def differences(reader: JsonSchema, writer: JsonSchema, lenient: bool = False) -> list[SchemaDifference]:
    """Return every reason, in the reader's order; [] when it can read.

    Raises InvalidSchema for too much work.
    """
    from hub.schema_registry.formats.json_schema import differences as json_schema_differences

    return json_schema_differences.differences(reader, writer, lenient)
