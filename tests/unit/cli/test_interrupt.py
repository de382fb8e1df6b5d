"""Ctrl-C is never lost, and ends one command alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hub.cli.terminal.interrupt import pause, remember_interrupts

# What KeyboardInterrupt meets in __del__ is printed and forgotten; the loop's own pause still ends it.
PROGRAM = """
import os, signal, sys
from hub.cli.terminal.interrupt import pause, remember_interrupts

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass

remember_interrupts()
Dying()
try:
    for _ in range(3): pause(0.01)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.processes
def test_a_ctrl_c_in_a_destructor_ends_the_next_pause() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60
    )
    assert "Exception ignored" in done.stderr and "KeyboardInterrupt" in done.stderr
    assert done.returncode == 130


def test_a_command_does_not_end_by_the_interrupt_of_an_earlier_one() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        remember_interrupts()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            pause(0.01)
        remember_interrupts()
        pause(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
