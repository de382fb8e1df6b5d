"""[core] Differences between two Protobuf files:
messages by name, fields by number, enum values by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hub.schema_registry.folder.changes import SchemaChange, doc_changes, field_path, ticked


def protobuf_changes(old: Any, new: Any) -> Iterator[SchemaChange]:
    """Yield the changes from one file's descriptor to another's."""
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
            yield SchemaChange(f"imports {word}", "", f"imports are {word}: {ticked(sorted(names))}")
    yield from _messages("", old.message_type, new.message_type)
    yield from _enums("", old.enum_type, new.enum_type)


def _messages(path: str, old: Any, new: Any) -> Iterator[SchemaChange]:
    before, after = ({each.name: each for each in side} for side in (old, new))
    for name in before:
        if name not in after and not before[name].options.map_entry:
            yield SchemaChange(
                "message removed", field_path(path, name), f"message `{field_path(path, name)}` is removed"
            )
    for name, message in after.items():
        here = field_path(path, name)
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
            here = field_path(path, field.name)
            held = any(each.start <= number < each.end for each in new.reserved_range)
            kept = "its number is reserved" if held else f"reserve its number: reserved {number};"
            yield SchemaChange(
                "field removed",
                here,
                f"field `{here}` ({_proto_type(field, old)}, number {number}) is removed; {kept}",
            )
    for number, field in after.items():
        here = field_path(path, field.name)
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
                f"field `{field_path(path, was.name)}` (number {number}) is now called `{here}`",
            )
        types = _proto_type(was, old), _proto_type(field, new)
        if types[0] != types[1]:
            yield SchemaChange("type changed", here, f"field `{here}` was {types[0]} and is {types[1]}")
        oneofs = _oneof(was, old), _oneof(field, new)
        if oneofs[0] != oneofs[1]:
            memberships = [f"in the oneof `{each}`" if each else "in no oneof" for each in oneofs]
            yield SchemaChange("oneof", here, f"field `{here}` was {memberships[0]} and is {memberships[1]}")
        yield from doc_changes(
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
            yield SchemaChange(
                "enum removed", field_path(path, name), f"enum `{field_path(path, name)}` is removed"
            )
    for name, enum in after.items():
        here = field_path(path, name)
        if name not in before:
            yield SchemaChange("enum added", here, f"enum `{here}` is added")
            continue
        was = {each.number: each.name for each in before[name].value}
        now = {each.number: each.name for each in enum.value}
        come = [f"{now[each]} = {each}" for each in now if each not in was]
        gone = [f"{was[each]} = {each}" for each in was if each not in now]
        if come:
            yield SchemaChange("symbols added", here, f"enum `{here}` has new values: {ticked(come)}")
        if gone:
            yield SchemaChange("symbols removed", here, f"enum `{here}` lost values: {ticked(gone)}")
        for number, name_then in was.items():
            if now.get(number, name_then) != name_then:
                message = f"value {number} of enum `{here}` was `{name_then}` and is `{now[number]}`"
                yield SchemaChange("renamed", here, message)
