"""[core] May this schema follow those, and when not: which field, which rule, the two types, and the smallest fix.

The verdict is Apache Avro's own reader/writer compatibility (``avro.compatibility``, the port of the Java class that
Confluent's registry asks), so it is the same on every input; the words are ours. BACKWARD: the new schema reads what
the latest wrote. FORWARD: the latest reads what the new one writes. FULL: both. *_TRANSITIVE: against every version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
)
from avro.name import Names
from avro.schema import Schema, make_avsc_object

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)

_RULES: Mapping[SchemaIncompatibilityType, tuple[str, str]] = {
    SchemaIncompatibilityType.name_mismatch: (
        "NAME_MISMATCH",
        "keep the record's name, or give the reader an alias",
    ),
    SchemaIncompatibilityType.fixed_size_mismatch: ("FIXED_SIZE_MISMATCH", "keep the size"),
    SchemaIncompatibilityType.missing_enum_symbols: (
        "MISSING_ENUM_SYMBOLS",
        "give the enum type a default symbol",
    ),
    SchemaIncompatibilityType.reader_field_missing_default_value: (
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "give the field a default",
    ),
    SchemaIncompatibilityType.type_mismatch: ("TYPE_MISMATCH", "add a field with another name instead"),
    SchemaIncompatibilityType.missing_union_branch: ("MISSING_UNION_BRANCH", "keep the branch in the union"),
}


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason. ``path`` is Avro's path into the reader; ``against`` is the version that it breaks with."""

    rule: str
    path: str
    what: str
    fix: str
    reader_is: str
    against: int | None = None

    def __str__(self) -> str:
        version = f" (version {self.against})" if self.against is not None else ""
        return f"{self.rule} at {self.path}: {self.what}; {self.reader_is}{version}; fix: {self.fix}"


def check(
    new: Any, earlier: Sequence[tuple[int, Any]], level: str, named: Mapping[str, Any] | None = None
) -> list[Incompatibility]:
    """Every reason why ``new`` may not follow ``earlier`` (version, parsed schema; oldest first); [] when it may."""
    if level == "NONE" or not earlier:
        return []
    against = list(reversed(earlier)) if level.endswith("_TRANSITIVE") else [earlier[-1]]
    direction = level.removesuffix("_TRANSITIVE")
    found: list[Incompatibility] = []
    for version, old in against:
        if direction in ("BACKWARD", "FULL"):
            said = "consumers with the new schema cannot read what the old one wrote"
            found += _reads(new, old, said, version, named)
        if direction in ("FORWARD", "FULL"):
            said = "consumers with the old schema cannot read what the new one writes"
            found += _reads(old, new, said, version, named)
        if found:
            break  # newest first: the first version that breaks tells enough
    return found


def _reads(
    reader: Any, writer: Any, said: str, version: int, named: Mapping[str, Any] | None
) -> list[Incompatibility]:
    result = ReaderWriterCompatibilityChecker().get_compatibility(
        _schema(reader, named), _schema(writer, named)
    )
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    found = []
    for index, kind in enumerate(result.incompatibilities):
        rule, fix = _RULES[kind]
        path = sorted(result.locations)[index] if index < len(result.locations) else "/"
        what = sorted(result.messages)[index] if index < len(result.messages) else rule
        found.append(
            Incompatibility(
                rule, _named_path(reader, path), _worded(rule, what, reader, path), fix, said, version
            )
        )
    return found


def _schema(parsed: Any, named: Mapping[str, Any] | None) -> Schema:
    names = Names()
    for each in (named or {}).values():
        make_avsc_object(each, names)
    return make_avsc_object(json.loads(json.dumps(parsed)), names)


def _named_path(schema: Any, path: str) -> str:
    """``/fields/2/type`` with the field's name beside its number."""
    words = []
    node: Any = schema
    for step in filter(None, path.split("/")):
        try:
            node = node[int(step)] if step.isdecimal() else node.get(step) if isinstance(node, dict) else node
        except (IndexError, KeyError, TypeError):
            node = None
        name = node.get("name") if isinstance(node, dict) and step.isdecimal() else None
        words.append(f"{step} (field `{name}`)" if name else step)
    return "/" + "/".join(words)


def _worded(rule: str, what: str, reader: Any, path: str) -> str:
    if rule == "READER_FIELD_MISSING_DEFAULT_VALUE":
        return f"the field `{what}` is not in the writer's schema and has no default"
    if rule == "MISSING_ENUM_SYMBOLS":
        return f"the reader's enum lacks {what.strip('{}')}"
    return what
