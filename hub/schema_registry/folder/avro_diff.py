"""[core] Differences between two Avro schemas, field by field through nested types.

Each pair of named types is compared once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hub.schema_registry.folder.changes import (
    SchemaChange,
    as_json,
    counted,
    doc_changes,
    field_path,
    same_json,
    ticked,
)
from hub.schema_registry.formats.avro.types import AvroField, AvroNode

_LOGICAL = ("logicalType", "precision", "scale")


class AvroDiff:
    """Two types, and the changes from the first to the second."""

    def __init__(self, old: AvroNode, new: AvroNode) -> None:
        self._old, self._new = old, new
        self._compared: set[tuple[AvroNode, AvroNode]] = set()
        self._depth = 0

    def changes(self) -> Iterator[SchemaChange]:
        """Yield the changes, in the new schema's order."""
        yield from self._types("", self._old, self._new, "the schema")

    @counted
    def _types(self, path: str, old: AvroNode, new: AvroNode, called: str) -> Iterator[SchemaChange]:
        if "union" in (old.kind, new.kind):
            yield from self._unions(path, old, new, called)
            return
        if old.kind != new.kind:
            yield _type_changed(path, old, new, called)
            return
        if new.kind in ("array", "map"):
            inner = f"{path}{'[]' if new.kind == 'array' else '{}'}"
            yield from self._types(inner, old.item, new.item, f"`{inner}`")
        elif new.name:
            if (old, new) in self._compared:
                return
            self._compared.add((old, new))
            yield from self._named(path, old, new)
        if _logical(old) != _logical(new):
            yield _type_changed(path, old, new, called)

    def _unions(self, path: str, was: AvroNode, now: AvroNode, called: str) -> Iterator[SchemaChange]:
        old, new = ({each.name or each.kind: each for each in side.branches} for side in (was, now))
        gone, come = [each for each in old if each not in new], [each for each in new if each not in old]
        # null alone is reported as nullability; one other branch on either side is a changed field type
        if gone == [] and come == ["null"]:
            yield SchemaChange("nullable", path, f"{called} may be null now")
        elif come == [] and gone == ["null"]:
            yield SchemaChange("not nullable", path, f"{called} may not be null any more")
        elif gone or come:
            yield _type_changed(path, was, now, called)
        elif list(old) != list(new):
            yield SchemaChange(
                "union order",
                path,
                f"the order of the types of {called} was {', '.join(old)} and is {', '.join(new)}",
            )
        for name in new:
            if name in old:
                yield from self._types(path, old[name], new[name], called)

    def _named(self, path: str, old: AvroNode, new: AvroNode) -> Iterator[SchemaChange]:
        called = f"{new.kind} `{new.name}`"
        if old.name != new.name:
            aliases = new.spec.get("aliases", ())
            same = old.name in aliases or old.name.rpartition(".")[2] in aliases
            alias = " (the old name is an alias)" if same else ""
            yield SchemaChange("renamed", path, f"{new.kind} `{old.name}` is now called `{new.name}`{alias}")
        yield from doc_changes(path, called, old.spec.get("doc"), new.spec.get("doc"))
        if new.kind == "fixed":
            if old.size != new.size:
                yield SchemaChange("size", path, f"{called} had {old.size} bytes and has {new.size}")
        elif new.kind == "enum":
            yield from _symbols(path, called, old.spec, new.spec)
        else:
            yield from self._fields(path, old, new, called)

    def _fields(self, path: str, old: AvroNode, new: AvroNode, called: str) -> Iterator[SchemaChange]:
        before = {each.name: each for each in old.fields}
        after = {each.name: each for each in new.fields}
        origin = _origins(before, after)
        kept = set(origin.values())
        for name, field in before.items():
            if name not in kept:
                here = field_path(path, name)
                yield SchemaChange(
                    "field removed", here, f"field `{here}` ({type_text(field.type)}) is removed"
                )
        for name, field in after.items():
            here = field_path(path, name)
            if name not in origin:
                default = (
                    f"default {as_json(field.spec['default'])}"
                    if "default" in field.spec
                    else "without a default"
                )
                yield SchemaChange(
                    "field added", here, f"field `{here}` ({type_text(field.type)}, {default}) is added"
                )
                continue
            was = before[origin[name]]
            if origin[name] != name:
                former = field_path(path, origin[name])
                yield SchemaChange(
                    "field renamed",
                    here,
                    f"field `{former}` is now called `{here}` (the old name is an alias)",
                )
            yield from self._types(here, was.type, field.type, f"field `{here}`")
            yield from _field_settings(here, f"field `{here}`", was.spec, field.spec)
        kept_before = [each for each in before if each in kept]
        if kept_before != [origin[each] for each in after if each in origin]:
            yield SchemaChange(
                "field order", path, f"the order of the fields of {called} changes: {', '.join(after)}"
            )


