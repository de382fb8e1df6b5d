"""[core] Compare types, numbers, strings, limits, enums and constants, which have no nested schemas."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hub.schema_registry.formats.json_schema.differences.reasons import ComparisonContext, JsonSchemaReason
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape, json_text
from hub.schema_registry.formats.json_schema.differences.wording import called, shortened

# Keyword, name of the rule, and whether a larger value is wider.
_BOUNDS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "string": (("maxLength", "MAX_LENGTH", True), ("minLength", "MIN_LENGTH", False)),
    "number": (
        ("maximum", "MAXIMUM", True),
        ("minimum", "MINIMUM", False),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", False),
    ),
    "array": (
        ("maxItems", "MAX_ITEMS", True),
        ("minItems", "MIN_ITEMS", False),
        ("maxContains", "MAX_CONTAINS", True),
        ("minContains", "MIN_CONTAINS", False),
    ),
    "object": (("maxProperties", "MAX_PROPERTIES", True), ("minProperties", "MIN_PROPERTIES", False)),
}


def type_changed(
    comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape
) -> list[JsonSchemaReason]:
    """Report shapes of two kinds."""
    return comparison.reason(
        "TYPE_CHANGED",
        f"the reader expects {called(reader)}, the writer has {called(writer)}",
        f"keep {called(writer)}, or add a property with another name"
        if writer.kind != "any"
        else "leave it open to any value",
    )


def scalars(
    comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape
) -> list[JsonSchemaReason]:
    """Compare the keywords of numbers and strings, without limits."""
    found = []
    if reader.kind == "number" and reader.integer and not writer.integer:
        found += comparison.reason(
            "TYPE_NARROWED",
            "the reader expects an integer, the writer may write any number",
            'keep the type "number"',
        )
    if reader.kind == "number" and reader["multipleOf"] is not None:
        found += _multiples(comparison, writer["multipleOf"], reader["multipleOf"])
    if reader.kind == "string" and reader["pattern"] is not None and reader["pattern"] != writer["pattern"]:
        wrote = writer["pattern"]
        found += comparison.reason(
            "PATTERN_ADDED" if wrote is None else "PATTERN_CHANGED",
            f"the reader's pattern is `{reader['pattern'][:80]}`, the writer's "
            + ("is none" if wrote is None else f"is `{wrote[:80]}`"),
            "remove the pattern" if wrote is None else "keep the pattern, or remove it",
            "pattern",
        )
    return found


def _multiples(comparison: ComparisonContext, wrote: Any, reads: Any) -> list[JsonSchemaReason]:
    if wrote is None:
        rule, fix = "MULTIPLE_OF_ADDED", "remove multipleOf"
    else:
        # as decimal text: 0.3 is a multiple of 0.1, but not as binary fractions
        old, new = Fraction(str(wrote)), Fraction(str(reads))
        if old % new == 0:
            return []
        rule = "MULTIPLE_OF_EXPANDED" if new % old == 0 else "MULTIPLE_OF_CHANGED"
        fix = f"keep multipleOf {wrote}, or a divisor of it"
    message = f"the reader takes multiples of {reads} only, the writer " + (
        "has no such rule" if wrote is None else f"writes multiples of {wrote}"
    )
    return comparison.reason(rule, message, fix, "multipleOf")


def bounds(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> list[JsonSchemaReason]:
    """Compare limits: lengths, sizes, maximum and minimum."""
    found = []
    for keyword, rule, more_is_wider in _BOUNDS.get(reader.kind, ()):
        wrote, reads = _number(writer, keyword), _number(reader, keyword)
        if reads is None or wrote == reads:
            continue
        if wrote is None:
            found += comparison.reason(
                f"{rule}_ADDED",
                f"the reader has {keyword} {reads}, the writer has none",
                f"remove {keyword}",
                keyword,
            )
        elif (reads < wrote) == more_is_wider:
            found += comparison.reason(
                f"{rule}_{'DECREASED' if more_is_wider else 'INCREASED'}",
                f"the reader's {keyword} is {reads}, the writer's is {wrote}",
                f"keep {keyword} at {wrote} or {'above' if more_is_wider else 'below'}, or remove it",
                keyword,
            )
    return found


def _number(shape: SchemaShape, keyword: str) -> int | float | None:
    if keyword.endswith("Contains"):
        if not shape.modern or shape["contains"] is None:
            return None
        if keyword == "minContains" and shape[keyword] is None:
            return 1
    found = shape[keyword]
    # draft 4 has exclusiveMaximum: true, which Confluent's comparison ignores
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def values_changed(
    comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape
) -> list[JsonSchemaReason]:
    """Compare enums and constants: every value of the writer must be one of the reader's."""
    wrote, reads = _values_of(comparison, writer).keys(), _values_of(comparison, reader).keys()
    comparison.spend(len(wrote) // 10)
    if wrote <= reads:
        return []
    lost = [
        f"`{shortened(each)}`" for text, each in _values_of(comparison, writer).items() if text not in reads
    ]
    lacks = ", ".join(lost[:10]) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
    if reader.kind == "const":
        return comparison.reason(
            "ENUM_ARRAY_CHANGED",
            f"the reader takes {called(reader)} only, the writer writes {lacks}",
            f"keep the constant {lacks}",
            "const",
        )
    return comparison.reason(
        "ENUM_ARRAY_NARROWED" if reads < wrote else "ENUM_ARRAY_CHANGED",
        f"the reader's enum lacks {lacks}, which the writer may write",
        f"keep {lacks} in the enum",
        "enum",
    )


def _values_of(comparison: ComparisonContext, shape: SchemaShape) -> dict[str, Any]:
    """Return the values of an enum or a constant by their text: 1, 1.0 and true are three values."""
    if id(shape) not in comparison.values:
        values = shape["enum"] if shape.kind == "enum" else [shape["const"]]
        comparison.spend(len(values))
        comparison.values[id(shape)] = {json_text(each): each for each in values}
    return comparison.values[id(shape)]
