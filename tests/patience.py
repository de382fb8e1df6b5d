"""Time limits of tests, scaled: a machine shared with others sometimes takes several times as long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FACTOR = float(os.environ.get("HUB_TEST_PATIENCE", "1"))


def patient(seconds: float) -> float:
    """Return ``seconds`` times HUB_TEST_PATIENCE. Only failing tests take longer by it."""
    return seconds * _FACTOR


def wait_until(
    done: Callable[[], T],
    timeout_s: float = 30.0,
    say: Callable[[], object] = lambda: "it does not happen",
    pause_s: float = 0.02,
) -> T:
    """Return the first true answer of ``done``. Fails with ``say`` after ``patient(timeout_s)``."""
    deadline = time.monotonic() + patient(timeout_s)
    while not (answer := done()):
        assert time.monotonic() < deadline, say()
        time.sleep(pause_s)
    return answer
