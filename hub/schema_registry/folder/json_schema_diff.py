"""[core] Differences between two JSON schemas: properties, required, types, limits and enums.

They are found through ``properties``, ``items`` and local ``$ref``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hub.schema_registry.folder.changes import (
    SchemaChange,
    as_json,
    counted,
    doc_changes,
    field_path,
    json_key,
    same_json,
    ticked,
)
from hub.schema_registry.formats.json_schema.schema import MOST_CHAINED, followed

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
_COMPARED = {
    *_LIMITS, *_COMBINED, "type", "enum", "properties", "required", "items", "additionalProperties",
    "default",
    "title", "description", "$ref", "$schema", "$id", "definitions", "$defs",
}  # fmt: skip


class JsonSchemaDiff:
    """Two JSON schemas. Each pair of places is reported once, because ``$ref`` may be circular."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new
        self._compared: set[tuple[int, int]] = set()
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
                    yield from self._schemas(field_path(part, name), old[name], new[name])

    @counted
    def _schemas(self, path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        refs = tuple(each.get("$ref") if isinstance(each, dict) else None for each in (old, new))
        called = f"`{path}`" if path else "the schema"
        if refs[0] != refs[1]:
            targets = [f"`{each}`" if each else "written out" for each in refs]
            yield SchemaChange("reference", path, f"{called} was {targets[0]} and is {targets[1]}")
        if None not in refs:
            beside = [{key: each[key] for key in each if key != "$ref"} for each in (old, new)]
            yield from self._keywords(path, called, *beside)
        old, new = _local(self._old, old), _local(self._new, new)
        if isinstance(old, bool) or isinstance(new, bool):
            if old is not new:
                yield SchemaChange("type changed", path, f"{called} was {as_json(old)} and is {as_json(new)}")
            return
        if (id(old), id(new)) not in self._compared:
            self._compared.add((id(old), id(new)))
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
        yield from self._properties(path, old, new)
        for key in _LIMITS:
            yield from doc_changes(path, called, old.get(key), new.get(key), key)
        yield from self._inner(path, called, old, new)
        for key, word in (("default", "default"), ("title", "title"), ("description", "description")):
            yield from doc_changes(path, called, old.get(key), new.get(key), word)
        for key in sorted({*old, *new} - _COMPARED):
            if not same_json(old.get(key), new.get(key)):
                yield SchemaChange("keyword", path, f"`{key}` of {called} changed")

    def _enums(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        if ("enum" in old) != ("enum" in new):
            allowed = ticked([as_json(each) for each in new.get("enum", ())])
            yield SchemaChange(
                "enum",
                path,
                f"{called} may only be {allowed}" if allowed else f"{called} is no longer an enum",
            )
        elif "enum" in new:
            was, now = ({json_key(each): each for each in side["enum"]} for side in (old, new))
            come = [as_json(each) for key, each in now.items() if key not in was]
            gone = [as_json(each) for key, each in was.items() if key not in now]
            if come:
                yield SchemaChange("values added", path, f"{called} may also be {ticked(come)}")
            if gone:
                yield SchemaChange("values removed", path, f"{called} may no longer be {ticked(gone)}")

    def _properties(self, path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        before, after = (each.get("properties") or {} for each in (old, new))
        must = tuple(
            set(each.get("required") or ()) if isinstance(each.get("required"), list) else set()
            for each in (old, new)
        )
        for name in before:
            if name not in after:
                yield SchemaChange(
                    "field removed", field_path(path, name), f"property `{field_path(path, name)}` is removed"
                )
        for name, schema in after.items():
            here = field_path(path, name)
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
            yield SchemaChange(
                "required", field_path(path, name), f"property `{field_path(path, name)}` is {now} now"
            )

    def _inner(self, path: str, called: str, old: Any, new: Any) -> Iterator[SchemaChange]:
        for key, step in (("items", "[]"), ("additionalProperties", "{}")):
            was, now = old.get(key), new.get(key)
            if isinstance(was, dict) and isinstance(now, dict):
                yield from self._schemas(f"{path}{step}", was, now)
            elif key == "additionalProperties" and (was is False) != (now is False):
                open_ = "allows other properties now" if was is False else "allows no other properties now"
                yield SchemaChange("open or closed", path, f"{called} {open_}")
            elif not same_json(was, now):
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
            elif not same_json(was, now):
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
    for _ in range(MOST_CHAINED):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        other, target = followed(document, schema)
        if other is not document:
            break
        schema = target
    return schema
