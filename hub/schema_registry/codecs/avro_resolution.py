"""[core] Avro schema resolution: read values of one schema with another (Avro 1.12, "Schema Resolution").

Avro's libraries resolve in the decoder, and disagree about aliases, renamed types and unions. Here schemas
are resolved before a byte is read. ``resolve`` returns both schemas rewritten: matching parts have one name
on both sides, no alias is left, and parts that do not match cannot match anything. Names are not part of
Avro's bytes, so the rewritten writer still describes them, and every library decodes the pair alike.

::

    writer v1  {id, g, amt}                      {id, g, total}         writer, under the reader's names
    reader v3  {id, g, total (alias amt),  ──▶   {id, g, total,         reader: every field nullable
                cur = "EUR"}                      cur = "EUR"}

Each field of the reader takes, in this order: the writer's field of the same name; the writer's field that
one of its aliases names; its default. One rule is wider than Avro's: a field with neither a value nor a
default is null instead of an error, because the columns of a view are nullable and one missing field must
not cost the event. Types match as in Avro (promotions, unions, enums with a default symbol). Two logical
types that give a number different meanings (milliseconds and microseconds, decimals of two scales) do not
match: a plain Avro decoder would read one as the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.schema_registry.codecs.avro_defaults import completed, is_value
from hub.schema_registry.formats.avro.types import AvroField, AvroNode, types_of

AvroType = Any  # a parsed Avro schema: a name, a list (union) or a mapping, as in the specification

_PROMOTIONS: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_MOST_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Resolution:
    """A writer and a reader under common names.

    ``problems`` lists at most five places where the writer's values may not fit the reader, such as
    ``amt: string is not long``; () when every value fits.
    """

    writer: AvroType
    reader: AvroType
    problems: tuple[str, ...]


def resolve(
    writer: AvroType,
    reader: AvroType,
    columns: Iterable[str] | None = None,
    *,
    space: str = "_r",
    unread: bool = False,
) -> Resolution:
    """Resolve two record schemas; the names of the two records need not match.

    ``columns``: the reader's fields to read (None: all). ``space``: the namespace of all names in the result.
    ``unread``: add the writer's fields that the reader lacks, and keep the types of those that do not
    resolve.
    """
    pair = _TypePair(space)
    wanted = None if columns is None else frozenset(columns)
    both = pair.records(types_of(writer), types_of(reader), "", wanted, unread)
    return Resolution(*both, tuple(dict.fromkeys(pair.problems))[:_MOST_PROBLEMS])


@dataclass
class _TypePair:
    space: str
    problems: list[str] = field(default_factory=list)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def records(
        self,
        w: AvroNode,
        r: AvroNode,
        path: str,
        wanted: frozenset[str] | None = None,
        unread: bool = False,
    ) -> tuple[AvroType, AvroType]:
        """Resolve two matching records; return their common name when the pair is known already."""
        name, is_named = self._name(w.name, r.name)
        if is_named:
            return name, name
        fields = [each for each in r.fields if wanted is None or each.name in wanted]
        source = _matched_fields(w.fields, fields)
        both: dict[str, tuple[AvroType, AvroType]] = {}
        for each in fields:
            if each.name in source:
                here = f"{path}.{each.name}" if path else each.name
                theirs = source[each.name].type
                before = len(self.problems)
                pair = self._types(theirs, each.type, here, True)
                if unread and len(self.problems) > before:
                    pair = (self.alone(theirs, reads=False),) * 2
                both[each.name] = pair
        renamed = {source[name]: name for name in source}
        wrote = [
            {"name": renamed[each], "type": both[renamed[each]][0]}
            if each in renamed
            else {"name": each.name, "type": self.alone(each.type, reads=False)}
            for each in w.fields
        ]
        read = [
            _read_field(each, both[each.name][1] if each.name in both else self.alone(each.type, reads=True))
            for each in fields
        ]
        if unread:
            read += [
                {"name": each.name, "type": _nullable(written["type"], first=True), "default": None}
                for each, written in zip(w.fields, wrote, strict=True)
                if each not in renamed
            ]
        return _record(name, wrote), _record(name, read)

    def _types(
        self, w: AvroNode, r: AvroNode, path: str, nullable: bool = False
    ) -> tuple[AvroType, AvroType]:
        """Resolve two types to common names. ``nullable``: a null of the writer always fits."""
        wrote, read = w.branches, r.branches
        matches = [_match(each, read) for each in wrote]
        of_writer: list[AvroType] = []
        of_reader: dict[int, AvroType] = {}
        for each, at in zip(wrote, matches, strict=True):
            if at is None:
                if not (nullable and each.kind == "null"):
                    expected = _shown(r) if r.kind != "union" else " or ".join(map(_shown, read))
                    self._report(path, f"{_shown(each)} is not {expected}")
                of_writer.append("null" if each.kind == "null" else self._nothing())
            elif at in of_reader and each.name:  # two records of the writer's in one of the reader's
                of_writer.append(self.alone(each, reads=False))
            else:
                written, of_reader[at] = self._matched(each, read[at], path)
                of_writer.append(written)
        whole = [of_reader.get(at) or self.alone(each, reads=True) for at, each in enumerate(read)]
        return (
            of_writer if w.kind == "union" else of_writer[0],
            whole if r.kind == "union" else whole[0],
        )

    def _matched(self, w: AvroNode, r: AvroNode, path: str) -> tuple[AvroType, AvroType]:
        match r.kind:
            case "record":
                return self.records(w, r, path)
            case "enum":
                return self._enums(w, r, path)
            case "fixed":
                name, is_named = self._name(w.name, r.name)
                made = name if is_named else {**_plain(r.spec), "name": name}
                return made, made
            case "array" | "map":
                part = _part(r)
                both = self._types(w.item, r.item, f"{path}[]" if part == "items" else f"{path}{{}}")
                return {"type": r.kind, part: both[0]}, {"type": r.kind, part: both[1]}
        read = _plain(r.spec) if r.spec else r.kind
        return read if r.spec and w.kind == r.kind else w.kind, read

    def _enums(self, w: AvroNode, r: AvroNode, path: str) -> tuple[AvroType, AvroType]:
        name, is_named = self._name(w.name, r.name)
        if is_named:
            return name, name
        symbols, default = r.symbols, r.spec.get("default")
        read = {"type": "enum", "name": name, "symbols": symbols}
        if default in symbols:
            read["default"] = default
        elif strange := [each for each in w.symbols if each not in symbols]:
            self._report(path, f"{', '.join(strange[:3])} is not a symbol of {r.name}, which has no default")
        return {"type": "enum", "name": name, "symbols": w.symbols}, read

    def alone(self, node: AvroNode, *, reads: bool) -> AvroType:
        """Return a type that the other side lacks, unchanged but under names of its own. ``reads``: it is
        the reader's.
        """
        if node.kind == "union":
            return [self.alone(each, reads=reads) for each in node.inner]
        if node.kind in ("array", "map"):
            return {"type": node.kind, _part(node): self.alone(node.item, reads=reads)}
        if not node.name:
            return _plain(node.spec) if node.spec else node.kind
        name, is_named = self._name("" if reads else node.name, node.name if reads else "")
        if is_named:
            return name
        if node.kind == "record":
            fields = []
            for each in node.fields:
                kept = {"name": each.name, "type": self.alone(each.type, reads=reads)}
                if "default" in each.spec and is_value(each.spec["default"], each.type):
                    kept["default"] = each.spec["default"]
                fields.append(kept)
            return _record(name, fields)
        made = {**_plain(node.spec), "name": name}
        if node.kind == "enum" and made.get("default") not in made["symbols"]:
            made.pop("default", None)
        return made

    def _name(self, writer: str, reader: str) -> tuple[str, bool]:
        """Return (the common name of a pair of named types, whether it was assigned before)."""
        is_named = (writer, reader) in self._names
        return self._names.setdefault((writer, reader), f"{self.space}.t{len(self._names)}"), is_named

    def _nothing(self) -> AvroType:
        """Return a type that no other resolves to: decoding fails at its place."""
        return {"type": "fixed", "name": self._name("", f" {len(self._names)}")[0], "size": 1}

    def _report(self, path: str, problem: str) -> None:
        self.problems.append(f"{path}: {problem}")


def _read_field(field: AvroField, of: AvroType) -> AvroType:
    """Return the reader's field as nullable, with its default; the default is null without a usable one.

    The branch of the default comes first.
    """
    default = field.spec.get("default")
    if default is None or not is_value(default, field.type):
        return {"name": field.name, "type": _nullable(of, first=True), "default": None}
    return {
        "name": field.name,
        "type": _nullable(of, first=False),
        "default": completed(default, field.type),
    }


# ---- which type takes which


def _match(w: AvroNode, read: Sequence[AvroNode]) -> int | None:
    """Return the index of the reader's branch that takes a type of the writer, as Avro for Java selects it.

    Order: the equal type, a record of another name that takes all fields, a wider number.
    """
    structure: int | None = None
    for at, each in enumerate(read):
        if each.kind != w.kind or _contradict(w, each):
            continue
        if not w.name or _same_name(w, each):
            if w.kind == "fixed" and w.size != each.size:
                continue
            return at
        if w.kind == "record" and structure is None and _takes(w, each):
            structure = at
    if structure is not None:
        return structure
    wider = _PROMOTIONS.get(w.kind, ())
    return next((at for at, each in enumerate(read) if each.kind in wider and not _contradict(w, each)), None)


def _takes(w: AvroNode, r: AvroNode) -> bool:
    """Return True if one record can be read as another under Avro's own rule.

    Every field of the reader must have a value or a default.
    """
    source = _matched_fields(w.fields, r.fields)
    for each in r.fields:
        if each.name not in source:
            if "default" not in each.spec:
                return False
            continue
        ours = each.type.branches
        if all(_match(branch, ours) is None for branch in source[each.name].type.branches):
            return False
    return True


def _matched_fields(wrote: Sequence[AvroField], read: Sequence[AvroField]) -> dict[str, AvroField]:
    """Map each field name of the reader to the writer's field that supplies it; others have no entry."""
    theirs = {each.name: each for each in wrote}
    avro_fields = {each.name: theirs[each.name] for each in read if each.name in theirs}
    for each in read:
        former = next((alias for alias in each.aliases if alias in theirs), None)
        if each.name in avro_fields or former is None or former in avro_fields:
            continue
        if all(theirs[former] is not other for other in avro_fields.values()):
            avro_fields[each.name] = theirs[former]
    return avro_fields


