"""[core] Differences between two schemas in plain words, and who can still read whose data.

A change is not a verdict: every reader accepts a new doc or another default. ``diff_schemas`` lists all
changes; ``readers`` adds the registry's verdict in both directions.

- Avro: field by field through nested records, arrays, maps and unions; each pair of named types is compared
  once.
- JSON Schema: properties, required, types, limits and enums through ``properties``, ``items`` and local
  ``$ref``.
- Protobuf: messages by name, fields by number, enum values by number.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.schema_registry.formats import InvalidSchema, SchemaDifference
from hub.schema_registry.formats.avro.types import PRIMITIVES
from hub.schema_registry.registry.snapshot import ParsedSchema, differences

MOST_CHANGES = 1_000
# Depth of types that are compared. A limit of our own: Python's is per process, and a library may raise it.
MOST_CHAINED = 200
_NOT_SEEN = frozenset({"doc", "title", "description", "metadata", "spelling", "aliases", "sort order"})
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL = ("logicalType", "precision", "scale")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change.

    ``kind`` is for programs (``field added``), ``path`` uses names (``item.qty``; "" is the schema).
    """

    kind: str
    path: str
    what: str

    def __str__(self) -> str:
        return self.what

    @property
    def seen_by_readers(self) -> bool:
        """True if a reader of the events could notice it; not for docs, metadata, aliases and sort orders."""
        return self.kind not in _NOT_SEEN


@dataclass(frozen=True, slots=True)
class ReaderProblems:
    """Reasons why each schema cannot read the other's data; empty when it can."""

    new_reads_old: tuple[SchemaDifference, ...]
    old_reads_new: tuple[SchemaDifference, ...]

    def lines(self) -> list[str]:
        """Return both directions as sentences."""
        found = []
        for who, wrote, reasons in (
            ("Consumers with the new schema", "the old one", self.new_reads_old),
            ("Consumers with the old schema", "the new one", self.old_reads_new),
        ):
            if not reasons:
                found.append(f"{who} can read what was written with {wrote}.")
                continue
            found.append(f"{who} can NOT read what was written with {wrote}:")
            found += [f"  {each.field or each.path}: {each.what}; fix: {each.fix}" for each in reasons]
        return found


def readers(old: ParsedSchema, new: ParsedSchema) -> ReaderProblems:
    """Compare two schemas in both directions.

    Raises InvalidSchema for schemas that are too much work to compare.
    """
    return ReaderProblems(tuple(differences(new, old)), tuple(differences(old, new)))


def diff_schemas(schema_type: str, old: ParsedSchema, new: ParsedSchema) -> list[SchemaChange]:
    """Return the changes from ``old`` to ``new``, at most ``MOST_CHANGES``; [] when they are equivalent.

    ``schema_type`` is that of ``new``; when ``old`` has another, that is the only change. Raises
    InvalidSchema for types that are chained too long.
    """
    if old.schema_type != schema_type:
        return [
            SchemaChange("schema type", "", f"the schema type was {old.schema_type} and is {schema_type}")
        ]
    if schema_type == "AVRO":
        found = _AvroDiff(old, new).changes()
    elif schema_type == "JSON":
        found = _JsonSchemaDiff(old.schema, new.schema).changes()
    else:
        found = _protobuf(old.schema.file, new.schema.file)
    try:
        return [each for each, _ in zip(found, range(MOST_CHANGES), strict=False)]
    except RecursionError:
        raise InvalidSchema("the schema's types are chained too long to be compared") from None


def _counted(step: Callable[..., Iterator[SchemaChange]]) -> Callable[..., Iterator[SchemaChange]]:
    """Limit the recursion of a method to ``MOST_CHAINED``; the depth is in the instance's ``_depth``."""

    @functools.wraps(step)
    def deeper(self: Any, *arguments: Any) -> Iterator[SchemaChange]:
        if self._depth == MOST_CHAINED:
            raise RecursionError
        self._depth += 1
        yield from step(self, *arguments)
        self._depth -= 1

    return deeper


