"""[edge] pyarrow: stored rows as Arrow columns and back, for the columnar stores.

Times are ``timestamp(ms)`` and dates ``date32``, so that analysts get time types; both hold every number that
Avro can send. Nested values stay JSON text: their shape changes with the writers' schemas, a struct column
would have to be rewritten each time, and DuckDB and Spark read JSON text with one function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow

from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.store import KeptRow
from hub.materializers.types.avro_types import AvroType

META = ("_version", "_partition", "_offset", "_sources", "_deleted", "_applied_at_ms")

_TYPES: Mapping[str, pyarrow.DataType] = {
    "int": pyarrow.int64(),
    "long": pyarrow.int64(),
    "float": pyarrow.float64(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "bytes": pyarrow.binary(),
    "timestamp-millis": pyarrow.timestamp("ms"),
    "timestamp-micros": pyarrow.timestamp("ms"),
    "local-timestamp-millis": pyarrow.timestamp("ms"),
    "date": pyarrow.date32(),
}
_META_TYPES = (
    pyarrow.int64(),
    pyarrow.int32(),
    pyarrow.int64(),
    pyarrow.string(),
    pyarrow.bool_(),
    pyarrow.int64(),
)


class DoesNotFit(Exception):
    """A value does not fit its column's type; the message names the column."""


def schema_of(types: Mapping[str, AvroType]) -> pyarrow.Schema:
    """Return the Arrow schema: key, the view's columns, then META."""
    columns = [(name, _TYPES.get(plain_type(kind), pyarrow.string())) for name, kind in types.items()]
    return pyarrow.schema([("key", pyarrow.string()), *columns, *zip(META, _META_TYPES, strict=True)])


def table_of(schema: pyarrow.Schema, rows: Sequence[Sequence[Any]]) -> pyarrow.Table:
    """Return rows, with values in the order of ``schema``, as a table. Raises DoesNotFit."""
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        try:
            arrays.append(pyarrow.array(values, field.type))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, TypeError) as error:
            raise DoesNotFit(f'column "{field.name}": {error}') from None
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def stored_rows(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[KeptRow]:
    """Return the rows of batches with the columns key, _version and the stored ones, as
    ``StoreSnapshot.rows`` yields them.
    """
    return chain.from_iterable(map(_rows_of, batches))


def _rows_of(batch: pyarrow.RecordBatch) -> Iterator[KeptRow]:
    keys, versions, *columns = (_plain(column) for column in batch.columns)
    values: Iterable[Sequence[Any]] = zip(*columns, strict=True)
    return zip(keys, versions, values, strict=True)


def _plain(column: pyarrow.Array) -> list[Any]:
    if pyarrow.types.is_timestamp(column.type):
        # DuckDB returns microseconds for times written as milliseconds.
        column = column.cast(pyarrow.timestamp("ms")).cast(pyarrow.int64())
    elif pyarrow.types.is_date32(column.type):
        column = column.cast(pyarrow.int32())
    values: list[Any] = column.to_pylist()
    return values