def _origins(before: Mapping[str, AvroField], after: Mapping[str, AvroField]) -> dict[str, str]:
    """Map each new field to the old one that it is, by its name or an alias."""
    origin: dict[str, str] = {}
    for name, field in after.items():
        known = [name, *(each for each in field.aliases if each not in after)]
        source = next((each for each in known if each in before and each not in origin.values()), None)
        if source is not None:
            origin[name] = source
    return origin


def _type_changed(path: str, was: AvroNode, now: AvroNode, called: str) -> SchemaChange:
    return SchemaChange("type changed", path, f"{called} was {type_text(was)} and is {type_text(now)}")


def type_text(node: AvroNode) -> str:
    """Return an Avro type in words."""
    if node.kind == "union":
        branches = [type_text(each) for each in node.inner if each.kind != "null"]
        nullable = "nullable " if len(branches) < len(node.inner) else ""
        return nullable + (" or ".join(branches) or "null")
    logical = _logical(node)
    if logical:
        more = ", ".join(str(node.spec[each]) for each in ("precision", "scale") if each in node.spec)
        return f"{logical[0][1]}({more})" if more else f"{logical[0][1]} ({node.kind})"
    if node.kind == "unknown":
        return f"`{node.name}`"
    if node.name:
        return f"{node.kind} `{node.name}`"
    return f"{node.kind} of {type_text(node.item)}" if node.kind in ("array", "map") else node.kind


def _logical(node: AvroNode) -> tuple[tuple[str, Any], ...]:
    if "logicalType" not in node.spec:
        return ()
    return tuple((key, node.spec[key]) for key in _LOGICAL if key in node.spec)


def _symbols(
    path: str, called: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    before, after = old["symbols"], new["symbols"]
    was, now = set(before), set(after)
    come, gone = [each for each in after if each not in was], [each for each in before if each not in now]
    if come:
        yield SchemaChange("symbols added", path, f"{called} has new symbols: {ticked(come)}")
    if gone:
        yield SchemaChange("symbols removed", path, f"{called} lost symbols: {ticked(gone)}")
    if not come and not gone and before != after:
        yield SchemaChange("symbol order", path, f"the order of the symbols of {called} changes")
    yield from doc_changes(path, called, old.get("default"), new.get("default"), "default")


def _field_settings(
    path: str, called: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    if "default" in new and "default" not in old:
        yield SchemaChange("default", path, f"{called} got the default {as_json(new['default'])}")
    elif "default" in old and "default" not in new:
        yield SchemaChange("default", path, f"{called} lost its default {as_json(old['default'])}")
    elif "default" in new and not same_json(old["default"], new["default"]):
        yield SchemaChange(
            "default",
            path,
            f"the default of {called} was {as_json(old['default'])} and is {as_json(new['default'])}",
        )
    yield from doc_changes(path, called, old.get("doc"), new.get("doc"))
    if set(old.get("aliases", ())) != set(new.get("aliases", ())):
        yield SchemaChange(
            "aliases", path, f"the aliases of {called} are now {ticked(new.get('aliases', ())) or 'none'}"
        )
    if old.get("order", "ascending") != new.get("order", "ascending"):
        yield SchemaChange("sort order", path, f"{called} now sorts {new.get('order', 'ascending')}")
