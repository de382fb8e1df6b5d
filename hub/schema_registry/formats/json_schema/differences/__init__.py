"""[core] Why a reader cannot read what a writer wrote under a JSON schema: by Confluent's rules, in words.

The verdict is that of Confluent's registry (8.x): not whether each document of the writer's is one of the reader's, but
whether every change between the two schemas is of a kind that is known to be safe. So an open object that gains a typed
property is refused (a writer may have sent anything under that name), and a pattern that was widened is, too.

A schema is read as a **shape** first. Keywords of one type are one shape; all others that stand beside each other are
as good as an ``allOf``; a list of types is an ``anyOf``::

    {"type": ["string", "null"], "maxLength": 5}     anyOf [string (maxLength 5), null]
    {"type": "string", "enum": ["a", "b"]}           allOf [enum, string]

Two shapes of one kind are compared keyword by keyword. The members of ``allOf``, ``anyOf`` and ``oneOf`` are matched
to each other, as many as can be (maximum bipartite matching); what has no partner is what was added or removed.

References may lead around in circles. A pair of shapes that is met while it is compared is taken to be fine; when all
is well but for such a pair, everything is compared again without that belief, until nothing changes (the greatest
fixed point). Comparisons are generators on a stack of our own, each pair is compared once, and the steps are counted:
no schema can make this deep, slow or endless.

One file a family of keywords, each functions of a ``JsonSchemaComparison``::

    comparison.py   the stack, the count, which family compares a pair
    scalars.py  combined.py  objects.py  arrays.py   the families     unnamed.py   what both of the last two leave open
    shapes.py   wording.py   reasons.py                what all of them speak of
"""

from __future__ import annotations

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.json_schema.differences.comparison import JsonSchemaComparison
from hub.schema_registry.formats.json_schema.differences.reasons import MOST_NESTED, MOST_REASONS, MOST_WORK
from hub.schema_registry.formats.json_schema.schema import JsonSchema

__all__ = ["MOST_NESTED", "MOST_REASONS", "MOST_WORK", "differences"]


def differences(reader: JsonSchema, writer: JsonSchema, lenient: bool = False) -> list[SchemaDifference]:
    """Every reason, in the reader's order; [] when it can read. Raises InvalidSchema where that is too much work."""
    return [each.told() for each in JsonSchemaComparison(reader, writer, lenient).reasons()]
