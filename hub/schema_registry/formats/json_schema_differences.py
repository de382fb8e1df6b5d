"""[core] Why a reader cannot read what a writer wrote under a JSON schema: by Confluent's rules, in words.

The verdict is that of Confluent's registry (8.x): not whether each document of the writer's is one of the reader's, but
whether every change between the two schemas is of a kind that is known to be safe. So an open object that gains a typed
property is refused (a writer may have sent anything under that name), and a pattern that was widened is, too.

A schema is read as a **shape** first. Keywords of one type are one shape; all others that stand beside each other are
as good as an ``allOf``; a list of types is an ``anyOf``::

    {"type": ["string", "null"], "maxLength": 5}     anyOf [string (maxLength 5), null]
    {"type": "string", "enum": ["a", "b"]}           allOf [enum, string]

Two shapes of one kind are compared keyword by keyword. The members of ``allOf``, ``anyOf`` and ``oneOf`` are matched
to each other, as many as can be (maximum bipartite matching); what has no partner is what was added or removed.

References may lead around in circles. A pair of shapes that is met while it is compared is taken to be fine; when all
is well but for such a pair, everything is compared again without that belief, until nothing changes (the greatest
fixed point). Comparisons are generators on a stack of our own, each pair is compared once, and the steps are counted:
no schema can make this deep, slow or endless.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

from hub.schema_registry.formats import Difference, InvalidSchema
from hub.schema_registry.formats.json_schema import JsonSchema, Pattern, followed, reference

MOST_WORK = 300_000  # steps of one comparison: a property, a pair of members, a character of a name
MOST_NESTED = 10_000  # comparisons within comparisons
MOST_REASONS = 100

# What compatibilityPolicy=LENIENT lets pass besides.
_LENIENT = frozenset(
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

# Keyword, the rule's name, and whether more is wider.
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


def differences(reader: JsonSchema, writer: JsonSchema, lenient: bool = False) -> list[Difference]:
    """Every reason, in the reader's order; [] when it can read. Raises InvalidSchema where that is too much work."""
    return [each.told() for each in _Comparison(reader, writer, lenient).reasons()]


