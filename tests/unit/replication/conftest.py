"""Examples have no deadline on a busy machine: times are never asserted."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
