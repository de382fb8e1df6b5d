"""[core] Answers of the hub as typed values: pages of rows, results of queries, positions; data frames of
them with pyarrow and pandas."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.client.errors import Refused, Unreachable, error_of
from hub.client.requests import CATCHING_UP, POSITION, Reply, Row, T
from hub.errors import CallerError, HubError
from hub.record import Positions


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a view; ``next`` begins the next page, None: there is none.
    ``positions``: source events included. ``catching_up``: the view's name while it reads a backlog of its
    topics, so that rows of later events are missing.
    """

    rows: list[Row]
    next: str | None
    positions: Positions
    catching_up: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """A position at the other side of a mirror. ``precision``: exact, next, bounded or unknown; ``offset`` is
    None when it is unknown, and ``why`` has the reason. ``read_again``: records that a reader there gets
    again, for bounded.
    """

    topic: str
    partition: int
    offset: int | None
    precision: str
    read_again: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer; ``type`` is SQL's name."""

    name: str
    type: str


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


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a SQL query. ``truncated``: there were more rows than the limit. ``cut``: the snapshot group
    of the views (``cut`` in their files) that were read, all exactly at ``positions``; None: their positions
    may differ. ``catching_up``: views that read a backlog of their topics, so that rows of later events are
    missing.
    """

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool
    positions: Positions
    cut: str | None = None
    catching_up: tuple[str, ...] = ()

    def dicts(self) -> list[Row]:
        """Return each row as a mapping by column name."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``. ``Hub.query_arrow`` is for more than 10,000 rows."""
        return table_of([(each.name, each.type) for each in self.columns], self.rows)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``, by pyarrow."""
        return self.to_arrow().to_pandas()


def error_without_lines(reply: Reply, written: Positions) -> HubError:
    """Return the error for a reply that lacks a result for each event."""
    if reply.status < 300:
        return Unreachable(
            "the answer does not say what became of each event",
            hint="is a proxy in between? the same idempotency_key again writes nothing twice",
        )
    error = error_of(reply.status, reply.body)
    if error.hint is None and reply.status < 400:
        error.hint = f"to {reply.headers.get('location', 'another address')}: give the client the hub's own"
    if isinstance(error, Refused):
        error.written = written
    return error


def read_reply(reply: Reply, read: Callable[[Any], T]) -> T:
    """Parse the body of a reply with ``read``. Raises Unreachable for a body that is not the hub's."""
    try:
        return read(orjson.loads(reply.body))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreachable("the server there is not a hub", hint="is a proxy in between?") from None


def result_of(body: Any) -> Result:
    columns = tuple(Column(each["name"], each["type"]) for each in body["columns"])
    rows = [tuple(row[column.name] for column in columns) for row in body["rows"]]
    group = (body.get("cut") or {}).get("name")
    behind = tuple(body.get("catching_up", ()))
    return Result(columns, rows, bool(body["more"]), Positions.parse(body["positions"]), group, behind)


def arrow_of(reply: Reply) -> ArrowResult:
    """Return the answer of a query in Arrow's form. Raises Unreachable for one that is not the hub's."""
    if "arrow" not in reply.headers.get("content-type", ""):
        raise Unreachable("the server there is not a hub", hint="is a proxy in between?")
    return ArrowResult(reply.body, reply.headers.get("hub-more") == "true", position_of(reply))


def page_of(reply: Reply) -> Page:
    """Return a page of a view's rows. Raises Unreachable for a body that is not the hub's."""
    behind = tuple(filter(None, reply.headers.get(CATCHING_UP, "").split(",")))
    return read_reply(reply, lambda body: Page([*body["rows"]], body["next"], position_of(reply), behind))


def translated_of(body: Any) -> TranslatedOffset:
    return TranslatedOffset(
        body["topic"],
        body["partition"],
        body["translated"],
        body["precision"],
        body.get("read_again", 0),
        body.get("why", ""),
    )


def position_of(reply: Reply) -> Positions:
    return Positions.parse(reply.headers.get(POSITION.lower(), ""))


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
