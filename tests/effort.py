"""Cost of work as a multiple of a loop on the same machine. Growth can be bounded this way; seconds would
depend on the machine and its other users.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def costs_at_most(loops: int) -> Iterator[None]:
    """Bound the CPU time of the block by ``loops``. One loop makes a dict of 100,000 numbers as texts; it is
    timed before and after, by the CPU time of this thread.
    """
    before = _loop_s()
    begun = time.thread_time()
    yield
    spent = time.thread_time() - begun
    needed = spent / max(before, _loop_s())
    assert needed <= loops, f"{needed:.0f} loops of {loops}"


def _loop_s() -> float:
    begun = time.thread_time()
    made = {str(number): number for number in range(100_000)}
    assert len(made) == 100_000
    return time.thread_time() - begun
