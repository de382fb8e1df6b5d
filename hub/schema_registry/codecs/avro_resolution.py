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

AvroType = Any  # a parsed Avro schema: a name, a list (union) or a mapping, as in the specification

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "enum", "fixed")
_PROMOTIONS: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_MOST_PROBLEMS = 5
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Resolution:
    """A writer and a reader under common names.

    ``problems`` lists at most five places where the writer's values may not fit the reader, such as
    ``amt: string is not long``; () when every value fits.
    """

    writer: AvroType
    reader: AvroType
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ResolvedType:
    """A type in its place: ``of`` with names resolved, ``space`` the namespace inside it, ``full`` its full
    name.
    """

    of: AvroType
    space: str
    full: str = ""

    @property
    def kind(self) -> str:
        if isinstance(self.of, list):
            return "union"
        kind = self.of if isinstance(self.of, str) else str(self.of["type"])
        return "record" if kind == "error" else kind

    @property
    def logical(self) -> str:
        return str(self.of.get("logicalType", "")) if isinstance(self.of, Mapping) else ""

    @property
    def aliases(self) -> list[str]:
        """Full names of its aliases."""
        named = self.of.get("aliases", ()) if isinstance(self.of, Mapping) else ()
        return [each if "." in each or not self.space else f"{self.space}.{each}" for each in named]

    def __str__(self) -> str:
        return self.logical or self.full or self.kind


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
    pair = _TypePair(_SchemaSide(writer), _SchemaSide(reader), space)
    wanted = None if columns is None else frozenset(columns)
    both = pair.records(pair.writer.at(writer, ""), pair.reader.at(reader, ""), "", wanted, unread)
    return Resolution(*both, tuple(dict.fromkeys(pair.problems))[:_MOST_PROBLEMS])


class _SchemaSide:
    """One of the two schemas, with its named types."""

    def __init__(self, schema: AvroType) -> None:
        self._known: dict[str, _ResolvedType] = {}
        self._collect(schema, "")

    def _collect(self, of: AvroType, space: str) -> None:
        if isinstance(of, list):
            for branch in of:
                self._collect(branch, space)
        if not isinstance(of, Mapping):
            return
        if of["type"] in (*_NAMED, "error"):
            full = _full_name(of, space)
            space = full.rpartition(".")[0]
            self._known.setdefault(full, _ResolvedType(of, space, full))
            for each in of.get("fields", ()):
                self._collect(each["type"], space)
        elif not isinstance(of["type"], str):
            self._collect(of["type"], space)
        for part in ("items", "values"):
            if part in of:
                self._collect(of[part], space)

    def at(self, of: AvroType, space: str) -> _ResolvedType:
        """Return the type at this place, with references followed."""
        while isinstance(of, Mapping) and (
            not isinstance(of["type"], str)
            or of["type"] not in (*_PRIMITIVES, *_NAMED, "error", "array", "map")
        ):
            of = of["type"]
        if isinstance(of, str) and of not in _PRIMITIVES:
            return self._known.get(f"{space}.{of}" if space and "." not in of else of) or self._known[of]
        if isinstance(of, Mapping) and of["type"] in (*_NAMED, "error"):
            return self._known[_full_name(of, space)]
        return _ResolvedType(of, space)

    def branches(self, of: _ResolvedType) -> list[_ResolvedType]:
        return [self.at(each, of.space) for each in of.of] if of.kind == "union" else [of]


def _full_name(named: Mapping[str, Any], space: str) -> str:
    name = str(named["name"])
    if "." in name:
        return name
    inside = named.get("namespace", space)
    return f"{inside}.{name}" if inside else name