# ---- shapes


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One kind of rule. ``raw`` holds its keywords, ``members`` those of a combination: shapes, or schemas yet to read."""

    kind: str  # any never string number boolean null object array enum const not conditional combined
    raw: Mapping[str, Any]
    document: JsonSchema
    integer: bool = False
    criterion: str = ""  # allOf, anyOf or oneOf
    members: tuple[Any, ...] = ()

    def __getitem__(self, keyword: str) -> Any:
        return self.raw.get(keyword)

    @property
    def modern(self) -> bool:
        return self.document.draft > 7


_EMPTY = JsonSchema(True, 7)
_ANY, _NEVER = Shape("any", {}, _EMPTY), Shape("never", {}, _EMPTY)


@cache
def _keywords(draft: int) -> Mapping[str, frozenset[str]]:
    """The keywords that make a schema without ``type`` one of that type."""
    objects = {
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "additionalProperties",
    }
    arrays = {"items", "minItems", "maxItems", "uniqueItems"}
    strings = {"minLength", "maxLength", "pattern"}
    if draft <= 7:
        objects |= {"dependencies"}
        strings |= {"format"}
    else:
        objects |= {"dependentRequired", "dependentSchemas", "unevaluatedProperties"}
        arrays |= {"unevaluatedItems"}
    if draft < 2020:
        arrays |= {"additionalItems"}
    else:
        arrays |= {"prefixItems"}
    if draft > 4:
        objects |= {"propertyNames"}
        arrays |= {"contains"}
    numbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    return {
        "array": frozenset(arrays),
        "object": frozenset(objects),
        "number": frozenset(numbers),
        "string": frozenset(strings),
    }


class _Shapes:
    """Schemas as shapes. What is written alike in one resource is one shape, so that a pair is known by identity."""

    def __init__(self) -> None:
        self._built: dict[int, Shape] = {}
        self._alike: dict[Any, Shape] = {}
        self._members: dict[int, tuple[Shape, ...]] = {}
        self._kept: list[Any] = []  # what was made here and is known by identity

    def of(self, document: JsonSchema, raw: Any) -> Shape:
        if isinstance(raw, bool):
            return _ANY if raw else _NEVER
        if id(raw) not in self._built:
            resource, base = document.homes.get(id(raw), (raw, ""))
            alike = (id(document), id(resource), base, _text(raw))
            if alike not in self._alike:
                self._alike[alike] = self._build(document, raw)
            self._built[id(raw)] = self._alike[alike]
        return self._built[id(raw)]

    def members(self, shape: Shape) -> tuple[Shape, ...]:
        """The members of a combination, none twice."""
        if id(shape) not in self._members:
            distinct: dict[Any, Any] = {}
            for each in shape.members:
                distinct.setdefault(each if isinstance(each, Shape) else _text(each), each)
            self._members[id(shape)] = tuple(
                each if isinstance(each, Shape) else self.of(shape.document, each)
                for each in distinct.values()
            )
        return self._members[id(shape)]

    def _build(self, document: JsonSchema, raw: dict[str, Any]) -> Shape:
        parts = []
        if reference(raw, document.draft) is not None:
            where, target = followed(document, raw)
            if document.draft == 4 and isinstance(target, dict):
                beside = {key: each for key, each in raw.items() if key != "$ref"}
                target = {**target, **beside} if beside else target
                self._kept.append(target)
            referred = self.of(where, target)
            if document.draft <= 7:
                return referred
            parts.append(referred)
        parts.extend(_parts(document, raw))
        if not parts:
            return Shape("any", raw, document)
        return (
            parts[0]
            if len(parts) == 1
            else Shape("combined", raw, document, criterion="allOf", members=tuple(parts))
        )


def _parts(document: JsonSchema, raw: dict[str, Any]) -> Iterator[Shape]:
    """What stands beside each other in one schema, references aside."""
    draft = document.draft
    if "enum" in raw:
        yield Shape("enum", raw, document)
    for criterion in ("allOf", "anyOf", "oneOf"):
        if criterion in raw:
            yield Shape("combined", raw, document, criterion=criterion, members=tuple(raw[criterion]))
    if "not" in raw:
        yield Shape("not", raw, document)
    if "const" in raw and draft > 4:
        yield Shape("const", raw, document)
    named = raw.get("type", [])
    types = [_typed(document, raw, each) for each in ([named] if isinstance(named, str) else named)]
    if isinstance(named, str):
        yield types[0]
    elif types:
        yield Shape("combined", raw, document, criterion="anyOf", members=tuple(types))
    present = {key for key in raw if draft <= 7 or raw[key] or key not in ("properties", "patternProperties")}
    for kind, keywords in _keywords(draft).items():
        if keywords & present and all(each.kind != kind for each in types):
            yield Shape(kind, raw, document)
    if ("if" in raw and draft >= 7) or (draft == 7 and ("then" in raw or "else" in raw)):
        yield Shape("conditional", raw, document)


def _typed(document: JsonSchema, raw: dict[str, Any], name: str) -> Shape:
    if name == "integer":
        return Shape("number", raw, document, integer=True)
    return Shape(name, raw, document)


# ---- reasons


@dataclass(frozen=True, slots=True)
class _Step:
    """A way into a schema: where to go first, the property's name if it is one, and the rest of the way."""

    step: str
    name: str
    rest: _Step | None


@dataclass(frozen=True, slots=True)
class _Reason:
    rule: str
    what: str
    fix: str
    way: _Step | None = None
    believed: bool = False  # a pair that was met while it was compared, known to be bad from the time before

    def told(self) -> Difference:
        steps, names, way = [], [], self.way
        while way is not None:
            steps.append(way.step)
            names.append(way.name)
            way = way.rest
        return Difference(
            self.rule, "#/" + "/".join(steps), ".".join(filter(None, names)), self.what, self.fix
        )


def _at(step: str, reasons: Iterable[_Reason], name: str = "") -> list[_Reason]:
    return [replace(each, way=_Step(step, name, each.way)) for each in reasons]


_Pair = tuple[Shape, Shape]  # the writer's, the reader's
_Job = Generator[_Pair, list[_Reason], list[_Reason]]  # asks for pairs, comes to reasons


