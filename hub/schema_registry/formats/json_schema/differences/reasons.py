"""[core] A reason why a reader cannot read: the rule, its texts, and the path into the schema."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape, SchemaShapes

MOST_WORK = 300_000  # steps of one comparison: a property, a pair of members, a character of a name
MOST_NESTED = 10_000  # comparisons within comparisons
MOST_REASONS = 100

# Additional rules that may be broken with compatibilityPolicy=LENIENT.
LENIENT = frozenset(
    {
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    }
)


@dataclass(frozen=True, slots=True)
class _Step:
    """Linked path into a schema: the first step, the property's name if it is one, and the rest."""

    step: str
    name: str
    rest: _Step | None


@dataclass(frozen=True, slots=True)
class JsonSchemaReason:
    rule: str
    what: str
    fix: str
    way: _Step | None = None
    believed: bool = False  # known to be incompatible from an earlier pass

    def as_difference(self) -> SchemaDifference:
        steps, names, way = [], [], self.way
        while way is not None:
            steps.append(way.step)
            names.append(way.name)
            way = way.rest
        return SchemaDifference(
            self.rule, "#/" + "/".join(steps), ".".join(filter(None, names)), self.what, self.fix
        )


def at(step: str, reasons: Iterable[JsonSchemaReason], name: str = "") -> list[JsonSchemaReason]:
    """Prefix the paths of reasons with a step."""
    return [replace(each, way=_Step(step, name, each.way)) for each in reasons]


class ComparisonContext(Protocol):
    """Port: the part of ``JsonSchemaComparison`` (comparison.py) that keyword families use."""

    shapes: SchemaShapes
    values: dict[int, dict[str, Any]]

    def spend(self, steps: int) -> None:
        """Count steps. Raises InvalidSchema for too many."""

    def reason(self, rule: str, what: str, fix: str, *way: str, name: str = "") -> list[JsonSchemaReason]:
        """Return a reason at the end of a path, or [] if the rule may be broken."""

    def matches(self, pattern: str, name: str) -> bool:
        """Return True if a pattern occurs anywhere in a name."""


Pair = tuple[SchemaShape, SchemaShape]  # (writer's shape, reader's shape)
Job = Generator[Pair, list[JsonSchemaReason], list[JsonSchemaReason]]  # yields pairs, returns reasons
