"""[core] Compare one reader with one writer: pairs of shapes on an explicit stack, each once, steps
counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.json_schema.differences.arrays import arrays
from hub.schema_registry.formats.json_schema.differences.combined import combined, nots
from hub.schema_registry.formats.json_schema.differences.objects import objects
from hub.schema_registry.formats.json_schema.differences.reasons import (
    LENIENT,
    MOST_NESTED,
    MOST_REASONS,
    MOST_WORK,
    Job,
    JsonSchemaReason,
    Pair,
    at,
)
from hub.schema_registry.formats.json_schema.differences.scalars import (
    bounds,
    scalars,
    type_changed,
    values_changed,
)
from hub.schema_registry.formats.json_schema.differences.shapes import SchemaShape, SchemaShapes
from hub.schema_registry.formats.json_schema.patterns import Pattern
from hub.schema_registry.formats.json_schema.schema import JsonSchema


class JsonSchemaComparison:
    """Comparison of one reader with one writer."""

    def __init__(self, reader: JsonSchema, writer: JsonSchema, lenient: bool) -> None:
        self._reader, self._writer = reader, writer
        self._allowed = LENIENT if lenient else frozenset()
        self.shapes = SchemaShapes()
        self._work = 0
        self.values: dict[int, dict[str, Any]] = {}
        self._patterns: dict[str, Pattern] = {}
        self._matched: dict[tuple[str, str], bool] = {}
        self._known: dict[tuple[int, int], list[JsonSchemaReason]] = {}  # result by pair
        self._believed: dict[
            tuple[int, int], list[JsonSchemaReason]
        ] = {}  # assumed result during a pair's own comparison
        self._met: set[tuple[int, int]] = set()  # pairs whose assumed result was used

    def reasons(self) -> list[JsonSchemaReason]:
        writer = self.shapes.of(self._writer, self._writer.raw)
        reader = self.shapes.of(self._reader, self._reader.raw)
        while True:
            self._known, self._met = {}, set()
            schema_reasons = self._run((writer, reader))
            if schema_reasons:
                return [each for each in schema_reasons if not each.believed] or schema_reasons
            wrong = {
                pair: self._known[pair] for pair in self._met - self._believed.keys() if self._known[pair]
            }
            if not wrong:
                return []
            for pair, reasons in wrong.items():
                self._believed[pair] = [replace(reasons[0], believed=True)]

    def _run(self, first: Pair) -> list[JsonSchemaReason]:
        """Run a comparison and all those that it requests, on an explicit stack."""
        stack = [(_key(first), self._compare(*first))]
        under_way = {_key(first)}
        answer: list[JsonSchemaReason] | None = None
        while stack:
            key, job = stack[-1]
            try:
                pair = next(job) if answer is None else job.send(answer)
            except StopIteration as done:
                answer = done.value[:MOST_REASONS]
                self._known[key] = answer
                under_way.discard(key)
                stack.pop()
                continue
            requested = _key(pair)
            if requested in self._known:
                answer = self._known[requested]
            elif requested in under_way:
                answer = self._believed.get(requested, [])
                self._met.add(requested)
            else:
                self.spend(1)
                if len(stack) >= MOST_NESTED:
                    raise InvalidSchema(
                        f"the two schemas cannot be compared: they are nested deeper "
                        f"than {MOST_NESTED} levels"
                    )
                stack.append((requested, self._compare(*pair)))
                under_way.add(requested)
                answer = None
        return answer or []

    def spend(self, steps: int) -> None:
        """Count steps. Raises InvalidSchema for too many."""
        self._work += steps
        if self._work > MOST_WORK:
            raise InvalidSchema(f"the two schemas cannot be compared: that takes more than {MOST_WORK} steps")

    def reason(self, rule: str, what: str, fix: str, *way: str, name: str = "") -> list[JsonSchemaReason]:
        """Return a reason at the end of a path; [] if the rule may be broken."""
        if rule in self._allowed:
            return []
        reasons = [JsonSchemaReason(rule, what, fix)]
        for index, step in enumerate(reversed(way)):
            reasons = at(step, reasons, "" if index else name)
        return reasons

    # -- any two shapes

    def _compare(self, writer: SchemaShape, reader: SchemaShape) -> Job:
        if reader.kind == "combined" != writer.kind:
            members = self.shapes.members(reader)
            if len(members) == 1 or reader.criterion != "allOf":
                for each in members:
                    if not (yield writer, each):
                        return []
        elif writer.kind == "combined" != reader.kind:
            members = self.shapes.members(writer)
            if len(members) == 1 or writer.criterion == "allOf":
                for each in members:
                    if not (yield each, reader):
                        return []
        if writer.kind != reader.kind:
            return [] if _never_wrong(writer, reader) else type_changed(self, writer, reader)
        if reader.kind == "combined":
            return (yield from combined(self, writer, reader))
        if reader.kind == "object":
            return (yield from objects(self, writer, reader))
        if reader.kind == "array":
            return (yield from arrays(self, writer, reader))
        if reader.kind == "not":
            return (yield from nots(self, writer, reader))
        if reader.kind in ("enum", "const"):
            return values_changed(self, writer, reader)
        return [*scalars(self, writer, reader), *bounds(self, writer, reader)]

    def matches(self, pattern: str, name: str) -> bool:
        """Return True if a pattern occurs anywhere in a name."""
        if (pattern, name) not in self._matched:
            if pattern not in self._patterns:
                self._patterns[pattern] = Pattern(pattern, self.spend)
            self._matched[pattern, name] = self._patterns[pattern].is_in(name)
        return self._matched[pattern, name]


def _key(pair: Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _never_wrong(writer: SchemaShape, reader: SchemaShape) -> bool:
    """Return True if shapes of two kinds are compatible.

    That is the case when nothing was written, anything can be read, or both are Connect's bytes.
    """
    if writer.kind == "never" or reader.kind == "any":
        return True
    return bool(writer["connect.type"] == reader["connect.type"] == "bytes")
