"""[core] Records as rows of a table: Arrow columns, built for many records at once.

A record whose value does not fit its columns is set aside with the reason; the others become rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow

from hub.lake.columns import META, LakeColumn
from hub.record import Record

Layout = Mapping[str, LakeColumn]
"""Columns of one writer's schema by the name of the table's column."""

_LEAST_MS = -62_135_596_800_000  # year 1
_MOST_MS = 253_402_300_799_999  # year 9999
UNFIT = (
    pyarrow.ArrowInvalid,
    pyarrow.ArrowTypeError,
    pyarrow.ArrowNotImplementedError,
    *(TypeError, ValueError, ArithmeticError, AttributeError, KeyError),
)


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record with its value. ``value`` None: a tombstone. ``layout``: of the writer's schema."""

    record: Record
    schema_id: int | None
    value: Mapping[str, Any] | None
    layout: Layout


def rows_of(
    decoded: Sequence[DecodedRecord], schema: pyarrow.Schema
) -> tuple[pyarrow.Table, list[tuple[Record, str]]]:
    """Return the rows, and the records that do not fit with the reasons. ``schema``: of the table."""
    try:
        return _table(decoded, schema), []
    except UNFIT:
        pass
    good, bad = [], []
    for each in decoded:
        try:
            _table([each], schema)
        except UNFIT as error:
            bad.append((each.record, f"it does not fit its schema id {each.schema_id}: {str(error)[:300]}"))
        else:
            good.append(each)
    return _table(good, schema), bad


def _table(decoded: Sequence[DecodedRecord], schema: pyarrow.Schema) -> pyarrow.Table:
    meta = {each.name for each in META}
    arrays = []
    for field in schema:
        values = (
            _meta(field.name, decoded)
            if field.name in meta
            else [_cell(each, field.name) for each in decoded]
        )
        try:
            arrays.append(pyarrow.array(values, field.type))
        except UNFIT as error:
            raise ValueError(f'column "{field.name}": {error}') from None
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _cell(decoded: DecodedRecord, name: str) -> Any:
    column = decoded.layout.get(name)
    if column is None or decoded.value is None:
        return None
    value = decoded.value.get(column.field)
    return value if value is None or column.convert is None else column.convert(value)


def _meta(name: str, decoded: Sequence[DecodedRecord]) -> list[Any]:
    match name:
        case "_partition":
            return [each.record.partition for each in decoded]
        case "_offset":
            return [each.record.offset for each in decoded]
        case "_timestamp":
            return [micros(each.record.timestamp_ms) for each in decoded]
        case "_key":
            return [each.record.key for each in decoded]
        case "_schema_id":
            return [each.schema_id for each in decoded]
    return [[{"key": key, "value": value} for key, value in each.record.headers] for each in decoded]


def micros(timestamp_ms: int) -> int | None:
    """Return a record's timestamp in microseconds; None outside of the years 1 to 9999, which no engine
    reads.
    """
    return timestamp_ms * 1_000 if _LEAST_MS <= timestamp_ms <= _MOST_MS else None
