"""[core] Row TTL: find expired rows and make the event that records an expiry.

::

    store: last_event_at ≤ now − ttl ──▶ _hub.expiry.<view>  key: the row's, {"cutoff": its last_event_at}
                                              │ folded like one more source: max(cutoff)
                                              ▼
    newest event ≤ max(cutoff)?  ──▶ a tombstone in the changelog ──▶ every store, every subscriber

A view is a fold of its log, so no clock may remove a row: the clock is read once, here, and the result is an
event. The cutoff is the row's ``last_event_at``, not the clock's time: every process that finds the same row
writes the same record, at any time and any number of times, and a later event keeps the row. So a writer that
is killed, restarted or started twice does no harm, and compaction needs to keep only the last record of a
key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from hub.materializers.definition.declared import LAST_EVENT_AT
from hub.materializers.stores.store import StoreSnapshot
from hub.record import NewRecord
from hub.times import iso, ms_of

# An expiry that does not show in the store is written again after this time: the view may be stopped, or the
# topic of expiries was recreated.
AGAIN_S = 300.0
_FIRST_MS = ms_of(datetime.min)


class ExpiredRow(NamedTuple):
    """An expired row: its key, and the time of its last event (epoch ms)."""

    key: str
    last_ms: int


def record(topic: str, due: ExpiredRow) -> NewRecord:
    """Return the event that records the expiry.

    >>> record("_hub.expiry.v", ExpiredRow("C-1", 1_709_290_800_123)).value
    b'{"cutoff":"2024-03-01T11:00:00.123Z"}'
    """
    # Before year 1 no calendar applies: use its start, which is still before the clock's time less any ttl.
    return NewRecord(topic, due.key.encode(), orjson.dumps({"cutoff": iso(max(due.last_ms, _FIRST_MS))}))


def among(cut: StoreSnapshot, until_ms: int, limit: int) -> list[ExpiredRow]:
    """Return the first ``limit`` due rows of a store's snapshot, in any order. Scans every row of a store
    without an index.
    """
    names = list(cut.types)
    if LAST_EVENT_AT not in names:
        return []
    place, expired_rows = names.index(LAST_EVENT_AT), list[ExpiredRow]()
    for key, _, values in cut.rows():
        if values[place] is not None and values[place] <= until_ms:
            expired_rows.append(ExpiredRow(key, int(values[place])))
            if len(expired_rows) == limit:
                break
    return expired_rows


class PendingDeletes:
    """Expiries of one view that are written and do not show in its store yet; at most a page."""

    def __init__(self) -> None:
        self._at: dict[ExpiredRow, float] = {}

    def unwritten(self, due: Sequence[ExpiredRow], now_s: float) -> list[ExpiredRow]:
        """Return the rows of a page whose expiry is to be written now.

        Rows that left the page are forgotten: they are gone, or had an event since.
        """
        self._at = {each: self._at[each] for each in due if each in self._at}
        return [each for each in due if now_s - self._at.get(each, -AGAIN_S) >= AGAIN_S]

    def note_written(self, due: Iterable[ExpiredRow], now_s: float) -> None:
        self._at.update(dict.fromkeys(due, now_s))


def expired_records(sources: Mapping[str, Mapping[str, int]], topic: str) -> int:
    """Return how many expiries a view has folded, from its source positions: offsets count all records ever
    written.
    """
    return sum(sources.get(topic, {}).values())
