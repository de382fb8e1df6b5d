"""[core] The events that made a change of a row: exactly these, or some within these positions.

An entity view's version counts the events folded into the row, and the row names the latest event of each
source. If as many sources have another latest event as the count grew by, these are the events. Otherwise
some of them are known (an event that is older by the source's ``order`` is never the latest one), and all
lie within the positions of the batches that published the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hub.record import Positions

# A version is generation · 2⁴⁰ + events folded (hub.materializers.changelog.record).
_EVENTS = (1 << 40) - 1

Precision = Literal["exact", "within", "unknown"]


class EventPlace(NamedTuple):
    """Place of an event in the log, and the name of the source that read it."""

    topic: str
    partition: int
    offset: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Source positions of the batches that published a change: from ``begin`` to before ``end``. None: not
    known."""

    begin: Positions | None
    end: Positions | None


@dataclass(frozen=True, slots=True)
class Causes:
    """Events of a change. ``exact``: it is all of ``events``. ``within``: ``events`` are some of them, all
    are within ``range``. ``count``: how many there are, if that is known.
    """

    precision: Precision
    events: tuple[EventPlace, ...]
    range: BatchRange
    count: int | None = None


def causes(
    before: tuple[int, Mapping[str, Any] | None] | None,
    after: tuple[int, Mapping[str, Any] | None],
    batch: BatchRange,
    *,
    first: bool = False,
) -> Causes:
    """Return the events between two versions of a row, each with its number and its sources.

    ``before`` None: no earlier version is kept; ``first``: because there is none.
    """
    events = _new_places(None if before is None else before[1], after[1])
    count = _count(before, after, first=first)
    if count is not None and count == len(events):
        return Causes("exact", events, batch, count)
    if batch.begin is None or batch.end is None:
        return Causes("unknown", events, batch, count)
    return Causes("within", events, batch, count)


def _count(
    before: tuple[int, Mapping[str, Any] | None] | None,
    after: tuple[int, Mapping[str, Any] | None],
    *,
    first: bool,
) -> int | None:
    """Return the number of events between two versions; None if it is unknown."""
    if after[1] is None:
        return None  # rows without sources have versions that count something else
    if before is None:
        return after[0] & _EVENTS if first else None
    same_generation = before[0] & ~_EVENTS == after[0] & ~_EVENTS
    return after[0] - before[0] if same_generation and before[1] is not None else None


def _new_places(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[EventPlace, ...]:
    event_places = set(_places(before).values())
    return tuple(place for place in _places(after).values() if place not in event_places)


def _places(sources: Mapping[str, Any] | None) -> dict[str, EventPlace]:
    return {
        name: EventPlace(str(each["topic"]), int(each["partition"]), int(each["offset"]), name)
        for name, each in (sources or {}).items()
        if isinstance(each, Mapping) and each.get("topic") is not None
    }