@dataclass
class _TypePair:
    writer: _SchemaSide
    reader: _SchemaSide
    space: str
    problems: list[str] = field(default_factory=list)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def records(
        self,
        w: _ResolvedType,
        r: _ResolvedType,
        path: str,
        wanted: frozenset[str] | None = None,
        unread: bool = False,
    ) -> tuple[AvroType, AvroType]:
        """Resolve two matching records; return their common name when the pair is known already."""
        name, known = self._name(w.full, r.full)
        if known:
            return name, name
        fields = [each for each in r.of["fields"] if wanted is None or each["name"] in wanted]
        source = _matched_fields(w.of["fields"], fields)
        both: dict[str, tuple[AvroType, AvroType]] = {}
        for each in fields:
            if each["name"] in source:
                here = f"{path}.{each['name']}" if path else each["name"]
                theirs = self.writer.at(source[each["name"]]["type"], w.space)
                said = len(self.problems)
                pair = self._types(theirs, self.reader.at(each["type"], r.space), here, True)
                if unread and len(self.problems) > said:
                    pair = (self.alone(self.writer, theirs),) * 2
                both[each["name"]] = pair
        renamed = {id(source[name]): name for name in source}
        wrote = [
            {"name": renamed[id(each)], "type": both[renamed[id(each)]][0]}
            if id(each) in renamed
            else {
                "name": each["name"],
                "type": self.alone(self.writer, self.writer.at(each["type"], w.space)),
            }
            for each in w.of["fields"]
        ]
        read = [
            self._read_field(
                each,
                r,
                both[each["name"]][1]
                if each["name"] in both
                else self.alone(self.reader, self.reader.at(each["type"], r.space)),
            )
            for each in fields
        ]
        if unread:
            read += [
                {"name": each["name"], "type": _nullable(written["type"], first=True), "default": None}
                for each, written in zip(w.of["fields"], wrote, strict=True)
                if id(each) not in renamed
            ]
        return _record(name, wrote), _record(name, read)

    def _read_field(self, given: Mapping[str, Any], r: _ResolvedType, of: AvroType) -> AvroType:
        """Return the reader's field as nullable, with its default; the default is null when there is no
        usable one.

        The branch of the default comes first.
        """
        default = given.get("default")
        if default is None or not self._is_value(default, self.reader.at(given["type"], r.space), 0):
            return {"name": given["name"], "type": _nullable(of, first=True), "default": None}
        return {
            "name": given["name"],
            "type": _nullable(of, first=False),
            "default": self._whole(default, self.reader.at(given["type"], r.space)),
        }

    def _types(
        self, w: _ResolvedType, r: _ResolvedType, path: str, nullable: bool = False
    ) -> tuple[AvroType, AvroType]:
        """Resolve two types to common names. ``nullable``: a null of the writer always fits."""
        wrote, read = self.writer.branches(w), self.reader.branches(r)
        matches = [self._match(each, read) for each in wrote]
        of_writer: list[AvroType] = []
        of_reader: dict[int, AvroType] = {}
        for each, at in zip(wrote, matches, strict=True):
            if at is None:
                if not (nullable and each.kind == "null"):
                    self._say(
                        path, f"{each} is not {r if r.kind != 'union' else ' or '.join(map(str, read))}"
                    )
                of_writer.append("null" if each.kind == "null" else self._nothing())
            elif at in of_reader and each.kind in _NAMED:
                of_writer.append(
                    self.alone(self.writer, each)
                )  # two records of the writer's in one of the reader's
            else:
                written, of_reader[at] = self._matched(each, read[at], path)
                of_writer.append(written)
        whole = [of_reader.get(at) or self.alone(self.reader, each) for at, each in enumerate(read)]
        return (
            of_writer if w.kind == "union" else of_writer[0],
            whole if r.kind == "union" else whole[0],
        )

    def _match(self, w: _ResolvedType, read: Sequence[_ResolvedType]) -> int | None:
        """Return the index of the reader's branch that takes a type of the writer, as Avro for Java selects
        it.

        Order: the equal type, a record of another name that takes all fields, a wider number.
        """
        structure: int | None = None
        for at, each in enumerate(read):
            if each.kind != w.kind or _contradict(w, each):
                continue
            if w.kind not in _NAMED or _same_name(w, each):
                if w.kind == "fixed" and w.of["size"] != each.of["size"]:
                    continue
                return at
            if w.kind == "record" and structure is None and self._takes(w, each, 0):
                structure = at
        if structure is not None:
            return structure
        wider = _PROMOTIONS.get(w.kind, ())
        return next(
            (at for at, each in enumerate(read) if each.kind in wider and not _contradict(w, each)), None
        )

    def _takes(self, w: _ResolvedType, r: _ResolvedType, depth: int) -> bool:
        """Return True if one record can be read as another under Avro's own rule.

        Every field of the reader must have a value or a default.
        """
        if depth > _DEEPEST:
            return True
        fields = list(r.of["fields"])
        source = _matched_fields(w.of["fields"], fields)
        for each in fields:
            if each["name"] not in source:
                if "default" not in each:
                    return False
                continue
            theirs = self.writer.branches(self.writer.at(source[each["name"]]["type"], w.space))
            ours = self.reader.branches(self.reader.at(each["type"], r.space))
            if all(self._match(branch, ours) is None for branch in theirs):
                return False
        return True

    def _matched(self, w: _ResolvedType, r: _ResolvedType, path: str) -> tuple[AvroType, AvroType]:
        match r.kind:
            case "record":
                return self.records(w, r, path)
            case "enum":
                return self._enums(w, r, path)
            case "fixed":
                name, known = self._name(w.full, r.full)
                made = name if known else {**_plain(r.of), "name": name}
                return made, made
            case "array" | "map":
                part = "items" if r.kind == "array" else "values"
                inside = f"{path}[]" if part == "items" else f"{path}{{}}"
                both = self._types(
                    self.writer.at(w.of[part], w.space), self.reader.at(r.of[part], r.space), inside
                )
                return {"type": r.kind, part: both[0]}, {"type": r.kind, part: both[1]}
        if isinstance(r.of, str):
            return w.kind, r.of
        return (_plain(r.of) if w.kind == r.kind else w.kind), _plain(r.of)

    def _enums(self, w: _ResolvedType, r: _ResolvedType, path: str) -> tuple[AvroType, AvroType]:
        name, known = self._name(w.full, r.full)
        if known:
            return name, name
        symbols, default = list(r.of["symbols"]), r.of.get("default")
        read = {"type": "enum", "name": name, "symbols": symbols}
        if default in symbols:
            read["default"] = default
        elif strange := [each for each in w.of["symbols"] if each not in symbols]:
            self._say(path, f"{', '.join(strange[:3])} is no symbol of {r.full}, which has no default")
        return {"type": "enum", "name": name, "symbols": list(w.of["symbols"])}, read

    def alone(self, side: _SchemaSide, of: _ResolvedType) -> AvroType:
        """Return a type that the other side lacks, unchanged but under names of its own."""
        if of.kind == "union":
            return [self.alone(side, each) for each in side.branches(of)]
        if of.kind in ("array", "map"):
            part = "items" if of.kind == "array" else "values"
            return {"type": of.kind, part: self.alone(side, side.at(of.of[part], of.space))}
        if of.kind not in _NAMED:
            return of.of if isinstance(of.of, str) else _plain(of.of)
        reads = side is self.reader
        name, known = self._name("" if reads else of.full, of.full if reads else "")
        if known:
            return name
        if of.kind == "record":
            fields = []
            for each in of.of["fields"]:
                inside = side.at(each["type"], of.space)
                kept = {"name": each["name"], "type": self.alone(side, inside)}
                if "default" in each and self._is_value(each["default"], inside, 0, side):
                    kept["default"] = each["default"]
                fields.append(kept)
            return _record(name, fields)
        made = {**_plain(of.of), "name": name}
        if of.kind == "enum" and made.get("default") not in made["symbols"]:
            made.pop("default", None)
        return made

    def _is_value(self, value: Any, of: _ResolvedType, depth: int, side: _SchemaSide | None = None) -> bool:
        """Return True if a schema's JSON default is a value of its type; registries accept some that are
        not.
        """
        side = side or self.reader
        if depth > _DEEPEST:
            return False
        if of.kind == "union":
            return any(self._is_value(value, each, depth + 1, side) for each in side.branches(of))
        if of.kind in ("array", "map"):
            inside = side.at(of.of["items" if of.kind == "array" else "values"], of.space)
            if not isinstance(value, list if of.kind == "array" else dict):
                return False
            values = value if isinstance(value, list) else value.values()
            return all(self._is_value(each, inside, depth + 1, side) for each in values)
        if of.kind == "record":
            return isinstance(value, dict) and all(
                self._is_value(
                    value.get(each["name"], each.get("default")),
                    side.at(each["type"], of.space),
                    depth + 1,
                    side,
                )
                for each in of.of["fields"]
            )
        if of.kind == "enum":
            return value in of.of["symbols"]
        return _is_plain_value(value, of)

    def _whole(self, value: Any, of: _ResolvedType) -> Any:
        """Complete a default with the defaults of nested fields that it omits."""
        if of.kind == "union":
            branch = next(each for each in self.reader.branches(of) if self._is_value(value, each, 0))
            return self._whole(value, branch)
        if of.kind in ("array", "map"):
            inside = self.reader.at(of.of["items" if of.kind == "array" else "values"], of.space)
            if of.kind == "array":
                return [self._whole(each, inside) for each in value]
            return {key: self._whole(each, inside) for key, each in value.items()}
        if of.kind != "record":
            return value
        return {
            each["name"]: self._whole(
                value.get(each["name"], each.get("default")), self.reader.at(each["type"], of.space)
            )
            for each in of.of["fields"]
        }

    def _name(self, writer: str, reader: str) -> tuple[str, bool]:
        """Return (the common name of a pair of named types, whether it was assigned before)."""
        known = (writer, reader) in self._names
        return self._names.setdefault((writer, reader), f"{self.space}.t{len(self._names)}"), known

    def _nothing(self) -> AvroType:
        """Return a type that no other resolves to: decoding fails at its place."""
        return {"type": "fixed", "name": self._name("", f" {len(self._names)}")[0], "size": 1}

    def _say(self, path: str, what: str) -> None:
        self.problems.append(f"{path}: {what}")


