"""Startup module of every Python process in a trial of the fault suite (PYTHONPATH, Python's ``site``).

HUB_FAULT_CLOCK: a file with the number of seconds by which ``time.time`` is wrong. HUB_PLANTED_BUG: the name
of this process's bug (bugs.py). This module is not part of the product.
"""

import os
import time


def _set_clock(path: str) -> None:
    right, known = time.time, {"offset": 0.0, "read_at": 0.0}

    def wrong() -> float:
        now = time.monotonic()
        if now - known["read_at"] > 0.3:
            known["read_at"] = now
            try:
                with open(path) as file:
                    known["offset"] = float(file.read() or 0)
            except (OSError, ValueError):
                known["offset"] = 0.0
        return right() + known["offset"]

    time.time = wrong


if "HUB_FAULT_CLOCK" in os.environ:
    _set_clock(os.environ["HUB_FAULT_CLOCK"])
if "HUB_PLANTED_BUG" in os.environ:
    from bugs import plant

    plant(os.environ["HUB_PLANTED_BUG"])
