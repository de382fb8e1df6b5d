"""[edge] pyarrow: call a view's Python function for a batch, in Spark's Python workers.

When it fails, the batch is processed row by row, so that the error names the values. Imports little, because
each worker imports it at its start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# Marks a failure's facts, one line of JSON. Spark returns them within another text.
FAILED = "HUB-TRANSFORM"


@dataclass(frozen=True)
class UdfCall:
    """A function and the way to call it. ``kind``: the Arrow type that it must return."""

    function: Callable[..., Any]
    name: str
    file: str
    kind: pa.DataType
    by_value: bool

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """Return the function's value of each row. Raises RuntimeError with ``FAILED`` in its message,
        whatever the function raised."""
        try:
            return self._computed(columns)
        except Exception as error:  # noqa: BLE001 - whatever the author's code raises
            line, said = _line(error, self.file), f"{type(error).__name__}: {error}"
            facts = {
                "file": self.file,
                "line": line,
                "function": self.name,
                "error": said[:500],
                "values": self._culprit(columns),
            }
        raise RuntimeError(f"{FAILED} {json.dumps(facts)}")

    def _computed(self, columns: Sequence[pa.Array]) -> pa.Array:
        if self.by_value:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array([self.function(*row) for row in rows], self.kind)
        made = self.function(*columns)
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if not isinstance(made, pa.Array):
            raise TypeError(f"it gave {type(made).__name__}, must give pa.Array")
        if len(made) != len(columns[0]):
            raise ValueError(f"it gave {len(made)} values of {len(columns[0])} rows")
        return made if made.type == self.kind else made.cast(self.kind)

    def _culprit(self, columns: Sequence[pa.Array]) -> str | None:
        """Return the values of the first row that fails by itself."""
        for row in range(len(columns[0])):
            one = [column.slice(row, 1) for column in columns]
            try:
                self._computed(one)
            except Exception:  # noqa: BLE001
                return repr(tuple(column[0].as_py() for column in one))[:500]
        return None


def _line(error: BaseException, file: str) -> int | None:
    """Return the line of the author's file that is last in an error's traceback."""
    found, at = None, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            found = at.tb_lineno
        at = at.tb_next
    return found
