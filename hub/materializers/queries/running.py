"""[core] A running query and its answer: rows in display form, within limits of rows, bytes and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import OutputColumn
from hub.materializers.queries.sqlite_functions import LONGEST
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.columns import from_sql
from hub.record import Positions

MOST_ROWS = 10_000
MOST_BYTES = 16_000_000
NO_CUT = CommonSnapshot(None, why="no view is read")
# Events are read up to the present.
EVENTS = CommonSnapshot(None, why="events of topics are at no cut of views")
_SHOWN: Mapping[str, Callable[[Any], Any] | None] = {
    "timestamp": from_sql({"type": "long", "logicalType": "timestamp-millis"}),
    "date": from_sql({"type": "int", "logicalType": "date"}),
    "bytes": lambda value: bytes(value).hex(),
    "json": lambda value: orjson.loads(value) if isinstance(value, str | bytes) else value,
    "boolean": bool,
    "long": lambda value: whole_number(value),
    "double": float,
    "decimal": str,
}


@dataclass(frozen=True, slots=True)
class CoveredPositions:
    """Positions that the views of a query cover, and their common snapshot if they are at one."""

    positions: Positions
    cut: CommonSnapshot


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """Rows of an answer. ``more``: there are more than the limit, or than an answer may have bytes.
    ``catching_up``: those of the views that still read a backlog of their topics.
    """

    columns: tuple[OutputColumn, ...]
    rows: list[list[Any]]
    more: bool
    views: tuple[str, ...]
    positions: Positions
    cut: CommonSnapshot = NO_CUT
    catching_up: tuple[str, ...] = ()


@dataclass(slots=True)
class RunningQuery:
    """A running query: its time limit, and a way to stop it from another thread."""

    deadline: float
    cancelled: bool = False
    interrupt: Callable[[], None] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self.interrupt is not None:
                self.interrupt()

    @property
    def over(self) -> bool:
        return self.cancelled or time.monotonic() > self.deadline

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self.interrupt = interrupt
        try:
            if self.over:
                raise self.ended()
            yield
        finally:
            with self._lock:
                self.interrupt = None

    def ended(self) -> SqlError:
        if self.cancelled:
            return SqlError("the query was cancelled", code="HUB-1449")
        return SqlError(
            "the query took too long and was stopped",
            hint="ask for less (WHERE on a declared index, LIMIT), or allow more with timeout_ms",
            code="HUB-1472",
        )


TakeRows = Callable[
    [Iterable[Sequence[Any]], Sequence[OutputColumn], RunningQuery, int], tuple[list[list[Any]], bool]
]


def take_rows(
    rows: Iterable[Sequence[Any]],
    columns: Sequence[OutputColumn],
    running: RunningQuery,
    limit: int,
) -> tuple[list[list[Any]], bool]:
    """Return rows in display form, and whether there are more. Checks each row before it fetches the next."""
    converts = [_SHOWN.get(column.kind) for column in columns]
    taken: list[list[Any]] = []
    weight = 0
    for row in rows:
        if running.over:
            raise running.ended()
        weight += 16 * len(row) + sum(len(value) for value in row if isinstance(value, str | bytes))
        if weight > MOST_BYTES and not taken:
            raise _too_large("row")
        if len(taken) == limit or weight > MOST_BYTES:
            return taken, True
        taken.append(
            [
                value if value is None or convert is None else convert(value)
                for value, convert in zip(row, converts, strict=True)
            ]
        )
    return taken, False


def _too_large(what: str) -> SqlError:
    return SqlError(
        f"a {what} of the answer is larger than {MOST_BYTES} bytes",
        hint="take part of it: fewer columns, left(…, n)",
        code="HUB-1448",
    )


def whole_number(value: Any) -> int:
    """Return a whole number of a row. Raises SqlError for one beyond 64 bits."""
    if isinstance(value, float):  # SQLite continues in floating point after an overflow
        raise SqlError("a whole number of the answer does not fit 64 bits", code="HUB-1445")
    return int(value)


def refusal(running: RunningQuery, message: str) -> SqlError:
    if running.over or "interrupted" in message:
        return running.ended()
    if "too big" in message:
        return _too_large("value")
    if "a row of" in message:
        return _too_large("row")
    if "user-defined function" in message:
        return SqlError("the search text is too long", hint=LONGEST, code="HUB-1448")
    return SqlError(
        f"the database refuses: {message[:300]}", hint="the message is the database's own", code="HUB-1450"
    )
