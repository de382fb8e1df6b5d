"""[core] Compare ``allOf``, ``anyOf``, ``oneOf`` and ``not``: match as many members as possible."""

from __future__ import annotations

from hub.schema_registry.formats.json_schema.differences.reasons import (
    ComparisonContext,
    Job,
    JsonSchemaReason,
)
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape
from hub.schema_registry.formats.json_schema.differences.wording import called


def combined(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> Job:
    """Match each member of the writer with a different member of the reader that can read it."""
    wrote, reads = comparison.shapes.members(writer), comparison.shapes.members(reader)
    if not _criterion_widened(writer, reader, len(wrote), len(reads)):
        return comparison.reason(
            "COMBINED_TYPE_CHANGED",
            f"the reader has {called(reader)} ({reader.criterion}), the writer {called(writer)} "
            f"({writer.criterion})",
            f"keep {writer.criterion}" + (", or make it anyOf" if writer.criterion == "oneOf" else ""),
        )
    found = []
    if reader.criterion == "allOf" and len(reads) > len(wrote):
        found += comparison.reason(
            "PRODUCT_TYPE_EXTENDED",
            f"the reader has {len(reads)} rules that must all hold, the writer has {len(wrote)}",
            "remove the rules that were added",
        )
    elif writer.criterion != "allOf" and len(reads) < len(
        wrote
    ):  # fewer that must all hold are easier to meet
        found += comparison.reason(
            "SUM_TYPE_NARROWED",
            f"the reader takes {called(reader)}, the writer may write {called(writer)}",
            "keep every alternative that the writer has",
        )
    fitting: list[list[int]] = []
    nearest: list[JsonSchemaReason | None] = []
    for written in wrote:
        fits, best = [], None
        for index, read in enumerate(reads):
            comparison.spend(1)
            reasons = yield written, read
            if not reasons:
                fits.append(index)
            elif best is None or best.rule == "TYPE_CHANGED":
                best = reasons[0]
        fitting.append(fits)
        nearest.append(best)
    partners = _matching(comparison, fitting)
    if len(partners) < min(len(wrote), len(reads)):
        lonely = next(index for index in range(len(wrote)) if index not in partners)
        best = nearest[lonely]
        found += comparison.reason(
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            f"none of what the reader has in {reader.criterion} is free to read the writer's "
            f"{called(wrote[lonely])}"
            + (f"; nearest: {best.what} ({best.rule})" if best is not None else ""),
            f"keep one that reads {called(wrote[lonely])}",
        )
    return found


def _criterion_widened(writer: SchemaShape, reader: SchemaShape, wrote: int, reads: int) -> bool:
    if writer.criterion == reader.criterion or reader.criterion == "anyOf":
        return True
    if reads == 1 and writer.criterion == "allOf":
        return True
    return wrote == 1 and (reader.criterion == "oneOf" or reads == 1)


def _matching(comparison: ComparisonContext, fitting: list[list[int]]) -> dict[int, int]:
    """Return a maximum matching: augmenting paths (Berge), breadth first."""
    partner: dict[int, int] = {}
    taken: dict[int, int] = {}
    for start in range(len(fitting)):
        reached: dict[int, int] = {}  # predecessor by member
        waiting = [start]
        free: int | None = None
        for member in waiting:
            comparison.spend(len(fitting[member]))
            for other in fitting[member]:
                if other not in reached:
                    reached[other] = member
                    if other not in taken:
                        free = other
                        break
                    waiting.append(taken[other])
            if free is not None:
                break
        while free is not None:
            member = reached[free]
            before = partner.get(member)
            taken[free], partner[member], free = member, free, before
    return partner


def nots(comparison: ComparisonContext, writer: SchemaShape, reader: SchemaShape) -> Job:
    """Compare ``not``: the writer must forbid everything that the reader forbids."""
    wrote, reads = _under(comparison, writer, "not"), _under(comparison, reader, "not")
    if not (yield reads, wrote):  # reversed: forbidding less means allowing more
        return []
    return comparison.reason(
        "NOT_TYPE_EXTENDED",
        f"the reader forbids {called(reads)}, the writer forbids {called(wrote)}",
        f"forbid no more than {called(wrote)}",
        "not",
    )


def _under(comparison: ComparisonContext, shape: SchemaShape, keyword: str) -> SchemaShape:
    return comparison.shapes.of(shape.document, shape[keyword])
