"""[core] Compare arrays: schemas of all items, and of items by position."""

from __future__ import annotations

from typing import Any

from hub.schema_registry.formats.json_schema.differences.reasons import (
    ComparisonContext,
    Job,
    JsonSchemaReason,
    at,
)
from hub.schema_registry.formats.json_schema.differences.scalars import bounds
from hub.schema_registry.formats.json_schema.differences.shapes import (
    SchemaShape,
    each_item,
    refers,
    tuple_of,
)
from hub.schema_registry.formats.json_schema.differences.unnamed import (
    additional,
    cover_of,
    is_open,
    unevaluated,
)
from hub.schema_registry.formats.json_schema.differences.wording import called


def arrays(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> Job:
    """Compare items by position, then items without a schema of their own."""
    schema_reasons: list[JsonSchemaReason] = []
    wrote_each, reads_each = each_item(writer), each_item(reader)
    if reads_each is not None:
        shape = comparison.shapes.of(reader.document, reads_each)
        if wrote_each is not None:
            schema_reasons += at("items", (yield comparison.shapes.of(writer.document, wrote_each), shape))
        else:
            schema_reasons += comparison.reason(
                "SCHEMA_ADDED",
                f"the reader expects {called(shape)} in the array, the writer does not declare its items",
                "leave the items open",
                "items",
            )
    wrote, reads = tuple_of(writer), tuple_of(reader)
    for index in range(max(len(wrote), len(reads))):
        comparison.spend(1)
        old = comparison.shapes.of(writer.document, wrote[index]) if index < len(wrote) else None
        new = comparison.shapes.of(reader.document, reads[index]) if index < len(reads) else None
        if old is not None and new is not None:
            inner = yield old, new
        elif new is not None:
            inner = yield from _item_added(comparison, writer, reader, new, reads[index])
        elif old is not None:
            inner = yield from _item_removed(comparison, reader, old, wrote[index])
        schema_reasons += at(f"items/{index}", inner)
    schema_reasons += at("additionalItems", (yield from additional(comparison, writer, reader, "ITEMS")))
    schema_reasons += at("unevaluatedItems", (yield from unevaluated(comparison, writer, reader, "Items")))
    if reader["uniqueItems"] is True and writer["uniqueItems"] is not True:
        schema_reasons += comparison.reason(
            "UNIQUE_ITEMS_ADDED",
            "the reader's items must differ from each other, the writer's need not",
            "remove uniqueItems",
            "uniqueItems",
        )
    return schema_reasons + bounds(comparison, writer, reader)


def _item_added(
    comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape, shape: SchemaShape, raw: Any
) -> Job:
    if is_open(comparison, writer):
        if shape.kind == "any" and not refers(reader, raw):
            return []
        return comparison.reason(
            "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
            f"the reader expects {called(shape)} here; the writer, being open, may have written anything",
            "let the item take any value ({}), or remove it",
        )
    cover = cover_of(comparison, writer)
    inner = (yield cover, shape) if cover is not None else []
    if cover is None or not inner:
        return []
    return inner + comparison.reason(
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        f"the reader expects {called(shape)} here, the writer may write {called(cover)}",
        f"let the item be {called(cover)}",
    )


def _item_removed(comparison: ComparisonContext, reader: SchemaShape, shape: SchemaShape, raw: Any) -> Job:
    if is_open(comparison, reader):
        return []
    cover = cover_of(comparison, reader)
    if cover is None:
        if raw is False:
            return []
        return comparison.reason(
            "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
            f"the reader takes no further items, the writer may write {called(shape)} here",
            "keep the item, or allow additional items",
        )
    inner = yield shape, cover
    if not inner:
        return []
    return inner + comparison.reason(
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        f"the reader takes {called(cover)} as a further item, the writer has {called(shape)} here",
        f"keep the item, or let further items be {called(shape)}",
    )
