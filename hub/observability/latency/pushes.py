"""[core] Push times of events of views whose rows name no events: from subscribers' positions and a sample of
events.

::

    a subscriber's progress      t:0 up to 40 ──▶ 55 ──▶ 61 ──▶ …      each with its time (``progress``)
    an applier's sample          offset 57 of t:0, of 14:02:11.3       (``named``: also counted as `readable`)
           ⇒ pushed with the range 55 … 61

An event may be sampled before a slow subscriber gets it, so it waits for ``PATIENCE_MS``; it counts once for
each subscriber. Limits: ``MOST_VIEWS`` views; of each, ``MOST_SUBSCRIBERS`` subscribers with
``MOST_PROGRESS`` ranges each, and ``MOST_NAMED`` waiting events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.record import Positions, TopicPartition

MOST_VIEWS = 200
MOST_SUBSCRIBERS = 4
# At 40 pushes a second, more than the five seconds between two reports of an applier.
MOST_PROGRESS = 512
MOST_NAMED = 64
PATIENCE_MS = 30_000


class CoveredUpTo(NamedTuple):
    """Progress of a subscriber from ``before`` to ``after``: it now has everything of the sources up to
    ``after``.

    ``at_ms``: time of the push, epoch ms.
    """

    before: Positions
    after: Positions
    at_ms: int


class Pushed(NamedTuple):
    """An event that was pushed to a subscriber; times in epoch ms."""

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
    progress: dict[int, deque[CoveredUpTo]] = field(default_factory=dict)
    waiting: deque[_Named] = field(default_factory=lambda: deque(maxlen=MOST_NAMED))
    named_to: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Pushes:
    """Matches subscribers' progress with sampled events."""

    views: dict[str, _ViewPushes] = field(default_factory=dict)

    def record_progress(self, view: str, subscriber: int, progress: CoveredUpTo) -> None:
        """Record a subscriber's progress. Subscribers beyond the limit are ignored: the first ones are a
        sufficient sample."""
        pushes = self.views.get(view)
        if pushes is None:
            if len(self.views) >= MOST_VIEWS:
                return
            pushes = self.views[view] = _ViewPushes()
        if subscriber not in pushes.progress:
            gone = [
                each
                for each, those in pushes.progress.items()
                if progress.at_ms - those[-1].at_ms > PATIENCE_MS
            ]
            for each in gone:
                del pushes.progress[each]
            if len(pushes.progress) >= MOST_SUBSCRIBERS:
                return
            pushes.progress[subscriber] = deque(maxlen=MOST_PROGRESS)
        pushes.progress[subscriber].append(progress)

    def named(self, view: str, place: TopicPartition, offset: int, event_ms: int, now_ms: int) -> None:
        """Add a sampled event of the view; ignored if it or a later one was added before, or while nobody
        subscribes."""
        pushes = self.views.get(view)
        if pushes is not None and offset >= pushes.named_to.get(place, 0):
            pushes.named_to[place] = offset + 1
            pushes.waiting.append(_Named(place, offset, event_ms, now_ms))

    def begun_anew(self, view: str, place: TopicPartition) -> None:
        """Forget the events and progress of a partition that is now another log."""
        pushes = self.views.get(view)
        if pushes is not None:
            pushes.named_to.pop(place, None)
            pushes.waiting = deque((each for each in pushes.waiting if each.place != place), MOST_NAMED)
            pushes.progress = {}

    def met(self, now_ms: int) -> list[Pushed]:
        """Return the events that reached a subscriber, each pair once."""
        pushed_events: list[Pushed] = []
        for view, pushes in self.views.items():
            for event in pushes.waiting:
                for subscriber, those in pushes.progress.items():
                    if subscriber in event.counted:
                        continue
                    at_ms = _pushed_ms(those, event)
                    if at_ms is not None:
                        event.counted.add(subscriber)
                        pushed_events.append(Pushed(view, event.event_ms, at_ms))
            while pushes.waiting and now_ms - pushes.waiting[0].named_ms > PATIENCE_MS:
                pushes.waiting.popleft()
        return pushed_events

    def forget(self, kept: Iterable[str]) -> None:
        """Remove all other views."""
        wanted = set(kept)
        self.views = {view: each for view, each in self.views.items() if view in wanted}


def _pushed_ms(progress: Iterable[CoveredUpTo], event: _Named) -> int | None:
    for each in progress:
        # A partition that was not covered before was empty, or is read from its start, as in the sample.
        if each.before.get(event.place, event.offset + 1) <= event.offset < each.after.get(event.place):
            return each.at_ms
    return None
