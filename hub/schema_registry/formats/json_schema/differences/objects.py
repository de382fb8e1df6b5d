"""[core] Compare objects: properties, required properties, and dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.schema_registry.formats.json_schema.differences.reasons import (
    ComparisonContext,
    Job,
    JsonSchemaReason,
    at,
)
from hub.schema_registry.formats.json_schema.differences.scalars import bounds
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape, refers
from hub.schema_registry.formats.json_schema.differences.unnamed import (
    additional,
    cover_of,
    is_open,
    unevaluated,
)
from hub.schema_registry.formats.json_schema.differences.wording import called


def objects(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> Job:
    """Compare objects property by property, then dependencies and unnamed properties."""
    wrote: Mapping[str, Any] = writer["properties"] or {}
    reads: Mapping[str, Any] = reader["properties"] or {}
    always, needed = set(writer["required"] or ()), set(reader["required"] or ())
    schema_reasons: list[JsonSchemaReason] = []
    for name, raw in reads.items():
        comparison.spend(1)
        if name not in wrote:
            schema_reasons += at(
                "properties", (yield from _added(comparison, writer, reader, name, name in needed))
            )
            continue
        if name in needed and name not in always and not _has_default(reader, raw):
            schema_reasons += comparison.reason(
                "REQUIRED_ATTRIBUTE_ADDED",
                f"the reader requires `{name}`, the writer may leave it out",
                f"give `{name}` a default, or do not require it",
                "required",
                name,
                name=name,
            )
        pair = comparison.shapes.of(writer.document, wrote[name]), comparison.shapes.of(reader.document, raw)
        schema_reasons += at("properties", at(name, (yield pair), name))
    for name in wrote:
        if name not in reads:
            comparison.spend(1)
            schema_reasons += at("properties", (yield from _removed(comparison, writer, reader, name)))
    schema_reasons += at("dependencies", (yield from _dependencies(comparison, writer, reader)))
    schema_reasons += at(
        "additionalProperties", (yield from additional(comparison, writer, reader, "PROPERTIES"))
    )
    schema_reasons += at(
        "unevaluatedProperties", (yield from unevaluated(comparison, writer, reader, "Properties"))
    )
    return schema_reasons + bounds(comparison, writer, reader)


def _added(
    comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape, name: str, needed: bool
) -> Job:
    raw = reader["properties"][name]
    shape, default = comparison.shapes.of(reader.document, raw), _has_default(reader, raw)
    how = (
        ("REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY")
        if needed
        else "OPTIONAL_PROPERTY"
    )
    schema_reasons: list[JsonSchemaReason] = []
    if is_open(comparison, writer):
        if shape.kind == "any" and not refers(reader, raw):
            return []
        schema_reasons += comparison.reason(
            f"{how}_ADDED_TO_OPEN_CONTENT_MODEL",
            f"the reader expects {called(shape)} in `{name}`; the writer does not define "
            "it and, being open to "
            "additional properties, may have written anything there",
            f"let `{name}` take any value ({{}}), or let the writer's schema be closed "
            "(additionalProperties: "
            "false) before a property is added",
        )
        return at(name, schema_reasons, name)
    cover = cover_of(comparison, writer, name)
    if cover is not None:
        inner = yield cover, shape
        schema_reasons += inner
        if inner:
            schema_reasons += comparison.reason(
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                f"the reader expects {called(shape)} in `{name}`, the writer may write {called(cover)} there",
                f"let `{name}` be {called(cover)}",
            )
    if needed and not default:
        schema_reasons += comparison.reason(
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
            f"the reader requires `{name}` ({called(shape)}), which the writer does not have",
            f"give `{name}` a default, or do not require it",
        )
    return at(name, schema_reasons, name)


def _removed(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape, name: str) -> Job:
    if is_open(comparison, reader):
        return []
    raw = writer["properties"][name]
    shape, cover = comparison.shapes.of(writer.document, raw), cover_of(comparison, reader, name)
    if cover is None:
        if raw is False:
            return []
        schema_reasons = comparison.reason(
            "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
            f"the reader takes no other properties and lacks `{name}` ({called(shape)}), "
            "which the writer may write",
            f"keep `{name}`, or allow additional properties",
        )
        return at(name, schema_reasons, name)
    inner = yield shape, cover
    if not inner:
        return []
    schema_reasons = comparison.reason(
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        f"the reader takes {called(cover)} in other properties, the writer has {called(shape)} in `{name}`",
        f"keep `{name}`, or let other properties be {called(shape)}",
    )
    return at(name, [*inner, *schema_reasons], name)


def _dependencies(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> Job:
    schema_reasons: list[JsonSchemaReason] = []
    wrote, reads = _dependent_names(writer), _dependent_names(reader)
    for name, names in reads.items():
        old = wrote.get(name)
        if old is not None and names <= old:
            continue
        rule = "ADDED" if old is None else "EXTENDED" if names > old else "CHANGED"
        more = ", ".join(f"`{each}`" for each in sorted(names - (old or set()))[:20])
        schema_reasons += comparison.reason(
            f"DEPENDENCY_ARRAY_{rule}",
            f"where `{name}` is, the reader requires {more}, which the writer may leave out",
            f"do not require {more} in addition to `{name}`",
            name,
            name=name,
        )
    schemas = _dependent_schemas(writer)
    for name, raw in _dependent_schemas(reader).items():
        shape = comparison.shapes.of(reader.document, raw)
        if name in schemas:
            schema_reasons += at(
                name, (yield comparison.shapes.of(writer.document, schemas[name]), shape), name
            )
        else:
            schema_reasons += comparison.reason(
                "DEPENDENCY_SCHEMA_ADDED",
                f"where `{name}` is, the reader expects {called(shape)}, the writer has no such rule",
                f"remove the dependency of `{name}`",
                name,
                name=name,
            )
    return schema_reasons


def _has_default(shape: SchemaShape, raw: Any) -> bool:
    # a reference's target gives the property no default, and from 2019-09 null is none
    return isinstance(raw, dict) and "default" in raw and not (shape.modern and raw["default"] is None)


def _dependent_names(shape: SchemaShape) -> dict[str, set[str]]:
    found = (shape["dependentRequired"] if shape.modern else shape["dependencies"]) or {}
    return {name: set(each) for name, each in found.items() if isinstance(each, list) and each}


def _dependent_schemas(shape: SchemaShape) -> dict[str, Any]:
    found = (shape["dependentSchemas"] if shape.modern else shape["dependencies"]) or {}
    return {name: each for name, each in found.items() if not isinstance(each, list)}
