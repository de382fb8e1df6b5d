"""[edge] Ctrl-C that is never lost, for commands that go on until it comes.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a destructor or in a callback from C it only
complains and goes on, so a loop that relies on the exception alone may miss it. Here it is also remembered.
"""

from __future__ import annotations

import signal
import threading

_interrupted = threading.Event()


def remember_interrupts() -> None:
    """From now on ``pause`` knows of every SIGINT. Call it in the main thread."""
    signal.signal(signal.SIGINT, _on_interrupt)


def _on_interrupt(_number: int, _frame: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def pause(seconds: float) -> None:
    """Wait between two rounds of a loop. Raises KeyboardInterrupt, also for a SIGINT that came earlier."""
    if _interrupted.wait(seconds):
        raise KeyboardInterrupt
