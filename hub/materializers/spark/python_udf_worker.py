"""[edge] pyarrow: call a view's Python function for a batch, in Spark's Python workers.

When it fails, the batch is processed row by row, so that the error names the values. Imports little, because
each worker imports it at its start.

A *keyed class* is called for the sorted list of a key's events::

    events, oldest first ─▶ timers due before the event ─▶ on_timer … ─▶ on_event ─▶ … ─▶ row

Its fold depends on the events alone. A late event is put in its place and the key is folded again, so the row
does not depend on the order of arrival. Time is the first field of an event. A timer is called before the
first event of its key that is not earlier, so a key without later events keeps its timers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hub.sandbox.cpu_limit import cpu_limit
from hub.sandbox.refusals import TimeIsUp, rule_of
from hub.sandbox.rules import Rule
from hub.sandbox.user_code import UserCode, line_in

# Marks a failure's facts, one line of JSON. Spark returns them within another text.
FAILED = "HUB-TRANSFORM"


@dataclass(frozen=True)
class FunctionOfCode:
    """A function or keyed class of a view's file, by its name. The file runs in the process that calls it."""

    code: UserCode
    name: str
    keyed: bool

    def loaded(self) -> Callable[..., Any]:
        """Return the function. Raises whatever the file raises when it is run, NotSandboxed."""
        found: Callable[..., Any] = self.code.names()[self.name]
        return KeyedFold(found) if self.keyed else found


@dataclass(frozen=True)
class UdfCall:
    """A function and the way to call it. ``kind``: the Arrow type that it must return; ``cpu_s``: processor
    time of a call, 0 for no limit."""

    function: Callable[..., Any] | FunctionOfCode
    name: str
    file: str
    kind: pa.DataType
    by_value: bool
    cpu_s: float = 0.0

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """Return the function's value of each row. Raises RuntimeError with ``FAILED`` in its message,
        whatever the function raised."""
        try:
            with cpu_limit(self.cpu_s):
                return self._computed(columns)
        except (Exception, TimeIsUp) as error:  # noqa: BLE001 - whatever the author's code raises
            reason = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            rule = self._rule(error)
            facts = {
                "file": self.file,
                "line": line_in(error, self.file),
                "function": self.name,
                "error": reason[:500],
                "rule": rule or "",
                "values": None if rule in (Rule.time, Rule.memory) else self._culprit(columns),
            }
        raise RuntimeError(f"{FAILED} {json.dumps(facts)}")

    def _rule(self, error: BaseException) -> Rule | None:
        """Return the rule of the sandbox that the call broke. The time of a call is bounded without one."""
        sandboxed = isinstance(self.function, FunctionOfCode) and self.function.code.sandboxed
        return rule_of(error) if sandboxed or isinstance(error, TimeIsUp) else None

    def _computed(self, columns: Sequence[pa.Array]) -> pa.Array:
        function = self.function
        if isinstance(function, FunctionOfCode):
            function = function.loaded()
        if self.by_value:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array([function(*row) for row in rows], self.kind)
        made = function(*columns)
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


# Most calls of on_timer in one fold of a key.
MOST_CALLS = 100_000


@dataclass
class Timers:
    """Timers of one key, by name: `set` replaces the timer of that name. ``after``: time of the timer that is
    being called."""

    at: dict[str, Any] = field(default_factory=dict)
    after: Any = None

    def set(self, name: str, at: Any) -> None:
        """Set a timer. Raises ValueError from ``on_timer`` when it would be due at once."""
        if self.after is not None and at <= self.after:
            raise ValueError(f'timer "{name}" must be later than {self.after}, the timer that sets it')
        self.at[name] = at

    def cancel(self, name: str) -> None:
        """Remove a timer. Does nothing if there is none of that name."""
        self.at.pop(name, None)

    def take(self, until: Any) -> tuple[str, Any] | None:
        """Remove and return the earliest timer (by time, then name) that is due at ``until``."""
        due = min(((at, name) for name, at in self.at.items() if at <= until), default=None)
        if due is None:
            return None
        at, name = due
        del self.at[name]
        return name, at


@dataclass(frozen=True)
class KeyedFold:
    """A keyed class as a function of the list of a key's events, sorted by their first field."""

    author: Callable[[], Any]

    def __call__(self, events: Sequence[dict[str, Any] | None] | None) -> Any:
        """Return the row of the key's state; None means that the key has no row.

        An error of the author's code gets a note that names the event.
        """
        tracker, timers, calls = self.author(), Timers(), 0
        for event in events or ():
            if event is None:
                continue
            try:
                calls += _call_due(tracker, timers, next(iter(event.values()), None), MOST_CALLS - calls)
                tracker.on_event(event, timers)
            except Exception as error:
                error.add_note(f"at event {event!r}"[:300])
                raise
        return tracker.row()


def _call_due(tracker: Any, timers: Timers, now: Any, most: int) -> int:
    """Call the timers that are due at ``now``. Return their number. Raises ValueError at ``most`` calls."""
    calls = 0
    while now is not None and (due := timers.take(now)) is not None:
        if calls == most:
            raise ValueError(f"its timers were called {MOST_CALLS} times: set them further apart")
        calls += 1
        timers.after = due[1]
        tracker.on_timer(*due, timers)
        timers.after = None
    return calls
