"""Journal of sent and acknowledged events. Writers add to it, checks read it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]


@dataclass
class Journal:
    """Every event of a trial by its id. Thread safe.

    ``sent``: events passed to a client. ``acknowledged``: events whose writer received their place in the
    log. An event that was sent and never acknowledged may or may not be in the log; one that was rolled back
    must not be readable.
    """

    sent: dict[str, Event] = field(default_factory=dict)
    acknowledged: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Event id → (topic, partition, offset) as acknowledged to the writer."""
    repeatable: set[str] = field(default_factory=set)
    """Ids that a writer sends again without idempotence: in the log once or more often."""
    rolled_back: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    """Results of writers and readers that must never occur."""
    met: dict[str, int] = field(default_factory=dict)
    """Errors that clients met and got over, by text."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, event: Event, *, repeatable: bool = False) -> None:
        with self._lock:
            self.sent[event["id"]] = event
            if repeatable:
                self.repeatable.add(event["id"])

    def acknowledge(self, event_id: str, topic: str, partition: int, offset: int) -> None:
        with self._lock:
            self.acknowledged[event_id] = topic, partition, offset

    def roll_back(self, event_id: str) -> None:
        with self._lock:
            self.rolled_back.add(event_id)

    def accuse(self, text: str) -> None:
        """Note a violation; the trial fails by it. At most 200 are kept."""
        with self._lock:
            if len(self.wrong) < 200:
                self.wrong.append(text)

    def meet(self, text: str) -> None:
        """Count an error that a client may meet while something is hurt."""
        with self._lock:
            if len(self.met) < 500 or text in self.met:
                self.met[text] = self.met.get(text, 0) + 1

    def counts(self) -> tuple[int, int]:
        """(sent, acknowledged)."""
        with self._lock:
            return len(self.sent), len(self.acknowledged)
