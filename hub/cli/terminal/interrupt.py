"""[edge] Handle Ctrl-C reliably in commands that run until it comes.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a destructor or in a callback from
C, Python only prints it and continues, so a loop that relies on the exception alone may miss it. This module
also remembers the interrupt.
"""

from __future__ import annotations

import signal
import threading

_interrupted = threading.Event()


def remember_interrupts() -> None:
    """From now on ``pause`` knows of every SIGINT, and of none before. Call it in the main thread."""
    _interrupted.clear()
    signal.signal(signal.SIGINT, _on_interrupt)


def _on_interrupt(_number: int, _frame: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def pause(seconds: float) -> None:
    """Wait between two rounds of a loop. Raises KeyboardInterrupt, also for a SIGINT that came earlier."""
    if _interrupted.wait(seconds):
        raise KeyboardInterrupt
