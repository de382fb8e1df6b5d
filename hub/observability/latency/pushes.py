"""[core] When were events pushed whose view's rows name none? By what subscribers have been told, and a few events with their times.

::

    a subscriber was told        t:0 up to 40 ──▶ 55 ──▶ 61 ──▶ …      each with when (``told``)
    an applier looked up         offset 57 of t:0, of 14:02:11.3       (``named``: the sample that `readable` counts, too)
                                 ⇒ pushed with the stretch 55 … 61

An event may be named before a slow subscriber is told, so it waits ``PATIENCE_MS``; it counts once for each subscriber. Limits: of a
view ``MOST_SUBSCRIBERS`` are followed, with ``MOST_TOLD`` stretches each, and ``MOST_NAMED`` events wait; of ``MOST_VIEWS`` views.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.record import Positions, TopicPartition

MOST_VIEWS = 200
MOST_SUBSCRIBERS = 4
# At forty looks a second more than the five seconds after which an applier tells what it looked up.
MOST_TOLD = 512
MOST_NAMED = 64
PATIENCE_MS = 30_000


class CoveredUpTo(NamedTuple):
    """A subscriber has everything of the sources up to ``after``, and had all up to ``before`` (epoch ms)."""

    before: Positions
    after: Positions
    at_ms: int


class Pushed(NamedTuple):
    """An event that a subscriber was told of (epoch ms)."""

    view: str
    event_ms: int
    pushed_ms: int


@dataclass
class _Named:
    place: TopicPartition
    offset: int
    event_ms: int
    named_ms: int
    counted: set[int] = field(default_factory=set)


@dataclass
class _ViewPushes:
    told: dict[int, deque[CoveredUpTo]] = field(default_factory=dict)
    waiting: deque[_Named] = field(default_factory=lambda: deque(maxlen=MOST_NAMED))
    named_to: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Pushes:
    """What subscribers were told and what is known of events, until the two meet."""

    views: dict[str, _ViewPushes] = field(default_factory=dict)

    def told(self, view: str, subscriber: int, told: CoveredUpTo) -> None:
        """One that is too many is not followed: who was first is as good a sample."""
        known = self.views.get(view)
        if known is None:
            if len(self.views) >= MOST_VIEWS:
                return
            known = self.views[view] = _ViewPushes()
        if subscriber not in known.told:
            gone = [each for each, those in known.told.items() if told.at_ms - those[-1].at_ms > PATIENCE_MS]
            for each in gone:
                del known.told[each]
            if len(known.told) >= MOST_SUBSCRIBERS:
                return
            known.told[subscriber] = deque(maxlen=MOST_TOLD)
        known.told[subscriber].append(told)

    def named(self, view: str, place: TopicPartition, offset: int, event_ms: int, now_ms: int) -> None:
        """An event of the view; one that was named before, or one before it, is passed over. Nothing while nobody is told."""
        known = self.views.get(view)
        if known is not None and offset >= known.named_to.get(place, 0):
            known.named_to[place] = offset + 1
            known.waiting.append(_Named(place, offset, event_ms, now_ms))

    def begun_anew(self, view: str, place: TopicPartition) -> None:
        """The partition is another log now: what was named and told of it is of the former one."""
        known = self.views.get(view)
        if known is not None:
            known.named_to.pop(place, None)
            known.waiting = deque((each for each in known.waiting if each.place != place), MOST_NAMED)
            known.told = {}

    def met(self, now_ms: int) -> list[Pushed]:
        """Events and when a subscriber had them, each pair once."""
        found: list[Pushed] = []
        for view, known in self.views.items():
            for event in known.waiting:
                for subscriber, those in known.told.items():
                    if subscriber in event.counted:
                        continue
                    at_ms = _pushed_ms(those, event)
                    if at_ms is not None:
                        event.counted.add(subscriber)
                        found.append(Pushed(view, event.event_ms, at_ms))
            while known.waiting and now_ms - known.waiting[0].named_ms > PATIENCE_MS:
                known.waiting.popleft()
        return found

    def forget(self, kept: Iterable[str]) -> None:
        """All views but these are gone."""
        wanted = set(kept)
        self.views = {view: each for view, each in self.views.items() if view in wanted}


def _pushed_ms(told: Iterable[CoveredUpTo], event: _Named) -> int | None:
    for each in told:
        # A partition that was not covered before was empty, or is read from its start: as where it is sampled.
        if each.before.get(event.place, event.offset + 1) <= event.offset < each.after.get(event.place):
            return each.at_ms
    return None
