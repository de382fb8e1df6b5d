"""Number of examples or seeds of an expensive property: all of them, or a part with ``./run test --fast``."""

from __future__ import annotations

import os
from typing import TypeVar

FAST = "HUB_TEST_FAST"
"""Variable that a run with --fast sets, unless HUB_FAULT_SEEDS asks for all examples."""

T = TypeVar("T")


def fast_or(fast: T, full: T) -> T:
    """Return ``fast`` in a run with --fast, else ``full``. A fast sample is the beginning of the full one."""
    return fast if os.environ.get(FAST) == "1" else full
