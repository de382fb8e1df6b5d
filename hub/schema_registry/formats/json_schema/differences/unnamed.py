"""[core] Compare properties and items that a schema does not name: open, closed, or restricted."""

from __future__ import annotations

from hub.schema_registry.formats.json_schema.differences.reasons import ComparisonContext, Job
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape, additional_of
from hub.schema_registry.formats.json_schema.differences.wording import called


def is_open(comparison: ComparisonContext, shape: SchemaShape) -> bool:
    """Return True if unnamed properties or items may have any value."""
    if shape.kind == "object" and shape["patternProperties"]:
        return False
    permits, schema = additional_of(shape)
    if not permits or schema is not None:
        return False
    rest = _rest(comparison, shape)
    return rest is None or rest.kind == "any"


def cover_of(
    comparison: ComparisonContext, shape: SchemaShape, name: str | None = None
) -> SchemaShape | None:
    """Return the shape required of an unnamed property or item; None when none is allowed."""
    if name is not None:
        for pattern, raw in (shape["patternProperties"] or {}).items():
            if comparison.matches(pattern, name):
                return comparison.shapes.of(shape.document, raw)
    permits, schema = additional_of(shape)
    if schema is not None:
        return comparison.shapes.of(shape.document, schema)
    rest = _rest(comparison, shape) if permits else None
    return None if rest is None or rest.kind == "never" else rest


def _rest(comparison: ComparisonContext, shape: SchemaShape) -> SchemaShape | None:
    """Return the schema of unevaluated properties or items (from 2019-09)."""
    raw = shape["unevaluatedProperties" if shape.kind == "object" else "unevaluatedItems"]
    return comparison.shapes.of(shape.document, raw) if shape.modern and raw is not None else None


def additional(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape, keyword: str) -> Job:
    """Compare ``additionalProperties`` or ``additionalItems``; ``keyword`` is PROPERTIES or ITEMS."""
    (wrote, old), (reads, new) = additional_of(writer), additional_of(reader)
    many = keyword.lower()
    if wrote != reads:
        if reads:
            return []
        return comparison.reason(
            f"ADDITIONAL_{keyword}_REMOVED",
            f"the reader takes no additional {many}, the writer may write some",
            f"allow additional {many}",
        )
    if new is None:
        return []
    shape = comparison.shapes.of(reader.document, new)
    if old is None:
        return comparison.reason(
            f"ADDITIONAL_{keyword}_NARROWED",
            f"the reader expects {called(shape)} in additional {many}, the writer may write any value",
            f"let additional {many} take any value",
        )
    return (yield comparison.shapes.of(writer.document, old), shape)


def unevaluated(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape, keyword: str) -> Job:
    """Compare ``unevaluatedProperties`` or ``unevaluatedItems``; ``keyword`` is Properties or Items."""
    old, new = _rest(comparison, writer), _rest(comparison, reader)
    if new is None or new.kind == "any" or (old is not None and old.kind == "never"):
        return []
    wrote = "any value" if old is None else called(old)
    if new.kind == "never" or old is None or old.kind == "any":
        return comparison.reason(
            f"UNEVALUATED_{keyword.upper()}_{'REMOVED' if new.kind == 'never' else 'NARROWED'}",
            f"the reader takes {called(new)} in {keyword.lower()} that nothing else "
            f"describes, the writer {wrote}",
            f"let unevaluated{keyword} be {wrote}",
        )
    return (yield old, new)
