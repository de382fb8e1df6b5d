"""[core] Explain why a reader cannot read a writer's data under a JSON schema, by Confluent's rules.

The verdict is that of Confluent's registry (8.x). It does not decide whether each document of the writer is
valid for the reader, but whether every change between the two schemas is of a kind that is known to be safe.
So an open object that gains a typed property is refused (a writer may have written any value under that
name), and so is a pattern that became wider.

A schema is first read as a **shape**. Keywords of one type form one shape; several shapes in one schema
count as an ``allOf``; a list of types is an ``anyOf``::

    {"type": ["string", "null"], "maxLength": 5}     anyOf [string (maxLength 5), null]
    {"type": "string", "enum": ["a", "b"]}           allOf [enum, string]

Two shapes of one kind are compared keyword by keyword. The members of ``allOf``, ``anyOf`` and ``oneOf`` are
matched to each other, as many as possible (maximum bipartite matching); members without a partner were added
or removed.

References may be circular. A pair of shapes met during its own comparison is assumed to be compatible. When
such an assumption turns out to be wrong, everything is compared again without it, until nothing changes (the
greatest fixed point). Comparisons are generators on an explicit stack, each pair is compared once, and steps
are counted, so no schema can make this deep, slow or endless.

One file per family of keywords, each with functions of a ``JsonSchemaComparison``::

    comparison.py   the stack, the step counter, dispatch of pairs to families
    scalars.py  combined.py  objects.py  arrays.py   the families
    unnamed.py      properties and items that a schema does not name
    shapes.py   wording.py   reasons.py              shared types and texts
"""

from __future__ import annotations

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.json_schema.differences.comparison import JsonSchemaComparison
from hub.schema_registry.formats.json_schema.differences.reasons import MOST_NESTED, MOST_REASONS, MOST_WORK
from hub.schema_registry.formats.json_schema.schema import JsonSchema

__all__ = ["MOST_NESTED", "MOST_REASONS", "MOST_WORK", "differences"]


def differences(reader: JsonSchema, writer: JsonSchema, lenient: bool = False) -> list[SchemaDifference]:
    """Return every reason, in the reader's order; [] when it can read.

    Raises InvalidSchema for too much work.
    """
    return [each.as_difference() for each in JsonSchemaComparison(reader, writer, lenient).reasons()]
