"""[shell] Read the access log back: entries by filters, and the check of its chains.

Searches read at most ``MOST_SCANNED`` records, the newest of the asked time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.chain import SIGNED
from hub.access_log.entry import TOPIC, StoredEntry, decode
from hub.access_log.verifying import LogCheck
from hub.errors import CallerError, HubFault, NotFound
from hub.log import Log, between
from hub.record import Positions, Record, TopicPartition
from hub.times import parse_iso

PLACE = TopicPartition(TOPIC, 0)
MOST_SCANNED = 200_000
_SILENT_S = 30.0
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Filter of entries; empty parts admit all. ``action`` and ``on`` may be patterns: ``topic.*``,
    ``shop.**``. ``on``: name of the object, or kind:name. Records of the log itself need an ``action``."""

    by: str = ""
    action: str = ""
    on: str = ""
    result: Outcome | None = None

    def admits(self, stored: StoredEntry) -> bool:
        entry = stored.entry
        if not self.action and entry.action in SIGNED:
            return False
        return (
            (not self.by or fnmatchcase(entry.who.name, self.by))
            and (not self.action or fnmatchcase(entry.action, self.action))
            and (not self.on or any(fnmatchcase(text, self.on) for text in names_of(stored)))
            and (self.result is None or entry.result == self.result)
        )


def names_of(stored: StoredEntry) -> Iterator[str]:
    """Yield the names of the objects of an entry: its own, with and without kind, and tables of SQL."""
    entry = stored.entry
    yield entry.name or entry.kind
    yield f"{entry.kind}:{entry.name}"
    if entry.action is LoggedAction.sql:
        yield from map(str, entry.detail.get("tables", ()))


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Entries, oldest first. ``scanned``: records that were read; ``from_start``: none of the asked time was
    left out."""

    entries: tuple[StoredEntry, ...]
    scanned: int
    from_start: bool


def find(cluster: Log, wanted: LogFilter, limit: int, since_ms: int | None = None) -> FoundEntries:
    """Return the newest ``limit`` entries that the filter admits. Blocks. Raises NotFound, PeerError."""
    begin, end = bounds(cluster)
    first = begin
    if since_ms is not None:
        first = cluster.offsets_at([TOPIC], since_ms).offsets.get(PLACE, end)
    start = max(first, end - MOST_SCANNED)
    stored_entries: deque[StoredEntry] = deque(maxlen=limit)
    for record in records(cluster, start, end):
        stored = entry_of(record)
        if stored is not None and wanted.admits(stored):
            stored_entries.append(stored)
    return FoundEntries(tuple(stored_entries), end - start, start == first)


def entry_of(record: Record) -> StoredEntry | None:
    """Parse a record; None for one that the hub did not write, which ``verify`` reports."""
    try:
        return decode(record.value, record.offset)
    except HubFault:
        return None


def verify(
    cluster: Log, trusted: Collection[str], progress: Callable[[int], None] = lambda _: None
) -> LogCheck:
    """Check all chains of the topic. Blocks. Raises NotFound, PeerError."""
    begin, end = bounds(cluster)
    check = LogCheck(begin, trusted)
    for record in records(cluster, begin, end):
        check.apply(record.offset, record.value)
        if check.records % 10_000 == 0:
            progress(check.records)
    return check


def bounds(cluster: Log) -> tuple[int, int]:
    """Return the first and the next offset of the topic. Raises NotFound (HUB-1724) if there is none."""
    if TOPIC not in cluster.described([TOPIC]):
        raise NotFound(
            f'topic "{TOPIC}" does not exist: nothing was logged yet',
            hint="the log begins with access.yaml, or with access_log: true in hub.yaml",
            code="HUB-1724",
        )
    return cluster.beginning_offsets([TOPIC]).get(PLACE), cluster.end_offsets([TOPIC]).get(PLACE)


def records(cluster: Log, start: int, end: int) -> Iterator[Record]:
    """Yield the records from ``start`` up to ``end``, exclusive."""
    if start < end:
        yield from between(Positions({PLACE: start}), Positions({PLACE: end}), cluster.reader(), _SILENT_S)


def parse_since(text: str, now_s: float) -> int | None:
    """Parse a time or a span before ``now_s`` as epoch milliseconds; None for "". Raises CallerError.

    >>> parse_since("2h", 10_000.0), parse_since("1970-01-01T00:00:01+00:00", 10_000.0)
    (2800000, 1000)
    """
    if not text:
        return None
    if (span := re.fullmatch(r"(\d{1,6})([mhd])", text)) is not None:
        return max(0, int((now_s - int(span[1]) * _UNITS[span[2]]) * 1000))
    try:
        return parse_iso(text)
    except ValueError:
        raise CallerError(
            f'since "{text[:40]}" is not a time',
            hint="write 30m, 24h, 7d or 2026-01-31T12:00",
            code="HUB-1423",
        ) from None
