"""[edge] pyarrow and pandas, if the application has them: answers as data frames."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import CallerError
from hub.record import Positions


@dataclass(frozen=True, slots=True)
class ArrowResult:
    """Answer of a SQL query as Arrow's IPC stream. ``truncated``: there were more rows than the limit."""

    data: bytes
    truncated: bool
    positions: Positions

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``. Raises CallerError without pyarrow."""
        return _pyarrow().ipc.open_stream(io.BytesIO(self.data)).read_all()

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``. Raises CallerError without pyarrow."""
        return self.to_arrow().to_pandas()


def table_of(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Any:
    """Return rows of a JSON answer as a ``pyarrow.Table``. ``columns``: name and the hub's type of each."""
    pa = _pyarrow()
    types = {
        "long": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "date": pa.date32(),
        "bytes": pa.binary(),
    }
    arrays, fields = [], []
    for number, (name, kind) in enumerate(columns):
        convert = _FROM_JSON.get(kind, str)
        cells = [None if row[number] is None else convert(row[number]) for row in rows]
        fields.append(pa.field(name, types.get(kind, pa.string())))
        arrays.append(pa.array(cells, fields[-1].type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {
    "long": int,
    "double": float,
    "boolean": bool,
    "timestamp": lambda text: dt.datetime.fromisoformat(text),
    "date": lambda text: dt.date.fromisoformat(text),
    "bytes": bytes.fromhex,
    "json": lambda value: orjson.dumps(value).decode(),
}


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        raise CallerError("data frames need the package pyarrow", hint="pip install pyarrow") from None
    assert pyarrow.ipc
    return pa
