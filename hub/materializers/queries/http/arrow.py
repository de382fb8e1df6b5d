"""[edge] pyarrow: rows of a query as a stream of record batches (Arrow IPC), written by the query's thread.

Rows go to a temporary file (in memory up to 8 MB), so the query gives back its slot however slowly the client
reads. The types are those of the columns; decimals and nested values are text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import OutputColumn
from hub.materializers.queries.running import RunningQuery, whole_number

MOST_ARROW_BYTES = 1 << 30
_ROWS_A_BATCH = 32_768
_IN_MEMORY = 8 << 20
_CHUNK = 1 << 18
TYPES: Mapping[str, pa.DataType] = {
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "date": pa.date32(),
    "bytes": pa.binary(),
}


def _longs(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if each is None else whole_number(each) for each in values], pa.int64())


def _texts(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if each is None else str(each) for each in values], pa.string())


_ARRAYS: Mapping[str, Callable[[Sequence[Any]], pa.Array]] = {
    "long": _longs,
    "double": lambda values: pa.array(
        [each if each is None or isinstance(each, float) else float(each) for each in values], pa.float64()
    ),
    "boolean": lambda values: pa.array([None if each is None else bool(each) for each in values], pa.bool_()),
    "timestamp": lambda values: _longs(values).cast(TYPES["timestamp"]),
    "date": lambda values: _longs(values).cast(pa.int32()).cast(TYPES["date"]),
    "bytes": lambda values: pa.array(values, pa.binary()),
}


def schema_of(columns: Sequence[OutputColumn]) -> pa.Schema:
    """Return the Arrow schema of an answer; each field's metadata has the hub's name of its type."""
    return pa.schema(
        [
            pa.field(each.name, TYPES.get(each.kind, pa.string()), metadata={"hub.type": each.kind})
            for each in columns
        ]
    )


@dataclass(slots=True)
class ArrowStream:
    """Rows of one query as Arrow's IPC stream. ``take`` is for QueryExecutor.run."""

    size: int = 0
    _file: Any = field(
        default_factory=lambda: tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (closed by ``close``)
    )

    def take(
        self,
        rows: Iterable[Sequence[Any]],
        columns: Sequence[OutputColumn],
        running: RunningQuery,
        limit: int,
    ) -> tuple[list[list[Any]], bool]:
        """Write the rows; return none of them, and whether there are more. Raises SqlError."""
        schema = schema_of(columns)
        arrays = [_ARRAYS.get(each.kind, _texts) for each in columns]
        waiting, left = iter(rows), limit
        with pa.ipc.new_stream(self._file, schema) as writer:
            while block := list(islice(waiting, min(_ROWS_A_BATCH, left))):
                if running.over:
                    raise running.ended()
                left -= len(block)
                cells = [
                    array(values) for array, values in zip(arrays, zip(*block, strict=True), strict=True)
                ]
                writer.write_batch(pa.record_batch(cells, schema=schema))
                if self._file.tell() > MOST_ARROW_BYTES:
                    raise SqlError(
                        f"the answer has more than {MOST_ARROW_BYTES >> 20} MB",
                        hint="ask for less: WHERE, fewer columns, LIMIT",
                        code="HUB-1448",
                    )
                if left == 0:
                    break
        self.size = self._file.tell()
        return [], next(waiting, None) is not None

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the stream, and free them behind."""
        try:
            self._file.seek(0)
            while data := self._file.read(_CHUNK):
                yield data
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()
