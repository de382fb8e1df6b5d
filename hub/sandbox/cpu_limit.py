"""[edge] Processor time of one call, as a bound on mistakes: code that means harm can lift it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from hub.sandbox.refusals import TimeIsUp


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp in the block when this process has used ``seconds`` of processor time. 0: no limit.

    Signals reach the main thread only; in other threads there is no limit.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise TimeIsUp
