"""[core] Warnings about changes that compatibility levels ignore; the verdict is unaffected.

A namespace moved, a timestamp's unit or a decimal's scale changed, a default dropped or changed, an enum
symbol removed, a field renamed without an alias: old data can still be read, but means something else, or
consumers' code breaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hub.errors import nearest
from hub.schema_registry.describe.view import SchemaField, SchemaType, SchemaView

_MOST_ALIKE = 200  # with more fields of one type, names are not compared
_SAME_ON_THE_WIRE = {"timestamp", "date", "time", "decimal", "uuid"}


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning. ``rule`` is a stable name, ``path`` the field's dotted path or the type's name."""

    rule: str
    path: str
    what: str
    fix: str
    severity: str = "warn"

    def __str__(self) -> str:
        return f"{self.rule} at {self.path}: {self.what}; fix: {self.fix}"


def warnings(old: SchemaView, new: SchemaView) -> list[Warned]:
    """Return the changes from the old schema to the new that no compatibility level reports; [] for none."""
    found: list[Warned] = []
    for before, after in _paired_types(old, new):
        found += _namespace(before, after)
        found += _symbols(before, after)
        found += _fields(before, after)
    return found


def _paired_types(old: SchemaView, new: SchemaView) -> Iterator[tuple[SchemaType, SchemaType]]:
    """Pair types by full name, by alias, by name without namespace, or as the only root of each schema."""
    taken: set[str] = set()
    added = [each for each in new.own_types if each.name not in old.types]
    for before in old.own_types:
        same = new.types.get(before.name)
        renamed = [
            each
            for each in (added if same is None else ())
            if each.kind == before.kind
            and (before.name in each.aliases or each.simple_name == before.simple_name)
        ]
        if (
            same is None
            and not renamed
            and len(old.roots) == len(new.roots) == 1
            and before.name == old.roots[0]
        ):
            renamed = [new.types[new.roots[0]]]
        after = same or next((each for each in renamed if each.name not in taken), None)
        if after is not None and after.own:
            taken.add(after.name)
            yield before, after


def _namespace(before: SchemaType, after: SchemaType) -> Iterator[Warned]:
    moved = before.namespace != after.namespace and before.simple_name == after.simple_name
    if moved and before.name not in after.aliases:
        yield Warned(
            "NAMESPACE_CHANGED",
            after.name,
            f'{after.kind} "{before.name}" is now "{after.name}": generated classes and '
            "subjects by record move along",
            f'keep the namespace "{before.namespace}"',
        )


def _symbols(before: SchemaType, after: SchemaType) -> Iterator[Warned]:
    kept = frozenset(after.symbols)
    for symbol in before.symbols:
        if before.kind == after.kind == "enum" and symbol not in kept:
            yield Warned(
                "ENUM_SYMBOL_REMOVED",
                after.name,
                f'symbol "{symbol}" of enum "{before.name}" is gone: stored events still have it',
                f'keep "{symbol}", or leave it for another schema',
            )


def _fields(before: SchemaType, after: SchemaType) -> Iterator[Warned]:
    old = {field.name: field for field in before.fields}
    new = {field.name: field for field in after.fields}
    by_alias = {alias: field for field in after.fields for alias in field.aliases}
    for name, field in old.items():
        now = new.get(name) or by_alias.get(name)
        if now is not None:
            yield from _logical(field, now)
            yield from _default(field, now)
    gone = [
        (at, field)
        for at, field in enumerate(before.fields)
        if field.name not in new and field.name not in by_alias
    ]
    added = {
        field.name: field
        for field in after.fields
        if field.name not in old and old.keys().isdisjoint(field.aliases)
    }
    for at, field in gone:
        there = after.fields[at] if len(before.fields) == len(after.fields) else None
        now = _renamed(field, there, added)
        if now is not None:
            del added[now.name]
            yield Warned(
                "FIELD_RENAMED",
                now.path,
                f'field "{field.name}" seems to be "{now.name}" now, without an alias: old '
                "values are not found there",
                f'keep the name "{field.name}"'
                if now.number is not None
                else f'add "aliases": ["{field.name}"], or keep the name',
            )


def _renamed(
    gone: SchemaField, there: SchemaField | None, added: Mapping[str, SchemaField]
) -> SchemaField | None:
    """Return the new field that the old one seems to have become; None when there is none.

    Matches the same number, or the same type and place (``there``), or a similar name.
    """
    if gone.number is not None:
        return next((each for each in added.values() if each.number == gone.number), None)
    alike = {
        name: each for name, each in added.items() if (each.type, each.shape.of) == (gone.type, gone.shape.of)
    }
    if there is not None and there.name in alike:
        return there
    guess = nearest(gone.name, alike) if len(alike) <= _MOST_ALIKE else None
    return None if guess is None else alike[guess]


def _logical(field: SchemaField, now: SchemaField) -> Iterator[Warned]:
    before, after = field.shape, now.shape
    lost = before.type in _SAME_ON_THE_WIRE or after.type in _SAME_ON_THE_WIRE
    if before.logical != after.logical and (lost or before.type == after.type):
        was, become = before.logical or before.type, after.logical or after.type
        yield Warned(
            "LOGICAL_TYPE_CHANGED",
            now.path,
            f"was {was} and is {become}: the same stored number or text gets another meaning",
            f"keep {was}, or add a new field as {become}",
        )


def _default(field: SchemaField, now: SchemaField) -> Iterator[Warned]:
    if field.default is None or field.default == now.default:
        return
    if now.default is None:
        yield Warned(
            "DEFAULT_DROPPED",
            now.path,
            f"the default {field.default[:80]} is gone: a later version could no longer "
            "add or remove the field",
            "keep the default",
        )
    else:
        yield Warned(
            "DEFAULT_CHANGED",
            now.path,
            f"the default was {field.default[:80]} and is {now.default[:80]}: events without the "
            "field read differently",
            "keep the default",
        )
