"""How long tests wait for what must come: on a machine shared with others all of it takes several times as long at times."""

from __future__ import annotations

import os

_FACTOR = float(os.environ.get("HUB_TEST_PATIENCE", "1"))


def patient(seconds: float) -> float:
    """So many seconds, times HUB_TEST_PATIENCE. Only what fails takes longer by it."""
    return seconds * _FACTOR
