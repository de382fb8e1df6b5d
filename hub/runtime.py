"""[edge] The loop around processes: back-off, stop signals, and children that never outlive their parent."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

log = logging.getLogger(__name__)

STEP_S = 0.1


@dataclass
class Backoff:
    """Growing pauses between tries: ``first_s``, then ``factor`` times the last,
    never more than ``most_s``."""

    first_s: float = 0.5
    most_s: float = 30.0
    factor: float = 2.0
    failures: int = 0

    def next_s(self) -> float:
        """Count one more failure; the seconds to wait before the next try."""
        # 2.0 ** 1024 overflows; long before that the pause is at its most.
        pause = self.first_s * self.factor ** min(self.failures, 64)
        self.failures += 1
        return min(pause, self.most_s)

    def reset(self) -> None:
        """Reset the backoff after a success: the next failure waits ``first_s`` again."""
        self.failures = 0


def collect_rarely() -> None:
    """Make Python's garbage collector run rarely, for a process with many objects and few cycles; call it
    when everything is loaded. With Python's default, which checks all objects again and again, an applier was
    a third slower.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def repeating(
    step: Callable[[], object], *, name: str, pause_s: Callable[[float], float], failed: str
) -> Iterator[None]:
    """Run ``step`` repeatedly in a thread called ``name`` while the block runs.

    ``pause_s``: from the seconds that a step took to those until the next. A step that fails is logged as
    ``failed``, the same failure once, and the next is taken all the same: what is known goes on being shown,
    whatever broke.
    """
    stopping = threading.Event()

    def repeat() -> None:
        last_failure = ""
        while not stopping.is_set():
            began_s = time.monotonic()
            try:
                step()
                last_failure = ""
            except Exception as error:
                if repr(error) != last_failure:
                    log.exception(failed)
                last_failure = repr(error)
            stopping.wait(pause_s(time.monotonic() - began_s))

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(1.0)


def log_to_stderr() -> None:
    """Configure logging for a long-running command: INFO to standard error; WARNING for libraries that log
    each request.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-5s %(name)s: %(message)s"
    )
    for chatty in ("py4j", "httpx2", "httpcore2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def install_stop_signals() -> threading.Event:
    """Return an event that SIGINT, SIGTERM and SIGHUP set. A second signal ends the process at once. Under
    nohup, SIGHUP stays ignored, so the process outlives its terminal.
    """
    stop = threading.Event()
    names = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        names.append(signal.SIGHUP)

    def on_signal(_number: int, _frame: object) -> None:
        stop.set()
        for name in names:
            signal.signal(name, signal.SIG_DFL)

    for name in names:
        signal.signal(name, on_signal)
    return stop


# Runs between fork and exec, but as a program of its own: safe with threads, unlike subprocess's preexec_fn.
_TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command, tied to the calling thread: Linux kills it when that thread ends for any reason
    (prctl(2)). The first word must be a path. Call it from the main thread, which ends only with its process.
    """
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]
