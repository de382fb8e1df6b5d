"""Time limits of tests, scaled: a machine shared with others sometimes takes several times as long."""

from __future__ import annotations

import os

_FACTOR = float(os.environ.get("HUB_TEST_PATIENCE", "1"))


def patient(seconds: float) -> float:
    """Return ``seconds`` times HUB_TEST_PATIENCE. Only failing tests take longer by it."""
    return seconds * _FACTOR