def _matched_fields(
    wrote: Sequence[Mapping[str, Any]], read: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Map each field name of the reader to the writer's field that supplies it; others have no entry."""
    theirs = {each["name"]: each for each in wrote}
    found = {each["name"]: theirs[each["name"]] for each in read if each["name"] in theirs}
    for each in read:
        former = next((alias for alias in each.get("aliases") or () if alias in theirs), None)
        if each["name"] in found or former is None or former in found:
            continue
        if all(theirs[former] is not other for other in found.values()):
            found[each["name"]] = theirs[former]
    return found


def _same_name(w: _ResolvedType, r: _ResolvedType) -> bool:
    """Return True if two types match by full name, by an alias of the reader, or by name without
    namespace.
    """
    own = w.full.rpartition(".")[2]
    return w.full == r.full or w.full in r.aliases or own == r.full.rpartition(".")[2]


_MEANINGS = ("date", "decimal", "duration")


def _contradict(w: _ResolvedType, r: _ResolvedType) -> bool:
    """Return True if two logical types give the same bytes different meanings."""
    both = (w.logical, r.logical)
    if not all(each in _MEANINGS or each.split("-")[0] in ("time", "timestamp", "local") for each in both):
        return False
    return both[0] != both[1] or (both[0] == "decimal" and w.of.get("scale", 0) != r.of.get("scale", 0))


def _is_plain_value(value: Any, of: _ResolvedType) -> bool:
    match of.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if of.kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "fixed":
            return (
                isinstance(value, str)
                and len(value) == of.of["size"]
                and all(ord(each) < 256 for each in value)
            )
        case "bytes":
            return isinstance(value, str) and all(ord(each) < 256 for each in value)
    return isinstance(value, str)


def _plain(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return a type without documentation and names."""
    return {key: each for key, each in of.items() if key not in ("doc", "aliases", "namespace", "name")}


def _record(name: str, fields: Sequence[AvroType]) -> AvroType:
    return {"type": "record", "name": name, "fields": list(fields)}


def _nullable(of: AvroType, *, first: bool) -> list[AvroType]:
    branches = [each for each in (of if isinstance(of, list) else [of]) if each != "null"]
    return ["null", *branches] if first else [*branches, "null"]
