"""[edge] The loop around processes: back-off, stop signals, and children that never outlive their parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Runs between fork and exec, but as a program of its own: safe with threads, unlike subprocess's preexec_fn.
_TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(command: Sequence[str]) -> list[str]:
    """The command, tied to the calling thread: Linux kills it when that thread ends, however it ends (prctl(2)).

    The first word must be a path. Call it from the main thread, where "the thread" is the process.
    """
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]
