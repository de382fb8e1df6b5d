"""[core] Rows that are over: who is due, and the event that says so.

::

    store: last_event_at ≤ now − ttl ──▶ _hub.expiry.<view>  key: the row's, {"cutoff": its last_event_at}
                                              │ folded like one more source: max(cutoff)
                                              ▼
    newest event ≤ max(cutoff)?  ──▶ a tombstone in the changelog ──▶ every store, every subscriber

A view is a fold of its log, so no clock may take a row out of it: the clock is read once, here, and what it said is an event.
The cutoff is the very time that the row was found with, not the clock's: whoever finds the same row writes the same record,
whenever and however often, and an event that is later than it keeps the row. So a writer that is killed, started again or there
twice does no harm, and of a key the last record is all that compaction must keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import orjson

from hub.materializers.definition.declared import LAST_EVENT_AT
from hub.materializers.stores.store import StoreSnapshot
from hub.record import NewRecord

# What was said and did not show in the store is said again after this time: the view may stand still, or the topic of
# expiries was made anew.
AGAIN_S = 300.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = round((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds() * 1000)


class ExpiredRow(NamedTuple):
    """A row that is over: its key, and when its last event was (epoch ms)."""

    key: str
    last_ms: int


def record(topic: str, due: ExpiredRow) -> NewRecord:
    """The event that says it.

    >>> record("_hub.expiry.v", Due("C-1", 1_709_290_800_123)).value
    b'{"cutoff":"2024-03-01T11:00:00.123Z"}'
    """
    # Before all calendars: as if in their first year, which is still not after the clock's time less any ttl.
    at = _EPOCH + timedelta(milliseconds=max(due.last_ms, _FIRST_MS))
    text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return NewRecord(topic, due.key.encode(), orjson.dumps({"cutoff": text}))


def among(cut: StoreSnapshot, until_ms: int, limit: int) -> list[ExpiredRow]:
    """The first ``limit`` rows of a store's cut that are due, in any order: of stores without an index every row is looked at."""
    names = list(cut.types)
    if LAST_EVENT_AT not in names:
        return []
    place, found = names.index(LAST_EVENT_AT), list[ExpiredRow]()
    for key, _, values in cut.rows():
        if values[place] is not None and values[place] <= until_ms:
            found.append(ExpiredRow(key, int(values[place])))
            if len(found) == limit:
                break
    return found


class PendingDeletes:
    """What was said of one view's rows and still shows in its store: a page of them at most."""

    def __init__(self) -> None:
        self._at: dict[ExpiredRow, float] = {}

    def unsaid(self, due: Sequence[ExpiredRow], now_s: float) -> list[ExpiredRow]:
        """Those of a page that are to be said now. What is not in the page any more is forgotten: the row is gone, or it had
        an event since."""
        self._at = {each: self._at[each] for each in due if each in self._at}
        return [each for each in due if now_s - self._at.get(each, -AGAIN_S) >= AGAIN_S]

    def said(self, due: Iterable[ExpiredRow], now_s: float) -> None:
        self._at.update(dict.fromkeys(due, now_s))


def expired_records(sources: Mapping[str, Mapping[str, int]], topic: str) -> int:
    """How many expiries a view has folded, of what its progress says of its sources: offsets count what was ever written."""
    return sum(sources.get(topic, {}).values())
