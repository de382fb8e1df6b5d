"""[core] May this schema follow those, and when not: which field, which rule, the two types, and the smallest fix.

The verdict is Apache Avro's own reader/writer compatibility (``avro.compatibility``, the port of the Java class that
Confluent's registry asks), so it is the same on every input; the words are ours. BACKWARD: the new schema reads what
the latest wrote. FORWARD: the latest reads what the new one writes. FULL: both. *_TRANSITIVE: against every version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)
from avro.schema import Schema

from hub.schema_registry.formats import Difference, InvalidSchema, avro
from hub.schema_registry.formats.avro_differences import Comparison

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)

_NEW_READS = "consumers with the new schema could not read what producers with the old one wrote"
_OLD_READS = "consumers with the old schema could not read what producers with the new one write"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason. ``path`` leads into the reader's schema; ``against`` is the version that it breaks with."""

    rule: str
    path: str
    what: str
    fix: str
    reader_is: str
    against: int | None = None
    field: str = ""

    def __str__(self) -> str:
        place = f"{self.path} (field `{self.field}`)" if self.field else self.path
        version = f" (version {self.against})" if self.against is not None else ""
        return f"{self.rule} at {place}: {self.what}; {self.reader_is}{version}; fix: {self.fix}"


def check(
    new: Any, earlier: Sequence[tuple[int, Any]], level: str, named: Mapping[str, Any] | None = None
) -> list[Incompatibility]:
    """Every reason why ``new`` may not follow ``earlier`` (version, parsed schema; oldest first); [] when it may.

    ``named`` are types that any of them refers to; schemas whose references differ come spelled out instead.
    Raises InvalidSchema for types that are chained too long to be compared.
    """
    try:
        return _check(new, earlier, level, list((named or {}).values()))
    except RecursionError:
        raise InvalidSchema("the schema's types are chained too long to be compared") from None


def _check(
    new: Any, earlier: Sequence[tuple[int, Any]], level: str, types: list[Any]
) -> list[Incompatibility]:
    if level == "NONE" or not earlier:
        return []
    proposed = avro.spelled_out(new, types)
    against = list(reversed(earlier)) if level.endswith("_TRANSITIVE") else [earlier[-1]]
    direction = level.removesuffix("_TRANSITIVE")
    found: list[Incompatibility] = []
    for version, schema in against:
        old = avro.spelled_out(schema, types)
        if direction in ("BACKWARD", "FULL"):
            found += _reasons(proposed, old, _NEW_READS, version)
        if direction in ("FORWARD", "FULL"):
            found += _reasons(old, proposed, _OLD_READS, version)
        if found:
            break  # newest first: the first version that breaks tells enough
    return found


def _reasons(reader: Any, writer: Any, reader_is: str, version: int) -> list[Incompatibility]:
    if can_read(reader, writer):
        return []
    # A no without words would be worse than a clumsy one: the verdict is the library's, whatever the words are.
    found = Comparison(reader, writer).differences() or [
        Difference("TYPE_MISMATCH", "/", "", "the schemas do not resolve", "keep the schema as it was")
    ]
    return [
        Incompatibility(each.rule, each.path, each.what, each.fix, reader_is, version, each.field)
        for each in found
    ]


def can_read(reader: Any, writer: Any) -> bool:
    """Avro's verdict on two schemas that are spelled out."""
    result = _Checker().get_compatibility(avro.avro_schema(reader), avro.avro_schema(writer))
    return result.compatibility is SchemaCompatibilityType.compatible


class _Checker(ReaderWriterCompatibilityChecker):  # type: ignore[misc]  # untyped library
    """Keeps few reasons: the library adds up those of each use of a type, so that 40 types that use the one before
    twice would need 2^40."""

    def calculate_compatibility(
        self, reader: Schema, writer: Schema, location: list[str]
    ) -> SchemaCompatibilityResult:
        result: SchemaCompatibilityResult = super().calculate_compatibility(reader, writer, location)
        del result.incompatibilities[10:]
        return result