def _as_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _same(a: Any, b: Any) -> bool:
    """Return True if two JSON values are the same; to Python, true equals 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _key(value: Any) -> str:
    """Return a text that is equal for JSON values that are the same."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True)


def _ticked(names: Sequence[Any], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{each}`" for each in names[:most]) + more


def _doc(path: str, called: str, old: Any, new: Any, word: str = "doc") -> Iterator[SchemaChange]:
    if _same(old, new):
        return
    if old is None:
        what = f"{called} got the {word} {_as_json(new)}"
    elif new is None:
        what = f"{called} lost its {word}"
    else:
        what = f"the {word} of {called} is now {_as_json(new)}"
    yield SchemaChange(word, path, what)


# ---- Avro


class _AvroDiff:
    """Two parsed schemas; names are resolved within their namespaces, as in the specification."""

    def __init__(self, old: ParsedSchema, new: ParsedSchema) -> None:
        self._old, self._new = Types(old), Types(new)
        self._old_root, self._new_root = old.schema, new.schema
        self._seen: set[tuple[str, str]] = set()
        self._depth = 0

    def changes(self) -> Iterator[SchemaChange]:
        yield from self._types("", (self._old_root, ""), (self._new_root, ""), "the schema")

    @_counted
    def _types(self, path: str, old: _Placed, new: _Placed, called: str) -> Iterator[SchemaChange]:
        was, now = self._old.resolved(*old), self._new.resolved(*new)
        a, b = was[0], now[0]
        if isinstance(a, list) or isinstance(b, list):
            yield from self._unions(path, was, now, called)
            return
        kinds = _kind(a), _kind(b)
        if kinds[0] != kinds[1]:
            yield self._type_changed(path, was, now, called)
            return
        if kinds[1] in ("array", "map"):
            part, step = ("items", "[]") if kinds[1] == "array" else ("values", "{}")
            inner = f"{path}{step}"
            yield from self._types(inner, (a[part], was[1]), (b[part], now[1]), f"`{inner}`")
        elif kinds[1] in _NAMED:
            names = avro_name(a, was[1]), avro_name(b, now[1])
            if names in self._seen:
                return
            self._seen.add(names)
            yield from self._named(path, (a, was[1], names[0]), (b, now[1], names[1]), kinds[1])
        logical = tuple(_logical(each) for each in (a, b))
        if logical[0] != logical[1]:
            yield self._type_changed(path, was, now, called)

    def _type_changed(self, path: str, was: _Placed, now: _Placed, called: str) -> SchemaChange:
        return SchemaChange("type changed", path, f"{called} was {type_text(*was)} and is {type_text(*now)}")

    def _unions(self, path: str, was: _Placed, now: _Placed, called: str) -> Iterator[SchemaChange]:
        sides = []
        for types, (schema, space) in ((self._old, was), (self._new, now)):
            branches = schema if isinstance(schema, list) else [schema]
            sides.append({types.branch_name(each, space): types.resolved(each, space) for each in branches})
        old, new = sides
        gone, come = [each for each in old if each not in new], [each for each in new if each not in old]
        # null alone is reported as nullability; one other branch on either side is a changed field type
        if gone == [] and come == ["null"]:
            yield SchemaChange("nullable", path, f"{called} may be null now")
        elif come == [] and gone == ["null"]:
            yield SchemaChange("not nullable", path, f"{called} may not be null any more")
        elif gone or come:
            yield self._type_changed(path, was, now, called)
        elif list(old) != list(new):
            yield SchemaChange(
                "union order",
                path,
                f"the order of the types of {called} was {', '.join(old)} and is {', '.join(new)}",
            )
        for name in new:
            if name in old:
                yield from self._types(path, old[name], new[name], called)

    def _named(
        self, path: str, old: tuple[Any, str, str], new: tuple[Any, str, str], kind: str
    ) -> Iterator[SchemaChange]:
        (a, space_a, name_a), (b, space_b, name_b) = old, new
        called = f"{kind} `{name_b}`"
        if name_a != name_b:
            aliases = b.get("aliases", ())
            same = name_a in aliases or name_a.rpartition(".")[2] in aliases
            alias = " (the old name is an alias)" if same else ""
            yield SchemaChange("renamed", path, f"{kind} `{name_a}` is now called `{name_b}`{alias}")
        yield from _doc(path, called, a.get("doc"), b.get("doc"))
        if kind == "fixed":
            if a["size"] != b["size"]:
                yield SchemaChange("size", path, f"{called} had {a['size']} bytes and has {b['size']}")
        elif kind == "enum":
            yield from _symbols(path, called, a, b)
        else:
            yield from self._fields(path, (a, space_a), (b, space_b), called)

    def _fields(self, path: str, old: _Placed, new: _Placed, called: str) -> Iterator[SchemaChange]:
        before = {each["name"]: each for each in old[0]["fields"]}
        after = {each["name"]: each for each in new[0]["fields"]}
        spaces = tuple(avro_name(each, space).rpartition(".")[0] for each, space in (old, new))
        origin: dict[str, str] = {}
        kept: set[str] = set()
        for name, field in after.items():
            known = [name, *(each for each in field.get("aliases", ()) if each not in after)]
            source = next((each for each in known if each in before and each not in kept), None)
            if source is not None:
                origin[name] = source
                kept.add(source)
        for name, field in before.items():
            if name not in kept:
                here = _into(path, name)
                yield SchemaChange(
                    "field removed",
                    here,
                    f"field `{here}` ({type_text(field['type'], spaces[0])}) is removed",
                )
        for name, field in after.items():
            here = _into(path, name)
            if name not in origin:
                default = (
                    f"default {_as_json(field['default'])}" if "default" in field else "without a default"
                )
                yield SchemaChange(
                    "field added",
                    here,
                    f"field `{here}` ({type_text(field['type'], spaces[1])}, {default}) is added",
                )
                continue
            was = before[origin[name]]
            field_called = f"field `{here}`"
            if origin[name] != name:
                yield SchemaChange(
                    "field renamed",
                    here,
                    f"field `{_into(path, origin[name])}` is now called `{here}` (the old name is an alias)",
                )
            yield from self._types(here, (was["type"], spaces[0]), (field["type"], spaces[1]), field_called)
            yield from _field_settings(here, field_called, was, field)
        kept_before = [each for each in before if each in kept]
        kept_after = [origin[each] for each in after if each in origin]
        if kept_before != kept_after:
            yield SchemaChange(
                "field order", path, f"the fields of {called} stand in another order: {', '.join(after)}"
            )


def type_text(schema: Any, space: str) -> str:
    """Return an Avro type in words."""
    if isinstance(schema, list):
        branches = [type_text(each, space) for each in schema if each != "null"]
        return ("nullable " if "null" in schema else "") + (" or ".join(branches) or "null")
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else f"`{schema}`"
    kind = schema["type"]
    if not isinstance(kind, str):
        return type_text(kind, space)
    logical = _logical(schema)
    if logical:
        more = ", ".join(str(schema[each]) for each in ("precision", "scale") if each in schema)
        return f"{logical[0][1]}({more})" if more else f"{logical[0][1]} ({kind})"
    if kind in _NAMED:
        return f"{kind} `{avro_name(schema, space)}`"
    if kind == "array":
        return f"array of {type_text(schema['items'], space)}"
    return f"map of {type_text(schema['values'], space)}" if kind == "map" else kind


_Placed = tuple[Any, str]  # a schema and its enclosing namespace


class Types:
    """The named types of one schema, by full name, each with its enclosing namespace."""

    def __init__(self, parsed: ParsedSchema) -> None:
        self.root: _Placed = (parsed.schema, "")
        self._known: dict[str, _Placed] = {}
        left: list[_Placed] = [(each, "") for each in (parsed.schema, *reversed(list(parsed.named.values())))]
        while left:
            schema, space = left.pop()
            if isinstance(schema, list):
                left.extend((each, space) for each in schema)
            elif isinstance(schema, dict):
                kind, inside = schema["type"], space
                if kind in _NAMED:
                    name = avro_name(schema, space)
                    self._known.setdefault(name, (schema, space))
                    inside = name.rpartition(".")[0]
                elif not isinstance(kind, str):
                    left.append((kind, space))
                left.extend((each["type"], inside) for each in schema.get("fields", ()))
                left.extend((schema[part], inside) for part in ("items", "values") if part in schema)

    def resolved(self, schema: Any, space: str) -> _Placed:
        """Return the definition behind a name; the inner type of ``{"type": …}`` without other attributes."""
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        if isinstance(schema, dict) and not (schema["type"] in (*_NAMED, "array", "map", *PRIMITIVES)):
            schema = schema["type"]
        if isinstance(schema, str) and schema not in PRIMITIVES:
            for name in (f"{space}.{schema}" if space and "." not in schema else schema, schema):
                if name in self._known:
                    return self._known[name]
        return schema, space

    def field(self, schema: Any, space: str, name: str) -> _Placed | None:
        """Return the type of a record's field, through a union with null; None when there is no such
        field.
        """
        found, space = self.resolved(schema, space)
        if isinstance(found, list):
            branches = [each for each in found if each != "null"]
            return self.field(branches[0], space, name) if len(branches) == 1 else None
        if not isinstance(found, dict) or found["type"] not in ("record", "error"):
            return None
        inside = avro_name(found, space).rpartition(".")[0]
        return next(((each["type"], inside) for each in found["fields"] if each["name"] == name), None)

    def branch_name(self, schema: Any, space: str) -> str:
        """Return the identity of a union branch: its kind, or its name."""
        found, inside = self.resolved(schema, space)
        kind = _kind(found)
        return avro_name(found, inside) if kind in _NAMED else kind


def avro_name(schema: Mapping[str, Any], space: str) -> str:
    """Return the full name of a named type within its enclosing namespace."""
    name = str(schema["name"])
    own = schema.get("namespace", space)
    return name if "." in name or not own else f"{own}.{name}"


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def _logical(schema: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return ()
    return tuple((key, schema[key]) for key in _LOGICAL if key in schema)


def _into(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _symbols(
    path: str, called: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    before, after = old["symbols"], new["symbols"]
    was, now = set(before), set(after)
    come, gone = [each for each in after if each not in was], [each for each in before if each not in now]
    if come:
        yield SchemaChange("symbols added", path, f"{called} has new symbols: {_ticked(come)}")
    if gone:
        yield SchemaChange("symbols removed", path, f"{called} lost symbols: {_ticked(gone)}")
    if not come and not gone and before != after:
        yield SchemaChange("symbol order", path, f"the symbols of {called} stand in another order")
    yield from _doc(path, called, old.get("default"), new.get("default"), "default")


def _field_settings(
    path: str, called: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    if "default" in new and "default" not in old:
        yield SchemaChange("default", path, f"{called} got the default {_as_json(new['default'])}")
    elif "default" in old and "default" not in new:
        yield SchemaChange("default", path, f"{called} lost its default {_as_json(old['default'])}")
    elif "default" in new and not _same(old["default"], new["default"]):
        yield SchemaChange(
            "default",
            path,
            f"the default of {called} was {_as_json(old['default'])} and is {_as_json(new['default'])}",
        )
    yield from _doc(path, called, old.get("doc"), new.get("doc"))
    if set(old.get("aliases", ())) != set(new.get("aliases", ())):
        yield SchemaChange(
            "aliases", path, f"the aliases of {called} are now {_ticked(new.get('aliases', ())) or 'none'}"
        )
    if old.get("order", "ascending") != new.get("order", "ascending"):
        yield SchemaChange("sort order", path, f"{called} now sorts {new.get('order', 'ascending')}")


# ---- JSON Schema

_LIMITS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "const",
)
_COMBINED = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_TOLD = {
    *_LIMITS, *_COMBINED, "type", "enum", "properties", "required", "items", "additionalProperties", "default",
    "title", "description", "$ref", "$schema", "$id", "definitions", "$defs",
}  # fmt: skip


class _JsonSchemaDiff:
    """Two JSON schemas. Each pair of places is reported once, because ``$ref`` may be circular."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[int, int]] = set()
        self._depth = 0

    def changes(self) -> Iterator[SchemaChange]:
        yield from self._schemas("", self._old.raw, self._new.raw)
        for part in ("definitions", "$defs") if self._new.draft > 7 else ("definitions",):
            old, new = (
                each.raw.get(part) or {} if isinstance(each.raw, dict) else {}
                for each in (self._old, self._new)
            )
            for name in new:  # those that no reference has led to
                if name in old:
                    yield from self._schemas(_into(part, name), old[name], new[name])

    @_counted
    def _schemas(self, path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        refs = tuple(each.get("$ref") if isinstance(each, dict) else None for each in (old, new))
        called = f"`{path}`" if path else "the schema"
        if refs[0] != refs[1]:
            said = [f"`{each}`" if each else "written out" for each in refs]
            yield SchemaChange("reference", path, f"{called} was {said[0]} and is {said[1]}")
        if None not in refs:
            beside = [{key: each[key] for key in each if key != "$ref"} for each in (old, new)]
            yield from self._keywords(path, called, *beside)
        old, new = _local(self._old, old), _local(self._new, new)
        if isinstance(old, bool) or isinstance(new, bool):
            if old is not new:
                yield SchemaChange(
                    "type changed", path, f"{called} was {_as_json(old)} and is {_as_json(new)}"
                )
            return
        if (id(old), id(new)) not in self._seen:
            self._seen.add((id(old), id(new)))
            if "$ref" not in old and "$ref" not in new:
                yield from self._keywords(path, called, old, new)

    def _keywords(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        types = tuple(_json_types(each) for each in (old, new))
        if types[0] != types[1]:
            yield SchemaChange(
                "type changed",
                path,
                f"{called} was {types[0] or 'of any type'} and is {types[1] or 'of any type'}",
            )
        yield from self._enums(path, called, old, new)
        yield from self._properties(path, called, old, new)
        for key in _LIMITS:
            yield from _doc(path, called, old.get(key), new.get(key), key)
        yield from self._inner(path, called, old, new)
        for key, word in (("default", "default"), ("title", "title"), ("description", "description")):
            yield from _doc(path, called, old.get(key), new.get(key), word)
        for key in sorted({*old, *new} - _TOLD):
            if not _same(old.get(key), new.get(key)):
                yield SchemaChange("keyword", path, f"`{key}` of {called} changed")

    def _enums(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        if ("enum" in old) != ("enum" in new):
            allowed = _ticked([_as_json(each) for each in new.get("enum", ())])
            yield SchemaChange(
                "enum",
                path,
                f"{called} may only be {allowed}" if allowed else f"{called} is no enum any more",
            )
        elif "enum" in new:
            was, now = ({_key(each): each for each in side["enum"]} for side in (old, new))
            come = [_as_json(each) for key, each in now.items() if key not in was]
            gone = [_as_json(each) for key, each in was.items() if key not in now]
            if come:
                yield SchemaChange("values added", path, f"{called} may also be {_ticked(come)}")
            if gone:
                yield SchemaChange("values removed", path, f"{called} may not be {_ticked(gone)} any more")

    def _properties(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        before, after = (each.get("properties") or {} for each in (old, new))
        must = tuple(
            set(each.get("required") or ()) if isinstance(each.get("required"), list) else set()
            for each in (old, new)
        )
        for name in before:
            if name not in after:
                yield SchemaChange(
                    "field removed", _into(path, name), f"property `{_into(path, name)}` is removed"
                )
        for name, schema in after.items():
            here = _into(path, name)
            if name not in before:
                kind = "required" if name in must[1] else "optional"
                typed = _json_types(_local(self._new, schema)) or "any type"
                yield SchemaChange("field added", here, f"property `{here}` ({typed}, {kind}) is added")
                continue
            if (name in must[0]) != (name in must[1]):
                now = "required" if name in must[1] else "optional"
                yield SchemaChange("required", here, f"property `{here}` is {now} now")
            yield from self._schemas(here, before[name], schema)
        for name in sorted((must[0] ^ must[1]) - {*before, *after}):
            now = "required" if name in must[1] else "optional"
            yield SchemaChange("required", _into(path, name), f"property `{_into(path, name)}` is {now} now")

    def _inner(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        for key, step in (("items", "[]"), ("additionalProperties", "{}")):
            was, now = old.get(key), new.get(key)
            if isinstance(was, dict) and isinstance(now, dict):
                yield from self._schemas(f"{path}{step}", was, now)
            elif key == "additionalProperties" and (was is False) != (now is False):
                open_ = "allows other properties now" if was is False else "allows no other properties now"
                yield SchemaChange("open or closed", path, f"{called} {open_}")
            elif not _same(was, now):
                yield SchemaChange("keyword", path, f"`{key}` of {called} changed")
        for key in _COMBINED:
            was, now = old.get(key), new.get(key)
            if isinstance(was, list) and isinstance(now, list):
                if len(was) != len(now):
                    yield SchemaChange(
                        "combination", path, f"`{key}` of {called} had {len(was)} schemas and has {len(now)}"
                    )
                for index, pair in enumerate(zip(was, now, strict=False)):
                    yield from self._schemas(f"{path}<{key} {index + 1}>", *pair)
            elif isinstance(was, dict) and isinstance(now, dict):
                yield from self._schemas(f"{path}<{key}>", was, now)
            elif not _same(was, now):
                yield SchemaChange(
                    "combination", path, f"`{key}` of {called} is {'gone' if now is None else 'new'}"
                )


def _json_types(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    kind = schema.get("type")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind or "")


def _local(document: Any, schema: Any) -> Any:
    """Follow ``$ref`` within the document; return the schema itself for any other."""
    from hub.schema_registry.formats.json_schema.schema import MOST_CHAINED, followed

    for _ in range(MOST_CHAINED):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        other, target = followed(document, schema)
        if other is not document:
            break
        schema = target
    return schema


# ---- Protobuf: descriptors


def _protobuf(old: Any, new: Any) -> Iterator[SchemaChange]:
    if old.package != new.package:
        was, now = (f"`{each.package}`" if each.package else "none" for each in (old, new))
        yield SchemaChange("package", "", f"the package was {was} and is {now}")
    if (old.syntax or "proto2") != (new.syntax or "proto2"):
        yield SchemaChange(
            "syntax", "", f"the syntax was {old.syntax or 'proto2'} and is {new.syntax or 'proto2'}"
        )
    come, gone = set(new.dependency) - set(old.dependency), set(old.dependency) - set(new.dependency)
    for word, names in (("added", come), ("removed", gone)):
        if names:
            yield SchemaChange(f"imports {word}", "", f"imports are {word}: {_ticked(sorted(names))}")
    yield from _messages("", old.message_type, new.message_type)
    yield from _enums("", old.enum_type, new.enum_type)


def _messages(path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
    before, after = ({each.name: each for each in side} for side in (old, new))
    for name in before:
        if name not in after and not before[name].options.map_entry:
            yield SchemaChange(
                "message removed", _into(path, name), f"message `{_into(path, name)}` is removed"
            )
    for name, message in after.items():
        here = _into(path, name)
        if message.options.map_entry:
            continue
        if name not in before:
            yield SchemaChange("message added", here, f"message `{here}` is added")
            continue
        yield from _proto_fields(here, before[name], message)
        yield from _messages(here, before[name].nested_type, message.nested_type)
        yield from _enums(here, before[name].enum_type, message.enum_type)


def _proto_fields(path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
    before, after = ({each.number: each for each in side.field} for side in (old, new))
    for number, field in before.items():
        if number not in after:
            here = _into(path, field.name)
            held = any(each.start <= number < each.end for each in new.reserved_range)
            kept = "its number is reserved" if held else f"reserve its number: reserved {number};"
            yield SchemaChange(
                "field removed",
                here,
                f"field `{here}` ({_proto_type(field, old)}, number {number}) is removed; {kept}",
            )
    for number, field in after.items():
        here = _into(path, field.name)
        if number not in before:
            yield SchemaChange(
                "field added", here, f"field `{here}` ({_proto_type(field, new)}, number {number}) is added"
            )
            continue
        was = before[number]
        if was.name != field.name:
            yield SchemaChange(
                "field renamed",
                here,
                f"field `{_into(path, was.name)}` (number {number}) is now called `{here}`",
            )
        types = _proto_type(was, old), _proto_type(field, new)
        if types[0] != types[1]:
            yield SchemaChange("type changed", here, f"field `{here}` was {types[0]} and is {types[1]}")
        oneofs = _oneof(was, old), _oneof(field, new)
        if oneofs[0] != oneofs[1]:
            said = [f"in the oneof `{each}`" if each else "in no oneof" for each in oneofs]
            yield SchemaChange("oneof", here, f"field `{here}` was {said[0]} and is {said[1]}")
        yield from _doc(
            here, f"field `{here}`", was.default_value or None, field.default_value or None, "default"
        )


def _proto_type(field: Any, within: Any) -> str:
    entry = next(
        (
            each
            for each in within.nested_type
            if each.options.map_entry and field.type_name.endswith(f".{within.name}.{each.name}")
        ),
        None,
    )
    if entry is not None:
        key, value = (_proto_type(each, entry) for each in entry.field)
        return f"map<{key}, {value}>"
    name = (
        field.type_name.removeprefix(".") or type(field).Type.Name(field.type).removeprefix("TYPE_").lower()
    )
    if field.label == type(field).LABEL_REPEATED:
        return f"repeated {name}"
    if field.label == type(field).LABEL_REQUIRED:
        return f"required {name}"
    return f"optional {name}" if field.proto3_optional else name


def _oneof(field: Any, within: Any) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(within.oneof_decl[field.oneof_index].name)


def _enums(path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
    before, after = ({each.name: each for each in side} for side in (old, new))
    for name in before:
        if name not in after:
            yield SchemaChange("enum removed", _into(path, name), f"enum `{_into(path, name)}` is removed")
    for name, enum in after.items():
        here = _into(path, name)
        if name not in before:
            yield SchemaChange("enum added", here, f"enum `{here}` is added")
            continue
        was = {each.number: each.name for each in before[name].value}
        now = {each.number: each.name for each in enum.value}
        come = [f"{now[each]} = {each}" for each in now if each not in was]
        gone = [f"{was[each]} = {each}" for each in was if each not in now]
        if come:
            yield SchemaChange("symbols added", here, f"enum `{here}` has new values: {_ticked(come)}")
        if gone:
            yield SchemaChange("symbols removed", here, f"enum `{here}` lost values: {_ticked(gone)}")
        for number, name_then in was.items():
            if now.get(number, name_then) != name_then:
                said = f"value {number} of enum `{here}` was `{name_then}` and is `{now[number]}`"
                yield SchemaChange("renamed", here, said)