class _Comparison:
    """One reader against one writer."""

    def __init__(self, reader: JsonSchema, writer: JsonSchema, lenient: bool) -> None:
        self._reader, self._writer = reader, writer
        self._allowed = _LENIENT if lenient else frozenset()
        self._shapes = _Shapes()
        self._work = 0
        self._values: dict[int, dict[str, Any]] = {}
        self._patterns: dict[str, Pattern] = {}
        self._matched: dict[tuple[str, str], bool] = {}
        self._known: dict[tuple[int, int], list[_Reason]] = {}  # what a pair came to
        self._believed: dict[tuple[int, int], list[_Reason]] = {}  # what it is taken for while it is compared
        self._met: set[tuple[int, int]] = set()  # pairs of which the latter was asked

    def reasons(self) -> list[_Reason]:
        writer = self._shapes.of(self._writer, self._writer.raw)
        reader = self._shapes.of(self._reader, self._reader.raw)
        while True:
            self._known, self._met = {}, set()
            found = self._run((writer, reader))
            if found:
                return [each for each in found if not each.believed] or found
            wrong = {
                pair: self._known[pair] for pair in self._met - self._believed.keys() if self._known[pair]
            }
            if not wrong:
                return []
            for pair, reasons in wrong.items():
                self._believed[pair] = [replace(reasons[0], believed=True)]

    def _run(self, first: _Pair) -> list[_Reason]:
        """A comparison with all those that it asks for, on a stack of our own."""
        stack = [(_key(first), self._compare(*first))]
        under_way = {_key(first)}
        answer: list[_Reason] | None = None
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
            asked = _key(pair)
            if asked in self._known:
                answer = self._known[asked]
            elif asked in under_way:
                answer = self._believed.get(asked, [])
                self._met.add(asked)
            else:
                self._spend(1)
                if len(stack) >= MOST_NESTED:
                    raise InvalidSchema(
                        f"the two schemas cannot be compared: they are nested deeper than {MOST_NESTED} levels"
                    )
                stack.append((asked, self._compare(*pair)))
                under_way.add(asked)
                answer = None
        return answer or []

    def _spend(self, steps: int) -> None:
        self._work += steps
        if self._work > MOST_WORK:
            raise InvalidSchema(f"the two schemas cannot be compared: that takes more than {MOST_WORK} steps")

    def _says(self, rule: str, what: str, fix: str, *way: str, name: str = "") -> list[_Reason]:
        if rule in self._allowed:
            return []
        found = [_Reason(rule, what, fix)]
        for index, step in enumerate(reversed(way)):
            found = _at(step, found, "" if index else name)
        return found

    # -- any two shapes

    def _compare(self, writer: Shape, reader: Shape) -> _Job:
        if reader.kind == "combined" != writer.kind:
            members = self._shapes.members(reader)
            if len(members) == 1 or reader.criterion != "allOf":
                for each in members:
                    if not (yield writer, each):
                        return []
        elif writer.kind == "combined" != reader.kind:
            members = self._shapes.members(writer)
            if len(members) == 1 or writer.criterion == "allOf":
                for each in members:
                    if not (yield each, reader):
                        return []
        if writer.kind != reader.kind:
            return [] if _never_wrong(writer, reader) else self._type_changed(writer, reader)
        if reader.kind == "combined":
            return (yield from self._combined(writer, reader))
        if reader.kind == "object":
            return (yield from self._objects(writer, reader))
        if reader.kind == "array":
            return (yield from self._arrays(writer, reader))
        if reader.kind == "not":
            return (yield from self._nots(writer, reader))
        if reader.kind in ("enum", "const"):
            return self._values_changed(writer, reader)
        return [*self._scalars(writer, reader), *self._bounds(writer, reader)]

    def _type_changed(self, writer: Shape, reader: Shape) -> list[_Reason]:
        return self._says(
            "TYPE_CHANGED",
            f"the reader expects {called(reader)}, the writer has {called(writer)}",
            f"keep {called(writer)}, or add a property with another name"
            if writer.kind != "any"
            else "leave it open to any value",
        )

    def _scalars(self, writer: Shape, reader: Shape) -> list[_Reason]:
        found = []
        if reader.kind == "number" and reader.integer and not writer.integer:
            found += self._says(
                "TYPE_NARROWED",
                "the reader expects an integer, the writer may write any number",
                'keep the type "number"',
            )
        if reader.kind == "number" and reader["multipleOf"] is not None:
            found += self._multiples(writer["multipleOf"], reader["multipleOf"])
        if (
            reader.kind == "string"
            and reader["pattern"] is not None
            and reader["pattern"] != writer["pattern"]
        ):
            wrote = writer["pattern"]
            found += self._says(
                "PATTERN_ADDED" if wrote is None else "PATTERN_CHANGED",
                f"the reader's pattern is `{reader['pattern'][:80]}`, the writer's "
                + ("is none" if wrote is None else f"is `{wrote[:80]}`"),
                "remove the pattern" if wrote is None else "keep the pattern, or remove it",
                "pattern",
            )
        return found

    def _multiples(self, wrote: Any, reads: Any) -> list[_Reason]:
        if wrote is None:
            rule, fix = "MULTIPLE_OF_ADDED", "remove multipleOf"
        else:
            # by their text: 0.3 is a multiple of 0.1, though not as binary fractions
            old, new = Fraction(str(wrote)), Fraction(str(reads))
            if old % new == 0:
                return []
            rule = "MULTIPLE_OF_EXPANDED" if new % old == 0 else "MULTIPLE_OF_CHANGED"
            fix = f"keep multipleOf {wrote}, or a divisor of it"
        what = f"the reader takes multiples of {reads} only, the writer " + (
            "has no such rule" if wrote is None else f"writes multiples of {wrote}"
        )
        return self._says(rule, what, fix, "multipleOf")

    def _bounds(self, writer: Shape, reader: Shape) -> list[_Reason]:
        found = []
        for keyword, rule, more_is_wider in _BOUNDS.get(reader.kind, ()):
            wrote, reads = _number(writer, keyword), _number(reader, keyword)
            if reads is None or wrote == reads:
                continue
            if wrote is None:
                found += self._says(
                    f"{rule}_ADDED",
                    f"the reader has {keyword} {reads}, the writer has none",
                    f"remove {keyword}",
                    keyword,
                )
            elif (reads < wrote) == more_is_wider:
                found += self._says(
                    f"{rule}_{'DECREASED' if more_is_wider else 'INCREASED'}",
                    f"the reader's {keyword} is {reads}, the writer's is {wrote}",
                    f"keep {keyword} at {wrote} or {'above' if more_is_wider else 'below'}, or remove it",
                    keyword,
                )
        return found

    def _values_changed(self, writer: Shape, reader: Shape) -> list[_Reason]:
        wrote, reads = self._values_of(writer).keys(), self._values_of(reader).keys()
        self._spend(len(wrote) // 10)
        if wrote <= reads:
            return []
        lost = [f"`{_cut(each)}`" for text, each in self._values_of(writer).items() if text not in reads]
        lacks = ", ".join(lost[:10]) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
        if reader.kind == "const":
            return self._says(
                "ENUM_ARRAY_CHANGED",
                f"the reader takes {called(reader)} only, the writer writes {lacks}",
                f"keep the constant {lacks}",
                "const",
            )
        return self._says(
            "ENUM_ARRAY_NARROWED" if reads < wrote else "ENUM_ARRAY_CHANGED",
            f"the reader's enum lacks {lacks}, which the writer may write",
            f"keep {lacks} in the enum",
            "enum",
        )

    def _values_of(self, shape: Shape) -> dict[str, Any]:
        """The values of an enum or a constant by their text: 1, 1.0 and true are three values."""
        if id(shape) not in self._values:
            values = shape["enum"] if shape.kind == "enum" else [shape["const"]]
            self._spend(len(values))
            self._values[id(shape)] = {_text(each): each for each in values}
        return self._values[id(shape)]

    def _nots(self, writer: Shape, reader: Shape) -> _Job:
        wrote, reads = self._under(writer, "not"), self._under(reader, "not")
        if not (yield reads, wrote):  # the other way round: to forbid less is to allow more
            return []
        return self._says(
            "NOT_TYPE_EXTENDED",
            f"the reader forbids {called(reads)}, the writer forbids {called(wrote)}",
            f"forbid no more than {called(wrote)}",
            "not",
        )

    # -- combinations

    def _combined(self, writer: Shape, reader: Shape) -> _Job:
        wrote, reads = self._shapes.members(writer), self._shapes.members(reader)
        if not _criterion_widened(writer, reader, len(wrote), len(reads)):
            return self._says(
                "COMBINED_TYPE_CHANGED",
                f"the reader has {called(reader)} ({reader.criterion}), the writer {called(writer)} ({writer.criterion})",
                f"keep {writer.criterion}" + (", or make it anyOf" if writer.criterion == "oneOf" else ""),
            )
        found = []
        if reader.criterion == "allOf" and len(reads) > len(wrote):
            found += self._says(
                "PRODUCT_TYPE_EXTENDED",
                f"the reader has {len(reads)} rules that must all hold, the writer has {len(wrote)}",
                "remove the rules that were added",
            )
        elif reader.criterion != "allOf" and len(reads) < len(wrote):
            found += self._says(
                "SUM_TYPE_NARROWED",
                f"the reader takes {called(reader)}, the writer may write {called(writer)}",
                "keep every alternative that the writer has",
            )
        fitting: list[list[int]] = []
        nearest: list[_Reason | None] = []
        for wrote_one in wrote:
            fits, best = [], None
            for index, reads_one in enumerate(reads):
                self._spend(1)
                reasons = yield wrote_one, reads_one
                if not reasons:
                    fits.append(index)
                elif best is None or best.rule == "TYPE_CHANGED":
                    best = reasons[0]
            fitting.append(fits)
            nearest.append(best)
        partners = self._matching(fitting)
        if len(partners) < min(len(wrote), len(reads)):
            lonely = next(index for index in range(len(wrote)) if index not in partners)
            best = nearest[lonely]
            found += self._says(
                "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
                f"none of what the reader has in {reader.criterion} is free to read the writer's "
                f"{called(wrote[lonely])}"
                + (f"; nearest: {best.what} ({best.rule})" if best is not None else ""),
                f"keep one that reads {called(wrote[lonely])}",
            )
        return found

    def _matching(self, fitting: list[list[int]]) -> dict[int, int]:
        """Who gets whom, as many as can be: augmenting paths (Berge), breadth first."""
        partner: dict[int, int] = {}
        taken: dict[int, int] = {}
        for start in range(len(fitting)):
            reached: dict[int, int] = {}  # from whom one was reached
            waiting = [start]
            free: int | None = None
            for one in waiting:
                self._spend(len(fitting[one]))
                for other in fitting[one]:
                    if other not in reached:
                        reached[other] = one
                        if other not in taken:
                            free = other
                            break
                        waiting.append(taken[other])
                if free is not None:
                    break
            while free is not None:
                one = reached[free]
                before = partner.get(one)
                taken[free], partner[one], free = one, free, before
        return partner

    # -- objects

    def _objects(self, writer: Shape, reader: Shape) -> _Job:
        wrote: Mapping[str, Any] = writer["properties"] or {}
        reads: Mapping[str, Any] = reader["properties"] or {}
        always, needed = set(writer["required"] or ()), set(reader["required"] or ())
        found: list[_Reason] = []
        for name, raw in reads.items():
            self._spend(1)
            if name not in wrote:
                found += _at("properties", (yield from self._added(writer, reader, name, name in needed)))
                continue
            if name in needed and name not in always and not _has_default(reader, raw):
                found += self._says(
                    "REQUIRED_ATTRIBUTE_ADDED",
                    f"the reader requires `{name}`, the writer may leave it out",
                    f"give `{name}` a default, or do not require it",
                    "required",
                    name,
                    name=name,
                )
            pair = self._shapes.of(writer.document, wrote[name]), self._shapes.of(reader.document, raw)
            found += _at("properties", _at(name, (yield pair), name))
        for name in wrote:
            if name not in reads:
                self._spend(1)
                found += _at("properties", (yield from self._removed(writer, reader, name)))
        found += _at("dependencies", (yield from self._dependencies(writer, reader)))
        found += _at("additionalProperties", (yield from self._additional(writer, reader, "PROPERTIES")))
        found += _at("unevaluatedProperties", (yield from self._unevaluated(writer, reader, "Properties")))
        return found + self._bounds(writer, reader)

    def _added(self, writer: Shape, reader: Shape, name: str, needed: bool) -> _Job:
        raw = reader["properties"][name]
        shape, default = self._shapes.of(reader.document, raw), _has_default(reader, raw)
        how = (
            ("REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY")
            if needed
            else "OPTIONAL_PROPERTY"
        )
        found: list[_Reason] = []
        if self._is_open(writer):
            if shape.kind == "any" and not _refers(reader, raw):
                return []
            found += self._says(
                f"{how}_ADDED_TO_OPEN_CONTENT_MODEL",
                f"the reader expects {called(shape)} in `{name}`; the writer does not define it and, being open to "
                "additional properties, may have written anything there",
                f"let `{name}` take any value ({{}}), or let the writer's schema be closed (additionalProperties: "
                "false) before a property is added",
            )
            return _at(name, found, name)
        cover = self._cover(writer, name)
        if cover is not None:
            inner = yield cover, shape
            found += inner
            if inner:
                found += self._says(
                    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                    f"the reader expects {called(shape)} in `{name}`, the writer may write {called(cover)} there",
                    f"let `{name}` be {called(cover)}",
                )
        if needed and not default:
            found += self._says(
                "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
                f"the reader requires `{name}` ({called(shape)}), which the writer does not have",
                f"give `{name}` a default, or do not require it",
            )
        return _at(name, found, name)

    def _removed(self, writer: Shape, reader: Shape, name: str) -> _Job:
        if self._is_open(reader):
            return []
        raw = writer["properties"][name]
        shape, cover = self._shapes.of(writer.document, raw), self._cover(reader, name)
        if cover is None:
            if raw is False:
                return []
            found = self._says(
                "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                f"the reader takes no other properties and lacks `{name}` ({called(shape)}), which the writer may write",
                f"keep `{name}`, or allow additional properties",
            )
            return _at(name, found, name)
        inner = yield shape, cover
        if not inner:
            return []
        found = self._says(
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            f"the reader takes {called(cover)} in other properties, the writer has {called(shape)} in `{name}`",
            f"keep `{name}`, or let other properties be {called(shape)}",
        )
        return _at(name, [*inner, *found], name)

    def _dependencies(self, writer: Shape, reader: Shape) -> _Job:
        found: list[_Reason] = []
        wrote, reads = _dependent_names(writer), _dependent_names(reader)
        for name, names in reads.items():
            old = wrote.get(name)
            if old is not None and names <= old:
                continue
            rule = "ADDED" if old is None else "EXTENDED" if names > old else "CHANGED"
            more = ", ".join(f"`{each}`" for each in sorted(names - (old or set()))[:20])
            found += self._says(
                f"DEPENDENCY_ARRAY_{rule}",
                f"where `{name}` is, the reader requires {more}, which the writer may leave out",
                f"do not require {more} beside `{name}`",
                name,
                name=name,
            )
        schemas = _dependent_schemas(writer)
        for name, raw in _dependent_schemas(reader).items():
            shape = self._shapes.of(reader.document, raw)
            if name in schemas:
                found += _at(name, (yield self._shapes.of(writer.document, schemas[name]), shape), name)
            else:
                found += self._says(
                    "DEPENDENCY_SCHEMA_ADDED",
                    f"where `{name}` is, the reader expects {called(shape)}, the writer has no such rule",
                    f"remove the dependency of `{name}`",
                    name,
                    name=name,
                )
        return found

    def _is_open(self, shape: Shape) -> bool:
        """Whether anything may stand where the schema says nothing."""
        if shape.kind == "object" and shape["patternProperties"]:
            return False
        permits, schema = _additional(shape)
        if not permits or schema is not None:
            return False
        rest = self._rest(shape)
        return rest is None or rest.kind == "any"

    def _cover(self, shape: Shape, name: str | None = None) -> Shape | None:
        """What a property or an item that the schema does not name must be; None where there may be none."""
        if name is not None:
            for pattern, raw in (shape["patternProperties"] or {}).items():
                if self._matches(pattern, name):
                    return self._shapes.of(shape.document, raw)
        permits, schema = _additional(shape)
        if schema is not None:
            return self._shapes.of(shape.document, schema)
        rest = self._rest(shape) if permits else None
        return None if rest is None or rest.kind == "never" else rest

    def _rest(self, shape: Shape) -> Shape | None:
        """The schema of what nothing else has looked at (from 2019-09)."""
        raw = shape["unevaluatedProperties" if shape.kind == "object" else "unevaluatedItems"]
        return self._shapes.of(shape.document, raw) if shape.modern and raw is not None else None

    def _under(self, shape: Shape, keyword: str) -> Shape:
        return self._shapes.of(shape.document, shape[keyword])

    def _matches(self, pattern: str, name: str) -> bool:
        if (pattern, name) not in self._matched:
            if pattern not in self._patterns:
                self._patterns[pattern] = Pattern(pattern, self._spend)
            self._matched[pattern, name] = self._patterns[pattern].is_in(name)
        return self._matched[pattern, name]

    # -- arrays

    def _arrays(self, writer: Shape, reader: Shape) -> _Job:
        found: list[_Reason] = []
        wrote_each, reads_each = _each_item(writer), _each_item(reader)
        if reads_each is not None:
            shape = self._shapes.of(reader.document, reads_each)
            if wrote_each is not None:
                found += _at("items", (yield self._shapes.of(writer.document, wrote_each), shape))
            else:
                found += self._says(
                    "SCHEMA_ADDED",
                    f"the reader expects {called(shape)} in the array, the writer says nothing of its items",
                    "leave the items open",
                    "items",
                )
        wrote, reads = _tuple(writer), _tuple(reader)
        for index in range(max(len(wrote), len(reads))):
            self._spend(1)
            old = self._shapes.of(writer.document, wrote[index]) if index < len(wrote) else None
            new = self._shapes.of(reader.document, reads[index]) if index < len(reads) else None
            if old is not None and new is not None:
                inner = yield old, new
            elif new is not None:
                inner = yield from self._item_added(writer, reader, new, reads[index])
            elif old is not None:
                inner = yield from self._item_removed(reader, old, wrote[index])
            found += _at(f"items/{index}", inner)
        found += _at("additionalItems", (yield from self._additional(writer, reader, "ITEMS")))
        found += _at("unevaluatedItems", (yield from self._unevaluated(writer, reader, "Items")))
        if reader["uniqueItems"] is True and writer["uniqueItems"] is not True:
            found += self._says(
                "UNIQUE_ITEMS_ADDED",
                "the reader's items must differ from each other, the writer's need not",
                "remove uniqueItems",
                "uniqueItems",
            )
        return found + self._bounds(writer, reader)

    def _item_added(self, writer: Shape, reader: Shape, shape: Shape, raw: Any) -> _Job:
        if self._is_open(writer):
            if shape.kind == "any" and not _refers(reader, raw):
                return []
            return self._says(
                "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
                f"the reader expects {called(shape)} here; the writer, being open, may have written anything",
                "let the item take any value ({}), or remove it",
            )
        cover = self._cover(writer)
        inner = (yield cover, shape) if cover is not None else []
        if cover is None or not inner:
            return []
        return inner + self._says(
            "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            f"the reader expects {called(shape)} here, the writer may write {called(cover)}",
            f"let the item be {called(cover)}",
        )

    def _item_removed(self, reader: Shape, shape: Shape, raw: Any) -> _Job:
        if self._is_open(reader):
            return []
        cover = self._cover(reader)
        if cover is None:
            if raw is False:
                return []
            return self._says(
                "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                f"the reader takes no further items, the writer may write {called(shape)} here",
                "keep the item, or allow additional items",
            )
        inner = yield shape, cover
        if not inner:
            return []
        return inner + self._says(
            "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            f"the reader takes {called(cover)} as a further item, the writer has {called(shape)} here",
            f"keep the item, or let further items be {called(shape)}",
        )

    # -- what a schema says of properties or items that it does not name

    def _additional(self, writer: Shape, reader: Shape, what: str) -> _Job:
        (wrote, old), (reads, new) = _additional(writer), _additional(reader)
        many = what.lower()
        if wrote != reads:
            if reads:
                return []
            return self._says(
                f"ADDITIONAL_{what}_REMOVED",
                f"the reader takes no additional {many}, the writer may write some",
                f"allow additional {many}",
            )
        if new is None:
            return []
        shape = self._shapes.of(reader.document, new)
        if old is None:
            return self._says(
                f"ADDITIONAL_{what}_NARROWED",
                f"the reader expects {called(shape)} in additional {many}, the writer may write any value",
                f"let additional {many} take any value",
            )
        return (yield self._shapes.of(writer.document, old), shape)

    def _unevaluated(self, writer: Shape, reader: Shape, what: str) -> _Job:
        old, new = self._rest(writer), self._rest(reader)
        if new is None or new.kind == "any" or (old is not None and old.kind == "never"):
            return []
        wrote = "any value" if old is None else called(old)
        if new.kind == "never" or old is None or old.kind == "any":
            return self._says(
                f"UNEVALUATED_{what.upper()}_{'REMOVED' if new.kind == 'never' else 'NARROWED'}",
                f"the reader takes {called(new)} in {what.lower()} that nothing else describes, the writer {wrote}",
                f"let unevaluated{what} be {wrote}",
            )
        return (yield old, new)


def _key(pair: _Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


# ---- what a shape says


def _never_wrong(writer: Shape, reader: Shape) -> bool:
    """Whether shapes of two kinds get along: nothing was written, anything is read, or both are Connect's bytes."""
    if writer.kind == "never" or reader.kind == "any":
        return True
    return bool(writer["connect.type"] == reader["connect.type"] == "bytes")


def _criterion_widened(writer: Shape, reader: Shape, wrote: int, reads: int) -> bool:
    if writer.criterion == reader.criterion or reader.criterion == "anyOf":
        return True
    return wrote == 1 and (reader.criterion == "oneOf" or reads == 1)


def _has_default(shape: Shape, raw: Any) -> bool:
    # what a reference leads to does not give the property a default, and from 2019-09 null is none
    return isinstance(raw, dict) and "default" in raw and not (shape.modern and raw["default"] is None)


def _refers(shape: Shape, raw: Any) -> bool:
    return isinstance(raw, dict) and reference(raw, shape.document.draft) is not None


def _number(shape: Shape, keyword: str) -> int | float | None:
    if keyword.endswith("Contains"):
        if not shape.modern or shape["contains"] is None:
            return None
        if keyword == "minContains" and shape[keyword] is None:
            return 1
    found = shape[keyword]
    # draft 4 says exclusiveMaximum: true, which Confluent's comparison does not look at
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _dependent_names(shape: Shape) -> dict[str, set[str]]:
    found = (shape["dependentRequired"] if shape.modern else shape["dependencies"]) or {}
    return {name: set(each) for name, each in found.items() if isinstance(each, list) and each}


def _dependent_schemas(shape: Shape) -> dict[str, Any]:
    found = (shape["dependentSchemas"] if shape.modern else shape["dependencies"]) or {}
    return {name: each for name, each in found.items() if not isinstance(each, list)}


def _tuple(shape: Shape) -> list[Any]:
    found = shape["prefixItems"] if shape.document.draft == 2020 else shape["items"]
    return found if isinstance(found, list) else []


def _each_item(shape: Shape) -> Any:
    """The schema of every item; None where there is none."""
    found = shape["items"]
    if isinstance(found, list) or (shape.modern and (isinstance(found, bool) or _tuple(shape))):
        return None
    return found


def _additional(shape: Shape) -> tuple[bool, Any]:
    """Whether there may be more properties or items than are named, and the schema of those."""
    if shape.kind == "object":
        found = shape["additionalProperties"]
    elif _each_item(shape) is not None:
        found = (
            None
            if shape.document.draft == 2020 or shape["additionalItems"] is False
            else shape["additionalItems"]
        )
    elif shape.document.draft == 2020 or (shape.modern and isinstance(shape["items"], bool)):
        found = shape["items"]
    else:
        found = shape["additionalItems"]
    return found is not False, None if isinstance(found, bool) else found


# ---- words


def called(shape: Shape) -> str:
    """A shape as people say it: ``string``, ``string or null``, ``enum of `a`, `b```."""
    if shape.kind == "combined":
        names = [called(each) if isinstance(each, Shape) else _called_raw(each) for each in shape.members[:6]]
        more = [f"{len(shape.members) - 6} more"] if len(shape.members) > 6 else []
        return (" with " if shape.criterion == "allOf" else " or ").join([*names, *more])
    if shape.kind == "number":
        return "integer" if shape.integer else "number"
    if shape.kind == "enum":
        return "one of " + ", ".join(f"`{_cut(each)}`" for each in shape["enum"][:6])
    if shape.kind == "const":
        return f"`{_cut(shape['const'])}`"
    words = {"any": "any value", "never": "nothing", "not": "anything but", "conditional": "an if-then-else"}
    return words.get(shape.kind, shape.kind) + (
        f" {_called_raw(shape['not'])}" if shape.kind == "not" else ""
    )


def _called_raw(raw: Any) -> str:
    if isinstance(raw, bool) or not raw:
        return "nothing" if raw is False else "any value"
    for key in ("title", "$ref", "type"):
        if isinstance(raw.get(key), str):
            return f"`{raw[key][:80]}`" if key != "type" else str(raw[key])
    return "a schema with " + " and ".join(f"`{each[:40]}`" for each in list(raw)[:3])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _cut(value: Any) -> str:
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"  # it may be large, and this is asked often
    return value[:40] if isinstance(value, str) else json.dumps(value)[:40]
