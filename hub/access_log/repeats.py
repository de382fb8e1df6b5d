"""[core] Count repeated entries: the first of a kind is written at once, those of the next minute as one
entry with their count."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from hub.access_log.entry import Entry, new_id

WINDOW_MS = 60_000
MOST_KEYS = 10_000


@dataclass
class Repeats:
    """Entries of the last minute by everything but time, id and request id."""

    open: dict[Hashable, tuple[Entry, int]] = field(default_factory=dict)

    def take(self, entry: Entry) -> Entry | None:
        """Return the entry if it is to be written now; None if it is counted."""
        key = _key(entry)
        found = self.open.get(key)
        if found is not None:
            self.open[key] = found[0], found[1] + entry.count
            return None
        if len(self.open) < MOST_KEYS:
            self.open[key] = entry, 0
        return entry

    def due(self, now_ms: int, *, all: bool = False) -> Sequence[Entry]:
        """Return an entry with the count for each kind whose minute is over, and forget these."""
        over = [
            key for key, (first, _) in self.open.items() if all or not 0 <= now_ms - first.at_ms < WINDOW_MS
        ]
        counted = [self.open.pop(key) for key in over]
        return [
            replace(first, count=count, request_id="", id=new_id(), at_ms=now_ms)
            for first, count in counted
            if count
        ]


def _key(entry: Entry) -> Hashable:
    return entry.action, entry.result, entry.who, entry.kind, entry.name, repr(entry.detail)
