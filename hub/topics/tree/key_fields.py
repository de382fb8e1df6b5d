"""[core] The declared key of a topic's events (``key: order_id``, ``key: customer.id``): check it and extract
it.

A path leads through objects to a string or an integer. The plan checks it against the topic's schema; the
gateway checks each event when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.errors import nearest
from hub.schema_registry.describe import describe
from hub.schema_registry.formats.avro import schema as avro

# Types that JSON writes as a string or an integer.
_TYPES = ("string", "int", "long", "enum", "uuid", "decimal", "date", "time", "timestamp")


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """Problem with a declared key, and how to fix it. ``refuses`` is True if no event could be written."""

    reason: str
    hint: str
    refuses: bool


def key_problem(path: str, text: str) -> KeyProblem | None:
    """Check that an Avro schema has a key at that path. Returns None if it does. Raises InvalidSchema."""
    view = describe("AVRO", avro.parse(text))
    if len(view.roots) != 1:
        return KeyProblem(
            f'its key "{path}" is a field, and its schema is not a record', "take the key out", True
        )
    optional, place = False, view.roots[0]
    steps = path.split(".")
    for depth, step in enumerate(steps, 1):
        key_field = next((each for each in view.types[place].fields if each.name == step), None)
        here = ".".join(steps[:depth])
        if key_field is None:
            guess = nearest(step, [each.name for each in view.types[place].fields])
            better = ".".join((*steps[: depth - 1], guess)) if guess else ""
            return KeyProblem(
                f'its key "{path}": its schema has no field "{here}"',
                f'did you mean "{better}"?' if better else "name a field of the schema, or take the key out",
                True,
            )
        optional |= key_field.shape.optional
        if depth < len(steps) and (key_field.type != "record" or len(key_field.shape.of) != 1):
            return KeyProblem(
                f'its key "{path}": the field "{here}" is {_a(key_field.type)}, not a record',
                "a path leads through records",
                True,
            )
        if depth == len(steps) and key_field.type not in _TYPES:
            return KeyProblem(
                f'its key "{path}" is {_a(key_field.type)}',
                "a key is a text or an integer: name such a field",
                True,
            )
        place = key_field.shape.of[0] if key_field.shape.of else place
    if optional:
        return KeyProblem(
            f'its key "{path}" may be null or absent in its schema',
            "events without it are refused by the gateway: make the field required",
            False,
        )
    return None


def _a(kind: str) -> str:
    return f"an {kind}" if kind in ("array", "int", "enum", "any") else f"a {kind}"


def at_path(event: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of an event, None if there is none. A field whose name contains the dots
    takes precedence.

    >>> at_path({"customer": {"id": 7}}, "customer.id"), at_path({"a.b": 1}, "a.b"), at_path({}, "a")
    (7, 1, None)
    """
    if path in event:
        return event[path]
    value: Any = event
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
