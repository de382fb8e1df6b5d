"""[shell] Mark on disk what a version's thread does, and find that it makes no progress.

The marks are evidence for the next process if this one dies (isolation/policy.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hub.config import Settings
from hub.materializers.engine.stall_clock import StallClock
from hub.materializers.isolation.policy import Phase
from hub.materializers.isolation.thread_marks import ThreadMarks
from hub.materializers.progress.records import Mode
from hub.materializers.spark import session as spark

# Factor on the stall limit for work that shows no progress: planning, and computing in the incremental
# engine.
_BLIND_PATIENCE = 4


class StallWatch:
    """Progress of one version's thread. ``stalled``: why the version should be isolated, which completes the
    sentence "its batch …"; None: it makes progress."""

    def __init__(self, settings: Settings, marks: ThreadMarks, table: str) -> None:
        self._settings = settings
        self._marks = marks
        self._table = table
        self._clock = StallClock(settings.stalled_batch_s)
        self._planning_since_s: float | None = None
        self.stalled: str | None = None

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Mark the phase for as long as the block runs."""
        self._marks.mark(self._table, phase)
        self._planning_since_s = time.monotonic() if phase == "planning" else None
        try:
            yield
        except BaseException as error:
            self.keep_marks(error)
            raise
        finally:
            self._planning_since_s = None
            self._marks.mark(self._table, None)

    def keep_marks(self, error: BaseException) -> None:
        """Freeze the marks when Spark is gone: they are evidence, and nothing that this process still does
        may overwrite them."""
        if spark.is_gone(error):
            self._marks.freeze()

    def query_started(self, mode: Mode, *, delta: bool) -> None:
        """Watch a new query. ``delta``: the incremental engine computes its batches."""
        self._clock = StallClock(limit_s(self._settings, mode, delta=delta))

    def moved(self) -> None:
        """Reset the clock: the query waits for somebody else, such as Kafka."""
        self._clock.moved(time.monotonic())

    def look_at_planning(self, now_s: float) -> None:
        """Detect planning that takes too long: a file of Python functions may never finish."""
        since_s, most_s = self._planning_since_s, self._settings.stalled_batch_s * _BLIND_PATIENCE
        if since_s is not None and most_s and now_s - since_s > most_s:
            self.stalled = f"was planned for {most_s:g} s"

    def look_at_batch(self, life: Callable[[], object], now_s: float) -> None:
        """Detect a batch that shows no progress. ``life``: see ``StallClock.look``."""
        disk_state = self._marks.see(self._table)
        if disk_state.at is None:
            self._clock.moved(now_s)
        elif self._clock.look((disk_state.at, disk_state.done), life, now_s):
            self.stalled = f"did not move for {self._clock.limit_s:g} s"


def limit_s(settings: Settings, mode: Mode, *, delta: bool) -> float:
    """Return how long a batch may show no progress, in seconds; 0: no limit.

    Real-time mode commits only at its checkpoints, and the incremental engine computes outside Spark.
    """
    most_s = settings.stalled_batch_s
    if not most_s or mode != "realtime":
        return most_s * (_BLIND_PATIENCE if delta else 1)
    return most_s + 2 * settings.realtime_checkpoint_s
