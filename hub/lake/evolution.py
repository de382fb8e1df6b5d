"""[core] Changes that bring the schema of a table to the columns of a newer schema, by field ids.

A column keeps its id when it is renamed (by an alias) or widened, so files that were written before stay
valid. A field that a newer schema lacks keeps its column. A type that Iceberg cannot widen retires the
column: it gets the name ``amount__int``, and a new column takes its former name. No value is lost, and the
writing continues.

``next_changes`` returns renames and widenings first, without additions; call it again with the new schema
until it returns none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from hub.lake.columns import META, LakeColumn, iceberg_type

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a table's schema. ``path``: the column as it is named before. ``name``: its new name."""

    kind: Literal["add", "widen", "rename"]
    path: Path
    name: str = ""
    type: IcebergType | None = None
    doc: str | None = None


def next_changes(fields: Sequence[NestedField], wanted: Sequence[LakeColumn]) -> list[ColumnChange]:
    """Return the next changes of a table with these fields; [] when it has all columns."""
    own = {each.name for each in META}
    column_changes = list(_of_struct([each for each in fields if each.name not in own], wanted, ()))
    first = [each for each in column_changes if each.kind != "add"]
    return first or column_changes


def fits(field: NestedField, column: LakeColumn) -> bool:
    """Return True if values of a column can be written into a field of the table as it is."""
    return _of_type(field.field_type, column, ()) == []


def is_retired(name: str, names: Iterable[str]) -> bool:
    """Return True if a column of this name holds former values of another column."""
    return any(name.startswith(f"{each}__") for each in names)


def _of_struct(
    fields: Sequence[NestedField], wanted: Sequence[LakeColumn], path: Path
) -> Iterable[ColumnChange]:
    known = {each.name: each for each in fields}
    names = {each.name for each in wanted}
    for column in wanted:
        field = known.get(column.name)
        if field is None:
            former = next((each for each in column.aliases if each in known and each not in names), None)
            if former is not None:
                yield ColumnChange("rename", (*path, former), column.name)
                continue
            yield ColumnChange("add", (*path, column.name), type=iceberg_type(column), doc=column.doc)
            continue
        inner = _of_type(field.field_type, column, (*path, field.name))
        if inner is None:
            yield ColumnChange("rename", (*path, field.name), _retired(field, known))
        else:
            yield from inner


def _of_type(have: IcebergType, column: LakeColumn, path: Path) -> list[ColumnChange] | None:
    """Return the changes within one column; None if its values cannot be in a column of this type."""
    if column.form == "record":
        return list(_of_struct(have.fields, column.inner, path)) if isinstance(have, StructType) else None
    if column.form == "list":
        of = have.element_type if isinstance(have, ListType) else None
        return None if of is None else _of_type(of, column.inner[0], (*path, "element"))
    if column.form == "map":
        of = have.value_type if isinstance(have, MapType) else None
        return None if of is None else _of_type(of, column.inner[0], (*path, "value"))
    if not isinstance(have, PrimitiveType):
        return None
    if have == column.scalar or widens(column.scalar, have):
        return []
    return [ColumnChange("widen", path, type=column.scalar)] if widens(have, column.scalar) else None


def widens(narrow: PrimitiveType, wide: PrimitiveType) -> bool:
    """Return True if Iceberg lets a column of the one type become the other (specification, "Schema
    Evolution").
    """
    if isinstance(narrow, IntegerType) and isinstance(wide, LongType):
        return True
    if isinstance(narrow, FloatType) and isinstance(wide, DoubleType):
        return True
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    return False


def _retired(field: NestedField, known: Iterable[str]) -> str:
    """Return a free name for a column whose name gets another type, such as ``amount__int``."""
    kind = str(field.field_type).partition("<")[0].partition("(")[0]
    taken, name, number = set(known), f"{field.name}__{kind}", 2
    while name in taken:
        name, number = f"{field.name}__{kind}{number}", number + 1
    return name
