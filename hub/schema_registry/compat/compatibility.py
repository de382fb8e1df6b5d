"""[core] Decide whether a schema may follow earlier ones; name field, rule, both types and the smallest fix.

BACKWARD: the new schema reads data of the latest. FORWARD: the latest reads data of the new one. FULL:
both. *_TRANSITIVE: against every version. The format decides who can read whom (``Format.differences``);
schemas of two formats never follow each other, unless the level is NONE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import SchemaDifference, known
from hub.schema_registry.formats.avro import format as avro_format
from hub.schema_registry.formats.avro.format import AvroSchema, can_read
from hub.schema_registry.model.lru_cache import LruCache

POLICIES = ("STRICT", "LENIENT")

_NEW_READS = "consumers with the new schema could not read what producers with the old one wrote"
_OLD_READS = "consumers with the old schema could not read what producers with the new one write"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One incompatibility.

    ``path`` leads into the reader's schema; ``against`` is the conflicting version.
    """

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


@dataclass(frozen=True, slots=True)
class Question:
    """Compatibility question as a value: may ``new`` follow ``earlier`` (version, schema; oldest first)?"""

    new: SchemaSource
    earlier: tuple[tuple[int, SchemaSource], ...]
    level: str
    lenient: bool = False
    reserved: frozenset[str] = frozenset()
    reserved_before: frozenset[str] = frozenset()

    def answer(self) -> tuple[Incompatibility, ...]:
        """Return every incompatibility; () when ``new`` may follow. Answers are cached.

        Raises InvalidSchema when the new schema or an earlier one is invalid.
        """
        reasons = ANSWERS.get(self)
        if reasons is None:
            reasons = tuple(self._reserved_fields()) + tuple(self._incompatibilities())
            text_size = sum(len(each.what) + len(each.fix) for each in reasons)
            ANSWERS.put(self, reasons, len(self.new.text) + 200 * (1 + len(self.earlier)) + text_size)
        return reasons

    def _incompatibilities(self) -> list[Incompatibility]:
        incompatibilities: list[Incompatibility] = []
        for version, old in against(self.earlier, self.level):
            if old.schema_type != self.new.schema_type:
                incompatibilities = [_other_format(self.new.schema_type, old.schema_type, version)]
            else:
                compare = partial(known.differences, self.new.form, lenient=self.lenient)
                incompatibilities = _pair(compare, self.new.parsed(), old.parsed(), self.level, version)
            if incompatibilities:
                break  # newest first: one incompatible version is enough
        return incompatibilities

    def _reserved_fields(self) -> list[Incompatibility]:
        if not self.reserved and not self.reserved_before:
            return []
        taken = self.reserved & known.field_names(self.new.form, self.new.parsed())
        return [
            Incompatibility(
                "RESERVED_FIELD_REMOVED",
                "/metadata/properties",
                f"`{name}` is reserved in the latest version and no longer in this one",
                f"keep `{name}` in confluent:reserved",
                "reserved fields stay reserved",
            )
            for name in sorted(self.reserved_before - self.reserved)
        ] + [
            Incompatibility(
                "FIELD_CONFLICTS_WITH_RESERVED_FIELD",
                f"/{name}",
                f"the field `{name}` is reserved",
                "give the field another name",
                "reserved fields are for others",
                None,
                name,
            )
            for name in sorted(taken)
        ]


# Approximate size in characters: the text of the new schema, and a fixed cost for each earlier one.
ANSWERS: LruCache[Question, tuple[Incompatibility, ...]] = LruCache(32_000_000)


def against(earlier: Sequence[tuple[int, Any]], level: str) -> list[tuple[int, Any]]:
    """Return the versions of ``earlier`` (oldest first) that the level checks, newest first."""
    if level == "NONE" or not earlier:
        return []
    return list(reversed(earlier)) if level.endswith("_TRANSITIVE") else [earlier[-1]]


def check(
    new: Any, earlier: Sequence[tuple[int, Any]], level: str, named: Mapping[str, Any] | None = None
) -> list[Incompatibility]:
    """Return every incompatibility of an Avro schema with ``earlier`` (version, JSON values; oldest first).

    ``named`` holds referenced types. Raises InvalidSchema for type chains that are too long to compare.
    """
    types = tuple((named or {}).values())
    for version, old in against(earlier, level):
        pair = AvroSchema(new, types), AvroSchema(old, types)
        incompatibilities = _pair(avro_format.differences, *pair, level, version)
        if incompatibilities:
            return incompatibilities
    return []


def _pair(
    differences: Callable[[Any, Any], list[SchemaDifference]], new: Any, old: Any, level: str, version: int
) -> list[Incompatibility]:
    direction = level.removesuffix("_TRANSITIVE")
    incompatibilities: list[Incompatibility] = []
    if direction in ("BACKWARD", "FULL"):
        incompatibilities += _worded(differences(new, old), _NEW_READS, version)
    if direction in ("FORWARD", "FULL"):
        incompatibilities += _worded(differences(old, new), _OLD_READS, version)
    return incompatibilities


def _worded(differences: Sequence[SchemaDifference], reader_is: str, version: int) -> list[Incompatibility]:
    return [
        Incompatibility(each.rule, each.path, each.what, each.fix, reader_is, version, each.field)
        for each in differences
    ]


def _other_format(new: str, old: str, version: int) -> Incompatibility:
    return Incompatibility(
        "SCHEMA_TYPE_CHANGED",
        "/",
        f"the schema is {new}, the earlier one is {old}",
        f"keep {old}, or register under another subject",
        "no consumer reads both",
        version,
    )


__all__ = ["POLICIES", "Incompatibility", "Question", "against", "can_read", "check"]
