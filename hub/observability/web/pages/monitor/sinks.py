"""[core] Page of sinks: their states, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Sinks that need a person come first.
_ORDER = ("FAILING", "REPLACED", "RETRYING", "UNKNOWN", "WAITING", "STARTING", "PAUSED", "DELIVERING")
SHOWN_AS = {
    "DELIVERING": "OK",
    "WAITING": "BEHIND",
    "RETRYING": "STALLED",
    "FAILING": "STALLED",
    "REPLACED": "STOPPED",
    "PAUSED": "",
    "STARTING": "CATCHING_UP",
    "UNKNOWN": "UNKNOWN",
}
"""States of sinks by the states of readers, whose colors they have."""


@dataclass(frozen=True, slots=True)
class SinkLine:
    """A sink of sinks.yaml and its state. ``source`` "": its entry is wrong. ``tables``: topics whose rows it
    assembles. ``lag_s``: age of the oldest record that is read and not delivered; ``delivered`` and
    ``refused``: events since the worker started. None: unknown.
    """

    name: str
    state: str
    cause: str = ""
    source: str = ""
    kind: str = ""
    target: str = ""
    owner: str = ""
    where: str = ""
    tables: tuple[str, ...] = ()
    lag_s: float | None = None
    lag_records: int | None = None
    delivered: int | None = None
    refused: int | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class SinksPage:
    """Values of the page. ``declared``: whether the project has sinks."""

    sinks: tuple[SinkLine, ...]
    declared: bool


def sinks_page(lines: Sequence[SinkLine]) -> SinksPage:
    """Return the page."""
    ranked = sorted(lines, key=lambda each: (_ORDER.index(each.state), not each.late, each.name))
    return SinksPage(tuple(ranked), bool(lines))
