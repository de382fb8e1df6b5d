"""[shell] Pushes as spans: a sampled row that a subscriber received, linked to the span that applied it.

The applying span is known a moment later, when the view's progress reaches the store with it
(hub.materializers.applying.apply_traces). A push is therefore noted, at most ``PER_S`` a second and view, and
becomes a span with its original times once the store has the link. A push without one after ``PATIENCE_S``
was not traced.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from hub.runtime import repeating
from hub.tracing import Spans, Trace, parse

PER_S = 4.0
MOST_WAITING = 32
MOST_VIEWS = 1_000
PATIENCE_S = 30.0
STEP_S = 1.0


class TracedRow(Protocol):
    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


class Push(NamedTuple):
    """A push of the row at this place in the changelog to a subscriber, with its start and end."""

    partition: int
    offset: int
    began_ns: int
    ended_ns: int


@dataclass
class PushTraces:
    """Recorder of pushes as spans. ``records``: returns the store's records by key, among them
    ``trace:<view>``."""

    spans: Spans
    records: Callable[[], Mapping[str, Mapping[str, Any]]]
    now_ns: Callable[[], int] = time.time_ns
    waiting: dict[str, deque[Push]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[PushTraces]:
        with repeating(
            self.step, name="push-traces", pause_s=lambda _: STEP_S, failed="pushes were not traced"
        ):
            yield self

    def sent(self, view: str, row: TracedRow, began_ns: int) -> None:
        """Note that a subscriber received a row. Called for each row: costs a microsecond."""
        now_ns = self.now_ns()
        with self.lock:
            pushes = self.waiting.get(view)
            if pushes is None:
                if len(self.waiting) >= MOST_VIEWS:
                    return
                pushes = self.waiting[view] = deque(maxlen=MOST_WAITING)
            if (
                not pushes or abs(now_ns - pushes[-1].ended_ns) >= 1e9 / PER_S
            ):  # abs(): a clock may be set back
                pushes.append(Push(row.partition, row.offset, began_ns, now_ns))

    def step(self) -> None:
        """Create the spans of pushes whose batches are known by now."""
        records, now_ns = self.records(), self.now_ns()
        with self.lock:
            taken = {view: list(pushes) for view, pushes in self.waiting.items()}
            self.waiting.clear()
        kept: dict[str, list[Push]] = {}
        for view, pushes in taken.items():
            batches = records.get(f"trace:{view}", {}).get("batches", ())
            for push in pushes:
                trace = applied_by(push, batches)
                if trace is not None:
                    self._add_span(view, push, trace)
                elif abs(now_ns - push.ended_ns) < PATIENCE_S * 1e9:
                    kept.setdefault(view, []).append(push)
        with self.lock:
            for view, pushes in kept.items():
                newer = self.waiting.get(view, ())
                self.waiting[view] = deque([*pushes, *newer][-MOST_WAITING:], MOST_WAITING)

    def _add_span(self, view: str, push: Push, trace: Trace) -> None:
        span = self.spans.start(
            f"push {view}",
            "producer",
            links=(trace,),
            attributes={
                "hub.view": view,
                "hub.changelog.partition": push.partition,
                "hub.changelog.offset": push.offset,
            },
            at_ns=push.began_ns,
        )
        span.end(at_ns=push.ended_ns)


def applied_by(push: Push, batches: Any) -> Trace | None:
    """Return the context of the batch whose range of the changelog contains the row."""
    place = str(push.partition)
    for each in batches:
        first, end = each["first"].get(place), each["end"].get(place)
        if first is not None and end is not None and first <= push.offset < end:
            return parse(each["traceparent"])
    return None