def _same_name(w: AvroNode, r: AvroNode) -> bool:
    """Return True if two types match by full name, by an alias of the reader, or by name without
    namespace.
    """
    own = w.name.rpartition(".")[2]
    return w.name == r.name or w.name in r.aliases or own == r.name.rpartition(".")[2]


_MEANINGS = ("date", "decimal", "duration")


def _contradict(w: AvroNode, r: AvroNode) -> bool:
    """Return True if two logical types give the same bytes different meanings."""
    both = (w.logical, r.logical)
    if not all(each in _MEANINGS or each.split("-")[0] in ("time", "timestamp", "local") for each in both):
        return False
    return both[0] != both[1] or (both[0] == "decimal" and w.spec.get("scale", 0) != r.spec.get("scale", 0))


# ---- as JSON again


def _shown(node: AvroNode) -> str:
    return node.logical or node.name or node.kind


def _part(node: AvroNode) -> str:
    return "items" if node.kind == "array" else "values"


def _plain(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return a type without documentation and names."""
    return {key: each for key, each in of.items() if key not in ("doc", "aliases", "namespace", "name")}


def _record(name: str, fields: Sequence[AvroType]) -> AvroType:
    return {"type": "record", "name": name, "fields": list(fields)}


def _nullable(of: AvroType, *, first: bool) -> list[AvroType]:
    branches = [each for each in (of if isinstance(of, list) else [of]) if each != "null"]
    return ["null", *branches] if first else [*branches, "null"]
